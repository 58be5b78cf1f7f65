"""Which planted causes are fit for a test of networks? What brightness and an oracle tell of each, before any network is trained.

.venv/bin/python pipelines/reproduce.py simulated_effects/causes causes.toml
.venv/bin/python pipelines/reproduce.py simulated_effects/causes causes.toml --patients 96 --seed 2      (quicker)

Result: runs/causes/SEED/causes.csv, and the same as a table.
"""

from dataclasses import asdict
from pathlib import Path

import pandas as pd
from rich.console import Console

from mri_vit import study
from mri_vit.arguments import Count, Seed
from mri_vit.crossval import folds
from mri_vit.data import frozen
from mri_vit.run import folder as run_folder
from mri_vit.run import screen
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import file as study_file
from reproductions.simulated_effects import effects
from reproductions.simulated_effects.fitness import measure, shown

CONFIG = Path(__file__).with_name("causes.toml")
PATIENTS = 384  # half-widths of the intervals of an AUC near 0.5 are 0.06 with so many


def main(file: Path = CONFIG, *, seed: Seed = 1, patients: Count = PATIENTS) -> None:
    """Make the cohort of this seed, prepare it, and write what tells its causes."""
    console = Console()
    settings = study_file.filled(study_file.load(file), seed=seed).model_copy(update={"seed": seed})
    effects.make(settings.cohort.parent, seed, patients)
    with run_folder.claimed(settings) as run:
        study.prepare(settings, study.check(settings, run), run, console)
        people = frozen.included(settings, run)
        split = folds.make(people, settings.endpoints, settings.train, seed)[0]
        found = measure(settings, people, split, seed)
        table = pd.DataFrame([asdict(one) | {"fit": one.fit} for one in found])
        write_bytes(table.to_csv(index=False).encode(), run / "causes.csv")
        console.print(shown(found))
        screen.say(console, f"table: {run / 'causes.csv'}")

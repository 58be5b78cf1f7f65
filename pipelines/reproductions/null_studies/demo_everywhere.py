"""The demo on other cohorts, processors, threads and seeds: do its verdicts hold?

    pipelines/reproduce.py null_studies/demo_everywhere cohorts 30  (other seeds of the cohort, one training each)
    pipelines/reproduce.py null_studies/demo_everywhere machines  (the shipped cohort: instruction sets, threads, seeds)
    pipelines/reproduce.py null_studies/demo_everywhere seeds 9  (the shipped cohort: nine other seeds of training)
    pipelines/reproduce.py null_studies/demo_everywhere short  (three runs, as among the slow tests)
    pipelines/reproduce.py null_studies/demo_everywhere  (what demo_everywhere.csv holds so far)

Each run is the demo without its maps, in a process of its own, in runs/everywhere/ (or --home). A run that was stopped goes on
where it was, and one that is in the table is not made again; each adds a row with the verdicts, with how many endpoints the
control on permuted labels found (a null study of the demo's network), and with what other controls reach on the endpoint that
they should not know. About two minutes a run on two idle cores, more than half of them for the scans of a new
cohort. --keep keeps cohorts and prepared patients, 1 GB each.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pandas as pd

HOME = Path(__file__).parents[3]
TABLE = Path(__file__).with_name("demo_everywhere.csv")
PLANTED = {"mgmt": "better", "tertp": "better", "pten": "chance", "os": "better"}  # as the cohort's README says
BLIND = ("intensity", "volume", "clinical")  # controls that should not know on which side a tumour lies
COLUMNS = [
    "run",
    "cohort",
    "seed",
    "instructions",
    "threads",
    *(f"{e}{what}" for e in PLANTED for what in ("", "_value")),
    "leaks",
    "shuffled",  # endpoints whose permuted labels were found
    *(f"tertp_{control}" for control in BLIND),
]
REPRODUCE, QUESTION = HOME / "pipelines" / "reproduce.py", "null_studies/demo_everywhere"  # this script, for one run
SHIPPED = 20261121  # the cohort's seed: synthetic/cohort.py
FIRST = 101  # seed of the first other cohort


@dataclass(frozen=True)
class Run:
    """One run of the demo: the seed of its cohort and of its training, and the processor it is to believe in."""

    cohort: int = SHIPPED
    seed: int = 0
    instructions: str = "default"  # as ATEN_CPU_CAPABILITY takes them
    threads: int = 1
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"cohort-{self.cohort}-seed-{self.seed}-{self.instructions}-{self.threads}")


MACHINES = (
    *(Run(instructions=instructions, threads=threads) for threads in (1, 2) for instructions in ("default", "avx2", "avx512")),
    *(Run(seed=seed) for seed in (1, 2, 3)),
)
SHORT = (Run(), Run(instructions="avx2", threads=2), Run(seed=1))


def people_of(run: Run, home: Path) -> Path:
    """The folder of a run's cohort."""
    return home / f"cohort-{run.cohort}"


def changes(run: Run, home: Path) -> dict[str, str]:
    """What a run has other than the demo."""
    people = people_of(run, home)
    return {
        "cohort": str(people / "cohort.csv"),
        "prepared": str(people / "prepared"),
        "output": str(home / run.name),
        "seed": str(run.seed),
        "train.threads": str(run.threads),  # training sets its own number, whatever the process had before
        "explain.patients": "0",
        "explain.scored": "0",
    }


def make(run: Run, home: Path) -> None:
    """Make the cohort where it is missing, prepare it, train and report; in this process."""
    import torch
    from rich.console import Console

    from mri_vit import study, synthetic
    from mri_vit.run import folder as run_folder
    from mri_vit.settings import file as study_file

    torch.set_num_threads(run.threads)
    settings, console = study_file.load(HOME / "configs" / "demo.toml", changes(run, home)), Console()
    synthetic.make(people_of(run, home), seed=run.cohort)
    with run_folder.claimed(settings) as folder:
        patients = study.check(settings, folder)
        study.prepare(settings, patients, folder, console)
        study.train(settings, folder, console)
        study.report(folder, console)


def verdicts(run: Run, home: Path) -> dict[str, object]:
    """The row of a run that has ended."""
    metrics = json.loads((home / run.name / "report" / "metrics.json").read_text(encoding="utf-8"))
    own = {name: endpoint["models"]["vit"] for name, endpoint in metrics["endpoints"].items()}
    row: dict[str, object] = {"run": run.name, "cohort": run.cohort, "seed": run.seed}
    row |= {"instructions": run.instructions, "threads": run.threads}
    for name in PLANTED:
        row |= {name: own[name]["verdict_kind"], f"{name}_value": f"{own[name]['judged']['value']:.3f}"}
    every = {name: endpoint["models"] for name, endpoint in metrics["endpoints"].items()}
    row |= {"leaks": sum("labels may leak" in result["verdict"] for result in own.values())}
    row |= {"shuffled": sum(models["shuffled"]["verdict_kind"] == "better" for models in every.values())}
    return row | {f"tertp_{control}": f"{every['tertp'][control]['judged']['value']:.3f}" for control in BLIND}


def everywhere(runs: tuple[Run, ...], home: Path, keep: bool) -> None:
    """Make the runs that the table lacks, one after the other, and add a row for each."""
    for index, run in enumerate(runs):
        if run.name in set(known().run):
            continue
        environment = dict(os.environ, OMP_NUM_THREADS=str(run.threads))
        if run.instructions != "default":
            environment["ATEN_CPU_CAPABILITY"] = run.instructions
        command = [
            sys.executable,
            str(REPRODUCE),
            QUESTION,
            "one",
            *map(str, (run.cohort, run.seed, run.threads)),
            run.instructions,
        ]
        subprocess.run([*command, "--home", str(home)], env=environment, check=True)
        _append(verdicts(run, home))
        if not keep and all(other.cohort != run.cohort for other in runs[index + 1 :]):
            shutil.rmtree(people_of(run, home))


def _append(row: dict[str, object]) -> None:
    new = not TABLE.exists()
    with TABLE.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def known() -> pd.DataFrame:
    """The table as it is."""
    return pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame(columns=pd.Index(COLUMNS))


def summary() -> None:
    """Print the verdicts of every run, and how often each endpoint's is as planted."""
    table = known()
    print(table.drop(columns="run").to_string(index=False))
    for group, rows in (
        ("other cohorts", table.loc[table.cohort != SHIPPED]),
        ("shipped cohort", table.loc[table.cohort == SHIPPED]),
    ):
        found = ", ".join(f"{name} {int((rows[name] == kind).sum())} as planted" for name, kind in PLANTED.items())
        print(f"{group}, {len(rows)} runs: {found}; {int((rows.leaks > 0).sum())} told that labels leak")
    apart = table.drop_duplicates(["cohort", "seed"])  # on another processor the same permutation is repeated
    found = int((apart.shuffled > 0).sum())
    print(f"permuted labels, {len(apart)} studies of the demo's network: {found} find any of four endpoints")
    others = table.loc[table.cohort != SHIPPED, [f"tertp_{control}" for control in BLIND]]
    means = ", ".join(f"{name} {value:.3f}" for name, value in others.mean().items())
    print(f"controls that should not know it, mean AUC of {len(others)} cohorts: {means}")


def main(
    what: Literal["cohorts", "machines", "seeds", "short", "one"] | None = None,
    *numbers: str,
    home: Path = HOME / "runs" / "everywhere",
    keep: bool = False,
) -> None:
    """Make the runs that the table lacks, and print what it holds.

    Parameters
    ----------
    numbers : how many cohorts or seeds.
    """
    if what == "one":
        cohort, seed, threads, instructions = numbers
        make(Run(int(cohort), int(seed), instructions, int(threads)), home)
    elif what in ("cohorts", "seeds"):
        count = int(numbers[0]) if numbers else 30
        made = [Run(cohort=FIRST + i) if what == "cohorts" else Run(seed=1 + i) for i in range(count)]
        everywhere(tuple(made), home, keep or what == "seeds")
    elif what:
        everywhere(MACHINES if what == "machines" else SHORT, home, keep=True)
    if what != "one" and TABLE.exists():
        summary()

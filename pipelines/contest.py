"""Does the Vision Transformer learn what a threshold cannot? Everybody on the same folds of cohorts with hidden causes.

.venv/bin/python pipelines/contest.py configs/contest.toml                  (the comparison)
.venv/bin/python pipelines/contest.py configs/contest_ideas.toml            (one key changed at a time)
.venv/bin/python pipelines/contest.py configs/contest.toml --seeds 2        (one data seed: one stage)

Result: docs/<name of the study>.md and .csv, of the data seeds that have a report; the reports lie in the runs' folders. What is
done is found done when it is started again.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import safetensors.torch
import torch
from rich.console import Console

from mri_vit import study
from mri_vit.arguments import Count, Seeds
from mri_vit.data import predictions
from mri_vit.report.words.notation import p_alone
from mri_vit.run import exit_code, files, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import file as study_file
from mri_vit.settings.models import CLINICAL, INTENSITY, RADIOMICS, SITE, SLICES, VIT, VOLUME
from mri_vit.settings.schema import Study
from mri_vit.studies import contest
from mri_vit.synthetic import causes

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "configs" / "contest.toml"
SEEDS = (1, 2, 3)  # of cohorts
PATIENTS = 192  # all labelled: the largest size of the learning curves
FIT = ("texture", "mismatch", "side")  # causes that no brightness tells, see docs/hidden_causes.md
NO_BAR = (RADIOMICS, SITE)  # the former is given the true tumour's mask, the latter is no scan
CONTROLS = {
    INTENSITY: "intensity of the brain",
    VOLUME: "volume",
    CLINICAL: "age, sex",
    SLICES: "slices (a 2D ViT of random weights)",
    SITE: "site",
    RADIOMICS: "radiomics of the true tumour",
}
WIDTH_2D, DEPTH_2D, PATCH_2D, IMAGE_2D = (
    192,
    4,
    16,
    112,
)  # of the 2D network: as small as features of 192 patients allow in minutes


def of_seed(file: Path, seed: int) -> Study:
    return study_file.filled(study_file.load(file), seed=seed).model_copy(update={"seed": seed})


def contested(of: Study, patients: int, console: Console) -> None:
    """One cohort, made, prepared, everybody trained on it, and its report written."""
    causes.make(of.cohort.parent, of.seed, patients)
    if of.controls.slices and not of.controls.slices.exists():
        network_2d(of.controls.slices)
    with run_folder.claimed(of) as run:
        study.prepare(of, study.check(of, run), run, console)
        study.train(of, run, console)
        study.report(run, console)


def network_2d(file: Path) -> None:
    """A 2D Vision Transformer with random weights, in the names of its usual files: no file of learned ones is shipped."""
    random, d = torch.Generator().manual_seed(0), WIDTH_2D
    shapes = {"patch_embed.proj": (d, 3, PATCH_2D, PATCH_2D)}
    for block in range(DEPTH_2D):
        inside = {"attn.qkv": (3 * d, d), "attn.proj": (d, d), "mlp.fc1": (4 * d, d), "mlp.fc2": (d, 4 * d)}
        shapes |= {f"blocks.{block}.{name}": shape for name, shape in inside.items()}
    weights = {f"{name}.weight": torch.randn(shape, generator=random) / shape[1] ** 0.5 for name, shape in shapes.items()}
    weights |= {f"{name}.bias": torch.zeros(shape[0]) for name, shape in shapes.items()}
    norms = ["norm", *(f"blocks.{block}.norm{number}" for block in range(DEPTH_2D) for number in (1, 2))]
    weights |= {f"{name}.weight": torch.ones(d) for name in norms} | {f"{name}.bias": torch.zeros(d) for name in norms}
    positions = 1 + (IMAGE_2D // PATCH_2D) ** 2
    weights |= {"cls_token": torch.zeros(1, 1, d), "pos_embed": 0.02 * torch.randn(1, positions, d, generator=random)}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(safetensors.torch.save(weights), file)


def document(predicted: pd.DataFrame, metrics: dict[int, dict[str, Any]], of: Study, patients: int) -> str:
    """The page as Markdown: tables over data seeds, each claim, how each network's training ended, and the trap."""
    lines = contest.measure(predicted, VIT)
    own = {VIT: "**Vision Transformer**"} | {one.name: changed(of, one.name) for one in of.comparators}
    causes_of = [name for name in predicted.endpoint.unique() if name in FIT]
    name = of.name.replace("-", "_")
    head = (
        f"Made by `pipelines/contest.py` from `configs/{name}.toml`: {patients} labelled patients with [hidden causes]"
        f"(hidden_causes.md), {of.train.folds} folds, data seeds {', '.join(map(str, metrics))}. AUC of pairs within a fold, "
        "mean over cohorts, with its 95 % interval, which holds patients, refitting and cohorts; then the Vision Transformer's "
        "lead and its two-sided p, not corrected."
    )
    parts = ["# " + of.name.replace("-", " ").capitalize(), textwrap.fill(head, 130), contest.table(lines, own | CONTROLS)]
    parts.append("\n".join(f"- {claim(lines, cause)}" for cause in causes_of))
    parts.append("## How long each was trained\n\n" + training(metrics, own))
    if trap := [f"- Data seed {seed}: {one}" for seed, one in ((s, trapped(m)) for s, m in metrics.items()) if one]:
        parts.append("## The trap\n\nWhat each report says of the Vision Transformer on `scanner`:\n\n" + "\n".join(trap))
    return "\n\n".join(parts) + "\n"


def claim(lines: Sequence[contest.Line], cause: str) -> str:
    """Whether the Vision Transformer is better than everybody who is a bar."""
    leads, p = contest.best(lines, cause, VIT, NO_BAR)
    each = next(line.each for line in lines if line.model == VIT and line.cause == cause)
    said = f"{cause}: {', '.join(f'{value:.3f}' for value in each)} by data seed; "
    if not leads:
        return said + "**not** better than everybody"
    verb = "better than everybody" if p <= 0.05 else "**not** shown to be better than everybody"
    return f"{said}{verb} but {CONTROLS[RADIOMICS]} (largest p of all: {p_alone(p)})"


def training(metrics: dict[int, dict[str, Any]], names: dict[str, str]) -> str:
    """Markdown: parameters, minutes of training of a data seed, and of how many networks the tuning loss was flat."""
    rows = ["| network | parameters | minutes for a data seed | tuning loss flat at the end |", "|---" * 4 + "|"]
    for model, name in names.items():
        found = [one for run in metrics.values() for one in run["contenders"] if one["model"] == model]
        if found:
            minutes = sum(one["training_seconds"] for one in found) / len(found) / 60
            flat, all_of = sum(one["flat"] for one in found), sum(one["trainings"] for one in found)
            rows.append(f"| {name} | {found[0]['parameters']:,} | {minutes:.0f} | of {flat} in {all_of} |")
    return "\n".join(rows)


def trapped(metrics: dict[str, Any]) -> str:
    """The report's verdict on the network that was set a trap; empty where the study has none."""
    endpoint = metrics["endpoints"].get("scanner")
    return endpoint["models"][VIT]["verdict"] if endpoint else ""


def changed(of: Study, name: str) -> str:
    """What a comparator changes, as it stands in its file."""
    comparator = next(one for one in of.comparators if one.name == name)
    sections = {"model": comparator.model, "pretrain": comparator.pretrain, "train": comparator.train}
    keys = [f"`{section}.{key} = {json.dumps(value)}`" for section, keys in sections.items() for key, value in keys.items()]
    return f"{name}: {', '.join(keys)}"


def main(file: Path = CONFIG, *, seeds: Seeds = SEEDS, patients: Count = PATIENTS) -> None:
    """Compare everybody on these data seeds, and write the page of all that have a report."""
    console = Console()
    for of in (of_seed(file, seed) for seed in seeds):
        contested(of, patients, console)
    done = {seed: of_seed(file, seed) for seed in sorted({*SEEDS, *seeds})}
    done = {seed: of for seed, of in done.items() if (of.output / files.REPORT / files.METRICS).exists()}
    tables = [predictions.load(of.output / files.PREDICTIONS).assign(seed=seed, labelled=patients) for seed, of in done.items()]
    predicted = pd.concat(tables).dropna(subset=["truth"])[contest.PREDICTED]
    metrics = {seed: json.loads((of.output / files.REPORT / files.METRICS).read_bytes()) for seed, of in done.items()}
    of = of_seed(file, seeds[0])
    page = ROOT / "docs" / f"{of.name.replace('-', '_')}.md"
    write_bytes(document(predicted, metrics, of, patients).encode(), page)
    rows = pd.DataFrame(
        [vars(line) | {"each": " ".join(f"{value:.6g}" for value in line.each)} for line in contest.measure(predicted, VIT)]
    )
    write_bytes(rows.to_csv(index=False, float_format="%.6g").encode(), page.with_suffix(".csv"))
    screen.say(console, f"table: {page}")


if __name__ == "__main__":  # patients are prepared, and models trained, in worker processes, which import this file
    sys.exit(exit_code.of_script(main))

"""Does the Vision Transformer learn what a threshold cannot? Everybody on the same folds of cohorts with hidden causes.

.venv/bin/python pipelines/contest.py configs/contest.toml                                    (tokens and controls)
.venv/bin/python pipelines/contest.py configs/contest.toml configs/contest_convolutional.toml (and convolutional networks)
.venv/bin/python pipelines/contest.py configs/contest.toml --seeds 2                          (one data seed: one stage)

Several files are one contest: same cohorts and folds, one page. Where a later file has the first one's recipe, the Vision
Transformer's folds are taken over from its run. Result: docs/<name of the first study>.md and .csv, of the data seeds that have a
report; the reports lie in the runs' folders. What is done is found done when it is started again.
"""

from __future__ import annotations

import json
import shutil
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
from mri_vit.report.words.notation import p_value
from mri_vit.run import exit_code, files, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import file as study_file
from mri_vit.settings.models import CLINICAL, INTENSITY, RADIOMICS, SITE, SLICES, VIT, VOLUME
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Study
from mri_vit.studies import contest
from mri_vit.synthetic import causes

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "configs" / "contest.toml"
SEEDS = (1, 2, 3)  # of cohorts
PATIENTS = 192  # all labelled: the largest size of the learning curves
FIT = ("texture", "mismatch", "side", "interaction", "inward", "foci")  # that no brightness tells: docs/hidden_causes.md
NO_BAR = (RADIOMICS, SITE)  # the former is given the true tumour's mask, the latter is no scan
CONTROLS = {
    INTENSITY: "intensity of the brain and of the true tumour",
    VOLUME: "volume of the brain and of the true tumour",
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


def contested(of: Study, first: Study, patients: int, console: Console) -> None:
    """One cohort, made, prepared, everybody trained on it, and its report written."""
    causes.make(of.cohort.parent, of.seed, patients)
    if of.controls.slices and not of.controls.slices.exists():
        network_2d(of.controls.slices)
    with run_folder.claimed(of) as run:
        study.prepare(of, study.check(of, run), run, console)
        borrow(of, first)
        study.train(of, run, console)
        study.report(run, console)


def borrow(of: Study, first: Study) -> None:
    """Take over folds and networks of another run on the same patients whose own recipe is the same, where that is finished."""
    if own_part(of) != own_part(first) or of.output == first.output or (of.output / files.FOLDS).exists():
        return
    if (first.output / files.PREDICTIONS).exists():
        for fold in range(of.train.folds):
            home = files.fold_folder(first.output, 0, fold)
            shutil.copytree(home, files.fold_folder(of.output, 0, fold), dirs_exist_ok=True)
        for name in (
            Path(files.FOLDS).with_suffix(".sha256"),
            files.FOLDS,
        ):  # the folds' hash, and last what says that they are there
            shutil.copyfile(first.output / name, of.output / name)


def own_part(of: Study) -> dict[str, Any]:
    """What the study's own networks depend on."""
    return of.model_dump(exclude={"name", "output", "comparators", "controls", "report"})


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


def document(predicted: pd.DataFrame, metrics: dict[int, list[dict[str, Any]]], studies: Sequence[Study], patients: int) -> str:
    """The page as Markdown: tables over data seeds, each claim, how each network's training ended, and the trap."""
    lines, of = contest.measure(predicted, VIT), studies[0]
    own = {VIT: "**Vision Transformer**"} | {one.name: changed(one) for some in studies for one in some.comparators}
    names = " and ".join(f"`configs/{some.name.replace('-', '_')}.toml`" for some in studies)
    head = (
        f"Made by `pipelines/contest.py` from {names}: {patients} labelled patients with [hidden causes](hidden_causes.md), "
        f"{of.train.folds} folds, data seeds {', '.join(map(str, metrics))}. AUC of pairs within a fold, mean over cohorts, with "
        "its 95 % interval, which holds patients, refitting and cohorts; then the Vision Transformer's lead and its two-sided p, "
        "not corrected."
    )
    parts = ["# " + of.name.replace("-", " ").capitalize(), textwrap.fill(head, 130), contest.table(lines, own | CONTROLS, FIT)]
    by_seed = [contest.measure(pd.DataFrame(one), VIT) for _, one in predicted.groupby("seed")]
    if all(of.of(one).model.architecture == "vit" for some in studies for one in some.comparators):
        parts.append("No convolutional network has been set against it on this page yet.")
    parts.append("\n".join(f"- {claim(lines, by_seed, cause)}" for cause in FIT if cause in set(predicted.endpoint)))
    parts.append("## How long each was trained\n\n" + training([run for runs in metrics.values() for run in runs], own))
    if trap := [f"- data seed {seed}, {one}" for seed, runs in metrics.items() for run in runs for one in trapped(run)]:
        intro = "What the reports say of everybody who tells `scanner`, which goes with the site, better than chance:"
        parts.append(f"## The trap\n\n{intro}\n\n" + "\n".join(dict.fromkeys(trap)))
    return "\n\n".join(parts) + "\n"


def claim(lines: Sequence[contest.Line], by_seed: Sequence[Sequence[contest.Line]], cause: str) -> str:
    """Whether the Vision Transformer is better than everybody who is a bar: over data seeds, and within each by itself."""
    leads, p = contest.best(lines, cause, VIT, NO_BAR)
    each = next(line.each for line in lines if line.model == VIT and line.cause == cause)
    said = f"{cause}: {', '.join(f'{value:.3f}' for value in each)} by data seed; "
    if not leads:
        return said + "**not** better than everybody here"
    alone = [p_value(contest.best(one, cause, VIT, NO_BAR)[1]) for one in by_seed]
    verb = "better than everybody here" if p <= 0.05 else "**not** shown to be better than everybody here"
    but = f" but {CONTROLS[RADIOMICS]}" if RADIOMICS in {line.model for line in lines} else ""
    return f"{said}{verb}{but} (largest p of all: {p_value(p)}; within each data seed: {', '.join(alone)})"


def training(runs: Sequence[dict[str, Any]], names: dict[str, str]) -> str:
    """Markdown: parameters, minutes of training of a data seed, and of how many networks the tuning loss was flat."""
    rows = ["| network | parameters | minutes for a data seed | tuning loss flat at the end |", "|---" * 4 + "|"]
    for model, name in names.items():
        found = [one for run in runs for one in run["contenders"] if one["model"] == model]
        if found:
            minutes = sum(one["training_seconds"] for one in found) / len(found) / 60
            flat, all_of = sum(one["flat"] for one in found), sum(one["trainings"] for one in found)
            rows.append(f"| {name} | {found[0]['parameters']:,} | {minutes:.0f} | {flat} of {all_of} |")
    return "\n".join(rows)


def trapped(metrics: dict[str, Any]) -> list[str]:
    """A report's verdict on each model that went into the trap, with its name."""
    models = metrics["endpoints"].get("scanner", {"models": {}})["models"]
    return [f"{name}: {one['verdict']}" for name, one in models.items() if one["verdict_kind"] == "better" and name != SITE]


def changed(comparator: Comparator) -> str:
    """What a comparator changes, as it stands in its file."""
    sections = {"model": comparator.model, "pretrain": comparator.pretrain, "train": comparator.train}
    keys = [f"`{section}.{key} = {json.dumps(value)}`" for section, keys in sections.items() for key, value in keys.items()]
    return f"{comparator.name}: {', '.join(keys)}"


def of_run(of: Study) -> pd.DataFrame:
    """Everybody's out-of-fold predictions of known labels."""
    return predictions.load(of.output / files.PREDICTIONS).dropna(subset=["truth"]).assign(seed=of.seed)


def write(studies: dict[int, list[Study]], patients: int, page: Path) -> None:
    """The page and its table, of the runs that have a report, by data seed."""
    done = {seed: [of for of in each if (of.output / files.REPORT / files.METRICS).exists()] for seed, each in studies.items()}
    done = {seed: each for seed, each in done.items() if each}
    tables = [of_run(of) for each in done.values() for of in each]
    predicted = pd.concat(tables).drop_duplicates(["seed", "model", "endpoint", "patient"]).assign(labelled=patients)
    predicted = pd.DataFrame(predicted[contest.PREDICTED])
    metrics = {
        seed: [json.loads((of.output / files.REPORT / files.METRICS).read_bytes()) for of in each] for seed, each in done.items()
    }
    text = document(predicted, metrics, next(iter(studies.values())), patients)
    write_bytes(text.encode(), page)
    lines = contest.measure(predicted, VIT)
    rows = pd.DataFrame([vars(line) | {"each": " ".join(f"{value:.6g}" for value in line.each)} for line in lines])
    write_bytes(rows.to_csv(index=False, float_format="%.6g").encode(), page.with_suffix(".csv"))


def main(*study_files: Path, seeds: Seeds = SEEDS, patients: Count = PATIENTS) -> None:
    """Compare everybody on these data seeds, and write the page of all that have a report."""
    console, asked = Console(), study_files or (CONFIG,)
    studies = {seed: [of_seed(file, seed) for file in asked] for seed in sorted({*SEEDS, *seeds})}
    for first, *others in (studies[seed] for seed in seeds):
        for of in (first, *others):
            contested(of, first, patients, console)
    page = ROOT / "docs" / f"{studies[seeds[0]][0].name.replace('-', '_')}.md"
    write(studies, patients, page)
    screen.say(console, f"table: {page}")


if __name__ == "__main__":  # patients are prepared, and models trained, in worker processes, which import this file
    sys.exit(exit_code.of_script(main))

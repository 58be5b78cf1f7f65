"""Does the Vision Transformer learn what a threshold cannot? Everybody on the same folds of cohorts with hidden causes.

.venv/bin/python pipelines/contest.py configs/contest.toml               (tokens and controls)
.venv/bin/python pipelines/contest.py configs/contest_convolutional.toml (convolutional networks, on the same page)
.venv/bin/python pipelines/contest.py configs/contest_parts.toml         (the parts of the recipe, on a page of their own)
.venv/bin/python pipelines/contest.py configs/contest.toml --seeds 2     (one data seed: one stage)

Cohorts and folds of all files are the same; where a file has the recipe of configs/contest.toml, the Vision Transformer's folds
are taken over from its run. Result: docs/contest.md or docs/<name>.md and .csv, of the data seeds that have a report; the reports
lie in the runs' folders. What is done is found done when it is started again.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.torch
import torch
from rich.console import Console

from mri_vit import study
from mri_vit.arguments import Count, Seeds
from mri_vit.data import predictions
from mri_vit.metrics.comparison import holm
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
TOGETHER = ("contest.toml", "contest_convolutional.toml")  # on one page: everybody in them is a bar; the first has the recipe
SEEDS = (1, 2, 3)  # of cohorts
REACH = 0.85  # what the project asks of a Vision Transformer that has learned a cause
PATIENTS = 192  # all labelled: the largest size of the learning curves
UNTOLD = ("coin", "scanner")  # the control and the trap, in a table of their own
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


def document(
    predicted: pd.DataFrame,
    metrics: dict[int, list[dict[str, Any]]],
    studies: Sequence[Study],
    patients: int,
    left_out: Sequence[str] = (),
) -> str:
    """The page as Markdown: tables over data seeds, each claim, how each network's training ended, and the trap.

    `left_out` are the studies that belong here and have not run on each of these data seeds; a page of the recipe's parts claims
    nothing.
    """
    lines, of = contest.measure(predicted, VIT), studies[0]
    own = {VIT: "**Vision Transformer**"} | {one.name: changed(one) for some in studies for one in some.comparators}
    left = ", ".join(str(one.patient.nunique()) for _, one in predicted.groupby("seed"))
    head = (
        f"Made by `pipelines/contest.py` from {' and '.join(config(some.name) for some in studies)}: {patients} labelled "
        f"patients with [hidden causes](hidden_causes.md), of whom the quality check left {left}; {of.train.folds} folds, data "
        f"seeds {', '.join(map(str, metrics))}. AUC of pairs within a fold, mean over cohorts, with its 95 % interval, which "
        "holds patients, refitting and cohorts; then the Vision Transformer's lead and its two-sided p, not corrected. Causes "
        "and recipe were chosen on drafts, which are told there."
    )
    parts = ["# " + of.name.replace("-", " ").capitalize(), textwrap.fill(head, 130), contest.table(lines, own | CONTROLS, FIT)]
    if left_out:
        parts.append(f"Not here, as not run on each of these data seeds yet: {', '.join(map(config, left_out))}.")
    if of.name == CONFIG.stem:
        parts.append("\n".join(f"- {one}" for one in claims(lines, predicted)))
    parts.append("## How long each was trained\n\n" + training(list(metrics.values()), own))
    text = "## What nobody should tell\n\n`coin` is nothing, and `scanner` goes with the site: no lead is tested.\n\n"
    parts.append(text + contest.table(lines, own | CONTROLS, UNTOLD, leads=False))
    if trap := [f"- data seed {seed}, {one}" for seed, runs in metrics.items() for run in runs for one in trapped(run)]:
        intro = "What the reports say of everybody who tells `scanner`, which goes with the site, better than chance:"
        parts.append(f"### The trap\n\n{intro}\n\n" + "\n".join(dict.fromkeys(trap)))
    return "\n\n".join(parts) + "\n"


def config(name: str) -> str:
    """The file of a study of that name, as code."""
    return f"`configs/{name.replace('-', '_')}.toml`"


def claims(lines: Sequence[contest.Line], predicted: pd.DataFrame) -> list[str]:
    """Whether the Vision Transformer is better than everybody who is a bar, of each cause that brightness does not tell."""
    by_seed = [contest.measure(pd.DataFrame(one), VIT) for _, one in predicted.groupby("seed")]
    causes = [cause for cause in FIT if cause in set(predicted.endpoint)]
    adjusted = holm(np.array([contest.best(lines, cause, VIT, NO_BAR)[1] for cause in causes]))
    return [claim(lines, by_seed, cause, float(p)) for cause, p in zip(causes, adjusted, strict=True)]


def claim(lines: Sequence[contest.Line], by_seed: Sequence[Sequence[contest.Line]], cause: str, adjusted: float) -> str:
    """Of one cause: over data seeds, with p as it is and `adjusted` for all causes, and within each data seed by itself."""
    leads, p = contest.best(lines, cause, VIT, NO_BAR)
    own = next(line for line in lines if line.model == VIT and line.cause == cause)
    reached = f"the {REACH} that is asked for is {'' if own.mean >= REACH else '**not** '}reached"
    said = f"{cause}: {', '.join(f'{value:.3f}' for value in own.each)} by data seed, {reached}; "
    if not leads:
        return said + "**not** better than everybody here"
    alone = [p_value(contest.best(one, cause, VIT, NO_BAR)[1]) for one in by_seed]
    verb = "better than everybody here" if p <= 0.05 else "**not** shown to be better than everybody here"
    but = f" but {CONTROLS[RADIOMICS]}" if RADIOMICS in {line.model for line in lines} else ""
    largest = f"largest p of all: {p_value(p)}, with Holm's correction for the causes {p_value(adjusted)}"
    return f"{said}{verb}{but} ({largest}; within each data seed: {', '.join(alone)})"


def training(seeds: Sequence[Sequence[dict[str, Any]]], names: dict[str, str]) -> str:
    """Markdown: parameters, minutes of training of a data seed, and of how many networks the tuning loss was flat.

    `seeds` has the runs of each data seed; those that took a network over from another of them trained it no second time.
    """
    rows = ["| network | parameters | minutes for a data seed, median | tuning loss flat at the end |", "|---" * 4 + "|"]
    for model, name in names.items():
        by_seed = [[one for run in runs for one in run["contenders"] if one["model"] == model] for runs in seeds]
        if found := [each[0] for each in by_seed if each]:
            minutes = np.median([one["training_seconds"] / 60 for one in found])
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


def write(files_together: Sequence[Path], seeds: Sequence[int], patients: int) -> Path | None:
    """The page and its table: of the data seeds on which the first file has a report, whoever has run on each of them.

    None where the first file has no report yet.
    """
    by_file = [{seed: of_seed(file, seed) for seed in seeds} for file in files_together if file.exists()]
    done = [{seed: of for seed, of in each.items() if (of.output / files.REPORT / files.METRICS).exists()} for each in by_file]
    if not done[0]:
        return None
    shown = [each for each in done if each.keys() >= done[0].keys()]
    left_out = [all_of[seeds[0]].name for all_of, each in zip(by_file, done, strict=True) if each not in shown]
    tables = [of_run(each[seed]) for seed in done[0] for each in shown]
    predicted = pd.concat(tables).drop_duplicates(["seed", "model", "endpoint", "patient"]).assign(labelled=patients)
    predicted = pd.DataFrame(predicted[contest.PREDICTED])
    metrics = {seed: [report_of(each[seed]) for each in shown] for seed in done[0]}
    studies = [each[min(done[0])] for each in shown]
    page = ROOT / "docs" / f"{studies[0].name.replace('-', '_')}.md"
    write_bytes(document(predicted, metrics, studies, patients, left_out).encode(), page)
    lines = contest.measure(predicted, VIT)
    rows = pd.DataFrame([vars(line) | {"each": " ".join(f"{value:.6g}" for value in line.each)} for line in lines])
    write_bytes(rows.to_csv(index=False, float_format="%.6g").encode(), page.with_suffix(".csv"))
    return page


def report_of(of: Study) -> dict[str, Any]:
    """A run's metrics.json."""
    return json.loads((of.output / files.REPORT / files.METRICS).read_bytes())


def main(*study_files: Path, seeds: Seeds = SEEDS, patients: Count = PATIENTS) -> None:
    """Compare everybody on these data seeds, and write the pages that they are on, of all data seeds that have a report."""
    console, asked = Console(), study_files or (CONFIG,)
    for seed in seeds:
        for file in asked:
            contested(of_seed(file, seed), of_seed(file.with_name(TOGETHER[0]), seed), patients, console)
    together = {tuple(file.with_name(name) for name in TOGETHER) if file.name in TOGETHER else (file,) for file in asked}
    for page in (write(one, sorted({*SEEDS, *seeds}), patients) for one in sorted(together)):
        screen.say(console, f"table: {page}" if page else f"no page yet: {TOGETHER[0]}, which is the first on it, has not run")


if __name__ == "__main__":  # patients are prepared, and models trained, in worker processes, which import this file
    sys.exit(exit_code.of_script(main))

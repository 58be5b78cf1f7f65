"""Does the Vision Transformer learn what a threshold cannot? Everybody on the same folds of cohorts with hidden causes.

.venv/bin/python pipelines/contest.py configs/contest.toml               (tokens and controls)
.venv/bin/python pipelines/contest.py configs/contest_convolutional.toml (convolutional networks, on the same page)
.venv/bin/python pipelines/contest.py configs/contest_parts.toml         (the parts of the network, on a page of their own)
.venv/bin/python pipelines/contest.py configs/contest_learning.toml      (the parts of how it learns, likewise)
.venv/bin/python pipelines/contest.py configs/contest.toml --seeds 2     (one data seed: one stage)

Cohorts and folds of all files are the same; where a file has the recipe of configs/contest.toml, the Vision Transformer's folds
are taken over from its run. Result: docs/<file>_cohorts.csv, the figures of each data seed, which may be of several machines, and
docs/contest.md or docs/<file>.md, made of them; the reports lie in the runs' folders. What is done is found done when it is
started again.
"""

from __future__ import annotations

import hashlib
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
FIRST, LATER = (1, 2, 3), (4, 5, 6)  # data seeds, of cohorts: looked at first; run after that, the recipe unchanged
SEEDS = FIRST + LATER
FEWEST = 3  # data seeds that a study file is shown of: what the project asks for
LEVEL = 0.05 / 2  # that a p is held to: the second of two looks (Bonferroni)
REACH = 0.85  # what the project asks of a Vision Transformer that has learned a cause
PATIENTS = 192  # all labelled: the largest size of the learning curves
TRAP = "scanner"
UNTOLD = ("coin", TRAP)  # the control and the trap, in a table of their own
FIT = ("texture", "mismatch", "side", "interaction", "inward", "foci")  # that no brightness tells: docs/hidden_causes.md
NO_BAR = (RADIOMICS, SITE)  # the former is given the true tumour's mask, the latter is no scan
CONTROLS = {
    INTENSITY: "intensity of the brain and of the true tumour",
    VOLUME: "volume of the brain and of the true tumour",
    CLINICAL: "age, sex, and the border, which is a coin",
    SLICES: "slices (a 2D ViT of random weights)",
    SITE: "site",
    RADIOMICS: "radiomics of the true tumour",
}
LOOKS = (
    f"Claims over {', '.join(map(str, FIRST))} were looked at before the other data seeds were run, with the recipe and all else "
    f"unchanged. So a p is held to {LEVEL} here, half of 0.05, as these claims are the second look."
)
WIDTH_2D, DEPTH_2D, PATCH_2D, IMAGE_2D = 192, 4, 16, 112  # of the 2D network: small, so that features take minutes


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


def document(rows: pd.DataFrame, studies: Sequence[Study], patients: int, left_out: Sequence[str] = ()) -> str:
    """The page as Markdown: tables over data seeds, each claim, how each network's training ended, and the trap.

    `rows` are those of `of_run`, of all of these data seeds. `left_out` are the studies that belong here and have not run on
    enough of them; a page of the recipe's parts claims nothing.
    """
    lines, of, seeds = contest.over_cohorts(rows), studies[0], rows.groupby("seed").patients.first()
    own = {VIT: "**Vision Transformer**"} | {one.name: changed(one) for some in studies for one in some.comparators}
    names = {name: title + where_run(rows, name) for name, title in (own | CONTROLS).items()}
    head = (
        f"Made by `pipelines/contest.py` from {' and '.join(config(some.name) for some in studies)}: {patients} labelled "
        f"patients with [hidden causes](hidden_causes.md), of whom the quality check left {', '.join(map(str, seeds))}; "
        f"{of.train.folds} folds, {numbers(seeds.index)}. AUC of pairs within a fold, mean over cohorts, "
        "with its 95 % interval, which holds patients, refitting and cohorts; then the Vision Transformer's lead and its "
        "two-sided p, not corrected. Causes and recipe were chosen on drafts, which are told there."
    )
    parts = ["# " + of.name.replace("-", " ").capitalize(), textwrap.fill(head, 130), contest.table(lines, names, FIT)]
    if left_out:
        parts.append(f"Not here, as not run on {FEWEST} of these data seeds yet: {', '.join(map(config, left_out))}.")
    if of.name == CONFIG.stem:
        parts.append("\n".join(f"- {one}" for one in claims(lines, rows)))
        if set(LATER) & set(rows.seed):
            parts.append(textwrap.fill(LOOKS, 130))
    parts.append("## How long each was trained\n\n" + training(rows, own))
    text = "## What nobody should tell\n\n`coin` is nothing, and `scanner` goes with the site: no lead is tested.\n\n"
    parts.append(text + contest.table(lines, names, UNTOLD, leads=False))
    trap = rows[rows.verdict.notna()]
    if len(trap):
        intro = "What the reports say of everybody who tells `scanner`, which goes with the site, better than chance:"
        said = sorted(f"- data seed {seed}, {one}" for seed, one in zip(trap.seed, trap.model + ": " + trap.verdict, strict=True))
        parts.append(f"### The trap\n\n{intro}\n\n" + "\n".join(said))
    return "\n\n".join(parts) + "\n"


def config(name: str) -> str:
    """The file of a study of that name, as code."""
    return f"`configs/{name.replace('-', '_')}.toml`"


def claims(lines: Sequence[contest.Line], rows: pd.DataFrame) -> list[str]:
    """Whether the Vision Transformer is better than everybody who is a bar, of each cause that brightness does not tell."""
    by_seed = [contest.over_cohorts(pd.DataFrame(one)) for _, one in rows.groupby("seed")]
    later = contest.over_cohorts(pd.DataFrame(rows[rows.seed.isin(LATER)])) if set(LATER) <= set(rows.seed) else []
    causes = [cause for cause in FIT if cause in set(rows.cause)]
    adjusted = holm(np.array([contest.best(lines, cause, VIT, NO_BAR)[1] for cause in causes]))
    return [claim(lines, by_seed, later, cause, float(p)) for cause, p in zip(causes, adjusted, strict=True)]


def claim(
    lines: Sequence[contest.Line],
    by_seed: Sequence[Sequence[contest.Line]],
    later: Sequence[contest.Line],
    cause: str,
    adjusted: float,
) -> str:
    """Of one cause: over data seeds, with p as it is and `adjusted` for all causes, over those that were run later alone, where
    they are all there, and within each data seed by itself.
    """
    leads, p = contest.best(lines, cause, VIT, NO_BAR)
    own = next(line for line in lines if line.model == VIT and line.cause == cause)
    reached = f"the {REACH} that is asked for is {'' if own.mean >= REACH else '**not** '}reached"
    said = f"{cause}: {', '.join(f'{value:.3f}' for value in own.each)} by data seed, {reached}; "
    if not leads:
        return said + "**not** better than everybody here"
    alone = [p_value(contest.best(one, cause, VIT, NO_BAR)[1]) for one in by_seed]
    verb = "better than everybody here" if p <= LEVEL else "**not** shown to be better than everybody here"
    but = f" but {CONTROLS[RADIOMICS]}" if RADIOMICS in {line.model for line in lines} else ""
    largest = f"largest p of all: {p_value(p)}, with Holm's correction for the causes {p_value(adjusted)}"
    if later:
        ahead, p = contest.best(later, cause, VIT, NO_BAR)
        largest += f"; of {numbers(LATER)} alone {p_value(p) if ahead else 'not ahead of all'}"
    return f"{said}{verb}{but} ({largest}; within each data seed: {', '.join(alone)})"


def where_run(rows: pd.DataFrame, model: str) -> str:
    """The data seeds of a model that has not run on all, for its name in a table."""
    on = sorted(rows[rows.model == model].seed.unique())
    return f" ({numbers(on)})" if 0 < len(on) < rows.seed.nunique() else ""


def numbers(seeds: Sequence[int]) -> str:
    return f"data seeds {', '.join(map(str, seeds))}"


def training(rows: pd.DataFrame, names: dict[str, str]) -> str:
    """Markdown: parameters, minutes of training of a data seed, and of how many networks the tuning loss was flat."""
    lines = ["| network | parameters | minutes for a data seed, median | tuning loss flat at the end |", "|---" * 4 + "|"]
    once = rows.dropna(subset=["parameters"]).drop_duplicates(["seed", "model"])
    for model, name in names.items():
        found = once[once.model == model]
        if len(found):
            flat, trainings, minutes = found.flat.sum(), found.trainings.sum(), found.training_seconds.median() / 60
            lines.append(f"| {name} | {found.parameters.iloc[0]:,.0f} | {minutes:.0f} | {flat:.0f} of {trainings:.0f} |")
    return "\n".join(lines)


def trapped(metrics: dict[str, Any]) -> dict[str, str]:
    """A report's verdict on each model that went into the trap."""
    models = metrics["endpoints"].get(TRAP, {"models": {}})["models"]
    return {name: one["verdict"] for name, one in models.items() if one["verdict_kind"] == "better" and name != SITE}


def changed(comparator: Comparator) -> str:
    """What a comparator changes, as it stands in its file."""
    sections = {"model": comparator.model, "pretrain": comparator.pretrain, "train": comparator.train}
    keys = [f"`{section}.{key} = {json.dumps(value)}`" for section, keys in sections.items() for key, value in keys.items()]
    return f"{comparator.name}: {', '.join(keys)}"


def of_run(of: Study) -> pd.DataFrame:
    """What a data seed gave: the rows of `contest.of_cohort`, each with the seed, how many patients were left, what training the
    network took, and of the trap the report's verdict.
    """
    predicted = predictions.load(of.output / files.PREDICTIONS).dropna(subset=["truth"])
    metrics = json.loads((of.output / files.REPORT / files.METRICS).read_bytes())
    networks = pd.DataFrame(metrics["contenders"])[["model", "parameters", "training_seconds", "flat", "trainings"]]
    rows = contest.of_cohort(predicted, VIT).merge(networks, how="left", on="model")
    rows["verdict"] = rows.model.map(trapped(metrics)).where(rows.cause == TRAP)
    rows.insert(0, "patients", predicted.patient.nunique())
    rows.insert(0, "seed", of.seed)
    return rows


def recipe(of: Study, patients: int) -> str:
    """What tells figures of one recipe from those of another, whatever machine and data seed they are of."""
    told = of.model_dump(
        mode="json",
        exclude={
            "name": True,
            "cohort": True,
            "prepared": True,
            "output": True,
            "seed": True,
            "report": True,
            "controls": {"slices"},
        },
    )
    return hashlib.sha256(json.dumps([told, patients], sort_keys=True).encode()).hexdigest()[:12]


def results(file: Path) -> Path:
    """Where the rows of all data seeds of a study file lie."""
    return ROOT / "docs" / f"{file.stem}_cohorts.csv"


def keep(file: Path, seed: int, patients: int) -> None:
    """Write the rows of a data seed in place of those that are there of it; those of others stay, wherever they were run."""
    path, of = results(file), of_seed(file, seed)
    rows = of_run(of).assign(recipe=recipe(of, patients))
    if path.exists():
        before = pd.read_csv(path)
        rows = pd.DataFrame(pd.concat([before[before.seed != seed], rows])).sort_values("seed", kind="stable")
    write_bytes(rows.to_csv(index=False, float_format="%.6g").encode(), path)


def kept(file: Path, patients: int) -> pd.DataFrame:
    """The rows of a study file as it is now, of the contest's data seeds."""
    rows = pd.read_csv(results(file))
    now = recipe(of_seed(file, SEEDS[0]), patients)
    return pd.DataFrame(rows[rows.seed.isin(SEEDS) & (rows.recipe == now)])


def write(files_together: Sequence[Path], patients: int) -> Path | None:
    """The page: of the data seeds on which the first file has run, whoever has run on as many as `FEWEST`. None where it has not.

    Figures of another recipe than the file has, of other patients, and of drafts on other data seeds than `SEEDS` stay out of it.
    """
    by_file = {file: kept(file, patients) for file in files_together if results(file).exists()}
    seeds = set(by_file[files_together[0]].seed) if files_together[0] in by_file else set()
    if not seeds:
        return None
    enough = min(FEWEST, len(seeds))
    shown = {file: rows[rows.seed.isin(seeds)] for file, rows in by_file.items() if len(seeds & set(rows.seed)) >= enough}
    left_out = [study_file.load(file).name for file in files_together if file not in shown and file.exists()]
    rows = pd.DataFrame(pd.concat(shown.values())).drop_duplicates(["seed", "cause", "model"])  # of our own the first file's
    studies = [of_seed(file, min(seeds)) for file in shown]
    page = ROOT / "docs" / f"{files_together[0].stem}.md"
    write_bytes(document(rows, studies, patients, left_out).encode(), page)
    return page


def main(*study_files: Path, seeds: Seeds = SEEDS, patients: Count = PATIENTS) -> None:
    """Compare everybody on these data seeds, and write the pages that they are on, of all data seeds that have run anywhere."""
    console, asked = Console(), study_files or (CONFIG,)
    for seed in seeds:
        for file in asked:
            contested(of_seed(file, seed), of_seed(file.with_name(TOGETHER[0]), seed), patients, console)
            keep(file, seed, patients)
    together = {tuple(file.with_name(name) for name in TOGETHER) if file.name in TOGETHER else (file,) for file in asked}
    for page in (write(one, patients) for one in sorted(together)):
        screen.say(console, f"table: {page}" if page else f"no page yet: {TOGETHER[0]}, which is the first on it, has not run")


if __name__ == "__main__":  # patients are prepared, and models trained, in worker processes, which import this file
    sys.exit(exit_code.of_script(main))

"""What masks are worth: the same network on the same patients and folds with true masks, found ones, and true ones put wrong.

pipelines/reproduce.py simulated_effects/masks masks.toml                              (all data seeds and kinds of masks)
pipelines/reproduce.py simulated_effects/masks masks.toml --seeds 1 --masks found      (a stage of its own)

A wrong mask is the true one, moved a random way until it has the Dice that is asked for. Result, beside the study file:
masks.csv, the AUC of each data seed, kind of masks, cause and model, and masks.md with masks.svg, made of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from scipy import ndimage

from mri_vit import study, style
from mri_vit.cli.arguments import Count, Seeds
from mri_vit.data import cohort, predictions, sheet
from mri_vit.data.volume import Volume, read_mask, resample, write
from mri_vit.run import files
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import VIT, VOLUME
from mri_vit.settings.schema import Study
from reproductions.simulated_effects import effects
from reproductions.simulated_effects.cohort_scores import of_cohort

HOME = Path(__file__).parent
PATIENTS = 192  # as in the benchmark
SEEDS = (1, 2, 3)
TRUE, FOUND = "true", "found"
KINDS = (TRUE, FOUND, "0.9", "0.8", "0.7", "0.6", "0.5")  # the last: true masks of this Dice
EFFECTS = ("texture", "mismatch", "side", "interaction", "inward", "foci")
HEAD = """# What masks are worth

Made by `pipelines/reproduce.py simulated_effects/masks` from `masks.toml`: {patients} patients with
[hidden causes](hidden_causes.md), 3 folds, the recommended network, whose heads read CLS alone. AUC of pairs within a fold, mean
over data seeds. Numbers name true masks that were moved until they have that Dice.

"""
STEP_MM = 0.25  # by which a mask is moved on until it is as wrong as asked for


def main(
    file: Path = HOME / "masks.toml", seeds: Seeds = SEEDS, masks: tuple[str, ...] = KINDS, patients: Count = PATIENTS
) -> None:
    """Train with these kinds of masks on these data seeds, and write the page of all that has run."""
    for seed in seeds:
        for kind in masks:
            of = with_masks(study_file.load(file), seed, kind)
            effects.make(of.cohort.parent, seed, patients, workers=of.prepare.workers)
            put_wrong(of.cohort, kind, seed)
            with run_folder.claimed(of) as run:
                study.prepare(of, study.check(of, run), run, Console())
                study.train(of, run, Console())
            keep(of, seed, kind)
    write_page(pd.read_csv(HOME / "masks.csv", dtype={"masks": str}))


def with_masks(read: Study, seed: int, kind: str) -> Study:
    """The study of a data seed that learns from this kind of masks."""
    prepare = read.prepare.model_copy(update={"tumour": "found" if kind == FOUND else "given"})
    return study_file.filled(read, seed=seed, masks=kind).model_copy(update={"seed": seed, "prepare": prepare})


def put_wrong(table: Path, kind: str, seed: int) -> None:
    """Write the cohort's table for this kind of masks, and masks of that Dice where it names one."""
    whole = pd.read_csv(table.with_name(files.COHORT), dtype=str, keep_default_na=False)
    if kind not in (TRUE, FOUND):
        home = table.parent / f"truth-{kind}"
        home.mkdir(exist_ok=True)
        for number, name in enumerate(whole.tumour_mask):
            if not (home / Path(name).name).exists():
                truth = read_mask(table.parent / name)
                write(moved(truth, float(kind), np.random.default_rng((seed, number))), home / Path(name).name)
        whole["tumour_mask"] = [f"{home.name}/{Path(name).name}" for name in whole.tumour_mask]
    write_bytes(sheet.to_csv(list(whole.columns), whole.itertuples(index=False)), table)


def moved(truth: Volume, dice: float, rng: np.random.Generator) -> Volume:
    """The mask a random way off, as far as leaves it this Dice."""
    way = rng.normal(size=3)
    way /= np.linalg.norm(way)
    true, soft = truth.array != 0, (truth.array != 0).astype(np.float32)
    for step in range(1, 10_000):
        shift = np.linalg.solve(truth.affine[:3, :3], way * step * STEP_MM)
        there = ndimage.shift(soft, shift, order=1) > 0.5
        if 2 * (there & true).sum() <= dice * (there.sum() + true.sum()):
            return Volume(there.astype(np.uint8), truth.affine)
    raise AssertionError("a mask that leaves its image has a Dice of 0")


def keep(of: Study, seed: int, kind: str) -> None:
    """Write the rows of a data seed and kind of masks in place of those that are there of it."""
    predicted = predictions.load(of.output / files.PREDICTIONS).dropna(subset=["truth"])
    rows = of_cohort(pd.DataFrame(predicted[predicted.model.isin((VIT, VOLUME))]), VIT)[["cause", "model", "auc", "error"]]
    dices = dices_of(of)
    rows.insert(0, "missed", sum(dice < 0.1 for dice in dices))
    rows.insert(0, "dice", float(np.mean(dices)))
    rows.insert(0, "patients", predicted.patient.nunique())
    rows.insert(0, "masks", kind)
    rows.insert(0, "seed", seed)
    path = HOME / "masks.csv"
    if path.exists():
        before = pd.read_csv(path, dtype={"masks": str})
        rows = pd.concat([before[(before.seed != seed) | (before.masks != kind)], rows])
    order = {name: number for number, name in enumerate(KINDS)}
    rows = pd.DataFrame(rows).sort_values(
        ["seed", "masks"], kind="stable", key=lambda column: column.map(lambda cell: order.get(cell, cell))
    )
    write_bytes(rows.to_csv(index=False, float_format="%.6g").encode(), path)


def dices_of(of: Study) -> list[float]:
    """Dice of each prepared patient's mask with the true one."""
    found = []
    for patient in cohort.of_study(of):
        home = of.prepared / patient.id
        if not home.exists() or patient.tumour_mask is None:
            continue  # excluded
        truth = read_mask(of.cohort.parent / "truth" / patient.tumour_mask.name)
        mask = home / files.TUMOUR if of.prepare.tumour == "found" else patient.tumour_mask
        there = np.zeros(truth.shape, bool)
        if mask.exists():
            there = resample(read_mask(mask), truth.shape, truth.affine, np.eye(4)).array > 0.5
        found.append(2 * float((there & (truth.array != 0)).sum()) / float(there.sum() + (truth.array != 0).sum()))
    return found


def write_page(rows: pd.DataFrame) -> None:
    """The page and its figure, of all data seeds and kinds of masks that have run."""
    own = pd.DataFrame(rows[(rows.model == VIT) & rows.cause.isin(EFFECTS)])
    means = own.groupby(["masks", "cause"]).auc.mean().unstack()[list(EFFECTS)]
    kinds = [kind for kind in KINDS if kind in means.index]
    lines = ["| masks | Dice, mean | data seeds | " + " | ".join(EFFECTS) + " | mean of six |", "|---" * (len(EFFECTS) + 4) + "|"]
    for kind in kinds:
        here = own[own.masks == kind]
        cells = [kind, f"{here.dice.mean():.2f}", ", ".join(str(seed) for seed in sorted(here.seed.unique()))]
        lines.append(f"| {' | '.join([*cells, *(f'{auc:.3f}' for auc in means.loc[kind])])} | {means.loc[kind].mean():.3f} |")
    volume = rows[(rows.model == VOLUME) & rows.cause.isin(EFFECTS)].groupby(["masks", "cause"]).auc.mean().unstack()
    seen = [f"{cause} {volume.loc[FOUND, cause]:.3f}" for cause in EFFECTS] if FOUND in volume.index else []
    coin = rows[(rows.model == VIT) & (rows.cause == "coin")].groupby("masks").auc.mean()
    foot = f"\n\nThe volume of brain and found mask alone: {', '.join(seen)}.\n" if seen else "\n"
    foot += f"`coin`, which is nothing: {', '.join(f'{kind} {coin[kind]:.3f}' for kind in kinds)}.\n"
    picture = "\n![AUC of each effect against the Dice of masks](masks.svg)\n"
    text = HEAD.format(patients=PATIENTS) + "\n".join(lines) + foot + picture
    write_bytes(text.encode(), HOME / "masks.md")
    write_bytes(style.to_bytes(figure(own, means), "svg"), HOME / "masks.svg")


def figure(own: pd.DataFrame, means: pd.DataFrame) -> Figure:
    """AUC of each effect against the masks' mean Dice; true masks have 1, found ones are rings."""
    drawn = Figure(figsize=(style.WIDTH, 3.2), layout="constrained")
    axes = drawn.subplots()
    dice = own.groupby("masks").dice.mean()
    moved_ones = [kind for kind in KINDS if kind in means.index and kind != FOUND]
    colours = (style.BLUE, style.VERMILLION, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)
    for cause, colour in zip(EFFECTS, colours, strict=True):
        axes.plot(dice[moved_ones], means.loc[moved_ones, cause], "-o", ms=3, color=colour, label=cause)
        if FOUND in means.index:
            axes.plot(dice[FOUND], means.loc[FOUND, cause], "o", ms=7, mfc="none", color=colour)
    axes.axhline(0.5, color=style.GREY, lw=0.8)
    axes.set_xlabel("Dice of the masks (rings: found)")
    axes.set_ylabel("AUC, heads reading CLS alone")
    axes.legend(ncols=2)
    return drawn

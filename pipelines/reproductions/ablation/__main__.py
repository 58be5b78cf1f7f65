"""What each part of the recommended Vision Transformer is worth: .venv/bin/python pipelines/reproduce.py ablation

Each comparator of ablation.toml changes one key. All are cross-validated on the same folds of synthetic cohorts of small
tumours (data seeds 1, 2 and 3). Result: README.md here. What is done is found done when it is started again.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console

from mri_vit import study
from mri_vit.cli.arguments import Count
from mri_vit.crossval.folds import Split
from mri_vit.data import predictions, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import all_tokens, token_file
from mri_vit.model import heads, network
from mri_vit.pretrain.encoder import pretrained
from mri_vit.run import files, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.sections import Grid
from reproductions import small_tumours
from reproductions.learning_curve import __main__ as learning_curve
from reproductions.learning_curve import curve

SETTINGS = Path(__file__).with_name("ablation.toml")
PAGE = Path(__file__).with_name("README.md")
SEEDS = (1, 2, 3)  # of cohorts; settings were chosen on another
LABELLED = 192  # patients, the most of the learning curves
BEARING = "modality-dropout"  # the comparator that is trained to bear a missing scan
COARSE = "low-to-high"  # the comparator that begins from an encoder of a coarser grid
HALF = Grid(edge=28, spacing_mm=8.0, patch=4)  # that grid: half the study's resolution, 7³ places


def of_seed(seed: int) -> Study:
    return study_file.filled(study_file.load(SETTINGS), seed=seed).model_copy(update={"seed": seed})


def coarse_encoder(of: Study, console: Console) -> None:
    """The file that the comparator `COARSE` begins from: the learning curves' MAE, on the unlabelled at half the resolution."""
    weights = Path(next(comparator for comparator in of.comparators if comparator.name == COARSE).model["weights"])
    curve_of = learning_curve.settings(of.seed, LABELLED)
    mae = next(comparator for comparator in curve_of.comparators if comparator.name == "vit-mae")
    paths = {"cohort": of.cohort.parent / "cohort.csv", "prepared": weights.parent / "prepared", "output": weights.parent / "run"}
    low = curve_of.of(mae).model_copy(update={**paths, "grid": HALF})
    with run_folder.claimed(low) as run:
        patients = [p for p in study.check(low, run) if not p.knows(low.endpoints[0])]
        study.prepare(low, patients, run, console)
    pretrained(low, patients, weights, of.seed)


def trained(seed: int, at_a_time: int, console: Console) -> pd.DataFrame:
    """Everybody's predictions on one cohort; then "vit" and the comparator that bears it with each scan taken away."""
    of = of_seed(seed)
    of = of.model_copy(update={"train": of.train.model_copy(update={"workers": at_a_time})})
    coarse_encoder(of, console)
    with run_folder.claimed(of) as run:
        study.prepare(of, study.check(of, run), run, console)
        study.train(of, run, console)
        patients, splits = study.divided_before(of, run)
        known = predictions.load(run / files.PREDICTIONS).dropna(subset=["truth"])
        parts = [known]
        truth = known.drop_duplicates("patient").set_index("patient").truth
        for name, home in ((VIT, run), (BEARING, run / files.COMPARATORS / BEARING)):
            for channel in CHANNELS:
                scores = lacking(of, [p for p in patients if p.subject in truth.index], splits[0], home, channel)
                rows = {
                    "model": f"{name} without {channel}",
                    "patient": scores.index,
                    "truth": truth[scores.index],
                    "score": scores,
                }
                parts.append(pd.DataFrame(rows))
    return pd.concat(parts).assign(seed=seed, labelled=LABELLED)


@torch.no_grad()
def lacking(of: Study, patients: list[Patient], split: Split, home: Path, channel: str) -> pd.Series:
    """Out-of-fold scores by subject when one scan of each patient is empty."""
    found = {}
    for fold, ids in enumerate(split):
        net = network.load(files.fold_folder(home, 0, fold) / files.WEIGHTS).eval()
        (head,) = net.heads
        for patient in (p for p in patients if p.id in set(ids)):
            patches, position = all_tokens(tokens.load(token_file(of.prepared, patient)), of.model)
            voxels = patches.shape[2] // len(CHANNELS)
            start = CHANNELS.index(channel) * voxels
            patches[:, :, start : start + voxels] = 0
            found[patient.subject] = float(heads.scores(head, net(patches, position)[head.endpoint.name])[0, 0])
    return pd.Series(found)


def changed(of: Study, name: str) -> str:
    """What a comparator changes, as it stands in its file."""
    comparator = next((comparator for comparator in of.comparators if comparator.name == name), None)
    sections = {"model": comparator.model, "pretrain": comparator.pretrain, "train": comparator.train} if comparator else {}
    keys = [(f"{section}.{key}", value) for section, keys in sections.items() for key, value in keys.items()]
    return ", ".join(f"`{key} = {json.dumps(_file(value) if key == 'model.weights' else value)}`" for key, value in keys)


def _file(weights: str) -> str:
    """A file of weights by its own and its folder's name; where it lay is of no use to a reader."""
    return "/".join(Path(weights).parts[-2:])


def document(predicted: pd.DataFrame, of: Study, seeds: list[int]) -> str:
    """The tables as Markdown."""
    points = curve.curve(predicted).set_index("model")
    compared = pd.DataFrame(predicted[~predicted.model.str.contains(" without ")])
    tests = curve.against(compared).set_index("model")
    least, most = small_tumours.DIAMETER_MM
    head = (
        "Made by `pipelines/reproduce.py ablation` from `ablation.toml` on the hard variant of the built-in cohort (tumours of "
        f"{least} to {most} mm, MGMT in a thin rim alone): {LABELLED} labelled patients, {of.train.folds} folds, data seeds "
        f"{', '.join(map(str, seeds))}. AUC out of fold, mean over cohorts; the interval holds patients and cohorts; p is the "
        "larger of DeLong's, on the same patients, and of Student's t between cohorts, after Holm. The brightest T1ce voxel "
        "alone has an AUC of 1.000 there, so that these figures say who finds a bright place, and no more "
        "([hidden causes](../simulated_effects/hidden_causes.md))."
    )
    lines = [
        "# What each part is worth",
        "",
        textwrap.fill(head, 130),
        "",
        "| changed | AUC [95 %] | less the recommended [95 %] | p |",
        "|---|---|---|---|",
        f"| nothing: recommended | {_interval(points.loc['vit'], 'auc')} | | |",
    ]
    for name in (comparator.name for comparator in of.comparators):
        test = tests.loc[name]
        p = "< 0.001" if test.p_adjusted < 0.001 else f"{test.p_adjusted:.3f}"
        lines.append(
            f"| {changed(of, name)} | {_interval(points.loc[name], 'auc')} | {_interval(test, 'difference', '+')} | {p} |"
        )
    lines += ["", "## A scan is missing", "", "AUC when one scan of every test patient is empty; nothing is trained anew.", ""]
    lines += [
        "| trained with | all four | " + " | ".join(f"without {channel}" for channel in CHANNELS) + " |",
        "|---|" + "---|" * 5,
    ]
    for name, words in ((VIT, "recommended"), (BEARING, changed(of, BEARING))):
        cells = [_interval(points.loc[one], "auc") for one in (name, *(f"{name} without {channel}" for channel in CHANNELS))]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _interval(row: pd.Series, key: str, sign: str = "") -> str:
    value, low, high = (round(float(row[one]), 3) + 0.0 for one in (key, "low", "high"))  # + 0.0: no minus before a zero
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]".replace("-", "−")


def main(*, seeds: learning_curve.Cohorts = SEEDS, workers: Count = 2) -> None:
    """Train and evaluate every change on the cohorts of these data seeds, and write the page.

    Parameters
    ----------
    workers : trainings side by side, each on one thread.
    """
    console = Console()
    predicted = pd.concat([trained(seed, workers, console) for seed in seeds])
    write_bytes(document(predicted, of_seed(seeds[0]), list(seeds)).encode(), PAGE)
    screen.say(console, f"table: {PAGE}")

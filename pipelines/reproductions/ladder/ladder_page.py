"""The ladder of inductive bias: what models that assume ever less of an image make of ever fewer patients, as a page.

At its foot stand numbers without any place (the brightest voxel, first-order numbers in a regression and in a fully connected
network); then a convolutional network, which looks at neighbours; then a Vision Transformer, which must learn who is one. The
question is that of Dosovitskiy et al. 2021, arXiv:2010.11929, Figure 4, over patients instead of photographs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mri_vit.metrics.comparison import holm
from mri_vit.metrics.discrimination import wilson_of_auc
from mri_vit.metrics.within_fold import WithinFold, inflation, p_above_chance, within_fold_auc
from mri_vit.model.baselines import BASELINES
from mri_vit.report.words import notation
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study
from mri_vit.style import RC, WIDTH
from reproductions import html_page
from reproductions.html_page import Page, Picture, Section, Table
from reproductions.learning_curve import curve
from reproductions.learning_curve.curve import lines
from reproductions.run_statistics import over_runs

BRIGHTEST, LOGISTIC, MLP = "brightest voxel", "first-order regression", "first-order MLP"  # no comparator's name has a space
OF_NUMBERS = {  # what reads first-order numbers, the simplest first
    BRIGHTEST: "Brightest voxel alone",
    LOGISTIC: "First-order regression",
    MLP: "First-order MLP",
}
SOURCE = "The ladder of inductive bias, after Dosovitskiy et al. 2021, Figure 4"
PANEL = 2.1  # inches high: three of them are seen at once on a screen
FEWEST = 24  # patients at the smallest size: three folds then test eight


def called(study: Study) -> dict[str, str]:
    """Every model of the ladder by its name in the tables, from the foot up, and what people call it."""
    networks = {
        one.name: BASELINES[one.name].label if one.name == study.of(one).model.architecture else one.name
        for one in study.comparators
    }
    return OF_NUMBERS | networks | {VIT: "Vision Transformer"}


def figure(found: pd.DataFrame, names: dict[str, str], titles: Mapping[str, str]) -> Figure:
    """AUC by patients, a panel for each endpoint and a line for each model, with intervals."""
    with mpl.rc_context(RC):
        drawn = Figure(figsize=(WIDTH, PANEL * len(titles) + 0.7), layout="constrained")
        panels = drawn.subplots(len(titles), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (endpoint, title) in zip(panels, titles.items(), strict=True):
            lines(axes, pd.DataFrame(found[found.endpoint == endpoint]), names)
            axes.margins(x=0.12)  # room for the word at the line of chance
            axes.set_title(title, loc="left", fontsize=9, weight="bold")
        panels[-1].set(xlabel="Patients", ylim=(min(0.3, found.low.min()), 1.02))
        handles, labels = panels[-1].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=2)
    return drawn


def sentences(found: pd.DataFrame, tests: pd.DataFrame, names: dict[str, str], titles: Mapping[str, str]) -> list[str]:
    """What the ladder shows, a sentence for each endpoint: who finds it, from which size on, and who differs from the ViT."""
    return [
        f"{title}: "
        + "; ".join(
            [
                *_finders(pd.DataFrame(found[found.endpoint == endpoint]), names),
                *_differing(pd.DataFrame(tests[tests.endpoint == endpoint]), names),
            ]
        )
        + "."
        for endpoint, title in titles.items()
    ]


def _finders(found: pd.DataFrame, names: dict[str, str]) -> list[str]:
    """Who finds an endpoint, who does not, and what the simplest of the finders reaches."""
    largest = int(found.labelled.max())
    from_on = {name: found_from(found, name) for name in names if name in set(found.model)}
    finders = [name for name, least in from_on.items() if least]
    if not finders:
        return ["no model is told from chance"]
    parts = [f"better than chance: {', '.join(f'{names[name]} (from {from_on[name]} patients on)' for name in finders)}"]
    if others := [names[name] for name, least in from_on.items() if not least]:
        parts.append(f"not told from chance, with {largest} patients either: {', '.join(others)}")
    if finders[0] in OF_NUMBERS:
        row = found[(found.labelled == largest) & (found.model == finders[0])].iloc[0]
        reached = notation.between(row.auc, row.low, row.high)
        parts.append(f"{names[finders[0]]} reaches {reached}, so that a network which finds it need not have seen more")
    return parts


def _differing(tests: pd.DataFrame, names: dict[str, str]) -> list[str]:
    """Who differs from the Vision Transformer at the largest size."""
    largest = int(tests.labelled.max())
    top = tests[(tests.labelled == largest) & (tests.p_adjusted < LEVEL)]
    parts = []
    for word, side in (("worse", top.difference < 0), ("better", top.difference > 0)):
        if differing := [names[name] for name in top.model[side]]:
            parts.append(f"with {largest} patients by more than chance {word} than the {names[VIT]}: {', '.join(differing)}")
    return parts


def write(
    predicted: pd.DataFrame,
    names: dict[str, str],
    planted: Mapping[str, str],
    facts: Sequence[str],
    costs: pd.DataFrame,
    folder: Path,
) -> Path:
    """The page of a ladder, its figure, and `points.csv`, `against.csv` and `predictions.csv`.

    Parameters
    ----------
    predicted : a row per patient, model, endpoint, cohort and size, with the columns `PREDICTED`.
    names : what each model is called, in the order in which they are shown.
    planted : of synthetic patients what is in the scans, by endpoint; empty of real ones.
    facts : sentences on patients and training that the reader needs.
    costs : (model, parameters, training_seconds): the weights of a network, and its training in all folds, sizes and cohorts.
    """
    found, tests = points(predicted), against(predicted, VIT)
    titles = {
        endpoint: f"{notation.title(endpoint)} ({planted[endpoint]})" if planted else notation.title(endpoint)
        for endpoint in dict.fromkeys(predicted.endpoint)
    }
    cohorts = int(found.cohorts.max())
    curve = Picture(
        "ladder",
        figure(found, names, titles),
        f"AUC of {len(names)} models by number of patients, one panel for each of {len(titles)} markers",
        f"Out-of-fold AUC of pairs within a fold{f', mean over {cohorts} cohorts' if cohorts > 1 else ''}, with 95 % intervals. "
        "Points of one size are set a little apart.",
    )
    numbers = [
        Section(
            title,
            tables=(
                _aucs(pd.DataFrame(found[found.endpoint == endpoint]), names),
                _differences(pd.DataFrame(tests[tests.endpoint == endpoint]), names),
            ),
        )
        for endpoint, title in titles.items()
    ]
    return html_page.write(
        Page(
            SOURCE,
            "How much must a model assume, for how many patients?",
            sentences(found, tests, names, titles),
            (
                Section("AUC over patients", pictures=(curve,)),
                *numbers,
                Section("Weights and training", tables=(_costs(costs, names),)),
            ),
            facts,
            {"points": found, "against": tests, "predictions": pd.DataFrame(predicted[PREDICTED])},
            "The ladder shows how models learn known causes from few patients; it is not what they would reach on real tumours."
            if planted
            else "",
        ),
        folder,
    )


def _aucs(found: pd.DataFrame, names: dict[str, str]) -> Table:
    """One endpoint's AUCs, a row for each model and a column for each size."""
    sizes = sorted(found.labelled.unique().tolist())
    cells = {(row["model"], row["labelled"]): _auc(row) for row in found.to_dict("records")}
    known = {size: int(found[found.labelled == size].known.max()) for size in sizes}
    return Table(
        "AUC",
        ("AUC", *(f"{size} patients ({known[size]} with the label)" for size in sizes)),
        [(name, *(cells.get((model, size), "") for size in sizes)) for model, name in names.items() if model in set(found.model)],
        f"{notation.MARKS['better']} better than chance, {notation.MARKS['chance']} not told from it: one-sided, after Holm's "
        "correction over all markers, models and sizes.",
    )


def _auc(point: dict[Any, Any]) -> str:
    mark = notation.MARKS["better" if point["p_adjusted"] < LEVEL else "chance"]
    return f"{notation.between(point['auc'], point['low'], point['high'])} {mark}"


def _differences(tests: pd.DataFrame, names: dict[str, str]) -> Table:
    """Each model less the Vision Transformer, on the same patients, for one endpoint."""
    sizes = sorted(tests.labelled.unique().tolist())
    cells = {
        (row["model"], row["labelled"]): f"{notation.change(row['difference'], row['low'], row['high'])}, "
        + notation.adjusted_p(row["p_adjusted"]).replace(" ", "\N{NO-BREAK SPACE}")
        for row in tests.to_dict("records")
    }
    return Table(
        f"Difference from the {names[VIT]}",
        (f"Less the {names[VIT]}", *(f"{size} patients" for size in sizes)),
        [(name, *(cells.get((model, size), "") for size in sizes)) for model, name in names.items() if model in set(tests.model)],
        "On the same patients and folds, with 95 % interval, and the p of the paired test after Holm's correction over all "
        "markers, models and sizes.",
    )


def _costs(costs: pd.DataFrame, names: dict[str, str]) -> Table:
    """What the networks are made of, and how long they learned."""
    rows = [
        (names[row["model"]], f"{row['parameters']:,.0f}", f"{row['training_seconds'] / 60:.1f} min")
        for row in costs.to_dict("records")
    ]
    return Table("Weights and training", ("Network", "Weights", "Training, all folds and sizes"), rows)


PREDICTED = [*curve.PREDICTED, "endpoint", "fold"]  # of the table that all is computed from
LEVEL = 0.05  # of a p after Holm's correction


def of_patients(table: pd.DataFrame) -> pd.DataFrame:
    """A table of predictions with a row for each patient, model, endpoint and fold whose label is known.

    Of several visits the score is the mean, and the label the first known one, as in the report (`judged.known_rows`).
    """
    key = ["endpoint", "model", "fold", "patient"]
    return table.groupby(key, sort=True).agg({"score": "mean", "truth": "first"}).reset_index().dropna(subset=["truth"])


def points(predicted: pd.DataFrame) -> pd.DataFrame:
    """Each model's AUC at each size: (endpoint, labelled, model, known, auc, low, high, p, p_adjusted, cohorts).

    `auc` is that of pairs within a fold, the mean over cohorts; `known` are the patients with the label, of all cohorts. The
    95 % interval is the wider of Wilson's for refitted models (`auc_interval.wilson_of_auc`, of all cohorts' patients together)
    and of Student's t between cohorts (`run_statistics.over_runs`). p is that of so high an AUC without a signal
    (`within_fold.p_above_chance`), and corrected by Holm's method over all endpoints, models and sizes.
    """
    rows = []
    for _, here in predicted.groupby(["endpoint", "labelled"]):
        first = here.iloc[0]
        parts: dict[str, list[tuple[WithinFold, int, int]]] = {}
        folds = here.fold.nunique()
        for _, scores, truth, groups in curve.cohorts(here, "fold"):
            for name in scores:
                found = within_fold_auc(truth, scores[name].to_numpy(), groups)
                parts.setdefault(str(name), []).append((found, int(truth.sum()), int((~truth).sum())))
        head = {"endpoint": first.endpoint, "labelled": first.labelled}
        rows += [head | {"model": name} | _point(of_cohorts, folds) for name, of_cohorts in parts.items()]
    table = pd.DataFrame(rows)
    return table.assign(p_adjusted=holm(table.p.to_numpy(dtype=float)))


def _point(parts: Sequence[tuple[WithinFold, int, int]], folds: int) -> dict[str, float | int]:
    """A model at a size, from what each cohort says of it, with its positives and negatives."""
    founds, positives, negatives = zip(*parts, strict=True)
    values = np.array([found.value for found in founds])
    mean, cohorts = float(values.mean()), len(parts)
    variance = sum(found.variance for found in founds) / cohorts**2
    low, high = wilson_of_auc(mean, variance, sum(positives), sum(negatives), refits=True)
    between, _ = over_runs(values, 0.0)
    nothing = WithinFold(mean, math.hypot(*(found.error for found in founds)) / cohorts, np.empty(0))
    return {
        "known": sum(positives) + sum(negatives),
        "auc": mean,
        "low": max(0.0, min(low, mean - between)),
        "high": min(1.0, max(high, mean + between)),
        "p": p_above_chance(nothing, inflation(folds)),
        "cohorts": cohorts,
    }


def against(predicted: pd.DataFrame, own: str) -> pd.DataFrame:
    """Each model less the own one, as `learning_curve.against` of pairs within a fold; with `endpoint`, Holm over these too."""
    tables = [
        curve.against(pd.DataFrame(here), own, "fold").assign(endpoint=endpoint)
        for endpoint, here in predicted.groupby("endpoint")
    ]
    table = pd.concat(tables, ignore_index=True)
    table[["low", "high"]] = table[["low", "high"]].clip(-1.0, 1.0)
    return table.assign(p_adjusted=holm(table.p.to_numpy(dtype=float)))


def found_from(points: pd.DataFrame, model: str) -> int | None:
    """The size from which on a model is better than chance at every size; None where it is not at the largest.

    `points` are of one endpoint.
    """
    least = None
    for row in pd.DataFrame(points[points.model == model]).sort_values("labelled", ascending=False).to_dict("records"):
        if not row["p_adjusted"] < LEVEL:
            break
        least = int(row["labelled"])
    return least

"""A learning curve: how well each model predicts a marker, by the number of labelled patients, over several cohorts.

A cohort (a data seed) gives one out-of-fold AUC per model and size. Cohorts are independent, so means over them have the
standard error of independent estimates; two models are compared on the same patients within each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mri_vit.metrics.comparison import holm
from mri_vit.metrics.discrimination import auc
from mri_vit.metrics.within_fold import inflation, within_fold_auc
from mri_vit.report.figures.panels import strokes
from mri_vit.report.words import notation
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.recipe import VIT
from mri_vit.style import GREY, RC, WIDTH, to_bytes
from reproductions.html_page import environment
from reproductions.run_statistics import delong_covariance, over_runs

PREDICTED = ["seed", "labelled", "model", "patient", "truth", "score"]  # of the table that all is computed from
OWN = VIT  # whom every other model is compared with
SINGLE = 9  # digits that keep single-precision numbers distinct (IEEE 754); fewer make ties, and another AUC


@dataclass(frozen=True)
class Versus:
    """A model less the own one; p is adjusted by Holm's method over all models and sizes, NaN where it was not tested."""

    difference: float
    p_adjusted: float


@dataclass(frozen=True)
class Cell:
    """What the table says of a model at a size: the mean AUC with its 95 % interval, and the comparison with the own model."""

    value: float
    low: float
    high: float
    test: Versus | None = None


def single(predicted: pd.DataFrame) -> pd.DataFrame:
    """AUC and DeLong's standard error of each model in each cohort and size: (seed, labelled, model, auc, error)."""
    rows = []
    for (seed, labelled), scores, truth, _ in cohorts(predicted):
        errors = np.sqrt(np.diag(delong_covariance(truth, scores.to_numpy().T)))
        rows += [
            {"seed": seed, "labelled": labelled, "model": model, "auc": auc(truth, scores[model].to_numpy()), "error": error}
            for model, error in zip(scores, errors, strict=True)
        ]
    return pd.DataFrame(rows)


def curve(predicted: pd.DataFrame) -> pd.DataFrame:
    """The mean AUC over cohorts of each model and size: (labelled, model, auc, low, high, cohorts).

    The 95 % interval is that of `over_runs`, a run being a cohort.
    """
    rows = []
    for _, group in single(predicted).groupby(["labelled", "model"]):
        first, mean = group.iloc[0], float(group.auc.mean())
        reach, _ = over_runs(group.auc.to_numpy(), math.hypot(*group.error) / len(group))
        rows.append(
            {
                "labelled": first.labelled,
                "model": first.model,
                "auc": mean,
                "low": max(0.0, mean - reach),
                "high": min(1.0, mean + reach),
                "cohorts": len(group),
            }
        )
    return pd.DataFrame(rows)


def against(predicted: pd.DataFrame, own: str = OWN, group: str | None = None) -> pd.DataFrame:
    """Each model less the own one at each size: (labelled, model, difference, low, high, p, p_adjusted).

    The mean over cohorts of the difference on the same patients, whose variance within a cohort is DeLong's; interval and p are
    those of `over_runs`. p is corrected by Holm over all models and sizes. Where `group` names a column, the fold that a patient
    was tested in, pairs within a fold count alone, and the error is that of refitted models (see `within_fold_comparison`).
    """
    rows = []
    for labelled, here in predicted.groupby("labelled"):
        parts: dict[str, list[tuple[float, float]]] = {}
        for _, scores, truth, groups in cohorts(here, group):
            found = {name: within_fold_auc(truth, scores[name].to_numpy(), groups) for name in scores}
            inflated = inflation(len(np.unique(groups))) if group else 1.0
            for name in (name for name in found if name != own):
                variance = inflated**2 * float(((found[name].influence - found[own].influence) ** 2).sum())
                parts.setdefault(name, []).append((found[name].value - found[own].value, variance))
        for name, pairs in parts.items():
            differences, variances = np.array(pairs).T
            mean, (reach, p) = (
                float(differences.mean()),
                over_runs(differences, math.sqrt(variances.sum()) / len(variances)),
            )
            if math.isnan(p):
                reach = math.nan  # without any spread there is no test
            rows.append(
                {"labelled": labelled, "model": name, "difference": mean, "low": mean - reach, "high": mean + reach, "p": p}
            )
    table = pd.DataFrame(rows)
    return table.assign(p_adjusted=holm(table.p.to_numpy(dtype=float)))


def sentences(points: pd.DataFrame, tests: pd.DataFrame, names: dict[str, str]) -> list[str]:
    """What the curves show, one sentence for each size: who differs from the own model by more than chance."""
    said = []
    for labelled, here in tests.groupby("labelled"):
        own = points[(points.labelled == labelled) & (points.model == OWN)].iloc[0]
        found = [f"{names[OWN]} reaches {notation.between(own.auc, own.low, own.high)}"]
        for word, side in (("better", here.difference > 0), ("worse", here.difference < 0)):
            differing = here[side & (here.p_adjusted < 0.05)]
            if len(differing):
                found.append(f"by more than chance {word} are {', '.join(names[model] for model in differing.model)}")
        for word, those in (
            ("not different from it by more than chance", here.p_adjusted >= 0.05),
            ("not to be tested", here.p_adjusted.isna()),
        ):
            if those.any():
                found.append(f"{word} are {', '.join(names[model] for model in here[those].model)}")
        said.append(f"At {labelled} labelled patients {'; '.join(found)}.")
    return said


def figure(points: pd.DataFrame, names: dict[str, str]) -> Figure:
    """AUC by labelled patients, a line for each model with its intervals, shifted a little so that none hides another."""
    with mpl.rc_context(RC):
        panel = Figure(figsize=(1.5 * WIDTH, WIDTH), layout="constrained")
        axes = panel.subplots()
        lines(axes, points, names)
        axes.set(xlabel="Labelled patients", ylim=(min(0.4, points.low.min()), 1.0))
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return panel


def lines(axes: Axes, points: pd.DataFrame, names: dict[str, str]) -> None:
    """A line for each model, with the interval of each of its points, over a logarithmic axis of sizes; and chance."""
    models = [model for model in names if model in set(points.model)]
    drawn = strokes(models)
    for index, model in enumerate(models):
        here = pd.DataFrame(points[points.model == model]).sort_values("labelled")
        x = here.labelled.to_numpy() * 1.03 ** (index - (len(models) - 1) / 2)  # 3 % apart on the logarithmic axis
        reach = np.abs(here[["low", "high"]].to_numpy().T - here.auc.to_numpy())
        stroke = drawn[model]
        axes.errorbar(x, here.auc, reach, label=names[model], marker=stroke.marker, ms=4, elinewidth=1, **stroke.look)
    axes.axhline(0.5, color=GREY, lw=0.8, ls=":")
    sizes = sorted(points.labelled.unique())
    axes.set(xscale="log", ylabel="AUC, out of fold")
    axes.set_xticks(sizes, [f"{size}" for size in sizes])
    axes.minorticks_off()
    axes.annotate("chance", (0.01, 0.5), xycoords=("axes fraction", "data"), ha="left", va="bottom", color=GREY, fontsize=8)


def write(predicted: pd.DataFrame, names: dict[str, str], facts: Sequence[str], costs: pd.DataFrame, folder: Path) -> Path:
    """The page, its figure and its tables: `index.html`, `curve.svg`, `curve.png`, `curve.csv`, `against.csv`, `predictions.csv`.

    Parameters
    ----------
    predicted : a row per patient, model, cohort and size, with the columns `PREDICTED`.
    names : what each model is called, in the order in which they are shown.
    facts : sentences on cohorts and training that the reader needs.
    costs : (model, parameters, training_seconds): the weights of a model, and its training in all folds, sizes and cohorts.
    """
    points, tests = curve(predicted), against(predicted)
    drawing = figure(points, names)
    for kind in ("svg", "png"):
        write_bytes(to_bytes(drawing, kind), folder / f"curve.{kind}")
    for name, table, digits in (("curve", points, 6), ("against", tests, 6), ("predictions", predicted[PREDICTED], SINGLE)):
        write_bytes(table.to_csv(index=False, float_format=f"%.{digits}g", lineterminator="\n").encode(), folder / f"{name}.csv")
    filters = {"interval": notation.interval, "with_sign": notation.with_sign, "adjusted_p": notation.adjusted_p}
    templates = environment(Path(__file__).parent, **filters)
    templates.tests.update(known=notation.is_defined)
    page = templates.get_template("curve.html").render(
        names=names,
        facts=facts,
        sentences=sentences(points, tests, names),
        sizes=sorted(points.labelled.unique().tolist()),
        cells=_cells(points, tests),
        costs={row["model"]: row for row in costs.to_dict("records")},
        cohorts=int(points.cohorts.max()),
        svg=to_bytes(drawing, "svg").decode().partition("<svg")[2],
    )  # fmt: skip
    write_bytes(page.encode(), folder / "index.html")
    return folder / "index.html"


def _cells(points: pd.DataFrame, tests: pd.DataFrame) -> dict[tuple[str, int], Cell]:
    """By model and size what a cell of the table says."""
    cells = {(row["model"], row["labelled"]): Cell(row["auc"], row["low"], row["high"]) for row in points.to_dict("records")}
    for row in tests.to_dict("records"):
        position = (row["model"], row["labelled"])
        cells[position] = replace(cells[position], test=Versus(row["difference"], row["p_adjusted"]))
    return cells


def cohorts(predicted: pd.DataFrame, group: str | None = None) -> list[tuple[Any, pd.DataFrame, np.ndarray, np.ndarray]]:
    """Each cohort and size: its models' scores, a column each and a row for each patient, the truth of these, and their group.

    Patients are those whom every model scored. The group is what the column `group` says, and one for all where none is named.
    """
    parted = []
    for key, here in predicted.groupby(["seed", "labelled"]):
        scores = here.pivot(index="patient", columns="model", values="score").dropna()
        people = here.drop_duplicates("patient").set_index("patient").reindex(scores.index)
        groups = people[group].to_numpy() if group else np.zeros(len(people))
        parted.append((key, scores, people.truth.to_numpy() == 1, groups))
    return parted

"""What the rotated patients' rows say: means over patients by road and angle with their intervals, and paired tests.

A patient's value at an angle is the mean over axes and endpoints; patients are what is drawn, so intervals are over patients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int
from scipy.stats import rankdata
from scipy.stats import t as student

from mri_vit.data.cohort import Patient
from mri_vit.metrics import intervals
from mri_vit.metrics.comparison import holm
from mri_vit.metrics.discrimination import wilson_of_auc
from mri_vit.metrics.within_fold import WithinFold, within_fold_auc
from mri_vit.settings.schema import Endpoint, Study
from reproductions.rotation.reading import ANOTHER, METHODS, SCANNED
from reproductions.rotation.rotated_patients import CONTENT, CONTENT_BACK, GRID, GRID_BACK, HEADER, Tables
from reproductions.run_statistics import ROUNDING

ROADS = (CONTENT, CONTENT_BACK, HEADER, GRID, GRID_BACK)
FLOORS = {CONTENT: CONTENT_BACK, GRID: GRID_BACK}  # what interpolation alone does on each road
AT = ["road", "degrees"]
ENDS = ["value", "low", "high", "patients"]
BOUNDS = {"similarity": (-1.0, 1.0), "hit": (0.0, 1.0), "energy": (0.0, 1.0)}  # of columns; the others are 0 or more
FEWEST = 3  # patients for an interval over them, and for ranks
RESAMPLES = 300  # the ends of an interval then lie within two percentiles; a thousand, of twelve means each, take a minute
SCORE = "score"  # the measure's name among the tests; those of maps have their method's

Statistic = Callable[[pd.DataFrame, Int[np.ndarray, "n"]], float]  # rows of one axis and endpoint, and which of them are drawn


@dataclass(frozen=True, eq=False)
class Found:
    """All numbers of the page: rows, and what follows from them."""

    lies: pd.DataFrame
    scores: pd.DataFrame
    maps: dict[str, pd.DataFrame]  # by method
    ranks: pd.DataFrame
    aucs: pd.DataFrame
    tests: pd.DataFrame
    degrees: tuple[float, ...]  # of the whole road, with 0
    half_a_place_mm: float
    patients: int
    seconds: float  # of all patients, on one thread

    @property
    def most(self) -> float:
        """The largest angle."""
        return self.degrees[-1]


def found(rows: Tables, patients: Sequence[Patient], study: Study) -> Found:
    """The numbers of these patients' rows."""
    scores = changes(rows.scores)
    maps = {method: some(rows.maps, method=method) for method in METHODS}
    tested = {SCORE: (scores, "change")} | {method: (own, "similarity") for method, own in maps.items()}
    return Found(
        lies=rows.lies,
        scores=scores,
        maps=maps,
        ranks=ranks(scores, study.seed),
        aucs=aucs(scores, patients, study.endpoints),
        tests=tests(tested),
        degrees=tuple(sorted(set(some(rows.lies, road=CONTENT)["degrees"]))),
        half_a_place_mm=study.grid.patch * study.grid.spacing_mm / 2,
        patients=len(patients),
        seconds=rows.seconds,
    )


def some(rows: pd.DataFrame, **equal: object) -> pd.DataFrame:
    """The rows whose columns have these values."""
    kept = np.ones(len(rows), bool)
    for name, value in equal.items():
        kept &= (rows[name] == value).to_numpy(bool)
    return rows.loc[kept]


def changes(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores with `first`, that of the patient as scanned less the fold's mean; `now`, this one less the same; and `change`, the
    absolute difference in standard deviations over patients within a fold.

    Scores of two folds are two networks', whose scales may differ; so ranks and deviations are taken within folds.
    """
    own = some(scores, road=SCANNED)
    scanned = {(row["patient"], row["endpoint"]): row["evidence"] for row in own.to_dict("records")}
    middles = {key: float(part["evidence"].mean()) for key, part in own.groupby(["fold", "endpoint"])}
    deviations = {name: _within(part) for name, part in own.groupby("endpoint")}
    rows = scores.to_dict("records")
    first = np.array([scanned[row["patient"], row["endpoint"]] for row in rows], float)
    middle = np.array([middles[row["fold"], row["endpoint"]] for row in rows], float)
    deviation = np.array([deviations[row["endpoint"]] for row in rows], float)
    evidence = scores["evidence"].to_numpy(float)
    return scores.assign(first=first - middle, now=evidence - middle, change=np.abs(evidence - first) / deviation)


def _within(own: pd.DataFrame) -> float:
    """The standard deviation of one endpoint's scores within folds, pooled; NaN where no fold has two patients."""
    parts = [part["evidence"].to_numpy(float) for _, part in own.groupby("fold")]
    freedom, total = sum(len(part) - 1 for part in parts), sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    return math.sqrt(total / freedom) if freedom and total > 0 else math.nan


def means(rows: pd.DataFrame, column: str, by: Sequence[str] = AT) -> pd.DataFrame:
    """The mean over patients of a column: (by, value, low, high, patients).

    The 95 % interval is Student's t over patients, each the mean of its rows, cut where the column's values end; it is NaN of
    fewer than `FEWEST`.
    """
    least, most = BOUNDS.get(column, (0.0, math.inf))
    known = rows.loc[rows[column].notna().to_numpy()]
    lines = []
    for key, here in known.groupby(list(by), dropna=False, sort=False):
        each = here.groupby("patient")[column].mean().to_numpy(float)
        value, n = float(each.mean()), len(each)
        reach = float(student.isf(0.025, n - 1) * each.std(ddof=1) / math.sqrt(n)) if n >= FEWEST else math.nan
        low, high = (math.nan, math.nan) if math.isnan(reach) else (max(least, value - reach), min(most, value + reach))
        lines.append([*(key if isinstance(key, tuple) else (key,)), value, low, high, n])
    return pd.DataFrame(lines, columns=pd.Index([*by, *ENDS]))


def between_patients(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The same of another patient, read by the same network in this one's place: the most that a change is expected to be."""
    return means(some(rows, road=ANOTHER).assign(degrees=0.0), column)


def ranks(scored: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Spearman's rank correlation over patients of scores as scanned and as turned: (road, degrees, value, low, high, patients).

    The mean over endpoints and, where a patient is turned about several, axes, each among the patients who could be prepared;
    the 95 % interval is a percentile bootstrap of patients. `scored` is of `changes`.
    """

    def correlation(part: pd.DataFrame, drawn: Int[np.ndarray, "n"]) -> float:
        first, now = (part[name].to_numpy(float)[drawn] for name in ("first", "now"))
        a, b = (rankdata(values) - (len(values) + 1) / 2 for values in (first, now))
        norm = math.sqrt(float((a**2).sum() * (b**2).sum()))
        return float(a @ b) / norm if norm > 0 else math.nan

    return _over_patients(scored, ROADS, seed, correlation)


def aucs(scored: pd.DataFrame, patients: Sequence[Patient], endpoints: Sequence[Endpoint]) -> pd.DataFrame:
    """AUC within folds of the binary endpoints, mean over these and axes: (road, degrees, value, low, high, patients).

    Of patients whose label is known; the mean over axes is as of `ranks`. The 95 % interval is Wilson's (`wilson_of_auc`), of
    the variance of the patients' mean influences and the classes of the part with the fewest pairs: a bootstrap of an AUC of 0
    or 1 has no width. No rows where no endpoint has both classes in a fold.
    """
    truth = {(p.id, e.name): p.labels.get(e.name, math.nan) for p in patients for e in endpoints if e.kind == "binary"}
    labels = [truth.get((row["patient"], row["endpoint"]), math.nan) for row in scored.to_dict("records")]
    known = scored.assign(truth=labels).loc[~np.isnan(labels)]

    lines = []
    for road in (SCANNED, CONTENT, GRID):
        for degrees, here in some(known, road=road).groupby("degrees"):
            each = [(part, _area(part)) for part in _parts(here)]
            told = [(part, area) for part, area in each if not math.isnan(area.value)]
            n = here["patient"].nunique()
            if n < FEWEST or not told:
                continue
            value = float(np.mean([area.value for _, area in told]))
            influences = pd.concat([pd.Series(area.influence, index=pd.Index(part["patient"])) for part, area in told])
            variance = float(((influences.groupby(level=0).sum().to_numpy(float) / len(told)) ** 2).sum())
            classes = [(int((part["truth"] == 1).sum()), int((part["truth"] == 0).sum())) for part, _ in told]
            low, high = wilson_of_auc(value, variance, *min(classes, key=math.prod))
            lines.append([road, degrees, value, low, high, n])
    return pd.DataFrame(lines, columns=pd.Index([*AT, *ENDS]))


def _area(part: pd.DataFrame) -> WithinFold:
    truth, now, fold = (part[name].to_numpy() for name in ("truth", "now", "fold"))
    return within_fold_auc(truth == 1, now.astype(float), fold)


def _parts(here: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each axis and endpoint.

    Where each patient has one axis, as axes are dealt to the controls, patients of all axes are one group: a third of them has
    next to no pairs.
    """
    about_each = here.duplicated(["patient", "endpoint"]).any()
    return [part for _, part in here.groupby(["axis", "endpoint"] if about_each else ["endpoint"])]


def _over_patients(scored: pd.DataFrame, roads: Sequence[str], seed: int, statistic: Statistic) -> pd.DataFrame:
    """A statistic's mean over endpoints and axes at each angle of the roads, and a bootstrap of patients."""
    lines = []
    for road in roads:
        for degrees, here in some(scored, road=road).groupby("degrees"):
            names = sorted(set(here["patient"]))
            parts = _parts(here)
            rows = [{name: row for row, name in enumerate(part["patient"])} for part in parts]
            if len(names) < FEWEST:
                continue

            def mean(counts: np.ndarray, names=names, parts=parts, rows=rows) -> float:
                picked = [name for name, times in zip(names, counts, strict=True) for _ in range(int(times))]
                each = [
                    statistic(part, np.array([at[name] for name in picked if name in at], int))
                    for part, at in zip(parts, rows, strict=True)
                ]
                known = [one for one in each if not math.isnan(one)]
                return float(np.mean(known)) if known else math.nan

            value = mean(np.ones(len(names)))
            if not math.isnan(value):
                low, high = intervals.interval(
                    lambda drawn, mean=mean: np.array([mean(counts) for counts in drawn]),
                    np.zeros(len(names)),
                    np.random.default_rng(seed),
                    RESAMPLES,
                )
                lines.append([road, degrees, value, float(low), float(high), len(names)])
    return pd.DataFrame(lines, columns=pd.Index([*AT, *ENDS]))


def tests(tables: dict[str, tuple[pd.DataFrame, str]]) -> pd.DataFrame:
    """Each road less what interpolation alone does, on the same patients and axes: (measure, road, degrees, difference, low,
    high, p, patients, p_adjusted).

    Student's paired t over patients, two-sided; Holm over all measures, roads and angles. `tables` are rows and column of each
    measure. Pairs without a spread have no p.
    """
    lines = []
    for measure, (rows, column) in tables.items():
        for road, floor in FLOORS.items():
            for degrees in sorted(set(some(rows, road=floor)["degrees"])):
                one, other = (_about_axes(some(rows, road=name, degrees=degrees), column) for name in (road, floor))
                less: dict[str, list[float]] = {}
                for patient, axis in one.keys() & other.keys():
                    less.setdefault(patient, []).append(one[patient, axis] - other[patient, axis])
                each = np.array([np.mean(differences) for differences in less.values()])
                if len(each) < FEWEST:
                    continue
                mean, error = float(each.mean()), float(each.std(ddof=1)) / math.sqrt(len(each))
                reach = float(student.isf(0.025, len(each) - 1)) * error
                p = float(2 * student.sf(abs(mean) / error, len(each) - 1)) if error > ROUNDING else math.nan
                lines.append([measure, road, degrees, mean, mean - reach, mean + reach, p, len(each)])
    names = ["measure", "road", "degrees", "difference", "low", "high", "p", "patients"]
    table = pd.DataFrame(lines, columns=pd.Index(names))
    return table.assign(p_adjusted=holm(table["p"].to_numpy(dtype=float)))


def _about_axes(rows: pd.DataFrame, column: str) -> dict[tuple[str, str], float]:
    """By patient and axis the mean over endpoints, where it is known."""
    known = rows.loc[rows[column].notna().to_numpy()]
    return {(str(key[0]), str(key[1])): float(part[column].mean()) for key, part in known.groupby(["patient", "axis"])}


def at_zero(rows: pd.DataFrame) -> pd.DataFrame:
    """With the patients as scanned for the roads there and back at 0 degrees, where nothing is interpolated."""
    own = some(rows, road=SCANNED)
    return pd.concat([rows, *(own.assign(road=floor) for floor in FLOORS.values())], ignore_index=True)


def curves(of: Found) -> pd.DataFrame:
    """Every line of the figures, over all axes and about each."""
    measures = [("error_degrees", "error_degrees", "", of.lies), ("error_mm", "error_mm", "", of.lies)]
    measures += [("score_change", "change", "", of.scores)]
    for column in ("similarity", "hot_spot_mm", "peak_mm", "hit", "energy"):
        measures += [(column, column, method, own) for method, own in of.maps.items()]
    lines = []
    for measure, column, method, rows in measures:
        shown = rows.loc[rows["road"].isin(ROADS).to_numpy()]
        for table in (means(shown, column).assign(axis="all"), means(shown, column, ["road", "axis", "degrees"])):
            lines += table.assign(measure=measure, method=method).to_dict("records")
    return pd.DataFrame(lines, columns=pd.Index(["measure", "method", "road", "axis", "degrees", *ENDS]))

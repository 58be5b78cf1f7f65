"""Saeed et al. 2023, Table 4: its 35 rows as comparators of a study, and what a run of them found beside what was published.

The row "ViT" is MONAI's, as it was in that paper. The study's own Vision Transformer ("vit") is a line of its own, which no
published row stands beside: every other line of ours is compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mri_vit.errors import UsageError
from mri_vit.metrics import comparison, discrimination
from mri_vit.report.numbers.judged import averaged, by_fold, flags, floats, known_rows
from mri_vit.report.reading.run import Run
from mri_vit.settings.recipe import CHANNELS, NOT_COMPARED, Architecture
from mri_vit.settings.schema import Comparator, Endpoint, Study

ENDPOINT = "mgmt"
OWN, REFERENCE = "vit", "ViT"  # what the others are compared with: of ours, and of the published rows
SCANS: Mapping[str, tuple[str, ...]] = {"t1ce": ("t1ce",), "flair": ("flair",), "t2": ("t2",), "all": CHANNELS}
ARCHITECTURES: Mapping[str, Architecture] = {
    "ResNet-10": "resnet10",
    "ResNet-18": "resnet18",
    "ResNet-34": "resnet34",
    "DenseNet-121": "densenet121",
    "DenseNet-169": "densenet169",
    "DenseNet-201": "densenet201",
    "EfficientNet-b0": "efficientnet_b0",
    "EfficientNet-b1": "efficientnet_b1",
    "EfficientNet-b3": "efficientnet_b3",
    "ViT": "monai_vit",
    "SwinViT": "swin_vit",
}
PUBLISHED = Path(__file__).with_name("published.csv")  # its head says where the figures come from
PUBLISHED_PATIENTS = 577  # of BraTS 2021, in five folds; only the ratio of test to training patients, 1:4, matters here


@dataclass(frozen=True)
class Row:
    """A published row: AUC in each fold, mean and sample variance as printed; `note` names misprints."""

    model: str
    scans: str  # a key of SCANS
    folds: tuple[float, ...]
    mean: float
    variance: float
    note: str

    @property
    def comparator(self) -> str:
        """The name of the comparator that repeats the row."""
        return f"{ARCHITECTURES[self.model]}-{self.scans}"


@dataclass(frozen=True)
class Test:
    """A model against the reference: the difference of their AUCs (95 % interval where there is one) and its two-sided p."""

    __test__ = False  # no test for pytest to collect

    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float  # by Holm's method, over all lines that are held against the reference


@dataclass(frozen=True)
class Measured:
    """What a run found: AUC in each fold, their mean and sample variance, and of all n patients' out-of-fold scores together."""

    folds: tuple[float, ...]
    mean: float
    variance: float
    n: int
    auc: float
    low: float
    high: float


@dataclass(frozen=True)
class Best:
    """The largest AUC of each fold, and the largest mean: what the paper sets in bold."""

    folds: tuple[float, ...]
    mean: float


@dataclass(frozen=True)
class Line:
    """A line of the table: what was published and what a run found, each with its test; None where there is none."""

    comparator: str
    model: str
    scans: str
    published: Row | None
    published_test: Test | None
    measured: Measured | None
    test: Test | None


def published() -> tuple[Row, ...]:
    """The 35 rows, in the order of the paper."""
    table = pd.read_csv(PUBLISHED, comment="#", keep_default_na=False)
    folds = table.filter(like="fold_").to_numpy(dtype=float).tolist()
    printed = zip(table["model"], table["modality"], folds, table["mean"], table["variance"], table["note"], strict=True)
    return tuple(Row(model, scans, tuple(values), *figures) for model, scans, values, *figures in printed)


def with_comparators(study: Study) -> Study:
    """The study with a comparator for each published row; one that it already names (as `resnet10-t1ce`) keeps its own recipe.

    Raises UsageError when the study does not predict MGMT, or predicts anything else: the networks of the table had one output.
    """
    if [endpoint.name for endpoint in study.endpoints] != [ENDPOINT]:
        raise UsageError(f"the rows of the table predict {ENDPOINT} alone; found endpoints {[e.name for e in study.endpoints]}")
    named = {comparator.name for comparator in study.comparators}
    comparators = [
        Comparator(name=row.comparator, model={"architecture": ARCHITECTURES[row.model], "channels": list(SCANS[row.scans])})
        for row in published()
        if row.comparator not in named
    ]
    return Study.model_validate(
        study.model_dump() | {"comparators": [comparator.model_dump() for comparator in (*study.comparators, *comparators)]}
    )


def measure(run: Run) -> tuple[Line, ...]:
    """Every published row beside what the run found, then the run's other models, of which the study's own is the first.

    A row that the run has no prediction of has no measured side; controls are left out.
    """
    endpoint = Endpoint(name=ENDPOINT, kind="binary")
    tables = {
        name: known_rows(run.predictions, endpoint, name) for name in run.predictions.model.unique() if name not in NOT_COMPARED
    }
    tables = {name: rows for name, rows in tables.items() if len(rows)}
    found = {name: _measured(rows) for name, rows in tables.items()}
    tests = paired_tests(tables, OWN) if OWN in tables else {}
    rows = published()
    printed = dict(zip(rows, published_tests(rows), strict=True))
    lines = [Line(r.comparator, r.model, r.scans, r, printed[r], found.get(r.comparator), tests.get(r.comparator)) for r in rows]
    others = [name for name in found if name not in {row.comparator for row in rows}]
    for name in sorted(others, key=lambda name: (name != OWN, name)):
        lines.append(Line(name, name, _scans(run.study, name), None, None, found[name], tests.get(name)))
    return tuple(lines)


def best(sides: Sequence[Row | Measured | None]) -> Best:
    """The largest AUC of each fold and the largest mean among the rows of one side; None are left out.

    Raises ValueError when rows differ in their number of folds.
    """
    there = [side for side in sides if side]
    folds = zip(*(side.folds for side in there), strict=True)
    return Best(tuple(map(max, folds)), max((side.mean for side in there), default=math.nan))


def published_tests(rows: Sequence[Row]) -> list[Test | None]:
    """Each row against the row "ViT", over the fold values as printed; None for that row itself.

    The corrected resampled t-test of `comparison.nadeau_bengio`, two-sided, Holm's correction over the rows tested. It takes
    fold k of every row to be of the same patients, which the paper's design says and the printed numbers cannot show. The
    values of one cohort's folds are not independent (they share training patients), which is what the correction is for; a
    plain t-test of them would find more.
    """
    reference = np.array(next(row.folds for row in rows if row.model == REFERENCE))
    n_test = round(PUBLISHED_PATIENTS / len(reference))
    differences = [np.array(row.folds) - reference for row in rows]
    one_sided = np.array([comparison.nadeau_bengio(d, PUBLISHED_PATIENTS - n_test, n_test)[1] for d in differences])
    p = 2 * np.minimum(one_sided, 1 - one_sided)  # NaN for the reference, whose differences do not vary
    return [
        None if row.model == REFERENCE else Test(float(d.mean()), math.nan, math.nan, float(raw), float(adjusted))
        for row, d, raw, adjusted in zip(rows, differences, p, comparison.holm(p), strict=True)
    ]


def paired_tests(tables: Mapping[str, pd.DataFrame], reference: str) -> dict[str, Test]:
    """Each model against the reference on the patients that both predicted: DeLong's paired test, Holm's correction over all.

    Parameters
    ----------
    tables : by model, as `judged.known_rows` gives them; of several repeats, a patient's mean score is judged.
    """
    base = averaged(tables[reference])[["patient", "score"]]
    found = {}
    for name, rows in tables.items():
        pairs = averaged(rows).merge(base, on="patient", suffixes=("", "_reference"))
        if name != reference and len(pairs):
            found[name] = discrimination.delong_paired(flags(pairs.truth), floats(pairs.score), floats(pairs.score_reference))
    adjusted = comparison.holm(np.array([test.p for test in found.values()], dtype=float))
    return {
        name: Test(test.difference, test.low, test.high, test.p, float(p))
        for (name, test), p in zip(found.items(), adjusted, strict=True)
    }


def wide(lines: Sequence[Line]) -> pd.DataFrame:
    """The lines as a table with a column for each figure; published ones start with `published_`, empty where there is none."""
    rows = []
    for line in lines:
        row: dict[str, object] = {"model": line.model, "scans": line.scans, "contender": line.comparator}
        for head, side, test in (
            ("published_", line.published, line.published_test),
            ("", line.measured, line.test),
        ):
            figures = asdict(side) if side else {}
            for key in ("model", "scans"):
                figures.pop(key, None)
            row |= {f"{head}fold_{k}": value for k, value in enumerate(figures.pop("folds", ()), 1)}
            row |= {f"{head}{key}": value for key, value in figures.items()}
            row |= {f"{head}versus_{key}": value for key, value in (asdict(test) if test else {}).items()}
        rows.append(row)
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _measured(rows: pd.DataFrame) -> Measured:
    pooled = averaged(rows)
    truth, score = flags(pooled.truth), floats(pooled.score)
    folds = [discrimination.auc(flags(here.truth), floats(here.score)) for _, _, here in by_fold(rows)]
    mean, variance = discrimination.mean_and_sample_variance(np.array(folds))
    low, high = discrimination.delong_interval(truth, score)
    return Measured(tuple(folds), mean, variance, len(pooled), discrimination.auc(truth, score), low, high)


def _scans(study: Study, contender: str) -> str:
    """What a model that is no published row reads, as the published rows say it."""
    recipe = next((study.of(comparator) for comparator in study.comparators if comparator.name == contender), study)
    return "all" if set(recipe.model.channels) == set(recipe.channels) else "+".join(recipe.model.channels)

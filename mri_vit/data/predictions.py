"""The second interface: one table of predictions, from any model, and what a predictor must offer."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.data import sheet
from mri_vit.errors import BadNumbers, UsageError
from mri_vit.kinds.kind import part
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import source
from mri_vit.settings.schema import Endpoint

if TYPE_CHECKING:
    from mri_vit.data.cohort import Patient

# `session` is empty for a patient with one visit. `threshold` was chosen without the test fold: scores at or above it are
# positive (chosen on the validation patients), risks at or above it high (the median of the training fold); it may be empty.
COLUMNS = [
    "patient",
    "model",
    "repeat",
    "fold",
    "endpoint",
    "score",
    "truth",
    "time_days",
    "event",
    "session",
    "threshold",
    "class",
]
DEFAULTS = {"model": "model", "repeat": 0, "fold": 0, "session": "", "class": ""}  # of columns that may be left out
REQUIRED_COLUMNS = ["patient", "endpoint", "score"]  # of a table from elsewhere; see `completed`
SURVIVAL_COLUMNS = ["patient", "model", "repeat", "fold", "endpoint", "horizon_days", "survival", "session"]
# Of the null distribution: AUC or Harrell's C of a test fold, refitted to the draw's permuted labels; empty where undefined.
NULL_COLUMNS = ["model", "endpoint", "draw", "repeat", "fold", "value"]
# Of the networks of a fold that differ in their seed alone, whose mean is the model's score; seeds count from 0.
SEED_COLUMNS = ["model", "endpoint", "repeat", "fold", "patient", "session", "seed", "score", "class"]
# A visit is predicted once per model, repeat and endpoint: of classes or grades in a row for each, its score the probability of
# the class and its truth whether the patient is of it. Elsewhere `class` is empty, and left out of a file where it always is.
KEY = ["model", "repeat", "endpoint", "patient", "session", "class"]
Check = Callable[[pd.Series], pd.Series]
VALID_NUMBERS: dict[str, tuple[Check, str]] = {  # which numbers a column may hold, and the words for it
    "score": (lambda x: abs(x) < float("inf"), "a finite number"),
    "truth": (lambda x: abs(x) < float("inf"), "a finite number, or empty when missing"),
    "time_days": (lambda x: (x >= 0) & (x < float("inf")), "days from imaging, 0 or more, or empty"),
    "event": (lambda x: x.isin([0, 1, 2]), "0, 1, or empty when missing"),  # a 2 only of an endpoint with a competing event
    "threshold": (lambda x: abs(x) < float("inf"), "a finite number, or empty"),
    "horizon_days": (lambda x: (x > 0) & (x < float("inf")), "days from imaging, more than 0"),
    "survival": (lambda x: x.between(0, 1), "a probability"),
    "repeat": (lambda x: (x >= 0) & (x % 1 == 0), "a whole number from 0"),
    "fold": (lambda x: (x >= 0) & (x % 1 == 0), "a whole number from 0"),
}
VALID_NULL_NUMBERS: dict[str, tuple[Check, str]] = {
    **{name: VALID_NUMBERS["repeat"] for name in ("draw", "repeat", "fold")},
    "value": (lambda x: x.between(0, 1), "an AUC or a C between 0 and 1, or empty where undefined"),
}
VALID_SEED_NUMBERS: dict[str, tuple[Check, str]] = {name: VALID_NUMBERS[name] for name in ("repeat", "fold", "score")} | {
    "seed": VALID_NUMBERS["repeat"]
}
NUMBERS = list(VALID_NUMBERS | VALID_NULL_NUMBERS | VALID_SEED_NUMBERS)
MISSING = ["", "NA", "NaN", "nan"]  # as a missing number is written; a patient may well be called NA
TEXT = ["patient", "model", "endpoint", "session", "class"]
SCORE = ("patient", "endpoint", "score", "class")  # columns of a predictor's tables
SURVIVAL = ("patient", "endpoint", "horizon_days", "survival")
# Quarter years up to two years; glioblastoma studies report survival at 6, 12 and 24 months, the others make it a curve.
HORIZONS_DAYS = (91.0, 182.0, 274.0, 365.0, 456.0, 548.0, 639.0, 730.0)


@runtime_checkable
class Predictor(Protocol):
    """Anything that learns from some patients and predicts others.

    Whatever is learned from data (weights, early stopping, cut-points) is learned inside `fit`;
    `predict` sees no label of the patients that it is given.
    """

    def fit(self, train: Sequence[Patient], val: Sequence[Patient]) -> None: ...

    def predict(self, patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Two tables: (patient, endpoint, score, class) and (patient, endpoint, horizon_days, survival).

        `score` is a probability for a binary endpoint, a risk for survival (higher = earlier death), a number for a number, and
        for classes and grades, in a row for each `class`, its probability; `survival` is the probability of being alive at
        `horizon_days`. `patient` is the visit's id.
        """
        ...


@runtime_checkable
class Ensemble(Protocol):
    """A predictor whose predictions are the means of its networks'."""

    def predict_each(self, patients: Sequence[Patient]) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
        """What `Predictor.predict` gives, of each network, all of the same rows."""
        ...


def score_table(endpoint: Endpoint, ids: Sequence[str], scores: Float[np.ndarray, "n k"]) -> pd.DataFrame:
    """A predictor's table of one endpoint, a row for each patient and number of the prediction."""
    names = endpoint.classes or ("",)
    patients = np.repeat(np.array(ids, dtype=object), len(names))
    columns = {"patient": patients, "endpoint": endpoint.name, "score": scores.ravel(), "class": list(names) * len(ids)}
    return pd.DataFrame(columns, columns=pd.Index(SCORE))


def score_rows(table: pd.DataFrame, endpoint: Endpoint, ids: Sequence[str]) -> Float[np.ndarray, "n k"]:
    """The numbers of `score_table` again, in the order of these ids; NaN of one that has none."""
    own = table.assign(**{"class": table.get("class", "")}).loc[table.endpoint == endpoint.name]
    wide = own.pivot(index="patient", columns="class", values="score").reindex(ids, columns=list(endpoint.classes or ("",)))
    return wide.to_numpy(dtype=float)


def survival_table(endpoint: Endpoint, ids: Sequence[str], alive: Float[np.ndarray, "n t"]) -> pd.DataFrame:
    """A predictor's table of one endpoint's probabilities to be alive at `HORIZONS_DAYS`, a row for each patient and horizon."""
    patients, days = np.repeat(np.array(ids, dtype=object), len(HORIZONS_DAYS)), np.tile(HORIZONS_DAYS, len(ids))
    columns = {"patient": patients, "endpoint": endpoint.name, "horizon_days": days, "survival": alive.ravel()}
    return pd.DataFrame(columns, columns=pd.Index(SURVIVAL))


def stacked(tables: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """The tables that have rows, under each other; one of these columns without rows where none has."""
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=pd.Index(columns))


def without_empty_class(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is shown, where no endpoint has classes."""
    return table.drop(columns="class") if "class" in table and set(table["class"]) <= {""} else table


def dumps(table: pd.DataFrame) -> bytes:
    """A predictions or survival table as a file has it; 9 digits, which a float32 survives, so equal runs give equal bytes."""
    table = without_empty_class(table)
    sessions = {"session": table.session.map(sheet.harmless)} if "session" in table else {}  # the one text that may start with -
    return table.assign(**sessions).to_csv(index=False, float_format="%.9g", lineterminator="\n").encode()


def save(table: pd.DataFrame, path: Path) -> None:
    """Write a table atomically."""
    write_bytes(dumps(table), path)


def load(path: Path, endpoints: Sequence[Endpoint] = ()) -> pd.DataFrame:
    """Read a predictions table; ids stay text, missing truths stay missing, columns that may be left out are filled in.

    `endpoints` say of which kind each is; others are binary or survival.

    A table from elsewhere needs patient, endpoint and score; without model, repeat and fold it is one model's, in one fold.

    Raises UsageError when a column is missing, a visit is predicted twice by one model and repeat, a patient sits in two
    folds of one repeat, or a fold has more than one threshold; BadNumbers (as a diverged training) when a score is missing.
    """
    table = _read(path, REQUIRED_COLUMNS, DEFAULTS)
    table = table.assign(**{name: float("nan") for name in COLUMNS if name not in table})
    _refuse_nonsense(path, table)
    _refuse_truths(path, table, {endpoint.name: endpoint.kind for endpoint in endpoints})
    _refuse_twos(path, table, {endpoint.name for endpoint in endpoints if endpoint.competing})
    lacking = table.index[table.score.isna()]
    if len(lacking):
        raise BadNumbers(
            f"{path}: {len(lacking)} rows have no score, the first is row {lacking[0] + 2}: {table.patient[lacking[0]]}"
        )
    twice = table[table.duplicated(KEY, keep=False)]
    if len(twice):
        rows = [int(index) + 2 for index in twice.index.tolist()[:4]]  # line 1 is the header
        raise UsageError(f"{path}: patient {twice.patient.iloc[0]} is predicted more than once: rows {rows}")
    homes = table.groupby(["model", "repeat", "patient"]).fold.nunique()
    split = homes[homes > 1].reset_index()
    if len(split):
        first = split.iloc[0]
        raise UsageError(
            f"{path}: patient {first.patient} is tested in {first.fold} folds of one repeat by {first.model}: a model that tests "
            "one visit was trained on another; keep a patient's visits in one fold"
        )
    ways = table.groupby(["model", "repeat", "fold", "endpoint"]).threshold.nunique(dropna=False)
    if (ways > 1).any():
        model, repeat, fold, endpoint = next(iter(ways.index[ways > 1]))
        raise UsageError(
            f"{path}: {endpoint}, model {model}, repeat {repeat}, fold {fold}: more than one threshold; it is fixed before the "
            "fold is predicted, so a fold has one"
        )
    return table.reindex(columns=COLUMNS)


def load_survival(path: Path) -> pd.DataFrame:
    """Read a table of survival probabilities. Raises UsageError naming the row of one that is not between 0 and 1."""
    table = _read(path, ["patient", "endpoint", "horizon_days", "survival"], DEFAULTS)
    _refuse_nonsense(path, table)
    return table.reindex(columns=SURVIVAL_COLUMNS)


def load_nulls(path: Path) -> pd.DataFrame:
    """Read `nulls.csv`; a value is NaN where a fold had none.

    Raises UsageError naming file and row when a column is missing, a number is none, a draw is named twice in a fold, or the
    draws of a model and endpoint do not count up from 0.
    """
    table = _read(path, NULL_COLUMNS)
    _refuse_nonsense(path, table, VALID_NULL_NUMBERS)
    twice = table.index[table.duplicated(NULL_COLUMNS[:-1])]
    if len(twice):
        found = ", ".join(f"{name} {table[name][twice[0]]}" for name in NULL_COLUMNS[:-1])
        raise UsageError(f"{path}, row {twice[0] + 2}: {found} is there twice")
    counted = table.groupby(["model", "endpoint", "repeat", "fold"]).cumcount()
    gap = table.index[table.draw != counted]
    if len(gap):
        row = gap[0]
        raise UsageError(
            f"{path}, row {row + 2}, column draw: {table.draw[row]!r}; expected {counted[row]}, the next of its fold"
        )
    return table.astype({"draw": int, "repeat": int, "fold": int, "value": float}).reindex(columns=NULL_COLUMNS)


def load_seeds(path: Path) -> pd.DataFrame:
    """Read `seeds.csv`.

    Raises UsageError naming file and row when a column is missing, a number is none, or a visit does not have each of its
    model's seeds once; BadNumbers when a score is missing.
    """
    table = _read(path, SEED_COLUMNS[:-1], {"class": ""})
    _refuse_nonsense(path, table, VALID_SEED_NUMBERS)
    lacking = table.index[table.score.isna()]
    if len(lacking):
        raise BadNumbers(f"{path}: row {lacking[0] + 2} has no score: {table.patient[lacking[0]]}")
    twice = table.index[table.duplicated([*KEY, "seed"])]
    if len(twice):
        raise UsageError(f"{path}, row {twice[0] + 2}: patient {table.patient[twice[0]]} has seed {table.seed[twice[0]]} twice")
    found = table.groupby(KEY).seed.transform("nunique")
    short = table.index[found < table.groupby("model").seed.transform("nunique")]
    if len(short):
        raise UsageError(f"{path}, row {short[0] + 2}: patient {table.patient[short[0]]} does not have all seeds of the model")
    return table.astype({"repeat": int, "fold": int, "seed": int, "score": float}).reindex(columns=SEED_COLUMNS)


def _read(path: Path, needed: Sequence[str], defaults: Mapping[str, Any] = MappingProxyType({})) -> pd.DataFrame:
    """A table with the needed columns, and those of `defaults` filled in where it lacks them."""
    if wrong := source.fault(path):
        raise UsageError(f"{source.shown(path)}: {wrong.replace('no such file', 'no such table')}")
    content, separator = sheet.text(path)
    kinds: Any = dict.fromkeys(TEXT, str)
    missing = dict.fromkeys(NUMBERS, MISSING)
    try:
        table = pd.read_csv(io.StringIO(content), sep=separator, dtype=kinds, keep_default_na=False, na_values=missing)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as a CSV table: {error}") from None
    if "session" in table:
        table = table.assign(session=table.session.map(sheet.unprefixed))
    lacking = [column for column in needed if column not in table.columns]
    if lacking:
        raise UsageError(
            f"{path}: no column {', '.join(lacking)}; found {', '.join(table.columns)}, expected {', '.join(needed)}"
        )
    table = table.assign(**{name: value for name, value in defaults.items() if name not in table})
    return table.fillna({"session": "", "class": ""}) if defaults else table


def _refuse_truths(path: Path, table: pd.DataFrame, kind_of: Mapping[str, str]) -> None:
    """Raise UsageError that names the first row whose truth cannot be a label of its endpoint."""
    for name, truth in table.groupby("endpoint").truth:
        of_kind = part(kind_of.get(str(name), "binary"), "labels")
        number = pd.Series(pd.to_numeric(truth), dtype=float)
        for row in np.asarray(number.index[number.notna() & ~of_kind.is_truth(number)]).tolist():
            raise UsageError(f"{path}, row {row + 2}, column truth: {str(truth[row])!r}; expected {of_kind.truths}")


def _refuse_twos(path: Path, table: pd.DataFrame, competing: Collection[str]) -> None:
    """Raise UsageError that names the first row with a competing event, of an endpoint that declares none."""
    if (twos := table.index[(pd.to_numeric(table.event) == 2) & ~table.endpoint.isin(list(competing))]).size:
        raise UsageError(f"{path}, row {twos[0] + 2}, column event: '2'; {part('survival', 'labels').without_competing}")


def _refuse_nonsense(path: Path, table: pd.DataFrame, sense: Mapping[str, tuple[Check, str]] = VALID_NUMBERS) -> None:
    """Raise UsageError that names the first row and column whose number cannot be what the column says."""
    for name in ("patient", "endpoint", "model", "repeat", "fold", "draw", "seed"):
        if name not in table:
            continue
        blank = [value for value in table[name].unique() if isinstance(value, str) and not value.strip()]
        empty = table.index[table[name].isna() | table[name].isin(blank)]
        if len(empty):
            raise UsageError(f"{path}, row {empty[0] + 2}: no {name}")
    for name, (sensible, expected) in sense.items():
        if name not in table:
            continue
        number = pd.Series(pd.to_numeric(table[name], errors="coerce"), dtype=float)
        wrong = table.index[(table[name].notna() & number.isna()) | (number.notna() & ~sensible(number))]
        if len(wrong):
            raise UsageError(f"{path}, row {wrong[0] + 2}, column {name}: {str(table[name][wrong[0]])!r}; expected {expected}")

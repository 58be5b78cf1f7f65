"""A table of predictions made elsewhere, and the cohort table that it is about: paths in; a checked run out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import ValidationError

from mri_vit.data import cohort, columns, predictions, sheet
from mri_vit.errors import UsageError
from mri_vit.kinds.classes import SUM_TOL
from mri_vit.report.reading import run_files
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.parts import Nothing
from mri_vit.run import files
from mri_vit.settings.recipe import PERMUTED
from mri_vit.settings.schema import ENDPOINT_NAME, MIN_CLASSES, Endpoint, Study, folded
from mri_vit.settings.sections import Report


class Declared(NamedTuple):
    """What two tables do not say of themselves."""

    held_out: bool = False  # no model was trained on the patients; they are then of one fold
    subgroups: tuple[str, ...] = ()  # columns of the cohort table, beside the usual ones
    numbers: tuple[str, ...] = ()  # endpoints that are numbers
    grades: tuple[str, ...] = ()  # endpoints whose classes are grades, in the order of their rows
    competing: tuple[str, ...] = ()  # endpoints of survival whose event 2 is one that came first, as NAME or NAME=EVENT
    margin: float | None = None  # of non-inferiority and equivalence
    thresholds: tuple[float, float] | None = None  # `report.thresholds`


UNDECLARED = Declared()
COMPETING_EVENT = "another event"  # where it is not named


def _competing(declared: Declared) -> dict[str, str]:
    """By endpoint, what its competing event is. Raises UsageError where it is named by nothing, or twice."""
    found: dict[str, str] = {}
    for text in declared.competing:
        name, named, event = (part.strip() for part in text.partition("="))
        if not name or name in found or (named and not event):
            raise UsageError(f"--competing {text!r}; expected each endpoint once, as os or os='death of another cause'")
        found[name] = event or COMPETING_EVENT
    return found


def run_from_tables(
    scores: Path,
    people: Path,
    output: Path,
    declared: Declared = UNDECLARED,
) -> Run:
    """A report's matter from a table of predictions made elsewhere and the cohort table that it is about.

    An endpoint is one of survival where the cohort has its `<name>_days` and `<name>_event` (or the predictions their
    `time_days` and `event`), of classes where the predictions have a `class`, of grades or a number where that is
    declared, else binary. Truth that the predictions lack comes from the cohort's column of that name.
    A `survival.csv` beside the predictions is read too.

    Raises UsageError naming file, row and column.
    """
    numbers = [Endpoint(name=name, kind="continuous") for name in declared.numbers]
    table = predictions.load(scores, [*numbers, *(_survival(name, declared) for name in _competing(declared))])
    if not len(table):
        raise UsageError(f"{scores}: no row; expected a row for each patient and endpoint")
    several = [f"{table[key].nunique()} {key}s" for key in ("fold", "repeat") if table[key].nunique() > 1]
    if declared.held_out and several:
        raise UsageError(
            f"{scores}: {' and '.join(several)}; patients that no model was trained on are of one fold: leave the column out"
        )
    header = sheet.columns(people)
    lacking = [name for name in declared.subgroups if name not in header]
    if lacking:
        raise UsageError(f"{people}: no column {lacking[0]!r} to look into (found {', '.join(header)})")
    if lost := sorted({*declared.numbers, *declared.grades, *_competing(declared)} - set(table.endpoint)):
        raise UsageError(f"{scores}: no endpoint {lost[0]!r} (found {', '.join(table.endpoint.unique())})")
    endpoints = tuple(_endpoint_of_table(name, table, header, scores, people, declared) for name in table.endpoint.unique())
    patients = cohort.read(people, tuple(e for e in endpoints if set(e.columns) <= set(header)), needed=())
    known = {patient.subject: patient for patient in cohort.first_visits(patients)}  # of several visits, the first is judged
    unknown = sorted(set(table.patient) - set(known))
    if unknown:
        like = columns.elsewhere(unknown[0], known)
        raise UsageError(f"{scores}: patient {unknown[0]} is not in {people}{like} ({len(unknown)} such patients)")
    visits = pd.DataFrame([{"patient": p.subject, **p.clinical, **p.labels} for p in patients]).astype(str).replace("nan", "")
    study = Study(
        name=_study_name(scores),
        cohort=people,
        prepared=output,
        output=output,
        endpoints=endpoints,
        report=_report(declared),
    )
    return Run(
        design="held-out" if declared.held_out else "table",
        study=study,
        environment=Nothing(),
        cohort=run_files.by_patient(visits),
        excluded=run_files.empty(run_files.EXCLUDED_COLUMNS),
        folds_sha256=None,
        predictions=_with_truth(table, endpoints, known | {patient.id: patient for patient in patients}, scores),
        survival=run_files.survival(scores.with_name(files.SURVIVAL)),
        nulls=run_files.nulls(scores.with_name(files.NULLS)),
        probe=run_files.empty(files.SITE_PROBE_COLUMNS),
        covariates=run_files.covariates(people, study),
    )


def _report(declared: Declared) -> Report:
    """The settings of the report. Raises UsageError where thresholds are no range."""
    try:
        subgroups = tuple(dict.fromkeys((*Report().subgroups, *declared.subgroups)))
        return Report(subgroups=subgroups, margin=declared.margin, thresholds=declared.thresholds)
    except ValidationError as error:
        raise UsageError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from None


def _endpoint_of_table(
    name: str, table: pd.DataFrame, header: list[str], scores: Path, people: Path, declared: Declared
) -> Endpoint:
    if not re.fullmatch(ENDPOINT_NAME, name):
        raise UsageError(f"{scores}: endpoint {name!r}; expected small letters, digits and _ (such as 'mgmt'), 32 at most")
    own = table.loc[table.endpoint == name]
    time, event = f"{name}_days", f"{name}_event"
    if {time, event} <= set(header) or own.time_days.notna().any():
        return _survival(name, declared)
    if name in _competing(declared):
        raise UsageError(f"{scores}: endpoint {name} is no survival: no {time} and {event} in {people}; leave out --competing")
    if name not in header and own.truth.isna().all():
        raise UsageError(
            f"{scores}: endpoint {name} has no truth, and {people} has no column {name!r} (found {', '.join(header)})"
        )
    named = tuple(dict.fromkeys(name for name in own["class"] if name))
    if name in declared.grades and not named:
        raise UsageError(f"{scores}: endpoint {name} has no column class; grades have a row for each, in their order")
    if named:
        _refuse_incomplete(own, named, name in declared.grades, scores)
        if name in declared.grades:
            return Endpoint(name=name, kind="ordinal", classes=_in_order(named))
        return Endpoint(name=name, kind="multiclass", classes=named)
    return Endpoint(name=name, kind="continuous" if name in declared.numbers else "binary")


def _survival(name: str, declared: Declared) -> Endpoint:
    competing = _competing(declared).get(name)
    try:
        return Endpoint(name=name, kind="survival", time=f"{name}_days", event=f"{name}_event", competing=competing)
    except ValidationError:
        raise UsageError(f"--competing {name}={competing}: expected the event in one line of at most 60 letters") from None


def _in_order(grades: tuple[str, ...]) -> tuple[str, ...]:
    """Grades that are numbers by their size, others as the table first has them: it may be sorted by score."""
    try:
        return tuple(sorted(grades, key=float))
    except ValueError:
        return grades


def _refuse_incomplete(own: pd.DataFrame, named: tuple[str, ...], ordered: bool, scores: Path) -> None:
    """Raise UsageError for the first patient without a row for each class, of several classes, or of grades without shares.

    A missing row would be a probability of 0, and the patient whose own it is would be left out.
    """
    name = own.endpoint.iloc[0]
    if len({folded(one) for one in named}) < max(len(named), MIN_CLASSES):
        cure = (
            "two are a binary endpoint: a row per patient, with the score of a 1"
            if len(named) < MIN_CLASSES
            else "spell each alike"
        )
        raise UsageError(f"{scores}: endpoint {name} has the classes {', '.join(named)}: {cure}")
    by = own.groupby(["model", "repeat", "fold", "patient", "session"], sort=False)
    whole = by["class"].nunique() == len(named)
    ones, known = by.truth.apply(lambda truth: (truth == 1).sum()), by.truth.apply(lambda truth: truth.notna().any())
    total = by.score.sum()
    for wrong, words in (
        (~whole, f"without a row for each of {', '.join(named)}"),
        (known & (ones != 1), "with a truth of 1 in no class or in several"),
        ((abs(total - 1) > SUM_TOL) if ordered else ~whole, "whose grades' probabilities do not add up to 1"),
    ):
        if wrong.any():
            model, *_, patient, session = wrong.index[wrong.to_numpy()][0]
            visit = f"{patient} ({session})" if session else patient
            raise UsageError(f"{scores}: endpoint {name}, model {model}, patient {visit}: {wrong.sum()} {words}")


def _with_truth(table: pd.DataFrame, endpoints: tuple[Endpoint, ...], known: Mapping[str, Any], scores: Path) -> pd.DataFrame:
    """Labels from the cohort table; where both tables have one, they must agree (but for permuted labels).

    `known` holds patients by the visit's id and by the patient's.
    """
    table = table.copy()
    visits = [cohort.visit_id(*pair) for pair in zip(table.patient, table.session, strict=True)]
    table["visit"] = [visit if visit in known else patient for visit, patient in zip(visits, table.patient, strict=True)]
    for endpoint in endpoints:
        targets = ("time_days", "event") if len(endpoint.columns) == 2 else ("truth",)
        rows = table.endpoint == endpoint.name
        place = table.loc[rows, "class"].map({name: index for index, name in enumerate(endpoint.classes or ())})
        for target, column in zip(targets, endpoint.columns, strict=True):
            of_cohort = table.loc[rows, "visit"].map(lambda visit, c=column: known[visit].labels.get(c, np.nan))
            if endpoint.classes:  # whether the patient is of the row's class
                of_cohort = (of_cohort == place).astype(float).where(of_cohort.notna())
            own = table.loc[rows, target].astype(float)
            clash = own.notna() & of_cohort.notna() & (own != of_cohort) & ~table.loc[rows, "model"].isin(PERMUTED)
            if clash.any():
                row = clash.index[clash][0]
                value = f"{target} {own[row]:g} of {table.patient[row]}"
                raise UsageError(f"{scores}, row {row + 2}: {value}; the cohort table says {of_cohort[row]:g}")
            table.loc[rows, target] = own.fillna(of_cohort)
    return table.drop(columns="visit")


def _study_name(path: Path) -> str:
    allowed = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in path.stem)
    return f"table-{allowed}"[:64]

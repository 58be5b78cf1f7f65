"""What a report is made from: a run folder, or a table of predictions from elsewhere; paths in, checked tables out."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from mri_vit.data import cohort, columns, predictions, sheet
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.explain.methods.catalogue import explained
from mri_vit.kinds.classes import SUM_TOL
from mri_vit.kinds.kind import part
from mri_vit.report.reading import run_files
from mri_vit.report.reading.run_files import Map, OfComparator
from mri_vit.report.schema.parts import OWN, TABLES, Design, Environment, InternalEstimate, Nothing, Step, Tumour
from mri_vit.report.schema.patients import Table1
from mri_vit.run import files
from mri_vit.run.folder import run_settings
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.recipe import PERMUTED
from mri_vit.settings.schema import ENDPOINT_NAME, MIN_CLASSES, Endpoint, Study, folded
from mri_vit.settings.sections import Explain, Report

PREPARE_AGAIN = "delete its folder and run `mri-vit prepare` again"
UNJUDGED = {"low": math.nan, "high": math.nan}  # an interval would vouch for a result that is not judged
Internal = dict[str, dict[str, InternalEstimate]]  # by endpoint and model
Old = Literal["maps", "scores", "mean maps"]


@dataclass(frozen=True)
class Run:
    """A run, read and checked. Tables that the run does not have are empty."""

    design: Design  # out-of-fold predictions; a run's ensemble on another cohort; or a table whose making is not known
    study: Study
    environment: Nothing | Environment
    cohort: pd.DataFrame  # text, one row per patient, "" where missing
    excluded: pd.DataFrame  # patient, file, reason; one row per fault
    folds_sha256: str | None
    predictions: pd.DataFrame  # predictions.COLUMNS
    survival: pd.DataFrame  # predictions.SURVIVAL_COLUMNS
    probe: pd.DataFrame  # files.SITE_PROBE_COLUMNS: which site the model's CLS vector was taken for
    # predictions.SEED_COLUMNS: scores of a fold's networks that differ in their seed alone
    seeds: pd.DataFrame = field(default_factory=lambda: run_files.empty(predictions.SEED_COLUMNS))
    # predictions.NULL_COLUMNS: what regressions reached on permuted labels
    nulls: pd.DataFrame = field(default_factory=lambda: run_files.empty(predictions.NULL_COLUMNS))
    # patient, decision, who, why: what a reviewer decided of patients, findings notwithstanding
    decisions: pd.DataFrame = field(default_factory=lambda: run_files.empty(run_files.DECISION_COLUMNS))
    # patient, reason, scan, figure, became, words: what the study's limits of quality found, a row per finding
    findings: pd.DataFrame = field(default_factory=lambda: run_files.empty(run_files.FINDING_COLUMNS))
    internal: Internal | None = None  # of an external evaluation: the run's own out-of-fold estimates
    development: Table1 | None = None  # likewise the patients of the run, where it knew them
    # likewise the run's own predictions, by the same columns; patients have numbers for names
    inside: pd.DataFrame = field(default_factory=lambda: run_files.empty(predictions.COLUMNS))
    inside_survival: pd.DataFrame = field(default_factory=lambda: run_files.empty(predictions.SURVIVAL_COLUMNS))
    covariates: run_files.Covariates = field(default_factory=pd.DataFrame)  # that a risk is held against, by visit id
    notes: Mapping[str, str] = field(default_factory=dict)  # what was not done, and why (e.g. a control without columns)
    costs: pd.DataFrame = field(default_factory=lambda: run_files.empty(run_files.COST_COLUMNS))  # of each model's folds
    histories: pd.DataFrame = field(default_factory=lambda: run_files.empty(run_files.HISTORY_COLUMNS))  # of their evaluations
    maps: tuple[Map, ...] = ()  # these and the scores by visit, in the order of the cohort table
    scores: tuple[Mapping[str, Any], ...] = ()  # how far each scored patient's maps can be believed
    groups: tuple[tuple[Mapping[str, Any], Path], ...] = ()  # the cohort's mean maps: what is known of each, and its picture
    comparator_maps: Mapping[str, OfComparator] = field(default_factory=dict)  # of those that have some
    stale: dict[Old, int] = field(default_factory=dict)  # how many "maps", "scores", "mean maps" are to be made again
    qc: tuple[tuple[str, Path], ...] = ()  # patient and picture
    tumours: Mapping[str, Path] = field(default_factory=dict)  # each visit's tumour mask, which may be gone by now
    preparation: tuple[Step, ...] = ()  # the steps of one prepared patient, each with its Methods sentence
    brains: Mapping[str, int] = field(default_factory=dict)  # how many prepared patients by where their brain mask came from
    brain_ml: Mapping[str, float] = field(default_factory=dict)  # volume of the brain of each prepared visit
    located: Mapping[str, Tumour] = field(default_factory=dict)  # the tumour of each prepared visit

    @property
    def recipes(self) -> Mapping[str, Study]:
        """The study by which each network was trained, by model; none for a table, whose making is not known."""
        if self.design in TABLES:
            return {}
        return {OWN: self.study, **{comparator.name: self.study.of(comparator) for comparator in self.study.comparators}}


def read_run(folder: Path) -> Run:
    """Read a run folder: one that was cross-validated, or one in which another run was evaluated.

    Raises UsageError when a file is missing or unreadable, IntegrityError when a patient was predicted in another fold than
    the one written down before training, or when a JSON file is damaged.
    """
    folder = Path(folder)
    external = (folder / files.EVALUATION).is_file()
    _refuse_unfinished(folder, [] if external else [files.FOLDS])
    study = run_settings(folder)
    table = predictions.load(folder / files.PREDICTIONS, study.endpoints)
    if not external:
        _check_folds(folder, table, read_json(folder / files.FOLDS))
    people = run_files.text_table(folder / files.COHORT)
    prepared = _prepared(study.prepared, set(people.patient))
    steps = [_steps(path) for path in prepared]
    brains = {path.parent.name: step for path, done in zip(prepared, steps, strict=True) for step in done if step.step == "brain"}
    settings, visits = study.explain.of_maps, _visits(people)
    homes = {OWN: folder, **{comparator.name: folder / files.COMPARATORS / comparator.name for comparator in study.comparators}}
    seeds = {OWN: study.train.seeds, **{one.name: study.of(one).train.seeds for one in study.comparators}}
    splits = sorted(set(zip(table.repeat.astype(int), table.fold.astype(int), strict=True)))
    maps, old_maps = run_files.maps(folder / files.MAPS, settings, visits)
    scores, old_scores = run_files.scores(folder / files.SCORES, settings, visits)
    comparators = {name: _of_comparator(homes[name], of.explain, visits) for name, of in explained(study).items() if name != OWN}
    old_maps += sum(old for _, (old, _) in comparators.values())
    old_scores += sum(old for _, (_, old) in comparators.values())
    groups, old_groups = run_files.groups(folder / files.MEAN_MAPS, settings)
    return Run(
        design="external" if external else "cross-validation",
        study=study,
        environment=_environment(folder, [files.fold_folder(home, *split) for home in homes.values() for split in splits]),
        cohort=run_files.by_patient(people),
        excluded=run_files.excluded(folder / files.EXCLUDED),
        decisions=run_files.decisions(folder / files.DECISIONS),
        findings=run_files.findings(folder / files.FINDINGS),
        folds_sha256=None if external else hashlib.sha256((folder / files.FOLDS).read_bytes()).hexdigest(),
        predictions=table,
        survival=run_files.survival(folder / files.SURVIVAL),
        nulls=run_files.nulls(folder / files.NULLS),
        probe=run_files.probe(folder / files.SITE_PROBE),
        seeds=run_files.seeds(folder / files.SEEDS),
        internal=_internal(folder / files.EVALUATION) if external else None,
        development=_development(folder / files.EVALUATION) if external else None,
        inside=run_files.predicted(folder / files.INTERNAL, study.endpoints),
        inside_survival=run_files.survival(folder / files.INTERNAL_SURVIVAL),
        covariates=run_files.covariates(folder / files.COHORT, study),
        notes=read_json(folder / files.NOTES) if (folder / files.NOTES).is_file() else {},
        costs=run_files.costs(homes, splits),
        histories=run_files.histories(homes, seeds, splits),
        maps=maps,
        scores=scores,
        groups=groups,
        comparator_maps={name: found for name, (found, _) in comparators.items() if found.maps or found.scores},
        stale={"maps": old_maps, "scores": old_scores, "mean maps": old_groups},
        qc=tuple((path.parent.name, path.parent / files.QC) for path in prepared),
        tumours=_tumours(folder, people, study),
        preparation=tuple(steps[0]) if steps else (),
        brains=Counter(step.source for step in brains.values() if step.source),
        brain_ml={visit: volume for visit, step in brains.items() if (volume := step.brain_ml) is not None},
        located={path.parent.name: _located(done) for path, done in zip(prepared, steps, strict=True)},
    )


def _of_comparator(home: Path, settings: Explain, visits: Sequence[str]) -> tuple[OfComparator, tuple[int, int]]:
    """A comparator's maps and scores, and how many of each are to be made again."""
    maps, old_maps = run_files.maps(home / files.MAPS, settings.of_maps, visits)
    scores, old_scores = run_files.scores(home / files.SCORES, settings.of_maps, visits)
    return OfComparator(maps, scores), (old_maps, old_scores)


def _refuse_unfinished(folder: Path, also: Sequence[str]) -> None:
    for name in (files.STUDY, files.ENVIRONMENT, files.COHORT, files.PREDICTIONS, *also):
        if not (folder / name).is_file():
            raise UsageError(f"{folder}: no {name}; a report needs a run that has been cross-validated")


def _prepared(prepared: Path, people: set[str]) -> list[Path]:
    """The records of these people's prepared visits."""
    records = sorted(prepared.glob(f"[!.]*/{files.PATIENT}"))
    return [path for path in records if subject(path.parent.name, people) in people]


def _visits(people: pd.DataFrame) -> list[str]:
    """Ids of the visits in the order of the cohort table."""
    sessions = people["session"] if "session" in people else [""] * len(people)
    return [cohort.visit_id(*pair) for pair in zip(people.patient, sessions, strict=True)]


def _tumours(folder: Path, people: pd.DataFrame, study: Study) -> dict[str, Path]:
    """By visit the mask that maps are judged by: the run's table's, whose paths are relative to it, or else the one found."""
    named = people["tumour_mask"] if "tumour_mask" in people else [""] * len(people)
    tumours = {visit: folder / name for visit, name in zip(_visits(people), named, strict=True) if name.strip()}
    found = {visit: study.prepared / visit / files.TUMOUR for visit in _visits(people)} if study.prepare.finds_tumours else {}
    return {visit: mask for visit, mask in found.items() if mask.is_file()} | tumours


def _located(steps: Sequence[Step]) -> Tumour:
    """A prepared visit's tumour by its record; a version before 0.5 looked for none."""
    entry = next((step.model_extra or {} for step in steps if step.step == "tumour"), {})
    return Tumour.model_validate({name: entry[name] for name in Tumour.model_fields if name in entry})


def _environment(folder: Path, folds: Sequence[Path]) -> Environment:
    """What the run was made with; its devices are those of its folds, where these say (a version before 0.5 does not)."""
    path = folder / files.ENVIRONMENT
    found = read_json(path, tuple(Environment.model_fields))
    environments = [read_json(fold / files.ENVIRONMENT, ("device",)) for fold in folds if (fold / files.ENVIRONMENT).is_file()]
    with as_written(path):
        devices = sorted({str(one["device"]) for fold in environments for one in (fold, *fold.get("resumed", []))})
        device = {"device": ", ".join(devices)} if devices else {}
        return Environment.model_validate({key: found[key] for key in Environment.model_fields} | device)


def _internal(path: Path) -> Internal:
    """The run's own out-of-fold estimates, by endpoint and model, from its metrics as an evaluation wrote them down."""
    found: Internal = {}
    with as_written(path):
        for name, endpoint in read_json(path).get("endpoints", {}).items():
            measure = part(endpoint["kind"], "labels").measure
            found[name] = {
                model: InternalEstimate(
                    measure=measure,
                    **(result["judged"] if "judged" in result else result[measure])  # older runs have none
                    | (UNJUDGED if result.get("verdict_kind") == "undefined" else {}),
                    n=result["n"],
                )
                for model, result in endpoint["models"].items()
            }
    return found


def _development(path: Path) -> Table1 | None:
    """The patients of the evaluated run; an evaluation before 0.6 wrote none down."""
    found = read_json(path).get("table1")
    with as_written(path):
        return found and Table1.model_validate(found)


def _steps(path: Path) -> list[Step]:
    """What was done to a prepared patient."""
    steps = read_json(path, ("steps",), PREPARE_AGAIN)["steps"]
    with as_written(path, PREPARE_AGAIN):
        found = [Step.model_validate(step) for step in steps]
        if any(step.step == "brain" and not step.source for step in found):
            raise ValueError("a brain mask without its source")
    return found


def subject(visit: str, people: set[str]) -> str:
    """Whose visit it is, of these people, when it is named `patient` or `patient_session`; the name itself for any other."""
    patient = visit.rpartition("_")[0]
    return patient if visit not in people and patient in people else visit


def _check_folds(folder: Path, table: pd.DataFrame, folds: Mapping[str, Any]) -> None:
    with as_written(folder / files.FOLDS):
        home = {
            (patient, repeat): fold
            for repeat, split in enumerate(folds["repeats"])
            for fold, patients in enumerate(split["folds"])
            for patient in patients
        }
    for patient, session, repeat, fold in zip(table.patient, table.session, table.repeat, table.fold, strict=True):
        visit = cohort.visit_id(patient, session)
        planned = home.get((visit, repeat))
        if planned != fold:
            where = "no fold" if planned is None else f"fold {planned}"
            raise IntegrityError(
                f"{folder}: patient {visit} was predicted in fold {fold} of repeat {repeat} (counted from 0), "
                f"but {files.FOLDS} puts it in {where}"
            )


class Declared(NamedTuple):
    """What two tables do not say of themselves."""

    held_out: bool = False  # no model was trained on the patients; they are then of one fold
    subgroups: tuple[str, ...] = ()  # columns of the cohort table, beside the usual ones
    numbers: tuple[str, ...] = ()  # endpoints that are numbers
    grades: tuple[str, ...] = ()  # endpoints whose classes are grades, in the order of their rows


UNDECLARED = Declared()


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
    table = predictions.load(scores, [Endpoint(name=name, kind="continuous") for name in declared.numbers])
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
    if lost := sorted({*declared.numbers, *declared.grades} - set(table.endpoint)):
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
        report=Report(subgroups=tuple(dict.fromkeys((*Report().subgroups, *declared.subgroups)))),
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


def _endpoint_of_table(
    name: str, table: pd.DataFrame, header: list[str], scores: Path, people: Path, declared: Declared
) -> Endpoint:
    if not re.fullmatch(ENDPOINT_NAME, name):
        raise UsageError(f"{scores}: endpoint {name!r}; expected small letters, digits and _ (such as 'mgmt'), 32 at most")
    own = table.loc[table.endpoint == name]
    time, event = f"{name}_days", f"{name}_event"
    if {time, event} <= set(header) or own.time_days.notna().any():
        return Endpoint(name=name, kind="survival", time=time, event=event)
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

"""What a report is made from, as a run folder holds it: paths in, checked tables out. Tables from elsewhere: `foreign_table`."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from mri_vit.data import cohort, predictions
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.explain.methods.catalogue import explained
from mri_vit.kinds.kind import part
from mri_vit.report.reading import run_files
from mri_vit.report.reading.run_files import Map, OfComparator
from mri_vit.report.schema.parts import OWN, TABLES, Design, Environment, InternalEstimate, Nothing, Step, Tumour
from mri_vit.report.schema.patients import Table1
from mri_vit.run import files
from mri_vit.run.folder import run_settings
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Explain

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

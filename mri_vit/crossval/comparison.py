"""The contest: the model and the controls that it must beat, cross-validated on the same folds; one table of predictions out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from mri_vit.crossval.comparators import comparator_folder, contenders, judged, refuse_taught
from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import Builder, Tables, cross_validate, fold_seed, parts, permuted
from mri_vit.crossval.site_probe import COLUMNS, probe, sites
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient
from mri_vit.data.covariates import clinical_columns, clinical_table
from mri_vit.model.weights import seen
from mri_vit.predictors import tabular
from mri_vit.predictors.late_fusion import LateFusion, told
from mri_vit.predictors.network import PRETRAINED, Neural
from mri_vit.predictors.tabular import Tabular
from mri_vit.pretrain import stage as pretraining
from mri_vit.pretrain.dino import collapsed
from mri_vit.run import files, hashes
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.models import CLINICAL, FUSED, SHUFFLED, VIT, VOLUME
from mri_vit.settings.schema import Study
from mri_vit.train.loop import Report as Epoch

Begin = Callable[[str], Epoch]  # told of a training's title; gives what is called after each of its epochs


def hold(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path, begin: Begin) -> None:
    """Write `predictions.csv`, `survival.csv`, `notes.json` and, where the table has sites, `site_probe.csv` into `run`.

    The model's folds lie in `run` itself, a comparator's in `rivals/<name>`, a control's in `controls/<name>`. `begin` is told of
    each network's training and returns what is called after every epoch. `notes.json` says what the controls rest on, why one was
    not made, who was pretrained on patients whom they are judged on, which pretraining collapsed, and what could not be weighed.
    """

    def network(title: str, of: Study, pretrained_in: Path | None = None) -> Builder:
        return lambda folder, seed: Neural(
            of, folder, seed, begin(f"{title}{folder.name}"), pretrained_in and pretrained_in / folder.name / PRETRAINED
        )

    taking_part = contenders(study)
    learned = pretrain(study, patients, splits, run, begin)
    begun = {name: _begun(of, comparator_folder(run, name)) for name, of in taking_part.items()}
    tables = [
        cross_validate(patients, splits, of, comparator_folder(run, name), name, network("" if name == VIT else f"{name} ", of))
        for name, of in begun.items()
    ]
    notes = {"transductive": _transductive(study, begun, patients)}
    if any(one.collapsed for one in learned):
        notes["collapsed"] = "; ".join(f"{one.title}: {one.collapsed}" for one in learned if one.collapsed)
    if study.fused:
        made, note = _fused(begun[VIT], patients, splits, run)
        tables += made
        notes |= note
    for name, covariates, note in _regressions(study, patients):
        notes |= note
        if len(covariates.columns):
            build = partial(_tabular, covariates, study)
            tables.append(cross_validate(patients, splits, study, run / files.CONTROLS / name, name, build))
    if SHUFFLED in study.controls.models:  # in the first repeat only: it costs as much as the model itself
        dealt = permuted(patients, splits[0], study.seed)
        build = network(f"{SHUFFLED} ", begun[VIT], run)  # pretraining saw no label, so there is nothing to do again
        tables.append(cross_validate(dealt, splits[:1], study, run / files.CONTROLS / SHUFFLED, SHUFFLED, build))
    if study.train.leave_out == "site":
        notes["site_probe"] = "not asked: every test patient is of a site that no training patient is of"
    else:
        _probe_sites(study, patients, splits, run)
    write_bytes(json.dumps(notes, indent=1).encode(), run / files.NOTES)
    _save(tables, run)


@dataclass(frozen=True)
class Pretraining:
    """One encoder learned from scans alone: its file, the last epoch's loss, and how it had collapsed by then, if it had."""

    title: str
    file: Path
    loss: float
    collapsed: str | None


def pretrain(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path, begin: Begin) -> list[Pretraining]:
    """Make the encoders that the study's own model and its comparators start from, each from the scans that it may see.

    A fold's is learned from all but its test patients and lies in the fold's folder; one that serves all folds lies beside the
    folds. What is there already is left as it is; `begin` is told of what is not.

    Raises UsageError when somebody would start from a network that knows labels of this study's patients.
    """
    made, taking_part = [], contenders(study)
    for of in taking_part.values():
        refuse_taught(of, patients)
    for name, of in taking_part.items():
        if of.pretrain.method == "none":
            continue
        home, called = comparator_folder(run, name), "pretrain" if name == VIT else f"pretrain {name}"
        jobs = [(called, home, _chosen(of, patients), of.seed)]
        if of.pretrain.patients == "others":
            jobs = [
                (f"{called} {folder.name}", folder, outside, seed) for folder, outside, seed in _folds(of, patients, splits, home)
            ]
        made += [_pretrained(title, of, chosen, folder / PRETRAINED, seed, begin) for title, folder, chosen, seed in jobs]
    return made


def pretrains(study: Study) -> bool:
    """Whether the study's own model or any of its comparators starts from a pretraining of its own."""
    return any(of.pretrain.method != "none" for of in contenders(study).values())


def _chosen(study: Study, patients: Sequence[Patient]) -> list[Patient]:
    """On whom an encoder that serves all folds is learned; nobody who has a label at another visit is unlabelled."""
    tested = judged(study, patients)
    return [p for p in patients if study.pretrain.patients == "all" or p.subject not in tested]


def _folds(
    study: Study, patients: Sequence[Patient], splits: Sequence[Split], home: Path
) -> Iterator[tuple[Path, list[Patient], int]]:
    """Of each fold its folder, all patients but its test patients in the order that a fit is given them, and its seed."""
    for repeat, split in enumerate(splits):
        for fold, ids in enumerate(split):
            seed = fold_seed(study, repeat, fold)
            train, tune, _ = parts(patients, ids, study, seed)
            yield files.fold_folder(home, repeat, fold), [*train, *tune], seed


def _pretrained(title: str, study: Study, patients: Sequence[Patient], file: Path, seed: int, begin: Begin) -> Pretraining:
    pretraining.pretrained(study, patients, file, seed, None if file.exists() else begin(title))
    table = pd.read_csv(file.with_suffix(".csv"))
    return Pretraining(title, file, float(table.loss.iloc[-1]), collapsed(table) if study.pretrain.method == "dino" else None)


def _begun(study: Study, home: Path) -> Study:
    """The study with the weights of the pretraining that serves all its folds, where there is one."""
    if study.pretrain.method == "none" or study.pretrain.patients == "others":
        return study
    return pretraining.begun(study, home / PRETRAINED)


def began(study: Study, home: Path, folder: Path) -> Study:
    """The study as training in a fold's `folder` began: from the encoder pretrained for it; `home` is the contender's folder."""
    if study.pretrain.method == "none":
        return study
    return pretraining.begun(study, (folder if study.pretrain.patients == "others" else home) / PRETRAINED)


def _transductive(study: Study, begun: dict[str, Study], patients: Sequence[Patient]) -> str:
    """Which contenders were pretrained on scans of patients whom they are then judged on."""
    tested = judged(study, patients)
    found = {name: tested & set(seen(of.model.weights)) for name, of in begun.items() if of.model.weights}
    if study.fused and VIT in found:
        found[FUSED] = found[VIT]
    return ", ".join(f"{name} ({len(subjects)} patients)" for name, subjects in found.items() if subjects)


def _regressions(study: Study, patients: Sequence[Patient]) -> list[tuple[str, pd.DataFrame, dict[str, str]]]:
    """Name, covariates and note of each control that is a regression."""
    made = []
    if CLINICAL in study.controls.models:
        columns = clinical_columns(patients, study)
        note = {} if columns else {CLINICAL: "the cohort table has no clinical column that varies"}
        covariates = clinical_table(patients, columns)
        made.append((CLINICAL, covariates, {"clinical_columns": ", ".join(columns), **note}))
    if VOLUME in study.controls.models:
        covariates = tabular.volume_table(patients, study)
        made.append((VOLUME, covariates, {"volume_columns": ", ".join(covariates)}))
    return made


def _fused(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> tuple[list[Tables], dict[str, str]]:
    """The tables of the model vit+clinical, which takes each fold's network as it is; and a note."""
    columns = clinical_columns(patients, study)
    if not columns:
        return [], {FUSED: "not made: the cohort table has no clinical column that varies"}
    covariates, home = clinical_table(patients, columns), comparator_folder(run, FUSED)

    def build(folder: Path, seed: int) -> LateFusion:
        return LateFusion(Neural.fitted(study, run / folder.name), covariates, folder)

    tables = cross_validate(patients, splits, study, home, FUSED, build)
    unweighed = told([files.fold_folder(home, repeat, fold) for repeat, split in enumerate(splits) for fold in range(len(split))])
    return [tables], {FUSED: unweighed} if unweighed else {}


def _tabular(covariates: pd.DataFrame, study: Study, folder: Path, seed: int) -> Tabular:
    return Tabular(covariates, study.endpoints)


def _probe_sites(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> None:
    """`site_probe.csv`: the site that each test patient's CLS vector is taken for, by a probe of the other patients'."""
    if not sites(patients) or (run / files.SITE_PROBE).exists():
        return
    rows = []
    for repeat, split in enumerate(splits):
        for fold, ids in enumerate(split):
            fitted = Neural.fitted(study, files.fold_folder(run, repeat, fold))
            train, tune, test = parts(patients, ids, study, fold_seed(study, repeat, fold))
            rows.append(probe(fitted.represent, [*train, *tune], test).assign(repeat=repeat, fold=fold))
    write_bytes(pd.concat(rows)[COLUMNS].to_csv(index=False, lineterminator="\n").encode(), run / files.SITE_PROBE)


def _save(tables: Sequence[Tables], run: Path) -> None:
    """`predictions.csv` last: where it is, the contest has ended."""
    score, survival = (pd.concat(parts) for parts in zip(*tables, strict=True))
    last = {files.SURVIVAL: predictions.dumps(survival), files.PREDICTIONS: predictions.dumps(score)}
    hashes.write(run, [files.SITE_PROBE], last)

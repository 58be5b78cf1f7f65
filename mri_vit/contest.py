"""The contest: the model and the controls that it must beat, cross-validated on the same folds; one table of predictions out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from mri_vit import controls, predictions
from mri_vit.cohort import Patient
from mri_vit.config import Study
from mri_vit.controls import Tabular
from mri_vit.crossval import Builder, Tables, cross_validate, fold_folder, fold_seed, parts, permuted
from mri_vit.folds import Division
from mri_vit.predictions import SHUFFLED
from mri_vit.probe import COLUMNS, probe, sites
from mri_vit.train import Report as Epoch
from mri_vit.vit import VisionTransformer
from mri_vit.volume import write_bytes


def hold(
    study: Study, patients: Sequence[Patient], divisions: Sequence[Division], run: Path, begin: Callable[[str], Epoch]
) -> None:
    """Write `predictions.csv`, `survival.csv`, `notes.json` and, where the table has sites, `site_probe.csv` into `run`.

    The model's folds lie in `run` itself, those of a control in `controls/<name>`. `begin` is told of each network's training
    and returns what is called after every epoch. `notes.json` says what the controls rest on, and why one was not made.
    """

    def network(title: str) -> Builder:
        return lambda folder, seed: VisionTransformer(study, folder, seed, begin(f"{title}{folder.name}"))

    tables = [cross_validate(patients, divisions, study, run, "vit", network(""))]
    notes = {}
    for name, covariates, note in _regressions(study, patients):
        notes |= note
        if len(covariates.columns):
            build = partial(_tabular, covariates, study)
            tables.append(cross_validate(patients, divisions, study, run / "controls" / name, name, build))
    if SHUFFLED in study.controls.models:  # in the first repeat only: it costs as much as the model itself
        dealt = permuted(patients, divisions[0], study.seed)
        tables.append(cross_validate(dealt, divisions[:1], study, run / "controls" / SHUFFLED, SHUFFLED, network(f"{SHUFFLED} ")))
    if study.train.leave_out == "site":
        notes["site_probe"] = "not asked: every test patient is of a site that no training patient is of"
    else:
        _probe_sites(study, patients, divisions, run)
    write_bytes(json.dumps(notes, indent=1).encode(), run / "notes.json")
    _save(tables, run)


def _regressions(study: Study, patients: Sequence[Patient]) -> list[tuple[str, pd.DataFrame, dict[str, str]]]:
    """Name, covariates and note of each control that is a regression."""
    made = []
    if "clinical" in study.controls.models:
        columns = controls.clinical_columns(patients, study)
        note = {} if columns else {"clinical": "the cohort table has no clinical column that varies"}
        covariates = controls.clinical_table(patients, columns)
        made.append(("clinical", covariates, {"clinical_columns": ", ".join(columns), **note}))
    if "volume" in study.controls.models:
        covariates = controls.volume_table(patients, study)
        made.append(("volume", covariates, {"volume_columns": ", ".join(covariates)}))
    return made


def _tabular(covariates: pd.DataFrame, study: Study, folder: Path, seed: int) -> Tabular:
    return Tabular(covariates, study.endpoints)


def _probe_sites(study: Study, patients: Sequence[Patient], divisions: Sequence[Division], run: Path) -> None:
    """`site_probe.csv`: the site that each test patient's CLS vector is taken for, by a probe of the other patients'."""
    if not sites(patients) or (run / "site_probe.csv").exists():
        return
    rows = []
    for repeat, division in enumerate(divisions):
        for fold, ids in enumerate(division):
            fitted = VisionTransformer.fitted(study, fold_folder(run, repeat, fold))
            train, tune, test = parts(patients, ids, study, fold_seed(study, repeat, fold))
            rows.append(probe(fitted.represent, [*train, *tune], test).assign(repeat=repeat, fold=fold))
    write_bytes(pd.concat(rows)[COLUMNS].to_csv(index=False, lineterminator="\n").encode(), run / "site_probe.csv")


def _save(tables: Sequence[Tables], run: Path) -> None:
    """`predictions.csv` last: where it is, the contest has ended."""
    predictions.save(pd.concat([survival for _, survival in tables]), run / "survival.csv")
    predictions.save(pd.concat([score for score, _ in tables]), run / "predictions.csv")

"""What a finished run folder holds: paths in, checked tables out. The report reads nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mri_vit import config, predictions
from mri_vit.errors import IntegrityError, UsageError

EXCLUDED_COLUMNS = ["patient", "file", "reason"]


@dataclass(frozen=True)
class Map:
    """One patient's attention map: the picture's path and what `map.json` says of it."""

    patient: str
    overlay: Path
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """A run folder, read and checked."""

    study: config.Study
    environment: Mapping[str, Any]
    cohort: pd.DataFrame  # text, one row per patient, "" where missing
    excluded: pd.DataFrame  # patient, file, reason; one row per fault
    folds_sha256: str
    predictions: pd.DataFrame
    maps: tuple[Map, ...]

    @property
    def patients(self) -> set[str]:
        """Everybody in the cohort table, whether or not the excluded are still in its frozen copy."""
        return set(self.cohort.patient) | set(self.excluded.patient)


def read(folder: Path) -> Run:
    """Read a run folder.

    Raises UsageError when a file is missing or unreadable, IntegrityError when a patient was predicted in another fold than
    the one written down before training.
    """
    folder = Path(folder)
    for name in ("study.toml", "environment.json", "cohort.csv", "folds.json", "predictions.csv"):
        if not (folder / name).is_file():
            raise UsageError(f"{folder}: no {name}; a report needs a run that has been cross-validated")
    folds = (folder / "folds.json").read_bytes()
    table = predictions.load(folder / "predictions.csv")
    scoreless = table.loc[table.score.isna(), "patient"].tolist()
    if scoreless:
        raise UsageError(f"{folder / 'predictions.csv'}: no score for {len(scoreless)} rows, the first of patient {scoreless[0]}")
    _check_folds(folder, table, json.loads(folds))
    excluded = pd.DataFrame(columns=pd.Index(EXCLUDED_COLUMNS))
    if (folder / "excluded.csv").is_file():
        excluded = _text_table(folder / "excluded.csv")
    return Run(
        study=config.load(folder / "study.toml"),
        environment=json.loads((folder / "environment.json").read_text(encoding="utf-8")),
        cohort=_text_table(folder / "cohort.csv"),
        excluded=excluded,
        folds_sha256=hashlib.sha256(folds).hexdigest(),
        predictions=table,
        maps=tuple(_maps(folder / "maps")),
    )


def _text_table(path: Path) -> pd.DataFrame:
    # Text throughout: a patient called 007 or 1e5 is not a number.
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def _check_folds(folder: Path, table: pd.DataFrame, folds: Mapping[str, Any]) -> None:
    home = {
        (patient, repeat): fold
        for repeat, split in enumerate(folds["repeats"])
        for fold, patients in enumerate(split["folds"])
        for patient in patients
    }
    for patient, repeat, fold in zip(table.patient, table.repeat, table.fold, strict=True):
        planned = home.get((patient, repeat))
        if planned != fold:
            where = "no fold" if planned is None else f"fold {planned}"
            raise IntegrityError(
                f"{folder}: patient {patient} was predicted in fold {fold} of repeat {repeat} (counted from 0), "
                f"but folds.json puts it in {where}"
            )


def _maps(folder: Path) -> list[Map]:
    found = sorted(folder.glob("[!.]*/map.json"))  # a hidden folder is a map still being written
    read_facts = [(path.parent, json.loads(path.read_text(encoding="utf-8"))) for path in found]
    return [
        Map(patient=str(facts.get("patient", home.name)), overlay=home / "overlay.png", facts=facts)
        for home, facts in read_facts
        if (home / "overlay.png").is_file()
    ]

"""The files of a run or beside one: paths in; checked tables out, empty where there is none; and maps with their scores.

Maps and scores that other settings or an earlier version made are counted and left out. They come in the order of the cohort
table, so that of a patient's visits the first is the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mri_vit.data import cohort, predictions, sheet
from mri_vit.data.covariates import clinical_columns, clinical_table
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.kinds.kind import labels
from mri_vit.run import files
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.schema import DEFAULT_ENDPOINTS, Endpoint, Study

EXCLUDED_COLUMNS = ["patient", "file", "reason"]
DECISION_COLUMNS = ["patient", "decision", "who", "why"]
Covariates = pd.DataFrame | str  # a row per visit id; or why there are none, in words
FINDING_COLUMNS = ["patient", "reason", "scan", "figure", "became", "words"]
COST_FIGURES = ["parameters", "flops", "patient_seconds", "training_seconds"]  # of a fold's cost.json
COST_COLUMNS = ["model", "repeat", "fold", *COST_FIGURES]
HISTORY_COLUMNS = ["model", "repeat", "fold", "seed", "epoch", "tune"]


MAP_SCHEMA, SCORE_SCHEMA = 3, 2  # of maps/<visit>/map.json and scores/<visit>.json, as this version writes them
OF_MAP = ("patient", "subject", "maps")  # what the report cannot do without
OF_SCORE = ("patient", "subject", "fold", "rows", "curves", "cascade", "agreement")
Facts = Mapping[str, Any]
EXPLAIN_AGAIN = "delete it and run `mri-vit explain` again"


def predicted(path: Path, endpoints: Sequence[Endpoint]) -> pd.DataFrame:
    return predictions.load(path, endpoints) if path.is_file() else empty(predictions.COLUMNS)


def survival(path: Path) -> pd.DataFrame:
    return predictions.load_survival(path) if path.is_file() else empty(predictions.SURVIVAL_COLUMNS)


def nulls(path: Path) -> pd.DataFrame:
    return predictions.load_nulls(path) if path.is_file() else empty(predictions.NULL_COLUMNS)


def seeds(path: Path) -> pd.DataFrame:
    return predictions.load_seeds(path) if path.is_file() else empty(predictions.SEED_COLUMNS)


def empty(columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame(columns=pd.Index(columns))


def probe(path: Path) -> pd.DataFrame:
    kinds = {"patient": str, "site": str, "predicted": str}
    return our_table(path, files.SITE_PROBE_COLUMNS, kinds) if path.is_file() else empty(files.SITE_PROBE_COLUMNS)


def excluded(path: Path) -> pd.DataFrame:
    return text_table(path) if path.is_file() else empty(EXCLUDED_COLUMNS)


def decisions(path: Path) -> pd.DataFrame:
    return text_table(path) if path.is_file() else empty(DECISION_COLUMNS)


def findings(path: Path) -> pd.DataFrame:
    return our_table(path, FINDING_COLUMNS, str) if path.is_file() else empty(FINDING_COLUMNS)


def covariates(path: Path, study: Study) -> Covariates:
    """What a survival endpoint's risk is held against: numbers, or text for categories, of a cohort table.

    These are the columns that the control on clinical columns may use (`controls.columns`) and the binary markers. A patient's
    own name, where visits have others, is the first visit. A study without a survival endpoint has none.
    """
    if not any(labels(endpoint).of_visit for endpoint in study.endpoints):
        return pd.DataFrame()
    try:
        header = sheet.columns(path)
        there = tuple(endpoint for endpoint in study.endpoints if set(endpoint.columns) <= set(header))
        patients = cohort.read(path, there, needed=(), channels=study.channels)
        columns = {name for patient in patients[:1] for name in (*patient.clinical, *patient.labels)}
        binary = [endpoint.columns[0] for endpoint in (*study.endpoints, *DEFAULT_ENDPOINTS) if not labels(endpoint).of_visit]
        names = dict.fromkeys((*clinical_columns(patients, study), *(name for name in binary if name in columns)))
        table = clinical_table(patients, list(names))
    except UsageError as error:
        return str(error).replace(f"{path.parent}/", "")  # no folder of a machine
    first = {patient.subject: patient.id for patient in cohort.first_visits(patients) if patient.subject not in table.index}
    return table.loc[[*table.index, *first.values()]].set_axis([*table.index, *first])


def by_patient(visits: pd.DataFrame) -> pd.DataFrame:
    """A row per patient: of several visits, each column's first filled cell."""
    return visits.where(visits != "").groupby("patient", sort=False).first().fillna("").reset_index()


def text_table(path: Path) -> pd.DataFrame:
    # Text throughout: a patient called 007 or 1e5 is not a number.
    return our_table(path, ["patient"], str)


def our_table(path: Path, needed: list[str], kinds: Any) -> pd.DataFrame:
    """A CSV table that the run wrote. Raises IntegrityError where it cannot be read as that."""
    with as_written(path):  # pandas' own errors are kinds of ValueError
        table = pd.read_csv(path, dtype=kinds, keep_default_na=False)
        if lacking := [name for name in needed if name not in table]:
            raise ValueError(f"no column {lacking[0]}")
    return table.map(sheet.unprefixed)


def costs(homes: dict[str, Path], folds: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """The costs of each model's folds; a fold that has none written down has no row.

    `homes` are the folders of the models' folds, `folds` pairs of repeat and fold, counted from 0. Raises IntegrityError when a
    file is damaged.
    """
    rows = []
    for model, home in homes.items():
        for repeat, fold in folds:
            file = files.fold_folder(home, repeat, fold) / files.COST
            if file.is_file():
                found = read_json(file)
                with as_written(file):
                    figures = [float("nan" if found.get(figure) is None else found[figure]) for figure in COST_FIGURES]
                rows.append([model, repeat, fold, *figures])
    return pd.DataFrame(rows, columns=pd.Index(COST_COLUMNS)).astype(dict.fromkeys(COST_FIGURES, float))


def histories(homes: Mapping[str, Path], seeds: Mapping[str, int], folds: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """The evaluations on validation patients; a training that has none written down has no row.

    `homes` are the folders of the models' folds, `seeds` how many networks each model has in a fold, `folds` pairs of repeat and
    fold; all count from 0. `tune` is the validation loss as a share of that at the start. Raises IntegrityError when a file is
    damaged.
    """
    found = [pd.DataFrame(columns=pd.Index(HISTORY_COLUMNS))]
    for model, home in homes.items():
        for repeat, fold in folds:
            for seed in range(seeds[model]):
                file = files.seed_folder(files.fold_folder(home, repeat, fold), seed) / files.HISTORY
                if file.is_file():
                    with as_written(file):
                        rows = pd.read_csv(file).loc[:, ["epoch", "tune"]].astype(float)
                    found.append(rows.assign(model=model, repeat=repeat, fold=fold, seed=seed).loc[:, HISTORY_COLUMNS])
    return pd.concat(found[1:], ignore_index=True) if len(found) > 1 else found[0]


# Maps and their scores.


@dataclass(frozen=True)
class Map:
    """One visit's maps: the folder that holds their files, and what its `map.json` says."""

    patient: str  # the visit's id
    folder: Path
    facts: Facts

    @property
    def subject(self) -> str:
        """Whose visit it is."""
        return str(self.facts["subject"])

    @property
    def overlays(self) -> list[Path]:
        """The picture of each map, in the order of `facts["maps"]`."""
        return [self.folder / entry["overlay"] for entry in self.facts["maps"]]


@dataclass(frozen=True)
class OfComparator:
    """A comparator's maps and their scores, as the run's own are read."""

    maps: tuple[Map, ...]
    scores: tuple[Facts, ...]


def maps(folder: Path, settings: Facts, visits: Sequence[str]) -> tuple[tuple[Map, ...], int]:
    """The maps of each visit, and how many visits' are to be made again: in other settings or layout, or without a picture.

    Parameters
    ----------
    folder
        `maps/` of the run; it may be missing.
    settings
        `study.explain.of_maps`.
    visits
        Ids in the order of the cohort table.

    Raises
    ------
    IntegrityError
        A file is damaged.
    """
    paths = sorted(folder.glob(f"[!.]*/{files.MAP}"))  # a hidden folder is a map still being written
    found = {
        visit: Map(visit, path.parent, facts) for visit, (path, facts) in _present(paths, settings, MAP_SCHEMA, OF_MAP).items()
    }
    whole = {}
    for visit, shown in found.items():
        with as_written(shown.folder / files.MAP, EXPLAIN_AGAIN):
            if all(path.is_file() for path in shown.overlays):
                whole[visit] = shown
    return tuple(whole[visit] for visit in _in_order(whole, visits)), len(paths) - len(whole)


def scores(folder: Path, settings: Facts, visits: Sequence[str]) -> tuple[tuple[Facts, ...], int]:
    """Likewise the scores, each file's content, and how many are to be made again."""
    paths = sorted(folder.glob("[!.]*.json"))
    found = {visit: facts for visit, (_, facts) in _present(paths, settings, SCORE_SCHEMA, OF_SCORE).items()}
    return tuple(found[visit] for visit in _in_order(found, visits)), len(paths) - len(found)


def groups(folder: Path, settings: Facts) -> tuple[tuple[tuple[Facts, Path], ...], int]:
    """The cohort's mean maps that have a picture (no place may have patients enough), and how many are of other settings."""
    path = folder / files.GROUP
    if not path.is_file():
        return (), 0
    facts = read_json(path)
    entries = facts.get("entries", [])
    if not isinstance(entries, list):
        raise IntegrityError(f"{path}: damaged (entries are no list); {EXPLAIN_AGAIN}")
    if facts.get("settings") != settings:  # an earlier version did not write them down
        return (), len(entries)
    with as_written(path, EXPLAIN_AGAIN):
        drawn = [(entry, folder / entry["picture"]) for entry in entries if entry["picture"]]
    return tuple((entry, picture) for entry, picture in drawn if picture.is_file()), 0


def _present(
    paths: Sequence[Path], settings: Facts, schema: int, needed: Sequence[str]
) -> dict[str, tuple[Path, dict[str, Any]]]:
    """By visit, those of the present layout that the present settings made."""
    found = {}
    for path in paths:
        facts = read_json(path)
        if facts.get("schema") == schema and facts.get("settings") == settings:
            lacking = [key for key in needed if key not in facts]
            if lacking:
                raise IntegrityError(f"{path}: no {lacking[0]!r}; {EXPLAIN_AGAIN}")
            found[str(facts["patient"])] = (path, facts)
    return found


def _in_order(found: Iterable[str], visits: Sequence[str]) -> list[str]:
    """As in the cohort table; who is not in it (an evaluation's table may be another) comes last, by name."""
    place = {visit: index for index, visit in enumerate(visits)}
    return sorted(found, key=lambda visit: (place.get(visit, len(place)), visit))

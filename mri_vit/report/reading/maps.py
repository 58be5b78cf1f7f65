"""A run's maps and their scores as their files have them: folders in, what was made by the study's present settings out.

What other settings or an earlier version made is counted and left out: put together, it would pass for one study's. Maps and
scores come in the order of the cohort table, so that of a patient's visits the first is the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mri_vit.errors import IntegrityError
from mri_vit.run import files
from mri_vit.run.integrity import as_written, read_json

MAP_SCHEMA, SCORE_SCHEMA = 3, 2  # of maps/<visit>/map.json and scores/<visit>.json, as this version writes them
OF_MAP = ("patient", "subject", "maps")  # what the report cannot do without
OF_SCORE = ("patient", "subject", "fold", "rows", "curves", "cascade", "agreement")
Facts = Mapping[str, Any]
AGAIN = "delete it and run `mri-vit explain` again"


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
        with as_written(shown.folder / files.MAP, AGAIN):
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
        raise IntegrityError(f"{path}: damaged (entries are no list); {AGAIN}")
    if facts.get("settings") != settings:  # an earlier version did not write them down
        return (), len(entries)
    with as_written(path, AGAIN):
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
                raise IntegrityError(f"{path}: no {lacking[0]!r}; {AGAIN}")
            found[str(facts["patient"])] = (path, facts)
    return found


def _in_order(found: Iterable[str], visits: Sequence[str]) -> list[str]:
    """As in the cohort table; who is not in it (an evaluation's table may be another) comes last, by name."""
    place = {visit: index for index, visit in enumerate(visits)}
    return sorted(found, key=lambda visit: (place.get(visit, len(place)), visit))

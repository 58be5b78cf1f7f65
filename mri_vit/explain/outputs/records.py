"""Records: what the files of maps are called, and what `map.json`, `scores/<patient>.json` and `group.json` hold, key by key.

`dataclasses.asdict` turns a record into the dictionary that is written, `parse` a dictionary that was read into the record.
Names follow BIDS derivatives (https://bids-specification.readthedocs.io: entities sub, ses, space, desc; labels are letters and
digits).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.recipe import title
from mri_vit.settings.schema import folded

SUFFIXES = {"t1": "T1w", "t1ce": "T1w", "t2": "T2w", "flair": "FLAIR"}  # of BIDS, for scans; others have their name
GRID = "grid"  # the space of the prepared grid; the others are the sequences'
MAP_SCHEMA, SCORE_SCHEMA, GROUP_SCHEMA = 3, 2, 1  # of the three files; a higher number makes them anew
RESEARCH = "For research; not a medical device."  # beside everything that shows a map
R = TypeVar("R")


@dataclass(frozen=True)
class NetworkId:
    """Which of a run's networks made a map: the model's name in the tables, and the repeat and fold, counted from 0."""

    model: str
    repeat: int
    fold: int


@dataclass(frozen=True)
class MapEntry:
    """One map of a patient. Values are in `unit`; files and pictures are names in the patient's folder."""

    method: str
    endpoint: str  # "" where the map is the same for every endpoint
    title: str
    source: str
    explains: str  # the prediction that it explains, such as "mgmt = 1"
    of_class: str  # as `MapResult`
    unit: str
    cls_share: float | None  # what CLS kept for itself, where the method knows
    files: dict[str, str]  # by space
    overlay: str
    note: str
    by_scan: dict[str, float] | None  # how much of the map is each sequence's; None where the map is 0 throughout
    minimum: float  # inside the brain, on the reference's voxels, as the two that follow
    peak: float
    peak_mm: list[float]  # where the highest voxel lies, RAS+ mm of the scanner


@dataclass(frozen=True)
class MapRecord:
    """`map.json`: a patient's maps."""

    schema: int
    patient: str
    subject: str
    model: str
    repeat: int
    fold: int
    tokens: int  # that the network read
    settings: dict[str, Any]  # `Explain.of_maps` of the study
    brain: str | None  # the reference's brain; None where it may hold a face
    mask: str  # of the brain, on the prepared grid
    tumour: bool  # whether there is a tumour mask
    maps: list[MapEntry]
    # By endpoint "evidence", "empty", and each sequence's Shapley value; nothing but in a run, whose report reads it.
    score_by_scan: dict[str, dict[str, float]]


@dataclass(frozen=True)
class ScoreRow:
    """One map's scores for one endpoint; shares and rank correlations without a unit. None: undefined.

    From `hit` to `energy_randomised` all are None without a tumour mask in the brain.
    """

    method: str
    endpoint: str
    hit: float | None
    hit_chance: float | None  # exact
    hit_simulated: float | None
    hit_randomised: list[float | None] | None  # of each randomised network, which are the same for a fold's patients
    energy: float | None
    tumour_share: float | None  # what energy is by chance, exactly
    energy_simulated: float | None
    energy_spread: float | None  # standard deviation of one permutation
    energy_randomised: list[float | None] | None
    shuffled: float | None
    folds: float | None
    noise: float | None
    shift: float | None


@dataclass(frozen=True)
class Curve:
    """A deletion or insertion curve: the evidence less that of all grid positions, at fractions of these."""

    method: str  # "random" for the mean of random orders
    endpoint: str
    order: str  # "deletion" or "insertion"
    fraction: list[float]
    value: list[float | None]


@dataclass(frozen=True)
class CascadeStep:
    """A map's rank correlation with that of the network whose weights are randomised from the heads down to a stage."""

    method: str
    endpoint: str
    stage: str
    similarity: float | None


@dataclass(frozen=True)
class Agreement:
    """The rank correlation of two methods' maps."""

    endpoint: str
    method: str
    other: str
    similarity: float | None


@dataclass(frozen=True)
class ScoreRecord:
    """`scores/<patient>.json`: the evaluation of a patient's maps."""

    schema: int
    patient: str
    subject: str
    fold: int
    settings: dict[str, Any]  # `Explain.of_maps` of the study
    rows: list[ScoreRow]
    curves: list[Curve]
    cascade: list[CascadeStep]
    agreement: list[Agreement]


@dataclass(frozen=True)
class GroupMean:
    """One group's mean map, and the number of brains at each voxel; no files where no voxel has patients enough."""

    label: str
    title: str
    n: int
    file: str | None
    count_file: str | None


@dataclass(frozen=True)
class GroupEntry:
    """One method's mean maps by one endpoint's two groups. None where there are too few patients."""

    method: str
    endpoint: str
    title: str
    groups: list[GroupMean]
    difference: str | None  # the file of the first group's mean less the second's
    picture: str | None
    largest: float | None  # absolute difference at any grid position
    p: float | None  # how often chance makes one as large


@dataclass(frozen=True)
class GroupRecord:
    """`group.json`: the cohort's mean maps."""

    schema: int
    unit: str
    settings: Mapping[str, Any]  # `Explain.of_maps` of the study
    entries: list[GroupEntry]


def parse(kind: type[R], content: Mapping[str, Any]) -> R:
    """What a file holds as a record. Raises ValueError, pydantic's, where a key lacks or a value is of another kind."""
    return TypeAdapter(kind).validate_python(content)


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write a record or a sidecar, whole or not at all."""
    write_bytes(json.dumps(content, indent=1, ensure_ascii=False).encode(), path)


def file_name(patient: Patient, method: str, endpoint: str, of_class: str, space: str | None, ending: str) -> str:
    """The name of a map's file: `sub-demo001_space-T1ce_desc-gradientAttentionMgmt_map.nii.gz`.

    `endpoint` is "" where the method has none, `of_class` where the map is of the prediction; `space` is a
    sequence or `GRID` (None where the file lies in none, like a picture),
    `ending` suffix and extension, such as "map.nii.gz".
    """
    desc = _camel(method) + _camel(endpoint).capitalize() + _class(of_class)
    return "_".join([*_entities(patient), *([f"space-{_space(space)}"] if space else []), f"desc-{desc}", ending])


def brain_file(patient: Patient, reference: str) -> str:
    """The name of the reference scan's brain, which a report may publish."""
    return "_".join(
        [*_entities(patient), f"space-{_space(reference)}", "desc-brain", f"{SUFFIXES.get(reference, _space(reference))}.nii.gz"]
    )


def _space(name: str) -> str:
    """Whose voxels a file lies on: a scan's own, or the prepared grid's."""
    return GRID if name == GRID else re.sub(r"[^A-Za-z0-9]", "", title(name))


def _entities(patient: Patient) -> list[str]:
    return [f"sub-{_label(patient.subject)}", *([f"ses-{_label(patient.session)}"] if patient.session else [])]


def _label(text: str) -> str:
    """Letters and digits alone, as BIDS wants it; the folder keeps the patient's own id."""
    label = re.sub(r"[^A-Za-z0-9]", "", text)
    if not label:
        raise UsageError(f"{text!r} has neither letter nor digit, so no file can be named after it")
    return label


def _class(name: str) -> str:
    """A class's part of a name, of the letters by which classes differ; of others than a to z their bytes."""
    letters = folded(name)
    return "" if not name else f"Class{(letters if letters.isascii() else letters.encode().hex()).capitalize()}"


def _camel(words: str) -> str:
    first, *rest = words.split("_")
    return first + "".join(word.capitalize() for word in rest)

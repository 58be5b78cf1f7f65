"""Series: a folder of DICOM files goes in; its series, with their geometry and header fields, come out.

No pixel is decoded. A `Series` is as personal as the headers that it comes from: it stays in memory and is never written.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from mri_vit.data.nifti import AFFINE_TOLERANCE
from mri_vit.data.volume import LPS
from mri_vit.importers.dicom.header import File, Header, Image, NoImage, Tags, missing_files, read_header
from mri_vit.importers.dicom.identity import Fault, Person
from mri_vit.run.integrity import sha256
from mri_vit.settings import source

MIN_SLICES = 4  # as dicom2nifti has it: fewer are a localizer, a test shot or a remnant
SAME_PLACE_MM = 0.01  # a tenth of the finest step; positions are written to 0.001 mm or finer
UNEVEN_STEP = 0.05  # of the step between slices; dicom2nifti's rtol in validate_slice_increment
DIRECTION_TOLERANCE = AFFINE_TOLERANCE  # cosine: what the reader of volumes takes for a skew


def slice_normal(image: Image) -> Float[np.ndarray, "3"]:
    """Unit vector perpendicular to a slice, LPS+."""
    row, column = np.reshape(image.orientation, (2, 3))
    across = np.cross(row, column)
    return across / np.linalg.norm(across)


def ordered_slices(images: Sequence[Image]) -> list[Image]:
    """Slices in the order of their positions along the normal of the first."""
    direction = slice_normal(images[0])
    return sorted(images, key=lambda image: float(np.dot(image.position_mm, direction)))


def places_mm(images: Sequence[Image]) -> Float[np.ndarray, "n"]:
    """Position of each slice along the normal of the first."""
    return positions_mm(images) @ slice_normal(images[0])


def positions_mm(images: Sequence[Image]) -> Float[np.ndarray, "n 3"]:
    """Centre of each slice's first pixel, LPS+ mm."""
    return np.array([image.position_mm for image in images], np.float64)


def volume_shape(images: Sequence[Image]) -> tuple[int, int, int]:
    """Of the volume: columns, rows, slices."""
    rows, columns = images[0].matrix
    return columns, rows, len(images)


def volume_affine(images: Sequence[Image]) -> Float[np.ndarray, "4 4"]:
    """From (column, row, slice) to RAS+ mm, of ordered, parallel, evenly spaced slices (DICOM PS3.3, C.7.6.2.1.1)."""
    first = images[0]
    row, column = np.reshape(first.orientation, (2, 3))
    between_rows, between_columns = first.spacing_mm
    positions = positions_mm(images)
    lps = np.eye(4)
    lps[:3, 0] = row / np.linalg.norm(row) * between_columns
    lps[:3, 1] = column / np.linalg.norm(column) * between_rows
    lps[:3, 2] = (positions[-1] - positions[0]) / (len(images) - 1)
    lps[:3, 3] = positions[0]
    return LPS @ lps


def drift_mm(images: Sequence[Image]) -> float:
    """How far the last of ordered slices would be off if all steps were the one that differs most from their mean."""
    steps = np.diff(positions_mm(images), axis=0)
    return float(np.linalg.norm(steps - steps.mean(axis=0), axis=1).max() * len(steps))


def same_geometry(one: Image, other: Image) -> bool:
    """Whether two slices may be of one volume: of one direction, matrix and spacing."""
    return (
        one.matrix == other.matrix
        and np.allclose(one.orientation, other.orientation, atol=DIRECTION_TOLERANCE)
        and np.allclose(one.spacing_mm, other.spacing_mm, rtol=AFFINE_TOLERANCE)
    )


def is_stack(images: Sequence[Image]) -> bool:
    """Whether slices form a volume by themselves: enough of them, alike, at positions of their own and evenly spaced."""
    if len(images) < MIN_SLICES or not all(same_geometry(images[0], image) for image in images):
        return False
    with np.errstate(invalid="ignore"):  # of invalid directions; the checks name them
        steps = np.diff(places_mm(ordered_slices(images)))
    usual = float(np.median(steps))
    return bool(steps.min() >= SAME_PLACE_MM and (np.abs(steps - usual) <= UNEVEN_STEP * usual).all())


NAMED_DICOM = re.compile(r"(?i)(?!\._).+\.(?:dcm|dicom|ima)(?:\.(?:gz|bz2|xz|zip))?")  # macOS writes ._ files beside others


# How UIDs can be wrong: the beginning of a reason.
UID_PER_IMAGE = "each of its images has a SeriesInstanceUID of its own"
NO_UID = "its SeriesInstanceUID is empty"
UID_OF_SEVERAL = "its SeriesInstanceUID is that of several sequences"
IMAGE_UID_OF_SEVERAL = "its images share a SOPInstanceUID"


@dataclass(frozen=True)
class Series:
    """Images that a scanner stored as one series, or the part of it that makes up one volume."""

    patient_id: str
    study_uid: str
    study_date: str  # YYYYMMDD, or "" where the header has none
    series_uid: str
    part: int  # 0, or which of several volumes (echoes, images of several kinds) of the series
    tags: Tags
    files: tuple[File, ...]
    images: tuple[Image, ...]  # a slice each: one per file, or one per frame of a multi-frame file
    people: frozenset[Person] = frozenset()  # in the headers
    study_s: float = math.nan  # second of the day at which the study began
    taken_s: float = math.nan  # second of the day at which its first image was taken
    frame_uid: str = ""  # of the frame of reference, where all images have one
    stored: tuple[int, ...] = ()  # instance numbers of all images that were stored with these
    under_uid: int = 0  # images under its SeriesInstanceUID
    acquisition: int = 0  # number
    acquired: int = 0  # images of the study that were acquired together with these, in this series and others
    in_acquisition: int = 0  # images that the headers announce, 0 where they do not
    in_series: int = 0
    phases: int = 0
    oddity: str = ""  # how its UIDs are wrong, if they are
    mixed: tuple[str, ...] = ()  # UIDs of two images of different descriptions, which form no volumes
    study_per_image: bool = False  # so that its StudyInstanceUID does not show what belongs together
    owner: str = ""  # patient and study, where another series would have the same name
    taken_date: str = ""  # YYYYMMDD at which the image was acquired, or else the series

    @property
    def name(self) -> str:
        """The text that is hashed for tables; it differs between all series of an import."""
        parts = [self.series_uid, self.files[0].sop_uid if self.files[0].frames > 1 else "", str(self.part or "")]
        return "/".join(filter(None, (*parts, self.owner)))

    @property
    def as_stored(self) -> bool:
        """Whether its files can be converted as they are: their UIDs are those of one series, and each is complete."""
        return not self.oddity and all(file.is_part_10 for file in self.files)


@dataclass(frozen=True)
class Contents:
    """The contents of a folder: series, unreadable DICOM files, files that a DICOMDIR lists and that are missing, wrong UIDs."""

    series: tuple[Series, ...]
    unreadable: tuple[Path, ...]
    missing: tuple[Path, ...]
    oddities: tuple[Fault, ...] = ()  # for a terminal


def find_series(folder: Path) -> Contents:
    """All series in a folder, at any depth; a file is known as DICOM by its content, whatever its name.

    Images belong to one series by their SeriesInstanceUID. Where each has one of its own, they are grouped by description,
    sequence, direction and matrix; where several sequences share one, the same fields separate them.

    Raises
    ------
    IntegrityError
        A DICOMDIR names a file outside the folder.
    """
    headers: list[Header] = []
    unreadable = []
    missing: list[Path] = []
    by_uid: dict[str, dict[str, Path]] = defaultdict(dict)  # by UID and hash; a hash is computed where a UID comes back
    for path in _files(folder):
        content = read_header(path)
        if content is NoImage.UNREADABLE:
            unreadable.append(path)
        elif content is NoImage.DIRECTORY:
            missing += missing_files(path, folder)
        elif isinstance(content, Header) and not _is_copy(path, by_uid[content.file.sop_uid]):
            headers.append(content)
    shared = {uid for uid, paths in by_uid.items() if len(paths) > 1}
    parts = [part for group in _groups(headers) for part in _series(group, shared)]
    series = _unique_names(_common_study(parts))
    at_once = Counter[object]()  # images acquired together: those of other echoes may be stored apart
    for one in series:
        at_once[_acquisition(one)] += len(one.images)
    counted = tuple(replace(one, acquired=at_once[_acquisition(one)]) for one in series)
    return Contents(counted, tuple(unreadable), tuple(missing), _oddities(series, headers, shared))


def _is_copy(path: Path, known: dict[str, Path]) -> bool:
    """Whether a file of the same UID and content is known; it is known afterwards."""
    if not known:
        known[""] = path
        return False
    if "" in known:
        first = known.pop("")
        known[sha256(first)] = first
    return known.setdefault(sha256(path), path) is not path


def _files(folder: Path) -> Iterator[Path]:
    """Files that are DICOM, or look like it by their names, in the order of these; links to folders are not followed."""

    def fail(error: OSError) -> None:
        raise error  # a folder without permission to read is not empty

    def pattern(path: Path) -> str:
        return re.sub(r"\d+", "0", path.name)  # the name without numbers, which all files of an export share

    for home, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        paths = [path for name in sorted(names) if (path := Path(home, name)).is_file()]
        known = set()
        for path in paths:
            with path.open("rb") as file:
                if source.is_dicom(file.read(source.DICOM_START)):
                    known.add(path)
        siblings = set(map(pattern, known))
        yield from (path for path in paths if path in known or NAMED_DICOM.fullmatch(path.name) or pattern(path) in siblings)


def _groups(headers: Sequence[Header]) -> list[list[Header]]:
    """Images of one series by their UIDs; images alone under theirs by study, protocol, direction and matrix."""
    of_study = Counter((one.patient_id, one.study_uid) for one in headers)
    by_uid: dict[tuple[str, ...], list[Header]] = defaultdict(list)
    for one in headers:
        apart = str(one.file.path) if one.file.frames > 1 else ""  # a multi-frame file is a volume of its own
        by_uid[one.patient_id, one.study_uid, one.series_uid, apart].append(one)
    groups, single = [], defaultdict(list)
    for _, group in sorted(by_uid.items(), key=lambda item: item[0]):
        first = group[0]
        placed = all(map(math.isfinite, (*first.images[0].position_mm, *first.images[0].orientation)))
        if len(group) > 1 or first.file.frames > 1 or not placed:
            groups.append(group)
            continue
        study = first.study_uid if of_study[first.patient_id, first.study_uid] > 1 else (first.study_date, str(first.study_s))
        protocol = first.protocol
        stacks = single[first.patient_id, study, protocol.unnumbered, protocol.weighting]
        stack = next((one for one in stacks if same_geometry(one[0].images[0], first.images[0])), None)
        if stack:
            stack.append(first)
        else:
            stacks.append([first])
    for stack in (stack for stacks in single.values() for stack in stacks):
        groups += [stack] if len(stack) >= MIN_SLICES else [[one] for one in stack]
    return groups


def _series(headers: Sequence[Header], shared: Collection[str]) -> list[Series]:
    """The volumes of one series as stored, or of several sequences that were stored as one."""
    sequences = [list(headers)]
    if headers[0].file.frames == 1:
        by_words = _by(headers, lambda header: header.protocol.words)
        if sum(len(part) >= MIN_SLICES for part in by_words) >= 2:  # else the checks name the odd slice among others
            sequences = by_words
        sequences = [part for sequence in sequences for part in _by_protocol(sequence)]
    if len({header.series_uid for header in headers}) > 1:
        oddity = UID_PER_IMAGE
    elif not headers[0].series_uid:
        oddity = NO_UID
    elif len(sequences) > 1:
        oddity = UID_OF_SEVERAL
    else:
        oddity = IMAGE_UID_OF_SEVERAL if any(header.file.sop_uid in shared for header in headers) else ""
    parts = [replace(part, oddity=oddity, under_uid=len(headers)) for sequence in sequences for part in _parts(sequence)]
    return parts if len(sequences) == 1 else [replace(part, part=number) for number, part in enumerate(parts, start=1)]


def _by_protocol(headers: list[Header]) -> list[list[Header]]:
    """Images by weighting or series number; at equal positions also by fields that may vary within a sound series."""
    keys: list[Callable[[Header], object]] = [
        lambda header: header.protocol.weighting,
        lambda header: header.protocol.series_number,
    ]
    if not _are_apart([one.images[0] for one in headers]) and not _are_volumes(headers):
        keys += [lambda header: header.acquisition, lambda header: str(header.taken_s)]
        keys += [lambda header: (header.protocol.weighting, header.acquisition, str(header.taken_s))]
    for key in keys:
        parts = _by(headers, key)
        if len(parts) > 1 and all(map(_are_volumes, parts)):
            return parts
    return [headers]


def _by(headers: Sequence[Header], key: Callable[[Header], object]) -> list[list[Header]]:
    parts: dict[object, list[Header]] = defaultdict(list)
    for one in headers:
        parts[key(one)].append(one)
    return list(parts.values())


def _are_volumes(headers: Sequence[Header]) -> bool:
    """Whether images are a stack, or one for each kind."""
    if is_stack([one.images[0] for one in headers]):
        return True
    return all(is_stack([one.images[0] for one in part]) for part in _by(headers, lambda header: header.images[0].kind))


def _parts(headers: Sequence[Header]) -> list[Series]:
    """A series as one, or, if slices share a position, by echo, kind of image, b-value and time, if that separates them."""
    series = _of_all(headers)
    if series.files[0].frames > 1 or _are_apart(series.images):
        return [series]
    parts = _by(headers, lambda header: header.images[0].kind)
    if len(parts) == 1 or not all(len(part) > 1 and _are_apart([one.images[0] for one in part]) for part in parts):
        return [series]  # the checks say what is wrong with it
    return [
        replace(
            series,
            part=number,
            tags=part[0].tags,
            files=tuple(header.file for header in part),
            images=tuple(header.images[0] for header in part),
        )
        for number, part in enumerate(parts, start=1)
    ]


def _of_all(headers: Sequence[Header]) -> Series:
    """The series of all these images."""
    first = headers[0]
    frame_uids = {header.frame_uid for header in headers}
    studies = {header.study_uid for header in headers}
    per_image = len({h.series_uid for h in headers}) == len({h.protocol.words for h in headers}) == len(headers) > 1
    words = [h.protocol.unnumbered if per_image else h.protocol.words for h in headers]
    odd = next((h for h, text in zip(headers, words, strict=True) if text != words[0]), None)

    def announced(counts: Iterable[int]) -> int:
        different = set(counts) - {0}
        return different.pop() if len(different) == 1 else 0

    return Series(
        first.patient_id,
        min(studies),
        first.study_date,
        min(header.series_uid for header in headers),
        0,
        first.tags,
        tuple(header.file for header in headers),
        tuple(image for header in headers for image in header.images),
        people=frozenset(header.person for header in headers),
        study_s=first.study_s,
        taken_date=first.taken_date,
        taken_s=min((header.taken_s for header in headers if math.isfinite(header.taken_s)), default=math.nan),
        frame_uid=frame_uids.pop() if len(frame_uids) == 1 else "",
        stored=tuple(sorted(header.images[0].instance for header in headers)) if first.file.frames == 1 else (),
        acquisition=first.acquisition,
        in_acquisition=announced(header.images_in_acquisition for header in headers),
        in_series=announced(header.images_in_series for header in headers),
        phases=max(header.phases for header in headers),
        mixed=(first.file.sop_uid, odd.file.sop_uid) if odd else (),
        study_per_image=len(studies) > 1,
    )


def _acquisition(one: Series) -> object:
    """Fields that images share which were acquired together; a series without a time shares none."""
    if math.isnan(one.taken_s):
        return one.name
    places = frozenset(_positions(one.images))
    return one.patient_id, one.study_uid, one.acquisition, one.taken_s, str(one.tags.repetition_ms), places


def _common_study(all_series: Sequence[Series]) -> list[Series]:
    """Series whose images have studies of their own, in one study for each patient and time."""

    def when(one: Series) -> object:
        return one.patient_id, one.study_date, str(one.study_s)

    uids: dict[object, str] = {}
    for one in all_series:
        if one.study_per_image:
            uids[when(one)] = min(uids.get(when(one), one.study_uid), one.study_uid)
    return [replace(one, study_uid=uids[when(one)]) if one.study_per_image else one for one in all_series]


def _unique_names(all_series: Sequence[Series]) -> list[Series]:
    """Series with patient, study and a number in their names, where wrong UIDs would give two of them one name."""
    count = Counter(one.name for one in all_series)
    number: Counter[tuple[str, ...]] = Counter()
    unique = []
    for one in all_series:
        key = (one.name, one.patient_id, one.study_uid)
        number[key] += 1
        unique.append(one if count[one.name] == 1 else replace(one, owner=repr((*key[1:], number[key]))))
    return unique


def _oddities(all_series: Sequence[Series], headers: Sequence[Header], shared: Collection[str]) -> tuple[Fault, ...]:
    """Errors of UIDs, a sentence for each study, series or folder."""
    per_image: dict[str, list[Series]] = defaultdict(list)
    by_uid: Counter[str] = Counter()
    patients: dict[str, set[str]] = defaultdict(set)
    starts: dict[tuple[str, str], dict[str, tuple[int, ...]]] = defaultdict(dict)
    few: dict[tuple[object, ...], list[Series]] = defaultdict(list)
    for one in all_series:
        patients[one.study_uid].add(one.patient_id)
        if one.stored and not one.oddity:
            starts[one.patient_id, one.study_uid][one.series_uid] = one.stored
        if one.files[0].frames == 1 and len(one.images) < MIN_SLICES and not one.oddity:
            few[one.patient_id, one.study_uid, one.tags.words].append(one)
        if one.oddity == UID_PER_IMAGE:
            per_image[one.study_uid].append(one)
        elif one.oddity == UID_OF_SEVERAL:
            by_uid[one.series_uid] += 1
    separated = "they are separated by description and timing"
    faults = []
    for study_uid, group in per_image.items():
        images = sum(len(one.images) for one in group)
        what = "a StudyInstanceUID and a SeriesInstanceUID" if group[0].study_per_image else "a SeriesInstanceUID"
        how = f"they are grouped by description, sequence and direction into {len(group)} series"
        faults.append(Fault(f"study {{}}: each of {images} images has {what} of its own; {how}", (study_uid,)))
    for uid, count in by_uid.items():
        faults.append(Fault(f"series {{}}: {count} sequences have this SeriesInstanceUID; {separated}", (uid,)))
    for uid in dict.fromkeys(one.study_uid for one in all_series if one.oddity == NO_UID):
        faults.append(Fault(f"study {{}}: the SeriesInstanceUID of its images is empty; {separated}", (uid,)))
    for uid, ids in patients.items():
        if uid and len(ids) > 1:
            words = f"its images have {len(ids)} different PatientIDs, and count as those of {len(ids)} patients"
            faults.append(Fault(f"study {{}}: {words}", (uid,)))
    for (_, study_uid), stored in starts.items():
        for uid, numbers in stored.items() if any(numbers[0] == 1 for numbers in stored.values()) else ():
            if numbers[0] > 1:
                span = f"its {len(numbers)} images are numbered from {numbers[0]} to {numbers[-1]}, those of other series from 1"
                faults.append(Fault(f"series {{}} of study {{}}: {span}; some may be missing", (uid, study_uid)))
    for (_, study_uid, _), group in few.items():
        if is_stack([image for one in group for image in one.images]):
            words = f"{len(group)} series of one description have too few slices, and together would form one volume"
            faults.append(Fault(f"study {{}}: {words}; their SeriesInstanceUIDs seem to be wrong", (str(study_uid),)))
    files = [header for header in headers if header.file.sop_uid in shared]
    if files:
        words = f"{len(files)} different files have the SOPInstanceUID {{}} or another that several have; each counts as an image"
        faults.append(Fault(words, (files[0].file.sop_uid,)))
    return tuple(faults)


def _are_apart(images: Sequence[Image]) -> bool:
    """Whether no two slices lie at the same position, to 0.01 mm."""
    return len(_positions(images)) == len(images)


def _positions(images: Sequence[Image]) -> set[tuple[float, ...]]:
    return {tuple(round(x, 2) for x in image.position_mm) for image in images}

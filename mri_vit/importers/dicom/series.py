"""Series: a folder of DICOM files goes in; its series, with their geometry and what their headers say, come out.

No pixel is decoded. What a `Series` holds is as personal as the headers that it comes from: it lives in memory and is written
nowhere.
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
    """Unit vector that stands upright on a slice, LPS+."""
    row, column = np.reshape(image.orientation, (2, 3))
    across = np.cross(row, column)
    return across / np.linalg.norm(across)


def ordered_slices(images: Sequence[Image]) -> list[Image]:
    """Slices in the order of their places along the normal of the first."""
    direction = slice_normal(images[0])
    return sorted(images, key=lambda image: float(np.dot(image.position_mm, direction)))


def places_mm(images: Sequence[Image]) -> Float[np.ndarray, "n"]:
    """Where each slice lies along the normal of the first."""
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
    """Whether slices make up a volume by themselves: enough of them, alike, in places of their own and evenly spaced."""
    if len(images) < MIN_SLICES or not all(same_geometry(images[0], image) for image in images):
        return False
    with np.errstate(invalid="ignore"):  # of directions that are none; the checks name them
        steps = np.diff(places_mm(ordered_slices(images)))
    usual = float(np.median(steps))
    return bool(steps.min() >= SAME_PLACE_MM and (np.abs(steps - usual) <= UNEVEN_STEP * usual).all())


NAMED_DICOM = re.compile(r"(?i)(?!\._).+\.(?:dcm|dicom|ima)(?:\.(?:gz|bz2|xz|zip))?")  # ._ are macOS's notes beside files


# How UIDs can be wrong, in words that a reason begins with.
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
    people: frozenset[Person] = frozenset()  # whom the headers speak of
    study_s: float = math.nan  # second of the day at which the study began
    taken_s: float = math.nan  # and the first image of the series was taken
    frame_uid: str = ""  # of the frame of reference, where all images have one
    stored: tuple[int, ...] = ()  # instance numbers of all images that were stored with these
    under_uid: int = 0  # images under its SeriesInstanceUID
    acquisition: int = 0  # number
    acquired: int = 0  # images of the study that were acquired with these at once, in this series and others
    in_acquisition: int = 0  # images that the headers announce, 0 where they do not
    in_series: int = 0
    phases: int = 0
    oddity: str = ""  # how its UIDs are wrong, if they are
    mixed: tuple[str, ...] = ()  # UIDs of two images of different descriptions, of which no volumes can be made
    study_per_image: bool = False  # so that its StudyInstanceUID says nothing of what belongs together
    owner: str = ""  # patient and study, where another series would have the same name
    taken_date: str = ""  # YYYYMMDD at which the image was acquired, or else the series

    @property
    def name(self) -> str:
        """What its hash in tables is made from: no two series of an import have the same."""
        parts = [self.series_uid, self.files[0].sop_uid if self.files[0].frames > 1 else "", str(self.part or "")]
        return "/".join(filter(None, (*parts, self.owner)))

    @property
    def as_stored(self) -> bool:
        """Whether its files can be converted as they are: their UIDs say that they are one series, and each is whole."""
        return not self.oddity and all(file.is_part_10 for file in self.files)


@dataclass(frozen=True)
class Contents:
    """What a folder holds: series, files that look like DICOM and cannot be read, files that a DICOMDIR misses, wrong UIDs."""

    series: tuple[Series, ...]
    unreadable: tuple[Path, ...]
    missing: tuple[Path, ...]
    oddities: tuple[Fault, ...] = ()  # for a terminal


def find_series(folder: Path) -> Contents:
    """All series in a folder, at any depth; a file is known as DICOM by its content, whatever its name.

    Images are of one series by their SeriesInstanceUID. Where each has one of its own, they are put together by description,
    sequence, direction and matrix; where several sequences share one, the same fields separate them.

    Raises
    ------
    IntegrityError
        A DICOMDIR names a file outside the folder.
    """
    headers: list[Header] = []
    unreadable = []
    missing: list[Path] = []
    seen: dict[str, dict[str, Path]] = defaultdict(dict)  # by UID and hash; a hash is taken where a UID comes back
    for path in _files(folder):
        content = read_header(path)
        if content is NoImage.UNREADABLE:
            unreadable.append(path)
        elif content is NoImage.DIRECTORY:
            missing += missing_files(path, folder)
        elif isinstance(content, Header):
            if _is_copy(path, seen[content.file.sop_uid]):
                continue  # the same file twice, which says nothing new
            headers.append(content)
    shared = {uid for uid, paths in seen.items() if len(paths) > 1}
    series = _named_apart(_in_one_study([one for group in _groups(headers) for one in _series(group, shared)]))
    return Contents(tuple(_counted(series)), tuple(unreadable), tuple(missing), _oddities(series, headers, shared))


def _is_copy(path: Path, seen: dict[str, Path]) -> bool:
    """Whether a file of the same UID and content was seen; it is then."""
    if not seen:
        seen[""] = path
        return False
    if "" in seen:
        first = seen.pop("")
        seen[sha256(first)] = first
    return seen.setdefault(sha256(path), path) is not path


def _files(folder: Path) -> Iterator[Path]:
    """Files that are DICOM, or look like it by their names, in the order of these; links to folders are not followed."""
    for home, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        paths = [path for name in sorted(names) if (path := Path(home, name)).is_file()]
        known = set(filter(_is_dicom, paths))
        siblings = {_pattern(path) for path in known}
        yield from (path for path in paths if path in known or NAMED_DICOM.fullmatch(path.name) or _pattern(path) in siblings)


def _is_dicom(path: Path) -> bool:
    with path.open("rb") as file:
        return source.is_dicom(file.read(source.DICOM_START))


def _pattern(path: Path) -> str:
    """A file's name without its numbers, which all files of an export share."""
    return re.sub(r"\d+", "0", path.name)


def _groups(headers: Sequence[Header]) -> list[list[Header]]:
    """Images of one series by their UIDs; those that are alone under theirs by study, protocol, direction and matrix."""
    of_study = Counter((one.patient_id, one.study_uid) for one in headers)
    by_uid: dict[tuple[str, ...], list[Header]] = defaultdict(list)
    for one in headers:
        apart = str(one.file.path) if one.file.frames > 1 else ""  # a multi-frame file is a volume of its own
        by_uid[one.patient_id, one.study_uid, one.series_uid, apart].append(one)
    groups, alone = [], defaultdict(list)
    for _, group in sorted(by_uid.items(), key=lambda item: item[0]):
        first = group[0]
        placed = all(map(math.isfinite, (*first.images[0].position_mm, *first.images[0].orientation)))
        if len(group) > 1 or first.file.frames > 1 or not placed:
            groups.append(group)
            continue
        study = first.study_uid if of_study[first.patient_id, first.study_uid] > 1 else (first.study_date, str(first.study_s))
        protocol = first.protocol
        stacks = alone[first.patient_id, study, protocol.unnumbered, protocol.weighting]
        stack = next((one for one in stacks if same_geometry(one[0].images[0], first.images[0])), None)
        if stack:
            stack.append(first)
        else:
            stacks.append([first])
    for stack in (stack for stacks in alone.values() for stack in stacks):
        groups += [stack] if len(stack) >= MIN_SLICES else [[one] for one in stack]
    return groups


def _series(headers: Sequence[Header], shared: Collection[str]) -> list[Series]:
    """The volumes of one series as stored, or of several sequences that were stored as one."""
    sequences = _sequences(headers)
    if len({one.series_uid for one in headers}) > 1:
        oddity = UID_PER_IMAGE
    elif not headers[0].series_uid:
        oddity = NO_UID
    elif len(sequences) > 1:
        oddity = UID_OF_SEVERAL
    elif any(one.file.sop_uid in shared for one in headers):
        oddity = IMAGE_UID_OF_SEVERAL
    else:
        oddity = ""
    made = [replace(part, oddity=oddity, under_uid=len(headers)) for sequence in sequences for part in _parts(sequence)]
    return made if len(sequences) == 1 else [replace(part, part=number) for number, part in enumerate(made, start=1)]


def _sequences(headers: Sequence[Header]) -> list[list[Header]]:
    """Images by description; and by what else tells sequences apart, where each part of them is a volume by itself."""
    if headers[0].file.frames > 1:
        return [list(headers)]
    by_words = _by(headers, lambda one: one.protocol.words)
    if sum(len(part) >= MIN_SLICES for part in by_words) < 2:
        by_words = [list(headers)]  # the odd slice among others is named by the checks
    return [part for ones in by_words for part in _by_protocol(ones)]


def _by_protocol(headers: list[Header]) -> list[list[Header]]:
    """Images by weighting or series number; where they lie in one place, also by what a sound series may differ in."""
    keys: list[Callable[[Header], object]] = [lambda one: one.protocol.weighting, lambda one: one.protocol.series_number]
    if not _are_apart([one.images[0] for one in headers]) and not _are_volumes(headers):
        keys += [lambda one: one.acquisition, lambda one: str(one.taken_s)]
        keys += [lambda one: (one.protocol.weighting, one.acquisition, str(one.taken_s))]
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
    return all(is_stack([one.images[0] for one in part]) for part in _by(headers, lambda one: one.images[0].kind))


def _parts(headers: Sequence[Header]) -> list[Series]:
    """A series as one, or, where slices lie at the same place, by echo, kind of image, b-value and time, if that parts them."""
    series = _whole(headers)
    if series.files[0].frames > 1 or _are_apart(series.images):
        return [series]
    parts = _by(headers, lambda one: one.images[0].kind)
    if len(parts) == 1 or not all(len(part) > 1 and _are_apart([one.images[0] for one in part]) for part in parts):
        return [series]  # the checks say what is wrong with it
    return [
        replace(
            series,
            part=number,
            tags=part[0].tags,
            files=tuple(one.file for one in part),
            images=tuple(one.images[0] for one in part),
        )
        for number, part in enumerate(parts, start=1)
    ]


def _whole(headers: Sequence[Header]) -> Series:
    first = headers[0]
    frame_uids = {one.frame_uid for one in headers}
    studies = {one.study_uid for one in headers}
    per_image = len({one.series_uid for one in headers}) == len({one.protocol.words for one in headers}) == len(headers) > 1
    words = [one.protocol.unnumbered if per_image else one.protocol.words for one in headers]
    return Series(
        first.patient_id,
        min(studies),
        first.study_date,
        min(one.series_uid for one in headers),
        0,
        first.tags,
        tuple(one.file for one in headers),
        tuple(image for one in headers for image in one.images),
        people=frozenset(one.person for one in headers),
        study_s=first.study_s,
        taken_date=first.taken_date,
        taken_s=min((one.taken_s for one in headers if math.isfinite(one.taken_s)), default=math.nan),
        frame_uid=frame_uids.pop() if len(frame_uids) == 1 else "",
        stored=tuple(sorted(one.images[0].instance for one in headers)) if first.file.frames == 1 else (),
        acquisition=first.acquisition,
        in_acquisition=_agreed(one.images_in_acquisition for one in headers),
        in_series=_agreed(one.images_in_series for one in headers),
        phases=max(one.phases for one in headers),
        mixed=next(
            ((first.file.sop_uid, one.file.sop_uid) for one, text in zip(headers, words, strict=True) if text != words[0]), ()
        ),
        study_per_image=len(studies) > 1,
    )


def _agreed(counts: Iterable[int]) -> int:
    """What all headers of a series that announce something announce, 0 where they differ."""
    different = set(counts) - {0}
    return different.pop() if len(different) == 1 else 0


def _counted(all_series: Sequence[Series]) -> Iterator[Series]:
    """Series with the number of images that were acquired at once with each: those of other echoes may be stored apart."""
    at_once: Counter[object] = Counter()
    for one in all_series:
        at_once[_acquisition(one)] += len(one.images)
    for one in all_series:
        yield replace(one, acquired=at_once[_acquisition(one)])


def _acquisition(one: Series) -> object:
    """What images share that were acquired at once; of series without a time, nothing."""
    if math.isnan(one.taken_s):
        return one.name
    places = frozenset(_places(one.images))
    return one.patient_id, one.study_uid, one.acquisition, one.taken_s, str(one.tags.repetition_ms), places


def _in_one_study(all_series: Sequence[Series]) -> list[Series]:
    """Series whose images have studies of their own, in one study for each patient and time."""
    uids: dict[object, str] = {}
    for one in all_series:
        if one.study_per_image:
            key = one.patient_id, one.study_date, str(one.study_s)
            uids[key] = min(uids.get(key, one.study_uid), one.study_uid)
    return [
        replace(one, study_uid=uids[one.patient_id, one.study_date, str(one.study_s)]) if one.study_per_image else one
        for one in all_series
    ]


def _named_apart(all_series: Sequence[Series]) -> list[Series]:
    """Series with patient and study in their names, and a number, where wrong UIDs would give two of them one name."""
    count = Counter(one.name for one in all_series)
    number: Counter[tuple[str, ...]] = Counter()
    made = []
    for one in all_series:
        key = (one.name, one.patient_id, one.study_uid)
        number[key] += 1
        made.append(one if count[one.name] == 1 else replace(one, owner=repr((*key[1:], number[key]))))
    return made


def _oddities(all_series: Sequence[Series], headers: Sequence[Header], shared: Collection[str]) -> tuple[Fault, ...]:
    """What is wrong with UIDs, a sentence for each study, series or folder."""
    by_study: dict[str, list[Series]] = defaultdict(list)
    by_uid: Counter[str] = Counter()
    patients: dict[str, set[str]] = defaultdict(set)
    starts: dict[tuple[str, str], dict[str, tuple[int, ...]]] = defaultdict(dict)
    for one in all_series:
        patients[one.study_uid].add(one.patient_id)
        if one.stored and not one.oddity:
            starts[one.patient_id, one.study_uid][one.series_uid] = one.stored
        if one.oddity == UID_PER_IMAGE:
            by_study[one.study_uid].append(one)
        elif one.oddity == UID_OF_SEVERAL:
            by_uid[one.series_uid] += 1
    faults = []
    for study_uid, ones in by_study.items():
        images = sum(len(one.images) for one in ones)
        what = "a StudyInstanceUID and a SeriesInstanceUID" if ones[0].study_per_image else "a SeriesInstanceUID"
        how = f"they are put together by description, sequence and direction as {len(ones)} series"
        faults.append(Fault(f"study {{}}: each of {images} images has {what} of its own; {how}", (study_uid,)))
    faults += [
        Fault(
            f"series {{}}: {count} sequences have this SeriesInstanceUID; they are told apart by description and timing", (uid,)
        )
        for uid, count in by_uid.items()
    ]
    nameless = {one.study_uid: None for one in all_series if one.oddity == NO_UID}
    how = "they are told apart by description and timing"
    faults += [Fault(f"study {{}}: the SeriesInstanceUID of its images is empty; {how}", (uid,)) for uid in nameless]
    faults += [
        Fault(f"study {{}}: its images have {len(ids)} different PatientIDs, and count as those of {len(ids)} patients", (uid,))
        for uid, ids in patients.items()
        if uid and len(ids) > 1
    ]
    for (_, study_uid), stored in starts.items():
        for uid, numbers in stored.items() if any(numbers[0] == 1 for numbers in stored.values()) else ():
            if numbers[0] > 1:
                detail = (
                    f"its {len(numbers)} images are numbered from {numbers[0]} to {numbers[-1]}, those of other series from 1"
                )
                faults.append(Fault(f"series {{}} of study {{}}: {detail}; some may be missing", (uid, study_uid)))
    few: dict[tuple[object, ...], list[Series]] = defaultdict(list)
    for one in all_series:
        if one.files[0].frames == 1 and len(one.images) < MIN_SLICES and not one.oddity:
            few[one.patient_id, one.study_uid, one.tags.words].append(one)
    for (_, study_uid, _), ones in few.items():
        if is_stack([image for one in ones for image in one.images]):
            detail = f"{len(ones)} series of one description have too few slices, and would make up one volume"
            faults.append(Fault(f"study {{}}: {detail}; their SeriesInstanceUIDs seem to be wrong", (str(study_uid),)))
    files = [one for one in headers if one.file.sop_uid in shared]
    if files:
        detail = (
            f"{len(files)} different files have the SOPInstanceUID {{}} or another that several have; each counts as an image"
        )
        faults.append(Fault(detail, (files[0].file.sop_uid,)))
    return tuple(faults)


def _are_apart(images: Sequence[Image]) -> bool:
    """Whether no two slices lie at the same place, to 0.01 mm."""
    return len(_places(images)) == len(images)


def _places(images: Sequence[Image]) -> set[tuple[float, ...]]:
    return {tuple(round(x, 2) for x in image.position_mm) for image in images}


def _raise(error: OSError) -> None:
    raise error  # a folder without the right to read it is no empty one

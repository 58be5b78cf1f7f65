"""Quality: faults are planted in scans, patients are prepared and looked at, and what is found is counted.

    pipelines/reproduce.py null_studies/quality_faults synthetic --heads 200  # about 40 minutes on one idle core
    pipelines/reproduce.py null_studies/quality_faults real ../shared/data  # five real patients: raw/*, stripped/*, tumours/*

Writes runs/quality/<what>.csv: a row per patient and fault, with every reason that was found; `table` sums it up in Markdown.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import nibabel as nib
import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.transform import Rotation

from mri_vit.cli.arguments import Count
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, canonical, read, write
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.prepare.patient import prepare_patient
from mri_vit.prepare.prepared import load_record
from mri_vit.qc import check
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.sections import Grid, Quality
from mri_vit.synthetic import draw_cases, scan

SEED = 7
GRID = Grid(edge=56, spacing_mm=4.0, patch=4)  # the demo's: synthetic scans have voxels of 3 to 5 mm
FAULTS = {  # name: the reasons of which one must be found, and the scan it must be found in
    "mirrored t2": (("mirrored",), "t2"),
    "mirrored flair": (("mirrored",), "flair"),
    "flair and t2 exchanged": (("exchanged",), "flair t2"),
    "t1 and t1ce exchanged": (("exchanged",), "t1ce t1"),
    "another patient's flair": (("another head",), "flair"),
    "another patient's t2": (("another head",), "t2"),
    "tilted by 40°": (("turned",), ""),
    "empty flair": (("an empty image",), ""),
    "half the head": (("part missing",), ""),
    "no cerebellum": (("part missing",), ""),
    "strong bias in t1ce": (("shading",), "t1ce"),
    "ghosts in flair": (("ghosts",), "flair"),
}
AMONG = "none, among the others"  # a row for each who is unlike the cohort without a fault
EACH = 3  # faults planted in each synthetic head, dealt in turn
TILT, BIAS, GHOST = 40.0, 6.0, 0.15  # degrees; one end of the brain against the other; share of the signal
BRAIN_MM = 160.0  # about a brain's length
MIDDLE_MM = (0.0, -18.0, 8.0)  # of the MNI152 brain
CEREBELLUM = (-12.0, -35.0)  # mm of the MNI152 frame: what lies below and behind


def in_synthetic_heads(heads: int, first: int) -> None:
    """Plant faults in synthetic heads, from number `first` on."""
    cases = draw_cases(first + heads + 1, np.random.default_rng(SEED))
    names = list(FAULTS)

    def scans_of(number: int) -> Scans:
        return scan(cases[number], np.random.default_rng([SEED, number]))[0]

    with _rows(f"synthetic-{first}") as add:
        records = {}
        for number in range(first, first + heads):
            chosen = [names[(number * EACH + k) % len(names)] for k in range(EACH)]
            record = _one(f"head-{number}", scans_of(number), scans_of(number + 1), chosen, GRID, number, add)
            if record:
                records[f"head-{number}"] = record
        for one in check.unlike(check.deviations(records), Quality()):  # of the heads as they are, held against each other
            add({"patient": one.patient, "fault": AMONG, "found": [(one.reason, one.scan)], "caught": False})


def in_real_patients(data: Path) -> None:
    """Plant every fault in every real patient."""
    folders = sorted(folder for kind in ("raw", "stripped", "tumours") for folder in (data / kind).iterdir() if folder.is_dir())

    def scans_of(folder: Path) -> Scans:
        return {channel: canonical(read(next(folder.glob(f"{channel}.nii*")))) for channel in CHANNELS}

    with _rows("real") as add:
        for number, folder in enumerate(folders):
            _one(folder.name, scans_of(folder), scans_of(folders[number - 1]), list(FAULTS), Grid(), number, add)


def _one(
    name: str, scans: Scans, other: Scans, chosen: list[str], grid: Grid, number: int, add: Callable[[dict[str, Any]], None]
) -> dict[str, Any] | None:
    """A patient as it is, then with each of the chosen faults; gives the former's record."""
    record, reasons = looked(name, scans, grid)
    add({"patient": name, "fault": "none", "found": reasons, "caught": "" if record is None else not reasons})
    if record is None:
        return None
    for fault in chosen:
        _, reasons = looked(name, planted(fault, scans, other, record, number), grid)
        wanted, of_scan = FAULTS[fault]
        caught = any(reason in wanted and where == of_scan for reason, where in reasons)
        add({"patient": name, "fault": fault, "found": reasons, "caught": caught})
    return record


def planted(fault: str, scans: Scans, other: Scans, record: dict[str, Any], number: int) -> Scans:
    """The scans with a fault; `record` is of the patient prepared without it."""
    for channel in ("t2", "flair"):
        if fault == f"mirrored {channel}":
            return {**scans, channel: mirrored(scans[channel])}
        if fault == f"another patient's {channel}":
            return {**scans, channel: other[channel]}
    if fault == "flair and t2 exchanged":
        return exchanged(scans, "flair", "t2")
    if fault == "t1 and t1ce exchanged":
        return exchanged(scans, "t1", "t1ce")
    if fault.startswith("tilted"):
        return tilted(scans, 0, TILT)
    if fault == "empty flair":
        return {**scans, "flair": emptied(scans["flair"])}
    to_mni = {channel: _to_template(record, channel) for channel in scans}
    where = {channel: points(one) @ to_mni[channel][:3, :3].T + to_mni[channel][:3, 3] for channel, one in scans.items()}
    if fault == "half the head":  # left, right, front, back, top or bottom in turn
        axis, sign = number % 3, 1 if number // 4 % 2 else -1  # every fourth synthetic head is cut
        middle = MIDDLE_MM[axis]
        return {c: cut(one, sign * (where[c][..., axis] - middle) > 0) for c, one in scans.items()}
    if fault == "no cerebellum":
        below, behind = CEREBELLUM
        return {c: cut(one, (where[c][..., 2] < below) & (where[c][..., 1] < behind)) for c, one in scans.items()}
    if fault.startswith("strong bias"):
        return {**scans, "t1ce": shaded(scans["t1ce"], 1, BIAS, BRAIN_MM)}
    return {**scans, "flair": ghosted(scans["flair"], GHOST)}


def _to_template(record: dict[str, Any], channel: str) -> np.ndarray:
    """From a point of a scan to the MNI152 brain in its own size."""
    pose = next(step for step in record["steps"] if step["step"] == "to_mni")
    to_grid = {name: np.array(matrix) for name, matrix in record["to_grid"].items()}
    return np.linalg.inv(pose["affine"]) @ np.linalg.inv(to_grid["t1ce"]) @ to_grid[channel]


def looked(name: str, scans: Scans, grid: Grid) -> tuple[dict[str, Any] | None, list[tuple[str, str]]]:
    """The patient's record, and reason and scan of each finding; None and "unprepared" where it could not be prepared."""
    with TemporaryDirectory() as home:
        paths = {channel: Path(home, f"{channel}.nii.gz") for channel in scans}
        for channel, volume in scans.items():
            write(volume, paths[channel])
        study = Study(name="faults", cohort=Path(home, "-"), prepared=Path(home, "prepared"), output=Path(home, "run"), grid=grid)
        study.prepared.mkdir()
        try:
            folder = prepare_patient(
                Patient(name, dict(paths), {}, {}), study.prepared, study.channels, study.grid, study.prepare
            )
        except UnusablePatient as fault:
            return None, [("an empty image" if "an empty image" in fault.reason else fault.reason, "")]
        record = load_record(folder)
    return record, [(one.reason, one.scan) for one in check.findings_of(name, record, Quality())]


@contextmanager
def _rows(name: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    path = Path("runs", "quality", f"{name}.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["patient", "fault", "caught", "found"], lineterminator="\n")
        writer.writeheader()

        def add(row: dict[str, Any]) -> None:
            writer.writerow(row | {"found": "; ".join(" ".join(one).strip() for one in row["found"])})
            file.flush()
            print(row["patient"], row["fault"], row["caught"], row["found"], flush=True)

        yield add


def table(files: Sequence[Path]) -> None:
    """Sum up tables of rows as Markdown: per fault how many were planted and caught, and the false alarms."""
    rows = [row for path in files for row in csv.DictReader(path.open(encoding="utf-8"))]
    print("| fault | planted | caught with the right reason | |\n|---|---|---|---|")
    for fault in FAULTS:
        mine = [row["caught"] == "True" for row in rows if row["fault"] == fault]
        print(f"| {fault} | {len(mine)} | {sum(mine)} | {sum(mine) / max(1, len(mine)):.1%} |")
    alone = [row["patient"] for row in rows if row["fault"] == "none"]
    alarmed = {row["patient"] for row in rows if row["fault"] in ("none", AMONG) and row["caught"] != "True"}
    print(f"| none: false alarms | {len(alone)} | {len(alarmed)} | {len(alarmed) / max(1, len(alone)):.1%} |")


def main(what: Literal["synthetic", "real", "table"], *paths: Path, heads: Count = 200, first: int = 0) -> None:
    """Plant faults in synthetic heads or in real patients, or sum tables up.

    Parameters
    ----------
    paths : the folder of real patients, or tables.
    heads : how many synthetic ones, from number `first` on.
    """
    if what == "synthetic":
        in_synthetic_heads(heads, first)
    elif what == "table":
        table(paths)
    elif len(paths) != 1:
        raise UsageError(f"real: found {len(paths)} folders; expected one")
    else:
        in_real_patients(paths[0])


Scans = dict[str, Volume]


def mirrored(scan: Volume) -> Volume:
    """Left and right exchanged in the voxels, and not in the header."""
    return Volume(np.flip(scan.array, _axis_along(scan, 0)).copy(), scan.affine)


def exchanged(scans: Mapping[str, Volume], one: str, other: str) -> Scans:
    """Two scans under each other's names."""
    return {**scans, one: scans[other], other: scans[one]}


def tilted(scans: Mapping[str, Volume], axis: int, degrees: float) -> Scans:
    """The whole head turned about an axis of the scanner (0 to the right, 1 to the front, 2 to the top)."""
    turn = np.eye(4)
    turn[:3, :3] = Rotation.from_rotvec(np.eye(3)[axis] * math.radians(degrees)).as_matrix()
    return {channel: Volume(scan.array, turn @ scan.affine) for channel, scan in scans.items()}


def emptied(scan: Volume) -> Volume:
    """Nothing but zeros."""
    return Volume(np.zeros_like(scan.array), scan.affine)


def cut(scan: Volume, away: Bool[np.ndarray, "x y z"]) -> Volume:
    """A part of the scan set to its background, the value of its first voxel."""
    return Volume(np.where(away, scan.array.flat[0], scan.array), scan.affine)


def shaded(scan: Volume, axis: int, ratio: float, extent_mm: float) -> Volume:
    """A coil that sees one end `ratio` times as bright as the other, `extent_mm` away."""
    along = points(scan)[..., axis]
    along = (along - along.mean()) / extent_mm
    return Volume((scan.array * np.exp(math.log(ratio) * along)).astype(np.float32), scan.affine)


def ghosted(scan: Volume, share: float) -> Volume:
    """The image again at half the field of view, along the axis nearest to the front, where phase is most often encoded."""
    axis = _axis_along(scan, 1)
    array = scan.array.astype(np.float32)
    return Volume(array + share * np.roll(array, scan.shape[axis] // 2, axis), scan.affine)


def points(scan: Volume) -> Float[np.ndarray, "x y z 3"]:
    """Where each voxel lies, RAS+ mm."""
    index = np.stack(np.meshgrid(*map(np.arange, scan.shape), indexing="ij"), axis=-1)
    return index @ scan.affine[:3, :3].T + scan.affine[:3, 3]


def _axis_along(scan: Volume, world: int) -> int:
    """The axis of the array that runs closest to an axis of the world."""
    return int(np.flatnonzero(nib.io_orientation(scan.affine)[:, 0] == world)[0])

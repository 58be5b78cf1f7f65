"""Geometry, proved: how a scan is stored does not matter, nor how it was sliced; distances hold there, and on the way back."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations, product
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from made.prepared import prepared_by
from scipy import ndimage
from scipy.spatial.distance import pdist
from scipy.spatial.transform import Rotation

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, canonical, read, resample, write
from mri_vit.explain.outputs import map_files
from mri_vit.prepare import register
from mri_vit.prepare.prepared import load_record
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.sections import Grid

ORIENTATIONS = ["".join(codes) for axes in permutations(("RL", "AP", "SI")) for codes in product(*axes)]
KINDS, ORDERS = ("int16", "uint8", "float32"), ("<", ">")
STORED = list(product(ORIENTATIONS, KINDS, ORDERS))
HANDFUL = [("LPS", "int16", ">"), ("SAR", "uint8", "<"), ("PIL", "float32", ">")]
FINE_GRID = Grid(edge=112, spacing_mm=2.0, patch=8)
TINY_GRID = Grid(edge=56, spacing_mm=4.0, patch=4)
NAME = "P-1"
Sampled = Callable[[np.ndarray], np.ndarray]  # points [n, 3] in mm to intensities


def pose(degrees: tuple[float, float, float], shift_mm: tuple[float, float, float] = (0, 0, 0)) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix()
    matrix[:3, 3] = shift_mm
    return matrix


def sliced(head: Sampled, spacing_mm: tuple[float, float, float], degrees: tuple[float, float, float]) -> Volume:
    """A head on an oblique grid around the origin: a voxel is the mean over its length along the longest side, as a slice is."""
    shape = tuple(round(length / mm) for length, mm in zip((180, 220, 190), spacing_mm, strict=True))
    affine = pose(degrees) @ np.diag([*spacing_mm, 1.0])
    affine[:3, 3] = -affine[:3, :3] @ ((np.array(shape) - 1) / 2)
    along = int(np.argmax(spacing_mm))
    parts = math.ceil(spacing_mm[along] / 2)  # two millimetres are the finest detail that a head of these has
    index = np.indices(shape).reshape(3, -1).T.astype(float)
    total = np.zeros(len(index))
    for part in range(parts):
        there = index.copy()
        there[:, along] += (part + 0.5) / parts - 0.5
        total += head(there @ affine[:3, :3].T + affine[:3, 3])
    return Volume((total / parts).reshape(shape).astype(np.float32), affine)


def study_in(folder: Path, grid: Grid) -> Study:
    return Study(name="test", cohort=folder / "c.csv", prepared=folder / "prepared", output=folder / "runs", grid=grid)


def patient_in(folder: Path, ending: str = ".nii.gz") -> Patient:
    return Patient(NAME, {channel: folder / f"{channel}{ending}" for channel in CHANNELS}, {}, {})


# How a scan is stored: whole intensities up to 250 and an affine of few binary digits, so that every way holds the same numbers.


MOVED_MM = np.array([0, -18, 12])


def head_of_mni(points: np.ndarray) -> np.ndarray:
    """The MNI152 brain, moved so that the grids above hold all of it; 0 outside."""
    whole, _ = register.template()
    index = (np.linalg.inv(whole.affine) @ np.vstack([(points + MOVED_MM).T, np.ones(len(points))]))[:3]
    return ndimage.map_coordinates(whole.array, index, order=1)


def contrast(t1: np.ndarray, channel: str) -> np.ndarray:
    made = {"t1": t1, "t1ce": t1**1.3, "t2": 1.1 - t1, "flair": 0.4 + 0.5 * np.sin(3 * t1)}
    return np.where(t1 > 0.05, 20 + 200 * made[channel].clip(0, 1.1), 0)


def plain_scan(channel: str, mm: float) -> Volume:
    scan = sliced(lambda points: contrast(head_of_mni(points), channel), (mm, mm, mm), (0, 0, 0))
    return Volume(np.rint(scan.array).astype(np.float32), scan.affine)


def store(scan: Volume, codes: str, kind: str, order: str, path: Path) -> None:
    turn = nib.orientations.ornt_transform(nib.io_orientation(scan.affine), nib.orientations.axcodes2ornt(codes))
    turned = nib.Nifti1Image(scan.array.astype(kind), scan.affine).as_reoriented(turn.astype(int).tolist())
    header = nib.Nifti1Header(endianness=order)
    header.set_data_dtype(np.dtype(order + np.dtype(kind).str[1:]))
    image = nib.Nifti1Image(np.asarray(turned.dataobj), turned.affine, header)
    image.set_sform(turned.affine, 1)
    image.set_qform(turned.affine, 1)
    image.header.set_xyzt_units("mm")
    path.write_bytes(image.to_bytes())


def tokens_of(stored: tuple[str, str, str], scans: dict[str, Volume], folder: Path) -> bytes:
    folder.mkdir()
    for channel, scan in scans.items():
        store(scan, *stored, folder / f"{channel}.nii")
    return (prepared_by(study_in(folder, TINY_GRID), patient_in(folder, ".nii")) / "tokens.safetensors").read_bytes()


def test_a_scan_is_the_same_to_the_bit_in_288_ways_to_store_it(tmp_path: Path) -> None:
    """All that follows in `prepare` sees what `canonical(read(...))` gives and nothing else of a file."""
    scan = plain_scan("t1", 8.0)
    assert len(set(STORED)) == 288
    for stored in STORED:
        store(scan, *stored, tmp_path / "scan.nii")
        assert (tmp_path / "scan.nii").read_bytes()[:4] == (348).to_bytes(4, "big" if stored[2] == ">" else "little")
        raw = read(tmp_path / "scan.nii")
        assert nib.aff2axcodes(raw.affine) == tuple(stored[0])
        found = canonical(raw)
        np.testing.assert_array_equal(found.array, scan.array, err_msg=str(stored))
        np.testing.assert_array_equal(found.affine, scan.affine, err_msg=str(stored))
        assert found.array.flags.c_contiguous  # sums in another order would differ in their last bit
        assert found.array.dtype == np.float32


def test_an_oblique_scan_lies_at_the_same_place_in_288_ways_to_store_it(tmp_path: Path) -> None:
    """Headers hold an oblique frame as float32, which is good to a thousandth of a millimetre."""
    scan = Volume(plain_scan("t1", 8.0).array, pose((12, -17, 9), (1, 2, 3)) @ np.diag([1.1, 0.9, 6.3, 1.0]))
    for stored in STORED:
        store(scan, *stored, tmp_path / "scan.nii")
        found = canonical(read(tmp_path / "scan.nii"))
        np.testing.assert_array_equal(found.array, scan.array, err_msg=str(stored))
        np.testing.assert_allclose(found.affine, scan.affine, atol=1e-3, err_msg=str(stored))


def test_a_patient_stored_in_other_ways_is_prepared_to_the_same_bytes(tmp_path: Path) -> None:
    scans = {channel: plain_scan(channel, 6.0) for channel in CHANNELS}
    expected = tokens_of(("RAS", "float32", "<"), scans, tmp_path / "plain")
    for stored in HANDFUL:
        assert tokens_of(stored, scans, tmp_path / "-".join(stored[:2])) == expected, stored


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_patient_is_prepared_to_the_same_bytes_in_288_ways_to_store_it(tmp_path: Path) -> None:
    scans = {channel: plain_scan(channel, 8.0) for channel in CHANNELS}
    expected = tokens_of(("RAS", "float32", "<"), scans, tmp_path / "plain")
    for number, stored in enumerate(STORED):
        assert tokens_of(stored, scans, tmp_path / str(number)) == expected, stored


# How a scan was sliced.

LANDMARKS_MM = np.array([[x, y, z, 1.0] for x in (-45, 45) for y in (-60, 50) for z in (-30, 40)]).T
SLICED = [  # spacing in mm, turned by degrees: axial, coronal and sagittal slices
    ((4.0, 4.0, 1.0), (0, 0, 0)),
    ((2.5, 2.5, 10.0), (20, -10, 8)),
    ((2.5, 10.0, 2.5), (-15, 12, -20)),
    ((10.0, 2.5, 2.5), (10, 18, 15)),
]


def landed(spacing_mm: tuple[float, float, float], degrees: tuple[float, float, float], folder: Path) -> np.ndarray:
    """Where the landmarks lie on the grid, [3, n] mm: each scan is sliced so, T2 and FLAIR turned by 3° more."""
    folder.mkdir()
    for number, channel in enumerate(CHANNELS):
        x, y, z = degrees
        more = 3.0 * (number >= 2)
        scan = sliced(lambda points, c=channel: contrast(head_of_mni(points), c), spacing_mm, (x + more, y, z - more))
        write(scan, folder / f"{channel}.nii.gz")
    record = load_record(prepared_by(study_in(folder, TINY_GRID), patient_in(folder)))
    return np.stack([(np.array(record["to_grid"][channel]) @ LANDMARKS_MM)[:3] for channel in CHANNELS])


def test_a_head_lands_at_the_same_place_however_it_was_sliced(tmp_path: Path) -> None:
    """Truth is known: the head is the template's, moved, and the scans of a patient lie as their headers say."""
    truth = LANDMARKS_MM[:3] + MOVED_MM[:, None]
    for number, (spacing_mm, degrees) in enumerate(SLICED):
        error = np.linalg.norm(landed(spacing_mm, degrees, tmp_path / str(number)) - truth, axis=1)
        print(f"{spacing_mm} mm, {degrees}°: landmarks off by {error.mean():.2f} mm, at most {error.max():.2f}")
        assert error.mean() < 0.5, (spacing_mm, degrees)
        assert error.max() < 1.0, (spacing_mm, degrees)


# A phantom of known distances: bright balls in an even brain.

BALLS_MM = np.array([[0.0, 40, 20], [-30, -10, 30], [32, -5, 25], [5, -45, 10], [-25, 15, -20], [28, 20, -15]])
BALL_MM = 6.0  # standard deviation of a ball's intensity


def phantom(points: np.ndarray, bright: float) -> np.ndarray:
    inside = ((points / [66, 82, 62]) ** 2).sum(axis=1) < 1
    away = ((points[:, None] - BALLS_MM) ** 2).sum(axis=2)
    return np.where(inside, 300 + bright * np.exp(-away / (2 * BALL_MM**2)).sum(axis=1), 0)


PHANTOM = {  # channel: spacing in mm, turned by degrees, how bright the balls are
    "t1": ((1.5, 1.5, 5.0), (12, -8, 5), 400),
    "t1ce": ((1.6, 1.6, 4.0), (-10, 5, 14), 600),
    "t2": ((2.0, 5.0, 1.5), (4, 16, -9), 500),
    "flair": ((6.0, 1.5, 1.5), (0, -12, 10), 450),
}


def balls_in(volume: Volume, near_mm: np.ndarray) -> np.ndarray:
    """Centre of mass, mm, of what is brighter than its surroundings around each of the points [n, 3]."""
    points = np.argwhere(volume.array != 0) @ volume.affine[:3, :3].T + volume.affine[:3, 3]
    values = volume.array[volume.array != 0]
    found = []
    for near in near_mm:
        away = np.linalg.norm(points - near, axis=1)
        weight = np.where(away < 16, values - np.median(values[(away > 18) & (away < 22)]), 0).clip(0)
        weight[weight < 0.3 * weight.max()] = 0
        found.append(weight @ points / weight.sum())
    return np.array(found)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Patient, Study]:
    folder = tmp_path_factory.mktemp("phantom")
    for number, (channel, (spacing_mm, degrees, bright)) in enumerate(PHANTOM.items()):
        scan = sliced(lambda points, b=bright: phantom(points, b), spacing_mm, degrees)
        noise = np.random.default_rng(number).normal(0, 4, scan.shape)
        write(
            Volume(np.where(scan.array > 0, scan.array + noise, 0).astype(np.float32), scan.affine), folder / f"{channel}.nii.gz"
        )
    patient, study = patient_in(folder), study_in(folder, FINE_GRID)
    prepared_by(study, patient)
    return patient, study


def test_known_distances_hold_on_the_grid_within_half_a_millimetre(measured: tuple[Patient, Study]) -> None:
    patient, study = measured
    folder = study.prepared / patient.id
    volume = tokens.to_volume(tokens.load(folder / "tokens.safetensors")).astype(np.float32)
    for channel, array in zip(CHANNELS, volume, strict=True):
        expected = (np.array(load_record(folder)["to_grid"][channel]) @ np.vstack([BALLS_MM.T, np.ones(len(BALLS_MM))]))[:3].T
        found = balls_in(Volume(array, np.array(FINE_GRID.affine)), expected)
        place, distance = np.linalg.norm(found - expected, axis=1), np.abs(pdist(found) - pdist(BALLS_MM))
        print(f"{channel}: distances off by at most {distance.max():.2f} mm, places by {place.max():.2f} mm")
        assert distance.max() < 0.5, channel
        assert place.max() < 0.5, channel


def test_a_map_of_the_grid_comes_back_to_each_scans_own_balls_within_half_a_millimetre(measured: tuple[Patient, Study]) -> None:
    """Three maps say where on the grid a place is, mm; read on a scan's own voxels at a ball, they give the ball on the grid."""
    patient, study = measured
    stored = tokens.load(study.prepared / patient.id / "tokens.safetensors")
    volume = tokens.to_volume(stored).astype(np.float32)
    brain, grid_affine = (volume != 0).any(axis=0), np.array(FINE_GRID.affine)
    edge_mm = FINE_GRID.patch * FINE_GRID.spacing_mm
    first = grid_affine[:3, 3] + FINE_GRID.spacing_mm * (FINE_GRID.patch - 1) / 2
    centres = first + edge_mm * np.array(np.unravel_index(stored.position, (FINE_GRID.side,) * 3)).T
    for index, (channel, frame) in enumerate(
        map_files.frames_of_patient(patient, read(patient.scans["t1ce"] or Path()), study).items()
    ):
        there = (frame.to_grid @ np.vstack([BALLS_MM.T, np.ones(len(BALLS_MM))]))[:3].T
        on_grid = balls_in(Volume(volume[index], grid_affine), there)
        space = map_files.space(frame.shape, frame.affine, frame.to_grid, brain, stored.position, FINE_GRID)
        maps = [map_files.on_scan(centres[:, axis].astype(np.float32), space) for axis in range(3)]
        at = np.linalg.inv(frame.affine) @ np.vstack([BALLS_MM.T, np.ones(len(BALLS_MM))])
        carried = np.stack([ndimage.map_coordinates(one.array, at[:3], order=1) for one in maps], axis=1)
        error = np.linalg.norm(carried - on_grid, axis=1)
        print(f"{channel}: carried back within {error.max():.2f} mm")
        assert error.max() < 0.5, channel


def test_resampling_a_box_is_resampling_the_whole() -> None:
    """What is prepared on the brain's box alone is what all of a scan would give."""
    scan = plain_scan("t1", 5.0)
    for background in (0.0, 7.0):
        array = np.where(scan.array == 0, background, scan.array).astype(np.float32)
        filled = Volume(array, pose((7, -3, 5)) @ scan.affine)
        copy = register.coarse_copy(filled, 8.0)
        whole = resample(register.smoothed(filled, copy.spacing_mm), copy.shape, copy.affine, outside=background)
        np.testing.assert_allclose(copy.array, whole.array, atol=1e-3)
        assert copy.array.std() > 10

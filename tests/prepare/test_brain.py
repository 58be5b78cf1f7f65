"""Whether a scan was skull-stripped: made heads of ellipsoids, and real ones where ../shared is present."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from mri_vit.data.volume import Volume, canonical, read, resample
from mri_vit.errors import UsageError
from mri_vit.prepare import brain
from mri_vit.settings.sections import Prepare

NEAREST = 1  # sitk.sitkNearestNeighbor
SEQUENCES = {"t1": (0.9, 0.5, 0.15), "t2": (0.6, 0.5, 1.0), "flair": (0.7, 0.6, 0.1)}  # fat, brain and fluid


def made_head(sequence: str, voxel_mm: float = 3.0) -> tuple[Volume, np.ndarray]:
    """A head of 3600 ml with air of 0, and which of it is brain: 1700 ml, folded and with ventricles."""
    fat, tissue, fluid = SEQUENCES[sequence]
    points = np.stack(np.meshgrid(*[np.arange(-120, 121, voxel_mm)] * 3, indexing="ij"))
    depth_mm = 95 * (1 - np.linalg.norm(points / np.array([80, 100, 105])[:, None, None, None], axis=0))
    random = np.random.default_rng(0)
    folds = ndimage.gaussian_filter(random.normal(size=depth_mm.shape), 4 / voxel_mm) > 0.14  # furrows, 15 mm deep
    inside = depth_mm > 20
    signal = np.select(
        [depth_mm < 0, depth_mm < 8, depth_mm < 16, ~inside | (folds & (depth_mm < 35)) | (depth_mm > 70)],
        [0, fat, 0.08, fluid],
        tissue,
    )
    noise = random.normal(0, 0.03, signal.shape)
    array = np.where(depth_mm >= 0, 700 * np.abs(signal + noise) + 1, 0)
    return Volume(array.astype(np.float32), np.diag([voxel_mm, voxel_mm, voxel_mm, 1.0])), inside


def scaled(scan: Volume, factor: float) -> Volume:
    return Volume(scan.array, scan.affine @ np.diag([factor, factor, factor, 1.0]))


def emptied(scan: Volume, keep: np.ndarray, background: float = 0.0) -> Volume:
    return Volume(np.where(keep, scan.array, background).astype(np.float32), scan.affine)


def slabs(scan: Volume) -> Iterator[Volume]:
    """The upper half, the lower one and the middle third of what is there."""
    levels = np.flatnonzero((scan.array != brain.border_value(scan.array)).any(axis=(0, 1)))
    low, high = int(levels[0]), int(levels[-1]) + 1
    for start, stop in ((low + high) // 2, high), (low, (low + high) // 2), (low + (high - low) // 3, high - (high - low) // 3):
        affine = scan.affine.copy()
        affine[:3, 3] += start * affine[:3, 2]
        yield Volume(np.ascontiguousarray(scan.array[..., start:stop]), affine)


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("scale", [0.6, 0.8, 1.0])
def test_a_made_head_is_no_stripped_brain_at_any_size_and_its_brain_is_one(sequence: str, scale: float):
    head, inside = made_head(sequence)
    head = scaled(head, scale)
    alone = emptied(head, inside)
    assert not brain.is_stripped(head)
    assert brain.is_stripped(alone)
    assert not any(brain.is_stripped(part) for part in slabs(head))
    assert all(brain.is_stripped(part) for part in slabs(alone))


def test_a_scan_is_judged_the_same_whatever_its_scale_of_intensities():
    head, inside = made_head("t1")
    for keep, stripped in (head.array > 0, False), (inside, True):
        values = head.array[keep]
        standard = Volume((head.array - values.mean()) / values.std(), head.affine)
        for background in (0.0, -6.0):
            assert brain.is_stripped(emptied(standard, keep, background)) is stripped
        assert brain.is_stripped(emptied(Volume(head.array * 40, head.affine), keep)) is stripped


def test_noise_around_a_head_or_a_brain_is_no_emptied_background():
    head, inside = made_head("t1")
    noise = np.abs(np.random.default_rng(1).normal(0, 10, head.shape))
    for keep in (head.array > 0, inside):
        assert not brain.is_stripped(Volume(np.where(keep, head.array, noise).astype(np.float32), head.affine))


def test_nothing_but_background_and_what_is_larger_than_a_brain_are_no_stripped_brain():
    head, _ = made_head("t1")
    assert not brain.is_stripped(emptied(head, np.zeros(head.shape, bool)))
    uniform = Volume((head.array > 0).astype(np.float32), head.affine)
    assert brain.skull_gap(uniform, 0.0) == 0
    assert not brain.is_stripped(uniform)  # 3600 ml


def test_a_loosely_stripped_brain_is_looked_for_and_the_doubt_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    head, inside = made_head("t1")
    monkeypatch.setattr(brain, "_deepbet", lambda scans, name: inside)
    for gap, by, notes in ((0.1, "none", 0), (0.2, "deepbet", 1), (0.4, "deepbet", 0)):
        monkeypatch.setattr(brain, "skull_gap", lambda scan, background, gap=gap: gap)
        alone = emptied(head, inside)
        extracted = brain.extract(alone, None, "t1ce.nii.gz", None, Prepare(), tmp_path)
        assert (extracted.source, len(extracted.notes)) == (by, notes)
    assert brain.extract(alone, None, "x", None, Prepare(brain="none"), tmp_path).notes == ()


def test_a_head_without_deepbet_is_refused_with_both_cures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "deepbet", None)
    with pytest.raises(UsageError, match=r'(?s)mri-vit\[brain\].*prepare\.brain = "none"'):
        brain.extract(made_head("t1")[0], None, "t1ce.nii.gz", None, Prepare(), tmp_path)


def outline(array: np.ndarray) -> np.ndarray:
    """The head of a raw scan with all that is in it; what is left is air."""
    bright = ndimage.gaussian_filter(array, 1) > 0.08 * np.percentile(array, 99)
    labels, _ = ndimage.label(bright)  # pyright: ignore[reportGeneralTypeIssues]
    largest = labels == np.bincount(labels.ravel())[1:].argmax() + 1
    slices = [ndimage.binary_closing(largest[..., at], iterations=8) for at in range(array.shape[2])]
    return np.stack([np.asarray(ndimage.binary_fill_holes(closed)) for closed in slices], axis=2)


def defaced(scan: Volume) -> Volume:
    """Without the front of its lower half."""
    _, y, z = np.nonzero(scan.array)
    keep = np.ones(scan.shape, bool)
    keep[:, int(np.quantile(y, 0.6)) :, : int(np.quantile(z, 0.5))] = False
    return emptied(scan, keep)


def smaller(scan: Volume, factor: float) -> Volume:
    """The head itself scaled, on the same voxels."""
    to_source = np.diag([1 / factor] * 3 + [1.0])
    middle = scan.affine @ [*(np.array(scan.shape) / 2), 1]
    to_source[:3, 3] = middle[:3] * (1 - 1 / factor)
    return resample(scan, scan.shape, scan.affine, to_source, NEAREST)


@pytest.mark.parametrize("sequence", ["t1", "t1ce", "t2", "flair"])
def test_a_real_head_is_never_taken_for_stripped_whatever_was_done_to_it(shared: Path, sequence: str):
    raw = canonical(read(shared / "data" / "raw" / "TCGA-FG-6692" / f"{sequence}.nii.gz"))
    head = emptied(raw, outline(raw.array))
    field = np.exp(np.linspace(-1, 1, raw.shape[0]))[:, None, None]
    changed = {
        "as it was scanned": raw,
        "its air set to 0": head,
        "dark voxels set to 0": emptied(raw, raw.array > 0.15 * np.percentile(raw.array, 99)),
        **{f"scaled by {factor}": scaled(head, factor) for factor in (0.6, 0.8)},
        "scaled by 0.7 on its voxels": smaller(head, 0.7),
        "defaced": scaled(defaced(head), 0.8),
        "in a coil field": Volume((head.array * field).astype(np.float32), head.affine),
        **dict(zip(("its upper half", "its lower half", "its middle third"), slabs(scaled(head, 0.8)), strict=True)),
    }
    gaps = {name: brain.skull_gap(scan, brain.border_value(scan.array)) for name, scan in list(changed.items())[1:]}
    assert [name for name, scan in changed.items() if brain.is_stripped(scan)] == [], gaps
    assert min(gaps.values()) >= brain.HEAD_GAP, gaps


def test_real_stripped_scans_are_taken_for_stripped_whole_in_slabs_and_standardised(shared: Path):
    files = [file for folder in ("stripped", "tumours_two") for file in (shared / "data" / folder).glob("*/*.nii.gz")]
    files += (shared / "data" / "tumours").glob("*/t1ce.nii.gz")
    scans = {file: canonical(read(file)) for file in files if file.stem != "seg.nii"}
    assert len(scans) == 4 + 6 + 7
    assert [str(file) for file, scan in scans.items() if not brain.is_stripped(scan)] == []
    for file in [file for file in scans if file.name == "t2.nii.gz"]:
        scan = scaled(scans[file], 0.7)
        assert all(brain.is_stripped(part) for part in slabs(scan)), file
        inside = scan.array != 0
        standard = Volume((scan.array - scan.array[inside].mean()) / scan.array[inside].std(), scan.affine)
        assert brain.is_stripped(emptied(standard, inside, -5.0)), file


@pytest.mark.parametrize("sequence", ["t1", "t1ce", "t2", "flair"])
def test_a_real_head_is_taken_for_stripped_once_it_is(shared: Path, sequence: str):
    folder = shared / "data" / "raw" / "TCGA-FG-6692"
    raw, drawn = (canonical(read(folder / name)) for name in (f"{sequence}.nii.gz", f"reference/hdbet_mask_{sequence}.nii.gz"))
    assert brain.is_stripped(emptied(raw, drawn.array > 0))
    away_mm = np.asarray(ndimage.distance_transform_edt(drawn.array == 0, sampling=raw.spacing_mm))
    assert brain.is_stripped(emptied(raw, away_mm <= 2))

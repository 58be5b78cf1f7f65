"""Pictures of maps: left is left, the peak is where it should be, the outline holds the tumour, and weak maps look weak."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import binary_fill_holes

from mri_vit.data.volume import Volume, canonical, cut_box
from mri_vit.explain.outputs import overlays
from mri_vit.explain.outputs.overlays import PLANES

SHAPE, SPACING_MM = (40, 44, 22), (4.0, 4.0, 7.0)
HOT = (30, 12, 15)  # to the right, at the back, above
CODES = [("R", "A", "S"), ("L", "P", "S"), ("S", "R", "P"), ("A", "I", "L")]


def stored(array: np.ndarray, codes: tuple[str, ...]) -> Volume:
    """An array laid as RAS+, as a scanner may have stored it."""
    affine = np.diag([*SPACING_MM, 1.0])
    affine[:3, 3] = -affine[:3, :3] @ (np.array(SHAPE) / 2)
    turn = nib.orientations.ornt_transform(nib.orientations.axcodes2ornt("RAS"), nib.orientations.axcodes2ornt(codes))
    turned = nib.orientations.apply_orientation(array, turn)
    return Volume(np.ascontiguousarray(turned), affine @ nib.orientations.inv_ornt_aff(turn, SHAPE))


def ball(centre: tuple[int, int, int], radius_mm: float) -> np.ndarray:
    away = (np.indices(SHAPE) - np.array(centre)[:, None, None, None]) * np.array(SPACING_MM)[:, None, None, None]
    return np.linalg.norm(away, axis=0) <= radius_mm


HEAD = ball((20, 22, 11), 66)
TUMOUR = ball(HOT, 16)


def heat_at(voxel: tuple[int, int, int], value: float) -> np.ndarray:
    array = np.where(HEAD, 0.5, 0).astype(np.float32)
    array[ball(voxel, 9)] = value / 2
    array[voxel] = value
    return array


def drawn(path: Path, heat: np.ndarray, tumour: np.ndarray | None = None, codes: tuple[str, ...] = CODES[0]) -> np.ndarray:
    scan = np.where(HEAD, 100, 0).astype(np.float32)
    outline = None if tumour is None else stored(tumour.astype(np.uint8), codes).array > 0
    under = overlays.underlay(stored(scan, codes), stored(HEAD.astype(np.uint8), codes).array > 0, outline)
    overlays.draw(under, stored(heat, codes), "a title", path)
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def window() -> overlays.Window:
    return overlays.window(HEAD, SPACING_MM)


def test_all_of_a_scan_without_a_brain_is_shown():
    scan = Volume(np.ones((5, 6, 7), np.float32), np.eye(4))
    part = cut_box(scan, overlays.shown_box(scan.array < 1, scan.spacing_mm))
    assert part.shape == scan.shape
    np.testing.assert_array_equal(part.affine, scan.affine)


@pytest.mark.parametrize("codes", CODES, ids="".join)
def test_the_same_patient_gives_the_same_picture_however_the_scan_was_stored(codes: tuple[str, ...], tmp_path: Path):
    heat = heat_at(HOT, 12)
    drawn(tmp_path / "ras.png", heat, TUMOUR)
    drawn(tmp_path / "other.png", heat, TUMOUR, codes)
    assert (tmp_path / "ras.png").read_bytes() == (tmp_path / "other.png").read_bytes()


def test_the_patients_right_is_on_the_pictures_left_and_the_top_is_up():
    for (name, axis, letters), quarter in zip(PLANES, ("left bottom", "left top", "right top"), strict=True):
        plane = overlays.plane(heat_at(HOT, 12), axis, HOT[axis], window())
        down, right = np.unravel_index(plane.argmax(), plane.shape)
        side = "left" if right < plane.shape[1] / 2 else "right"
        end = "top" if down < plane.shape[0] / 2 else "bottom"
        assert f"{side} {end}" == quarter, name  # HOT is to the right (axial, coronal: left), at the back, above
        assert letters[0] == ("A" if name == "sagittal" else "R")


@pytest.mark.parametrize(("axis", "voxel"), [(a, v) for a in range(3) for v in (HOT, (8, 30, 5), (20, 22, 11), (33, 33, 12))])
def test_a_peaks_pixel_is_where_the_cross_points(axis: int, voxel: tuple[int, int, int]):
    array = np.zeros(SHAPE, np.float32)
    array[voxel] = 1
    plane = overlays.plane(array, axis, voxel[axis], window())
    rows, columns = np.indices(plane.shape)
    centre = ((rows + 0.5) * plane).sum() / plane.sum(), ((columns + 0.5) * plane).sum() / plane.sum()
    np.testing.assert_allclose(window().pixel(voxel, axis), centre, atol=0.5)


def test_panels_are_in_millimetres_whatever_the_voxels_are():
    shown = window()
    per_mm = [scale / mm for scale, mm in zip(shown.scale, SPACING_MM, strict=True)]
    assert per_mm == pytest.approx([per_mm[0]] * 3)
    plane = overlays.plane(HEAD.astype(np.float32), 1, 22, shown) > 0.5  # a ball is round in every plane
    height, width = (np.ptp(np.flatnonzero(plane.any(axis=a))) for a in (1, 0))
    assert height == pytest.approx(width, rel=0.06)  # 7 mm voxels


def test_the_head_is_shown_with_its_margin_and_no_further():
    shown = window()
    for axis, mm in enumerate(SPACING_MM):
        held = np.flatnonzero(HEAD.any(axis=tuple({0, 1, 2} - {axis})))
        assert shown.start[axis] == max(held[0] - round(overlays.MARGIN_MM / mm), 0)
        assert shown.start[axis] + shown.size[axis] <= min(held[-1] + round(overlays.MARGIN_MM / mm), SHAPE[axis] - 1) + 1


def test_the_outline_encloses_the_tumour():
    panel = np.zeros((*window().panel(2), 3), np.uint8)
    plane = overlays.plane(TUMOUR, 2, HOT[2], window())
    line = (overlays.outlined(panel, plane, overlays.OUTLINE) == overlays.OUTLINE).all(axis=2)
    np.testing.assert_array_equal(binary_fill_holes(line), plane > 0.5)
    assert not line[tuple(round(x) for x in window().pixel(HOT, 2))]  # a line, so the tumour itself stays to be seen


def test_in_the_picture_the_map_on_the_tumour_lies_within_the_outline(tmp_path: Path):
    picture = drawn(tmp_path / "picture.png", heat_at(HOT, 16), TUMOUR)[:, : overlays.PANELS_PX]
    line = (np.abs(picture - np.array(overlays.OUTLINE)) <= 8).all(axis=2)
    within = np.asarray(binary_fill_holes(line))
    warm = picture[..., 0] - picture[..., 2] > 60  # the scale's upper half; a scan is grey, the outline cyan
    assert line.sum() > 500
    assert warm.sum() > 200
    assert within[warm].mean() > 0.98
    beside = drawn(tmp_path / "beside.png", heat_at((9, 30, 8), 16), TUMOUR)[:, : overlays.PANELS_PX]
    warm = beside[..., 0] - beside[..., 2] > 60
    within = np.asarray(binary_fill_holes((np.abs(beside - np.array(overlays.OUTLINE)) <= 8).all(axis=2)))
    assert within[warm].mean() < 0.02


def test_a_tumour_adds_a_row_through_the_tumour(tmp_path: Path):
    bare = drawn(tmp_path / "bare.png", heat_at((9, 30, 8), 16))
    with_tumour = drawn(tmp_path / "tumour.png", heat_at((9, 30, 8), 16), TUMOUR)
    assert with_tumour.shape[0] > bare.shape[0] * 1.3
    assert with_tumour.shape[1] == bare.shape[1]
    last_row = with_tumour[bare.shape[0] - overlays.FOOT :]
    assert ((np.abs(last_row - np.array(overlays.OUTLINE)) <= 8).all(axis=2)).sum() > 100


def test_an_even_share_or_less_leaves_the_scan_as_it_is():
    grey = np.linspace(0, 1, 50).reshape(5, 10)
    for share in (0.0, 0.3, 1.0):
        shown = overlays.blend(grey, np.full((5, 10), share))
        np.testing.assert_array_equal(shown, np.rint(255 * grey).astype(np.uint8)[..., None].repeat(3, axis=2))


def test_every_doubling_is_further_from_the_scan_and_the_top_still_shows_it():
    dark, bright = np.zeros((1, 5)), np.ones((1, 5))
    heat = np.array([list(overlays.SCALE)], float)
    change = np.abs(overlays.blend(bright, heat).astype(int) - 255).sum(axis=2)[0]
    assert (np.diff(change[:4]) > 0).all()
    assert change[1] < 0.3 * 3 * 255  # twice an even share looks weak
    top = np.abs(overlays.blend(bright, heat).astype(int) - overlays.blend(dark, heat)).max(axis=2)[0, -1]
    assert top == pytest.approx(255 * (1 - overlays.OPACITY), abs=1)  # anatomy's own contrast through the strongest colour


def test_a_colour_means_the_same_value_in_every_picture():
    weak, strong = heat_at(HOT, 2.0), heat_at(HOT, 2.0)
    strong[ball((9, 30, 8), 9)] = 40  # another place is far hotter
    shown = overlays.window(HEAD, SPACING_MM)
    scan = canonical(Volume(np.where(HEAD, 100, 0).astype(np.float32), np.diag([*SPACING_MM, 1.0])))
    one, other = (overlays.panel(scan, (0.0, 100.0), Volume(heat, scan.affine), 2, HOT, shown) for heat in (weak, strong))
    down, right = (round(x) for x in shown.pixel(HOT, 2))
    np.testing.assert_array_equal(
        one[down - 6 : down + 6, right - 6 : right + 6], other[down - 6 : down + 6, right - 6 : right + 6]
    )


def test_every_picture_has_the_whole_scale_beside_it(tmp_path: Path):
    for value in (1.2, 30):
        picture = drawn(tmp_path / "picture.png", heat_at(HOT, value))[:, overlays.PANELS_PX :]
        brightest = overlays.blend(np.ones((1, 1)), np.full((1, 1), 16.0))[0, 0]
        assert (np.abs(picture - brightest).max(axis=2) <= 6).any(), value


def test_a_map_of_zeros_and_a_scan_of_one_value_make_a_picture_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(overlays, "NOTICE_COLOUR", overlays.WHITE)
    picture = drawn(tmp_path / "empty.png", np.zeros(SHAPE, np.float32))[:, : overlays.PANELS_PX]
    assert (picture.max(axis=2) - picture.min(axis=2)).max() <= 1  # no colour anywhere
    assert picture.max() > 100


@pytest.mark.parametrize(("peak", "even"), [(1.0, True), (1.1, True), (1.4, True), (1.5, False), (12.0, False)])
def test_a_map_that_is_nearly_even_says_so_on_the_picture_in_every_row_that_has_the_map(
    peak: float, even: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows, row = [], overlays.Row
    monkeypatch.setattr(overlays, "Row", lambda *given, **named: rows.append(row(*given, **named)) or rows[-1])
    heat = np.where(HEAD, min(peak, 0.99), 0).astype(np.float32)
    heat[HOT] = peak
    picture = drawn(tmp_path / "picture.png", heat, TUMOUR)[:, : overlays.PANELS_PX]
    notices = [one.notice for one in rows]
    assert not notices[0]  # the bare scan
    assert [bool(notice) for notice in notices[1:]] == [even, even]
    assert all(f"peak {peak:.1f}" in notice for notice in notices[1:] if even)
    assert (np.abs(picture - np.array(overlays.NOTICE_COLOUR)) <= 8).all(axis=2).any() == even


def test_what_counts_as_nearly_even_can_hardly_be_seen():
    white = np.ones((1, 1))
    at_limit = overlays.blend(white, np.full((1, 1), overlays.MIN_VISIBLE_PEAK)).astype(int)
    assert np.abs(at_limit - 255).max() <= 0.1 * 255
    doubled = overlays.blend(white, np.full((1, 1), 2 * overlays.MIN_VISIBLE_PEAK)).astype(int)
    assert np.abs(doubled - 255).max() > 0.2 * 255


@pytest.mark.parametrize(
    ("heat", "said", "crosses"),
    [
        (np.where(HEAD, 1, 0), "the scan; the map is 1.0 relative to a uniform map everywhere", 0),
        (np.zeros(SHAPE), "the scan; the map is 0 everywhere", 0),
        (heat_at(HOT, 8), "the scan through the map's peak (cross): 8.0 relative to a uniform map", 3),
    ],
)
def test_a_map_that_is_the_same_everywhere_has_no_peak_and_is_shown_through_the_middle(
    heat: np.ndarray, said: str, crosses: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    marked, rows, voxels, row, panel = [], [], [], overlays.Row, overlays.panel
    monkeypatch.setattr(overlays, "marked", lambda panel, pixel: marked.append(pixel) or panel)
    monkeypatch.setattr(overlays, "Row", lambda *given, **named: rows.append(given) or row(*given, **named))
    monkeypatch.setattr(overlays, "panel", lambda *given: voxels.append(given[4]) or panel(*given))
    drawn(tmp_path / "picture.png", heat.astype(np.float32))
    assert rows[0][0] == said
    assert len(marked) == crosses
    assert all(HEAD[voxel] for voxel in voxels)

"""Quality: faults planted in one synthetic head are found in the figures, and nothing is found in the head as it is."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from made.quality import copies_of_rims
from PIL import Image
from reproductions.null_studies import quality_faults
from scipy.ndimage import gaussian_filter

from mri_vit.data.volume import Volume
from mri_vit.prepare import agreement, quality, register
from mri_vit.settings.sections import Grid, Quality
from mri_vit.synthetic import draw_cases, scan

HEADS = draw_cases(2, np.random.default_rng(4))


def scans_of(number: int) -> quality_faults.Scans:
    return scan(HEADS[number], np.random.default_rng([4, number]))[0]


@pytest.fixture(scope="module")
def as_it_is():
    """A head's record and findings."""
    return quality_faults.looked("head", scans_of(0), quality_faults.GRID)


def found_in(scans: quality_faults.Scans) -> set[tuple[str, str]]:
    return set(quality_faults.looked("head", scans, quality_faults.GRID)[1])


def test_nothing_is_found_in_a_head_as_it_is(as_it_is):
    record, found = as_it_is
    assert found == []
    assert min(record["quality"]["coverage"].values()) > 0.95
    assert all(one["own_to_mirrored"] > 1.3 for name, one in record["quality"]["scans"].items() if name != "t1ce")


def test_a_mirrored_scan_another_heads_scan_and_a_shaded_one_are_told_apart(as_it_is):
    scans = scans_of(0)
    shaded = quality_faults.planted("strong bias in t1ce", scans, {}, as_it_is[0], 0)
    found = found_in({**shaded, "t2": quality_faults.mirrored(scans["t2"]), "flair": scans_of(1)["flair"]})
    assert {("mirrored", "t2"), ("another head", "flair"), ("shading", "t1ce")} <= found
    assert not {("mirrored", "flair"), ("another head", "t2"), ("another head", "t1"), ("mirrored", "t1")} & found


def test_exchanged_scans_a_tilt_and_ghosts_are_found(as_it_is):
    exchanged = quality_faults.exchanged(scans_of(0), "t1", "t1ce")
    found = found_in(
        {
            **quality_faults.tilted(exchanged, 0, 40.0),
            "flair": quality_faults.tilted({"f": quality_faults.ghosted(exchanged["flair"], 0.15)}, 0, 40.0)["f"],
        }
    )
    assert {("exchanged", "t1ce t1"), ("turned", ""), ("ghosts", "flair")} <= found


def test_a_brain_without_its_cerebellum_and_exchanged_t2_and_flair_are_found(as_it_is):
    cut = quality_faults.planted("no cerebellum", scans_of(0), {}, as_it_is[0], 0)
    assert found_in(quality_faults.exchanged(cut, "t2", "flair")) >= {("part missing", ""), ("exchanged", "flair t2")}


def test_similarity_is_the_mean_of_squared_correlations_in_cubes():
    random = np.random.default_rng(0)
    one, other = random.normal(size=(2, 7, 7, 7))
    where = random.random((7, 7, 7)) < 0.8
    squares = []
    for i, j, k in np.argwhere(where):
        cube = tuple(slice(max(0, n - 1), n + 2) for n in (i, j, k))
        inside = where[cube]
        squares.append(np.corrcoef(one[cube][inside], other[cube][inside])[0, 1] ** 2)
    one, other, where = (np.pad(array, 2) for array in (one, other, where))
    assert agreement.similarity(one, other, where, 3) == pytest.approx(np.mean(squares), abs=1e-4)


def test_noise_is_measured_as_it_was_added():
    random = np.random.default_rng(1)
    brain = np.zeros((40, 40, 40), bool)
    brain[5:35, 5:35, 5:35] = True
    smooth = 100 + 5 * gaussian_filter(random.normal(size=brain.shape), 4) * 20
    scan_of = Volume(np.where(brain, smooth + random.normal(0, 4, brain.shape), 0), np.eye(4))
    expected = np.median(smooth[brain]) / 4
    assert quality.signal_to_noise(scan_of, brain) == pytest.approx(expected, rel=0.1)


def test_of_a_standardised_scan_no_signal_is_told():
    random = np.random.default_rng(1)
    brain = np.ones((20, 20, 20), bool)
    standardised = Volume(random.normal(size=brain.shape), np.eye(4))
    assert quality.signal_to_noise(standardised, brain) is None


def test_folds_are_looked_for_in_slices_that_show_them_and_not_in_maps_of_a_quantity():
    def of(mm):
        return Volume(np.zeros((4, 4, 4), np.float32), np.diag([1.0, 1.0, mm, 1.0]))

    assert agreement.shows_folds("flair", of(5.5000005))
    assert not agreement.shows_folds("flair", of(6.0))
    assert not agreement.shows_folds("asl_cbf", of(2.0))


def test_a_mask_that_fills_its_grid_has_a_coarse_copy_that_does():
    full = register.coarse_copy(Volume(np.ones((30, 30, 30), np.float32), np.eye(4)), 2.0)
    assert full.shape == (15, 15, 15)
    assert (full.array == 1).all()


def test_a_ghost_is_measured_as_it_was_added():
    brain = np.zeros((60, 60, 60), bool)
    brain[20:40, 20:40, 20:40] = True
    clean = np.where(brain, 100.0, 0.0)
    assert quality.ghosts(Volume(clean, np.eye(4)), brain, 0.0) == pytest.approx(0)
    ghosted = clean + 0.05 * np.roll(clean, 30, axis=1)
    # beside the ghost, two voxels on each side belong to what might be one, so that its mean is thinner
    found = quality.ghosts(Volume(ghosted, np.eye(4)), brain, 0.0)
    assert found is not None
    assert 0.02 < found <= 0.05


def test_shading_is_the_ratio_of_the_fields_ends():
    field = np.exp(np.linspace(0, np.log(3), 10_001))
    low, high = 0.02, 0.98
    assert quality.shading(field, np.ones_like(field)) == pytest.approx(3 ** (high - low), rel=1e-3)


def test_copies_are_means_of_brain_voxels_at_their_place():
    grid = Grid(edge=8, spacing_mm=1.0, patch=2)
    volume = np.zeros((2, 8, 8, 8), np.float32)
    inside = np.zeros((8, 8, 8), bool)
    inside[2:6, 2:6, 2:6] = True
    inside[2, 2, 2] = False
    volume[0] = np.arange(8)[:, None, None]
    found = agreement.of_grid(volume, inside, ("t1", "t2"), grid)
    assert set(found.scans) == {"t1"}  # T2 is empty
    assert found.brain.sum() == 8
    assert found.scans["t1"][0, 0, 0] == pytest.approx((3 * 2 + 4 * 3) / 7)  # the missing voxel counts nowhere
    assert found.affine[:3, 3] == pytest.approx(np.array(grid.affine)[:3, 3] + 2.5)
    assert found.voxel_mm == 2.0


def test_parts_of_the_template_are_apart_and_lie_where_their_names_say():
    parts = quality.parts()
    assert np.sum(list(parts.values()), axis=0).max() == 1
    assert parts["left front upper"].sum() == pytest.approx(parts["right front upper"].sum(), rel=0.05)
    assert {name for name, part in parts.items() if part.sum() * 8 / 1000 < 100} == set()  # ml


def test_half_a_scale_is_half_squeezed():
    assert quality.squeezed(np.diag([1.0, 0.9, 0.45, 1.0])) == pytest.approx(0.45)


def test_contrasts_need_their_scans():
    brain = np.ones((4, 4, 4), bool)
    nothing = agreement.Copies({"t1": np.zeros((4, 4, 4)), "t2": np.zeros((4, 4, 4))}, brain, np.eye(4))
    assert quality.enhancement(nothing) is None
    assert quality.fluid_contrast(nothing) is None


def enhancement(pair: agreement.Copies) -> float:
    figure = quality.enhancement(pair)
    assert figure is not None
    return figure


@pytest.mark.parametrize("number", range(6))
def test_a_faint_rim_and_no_vessels_are_no_evidence_that_t1_and_t1ce_are_exchanged(number: int):
    for rim_signal in (0.65, 0.8):  # of grey matter, and less than white matter
        for one in copies_of_rims(number, rim_signal, (0.0, 0.06, 0.12)):
            assert enhancement(one) > -Quality().enhancement


def test_exchanged_scans_have_the_figure_of_sound_ones_with_a_minus():
    (sound,) = copies_of_rims(0, 1.5, (0.03,))
    exchanged = agreement.Copies({"t1": sound.scans["t1ce"], "t1ce": sound.scans["t1"]}, sound.brain, sound.affine)
    assert enhancement(sound) > Quality().enhancement
    assert enhancement(exchanged) == pytest.approx(-enhancement(sound), abs=1e-5)


def test_a_t1_in_another_contrast_blurred_and_moved_is_no_enhanced_one():
    (sound,) = copies_of_rims(1, 0.65, (0.0,))
    t1 = sound.scans["t1"]
    for gamma in (0.6, 1.7):  # of brightness above the darkest
        for change in (np.asarray, lambda scan: gaussian_filter(scan, 0.6), lambda scan: np.roll(scan, 1, 0)):
            other = np.maximum(change(t1) - t1.min(), 0) ** gamma
            inside = other[sound.brain]
            other = np.where(sound.brain, (other - inside.mean()) / inside.std(), 0)
            for pair in ({"t1": t1, "t1ce": other}, {"t1": other, "t1ce": t1}):
                assert abs(enhancement(agreement.Copies(pair, sound.brain, sound.affine))) < Quality().enhancement


def test_every_figure_that_a_limit_holds_is_the_same_on_every_grid(as_it_is):
    record, found = quality_faults.looked("head", scans_of(0), Grid(edge=32, spacing_mm=7.0, patch=4))
    assert record is not None
    assert found == []
    for name, value in as_it_is[0]["quality"].items():
        if isinstance(value, float):
            assert record["quality"][name] == pytest.approx(value, rel=0.02, abs=0.02), name
    for channel, figures in as_it_is[0]["quality"]["scans"].items():
        for name in ("own_to_mirrored", "filled", "signal_to_noise", "ghosts", "shading"):
            if figures.get(name) is not None:
                assert record["quality"]["scans"][channel][name] == pytest.approx(figures[name], rel=0.02, abs=0.002), (
                    channel,
                    name,
                )


def test_the_record_has_every_figure_and_no_number_that_json_lacks(as_it_is):
    assert set(as_it_is[0]["quality"]) == {
        "turned_degrees", "middle_degrees", "middle_mm", "squeezed", "fluid_contrast", "enhancement", "coverage", "scans",
    }  # fmt: skip
    json.dumps(as_it_is[0]["quality"], allow_nan=False)


def test_a_pictures_lines_are_broken_before_its_edge():
    scans, brain = np.zeros((1, 16, 16, 16), np.float32), np.ones((16, 16, 16), bool)
    line = "tumour of 19 ml, left, parietal lobe, 13 mm from the ventricles; mask found automatically, confidence low (0.60)"
    picture = np.asarray(Image.open(io.BytesIO(quality.draw_picture(scans, brain, "p1", (line, line), ("flair",)))))
    header = picture[: picture.shape[0] - 3 * quality.PANEL_PX]
    written = (header != quality.BACKGROUND).any(axis=(0, 2))
    assert written[: picture.shape[1] // 2].any()
    assert not written[-quality.MARGIN_PX // 2 :].any()
    assert header.shape[0] >= quality.TITLE_PX + 4 * quality.LINE_PX  # each line in two parts or more

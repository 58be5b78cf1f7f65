"""The inspected ViT: every number against its definition written out, and the page against what it promises."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from made.views import flipped
from sklearn.decomposition import PCA

from mri_vit import style
from mri_vit.data import cohort, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import all_tokens, token_file
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.explain.inspection import drawings, inspect_network
from mri_vit.explain.inspection import inspect_network as inspection_page
from mri_vit.explain.inspection import vit_numbers as inspection
from mri_vit.explain.inspection.vit_numbers import InspectedFold, measure_vit, step_rows
from mri_vit.model import encoder as encoder_module
from mri_vit.model import network
from mri_vit.model.encoder import Encoder
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.sections import Grid
from mri_vit.train.supervised import fit, untrained

GRID = Grid(edge=8, spacing_mm=10.0, patch=2)  # 4³ places of 20 mm
PLACE_MM = 20.0

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


@pytest.fixture
def seen() -> tuple[Encoder, torch.Tensor, torch.Tensor]:
    """An encoder of three layers and two heads that attends unevenly, and one patient's batch of 30 tokens."""
    torch.manual_seed(0)
    encoder = Encoder(4 * GRID.patch**3, GRID.positions, 16, 3, 2, 32).eval()
    for block in encoder.layers:
        block.attention.qkv.weight.data *= 4
    patches, position = torch.randn(1, 30, 4 * GRID.patch**3), torch.randperm(GRID.positions)[None, :30]
    return encoder, patches, position


def uniform(encoder: Encoder) -> Encoder:
    """Queries and keys of zero: every token attends to all alike."""
    for block in encoder.layers:
        torch.nn.init.zeros_(block.attention.qkv.weight)
        torch.nn.init.zeros_(block.attention.qkv.bias)
    return encoder


def test_a_filter_weighs_the_voxels_that_its_cube_shows():
    torch.manual_seed(1)
    encoder = Encoder(4 * GRID.patch**3, GRID.positions, 16, 1, 2, 32)
    volume = np.random.default_rng(0).normal(size=(4, 8, 8, 8)).astype(np.float32)
    corner = volume[:, 2:4, 0:2, 6:8]  # the voxels of place (1, 0, 3)
    patch = torch.from_numpy(tokens.patchify(volume, GRID.patch)[1 * 16 + 0 * 4 + 3])
    by_hand = (inspection.filters(encoder, GRID) * corner).sum(axis=(1, 2, 3, 4))
    bias = encoder.embed.bias.detach().numpy()  # type: ignore[union-attr]
    np.testing.assert_allclose(encoder.embed(patch).detach().numpy(), by_hand + bias, atol=1e-5)


def test_of_a_two_layer_embedding_the_first_layers_filters_are_told():
    encoder = Encoder(4 * GRID.patch**3, GRID.positions, 16, 1, 2, 32, stem=24)
    assert inspection.filters(encoder, GRID).shape == (24, len(CHANNELS), 2, 2, 2)


def test_of_a_convolutional_stem_the_response_to_each_voxel_alone_is_told():
    torch.manual_seed(0)
    grid = Grid(edge=16, spacing_mm=10.0, patch=4)
    encoder = Encoder(4 * grid.patch**3, grid.positions, 16, 1, 2, 32, conv_stem=4)
    found = inspection.filters(encoder, grid)
    patch = torch.zeros(1, 1, 4, 4, 4, 4)  # t1ce's voxel (3, 0, 2) alone
    empty = encoder.embed(patch.flatten(2)).detach().numpy()
    patch[0, 0, 1, 3, 0, 2] = 1
    np.testing.assert_allclose(found[:, 1, 3, 0, 2], (encoder.embed(patch.flatten(2)).detach().numpy() - empty)[0, 0], atol=1e-6)
    # Without its GELUs the stem is a linear map, and its response that map's weights.
    encoder.embed.layers = torch.nn.Sequential(*(part for part in encoder.embed.modules() if isinstance(part, torch.nn.Conv3d)))
    whole = torch.randn(1, 1, 4 * 4**3)
    by_hand = (inspection.filters(encoder, grid) * whole.reshape(4, 4, 4, 4).numpy()).sum(axis=(1, 2, 3, 4))
    bias = encoder.embed(torch.zeros_like(whole))
    np.testing.assert_allclose((encoder.embed(whole) - bias).detach().numpy()[0, 0], by_hand, atol=1e-5)


def test_of_a_stem_with_texture_the_response_is_the_whole_stems():
    torch.manual_seed(0)
    grid = Grid(edge=16, spacing_mm=10.0, patch=4)
    encoder = Encoder(4 * grid.patch**3, grid.positions, 16, 1, 2, 32, conv_stem=4, texture=3)
    found = inspection.filters(encoder, grid)
    patch = torch.zeros(1, 1, 4, 4, 4, 4)
    empty = encoder.embed(patch.flatten(2)).detach().numpy()
    patch[0, 0, 2, 1, 3, 0] = 1
    np.testing.assert_allclose(found[:, 2, 1, 3, 0], (encoder.embed(patch.flatten(2)).detach().numpy() - empty)[0, 0], atol=1e-5)


def test_components_are_those_of_scikit_learn():
    cubes = np.random.default_rng(0).normal(size=(90, 4, 4, 4)) * np.linspace(0.2, 3, 4)
    found, oracle = inspection.principal_components(cubes), PCA(28).fit(cubes.reshape(90, -1))
    np.testing.assert_allclose(found.share, oracle.explained_variance_ratio_, rtol=1e-9)
    same = (found.cubes.reshape(28, -1) * oracle.components_).sum(axis=1)
    np.testing.assert_allclose(np.abs(same), 1, atol=1e-9)
    assert (np.abs(found.cubes).max(axis=(1, 2, 3)) == found.cubes.max(axis=(1, 2, 3))).all()


def test_one_pattern_that_all_filters_measure_is_the_first_component():
    rng = np.random.default_rng(0)
    pattern = rng.normal(size=(4, 4, 4))
    cubes = rng.normal(size=(50, 1, 1, 1)) * pattern + 1e-3 * rng.normal(size=(50, 4, 4, 4))
    found = inspection.principal_components(cubes)
    assert abs((found.cubes[0] * pattern).sum()) == pytest.approx(np.linalg.norm(pattern), rel=1e-4)
    assert found.share[0] > 0.999


def test_few_filters_have_as_many_components_as_they_can():
    assert len(inspection.principal_components(np.random.default_rng(0).normal(size=(10, 4, 4, 4))).cubes) == 9


def test_filters_that_training_left_alone_kept_all_and_turned_ones_nothing():
    cubes = np.random.default_rng(0).normal(size=(6, 2, 2, 2))
    turned = cubes[:, ::-1].copy()
    turned[:, 0], turned[:, 1] = -cubes[:, 1], cubes[:, 0]  # a quarter turn in each pair of numbers: at right angles
    assert inspection.kept_direction(cubes, 3 * cubes) == pytest.approx(1)
    assert inspection.kept_direction(cubes, turned) == pytest.approx(0, abs=1e-12)


def test_a_places_centre_is_the_mean_of_its_voxels():
    voxel = np.stack(np.meshgrid(*[np.arange(8.0)] * 3, indexing="ij"))
    affine = np.array(GRID.affine)
    world = np.einsum("ij,jxyz->ixyz", affine[:3, :3], voxel) + affine[:3, 3, None, None, None]
    means = tokens.patchify(world, GRID.patch).reshape(GRID.positions, 3, -1).mean(axis=2)
    np.testing.assert_allclose(inspection.centres_mm(GRID), means)


def test_a_point_finds_the_nearest_token_and_none_outside_the_grid():
    position = np.array([5, 21, 63])
    x, y, z = inspection.centres_mm(GRID)[21]
    assert inspection.nearest_token(position, (x + 8, y - 8, z), GRID) == 1
    with pytest.raises(UsageError, match=r"\(500, 0, 0\) mm lies outside the grid; expected mm with x -40 to 40"):
        inspection.nearest_token(position, (500.0, 0.0, 0.0), GRID)


def test_position_similarity_is_the_cosine_of_the_two_embeddings(seen):
    encoder, _, _ = seen
    position = encoder.position[0, 1:]
    oracle = torch.nn.functional.cosine_similarity(position[9][None], position)
    np.testing.assert_allclose(inspection.position_similarity(encoder, 9), oracle.detach().numpy(), atol=1e-6)
    assert inspection.position_similarity(encoder, 9)[9] == pytest.approx(1)


def test_attention_distance_is_that_of_a_double_loop(seen):
    encoder, patches, position = seen
    centre = inspection.centres_mm(GRID)[position[0].numpy()]
    found = inspection.attention_distances(encoder, patches, position, GRID)
    for layer, matrix in enumerate(encoder.attention(patches, position)):
        for head in range(2):
            total = 0.0
            for i in range(30):
                row = matrix[0, head, i + 1, 1:].tolist()
                total += sum(row[j] * math.dist(centre[i], centre[j]) for j in range(30)) / sum(row)
            assert found[layer, head] == pytest.approx(total / 30, rel=1e-5)


def test_even_attention_over_eight_neighbours_has_the_distance_of_geometry():
    grid = Grid(edge=4, spacing_mm=10.0, patch=2)  # 2³ places: edges, diagonals of faces, and of the cube
    encoder = uniform(Encoder(4 * 8, 8, 16, 2, 2, 32).eval())
    patches, position = torch.randn(1, 8, 32), torch.arange(8)[None]
    expected = PLACE_MM * (3 + 3 * math.sqrt(2) + math.sqrt(3)) / 8
    np.testing.assert_allclose(inspection.attention_distances(encoder, patches, position, grid), expected, rtol=1e-6)
    assert inspection.uniform_distance(position, grid) == pytest.approx(expected)


def test_a_head_that_looks_at_its_own_token_looks_no_distance(seen):
    _, patches, position = seen
    encoder = uniform(Encoder(4 * GRID.patch**3, GRID.positions, 16, 2, 1, 32).eval())
    for block in encoder.layers:  # query and key are the token itself; after the norm all are as long, so none is more like it
        block.attention.qkv.weight.data[:32] = 20 * torch.eye(16).repeat(2, 1)
    np.testing.assert_allclose(inspection.attention_distances(encoder, patches, position, GRID), 0, atol=1e-3)


def test_no_more_than_a_block_of_a_heads_rows_is_ever_held(seen, monkeypatch):
    encoder, patches, position = seen
    whole, held = inspection.attention_distances(encoder, patches, position, GRID), []

    def spy(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        held.append(q.shape[2])
        return encoder_module.attention_weights(q, k)

    monkeypatch.setattr(inspection, "attention_weights", spy)
    monkeypatch.setattr(inspection, "ATTENTION_ROWS", 7)
    np.testing.assert_allclose(inspection.attention_distances(encoder, patches, position, GRID), whole, rtol=1e-5)
    inspection.attention_rows(encoder, patches, position, [3])
    assert max(held) == 7


def test_a_tokens_attention_is_its_row_of_every_matrix(seen):
    encoder, patches, position = seen
    queries = [0, 1, 30]  # CLS, the first token, the last
    for query, rows in zip(queries, inspection.attention_rows(encoder, patches, position, queries), strict=True):
        for row, matrix in zip(rows, encoder.attention(patches, position), strict=True):
            np.testing.assert_allclose(row, matrix[0, :, query].detach().numpy(), atol=1e-6)
        np.testing.assert_allclose(rows.sum(axis=2), 1, atol=1e-5)


def test_the_steps_of_all_heads_end_in_the_models_own_output(seen):
    encoder, patches, position = seen
    for layer, block in enumerate(encoder.layers):
        steps = [inspection.head_steps(encoder, patches, position, layer, head, 4) for head in range(2)]
        x = encoder.tokens(patches, position)
        for earlier in encoder.layers[:layer]:
            x = earlier(x)
        out = block.attention.out(torch.from_numpy(np.concatenate([s.output for s in steps])).float())
        torch.testing.assert_close(out, block.attention(block.norm1(x))[0, 4], atol=1e-5, rtol=0)
        for s in steps:
            assert s.products[7] == pytest.approx(float(s.query @ s.keys[7]))
            assert s.scaled[7] == pytest.approx(s.products[7] / math.sqrt(8))
            np.testing.assert_allclose(s.weights, np.exp(s.scaled) / np.exp(s.scaled).sum())
            np.testing.assert_allclose(s.output, s.model_output, atol=1e-5)


def test_the_rebuilt_network_is_the_one_that_training_started_from(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    still = tiny.train.model_copy(
        update={"learning_rate": 1e-30, "weight_decay": 0.0, "epochs": 1}
    )  # steps too small for a float32
    study = tiny.model_copy(update={"train": still})
    ended = fit(patients[:16], patients[16:], study, tiny.output, seed=11).state_dict()
    started = untrained(patients[:16], study, seed=11).state_dict()
    for name in started:
        torch.testing.assert_close(started[name], ended[name], rtol=0, atol=1e-20)  # what starts at 0 moves by a step
    other = untrained(patients[:16], study, seed=12).state_dict()
    assert not torch.equal(other["encoder.position"], ended["encoder.position"])


@pytest.fixture
def subject(tiny) -> InspectedFold:
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    for patient in patients:  # nobody has a brain in the topmost layer of places
        whole = tokens.load(token_file(tiny.prepared, patient))
        low = whole.position % tiny.grid.side < tiny.grid.side - 1
        tokens.save(replace(whole, patches=whole.patches[low], position=whole.position[low]), token_file(tiny.prepared, patient))
    after = fit(patients[:16], patients[16:20], tiny, tiny.output, seed=3)
    return InspectedFold(tiny, "tiny, fold 1", untrained(patients[:16], tiny, 3), after, patients[20:])


def trained_places(study: Study, patients: list[Patient]) -> set[int]:
    """All places at which a token of these patients, perhaps mirrored, may have sat."""
    prepared = [tokens.load(token_file(study.prepared, p)) for p in patients]
    return {int(i) for one in prepared for version in (one, flipped(one)) for i in version.position}


def test_only_positions_that_training_reached_have_moved(subject):
    moved = inspection.moved_positions(subject.before.encoder, subject.after.encoder)
    reached = trained_places(subject.study, cohort.read(subject.study.cohort, subject.study.endpoints)[:16])
    assert set(np.flatnonzero(moved)) <= reached
    assert 0 < moved.sum() < subject.study.grid.positions


def test_the_page_needs_nothing_but_itself(subject, tmp_path):
    page = inspect_network.write_page(subject, tmp_path / "out", measure_vit(subject))
    html = page.read_text(encoding="utf-8")
    assert "default-src 'none'; img-src data:" in html
    assert "<script" not in html
    assert "patch embedding has two layers" not in html
    assert all(source.startswith("data:image/svg+xml;base64,") for source in re.findall(r'src="([^"]*)"', html))
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert len(re.findall("<img ", html)) == len(names) / 2
    assert {name.removesuffix(".svg") for name in names if name.endswith(".svg")} == {
        name.removesuffix(".png") for name in names if name.endswith(".png")
    }
    assert {f"filters_{scan}_{stage}.svg" for scan in CHANNELS for stage in ("before", "after")} <= names


def test_a_folder_that_is_no_inspection_of_ours_is_refused_and_one_of_ours_is_written_over(subject, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "index.html").write_text("the user's own page")
    with pytest.raises(UsageError, match=r"holds index\.html and is no inspection"):
        inspect_network.write_page(subject, out, None)
    assert [path.read_text() for path in out.iterdir()] == ["the user's own page"]
    (out / "index.html").write_text(f"<h1>{inspection_page.HEADING}</h1>")  # as versions without a record wrote it
    inspection_page.refuse(out)
    (out / "index.html").unlink()
    (out / inspection_page.RECORD).write_text(json.dumps({"schema": inspection_page.SCHEMA}))
    inspection_page.refuse(out)
    (out / "figures").symlink_to(out)
    with pytest.raises(IntegrityError, match="figures is a link"):
        inspect_network.write_page(subject, out, None)


def test_equal_figures_are_equal_bytes():
    first, second = (drawings.distances(np.ones((2, 3)), np.ones((2, 3)), 1.0) for _ in range(2))
    assert style.to_bytes(first, "svg") == style.to_bytes(second, "svg")
    assert style.to_bytes(first, "png") == style.to_bytes(second, "png")


def test_the_table_of_steps_adds_up_to_the_heads_output(subject):
    numbers = measure_vit(subject, layer=1, head=2)
    *rows, total = step_rows(numbers, subject.study.grid)
    assert rows[0]["label"].endswith("position itself")
    assert rows[1]["label"] == "CLS"
    assert sum(row["weight"] for row in rows) == pytest.approx(1)
    np.testing.assert_allclose(sum(row["weighted"] for row in rows), total["weighted"], atol=1e-12)
    np.testing.assert_allclose(numbers.steps.output, numbers.steps.model_output, atol=1e-5)


def test_the_place_asked_for_is_the_one_shown(subject):
    prepared = tokens.load(token_file(subject.study.prepared, subject.patients[0]))
    position = int(prepared.position[3])
    x, y, z = inspection.centres_mm(subject.study.grid)[position]
    numbers = measure_vit(subject, position_mm=(x + 2, y, z - 2))
    assert (numbers.position, numbers.token) == (position, 3)
    patches, where = all_tokens(prepared, subject.study.model)
    matrix = subject.after.encoder.attention(patches, where)[1]
    np.testing.assert_allclose(numbers.stages["after"].of_place[1], matrix[0, :, 4].detach().numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("asked", "message"), [({"layer": 3}, "layer 3: .* layers 1 to 2"), ({"head": 0}, "head 0: .* heads 1 to 2")]
)
def test_a_layer_or_head_that_is_not_there_is_refused(subject, asked, message: str):
    with pytest.raises(UsageError, match=message):
        measure_vit(subject, **asked)


def test_the_page_of_a_two_layer_embedding_says_whose_filters_it_shows(subject, tmp_path):
    study = subject.study.model_copy(update={"model": subject.study.model.model_copy(update={"stem": 8})})
    nets = [network.Network(study.model, study.grid, subject.after.heads) for _ in range(2)]
    two_layers = replace(subject, study=study, before=nets[0], after=nets[1])
    page = inspect_network.write_page(two_layers, tmp_path / "out", measure_vit(two_layers))
    assert "The 8 filters shown are those of the first" in page.read_text(encoding="utf-8")


def test_the_patients_right_and_front_are_seen_at_the_left_and_top():
    share = np.zeros(GRID.positions)
    share[np.ravel_multi_index((3, 3, 1), (4, 4, 4))] = 16.0  # far right, far front
    atlas = drawings.heads_atlas(share[None, None], np.arange(GRID.positions), 1, GRID)
    sheet = np.asarray(atlas.axes[0].images[0].get_array())
    assert np.argwhere(sheet == 16.0).tolist() == [[0, 0]]
    planes = drawings.attention_planes(share, np.arange(GRID.positions), 1, np.ones((8, 8, 8), np.float32), GRID)
    for axes in planes.axes[:3]:
        assert axes.get_xlim()[0] > axes.get_xlim()[1]
        assert axes.get_ylim()[0] < axes.get_ylim()[1]


def test_an_even_map_leaves_the_scan_bare():
    even = drawings.attention_planes(np.ones(64), np.arange(64), 21, np.ones((8, 8, 8), np.float32), GRID)
    strong = drawings.attention_planes(np.full(64, 16.0), np.arange(64), 21, np.ones((8, 8, 8), np.float32), GRID)
    opacity = [np.asarray(figure.axes[0].images[1].get_array())[..., 3] for figure in (even, strong)]
    assert (opacity[0] == 0).all()
    np.testing.assert_allclose(opacity[1], drawings.OPACITY)


def test_of_a_large_patch_the_middles_of_its_quarters_are_shown():
    assert drawings.shown_slices(4).tolist() == [0, 1, 2, 3]
    assert drawings.shown_slices(16).tolist() == [2, 6, 10, 14]

"""Deletion, insertion, pointing and energy against closed forms, brute force and exact chance."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from scipy.spatial.transform import Rotation
from scipy.stats import spearmanr

from mri_vit.data import tokens
from mri_vit.data.volume import Volume
from mri_vit.explain import faithfulness
from mri_vit.explain.faithfulness import FRACTIONS, by_simulation, curves, energy, hit, near_tumour, order, reader, similarity
from mri_vit.model.heads import Head, evidence, question
from mri_vit.model.network import Network
from mri_vit.prepare.tumour import tumour_shares
from mri_vit.settings.recipe import Pool
from mri_vit.settings.schema import Endpoint, Model
from mri_vit.settings.sections import Grid

GRID = Grid(edge=8, spacing_mm=10.0, patch=2)  # 4³ places
MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
untimed = examples(30)  # a shared core may be slow


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small are slower on two threads, far slower beside another process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def network(depth: int = 2, pool: Pool = "cls") -> Network:
    """Random weights, the heads' too."""
    torch.manual_seed(3)
    model = Model(dim=16, depth=depth, heads=2, mlp=32, pool=pool, tokens="foreground", drop_path=0.0)
    net = Network(model, GRID, [Head(MGMT, "binary"), Head(OS, "hazard", (100.0, 300.0, 700.0))])
    for linear in net.head.values():
        torch.nn.init.normal_(linear.weight)  # type: ignore[arg-type]
    return net.eval()


def patient(positions: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return 3 * torch.randn(1, positions, 32, generator=generator), torch.randperm(64, generator=generator)[None, :positions]


def additive(worth: np.ndarray):
    """A model for which every place counts its own worth, whichever others are given."""
    return lambda kept: {"mgmt": torch.from_numpy(worth)[kept].sum(dim=1)}


def area(values: np.ndarray) -> np.ndarray:
    return np.trapezoid(values, FRACTIONS, axis=-1)


# --- what the places are worth to the model ------------------------------------------------------------------------------


@untimed
@given(p=st.integers(1, 40), seed=st.integers(0, 1000))
def test_the_curves_of_an_additive_model_are_sums_of_what_was_left_out(p: int, seed: int):
    rng = np.random.default_rng(seed)
    worth, orders = rng.normal(size=p), np.stack([rng.permutation(p) for _ in range(3)])
    found = curves(additive(worth), torch.from_numpy(orders))
    for column, fraction in enumerate(FRACTIONS):
        cut = round(fraction * p)
        for row, one in enumerate(orders):
            assert found["mgmt", "deletion"][row, column] == pytest.approx(-worth[one[:cut]].sum(), abs=1e-9)
            assert found["mgmt", "insertion"][row, column] == pytest.approx(-worth[one[cut:]].sum(), abs=1e-9)


@untimed
@given(p=st.integers(8, 40), seed=st.integers(0, 1000))
def test_no_order_deletes_or_inserts_better_than_the_true_one(p: int, seed: int):
    rng = np.random.default_rng(seed)
    worth = rng.exponential(size=p)
    orders = np.stack([order(worth, rng), *(rng.permutation(p) for _ in range(5))])
    found = curves(additive(worth), torch.from_numpy(orders))
    assert (area(found["mgmt", "deletion"])[1:] >= area(found["mgmt", "deletion"])[0] - 1e-9).all()
    assert (area(found["mgmt", "insertion"])[1:] <= area(found["mgmt", "insertion"])[0] + 1e-9).all()


def test_the_deletion_area_of_evenly_falling_worth_is_its_closed_form():
    p, rng = 64, np.random.default_rng(0)
    worth = np.arange(p, 0, -1.0)  # p, p - 1, …, 1: after n places p·n - n(n - 1)/2 are gone
    found = curves(additive(worth), torch.from_numpy(order(worth, rng)[None]))
    n = np.arange(0, p + 1, p // 8)
    steps = -(p * n - n * (n - 1) / 2)
    assert found["mgmt", "deletion"][0].tolist() == steps.tolist()
    assert area(found["mgmt", "deletion"])[0] == pytest.approx((steps[1:] + steps[:-1]).sum() / 16)


def test_the_reader_says_what_the_network_says_of_the_kept_places_alone(monkeypatch: pytest.MonkeyPatch):
    net, (patches, position) = network(depth=3), patient()
    whole, said = net(patches, position), reader(net, patches, position)
    kept = torch.stack([torch.randperm(30)[:11] for _ in range(7)])
    found = said(kept)
    for head in net.heads:
        name = head.endpoint.name
        for row, some in enumerate(kept):
            alone = evidence(head, net(patches[:, some], position[:, some])[name]) * question(head, whole[name])
            torch.testing.assert_close(found[name][row : row + 1], alone, atol=1e-4, rtol=1e-4)
    monkeypatch.setattr(faithfulness, "TOKENS_AT_ONCE", 25)  # two patients at a time, the last alone
    for name, value in said(kept).items():
        torch.testing.assert_close(value, found[name], atol=1e-4, rtol=1e-4)


def test_less_evidence_is_a_weaker_prediction_also_where_a_zero_is_predicted():
    net, (patches, position) = network(), patient()
    for shift in (-100.0, 100.0):
        torch.nn.init.constant_(net.head["mgmt"].bias, shift)  # type: ignore[arg-type]
        assert reader(net, patches, position)(torch.arange(30)[None])["mgmt"].item() > 50


@pytest.mark.parametrize("pool", ["cls", "mean", "max"])
def test_a_patient_with_no_place_left_is_read_by_cls_alone(pool: Pool):
    net, (patches, position) = network(pool=pool), patient()
    empty = reader(net, patches, position)(torch.empty(1, 0, dtype=torch.long))
    bare = net(patches[:, :0], position[:, :0])
    alone = network(pool="cls")
    alone.load_state_dict(net.state_dict())
    torch.testing.assert_close(bare, alone(patches[:, :0], position[:, :0]))
    assert empty["os"].item() == pytest.approx(evidence(net.heads[1], bare["os"]).item(), abs=1e-4)
    found = curves(reader(net, patches, position), torch.randperm(30)[None])
    assert all(np.isfinite(values).all() for values in found.values())
    assert found["os", "deletion"][0, -1] == pytest.approx(found["os", "insertion"][0, 0])  # both have given no place


def seeing(signal: float = 1.0) -> Network:
    """A hand-set network whose evidence rises with the share of given places whose first voxel is lit, and knows no more.

    CLS attends evenly to all; a dark patch is a token of zeros, a lit one hands 1 to CLS's first number.
    """
    model = Model(dim=8, depth=1, heads=1, mlp=8, tokens="foreground", drop_path=0.0)
    net = Network(model, GRID, [Head(MGMT, "binary")]).eval()
    with torch.no_grad():
        for weights in net.parameters():
            weights.zero_()
        encoder, block = net.encoder, net.encoder.layers[0]
        encoder.embed.weight[0, 0], encoder.embed.weight[1, 0] = signal, -signal  # type: ignore[index]
        encoder.cls[0, 0, 2], encoder.cls[0, 0, 3] = 1.0, -1.0  # so that the last norm keeps what was handed
        for norm in (block.norm1, block.norm2, encoder.norm):
            norm.weight.fill_(1.0)
        block.attention.qkv.weight[16, 0] = block.attention.out.weight[0, 0] = 1.0
        net.head["mgmt"].weight[0, 0] = 1.0  # type: ignore[index]
    return net


def test_a_map_of_what_the_network_sees_beats_every_random_order():
    net, rng = seeing(), np.random.default_rng(0)
    patches, position = torch.zeros(1, 48, 32), torch.randperm(64, generator=torch.Generator().manual_seed(0))[None, :48]
    lit = rng.choice(48, 6, replace=False)
    patches[0, lit, 0] = 1.0
    truth = np.zeros(48, np.float32)
    truth[lit] = 1
    orders = torch.from_numpy(np.stack([order(truth, rng), order(-truth, rng), *(rng.permutation(48) for _ in range(20))]))
    found = curves(reader(net, patches, position), orders)
    deletion, insertion = found["mgmt", "deletion"], found["mgmt", "insertion"]
    assert (area(deletion)[2:] > area(deletion)[0]).all()
    assert (area(insertion)[2:] < area(insertion)[0]).all()
    assert deletion[0, 1:] == pytest.approx(deletion[0, 8], abs=1e-6)  # the first eighth holds all six
    assert (np.diff(deletion[1, :7]) > 0).all()  # leaving out the dark only raises the share of the lit
    assert deletion[:, 0].tolist() == insertion[:, 8].tolist() == [0.0] * 22


def test_an_order_falls_and_ties_lie_in_no_order_of_place():
    rng = np.random.default_rng(0)
    relevance = np.repeat([0.0, 2.0, 1.0], 50)
    found = order(relevance, rng)
    assert sorted(found) == list(range(150))
    assert (np.diff(relevance[found]) <= 0).all()
    assert abs(np.corrcoef(found[100:], np.arange(50))[0, 1]) < 0.5  # sorted by place it would be 1; 0.5 is 3.5 errors


# --- whether they lie on the tumour --------------------------------------------------------------------------------------


def prepared(brain: np.ndarray) -> tokens.Tokens:
    return tokens.from_volume(np.ones((4, 8, 8, 8), np.float32), brain, GRID, "-")


def moved() -> np.ndarray:
    """Native RAS+ mm to grid RAS+ mm of a tilted, displaced head."""
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("xyz", [14, -9, 23], degrees=True).as_matrix()
    matrix[:3, 3] = [12, -31, 7]
    return matrix


def test_a_tumour_drawn_in_the_scanners_space_fills_its_own_places():
    drawn = np.zeros((8, 8, 8), np.float32)
    drawn[2:4, 4:6, 2:4] = 3  # the place (1, 2, 1), whatever the label
    drawn[6:8, 0:2, 0] = 1  # half of the place (3, 0, 0)
    native = np.linalg.inv(moved()) @ np.array(GRID.affine)  # the grid's own voxels, seen in the scanner's space
    share = tumour_shares(Volume(drawn, native), moved(), prepared(np.ones((8, 8, 8), bool)))
    expected = np.zeros((4, 4, 4))
    expected[1, 2, 1], expected[3, 0, 0] = 1, 0.5
    np.testing.assert_allclose(share.reshape(4, 4, 4), expected, atol=1e-6)


def test_the_share_is_of_the_brain_alone():
    drawn, brain = np.zeros((8, 8, 8), np.float32), np.ones((8, 8, 8), bool)
    drawn[0:2, 0:2, 0] = 1  # half of the place, and the only half that is brain
    brain[0:2, 0:2, 1] = False
    drawn[4:6, 4:6, 4:6] = 1  # a place without any brain
    brain[4:6, 4:6, 4:6] = False
    share = tumour_shares(Volume(drawn, np.array(GRID.affine)), np.eye(4), prepared(brain)).reshape(4, 4, 4)
    assert share[0, 0, 0] == pytest.approx(1)
    assert share.sum() == pytest.approx(1)


def test_a_ball_on_finer_oblique_voxels_lands_where_it_is_with_its_volume():
    grid = Grid(edge=56, spacing_mm=4.0, patch=4)
    volume = np.ones((4, 56, 56, 56), np.float32)
    whole = tokens.from_volume(volume, np.ones((56, 56, 56), bool), grid, "-")
    centre_mm, radius_mm = np.array([25.0, -40.0, 18.0]), 30.0  # in the grid's world
    affine = np.eye(4)
    affine[:3, :3] = Rotation.from_euler("zyx", [31, 12, -8], degrees=True).as_matrix() * [-3.0, 2.0, 3.5]
    affine[:3, 3] = [150.0, -120.0, -130.0]
    points = np.indices((100, 120, 80)).reshape(3, -1)
    world = moved() @ affine @ np.vstack([points, np.ones(points.shape[1])])
    inside = np.linalg.norm(world[:3].T - centre_mm, axis=1) < radius_mm
    mask = Volume(inside.reshape(100, 120, 80).astype(np.uint8), affine)
    share = tumour_shares(mask, moved(), whole)
    assert share.sum() * 16**3 == pytest.approx(4 / 3 * math.pi * radius_mm**3, rel=0.03)
    at = np.indices((14, 14, 14)).reshape(3, -1) @ (share / share.sum())
    found_mm = np.array(grid.affine)[:3, :3] @ (4 * at + 1.5) + np.array(grid.affine)[:3, 3]
    assert np.abs(found_mm - centre_mm).max() < 2  # half a voxel


@untimed
@given(seed=st.integers(0, 1000))
def test_near_is_one_place_away_at_most_along_every_axis_and_never_round_the_edge(seed: int):
    share = np.where(np.random.default_rng(seed).random(64) < 0.05, 0.2, 0.0)
    at = np.indices((4, 4, 4)).reshape(3, -1).T
    brute = [any(np.abs(at[one] - at[other]).max() <= 1 for other in np.flatnonzero(share)) for one in range(64)]
    assert near_tumour(share, GRID).tolist() == brute


@untimed
@given(p=st.integers(2, 60), seed=st.integers(0, 1000))
def test_the_uniform_map_has_exactly_the_tumours_share_of_energy(p: int, seed: int):
    share = np.random.default_rng(seed).random(p)
    assert energy(np.full(p, 7.0), share) == pytest.approx(share.mean(), rel=1e-12)


def test_a_map_inside_the_tumour_has_all_its_energy_there_and_half_the_place_half_of_it():
    share = np.array([1.0, 0.5, 0.0, 0.0])
    assert energy(np.array([3.0, 0.0, 0.0, 0.0]), share) == 1
    assert energy(np.array([0.0, 2.0, 0.0, 0.0]), share) == 0.5
    assert energy(np.array([0.0, 0.0, 1.0, 4.0]), share) == 0
    assert math.isnan(energy(np.zeros(4), share))


def test_a_hit_is_a_peak_near_the_tumour_and_a_flat_map_has_no_peak():
    near = np.array([False, True, False])
    assert hit(np.array([0.1, 0.9, 0.2]), near) == 1
    assert hit(np.array([0.1, 0.2, 0.9]), near) == 0
    assert math.isnan(hit(np.full(3, 0.4), near))


@pytest.mark.parametrize("seed", range(3))
def test_simulated_chance_agrees_with_the_exact_one(seed: int):
    rng, draws = np.random.default_rng(seed), 4000
    relevance = rng.exponential(size=90) ** 3  # a peaked map
    share = np.where(np.arange(90) < 12, rng.random(90), 0.0)
    near = np.arange(90) < 30
    chance = by_simulation(relevance, share, near, rng, draws)
    assert chance.hit == pytest.approx(near.mean(), abs=4 * math.sqrt(1 / 3 * 2 / 3 / draws))
    # the variance of a sum over a random permutation (Hoeffding 1951, doi:10.1214/aoms/1177729545)
    exact = math.sqrt(90 * relevance.var() * 90 * share.var() / 89) / relevance.sum()
    assert chance.energy == pytest.approx(share.mean(), abs=4 * exact / math.sqrt(draws))
    assert chance.energy_spread == pytest.approx(exact, rel=0.1)


def test_a_flat_map_has_no_hit_by_chance_either():
    share, near = np.array([0.5, 0.0]), np.array([True, False])
    flat = by_simulation(np.ones(2), share, near, np.random.default_rng(0))
    assert math.isnan(flat.hit)
    assert (flat.energy, flat.energy_spread) == (0.25, 0)
    assert math.isnan(by_simulation(np.zeros(2), share, near, np.random.default_rng(0)).energy)


# --- whether two maps are alike ------------------------------------------------------------------------------------------


@untimed
@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=30))
def test_similarity_is_spearmans_rank_correlation_with_ties(rows: list[tuple[int, int]]):
    first, second = (np.array(column, float) for column in zip(*rows, strict=True))
    if first.min() == first.max() or second.min() == second.max():
        assert math.isnan(similarity(first, second))
    else:
        assert similarity(first, second) == pytest.approx(spearmanr(first, second)[0], abs=1e-12)
        assert similarity(first, first) == pytest.approx(1)
        assert similarity(first, np.exp(first)) == pytest.approx(1)
        assert similarity(first, -first) == pytest.approx(-1)

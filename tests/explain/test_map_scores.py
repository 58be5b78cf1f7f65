"""Permuted networks keep what they should and lose the rest; hardly changed inputs hardly change; the evaluation adds them up."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from mri_vit.data import cohort, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import all_tokens, token_file
from mri_vit.data.volume import Volume, write
from mri_vit.explain import faithfulness, map_scores
from mri_vit.explain.faithfulness import energy, hit
from mri_vit.explain.methods import patient_maps, target
from mri_vit.explain.methods.gradient import gradient_attention
from mri_vit.explain.methods.patient_maps import Made, make
from mri_vit.explain.outputs import records
from mri_vit.model.heads import Head
from mri_vit.model.network import Network, with_heads
from mri_vit.settings.schema import Endpoint, Model, Study
from mri_vit.settings.sections import Grid

GRID = Grid(edge=8, spacing_mm=10.0, patch=2)  # 4³ places
MGMT, OS = (
    Endpoint(name="mgmt", kind="binary"),
    Endpoint(name="os", kind="survival", time="os_days", event="os_event"),
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small are slower on two threads, far slower beside another process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def network(seed: int = 0, depth: int = 3, endpoints: tuple[Endpoint, ...] = (MGMT, OS)) -> Network:
    """Random weights, the heads' too."""
    torch.manual_seed(seed)
    kinds = {"mgmt": Head(MGMT, "binary"), "os": Head(OS, "hazard", (100.0, 300.0, 700.0))}
    model = Model(dim=16, depth=depth, heads=2, mlp=32, tokens="foreground", drop_path=0.2)
    net = Network(model, GRID, [kinds[endpoint.name] for endpoint in endpoints])
    for weights in net.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    return net


# --- networks ------------------------------------------------------------------------------------------------------------


def test_networks_that_are_asked_for_fewer_endpoints_have_references_of_these_alone():
    nets = [with_heads(network(seed), ["mgmt"]) for seed in (0, 1)]
    found = faithfulness.reference_networks(nets, 0, with_heads(network(2), ["mgmt"]), 0)
    for net in (*found.folds, *found.randomised, *found.cascade.values()):
        assert [head.endpoint.name for head in net.heads] == list(net.head) == ["mgmt"]


def test_a_randomised_network_keeps_every_tensors_values_and_not_their_places():
    net = network()
    before = {name: weights.clone() for name, weights in net.state_dict().items()}
    random = faithfulness.randomised(net, np.random.default_rng(0)).state_dict()
    assert list(random) == list(before)
    for name, weights in random.items():
        assert weights.shape == before[name].shape
        assert torch.equal(weights.flatten().sort().values, before[name].flatten().sort().values)
        if weights.numel() >= 16:  # of fewer numbers chance may find the old order
            assert not torch.equal(weights, before[name]), name
        assert torch.equal(net.state_dict()[name], before[name])  # the network itself is left alone


def test_two_randomised_networks_differ_and_the_same_seed_gives_the_same():
    net = network()
    first, again, second = (faithfulness.randomised(net, np.random.default_rng(seed)).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["encoder.position"], second["encoder.position"])


def test_stages_hold_every_weight_once_from_the_output_to_the_input():
    found = faithfulness.stages(network())
    assert list(found) == ["heads", "block 3", "block 2", "block 1", "embedding"]
    assert sorted(name for names in found.values() for name in names) == sorted(network().state_dict())
    assert {"head.os.weight", "encoder.norm.bias"} <= set(found["heads"])
    assert "encoder.blocks.2.mlp.0.weight" in found["block 3"]
    assert {"encoder.cls", "encoder.position", "encoder.embed.weight"} <= set(found["embedding"])


def test_twelve_blocks_are_told_apart():
    found = faithfulness.stages(network(depth=12))
    assert len({len(found[f"block {number}"]) for number in range(1, 13)}) == 1
    assert all(name.startswith("encoder.blocks.0.") for name in found["block 1"])


def test_the_cascade_goes_from_the_heads_down_and_ends_fully_permuted():
    net = network()
    random = faithfulness.randomised(net, np.random.default_rng(0))
    trained, permuted, seen = net.state_dict(), random.state_dict(), set()
    for stage, changed in faithfulness.cascade(net, random).items():
        seen |= set(faithfulness.stages(net)[stage])
        for name, weights in changed.state_dict().items():
            source = permuted if name in seen else trained
            assert weights.data_ptr() == source[name].data_ptr(), (stage, name)  # read, not copied
    patches, position = torch.randn(1, 9, 32), torch.arange(9)[None]
    last = faithfulness.cascade(net, random)["embedding"]
    assert torch.equal(last(patches, position)["os"], random(patches, position)["os"])


def test_a_randomised_network_still_has_gradients():
    random = faithfulness.randomised(network(), np.random.default_rng(0))
    patches = torch.randn(1, 9, 32, requires_grad=True)
    (slope,) = torch.autograd.grad(random(patches, torch.arange(9)[None])["mgmt"].sum(), patches)
    assert (slope.abs().sum(dim=2) > 0).all()


# --- inputs --------------------------------------------------------------------------------------------------------------


def test_noise_is_small_on_the_brain_and_absent_outside():
    patches = torch.where(torch.rand(2, 50, 256, generator=torch.Generator().manual_seed(0)) < 0.5, 0.0, 1.0)
    changed = faithfulness.noisy(patches, np.random.default_rng(0))
    assert (changed[patches == 0] == 0).all()
    noise = (changed - patches)[patches != 0]
    assert noise.std().item() == pytest.approx(0.05, rel=0.05)
    assert abs(noise.mean().item()) < 4 * 0.05 / math.sqrt(len(noise))


@pytest.mark.parametrize("axis", faithfulness.AXES)
def test_a_shift_carries_every_voxel_one_step_and_none_round_the_edge(axis: int):
    rng = np.random.default_rng(axis)
    volume, brain = rng.normal(size=(4, 8, 8, 8)).astype(np.float32), rng.random((8, 8, 8)) < 0.4
    before = tokens.from_volume(volume, brain, GRID, "-")
    after = np.moveaxis(tokens.to_volume(faithfulness.shifted(before, axis)), 1 + axis, 0)
    dense = np.moveaxis(tokens.to_volume(before), 1 + axis, 0)
    assert np.array_equal(after[1:], dense[:-1])
    assert not after[0].any()


def test_a_voxel_at_its_patchs_end_moves_to_the_next_place():
    brain = np.zeros((8, 8, 8), bool)
    brain[1, 0, 0] = True
    before = tokens.from_volume(np.ones((4, 8, 8, 8), np.float32), brain, GRID, "-")
    assert before.position.tolist() == [0]
    assert [faithfulness.shifted(before, axis).position.tolist() for axis in faithfulness.AXES] == [[16], [0], [0]]


# --- the map evaluation --------------------------------------------------------------------------------------------------


@pytest.fixture
def study(tiny: Study) -> Study:
    return tiny.model_copy(update={"model": network().model})


@pytest.fixture
def someone(study: Study, tmp_path: Path) -> Patient:
    """The first of the tiny cohort, with a tumour of one place, drawn in a scanner's space that is moved by 30 mm."""
    patient = cohort.read(study.cohort, study.endpoints)[0]
    to_grid = np.eye(4)
    to_grid[:3, 3] = 30
    record = study.prepared / patient.id / "patient.json"
    whole = {"config_sha256": "", "inputs": {}, "steps": [], "to_grid": {"t1ce": to_grid.tolist()}}
    record.write_text(json.dumps(whole))
    drawn = np.zeros((8, 8, 8), np.float32)
    drawn[2:4, 2:4, 2:4] = 1  # place (1, 1, 1), all brain
    mask = tmp_path / "tumour.nii.gz"
    write(Volume(drawn, np.linalg.inv(to_grid) @ np.array(study.grid.affine)), mask)
    return dataclasses.replace(patient, tumour_mask=mask)


def evaluated(patient: Patient, study: Study, nets: list[Network], shuffled: Network | None) -> dict:
    references = faithfulness.reference_networks(nets, 0, shuffled, study.seed)
    return dataclasses.asdict(map_scores.scores(patient_maps.of_patient(patient, nets[0], study), references, study))


def test_the_evaluation_has_a_row_for_every_method_and_endpoint_and_is_strict_json(study: Study, someone: Patient):
    found = evaluated(someone, study, [network(0), network(1)], network(2))
    pairs = [(endpoint, method) for endpoint in ("mgmt", "os") for method in study.explain.methods]
    assert [(row["endpoint"], row["method"]) for row in found["rows"]] == pairs
    assert all(value is not None for row in found["rows"] for value in row.values())
    assert [(row["endpoint"], row["method"]) for row in found["cascade"][::5]] == pairs
    assert [row["stage"] for row in found["cascade"][:5]] == ["heads", "block 3", "block 2", "block 1", "embedding"]
    assert len(found["agreement"]) == 2 * 3
    assert {(c["endpoint"], c["method"], c["order"]) for c in found["curves"]} == {
        (endpoint, method, order)
        for endpoint in ("mgmt", "os")
        for method in (*study.explain.methods, "random")
        for order in ("deletion", "insertion")
    }
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_same_patient_has_the_same_evaluation_whoever_came_before(study: Study, someone: Patient):
    nets = [network(0), network(1)]
    references = faithfulness.reference_networks(nets, 0, None, study.seed)
    made = patient_maps.of_patient(someone, nets[0], study)
    first = map_scores.scores(made, references, study)
    assert map_scores.scores(made, references, study) == first
    assert evaluated(someone, study, nets, None) == dataclasses.asdict(first)
    assert records.parse(records.ScoreRecord, json.loads(json.dumps(dataclasses.asdict(first)))) == first


def test_hit_and_energy_are_those_of_the_map_on_the_drawn_tumour(study: Study, someone: Patient):
    net = network(0).eval()
    patches, position = all_tokens(tokens.load(token_file(study.prepared, someone)), study.model)
    at = np.array(np.unravel_index(position[0].numpy(), (4, 4, 4)))
    share, near = (at == 1).all(axis=0).astype(float), np.abs(at - 1).max(axis=0) <= 1
    maps = make(net, patches, position, study.explain.methods).value
    for row in evaluated(someone, study, [net], None)["rows"]:
        endpoint = row["endpoint"] if row["method"] == "gradient_attention" else ""
        relevance = maps[row["method"], endpoint][0].numpy()
        assert row["hit"] == hit(relevance, near)
        assert row["energy"] == pytest.approx(energy(relevance, share), abs=1e-6)
        assert row["hit_chance"] == pytest.approx(near.mean(), abs=1e-6)
        assert row["tumour_share"] == pytest.approx(1 / len(share), abs=1e-6)


def test_an_equal_network_or_input_gives_an_equal_map(study: Study, someone: Patient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(faithfulness, "NOISE_SD", 0.0)
    monkeypatch.setattr(faithfulness, "shifted", lambda prepared, axis: prepared)
    for row in evaluated(someone, study, [network(0), network(0)], network(0))["rows"]:
        assert [row[name] for name in ("shuffled", "folds", "noise", "shift")] == pytest.approx([1, 1, 1, 1])


def test_maps_of_a_moved_brain_are_compared_place_by_place(study: Study, someone: Patient, monkeypatch: pytest.MonkeyPatch):
    """Half of the places, in another order: what they share with the whole brain's map is the same places' values."""

    def half(prepared: tokens.Tokens, axis: int) -> tokens.Tokens:
        chosen = np.random.default_rng(axis).permutation(len(prepared.position))[: len(prepared.position) // 2]
        return dataclasses.replace(prepared, patches=prepared.patches[chosen], position=prepared.position[chosen])

    def by_place(net, patches, position, methods, questions):
        return Made({(method, ""): torch.sin(position.float()) + 2 for method in methods}, questions, None)

    monkeypatch.setattr(faithfulness, "shifted", half)
    monkeypatch.setattr(patient_maps, "make", by_place)
    only = study.model_copy(update={"explain": study.explain.model_copy(update={"methods": ("rollout", "cls_attention")})})
    assert all(row["shift"] == pytest.approx(1) for row in evaluated(someone, only, [network(0)], None)["rows"])


def test_a_network_on_all_places_is_not_praised_for_separating_brain_from_air(
    study: Study, someone: Patient, monkeypatch: pytest.MonkeyPatch
):
    prepared = tokens.load(token_file(study.prepared, someone))

    def brain(net, patches, position, methods, questions):
        inside = torch.from_numpy(np.isin(position.numpy(), prepared.position)).float()
        return Made({(method, ""): inside + 1e-6 * position for method in methods}, questions, None)

    monkeypatch.setattr(patient_maps, "make", brain)
    everywhere = study.model_copy(
        update={
            "model": study.model.model_copy(update={"tokens": "all"}),
            "explain": study.explain.model_copy(update={"methods": ("rollout", "cls_attention")}),
        }
    )
    found = evaluated(someone, everywhere, [network(0)], None)
    share, near = map_scores._tumour(patient_maps.of_patient(someone, network(0), everywhere), everywhere) or ([], [])
    for row in found["rows"]:
        assert row["hit_chance"] == pytest.approx(np.mean(near), abs=1e-6)
        assert row["energy"] == pytest.approx(row["tumour_share"], rel=1e-2)
        assert row["tumour_share"] == pytest.approx(np.mean(share), abs=1e-6)


def test_maps_of_other_networks_answer_the_question_that_the_tested_network_was_asked(study: Study, someone: Patient):
    """A head turned round predicts the other class; asked about the same class, it is explained by what spoke against."""
    net, turned = network(0), network(0)
    for weights in turned.head["mgmt"].parameters():
        weights.data.neg_()
    batch = all_tokens(tokens.load(token_file(study.prepared, someone)), study.model)
    questions = target.predicted(net, *batch)
    same = gradient_attention(net, *batch, questions)["mgmt"]
    torch.testing.assert_close(gradient_attention(turned, *batch)["mgmt"], same)  # its own class: the same places
    against = gradient_attention(net, *batch, {"mgmt": -questions["mgmt"]})["mgmt"]
    torch.testing.assert_close(gradient_attention(turned, *batch, questions)["mgmt"], against)


def test_the_heads_matter_to_maps_of_an_endpoint_alone(study: Study, someone: Patient):
    steps = {
        (c["method"], c["endpoint"], c["stage"]): c["similarity"]
        for c in evaluated(someone, study, [network(0)], None)["cascade"]
    }
    for endpoint in ("mgmt", "os"):
        assert steps["rollout", endpoint, "heads"] == pytest.approx(1)
        assert steps["cls_attention", endpoint, "heads"] == pytest.approx(1)
        assert steps["gradient_attention", endpoint, "heads"] < 0.99
        assert steps["rollout", endpoint, "block 3"] < 0.99


def test_curves_start_or_end_at_nothing_changed_and_meet_where_nothing_is_left(study: Study, someone: Patient):
    found = evaluated(someone, study, [network(0)], None)["curves"]
    value = {(c["endpoint"], c["method"], c["order"]): c["value"] for c in found}
    for endpoint, method, order in value:
        assert value[endpoint, method, order][0 if order == "deletion" else -1] == 0
        assert value[endpoint, method, "deletion"][-1] == value[endpoint, method, "insertion"][0]
        assert value[endpoint, method, "deletion"][-1] == value[endpoint, "random", "deletion"][-1]


def test_every_map_is_judged_by_its_own_order_and_random_by_the_mean_of_random_ones(
    study: Study, someone: Patient, monkeypatch: pytest.MonkeyPatch
):
    net, orders = network(0), []

    def numbered(evidence, given):
        """Each order's number in place of its curve."""
        orders.extend(given.numpy())
        numbers = np.repeat(np.arange(float(len(given)))[:, None], 9, axis=1)
        return {(endpoint, order): numbers for endpoint in ("mgmt", "os") for order in ("deletion", "insertion")}

    monkeypatch.setattr(map_scores, "curves", numbered)
    found = evaluated(someone, study, [net], None)["curves"]
    maps = make(net, *all_tokens(tokens.load(token_file(study.prepared, someone)), study.model), study.explain.methods).value
    for curve in found:
        if curve["method"] == "random":
            assert curve["value"] == [(map_scores.RANDOM_ORDERS - 1) / 2] * 9
        else:
            endpoint = curve["endpoint"] if curve["method"] == "gradient_attention" else ""
            relevance = maps[curve["method"], endpoint][0].numpy()
            assert (np.diff(relevance[orders[int(curve["value"][0])]]) <= 0).all()


def test_what_cannot_be_known_is_null(study: Study, someone: Patient):
    unmarked = dataclasses.replace(someone, tumour_mask=None)
    for row in evaluated(unmarked, study, [network(0)], None)["rows"]:
        assert {name for name, value in row.items() if value is None} == {*map_scores.ON_TUMOUR, "shuffled", "folds"}


def test_a_tumour_outside_the_prepared_brain_judges_nothing(study: Study, someone: Patient):
    assert someone.tumour_mask is not None
    far = np.array(study.grid.affine)
    far[:3, 3] += 500
    write(Volume(np.indices((8, 8, 8))[0].astype(np.float32), far), someone.tumour_mask)
    assert all(row["hit"] is None for row in evaluated(someone, study, [network(0)], None)["rows"])


def test_a_head_that_another_fold_could_not_learn_is_not_compared(study: Study, someone: Patient):
    rows = evaluated(someone, study, [network(0), network(1, endpoints=(OS,))], None)["rows"]
    folds = {(row["method"], row["endpoint"]): row["folds"] for row in rows}
    assert folds["gradient_attention", "mgmt"] is None
    assert folds["gradient_attention", "os"] is not None
    assert folds["rollout", "mgmt"] is not None

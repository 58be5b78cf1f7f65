"""Gradient maps against full matrices under autograd, nudged attention, closed forms and the sums that they must keep."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from made.network import inputs, linear, made
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mri_vit.explain.methods import gradient, target
from mri_vit.explain.methods.gradient import (
    gradient_attention,
    gradient_by_scan,
    gradient_rollout,
    integrated_gradients,
    integrated_gradients_by_scan,
)
from mri_vit.model.encoder import ATTENTION_ROWS
from mri_vit.model.network import Network

METHODS = [gradient_attention, gradient_rollout, integrated_gradients]


# --- The definitions, written out with every matrix held ---------------------------------------------------------------------


def forward(net: Network, patches: Tensor, position: Tensor, nudge: Callable[[Tensor, int], Tensor]) -> dict[str, Tensor]:
    """Each endpoint's evidence, from attention matrices [b h n n], and the readout's [b d p], that `nudge` may change or keep."""
    encoder = net.encoder
    x = encoder.tokens(patches, position)
    for index, block in enumerate(encoder.layers):
        layer = block.attention
        query, key, value = (
            part.unflatten(2, (layer.heads, -1)).transpose(1, 2) for part in layer.qkv(block.norm1(x)).chunk(3, dim=2)
        )
        attention = nudge(torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), dim=-1), index)
        x = x + layer.out((attention @ value).transpose(1, 2).flatten(2))
        x = x + block.mlp(block.norm2(x))
    y = encoder.norm(x)
    cls = y[:, 0]
    if encoder.pool != "cls":  # a head for each feature, which attends to the places: to one alone, or to all alike
        values = y[:, 1:].mT  # [b d p]
        largest = (values == values.amax(dim=2, keepdim=True)).to(values.dtype)
        even = torch.full_like(values, 1 / values.shape[2])
        read = {"max": largest, "mean": even}[encoder.pool].detach().requires_grad_()
        cls = cls + (nudge(read, len(encoder.layers)) * values).sum(dim=2)
    hazard = torch.sigmoid(net.head["os"](cls))
    return {
        "mgmt": net.head["mgmt"](cls)[:, 0],
        "os": -torch.cumprod(1 - hazard, dim=1).log().sum(dim=1),
        "pfs": net.head["pfs"](cls)[:, 0] + math.log(0.9),
    }


def signed(evidence: dict[str, Tensor]) -> dict[str, Tensor]:
    """What speaks for the predicted class: the other way round where the log odds of mgmt are below 0."""
    return evidence | {"mgmt": evidence["mgmt"].abs()}


def clamped(net: Network, patches: Tensor, position: Tensor) -> dict[str, list[Tensor]]:
    """Ā = mean over heads of (∇A ⊙ A)⁺ of every block, first to last, from one backward pass through everything."""
    matrices: list[Tensor] = []

    def keep(attention: Tensor, _: int) -> Tensor:
        matrices.append(attention)
        return attention

    targets = signed(forward(net, patches, position, keep))
    found = {}
    for name, value in targets.items():
        slopes = torch.autograd.grad(value.sum(), matrices, retain_graph=True)
        found[name] = [
            (slope * attention).clamp(min=0).mean(dim=1).detach() for slope, attention in zip(slopes, matrices, strict=True)
        ]
        if net.encoder.pool != "cls":
            read = found[name].pop()
            found[name].append(torch.zeros_like(found[name][0]))
            found[name][-1][:, 0, 1:] = read
    return found


def attention_reference(spoke: list[Tensor]) -> Tensor:
    relevance = torch.eye(spoke[0].shape[-1], dtype=torch.float64).expand_as(spoke[0])
    for matrix in spoke:
        relevance = relevance + matrix @ relevance
    return relevance[:, 0, 1:]


def rollout_reference(spoke: list[Tensor]) -> Tensor:
    product = identity = torch.eye(spoke[0].shape[-1], dtype=torch.float64).expand_as(spoke[0])
    for matrix in spoke:
        whole = matrix + identity
        product = whole / whole.sum(dim=2, keepdim=True) @ product
    return product[:, 0, 1:]


@pytest.mark.parametrize(
    ("method", "reference"), [(gradient_attention, attention_reference), (gradient_rollout, rollout_reference)]
)
@examples(25)
@given(
    depth=st.integers(1, 4),
    heads=st.sampled_from([1, 2, 4]),
    n=st.integers(1, 27),
    seed=st.integers(0, 100),
    pool=st.sampled_from(["cls", "mean", "max"]),
)
def test_the_carried_row_is_that_of_the_full_matrices_under_autograd(
    method, reference, depth: int, heads: int, n: int, seed: int, pool: str
):
    net = made(depth, heads, seed).double()
    net.encoder.pool = pool
    net.head["os"].weight.data.div_(4)  # type: ignore[operator]  # nobody is so sure to die that the risk is cut off
    patches, position = inputs(net, n=n, seed=seed, dtype=torch.float64)
    found = method(net, patches, position)
    for name, spoke in clamped(net, patches, position).items():
        torch.testing.assert_close(found[name], reference(spoke), atol=1e-9, rtol=1e-9)


def test_one_blocks_map_is_found_by_nudging_attention():
    net = made(depth=1, heads=2).double()
    patches, position = inputs(net, batch=1, n=6, dtype=torch.float64)
    step, matrices = 1e-5, []
    with torch.no_grad():
        forward(net, patches, position, lambda attention, _: matrices.append(attention) or attention)
        expected = torch.zeros(2, 6, dtype=torch.float64)
        for head in range(2):
            for token in range(6):

                def value(by: float, head: int = head, token: int = token) -> float:
                    change = torch.zeros_like(matrices[0])
                    change[0, head, 0, 1 + token] = by
                    return signed(forward(net, patches, position, lambda attention, _: attention + change))["mgmt"].item()

                slope = (value(step) - value(-step)) / (2 * step)
                expected[head, token] = max(0.0, slope * matrices[0][0, head, 0, 1 + token].item())
    assert (expected == 0).any()  # what spoke against the prediction is cut off, in each head by itself
    assert (expected > 0).any()
    found = gradient_attention(net, patches, position)["mgmt"][0]
    torch.testing.assert_close(found, expected.mean(dim=0), atol=1e-8, rtol=0)


# with CLS: a whole block of rows, one more, an odd rest
@pytest.mark.parametrize("n", [ATTENTION_ROWS - 1, ATTENTION_ROWS, 2 * ATTENTION_ROWS + 7])
@pytest.mark.parametrize("pool", ["cls", "max"])
def test_rows_in_blocks_give_the_same_map(n: int, pool: str):
    net = made(depth=2, side=8).double()
    net.encoder.pool = pool
    patches, position = inputs(net, batch=1, n=n, dtype=torch.float64)
    spoke = clamped(net, patches, position)
    for name, found in gradient_attention(net, patches, position).items():
        torch.testing.assert_close(found, attention_reference(spoke[name]), atol=1e-9, rtol=1e-9)


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor held that any operation put out."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return out


@pytest.mark.parametrize("method", [gradient_attention, gradient_rollout])
def test_no_attention_matrix_is_ever_held(method):
    net = made(depth=3, heads=4, side=10)
    patches, position = inputs(net, batch=1, n=900)
    with Largest() as largest:
        method(net, patches, position)
    assert largest.numbers <= 4 * ATTENTION_ROWS * 901  # a block of rows; of one head alone the matrix has 901²
    assert largest.numbers < 901**2


@pytest.mark.parametrize("at_once", [1, 5, 100])
def test_integrated_gradients_are_captums_to_the_last_bit(at_once: int, monkeypatch: pytest.MonkeyPatch):
    from captum.attr import IntegratedGradients

    net = made(depth=3, drop_path=0.2)
    patches, position = inputs(net, batch=2, n=9)
    monkeypatch.setattr(gradient, "PASS_NUMBERS", at_once * 2 * patches[0].numel())
    questions = target.predicted(net, patches, position)
    found = integrated_gradients_by_scan(net, patches, position)

    for name, sign in questions.items():

        def evidence(patches: torch.Tensor, position: torch.Tensor, sign: torch.Tensor, name: str = name) -> torch.Tensor:
            return sign * target.evidences(net, target.cls(net.encoder, net.encoder.tokens(patches, position)))[name]

        theirs = IntegratedGradients(evidence).attribute(
            patches, additional_forward_args=(position, sign), n_steps=gradient.STEPS, internal_batch_size=2 * at_once
        )
        assert torch.equal(found[name], theirs.detach().unflatten(2, (4, -1)).sum(dim=3))


# --- What holds for all of them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_each_item_of_a_batch_has_its_own_map(method):
    net = made().double()
    patches, position = inputs(net, batch=3, n=9, dtype=torch.float64)
    together = method(net, patches, position)
    for i in range(3):
        for name, alone in method(net, patches[i : i + 1], position[i : i + 1]).items():
            torch.testing.assert_close(together[name][i], alone[0], atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_values_go_with_their_places_in_whatever_order_these_are_given(method):
    net = made().double()
    patches, position = inputs(net, n=9, dtype=torch.float64)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
    there = method(net, patches[:, order], position[:, order])
    for name, value in method(net, patches, position).items():
        torch.testing.assert_close(there[name], value[:, order], atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_the_map_is_of_the_predicted_class_so_a_binary_head_turned_round_keeps_its_map(method):
    net = made()
    patches, position = inputs(net, batch=1)
    before = method(net, patches, position)
    with torch.no_grad():
        predicted = target.predicted(net, patches, position)["mgmt"]
        for parameter in (*net.head["mgmt"].parameters(), *net.head["pfs"].parameters()):
            parameter.neg_()
        assert target.predicted(net, patches, position)["mgmt"] == -predicted
    after = method(net, patches, position)
    torch.testing.assert_close(after["mgmt"], before["mgmt"])
    assert not torch.allclose(after["pfs"], before["pfs"])  # a risk is explained upwards, whatever it is


@pytest.mark.parametrize("method", METHODS)
def test_a_network_is_explained_as_it_predicts_and_left_as_it_was(method):
    net = made(drop_path=0.5)
    patches, position = inputs(net, n=9)
    expected = method(net, patches, position)
    with torch.no_grad():  # as a caller may have it
        while_training = method(net.train(), patches, position)
    for name, value in while_training.items():
        torch.testing.assert_close(value, expected[name])
        assert not value.requires_grad
    assert all(parameter.grad is None for parameter in net.parameters())
    assert net.training
    assert not patches.requires_grad


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_pooled_heads_have_another_map_of_which_each_patient_has_its_own(method, pool: str):
    net = made().double()
    patches, position = inputs(net, batch=2, n=9, dtype=torch.float64)
    plain = method(net, patches, position)["pfs"]
    net.encoder.pool = pool
    pooled = method(net, patches, position)["pfs"]
    assert (plain - pooled).abs().max() > 1e-3
    alone = method(net, patches[1:], position[1:])["pfs"]
    torch.testing.assert_close(pooled[1], alone[0], atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_head_without_weights_has_an_empty_map(method):
    net = made()
    for parameter in net.head["mgmt"].parameters():
        parameter.data.zero_()
    found = method(net, *inputs(net))
    assert not found["mgmt"].any()
    assert found["pfs"].any()


# --- Integrated gradients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "pool"), [(0, "cls"), (1, "cls"), (2, "cls"), (3, "cls"), (0, "mean"), (1, "mean")])
def test_integrated_gradients_add_up_to_the_evidence_above_empty_patches(seed: int, pool: str):
    net = made(seed=seed)
    net.encoder.pool = pool
    patches, position = inputs(net, n=20, seed=seed)
    found = integrated_gradients_by_scan(net, patches, position)
    with torch.no_grad():
        full, empty = (forward(net, x, position, lambda attention, _: attention) for x in (patches, torch.zeros_like(patches)))
    for name, sign in target.predicted(net, patches, position).items():
        missed = found[name].sum(dim=(1, 2)) - sign * (full[name] - empty[name])
        assert (missed.abs() < 0.01 * found[name].abs().sum(dim=(1, 2))).all()


def test_integrated_gradients_of_a_linear_network_are_weight_times_voxel():
    net = linear()
    patches, position = inputs(net, n=9)
    slope = torch.autograd.functional.jacobian(lambda x: net(x, position)["mgmt"].sum(), patches)
    sign = target.predicted(net, patches, position)["mgmt"]
    expected = sign[:, None, None] * (slope * patches).unflatten(2, (4, 8)).sum(dim=3)  # four scans of 2³ voxels each
    torch.testing.assert_close(integrated_gradients_by_scan(net, patches, position)["mgmt"], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        integrated_gradients(net, patches, position)["mgmt"], expected.sum(dim=2).clamp(min=0), atol=1e-5, rtol=1e-4
    )


def test_gradient_times_input_is_integrated_gradients_where_the_network_is_linear():
    net = linear()
    patches, position = inputs(net, n=9)
    expected = integrated_gradients_by_scan(net, patches, position)["mgmt"]
    torch.testing.assert_close(gradient_by_scan(net, patches, position)["mgmt"], expected, atol=1e-5, rtol=1e-4)


def test_gradient_times_input_is_the_slope_of_the_way_from_a_little_less_than_the_patients_own_scan():
    net = made()
    patches, position = (part[:1] for part in inputs(net, n=9))
    step = 1e-2
    with torch.no_grad():
        more, less = (forward(net, patches * (1 + by), position, lambda attention, _: attention) for by in (step, -step))
    for name, sign in target.predicted(net, patches, position).items():
        found = gradient_by_scan(net, patches, position)[name].sum()
        torch.testing.assert_close(found, (sign * (more[name] - less[name]) / (2 * step))[0], atol=2e-3, rtol=2e-2)


def test_passes_of_a_few_steps_give_what_one_pass_gives(monkeypatch: pytest.MonkeyPatch):
    net = made()
    patches, position = inputs(net, n=9)
    whole = integrated_gradients_by_scan(net, patches, position)
    monkeypatch.setattr(gradient, "PASS_NUMBERS", 5 * patches[0].numel())
    for name, value in integrated_gradients_by_scan(net, patches, position).items():
        torch.testing.assert_close(value, whole[name], atol=1e-5, rtol=1e-4)


def test_what_speaks_against_the_prediction_is_subtracted_within_a_place_and_cut_off_between_places(monkeypatch):
    scans = torch.tensor([[[3.0, -1, 0, 0], [1, -2, 0, 0]]])
    monkeypatch.setattr(gradient, "integrated_gradients_by_scan", lambda *_: {"mgmt": scans})
    net = made()
    patches, position = inputs(net, n=2)
    assert gradient.integrated_gradients(net, patches[:1], position[:1])["mgmt"].tolist() == [[2, 0]]

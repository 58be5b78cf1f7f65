"""Rollout and its options against exact fractions and the full matrix product."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from torch.utils._python_dispatch import TorchDispatchMode

from mri_vit.explain.methods import rollout as rollout_file
from mri_vit.explain.methods.rollout import carried, cls_attention, held_by_default, rollout, with_residual, without_weakest
from mri_vit.model import encoder as encoder_file
from mri_vit.model.encoder import Encoder, attention_weights

OPTIONS = [("mean", 0.0, 0), ("max", 0.0, 0), ("min", 0.0, 0), ("mean", 0.5, 0), ("max", 0.9, 1), ("min", 0.3, 2)]


def peaked(depth: int = 3, heads: int = 2, seed: int = 0) -> Encoder:
    """An encoder in double precision whose attention is far from uniform."""
    torch.manual_seed(seed)
    encoder = Encoder(32, 27, 16, depth, heads, 32).double().eval()
    for block in encoder.layers:
        block.attention.qkv.weight.data *= 4
    return encoder


def patients(batch: int, n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randn(batch, n, 32, generator=generator, dtype=torch.float64)
    return patches, torch.stack([torch.randperm(27, generator=generator)[:n] for _ in range(batch)])


def full_products(matrices: list[torch.Tensor], heads: str = "mean", discard: float = 0.0, start: int = 0) -> torch.Tensor:
    """The definition, written out for one patient after another with whole matrices, the last block on the left."""
    products = []
    for patient in range(len(matrices[0])):
        product = torch.eye(matrices[0].shape[-1], dtype=torch.float64)
        for attention in matrices[start:]:
            head_by_head = attention[patient].detach().double().numpy()
            fused = {"mean": np.mean, "max": np.max, "min": np.min}[heads](head_by_head, axis=0)
            weakest = [index for index in np.argsort(fused, axis=None)[: int(discard * fused.size)] if index != 0]
            fused.flat[weakest] = 0
            mixed = fused + np.eye(len(fused))
            product = torch.from_numpy(mixed / mixed.sum(axis=1, keepdims=True)) @ product
        products.append(product)
    return torch.stack(products)


def full_product(matrices: list[torch.Tensor], heads: str = "mean", discard: float = 0.0, start: int = 0) -> torch.Tensor:
    """The CLS row of the definition."""
    return full_products(matrices, heads, discard, start)[:, 0]


def read_row(encoder: Encoder, given_tokens: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Where pooled heads read: half at CLS, half at each feature's place of its largest value, or at all places alike."""
    x = encoder.tokens(*given_tokens)
    for block in encoder.layers:
        x = block(x)
    values = encoder.norm(x)[:, 1:].detach().numpy()
    rows = np.zeros(x.shape[:2])
    rows[:, 0] = 1 / 2
    if encoder.pool == "mean":
        rows[:, 1:] = 1 / 2 / values.shape[1]
    else:
        for patient, feature in itertools.product(range(len(values)), range(values.shape[2])):
            rows[patient, 1 + values[patient, :, feature].argmax()] += 1 / 2 / values.shape[2]
    return torch.from_numpy(rows)


@examples(60)
@given(
    depth=st.integers(1, 4),
    n_heads=st.sampled_from([1, 2, 4]),
    n=st.integers(2, 27),
    seed=st.integers(0, 100),
    fused=st.sampled_from(["mean", "max", "min"]),
    discard=st.sampled_from([0.0, 0.2, 0.5, 0.9]),
    start=st.integers(0, 3),
    rows=st.sampled_from([1, 4, 128]),
    held=st.booleans(),
)
def test_with_every_option_the_carried_row_is_the_cls_row_of_the_full_product(
    depth: int, n_heads: int, n: int, seed: int, fused: str, discard: float, start: int, rows: int, held: bool
):
    encoder, given_tokens, start = peaked(depth, n_heads, seed), patients(2, n, seed), min(start, depth - 1)
    options = {"heads": fused, "discard": discard, "start": start, "matrices": held or discard > 0}
    with mock.patch.object(encoder_file, "ATTENTION_ROWS", rows), mock.patch.object(rollout_file, "AGAIN_ROWS", rows):
        row = rollout(encoder, *given_tokens, **options)  # type: ignore[arg-type]
    expected = full_product(encoder.attention(*given_tokens), fused, discard, start)
    torch.testing.assert_close(row, expected, atol=1e-6, rtol=0)
    assert row.min() >= 0
    torch.testing.assert_close(row.sum(dim=1), torch.ones(2, dtype=torch.float64), atol=1e-6, rtol=0)


@examples(40)
@given(
    pool=st.sampled_from(["mean", "max"]),
    depth=st.integers(1, 4),
    n=st.integers(1, 27),
    seed=st.integers(0, 100),
    fused=st.sampled_from(["mean", "max", "min"]),
    discard=st.sampled_from([0.0, 0.5]),
    start=st.integers(0, 3),
    held=st.booleans(),
)
def test_with_pooled_heads_the_row_they_read_is_carried_through_every_blocks_full_matrix(
    pool, depth: int, n: int, seed: int, fused: str, discard: float, start: int, held: bool
):
    encoder, given_tokens, start = peaked(depth, seed=seed), patients(2, n, seed), min(start, depth - 1)
    encoder.pool = pool
    options = {"heads": fused, "discard": discard, "start": start, "matrices": held or discard > 0}
    row = rollout(encoder, *given_tokens, **options)  # type: ignore[arg-type]
    product = full_products(encoder.attention(*given_tokens), fused, discard, start)
    expected = (read_row(encoder, given_tokens)[:, None] @ product)[:, 0]
    torch.testing.assert_close(row, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(row.sum(dim=1), torch.ones(2, dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("pool", ["cls", "mean", "max"])
def test_in_single_precision_both_ways_are_the_product_in_double(pool, held: bool):
    encoder, (patches, position) = peaked(depth=4), patients(2, 27)
    encoder.pool = pool
    expected = rollout(encoder, patches, position, matrices=True)
    found = rollout(encoder.float(), patches.float(), position, matrices=held)
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("heads", ["mean", "max", "min"])
@pytest.mark.parametrize("pool", ["cls", "mean", "max"])
def test_a_patient_who_is_filled_up_has_the_map_that_they_have_alone(pool, heads: str, held: bool):
    encoder, (patches, position) = peaked(), patients(2, 20)
    encoder.pool = pool
    present = torch.ones(2, 20, dtype=torch.bool)
    present[1, [0, 3, 8, 19]] = False
    row = rollout(encoder, patches, position, present=present, heads=heads, matrices=held)  # type: ignore[arg-type]
    for patient, there in enumerate(present):
        alone = rollout(encoder, patches[[patient]][:, there], position[[patient]][:, there], heads=heads)  # type: ignore[arg-type]
        torch.testing.assert_close(row[patient, 1:][there], alone[0, 1:], atol=1e-9, rtol=0)
        torch.testing.assert_close(row[patient, 0], alone[0, 0], atol=1e-9, rtol=0)
        assert (row[patient, 1:][~there] == 0).all()


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("pool", ["cls", "mean", "max"])
def test_a_patient_without_a_token_is_cls_alone(pool, held: bool):
    encoder, (patches, position) = peaked(), patients(2, 0)
    encoder.pool = pool
    assert rollout(encoder, patches, position, matrices=held).tolist() == [[1.0], [1.0]]


def test_matrices_are_held_where_they_are_few(monkeypatch: pytest.MonkeyPatch):
    encoder, (patches, position) = peaked(depth=3), patients(2, 20)
    size = 2 * 21**2 * 3 * 8  # bytes in double precision
    for limit, held in ((size, True), (size - 1, False)):
        monkeypatch.setattr(rollout_file, "MATRIX_BYTES", limit)
        assert held_by_default(encoder, patches) is held
        with mock.patch.object(rollout_file, "_carried_through", wraps=rollout_file._carried_through) as again:
            rollout(encoder, patches, position)
        assert again.called is not held


def test_without_mixing_a_pooled_map_is_where_the_heads_read():
    encoder, given_tokens = peaked(depth=1), patients(1, 9)
    encoder.layers[0].attention.qkv.weight.data.zero_()  # attention is even: each token keeps half of itself
    for pool in ("mean", "max"):
        encoder.pool = pool
        expected = read_row(encoder, given_tokens) / 2 + 1 / 2 / 10
        torch.testing.assert_close(rollout(encoder, *given_tokens), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("heads", "discard", "start"), OPTIONS)
def test_each_item_of_a_batch_has_its_own_map(heads: str, discard: float, start: int):
    encoder, (patches, position) = peaked(), patients(3, 9)
    options = {"heads": heads, "discard": discard, "start": start}
    alone = torch.cat([rollout(encoder, patches[i : i + 1], position[i : i + 1], **options) for i in range(3)])
    torch.testing.assert_close(rollout(encoder, patches, position, **options), alone, atol=1e-9, rtol=0)
    assert (alone[0] - alone[1]).abs().max() > 1e-3  # three different patients


@pytest.mark.parametrize(("heads", "discard", "start"), OPTIONS)
def test_the_order_in_which_places_are_given_does_not_matter(heads: str, discard: float, start: int):
    encoder, (patches, position), order = peaked(), patients(2, 15), torch.randperm(15)
    options = {"heads": heads, "discard": discard, "start": start}
    row, turned = (rollout(encoder, patches[:, o], position[:, o], **options) for o in (torch.arange(15), order))
    torch.testing.assert_close(turned[:, 0], row[:, 0], atol=1e-9, rtol=0)
    torch.testing.assert_close(turned[:, 1:], row[:, 1:][:, order], atol=1e-9, rtol=0)


def test_every_option_changes_the_map():
    encoder, given_tokens = peaked(), patients(1, 27)
    rows = [rollout(encoder, *given_tokens, heads=h, discard=d, start=s) for h, d, s in OPTIONS]  # type: ignore[arg-type]
    for one, other in itertools.combinations(rows, 2):
        assert (one - other).abs().max() > 1e-4


class Largest(TorchDispatchMode):
    """Counts the numbers of the largest tensor that any operation puts out."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return out


def test_no_tensor_of_all_heads_matrices_is_ever_made_and_of_the_last_block_not_even_one_matrix():
    n, heads = 400, 8  # more heads than blocks, so that the kept means (blocks × n × n) are smaller than one block's heads
    patches, position = torch.randn(1, n - 1, 32), torch.arange(n - 1)[None]
    largest = {}
    for depth in (1, 3):
        with Largest() as seen:
            rollout(Encoder(32, n, 16, depth, heads, 32).eval(), patches, position)
        largest[depth] = seen.numbers
    assert largest[3] <= heads * encoder_file.ATTENTION_ROWS * n + n < heads * n * n / 3
    assert largest[1] <= n * 3 * 32  # the one block is the last: nothing larger than the tokens' projections


def test_without_matrices_nothing_grows_with_the_square_of_the_tokens():
    largest = {}
    for n in (400, 800):
        patches, position = torch.randn(1, n - 1, 32), torch.arange(n - 1)[None]
        with Largest() as seen:
            rollout(Encoder(32, n, 16, 3, 2, 32).eval(), patches, position, matrices=False)
        largest[n] = seen.numbers
    assert largest[800] <= 2 * largest[400]
    assert largest[800] < 800**2 / 4


def test_rollout_stays_precise_under_autocast():
    encoder, (patches, position) = peaked().float(), patients(2, 20)
    with torch.autocast("cpu", torch.bfloat16):
        row = rollout(encoder, patches.float(), position)
    assert row.dtype == torch.float32
    torch.testing.assert_close(row.sum(dim=1), torch.ones(2), atol=1e-6, rtol=0)


@examples(40)
@given(n=st.integers(2, 12), discard=st.floats(0, 0.99), seed=st.integers(0, 100))
def test_a_discard_takes_the_weakest_share_of_each_patients_matrix_but_not_what_cls_gives_itself(
    n: int, discard: float, seed: int
):
    fused = torch.rand(3, n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.01
    fused[1] /= 100  # a patient whose attention is all weaker than the others' has a threshold of its own
    kept, count = without_weakest(fused, discard), int(discard * n * n)
    for before, after in zip(fused, kept, strict=True):
        strongest = before.flatten().sort().values[count:]
        expected = torch.isin(before, strongest)
        expected[0, 0] = True
        assert torch.equal(after, before * expected)


def test_equals_at_the_threshold_go_together():
    fused = torch.tensor([[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]])
    assert torch.equal(without_weakest(fused, 0.12)[0], torch.eye(3) / 2)  # one of nine was asked for; six are as weak
    assert torch.equal(without_weakest(fused, 0.11), fused)  # less than one of nine


def test_cls_attention_is_that_of_the_full_matrices():
    encoder, given_tokens = peaked(depth=3, heads=4), patients(2, 11)
    matrices = encoder.attention(*given_tokens)
    torch.testing.assert_close(cls_attention(encoder, *given_tokens), matrices[-1].mean(dim=1)[:, 0].detach(), atol=1e-9, rtol=0)


def test_an_encoder_without_a_block_has_no_attention_to_show():
    encoder = peaked(depth=0)
    for method in (rollout, cls_attention):
        with pytest.raises(ValueError, match="block 0 is none of the encoder's 0"):
            method(encoder, *patients(1, 5))


def test_layers_and_shares_that_are_not_there_are_refused():
    encoder, given_tokens = peaked(depth=3, heads=2), patients(1, 5)
    for start in (3, -1):
        with pytest.raises(ValueError, match=f"block {start}.*3"):
            rollout(encoder, *given_tokens, start=start)
    for discard in (1.0, -0.1):
        with pytest.raises(ValueError, match=f"discard {discard}"):
            rollout(encoder, *given_tokens, discard=discard)
    for option in ({"matrices": False}, {"present": torch.ones(1, 5, dtype=torch.bool)}):
        with pytest.raises(ValueError, match="discard judges weakness over a block's whole matrix"):
            rollout(encoder, *given_tokens, discard=0.5, **option)  # type: ignore[arg-type]


@pytest.fixture
def toy(oracles: Path) -> dict:
    return json.loads((oracles / "rollout_toy.json").read_text())


def of_layers(layers: list[torch.Tensor], heads: str = "mean", discard: float = 0.0) -> list[float]:
    """Rollout's own arithmetic on given attention, each layer [h n n]."""
    fuse = {"mean": torch.mean, "max": torch.amax, "min": torch.amin}[heads]
    *earlier, last = [without_weakest(fuse(layer.double(), dim=0)[None], discard) for layer in layers]
    return carried(with_residual(last[:, 0]), reversed(earlier))[0].tolist()


def exact_layers(toy: dict) -> list[torch.Tensor]:
    return [
        torch.tensor([[[float(Fraction(x)) for x in row] for row in head] for head in layer], dtype=torch.float64)
        for layer in toy["layers_heads_rows"]
    ]


@pytest.mark.parametrize("heads", ["mean", "max", "min"])
def test_the_exact_toy_comes_out_in_its_fractions(toy: dict, heads: str):
    expected = [float(Fraction(x)) for x in toy[f"rollout_{heads}"]["matrix"][0]]
    assert of_layers(exact_layers(toy), heads) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("case", ["dr0_mean", "dr0_max", "dr0.5_mean", "dr0.5_max"])
def test_the_popular_code_with_its_division_put_right_says_the_same_of_the_toy(toy: dict, case: str):
    discard, heads = case.removeprefix("dr").split("_")
    assert of_layers(exact_layers(toy), heads, float(discard)) == pytest.approx(
        toy[f"vitexplain_{case}"]["keepdim_fixed"], abs=1e-12
    )


@pytest.mark.parametrize("discard", ["0", "0.5", "0.9"])
def test_the_four_token_toy_on_which_the_popular_code_goes_wrong(toy: dict, discard: str):
    layers = [torch.tensor([layer], dtype=torch.float64) for layer in toy["toy4_layers"]]
    assert of_layers(layers, discard=float(discard)) == pytest.approx(toy[f"toy4_dr{discard}"]["fixed"], abs=1e-12)


def test_the_worked_attention_example(toy: dict):
    toy = toy["seed004_attention"]
    q, k = torch.tensor(toy["q"], dtype=torch.float64), torch.tensor(toy["K=V"], dtype=torch.float64)
    unscaled = attention_weights(q[None, None, None] * math.sqrt(3), k[None, None])[0, 0, 0]  # takes back the division by √3
    assert unscaled.tolist() == pytest.approx(toy["weights"], abs=1e-9)
    assert [round(x, 3) for x in unscaled.tolist()] == toy["printed_weights"]
    assert [round(x, 3) for x in (unscaled @ k).tolist()] == toy["printed_context"]
    assert attention_weights(q[None, None, None], k[None, None])[0, 0, 0].tolist() == pytest.approx(
        toy["scaled_by_sqrt3_weights"], abs=1e-9
    )

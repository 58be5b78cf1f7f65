"""Primus from a file gives what the published code gives, and its parts are what they are called.

`oracles/primus_published.safetensors` was written by the published code, run outside of this project's environment because it
needs timm: dynamic-network-architectures 0.4.4 with timm 1.0.15, of two small networks with every weight drawn ("plain", and
"full" with learned positions, registers, LayerScale and inner norm), their input and their tokens after the last norm.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from made.foreign import State, written
from safetensors.torch import load_file

from mri_vit.errors import UsageError
from mri_vit.features import transformers
from mri_vit.features.fitting import MEAN, Foreign
from mri_vit.model.checkpoint import read_tensors

PUBLISHED = load_file(Path(__file__).parents[1] / "oracles" / "primus_published.safetensors")


def state(case: str) -> State:
    before = f"{case}.weights."
    return {key.removeprefix(before): value for key, value in PUBLISHED.items() if key.startswith(before)}


def loaded(path: Path, heads: int | None = 2, edge: int | None = None) -> Foreign:
    return transformers.read_primus(read_tensors(path), path, heads, edge)


@pytest.mark.parametrize("case", ["plain", "full"])
def test_tokens_are_those_of_the_published_code(tmp_path: Path, case: str):
    found = loaded(written(state(case), tmp_path / "w.pth", "module."))
    expected = PUBLISHED[f"{case}.tokens"]
    tokens = found.network.tokens(PUBLISHED[f"{case}.volume"].float())
    torch.testing.assert_close(tokens, expected, rtol=1e-4, atol=2e-5)
    assert float(expected.std()) > 0.1


def test_the_mean_is_over_places_and_not_over_registers(tmp_path: Path):
    found = loaded(written(state("full"), tmp_path / "w.pth"))
    read = found.network(PUBLISHED["full.volume"].float())
    assert set(read) == {MEAN}
    torch.testing.assert_close(read[MEAN], PUBLISHED["full.tokens"][:, 2:].mean(dim=1), rtol=1e-4, atol=2e-5)
    assert (found.channels, found.edge, found.patch, found.heads) == (1, 12, 4, 2)


@pytest.mark.parametrize("key", [key for key in state("full") if key not in ("mask_token", "register_tokens")])
def test_every_weight_of_the_file_moves_the_features(tmp_path: Path, key: str):
    volume = PUBLISHED["full.volume"].float()
    moved = state("full")
    moved[key] = moved[key] + torch.linspace(-1, 1, moved[key].numel()).reshape(moved[key].shape)
    before, after = (loaded(written(one, tmp_path / f"{i}.pth")) for i, one in enumerate((state("full"), moved)))
    assert not torch.allclose(before.network(volume)[MEAN], after.network(volume)[MEAN], atol=1e-4)


def test_without_learned_positions_any_edge_is_read(tmp_path: Path):
    found = loaded(written(state("plain"), tmp_path / "w.pth"))
    assert found.edge is None
    assert found.network.tokens(torch.randn(1, 1, 8, 8, 8)).shape == (1, 8, 24)


def test_the_swiglu_is_its_formula():
    torch.manual_seed(1)
    layer, x = transformers.EvaSwiGLU(8, 12), torch.randn(2, 3, 8)
    gate, value = layer.fc1_g(x), layer.fc1_x(x)
    product = gate / (1 + torch.exp(-gate)) * value
    assert torch.allclose(layer(x), layer.fc2(F.layer_norm(product, (12,))), atol=1e-6)


def test_the_published_middle_size_is_read_as_that():
    shape = torch.empty
    with torch.device("meta"):
        made = {"down_projection.proj.weight": shape(864, 1, 8, 8, 8), "down_projection.proj.bias": shape(864)}
        made |= {"eva.pos_embed": shape(1, 8000, 864), "eva.norm.weight": shape(864), "eva.norm.bias": shape(864)}
        for block in range(16):
            before = f"eva.blocks.{block}."
            made |= {f"{before}norm{i}.{part}": shape(864) for i in (1, 2) for part in ("weight", "bias")}
            made |= {f"{before}attn.{name}_proj.weight": shape(864, 864) for name in "qkv"}
            made |= {f"{before}attn.{name}_proj.bias": shape(864) for name in "qv"}
            made |= {f"{before}attn.proj.weight": shape(864, 864), f"{before}attn.proj.bias": shape(864)}
            made |= {f"{before}mlp.{name}.weight": shape(2304, 864) for name in ("fc1_g", "fc1_x")}
            made |= {f"{before}mlp.{name}.bias": shape(2304) for name in ("fc1_g", "fc1_x", "norm")}
            made |= {f"{before}mlp.norm.weight": shape(2304), f"{before}mlp.fc2.weight": shape(864, 2304)}
            made |= {f"{before}mlp.fc2.bias": shape(864), f"{before}gamma_1": shape(864), f"{before}gamma_2": shape(864)}
    found = transformers.read_primus(made, Path("primus.pth"), None, None)
    assert (found.channels, found.edge, found.patch, found.heads) == (1, 160, 8, 12)


def test_a_file_that_does_not_fit_is_refused_by_file_and_key(tmp_path: Path):
    full = state("full")
    for change, told in (
        ({"eva.pos_embed": full["eva.pos_embed"][:, :-1]}, r"eva\.pos_embed is of 26 positions, which are no cube"),
        ({"eva.blocks.1.mlp.norm.weight": torch.ones(5)}, r"eva\.blocks\.1\.mlp\.norm\.weight has shape \[5\]; expected \[64\]"),
        ({"down_projection.stem.weight": torch.ones(5)}, r"down_projection\.stem\.weight has no place"),
    ):
        with pytest.raises(UsageError, match=r"w\.pth: " + told):
            loaded(written(full | change, tmp_path / "w.pth"))
    path = written(full, tmp_path / "w.pth")
    with pytest.raises(UsageError, match=r"width 24 is of no known size; give --heads"):
        loaded(path, None)
    with pytest.raises(UsageError, match=r"heads of 24 / 3 = 8 numbers; rotary positions need a multiple of 6"):
        loaded(path, 3)
    with pytest.raises(UsageError, match=r"eva\.pos_embed is of 3³ patches of 4³, an edge of 12; found 16"):
        loaded(path, 2, 16)

"""The encoder, its heads and its file, against published shapes and independent implementations."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange

from mri_vit.data import tokens
from mri_vit.errors import IntegrityError
from mri_vit.model import network
from mri_vit.model.encoder import Encoder, resize_positions
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.recipe import SIZES, Pool
from mri_vit.settings.schema import CHANNELS, Endpoint, Model
from mri_vit.settings.sections import Grid

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")


def small(**changes: Any) -> Encoder:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"patch_size": 32, "positions": 27, "dim": 24, "depth": 3, "heads": 4, "mlp": 48}
    return Encoder(**sizes | changes).eval()


def inputs(batch: int = 2, n: int = 27, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randn(batch, n, 32, generator=generator)
    return patches, torch.stack([torch.randperm(27, generator=generator)[:n] for _ in range(batch)])


@pytest.mark.long
def test_the_shapes_at_full_size_are_those_of_the_design():
    grid = Grid()
    dim, depth, n_heads, mlp = SIZES["B"]
    encoder = Encoder(len(CHANNELS) * grid.patch**3, grid.positions, dim, depth, n_heads, mlp).eval()
    volume = np.random.default_rng(0).standard_normal((4, 224, 224, 224), np.float32)
    patches = torch.from_numpy(tokens.patchify(volume, grid.patch))[None]
    assert patches.shape == (1, 2744, 4 * 16**3)
    with torch.no_grad():
        embedded = encoder.embed(patches)
        assert rearrange(embedded, "b (i j k) d -> b d i j k", i=14, j=14).shape == (1, 768, 14, 14, 14)
        assert embedded.shape == (1, 2744, 768)
        assert encoder.position.shape == (1, 2745, 768)
        position = torch.arange(2744)[None]
        assert encoder.tokens(patches, position).shape == (1, 2745, 768)
        assert encoder(patches, position).shape == (1, 768)


def test_a_batch_of_ten_has_the_shapes_of_the_design_at_every_step_of_training():
    """On a device without numbers, where tens of gigabytes have shapes alone."""
    with torch.device("meta"):
        net = Network(Model(size="B"), Grid(), [Head(MGMT, "binary"), Head(OS, "hazard", cuts_days=(100.0, 200.0, 300.0))])
        volume, position = torch.empty(10, 4, 224, 224, 224), torch.empty(10, 2744, dtype=torch.long)
    patches = rearrange(volume, "b c (i x) (j y) (k z) -> b (i j k) (c x y z)", x=16, y=16, z=16)
    assert patches.shape == (10, 2744, 4 * 16**3)
    assert rearrange(net.encoder.embed(patches), "b (i j k) d -> b d i j k", i=14, j=14).shape == (10, 768, 14, 14, 14)
    assert net.encoder.position.shape == (1, 2745, 768)
    x = net.encoder.tokens(patches, position)
    assert x.shape == (10, 2745, 768)
    for block in net.encoder.layers:
        assert [part.shape for part in block.attention.project(block.norm1(x))] == [(10, 12, 2745, 64)] * 3
        x = block(x)
        assert x.shape == (10, 2745, 768)
    assert len(net.encoder.layers) == 12
    assert net.encoder.layers[0].attention.weights(x).shape == (10, 12, 2745, 2745)
    assert net.encoder.readout(x).shape == (10, 768)

    outputs = net(patches, position)
    assert {name: output.shape for name, output in outputs.items()} == {"mgmt": (10, 1), "os": (10, 3)}
    torch.stack([output.sum() for output in outputs.values()]).sum().backward()
    assert all(weights.grad is not None and weights.grad.shape == weights.shape for weights in net.parameters())


@pytest.mark.parametrize(("size", "published"), [("B", 86e6), ("L", 307e6), ("H", 632e6)])  # Dosovitskiy et al. 2021, Table 1
def test_parameter_counts_differ_from_the_published_ones_by_patches_positions_and_classes(size: str, published: float):
    grid = Grid()
    dim, depth, n_heads, mlp = SIZES[size]
    with torch.device("meta"):
        count = sum(p.numel() for p in Encoder(4 * 16**3, grid.positions, dim, depth, n_heads, mlp).parameters())
    ours = (4 * 16**3 - 3 * (14 if size == "H" else 16) ** 2) * dim + (2745 - (257 if size == "H" else 197)) * dim
    assert count - ours == pytest.approx(published, rel=0.015)  # the published ones count a class head of 1 to 4 M too


def test_the_linear_patch_embedding_equals_a_strided_convolution():
    encoder = small()
    linear = encoder.embed
    assert isinstance(linear, torch.nn.Linear)
    volume = torch.randn(4, 6, 6, 6)
    kernel = rearrange(linear.weight, "d (c x y z) -> d c x y z", c=4, x=2, y=2)
    convolved = F.conv3d(volume[None], kernel, linear.bias, stride=2)
    embedded = linear(torch.from_numpy(tokens.patchify(volume.numpy(), 2)))
    torch.testing.assert_close(embedded, rearrange(convolved, "1 d i j k -> (i j k) d"), atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore")  # MONAI's own
def test_logits_equal_monais_with_the_same_weights():
    from monai.networks.nets.vit import ViT

    torch.manual_seed(0)
    theirs = ViT(
        4,
        (12, 12, 12),
        (4, 4, 4),
        24,
        48,
        3,
        4,
        proj_type="conv",
        classification=True,
        num_classes=2,
        post_activation="x",
        qkv_bias=True,
    )
    theirs.eval()
    torch.nn.init.normal_(theirs.cls_token)
    grid = Grid(edge=12, spacing_mm=1.0, patch=4)
    ours = Network(Model(dim=24, depth=3, heads=4, mlp=48), grid, [Head(MGMT, "binary"), Head(OS, "cox")]).eval()
    source = theirs.state_dict()
    weights = {
        "encoder.embed.weight": source["patch_embedding.patch_embeddings.weight"].flatten(1),
        "encoder.embed.bias": source["patch_embedding.patch_embeddings.bias"],
        "encoder.cls": source["cls_token"],
        # MONAI gives CLS no position
        "encoder.position": F.pad(source["patch_embedding.position_embeddings"], (0, 0, 1, 0)),
        "encoder.norm.weight": source["norm.weight"],
        "encoder.norm.bias": source["norm.bias"],
        "head.mgmt.weight": source["classification_head.weight"][:1],
        "head.mgmt.bias": source["classification_head.bias"][:1],
        "head.os.weight": source["classification_head.weight"][1:],
        "head.os.bias": source["classification_head.bias"][1:],
    }
    names = {
        "norm1": "norm1",
        "norm2": "norm2",
        "attn.qkv": "attention.qkv",
        "attn.out_proj": "attention.out",
        "mlp.linear1": "mlp.0",
        "mlp.linear2": "mlp.2",
    }
    for block in range(3):
        for their_name, our_name in names.items():
            for kind in ("weight", "bias"):
                weights[f"encoder.blocks.{block}.{our_name}.{kind}"] = source[f"blocks.{block}.{their_name}.{kind}"]
    ours.load_state_dict(weights)
    volume = torch.randn(2, 4, 12, 12, 12)
    patches = torch.stack([torch.from_numpy(tokens.patchify(v.numpy(), 4)) for v in volume])
    out = ours(patches, torch.arange(27).expand(2, -1))
    torch.testing.assert_close(torch.cat([out["mgmt"], out["os"]], dim=1), theirs(volume)[0], atol=1e-5, rtol=0)


def test_the_attention_matrices_times_v_are_the_fused_output():
    attention = small().layers[0].attention
    x = torch.randn(2, 9, 24)
    weights = attention.weights(x)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 4, 9))
    mixed = attention.out(rearrange(weights @ attention.project(x)[2], "b h n e -> b n (h e)"))
    torch.testing.assert_close(mixed, attention(x), atol=1e-5, rtol=0)


def test_attention_in_row_blocks_gives_the_same_output_and_the_heads_mean():
    attention = small().layers[0].attention
    x = torch.randn(2, 300, 24)  # more rows than one block holds, and no whole number of blocks
    out, mean = attention.weighted(x)
    torch.testing.assert_close(out, attention(x), atol=1e-5, rtol=0)
    torch.testing.assert_close(mean, attention.weights(x).mean(dim=1), atol=1e-6, rtol=0)
    torch.testing.assert_close(attention.cls_weights(x), mean[:, 0], atol=1e-6, rtol=0)


def test_the_order_of_tokens_does_not_matter_only_their_places():
    encoder = small()
    patches, position = inputs(1)
    order = torch.randperm(27)
    torch.testing.assert_close(encoder(patches[:, order], position[:, order]), encoder(patches, position), atol=1e-5, rtol=0)
    assert not torch.allclose(encoder(patches[:, order], position), encoder(patches, position), atol=1e-3)


POOLS: tuple[Pool, ...] = get_args(Pool)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("conv_stem", [None, 6])
def test_with_every_pool_and_stem_tokens_come_in_any_order_and_the_file_tells_which(tmp_path, pool: Pool, conv_stem: int | None):
    torch.manual_seed(0)
    model = Model(dim=24, depth=2, heads=4, mlp=48, pool=pool, conv_stem=conv_stem, zero_head=False)
    net = Network(model, Grid(edge=6, patch=2), [Head(MGMT, "binary")]).eval()
    patches, position = inputs(2, n=9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(3))
    expected = net(patches, position)["mgmt"]
    torch.testing.assert_close(net(patches[:, order], position[:, order])["mgmt"], expected, atol=1e-5, rtol=0)
    network.save(net, tmp_path / "net.safetensors")
    again = network.load(tmp_path / "net.safetensors").eval()
    assert again.model == model
    torch.testing.assert_close(again(patches, position)["mgmt"], expected, atol=1e-6, rtol=0)


def test_the_pools_read_what_their_names_say():
    x = torch.randn(2, 6, 24, generator=torch.Generator().manual_seed(0), requires_grad=True)
    normed = F.layer_norm(x, (24,))
    cls, others = normed[:, 0], normed[:, 1:]
    assert torch.allclose(small(pool="cls").readout(x), cls, atol=1e-6)
    assert torch.allclose(small(pool="mean").readout(x), cls + others.sum(dim=1) / 5, atol=1e-6)
    assert torch.allclose(small(pool="max").readout(x), cls + others.max(dim=1).values, atol=1e-6)


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_each_places_parts_sum_to_one_and_make_up_what_is_added_to_cls(pool: Pool):
    encoder = small(pool=pool)
    x = torch.randn(3, 8, 24, generator=torch.Generator().manual_seed(1))
    parts = encoder.parts(x)
    assert parts.min() >= 0
    torch.testing.assert_close(parts.sum(dim=1), torch.ones(3, 24))
    put_together = encoder.norm(x[:, 0]) + (parts * encoder.norm(x[:, 1:])).sum(dim=1)
    torch.testing.assert_close(encoder.readout(x), put_together, atol=1e-6, rtol=0)


@pytest.mark.parametrize("conv_stem", [None, 8])
def test_without_a_block_the_readout_is_a_maximum_over_embedded_places_and_a_constant(conv_stem: int | None):
    encoder = small(depth=0, pool="max", conv_stem=conv_stem)
    patches, position = inputs(n=9)
    embedded = torch.stack([encoder.embed(patches[:, [i]])[:, 0] + encoder.position[0, 1 + position[:, i]] for i in range(9)])
    highest = F.layer_norm(embedded, (24,)).amax(dim=0)
    constant = F.layer_norm((encoder.cls + encoder.position[:, :1])[0, 0], (24,))
    torch.testing.assert_close(encoder(patches, position), constant + highest)
    no_patch = small(depth=0, pool="max", conv_stem=conv_stem)(patches[:, :0], position[:, :0])
    torch.testing.assert_close(no_patch, constant.expand(2, -1))  # what CLS adds knows nothing of a patient


def test_without_a_block_a_place_that_is_given_cannot_change_what_another_shows():
    encoder = small(depth=0, pool="max")
    patches, position = inputs(n=9)
    parts = [encoder(patches[:, some], position[:, some]) for some in (slice(0, 4), slice(4, 9))]
    torch.testing.assert_close(encoder(patches, position), torch.maximum(*parts))


def test_a_network_without_a_block_comes_back_from_its_file(tmp_path):
    model = Model(dim=24, depth=0, heads=4, mlp=48, pool="max")
    net = Network(model, Grid(edge=6, patch=2), [Head(MGMT, "binary")]).eval()
    network.save(net, tmp_path / "net.safetensors")
    back = network.load(tmp_path / "net.safetensors").eval()
    patches, position = inputs()
    assert len(back.encoder.blocks) == 0
    assert back.encoder(patches, position).equal(net.encoder(patches, position))


def test_what_norms_add_to_a_variance_is_set_for_all_of_them_and_kept():
    net = Network(Model(dim=24, depth=2, heads=4, mlp=48), Grid(edge=12, patch=4), [Head(MGMT, "binary")])
    assert net.encoder.norm_eps == 1e-5
    net.encoder.norm_eps = 1e-3
    found = [module.eps for module in net.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert found == [1e-3] * 5  # two of each block, and the last


@pytest.mark.parametrize("pool", POOLS)
def test_zeroed_heads_start_from_no_difference_and_others_at_random(pool: Pool):
    patches, position = inputs(2)
    for zero, all_same in ((True, True), (False, False)):
        model = Model(dim=24, depth=1, heads=4, mlp=48, pool=pool, zero_head=zero)
        out = Network(model, Grid(edge=6, patch=2), [Head(MGMT, "binary")]).eval()(patches, position)["mgmt"]
        assert (out[0] == out[1]).all() == all_same


def test_drop_path_only_acts_in_training_and_keeps_the_mean():
    torch.manual_seed(0)
    block = small(drop_path=0.5).layers[-1]
    change = torch.ones(20_000, 1, 1)
    torch.testing.assert_close(block.dropped(change), change)
    block.train()
    dropped = block.dropped(change)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert float(dropped.mean()) == pytest.approx(1, abs=0.03)


def test_resized_positions_keep_cls_and_a_linear_ramp():
    ramp = torch.linspace(0, 1, 4)[:, None, None].expand(4, 4, 4).reshape(1, 64, 1)
    position = torch.cat([torch.full((1, 1, 1), 9.0), ramp], dim=1)
    resized = resize_positions(position, 8)
    assert resized.shape == (1, 513, 1)
    assert float(resized[0, 0]) == 9.0
    inner = resized[0, 1:, 0].reshape(8, 8, 8)[1:-1, 4, 4]  # the outermost places lie beyond the old centres
    torch.testing.assert_close(inner.diff(), torch.full((5,), 1 / 6), atol=1e-5, rtol=0)
    torch.testing.assert_close(resize_positions(position, 4), position)
    with pytest.raises(ValueError, match="no cube"):
        resize_positions(position[:, :-1], 8)


def test_a_saved_network_predicts_the_same_and_a_damaged_file_is_refused(tmp_path):
    net = Network(
        Model(dim=24, depth=2, heads=4, mlp=48),
        Grid(edge=12, patch=4),
        [Head(MGMT, "binary", positive_weight=2.0), Head(OS, "hazard", (10.0, 20.0))],
    )
    torch.nn.init.normal_(net.head["mgmt"].weight)  # type: ignore[arg-type]
    network.save(net, tmp_path / "net.safetensors")
    again = network.load(tmp_path / "net.safetensors")
    patches, position = torch.randn(1, 27, 256), torch.arange(27)[None]
    assert again.heads == net.heads
    torch.testing.assert_close(again.eval()(patches, position)["mgmt"], net.eval()(patches, position)["mgmt"], atol=0, rtol=0)
    content = (tmp_path / "net.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(content[:-100])
    with pytest.raises(IntegrityError, match=r"cut\.safetensors"):
        network.load(tmp_path / "cut.safetensors")

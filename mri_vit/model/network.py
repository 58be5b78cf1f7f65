"""Network: encoder and heads as one module; its file, weights as safetensors with a JSON header that says what they are; and its
cost in parameters and floating-point operations.

Letters: b patients, p tokens of each, k numbers in a patch.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mri_vit.errors import IntegrityError
from mri_vit.model.baselines import BASELINES, HYBRIDS, HybridEncoder, VolumeEncoder
from mri_vit.model.encoder import Encoder
from mri_vit.model.heads import Head
from mri_vit.run.atomic import replacing
from mri_vit.run.integrity import as_written, sort_header
from mri_vit.settings import source
from mri_vit.settings.recipe import CHANNELS, Model, parse_sequences
from mri_vit.settings.schema import Endpoint, Study
from mri_vit.settings.sections import Grid

SCHEMA = "mri-vit network 1"
HEAD_FIELDS = ("endpoint", "kind", "cuts_days", "positive_weight", "baseline_hazard")  # that every file has, as before 0.6
UNNAMED = "?"  # stands for the subjects of weights that left their run without ids; no subject may be called so
Encode = Callable[[Model, Grid, tuple[str, ...]], Any]  # a function of a module's top that builds an encoder, as `encoder` does


def encoder(model: Model, grid: Grid, channels: tuple[str, ...]) -> Any:
    """What a recipe names: patches [b p k], grid positions [b p] and who is present [b p] to features [b d], with `dim` = d; an
    `Encoder` for "vit".
    """
    if model.architecture in HYBRIDS:
        return HybridEncoder(model, grid, channels)
    if model.architecture in BASELINES:
        return VolumeEncoder(model, grid, channels)
    dim, depth, heads, mlp = model.shape
    count, shape = len(channels), (dim, depth, heads, mlp)
    size = count * grid.patch**3
    return Encoder(size, grid.positions, *shape, model.stem, model.drop_path, model.conv_stem, model.pool, count, model.texture)


class Network(nn.Module):
    """The ViT, or another network, with one linear head per endpoint; `outputs` are the heads' raw numbers by endpoint name.

    `channels` are the sequences of the patches that it is given, in their order; a network of dense volumes reads those of them
    that `model.channels` names.

    `encode` builds the encoder: a study's own by its recipe, or a variant that is compared with it.

    `label_exposed` are the subjects whose labels its weights were trained on or selected by, `image_exposed` those whose scans
    they were pretrained on.
    """

    def __init__(
        self, model: Model, grid: Grid, heads: list[Head], channels: tuple[str, ...] = CHANNELS, encode: Encode = encoder
    ) -> None:
        super().__init__()
        self.model, self.grid, self.heads, self.channels, self.encode = model, grid, heads, channels, encode
        self.label_exposed: tuple[str, ...] = ()
        self.image_exposed: tuple[str, ...] = ()
        self.encoder = encode(model, grid, channels)
        self.head = nn.ModuleDict({head.endpoint.name: nn.Linear(self.encoder.dim, head.width) for head in heads})
        for linear in self.head.values() if model.zero_head else ():
            nn.init.zeros_(linear.weight)  # type: ignore[arg-type]
            nn.init.zeros_(linear.bias)  # type: ignore[arg-type]

    def forward(
        self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"], present: Bool[Tensor, "b p"] | None = None
    ) -> dict[str, Float[Tensor, "b m"]]:
        cls = self.encoder(patches, position, present)
        return {name: linear(cls) for name, linear in self.head.items()}


def with_heads(network: Network, endpoints: Collection[str]) -> Network:
    """The same network with the heads of some endpoints alone, and the very weights: what it is asked says nothing of others."""
    with torch.device("meta"):
        part = Network(network.model, network.grid, [], network.channels, network.encode)
    part.heads = [head for head in network.heads if head.endpoint.name in endpoints]
    part.encoder = network.encoder
    part.head = nn.ModuleDict({head.endpoint.name: network.head[head.endpoint.name] for head in part.heads})
    part.label_exposed, part.image_exposed = network.label_exposed, network.image_exposed
    return part.train(network.training)


def save(network: Network, path: Path) -> None:
    """Write the weights atomically."""
    metadata = {
        "schema": SCHEMA,
        "channels": json.dumps(network.channels),
        "model": network.model.model_copy(update={"weights": None}).model_dump_json(),  # a path may give a machine away
        "grid": network.grid.model_dump_json(),
        "norm_eps": json.dumps(getattr(network.encoder, "norm_eps", None)),
        "taught": json.dumps(sorted(set(network.label_exposed))),
        "seen": json.dumps(sorted(set(network.image_exposed))),
        "heads": json.dumps([_described(head) for head in network.heads]),
    }
    if variant := _variant(network.encode):
        metadata["variant"] = variant
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    with replacing(path) as beside:
        safetensors.torch.save_file(weights, beside, metadata)  # written piece by piece: as bytes it would be held twice
        sort_header(beside)


def _described(head: Head) -> dict[str, Any]:
    """A head's fields; those of other kinds, at their defaults, are left out."""
    fields = {field.name: getattr(head, field.name) for field in dataclasses.fields(head)}
    kept = {name: value for name, value in fields.items() if name in HEAD_FIELDS or value != getattr(Head, name, None)}
    return kept | {"endpoint": head.endpoint.model_dump(exclude_defaults=True)}


def _variant(encode: Encode) -> str:
    """What a file calls the builder of its encoder, whose weights may fit another's and mean something else there."""
    return "" if encode is encoder else encode.__name__


def read(path: Path, schema: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The weights of a file of ours and its header. Raises IntegrityError when it is damaged or is something else."""
    if wrong := source.fault(path):
        raise IntegrityError(f"{path}: weights cannot be read: {wrong}")
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            # Copied to where torch aligns them: in the file they lie behind the header, by whose length last digits would change.
            weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        raise IntegrityError(f"{path}: weights cannot be read: {error}") from None
    if metadata.get("schema") != schema:
        raise IntegrityError(f"{path}: found {metadata.get('schema')}; expected {schema}")
    return weights, metadata


def load(path: Path, encode: Encode = encoder) -> Network:
    """Read a network, whose encoder `encode` built. Raises IntegrityError when the file is damaged or is something else."""
    weights, metadata = read(path, SCHEMA)
    if (found := metadata.get("variant", "")) != (expected := _variant(encode)):
        raise IntegrityError(f"{path}: found the variant {found or 'none'}; expected {expected or 'none'}")
    heads = []
    with as_written(path):
        for fields in json.loads(metadata["heads"]):
            fields |= {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
            heads.append(Head(**fields | {"endpoint": Endpoint.model_validate(fields["endpoint"])}))
        model, grid = Model.model_validate_json(metadata["model"]), Grid.model_validate_json(metadata["grid"])
        norm_eps = json.loads(metadata.get("norm_eps", "null"))
        known = {key: tuple(json.loads(metadata.get(key, "[]"))) for key in ("taught", "seen")}
        if not isinstance(norm_eps, int | float | None):
            raise ValueError(f"norm_eps {norm_eps!r}")
        with torch.device("meta"):
            network = Network(model, grid, heads, parse_sequences(metadata["channels"]), encode)
    try:
        network.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise IntegrityError(f"{path}: weights do not fit the network that the file describes: {error}") from None
    if norm_eps:
        network.encoder.norm_eps = float(norm_eps)
    network.label_exposed, network.image_exposed = known["taught"], known["seen"]
    return network


def count_parameters(net: nn.Module) -> int:
    """How many numbers the network learns; the running means of batch normalisation are not learned."""
    return sum(parameter.numel() for parameter in net.parameters())


@torch.no_grad()
def flops(net: nn.Module, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> int:
    """Floating-point operations of one forward pass in evaluation, for the whole batch.

    Definition: the operations of convolutions, linear maps and attention's two products, a multiply-add being 2; papers that
    count multiply-adds (He et al. 2016, Tan & Le 2019) print half of it. Norms, activations, softmax and pooling are left out,
    as is usual: they are a few per cent.
    Assumption: as many as the published formulas of each operation say; a convolution's zeros at the border are counted, and
    nothing is saved by patches that are empty.
    Source: torch.utils.flop_counter, which counts the shapes that pass by. It knows the attention that a GPU fuses and not
    the one that a CPU does (PyTorch 2.13), so attention is held to its two plain products here, whatever is chosen for it.
    `net`: nothing is computed, so a network of any size takes less than a second or two, and it is left as it was.
    `patches`, `place`: a batch as the training loop makes it; only the shapes matter.
    Returns: Operations, for all b patients.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        _in_shapes(net, patches, position)
    return counter.get_total_flops()


@torch.no_grad()
def activation_bytes(net: nn.Module, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> int:
    """What a forward pass keeps for the backward pass, about: the batch and every layer's output, in single precision.

    Assumption: attention keeps no weights (PyTorch's fused one), and functions between layers keep nothing of their own.
    """
    kept = [patches]

    def keep(layer: nn.Module, given: object, output: object) -> None:
        if isinstance(output, Tensor):
            kept.append(output)

    hooks = [module.register_forward_hook(keep) for module in net.modules() if not any(True for _ in module.children())]
    try:
        _in_shapes(net, patches, position)
    finally:
        for hook in hooks:
            hook.remove()
    return sum(tensor.numel() for tensor in kept) * 4


def _in_shapes(net: nn.Module, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> None:
    """A forward pass in evaluation of which nothing is computed; the network is left as it was."""
    modes = {module: module.training for module in net.modules()}
    net.eval()  # batch normalisation in training refuses a batch of one
    weights = {name: tensor.to("meta") for name, tensor in (*net.named_parameters(), *net.named_buffers())}  # shapes alone
    try:
        torch.func.functional_call(net, weights, (patches.to("meta"), position.to("meta")))
    finally:
        for module, mode in modes.items():
            module.training = mode


def state_bytes(study: Study) -> int:
    """Size of what is written while a network learns: weights, the best so far, AdamW's two moments, the moving average."""
    with torch.device("meta"):
        net = Network(study.model, study.grid, [], study.channels)
        weights = sum(weight.numel() * weight.element_size() for weight in net.parameters())
    return weights * (5 if study.train.ema else 4)

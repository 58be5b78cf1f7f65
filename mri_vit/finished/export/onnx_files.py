"""ONNX: each network of a run or model as a graph that other runtimes compute, scores and attention rollout from tokens.

Letters: p tokens that are given, any number; n = p + 1 with CLS; k numbers in a patch.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from einops import rearrange
from jaxtyping import Float, Int
from rich.console import Console
from torch import Tensor, nn

from mri_vit.errors import UsageError
from mri_vit.explain.methods.rollout import carried, rollout, with_residual
from mri_vit.finished import exported_model, trained_run
from mri_vit.finished.predicted_patient import NOTICE, why_no_maps
from mri_vit.model import heads, network
from mri_vit.model.encoder import attention_weights
from mri_vit.model.network import Network
from mri_vit.run import atomic, files
from mri_vit.run.atomic import complete
from mri_vit.run.screen import progress, say

SUFFIX = ".onnx"
OURS = re.compile(r"(repeat-\d+-)?fold-\d+(-seed-\d+)?\.onnx")
NEEDED = ("onnx", "onnxscript", "onnxruntime")
OPSET = 18  # the first with all that the graph needs, and what torch's exporter is written for
TOLERANCE = 1e-4  # of scores and of a rollout's share of the largest: other orders of summation in single precision
CHECKED_TOKENS = (7, 61)  # on which each file is compared with its network; neither is the number it was exported with
EXAMPLE_TOKENS = 16
ROLLOUT = "rollout"


class Graph(nn.Module):
    """A network as a graph without loops over blocks of rows: each endpoint's score, and the rollout of CLS."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net

    def forward(self, patches: Float[Tensor, "1 p k"], position: Int[Tensor, "1 p"]) -> tuple[Tensor, ...]:
        """Scores [1 c] of each head, c numbers of its prediction; and the rollout [1 n], CLS first."""
        encoder, matrices = self.net.encoder, []
        x = encoder.tokens(patches, position)
        for block in encoder.layers:
            q, k, v = block.attention.project(block.norm1(x))
            weights = attention_weights(q, k)
            matrices.append(weights.mean(dim=1))
            x = x + block.attention.out(rearrange(weights @ v, "b h n e -> b n (h e)"))
            x = x + block.mlp(block.norm2(x))
        readout = encoder.readout(x)
        scores = [heads.scores(head, self.net.head[head.endpoint.name](readout)) for head in self.net.heads]
        if encoder.pool == "cls":
            row = with_residual(matrices.pop()[:, 0])
        else:
            row = torch.cat([x.new_ones(1, 1), encoder.parts(x).mean(dim=2)], dim=1) / 2
        return *scores, carried(row, reversed(matrices))


def export_onnx(home: Path, output: Path, console: Console) -> None:
    """Write every network of a run or model in `home` as `fold-1.onnx` … into `output`, complete or not at all.

    Each is compared with its network in onnxruntime before it is kept.

    Raises UsageError where the networks have no rollout, or something else lies at `output`; ArithmeticError where a graph
    computes something else than its network.
    """
    if lacking := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise UsageError(f"{lacking[0]} is not installed, which ONNX needs: pip install 'mri-vit[onnx]'")
    refuse_foreign(output)
    opened = exported_model.open_model(home) if exported_model.is_model(home) else trained_run.open_run(home)
    opened.refuse_changed(console)
    if reason := why_no_maps(opened.study.model, ["all"]):
        raise UsageError(f"{home}: no graph can be exported: {reason}")
    if not opened.networks:
        raise UsageError(f"{home}: no fold has {files.WEIGHTS}; the networks of a run are needed to export them")
    worst, size = 0.0, 0
    with complete(output, refuse_foreign) as beside, progress(console) as bar:
        task = bar.add_task("export", total=len(opened.networks) * opened.study.train.seeds, note="")
        for fold in opened.networks.values():
            for seed in range(opened.study.train.seeds):
                home_of = files.seed_folder(fold, seed)
                file = beside / f"{home_of.relative_to(opened.folder).as_posix().replace('/', '-')}{SUFFIX}"
                net = network.load(home_of / files.WEIGHTS).eval()
                write(net, file)
                worst, size = max(worst, difference(net, file)), size + file.stat().st_size
                bar.update(task, advance=1)
    say(console, f"onnx: {output}, {size / 1e6:.1f} MB; largest difference from the networks in onnxruntime {worst:.1e}")


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is absent or holds nothing but graphs of ours."""
    atomic.refuse_strangers(
        folder, lambda name: bool(OURS.fullmatch(name)) and NOTICE.encode() in (folder / name).read_bytes(), "an ONNX export"
    )


def write(net: Network, file: Path) -> None:
    """Write one network as a graph with any number of tokens.

    Its inputs are `patches` and `position`, as `load_tokens` gives them; its outputs the endpoints by name, and `rollout`.
    """
    import onnx

    tokens = torch.export.Dim("tokens")
    with _quiet():
        program = torch.onnx.export(
            Graph(net),
            example(net, EXAMPLE_TOKENS),
            dynamo=True,
            opset_version=OPSET,
            input_names=["patches", "position"],
            output_names=[*(head.endpoint.name for head in net.heads), ROLLOUT],
            dynamic_shapes={"patches": {1: tokens}, "position": {1: tokens}},
            verbose=False,
        )
    assert program is not None
    made = program.model_proto
    kept = {"notice": NOTICE, "sequences": ", ".join(net.channels), "grid": net.grid.model_dump_json()}
    onnx.helper.set_model_props(made, kept)
    onnx.checker.check_model(made)
    onnx.save(made, file)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says about itself, such as that torchvision is not there."""
    logger = logging.getLogger("torch.onnx._internal.exporter")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def example(net: Network, count: int) -> tuple[Float[Tensor, "1 p k"], Int[Tensor, "1 p"]]:
    """Random tokens at `count` grid positions, at most as many as the grid has."""
    random = torch.Generator().manual_seed(count)
    count = min(count, net.grid.positions)
    patches = torch.randn(1, count, len(net.channels) * net.grid.patch**3, generator=random)
    return patches, torch.randperm(net.grid.positions, generator=random)[:count].sort().values[None]


@torch.no_grad()
def difference(net: Network, file: Path) -> float:
    """The largest difference of a graph in onnxruntime from its network. Raises ArithmeticError above `TOLERANCE`."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    worst = 0.0
    for count in CHECKED_TOKENS:
        patches, position = example(net, count)
        found = [torch.from_numpy(one) for one in session.run(None, {"patches": patches.numpy(), "position": position.numpy()})]
        outputs = net(patches, position)
        expected = [heads.scores(head, outputs[head.endpoint.name]) for head in net.heads]
        expected.append(rollout(net.encoder, patches, position))
        for name, ours, theirs in zip([*outputs, ROLLOUT], expected, found, strict=True):
            scale = ours.abs().max() if name == ROLLOUT else ours.abs().max().clamp_min(1)  # shares are small, scores may be 0
            away = float((ours - theirs).abs().max() / scale)
            if not away <= TOLERANCE:
                raise ArithmeticError(f"{file.name}: {name} of {count} tokens differs by {away:.2e} from the network's")
            worst = max(worst, away)
    return worst

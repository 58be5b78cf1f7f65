"""Wording: parts of `metrics.json` go in, the words for them in Markdown come out, with nothing of the run left as markup."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import Part
from mri_vit.report.schema.run import Settings
from mri_vit.report.schema.survival import SurvivalResult
from mri_vit.settings.recipe import NO_CANDIDATES, Model
from mri_vit.settings.sections import Grid
from mri_vit.settings.sequences import title

NUMBERS = dict(enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight"), 1)) | {16: "sixteen"}
MARKUP = re.compile(r"([\\`*_\[\]|~$])")  # what Markdown reads as markup within a line or a table's cell


@dataclass(frozen=True)
class Facts:
    """What `metrics.json` does not hold, all of it optional.

    `brains` are the patients by the way their brain was found (mask, none or deepbet); `own_words` the author's own by the
    name of a gap (ethics, scanners, …).
    """

    brains: Mapping[str, int] = field(default_factory=dict)
    own_words: Mapping[str, str] = field(default_factory=dict)

    def gap(self, name: str, wanted: str) -> str:
        """The author's own words for something that a run cannot know, or a marked gap that says what is wanted."""
        return escape(self.own_words[name]) if self.own_words.get(name) else f"**[author: {wanted}]**"


def escape(value: object) -> str:
    """Any text on one line that Markdown shows as it is: no markup, no HTML, no new cell."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())
    return MARKUP.sub(r"\\\1", html.escape(line, quote=False))


def is_known(value: object) -> bool:
    """Whether there is anything to report: not missing, not NaN, not empty; an estimate needs its value, a test its p."""
    if isinstance(value, Part):
        inner = {key: getattr(value, key) for key in type(value).model_fields}
        chief = next((key for key in ("value", "p") if key in inner), None)
        return is_known(inner[chief] if chief else inner)
    if isinstance(value, Mapping):
        return any(is_known(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return any(is_known(inner) for inner in value)
    return value is not None and value != "" and not (isinstance(value, float) and math.isnan(value))


def counted(number_of: int, thing: str) -> str:
    """1 patient, 2 patients."""
    return f"{number_of} {thing}{'' if number_of == 1 else 's'}"


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def in_words(number: int) -> str:
    """Small numbers as texts have them."""
    return NUMBERS.get(number, str(number))


def every_sequence(channels: Sequence[str]) -> str:
    """All four sequences; both sequences; the sequence T1."""
    if len(channels) == 1:
        return f"the sequence {title(channels[0])}"
    return "both sequences" if len(channels) == 2 else f"all {in_words(len(channels))} sequences"


def settings(metrics: Metrics) -> Settings | None:
    """The study's settings; None for a table from elsewhere, whose settings say nothing of its making."""
    return metrics.settings if isinstance(metrics.settings, Settings) and metrics.design != "table" else None


def trained(metrics: Metrics) -> Settings | None:
    """Likewise, but None too for an external evaluation, which trains nothing."""
    return settings(metrics) if metrics.design == "cross-validation" else None


def results(metrics: Metrics) -> Iterator[tuple[str, str, BinaryResult | SurvivalResult]]:
    """(endpoint, model, result) of every result."""
    for name, endpoint in metrics.endpoints.items():
        for model, found in endpoint.models.items():
            yield name, model, found


def controls(metrics: Metrics) -> list[str]:
    """The controls of the run, or of the evaluated run, that have results."""
    ran = {model for _, model, _ in results(metrics)} if settings(metrics) else set()
    return [name for name in NO_CANDIDATES if name in ran]


def kinds(metrics: Metrics) -> set[str]:
    """Of the endpoints: "binary", "survival"."""
    return {endpoint.kind for endpoint in metrics.endpoints.values()}


def labels_alone(metrics: Metrics) -> str:
    """ "'s labels" where somebody's scans were seen in pretraining, so that a claim says no more than is true; else ""."""
    return "'s labels" if metrics.transductive else ""


def parameters(model: Model, grid: Grid, channels: int) -> int:
    """Parameters of the encoder (`model.encoder.Encoder`), which leaves out the heads: they depend on the fold's labels."""
    width, depth, _, mlp = model.shape
    patch = channels * grid.patch**3
    embedding = linear(patch, model.stem) + linear(model.stem, width) if model.stem else linear(patch, width)
    if model.conv_stem:
        read = 2 * channels if model.texture else channels  # with texture as they are, and normalised
        embedding = convolutions(grid.patch, read, model.conv_stem, width)
        if model.texture:
            embedding += read * min(3, grid.patch) ** 3 * model.texture + linear(model.texture, width)
    norm = 2 * width
    block = linear(width, 3 * width) + linear(width, width) + linear(width, mlp) + linear(mlp, width) + 2 * norm
    return embedding + width + (grid.places + 1) * width + depth * block + norm


def convolutions(edge: int, inputs: int, channels: int, width: int) -> int:
    """Parameters of the strided convolutions of `model.embedding.ConvolutionalStem`: 3³ kernels until two voxels are left."""
    total = 0
    while edge > 2:
        total += linear(inputs * 27, channels)
        inputs, channels, edge = channels, 2 * channels, (edge + 1) // 2
    return total + linear(inputs * edge**3, width)


def linear(inputs: int, outputs: int) -> int:
    """Parameters of a linear map with bias."""
    return (inputs + 1) * outputs

"""Wording: values of `metrics.json` go in, the words for them in Markdown come out, with nothing of the run left as markup."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mri_vit.report.words import notation
from mri_vit.settings.models import CONTROLS
from mri_vit.settings.schema import CHANNELS

Metrics = Mapping[str, Any]

MARKUP = re.compile(r"([\\`*_\[\]|~$])")  # what Markdown reads as markup within a line or a table's cell


def escape(value: object) -> str:
    """Any text on one line that Markdown shows as it is: no markup, no HTML, no new cell."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())
    return MARKUP.sub(r"\\\1", html.escape(line, quote=False))


def gap(facts: Mapping[str, Any], name: str, wanted: str) -> str:
    """The author's own words for something that a run cannot know, or a marked gap that says what is wanted."""
    return escape(facts[name]) if facts.get(name) else f"**[author: {wanted}]**"


def estimate(value: Any) -> str:
    """A number, or a value with its 95 % interval: 0.912 [0.850, 0.974]."""
    if not isinstance(value, Mapping):
        return notation.number(value)
    point, low, high = (value.get(key) for key in ("value", "low", "high"))
    if not (is_known(point) and is_known(low) and is_known(high)):
        return notation.number(point)
    return notation.between(point, low, high)


def is_known(value: Any) -> bool:
    """Whether there is anything to tell: not missing, not NaN, not empty; an estimate needs its value, a test its p."""
    if isinstance(value, Mapping):
        telling = next((key for key in ("value", "p") if key in value), None)
        return is_known(value[telling]) if telling else any(is_known(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return any(is_known(inner) for inner in value)
    return value is not None and value != "" and not (isinstance(value, float) and math.isnan(value))


def counted(number_of: int, thing: str) -> str:
    """1 patient, 2 patients."""
    return f"{number_of} {thing}{'' if number_of == 1 else 's'}"


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def design(metrics: Metrics) -> str:
    """ "cross-validation", "external" (a run's models on another cohort) or "table" (made elsewhere)."""
    return metrics.get("design") or ("cross-validation" if metrics.get("settings") else "table")


def settings(metrics: Metrics, section: str) -> Mapping[str, Any]:
    """One section of the study's settings; empty for a table from elsewhere, whose settings say nothing of its making."""
    return {} if design(metrics) == "table" else (metrics.get("settings") or {}).get(section) or {}


def trained(metrics: Metrics, section: str) -> Mapping[str, Any]:
    """Likewise, but empty too for an external evaluation, which trains nothing."""
    return settings(metrics, section) if design(metrics) == "cross-validation" else {}


def results(metrics: Metrics) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(endpoint, model, figures) of every result."""
    for name, endpoint in metrics.get("endpoints", {}).items():
        for model, found in endpoint.get("models", {}).items():
            yield name, model, found


def controls(metrics: Metrics) -> list[str]:
    """The controls of the run, or of the evaluated run, that have results."""
    ran = {model for _, model, _ in results(metrics)} if settings(metrics, "train") else set()
    return [name for name in CONTROLS if name in ran]


def kinds(metrics: Metrics) -> set[str]:
    """Of the endpoints: "binary", "survival"."""
    return {endpoint["kind"] for endpoint in metrics.get("endpoints", {}).values()}


def reasons(metrics: Metrics, facts: Mapping[str, Any]) -> dict[str, int]:
    """Patients by reason of exclusion, from `excluded_reasons` of the cohort or the rows of `excluded.csv` among the facts."""
    given = metrics.get("cohort", {}).get("excluded_reasons")
    if given:
        return dict(given)
    pairs = {(row["patient"], row["reason"]) for row in facts.get("excluded", ())}
    found = [reason for _, reason in pairs]
    return {reason: found.count(reason) for reason in sorted(set(found), key=lambda reason: (-found.count(reason), reason))}


def labels_alone(metrics: Metrics) -> str:
    """ "'s labels" where somebody's scans were seen in pretraining, so that a claim says no more than is true; else ""."""
    return "'s labels" if metrics.get("transductive") else ""


def places(grid: Mapping[str, Any]) -> int:
    """Places of the prepared grid."""
    return (grid["edge"] // grid["patch"]) ** 3


def parameters(shape: Mapping[str, Any], grid: Mapping[str, Any]) -> int:
    """Parameters of the encoder (`model.encoder.Encoder`), which leaves out the heads: they depend on the fold's labels."""
    width, mlp, stem = shape["dim"], shape["mlp"], shape.get("stem")
    patch = len(CHANNELS) * grid["patch"] ** 3
    embedding = linear(patch, stem) + linear(stem, width) if stem else linear(patch, width)
    if shape.get("conv_stem"):
        embedding = convolutions(grid["patch"], shape["conv_stem"], width)
    norm = 2 * width
    block = linear(width, 3 * width) + linear(width, width) + linear(width, mlp) + linear(mlp, width) + 2 * norm
    return embedding + width + (places(grid) + 1) * width + shape["depth"] * block + norm


def convolutions(edge: int, channels: int, width: int) -> int:
    """Parameters of the strided convolutions of `model.embedding.ConvolutionalStem`: 3³ kernels until two voxels are left."""
    total, inputs = 0, len(CHANNELS)
    while edge > 2:
        total += linear(inputs * 27, channels)
        inputs, channels, edge = channels, 2 * channels, (edge + 1) // 2
    return total + linear(inputs * edge**3, width)


def linear(inputs: int, outputs: int) -> int:
    """Parameters of a linear map with bias."""
    return (inputs + 1) * outputs

"""Figures: a prepared patient's record goes in; the numbers by which it is held against the run's patients come out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import safetensors

from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.run import files
from mri_vit.run.integrity import as_written
from mri_vit.settings.sequences import title

Side = Literal["both", "high"]  # on which a value is far out


class Name(NamedTuple):
    """Which figure, and of which scan; "" of the whole patient."""

    figure: str
    scan: str


@dataclass(frozen=True)
class Kind:
    """What a figure is called, its unit, and on which scale and side distances from the middle are taken."""

    title: str
    unit: str = ""
    is_ratio: bool = False  # distances are those of its logarithm: half is as far as twice
    side: Side = "both"


TOKENS = Name("tokens", "")
HISTOGRAM, FEATURES = "histogram", "features"  # the two that are distances from the run's patients themselves
WHOLE = {
    "brain_ml": Kind("brain volume", "ml", is_ratio=True),
    "tokens": Kind("number of places with brain", is_ratio=True),
    "squeezed": Kind("least scale of the MNI152 brain to the greatest"),
    "coverage": Kind("least share that is there of a part of the MNI152 brain"),
    "mni_metric": Kind("likeness to the MNI152 brain, mutual information"),
    "fluid_contrast": Kind("asymmetry of T2 less FLAIR deep in the brain", "SD"),
    "enhancement": Kind("asymmetry of T1ce less T1 deep in the brain", "SD"),
    FEATURES: Kind("distance of what the networks read", "times the run's median", is_ratio=True, side="high"),
}
OF_SCAN = {
    HISTOGRAM: Kind("distance of the histogram from the run's median histogram", "SD", is_ratio=True, side="high"),
    "contrast": Kind("standard deviation of the brain to its mean", is_ratio=True),
    "signal_to_noise": Kind("signal over noise", is_ratio=True),
    "likeness": Kind("likeness to the reference"),
}


@dataclass(frozen=True)
class Figures:
    """One patient's figures; None is not known. `quantiles` are those of each scan in its brain, of which histograms are made."""

    value: dict[Name, float | None]
    quantiles: dict[str, list[float]]


def kind(name: Name) -> Kind:
    return (OF_SCAN if name.scan else WHOLE)[name.figure]


def words(name: Name) -> str:
    """A figure's name for a reader."""
    return f"{kind(name).title} of {title(name.scan)}" if name.scan else kind(name).title


def of_patient(folder: Path) -> Figures:
    """The figures of a prepared patient, but for what networks read. Raises IntegrityError where the record is damaged."""
    record = load_record(folder)
    with as_written(folder / files.PATIENT, PREPARE_AGAIN):
        with safetensors.safe_open(str(folder / files.TOKENS), "np") as file:  # its header alone: the rest has megabytes
            (count,) = file.get_slice("place").get_shape()
        return _of_record(record, count)


def _of_record(record: Mapping[str, Any], count: int) -> Figures:
    steps = {step["step"]: step for step in record["steps"]}
    quality = record["quality"]
    found: dict[Name, float | None] = {
        Name("brain_ml", ""): record["brain_ml"],
        TOKENS: float(count),
        Name("squeezed", ""): quality["squeezed"],
        Name("coverage", ""): min((one for one in quality["coverage"].values() if one is not None), default=None),
        Name("mni_metric", ""): steps["to_mni"].get("metric"),
        Name("fluid_contrast", ""): quality["fluid_contrast"],
        Name("enhancement", ""): quality["enhancement"],
    }
    for scan, own in quality["scans"].items():
        found[Name("signal_to_noise", scan)] = own["signal_to_noise"]
        found[Name("likeness", scan)] = own.get("likeness")
        scale = steps["intensity"]["scans"].get(scan, {})
        found[Name("contrast", scan)] = scale["deviation"] / scale["mean"] if scale.get("mean", 0) > 0 else None
    known = {name: None if value is None or not math.isfinite(value) else float(value) for name, value in found.items()}
    return Figures(known, {scan: own["quantiles"] for scan, own in quality["scans"].items()})

"""One patient's map in words: an entry of the patient's `map.json` and of `metrics.json` in, lines for a reader out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mri_vit.explain.methods.catalogue import UNIT
from mri_vit.explain.outputs.overlays import nearly_even
from mri_vit.report.schema.maps import ShownMap
from mri_vit.report.words.notation import number, title
from mri_vit.settings import sequences


def label(entry: ShownMap) -> str:
    """A map's name in the choice: endpoint, method and, where the map is no finding, that."""
    name = f"{title(entry.endpoint) if entry.endpoint else 'Every endpoint'}: {entry.title}"
    return f"{name} (no finding)" if entry.kind == "none" else name


def facts(patient: Mapping[str, Any], entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `map.json` says of a patient and of one of the maps, as lines for a reader: folds and repeats are counted from 1."""
    shares = entry.get("by_scan") or {}
    source = f" ({entry['source']})" if entry.get("source") else ""
    lines = [
        ("Method", f"{entry['title']}{source}"),
        ("Explains", entry.get("explains") or "the model as a whole: the map is the same for every endpoint"),
        ("Unit", entry.get("unit") or UNIT),
        ("Peak", peak(entry)),
        ("From the sequences", ", ".join(f"{sequences.title(scan)} {100 * share:.0f} %" for scan, share in shares.items())),
        ("Model", patient.get("model") or ""),
    ]
    if patient.get("fold") is not None:
        repeat = "" if patient.get("repeat") is None else f" of repeat {patient['repeat'] + 1}"
        lines.append(("Fold", f"fold {patient['fold'] + 1}{repeat}, counted from 1"))
    return [(name, str(text)) for name, text in lines if text]


def peak(entry: Mapping[str, Any]) -> str:
    """The map's highest value and where it lies."""
    if not entry["peak"]:
        return "none: this map is 0 everywhere"
    x, y, z = entry["peak_mm"]
    even = " (nearly even: nothing to see)" if nearly_even(entry["peak"]) else ""
    return f"{number(entry['peak'], 2)}{even}, at x {x:.1f}, y {y:.1f}, z {z:.1f} mm (scanner space: to the right, front and top)"

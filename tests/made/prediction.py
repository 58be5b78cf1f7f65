"""A prediction's document as a page reads it, with an endpoint shown, one withheld, and survival; and files to compare."""

from __future__ import annotations

import json
import re
from pathlib import Path

from mri_vit.finished.prediction_document import Prediction

MAPS = "maps/sub-P001_"
WORDS = "mgmt: passes: its maps change with the weights and fall further than random"

EXAMPLE = {
    "schema": 2,
    "notice": "For research; not a medical device. No decision about a patient may rest on it.",
    "patient": "P001",
    "made": "2026-11-23T18:30:00+00:00",
    "run": {
        "study": "demo", "patients": 96, "folds": 3, "repeats": 1, "seeds": 1,
        "folds_sha256": "a" * 64, "predictions_sha256": "b" * 64, "verdicts": "report",
        "weights": [{"file": f"fold-{fold}/best.safetensors", "sha256": str(fold) * 64} for fold in (1, 2, 3)],
        "beginning": "trained in this study, from random weights",
        "licence": "made by whoever ran this study, whose terms hold; no other weights are in it",
        "versions": {"python": "3.11.9", "mri-vit": "0.5.0", "torch": "2.13.0"},
        "synthetic": None,
    },
    "preparation": {
        "read": [
            *({"holds": c, "file": f"P001_{c}.nii.gz", "sha256": "c" * 64} for c in ("t1", "t1ce", "t2", "flair")),
            {"holds": "tumour_mask", "file": "P001_seg.nii.gz", "sha256": None},
        ],
        "missing": [], "reference": "t1ce", "brain_source": "none", "brain_ml": 1312.4, "tokens": 902,
        "tumour": {
            "source": "found", "tumour_ml": 51.2, "side": "left", "lobes": {"temporal lobe": 0.7, "insula": 0.2},
            "ventricles_mm": 3.1, "centre_mm": [-41.0, 3.0, -8.5], "confidence": 0.91,
        },
        "steps": [{"step": "read", "methods": "T1, T1ce, T2 and FLAIR scans were read with their axes laid as RAS+."}],
        "warnings": ["t1: negative intensities down to -12; background is 0"],
        "findings": [{"reason": "noise", "scan": "flair", "figure": 4.1, "sentence": "flair is noisy"}],
        "picture": "qc.png",
    },
    "known": {"twin": None, "same_id": False, "exposed": False, "sentence": "The run was not trained on this patient."},
    "distribution": {
        "placement": "outside", "reason": None, "patients": 96, "p": 0.0103, "alpha": 0.05, "limit": 2.1,
        "figures": [
            {
                "name": "signal_to_noise", "scan": "flair", "title": "signal over noise of FLAIR", "unit": "", "value": 4.1,
                "median": 15.2, "low": 12.1, "high": 18.4, "beyond": 4.2, "is_outside": True,
                "sentence": "signal over noise of FLAIR is 4.1; the run's patients have 12.1 to 18.4: 4.2 times as far from "
                "their median as nine in ten of them",
            },
            {
                "name": "brain_ml", "scan": "", "title": "brain volume", "unit": "ml", "value": 1312.4,
                "median": 1301.0, "low": 1104.0, "high": 1502.0, "beyond": 0.07, "is_outside": False,
                "sentence": "brain volume is 1312 ml; the run's patients have 1104 to 1502 ml",
            },
        ],
        "sentence": "Outside of what the run was trained on: signal over noise of FLAIR.",
    },
    "endpoints": {
        "mgmt": {
            "kind": "binary",
            "of_run": {
                "measure": "auc", "estimate": {"value": 0.88, "low": 0.78, "high": 0.94}, "patients": 82, "marked": 43,
                "kind": "better", "verdict": "better than chance (AUC 0.88 …)",
            },
            "withheld": None, "untrusted": None,
            "value": {
                "score": 0.71, "threshold": 0.52, "percentile": 68.3, "percentile_n": 96,
                "percentile_note": "The score is a mean of 3 networks, the run's are of one: it lies nearer to the middle.",
                "networks": [{"repeat": 0, "fold": f, "seed": 0, "score": s} for f, s in enumerate((0.66, 0.71, 0.76))],
                "spread": {"networks": 3, "deviation": 0.05, "minimum": 0.66, "maximum": 0.76},
                "side": "positive",
                "call": "Called positive: 67 % is at least 50 %; the threshold of the run's own scores lies at 54 %.",
                "probability": {
                    "value": 0.67, "low": 0.55, "high": 0.79, "least": 0.62, "most": 0.72, "threshold": 0.54,
                    "slope": 0.8, "intercept": 0.1,
                    "n": 82, "positive": 43, "sentence": "…",
                },
                "uncalibrated": None,
            },
        },
        "pten": {
            "kind": "binary",
            "of_run": {
                "measure": "auc", "estimate": {"value": 0.51, "low": 0.38, "high": 0.64}, "patients": 82, "marked": 33,
                "kind": "chance", "verdict": "indistinguishable from chance (AUC 0.51 …)",
            },
            "withheld": "the run did not tell it from chance: indistinguishable from chance (AUC 0.51 …)",
            "untrusted": None, "value": None,
        },
        "os": {
            "kind": "survival",
            "of_run": {
                "measure": "harrell_c", "estimate": {"value": 0.74, "low": 0.64, "high": 0.82}, "patients": 82, "marked": 58,
                "kind": "better", "verdict": "better than chance (C 0.74 …)",
            },
            "withheld": None, "untrusted": None,
            "value": {
                "score": 0.4, "threshold": 0.1, "percentile": 61.0, "percentile_n": 96, "percentile_note": "…",
                "networks": [{"repeat": 0, "fold": f, "seed": 0, "score": s} for f, s in enumerate((0.3, 0.4, 0.5))],
                "spread": {"networks": 3, "deviation": 0.1, "minimum": 0.3, "maximum": 0.5},
                "side": "high risk",
                "horizons": [
                    {"days": d, "survival": s, "deviation": 0.02, "minimum": s - 0.02, "maximum": s + 0.02}
                    for d, s in ((91.0, 0.95), (182.0, 0.85), (365.0, 0.6), (730.0, 0.2))
                ],
            },
        },
    },
    "maps": {
        "repeat": 0, "fold": 0, "brain": f"{MAPS}space-t1ce_brain.nii.gz", "mask": f"{MAPS}mask.nii.gz", "tumour": True,
        "maps": [
            {
                "method": "occlusion", "endpoint": "mgmt", "title": "Occlusion", "explains": "mgmt = 1", "meaning": "…",
                "source": "…", "unit": "relative to a uniform map",
                "files": {s: f"{MAPS}{s}_map.nii.gz" for s in ("t1", "t1ce", "t2", "flair", "grid")},
                "overlay": f"{MAPS}overlay.png", "minimum": 0.0, "peak": 31.2, "peak_mm": [31.0, -12.5, 40.0],
                "cls_share": None, "by_scan": {"t1": 0.1, "t1ce": 0.7, "t2": 0.1, "flair": 0.1}, "kind": "passes",
                "verdicts": [{"endpoint": "mgmt", "kind": "passes", "sentence": WORDS}],
            }
        ],
    },
    "no_maps": None,
    "remarks": ["Outside of what the run was trained on: signal over noise of FLAIR."],
    "seconds": {"prepare": 8.1, "networks": 0.6, "distribution": 0.2, "maps": 9.0, "total": 21.0},
    "versions": {"python": "3.11.9", "mri-vit": "0.5.0", "torch": "2.13.0"},
}  # fmt: skip


def example() -> Prediction:
    """The document of a made-up patient."""
    return Prediction.model_validate(EXAMPLE)


def comparable(output: Path) -> dict[str, bytes]:
    """The files of a command's predictions, without what no two commands share: times, seconds, hashes of weights, origin."""
    found = {}
    for file in sorted(output.rglob("*")):
        name = file.relative_to(output).as_posix()
        if not file.is_file() or name.split("/")[0] in ("prepared", "study.toml", "environment.json", "origin.json"):
            continue
        found[name] = file.read_bytes()
        if file.name == "prediction.json":
            told = json.loads(found[name])
            told["run"] |= {"weights": [one["file"] for one in told["run"]["weights"]]}
            found[name] = json.dumps({key: value for key, value in told.items() if key not in ("made", "seconds")}).encode()
        elif file.name == "index.html":
            found[name] = re.sub(rb"<dt>(Weights|Seconds|Made)</dt>.*", b"", found[name])
    return found

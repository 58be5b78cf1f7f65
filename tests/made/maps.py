"""Made-up maps and scores for the report's tests: what is planted in them is known, and no network is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from mri_vit.data.cohort import visit_id
from mri_vit.explain.methods.catalogue import METHODS, UNIT
from mri_vit.settings.schema import CHANNELS
from mri_vit.settings.sections import Explain

FRACTIONS = [0.0, 0.25, 0.5, 0.75, 1.0]
METHODS_MADE = ("rollout", "gradient_attention")
SETTINGS = Explain().of_maps  # those of a study that says nothing of maps, like made_run's
NETWORKS = 2  # of randomised weights in each fold
EMPTY = -1.0  # the evidence's change without any place
FALL, RANDOM_FALL = -2.0, -0.5  # of gradient attention and of random orders, halfway
SHARE = 0.1  # of the places that the tumour has
TIMES = {"rollout": 3.0, "gradient_attention": 6.0}  # the tumour's share that the map has there, for every endpoint
AFTER_RANDOMISING = {"rollout": 0.8, "gradient_attention": 0.0}  # rank correlation: rollout does not move with the model


def score(patient: str, fold: int, endpoints: Sequence[str], generator: np.random.Generator, **changes: Any) -> dict[str, Any]:
    """A patient's `scores/<patient>.json`, of the only visit; `changes` go into every row."""
    pairs = [(method, endpoint) for method in METHODS_MADE for endpoint in endpoints]
    return {
        "schema": 2,
        "patient": patient,
        "subject": patient,
        "fold": fold,
        "settings": SETTINGS,
        "rows": [{**_row(method, endpoint, generator), **changes} for method, endpoint in pairs],
        "curves": [
            curve(method, endpoint, order, halfway, generator)
            for endpoint in endpoints
            for method, halfway in (("rollout", RANDOM_FALL), ("gradient_attention", FALL), ("random", RANDOM_FALL))
            for order in ("deletion", "insertion")
        ],
        "cascade": [
            {"method": method, "endpoint": endpoint, "stage": stage, "similarity": _near(alike, generator)}
            for method, endpoint in pairs
            for stage, alike in (("heads", 0.9), ("block 1", 0.85), ("embedding", AFTER_RANDOMISING[method]))
        ],
        "agreement": [
            {"endpoint": endpoint, "method": "rollout", "other": "gradient_attention", "similarity": _near(0.4, generator)}
            for endpoint in endpoints
        ],
    }


def curve(method: str, endpoint: str, order: str, halfway: float, generator: np.random.Generator) -> dict[str, Any]:
    """Falls from 0 to `halfway` and on to `EMPTY`; insertion is the way back."""
    value = np.interp(FRACTIONS, [0, 0.5, 1], [0, halfway + 0.1 * generator.normal(), EMPTY])
    value = value if order == "deletion" else value[::-1]
    return {"method": method, "endpoint": endpoint, "order": order, "fraction": FRACTIONS, "value": value.tolist()}


def write_scores(folder: Path, endpoints: Sequence[str], seed: int = 0) -> None:
    """`scores/` for every patient of a made-up run."""
    generator = np.random.default_rng(seed)
    (folder / "scores").mkdir()
    people = pd.read_csv(folder / "cohort.csv", dtype=str, keep_default_na=False)
    subject = {visit_id(*pair): pair[0] for pair in zip(people.patient, people.session, strict=True)}
    for fold, names in enumerate(json.loads((folder / "folds.json").read_text())["repeats"][0]["folds"]):
        for name in names:
            told = score(name, fold, endpoints, generator) | {"subject": subject[name]}
            (folder / "scores" / f"{name}.json").write_text(json.dumps(told))


def entry(method: str, endpoint: str, patient: str) -> dict[str, Any]:
    """One map of a patient's `map.json`."""
    name = f"{method}{endpoint}"
    return {
        "method": method,
        "endpoint": endpoint,
        "title": METHODS[method].title,
        "source": METHODS[method].source,
        "explains": f"{endpoint} = 1" if endpoint else "",
        "unit": UNIT,
        "minimum": 0.0,
        "peak": 12.34,
        "peak_mm": [1.0, -2.0, 3.0],
        "cls_share": None,
        "files": {space: f"{patient}_{space}_{name}.nii.gz" for space in (*CHANNELS, "grid")},
        "overlay": f"{name}.png",
        "note": "a <i>note</i>",
        "by_scan": {"t1": 0.1, "t1ce": 0.6, "t2": 0.1, "flair": 0.2},
    }


def facts(patient: str, maps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A patient's `map.json`."""
    return {
        "schema": 3,
        "patient": patient,
        "subject": patient,
        "model": "vit",
        "repeat": 0,
        "fold": 1,
        "tokens": 500,
        "settings": SETTINGS,
        "brain": None,
        "tumour": True,
        "maps": list(maps),
        "score_by_scan": {
            "mgmt": {"evidence": 1.0, "empty": -1.0, "t1": 0.5, "t1ce": 2.0, "t2": -0.5, "flair": 0.0},
        },
    }


def write_maps(folder: Path, patients: Sequence[str], endpoints: Sequence[str]) -> None:
    """`maps/` with pictures of noise for these patients, and the cohort's mean maps."""
    generator = np.random.default_rng(0)
    for patient in patients:
        home = folder / "maps" / patient
        home.mkdir(parents=True)
        maps = [entry("rollout", "", patient), *(entry("gradient_attention", name, patient) for name in endpoints)]
        for one in maps:
            _picture(home / one["overlay"], generator)
        (home / "map.json").write_text(json.dumps(facts(patient, maps)))
    group = folder / "mean_maps"
    group.mkdir()
    _picture(group / "mean.png", generator)
    groups = [{"label": v, "title": f"mgmt = {v}", "n": 20, "file": "f.nii.gz", "count_file": None} for v in ("1", "0")]
    shown = {
        "method": "gradient_attention",
        "endpoint": "mgmt",
        "groups": groups,
        "difference": "d.nii.gz",
        "largest": 2.5,
        "p": 0.2,
    }
    hidden = {**shown, "method": "rollout", "picture": None}  # too few patients for a picture
    (group / "group.json").write_text(
        json.dumps({"schema": 1, "settings": SETTINGS, "entries": [{**shown, "picture": "mean.png"}, hidden]})
    )


def _row(method: str, endpoint: str, generator: np.random.Generator) -> dict[str, Any]:
    return {
        "method": method,
        "endpoint": endpoint,
        "hit": int(generator.random() < 0.9),
        "hit_chance": 0.3,
        "hit_simulated": 0.31,
        "energy": TIMES[method] * _near(SHARE, generator, 0.01),
        "tumour_share": SHARE,
        "energy_simulated": SHARE,
        "hit_randomised": [int(generator.random() < rate) for rate in (0.2, 0.5)],
        "energy_randomised": [_near(SHARE, generator, 0.01) for _ in range(NETWORKS)],
        "shuffled": _near(0.1, generator),
        "folds": _near(0.6, generator),
        "noise": 0.99,
        "shift": 0.8,
    }


def _near(value: float, generator: np.random.Generator, deviation: float = 0.05) -> float:
    return float(value + deviation * generator.normal())


def _picture(path: Path, generator: np.random.Generator) -> None:
    Image.fromarray(generator.integers(0, 255, (60, 90, 3), dtype=np.uint8)).save(path)

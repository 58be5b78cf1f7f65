"""Which causes are fit for a test of networks: what oracles see of a shape, and what is said of brightness."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from reproductions.simulated_effects import causes
from reproductions.simulated_effects.causes import Cause, Subject, measure
from reproductions.simulated_effects.effects import LABELS
from rich.console import Console
from scipy.ndimage import gaussian_filter

from mri_vit.data.cohort import Patient
from mri_vit.metrics.discrimination import auc_interval
from mri_vit.settings.schema import Study

EDGE, SPACING_MM = 48, 2.0
AXIS = np.arange(EDGE) - EDGE / 2
PLACE = np.stack(np.meshgrid(AXIS, AXIS, AXIS, indexing="ij"), axis=-1)
AFFINE = np.diag([SPACING_MM, SPACING_MM, SPACING_MM, 1.0])
AFFINE[:3, 3] = -EDGE / 2 * SPACING_MM


def ball(radius: float, *middle: float) -> np.ndarray:
    return np.linalg.norm(PLACE - np.array(middle), axis=-1) < radius


def field(reach: float, seed: int) -> np.ndarray:
    found = gaussian_filter(np.random.default_rng(seed).normal(size=PLACE.shape[:3]), reach)
    return found / found.std()


SCANS = {name: 2.0 + field(1.0, seed) for seed, name in enumerate(("t1", "t2", "flair", "t1ce"))}
ONE = Subject(SCANS, ball(10, 0, 0, 0), AFFINE, SPACING_MM)
THREE = ball(7, -9, -6, 0) | ball(7, 9, -6, 0) | ball(7, 0, 10, 0)
BUMPY = np.linalg.norm(PLACE, axis=-1) + 2 * field(1.5, 9) < 10
SEEN: dict[str, Callable[[], Subject]] = {
    "texture": lambda: replace(ONE, scans=SCANS | {"t1": field(2.5, 0)}),
    "mismatch": lambda: replace(ONE, scans=SCANS | {"flair": -SCANS["t2"]}),
    "side": lambda: replace(ONE, tumour=ball(10, -10, 0, 0)),
    "interaction": lambda: replace(ONE, scans=SCANS | {"flair": -SCANS["t2"]}, tumour=ball(10, -10, 0, 0)),
    "inward": lambda: replace(ONE, scans=SCANS | {"t1ce": PLACE[..., 0]}, tumour=ball(10, -10, 0, 0)),
    "border": lambda: replace(ONE, tumour=BUMPY),
    "foci": lambda: replace(ONE, tumour=THREE),
    "scanner": lambda: replace(ONE, scans=SCANS | {"t2": SCANS["t2"] + np.random.default_rng(1).normal(size=(EDGE,) * 3)}),
}


PARTS = {"interaction": ("mismatch", "side"), "inward": ("side",)}  # causes that another one is made of


@pytest.mark.parametrize("name", causes.ORACLES)
def test_an_oracle_has_more_of_its_own_cause_and_hardly_more_of_another(name: str):
    oracle = causes.ORACLES[name]
    own = oracle(SEEN[name]()) - oracle(ONE)
    others = [oracle(SEEN[other]()) - oracle(ONE) for other in SEEN if other != name and name not in PARTS.get(other, ())]
    assert own > 3 * max(map(abs, others))


def test_a_balls_spread_is_that_of_geometry():
    assert causes.spread(ONE) == pytest.approx(np.sqrt(3 / 5), abs=0.01)


def test_the_side_is_in_millimetres_to_the_left():
    assert causes.leftness(SEEN["side"]()) == pytest.approx(10 * SPACING_MM, abs=SPACING_MM)


@pytest.fixture
def people(tiny: Study, monkeypatch: pytest.MonkeyPatch) -> list[Patient]:
    """Sixty patients whose brightness tells the first endpoint alone, and whose oracle tells the second."""
    rng = np.random.default_rng(0)
    first, second = (rng.random(60) < 0.5 for _ in range(2))
    found = [
        Patient(f"p{i:02d}", {}, {"texture": float(first[i]), "foci": float(second[i])}, {}, tumour_mask=Path("mask"))
        for i in range(60)
    ]
    table = pd.DataFrame({"t1_mean": first + 0.1 * rng.normal(size=60), "tumour_t1_mean": rng.normal(size=60)})
    monkeypatch.setattr(causes, "intensity_table", lambda patients, study: table.set_index(pd.Index([p.id for p in patients])))
    monkeypatch.setattr(causes, "subject", lambda patient, study: patient)
    monkeypatch.setattr(causes, "ORACLES", {"foci": lambda patient: patient.labels["foci"]})
    return found


def test_a_cause_is_fit_where_brightness_tells_nothing_and_the_oracle_all(tiny: Study, people: list[Patient]):
    endpoints = tuple(tiny.endpoints[0].model_copy(update={"name": name}) for name in ("texture", "foci"))
    study = tiny.model_copy(update={"endpoints": endpoints})
    split = [[p.id for p in people[start::3]] for start in range(3)]
    texture, foci = measure(study, people, split, seed=0)
    assert texture.brain[0] > 0.99
    assert texture.best == ("t1_mean", texture.brain[0])
    assert (texture.oracle, texture.fit) == (None, False)
    assert foci.brain[0] < 0.65
    assert foci.oracle == (1.0, *auc_interval(np.arange(60) < sum(p.labels["foci"] for p in people), np.arange(60)[::-1] * 1.0))
    assert not replace(foci, brain=(0.601, 0.55, 0.65)).fit
    assert replace(foci, brain=(0.599, 0.55, 0.65)).fit
    assert not replace(foci, brain=(0.5, 0.4, 0.6), oracle=(0.949, 0.9, 1.0)).fit


def test_the_table_fits_a_terminal_and_says_which_are_fit():
    told = (0.512, 0.45, 0.574)
    fit = Cause("mismatch", 384, told, told, ("t1ce_kurtosis", 0.58), 36, (1.0, 0.99, 1.0))
    found = [replace(fit, name=name) for name in LABELS[:-1]] + [replace(fit, name=LABELS[-1], oracle=None)]
    written = io.StringIO()
    Console(width=80, file=written).print(causes.shown(found))
    lines = written.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[-1] for line in lines if line.strip().startswith(LABELS)] == ["yes"] * (len(LABELS) - 1) + ["no"]

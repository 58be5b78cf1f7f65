"""What is left out of a drawn curve: nothing that can be seen."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from mri_vit import style
from mri_vit.report.figures import endpoint_curves, panels
from mri_vit.report.figures.panels import CELL
from mri_vit.report.schema.survival import Group


def curve(patients: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A monotone step curve with a vertex for each patient."""
    generator = np.random.default_rng(seed)
    return np.sort(generator.random(patients)), np.sort(generator.random(patients) ** 3)


@pytest.mark.parametrize("patients", [0, 1, 2, 300, 20_000])
def test_each_vertex_left_out_is_within_a_cell_of_the_last_one_drawn(patients):
    x, y = curve(patients, seed=patients)
    seen = panels.drawn_vertices(x, y)
    before = seen[np.searchsorted(seen, np.arange(patients), side="right") - 1]
    assert (np.abs(x - x[before]) < CELL).all()
    assert (np.abs(y - y[before]) < CELL).all()
    assert set(seen) >= {0, patients - 1} & set(range(patients))


def test_a_drawn_step_curve_is_nowhere_more_than_a_cell_from_the_whole_one():
    x, y = curve(20_000, seed=1)
    seen = panels.drawn_vertices(x, y)
    asked = np.linspace(x[0], x[-1], 5003)
    whole, thin = (ys[np.searchsorted(xs, asked, side="right") - 1] for xs, ys in ((x, y), (x[seen], y[seen])))
    assert np.abs(whole - thin).max() < CELL


def test_vertices_of_a_monotone_curve_are_as_many_as_its_cells_however_many_patients():
    assert len(panels.drawn_vertices(*curve(20_000, seed=2))) <= 2 / CELL + 2
    assert len(panels.drawn_vertices(*curve(200_000, seed=2))) <= 2 / CELL + 2


def test_a_gap_in_a_curve_stays_a_gap():
    x, y = np.arange(9) * CELL / 10, np.r_[np.zeros(4), np.nan, np.zeros(4)]
    assert panels.drawn_vertices(x, y).tolist() == [0, 4, 5, 8]


def test_coordinates_of_an_svg_are_those_that_matplotlib_gave_to_a_hundredth_of_a_point(monkeypatch):
    def drawn() -> str:
        with panels.panel() as (figure, axes):
            axes.plot(np.linspace(0, 1, 50), np.sin(np.linspace(0, 9, 50)), "o-")
        return style.to_bytes(figure, "svg").decode()

    number = re.compile(r"-?\d+\.?\d*")
    short = drawn()
    monkeypatch.setattr(style, "DECIMALS", re.compile(b"(never)"))
    whole = drawn()
    found, expected = ([float(one) for one in number.findall(text)] for text in (short, whole))
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert len(short) < len(whole)
    scales = re.compile(r"scale\([^)]*\)")
    assert scales.findall(short) == scales.findall(whole)  # a letter's size is no coordinate


def test_a_figure_of_20_000_patients_is_at_most_half_as_large_again_as_that_of_2_000():
    def size(patients: int) -> int:
        days, share = curve(patients, seed=3)
        half = {"group": "low risk", "days": 3000 * days, "survival": 1 - share, "low": 1 - share, "high": 1 - share}
        table = pd.DataFrame({**half, "censored": np.arange(patients) % 3 == 0})
        both = pd.concat([table, table.assign(group="high risk")])
        group = Group(n=patients, events=patients // 2, median_days=100.0, at_risk=(patients,))
        figure = endpoint_curves.kaplan_meier(both, {"low risk": group, "high risk": group}, [0])
        return len(style.to_bytes(figure, "svg"))

    assert size(20_000) < 1.5 * size(2000)

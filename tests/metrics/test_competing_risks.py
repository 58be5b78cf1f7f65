"""Competing risks against R (oracles/competing_risks.R), against a count of every pair, and against what must not change."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lifelines.datasets import load_lung
from scipy.special import expit

from mri_vit.metrics import competing_risks, concordance, decision, ipcw, survival, transportability


def R(expected: Any) -> Any:
    """R's doubles, which are recorded with every digit; sums in another order differ in the last ones."""
    return pytest.approx(expected, rel=1e-9, abs=1e-9)


@dataclass(frozen=True)
class Table:
    """Days, events 0, 1 and 2, groups and risks, made as the script in R makes them."""

    days: np.ndarray
    event: np.ndarray
    group: np.ndarray
    risk: np.ndarray

    @property
    def outcome(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.days, self.event == 1, self.event == 2

    @property
    def alive(self) -> np.ndarray:
        return np.repeat(1 - expit(-2 + 2 * self.risk)[:, None], 3, axis=1)


def tied() -> Table:
    i = np.arange(240)
    days, event = 30.0 * (1 + (i * i * 7 + i * 13) % 29), np.array([0, 1, 2, 1])[(i * 5 + i // 7) % 4]
    group = np.array(["high", "low", "middle"])[(i // 3) % 3]
    return Table(days, event, group, (i * 37) % 101 / 101 - days / 2000 * (event == 1))


def lung() -> Table:
    table = load_lung().dropna(subset=["inst", "ph.karno"])
    event = np.where(table.status != 1, 0, np.where(table.inst % 2 == 1, 2, 1))
    risk = (100 - table["ph.karno"] + table.age / 1000) / 100
    return Table(table.time.to_numpy(float), event, np.where(table.sex == 1, "m", "f"), risk.to_numpy(float))


@pytest.fixture(params=["tied", "lung"])
def both(request, oracles: Path) -> tuple[Table, dict[str, Any]]:
    expected = json.loads((oracles / "competing_risks.json").read_text())[request.param]
    return {"tied": tied, "lung": lung}[request.param](), expected


def test_incidences_and_their_variances_are_cmprsks(both: tuple[Table, dict[str, Any]]):
    table, expected = both
    days, event, other = table.outcome
    for row, (one, rest) in enumerate(((event, other), (other, event))):
        curve = competing_risks.cumulative_incidence(days, one, rest)
        at = np.searchsorted(curve.days, expected["days"], side="right") - 1
        assert curve.share[at].tolist() == R(expected["estimate"][row])
        assert curve.variance[at].tolist() == R(expected["variance"][row])
        drawn = competing_risks.drawn_incidence(days, one, rest, np.ones((1, len(days))), np.array(expected["days"]))
        assert drawn[0].tolist() == R(expected["estimate"][row])


def test_grays_test_is_cmprsks_of_two_and_of_three_groups(both: tuple[Table, dict[str, Any]], oracles: Path):
    table, expected = both
    days, event, other = table.outcome
    found = [competing_risks.grays_test(days, *pair, table.group) for pair in ((event, other), (other, event))]
    assert [chi2 for chi2, _ in found] == R(expected["gray"]["statistic"])
    assert [p for _, p in found] == R(expected["gray"]["p"])
    if len(np.unique(table.group)) == 3:
        two = table.group != "middle"
        chi2, _ = competing_risks.grays_test(days[two], event[two], other[two], table.group[two])
        assert chi2 == R(json.loads((oracles / "competing_risks.json").read_text())["two_groups"]["statistic"][0])


def test_auc_and_brier_score_are_riskregressions(both: tuple[Table, dict[str, Any]]):
    table, expected = both
    days, event, other = table.outcome
    at = np.array(expected["days"], dtype=float)
    assert ipcw.cumulative_dynamic_auc(days, event, table.risk, at, other).tolist() == R(expected["auc"])
    assert ipcw.brier_at(days, event, table.alive, at, other).tolist() == R(expected["brier"])
    assert ipcw.brier_of_kaplan_meier(days, event, at, other).tolist() == R(expected["null"])


def test_pseudo_values_are_those_of_rs_survival(both: tuple[Table, dict[str, Any]]):
    table, expected = both
    for day, values in zip(expected["days"], expected["pseudo"], strict=True):
        found = competing_risks.pseudo_incidence(*table.outcome, float(day))
        assert found[:12].tolist() == R(values)
        assert found.mean() == R(competing_risks.incidence_at(*table.outcome, float(day))[0])


def test_wolbers_c_is_rs_concordance_where_it_has_one(both: tuple[Table, dict[str, Any]]):
    """Without censoring who had the other event has the longest time of all; without another event it is Uno's, with G before."""
    table, expected = both
    days, event, other = table.outcome
    known = table.event != 0
    c = concordance.uno_c(days[known], event[known], table.risk[known], None, other[known])
    assert c == R(expected["uncensored_c"])
    assert concordance.uno_c(days, event | other, table.risk, None, np.zeros(len(days))) == R(expected["uno_c"])


def test_wolbers_c_counts_every_pair_with_its_weight():
    table, tau = tied(), 500.0
    days, event, other = table.outcome
    g = survival.censoring_survival(days, event | other, np.nextafter(days, -np.inf))
    concordant = pairs = 0.0
    for i in np.flatnonzero(event & (days < tau)):
        later = (days > days[i]) | ((days == days[i]) & ~event)
        weight = np.where(later, 1 / g[i] ** 2, np.where(other & (days < days[i]), 1 / (g[i] * g), 0.0))
        pairs += weight.sum()
        concordant += (weight * ((table.risk < table.risk[i]) + 0.5 * (table.risk == table.risk[i]))).sum()
    assert concordance.uno_c(days, event, table.risk, tau, other) == R(concordant / pairs)
    low, high = concordance.uno_interval(days, event, table.risk, tau, False, other)
    assert low < concordant / pairs < high


def test_without_a_competing_event_every_figure_is_that_of_survival():
    table = tied()
    days, event, none = table.days, table.event != 0, np.zeros(240, dtype=bool)
    at, thresholds = np.array([180.0, 360.0, 720.0]), np.array([0.0, 0.2, 0.5])
    draws = np.random.default_rng(0).integers(0, 3, (5, 240)).astype(float)
    assert survival.survival_at(days, event, at, none) == R(survival.survival_at(days, event, at))
    assert survival.drawn_survival(days, event, draws, at, none) == R(survival.drawn_survival(days, event, draws, at))
    assert survival.pseudo_survival(days, event, 360.0, none) == R(survival.pseudo_survival(days, event, 360.0))
    for function in (decision.survival_net_benefit, decision.survival_net_benefit_band):
        known = [decision.ByDay(days, event, 1 - table.alive[:, 0], 360.0, of) for of in (None, none)]
        one, other = (np.array(function(people, thresholds)) for people in known)
        assert other == R(one)
    assert survival.survival_steps(days, event, none)[1] == R(survival.survival_steps(days, event)[1])
    cohorts = [transportability.of_survival(days, event, table.alive[:, 0], 360.0, of) for of in (None, none)]
    assert cohorts[1].measures(draws) == R(cohorts[0].measures(draws))


def test_a_competing_event_taken_for_censoring_makes_more_of_the_event():
    days, event, other = tied().outcome
    assert (
        survival.survival_at(days, event, np.array([720.0]))[0] < survival.survival_at(days, event, np.array([720.0]), other)[0]
    )


def test_hazards_give_back_the_incidence_that_they_are_of():
    days, event, other = tied().outcome
    line = np.unique(days)
    hazards = [competing_risks.cumulative_hazard(days, flag, line) for flag in (event, other)]
    free = competing_risks.free_of_event(hazards[0][None], hazards[1])[0]
    observed = np.array([1 - competing_risks.incidence_at(days, event, other, day)[0] for day in line])
    assert free[:20] == pytest.approx(observed[:20], abs=0.03)  # exp(-d / Y) for 1 - d / Y: of some ten patients on a day
    alone = competing_risks.free_of_event(hazards[0][None], 0 * hazards[1])[0]
    assert alone == R(np.exp(-hazards[0]))


def test_what_is_not_known_is_nan():
    days, event, other = np.array([100.0, 200.0, 300.0]), np.array([1, 0, 0]), np.array([0, 1, 0])
    assert np.isnan(competing_risks.incidence_at(days, event, other, 400.0)).all()
    assert np.isnan(competing_risks.pseudo_incidence(days, event, other, 400.0)).all()
    value, low, high = competing_risks.incidence_at(days, event, other, 50.0)
    assert value == 0
    assert np.isnan([low, high]).all()
    assert np.isnan(competing_risks.grays_test(days, event, other, np.zeros(3))).all()
    assert np.isnan(competing_risks.grays_test(days, 0 * event, other, days > 150)).all()
    with pytest.raises(ValueError, match="1 of 3 patients have both events"):
        competing_risks.cumulative_incidence(days, event, event)

"""What is measured of survival: C, curves and risk groups; the whole is in `report/numbers/survival.py`. Times are in days."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.metrics import concordance, ipcw, transportability
from mri_vit.metrics.site_calibration import Normal, log_observed_to_expected_by
from mri_vit.metrics.within_fold import PairErrors, survival_errors
from mri_vit.report.numbers import survival
from mri_vit.report.numbers.judged import chances_alive, competing, first_repeat, flags, floats, outcome
from mri_vit.report.numbers.measures import Background, Measures
from mri_vit.report.numbers.paired import MeasuredFigure, Shared, Tables, measure_figure
from mri_vit.report.numbers.sites import drift_of
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.competing import EVENT, NEITHER
from mri_vit.report.schema.measured import DriftFigures, Measurement
from mri_vit.settings.schema import Endpoint

SITE_DAY = 365.0  # by which a site's deaths are counted: most sites are followed for a year
DRIFT_DAYS = (365.0, 730.0)  # one and two years, of the predicted horizons


class SurvivalMeasures(Measures):
    """Harrell's C of pairs of which one is known to have outlived the other."""

    kind, alike = "survival", "event"

    def measure(self, run: Run, endpoint: Endpoint, rows: pd.DataFrame, background: Background) -> Measurement:
        return survival.measure(endpoint, rows, chances_alive(run.survival, endpoint, rows), background, run.study.seed)

    def estimate(self, people: pd.DataFrame) -> float:
        seen = outcome(people)
        return concordance.harrell_c(seen.time_days, seen.event, seen.risk)

    def marked(self, people: pd.DataFrame) -> Bool[np.ndarray, " n"]:
        return flags(people.event)

    def site_calibration(self, endpoint: Endpoint, people: pd.DataFrame, alive: pd.DataFrame) -> dict[str, Normal]:
        """Of deaths within a year."""
        if SITE_DAY not in alive:
            return {}
        here = people.set_index("patient").join(alive, how="inner")
        died = floats(here.time_days), flags(here.event)
        return {"observed_to_expected": log_observed_to_expected_by(*died, floats(pd.Series(here[SITE_DAY])), SITE_DAY)}

    def errors(self, rows: pd.DataFrame, group: np.ndarray) -> PairErrors:
        return survival_errors(floats(rows.time_days), flags(rows.event), floats(rows.score), group)

    def score_groups(self, endpoint: Endpoint, people: pd.DataFrame) -> dict[str, Bool[np.ndarray, " n"]]:
        if not endpoint.competing:
            return {"died": flags(people.event), "alive at last": ~flags(people.event)}
        died, other = flags(people.event), flags(people.competing)
        return {EVENT: died, endpoint.competing: other, NEITHER: ~died & ~other}

    def levels(self, endpoint: Endpoint) -> tuple[str, ...]:
        return (EVENT, endpoint.competing) if endpoint.competing else super().levels(endpoint)

    def level_counts(self, endpoint: Endpoint, known: Float[np.ndarray, "n c"]) -> tuple[int, ...]:
        return tuple(int((known[:, 1] == code).sum()) for code in ((1, 2) if endpoint.competing else (1,)))

    def label(self, endpoint: Endpoint, rows: pd.DataFrame) -> pd.Series:
        words = super().label(endpoint, rows)
        if not endpoint.competing:
            return words
        return words.mask(rows.event, EVENT).mask(rows.competing, endpoint.competing).fillna(NEITHER)

    def flag(self, rows: pd.DataFrame) -> pd.Series:
        return rows.event

    def paired_loss(self, both: Shared, alive: Tables, pair: tuple[str, str], seed: int) -> MeasuredFigure | None:
        """Of the integrated Brier score, of patients with probabilities by both models at the same horizons; None without any."""
        model, other = pair
        if not {model, other} <= alive.keys():  # a table of risks alone
            return None
        ours, theirs = alive[model], alive[other]
        if not len(ours) or not len(theirs) or not ours.columns.equals(theirs.columns):
            return None
        known = both.people.patient[both.people.patient.isin(ours.index) & both.people.patient.isin(theirs.index)]
        if not len(known):
            return None
        figure = f"{tuple(known)} {tuple(ours.columns)}"
        if figure not in both.measured:
            people = both.people.set_index("patient").loc[known]
            time_days, event, competed = floats(people.time_days), flags(people.event), competing(pd.DataFrame(people))
            days = ours.columns.to_numpy(dtype=float)
            chances = {
                name: table.loc[known].to_numpy(dtype=float)
                for name, table in alive.items()
                if name in both.scores and table.columns.equals(ours.columns) and known.isin(table.index).all()
            }
            both.measured[figure] = measure_figure(
                {
                    name: lambda drawn, chance=chance: ipcw.integral(
                        ipcw.drawn_brier(time_days, event, chance, days, drawn, competed), days
                    )
                    for name, chance in chances.items()
                },
                np.array([ipcw.integrated_brier(time_days, event, chance, days, competed) for chance in chances.values()]),
                len(known),
                seed,
            )
        return both.measured[figure]

    def drift(
        self, inside: Run, run: Run, endpoint: Endpoint, before: pd.DataFrame, now: pd.DataFrame
    ) -> tuple[DriftFigures, ...]:
        """One for each day."""
        tables = [_with_chances(of, endpoint, rows) for of, rows in ((inside, before), (run, now))]
        found = []
        for day in (day for day in DRIFT_DAYS if all(day in table and len(table) for table in tables)):
            first, other = (
                transportability.of_survival(
                    floats(one.time_days), flags(one.event), floats(pd.Series(one[day])), day, competing(one)
                )
                for one in tables
            )
            ratio, excess = map(drift_of, transportability.drift(first, other, run.study.seed))
            found.append(DriftFigures(day, first.n, other.n, None, None, ratio, excess))
        return tuple(found)


def _with_chances(run: Run, endpoint: Endpoint, rows: pd.DataFrame) -> pd.DataFrame:
    """A row per patient who has probabilities of survival: these by day, and the outcome."""
    people = first_repeat(rows).set_index("patient")
    columns = [column for column in ("time_days", "event", "competing") if column in people]
    return chances_alive(run.survival, endpoint, rows).join(people[columns], how="inner")


PART = SurvivalMeasures()

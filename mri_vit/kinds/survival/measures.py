"""What is measured of survival: C, curves and risk groups; the whole is in `report/numbers/survival.py`. Times are in days."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.metrics import benefit, concordance, interaction, ipcw, transportability
from mri_vit.metrics.benefit import Policy
from mri_vit.metrics.decision import ByDay
from mri_vit.metrics.interaction import Heterogeneity
from mri_vit.metrics.site_calibration import UNDEFINED, Normal, log_observed_to_expected
from mri_vit.metrics.survival import pseudo_survival
from mri_vit.metrics.within_fold import PairErrors, survival_errors
from mri_vit.report.numbers import survival
from mri_vit.report.numbers.judged import averaged, chances_alive, competing, first_repeat, flags, floats, outcome
from mri_vit.report.numbers.measures import Background, Ends, Measures, ratio_with_ends
from mri_vit.report.numbers.paired import MeasuredFigure, Shared, Tables, measure_figure
from mri_vit.report.numbers.sites import drift_of
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.competing import EVENT, NEITHER
from mri_vit.report.schema.measured import DriftFigures, Measurement
from mri_vit.settings.schema import Endpoint


class SurvivalMeasures(Measures):
    """Harrell's C of pairs of which one is known to have outlived the other."""

    kind, alike = "survival", "event"
    without_risks = "no model gives probabilities for about 12 or 24 months"

    def rare(self, endpoint: Endpoint) -> str:
        return "patients with the event" if endpoint.competing else super().rare(endpoint)

    def measure(self, run: Run, endpoint: Endpoint, rows: pd.DataFrame, background: Background) -> Measurement:
        return survival.measure(endpoint, rows, chances_alive(run.survival, endpoint, rows), background, run.study.seed)

    def estimate(self, people: pd.DataFrame) -> float:
        seen = outcome(people)
        return concordance.harrell_c(seen.time_days, seen.event, seen.risk)

    def marked(self, people: pd.DataFrame) -> Bool[np.ndarray, " n"]:
        return flags(people.event)

    def site_calibration(self, endpoint: Endpoint, people: pd.DataFrame, alive: pd.DataFrame) -> dict[str, Normal]:
        """Of deaths within about a year."""
        if (died := died_and_expected(people, alive)) is None:
            return {}
        return {"observed_to_expected": log_observed_to_expected(*died) if np.isfinite(died[0]).all() else UNDEFINED}

    def beside(
        self, endpoint: Endpoint, people: pd.DataFrame, once: pd.DataFrame, alive: pd.DataFrame, inflated: float
    ) -> dict[str, Ends]:
        died = died_and_expected(people, alive)
        if died is None or not len(died[0]) or not np.isfinite(died[0]).all():
            return {}
        return {"observed_to_expected": ratio_with_ends(*died, inflated)}

    def differences(
        self, endpoint: Endpoint, people: pd.DataFrame, once: pd.DataFrame, alive: pd.DataFrame, level: np.ndarray, seed: int
    ) -> dict[str, Heterogeneity]:
        found = super().differences(endpoint, people, once, alive, level, seed)
        parts = [died_and_expected(people.loc[level == name], alive) for name in np.unique(level)]
        known = {g: part for g, part in enumerate(parts) if part is not None and len(part[0]) and np.isfinite(part[0]).all()}
        if survival.horizon(alive.columns) is not None:
            group = np.repeat(list(known), [len(died) for died, _ in known.values()])
            died, expected = (np.concatenate([np.zeros(0), *(part[place] for part in known.values())]) for place in (0, 1))
            ratios, values = interaction.group_ratios(died, expected, group), np.full((2, len(parts)), np.nan)
            values[:, list(known)] = ratios.ratio, ratios.variance  # of a group that none is known of, none
            found["observed_to_expected"] = interaction.cochran_q(*values)
        return found

    def risks(self, endpoint: Endpoint, rows: pd.DataFrame, alive: pd.DataFrame) -> dict[float, pd.DataFrame]:
        """Of a death after the day it is only known that the patient outlived it."""
        people, found = averaged(rows).set_index("patient").drop(columns=["score", "group"]), {}
        for day in survival.decision_days(alive.columns):
            table = people.join((1 - alive[day]).rename("score"), how="inner")
            found[float(day)] = table.assign(event=flags(table.event) & (table.time_days <= day))
        return found

    def policy(self, people: pd.DataFrame, thresholds: Float[np.ndarray, " t"], day: float) -> Policy:
        here = ByDay(floats(people.time_days), flags(people.event), floats(people.score), day, competing(people))
        return benefit.of_survival(here, thresholds)

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
        horizons = [{day for day in table if isinstance(day, float)} for table in tables if len(table)]  # beside follow-up
        for day in survival.decision_days(sorted(set.intersection(*horizons))) if len(horizons) == 2 else ():
            first, other = (
                transportability.of_survival(
                    floats(one.time_days), flags(one.event), floats(pd.Series(one[day])), day, competing(one)
                )
                for one in tables
            )
            ratio, excess = map(drift_of, transportability.drift(first, other, run.study.seed))
            found.append(DriftFigures(day, first.n, other.n, None, None, ratio, excess))
        return tuple(found)


def died_and_expected(
    people: pd.DataFrame, alive: pd.DataFrame
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]] | None:
    """By patient with a probability, the pseudo-value of having died by a year and the chance to; None without the horizon."""
    day = survival.horizon(alive.columns)
    if day is None:
        return None
    here = people.loc[people.patient.isin(alive.index)]
    died = 1 - pseudo_survival(floats(here.time_days), flags(here.event), day, competing(here))
    return died, 1 - alive.loc[here.patient, day].to_numpy(float)


def _with_chances(run: Run, endpoint: Endpoint, rows: pd.DataFrame) -> pd.DataFrame:
    """A row per patient who has probabilities of survival: these by day, and the outcome."""
    people = first_repeat(rows).set_index("patient")
    columns = [column for column in ("time_days", "event", "competing") if column in people]
    return chances_alive(run.survival, endpoint, rows).join(people[columns], how="inner")


PART = SurvivalMeasures()

"""Labels of survival: days from imaging, and whether they end in death or in the last follow-up."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

from mri_vit.kinds.kind import LabelRows, Labels, Scored, Side
from mri_vit.metrics import sample_size
from mri_vit.metrics.concordance import comparable_pairs, concordances
from mri_vit.metrics.decision import Threshold, choose_cutoff
from mri_vit.metrics.within_fold import WithinFold, within_fold_c
from mri_vit.settings.schema import Endpoint

MIN_TIMES = 10  # patients from which a median is informative
MIN_MEDIAN_RATIO = 15.0  # times that one site's median lies below the others': half of 30.4
WITHOUT_COMPETING = (  # what is expected where no competing event is declared, and why a 2 may be there
    "expected 0, 1, or empty; if 2 is death of another cause, the endpoint needs the key competing (a table of predictions "
    "--competing); if these are R's codes, 1 censored and 2 dead, subtract 1"
)


def unlike_competing(endpoint: Endpoint, event: Float[np.ndarray, " n"]) -> str:
    """What is unlikely in the known events of an endpoint with a competing one, in words; "" where nothing is."""
    if not endpoint.competing or not len(event):
        return ""
    if not (event == 0).any():
        return (
            f"{endpoint.event}: no patient has 0, censored; expected 0 censored, 1 the event, 2 {endpoint.competing}: are these"
            " R's codes, 1 censored and 2 dead?"
        )
    return (
        "" if (event == 2).any() else f"{endpoint.event}: no patient has 2, {endpoint.competing}; expected some, or no competing"
    )


class SurvivalLabels(Labels):
    """Deaths, compared with those known to have lived longer."""

    symbol, measure, rarer, of_visit = "C", "harrell_c", "deaths", True
    marked_as, planned_as, without_competing = "died", "survival", WITHOUT_COMPETING
    label_columns = ("time_days", "event")
    expected = 0.74  # Lee et al. 2026, doi:10.1148/ryai.250675: 0.73 where the model was made

    def read(self, endpoint: Endpoint, column: str, cell: str) -> float:
        if column == endpoint.event:
            if cell in ("2", "2.0") and not endpoint.competing:
                raise ValueError(self.without_competing)
            if cell not in ("0", "1", "2", "0.0", "1.0", "2.0"):
                raise ValueError(f"expected 0, 1, {'2, ' if endpoint.competing else ''}or empty when missing")
            return float(cell)
        try:
            days = float(cell)
        except ValueError:
            days = math.nan
        if not (math.isfinite(days) and days >= 0):
            point = "; write numbers with a decimal point, and without a comma" if re.fullmatch(r"\d+,\d+", cell) else ""
            raise ValueError(f"expected days from imaging, 0 or more, or empty{point}")
        return days

    def sides(self, endpoint: Endpoint, labels: LabelRows) -> tuple[Side, Side]:
        """Those who died by the median of the known times of death, and those who lived beyond it; a patient censored before it
        belongs to neither.
        """
        days, died = labels[:, 0], labels[:, 1] == 1
        median = float(np.median(days[died])) if died.any() else np.inf
        early, late = np.flatnonzero(died & (days <= median)).tolist(), np.flatnonzero(days > median).tolist()
        when = f"{median:.0f} days" if died.any() else "the median, unknown because no patient died"
        return ("early", f"{'had the event' if endpoint.competing else 'died'} within {when}", early), (
            "late",
            f"lived beyond {when}",
            late,
        )

    def row_fault(self, endpoint: Endpoint, values: Mapping[str, float], filled: Mapping[str, bool]) -> tuple[str, str] | None:
        time, event = (values[column] for column in endpoint.columns)
        if len(set(filled.values())) == 2:
            return f"{endpoint.time} and {endpoint.event} must both be filled or both be empty", ""
        if time == 0 and event >= 1:
            return "an event on day 0; expected a time after imaging", endpoint.time or ""
        return None

    def strata(self, endpoint: Endpoint, labels: LabelRows) -> list[str]:
        """0, 1, and 2 of a competing event, which a fold should have its share of but can do without."""
        return [f"{event:.0f}" for event in labels[:, 1]]

    def needed(self, count: Counter[str]) -> set[str]:
        return {"1"}

    def counted(self, endpoint: Endpoint, count: Counter[str]) -> str:
        others = f", {count['2']} with 2" if endpoint.competing else ""
        return f"{count['1']} patients with 1{others} and {count['0']} with 0"

    def lacking(self, endpoint: Endpoint, count: Counter[str]) -> str:
        return "events"

    unlearnable = "no validation patient died"

    def is_learnable(self, strata: set[str]) -> bool:
        return "1" in strata

    def fold_gap(self, count: Counter[str]) -> tuple[str, str] | None:
        return None if count["1"] else ("no event", "C is undefined there")

    def remarks(
        self, endpoint: Endpoint, labels: LabelRows, groups: Mapping[str, Sequence[str]]
    ) -> Iterator[tuple[str, list[int]]]:
        """Events that look as R codes them, and times that are not in days, or not all of them."""
        if wrong := unlike_competing(endpoint, labels[:, 1]):
            yield wrong, []
        from mri_vit.importers.cohort_table import MONTH_DAYS, SHORTEST_MEDIAN, months_among  # here: a table needs none of it

        rows = np.flatnonzero(labels[:, 0] > 0)
        days, column = labels[rows, 0], endpoint.columns[0]
        if not len(days):
            return
        months = months_among(days)
        if months is not None:
            high, low = days[~months], days[months]
            some = f"{len(low)} of {len(days)} times lie around {np.median(low):.3g} ({low.min():g} to {low.max():g})"
            others = f"the others around {np.median(high):.0f} ({high.min():g} to {high.max():g})"
            mixed = f"as where months, {MONTH_DAYS:.1f} times less, are mixed with days; expected days"
            yield f"{column}: {some}, {others}, {mixed}", rows[months].tolist()
            return
        if len(days) >= MIN_TIMES and (median := float(np.median(days))) < SHORTEST_MEDIAN:
            yield f"{column}: half of {len(days)} times are below {median:g}; expected days: are these months?", []
            return
        for name, values in groups.items():
            by_value: dict[str, list[float]] = defaultdict(list)
            for row, time_days in zip(rows.tolist(), days.tolist(), strict=True):
                by_value[values[row]].append(time_days)
            for value, times in by_value.items():
                rest = [time_days for other, others in by_value.items() if other != value for time_days in others]
                if value and min(len(times), len(rest)) >= MIN_TIMES and np.median(times) * MIN_MEDIAN_RATIO < np.median(rest):
                    medians = f"{np.median(times):g} against {np.median(rest):g} elsewhere"
                    yield f"{column}: the median of {name} {value} is {medians}; expected days: are these months?", []

    needs_training_scores = True

    def threshold(self, training: Scored, validation: Scored) -> Threshold | None:
        """From which risk a patient is of high risk: the median of all patients outside the test fold."""
        subjects = [*training.subjects, *validation.subjects]
        risks = np.concatenate([training.scores[:, 0], validation.scores[:, 0]])
        return choose_cutoff(subjects, risks) if subjects else None

    def truth(self, endpoint: Endpoint, labels: Sequence[float], of_class: str) -> tuple[float, float, float]:
        return math.nan, labels[0], labels[1]

    def arrays(self, people: pd.DataFrame) -> tuple[LabelRows, Float[np.ndarray, "n k"]]:
        """Of which a competing event is a 2 again."""
        known, score = super().arrays(people)
        if "competing" in people:
            known[:, 1] += 2 * people.competing.to_numpy(float)
        return known, score

    def known_rows(self, endpoint: Endpoint, rows: pd.DataFrame) -> pd.DataFrame:
        """The first visit with a known label speaks alone, because time counts from that visit, and a later scan was only made of
        a patient who had lived until then. `event` is of the event that is predicted; of an endpoint with a competing event,
        `competing` is of that one, by which all that is of the predicted event's own hazard is censored.
        """
        rows = rows.dropna(subset=["time_days", "event"]).drop_duplicates(["repeat", "patient"])
        rows = rows.assign(threshold=rows.get("threshold", math.nan))
        rows = rows.astype({"score": float, "time_days": float, "threshold": float})
        code = rows.event.astype(float)
        competing = {"competing": code == 2} if endpoint.competing else {}
        return rows.assign(event=code == 1, **competing).reset_index(drop=True)

    def fold_weights(self, labels: LabelRows, group: Shaped[np.ndarray, " n"]) -> dict[Any, float]:
        return comparable_pairs(labels[:, 0], labels[:, 1] == 1, group)

    def figures(
        self,
        labels: LabelRows,
        score: Float[np.ndarray, "b n k"],
        of_all: Float[np.ndarray, "m c"],
        group: Shaped[np.ndarray, " m"],
    ) -> Float[np.ndarray, " b"]:
        return concordances(labels[:, 0], labels[:, 1] == 1, score[:, :, 0])

    def within(self, labels: LabelRows, score: Float[np.ndarray, "n k"], group: Shaped[np.ndarray, " n"]) -> WithinFold:
        return within_fold_c(labels[:, 0], labels[:, 1] == 1, score[:, 0], group)

    def count_marked(self, labels: LabelRows) -> int:
        return int((labels[:, 1] == 1).sum())

    def count_rarer(self, labels: LabelRows) -> int:
        return self.count_marked(labels)

    def nominal(self, marked: Bool[np.ndarray, " n"]) -> LabelRows:
        """Every follow-up is as likely to end in death as any other (Koziol & Green 1976, doi:10.1093/biomet/63.3.465); where
        those who live are followed longest, more pairs can be compared.
        """
        return np.stack([np.arange(len(marked)) + 1.0, marked], axis=1)

    def minima(
        self, share: float, expected: float, parameters: int, null_variance: float
    ) -> tuple[sample_size.Minimum, sample_size.ExternalMinimum]:
        r_squared, most = sample_size.r_squared_of_c(expected, share), sample_size.largest_r_squared_of_survival(share)
        here = sample_size.development(parameters, r_squared, most, sample_size.survival_risk(share))
        return here, sample_size.external_survival(expected, share, null_variance)


PART = SurvivalLabels()

"""With how many patients leads would show: those of two sizes of cohort side by side, and what a paired test would need of each.

Definition: a lead shows where the paired test of one cohort has a two-sided p of 0.05 or less; the number of patients asked for
is that with which it does in four of five cohorts, if the lead stays, and its error and its scatter fall with the square root of
patients. Of the scatter what training makes need not fall, so that a number may be too low.
Formula: n ((z(0.975) e + z(0.8) s) / lead)², of a normal law; n are the patients of a cohort, e the standard error over patients
on which the test's threshold hangs, and s that with which leads fall about their mean: the standard deviation of leads between
cohorts, but no less than e. With s = e it is the sample size of a test of one sample (Chow et al. 2008, Sample Size Calculations
in Clinical Research, 3.1).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
from scipy.stats import norm

from mri_vit.report.words.notation import with_sign
from mri_vit.settings.models import VIT
from reproductions.simulated_effects.benchmark_pages import estimate, stacked
from reproductions.simulated_effects.cohort_scores import Line, over_cohorts

POWER = 0.8  # the usual one
ALPHA = 0.05  # two-sided, of one comparison
MANY = 10_000  # BraTS 2021, the largest public set, has 1,251 patients to learn from


def needed(rows: pd.DataFrame, size: int, lead: float) -> float:
    """Labelled patients of one cohort in which a lead of this size would show, from a cause's and comparator's rows of cohorts.

    `rows` are of `cohort_scores.of_cohort`, of cohorts of `size`; infinite where `lead` is none, which no number mends.
    """
    if lead <= 0:
        return math.inf
    error = math.sqrt(float((rows.lead_error**2).mean()))
    scatter = max(error, float(rows.lead.std())) if len(rows) > 1 else error
    return size * float((norm.isf(ALPHA / 2) * error + norm.ppf(POWER) * scatter) / lead) ** 2


def section(by_size: Mapping[int, pd.DataFrame], causes: Sequence[str], comparators: Sequence[str]) -> str:
    """Markdown: the Vision Transformer's AUC and its lead over each comparator in cohorts of each size, and patients needed.

    `by_size` has, by how many were asked for, the rows of `cohort_scores.of_cohort` of all cohorts of that size.
    """
    sizes = list(by_size)
    lines = {size: {(one.cause, one.model): one for one in over_cohorts(rows)} for size, rows in by_size.items()}
    cohorts = ", ".join(f"{rows.seed.nunique()} of {size}" for size, rows in by_size.items())
    own = _table(
        ["cause", *(f"AUC with {size}" for size in sizes)],
        ([cause, *(estimate(lines[size][cause, VIT]) for size in sizes)] for cause in causes),
    )
    needs = [["cause", "over", *(f"lead with {size}" for size in sizes), *(f"patients needed, from {size}" for size in sizes)]]
    for cause in causes:
        for comparator in comparators:
            found = [lines[size][cause, comparator] for size in sizes]
            leads = [stacked(f"{with_sign(one.lead)} [{with_sign(one.low)}, {with_sign(one.high)}]") for one in found]
            here = [pd.DataFrame(rows[(rows.cause == cause) & (rows.model == comparator)]) for rows in by_size.values()]
            numbers = [stacked(_asked(rows, size, line)) for rows, size, line in zip(here, sizes, found, strict=True)]
            needs.append([cause, comparator, *leads, *numbers])
    text = (
        f"Cohorts: {cohorts} labelled patients, no patient in two of them. Needed are the labelled patients with whom the paired "
        "test of one cohort (two-sided, not corrected) has p of 0.05 or less in four of five, if the lead stays, and its "
        "error and its scatter fall with the square root of their number; in brackets those that the ends of the lead's interval "
        "would need, ∞ where an end is no lead. – is where nothing leads. With fewer than here a lead may not stay, so that no "
        "number is below. Each is of one comparator: to be better than all of them at once, or over cohorts, takes more."
    )
    return "\n\n".join([own, textwrap.fill(text, 130), _table(needs[0], needs[1:])])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)])


def _asked(rows: pd.DataFrame, size: int, line: Line) -> str:
    """The patients that a lead needs, with those of its interval's ends."""
    if line.lead is None or line.lead <= 0:
        return "–"
    middle, fewest, most = (_rounded(needed(rows, size, lead), size) for lead in (line.lead, line.high, line.low))
    return middle if fewest == most else f"{middle} [{fewest}, {most}]"


def _rounded(patients: float, size: int) -> str:
    """To two digits, as leads know no more; `size` is of the cohorts that they are from."""
    if patients <= size:
        return f"≤ {size}"
    if patients > MANY:
        return "∞" if math.isinf(patients) else f"> {MANY:,}"
    return f"{max(size, float(f'{patients:.1e}')):,.0f}"

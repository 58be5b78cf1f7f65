"""With how many patients leads would show: those of two sizes of cohort side by side, and what a paired test would need of each.

Definition: a lead shows where the paired test of one cohort has a two-sided p of 0.05 or less; the number of patients asked for
is that with which it does in four of five cohorts, if the lead stays and its error falls with the square root of patients.
Formula: n (z(0.975) + z(0.8))² s² / lead², of a normal law, as for one sample (Chow et al. 2008, Sample Size Calculations in
Clinical Research, 3.1); n are the patients of a cohort, s the larger of the standard deviation of leads between cohorts and of
the standard error over patients, both of which hold what patients make.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import pandas as pd
from scipy.stats import norm

from mri_vit.report.words.notation import between, with_sign
from mri_vit.settings.models import VIT
from mri_vit.studies.contest.numbers import over_cohorts

POWER = 0.8  # the usual one
ALPHA = 0.05  # two-sided, of one comparison


def needed(rows: pd.DataFrame) -> float:
    """Patients of one cohort in which a lead would show, from one cause's and comparator's rows of several cohorts of a size.

    `rows` are of `numbers.of_cohort` with `patients`; NaN where nothing leads, which no number of patients mends.
    """
    lead, error = float(rows.lead.mean()), math.sqrt(float((rows.lead_error**2).mean()))
    if lead <= 0:
        return math.nan
    spread = max(error, float(rows.lead.std())) if len(rows) > 1 else error
    wanted = float(norm.isf(ALPHA / 2) + norm.ppf(POWER))
    return float(rows.patients.mean()) * (wanted * spread / lead) ** 2


def section(by_size: Mapping[int, pd.DataFrame], causes: Sequence[str], comparators: Sequence[str]) -> str:
    """Markdown: the Vision Transformer's AUC and its lead over each comparator in cohorts of each size, and patients needed.

    `by_size` has, by how many were asked for, the rows of `numbers.of_cohort` of all cohorts of that size.
    """
    sizes = list(by_size)
    lines = {size: {(one.cause, one.model): one for one in over_cohorts(rows)} for size, rows in by_size.items()}
    cohorts = ", ".join(f"{rows.seed.nunique()} of {size}" for size, rows in by_size.items())
    head = ["cause", *(f"AUC with {size}" for size in sizes), "comparator"]
    head += [f"lead with {size}" for size in sizes] + [f"patients needed, from {size}" for size in sizes]
    table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for cause in causes:
        own = (lines[size][cause, VIT] for size in sizes)
        aucs = [between(one.mean, one.mean_low, one.mean_high) for one in own]
        for comparator in comparators:
            found = (lines[size][cause, comparator] for size in sizes)
            leads = [f"{with_sign(one.lead)} [{with_sign(one.low)}, {with_sign(one.high)}]" for one in found]
            here = (rows[(rows.cause == cause) & (rows.model == comparator)] for rows in by_size.values())
            cells = [
                cause,
                *aucs,
                comparator,
                *leads,
                *(_rounded(needed(pd.DataFrame(one)), size) for size, one in zip(sizes, here, strict=True)),
            ]
            table.append(f"| {' | '.join(cells)} |")
    text = (
        f"Cohorts: {cohorts} labelled patients, none in two of them. Needed are the patients with whom the paired test of one "
        "cohort (two-sided, not corrected) has p of 0.05 or less in four of five, if the lead stays as it is and its error falls "
        "with the square root of their number; – is where nothing leads. With fewer than here a lead may not stay, so that what "
        "would need no more is enough."
    )
    return "\n\n".join([textwrap.fill(text, 130), "\n".join(table)])


def _rounded(patients: float, size: int) -> str:
    """To two digits, as leads know no more; `size` is of the cohorts that they are from."""
    if math.isnan(patients):
        return "–"
    if patients <= size:
        return "enough"
    if patients > 10_000:  # BraTS 2021, the largest public set, has 1,251 patients to learn from
        return "over 10,000"
    return f"{float(f'{patients:.1e}'):,.0f}"

"""Signs that rows are not what they seem: scores in the order of a table, copies, scans of one patient, one death that decides.

A study without such a fault shows each sign in at most 1 of 100 (`pipelines/reproduce.py null_studies/beside`). Rows are as
`judged.known_rows` gives them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtr
from scipy.stats import rankdata

from mri_vit.metrics import concordance
from mri_vit.metrics.survival import censoring_survival
from mri_vit.report.numbers.judged import averaged, first_repeat, flags, floats, outcome
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.measured import TAU_DAYS, Decisive, Ordered
from mri_vit.report.schema.parts import TABLES
from mri_vit.settings.schema import Endpoint

FALSE_ALARMS = 0.01  # of studies, of each sign
MIN_PATIENTS = 20  # from which a sum of ranks is about normal
MAX_TIED = 0.1  # share of patients with another's score: where more have, equal scores are the model's way
MAX_GRID = 5000  # scores that are all multiples of 1 / T (the votes of a forest) tie by chance
BY_CHANCE = 0.001  # that the labels of all groups of ids agree
MAX_VISITS = 10  # ids of one stem; more are a hospital's patients
DECISIVE_SHARE, APART = 0.25, 0.1  # a death's share of the weight in Uno's C; and how far Harrell's C is from it
LAST_PART = re.compile(r"([-_. ][^-_. ]+|(?<=\d)[A-Za-z])$")  # P001_2, P001-a and P001b are of the stem P001


def positions(run: Run) -> dict[str, dict[str, int]]:
    """By the name of an order, the place of each patient in it; orders that are the same are one."""
    people = run.cohort.patient.tolist()
    orders = {"the rows of the cohort table": people, "the ids": sorted(people)}
    if run.design in TABLES:
        orders["the rows of the predictions"] = run.predictions.patient.drop_duplicates().tolist()
    once = {tuple(order): name for name, order in reversed(orders.items())}
    return {name: {patient: place for place, patient in enumerate(order)} for order, name in once.items()}


def ordered(
    endpoint: Endpoint, rows: pd.DataFrame, orders: Mapping[str, Mapping[str, int]], site_of: Mapping[str, str], results: int
) -> Ordered | None:
    """The order that scores follow among patients of one fold, outcome and site, at a level for so many results and all orders.

    Formula: Spearman's correlation over strata: z = sum_s sum_i a_i b_i / sqrt(sum_s A_s B_s / (n_s - 1)), a and b the ranks of
    score and place less their mean in the stratum, A_s and B_s their sums of squares. Of survival both are residuals on the rank
    of the time, and n_s - 2 takes the place of n_s - 1: who was seen earlier was followed longer.
    """
    once = first_repeat(rows)
    survival = endpoint.kind == "survival"
    once = once.assign(site=once.patient.map(site_of).fillna(""), outcome=once.event if survival else once.truth)
    found = []
    for name, place_of in orders.items():
        product, variance, squares = 0.0, 0.0, np.zeros(2)
        for _, here in once.assign(place=once.patient.map(place_of)).groupby(["fold", "outcome", "site"]):
            freedom = len(here) - 1 - survival
            if freedom < 1:
                continue
            days = floats(here.time_days) if survival else None
            a, b = _centred(floats(here.score), days), _centred(floats(here.place), days)
            product += float(a @ b)
            variance += float(a @ a) * float(b @ b) / freedom
            squares += a @ a, b @ b
        if variance and len(once) >= MIN_PATIENTS:
            p = 2 * float(ndtr(-abs(product) / math.sqrt(variance)))
            found.append(Ordered(name, product / math.sqrt(squares.prod()), p))
    least = min(found, key=lambda one: one.p, default=None)
    return least if least and least.p <= FALSE_ALARMS / (len(orders) * results) else None


def _centred(values: Float[np.ndarray, " m"], time_days: Float[np.ndarray, " m"] | None) -> Float[np.ndarray, " m"]:
    """Ranks less their mean, and less what the rank of the time explains."""
    ranks = rankdata(values) - (len(values) + 1) / 2
    if time_days is None:
        return ranks
    time = rankdata(time_days) - (len(values) + 1) / 2
    return ranks - time * (float(ranks @ time) / (float(time @ time) or 1.0))


def copies(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Patients of one fold with one score and outcome, where scores are so fine that chance makes no such pair."""
    once = first_repeat(rows)
    score = floats(once.score)
    labels = ["time_days", "event"] if "event" in once else ["truth"]
    tied = once.duplicated(["fold", "score"], keep=False)
    if not tied.any() or tied.mean() > MAX_TIED or _on_grid(score):
        return []
    return [tuple(here.patient) for _, here in once.loc[tied].groupby(["fold", "score", *labels]) if len(here) > 1]


def _on_grid(score: Float[np.ndarray, " n"]) -> bool:
    """Whether scores are few decimals, or votes: whole multiples of 1 / T for a T up to `MAX_GRID`."""
    some = score[:100]
    steps = np.arange(1, MAX_GRID + 1)[:, None] * some
    return bool((np.abs(steps - steps.round()) < 1e-4 * np.maximum(1, np.abs(steps)) / MAX_GRID).all(axis=1).any())


def scans_of_one(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Groups of ids of one stem whose labels all agree, where chance would let them in less than `BY_CHANCE` of cohorts.

    Formula: groups of k patients agree with the probability sum_c p_c^k, p_c the share of class c; of several groups, the
    product.
    """
    people = averaged(rows)
    label = flags(people.event if "event" in people else people.truth)
    stem = people.patient.astype(str).str.replace(LAST_PART, "", regex=True)
    groups = [here for here in people.groupby(stem).groups.values() if len(here) > 1]
    if not groups or max(map(len, groups)) > MAX_VISITS or any(np.ptp(label[here].astype(int)) for here in groups):
        return []
    share = label.mean()
    chance = math.prod(share ** len(here) + (1 - share) ** len(here) for here in groups)
    return [tuple(people.patient[here]) for here in groups] if chance <= BY_CHANCE else []


def decisive(rows: pd.DataFrame) -> Decisive | None:
    """The death that has so much of the weight in Uno's C that it contradicts Harrell's."""
    seen = outcome(averaged(rows))
    tau = min(TAU_DAYS, float(seen.time_days.max()))
    died = seen.time_days[seen.event]
    weight = concordance.uno_weight(censoring_survival(seen.time_days, seen.event, died), died, tau)
    of_death = weight * concordance.death_counts(seen.time_days, seen.event, seen.risk)[0]
    if not of_death.any():
        return None
    found = Decisive(
        harrell=concordance.harrell_c(seen.time_days, seen.event, seen.risk),
        uno=concordance.uno_c(seen.time_days, seen.event, seen.risk, tau),
        share=float(of_death.max() / of_death.sum()),
    )
    return found if found.share >= DECISIVE_SHARE and abs(found.harrell - found.uno) > APART else None

"""Signs that rows are not what they seem: scores in the order of a table, copies, scans of one patient, Cs that disagree.

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
from scipy.stats import binom, rankdata

from mri_vit.kinds.kind import labels
from mri_vit.metrics import concordance
from mri_vit.metrics.survival import censoring_survival
from mri_vit.report.numbers import measures
from mri_vit.report.numbers.judged import averaged, first_repeat, floats, outcome
from mri_vit.report.schema.measured import TAU_DAYS, Contradiction, Ordered
from mri_vit.settings.schema import Endpoint

FALSE_ALARMS = 0.01  # of studies, of each sign
MIN_PATIENTS = 20  # from which a sum of ranks is about normal
EXPLAINED = 0.9  # rank correlation from which a column of the table explains an order: a table may be sorted by age or date
MAX_VISITS = 10  # ids of one stem; more are a hospital's patients
AGREEING = 0.9  # share of the stems whose ids agree in the label
MIN_DEATHS = 5.0  # of equal weight, on which Uno's C has to rest, as on so many a verdict
APART = 0.1  # Harrell's C from Uno's: less does not change what is concluded
LAST_PART = re.compile(r"([-_. ][^-_. ]+|(?<=\d)[A-Za-z])$")  # P001_2, P001-a and P001b are of the stem P001


def positions(cohort: pd.DataFrame) -> dict[str, dict[str, int]]:
    """By the name of an order, the place of each patient in it; without orders that a column of numbers explains."""
    people = cohort.patient.tolist()
    orders = {"the rows of the cohort table": people}
    if (by_id := sorted(people, key=_in_numbers)) != people:
        orders["the ids"] = by_id
    numbers = pd.DataFrame({name: pd.to_numeric(cohort[name], errors="coerce") for name in cohort if name != "patient"})
    places = {name: {patient: place for place, patient in enumerate(order)} for name, order in orders.items()}
    return {name: place_of for name, place_of in places.items() if not _explained(cohort.patient.map(place_of), numbers)}


def _in_numbers(name: str) -> list[tuple[str, int]]:
    """A key by which p9 stands before p10."""
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d*)", name)]


def _explained(place: pd.Series, numbers: pd.DataFrame) -> bool:
    """Whether any column rises or falls with the place, unless it only counts the rows."""
    for name in numbers:
        column = numbers[name].to_numpy(float)
        known = np.isfinite(column)
        values = len(np.unique(column[known]))
        counts = values == len(column) and np.ptp(column) == len(column) - 1
        if known.sum() < MIN_PATIENTS or values <= 2 or counts:
            continue
        if abs(np.corrcoef(rankdata(column[known]), rankdata(place.to_numpy()[known]))[0, 1]) >= EXPLAINED:
            return True
    return False


def ordered(
    endpoint: Endpoint, rows: pd.DataFrame, orders: Mapping[str, Mapping[str, int]], site_of: Mapping[str, str], results: int
) -> Ordered | None:
    """The order that scores follow among patients of one fold, outcome and site, at a level for so many results and all orders.

    Formula: Spearman's correlation over strata: z = sum_s sum_i a_i b_i / sqrt(sum_s A_s B_s / (n_s - 1)), a and b the ranks of
    score and place less their mean in the stratum, A_s and B_s their sums of squares. Of survival both are residuals on the rank
    of the time, and n_s - 2 takes the place of n_s - 1: who was seen earlier was followed longer. So they are of a number on its
    rank.
    """
    once = first_repeat(rows)
    of_kind, survival = measures.of(endpoint), labels(endpoint).of_visit
    outcome_of = once[of_kind.alike] if of_kind.alike else 0
    once = once.assign(site=once.patient.map(site_of).fillna(""), outcome=outcome_of)
    found = []
    for name, place_of in orders.items():
        product, variance, squares = 0.0, 0.0, np.zeros(2)
        for _, here in once.assign(place=once.patient.map(place_of)).groupby(["fold", "outcome", "site"]):
            along = floats(here.time_days) if survival else None if of_kind.alike else floats(here.truth)
            freedom = len(here) - 1 - (along is not None)
            if freedom < 1:
                continue
            a, b = _centred(floats(here.score), along), _centred(floats(here.place), along)
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


def outcomes(tables: Mapping[str, Mapping[str, pd.DataFrame]]) -> dict[str, str]:
    """By patient all that became of them, over the endpoints; `tables` by endpoint and model."""
    known: dict[str, list[str]] = {}
    for name, models in tables.items():
        for rows in list(models.values())[:1]:
            columns = [column for column in ("truth", "time_days", "event", "competing", "label") if column in rows]
            for patient, *own in first_repeat(rows)[["patient", *columns]].itertuples(index=False):
                known.setdefault(patient, []).append(f"{name}: {own}")
    return {patient: "; ".join(labels) for patient, labels in known.items()}


def copies(rows: pd.DataFrame, outcome_of: Mapping[str, str], results: int) -> list[tuple[str, ...]]:
    """Patients of one fold with one score and all outcomes equal, where chance would not let so many ties agree.

    Formula: of t pairs with one score the number that agrees is binomial; its probability is the share of all pairs of a fold
    that agree, or of pairs with neighbouring scores where that is more, for scores that know the outcome. Of one marker alone
    a few copies look like ties.
    """
    once = first_repeat(rows)
    once = once.assign(outcome=once.patient.map(outcome_of)).sort_values(["fold", "score"])
    pairs = ties = alike = agreeing = 0
    near: list[bool] = []
    for _, here in once.groupby("fold"):
        pairs += math.comb(len(here), 2)
        ties += _pairs_in(here, "score")
        alike += _pairs_in(here, "outcome")
        agreeing += _pairs_in(here, "score", "outcome")
        score, known = floats(here.score), here.outcome.to_numpy()
        near += (known[1:] == known[:-1])[score[1:] > score[:-1]].tolist()
    if not agreeing or not near:
        return []
    share = min(1.0, max((alike - agreeing) / max(pairs - ties, 1), float(np.mean(near))))
    if binom.sf(agreeing - 1, ties, share) > FALSE_ALARMS / results:
        return []
    return [tuple(here.patient) for _, here in once.groupby(["fold", "score", "outcome"]) if len(here) > 1]


def _pairs_in(here: pd.DataFrame, *columns: str) -> int:
    """Pairs of rows that are equal in these columns."""
    counts = here.groupby(list(columns)).size().to_numpy()
    return int((counts * (counts - 1) // 2).sum())


def scans_of_one(rows: pd.DataFrame, site_of: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Groups of ids of one stem whose labels agree, where nearly all groups do and chance would not let them.

    Formula: groups of k patients agree with the probability sum_c p_c^k, p_c the share of class c; the number of groups that do
    is at most as probable as a binomial one of the mean probability. Nothing is said where the stem is the site.
    """
    people = averaged(rows)
    label = next(people[column].to_numpy() for column in ("event", "label", "truth") if column in people)
    stem = people.patient.astype(str).str.replace(LAST_PART, "", regex=True)
    groups = [here for here in people.groupby(stem).groups.values() if 1 < len(here) <= MAX_VISITS]
    site = people.patient.map(site_of).fillna("")
    sites = [set(site[here]) for here in groups]
    if not groups or (all(len(one) == 1 for one in sites) and len(set().union(*sites)) == len(groups) > 1):
        return []
    agreeing = [here for here in groups if len(np.unique(label[here])) == 1]
    shares = np.unique(label, return_counts=True)[1] / len(label)
    chance = float(np.mean([(shares ** len(here)).sum() for here in groups]))
    if len(agreeing) < AGREEING * len(groups) or binom.sf(len(agreeing) - 1, len(groups), chance) > FALSE_ALARMS / 10:
        return []
    return [tuple(people.patient[here]) for here in agreeing]


def contradiction(rows: pd.DataFrame, results: int) -> Contradiction | None:
    """Harrell's and Uno's C where they lie further apart than they do in risks of nothing; None of what is no survival, or
    survival with a competing event, where the second C is Wolbers's and asks something else.

    Formula: the difference is a sum over pairs with the weights 1 / P - w / Q of the deaths, P and Q the sums of both Cs' pairs,
    so that its variance without a signal is exact (`concordance.PatientPairs.null_variance`); its p is normal. Where a few
    late deaths have nearly all the weight of Uno's C, anything might come of it, and it is enough that they are so few.
    """
    if "event" not in rows or "competing" in rows:
        return None
    seen = outcome(averaged(rows))
    died = seen.time_days[seen.event]
    tau = min(TAU_DAYS, float(seen.time_days.max()))
    weight = concordance.uno_weight(censoring_survival(seen.time_days, seen.event, died), died, tau)
    comparable = concordance.death_counts(seen.time_days, seen.event, seen.risk)[0]
    if not (weight * comparable).any():
        return None
    harrell = concordance.harrell_c(seen.time_days, seen.event, seen.risk)
    uno = concordance.uno_c(seen.time_days, seen.event, seen.risk, tau)
    apart = 1 / comparable.sum() - weight / (weight * comparable).sum()
    pairs = concordance.patient_pairs(seen.time_days, seen.event, seen.risk, apart)
    error = math.sqrt(max(0.0, pairs.null_variance(seen.risk))) / 2
    p = 2 * float(ndtr(-abs(harrell - uno) / error)) if error else 1.0
    few = _effective(weight * comparable) <= min(MIN_DEATHS, _effective(comparable.astype(float)) / 2)
    return Contradiction(harrell, uno, p) if abs(harrell - uno) > APART and (few or p <= FALSE_ALARMS / results) else None


def _effective(weight: Float[np.ndarray, " d"]) -> float:
    """The number of equal weights that scatter as much (Kish 1965, Survey Sampling, section 11.7)."""
    return float(weight.sum() ** 2 / (weight**2).sum())

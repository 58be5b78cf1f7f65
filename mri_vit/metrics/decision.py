"""What follows from calling patients positive: thresholds, the four rates at one, and the net benefit over many.

Times are in days; event is True for a death and False for a patient censored at that time. n is the number of patients, t of
thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Real
from scipy.special import ndtri

from mri_vit.errors import IntegrityError
from mri_vit.metrics.checked import (
    Days,
    Events,
    Flags,
    Numbers,
    flags,
    followed,
    labelled,
    numbers,
    predicted,
    probabilities,
    refuse_unequal,
)
from mri_vit.metrics.intervals import CONFIDENCE, Rate, rate
from mri_vit.metrics.survival import pseudo_survival


@dataclass(frozen=True)
class OperatingPoint:
    """The four rates of one way to call patients positive, each with its 95 % Wilson interval."""

    sensitivity: Rate
    specificity: Rate
    ppv: Rate
    npv: Rate


@dataclass(frozen=True)
class Threshold:
    """A threshold with the patients that it was chosen on; it refuses to be judged on any of them."""

    value: float
    patients: frozenset[str]

    def apply(self, patients: Iterable[str], score: Numbers) -> Bool[np.ndarray, " n"]:
        """True for patients whose score reaches the threshold.

        Raises IntegrityError that names the first patient that the threshold was chosen on; ValueError when a score is NaN or
        there is not one score for each patient.
        """
        names, score = _named(patients, score)
        self.refuse(names)
        return score >= self.value

    def refuse(self, patients: Iterable[str]) -> None:
        """Raise IntegrityError that names the first of these patients that the threshold was chosen on."""
        names = list(patients)
        seen = [name for name in names if name in self.patients]
        if seen:
            raise IntegrityError(
                f"patient {seen[0]}: the threshold was chosen with this patient's score ({len(seen)} of {len(names)} patients "
                "are such); a threshold must come from patients that it is not judged on"
            )


def choose_threshold(patients: Iterable[str], truth: Flags, score: Numbers) -> Threshold:
    """The `youden_threshold` of these patients (validation data), bound to them.

    Raises ValueError when only one class is present, a label is neither 0 nor 1, a score is NaN or infinite, or there is not one
    label and one score for each patient.
    """
    truth, score = labelled(truth, score)
    names, score = _named(patients, score)
    value = youden_threshold(truth, score)
    if math.isnan(value):
        raise ValueError(f"found {int(truth.sum())} positives of {len(truth)}; a threshold needs patients of both classes")
    return Threshold(value, frozenset(names))


def choose_cutoff(patients: Iterable[str], risk: Numbers) -> Threshold:
    """The median risk of these patients (training data), bound to them; it parts low from high risk.

    Assumption: the patients it is applied to have risks on the same scale, so they come from the same model.
    Raises ValueError when there is no patient, a risk is NaN or infinite, or there is not one risk for each patient.
    """
    names, risk = _named(patients, risk)
    if not names:
        raise ValueError("found no patient; a median risk needs at least one")
    return Threshold(float(np.median(risk)), frozenset(names))


def youden_threshold(truth: Flags, score: Numbers) -> float:
    """The threshold with the largest Youden index; positive means a score of at least the threshold.

    Definition: the observed score that maximises J = sensitivity + specificity - 1; among equals the lowest, which has the
    highest sensitivity.
    Assumption: a missed positive weighs as much as a false alarm, per patient of its class. Chosen and judged on the same
    patients it is too good, so use `choose_threshold`.
    Source: Youden 1950, doi:10.1002/1097-0142(1950)3:1<32::AID-CNCR2820030106>3.0.CO;2-3.
    Returns: float, in the units of the score; NaN when only one class is present.

    >>> truth, score = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> youden_threshold(truth, score)
    0.35
    """
    truth, score = labelled(truth, score)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return math.nan
    values = np.unique(score)
    hits = positives - np.searchsorted(np.sort(score[truth]), values)
    alarms = negatives - np.searchsorted(np.sort(score[~truth]), values)
    # J times both class sizes is a whole number, so equal values of J compare as equal; argmax takes the first.
    return float(values[np.argmax(hits * negatives - alarms * positives)])


def operating_point(truth: Flags, positive: Flags) -> OperatingPoint:
    """Sensitivity, specificity and predictive values of patients called `positive`.

    Definition: sensitivity = called among the positives; specificity = not called among the negatives; PPV = positives among
    the called; NPV = negatives among those not called; each with a 95 % Wilson interval.
    Assumption: the threshold was not chosen on these patients (see `Threshold`). PPV and NPV belong to this prevalence.
    Source: Altman & Bland 1994, doi:10.1136/bmj.308.6943.1552 and doi:10.1136/bmj.309.6947.102; Wilson 1927.
    Returns: OperatingPoint; a rate of no patients is NaN, and so are its bounds.

    >>> truth, score = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> operating_point(truth, score >= 0.35).sensitivity.value
    1.0
    """
    truth, positive = flags(truth, "labels"), flags(positive, "calls")
    refuse_unequal(labels=len(truth), calls=len(positive))
    hit, alarm = int((truth & positive).sum()), int((~truth & positive).sum())
    miss, rest = int((truth & ~positive).sum()), int((~truth & ~positive).sum())
    return OperatingPoint(
        sensitivity=rate(hit, hit + miss),
        specificity=rate(rest, rest + alarm),
        ppv=rate(hit, hit + alarm),
        npv=rate(rest, rest + miss),
    )


def net_benefit(truth: Flags, probability: Numbers, thresholds: Real[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
    """Net benefit of treating patients whose probability reaches the threshold: the model's decision curve.

    Definition: true positives less false positives, per patient, a false positive weighing what the threshold says it does.
    Formula: TP / n - FP / n x t / (1 - t). Treating none gives 0; treating all,
    with probabilities of 1, gives q - (1 - q) x t / (1 - t), q the prevalence.
    Assumption: probabilities are calibrated; a patient who would be treated from a risk of t on weighs harm against benefit
    as t : (1 - t).
    Source: Vickers & Elkin 2006, doi:10.1177/0272989X06295361.
    Returns: float [t], per patient; NaN when only one class is present, where there is nothing to decide.

    >>> truth, probability = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> net_benefit(truth, probability, np.array([0.3])).round(3)
    array([0.393])
    """
    truth, probability = predicted(truth, probability)
    thresholds = numbers(thresholds, "thresholds")
    harm = odds(thresholds)
    if not truth.any() or truth.all():
        return np.full(len(thresholds), math.nan)
    hits = truth.sum() - np.searchsorted(np.sort(probability[truth]), thresholds)
    alarms = (~truth).sum() - np.searchsorted(np.sort(probability[~truth]), thresholds)
    return (hits - alarms * harm) / len(truth)


def odds(thresholds: Float[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
    """What a false alarm weighs against a hit at each threshold t: t / (1 - t)."""
    if not ((thresholds >= 0) & (thresholds < 1)).all():
        raise ValueError(f"found thresholds {thresholds.tolist()}; expected probabilities from 0 to below 1")
    return thresholds / (1 - thresholds)


def _named(patients: Iterable[str], score: Numbers) -> tuple[list[str], Float[np.ndarray, " n"]]:
    names, score = list(patients), numbers(score, "scores")
    if len(names) != len(score):
        raise ValueError(f"found {len(score)} scores for {len(names)} patients; expected one each")
    return names, score


class ByDay(NamedTuple):
    """Follow-up of n patients, and their predicted chance of the event by a day.

    `other`: where another event may come first, who had it; shares with the event are then cumulative incidences.
    """

    time_days: Numbers
    event: Flags
    chance: Numbers
    at_day: float
    other: Flags | None = None


def survival_net_benefit(people: ByDay, thresholds: Real[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
    """Net benefit of treating patients whose predicted chance of the event by a day reaches the threshold.

    Definition: as `decision.net_benefit`, with true and false positives estimated by Kaplan and Meier, since of those censored
    before the day it is not known whether they died by it.
    Formula: ((1 - S) - S t / (1 - t)) × share, S the Kaplan-Meier survival at the day of those who reach the threshold t, and
    share how many of all these are; with a competing event S is 1 less the cumulative incidence. Treating none gives 0;
    probabilities of 1 treat all.
    Assumption: within those who reach the threshold, censoring is unrelated to survival.
    Source: Vickers et al. 2008, doi:10.1186/1472-6947-8-53.
    Returns: float [t], per patient; NaN where the last of those who reach the threshold was censored before the day; 0 where
    none does.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> death = np.array([0.9, 0.4, 0.6, 0.5, 0.1])
    >>> survival_net_benefit(ByDay(time_days, event, death, 350.0), np.array([0.0, 0.2])).round(3)
    array([0.4, 0.3])
    """
    people, thresholds = _checked(people), numbers(thresholds, "thresholds")
    harm = odds(thresholds)
    if not len(people.chance):
        return np.full(len(thresholds), math.nan)
    treated = people.chance >= thresholds[:, None]  # (t, n)
    alive = _alive_at(people, treated)
    return ((1 - alive) - alive * harm) * treated.mean(axis=1)


def survival_net_benefit_band(
    people: ByDay, thresholds: Real[np.ndarray, " t"]
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """Pointwise confidence band of `survival_net_benefit`.

    Definition: normal, with the variance of each patient's influence on the net benefit: by being among those who reach the
    threshold, and by what their follow-up adds to the Kaplan-Meier curve of these. Where all are treated and harm weighs
    nothing, it is Greenwood's.
    Assumption: patients are independent, and predictions are taken as given (training is not repeated).
    Source: Reid 1981, Influence functions for censored data, Annals of Statistics 9:78.
    Returns: (low, high), each float [t]; NaN where the net benefit is, and without width where no patient reaches the threshold.
    """
    benefit, influence = survival_net_benefit(people, thresholds), survival_influence(people, thresholds)
    if not influence.shape[1]:
        return benefit, benefit
    error = np.sqrt((influence**2).mean(axis=1) / influence.shape[1]) * ndtri((1 + CONFIDENCE) / 2)
    return benefit - error, benefit + error


def survival_influence(people: ByDay, thresholds: Real[np.ndarray, " t"]) -> Float[np.ndarray, "t n"]:
    """Each patient's influence on `survival_net_benefit`: 0 on average.

    Source: Reid 1981, Influence functions for censored data, Annals of Statistics 9:78.
    Returns: float [t, n]; NaN where the net benefit is.
    """
    time_days, event, chance, at_day, other = people = _checked(people)
    thresholds = numbers(thresholds, "thresholds")
    if not len(time_days):
        return np.zeros((len(thresholds), 0))
    treated = chance >= thresholds[:, None]  # (t, n)
    share, weight = treated.mean(axis=1)[:, None], 1 + odds(thresholds)[:, None]
    alive = _alive_at(people, treated)[:, None]
    if other is not None:
        of_curve = np.zeros(treated.shape)
        for row, here in enumerate(treated):
            of_curve[row, here] = alive[row] - pseudo_survival(time_days[here], event[here], at_day, other[here])
        return (treated - share) * (1 - weight * alive) + weight * of_curve
    days, at_risk, died = _life_tables(time_days, event, treated, at_day)
    left = at_risk - died
    each = np.where(left > 0, treated.sum(axis=1)[:, None] / np.where(left > 0, left, 1), 0.0)  # of a death on each day
    expected = np.cumsum(np.pad(each * died / np.where(at_risk > 0, at_risk, 1), ((0, 0), (1, 0))), axis=1)
    by_then = np.searchsorted(days, np.minimum(time_days, at_day), side="right")  # days with deaths that a patient was at risk on
    seen = np.where(event & (time_days <= at_day), np.pad(each, ((0, 0), (1, 0)))[:, by_then], 0.0) - expected[:, by_then]
    return (treated - share) * (1 - weight * alive) + weight * alive * treated * seen


def _life_tables(
    time_days: Days, event: Events, member: Bool[np.ndarray, "t n"], at_day: float
) -> tuple[Float[np.ndarray, " days"], Float[np.ndarray, "t days"], Float[np.ndarray, "t days"]]:
    """The days with deaths up to one, and how many of each of t groups were at risk and died on them."""
    days = np.unique(time_days[event & (time_days <= at_day)])
    at_risk = member @ (time_days[:, None] >= days).astype(float)
    return days, at_risk, member @ ((time_days[:, None] == days) & event[:, None]).astype(float)


def _alive_at(people: ByDay, member: Bool[np.ndarray, "t n"]) -> Float[np.ndarray, " t"]:
    """Kaplan-Meier survival at the day of each of t groups; NaN where it is not known, 1 of an empty group."""
    time_days, event, _, at_day, other = people
    if other is not None:
        each = [pseudo_survival(time_days[here], event[here], at_day, other[here]) if here.any() else [1.0] for here in member]
        return np.array([np.mean(values) for values in each])
    _, at_risk, died = _life_tables(time_days, event, member, at_day)
    alive = np.prod(1 - died / np.where(at_risk > 0, at_risk, 1.0), axis=1)
    followed_up = (member & (time_days >= at_day)).any(axis=1)
    return np.where(followed_up | (alive == 0) | ~member.any(axis=1), alive, math.nan)


def _checked(people: ByDay) -> ByDay:
    """Arrays, with one chance for each patient."""
    time_days, event = followed(people.time_days, people.event)
    chance = probabilities(people.chance)
    refuse_unequal(times=len(time_days), probabilities=len(chance))
    return people._replace(time_days=time_days, event=event, chance=chance)

"""What every metric asks of its arrays: labels, scores, times and risks of n patients in, the same as checked arrays out.

k is the number of classes. Every public metric passes its arrays through here and raises these ValueErrors, which its own
docstring does not repeat: an array of 0 and 1 used as a mask, or one that is a patient short, would give a number that is wrong.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, Real, Shaped

Flags = Bool[np.ndarray, " n"] | Real[np.ndarray, " n"]  # True and False, or 1 and 0 of any type of number
Numbers = Real[np.ndarray, " n"]  # of any type; computed with in double precision
Groups = Shaped[np.ndarray, " n"]  # of any type that sorts: numbers, words
Labels = Real[np.ndarray, " n"]  # the class of each patient, from 0 on, of any type of number
Shares = Real[np.ndarray, "n k"]  # the probability of each of k classes

Days = Scores = Float[np.ndarray, " n"]  # checked, as are the next two
Events = Truth = Bool[np.ndarray, " n"]
Drawn = Float[np.ndarray, "b n"]  # how often each patient came up in each of b resamples

SUM_TOL = 1e-6  # of a row of probabilities: what single precision leaves of a softmax over ten classes, and no more
SHOWN_VALUES = 3  # wrong values that a message quotes: enough to recognise what was passed


def flags(values: np.ndarray, name: str) -> Bool[np.ndarray, " n"]:
    """Flags of any type as bool.

    Raises ValueError when the array is not one-dimensional or not of numbers, or a value is neither 0 nor 1 (NaN is neither).
    """
    values = _of_numbers(values, name, "biuf", axes=1)
    if values.dtype.kind == "b":
        return values
    positive = values == 1
    wrong = ~positive & (values != 0)
    if wrong.any():
        found = ", ".join(f"{value:g}" for value in np.unique(values[wrong])[:SHOWN_VALUES])
        raise ValueError(f"{int(wrong.sum())} of {len(values)} {name} are neither 0 nor 1; found {found}")
    return positive


def numbers(values: np.ndarray, name: str, axes: int = 1) -> Float[np.ndarray, "*shape"]:
    """Finite numbers of any type in double precision.

    Raises ValueError when the array has other axes or is not of numbers, or a value is NaN or infinite.
    """
    values = _of_numbers(values, name, "iuf", axes).astype(float, copy=False)
    if not np.isfinite(values).all():
        missing, endless = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        count, what = (missing, "NaN") if missing else (endless, "infinite")
        raise ValueError(f"{count} of {values.size} {name} are {what}; expected a finite number for every patient")
    return values


def probabilities(values: np.ndarray) -> Float[np.ndarray, " n"]:
    """Probabilities in double precision.

    Raises ValueError as by `numbers`, or when one lies outside [0, 1].
    """
    values = numbers(values, "probabilities")
    outside = int(((values < 0) | (values > 1)).sum())
    if outside:
        raise ValueError(f"{outside} of {len(values)} probabilities lie outside 0 to 1; found risks or logits instead?")
    return values


def classes(values: np.ndarray, name: str, count: int) -> Int[np.ndarray, " n"]:
    """Classes of any type of number as whole numbers.

    Raises ValueError when the array is not one-dimensional or not of numbers, or a value is none of 0 to `count` - 1.
    """
    values = _of_numbers(values, name, "iuf", axes=1)
    wrong = ~np.isin(values, np.arange(count))  # NaN is in nothing
    if wrong.any():
        found = ", ".join(f"{value:g}" for value in np.unique(values[wrong])[:SHOWN_VALUES])
        raise ValueError(f"{int(wrong.sum())} of {len(values)} {name} are no class from 0 to {count - 1}; found {found}")
    return values.astype(int)


def shares(values: np.ndarray) -> Float[np.ndarray, "n k"]:
    """The probabilities of each patient's classes in double precision.

    Raises ValueError as by `numbers`, or when one lies outside [0, 1] or a patient's do not add up to 1.
    """
    values = numbers(values, "probabilities", axes=2)
    outside = int(((values < 0) | (values > 1)).sum())
    if outside:
        raise ValueError(f"{outside} of {values.size} probabilities lie outside 0 to 1; found risks or logits instead?")
    sums = values.sum(axis=1)
    wrong = np.abs(sums - 1) > SUM_TOL
    if wrong.any():
        raise ValueError(
            f"the probabilities of {int(wrong.sum())} of {len(values)} patients do not add up to 1; found {sums[wrong][0]:g}"
        )
    return values


def classed(label: np.ndarray, probability: np.ndarray) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, "n k"]]:
    """Classes and the probabilities of all classes of the same patients."""
    probability = shares(probability)
    label = classes(label, "labels", probability.shape[1])
    refuse_unequal(labels=len(label), probabilities=len(probability))
    return label, probability


def ranked(label: np.ndarray, score: np.ndarray) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, "n k"]]:
    """Classes and scores for all classes of the same patients, which need not be probabilities."""
    score = numbers(score, "scores", axes=2)
    label = classes(label, "labels", score.shape[1])
    refuse_unequal(labels=len(label), scores=len(score))
    return label, score


def measured(
    value: np.ndarray, predicted: np.ndarray, name: str = "values", of_predicted: str = "predictions"
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Measured numbers and what was predicted of the same patients, under the names that an error calls them by."""
    value, predicted = numbers(value, name), numbers(predicted, of_predicted)
    refuse_unequal(**{name: len(value), of_predicted: len(predicted)})
    return value, predicted


def labelled(truth: np.ndarray, score: np.ndarray) -> tuple[Bool[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Labels and scores of the same patients."""
    truth, score = flags(truth, "labels"), numbers(score, "scores")
    refuse_unequal(labels=len(truth), scores=len(score))
    return truth, score


def predicted(truth: np.ndarray, probability: np.ndarray) -> tuple[Bool[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Labels and probabilities of the same patients."""
    truth, probability = flags(truth, "labels"), probabilities(probability)
    refuse_unequal(labels=len(truth), probabilities=len(probability))
    return truth, probability


def followed(time_days: np.ndarray, event: np.ndarray) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Times and events of the same patients."""
    time_days, event = numbers(time_days, "times"), flags(event, "events")
    refuse_unequal(times=len(time_days), events=len(event))
    return time_days, event


def competed(
    time_days: np.ndarray, event: np.ndarray, other: np.ndarray
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Times, events and competing events of the same patients.

    Raises ValueError where a patient has both.
    """
    time_days, event = followed(time_days, event)
    other = flags(other, "competing events")
    refuse_unequal(times=len(time_days), competing=len(other))
    if (event & other).any():
        raise ValueError(f"{int((event & other).sum())} of {len(event)} patients have both events; expected the first of the two")
    return time_days, event, other


def outcome(
    time_days: np.ndarray, event: np.ndarray, risk: np.ndarray
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Times, events and risks of the same patients."""
    time_days, event = followed(time_days, event)
    risk = numbers(risk, "risks")
    refuse_unequal(times=len(time_days), risks=len(risk))
    return time_days, event, risk


def grouped(group: np.ndarray, patients: int) -> Groups:
    """The group of each patient.

    Raises ValueError when there is not one group for each patient, or a group is NaN, which equals no other.
    """
    group = np.asarray(group)
    if group.ndim != 1 or len(group) != patients:
        raise ValueError(f"found groups of shape {group.shape} for {patients} patients; expected one group each")
    if group.dtype.kind == "f" and np.isnan(group).any():
        raise ValueError(f"{int(np.isnan(group).sum())} of {patients} groups are NaN; expected a group for every patient")
    return group


def refuse_unequal(**lengths: int) -> None:
    """Raise a ValueError that names the lengths, unless all are equal."""
    if len(set(lengths.values())) > 1:
        found = " and ".join(f"{length} {name}" for name, length in lengths.items())
        raise ValueError(f"found {found}; expected one of each for every patient")


def _of_numbers(values: np.ndarray, name: str, kinds: str, axes: int) -> Shaped[np.ndarray, "*shape"]:
    values = np.asarray(values)
    if values.dtype.kind not in kinds:
        raise ValueError(f"found {name} of type {values.dtype}; expected an array of numbers")
    if values.ndim != axes:
        raise ValueError(f"found {name} of shape {values.shape}; expected an array of {axes} {'axis' if axes == 1 else 'axes'}")
    return values

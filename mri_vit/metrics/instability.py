"""How far a patient's prediction moves when the model is trained again: predictions by several trainings in; changes, calls and
order out.

b is the number of trainings, n of patients, k of numbers that a prediction has (1, or a probability of each class).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int, Real

from mri_vit.metrics.checked import numbers

Predictions = Real[np.ndarray, "b n k"]
Calls = Int[np.ndarray, "b n"]

MAX_SHIFTS = 100  # partners of each patient: half a million pairs of 5,000 patients, and all pairs of 101


def change(predictions: Predictions) -> Float[np.ndarray, " n"]:
    """Each patient's mean absolute prediction error (MAPE) between trainings: how far two trainings lie apart.

    Definition: the mean, over all pairs of trainings, of the absolute difference of their predictions; of the probabilities of
    several classes half the sum of their differences (the probability that moves), which of two classes is the same.
    Formula: sum over b ≠ c of d(p_b, p_c) / (b (b - 1)). Riley and Collins' MAPE is the mean distance of retrained models from
    the one that is reported; this is its mean with each training in turn as the reported one. Distances from the mean of the
    trainings, which holds each of them, are sqrt((b - 1) / (2 b)) times as large of a normal scatter; these do not depend on b.
    Assumption: trainings are alike and independent, given the cohort. Folds that are drawn anew share most training patients,
    so that other patients would move predictions further.
    Source: Riley & Collins 2023, doi:10.1002/bimj.202200302; Gini's mean difference.
    Returns: float [n], in the unit of the predictions; NaN of a single training.

    >>> change(np.array([[[0.2]], [[0.3]], [[0.6]]])).round(3)
    array([0.267])
    """
    predictions = numbers(predictions, "predictions", axes=3)
    trainings, patients, _ = predictions.shape
    if trainings < 2:
        return np.full(patients, math.nan)
    moved = sum(_distance(predictions, np.roll(predictions, shift, axis=0)).mean(axis=0) for shift in range(1, trainings))
    return np.asarray(moved) / (trainings - 1)


def change_at_random(predictions: Predictions, generator: np.random.Generator) -> float:
    """How far the predictions of two patients by one training lie apart, on average: `change` where a patient counts for nothing.

    Definition: the mean of `change`'s distance over pairs of patients of the same training. At a ratio of 1 retraining moves a
    patient as far as exchanging the patient would; it is more where trainings differ in scale. Of many patients each is paired
    with `MAX_SHIFTS` others.
    Assumption: none. `generator` deals the pairs.
    Source: Gini's mean difference.
    Returns: float, in the unit of the predictions; NaN of a single patient.

    >>> change_at_random(np.array([[[0.2], [0.3], [0.7]]]), np.random.default_rng(0)).__round__(3)
    0.333
    """
    predictions = numbers(predictions, "predictions", axes=3)
    patients = predictions.shape[1]
    if patients < 2:
        return math.nan
    shuffled = predictions[:, generator.permutation(patients)]
    shifts = range(1, min(patients - 1, MAX_SHIFTS) + 1)
    return float(np.mean([_distance(shuffled, np.roll(shuffled, shift, axis=1)).mean() for shift in shifts]))


def disagreement(calls: Calls) -> Float[np.ndarray, " n"]:
    """Each patient's classification instability: the share of pairs of trainings that call the patient differently.

    Definition: Riley and Collins' index is the share of retrained models that call the patient otherwise than the reported one;
    this is its mean with each training in turn as the reported one.
    Formula: (b² - sum over classes of count²) / (b (b - 1)).
    Assumption: as `change`.
    Source: Riley & Collins 2023, doi:10.1002/bimj.202200302.
    Returns: float [n], 0 to 1; NaN of a single training.

    >>> disagreement(np.array([[0, 1], [0, 1], [1, 1]])).round(3)
    array([0.667, 0.   ])
    """
    trainings = len(calls)
    if trainings < 2:
        return np.full(calls.shape[1], math.nan)
    alike = (votes(calls) ** 2).sum(axis=1)
    return (trainings**2 - alike) / (trainings * (trainings - 1))


def disagreement_at_random(calls: Calls) -> float:
    """How often one training calls two patients differently: `disagreement` where a patient counts for nothing.

    Definition: the share of pairs of patients of the same training whose calls differ, mean over trainings.
    Formula: as `disagreement`, with patients in the place of trainings.
    Assumption: none.
    Source: Simpson 1949, doi:10.1038/163688a0.
    Returns: float, 0 to 1; NaN of a single patient.

    >>> disagreement_at_random(np.array([[0, 0, 1, 1]])).__round__(3)
    0.667
    """
    return float(disagreement(calls.T).mean()) if calls.size else math.nan


def votes(calls: Calls) -> Int[np.ndarray, "n c"]:
    """How many trainings call each patient each class, of which there are c, counted from 0.

    >>> votes(np.array([[0, 1], [0, 1], [1, 1]])).tolist()
    [[2, 1], [0, 3]]
    """
    return (calls[:, :, None] == np.arange(int(calls.max(initial=0)) + 1)).sum(axis=0)


def rank_agreement(predictions: Real[np.ndarray, "b n"]) -> float:
    """Spearman's correlation of two trainings' predictions: whether the order of the patients stays, whatever the scale.

    Definition: the mean, over all pairs of trainings, of the rank correlation over patients, ties with mean ranks.
    Assumption: none.
    Source: Spearman 1904, doi:10.2307/1412159; Kendall & Babington Smith 1939, doi:10.1214/aoms/1177732186.
    Returns: float, -1 to 1; NaN of a single training, of two patients or fewer, or where all predictions of a training are equal.

    >>> rank_agreement(np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]])).__round__(3)
    0.5
    """
    from scipy.stats import rankdata  # here, because it takes a second to import

    predictions = numbers(predictions, "predictions", axes=2)
    trainings, patients = predictions.shape
    if trainings < 2 or patients < 3 or (np.ptp(predictions, axis=1) == 0).any():
        return math.nan
    correlation = np.corrcoef(rankdata(predictions, axis=1))
    return float((correlation.sum() - trainings) / (trainings * (trainings - 1)))


def relative_error(trainings: int) -> float:
    """How rough one patient's `change` from so many trainings is: its standard deviation over its mean.

    Formula: that of Gini's mean difference g of b normal numbers, E g = 2 / sqrt(pi), and
    var g = 4 ((b + 1) / 3 + 2 sqrt(3) (b - 2) / pi - 2 (2 b - 3) / pi) / (b (b - 1)).
    Assumption: a patient's predictions scatter normally over trainings.
    Source: Nair 1936, doi:10.1093/biomet/28.3-4.428.
    Returns: float; NaN of a single training.

    >>> relative_error(2).__round__(3), relative_error(10).__round__(3)
    (0.756, 0.241)
    """
    if trainings < 2:
        return math.nan
    inner = (trainings + 1) / 3 + 2 * math.sqrt(3) * (trainings - 2) / math.pi - 2 * (2 * trainings - 3) / math.pi
    return math.sqrt(4 * inner / (trainings * (trainings - 1))) * math.sqrt(math.pi) / 2


def _distance(one: Float[np.ndarray, "b n k"], other: Float[np.ndarray, "b n k"]) -> Float[np.ndarray, "b n"]:
    """Half the sum over classes; of one number the difference itself."""
    apart = np.abs(one - other).sum(axis=2)
    return apart if one.shape[2] == 1 else apart / 2

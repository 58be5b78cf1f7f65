"""How good frozen features are: vectors and labels in, out-of-fold scores of k nearest neighbours and a linear probe out.

In the form of Table 10 of Caron et al. 2021 (arXiv:2104.14294): the same features judged at several shares of the labels.

Letters: n patients, of whom n are for training and m for testing in a fold; d numbers per patient; f folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

COLUMNS = ["features", "probe", "share", "labelled", "patient", "fold", "score"]
SHARES = (0.01, 0.1, 1.0)  # of the training labels; the few-shot protocol of Caron et al. 2021, Table 10, and the whole
FEWEST = 2  # of each class, however small the share: with one, regularisation could not be chosen inside
INNER_FOLDS = 5  # within which the regularisation is chosen; fewer where a class is smaller
STRENGTHS = 10.0 ** np.arange(-4, 2)  # inverse regularisation that is tried, on standardised numbers
STEPS = 1000  # of the solver at most; it needs tens


def knn(
    train_x: Float[np.ndarray, "n d"],
    train_y: Bool[np.ndarray, " n"],
    test_x: Float[np.ndarray, "m d"],
    k: int = 20,  # Caron et al. 2021, section 3.2: best for most of their runs
    temperature: float = 0.07,  # Wu et al. 2018, section 3.1
) -> Float[np.ndarray, " m"]:
    """Weighted k nearest neighbours in cosine similarity.

    Definition: the weighted share of positives among the k most similar training patients.
    Formula: Σ w_i y_i / Σ w_i over the k neighbours, w_i = exp(cos(x, x_i) / temperature).
    Assumption: similar vectors belong to similar patients; nothing is fitted. With fewer than k training patients all vote.
    Source: Wu et al. 2018, arXiv:1805.01978, section 3.4; as used by Caron et al. 2021.

    Returns
    -------
    float [m] in [0, 1].
    """
    similarity = _of_length_one(test_x) @ _of_length_one(train_x).T  # (m, n)
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    weight = softmax(np.take_along_axis(similarity, nearest, axis=1) / temperature, axis=1)
    return (weight * train_y[nearest]).sum(axis=1)


def linear_probe(
    train_x: Float[np.ndarray, "n d"], train_y: Bool[np.ndarray, " n"], test_x: Float[np.ndarray, "m d"], seed: int = 0
) -> Float[np.ndarray, " m"]:
    """Logistic regression on frozen features.

    Definition: features are standardised, and the penalty's strength is the one of `STRENGTHS` with the best log-likelihood
    in a stratified cross-validation; both are learned from the training patients alone.
    Assumption: at least two of each class.
    Source: Alain & Bengio 2017, arXiv:1610.01644, for linear probes.

    Returns
    -------
    float [m], the probability of a positive.

    Raises
    ------
    ValueError when a class has fewer than two training patients.
    """
    rarer = min(int(train_y.sum()), int((~train_y).sum()))
    if rarer < FEWEST:
        raise ValueError(f"found {int(train_y.sum())} positives of {len(train_y)}; at least {FEWEST} of each class are needed")
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=STEPS)),
        {"logisticregression__C": STRENGTHS},
        scoring="neg_log_loss",
        cv=StratifiedKFold(min(INNER_FOLDS, rarer), shuffle=True, random_state=seed),
    )
    precise = train_x.astype(np.float64)  # in float32 the solver may stop at a line search that it cannot finish
    return search.fit(precise, train_y).predict_proba(test_x.astype(np.float64))[:, 1]


PROBES: dict[str, Callable[..., Float[np.ndarray, " m"]]] = {"knn": knn, "linear": linear_probe}


def table(
    features: Mapping[str, Float[np.ndarray, "... n _"]],
    patients: Sequence[str],
    labels: Float[np.ndarray, " n"],
    folds: Sequence[Sequence[str]],
    seed: int,
    shares: Sequence[float] = SHARES,
) -> pd.DataFrame:
    """Out-of-fold scores of both probes on each kind of features, at each share of the labels.

    Within a fold and share every kind of features and both probes learn from the same patients, so their scores can be
    compared in pairs; the patients of a smaller share are among those of a larger one.

    Parameters
    ----------
    features : by name, either [n d], or [f n d] where each fold has an encoder of its own that has not seen its patients.
    patients : ids of the n patients, in the order of the features.
    labels : float [n], 0 or 1, NaN where missing; patients without a label take no part.
    folds : the ids that each fold tests.
    shares : of the training labels of each class that are used, at least two of each.

    Returns
    -------
    Columns features, probe, share, labelled (how many training labels were used), patient, fold (from 0), score.

    Raises
    ------
    ValueError when a fold's training part has fewer than two of a class, or a name in `folds` is unknown.
    """
    position = {patient: index for index, patient in enumerate(patients)}
    unknown = [patient for fold in folds for patient in fold if patient not in position]
    if unknown:
        raise ValueError(f"patient {unknown[0]} of the folds has no features; found features of {len(patients)} patients")
    known = ~np.isnan(labels)
    rows = []
    for number, fold in enumerate(folds):
        tested = np.zeros(len(patients), bool)
        tested[[position[patient] for patient in fold]] = True
        test = np.flatnonzero(tested & known)
        if not len(test):
            continue
        classes = balanced_order(np.flatnonzero(~tested & known), labels, np.random.default_rng((seed, number)))
        for share in shares:
            train = np.sort(np.concatenate([one[: max(FEWEST, round(share * len(one)))] for one in classes]))
            for name, vectors in features.items():
                x = vectors if vectors.ndim == 2 else vectors[number]
                for probe, score in PROBES.items():
                    scores = score(x[train], labels[train] == 1, x[test])
                    rows += [
                        (name, probe, share, len(train), patients[i], number, s)
                        for i, s in zip(test.tolist(), scores, strict=True)
                    ]
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def balanced_order(
    known: Int[np.ndarray, " n"], labels: Float[np.ndarray, " all"], generator: np.random.Generator
) -> list[Int[np.ndarray, "_"]]:
    """The negatives and the positives among the patients `known`, each in random order; the first ones are drawn first.

    Raises ValueError when there are fewer than two of a class.
    """
    classes = [generator.permutation(known[labels[known] == value]) for value in (0.0, 1.0)]
    if min(map(len, classes)) < FEWEST:
        raise ValueError(
            f"found {len(classes[1])} positives and {len(classes[0])} negatives outside a fold; expected two of each"
        )
    return classes


def _of_length_one(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(x.dtype).tiny)

"""Sets with a guarantee and MAPE: do sets hold what they state, also by site, and is the MAPE of a few trainings the true one?

    .venv/bin/python pipelines/reproduce.py null_studies/instability --studies 600      (10 minutes on one core)

A study has one endpoint, 20 features of which five know it, or none, and four sites that have no part in it, or of which one has
another scanner or the opposite effect. The package's own regressions are refitted in the package's folds, and the report's own
functions make the sets. New patients are held against every fold's model. Shares are in per cent, with Wilson's intervals.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the problems are small

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import expit, logit

from mri_vit.cli.arguments import Count
from mri_vit.metrics import conformal, instability
from mri_vit.metrics.intervals import rate
from mri_vit.report.numbers import prediction_sets
from mri_vit.report.numbers.prediction_sets import Sets
from mri_vit.settings.schema import Endpoint
from reproductions.null_studies import kinds
from reproductions.null_studies.kinds import EFFECT, FEATURES, FOLDS, KNOWING

MARKER = Endpoint(name="marker", kind="binary")
ENDPOINTS = (MARKER, *kinds.ENDPOINTS[:3])
SITES, OTHERS = 4, 1000  # equally large; new patients of a study: their coverage to 1 %
NEXT_REPEAT = 1_000_000  # added to the seed of a repeat's folds, beyond any number of studies
SCANNER = 2.0  # standard deviations by which the shifted site's knowing features are higher, whatever the label
TRUE_TRAININGS, TRAININGS, COHORTS = 50, (2, 5), 20  # of a cohort whose MAPE is known, and of what estimates it; cohorts
Cohort = tuple[Float[np.ndarray, "n f"], Float[np.ndarray, "n 1"]]


@dataclass(frozen=True)
class Scenario:
    """Studies of one kind; `shifted` is how the first site differs: its scanner, or the effect's sign."""

    endpoint: Endpoint
    patients: int
    effect: float
    shifted: str = ""
    left_out: bool = False  # sites in turn
    sites: int = SITES
    scales: bool = False  # whether each fold's scores, in log odds, have a shift and a factor of their own
    repeats: int = 1


@dataclass(frozen=True)
class Found:
    """Of one study: shares of patients, and whether a site is said to fail, and which."""

    coverage: float
    answered: float
    without_skill: float
    of_sites: tuple[float, ...]
    below: tuple[bool, ...]
    new: float
    new_answered: float
    of_other_folds: float  # coverage, were patients compared with other folds' alone
    new_below_range: float  # share of classes of which new patients' coverage lies below the stated range


def cohort_of(endpoint: Endpoint, random: np.random.Generator, n: int, effect: float) -> Cohort:
    """As `kinds.cohort_of`, and a marker."""
    if endpoint.kind != "binary":
        return kinds.cohort_of(endpoint, random, n, effect)
    x = random.normal(size=(n, FEATURES))
    return x, (effect * x[:, :KNOWING].sum(axis=1) + random.logistic(size=n) > 0)[:, None].astype(float)


def study(of: Scenario, seed: int) -> Found | None:
    """One study; None where a class is too rare for sets."""
    random = np.random.default_rng([seed, of.patients])
    x, label = cohort_of(of.endpoint, random, of.patients, of.effect)
    site = np.arange(of.patients) % of.sites
    if of.shifted == "scanner":
        x[site == 0, :KNOWING] += SCANNER
    if of.shifted == "effect":
        x[site == 0, :KNOWING] *= -1
    new_x, new_label = cohort_of(of.endpoint, random, OTHERS, of.effect)
    folds = [
        site if of.left_out else kinds.fold_of_each(of.endpoint, label, seed + repeat * NEXT_REPEAT)
        for repeat in range(of.repeats)
    ]
    each = [kinds.scored(of.endpoint, x, label, fold, new_x) for fold in folds]
    for fold, (score, _, theirs) in zip(folds, each, strict=True):
        for k in np.unique(fold) if of.scales else ():
            shift, factor = random.normal(), np.exp(random.normal())
            score[fold == k], theirs[k] = (expit(shift + factor * logit(one)) for one in (score[fold == k], theirs[k]))
    scores, truth = tables(of.endpoint, np.mean([score for score, _, _ in each], axis=0), label, each[0][1])
    measured = prediction_sets.of_numbers if of.endpoint.kind == "continuous" else prediction_sets.of_classes
    found = measured(of.endpoint, scores, truth, site if of.left_out else None, np.array([f"site {one}" for one in site]))
    if not isinstance(found, Sets):
        return None
    figures = found.figures
    own = [(score[fold == k], label[fold == k]) for fold, (score, _, _) in zip(folds, each, strict=True) for k in np.unique(fold)]
    theirs = np.concatenate([one for _, _, one in each])
    new, answered, below_range = of_new(of.endpoint, own, theirs, new_label, label)
    sites = figures.sites
    return Found(
        coverage=sum(one.covered for one in sites) / sum(one.n for one in sites),
        answered=figures.answered / figures.n,
        without_skill=figures.answered_without_skill,
        of_sites=tuple(one.covered / one.n for one in sites),
        below=tuple(one.below for one in sites),
        new=new,
        new_answered=answered,
        of_other_folds=_of_other_folds(of.endpoint, scores, truth, folds[0]),
        new_below_range=below_range,
    )


def _of_other_folds(endpoint: Endpoint, scores: pd.DataFrame, truth: pd.DataFrame, fold: Int[np.ndarray, " n"]) -> float:
    if endpoint.kind == "continuous":
        return math.nan
    label = prediction_sets.class_labels(endpoint, truth)
    p = conformal.class_p(prediction_sets.class_scores(endpoint, scores), label, fold)
    return float((p[np.arange(len(label)), label] > conformal.ALPHA).mean())


def tables(
    endpoint: Endpoint, score: Float[np.ndarray, "n k"], label: Float[np.ndarray, "n 1"], mean: Float[np.ndarray, " n"]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores and truth by patient, as the report has them."""
    names = pd.Index([f"p{i:04d}" for i in range(len(label))])
    columns = {f"p{k}": score[:, k] for k in range(score.shape[1])} if endpoint.classes else {"score": score[:, 0]}
    of_label = {"label" if endpoint.classes else "truth": label[:, 0], "threshold": mean}
    return pd.DataFrame(columns, index=names), pd.DataFrame(of_label, index=names)


def of_new(
    endpoint: Endpoint,
    own: Sequence[tuple[Float[np.ndarray, "c k"], Float[np.ndarray, "c 1"]]],
    theirs: Float[np.ndarray, "f m k"],
    new_label: Float[np.ndarray, "m 1"],
    label: Float[np.ndarray, "n 1"],
) -> tuple[float, float, float]:
    """Of new patients the share covered and with one answer, and the share of classes whose coverage is below its range.

    `own`: of each fold of every repeat the scores and labels of its test patients, as `theirs` has the new patients' scores.
    """
    if endpoint.kind == "continuous":
        residual = [(of - score)[:, 0] for score, of in own]
        ends = np.array([conformal.cv_plus(one, residual) for one in theirs[:, :, 0].T])
        return float(((ends[:, 0] <= new_label[:, 0]) & (new_label[:, 0] <= ends[:, 1])).mean()), 0.0, 0.0
    classes = len(endpoint.classes or prediction_sets.CALLS)
    calibration = [
        [prediction_sets.class_scores(endpoint, _frame(endpoint, score))[of[:, 0] == y, y] for y in range(classes)]
        for score, of in own
    ]
    new = prediction_sets.class_scores(endpoint, _frame(endpoint, theirs.reshape(-1, theirs.shape[2])))
    p = conformal.cross_conformal_p(new.reshape(len(theirs), -1, classes), calibration)
    members, right = prediction_sets.sets_of(endpoint, p), new_label[:, 0].astype(int)
    covered = members[np.arange(len(right)), right]
    low = [conformal.expected_range(int((label == y).sum()))[0] for y in range(classes)]
    below = [covered[right == y].mean() < low[y] for y in range(classes)]
    return float(covered.mean()), float((members.sum(axis=1) == 1).mean()), float(np.mean(below))


def _frame(endpoint: Endpoint, score: Float[np.ndarray, "n k"]) -> pd.DataFrame:
    return pd.DataFrame({f"p{k}": score[:, k] for k in range(score.shape[1])} if endpoint.classes else {"score": score[:, 0]})


def mape(n: int, effect: float, seed: int) -> dict[str, float]:
    """Of one cohort of a marker: the mean MAPE of a few trainings over the true one, of the naive one, and of other patients."""
    random = np.random.default_rng([seed, n])
    x, label = cohort_of(MARKER, random, n, effect)

    def trained(drawn: int) -> Float[np.ndarray, " n"]:
        return kinds.scored(MARKER, x, label, kinds.fold_of_each(MARKER, label, drawn), x[:0])[0][:, 0]

    each = np.stack([trained(drawn) for drawn in range(TRUE_TRAININGS)])[:, :, None]
    true = instability.change(each)
    found: dict[str, float] = {}
    for trainings in TRAININGS:
        few = each[:trainings]
        own = instability.change(few)
        found[f"mean of {trainings} trainings over the true one"] = float(own.mean() / true.mean())
        found[f"the same as distances from their mean ({trainings})"] = float(np.abs(few - few.mean(axis=0)).mean() / true.mean())
        found[f"one patient's, {trainings} trainings: standard deviation over the true one"] = float(((own - true) / true).std())
    drawn = random.integers(0, n, (20, n))  # cohorts drawn from this one: as Riley and Collins retrain, without folds
    train = np.stack(
        [kinds.scored(MARKER, np.concatenate([x[of], x]), np.concatenate([label[of], label]), *_whole(n, x))[0] for of in drawn]
    )
    found["bootstrapped cohorts over the true one"] = float(instability.change(train[:, n:]).mean() / true.mean())
    return found


def _whole(n: int, x: Float[np.ndarray, "n f"]) -> tuple[Int[np.ndarray, " n2"], Float[np.ndarray, "0 f"]]:
    """Two folds: the drawn patients train the model that scores the others."""
    return np.repeat([0, 1], n), x[:0]


SCENARIOS = (
    *(Scenario(endpoint, n, effect) for endpoint in ENDPOINTS for n in FOLDS for effect in (0.0, EFFECT)),
    *(Scenario(MARKER, n, EFFECT, scales=True) for n in FOLDS),
    *(Scenario(endpoint, n, EFFECT, repeats=3) for endpoint in (MARKER, ENDPOINTS[-1]) for n in FOLDS),
    *(Scenario(MARKER, 300, EFFECT, shifted=shifted) for shifted in ("scanner", "effect")),
    *(Scenario(MARKER, 300, effect, left_out=True) for effect in (0.0, EFFECT)),
    *(Scenario(MARKER, 300, EFFECT, shifted="scanner", left_out=True, sites=sites) for sites in (4, 10)),
    Scenario(MARKER, 300, EFFECT, left_out=True, sites=10),
)


def main(*, studies: Count = 600) -> None:
    """Print coverage and false warnings of each kind of study, then how near MAPE comes to the truth."""
    for of in SCENARIOS:
        every = [study(of, seed) for seed in range(studies)]
        found = [one for one in every if one]
        known = "known" if of.effect else "nothing known"
        odd = (
            f", site 0 of another {of.shifted}" * bool(of.shifted)
            + ", sites left out" * of.left_out
            + ", folds of unlike scales" * of.scales
            + f", {of.repeats} repeats" * (of.repeats > 1)
        )
        print(
            f"{of.endpoint.kind}, {of.patients} patients, {known}{odd}: {len(found)} of {studies} studies have sets", flush=True
        )
        if not found:
            continue
        mean = {name: 100 * np.mean([getattr(one, name) for one in found]) for name in ("coverage", "answered", "without_skill")}
        new = {name: 100 * np.mean([getattr(one, name) for one in found]) for name in ("new", "new_answered", "new_below_range")}
        others = 100 * np.mean([one.of_other_folds for one in found])
        sites = 100 * np.mean([one.of_sites for one in found], axis=0)
        print(f"    held {mean['coverage']:.1f}; one answer {mean['answered']:.1f}, without skill {mean['without_skill']:.1f}")
        print(f"    compared with other folds' patients alone: held {others:.1f}")
        print(f"    by site {' '.join(f'{one:.1f}' for one in sites)}")
        below = f"below the range {new['new_below_range']:.1f}"
        print(f"    new patients: held {new['new']:.1f}, one answer {new['new_answered']:.1f}, {below}")
        for name, said in (
            ("any site fails", [any(one.below) for one in found]),
            ("site 0 fails", [one.below[0] for one in found]),
        ):
            share = rate(sum(said), len(said))
            print(f"    {name}: {100 * share.value:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]", flush=True)
    for n, effect in ((n, effect) for n in FOLDS for effect in (0.0, EFFECT)):
        of_cohorts = [mape(n, effect, seed) for seed in range(COHORTS)]
        print(f"MAPE, {n} patients, {'known' if effect else 'nothing known'}: {COHORTS} cohorts", flush=True)
        for name in of_cohorts[0]:
            values = [one[name] for one in of_cohorts]
            print(f"    {name}: {np.mean(values):.3f} (SD {np.std(values, ddof=1):.3f})", flush=True)

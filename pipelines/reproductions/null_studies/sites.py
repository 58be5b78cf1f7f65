"""Hospitals and margins: do the report's intervals hold a new hospital's figure, and how often does it call models not inferior?

    .venv/bin/python pipelines/reproduce.py null_studies/sites --studies 250      (10 minutes on one core)

A study is a ridge regression on 20 features, of which five know the marker, refitted in each fold and measured by the report's
own functions. Hospitals differ in size, in how common the marker is, in a shift of all features, and by `spread` in how much the
features know. Rates are in per cent with Wilson's intervals; of a new hospital they are means over ten for each study.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the problems are small

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.special import expit, logit
from scipy.stats import norm
from scipy.stats import t as student

from mri_vit.cli.arguments import Count
from mri_vit.metrics.equivalence import within_margin
from mri_vit.metrics.intervals import rate
from mri_vit.metrics.transportability import of_arcsine, random_effects
from mri_vit.metrics.within_fold import interval_inflation
from mri_vit.report.numbers import chance, comparisons, hospitals, measures
from mri_vit.report.numbers.judged import averaged
from mri_vit.report.schema.measured import MIN_SITES
from mri_vit.settings.schema import Endpoint
from reproductions.null_studies.beside import KNOWING, out_of_fold
from reproductions.null_studies.comparisons import FEATURES, PENALTY, deal

MARKER = Endpoint(name="marker", kind="binary")
LEAST = 14  # patients of a hospital, about five of the rarer class
SIZES_DIFFER = 0.5  # standard deviation of the logarithm of their number
SHIFT, RATES_DIFFER = 0.5, 0.4  # standard deviations between hospitals: of each feature's mean, of the marker's log odds
NEW = 10  # hospitals, in each study
POSITIVE, KNOWN = 0.45, 0.7  # share of positives, and what two models share of their features, where they are compared
MARGIN = 0.05
Hits = Mapping[str, float]  # by what is said, whether, or in which share of cases, a study says so


class Scenario(NamedTuple):
    """Studies of one kind: a name, and one study by its random numbers, None where it does not count."""

    name: str
    study: Callable[[np.random.Generator], Hits | None]


class Cohort(NamedTuple):
    """n patients of several hospitals."""

    site: Int[np.ndarray, " n"]
    truth: Bool[np.ndarray, " n"]
    x: Float[np.ndarray, "n f"]


def cohort(
    random: np.random.Generator, sizes: Int[np.ndarray, " g"], effect: Float[np.ndarray, " g"], rates: float, shift: float
) -> Cohort:
    """`effect`: of each hospital, the shift of a knowing feature between the classes."""
    site = np.repeat(np.arange(len(sizes)), sizes)
    truth = random.random(len(site)) < expit(rates * random.normal(size=len(sizes)))[site]
    x = random.normal(size=(len(site), FEATURES)) + shift * random.normal(size=(len(sizes), FEATURES))[site]
    x[:, :KNOWING] += effect[site, None] * (truth - 0.5)[:, None]
    return Cohort(site, truth, x)


def sizes_of(random: np.random.Generator, count: int, patients: int) -> Int[np.ndarray, " g"]:
    return np.maximum(LEAST, patients * np.exp(SIZES_DIFFER * random.normal(size=count))).astype(int)


def effects(random: np.random.Generator, count: int, effect: float, spread: float) -> Float[np.ndarray, " g"]:
    return effect * (1 + spread * random.normal(size=count))


def new_hospital(count: int, patients: int, effect: float, spread: float) -> Callable[[np.random.Generator], Hits | None]:
    """Hospitals left out in turn: is the true AUC of the model of all, in a hospital that is new, within the prediction interval,
    and the mean over all hospitals of the folds' models within that of the mean? Before: on the logit scale, a hospital's own
    variance, and mean ± t of g - 2 degrees of freedom times √(tau² + error²).
    """

    def study(random: np.random.Generator) -> Hits | None:
        people = cohort(random, sizes_of(random, count, patients), effects(random, count, effect, spread), RATES_DIFFER, SHIFT)
        rows = _rows(people, people.site)
        large = hospitals.large_sites(MARKER, averaged(rows).assign(site=[str(s) for s in people.site]))
        figures = [measures.of(MARKER).figure(here) for here in large.values()]
        found = hospitals.pooled_figure(figures, chance.inflation(rows, "cross-validation"))
        if not found:
            return None
        pooled, above = found
        weights = [_weights(people, people.site != site) for site in range(count)]
        many = effects(np.random.default_rng(0), 2000, effect, spread)
        mean = np.mean([_auc(weight, many) for weight in weights], axis=0)
        true = _auc(_weights(people, people.site >= 0), effects(random, NEW, effect, spread))
        of_angle = float(np.sin(np.arcsin(np.sqrt(mean)).mean()) ** 2)
        before = np.array([_on_logit(one) for one in figures])
        old = random_effects(*before.T)
        reach = student.ppf(0.975, len(figures) - 2) * math.hypot(old.tau, old.error)
        low, high = expit([old.mean - reach, old.mean + reach])
        return {
            "new hospital in its interval": _within(true, pooled.prediction.low, pooled.prediction.high),
            "before: new hospital in its interval": _within(true, low, high),
            "mean in its interval": _within(of_angle, pooled.low, pooled.high),
            "mean in one that allows for refitting": _within(
                of_angle, *_widened(figures, chance.inflation(rows, "cross-validation"))
            ),
            "before: mean in its interval": float(
                abs(logit(mean).mean() - old.mean) <= student.ppf(0.975, len(figures) - 1) * old.error
            ),
            "expected above 0.6": above["0.6"],
            "truly above 0.6": float((_auc(_weights(people, people.site >= 0), many) > 0.6).mean()),
        }

    return study


def clustered(
    count: int, patients: int, effect: float, how: str, left_out: bool, big: float = 0.0
) -> Callable[[np.random.Generator], Hits | None]:
    """All patients of hospitals that are alike, that differ in how common the marker is and in all features ("intercepts"), or in
    which features know more or less ("slopes"): is the figure in other hospitals within the interval for clustering, and within
    the usual one? `big` is the share of the patients in one hospital.
    """
    rates, shift = (1.0, 0.7) if how == "intercepts" else (0.0, 0.0)
    spread = 0.4 if how == "slopes" else 0.0

    def study(random: np.random.Generator) -> Hits | None:
        sizes = sizes_of(random, count, patients)
        if big:
            sizes[0] = int(sizes[1:].sum() * big / (1 - big))
        people = cohort(random, sizes, effects(random, count, effect, spread), rates, shift)
        fold = people.site if left_out else deal(random, people.truth, 5)
        rows = _rows(people, fold).assign(site=[str(s) for s in people.site])
        interval = hospitals._clustered(MARKER, rows, "cross-validation")
        if interval is None:
            return None
        weights = [_weights(people, fold != k) for k in np.unique(fold)]
        here = 0.0 if left_out else shift
        true = float(np.mean([_among_others(weight, effect, spread, here, not left_out) for weight in weights]))
        return {
            "in the interval for clustering": _within(true, interval.low, interval.high),
            "in the usual interval": _within(true, interval.usual.low, interval.usual.high),
            "times as wide": interval.ratio / 100,
        }

    return study


def margins(patients: int, folds: int, effect: float, behind: float) -> Callable[[np.random.Generator], Hits | None]:
    """A model and a control whose expected AUCs differ by `behind`, refitted in each fold: what is said of a margin of 0.05?

    The control reads the same features with noise of its own, and the weaker model's know less by so much.
    """

    def study(random: np.random.Generator) -> Hits | None:
        truth = random.permutation(patients) < patients * POSITIVE
        shared = random.normal(size=(patients, FEATURES))
        fold, tables, true = deal(random, truth, folds), [], []
        for signal in (_signal(effect, behind, patients), effect):
            x = KNOWN * shared + math.sqrt(1 - KNOWN**2) * random.normal(size=shared.shape)
            x[:, :KNOWING] += signal * (truth - 0.5)[:, None]
            people = Cohort(np.zeros(patients, dtype=int), truth, x)
            tables.append(_rows(people, fold))
            weights = (_weights(people, fold != k) for k in range(folds))
            true.append(np.mean([_auc(weight, np.array([signal])) for weight in weights]))
        test = comparisons.versus(MARKER, tables[0], tables[1], chance.inflation(tables[0], "cross-validation"))
        if test is None:
            return None
        claim = within_margin(test.difference, test.low, test.high, MARGIN).claim
        return {
            "not inferior": float(claim in ("equivalent", "not inferior")),
            "equivalent": float(claim == "equivalent"),
            "inferior": float(claim == "inferior"),
            "true difference": float(true[0] - true[1]) / 100,
        }

    return study


# The weaker model's effect at which the expected AUC of its folds' models is that much lower (see `print_signals`).
SIGNALS = {
    (0.4, 0.05, 300): 0.317,
    (0.4, 0.05, 1000): 0.313,
    (0.8, 0.05, 300): 0.663,
    (0.8, 0.05, 1000): 0.653,
}


def _signal(effect: float, behind: float, patients: int) -> float:
    return SIGNALS[effect, behind, patients] if behind else effect


def print_signals() -> None:
    """Print the expected AUC of folds' models around those of `SIGNALS`, 300 and 1,000 patients in five folds."""
    for patients in (300, 1000):
        for effect in (0.4, 0.8):
            for share in (1.0, 0.9, 0.88, 0.86, 0.84, 0.82, 0.8):
                random, found = np.random.default_rng(1), []
                for _ in range(200):
                    truth = random.permutation(patients) < patients * POSITIVE
                    x = random.normal(size=(patients, FEATURES))
                    x[:, :KNOWING] += share * effect * (truth - 0.5)[:, None]
                    people = Cohort(np.zeros(patients, dtype=int), truth, x)
                    found.append(_auc(_weights(people, deal(random, truth, 5) > 0), np.array([share * effect]))[0])
                print(f"{patients} patients, effect {effect}, {share * effect:.3f}: AUC {np.mean(found):.4f}", flush=True)


SCENARIOS = (
    *(
        Scenario(
            f"new: {count} hospitals of {patients}, effect {effect}, spread {spread}",
            new_hospital(count, patients, effect, spread),
        )
        for effect, spread in ((0.0, 0.0), (0.4, 0.25), (0.8, 0.0), (0.8, 0.15))
        for count, patients in ((5, 60), (10, 30), (20, 30), (20, 80))
    ),
    *(
        Scenario(
            f"clustered: {count} hospitals of {patients}, {how}, {'left out' if left_out else 'random folds'}, effect {effect}",
            clustered(count, patients, effect, how, left_out),
        )
        for left_out in (False, True)
        for how, effect in (("alike", 0.0), ("alike", 0.5), ("intercepts", 0.5), ("slopes", 0.5))
        for count, patients in ((5, 60), (10, 30), (20, 30))
    ),
    *(
        Scenario(f"clustered: 10 hospitals, {big:.0%} of the patients in one, {how}", clustered(10, 30, 0.5, how, False, big))
        for how in ("intercepts", "slopes")
        for big in (0.3, 0.49)
    ),
    *(
        Scenario(f"margin: {patients} patients, effect {effect}, {behind:g} behind", margins(patients, 5, effect, behind))
        for behind in (MARGIN, 0.0)
        for effect in (0.4, 0.8)
        for patients in (300, 1000)
    ),
)


def _rows(people: Cohort, fold: Int[np.ndarray, " n"]) -> pd.DataFrame:
    """Of each patient the row that a report judges, by the model of the other folds."""
    score = out_of_fold(people.x, lambda train: people.truth[train].astype(float), fold)
    names = [f"p{i:04d}" for i in range(len(score))]
    return pd.DataFrame({"patient": names, "repeat": 0, "fold": fold, "truth": people.truth, "score": score})


def _weights(people: Cohort, train: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " f"]:
    x, wanted = people.x[train], people.truth[train].astype(float)
    centred = x - x.mean(axis=0)
    return np.linalg.solve(centred.T @ centred + PENALTY * np.eye(FEATURES), centred.T @ (wanted - wanted.mean()))


def _auc(weight: Float[np.ndarray, " f"], effect: Float[np.ndarray, " g"]) -> Float[np.ndarray, " g"]:
    """The true AUC of a score among patients of hospitals of these effects."""
    return norm.cdf(effect * weight[:KNOWING].sum() / (math.sqrt(2) * np.linalg.norm(weight)))


def _among_others(weight: Float[np.ndarray, " f"], effect: float, spread: float, shift: float, across: bool) -> float:
    """The true AUC of a score in pairs of patients of one hospital, or across hospitals, whose features are then shifted."""
    many = effects(np.random.default_rng(0), 2000, effect, spread)
    halves = many.reshape(2, -1).mean(axis=0) if across else many  # a positive of one hospital and a negative of another
    return float(_auc(weight, halves / math.sqrt(1 + shift**2)).mean())


def _widened(figures: Sequence[measures.Figure], inflated: float) -> tuple[float, float]:
    """The interval of the mean, its error inflated as that of pairs within folds is."""
    found = random_effects(*np.array([one.on_arcsine for one in figures]).T)
    reach = student.ppf(0.975, found.groups - 1) * found.error
    reach *= interval_inflation(float(of_arcsine(np.array([found.mean]))[0]), inflated)
    low, high = of_arcsine(np.array([found.mean - reach, found.mean + reach])).tolist()
    return low, high


def _on_logit(figure: measures.Figure) -> tuple[float, float]:
    value = (figure.value * figure.patients + 0.5) / (figure.patients + 1)
    return float(logit(value)), 1 / (figure.patients * value * (1 - value))


def _within(true: float | Float[np.ndarray, " k"], low: float, high: float) -> float:
    return float(np.mean((low <= np.asarray(true)) & (np.asarray(true) <= high)))


def main(*, studies: Count = 250, kind: Literal["new", "clustered", "margin", "all"] = "all") -> None:
    """Print how often intervals hold, and how often models are called not inferior, equivalent or inferior."""
    print(f"at least {MIN_SITES} hospitals; margin {MARGIN:g}")
    for scenario in (one for one in SCENARIOS if kind in ("all", one.name.partition(":")[0])):
        random = np.random.default_rng([2, len(scenario.name)])
        found = [hits for _ in range(studies) if (hits := scenario.study(random)) is not None]
        print(f"{scenario.name}: {len(found)} studies", flush=True)
        for name in found[0] if found else ():
            mean = float(np.mean([hits[name] for hits in found]))
            share = rate(round(mean * len(found)), len(found)) if mean >= 0 else None
            ends = f" [{100 * share.low:.1f}, {100 * share.high:.1f}]" if share else ""
            print(f"    {name}: {100 * mean:.2f}{ends}", flush=True)

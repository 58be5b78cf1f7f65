"""Net benefit over a range, differences between subgroups and patients without a label: how often is something claimed in error?

    .venv/bin/python pipelines/reproduce.py null_studies/utility --studies 400      (5 minutes on one core)

A study is a penalised logistic or a ridge regression on 20 features, refitted in each fold, and is measured by the report's own
functions. True values are the mean of what the folds' own models reach on 4,000 other patients. Rates are per cent of the
studies, with Wilson's intervals.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the problems are small

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from sklearn.linear_model import LogisticRegression

from mri_vit.cli.arguments import Count
from mri_vit.data import predictions
from mri_vit.kinds.binary.measures import PART as MARKERS
from mri_vit.kinds.survival.measures import PART as SURVIVALS
from mri_vit.metrics import benefit, within_fold
from mri_vit.metrics.comparison import holm
from mri_vit.metrics.decision import youden_threshold
from mri_vit.metrics.intervals import rate
from mri_vit.predictors import refit
from mri_vit.report.numbers import unlabelled, utility
from mri_vit.report.reading import run_files
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.measured import ALPHA, MIN_EVENTS
from mri_vit.report.schema.parts import Nothing
from mri_vit.settings.schema import Endpoint, Study
from reproductions.null_studies.beside import OTHERS
from reproductions.null_studies.comparisons import FEATURES, deal

KNOWING, C = 5, 0.05  # features that may know; scikit-learn's inverse penalty, of a well calibrated model
RANGE, DAY = (0.1, 0.4), 365.0
MARKER, DEATH = Endpoint(name="marker", kind="binary"), Endpoint(name="death", kind="survival", time="days", event="died")
Claims = Mapping[str, bool]
Features = Float[np.ndarray, "n f"]
Truth = Bool[np.ndarray, " n"]


class Scenario(NamedTuple):
    """Studies of one kind: a name, the rule that holds, and one study by its random numbers, None where it does not count."""

    name: str
    wanted: str
    study: Callable[[np.random.Generator], Claims | None]


def marker_benefit(n: int, effect: float, share: float) -> Callable[[np.random.Generator], Claims]:
    """Probabilities of a marker."""

    def study(random: np.random.Generator) -> Claims:
        (x, truth), (others, theirs) = (_marker(random, size, effect, share) for size in (n, OTHERS))
        at, fold, score, reached = utility.thresholds_of(*RANGE), deal(random, truth, 5), np.empty(n), []
        for k in range(5):
            model = LogisticRegression(C=C).fit(x[fold != k], truth[fold != k])
            score[fold == k] = model.predict_proba(x[fold == k])[:, 1]
            reached.append(benefit.of_markers(theirs, model.predict_proba(others)[:, 1], at).net_benefit)
        people = pd.DataFrame({"truth": truth, "score": score})
        everyone = benefit.of_markers(theirs, np.ones(OTHERS), at).net_benefit
        found = within_fold.within_fold_auc(truth, score, fold).value
        return _claims(
            MARKERS.policy(people, at, np.nan), MARKERS.policy(people.assign(score=1.0), at, np.nan), found, reached, everyone
        )

    return study


def survival_benefit(n: int, effect: float) -> Callable[[np.random.Generator], Claims]:
    """Chances to die by a year, of a third of the patients censored before."""

    def study(random: np.random.Generator) -> Claims:
        (x, days, died), (others, their_days, _) = (_survival(random, size, effect) for size in (n, OTHERS))
        truth = their_days <= DAY  # of the others all is known
        at, fold, score, reached = utility.thresholds_of(*RANGE), deal(random, died, 5), np.empty(n), []
        for k in range(5):
            train = fold != k
            chance = _chances(x[train], days[train], died[train], np.vstack([x[~train], others]))
            score[~train] = chance[: (~train).sum()]
            reached.append(benefit.of_markers(truth, chance[(~train).sum() :], at).net_benefit)
        people = pd.DataFrame({"time_days": days, "event": died & (days <= DAY), "score": score})
        everyone = benefit.of_markers(truth, np.ones(OTHERS), at).net_benefit
        found = within_fold.within_fold_c(days, died, score, fold).value
        return _claims(
            SURVIVALS.policy(people, at, DAY), SURVIVALS.policy(people.assign(score=1.0), at, DAY), found, reached, everyone
        )

    return study


def _claims(
    ours: benefit.Policy, of_all: benefit.Policy, judged: float, reached: list[np.ndarray], everyone: np.ndarray
) -> Claims:
    """What the report would say, and whether its intervals miss what the folds' models reach."""
    inflated = within_fold.interval_inflation(judged, within_fold.inflation(5))
    none = benefit.none_treated(ours)
    true = np.mean(reached, axis=0)
    best = benefit.mean_difference(ours, benefit.better_of(of_all, none), inflated)
    by_all, by_none = (benefit.mean_difference(ours, other, inflated) for other in (of_all, none))
    band = benefit.band_over(ours, [of_all, none], utility.thresholds_of(*RANGE), inflated, np.random.default_rng(0))
    apart = true - np.maximum(everyone, 0.0)
    return {
        "worth more than both": best.low > 0,
        "… and is not": bool(best.low > 0 >= apart.mean()),
        "above both somewhere": bool((band.low > 0).any()),
        "… where it is not": bool(((band.low > 0) & (apart <= 0)).any()),
        "mean less both misses": not best.low <= apart.mean() <= best.high,
        "mean less all misses": not by_all.low <= (true - everyone).mean() <= by_all.high,
        "mean less none misses": not by_none.low <= true.mean() <= by_none.high,
        "band misses somewhere": bool(((apart < band.low) | (apart > band.high)).any()),
    }


def subgroups(n: int, effect: float, groups: int, how: str) -> Callable[[np.random.Generator], Claims | None]:
    """A marker in three columns of groups that the model does not know: alike, with another prevalence, or blind in the last."""

    def study(random: np.random.Generator) -> Claims | None:
        level = random.integers(0, groups, (3, n))
        truth = random.random(n) < (np.linspace(0.3, 0.6, groups)[level[0]] if how == "prevalence" else 0.45)
        x = random.normal(size=(n, FEATURES))
        x[:, :KNOWING] += effect * (truth - 0.5)[:, None] * ((level[0] < groups - 1) | (how != "blind"))[:, None]
        if how == "features":  # which the marker follows, alike in all groups
            x = random.normal(size=(n, FEATURES))
            x[:, 0] += np.linspace(-0.5, 0.5, groups)[level[0]]
            truth = random.random(n) < 1 / (1 + np.exp(-effect * x[:, :KNOWING].sum(axis=1)))
        fold, score, threshold = deal(random, truth, 5), np.empty(n), np.empty(n)
        for k in range(5):
            rows = random.permutation(np.flatnonzero(fold != k))
            val, train = rows[: len(rows) // 7], rows[len(rows) // 7 :]
            model = LogisticRegression(C=C).fit(x[train], truth[train])
            score[fold == k] = model.predict_proba(x[fold == k])[:, 1]
            chosen = youden_threshold(truth[val], model.predict_proba(x[val])[:, 1])
            threshold[fold == k] = 0.5 if np.isnan(chosen) else chosen
        people = pd.DataFrame({"patient": np.arange(n).astype(str), "truth": truth, "score": score, "threshold": threshold})
        tests: dict[tuple[int, str], float] = {}
        for column in range(3):
            sizes = [min((truth & here).sum(), (~truth & here).sum()) for here in (level[column] == g for g in range(groups))]
            if min(sizes) < MIN_EVENTS:
                return None
            found = MARKERS.differences(
                MARKER, people, people, pd.DataFrame(), level[column].astype(str), int(random.integers(1 << 31))
            )
            tests |= {(column, name): one.p for name, one in found.items()}
        adjusted = dict(zip(tests, holm(np.array(list(tests.values()))).tolist(), strict=True))
        apart = {key for key, p in adjusted.items() if p <= ALPHA}
        names = ("figure", "observed_to_expected", "sensitivity", "specificity")
        single = {f"{name}, p ≤ 0.05": tests[0, name] <= ALPHA for name in names}
        return {
            "any difference": bool(apart),
            "any but O:E": any(name != "observed_to_expected" for _, name in apart),
            "O:E": (0, "observed_to_expected") in apart,
        } | single

    return study


def survival_subgroups(n: int, effect: float, groups: int) -> Callable[[np.random.Generator], Claims | None]:
    """Survival in groups that are alike."""

    def study(random: np.random.Generator) -> Claims | None:
        x, days, died = _survival(random, n, effect)
        level = random.integers(0, groups, n)
        if min((died & (level == g) & (days <= DAY)).sum() for g in range(groups)) < MIN_EVENTS:
            return None
        fold, score = deal(random, died, 5), np.empty(n)
        for k in range(5):
            train = fold != k
            score[~train] = _chances(x[train], days[train], died[train], x[~train])
        people = pd.DataFrame({"patient": np.arange(n).astype(str), "time_days": days, "event": died, "score": score})
        alive = pd.DataFrame({DAY: 1 - score}, index=pd.Index(people.patient))
        found = SURVIVALS.differences(DEATH, people, people, alive, level.astype(str), 0)
        return {f"{name}, p ≤ 0.05": one.p <= ALPHA for name, one in found.items()}

    return study


def without_label(tested: int, untested: int, shift: float) -> Callable[[np.random.Generator], Claims]:
    """Six characteristics, one of them skew and one of eight rare levels; of those without a label the age may be shifted."""

    def study(random: np.random.Generator) -> Claims:
        n = tested + untested
        lacks = np.arange(n) >= tested
        table = pd.DataFrame(
            {"patient": [f"P{i:04d}" for i in range(n)], "marker": np.where(lacks, "", random.choice(["0", "1"], n))}
        )
        table["age"] = (60 + 10 * (random.normal(size=n) + shift * lacks)).round(1).astype(str)
        table["sex"], table["site"] = random.choice(["F", "M"], n), random.choice(list("ABCDEFGH"), n)
        table["volume"] = np.exp(random.normal(3, 1, n)).round(2).astype(str)
        table["grade"] = random.choice(["2", "3", "4"], n, p=[0.1, 0.2, 0.7])
        scores = pd.DataFrame({name: [] for name in predictions.COLUMNS}, dtype=object)
        scores = scores.assign(patient=table.patient, model="vit", endpoint="marker", score=random.random(n), repeat=0, fold=0)
        run = Run(
            design="table",
            study=STUDY,
            environment=Nothing(),
            cohort=table,
            excluded=run_files.empty(run_files.EXCLUDED_COLUMNS),
            folds_sha256=None,
            predictions=scores,
            survival=run_files.empty(predictions.SURVIVAL_COLUMNS),
            probe=run_files.empty([]),
        )
        found = unlabelled.measure(run, MARKER, "vit", scores.loc[~lacks])
        assert found is not None
        apart = {one.row.column for one in found.characteristics if one.differs}
        large = any(one.is_large for one in found.characteristics)
        return {"differ": bool(apart), "differ in age": "age" in apart, "a difference above 0.25": large}

    return study


STUDY = Study(name="null", cohort="cohort.csv", prepared="prepared", output="run", endpoints=(MARKER,))  # type: ignore[arg-type]

SCENARIOS = (
    *(
        Scenario(
            f"marker of {share:.0%}, {n} patients, effect {effect}",
            "false claims 5 or less; misses 3 to 7",
            marker_benefit(n, effect, share),
        )
        for n, effect, share in (
            (80, 0.0, 0.3),
            (300, 0.0, 0.3),
            (300, 0.0, 0.1),
            (80, 0.4, 0.3),
            (300, 0.4, 0.3),
            (300, 1.0, 0.3),
        )
    ),
    *(
        Scenario(f"survival, {n} patients, effect {effect}", "false claims 5 or less; misses 3 to 7", survival_benefit(n, effect))
        for n, effect in ((80, 0.0), (300, 0.0), (300, 0.4))
    ),
    *(
        Scenario(f"{groups} groups of {n} patients, effect {effect}, {how}", wanted, subgroups(n, effect, groups, how))
        for how, wanted in (
            ("alike", "5 or less"),
            ("prevalence", "any but O:E: 5 or less"),
            ("features", "O:E: 5 or less"),
            ("blind", "many"),
        )
        for n, effect, groups in ((150, 0.0, 2), (300, 0.5, 3), (300, 1.0, 2))
        if how != "blind" or effect
    ),
    *(
        Scenario(
            f"survival in {groups} groups of {n} patients, effect {effect}", "5 or less", survival_subgroups(n, effect, groups)
        )
        for n, effect, groups in ((150, 0.0, 2), (300, 0.4, 3))
    ),
    *(
        Scenario(
            f"{untested} of {tested + untested} without a label, age shifted by {shift} SD",
            wanted,
            without_label(tested, untested, shift),
        )
        for tested, untested in ((200, 40), (70, 10))
        for wanted, shift in (("5 or less", 0.0), ("many", 0.8))
    ),
)


def _marker(random: np.random.Generator, n: int, effect: float, share: float) -> tuple[Features, Truth]:
    truth = random.random(n) < share
    x = random.normal(size=(n, FEATURES))
    x[:, :KNOWING] += effect * (truth - 0.5)[:, None]
    return x, truth


def _survival(random: np.random.Generator, n: int, effect: float) -> tuple[Features, Float[np.ndarray, " n"], Truth]:
    """Nearly one in three dies within the year."""
    x = random.normal(size=(n, FEATURES))
    dies = random.exponential(1000 * np.exp(-effect * x[:, :KNOWING].sum(axis=1)))
    ends = random.uniform(200, 1700, n) if n < OTHERS else np.full(n, 1700.0)
    return x, np.minimum(dies, ends), dies <= ends


def _chances(
    train: Features, days: Float[np.ndarray, " n"], died: Truth, others: Float[np.ndarray, "o f"]
) -> Float[np.ndarray, " o"]:
    """Chances to die by the day, of a penalised Cox regression with Breslow's baseline."""
    centre = train.mean(axis=0)
    risk = refit.cox(train - centre, days[None], died[None], np.vstack([train, others]) - centre)[0]
    own, theirs = np.exp(risk[: len(train)]), np.exp(risk[len(train) :])
    order = np.argsort(days)
    at_risk = np.cumsum(own[order][::-1])[::-1]
    hazard = float((died[order] / at_risk)[days[order] <= DAY].sum())
    return 1 - np.exp(-hazard * theirs)


def main(*, studies: Count = 400) -> None:
    """Print the rates of each kind of study."""
    for scenario in SCENARIOS:
        random = np.random.default_rng([2, len(scenario.name)])
        found = [claims for _ in range(studies) if (claims := scenario.study(random)) is not None]
        print(f"{scenario.name}: {len(found)} studies; wanted {scenario.wanted}", flush=True)
        for claim in found[0] if found else ():
            share = rate(sum(bool(claims[claim]) for claims in found), len(found))
            print(f"    {claim}: {100 * share.value:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]", flush=True)

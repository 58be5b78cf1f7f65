"""What stands beside the verdict: how often does it err, and how often is it silent? Each line beside what it replaced.

    .venv/bin/python pipelines/reproduce.py null_studies/beside --studies 1000      (30 minutes on one core)

A study is a ridge or logistic regression on 20 features, refitted in each fold, of labels or of martingale residuals (Therneau,
Grambsch & Fleming 1990, doi:10.1093/biomet/77.1.147), and is measured by the report's own functions. Rates are in per cent of
the studies, with Wilson's intervals; of sites, of the studies whose result is better than chance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the problems are small

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from sklearn.linear_model import LogisticRegression

from mri_vit.cli.arguments import Count
from mri_vit.data.predictions import NULL_COLUMNS, SEED_COLUMNS
from mri_vit.metrics import calibration, concordance, within_fold
from mri_vit.metrics.discrimination import auc, auc_within
from mri_vit.metrics.intervals import rate
from mri_vit.report.numbers import binary, chance, oddities, subgroups, survival
from mri_vit.report.numbers.chance import Background
from mri_vit.report.numbers.judged import Outcome, averaged, outcome
from mri_vit.report.schema.measured import ALPHA, MAX_POOLING_GAP
from mri_vit.report.schema.parts import NOT_TRAINED_ON, OWN, Design
from mri_vit.report.verdicts import ALPHA_BELOW
from mri_vit.settings.schema import Endpoint
from reproductions.null_studies.comparisons import FEATURES, PENALTY, deal

KNOWING = 5  # features that a label or a site may shift
EFFECT = {60: 0.5, 82: 0.5, 150: 0.4, 300: 0.4}  # shift of these between the classes: an AUC of about 0.7
SUBGROUP = 0.4  # of the patients
OTHERS = 4000  # patients on which a fold's model is measured: an AUC to 0.01
SITE_SHIFT = 1.5  # standard deviation of the sites' own shifts, where features tell the site
NO_NULLS, NO_SEEDS = pd.DataFrame(columns=pd.Index(NULL_COLUMNS)), pd.DataFrame(columns=pd.Index(SEED_COLUMNS))
MARKER, DEATH = Endpoint(name="marker", kind="binary"), Endpoint(name="death", kind="survival", time="days", event="died")

AS_GIVEN_AND_NOW: Mapping[str, Design] = {"before: ": "external", "": "cross-validation"}
Claims = Mapping[str, bool]  # by what is said, whether this study says so; "before" stands in front of what it replaced


class Scenario(NamedTuple):
    """Studies of one kind: a name, the rule that holds, and one study by its random numbers, None where it does not count."""

    name: str
    wanted: str
    study: Callable[[np.random.Generator], Claims | None]


def survival_of_nothing(n: int, folds: int, repeats: int) -> Callable[[np.random.Generator], Claims]:
    """Log-rank test, hazard ratios and restricted means of risks that know nothing."""

    def study(random: np.random.Generator) -> Claims:
        x = random.normal(size=(n, FEATURES))
        dies, ends = random.exponential(400, n), random.uniform(200, 1700, n)
        days, died = np.minimum(dies, ends), dies <= ends
        parts = []
        for repeat in range(repeats):
            fold = random.permutation(np.arange(n) % folds)
            score = out_of_fold(x, lambda train: residuals(days[train], died[train]), fold)
            parts.append(pd.DataFrame({"patient": _names(n), "repeat": repeat, "fold": fold, "score": score}))
        rows = pd.concat(parts, ignore_index=True).assign(threshold=np.nan)
        rows = rows.assign(time_days=np.tile(days, repeats), event=np.tile(died, repeats))
        c = chance.measure(DEATH, rows, _background({})).judged.value
        claims: dict[str, bool] = {}
        for when, design in AS_GIVEN_AND_NOW.items():
            groups = survival.of_risk_groups(rows, c, design)
            hazard = survival.hazard_ratios(outcome(averaged(rows)), rows, c, design)
            mean = groups.restricted_mean.difference
            claims[f"{when}log-rank p ≤ 0.05"] = groups.logrank.p <= ALPHA
            claims[f"{when}hazard ratio per SD without 1"] = not hazard.per_sd.low <= 1 <= hazard.per_sd.high
            claims[f"{when}hazard ratio of groups without 1"] = not hazard.high_vs_low.low <= 1 <= hazard.high_vs_low.high
            claims[f"{when}restricted mean difference without 0"] = not mean.low <= 0 <= mean.high
        return claims

    return study


def below(n: int, folds: int, features: int) -> Callable[[np.random.Generator], Claims]:
    """A marker of which no feature knows anything."""

    def study(random: np.random.Generator) -> Claims:
        truth = random.permutation(np.arange(n) % 2 == 1)
        fold = deal(random, truth, folds)
        score = out_of_fold(random.normal(size=(n, features)), lambda train: truth[train].astype(float), fold)
        rows = pd.DataFrame({"patient": _names(n), "repeat": 0, "fold": fold, "truth": truth, "score": score})
        p = chance.measure(MARKER, rows, _background({})).chance_test.p_below
        return {"before: worse than chance": p <= ALPHA, "worse than chance": p <= ALPHA_BELOW}

    return study


def probabilities(n: int, folds: int, effect: float) -> Callable[[np.random.Generator], Claims]:
    """A marker by logistic regressions: does an interval miss what the folds' own models reach on other patients?"""

    def study(random: np.random.Generator) -> Claims:
        x, truth = _marker(random, n, effect)
        others, theirs = _marker(random, OTHERS, effect)
        fold, score, reached = deal(random, truth, folds), np.empty(n), []
        for k in range(folds):
            model = LogisticRegression(C=1 / PENALTY).fit(x[fold != k], truth[fold != k])
            score[fold == k] = model.predict_proba(x[fold == k])[:, 1]
            reached.append(_of_probabilities(theirs, model.predict_proba(others)[:, 1]))
        own = dict(zip(reached[0], np.mean([list(one.values()) for one in reached], axis=0), strict=True))
        rows = pd.DataFrame({"patient": _names(n), "repeat": 0, "fold": fold, "truth": truth, "score": score})
        cohort = pd.DataFrame({"patient": rows.patient, "side": np.where(random.random(n) < SUBGROUP, "left", "right")})
        claims: dict[str, bool] = {}
        for when, design in AS_GIVEN_AND_NOW.items():
            found = binary.of_probabilities(truth, score, 0, chance.inflation(rows, design))
            if not (found.brier and found.brier.scaled and found.calibration):
                raise AssertionError("found scores that are no probabilities")
            ends = {"Brier": found.brier, "scaled Brier": found.brier.scaled, "slope": found.calibration.slope_interval}
            ends |= {"O:E": found.calibration.observed_to_expected}
            part = subgroups.subgroup_figures(MARKER, cohort, ("side",), {OWN: rows}, design)[0]
            claims |= {f"{when}{name} misses": not one.low <= own[name] <= one.high for name, one in ends.items()}
            claims[f"{when}AUC of a subgroup misses"] = not part.low <= own["AUC"] <= part.high
        return claims

    return study


def concordances(n: int, folds: int, effect: float) -> Callable[[np.random.Generator], Claims]:
    """Survival by ridge regressions: does an interval miss what the folds' own models reach on other patients?"""

    def study(random: np.random.Generator) -> Claims:
        x, days, died = _survival(random, n, effect)
        others, their_days, they_died = _survival(random, OTHERS, effect)
        tau = float(np.quantile(their_days, 0.8))  # within the follow-up of both
        fold, risk, reached = deal(random, died, folds), np.empty(n), []
        for k in range(folds):
            train = fold != k
            weight = _ridge(x[train], residuals(days[train], died[train]))
            risk[~train], theirs = x[~train] @ weight, others @ weight
            seen = their_days, they_died, theirs
            reached.append((concordance.harrell_c(*seen), concordance.uno_c(*seen, tau)))
        own, uno = np.mean(reached, axis=0)
        claims: dict[str, bool] = {}
        for when, design in AS_GIVEN_AND_NOW.items():
            refits = design not in NOT_TRAINED_ON
            all_pairs = survival.of_harrell(Outcome(days, died, risk, None), refits)
            low, high = concordance.uno_interval(days, died, risk, tau, refits)
            claims |= {
                f"{when}C misses": not all_pairs.low <= own <= all_pairs.high,
                f"{when}Uno's C misses": not low <= uno <= high,
            }
        return claims

    return study


def scales(n: int, folds: int, effect: float, shift: float) -> Callable[[np.random.Generator], Claims]:
    """A marker with scores of one scale, or with `shift` standard deviations between the folds' own."""

    def study(random: np.random.Generator) -> Claims:
        x, truth = _marker(random, n, effect)
        fold = deal(random, truth, folds)
        score = out_of_fold(x, lambda train: truth[train].astype(float), fold)
        score += shift * score.std() * random.normal(size=folds)[fold]
        rows = pd.DataFrame({"patient": _names(n), "repeat": 0, "fold": fold, "truth": truth, "score": score})
        pooled, within = auc(truth, score), auc_within(truth, score, fold)
        return {
            "before: scales differ": abs(pooled - within) > MAX_POOLING_GAP,
            "scales differ": chance.scales_apart(MARKER, rows, pooled, within) is not None,
        }

    return study


def sites(n: int, count: int, folds: int, how: str) -> Callable[[np.random.Generator], Claims | None]:
    """A marker in `count` sites, of which features know the marker ("no part"), the marker being more common in some ("uneven"),
    or the site alone, in which it is more common ("confounded").
    """

    def study(random: np.random.Generator) -> Claims | None:
        site = random.integers(0, count, n)
        share = np.full(count, 0.5) if how == "no part" else random.permutation(np.linspace(0.1, 0.9, count))
        truth = random.random(n) < share[site]
        x = random.normal(size=(n, FEATURES))
        if how == "confounded":
            x[:, :KNOWING] += random.normal(0, SITE_SHIFT, (count, KNOWING))[site]
        else:
            x[:, :KNOWING] += EFFECT[n] * (truth - 0.5)[:, None]
        fold = deal(random, truth, folds)
        rows = pd.DataFrame({"patient": _names(n), "repeat": 0, "fold": fold, "truth": truth})
        rows = rows.assign(score=out_of_fold(x, lambda train: truth[train].astype(float), fold))
        site_of = dict(zip(rows.patient, map(str, site), strict=True))
        found = chance.measure(MARKER, rows, _background(site_of))
        if not found.chance_test.p <= ALPHA or (within := found.within_sites) is None:
            return None
        return {
            "before: may be confounded by the site": within.p > ALPHA,
            "may be confounded by the site": within.confounded,
            "before: does not hold in every site": within.p > ALPHA or within.least <= within_fold.CHANCE,
            "a site is shown to be worse": bool(within.worse),
        }

    return study


def oddities_of(n: int, folds: int, effect: float) -> Callable[[np.random.Generator], Claims]:
    """A marker and survival of patients in the order of their scans, their ids in groups of three, without any fault."""

    def study(random: np.random.Generator) -> Claims:
        x, truth = _marker(random, n, effect)
        dies, ends = random.exponential(400 * np.exp(-effect * x[:, 0])), np.linspace(1700, 200, n)  # seen in the table's order
        days, died = np.minimum(dies, ends), dies <= ends
        names = [f"p{place // 3:03d}_{place % 3}" for place in range(n)]
        orders = {"rows": dict(zip(names, range(n), strict=True)), "ids": dict(zip(sorted(names), range(n), strict=True))}
        signs = "follow an order", "copies", "copies, of three decimals", "scans of one patient", "Cs contradict"
        claims: dict[str, bool] = dict.fromkeys(signs, False)
        tables: dict[str, pd.DataFrame] = {}
        for endpoint, flag, target in (
            (MARKER, truth, lambda train: truth[train].astype(float)),
            (DEATH, died, lambda train: residuals(days[train], died[train])),
        ):
            fold = deal(random, flag, folds)
            rows = pd.DataFrame({"patient": names, "repeat": 0, "fold": fold, "score": out_of_fold(x, target, fold)})
            rows = rows.assign(truth=truth) if endpoint is MARKER else rows.assign(time_days=days.round(), event=died)
            tables[endpoint.name] = rows
            claims["follow an order"] |= oddities.ordered(endpoint, rows, orders, {}, 2) is not None
            claims["scans of one patient"] |= bool(oddities.scans_of_one(rows, {}))
            claims["Cs contradict"] |= endpoint is DEATH and oddities.contradiction(rows, 2) is not None
        outcome_of = oddities.outcomes({name: {OWN: rows} for name, rows in tables.items()})
        for rows in tables.values():
            claims["copies"] |= bool(oddities.copies(rows, outcome_of, 2))
            claims["copies, of three decimals"] |= bool(oddities.copies(rows.assign(score=rows.score.round(3)), outcome_of, 2))
        return claims

    return study


SCENARIOS = (
    *(
        Scenario(f"survival, {n} patients, {k} folds, effect {effect}", "5 or less", concordances(n, k, effect))
        for n, k in ((80, 3), (300, 5))
        for effect in (0.0, 0.4, 1.0)
    ),
    *(
        Scenario(f"nothing odd, {n} patients, {k} folds, effect {effect}", "1 or less", oddities_of(n, k, effect))
        for n, k in ((40, 3), (80, 3), (300, 5))
        for effect in (0.0, 1.0)
    ),
    *(
        Scenario(f"probabilities, {n} patients, {k} folds, effect {effect}", "3 to 7", probabilities(n, k, effect))
        for n, k in ((80, 3), (80, 5), (300, 5))
        for effect in (0.0, 0.3, 0.6, 1.0)
    ),
    *(
        Scenario(f"{features} features that know nothing, {n} patients, {k} folds", "5 or less", below(n, k, features))
        for n, k, features in ((80, 10, 1), (300, 10, 1), (80, 10, 3), (82, 3, 20), (300, 5, 20), (300, 5, 100))
    ),
    *(
        Scenario(f"survival of nothing, {n} patients, {k} folds, {r} repeats", "3 to 6", survival_of_nothing(n, k, r))
        for n, k, r in ((80, 3, 1), (80, 5, 1), (300, 5, 1), (80, 3, 5), (80, 5, 5))
    ),
    *(
        Scenario(f"{n} patients, {k} folds, effect {effect}, scales shifted by {shift}", wanted, scales(n, k, effect, shift))
        for wanted, shift in (("5 or less", 0.0), ("many", 1.0))
        for effect in (0.0, 0.5)
        for n, k in ((60, 3), (82, 3), (100, 5))
    ),
    *(
        Scenario(f"{n} patients, {count} sites, {how}", "1 or less; worse: 5 or less", sites(n, count, k, how))
        for how in ("no part", "uneven")
        for n, count, k in ((60, 8, 3), (82, 3, 3), (150, 5, 5), (150, 10, 5), (300, 20, 5))
    ),
    *(
        Scenario(f"{n} patients, {count} sites, confounded", "many", sites(n, count, k, "confounded"))
        for n, count, k in ((82, 4, 3), (82, 8, 3), (150, 5, 5), (300, 5, 5))
    ),
)


def _marker(random: np.random.Generator, n: int, effect: float) -> tuple[Float[np.ndarray, "n f"], Bool[np.ndarray, " n"]]:
    """Features of which some are shifted by `effect` between the classes, and the marker."""
    truth = random.permutation(np.arange(n) % 2 == 1)
    x = random.normal(size=(n, FEATURES))
    x[:, :KNOWING] += effect * (truth - 0.5)[:, None]
    return x, truth


def _survival(
    random: np.random.Generator, n: int, effect: float
) -> tuple[Float[np.ndarray, "n f"], Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Features of which some raise the hazard by `effect` each, days and deaths."""
    x = random.normal(size=(n, FEATURES))
    dies, ends = random.exponential(400 * np.exp(-effect * x[:, :KNOWING].sum(axis=1))), random.uniform(200, 1700, n)
    return x, np.minimum(dies, ends), dies <= ends


def _of_probabilities(truth: Bool[np.ndarray, " n"], probability: Float[np.ndarray, " n"]) -> dict[str, float]:
    return {
        "Brier": calibration.brier(truth, probability),
        "scaled Brier": calibration.scaled_brier(truth, probability),
        "slope": calibration.calibration_line(truth, probability)[0],
        "O:E": calibration.observed_to_expected(truth, probability),
        "AUC": auc(truth, probability),
    }


def _names(n: int) -> list[str]:
    return [f"p{i:03d}" for i in range(n)]


def _background(site_of: Mapping[str, str]) -> Background:
    return Background("cross-validation", NO_NULLS, NO_SEEDS, site_of)


def out_of_fold(
    x: Float[np.ndarray, "n f"], target: Callable[[Bool[np.ndarray, " n"]], Float[np.ndarray, " m"]], fold: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Scores by a ridge regression of `target` of the training patients, fitted without the patient's fold."""
    score = np.empty(len(x))
    for k in np.unique(fold):
        train = fold != k
        score[~train] = x[~train] @ _ridge(x[train], target(train))
    return score


def _ridge(x: Float[np.ndarray, "m f"], wanted: Float[np.ndarray, " m"]) -> Float[np.ndarray, " f"]:
    centred = x - x.mean(axis=0)
    return np.linalg.solve(centred.T @ centred + PENALTY * np.eye(x.shape[1]), centred.T @ (wanted - wanted.mean()))


def residuals(days: Float[np.ndarray, " m"], died: Bool[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Martingale residuals without covariates: deaths less the Nelson-Aalen hazard up to the own time."""
    order = np.argsort(days)
    hazard = np.empty(len(days))
    hazard[order] = np.cumsum(died[order] / np.arange(len(days), 0, -1))
    return died - hazard


def main(*, studies: Count = 1000) -> None:
    """Print the rates of each kind of study."""
    for scenario in SCENARIOS:
        random = np.random.default_rng([1, len(scenario.name)])
        found = [claims for _ in range(studies) if (claims := scenario.study(random)) is not None]
        print(f"{scenario.name}: {len(found)} studies; wanted {scenario.wanted}", flush=True)
        for claim in found[0] if found else ():
            share = rate(sum(claims[claim] for claims in found), len(found))
            print(f"    {claim}: {100 * share.value:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]", flush=True)

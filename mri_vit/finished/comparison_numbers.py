"""Comparison numbers: what the models of two runs, A and B, differ by on the n common patients, and sentences about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.data import predictions
from mri_vit.finished.comparison_document import Compared, EndpointCompared, Kind, Role
from mri_vit.finished.paired_runs import Rows, Runs
from mri_vit.metrics import comparison, within_fold
from mri_vit.metrics.comparison import Comparison as Tested
from mri_vit.metrics.within_fold import WithinFold
from mri_vit.report.numbers import chance
from mri_vit.report.numbers.chance import ALPHA, Background
from mri_vit.report.numbers.judged import averaged, by_fold, flags, floats
from mri_vit.report.reading import run_files
from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.metrics import Design
from mri_vit.report.schema.parts import Estimate
from mri_vit.report.verdicts import FEWEST
from mri_vit.report.words.notation import adjusted_p, counted, is_defined, number, p_value, with_sign
from mri_vit.settings.recipe import is_candidate
from mri_vit.settings.schema import Endpoint

MEASURES = {"binary": "auc", "survival": "harrell_c"}
KINDS = {"a": "A better", "b": "B better", "alike": "not told apart", "same": "same", "undefined": "not compared"}
MARKS = {"a": "▲", "b": "▼", "alike": "○", "same": "=", "undefined": "–"}  # the kind once more, for those who see no colour
DESIGNS = {"cross-validation": "cross-validated", "external": "evaluated on another cohort"}
ROLES = {"own": "the study's own model", "comparator": "comparator", "control": "control"}
MARKED = {"binary": "positive", "survival": "events"}
SYMBOLS = {"auc": "AUC", "harrell_c": "C"}
Division = Literal["same", "different", "neither", "one"]


def compared_endpoints(runs: Runs) -> dict[str, EndpointCompared]:
    """Every model that both runs have, by endpoint; endpoints without one are left out. Verdicts are still empty.

    p are adjusted by Holm's method over all models and endpoints that are `tested`.
    """
    designs = runs.a.run.design, runs.b.run.design
    found = {
        endpoint.name: {rows.model: _compared(endpoint, rows, designs) for rows in runs.rows[endpoint.name]}
        for endpoint in runs.endpoints
        if runs.rows[endpoint.name]
    }
    kinds = {endpoint.name: endpoint.kind for endpoint in runs.endpoints}
    every = [one.p if tested(kinds[name], one) else np.nan for name, models in found.items() for one in models.values()]
    adjusted = iter(comparison.holm(np.array(every, dtype=float)).tolist())
    return {
        endpoint.name: EndpointCompared.model_validate(
            {
                "kind": endpoint.kind,
                "measure": MEASURES[endpoint.kind],
                "models": {model: _judged(one, next(adjusted)) for model, one in found[endpoint.name].items()},
            }
        )
        for endpoint in runs.endpoints
        if endpoint.name in found
    }


def tested(kind: str, one: Compared) -> bool:
    """Whether there is a test: not of equal predictions, and not of too few."""
    return not one.same_predictions and not few(kind, one)


def few(kind: str, one: Compared) -> bool:
    """Whether there are, as for a report, too few patients of a class, or with an event, to judge."""
    return (min(one.marked, one.n - one.marked) if kind == "binary" else one.marked) < FEWEST


def same_folds(runs: Runs) -> bool:
    """Whether every common patient was tested in the same fold of each repeat."""
    return all(divided_alike(rows) for of_endpoint in runs.rows.values() for rows in of_endpoint)


def inflation(runs: Runs) -> float:
    """The largest factor that a standard error is multiplied by (see `test`)."""
    designs = runs.a.run.design, runs.b.run.design
    return max(_inflation(rows, designs) for of_endpoint in runs.rows.values() for rows in of_endpoint)


def divided_alike(rows: Rows) -> bool:
    """Whether the patients of a pair of tables are in the same fold of each repeat."""
    columns = ["repeat", "patient", "fold"]
    return rows.a[columns].astype(str).equals(rows.b[columns].astype(str))


def test(endpoint: Endpoint, rows: Rows, designs: tuple[Design, Design]) -> Tested:
    """The difference of two runs' figures, A less B, and the two-sided test that it is zero.

    Definition: each run's figure is of the pairs within its own folds. Both are sums over the same patients, so the test pairs
    patients, not pairs: z is the difference over the root of the sum of squared differences of each patient's influences on the
    two figures, times an inflation for refitting. Who is in whose fold is an attribute of a patient, as a score is, and an
    influence holds it; so the folds need not be the same.
    Formula: of the same folds that of `compare.versus`: repeat by repeat, with its inflation. Of different folds repeat r of A
    has nothing to do with repeat r of B: the influences are averaged over each run's repeats first, which takes off what
    the inflation of several repeats would take off; so it is that of one, √2.
    Assumption: patients are independent, and influences add up (large n, as for DeLong). Scores are near linear in the labels, by
    which √2 is an upper bound without a signal (`within_fold.inflation`). The bound holds of a difference whatever the folds are:
    without a signal each figure is a sum over two patients i, j of M_ij y_i y_j, with M_ij 0 where one did not teach the other's
    model, and so is the difference, M being A's less B's. Its variance is the sum of M_ij (M_ij + M_ji), at most twice the sum of
    M_ij², which is what the squared influences expect. Scores of patients who taught no model add a sum over single patients,
    for which twice is too much, never too little; two runs of these have no inflation.
    Not in it: which of all trainings with these settings this one is (seed, and by luck of the folds).
    Source: see `within_fold_comparison`.

    Returns
    -------
    Comparison; p 1 for figures without any difference and variance; all but the difference NaN where it cannot be tested.
    """
    ours, theirs = (chance.within_folds(endpoint, table) for table in (rows.a, rows.b))
    if not divided_alike(rows):
        ours, theirs = [over_repeats(ours)], [over_repeats(theirs)]
    return within_fold.within_fold_comparison(ours, theirs, _inflation(rows, designs))


def _inflation(rows: Rows, designs: tuple[Design, Design]) -> float:
    if divided_alike(rows):
        return max(chance.inflation(table, design) for table, design in zip((rows.a, rows.b), designs, strict=True))
    folds = int(max(table.fold.nunique() for table in (rows.a, rows.b)))
    return within_fold.inflation(folds)


def over_repeats(found: Sequence[WithinFold]) -> WithinFold:
    """The mean of the repeats, patient by patient."""
    return WithinFold(
        float(np.mean([one.value for one in found])),
        float(np.mean([one.error for one in found])),
        np.mean([one.influence for one in found], axis=0),
    )


def ranks(rows: pd.DataFrame) -> Float[np.ndarray, " n"]:
    """Each patient's rank within the fold, 0 the lowest score and 1 the highest, mean over repeats; in order of patients.

    Scores of two folds are of two networks, whose scales may differ; the figure that is judged compares within folds alone.
    """
    parts = [(fold.patient, (fold.score.rank() - 1) / max(len(fold) - 1, 1)) for _, _, fold in by_fold(rows)]
    patient, share = (pd.concat(column, ignore_index=True) for column in zip(*parts, strict=True))
    return pd.DataFrame({"patient": patient, "share": share}).groupby("patient", sort=True).share.mean().to_numpy(dtype=float)


def marked(endpoint: Endpoint, rows: pd.DataFrame) -> np.ndarray:
    """Whether each patient is positive, or has had the event, in order of patients."""
    people = averaged(rows)
    return flags(people.truth if endpoint.kind == "binary" else people.event)


def _compared(endpoint: Endpoint, rows: Rows, designs: tuple[Design, Design]) -> Compared:
    found = test(endpoint, rows, designs)
    a, b = (_figure(endpoint, table, design) for table, design in zip((rows.a, rows.b), designs, strict=True))
    of_patients = marked(endpoint, rows.a)
    same = divided_alike(rows) and bool((floats(rows.a.score) == floats(rows.b.score)).all())
    role: Role = "own" if rows.model == OWN else "comparator" if is_candidate(rows.model) else "control"
    return Compared(
        role=role,
        n=len(of_patients),
        marked=int(of_patients.sum()),
        a=a,
        b=b,
        **vars(found),
        p_adjusted=float("nan"),
        same_predictions=same,
        agreement=_correlation(ranks(rows.a), ranks(rows.b)),
        kind="undefined",
        verdict="",
    )


def _figure(endpoint: Endpoint, rows: pd.DataFrame, design: Design) -> Estimate:
    """What a report of these patients alone would judge."""
    nothing = Background(design, run_files.empty(predictions.NULL_COLUMNS), run_files.empty(predictions.SEED_COLUMNS), {})
    return chance.measure(endpoint, rows, nothing).judged


def _correlation(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) > 0 and np.ptp(b) > 0 else float("nan")


def _judged(one: Compared, p_adjusted: float) -> Compared:
    """With its adjusted p, by which alone it is judged; NaN where nothing was tested."""
    return one.model_copy(update={"p_adjusted": p_adjusted, "kind": _kind(one, p_adjusted)})


def _kind(one: Compared, p_adjusted: float) -> Kind:
    if one.same_predictions:
        return "same"
    if np.isnan(p_adjusted):
        return "undefined"
    if p_adjusted > ALPHA:
        return "alike"
    return "a" if one.difference > 0 else "b"


def with_verdict(endpoint: EndpointCompared) -> EndpointCompared:
    """The endpoint with a verdict on each of its models."""
    models = {name: one.model_copy(update={"verdict": verdict(endpoint.kind, one)}) for name, one in endpoint.models.items()}
    return endpoint.model_copy(update={"models": models})


def verdict(kind: Literal["binary", "survival"], one: Compared) -> str:
    """Which run is better and by how much, in at most a short sentence."""
    if one.kind == "same":
        return "same predictions"
    if one.kind == "undefined":
        lacking = "positive or negative patients" if kind == "binary" else "events"
        too_few = few(kind, one)
        return f"cannot be compared: {f'fewer than {FEWEST} {lacking} in common' if too_few else 'no variance'}"
    if one.kind == "a":
        return f"A is better by {_by(one.difference, one.low, one.high)}"
    if one.kind == "b":
        return f"B is better by {_by(-one.difference, -one.high, -one.low)}"
    if one.low == one.high:  # an interval without width would claim that they are equal
        return f"cannot be told apart: {number(one.a.value)} in both"
    said = f"cannot be told apart: {with_sign(one.difference)} ({number(one.low)} to {number(one.high)})"
    alone = f"; {p_value(one.p)} by itself, {adjusted_p(one.p_adjusted)}" if one.p <= ALPHA else ""
    return f"{said}{alone}"


def folds_sentence(same: bool, designs: tuple[Design, Design]) -> str:
    """What it means for the tests how the common patients were divided."""
    return DIVIDED[_division(same, designs)]


def rules(tests: int, inflation: float) -> tuple[str, ...]:
    """What the tests assume and what they do not say."""
    allowed = (
        f"times up to {number(inflation, 2)}, which allows for what folds learn from each other"
        if inflation > 1
        else "as scores that were given, for the patients taught no model"
    )
    return (
        "Figures are those that a report judges: AUC, or Harrell's C, of pairs within a fold. They are of the patients compared "
        "alone, so a run's own report differs where it has others.",
        "A difference is A less B. Its test pairs patients, each by their influence on both figures: within folds DeLong's of "
        f"AUCs, the jackknife of C. Standard errors are those of given scores {allowed}.",
        f"One run is better where the p adjusted by Holm's method over {counted(tests, 'test')} of this page is at most "
        f"{ALPHA:g}. Intervals are of 95 % and not adjusted. Equal predictions are not tested, nor are fewer than {FEWEST} "
        "patients of a class or events.",
        "“Cannot be told apart” does not mean equal: the interval shows which differences remain possible.",
        "Each run is one training of its settings. With another seed both figures would be others, so a difference of two runs "
        "is not yet one of two settings, and where several settings differ it does not say which of them matters.",
        "A patient is the same where the id is the same. Labels of the patients compared are equal in both runs.",
        "Whether a run can be believed is not asked here: read both reports, their controls and leak checks, first.",
        "Controls on permuted labels are left out: their labels are nobody's.",
    )


def _division(same: bool, designs: tuple[Design, Design]) -> Division:
    outside = sum(design == "external" for design in designs)
    if outside:
        return "neither" if outside == 2 else "one"
    return "same" if same else "different"


DIVIDED: dict[Division, str] = {
    "same": "Both runs divided the common patients into the same folds, so their figures are of the same pairs of patients.",
    "different": "The runs divided the common patients into different folds, so their figures are of different pairs of "
    "patients, and the networks that tested a patient had learned from other people in A than in B. The tests hold all the same, "
    "since they pair patients and not pairs, but the luck of the division is part of what they compare. Runs on one cohort with "
    "the same seed, endpoints and train.folds have the same folds.",
    "neither": "Neither run learned from these patients: scores are compared as they are.",
    "one": "One run was cross-validated on these patients, the other learned from none of them. Both figures are of people "
    "whom a model had not seen; where one is better, it may be for its training patients as well as for its settings. If the "
    "test errs, it is towards no difference.",
}


def _by(difference: float, low: float, high: float) -> str:
    return f"{number(difference)} ({number(low)} to {number(high)})" if is_defined(low) else number(difference)

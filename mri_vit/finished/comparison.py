"""Comparison: the differences between the models of two runs, A and B, on n common patients; `comparison.json`; its sentences.

A difference is A minus B: above 0, A is better. `json_schema` describes the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from pydantic import Field, JsonValue

from mri_vit.data import predictions
from mri_vit.finished.paired_runs import Rows, Runs
from mri_vit.kinds.kind import Measure, labels
from mri_vit.metrics import comparison, within_fold
from mri_vit.metrics.comparison import Comparison as Tested
from mri_vit.metrics.within_fold import WithinFold
from mri_vit.report.numbers import chance, measures
from mri_vit.report.numbers.chance import Background
from mri_vit.report.numbers.judged import averaged, by_fold
from mri_vit.report.reading import run_files
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.schema.parts import OWN, Design, Estimate, Number, Part
from mri_vit.report.verdicts import MIN_RARER_GROUP
from mri_vit.report.words.notation import adjusted_p, counted, is_defined, number, p_value, with_sign
from mri_vit.settings.recipe import is_compared
from mri_vit.settings.schema import Endpoint
from mri_vit.settings.schema import Kind as EndpointKind

SCHEMA: Final = 1
Kind = Literal["a", "b", "alike", "same", "undefined"]
Role = Literal["own", "comparator", "control"]
KINDS = {"a": "A better", "b": "B better", "alike": "no clear difference", "same": "same", "undefined": "not compared"}
MARKS = {"a": "▲", "b": "▼", "alike": "○", "same": "=", "undefined": "–"}  # the kind again, for colour-blind readers
DESIGNS = {"cross-validation": "cross-validated", "external": "evaluated on another cohort"}
ROLES = {"own": "the study's own model", "comparator": "comparator", "control": "control"}
DIVIDED = {
    "same": "Both runs assigned the common patients to the same folds, so both results compare the same pairs of patients.",
    "different": "The runs assigned the common patients to different folds, so each result compares other pairs of patients, and"
    " a patient's networks had other training patients in A than in B. The tests stay valid, because they pair patients and not"
    " pairs, but the chance of the assignment is part of the difference. Runs on one cohort with the same seed, endpoints and"
    " train.folds have the same folds.",
    "neither": "Neither run was trained on these patients: their scores are compared as they are.",
    "one": "One run was cross-validated on these patients, the other was not trained on any of them. Both results are on patients"
    " that a model had not seen; a better one may come from its training patients as well as from its settings. If the test errs,"
    " it errs towards no difference.",
}


class Side(Part):
    """One of the two runs, without paths, which belong to a machine."""

    name: str = Field(description="name on the page: the study's, or the folder's where both studies have the same")
    study: str = Field(description="name of the study")
    folder: str = Field(description="name of the folder, without the folders above it")
    design: Design = Field(description="out-of-fold predictions, or a run's models on another cohort")
    patients: int = Field(description="patients with a prediction")
    folds: int = Field(description="folds; 1 for an evaluation, whose patients are not training patients")
    repeats: int = Field(description="repeats of the cross-validation")
    folds_sha256: str | None = Field(description="hash of folds.json; null for an evaluation")
    device: str = Field(description="device of all folds of all networks, with its name")
    started: str = Field(description="date and time, ISO 8601")


class Setting(Part):
    """A key of the study file, or of the software, that differs."""

    key: str = Field(description="dotted, as on the command line: train.epochs")
    a: JsonValue = Field(description="value in A, with the default filled in; null where it is unset or does not apply")
    b: JsonValue = Field(description="value in B, likewise")
    decides: bool = Field(description="whether a prediction can depend on it")


class Patients(Part):
    """Which run predicted which patients."""

    both: int = Field(description="patients predicted in both runs")
    a_alone: tuple[str, ...] = Field(description="patients predicted only in A")
    b_alone: tuple[str, ...] = Field(description="patients predicted only in B")
    other_scans: tuple[str, ...] | None = Field(
        description="visits whose scan files differ between the runs; null where a run did not record them"
    )


class Folds(Part):
    """Whether the common patients are in the same folds."""

    same: bool = Field(description="whether every common patient is in the same fold of each repeat")
    inflation: Number = Field(
        description="factor of a standard error at chance, the largest, because folds share training patients"
    )
    sentence: str = Field(description="what that means for the tests, in words")


class Compared(Part):
    """A model of both runs on the patients with a label that both predicted: the result that a report judges."""

    role: Role = Field(description="the study's own model, a comparator, or a control")
    n: int = Field(description="patients compared")
    marked: int = Field(description="of them positive, or with an event for survival; all of another kind")
    rarer: int = Field(
        description="patients of the rarer class, with an event, of the rarest class, or beside the commonest value"
    )
    a: Estimate = Field(description="AUC or C of pairs within a fold of A, on the compared patients")
    b: Estimate = Field(description="likewise of B")
    difference: Number = Field(description="A minus B")
    low: Number = Field(description="lower end of the 95 % confidence interval of the difference")
    high: Number = Field(description="upper end of the 95 % confidence interval of the difference")
    z: Number = Field(description="difference over its standard error")
    p: Number = Field(description="two-sided p that there is no difference, not adjusted; 1 for equal predictions")
    p_adjusted: Number = Field(
        description="`p`, adjusted by Holm's method over all tests of this file; null where nothing was tested"
    )
    same_predictions: bool = Field(description="whether all scores are equal, so that there is nothing to test")
    agreement: Number = Field(description="correlation of the patients' ranks within their folds, mean over repeats")
    kind: Kind = Field(description="which run is better; alike: no clear difference; same: equal predictions; undefined: too few")
    verdict: str = Field(description="the same in words")


class EndpointCompared(Part):
    """One endpoint."""

    kind: EndpointKind
    measure: Measure
    models: dict[str, Compared] = Field(description="the study's own model first, then comparators and controls")


class Cost(Part):
    """Cost of a model in one run."""

    parameters: int | None = Field(description="weights of a fold's network, median over folds; null where unknown")
    gflops: Number = Field(description="operations for one patient's prediction, in billions, median over folds")
    patient_seconds: Number = Field(description="seconds for one patient's prediction, median over folds")
    training_seconds: Number = Field(description="seconds of training, sum over folds and repeats")


class Costs(Part):
    """Cost of a model in both runs."""

    a: Cost
    b: Cost


class Alone(Part):
    """Names that only one run has."""

    a: tuple[str, ...] = Field(description="only in A")
    b: tuple[str, ...] = Field(description="only in B")


class Comparison(Part):
    """Two runs side by side. Undefined is null; intervals are 95 %; nothing is fitted anew."""

    layout: Literal[1] = Field(alias="schema", description="version of this layout")
    a: Side
    b: Side
    settings: tuple[Setting, ...] = Field(description="settings that differ, those first on which a prediction can depend")
    versions: tuple[Setting, ...] = Field(description="software and machine that differ")
    patients: Patients
    folds: Folds
    endpoints: dict[str, EndpointCompared] = Field(description="endpoints of both runs that have a common patient with a label")
    endpoints_alone: Alone
    models_alone: Alone
    costs: dict[str, Costs] = Field(description="by model, where both runs recorded a cost")
    tests: int = Field(description="comparisons whose p were adjusted together")
    rules: tuple[str, ...] = Field(description="what the tests assume and what they do not show, in words")


def dumps(comparison: Comparison) -> str:
    """The text of the file: keys in the order of the fields, null for what is undefined."""
    return json.dumps(comparison.model_dump(mode="json"), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    schema = Comparison.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "comparison.json of mri-vit"}


def compared_endpoints(runs: Runs) -> dict[str, EndpointCompared]:
    """Every model that both runs have, by endpoint; endpoints without one are left out.

    p are adjusted by Holm's method over all models and endpoints that are tested.
    """
    designs = runs.a.run.design, runs.b.run.design
    pairs = [(endpoint, rows) for endpoint in runs.endpoints for rows in runs.rows[endpoint.name]]
    results = [test(endpoint, rows, designs) for endpoint, rows in pairs]
    every = [result.p if _is_tested(*pair) else np.nan for result, pair in zip(results, pairs, strict=True)]
    adjusted = comparison.holm(np.array(every, dtype=float)).tolist()
    models: dict[str, dict[str, Compared]] = {}
    for (endpoint, rows), result, p in zip(pairs, results, adjusted, strict=True):
        models.setdefault(endpoint.name, {})[rows.model] = _compared(endpoint, rows, designs, result, p)
    return {
        endpoint.name: EndpointCompared.model_validate(
            {"kind": endpoint.kind, "measure": labels(endpoint).measure, "models": models[endpoint.name]}
        )
        for endpoint in runs.endpoints
        if endpoint.name in models
    }


def _compared(endpoint: Endpoint, rows: Rows, designs: tuple[Design, Design], result: Tested, p_adjusted: float) -> Compared:
    """One model in both runs, judged by the adjusted p alone."""
    of_kind, people, same = measures.of(endpoint), averaged(rows.a), same_predictions(rows)
    rarer = of_kind.rarer(people)
    a, b = (_result(endpoint, table, design) for table, design in zip((rows.a, rows.b), designs, strict=True))
    kind: Kind = "a" if result.difference > 0 else "b"
    if same:
        kind = "same"
    elif np.isnan(p_adjusted):
        kind = "undefined"
    elif p_adjusted > ALPHA:
        kind = "alike"
    role: Role = "own" if rows.model == OWN else "comparator" if is_compared(rows.model) else "control"
    return Compared(
        role=role,
        n=len(people),
        marked=int(of_kind.marked(people).sum()),
        rarer=rarer,
        a=a,
        b=b,
        **vars(result),
        p_adjusted=p_adjusted,
        same_predictions=same,
        agreement=_correlation(ranks(rows.a), ranks(rows.b)),
        kind=kind,
        verdict=_verdict(kind, labels(endpoint).rarer, few(rarer), a.value, result, p_adjusted),
    )


def _verdict(kind: Kind, rarer: str, too_few: bool, in_a: float, result: Tested, p_adjusted: float) -> str:
    """Which run is better and by how much, in at most a short sentence."""
    difference, low, high = result.difference, result.low, result.high
    if kind == "same":
        return "same predictions"
    if kind == "undefined":
        return f"cannot be compared: {f'fewer than {MIN_RARER_GROUP} {rarer} in common' if too_few else 'no variance'}"
    if kind in ("a", "b"):
        ends = (difference, low, high) if kind == "a" else (-difference, -high, -low)
        interval = f" ({number(ends[1])} to {number(ends[2])})" if is_defined(ends[1]) else ""
        return f"{kind.upper()} is better by {number(ends[0])}{interval}"
    if low == high:  # an interval without width would claim that they are equal
        return f"no clear difference: {number(in_a)} in both"
    alone = f"; {p_value(result.p)} unadjusted, {adjusted_p(p_adjusted)}" if result.p <= ALPHA else ""
    return f"no clear difference: {with_sign(difference)} ({number(low)} to {number(high)}){alone}"


def _is_tested(endpoint: Endpoint, rows: Rows) -> bool:
    return not same_predictions(rows) and not few(measures.of(endpoint).rarer(averaged(rows.a)))


def same_predictions(rows: Rows) -> bool:
    """Whether both runs have the same folds and scores, so that there is nothing to test."""
    scores = [table.filter(regex=r"^(score|p\d+)$").to_numpy(dtype=float) for table in (rows.a, rows.b)]
    return divided_alike(rows) and bool((scores[0] == scores[1]).all())


def few(rarer: int) -> bool:
    """Whether there are too few patients of what must not be rare to judge, as in a report."""
    return rarer < MIN_RARER_GROUP


def same_folds(runs: Runs) -> bool:
    """Whether every common patient is in the same fold of each repeat."""
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
    """The difference of two runs' results, A minus B, and the two-sided test that it is zero.

    Definition: each run's result is of the pairs within its own folds. Both are sums over the same patients, so the test pairs
    patients, not pairs: z is the difference over the root of the sum of squared differences of each patient's influences on the
    two results, times an inflation for refitting. A patient's fold is an attribute like the score, and part of the influence; so
    the folds need not be the same.
    Formula: for the same folds that of a report's comparisons: repeat by repeat, with its inflation. For different folds repeat
    r of A is unrelated to repeat r of B: the influences are averaged over each run's repeats first, which already reduces the
    variance as several repeats do; so the inflation is that of one repeat, √2 at chance and less above it, or always √2 where one
    run has more repeats than the other (else 8 % of equal pairs would differ at 82 patients in three folds).
    Assumption: patients are independent, and influences add up (large n, as for DeLong). Scores are near linear in the labels, by
    which √2 is an upper bound without a signal (`within_fold.inflation`). The bound holds of a difference whatever the folds are:
    without a signal each result is a sum over two patients i, j of M_ij y_i y_j, with M_ij 0 where one was not a training patient
    of the other's model, and so is the difference, M being A's minus B's. Its variance is the sum of M_ij (M_ij + M_ji), at most
    twice the sum of M_ij², which is what the squared influences expect. Scores of patients outside all training add a sum over
    single patients, for which twice is too much, never too little; two runs of these have no inflation.
    Not covered: the variation between trainings with the same settings (seed, assignment to folds).
    Source: see `within_fold_comparison`.

    Returns
    -------
    Comparison; p 1 for results without any difference and variance; all but the difference NaN where it cannot be tested.
    """
    ours, theirs = (chance.within_folds(endpoint, table) for table in (rows.a, rows.b))
    if not divided_alike(rows):
        compare = within_fold.refitted_comparison if len(ours) == len(theirs) else within_fold.within_fold_comparison
        return compare([over_repeats(ours)], [over_repeats(theirs)], _inflation(rows, designs))
    return within_fold.refitted_comparison(ours, theirs, _inflation(rows, designs))


def _inflation(rows: Rows, designs: tuple[Design, Design]) -> float:
    if divided_alike(rows):
        return max(chance.inflation(table, design) for table, design in zip((rows.a, rows.b), designs, strict=True))
    folds = int(max(table.fold.nunique() for table in (rows.a, rows.b)))
    return within_fold.inflation(folds)


def over_repeats(repeats: Sequence[WithinFold]) -> WithinFold:
    """The mean of the repeats, patient by patient."""
    return WithinFold(
        float(np.mean([repeat.value for repeat in repeats])),
        float(np.mean([repeat.error for repeat in repeats])),
        np.mean([repeat.influence for repeat in repeats], axis=0),
    )


def ranks(rows: pd.DataFrame) -> Float[np.ndarray, " n"]:
    """Each patient's rank within the fold, 0 the lowest score and 1 the highest, mean over repeats; in order of patients.

    Scores of two folds come from two networks, whose scales may differ; the judged result compares within folds only.
    """
    parts = [(fold.patient, (of_own(fold).rank() - 1) / max(len(fold) - 1, 1)) for _, _, fold in by_fold(rows)]
    patient, share = (pd.concat(column, ignore_index=True) for column in zip(*parts, strict=True))
    return pd.DataFrame({"patient": patient, "share": share}).groupby("patient", sort=True).share.mean().to_numpy(dtype=float)


def of_own(rows: pd.DataFrame) -> pd.Series:
    """The score, or of several classes the probability of the patient's own, which both runs have."""
    if "label" not in rows:
        return rows.score
    columns = rows.filter(regex=r"^p\d+$").to_numpy(dtype=float)
    return pd.Series(columns[np.arange(len(rows)), rows.label.to_numpy(int)], index=rows.index)


def marked(endpoint: Endpoint, rows: pd.DataFrame) -> np.ndarray:
    """Whether each patient is positive, or has had the event, in order of patients; all of a kind that marks none."""
    return measures.of(endpoint).marked(averaged(rows))


def _result(endpoint: Endpoint, rows: pd.DataFrame, design: Design) -> Estimate:
    """The result that a report on only these patients would judge."""
    nothing = Background(design, run_files.empty(predictions.NULL_COLUMNS), run_files.empty(predictions.SEED_COLUMNS), {})
    return chance.measure(endpoint, rows, nothing).judged


def _correlation(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) > 0 and np.ptp(b) > 0 else float("nan")


def folds_sentence(same: bool, designs: tuple[Design, Design]) -> str:
    """What the assignment of the common patients to folds means for the tests."""
    external = sum(design == "external" for design in designs)
    return DIVIDED[("same" if same else "different", "one", "neither")[external]]


def rules(tests: int, inflation: float) -> tuple[str, ...]:
    """What the tests assume and what they do not show."""
    allowed = (
        f"times up to {number(inflation, 2)}, because folds share training patients"
        if inflation > 1
        else "without a factor, because no model was trained on these patients"
    )
    return (
        "Results are those that a report judges: AUC, or Harrell's C, of pairs within a fold. They are of the compared patients "
        "only, so a run's own report differs where it has others.",
        "A difference is A minus B. Its test pairs patients, each by their influence on both results: DeLong's for AUCs, the "
        f"jackknife for C, both within folds. Standard errors are those of fixed scores, {allowed}.",
        f"One run is better where the p adjusted by Holm's method over the {counted(tests, 'test')} of this page is at most "
        f"{ALPHA:g}. Intervals are of 95 % and not adjusted. Equal predictions are not tested, nor are fewer than "
        f"{MIN_RARER_GROUP} patients of a class or events.",
        "“No clear difference” does not mean equal: the interval shows which differences remain possible.",
        "Each run is one training of its settings. Another seed would change both results, so a difference between two runs "
        "is not yet one between two settings; where several settings differ, it does not show which of them matters.",
        "Patients are matched by id. The labels of the compared patients are equal in both runs.",
        "This page does not check whether a run is credible: read both reports, their controls and leakage checks, first.",
        "Controls on permuted labels are left out, because their labels are not the patients'.",
    )

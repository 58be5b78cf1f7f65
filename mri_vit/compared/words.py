"""Words: what was measured goes in, sentences about it come out. The runs are A and B."""

from __future__ import annotations

from typing import Literal

from mri_vit.compared import numbers
from mri_vit.compared.document import Compared, EndpointCompared
from mri_vit.report.numbers.chance import ALPHA
from mri_vit.report.schema.run import Design
from mri_vit.report.verdicts.models import FEWEST
from mri_vit.report.words.notation import adjusted_p, counted, is_defined, number, p_value, with_sign

KINDS = {"a": "A better", "b": "B better", "alike": "not told apart", "same": "same", "undefined": "not compared"}
MARKS = {"a": "▲", "b": "▼", "alike": "○", "same": "=", "undefined": "–"}  # the kind once more, for those who see no colour
DESIGNS = {"cross-validation": "cross-validated", "external": "evaluated on another cohort"}
ROLES = {"own": "the study's own model", "comparator": "comparator", "control": "control"}
MARKED = {"binary": "positive", "survival": "events"}

Division = Literal["same", "different", "neither", "one"]


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
        few = numbers.few(kind, one)
        return f"cannot be compared: {f'fewer than {FEWEST} {lacking} in common' if few else 'no variance'}"
    if one.kind == "a":
        return f"A is better by {_by(one.difference, one.low, one.high)}"
    if one.kind == "b":
        return f"B is better by {_by(-one.difference, -one.high, -one.low)}"
    if one.low == one.high:  # an interval without width would claim that they are equal
        return f"cannot be told apart: {number(one.a.value)} in both"
    said = f"cannot be told apart: {with_sign(one.difference)} ({number(one.low)} to {number(one.high)})"
    alone = f"; {p_value(one.p)} by itself, {adjusted_p(one.p_adjusted)}" if one.p <= ALPHA else ""
    return f"{said}{alone}"


def folds(same: bool, designs: tuple[Design, Design]) -> str:
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

"""The verdict on a model in words: its result and how it stands in, a sentence out."""

from __future__ import annotations

from collections.abc import Mapping

from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.comparison import Comparison
from mri_vit.report.schema.metrics import Result
from mri_vit.report.verdicts.models import ALPHA, CHANCE, FEWEST, BesideClinical, Verdict
from mri_vit.report.words.notation import adjusted_p, interval, p_value, signed, with_sign
from mri_vit.settings.models import CLINICAL

# Parker et al. 2007, doi:10.1186/1471-2105-8-326: without a signal, cross-validated scores fall below 0.5 more than by chance.
BELOW = "without a signal, cross-validation often falls below 0.5; where a signal is sure, look for flipped labels"
ALIKE = "warning: all scores are equal, so the model distinguishes no patient from another"
LEAK = "the shuffled-label control is better than chance: the design leaks, do not trust this endpoint"


def sentence(result: Result, verdict: Verdict, notes: Mapping[str, str]) -> str:
    """The verdict on a model; `notes` are those of the run."""
    said = against_chance(result, verdict)
    said += f"; {ALIKE}" if verdict.is_tied else ""
    said += against_clinical(result.versus_clinical, verdict.clinical, notes) if verdict.clinical else ""
    return f"{LEAK} ({said})" if verdict.leaks else said


def against_chance(result: Result, verdict: Verdict) -> str:
    """Better or worse than chance, indistinguishable from it, or not to be judged, with the figures that say so."""
    binary = isinstance(result, BinaryResult)
    if verdict.against_chance == "undefined":
        marked = f"{result.positive} positive" if binary else f"{result.events} died"
        return f"cannot be judged (n = {result.n}, {marked})"
    estimate, test = result.estimate, result.permutation
    figures = f"{'AUC' if binary else 'C'} {interval(estimate)}, permutation test"
    if estimate.high < CHANCE:
        figures += f" of so low a value, {adjusted_p(test.p_below_adjusted)}"
    else:
        figures += f", {adjusted_p(test.p_adjusted)}"
    return {
        "better": f"better than chance ({figures})",
        "chance": f"indistinguishable from chance ({figures})",
        "worse": f"worse than chance ({figures}): {BELOW}",
    }[verdict.against_chance]


def against_clinical(test: Comparison | None, beside: BesideClinical, notes: Mapping[str, str]) -> str:
    """What follows "better than chance" for a candidate: whether it beats clinical-only by the paired test.

    Clinical-only that is itself at or below chance is said to be: to beat it then says no more than to beat chance.
    """
    if not test:
        if beside.standing == "no shared patient":
            return ", clinical-only has no patient in common with it"
        reason = notes.get(CLINICAL)
        return f", clinical-only could not be made: {reason}" if reason else ", clinical-only was not run"
    columns = notes.get("clinical_columns")
    named = f"{columns}; " if columns else ""
    named += "itself no better than chance; " if beside.clinical_is_weak else ""
    if beside.standing == "undefined":
        return f", not better than clinical-only ({named}difference {with_sign(test.difference)}, the test is undefined)"
    said = f"{named}difference {signed(test)}, {adjusted_p(test.p_adjusted)}"
    if test.nadeau_bengio:
        said += f"; corrected resampled t-test, one-sided {p_value(test.nadeau_bengio.p)}"
    return (
        f", and better than clinical-only ({said})"
        if beside.standing == "better"
        else f", not better than clinical-only ({said})"
    )


def rules() -> list[str]:
    """The rules in plain words, as the report prints them."""
    return [
        f"A result is not judged where its estimate, interval or p is undefined, or with fewer than {FEWEST} patients of the "
        f"rarer class (or {FEWEST} deaths): “cannot be judged”.",
        f"“Indistinguishable from chance”: the 95 % interval holds {CHANCE}, or the one-sided permutation p of so high a value "
        f"(of so low a one, where the interval lies below {CHANCE}) is over {ALPHA}.",
        f"“Worse than chance”: the 95 % interval lies wholly below {CHANCE}, and the permutation p of so low a value is at most "
        f"{ALPHA}. The p takes the scores as they are; without a signal, cross-validated scores fall below {CHANCE} more often "
        "than it says (Parker et al. 2007), so this is no proof of flipped labels.",
        f"“Better than chance”: the 95 % interval lies wholly above {CHANCE}, and the permutation p is at most {ALPHA}.",
        "The interval is DeLong's for an AUC and a bootstrap of patients for Harrell's C, of all patients' scores together.",
        f"A model that is better than chance is also “better than clinical-only” when its difference is above 0 and the p of the "
        f"paired test (DeLong for an AUC, a bootstrap of patients for C) is at most {ALPHA}; else it is not. Where "
        "clinical-only is itself no better than chance, the verdict says so: to beat it then means little more than to beat "
        "chance. Over several repeats the corrected resampled t-test (Nadeau and Bengio) must have a one-sided p of at most "
        f"{ALPHA} as well.",
        f"A comparator is better or worse than the study's own model ({OWN}) when the p of the same paired test, here of the two "
        f"models, is at most {ALPHA}, and over several repeats the corrected resampled t-test agrees; else no difference is "
        "shown, which does not mean that the two are equal.",
        "Every p in a verdict is corrected by Holm's method: permutation p over all endpoints and models other than the shuffled "
        "control, that of the shuffled control over its endpoints, the comparison with clinical-only over all endpoints and "
        "candidates, and that with the study's own model over all endpoints and comparators.",
        "When a model trained on shuffled labels is better than chance, labels leak through the design, and a warning goes "
        "before every verdict of that endpoint. Below chance is no sign of a leak: folds of unequal prevalence can do that.",
    ]

"""A result in plain words, by rules that are fixed before any result is seen: one model's result in, a sentence out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mri_vit.report.reading.run import OWN
from mri_vit.settings.models import CLINICAL, SHUFFLED, is_candidate

ALPHA = 0.05  # Fisher 1925; with 95 % intervals throughout
CHANCE = 0.5  # AUC and concordance of a model that knows nothing
FEWEST = 5  # a perfect order of d deaths has a chance of 1/d!; five are the fewest with less than 1 %
# Parker et al. 2007, doi:10.1186/1471-2105-8-326: without a signal, cross-validated scores fall below 0.5 more than by chance.
BELOW = "without a signal, cross-validation often falls below 0.5; where a signal is sure, look for flipped labels"
ALIKE = "warning: all scores are equal, so the model tells no patient from another"
LEAK = "the shuffled-label control is better than chance: the design leaks, do not trust this endpoint"

Kind = Literal["better", "chance", "worse", "undefined"]


@dataclass(frozen=True)
class Verdict:
    """What is said of a model on an endpoint, and in one word."""

    kind: Kind
    sentence: str


def of_endpoint(kind: str, models: Mapping[str, Mapping[str, Any]], notes: Mapping[str, str]) -> dict[str, Verdict]:
    """The verdict on every model of an endpoint.

    When the shuffled control is better than chance, the design lets labels through, and every other verdict becomes a
    warning of the kind "undefined".
    """
    found = {model: against_chance(kind, result) for model, result in models.items()}
    for model, verdict in found.items():
        if (models[model].get("remark") or "").startswith("Warning"):
            found[model] = Verdict(verdict.kind, f"{verdict.sentence}; {ALIKE}")
    leaks = SHUFFLED in found and found[SHUFFLED].kind == "better"
    for model, verdict in found.items():
        if is_candidate(model) and verdict.kind == "better":
            found[model] = Verdict(verdict.kind, verdict.sentence + against_clinical(models[model], found.get(CLINICAL), notes))
    if not leaks:
        return found
    return {
        model: Verdict(verdict.kind if model == SHUFFLED else "undefined", f"{LEAK} ({verdict.sentence})")
        for model, verdict in found.items()
    }


def against_chance(kind: str, result: Mapping[str, Any]) -> Verdict:
    """Better or worse than chance, not told from it, or not to be judged, from the interval and the permutation p."""
    measure, estimate = ("AUC", result["auc"]) if kind == "binary" else ("C", result["harrell_c"])
    n, marked = result["n"], result["positive"] if kind == "binary" else result["events"]
    rarer = min(marked, n - marked) if kind == "binary" else marked
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    above, below = result["permutation"]["p_adjusted"], result["permutation"]["p_below_adjusted"]
    if any(math.isnan(number) for number in (value, low, high, above, below)) or rarer < FEWEST:
        return Verdict("undefined", f"cannot be judged (n = {n}, {marked} {'positive' if kind == 'binary' else 'died'})")
    figures = f"{measure} {share(value)}, 95 % CI {share(low)}–{share(high)}"
    if high < CHANCE:
        figures += f", permutation p of so low a value {written(below)}"
        if below <= ALPHA:
            return Verdict("worse", f"worse than chance ({figures}): {BELOW}")
        return Verdict("chance", f"indistinguishable from chance ({figures})")
    figures += f", permutation p {written(above)}"
    if low <= CHANCE or above > ALPHA:
        return Verdict("chance", f"indistinguishable from chance ({figures})")
    return Verdict("better", f"better than chance ({figures})")


def against_clinical(result: Mapping[str, Any], clinical: Verdict | None, notes: Mapping[str, str]) -> str:
    """What follows "better than chance" for a candidate: whether it beats clinical-only by the paired test.

    Clinical-only that is itself at or below chance is said to be: to beat it then says no more than to beat chance.
    """
    test = result.get("versus_clinical")
    if not test:
        if clinical:
            return ", clinical-only has no patient in common with it"
        reason = notes.get(CLINICAL)
        return f", clinical-only could not be made: {reason}" if reason else ", clinical-only was not run"
    columns = notes.get("clinical_columns")
    named = f"{columns}; " if columns else ""
    named += "itself no better than chance; " if clinical and clinical.kind in ("chance", "worse") else ""
    p = test["p_adjusted"]
    if math.isnan(p):
        return f", not better than clinical-only ({named}difference {signed(test['difference'])}, the test is undefined)"
    said = (
        f"{named}difference {signed(test['difference'])}, 95 % CI {signed(test['low'])} to {signed(test['high'])}, p {written(p)}"
    )
    better = p <= ALPHA and test["difference"] > 0
    repeated = test.get("nadeau_bengio")
    if repeated:
        said += f"; corrected resampled t-test, one-sided p {written(repeated['p'])}"
        better = better and repeated["p"] <= ALPHA
    return f", and better than clinical-only ({said})" if better else f", not better than clinical-only ({said})"


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
        "clinical-only is itself no better than chance, this is said: to beat it then means little more than to beat chance. "
        "Over several repeats the corrected resampled t-test (Nadeau and Bengio) must have a one-sided p of at most "
        f"{ALPHA} as well.",
        f"A comparator is better or worse than the study's own model ({OWN}) when the p of the same paired test, here of the two "
        f"models, is at most {ALPHA}, and over several repeats the corrected resampled t-test agrees; else the two are not told "
        "apart, which does not mean that they are equal.",
        "Every p in a verdict is corrected by Holm's method: permutation p over all endpoints and models other than the shuffled "
        "control, that of the shuffled control over its endpoints, the comparison with clinical-only over all endpoints and "
        "candidates, and that with the study's own model over all endpoints and comparators.",
        "When a model trained on shuffled labels is better than chance, labels leak through the design, and a warning goes "
        "before every verdict of that endpoint. Below chance is no sign of a leak: folds of unequal prevalence can do that.",
    ]


def written(p: float) -> str:
    """A p-value as verdicts write it: 0.21, 0.013, < 0.001."""
    if p < 0.001:
        return "< 0.001"
    return f"{p:.2f}" if p >= 0.1 else f"{p:.3f}"


def share(value: float) -> str:
    """An AUC or C as verdicts write it: two digits, and a third where two would round to a false 0 or 1."""
    return f"{value:.3f}" if f"{value:.2f}" in ("0.00", "1.00") and 0 < value < 1 else f"{value:.2f}"


def signed(difference: float) -> str:
    """A difference with its sign: +0.12, −0.03."""
    return f"{difference:+.2f}".replace("-", "\N{MINUS SIGN}")

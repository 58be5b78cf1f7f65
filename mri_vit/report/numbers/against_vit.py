"""A comparator held against the study's own model: results with their paired tests in, who is better by more than chance out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from mri_vit.report.reading.run import OWN
from mri_vit.report.verdicts.models import ALPHA, LEAK, signed, written

IN_FULL = 3  # models of one side that are told with their figures; the table beside has them all
NAMED = 8  # models of one side that are named at all

Result = Mapping[str, Any]
Standing = Literal["better", "worse", "alike", "undefined"]


def standing(test: Result) -> Standing:
    """Whether a comparator is better or worse than the study's own model by more than chance, from its `versus_own`.

    The p after Holm must be at most ALPHA; over several repeats the corrected resampled t-test must agree, each way one-sided.
    """
    p, difference, repeated = test["p_adjusted"], test["difference"], test["nadeau_bengio"]
    if math.isnan(p) or math.isnan(difference):
        return "undefined"
    sides = (repeated["p"], 1 - repeated["p"]) if repeated else (0.0, 0.0)  # NaN agrees with nobody
    if p <= ALPHA and difference > 0 and sides[0] <= ALPHA:
        return "better"
    return "worse" if p <= ALPHA and difference < 0 and sides[1] <= ALPHA else "alike"


def told(models: Mapping[str, Result]) -> dict[str, Any] | None:
    """Of one endpoint: comparators by their standing, the best first, and a sentence; None where nobody is held against another.

    A model that learned labels it should not know would win by that; where the design leaks, nobody wins.
    """
    tests = {model: result["versus_own"] for model, result in models.items() if result.get("versus_own")}
    if not tests:
        return None
    if models[OWN]["verdict"].startswith(LEAK):
        return {"better": [], "worse": [], "sentence": f"no comparator is held against {OWN}: the design leaks"}
    sides: dict[Standing, list[str]] = {side: [] for side in get_args(Standing)}
    for model in sorted(tests, key=lambda model: -tests[model]["difference"]):
        sides[standing(tests[model])].append(model)
    return {"better": sides["better"], "worse": sides["worse"][::-1], "sentence": _sentence(sides, tests, models)}


def _sentence(sides: Mapping[Standing, Sequence[str]], tests: Mapping[str, Result], models: Mapping[str, Result]) -> str:
    """Who beats the study's own model, whom it beats, and of how many nothing can be said; differences are of who is better."""
    parts = []
    if sides["better"]:
        said = [_better(model, tests[model], models[model]) for model in sides["better"][:IN_FULL]]
        parts.append(f"{_listed(said, sides['better'])} {'is' if len(sides['better']) == 1 else 'are'} better than {OWN}")
    if beaten := sides["worse"][::-1]:
        said = [f"{model} ({_figures(_turned(tests[model]), models[model])})" for model in beaten[:IN_FULL]]
        parts.append(f"{OWN} is better than {_listed(said, beaten)}")
    if alike := sides["alike"]:
        nearest = min(alike, key=lambda model: tests[model]["p_adjusted"])
        least = f"least p after Holm {written(tests[nearest]['p_adjusted'])}{f', {nearest}' * (len(alike) > 1)}"
        parts.append(f"{OWN} is not told from {_comparators(len(alike), bool(parts))} ({least})")
    if sides["undefined"]:
        parts.append(f"{len(sides['undefined'])} could not be tested")
    return "; ".join(parts)


def _comparators(count: int, among_others: bool) -> str:
    """the other comparator, any of its 5 comparators"""
    if count == 1:
        return "the other one" if among_others else "its comparator"
    return f"any of {'the other' if among_others else 'its'} {count} comparators"


def _listed(said: Sequence[str], side: Sequence[str]) -> str:
    """The first as they are said, the next by name, the rest as a number."""
    words = [*said, *side[IN_FULL:NAMED]] + ([f"{len(side) - NAMED} more"] if len(side) > NAMED else [])
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _turned(test: Result) -> dict[str, Any]:
    """The same comparison from the other side."""
    resampled = test["nadeau_bengio"] and {**test["nadeau_bengio"], "p": 1 - test["nadeau_bengio"]["p"]}
    turned = {"difference": -test["difference"], "low": -test["high"], "high": -test["low"]}
    return {**test, **turned, "nadeau_bengio": resampled}


def _better(model: str, test: Result, result: Result) -> str:
    unproven = "" if result["verdict_kind"] == "better" else "; itself not better than chance"
    return f"{model} ({_figures(test, result)}{unproven})"


def _figures(test: Result, result: Result) -> str:
    """The difference in favour of the better one, its interval, and p."""
    said = f"difference of {'AUC' if 'auc' in result else 'C'} {signed(test['difference'])}, "
    said += f"95 % CI {signed(test['low'])} to {signed(test['high'])}, p after Holm {written(test['p_adjusted'])}"
    repeated = test["nadeau_bengio"]
    return f"{said}; corrected resampled t-test, one-sided p {written(repeated['p'])}" if repeated else said

"""How comparators stand beside the study's own model, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.metrics import Result
from mri_vit.report.schema.parts import Comparators, Comparison
from mri_vit.report.verdicts.models import Sides, Verdict
from mri_vit.report.words.notation import adjusted_p, p_value, signed

IN_FULL = 3  # models of one side that are given with their figures; the table beside has them all
NAMED = 8  # models of one side that are named at all


def comparators(sides: Sides, models: Mapping[str, Result], verdicts: Mapping[str, Verdict]) -> Comparators:
    """The comparators of an endpoint as `metrics.json` has them."""
    if sides.leaks:
        return Comparators(better=(), worse=(), sentence=f"no comparator is compared with {OWN}: labels may leak")
    return Comparators(better=sides.better, worse=sides.worse, sentence=_sentence(sides, models, verdicts))


def _sentence(sides: Sides, models: Mapping[str, Result], verdicts: Mapping[str, Verdict]) -> str:
    """Who beats the study's own model, whom it beats, and of how many nothing can be said; differences are of who is better."""
    tests = {model: result.versus_own for model, result in models.items() if result.versus_own}
    parts = []
    if sides.better:
        said = [_better(model, tests[model], models[model], verdicts[model]) for model in sides.better[:IN_FULL]]
        parts.append(f"{_listed(said, sides.better)} {'is' if len(sides.better) == 1 else 'are'} better than {OWN}")
    if sides.worse:
        said = [f"{model} ({_figures(_turned(tests[model]), models[model])})" for model in sides.worse[:IN_FULL]]
        parts.append(f"{OWN} is better than {_listed(said, sides.worse)}")
    if alike := sides.alike:
        nearest = min(alike, key=lambda model: tests[model].p_adjusted)
        least = f"least {adjusted_p(tests[nearest].p_adjusted)}{f', {nearest}' * (len(alike) > 1)}"
        parts.append(f"{OWN} is not distinguishable from {_comparators(len(alike), bool(parts))} ({least})")
    if sides.undefined:
        parts.append(f"{len(sides.undefined)} could not be tested")
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


def _turned(test: Comparison) -> Comparison:
    """The same comparison from the other side."""
    repeated = test.nadeau_bengio and test.nadeau_bengio.model_copy(update={"p": 1 - test.nadeau_bengio.p})
    turned = {"difference": -test.difference, "low": -test.high, "high": -test.low, "nadeau_bengio": repeated}
    return test.model_copy(update=turned)


def _better(model: str, test: Comparison, result: Result, verdict: Verdict) -> str:
    unproven = "" if verdict.kind == "better" else "; itself not better than chance"
    return f"{model} ({_figures(test, result)}{unproven})"


def _figures(test: Comparison, result: Result) -> str:
    """The difference in favour of the better one, its interval, and p."""
    said = f"difference of {'AUC' if isinstance(result, BinaryResult) else 'C'} {signed(test)}"
    said += f", two-sided {p_value(test.p)}, {adjusted_p(test.p_adjusted)}"
    repeated = test.nadeau_bengio
    said = f"{said}; corrected resampled t-test, one-sided {p_value(repeated.p)}" if repeated else said
    return f"{said}; on {test.n} of {result.n} patients" if test.n < result.n else said

"""Cards: an endpoint's result and verdict in, the few words of the report's first screen out."""

from __future__ import annotations

from mri_vit.metrics.within_fold import CHANCE
from mri_vit.report.numbers.chance import ALPHA
from mri_vit.report.schema.metrics import Card, Result, Tick
from mri_vit.report.verdicts.models import Unjudged, Verdict
from mri_vit.report.words.notation import number, symbol

UNJUDGED: dict[Unjudged, str] = {
    "few": "Too few patients to judge",
    "one class": "One class only: not judged",
    "no pair": "No pair to compare: not judged",
    "no interval": "Interval undefined: not judged",
}
NOT_BETTER = "not asked of a result that is no better than chance"


def card(model: str, result: Result, verdict: Verdict) -> Card:
    """The card of an endpoint from its model's result."""
    return Card(
        model=model,
        verdict=headline(result, verdict),
        beats_controls=_beats_controls(result, verdict),
        holds_in_sites=_holds_in_sites(result, verdict),
    )


def headline(result: Result, verdict: Verdict) -> str:
    """The verdict in at most six words; what casts doubt on a result goes before what speaks for it."""
    if verdict.leaks:
        return "Labels may leak: not judged"
    if verdict.unjudged:
        return UNJUDGED[verdict.unjudged]
    if verdict.against_chance == "worse":
        return "Worse than chance"
    if verdict.against_chance == "chance":
        return "Not told from chance"
    if verdict.too_good:
        return "Too good to believe without checks"
    if verdict.confounded:
        return "May be confounded by the site"
    if verdict.controls == "better":
        return "Better than chance and every control"
    best = result.versus_best
    if not best:
        return "Better than chance; no control compared"
    doubted = best.least if verdict.controls == "not the least" else best.strongest
    return f"Better than chance, not than {doubted}"


def _beats_controls(result: Result, verdict: Verdict) -> Tick:
    best = result.versus_best
    if verdict.kind != "better":
        return Tick(holds=None, words=NOT_BETTER)
    if not best:
        return Tick(holds=None, words="no control was compared")
    if verdict.controls == "better":
        weak = ", the strongest of which is itself no better than chance" if verdict.best_is_weak else ""
        return Tick(holds=True, words=f"all of {len(result.versus_controls)}{weak}")
    return Tick(holds=False, words=f"not {best.least if verdict.controls == 'not the least' else best.strongest}")


def _holds_in_sites(result: Result, verdict: Verdict) -> Tick:
    """Above chance in each site by its figure, and among patients of one site by the test: a site alone is too small for one."""
    found = result.within_sites
    if verdict.kind != "better":
        return Tick(holds=None, words=NOT_BETTER)
    if not found:
        return Tick(holds=None, words="fewer than two sites are known")
    where = f"{symbol(result)} {number(found.least, 2)} to {number(found.most, 2)} in {found.sites} sites"
    if found.p > ALPHA:
        return Tick(holds=False, words=f"{where}; among patients of one site not told from chance")
    return Tick(holds=bool(found.least > CHANCE), words=where)

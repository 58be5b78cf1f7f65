"""The verdict on a model in words: its result and how it stands in, a sentence out."""

from __future__ import annotations

from collections.abc import Mapping

from mri_vit.metrics.within_fold import CHANCE
from mri_vit.report.numbers.chance import ALPHA
from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.metrics import Result
from mri_vit.report.schema.parts import Comparison
from mri_vit.report.verdicts.models import FEWEST, GAP, NEAR_CHANCE, PERFECT, TooGood, Unjudged, Verdict, agrees
from mri_vit.report.words.notation import adjusted_p, ends, interval, number, p_value, signed, symbol
from mri_vit.settings.recipe import CLINICAL

# Parker et al. 2007, doi:10.1186/1471-2105-8-326: without a signal, cross-validated scores fall below 0.5 more than by chance.
BELOW = "without a signal, cross-validation often falls below 0.5; where a signal is sure, look for flipped labels"
ALIKE = "warning: all scores are equal, so the model distinguishes no patient from another"
LEAK = (
    "labels may leak through the design: a network trained on permuted labels found them again, or was judged at thresholds "
    "chosen on its test patients; this endpoint is not judged until that is explained"
)
SITE = "warning: the model's CLS vector predicts the site, so a shortcut through the site is possible"
UNJUDGED: Mapping[Unjudged, str] = {
    "few": f"fewer than {FEWEST} of the rarer class",
    "one class": "all of one class",
    "no pair": "no fold holds two patients to compare",
    "no interval": "the interval is undefined",
}
TOO_GOOD: Mapping[TooGood, str] = {
    "truth": "every score follows the label exactly",
    "gap": f"the two classes' probabilities lie at least {GAP:g} apart, as of patients that a model was fitted on",
    "control": f"it is at least {PERFECT:g}, and every control beside it at most {NEAR_CHANCE:g}",
}
METHODS: Mapping[str, str] = {
    "refitted": "refitted to permuted labels",
    "within folds": "refitting allowed for",
    "scores as given": "scores as given",
}


def sentence(result: Result, verdict: Verdict, notes: Mapping[str, str]) -> str:
    """The verdict on a model; `notes` are those of the run."""
    said = against_chance(result, verdict)
    said += f"; {ALIKE}" if verdict.is_tied else ""
    said += against_controls(result, verdict, notes) if verdict.controls else ""
    said += f"; {confounded(result)}" if verdict.confounded else ""
    said += f"; {site_told(result)}" if verdict.tells_site else ""
    said += f"; warning: {too_good(verdict)}" if verdict.too_good else ""
    return f"{LEAK} ({said})" if verdict.leaks else said


def against_chance(result: Result, verdict: Verdict) -> str:
    """Better or worse than chance, indistinguishable from it, or why it cannot be judged, with the figures that say so."""
    binary = isinstance(result, BinaryResult)
    if verdict.unjudged:
        marked = f"{result.positive} positive" if binary else f"{result.events} died"
        return f"cannot be judged: {UNJUDGED[verdict.unjudged]} (n = {result.n}, {marked})"
    test, symbol = result.chance_test, "AUC" if binary else "C"
    below = test.value < CHANCE
    p, adjusted = (test.p_below, test.p_below_adjusted) if below else (test.p, test.p_adjusted)
    low = " of so low a value" if below else ""
    how = METHODS["within folds"] if below and test.method == "refitted" else _how(result)
    figures = f"{symbol} {interval(result.judged)}, one-sided test{low}, {how}, {p_value(p)}, {adjusted_p(adjusted)}"
    if again := result.retraining:
        one = {"repeats": "training", "seeds": "single network"}[again.source]  # the score of several seeds is their mean
        figures += f"; another {one} would lie in {ends(again.low, again.high)}"
    return {
        "better": f"better than chance ({figures})",
        "chance": f"indistinguishable from chance ({figures})",
        "worse": f"worse than chance ({figures}): {BELOW}",
        "undefined": "",
    }[verdict.against_chance]


def against_controls(result: Result, verdict: Verdict, notes: Mapping[str, str]) -> str:
    """What follows "better than chance" for a candidate: the strongest control, and whether it and all others are beaten.

    A control that is itself at or below chance is said to be: to beat it then says no more than to beat chance.
    """
    best = result.versus_best
    if not best:
        if verdict.controls == "no shared patient":
            return "; no control has a patient in common with it"
        reason = notes.get(CLINICAL)
        return f"; no control was made: {reason}" if reason else "; no control was run"
    several = len(result.versus_controls) > 1
    strongest = result.versus_controls[best.strongest]
    weak = "itself no better than chance; " if verdict.best_is_weak else ""
    columns = notes.get(f"{CLINICAL}_columns") if best.strongest == CLINICAL else None
    named = f"{columns}; " if columns else ""
    figures = f"{named}{weak}{_difference(strongest, result.n)}"
    if verdict.controls == "better" and several:
        least = (
            f"; least against {best.least}, two-sided {p_value(best.p)}, {adjusted_p(best.p_adjusted)}"
            if best.least != best.strongest
            else ""
        )
        return f", and than every control (strongest: {best.strongest}; {figures}{least})"
    if verdict.controls == "better":
        return f", and than {best.strongest} ({figures})"
    if verdict.controls == "not the least":
        doubted = [name for name, test in result.versus_controls.items() if not agrees(test)]
        least = doubted[0] if best.beaten else best.least
        why = _difference(result.versus_controls[least], result.n)
        return f", and than the strongest control, {best.strongest} ({figures}), but not than {least} ({why})"
    alone = strongest.difference > 0 and agrees(strongest) and strongest.p_adjusted <= ALPHA < best.p_adjusted
    decides = f"; to beat every control, which decides, {adjusted_p(best.p_adjusted)}" if alone else ""
    return f", but not than {'the strongest control, ' * several}{best.strongest} ({figures}{decides})"


def confounded(result: Result) -> str:
    """A result that is there between sites and not within them."""
    found = result.within_sites
    if not found:
        return ""
    return (
        f"warning: it may be confounded by the site: among patients of one site it is {number(found.value)}, "
        f"one-sided {p_value(found.p)}, not adjusted"
    )


def site_told(result: Result) -> str:
    """What it means that the model's CLS vector predicts the site: less where the result is there among patients of one site."""
    found = result.within_sites
    if not found or found.p > ALPHA:
        return SITE
    figures = f"{symbol(result)} {number(found.value)}, one-sided {p_value(found.p)}, not adjusted"
    return f"the model's CLS vector predicts the site, but the result holds among patients of one site ({figures})"


def too_good(verdict: Verdict) -> str | None:
    """Why a result asks for a check before it is believed."""
    if not verdict.too_good:
        return None
    return f"too good to be believed unchecked: {TOO_GOOD[verdict.too_good]}; look for a leak or the label among the columns"


def rules() -> list[str]:
    """The rules in plain words, as the report prints them."""
    return [
        f"A result is not judged with fewer than {FEWEST} patients of the rarer class (or {FEWEST} deaths), where no fold holds "
        "two patients to compare, or where its interval is undefined: “cannot be judged”, with the reason.",
        "What is judged is the AUC, or Harrell's C, of pairs of patients within a fold, mean over repeats. Its test allows for "
        "refitting: every patient taught the models that scored the others, so that scores of nothing scatter more than their "
        "usual error says. Regressions were fitted again on labels permuted within the folds of the first repeat, unless the "
        "permutations are too few to decide; networks are too slow for that, and for “worse” permutations end too soon: there "
        "the standard error is multiplied by c = √(2 (1 − 1/K + 1/(K R))) for K folds and R repeats, √2 for one repeat. For "
        "patients who taught no model (an evaluation on another cohort) c is 1. Each result says which test it got.",
        f"“Better than chance”: the one-sided p of so high a value, corrected by Holm's method, is at most {ALPHA}. “Worse than "
        "chance”: that of so low a value is; it is no proof of flipped labels (Parker et al. 2007). Else: “indistinguishable "
        "from chance”. The p alone decides.",
        "The interval shown first is Wilson's, and the normal one where many effective patients are on the wrong side, with the "
        "larger of DeLong's and Newcombe's variance (for C: the infinitesimal jackknife's), times 1 + 4 a (1 − a) where models "
        "were refitted, a the value. DeLong's and other intervals of the given scores are in the table of all measures.",
        "A model that is better than chance is held against every control by a paired test of the difference of what is judged "
        "(DeLong's within folds for an AUC, the infinitesimal jackknife for C; standard errors times c). It beats the controls "
        f"when the largest of the two-sided p is at most {ALPHA} after Holm's correction over endpoints and candidates; the "
        "verdict names the strongest control. Where this is itself no better than chance, the verdict says so: to beat it then "
        "means little more than to beat chance. Over several "
        f"repeats the corrected resampled t-test (Nadeau and Bengio) must have a one-sided p of at most {ALPHA} as well.",
        f"A comparator is better or worse than the study's own model ({OWN}) when the adjusted two-sided p of the same paired "
        f"test, here of the two models, is at most {ALPHA}, and over several repeats the corrected resampled t-test agrees; else "
        "no difference is shown, which does not mean that the two are equal.",
        "Every p in a verdict is corrected by Holm's method: that against chance over all endpoints and candidates, "
        "for the controls over endpoints and controls, for permuted labels over their endpoints; that against the controls over "
        "all endpoints and candidates; and that against the study's own model over all endpoints and comparators.",
        "Where the table names sites, a result that is better than chance over all patients and not among patients of one site "
        f"(one-sided p over {ALPHA}, not adjusted) may be confounded by the site.",
        "Labels may leak where the model finds permuted labels again: where for one endpoint of E the one-sided p is at most "
        "√(0.01/E), and then also on a second, fresh permutation; or where every threshold of the permuted control is the best "
        "of its own test fold. The two permutations accuse at most 1 % of honest studies. Below chance is no sign of a leak.",
    ]


def _how(result: Result) -> str:
    test = result.chance_test
    first = " in the first repeat" if test.method == "refitted" and len(result.repeats) > 1 else ""
    return METHODS[test.method] + (f" {test.draws:,} times" if test.draws else "") + first


def _difference(test: Comparison, n: int) -> str:
    """The difference from another model and its p, and on how many patients where it is not on all."""
    said = f"difference {signed(test)}, two-sided {p_value(test.p)}, {adjusted_p(test.p_adjusted)}"
    if test.nadeau_bengio:
        said += f"; corrected resampled t-test, one-sided {p_value(test.nadeau_bengio.p)}"
    return f"{said}; on {test.n} of {n} patients" if test.n < n else said

"""The verdict on a model in words: a sentence, a card of the first screen, and how it compares with its comparators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mri_vit.metrics.within_fold import CHANCE
from mri_vit.report.schema.kinds import Numbers
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.schema.metrics import Card, Tick
from mri_vit.report.schema.parts import OWN, Comparators, Comparison
from mri_vit.report.verdicts import (
    ALPHA_BELOW,
    MIN_PROBABILITY_GAP,
    MIN_RARER_GROUP,
    NEAR_CHANCE,
    PERFECT_DISCRIMINATION,
    Sides,
    TooGood,
    Unjudged,
    Verdict,
    agrees,
)
from mri_vit.report.words import of_kind
from mri_vit.report.words.endpoint_results import less_within
from mri_vit.report.words.notation import (
    CHANCE_TESTS,
    adjusted_p,
    ends,
    interval,
    is_defined,
    is_known,
    listed,
    number,
    p_value,
    signed,
)
from mri_vit.settings.recipe import CLINICAL, INTENSITY, SITE, SLICES, VOLUME

# Parker et al. 2007, doi:10.1186/1471-2105-8-326: without a signal, cross-validated scores fall below 0.5 more than by chance.
BELOW = "without a signal, cross-validation often gives less than 0.5; if there is a signal for certain, check for flipped labels"
ALIKE = "warning: all scores are equal, so the model does not distinguish the patients"
LEAK = (
    "labels may leak: a network trained on permuted labels predicted them, or was judged at thresholds chosen on its test "
    "patients; this endpoint is not judged until the cause is known"
)
SITE_WARNING = "warning: the model's CLS vector predicts the site, so the model may use the site as a shortcut"
TOO_GOOD: Mapping[TooGood, str] = {
    "truth": "the scores reproduce the labels exactly",
    "gap": f"the probabilities of the two classes are at least {MIN_PROBABILITY_GAP:g} apart, "
    "as in patients that a model was trained on",
    "control": f"the result is at least {PERFECT_DISCRIMINATION:g} and every control is at most {NEAR_CHANCE:g}",
    "alone": f"the result is at least {PERFECT_DISCRIMINATION:g} and no control was compared",
}


def verdict_sentence(result: Numbers, verdict: Verdict, notes: Mapping[str, str]) -> str:
    """The verdict on a model; `notes` are those of the run."""
    sentence = against_chance(result, verdict)
    sentence += f"; {ALIKE}" if verdict.is_tied else ""
    sentence += against_controls(result, verdict, notes) if verdict.controls else ""
    sentence += f"; {confounded(result)}" if verdict.confounded else ""
    sentence += f"; {site_told(result)}" if verdict.tells_site else ""
    sentence += f"; warning: {too_good(verdict)}" if verdict.too_good else ""
    return f"{LEAK} ({sentence})" if verdict.leaks else sentence


def against_chance(result: Numbers, verdict: Verdict) -> str:
    """Better or worse than chance, indistinguishable from it, or why it cannot be judged, with the figures that say so."""
    if verdict.unjudged:
        about = ", ".join(filter(None, [f"n = {result.n}", result.tally]))
        return f"cannot be judged: {why_unjudged(result, verdict.unjudged)} ({about})"
    test = result.chance_test
    below = test.value < CHANCE
    p, adjusted = (test.p_below, test.p_below_adjusted) if below else (test.p, test.p_adjusted)
    low = " for a value below chance" if below else ""
    how = CHANCE_TESTS["within folds"] if below and test.method == "refitted" else _how(result)
    figures = f"{result.symbol} {interval(result.judged)}, one-sided test{low}, {how}, {p_value(p)}, {adjusted_p(adjusted)}"
    if retraining := result.retraining:
        unit = {"repeats": "training", "seeds": "single network"}[retraining.source]  # the score of several seeds is their mean
        figures += f"; another {unit} is expected in {ends(retraining.low, retraining.high)}"
    return {
        "better": f"better than chance ({figures})",
        "chance": f"no evidence that it beats chance ({figures})",
        "worse": f"worse than chance ({figures}): {BELOW}",
        "undefined": "",
    }[verdict.against_chance]


def why_unjudged(result: Numbers, reason: Unjudged) -> str:
    """Why a result is not judged, in the words of its kind."""
    return of_kind.of_result(result).unjudged[reason]


def against_controls(result: Numbers, verdict: Verdict, notes: Mapping[str, str]) -> str:
    """What follows "better than chance" for a compared model: the strongest control, and whether it and all others are beaten.

    A control that is itself at or below chance is said to be: to beat it then says no more than to beat chance.
    """
    best = result.versus_best
    if not best:
        if verdict.controls == "no shared patient":
            return "; no control predicted the same patients"
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
            f"; smallest margin over {best.least}, two-sided {p_value(best.p)}, {adjusted_p(best.p_adjusted)}"
            if best.least != best.strongest
            else ""
        )
        return f", and better than every control (strongest: {best.strongest}; {figures}{least})"
    if verdict.controls == "better":
        return f", and better than {best.strongest} ({figures})"
    if verdict.controls == "not the least":
        doubted = [name for name, test in result.versus_controls.items() if not agrees(test)]
        least = doubted[0] if best.beaten else best.least
        why = _difference(result.versus_controls[least], result.n)
        return f", and better than the strongest control, {best.strongest} ({figures}), but not shown to beat {least} ({why})"
    alone = strongest.difference > 0 and agrees(strongest) and strongest.p_adjusted <= ALPHA < best.p_adjusted
    decides = f"; beating every control decides: {adjusted_p(best.p_adjusted)}" if alone else ""
    return f", but not shown to beat {'the strongest control, ' * several}{best.strongest} ({figures}{decides})"


def confounded(result: Numbers) -> str:
    """A result that is there between sites and not within them."""
    sites = result.within_sites
    if not sites:
        return ""
    return (
        f"warning: the site may confound this result: within sites it is {number(sites.value)}, "
        f"one-sided {p_value(sites.p)}, not adjusted{less_within(sites)}"
    )


def site_told(result: Numbers) -> str:
    """What it means that the model's CLS vector predicts the site: less where the result is there among patients of one site."""
    sites = result.within_sites
    if not sites or sites.p > ALPHA:
        return SITE_WARNING
    figures = f"{result.symbol} {number(sites.value)}, one-sided {p_value(sites.p)}, not adjusted"
    return f"the model's CLS vector predicts the site, but the result holds within sites ({figures})"


def probabilities(result: Numbers, verdict: Verdict) -> str | None:
    """Whether a result's probabilities beat one number, or one curve, for all patients; ranks may be good where they do not.

    None where there are none, or where the result is not judged.
    """
    if verdict.kind == "undefined":
        return None
    words = of_kind.of_result(result)
    if not (scaled := words.scaled(result)) or not is_known(scaled) or not is_defined(scaled.low):
        return None
    what, same, figures = words.predicted, words.same, f"{words.gain()} {interval(scaled, digits=2)}"
    if scaled.low > 0:
        return f"{what} are better than {same} for every patient: {figures}; 0 is no gain, 1 perfect"
    if scaled.high < -OWN_SHARE / result.n:
        return f"{what} are worse than {same} for every patient: {figures}; 0 is no gain, 1 perfect"
    below = words.below if scaled.value < 0 else ""
    return f"No evidence that {what.lower()} are better than {same} for every patient: {figures}; that includes 0, no gain{below}"


def too_good(verdict: Verdict) -> str | None:
    """Why a result asks for a check before it is believed."""
    if not verdict.too_good:
        return None
    return (
        f"too good to believe without checks: {TOO_GOOD[verdict.too_good]}; look for a leak, or for the label among the columns"
    )


def verdict_rules() -> list[str]:
    """The rules in plain words, as the report prints them."""
    return [
        f"A result is not judged with fewer than {MIN_RARER_GROUP} patients of the rarer class (or {MIN_RARER_GROUP} deaths), "
        "when no fold has two patients to compare, or when its interval is undefined. The verdict is then “cannot be judged”, "
        "with the reason.",
        "The judged value is the AUC or Harrell's C, of classes M, of grades and numbers the generalised C, over pairs of "
        "patients within a fold, averaged over repeats. Its test is "
        "corrected for refitting: every patient is used to train the models that score the others, so scores without a signal "
        "vary more than their usual standard error. Regressions are refitted to labels permuted within the folds of the first "
        "repeat, unless the permutations are too few to decide. Networks take too long to refit, and permutations stop too early "
        "to show “worse than chance”: in both cases the standard error is multiplied by c = √(2 (1 − 1/K + 1/(K R))) for K folds "
        "and R repeats (√2 for one repeat). For patients not used for training (an evaluation on another cohort) c is 1. "
        "Each result names its test.",
        f"“Better than chance”: the one-sided p for a value above chance, corrected by Holm's method, is at most {ALPHA}. “Worse "
        f"than chance”: the one-sided p for a value below chance, corrected likewise, is at most {ALPHA_BELOW}; this does not "
        "prove that labels are flipped (Parker et al. 2007). Otherwise: “no evidence that it beats chance”. Only the p decides.",
        "The interval shown first is Wilson's with an effective number of patients; where many of these count as ranked wrongly, "
        "the normal interval replaces it. It uses the larger of DeLong's and Newcombe's variance (for C: the variance of the "
        "infinitesimal jackknife), multiplied by 1 + 4 a (1 − a) where models were refitted; a is the value. The intervals in "
        "the table of all measures allow for refitting too, but for rates at a threshold, O:E and the intercept.",
        "Whether probabilities are better than no model is said beside the verdict and does not change it: by the scaled Brier "
        "score, 1 less the Brier score over that of the same probability (or survival curve) for every patient, and its 95 % "
        "interval. A model may rank patients well and give poor probabilities.",
        "A model that is better than chance is compared with every control by a paired test of the judged value (DeLong's within "
        "folds for an AUC, the infinitesimal jackknife for C; standard errors times √(1 + (c² − 1) 4 a (1 − a)), a the mean of "
        "both values). It beats the controls when the largest "
        f"two-sided p is at most {ALPHA} after Holm's correction over endpoints and compared models. The verdict names the "
        "strongest control and says when that control is itself no better than chance: beating it then means little more than "
        f"beating chance. With several repeats the corrected resampled t-test (Nadeau and Bengio) must also have a one-sided "
        f"p of at most {ALPHA}.",
        f"A comparator is better or worse than the study's own model ({OWN}) when the adjusted two-sided p of the same paired "
        f"test between the two models is at most {ALPHA} and, with several repeats, the corrected resampled t-test agrees. "
        "Otherwise no difference is shown, which does not mean that the two are equal.",
        "Every p in a verdict is corrected by Holm's method: against chance over all endpoints and compared models, for the "
        "controls over endpoints and controls, for permuted labels over their endpoints; against the controls over all endpoints "
        "and compared models; and against the study's own model over all endpoints and comparators.",
        "Where the table names sites, the site may confound a result that is better than chance over all patients if the value "
        f"over pairs of patients of one site is shown to be less (paired, two-sided p at most {ALPHA}) and is itself no better "
        f"than chance (one-sided p over {ALPHA}); neither p is adjusted.",
        "Labels may leak if the model predicts permuted labels: for one endpoint of E the one-sided p is at most √(0.01/E), and "
        "again on a second, fresh permutation; or if every threshold of the permuted control is the best one for its own test "
        "fold. With two permutations at most 1 % of studies without a leak raise a false alarm. A result "
        "below chance is no sign of a leak.",
    ]


def _how(result: Numbers) -> str:
    test = result.chance_test
    first = " in the first repeat" if test.method == "refitted" and len(result.repeats) > 1 else ""
    return CHANCE_TESTS[test.method] + (f" {test.draws:,} times" if test.draws else "") + first


def _difference(test: Comparison, n: int, of: str = "") -> str:
    """The difference, `of` what if that is named, with its interval and p, and on how many patients if not on all `n`."""
    figures = f"difference{of} {signed(test)}, two-sided {p_value(test.p)}"
    figures += f", {adjusted_p(test.p_adjusted)}"
    if test.nadeau_bengio:
        figures += f"; corrected resampled t-test, one-sided {p_value(test.nadeau_bengio.p)}"
    return f"{figures}; on {test.n} of {n} patients" if test.n < n else figures


# The one probability is that of these very patients, which is worth (2 K - 1) / (K - 1) of n patients beside one that is learned
# in the other of K folds: 3 at most, of two folds.
OWN_SHARE = 3
INPUTS = {  # what a control reads, as the end of "not shown to beat …"
    CLINICAL: "clinical columns alone",
    VOLUME: "brain and tumour volume alone",
    INTENSITY: "brightness alone",
    SLICES: "2D features of slices alone",
    SITE: "the site alone",
}
NOT_BETTER = "tested only where the result beats chance"


def card(model: str, result: Numbers, verdict: Verdict) -> Card:
    """The card of an endpoint from its model's result."""
    return Card(
        model=model,
        verdict=card_headline(result, verdict),
        beats_controls=_beats_controls(result, verdict),
        holds_in_sites=_holds_in_sites(result, verdict),
    )


def card_headline(result: Numbers, verdict: Verdict) -> str:
    """The verdict in a few words; doubts about a result come before what supports it."""
    if verdict.leaks:
        return "Labels may leak: not judged"
    if verdict.unjudged:
        return of_kind.of_result(result).unjudged_short[verdict.unjudged]
    if verdict.against_chance == "worse":
        return "Worse than chance"
    if verdict.against_chance == "chance":
        return "No evidence that it beats chance"
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
    return f"Better than chance, not shown to beat {INPUTS.get(doubted, doubted)}"


def _beats_controls(result: Numbers, verdict: Verdict) -> Tick:
    best = result.versus_best
    if verdict.kind != "better":
        return Tick(holds=None, words=NOT_BETTER)
    if not best:
        return Tick(holds=None, words="no control was compared")
    if verdict.controls == "better":
        weak = "; the strongest is not shown to beat chance itself, so that says little" if verdict.best_is_weak else ""
        return Tick(holds=True, words=f"{len(result.versus_controls)} compared{weak}")
    doubted = best.least if verdict.controls == "not the least" else best.strongest
    return Tick(holds=False, words=f"not shown to beat {INPUTS.get(doubted, doubted)}")


def _holds_in_sites(result: Numbers, verdict: Verdict) -> Tick:
    """Better than chance among patients of one site, and no site is shown to be worse than the others.

    Undecided where neither that nor the site's part is shown: pairs within a site are few.
    """
    sites = result.within_sites
    if verdict.kind != "better":
        return Tick(holds=None, words=NOT_BETTER)
    if not sites:
        return Tick(holds=None, words="fewer than two sites are known")
    where = f"{result.symbol} {number(sites.value, 2)} within {sites.sites} sites"
    if verdict.confounded:
        return Tick(holds=False, words=f"{where}, less than over all")
    if sites.p > ALPHA:
        return Tick(holds=None, words=f"{where}: too few pairs to tell")
    if sites.worse:
        more = " …" * (len(sites.worse) > WORSE_SITES)
        return Tick(holds=False, words=f"{where}; worse in {', '.join(sites.worse[:WORSE_SITES])}{more}")
    alike = f"; none of {sites.compared_sites} shown to be worse than the others" if sites.compared_sites > 1 else ""
    return Tick(holds=True, words=f"{where}{alike}")


WORSE_SITES = 3  # that a card names
IN_FULL = 3  # models of one side that are given with their figures; the table beside has them all
NAMED = 8  # models of one side that are named at all


def comparators(sides: Sides, models: Mapping[str, Numbers], verdicts: Mapping[str, Verdict]) -> Comparators:
    """The comparators of an endpoint as `metrics.json` has them."""
    if sides.leaks:
        return Comparators(better=(), worse=(), sentence=f"{OWN} is not compared with its comparators, because labels may leak")
    if sides.unjudged:
        reason = why_unjudged(next(iter(models.values())), sides.unjudged)
        sentence = f"{OWN} is not compared with its comparators, because it cannot be judged: {reason}"
        return Comparators(better=(), worse=(), sentence=sentence)
    return Comparators(better=sides.better, worse=sides.worse, sentence=_comparators_sentence(sides, models, verdicts))


def _comparators_sentence(sides: Sides, models: Mapping[str, Numbers], verdicts: Mapping[str, Verdict]) -> str:
    """Who beats the study's own model, whom it beats, and of how many nothing can be said; differences are of who is better."""
    tests = {model: result.versus_own for model, result in models.items() if result.versus_own}
    parts = []
    if sides.better:
        models_better = []
        for model in sides.better[:IN_FULL]:
            unproven = "" if verdicts[model].kind == "better" else "; itself not better than chance"
            models_better.append(f"{model} ({_measured_difference(tests[model], models[model])}{unproven})")
        parts.append(f"{_named(models_better, sides.better)} {'is' if len(sides.better) == 1 else 'are'} better than {OWN}")
    if sides.worse:
        models_worse = [
            f"{model} ({_measured_difference(turned(tests[model]), models[model])})" for model in sides.worse[:IN_FULL]
        ]
        parts.append(f"{OWN} is better than {_named(models_worse, sides.worse)}")
    if alike := sides.alike:
        nearest = min(alike, key=lambda model: tests[model].p_adjusted)
        least = f"smallest {adjusted_p(tests[nearest].p_adjusted)}{f', {nearest}' * (len(alike) > 1)}"
        parts.append(f"{OWN} does not differ significantly from {_counted_comparators(len(alike), bool(parts))} ({least})")
    if sides.undefined:
        parts.append(f"{len(sides.undefined)} could not be tested")
    return "; ".join(parts)


def _counted_comparators(count: int, among_others: bool) -> str:
    """the other comparator, any of its 5 comparators"""
    if count == 1:
        return "the other one" if among_others else "its comparator"
    return f"any of {'the other' if among_others else 'its'} {count} comparators"


def _named(described: Sequence[str], side: Sequence[str]) -> str:
    """The first as they are described, the next by name, the rest as a number."""
    words = [*described, *side[IN_FULL:NAMED]] + ([f"{len(side) - NAMED} more"] if len(side) > NAMED else [])
    return listed(words)


def turned(test: Comparison) -> Comparison:
    """The same comparison from the other side."""
    fold_by_fold = test.nadeau_bengio
    turned = {
        "difference": -test.difference,
        "low": -test.high,
        "high": -test.low,
        "nadeau_bengio": fold_by_fold and dict(fold_by_fold) | {"p": 1 - fold_by_fold.p},
    }
    return Comparison.model_validate(dict(test) | turned)


def _measured_difference(test: Comparison, result: Numbers) -> str:
    return _difference(test, result.n, f" of {result.symbol}")

"""Instability and sets with a guarantee in words: the finding first, the number behind it, then what it means."""

from __future__ import annotations

from collections.abc import Callable

from mri_vit.metrics.conformal import MIN_SITES
from mri_vit.report.numbers.instability import InstabilityFigures
from mri_vit.report.numbers.prediction_sets import MIN_SITE, Absent, SetFigures
from mri_vit.report.schema.instability import Answer, Instability, PredictionSets, Retrained, Scale, SiteCoverage
from mri_vit.report.schema.parts import Design, Kind
from mri_vit.report.words.hospitals import noun
from mri_vit.report.words.notation import adjusted_p, counted, is_defined, listed, number, percent

DIFFER = {  # trainings in, and what follows
    "repeats": (
        "with other folds and seeds",
        "These trainings share most of their patients: training on others would change more.",
    ),
    "seeds": ("of the same patients with another seed", "Training on other patients would change more."),
}
IN_GROUPS = ("put a patient into different risk groups", "put into the same risk group")  # of survival
ONE_TRAINING = {  # why nothing can be said
    "cross-validation": "Each patient was predicted by one training, so it is not known how far another one would move a "
    "prediction: set train.repeats or train.seeds to 3 or more.",
    "external": "Each patient has one prediction, the mean over the run's networks: how far a training moves it is in the run's "
    "own report.",
    "table": "The table has one prediction of each patient and model, so it is not known how far another training would move it: "
    "a column repeat holds those of several trainings.",
    "held-out": "The table has one prediction of each patient and model, so it is not known how far another training would move "
    "it.",
}
CENSORED = (
    "No sets with a guarantee: of censored patients it is not known whether a set held what came, and a guarantee would rest on "
    "an assumption about censoring."
)


def one_training(design: Design) -> str:
    """Why there is no figure of instability."""
    return ONE_TRAINING[design]


def instability(found: InstabilityFigures) -> Instability:
    """The figures with their sentences."""
    return Instability(**vars(found), sentences=tuple(_instability(found)))


def _instability(found: InstabilityFigures) -> list[str]:
    write, (how, but) = _written(found.scale, found.unit), DIFFER[found.source]
    share = f"{percent(found.mape / found.at_random)} of " if found.at_random > 0 else ""
    beside = (
        f", which is {share}the distance between two patients ({write(found.at_random)})" if is_defined(found.at_random) else ""
    )
    sentences = [
        f"When the model is trained again, a patient's {what(found.scale, found.days)} changes by {write(found.mape)} on average"
        f"{beside}. This is Riley and Collins' mean absolute prediction error, MAPE, of {found.trainings} trainings {how}."
    ]
    if is_defined(found.disagreement):
        put, alike = IN_GROUPS if found.scale in ("survival", "rank") else ("call a patient differently", "called alike")
        sentences.append(
            f"Two trainings {put} in {percent(found.disagreement)} of cases, against {percent(found.disagreement_at_random)} for "
            f"two patients of one training; {found.divided} of {counted(found.n, 'patient')} are not {alike} by all trainings."
        )
    order = f"; the rank correlation of two trainings is {number(found.rank_agreement, 2)}"
    sentences.append(
        f"The median change is {write(found.median)}, and one patient in ten changes by more than {write(found.ninth_decile)}"
        f"{order if is_defined(found.rank_agreement) else ''}. Of a single patient {counted(found.trainings, 'training')} give "
        f"the change with a standard error of about {percent(found.relative_error)}. {but}"
    )
    return sentences


def what(scale: Scale, days: float, unit: str = "") -> str:
    """What is predicted on this scale."""
    return {
        "probability": "probability",
        "score": "score",
        "number": f"predicted number ({unit})" if unit else "predicted number",
        "survival": f"event-free probability at {days:.0f} days",
        "rank": "rank within the fold (0 to 1)",
    }[scale]


def _written(scale: Scale, unit: str) -> Callable[[float], str]:
    if scale == "number":
        return lambda value: f"{value:.3g}{f' {unit}' if unit else ''}"
    return lambda value: number(value, 3)


def prediction_sets(found: SetFigures, verdict: Kind) -> PredictionSets:
    """The figures with their sentences; `verdict` is that on the model."""
    sentences = (_of_numbers if is_defined(found.reach) else _of_classes)(found, verdict)
    return PredictionSets(**vars(found), sentences=(*sentences, *_sites(found)))


def absent_sets(absent: Absent) -> str:
    """Why there are no sets."""
    if absent is None:
        return CENSORED
    of = f" of the class {absent.name}" if absent.name else ""
    return (
        f"No sets with a guarantee: there {'is' if absent.n == 1 else 'are'} {counted(absent.n, 'patient')}{of} to compare with, "
        f"and {absent.needed} are needed before anything can be ruled out nine times in ten."
    )


UNPROVEN = "The model is not shown to beat chance, so a single answer says no more than a guess. "


def _of_classes(found: SetFigures, verdict: Kind) -> list[str]:
    right = f", and is right in {found.right} of these ({percent(found.right / found.answered)})" if found.answered else ""
    left = {"several classes remain": found.n - found.answered - found.none, "no class fits": found.none}
    others = listed([f"in {n} {what}" for what, n in left.items() if n])
    luck = f", of which {percent(found.right_without_skill)} are right" if is_defined(found.right_without_skill) else ""
    return [
        f"The model gives a single answer for {found.answered} of {counted(found.n, 'patient')} "
        f"({percent(found.answered / found.n)}){right}, where the right class has to be kept in {percent(found.level)} of the "
        f"patients of each class.{f' It gives none for the others: {others}.' if others else ''}",
        ("" if verdict == "better" else UNPROVEN)
        + f"A model without skill gives one for {percent(found.answered_without_skill)}{luck}.",
        _guarantee(found, "the right class", "sets"),
    ]


def _of_numbers(found: SetFigures, verdict: Kind) -> list[str]:
    form = "a factor of {:.3g}" if found.times else "± {:.3g}"
    own, mean = (form.format(value) for value in (found.reach, found.reach_without_skill))
    return [
        f"For {percent(found.level)} of patients the number lies within {own} of the prediction, and within {mean} of the "
        f"training patients' mean.{'' if verdict == 'better' else ' The model is not shown to beat chance.'}",
        _guarantee(found, "the number", "intervals"),
    ]


def _guarantee(found: SetFigures, right: str, of: str) -> str:
    if found.calibrated_on == "other sites":
        return (
            f"Each patient is compared with those of other {noun(found.column)}s, as the first patients of a new one would be. "
            f"Nothing guarantees then that the {of} hold {right}; the table shows how often they did."
        )
    rarest = "" if is_defined(found.reach) else " of the rarest class"
    return (
        f"Over these patients the {of} hold {right} in at least {percent(found.level)} by construction, as each is compared with "
        f"all others; only a part of them, such as a {noun(found.column)}, can show a fault. Of new patients"
        f"{rarest} they hold it in {percent(found.new_low)} to {percent(found.new_high)}, in 95 % of cohorts of this size."
    )


def _sites(found: SetFigures) -> list[str]:
    if not found.sites:
        return []
    place = noun(found.column)
    small = f" {counted(found.small_sites, place)} with fewer than {MIN_SITE} patients left out." if found.small_sites else ""
    if below := [site for site in found.sites if site.below]:
        return [f"The share is shown to be lower than in the other {place}s in {listed([_site(site) for site in below])}.{small}"]
    least = min(found.sites, key=lambda site: site.covered / site.n)
    if any(is_defined(site.p) for site in found.sites):
        return [f"In no {place} is the share shown to be lower than in the others; the lowest is that of {_site(least)}.{small}"]
    return [f"The lowest share is that of {_site(least)}; fewer than {MIN_SITES} {place}s are not tested.{small}"]


def _site(site: SiteCoverage) -> str:
    p = f", {adjusted_p(site.p_adjusted)}" if is_defined(site.p) else ""
    return f"{site.site} ({site.covered} of {site.n}, {percent(site.covered / site.n)}{p})"


def range_in_words(found: Retrained, of: Instability) -> str:
    """0.31 to 0.62 in 5 trainings, 4 of which say positive."""
    write = _written(of.scale, of.unit) if of.scale == "number" else (lambda value: number(value, 2))
    shown = {"rank": "rank ", "survival": f"{what('survival', of.days)} "}.get(of.scale, "")
    alike = f", {found.alike} of which say {found.called}" if found.called else ""
    return f"{shown}{write(found.low)} to {write(found.high)} in {found.trainings} trainings{alike}"


def answer_in_words(answer: Answer) -> str:
    """The set: positive; no answer: negative or positive; no answer: none fits; 41 to 63."""
    if is_defined(answer.low):
        return f"{answer.low:.3g} to {answer.high:.3g}"
    if len(answer.classes) == 1:
        return answer.classes[0]
    return f"no answer: {' or '.join(answer.classes) or 'none fits'}"

"""Instability and sets with a guarantee in words: the finding first, the number behind it, then what it means."""

from __future__ import annotations

from collections.abc import Callable

from mri_vit.report.numbers.instability import InstabilityFigures
from mri_vit.report.numbers.prediction_sets import MIN_SITE, Absent, SetFigures
from mri_vit.report.schema.instability import Answer, Instability, PredictionSets, Retrained, Scale, SiteCoverage
from mri_vit.report.schema.parts import Design, Kind
from mri_vit.report.words.notation import adjusted_p, counted, is_defined, listed, number, percent

DIFFER = {  # trainings in, and what follows
    "repeats": (
        "with other folds and seeds",
        "These trainings share most of their patients: training on others would change more.",
    ),
    "seeds": ("of the same patients with another seed", "Training on other patients would change more."),
}
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
    share = f"; two patients differ by {write(found.at_random)}" if is_defined(found.at_random) else ""
    share += f", so that is {percent(found.mape / found.at_random)}" if found.at_random > 0 else ""
    sentences = [
        f"When the model is trained again, a patient's {what(found.scale, found.days)} changes by {write(found.mape)} on average "
        f"(MAPE of {found.trainings} trainings {how}){share}."
    ]
    if is_defined(found.disagreement):
        sentences.append(
            f"Two trainings call a patient differently in {percent(found.disagreement)} of cases, where two patients are called "
            f"differently in {percent(found.disagreement_at_random)}; {found.divided} of {counted(found.n, 'patient')} are not "
            "called alike by all trainings."
        )
    order = f", and the order of the patients is kept by a rank correlation of {number(found.rank_agreement, 2)}"
    sentences.append(
        f"The median change is {write(found.median)}, that of one patient in ten more than {write(found.ninth_decile)}"
        f"{order if is_defined(found.rank_agreement) else ''}. One patient's own change is rough: from {found.trainings} "
        f"trainings it is known to ± {percent(found.relative_error)}. {but}"
    )
    return sentences


def what(scale: Scale, days: float, unit: str = "") -> str:
    """What is predicted on this scale."""
    return {
        "probability": "probability",
        "score": "score",
        "number": f"predicted number ({unit})" if unit else "predicted number",
        "survival": f"event-free probability at {days:.0f} days",
        "rank": "rank within the fold, 0 to 1,",
    }[scale]


def _written(scale: Scale, unit: str) -> Callable[[float], str]:
    if scale == "number":
        return lambda value: f"{value:.3g}{f' {unit}' if unit else ''}"
    return lambda value: number(value, 3)


def prediction_sets(found: SetFigures, verdict: Kind) -> PredictionSets:
    """The figures with their sentences; `verdict` is that on the model."""
    sentences = _of_classes(found, verdict) if found.classes else _of_numbers(found, verdict)
    return PredictionSets(**vars(found), sentences=(*sentences, *_sites(found)))


def absent_sets(absent: Absent) -> str:
    """Why there are no sets."""
    if absent is None:
        return CENSORED
    of = f" of {absent.name}" if absent.name else ""
    return (
        f"No sets with a guarantee: there {'is' if absent.n == 1 else 'are'} {counted(absent.n, 'patient')}{of} to compare with, "
        f"and {absent.needed} are needed before anything can be ruled out nine times in ten."
    )


UNPROVEN = "The model is not shown to beat chance: one answer says no more than a guess. "


def _of_classes(found: SetFigures, verdict: Kind) -> list[str]:
    several = found.n - found.answered - found.none
    luck = f", {percent(found.right_without_skill)} of them right by luck" if is_defined(found.right_without_skill) else ""
    return [
        f"If the right class has to be kept in {percent(found.level)} of the patients of each class, the model has one answer "
        f"for {found.answered} of {counted(found.n, 'patient')} ({percent(found.answered / found.n)}), right in {found.right}. "
        f"It has no answer for the others: in {several} several classes remain, in {found.none} none fits.",
        ("" if verdict == "better" else UNPROVEN)
        + f"A model without skill has one answer for {percent(found.answered_without_skill)}{luck}.",
        _guarantee(found, "its class", "set"),
    ]


def _of_numbers(found: SetFigures, verdict: Kind) -> list[str]:
    form = "a factor of {:.3g}" if found.times else "± {:.3g}"
    own, mean = (form.format(value) for value in (found.reach, found.reach_without_skill))
    return [
        f"For {percent(found.level)} of patients the number lies within {own} of the prediction; within {mean} of the training "
        f"patients' mean.{'' if verdict == 'better' else ' The model is not shown to beat chance.'}",
        _guarantee(found, "the number", "interval"),
    ]


def _guarantee(found: SetFigures, right: str, of: str) -> str:
    if found.calibrated_on == "other sites":
        return (
            "Each patient is compared with those of other sites, as the first patients of a new hospital would be. That the "
            f"{of} holds {right} is no guarantee then; the table shows how often it did."
        )
    return (
        f"The guarantee is that the {of} of a patient like these holds {right} in at least {percent(found.level)}, on average "
        "over cohorts. Each patient is compared with all others out of fold, so the share over this whole cohort is so by "
        "construction: only its parts can show a fault."
    )


def _sites(found: SetFigures) -> list[str]:
    if not found.sites:
        return []
    small = f" {counted(found.small_sites, 'site')} with fewer than {MIN_SITE} patients left out." if found.small_sites else ""
    if below := [site for site in found.sites if site.below]:
        return [f"The share is shown to be lower than in the other sites in {listed([_site(site) for site in below])}.{small}"]
    least = min(found.sites, key=lambda site: site.covered / site.n)
    if any(is_defined(site.p) for site in found.sites):
        return [f"No site is shown to have less than the others; the least is {_site(least)}.{small}"]
    return [f"The least has {_site(least)}; sites are not tested: of fewer than four with a model each nothing is shown.{small}"]


def _site(site: SiteCoverage) -> str:
    p = f", {adjusted_p(site.p_adjusted)}" if is_defined(site.p) else ""
    return f"{site.site} ({site.covered} of {site.n}, {percent(site.covered / site.n)}{p})"


def range_in_words(found: Retrained, of: Instability) -> str:
    """0.31 to 0.62 in 5 trainings, 4 of which say positive."""
    write = _written(of.scale, of.unit) if of.scale == "number" else (lambda value: number(value, 2))
    shown = {"rank": "rank ", "survival": f"alive after {of.days:.0f} days "}.get(of.scale, "")
    alike = f", {found.alike} of which say {found.called}" if found.called else ""
    return f"{shown}{write(found.low)} to {write(found.high)} in {found.trainings} trainings{alike}"


def answer_in_words(answer: Answer) -> str:
    """The set: positive; no answer: negative or positive; no answer: none fits; 41 to 63."""
    if is_defined(answer.low):
        return f"{answer.low:.3g} to {answer.high:.3g}"
    if len(answer.classes) == 1:
        return answer.classes[0]
    return f"no answer: {' or '.join(answer.classes) or 'none fits'}"

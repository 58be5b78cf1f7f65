"""Instability and sets with a guarantee in words: the finding first, the number behind it, then what it means."""

from __future__ import annotations

from collections.abc import Sequence

from mri_vit.report.numbers.instability import InstabilityFigures
from mri_vit.report.numbers.prediction_sets import MIN_SITE, Absent, SetFigures, TooFew
from mri_vit.report.schema.instability import Answer, Instability, PredictionSets, Retrained, Scale, SiteCoverage
from mri_vit.report.schema.parts import Design, Kind
from mri_vit.report.words.notation import adjusted_p, counted, in_words, is_defined, listed, number, percent

TRAINED = {"repeats": "with other folds and seeds", "seeds": "with another seed on the same patients"}
ONE_TRAINING = {  # why nothing can be said
    "cross-validation": "Each patient was predicted by one training, so it is not known how far another training would move a "
    "prediction: set train.repeats or train.seeds to 3 or more.",
    "external": "Each patient has one prediction, the mean over the run's networks: how far a training moves it is in the report "
    "of the run.",
    "table": "The table has one prediction of each patient and model, so it is not known how far another training would move it: "
    "a column repeat holds those of several trainings.",
    "held-out": "The table has one prediction of each patient and model, so it is not known how far another training would move "
    "it.",
}
CENSORED = (
    "No sets with a guarantee: of patients who are censored it is not known whether a set held what came, and a guarantee would "
    "rest on an assumption about censoring."
)


def one_training(design: Design) -> str:
    """Why there is no figure of instability."""
    return ONE_TRAINING[design]


def instability(found: InstabilityFigures) -> Instability:
    """The figures with their sentences."""
    return Instability(**vars(found), sentences=tuple(_instability(found)))


def _instability(found: InstabilityFigures) -> list[str]:
    value, what = _unit(found.scale, found.unit), _what(found.scale, found.days)
    share = f", {percent(found.mape / found.at_random)} of it" if found.at_random > 0 else ""
    sentences = [
        f"Trained again {TRAINED[found.source]}, the model changes a patient's {what} by {value(found.mape)} on average (MAPE, "
        f"{found.trainings} trainings); two patients differ by {value(found.at_random)}{share}.",
    ]
    if is_defined(found.disagreement):
        sentences.append(
            f"Two trainings call a patient differently in {percent(found.disagreement)}; two patients are called differently in "
            f"{percent(found.disagreement_at_random)}. {found.divided} of {counted(found.n, 'patient')} are not called alike by "
            f"all {in_words(found.trainings)}."
        )
    order = f"; the order of the patients stays by a rank correlation of {number(found.rank_agreement, 2)}"
    sentences.append(
        f"In half of the patients the change is at most {value(found.median)}, in one of ten more than "
        f"{value(found.ninth_decile)}{order if is_defined(found.rank_agreement) else ''}. One patient's own figure is rough with "
        f"{found.trainings} trainings: its standard deviation is {percent(found.relative_error)} of it."
    )
    return sentences


def _what(scale: Scale, days: float) -> str:
    return {
        "probability": "probability",
        "score": "score",
        "number": "number",
        "survival": f"probability to live {days:.0f} days",
        "rank": "rank within the fold (0 to 1)",
    }[scale]


def _unit(scale: Scale, unit: str):
    if scale == "number":
        return lambda value: f"{value:.3g}{f' {unit}' if unit else ''}"
    return lambda value: number(value, 3)


def prediction_sets(found: SetFigures, verdict: Kind) -> PredictionSets:
    """The figures with their sentences; `verdict` is that on the model."""
    sentences = _of_numbers(found, verdict) if not found.classes else _of_classes(found, verdict)
    return PredictionSets(**vars(found), sentences=(*sentences, *_sites(found)))


def absent_sets(absent: Absent) -> str:
    """Why there are no sets."""
    if not isinstance(absent, TooFew):
        return CENSORED
    of = f" of {absent.name}" if absent.name else ""
    return (
        f"No sets with a guarantee: {counted(absent.n, 'patient')}{of} to compare with, and {absent.needed} are needed of each "
        "class before one can be left out nine times in ten."
    )


def _of_classes(found: SetFigures, verdict: Kind) -> list[str]:
    several = found.n - found.answered - found.none
    right = f" ({found.right} of them right)" if found.answered else ""
    sentences = [
        f"With a guarantee of {percent(found.level)} in each class, the model answers for {percent(found.answered / found.n)} of "
        f"the patients{right}; for the others there is no answer: {several} have several classes that cannot be left out, "
        f"{found.none} have none that fits."
    ]
    luck = f"A model without skill would answer for {percent(found.answered_without_skill)}" + (
        f", {percent(found.right_without_skill)} of them right by luck." if is_defined(found.right_without_skill) else "."
    )
    if verdict == "better":
        sentences.append(luck)
    else:
        sentences.append(
            f"The model is not shown to beat chance: its sets keep their promise and yet say no more than a guess. {luck}"
        )
    return [*sentences, _promise(found, "the right class is in the set")]


def _of_numbers(found: SetFigures, verdict: Kind) -> list[str]:
    write = "a factor of {:.3g}" if found.times else "± {:.3g}"
    own, mean = (write.format(value) for value in (found.reach, found.reach_without_skill))
    beaten = "" if verdict == "better" else " The model is not shown to beat chance."
    return [
        f"With a guarantee of {percent(found.level)}, the number lies within {own} of the prediction; within {mean} of the "
        f"training patients' mean.{beaten}",
        _promise(found, "the number is in the interval"),
    ]


def _promise(found: SetFigures, holds: str) -> str:
    if found.calibrated_on == "other sites":
        return (
            f"Each patient is compared with the patients of other sites, as a new hospital's would be: that {holds} is then no "
            "promise, and the table shows what happened."
        )
    return (
        f"The promise is that {holds} for at least {percent(found.level)} of patients like these, over cohorts; each patient is "
        "compared with all others out of fold, so that the share over this cohort is so by construction and proves nothing."
    )


def _sites(found: SetFigures) -> list[str]:
    if not found.sites:
        return []
    below, tested = [site for site in found.sites if site.below], any(is_defined(site.p) for site in found.sites)
    small = f" {counted(found.small_sites, 'site')} with fewer than {MIN_SITE} patients left out." if found.small_sites else ""
    if below:
        named = listed([_site(site) for site in below])
        return [f"The promise is not kept in {named}: fewer than in the other sites.{small}"]
    least = min(found.sites, key=lambda site: site.covered / site.n)
    claim = "No site is shown to have fewer than the others" if tested else "Sites are not tested, as each has a model of its own"
    return [f"{claim}; the least is {_site(least)}.{small}"]


def _site(site: SiteCoverage) -> str:
    p = f", {adjusted_p(site.p_adjusted)}" if is_defined(site.p) else ""
    return f"{site.site} ({site.covered} of {site.n}, {percent(site.covered / site.n)}{p})"


def range_in_words(found: Retrained, scale: Scale, unit: str) -> str:
    """0.31 to 0.62 over 5 trainings; 4 of them say positive."""
    write = _unit(scale, unit) if scale == "number" else (lambda value: number(value, 2))
    rank = "rank " if scale == "rank" else ""
    alike = f"; {found.alike} of them say {found.called}" if found.called else ""
    return f"{rank}{write(found.low)} to {write(found.high)} over {found.trainings} trainings{alike}"


def answer_in_words(answer: Answer, of: Sequence[str] = ()) -> str:
    """The set: positive; no answer (negative or positive); no answer (none fits); 41 to 63."""
    if is_defined(answer.low):
        return f"{answer.low:.3g} to {answer.high:.3g}"
    if len(answer.classes) == 1:
        return answer.classes[0]
    return f"no answer ({' or '.join(answer.classes) if answer.classes else 'none fits'})"

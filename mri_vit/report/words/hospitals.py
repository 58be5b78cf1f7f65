"""Hospitals in words: what a further one may expect, or why nothing is said of it; then what was left out, and clustering."""

from __future__ import annotations

from mri_vit.report.schema.hospitals import MAX_SHARE, HospitalNumbers, Pooled
from mri_vit.report.schema.kinds import Numbers
from mri_vit.report.schema.measured import MIN_OF_SITE, MIN_SITES
from mri_vit.report.words import of_kind
from mri_vit.report.words.notation import ends, interval, listed, number, percent

ALMOST_ALL = 0.995  # which rounds to 100 %
MAX_NAMED = 6  # hospitals that a sentence names
WHOSE = {
    "left out": "Each of these {noun}s was predicted by models trained on the others alone",
    "external": "No model was trained on this cohort",
    "held-out": "No model was trained on these patients; the range holds if none was trained on others of these {noun}s either",
}
LEAVE_OUT = "train.leave_out"
SITE_COLUMN = "site"  # of the cohort table


def hospital_sentences(result: Numbers, found: HospitalNumbers) -> tuple[str, ...]:
    """The finding first, in whole sentences without a full stop."""
    words = [*_expected(result, found), *_calibration(found), *_left_out(result, found), *_clustering(result, found)]
    return tuple(words)


def _expected(result: Numbers, found: HospitalNumbers) -> list[str]:
    """What a further hospital may expect, or why that is not known."""
    if not found.unseen:
        return [
            f"What a new {noun(found.column)} may expect is not known: each model was trained on other patients of the same "
            f'{noun(found.column)}s. Folds of whole {noun(found.column)}s ({LEAVE_OUT} = "{found.column}") would show it'
        ]
    if not found.pooled:
        held = f"{len(found.sites)} of {found.known}" if found.sites else f"none of {found.known}"
        return [
            f"What a new {noun(found.column)} may expect is not known: {held} have at least {MIN_OF_SITE} {_rarer(result)}, and "
            f"{MIN_SITES} are needed"
        ]
    pooled = found.pooled
    shares = listed([f"{_share(share)} of them above {level}" for level, share in found.above.items()])
    return [
        f"In a new {noun(found.column)} expect {result.symbol} {_range(pooled)} (95 % prediction interval); the mean of "
        f"{pooled.sites} {noun(found.column)}s is {interval(pooled, digits=2)}",
        f"The standard deviation between {noun(found.column)}s is estimated as {number(pooled.tau, 2)}; expect {shares}",
        WHOSE[found.unseen].format(noun=noun(found.column)),
    ]


def _calibration(found: HospitalNumbers) -> list[str]:
    named = ((found.slope, "the calibration slope is"), (found.observed_to_expected, "O:E is"))
    told = [
        f"{words} {interval(one, digits=2)} on average, and {_range(one)} in a new {noun(found.column)}"
        for one, words in named
        if one
    ]
    return [f"Of probabilities {'; '.join(told)} (1 is ideal)"] if told else []


def _range(pooled: Pooled) -> str:
    return f"{number(pooled.prediction.low, 2)} to {number(pooled.prediction.high, 2)}"


def _share(share: float) -> str:
    """A share that is never all or none of them."""
    return "over 99 %" if share > ALMOST_ALL else "under 1 %" if share < 1 - ALMOST_ALL else percent(share)


def _left_out(result: Numbers, found: HospitalNumbers) -> list[str]:
    if not found.left_out or not found.sites:
        return []
    more = f" and {len(found.left_out) - MAX_NAMED} more" if len(found.left_out) > MAX_NAMED else ""
    return [f"Left out, with fewer than {MIN_OF_SITE} {_rarer(result)}: {', '.join(found.left_out[:MAX_NAMED])}{more}"]


def _clustering(result: Numbers, found: HospitalNumbers) -> list[str]:
    """The interval that allows for clustering beside the usual one, or why there is none."""
    if clustered := found.clustered:
        figures = (
            f"{ends(clustered.low, clustered.high)}, {number(clustered.ratio, 2)} times as wide as that of independent patients, "
            f"{ends(clustered.usual.low, clustered.usual.high)}"
        )
        figure = f"the 95 % interval of {result.symbol} {number(clustered.value)}"
        if not found.unseen:
            figures += f"; what models learned of these {noun(found.column)}s themselves is not allowed for"
        if clustered.ratio <= 1:
            return [f"No sign that clustering by {noun(found.column)} ({clustered.sites}) widens {figure}: {figures}"]
        return [f"Allowing for clustering by {noun(found.column)} ({clustered.sites}), {figure} is {figures}"]
    if found.known < MIN_SITES:
        why = f"{found.known} {noun(found.column)}s are too few: {MIN_SITES} are needed"
    else:
        why = "one has most of the patients" if found.largest > MAX_SHARE else "it is undefined without one of them"
    return [f"No interval allows for clustering by {noun(found.column)}: {why}"]


def noun(column: str) -> str:
    """What the values of a column are called."""
    return "hospital" if column == SITE_COLUMN else column


def _rarer(result: Numbers) -> str:
    return of_kind.of_result(result).labels.rarer

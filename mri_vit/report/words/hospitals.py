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
}
SITE_COLUMN = "site"  # of the cohort table


def hospital_sentences(result: Numbers, found: HospitalNumbers) -> tuple[str, ...]:
    """The finding first, in whole sentences without a full stop."""
    words = [*_expected(result, found), *_calibration(found), *_left_out(found), *_clustering(result, found)]
    return tuple(words)


def _expected(result: Numbers, found: HospitalNumbers) -> list[str]:
    """What a further hospital may expect, or why that is not known."""
    place, unknown = noun(found.column), f"What a new {noun(found.column)} may expect is not known"
    if not found.unseen:
        return [f"{unknown}, because whole {place}s were not left out in turn"]
    large = f"{len(found.sites)} of {found.known} {place}s"
    if not found.pooled:
        return [f"{unknown}, because {large} have at least {MIN_OF_SITE} {_rarer(result)} and {MIN_SITES} are needed"]
    pooled, share = found.pooled, listed([f"{_share(share)} of them above {level}" for level, share in found.above.items()])
    of = f"from the {large} with at least {MIN_OF_SITE} {_rarer(result)}"
    expected = f"{result.symbol} {_range(pooled)} (95 % prediction interval {of})"
    return [
        f"In a new {place} expect {expected}"
        if found.unseen != "held-out"
        else f"If no model was trained on patients of these {place}s, expect {expected} in a new one",
        f"The mean of the {pooled.sites} is {interval(pooled, digits=2)}, and the standard deviation between them is estimated "
        f"as {number(pooled.tau, 2)}; of new {place}s expect {share}",
        *([WHOSE[found.unseen].format(noun=place)] if found.unseen in WHOSE else []),
    ]


def _calibration(found: HospitalNumbers) -> list[str]:
    named = ((found.slope, "the calibration slope is"), (found.observed_to_expected, "O:E is"))
    said = [
        f"{words} {interval(one, digits=2)} on average, and {_range(one)} in a new {noun(found.column)}"
        for one, words in named
        if one
    ]
    return [f"Of probabilities {'; '.join(said)} (1 is ideal)"] if said else []


def _range(pooled: Pooled) -> str:
    return f"{number(pooled.prediction.low, 2)} to {number(pooled.prediction.high, 2)}"


def _share(share: float) -> str:
    """A share that is never all or none of them."""
    return "over 99 %" if share > ALMOST_ALL else "under 1 %" if share < 1 - ALMOST_ALL else percent(share)


def _left_out(found: HospitalNumbers) -> list[str]:
    if not found.left_out or not found.sites:
        return []
    more = [f"{len(found.left_out) - MAX_NAMED} more"] if len(found.left_out) > MAX_NAMED else []
    return [f"Too small for a figure of their own are {listed([*found.left_out[:MAX_NAMED], *more])}"]


def _clustering(result: Numbers, found: HospitalNumbers) -> list[str]:
    """The interval that allows for clustering beside the usual one, or why there is none."""
    place = noun(found.column)
    if clustered := found.clustered:
        learned = "" if found.unseen else f"; neither allows for what models learned of these {place}s"
        return [
            f"If patients of one {place} are alike, the 95 % interval of {result.symbol} {number(clustered.value)} over "
            f"{clustered.sites} {place}s is {ends(clustered.low, clustered.high)}, against "
            f"{ends(clustered.usual.low, clustered.usual.high)} if all patients are independent{learned}"
        ]
    if found.known < MIN_SITES:
        why = f"there are {found.known} and {MIN_SITES} are needed"
    else:
        why = "one has most of the patients" if found.largest > MAX_SHARE else "it is undefined without one of them"
    return [f"No interval allows for clustering by {place}, because {why}"]


def noun(column: str) -> str:
    """What the values of a column are called."""
    return "hospital" if column == SITE_COLUMN else column


def _rarer(result: Numbers) -> str:
    competes = getattr(result, "others", None) is not None
    return "patients with the event" if competes else of_kind.of_result(result).labels.rarer

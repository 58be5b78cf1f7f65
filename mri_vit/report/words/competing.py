"""Competing risks in words: what the incidences say, and the rows of the table of measures."""

from __future__ import annotations

from collections.abc import Sequence

from mri_vit.report.numbers import competing
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.competing import CompetingResult, CompetingRisks, IncidenceAt
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.words.notation import is_defined, number, p_value
from mri_vit.report.words.of_kind import Tables, labelled
from mri_vit.settings.schema import Endpoint

YEAR = 365  # the day that a sentence names; a shorter follow-up has an earlier one


def of_endpoint(run: Run, endpoint: Endpoint, rows: Tables) -> CompetingRisks | None:
    """What became of all patients; None where no competing event is declared."""
    if not endpoint.competing:
        return None
    people = labelled(rows, ("time_days", "event", "competing"))
    incidence = competing.of_patients(people) if len(people) else ()
    return CompetingRisks(
        name=endpoint.competing,
        incidence=incidence,
        sentences=tuple(sentences(endpoint.competing, len(people), incidence)),
    )


def sentences(name: str, n: int, incidence: Sequence[IncidenceAt]) -> list[str]:
    """The shares by a year, or the last day that is known, and what follows for a prediction."""
    known = [at for at in incidence if is_defined(at.event.value) and is_defined(at.other.value)]
    if not known:
        return [f"The follow-up of {n} patients is too short for shares at 6, 12 or 24 months"]
    at = next((at for at in known if at.days == YEAR), known[-1])
    return [
        f"Of {n} patients, {share(at, 'event')} had the event by {at.days} days, and {share(at, 'other')} had {name} first",
        f"A predicted probability is the chance that the event comes before {name}; patients with {name} count as without the "
        "event, not as censored",
    ]


def share(at: IncidenceAt, which: str) -> str:
    """A share with its interval in per cent: 31 % [25, 37]."""
    one = getattr(at, which)
    if not is_defined(one.value):
        return "not known"
    ends = f" [{number(100 * one.low, 0)}, {number(100 * one.high, 0)}]" if is_defined(one.low) else ""
    return f"{number(100 * one.value, 0)} %{ends}"


def groups_in_words(found: CompetingResult) -> str:
    """Whether the incidence of the event differs between the risk groups."""
    p = found.grays_test.p
    if not is_defined(p):
        return "The risk groups cannot be compared"
    claim = "The risk groups differ" if p <= ALPHA else "There is no evidence that the risk groups differ"
    return f"{claim} in how many had the event (Gray's test, {p_value(p)})"


def grays_test_in_words(found: CompetingResult | None) -> str | None:
    if found is None:
        return None
    test = found.grays_test
    corrected = test.inflation > 1 and is_defined(test.chi2)
    how = f"; corrected for refitting, {p_value(test.given_p)} for groups as given" if corrected else ""
    return f"χ² = {number(test.chi2, 2)}, {p_value(test.p)}{how}"

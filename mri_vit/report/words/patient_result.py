"""What was predicted of one patient, in words: the patient's entry of `metrics.json` in, a line per endpoint out."""

from __future__ import annotations

from dataclasses import dataclass

from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import Kind
from mri_vit.report.schema.patients import Patient, PatientResult
from mri_vit.report.words.notation import is_defined, number, title


@dataclass(frozen=True)
class Line:
    """One endpoint of a patient."""

    endpoint: str
    title: str
    kind: Kind  # of the verdict on the model
    verdict: str
    truth: str
    score: str
    rank: str
    error: str


def lines(metrics: Metrics, person: Patient) -> list[Line]:
    """A line per endpoint that a candidate was judged on, in the report's order."""
    found = []
    for name, card in metrics.cards.items():
        endpoint = metrics.endpoints[name]
        result = person.endpoints.get(name)
        if result:
            binary = endpoint.kind == "binary"
            kind = endpoint.models[card.model].verdict_kind
            found.append(
                Line(
                    name,
                    title(name),
                    kind,
                    card.verdict,
                    truth(result, binary),
                    number(result.score),
                    rank(result),
                    error(result),
                )
            )
    return found


def truth(result: PatientResult, binary: bool) -> str:
    """The label: positive, negative, or how long the patient lived or was followed."""
    if result.truth is None:
        return "not known"
    if binary:
        return "positive" if result.truth else "negative"
    return f"{'died after' if result.truth else 'alive after'} {number(result.time_days, 0)} days"


def short_truth(result: PatientResult) -> str:
    """The label in a narrow column: 1, 0, or days with a + for who was alive then; nothing where it is not known."""
    if result.truth is None:
        return ""
    return f"{result.time_days:.0f}{'' if result.truth else '+'}" if is_defined(result.time_days) else str(int(result.truth))


def rank(result: PatientResult) -> str:
    """Where the score stands among those of the same fold."""
    return f"higher than {100 * result.rank:.0f} % of its fold" if is_defined(result.rank) else "–"


def error(result: PatientResult) -> str:
    """How wrong the score is beside the others'."""
    if not is_defined(result.error):
        return "–"
    return f"{result.error:.2f}: {result.wrong:g} of {result.pairs} pairs with others in the wrong order"

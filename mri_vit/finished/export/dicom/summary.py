"""Summary: a prediction's document goes in; the numbers and sentences that leave for an archive come out, for picture and report.

Nothing names a person: neither the patient's id, which may be a folder's name, nor files, nor patients of the run. A withheld
endpoint has its reason and no number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mri_vit.finished import of_kind
from mri_vit.finished.prediction_document import (
    AnyPredicted,
    BinaryValue,
    Calibrated,
    ContinuousValue,
    Prediction,
    Survival,
    is_trusted,
)
from mri_vit.prepare.tumour import described
from mri_vit.report.words import notation
from mri_vit.settings.recipe import title

RESEARCH_USE = "For research use only. Not a medical device. No decision about a patient may rest on it."


@dataclass(frozen=True)
class Figure:
    """A number of an endpoint: a code for machines (at most 16 ASCII characters), its name, value and unit ("" without one)."""

    code: str
    name: str
    value: float
    unit: str = ""

    @property
    def text(self) -> str:
        """The number as a reader sees it."""
        return f"{self.name[:1].lower()}{self.name[1:]} {self.value:.3g}{f' {self.unit}' if self.unit else ''}"


@dataclass(frozen=True)
class Sentence:
    """A text under a label, with a code for machines."""

    code: str
    label: str
    text: str


@dataclass(frozen=True)
class EndpointSummary:
    """What is shown of an endpoint: the call or "withheld", its numbers, and what to know of them."""

    title: str
    headline: str
    figures: tuple[Figure, ...]
    sentences: tuple[Sentence, ...]
    is_reliable: bool


@dataclass(frozen=True)
class Summary:
    """All that leaves: what a reader must know first, the endpoints, the tumour, the quality and the model."""

    cautions: tuple[str, ...]
    endpoints: tuple[EndpointSummary, ...]
    tumour: str
    tumour_ml: float | None
    quality: tuple[str, ...]
    model: str


def summary_of(document: Prediction) -> Summary:
    """The summary of a patient's document."""
    run, tumour = document.run, document.preparation.tumour
    volume = tumour.tumour_ml if notation.is_defined(tumour.tumour_ml) else None
    of = "synthetic patients" if run.synthetic else "patients"
    return Summary(
        cautions=tuple(_cautions(document)),
        endpoints=tuple(_endpoint(name, one, is_trusted(document, name)) for name, one in document.endpoints.items()),
        tumour=_sentence(described(tumour.model_dump(exclude_none=True))),
        tumour_ml=volume,
        quality=tuple(_quality(document)),
        model=(
            f"Study “{run.study}”: {notation.counted(len(run.weights), 'network')} of {run.folds} folds, trained on"
            f" {run.patients} {of}; mri-vit {document.versions.get('mri-vit', 'unknown')}."
        ),
    )


def _cautions(document: Prediction) -> Iterator[str]:
    """As the page's remarks, without their names of patients and files."""
    if document.run.synthetic:
        yield f"The run was trained on synthetic patients ({document.run.synthetic})."
    if document.known.twin:
        yield "The run was trained on a patient with these voxels: its scores say nothing new."
    elif document.known.same_id or document.known.exposed:
        yield "A patient of the training data has the same id; the scores may say nothing new."
    if document.distribution.placement != "within":
        yield _sentence(document.distribution.sentence)


def _quality(document: Prediction) -> Iterator[str]:
    preparation = document.preparation
    yield from (_sentence(finding.sentence) for finding in preparation.findings)
    yield from (f"{title(name)}: no scan; left empty." for name in preparation.missing)
    if not preparation.findings:
        yield "Scan quality: no problems found."


def _endpoint(name: str, one: AnyPredicted, trusted: bool) -> EndpointSummary:
    head = notation.title(name)
    if one.value is None:
        reason = Sentence("withheld", "Withheld", _sentence(one.withheld or "it was not predicted"))
        return EndpointSummary(head, "withheld", (), (reason,), False)
    sentences = []
    if one.untrusted:
        sentences.append(Sentence("untrusted", "Not reliable", _sentence(f"shown only on request: {one.untrusted}")))
    if call := getattr(one.value, "call", "") or one.value.side:
        sentences.append(Sentence("call", "Call", _sentence(call)))
    if one.of_run:
        of = notation.counted(one.of_run.patients, "patient")
        sentences.append(Sentence("verdict", "Result of the run", _sentence(f"{one.of_run.verdict}; {of}")))
    figures = tuple(_figures(one))
    headline = one.value.side or (figures[0].text if figures else "no number")
    return EndpointSummary(head, headline if trusted else f"{headline} (not reliable)", figures, tuple(sentences), trusted)


def _figures(one: AnyPredicted) -> Iterator[Figure]:
    """The defined numbers: those of the tables of `mri-vit predict`, and the ends of an interval."""
    unit = getattr(one, "unit", "")
    for number, row in enumerate(of_kind.of(one.kind).score_cells(one)):
        if "class" in row:
            yield Figure(f"class-{number}", f"Probability of {row['class']}", row["score"])
            continue
        yield Figure("score", "Score", row["score"], unit)
        if notation.is_defined(row["probability"]):
            yield Figure("probability", "Calibrated probability", row["probability"])
    ends = one.value.probability if isinstance(one.value, BinaryValue) else one.value
    if isinstance(ends, (Calibrated, ContinuousValue)) and notation.is_defined(ends.low):
        yield Figure("low", "Lower end of the 95 % interval", ends.low, unit)
        yield Figure("high", "Upper end of the 95 % interval", ends.high, unit)
    if not isinstance(one, Survival) or one.value is None:
        return
    state = f"Without the event ({one.competing} may come first)" if one.competing else "Alive"
    for at in one.value.horizons:
        if notation.is_defined(at.survival):
            yield Figure(f"alive-{at.days:.0f}d", f"{state} at {at.days:.0f} days, probability", at.survival)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '…')) else '.'}"

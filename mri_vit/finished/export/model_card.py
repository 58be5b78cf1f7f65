"""`model_card.md`: what an exported model is, was made from and is good for, filled from its run.

The sections are those of Mitchell et al. 2019, doi:10.1145/3287560.3287596. The sentences are the report's own answers to
checklists; what no run can know is left to the author, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from mri_vit.finished.known_patients import SCRYPT
from mri_vit.finished.model_document import ModelDocument
from mri_vit.report.schema.kinds import AnyEndpoint
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import OWN
from mri_vit.report.words import answers_on_patients as of_patients
from mri_vit.report.words import answers_on_results as of_results
from mri_vit.report.words import answers_on_training as of_training
from mri_vit.report.words.methods_section import measure_sentences
from mri_vit.report.words.notation import counted, escape, interval, judged, symbol, title
from mri_vit.report.words.references import without_citations
from mri_vit.run.atomic import write_bytes

FILE = "model_card.md"
JUDGED = ("judged", "refits", "retraining", "chance_test", "versus_controls", "p_adjusted")  # measures that decide a verdict
AUTHOR = "*To be written by the author:*"
NOT_FOR = (
    "No decision about a patient may rest on it. It was not tried on patients of another hospital unless this card says so, and"
    " not on children, other tumours, or scans after treatment, unless the run's patients were such."
)
PERSONAL = (
    "The folder holds no id, label, date or path of a patient. Of the run's patients it keeps: salted hashes of ids and voxels,"
    " by which a patient of the run is refused; out-of-fold scores, sorted, by outcome; the share alive at the end of each"
    " month; medians of numbers; and for {patients} measures of their scans (volumes, contrasts, quantiles), without names and"
    " in an order of their own. The hashes answer who asks: the owner of the very scans, or of a list of ids (one scrypt each,"
    " n = {n}, so that ids of a pattern are all found in minutes), learns who was among the patients. Weights can hold traces of"
    " what they were trained on. Pass the folder on as the scans may be passed on."
)


def write(metrics: Metrics, document: ModelDocument, file: Path) -> None:
    """Write the card of a model from its run's metrics."""
    write_bytes("\n".join(_lines(metrics, document)).encode() + b"\n", file)


def _lines(metrics: Metrics, document: ModelDocument) -> Iterator[str]:
    facts = document.facts
    networks = len(facts.weights)
    yield f"# {escape(facts.study)}\n"
    yield f"{document.notice} Tables and sections that are named in brackets are those of the run's report.\n"
    if facts.synthetic:
        yield f"**Synthetic patients: {facts.synthetic}. The figures say nothing about a real patient.**\n"
    yield "## Model\n"
    yield _paragraph(
        of_patients.aim(metrics),
        f"The score of a new patient is the mean of {counted(networks, 'network')} ({counted(facts.folds, 'fold')},"
        f" {counted(facts.repeats, 'repeat')}, {counted(facts.seeds, 'seed')}).",
        of_training.building(metrics),
        of_training.initialised(metrics),
        of_training.versions(metrics),
    )
    yield _paragraph(f"Beginning: {escape(facts.beginning)}.", f"Licence of the weights: {escape(facts.licence)}.")
    yield "## Intended use\n"
    yield _paragraph(
        "Research on groups of patients: does an MRI hold what the endpoint is about?", of_results.output(metrics), NOT_FOR
    )
    yield _paragraph(of_patients.refusals(metrics), "Results that the run does not show to be better than chance are withheld.")
    yield f"{AUTHOR} who may use it, and for which question.\n"
    yield "## Factors\n"
    yield _paragraph(
        of_patients.inputs(metrics),
        of_patients.preprocessing(metrics),
        of_training.clusters(metrics),
        of_results.subgroups(metrics),
    )
    yield "## Metrics\n"
    yield _paragraph(*(sentence for key, sentence in measure_sentences(metrics).items() if key.startswith(JUDGED)))
    yield "## Training and evaluation data\n"
    yield _paragraph(of_patients.characteristics(metrics), of_patients.exclusions(metrics), of_patients.missing(metrics))
    yield _paragraph(of_training.partitions(metrics), of_results.predicting(metrics), of_results.external(metrics))
    yield f"{AUTHOR} which hospitals and years, who labelled, ethics approval.\n"
    yield "## Results\n"
    yield from _table(("endpoint", "out of fold", "strongest control", "verdict"), _results(metrics))
    yield from _table(("endpoint", "subgroup", "patients", "figure", "remark"), _subgroups(metrics.endpoints))
    yield "## Ethical considerations\n"
    yield _paragraph(PERSONAL.format(patients=counted(facts.patients, "patient"), n=SCRYPT["n"]))
    yield "## Caveats\n"
    yield _paragraph(of_results.robustness(metrics), of_results.between_clusters(metrics))
    yield from (f"- {escape(sentence)}" for sentence in _caveats(document))


def _paragraph(*sentences: str) -> str:
    return without_citations(" ".join(filter(None, sentences))) + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if lines:
        head = list(head)
        yield f"| {' | '.join(head)} |"
        yield f"|{'---|' * len(head)}"
        yield from lines
        yield ""


def _results(metrics: Metrics) -> Iterator[tuple[str, ...]]:
    """The own model's figure, and beside it the strongest control's, which may explain it."""
    for name, found in metrics.endpoints.items():
        own = found.models.get(OWN)
        if own is None:
            yield escape(title(name)), "no result", "", ""
            continue
        controls = {model: found.models[model] for model in own.versus_controls if model in found.models}
        best = max(controls, key=lambda model: controls[model].judged.value, default=None)
        beside = f"{best}: {symbol(controls[best])} {judged(controls[best])}" if best else "none"
        yield escape(title(name)), f"{symbol(own)} {judged(own)}, {counted(own.n, 'patient')}", beside, escape(own.verdict)


def _subgroups(endpoints: Mapping[str, AnyEndpoint]) -> Iterator[tuple[str, ...]]:
    for name, found in endpoints.items():
        for one in found.subgroups:
            if one.model == OWN:
                yield (
                    escape(title(name)),
                    escape(f"{one.column}: {one.level}"),
                    str(one.n),
                    interval(one),
                    escape(one.warning or ""),
                )


def _caveats(document: ModelDocument) -> Iterator[str]:
    for name, found in document.endpoints.items():
        if found.withheld:
            yield f"{title(name)} is withheld: {found.withheld}."
        elif found.uncalibrated:
            yield f"{title(name)} has no calibrated probability: {found.uncalibrated}."
    if document.no_reference:
        yield f"New patients cannot be compared with the run's: {document.no_reference}."

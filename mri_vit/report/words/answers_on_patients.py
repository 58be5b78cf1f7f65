"""Answers to a checklist on what was studied, in which patients, and with which data: from the content of `metrics.json`."""

from __future__ import annotations

from collections.abc import Iterator

from mri_vit.prepare import alignment
from mri_vit.report.schema.metrics import Metrics, Settings
from mri_vit.report.schema.parts import TABLES
from mri_vit.report.schema.survival import SurvivalEndpoint
from mri_vit.report.words import (
    endpoint_results,
    methods_section,
    networks,
    run_facts,
)
from mri_vit.report.words.answering import bearing, of_training, with_settings
from mri_vit.report.words.notation import counted, escape, in_words, is_defined, listed, number
from mri_vit.report.words.protocol import tumour_masks
from mri_vit.report.words.references import without_citations
from mri_vit.report.words.run_facts import could_show, sample_sizes, table1_lines
from mri_vit.settings.recipe import LONG_SEQUENCE_TITLES, title

WEIGHTED = {
    "uno_c": "Uno's C",
    "uno_c:competing": "Wolbers's C",
    "auc_at": "AUC at fixed times",
    "brier_at": "Brier scores at fixed times",
}
UNKNOWN_INPUTS = "What was done about missing inputs where the scores were made is not known here."
SPLITS = {  # kinds of columns of Table 1
    "fold": "each fold",
    "left out": "each value left out",
    "excluded": "those not predicted",
    "development": "both cohorts",
}


@with_settings
def aim(metrics: Metrics, settings: Settings) -> str:
    names = listed([escape(name) for name in metrics.endpoints])
    if not names:
        return ""
    network = networks.architecture_name(settings.model.architecture)
    if metrics.design == "external":
        return f"Evaluation, on another cohort, of a deep-learning model ({network}) that predicts {names} from brain MRI."
    return (
        f"Development, with internal validation by cross-validation, of a deep-learning model ({network}) that "
        f"predicts {names} from brain MRI."
    )


@with_settings
def exclusions(metrics: Metrics, settings: Settings) -> str:
    return methods_section.excluded_sentence(metrics)


@of_training
def selection(metrics: Metrics, settings: Settings) -> str:
    return "Every patient of the table whose scans could be prepared was used."


@with_settings
def preprocessing(metrics: Metrics, settings: Settings) -> str:
    prepare, grid = settings.prepare, settings.grid
    correction = ", N4 bias correction" if prepare.bias else ", no bias correction"
    return (
        f"Rigid alignment to {title(prepare.reference)} and to MNI152, brain mask ({escape(prepare.brain)}){correction}, "
        f"resampling to {grid.edge}³ voxels of {grid.spacing_mm:g} mm, z-score inside the brain, patches of {grid.patch}³ voxels "
        "(Methods: preparation)."
    )


def outcomes(metrics: Metrics) -> str:
    named = [f"{escape(name)} ({endpoint.kind})" for name, endpoint in metrics.endpoints.items()]
    return f"Endpoints: {listed(named)}." if named else ""


@with_settings
def inputs(metrics: Metrics, settings: Settings) -> str:
    channels = settings.channels
    names = ", ".join(LONG_SEQUENCE_TITLES.get(channel, title(channel)) for channel in channels)
    sequences = f"{in_words(len(channels))} MRI sequence{'s' * (len(channels) > 1)}"
    return f"All voxels of the brain in {sequences} ({names}), without selection."


def missing(metrics: Metrics) -> str:
    """What was done about missing labels, scans and columns, and whether patients without a label are like the others."""
    compared = [
        f"{escape(name)}: {escape(found.sentences[0])}" for name, found in metrics.unlabelled.items() if found.characteristics
    ]
    found = " ".join(filter(None, [_missing_of_run(metrics), bearing(metrics, "missing"), *compared]))
    return f"{found} {UNKNOWN_INPUTS}" if found and metrics.design in TABLES else found


@with_settings
def _missing_of_run(metrics: Metrics, settings: Settings) -> str:
    channels = len(settings.channels)
    any_scan = _needs_all(settings) and channels > 1
    scan = f"one of the {in_words(channels)} sequences" if any_scan else _needed(settings)
    return " ".join(
        [
            f"A missing label is left out and never imputed; a patient without {scan} is excluded.",
            *methods_section.label_counts(metrics),
            *(without_citations(sentence) for sentence in methods_section.imputed(run_facts.controls(metrics))),
        ]
    )


def _needs_all(settings: Settings) -> bool:
    return set(settings.prepare.needs) == set(settings.channels)


def _needed(settings: Settings) -> str:
    """The scans without which a patient is excluded: T1ce or FLAIR."""
    return " or ".join(map(title, settings.prepare.needs))


def missing_or_censored(metrics: Metrics) -> str:
    """What was done about missing labels, scans and columns, and about patients without an event when last seen."""
    censored = [
        _censored(name, endpoint)
        for name, endpoint in metrics.endpoints.items()
        if isinstance(endpoint, SurvivalEndpoint) and endpoint.known
    ]
    weighting = [words for key, words in WEIGHTED.items() if key in methods_section.measure_sentences(metrics)]
    weighted = [f"Censoring is weighted for in {listed(weighting)}."] if censored and weighting else []
    return " ".join(filter(None, [missing(metrics), *censored, *weighted, bearing(metrics, "competing risks")]))


def _censored(name: str, endpoint: SurvivalEndpoint) -> str:
    competes = endpoint.others is not None
    censored = counted(endpoint.known - endpoint.events - (endpoint.others or 0), "patient")
    how = "without either event" if competes else "alive"
    other = f"; {endpoint.others} had the competing event, which is not censoring" if competes else ""
    return f"{escape(name)}: {censored} of {endpoint.known} {how} when last seen (censored){other}."


@with_settings
def refusals(metrics: Metrics, settings: Settings) -> str:
    needed = run_facts.every_sequence(settings.channels) if _needs_all(settings) else _needed(settings)
    return (
        f"The software gives no prediction without {needed}, or when a scan shows less than {alignment.MIN_OVERLAP:.0%} "
        "of the brain; it names patient, file and reason."
    )


@with_settings
def handling(metrics: Metrics, settings: Settings) -> str:
    masks = "brain masks have to be given" if settings.prepare.brain == "mask" else "nothing has to be drawn by hand"
    return f"The software aligns, masks and normalises the scans; {masks}, and it lists scans that fail its checks for a reader."


@with_settings
def prepared_alike(metrics: Metrics, settings: Settings) -> str:
    """The steps, which are the same for all, and where masks came from, which is not."""
    tumours = tuple(metrics.tumours.values())
    masks = [tumour_masks(settings.prepare, settings.channels, tumours)] if any(one.source != "none" for one in tumours) else []
    return " ".join(["The same steps for every patient:", preprocessing(metrics), *masks])


@with_settings
def prepared_blind(metrics: Metrics, settings: Settings) -> str:
    given = sum(one.source == "given" for one in metrics.tumours.values())
    supplied = f" Tumour masks of {counted(given, 'visit')} were supplied." if given else ""
    return f"Preparation reads scans and masks alone, no label.{supplied}"


@with_settings
def quality_checked(metrics: Metrics, settings: Settings) -> str:
    flagged = sum(bool(person.findings) for person in metrics.patients)
    found = f"Quality control flagged {flagged} of {counted(len(metrics.patients), 'predicted patient')}."
    uncertain = [bearing(metrics, "instability"), bearing(metrics, "sets")]
    return " ".join(filter(None, [exclusions(metrics), found if metrics.patients else "", *uncertain]))


def known_labels(metrics: Metrics) -> str:
    return " ".join(methods_section.label_counts(metrics))


def sizes(metrics: Metrics) -> str:
    """Patients and events of each endpoint; what they could show, and how many a regression and its validation need."""
    return " ".join(filter(None, [counts(metrics), *_power(metrics)]))


def counts(metrics: Metrics) -> str:
    found = [f"{escape(name)}: {endpoint_results.patients_and_events(endpoint)}" for name, endpoint in metrics.endpoints.items()]
    return f"In the evaluation, {'; '.join(found)}." if found else ""


def _power(metrics: Metrics) -> Iterator[str]:
    for name, card in metrics.cards.items():
        result = metrics.endpoints[name].models[card.model]
        if words := could_show(result):
            yield f"{escape(name)}: {words}{sample_sizes(result)}."


def flow(metrics: Metrics) -> str:
    """The patients in the table, excluded and predicted; how many labels are known, and how long patients were followed."""
    cohort = metrics.cohort
    if not cohort.patients:
        return ""
    sentences = [f"{counted(cohort.patients, 'patient')} in the table.", exclusions(metrics)]
    sentences += [f"{counted(cohort.predicted, 'patient')} predicted.", counts(metrics), *_follow_up(metrics)]
    return " ".join(filter(None, sentences))


def _follow_up(metrics: Metrics) -> list[str]:
    """Median follow-up of each survival endpoint."""
    sentences = []
    for name, endpoint in metrics.endpoints.items():
        followed = getattr(endpoint, "follow_up", None)
        if followed and followed.n:
            days = followed.median_days
            median = f"{number(days, 0)} days" if is_defined(days) else "not reached"
            sentences.append(f"Median follow-up of {escape(name)} (reverse Kaplan-Meier): {median}.")
    return sentences


def follow_up(metrics: Metrics) -> str:
    return " ".join(["Survival is counted in days from imaging.", *found]) if (found := _follow_up(metrics)) else ""


def characteristics(metrics: Metrics) -> str:
    """The first column of Table 1, and which other columns it has."""
    table = metrics.table1
    clinical = [row for row in table.rows if row.kind in ("number", "words")]
    if not clinical:
        return ""
    rows = []
    for line in table1_lines(clinical, table.splits):
        if line.below and line.head != "missing":
            rows[-1] += f" {escape(line.head)} {line.cells[0]},"
        elif line.below:
            rows[-1] += f" missing in {line.cells[0]}"
        else:
            rows.append(f"{escape(line.head)} {line.cells[0]}".strip())
    kinds = list(dict.fromkeys(SPLITS[split.kind] for split in table.splits if split.kind in SPLITS))
    parts = f" Likewise for {listed(kinds)} in tables/table1.csv." if kinds else ""
    return f"Of {counted(table.splits[0].n, 'patient')}: {'; '.join(row.rstrip(',') for row in rows)}.{parts}"


def compared(metrics: Metrics) -> str:
    """Standardised differences between the evaluated cohort and that of development."""
    kinds = [split.kind for split in metrics.table1.splits]
    if "development" not in kinds:
        return ""
    column = kinds.index("development")
    differences = [(row.column, row.cells[column].difference) for row in metrics.table1.rows]
    known = [f"{escape(name)} {number(value, 2)}" for name, value in differences if is_defined(value)]
    return f"Standardised differences from the cohort of development: {'; '.join(known)} (tables/table1.csv)." if known else ""


ANSWERS = (
    *(aim, exclusions, selection, preprocessing, outcomes, inputs, missing, missing_or_censored, refusals),
    *(handling, prepared_alike, prepared_blind, quality_checked, known_labels, sizes, flow, follow_up),
    *(characteristics, compared),
)

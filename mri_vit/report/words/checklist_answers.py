"""What a run answers to the items of a checklist: the content of `metrics.json` goes in, Markdown comes out.

An answer comes from the metrics alone and is "" when they do not show the thing; the item is then the author's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps

from mri_vit.prepare import alignment
from mri_vit.report.schema.metrics import Metrics, Settings
from mri_vit.report.words import endpoint_results, map_sentences, methods_section, networks, of_kind, run_facts
from mri_vit.report.words.methods_section import measure_sentences, without_citations
from mri_vit.report.words.notation import counted, escape, in_words, is_defined, listed, number
from mri_vit.report.words.protocol import partition_sentences
from mri_vit.report.words.run_facts import Facts, could_show, sample_sizes, table1_lines
from mri_vit.settings.recipe import CLINICAL, LONG_SEQUENCE_TITLES, SITE, is_compared, title

Answer = Callable[[Metrics], str]
UNCERTAINTY = (  # of `methods_section.MEASURE_SENTENCES`, those with an interval or a test
    *("judged:binary", "judged:survival", "refits", "retraining", "retraining:seeds", "within_sites"),
    *("auc", "harrell_c", "operating_point", "brier", "calibration", "auc_at", "integrated_brier"),
    *("hazard", "restricted_mean", "logrank"),
    *("chance_test:refitted", "chance_test:within folds", "chance_test:scores as given"),
    *("versus_controls:binary", "versus_controls:survival", "versus_best", "versus_own:binary", "versus_own:survival"),
    *("nadeau_bengio", "p_adjusted", "pairs"),
)
SPLITS = {  # kinds of columns of Table 1
    "fold": "each fold",
    "left out": "each value left out",
    "excluded": "those not predicted",
    "development": "both cohorts",
}


def _needing(settings_of: Callable[[Metrics], Settings | None]) -> Callable[[Callable[[Metrics, Settings], str]], Answer]:
    """Make an answer of the metrics and the settings to one of the metrics alone: "" where there are no settings."""

    def without_settings(answer: Callable[[Metrics, Settings], str]) -> Answer:
        @wraps(answer)
        def answered(metrics: Metrics) -> str:
            settings = settings_of(metrics)
            return answer(metrics, settings) if settings else ""

        return answered

    return without_settings


_with_settings = _needing(run_facts.settings)  # "" for a table from elsewhere
_of_training = _needing(run_facts.trained)  # and for an external evaluation


# What was studied, in which patients, and with which data.


@_with_settings
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


@_with_settings
def exclusions(metrics: Metrics, settings: Settings) -> str:
    return methods_section.excluded_sentence(metrics)


@_of_training
def selection(metrics: Metrics, settings: Settings) -> str:
    return "Every patient of the table whose scans could be prepared was used."


@_with_settings
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


@_with_settings
def inputs(metrics: Metrics, settings: Settings) -> str:
    channels = settings.channels
    names = ", ".join(LONG_SEQUENCE_TITLES.get(channel, title(channel)) for channel in channels)
    sequences = f"{in_words(len(channels))} MRI sequence{'s' * (len(channels) > 1)}"
    return f"All voxels of the brain in {sequences} ({names}), without selection."


@_with_settings
def missing(metrics: Metrics, settings: Settings) -> str:
    channels = len(settings.channels)
    any_scan = _needs_all(settings) and channels > 1
    scan = f"one of the {in_words(channels)} sequences" if any_scan else _needed(settings)
    covariates = [without_citations(methods_section.COVARIATES)] if CLINICAL in run_facts.controls(metrics) else []
    return " ".join(
        [
            f"A missing label is left out and never imputed; a patient without {scan} is excluded.",
            *methods_section.label_counts(metrics),
            *covariates,
        ]
    )


def _needs_all(settings: Settings) -> bool:
    return set(settings.prepare.needs) == set(settings.channels)


def _needed(settings: Settings) -> str:
    """The scans without which a patient is excluded: T1ce or FLAIR."""
    return " or ".join(map(title, settings.prepare.needs))


@_with_settings
def refusals(metrics: Metrics, settings: Settings) -> str:
    needed = run_facts.every_sequence(settings.channels) if _needs_all(settings) else _needed(settings)
    return (
        f"The software gives no prediction without {needed}, or when a scan shows less than {alignment.MIN_OVERLAP:.0%} "
        "of the brain; it names patient, file and reason."
    )


@_with_settings
def handling(metrics: Metrics, settings: Settings) -> str:
    masks = "brain masks have to be given" if settings.prepare.brain == "mask" else "nothing has to be drawn by hand"
    return f"The software aligns, masks and normalises the scans; {masks}, and it lists scans that fail its checks for a reader."


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


# How patients were divided and the model was trained.


@_of_training
def partitions(metrics: Metrics, settings: Settings) -> str:
    validation = f"{settings.train.val_fraction:.0%} of the others were set aside for early stopping."
    return " ".join([*partition_sentences(metrics, settings.train), validation])


@_of_training
def disjoint(metrics: Metrics, settings: Settings) -> str:
    return partition_sentences(metrics, settings.train)[-1]


@_of_training
def same_cohort(metrics: Metrics, settings: Settings) -> str:
    return "None by design: both are folds of one cohort."


@_of_training
def internal(metrics: Metrics, settings: Settings) -> str:
    times = f", {metrics.repeats} times" if metrics.repeats > 1 else ""
    return f"Cross-validation with {metrics.folds} folds by patient{times}."


def clusters(metrics: Metrics) -> str:
    """How hospitals were kept apart; a probe that predicts the site keeps none apart."""
    settings, measures = run_facts.trained(metrics), measure_sentences(metrics)
    column = settings.train.leave_out if settings else None
    sentences = [f"Each value of {escape(column)} was a test fold of its own."] if column else []
    sentences += [without_citations(measures["within_sites"])] if "within_sites" in measures else []
    sentences += ["A regression on the site alone was a control."] if SITE in run_facts.controls(metrics) else []
    return " ".join(sentences)


def architecture(metrics: Metrics) -> str:
    return without_citations(" ".join(networks.model_sentences(metrics, Facts())[:3]))


@_of_training
def initialised(metrics: Metrics, settings: Settings) -> str:
    return networks.initial_weights(settings)


@_of_training
def optimised(metrics: Metrics, settings: Settings) -> str:
    train = settings.train
    return (
        f"AdamW, peak learning rate {train.learning_rate:g}, weight decay {train.weight_decay:g}, batches of {train.batch_size} "
        f"patients, at most {train.epochs} epochs, early stopping after {train.patience} evaluations without a better one "
        "(Methods: training)."
    )


def building(metrics: Metrics) -> str:
    steps = [architecture(metrics), optimised(metrics), internal(metrics)]
    return " ".join(steps) if all(steps) else ""


@_of_training
def imbalance(metrics: Metrics, settings: Settings) -> str:
    balanced = settings.train.model_copy(update={"class_weights": True})
    if not any(of_kind.of(kind).imbalance(balanced) for kind in run_facts.kinds(metrics)):
        return ""
    done = [words for kind in run_facts.kinds(metrics) if (words := of_kind.of(kind).imbalance(settings.train))]
    return " ".join(done) or "No method against class imbalance was used."


@_of_training
def chosen(metrics: Metrics, settings: Settings) -> str:
    return "In each fold, the weights of the evaluation with the lowest validation loss; the test fold took no part."


@_with_settings
def withheld(metrics: Metrics, settings: Settings) -> str:
    sentence = (
        "The study's own model read the scans alone; the software withheld the labels of the patients that a model predicted."
    )
    readers = [model for model in metrics.models if model.rpartition("+")[2] == CLINICAL]  # the control, and fused with it
    columns = metrics.notes.get("clinical_columns")
    return sentence + (
        f" Clinical columns were read by {listed(readers)} alone: {escape(columns)}." if readers and columns else ""
    )


def versions(metrics: Metrics) -> str:
    return " ".join(methods_section.software_sentences(metrics, Facts())[:-1])


# How patients were scored, and how the scores were measured.


def ensemble(metrics: Metrics) -> str:
    if metrics.design == "external":
        return "Each patient's score is the mean over the models of the run's folds."
    if run_facts.trained(metrics) is None:
        return ""
    if metrics.repeats > 1:
        return f"A patient's scores are averaged over {metrics.repeats} repeats."
    return "None: one model scored each patient."


def predicting(metrics: Metrics) -> str:
    if run_facts.trained(metrics) is None:
        return ensemble(metrics)
    averaged = f" {ensemble(metrics)}" if metrics.repeats > 1 else ""
    unseen = f"had not seen the patient{run_facts.labels_alone(metrics)}"
    return f"Each patient was scored by the model of the patient's test fold, which {unseen}.{averaged}"


@_of_training
def output(metrics: Metrics, settings: Settings) -> str:
    used = [of_kind.of(kind).output for kind in run_facts.kinds(metrics)]
    threshold = methods_section.THRESHOLDS if "operating_point" in measure_sentences(metrics) else ""
    return f"The output is {listed(used)}. {threshold}".strip() if used else ""


def indeterminate(metrics: Metrics) -> str:
    if not metrics.cohort.predicted:
        return ""
    return f"Each of {counted(metrics.cohort.predicted, 'predicted patient')} has a score; the test has no indeterminate result."


def measured(metrics: Metrics) -> str:
    return without_citations(" ".join(measure_sentences(metrics).values()))


def uncertainty(metrics: Metrics) -> str:
    sentences = measure_sentences(metrics)
    return without_citations(" ".join(sentences[key] for key in UNCERTAINTY if key in sentences))


def updating(metrics: Metrics) -> str:
    return measure_sentences(metrics).get("recalibrated", "")


# What came out.


def performance(metrics: Metrics) -> str:
    figures = [
        f"{escape(name)}, {escape(model)}: {endpoint_results.headline_figure(result)}"
        for name, model, result in run_facts.results(metrics)
    ]
    return " ".join([f"{'; '.join(figures)}.", subgroups(metrics)]).strip() if figures else ""


def diagnostic(metrics: Metrics) -> str:
    rates = [
        f"{escape(name)}, {escape(model)}: {', '.join(figures)}"
        for name, model, result in run_facts.results(metrics)
        if (figures := of_kind.of(result.kind_of).rates(result))
    ]
    return f"{'; '.join(rates)}." if rates else ""


def between_clusters(metrics: Metrics) -> str:
    """How far figures of single sites differ."""
    ranges = [
        f"{escape(name)}, {escape(model)}: {endpoint_results.between_sites(sites)}"
        for name, model, result in run_facts.results(metrics)
        if is_compared(model) and (sites := result.within_sites)
    ]
    return f"{'; '.join(ranges)}." if ranges else ""


def subgroups(metrics: Metrics) -> str:
    columns = {row.column for endpoint in metrics.endpoints.values() for row in endpoint.subgroups}
    if not columns:
        return ""
    named = listed(sorted(escape(name) for name in columns))
    tested = (f"{escape(name)}: {escape(' '.join(one.sentences))}" for name, one in metrics.interactions.items())
    return " ".join([f"AUC and C, with intervals, of the models shown within subgroups by {named}.", *tested])


def failures(metrics: Metrics) -> str:
    """What the worst patients have in common."""
    return " ".join(f"{escape(name)}: {escape(worst.sentence)}" for name, worst in metrics.failures.items() if worst.sentence)


def errors(metrics: Metrics) -> str:
    return " ".join(filter(None, (failures(metrics), subgroups(metrics))))


def robustness(metrics: Metrics) -> str:
    ran = run_facts.controls(metrics)
    controls = [f"Controls: {methods_section.controls_made(metrics, ran)}."] if ran else []
    return " ".join([*controls, subgroups(metrics)]).strip()


def explained(metrics: Metrics) -> str:
    return without_citations(" ".join(map_sentences.map_methods(metrics, Facts())[:-1]))


def external(metrics: Metrics) -> str:
    if metrics.design != "external":
        return ""
    return f"The models of an earlier run were applied without refitting to another cohort. {performance(metrics)}".strip()


def stored(metrics: Metrics) -> str:
    if not metrics.patients:
        return ""
    patients = counted(len(metrics.patients), "patient")
    return f"Score, label and error of each of {patients} are stored in tables/patients.csv, and every figure in metrics.json."


FILLERS: Mapping[str, Answer] = {  # by the name that an item of `items/*.toml` gives as its `fill`
    answer.__name__: answer
    for answer in (
        *(aim, exclusions, selection, preprocessing, outcomes, inputs, missing, refusals, handling, known_labels, sizes, flow),
        *(characteristics, compared, partitions, disjoint, same_cohort, internal, clusters, architecture, initialised, optimised),
        *(building, imbalance, chosen, withheld, versions, ensemble, predicting, output, indeterminate, measured, uncertainty),
        *(updating, performance, diagnostic, between_clusters, subgroups, failures, errors, robustness, explained, external),
        stored,
    )
}

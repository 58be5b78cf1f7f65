"""What a run answers to the items of a checklist: the content of `metrics.json` goes in, Markdown comes out.

A filler answers from the metrics alone and says nothing ("") when they do not show the thing; the item is then the author's.
Longer sentences are those of `methods`, without their citations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mri_vit.prepare import alignment
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.run import Settings
from mri_vit.report.words import findings, methods, network, people, recipes, results, wording
from mri_vit.report.words.notation import is_defined, number
from mri_vit.report.words.references import uncited
from mri_vit.report.words.training import partition
from mri_vit.report.words.wording import Facts, counted, escape, listed, settings, trained
from mri_vit.settings.recipe import CLINICAL, SITE, is_candidate
from mri_vit.settings.sequences import LONG, title

UNCERTAINTY = (  # of `findings.MEASURES`, those with an interval or a test
    *("judged:binary", "judged:survival", "refits", "retraining", "retraining:seeds", "within_sites"),
    *("auc", "auc_bootstrap", "harrell_c", "operating_point", "brier", "calibration", "auc_at", "integrated_brier"),
    *("hazard", "restricted_mean", "logrank"),
    *("chance_test:refitted", "chance_test:within folds", "chance_test:scores as given"),
    *("versus_controls:binary", "versus_controls:survival", "versus_best", "versus_own:binary", "versus_own:survival"),
    *("nadeau_bengio", "p_adjusted", "pairs"),
)


def _aim(metrics: Metrics) -> str:
    names, found = listed([escape(name) for name in metrics.endpoints]), settings(metrics)
    if not names or found is None:
        return ""
    made = recipes.name(found.model.architecture)
    if metrics.design == "external":
        return f"Evaluation, on another cohort, of a deep-learning model ({made}) that predicts {names} from brain MRI."
    return (
        f"Development, with internal validation by cross-validation, of a deep-learning model ({made}) that "
        f"predicts {names} from brain MRI."
    )


def _exclusions(metrics: Metrics) -> str:
    return methods.excluded(metrics) if settings(metrics) else ""


def _preprocessing(metrics: Metrics) -> str:
    found = settings(metrics)
    if found is None:
        return ""
    prepare, grid = found.prepare, found.grid
    correction = ", N4 bias correction" if prepare.bias else ", no bias correction"
    return (
        f"Rigid alignment to {title(prepare.reference)} and to MNI152, brain mask ({escape(prepare.brain)}){correction}, "
        f"resampling to {grid.edge}³ voxels of {grid.spacing_mm:g} mm, z-score inside the brain, patches of {grid.patch}³ voxels "
        "(Methods: preparation)."
    )


def _outcomes(metrics: Metrics) -> str:
    named = [f"{escape(name)} ({found.kind})" for name, found in metrics.endpoints.items()]
    return f"Endpoints: {listed(named)}." if named else ""


def _inputs(metrics: Metrics) -> str:
    found = settings(metrics)
    if found is None:
        return ""
    names = ", ".join(LONG.get(channel, title(channel)) for channel in found.channels)
    counted = f"{wording.in_words(len(found.channels))} MRI sequence{'s' * (len(found.channels) > 1)}"
    return f"All voxels of the brain in {counted} ({names}), without selection."


def _missing(metrics: Metrics) -> str:
    found = settings(metrics)
    if found is None:
        return ""
    one = f"one of the {wording.in_words(len(found.channels))} sequences" if len(found.channels) > 1 else _needed(found)
    return (
        f"A missing label is left out and never imputed; a patient without {one if _needs_all(found) else _needed(found)} is "
        "excluded. "
        + " ".join([*methods.labels(metrics), *([methods.COVARIATES] if "clinical" in wording.controls(metrics) else [])])
    ).strip()


def _needs_all(found: Settings) -> bool:
    return set(found.prepare.needs) == set(found.channels)


def _needed(found: Settings) -> str:
    """Without what a patient is excluded: T1ce or FLAIR."""
    return " or ".join(map(title, found.prepare.needs))


def _selection(metrics: Metrics) -> str:
    return "Every patient of the table whose scans could be prepared was used." if trained(metrics) else ""


def _partitions(metrics: Metrics) -> str:
    found = trained(metrics)
    if found is None:
        return ""
    tuning = f"{found.train.tune_fraction:.0%} of the others were set aside for early stopping."
    return " ".join([*partition(metrics, found.train), tuning])


def _disjoint(metrics: Metrics) -> str:
    found = trained(metrics)
    return partition(metrics, found.train)[-1] if found else ""


def _architecture(metrics: Metrics) -> str:
    return uncited(" ".join(network.model(metrics, Facts())[:3]))


def _initialised(metrics: Metrics) -> str:
    found = trained(metrics)
    return network.initialised(found) if found else ""


def _optimised(metrics: Metrics) -> str:
    found = trained(metrics)
    if found is None:
        return ""
    train = found.train
    return (
        f"AdamW, peak learning rate {train.rate:g}, weight decay {train.weight_decay:g}, batches of {train.batch} "
        f"patients, at most {train.epochs} epochs, early stopping after {train.patience} evaluations without a better one "
        "(Methods: training)."
    )


def _building(metrics: Metrics) -> str:
    said = [_architecture(metrics), _optimised(metrics), results.internal(metrics)]
    return " ".join(said) if all(said) else ""


def _chosen(metrics: Metrics) -> str:
    if trained(metrics) is None:
        return ""
    return "In each fold, the weights of the evaluation with the lowest loss on the tuning patients; the test fold took no part."


def _ensemble(metrics: Metrics) -> str:
    if metrics.design == "external":
        return "Each patient's score is the mean over the models of the run's folds."
    if trained(metrics) is None:
        return ""
    if metrics.repeats > 1:
        return f"A patient's scores are averaged over {metrics.repeats} repeats."
    return "None: one model scored each patient."


def _clusters(metrics: Metrics) -> str:
    """How hospitals were kept apart; that a probe tells them is no handling of them."""
    found = trained(metrics)
    column = found.train.leave_out if found else None
    said = [f"Each value of {escape(column)} was a test fold of its own."] if column else []
    measures = findings.measures(metrics)
    said += [uncited(measures["within_sites"])] if "within_sites" in measures else []
    return " ".join([*said, *(["A regression on the site alone was a control."] if SITE in wording.controls(metrics) else [])])


def _between_clusters(metrics: Metrics) -> str:
    """How far figures of single sites differ."""
    said = [
        f"{escape(name)}, {escape(model)}: {number(sites.least)} to {number(sites.most)} in {sites.sites} sites"
        + (f" (I² {number(100 * sites.i_squared, 0)} %)" if is_defined(sites.i_squared) else "")
        for name, model, result in wording.results(metrics)
        if is_candidate(model) and (sites := result.within_sites)
    ]
    return f"{'; '.join(said)}." if said else ""


def _measured(metrics: Metrics) -> str:
    return uncited(" ".join(findings.measures(metrics).values()))


def _uncertainty(metrics: Metrics) -> str:
    found = findings.measures(metrics)
    return uncited(" ".join(found[key] for key in UNCERTAINTY if key in found))


def _updating(metrics: Metrics) -> str:
    return findings.measures(metrics).get("recalibrated", "")


def _predicting(metrics: Metrics) -> str:
    if trained(metrics) is None:
        return _ensemble(metrics)
    averaged = f" {_ensemble(metrics)}" if metrics.repeats > 1 else ""
    unseen = f"had not seen the patient{wording.labels_alone(metrics)}"
    return f"Each patient was scored by the model of the patient's test fold, which {unseen}.{averaged}"


def _refusals(metrics: Metrics) -> str:
    found = settings(metrics)
    if found is None:
        return ""
    needed = wording.every_sequence(found.channels) if _needs_all(found) else _needed(found)
    return (
        f"The software gives no prediction without {needed}, or when a scan shows less than {alignment.OVERLAP:.0%} "
        "of the brain; it names patient, file and reason."
    )


def _withheld(metrics: Metrics) -> str:
    found = settings(metrics)
    if found is None:
        return ""
    said = "The study's own model read the scans alone; the software withheld the labels of the patients whom a model predicted."
    readers = [model for model in metrics.models if model.rpartition("+")[2] == CLINICAL]  # the control, and fused with it
    read = metrics.notes.get("clinical_columns")
    return said + (f" Clinical columns were read by {listed(readers)} alone: {escape(read)}." if readers and read else "")


def _indeterminate(metrics: Metrics) -> str:
    if not metrics.cohort.predicted:
        return ""
    return f"Each of {counted(metrics.cohort.predicted, 'predicted patient')} has a score; the test has no indeterminate result."


def _handling(metrics: Metrics) -> str:
    found = settings(metrics)
    if found is None:
        return ""
    masks = "brain masks have to be given" if found.prepare.brain == "mask" else "nothing has to be drawn by hand"
    return f"Scans are aligned, masked and normalised by the software; {masks}, and what fails its checks is named for a reader."


FILLERS: Mapping[str, Callable[[Metrics], str]] = {
    "aim": _aim,
    "exclusions": _exclusions,
    "preprocessing": _preprocessing,
    "outcomes": _outcomes,
    "inputs": _inputs,
    "missing": _missing,
    "selection": _selection,
    "partitions": _partitions,
    "disjoint": _disjoint,
    "architecture": _architecture,
    "initialised": _initialised,
    "optimised": _optimised,
    "building": _building,
    "chosen": _chosen,
    "ensemble": _ensemble,
    "clusters": _clusters,
    "between_clusters": _between_clusters,
    "measured": _measured,
    "uncertainty": _uncertainty,
    "updating": _updating,
    "predicting": _predicting,
    "withheld": _withheld,
    "indeterminate": _indeterminate,
    "handling": _handling,
    "imbalance": results.imbalance,
    "fairness": results.subgroups,
    "output": results.output,
    "same_cohort": results.same_cohort,
    "versions": results.versions,
    "flow": results.flow,
    "known_labels": results.known_labels,
    "characteristics": people.characteristics,
    "compared": people.compared,
    "failures": people.failures,
    "errors": results.errors,
    "stored": people.stored,
    "sizes": results.sizes,
    "performance": results.performance,
    "diagnostic": results.diagnostic,
    "robustness": results.robustness,
    "explained": results.explained,
    "internal": results.internal,
    "external": results.external,
    "refusals": _refusals,
}

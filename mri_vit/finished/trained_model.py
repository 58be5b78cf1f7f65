"""Trained model: all that a prediction of a new patient rests on, of a run in its folder or of a model exported from one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mri_vit.data import predictions, run_cohort
from mri_vit.finished import known_patients, out_of_fold, reference, run_metrics
from mri_vit.finished.known_patients import KnownPatients
from mri_vit.finished.out_of_fold import OutOfFold
from mri_vit.finished.prediction_document import RunFacts, Weights
from mri_vit.finished.trained_run import Place, TrainedRun
from mri_vit.model.network import Network
from mri_vit.predictors.network import loaded
from mri_vit.report import verdicts
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.patients import MapEvaluation, MapVerdict
from mri_vit.report.words.protocol import tumour_masks
from mri_vit.run import files, integrity
from mri_vit.run.integrity import read_json
from mri_vit.settings.schema import Study
from mri_vit.settings.source import licence_caution, licence_text, stated_licence

if TYPE_CHECKING:
    from mri_vit.finished.reference import Reference

STARTED = "training started from external weights ({file}), {licence}"
OWN_LICENCE = "trained in this study from random weights; the owner of the run sets the terms"
PRETRAINED = "pretrained without labels ({method}) on the study's own patients, then trained in this study"
Step = Callable[[], None]


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Networks, what they found out of fold, and which patients they know."""

    study: Study
    networks: Mapping[Place, Path]  # the folder of each fold's networks
    facts: RunFacts
    endpoints: Mapping[str, OutOfFold]
    maps: Mapping[str, tuple[MapVerdict, ...]]  # by method the run's verdicts on its maps
    known: KnownPatients
    reference: Callable[[Step], Reference | str]  # the step is called after each fold that has to read the run's patients
    kept: dict[Place, list[Network]] | None = None  # networks that stay in memory; None: each fold's are read when they are used

    def of_fold(self, place: Place) -> list[Network]:
        """A fold's networks, by seed."""
        if self.kept is not None and place in self.kept:
            return self.kept[place]
        networks = loaded(self.networks[place], self.study.train.seeds)
        if self.kept is not None:
            self.kept[place] = networks
        return networks


def of_run(run: TrainedRun) -> TrainedModel:
    """The model of a run in its folder.

    Raises IntegrityError where a file of the run is damaged, UsageError where an older version recorded no hashes of voxels.
    """
    metrics, source = run_metrics.metrics_of_folder(run.folder)
    return TrainedModel(
        study=run.study,
        networks=run.networks,
        facts=_facts(run, metrics, source),
        endpoints=out_of_fold.of_study(run.study, metrics, predictions.load(run.folder / files.PREDICTIONS, run.study.endpoints)),
        maps=map_verdicts(metrics.map_scores),
        known=known_patients.of_run(run),
        reference=lambda step: reference.reference_of_run(run, step),
    )


def map_verdicts(scored: MapEvaluation | None) -> dict[str, tuple[MapVerdict, ...]]:
    """By method the verdicts on its maps."""
    methods = dict.fromkeys(method for own in scored.endpoints.values() for method in own.methods) if scored else {}
    return {method: verdicts.map_verdicts(method, "", scored) for method in methods}


def _facts(run: TrainedRun, metrics: Metrics, source: run_metrics.Source) -> RunFacts:
    study, home = run.study, run.folder
    masks = tumour_masks(study.prepare, study.channels, tuple(metrics.tumours.values()))
    beginning, licence = beginning_and_licence(study)
    return RunFacts(
        study=study.name,
        patients=len({patient.subject for patient in run.patients}),
        folds=len(run.splits[0]),
        repeats=len(run.splits),
        seeds=study.train.seeds,
        folds_sha256=integrity.sha256(home / files.FOLDS),
        predictions_sha256=integrity.sha256(home / files.PREDICTIONS),
        verdicts=source,
        weights=weights_of(run.networks, study.train.seeds, home),
        beginning=beginning,
        tumour_masks=masks if study.train.uses_tumour_masks else None,
        licence=licence,
        versions=read_json(home / files.ENVIRONMENT, ("versions",))["versions"],
        synthetic=run_cohort.synthetic_clause(home) or None,
    )


def weights_of(networks: Mapping[Place, Path], seeds: int, home: Path) -> tuple[Weights, ...]:
    """The files of all networks below `home`."""
    found = [files.seed_folder(fold, seed) / files.WEIGHTS for fold in networks.values() for seed in range(seeds)]
    return tuple(Weights(file=file.relative_to(home).as_posix(), sha256=integrity.sha256(file)) for file in found)


def beginning_and_licence(study: Study) -> tuple[str, str]:
    """Where training started from, and the licence of the weights: for external weights the one that the study states."""
    pretrained = PRETRAINED.format(method=study.pretrain.method) if study.pretrain.method != "none" else ""
    if study.model.weights is None:
        return pretrained or "trained in this study from random weights", OWN_LICENCE
    name = study.model.weights.name
    beginning = f"started from the weights {name}" + (f", {pretrained}" if pretrained else ", then trained in this study")
    stated = stated_licence(study.model.weights_licence)
    terms = STARTED.format(file=name, licence=licence_text(stated))
    return beginning, "; ".join(filter(None, [terms, licence_caution(name, stated)]))

"""Fusion: a run's vit+clinical on another cohort, each fold's fitted again on the run's own patients alone.

What a fold's fusion learned is not kept in the run: two weights and a small regression, which the same patients determine anew
in seconds. Its network is the fold's and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from mri_vit.crossval import folds
from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.loop import Tables, fold_seed, parts
from mri_vit.data import frozen
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.errors import IntegrityError
from mri_vit.external import controls
from mri_vit.external.ensemble import averaged
from mri_vit.predictors.late_fusion import LateFusion, equally_weighted
from mri_vit.predictors.network import Neural
from mri_vit.run import files
from mri_vit.run.integrity import read_json
from mri_vit.settings.recipe import FUSED, VIT
from mri_vit.settings.schema import Study


def fused(run: Path, past: Study, study: Study, patients: Sequence[Patient]) -> tuple[Tables, str]:
    """The mean over the folds, and which of them weigh network and columns equally.

    Raises
    ------
    UsageError
        The run's patients are not prepared any more, or this cohort lacks a clinical column; with the reason.
    IntegrityError
        A fold's fusion, fitted again, is weighed otherwise than the run says.
    """
    homes = [home for home, _, _ in _folds(run, past)]
    return averaged(_each_fold(run, past, study, patients)), equally_weighted(homes)


def _each_fold(run: Path, past: Study, study: Study, patients: Sequence[Patient]) -> Iterator[Tables]:
    inside = frozen.included(past, run)
    controls.require_prepared(inside, past)
    inner, outer = controls.covariates(controls.clinical, run, past, inside, study, patients)
    for home, fold, (train, tune) in _folds(run, past):
        with TemporaryDirectory(prefix="mri-vit-") as nowhere:  # a run that is evaluated is not written to
            fusion = LateFusion(Neural.fitted(networks(past)[VIT], fold), inner, Path(nowhere))
            fusion.fit(train, tune)
            if read_json(Path(nowhere) / files.FUSION) != read_json(home / files.FUSION):
                raise IntegrityError(f"{home / files.FUSION}: fitted again, {FUSED} is weighed otherwise; train the run again")
            yield fusion.of(Neural.fitted(networks(study)[VIT], fold), outer).predict([without_labels(p) for p in patients])


def _folds(run: Path, past: Study) -> Iterator[tuple[Path, Path, tuple[list[Patient], list[Patient]]]]:
    """Of each fold the fusion's folder, the network's, and the training and tuning patients."""
    inside = frozen.included(past, run)
    for repeat, split in enumerate(folds.load(run / files.FOLDS, inside)):
        for fold, ids in enumerate(split):
            train, tune, _ = parts(inside, ids, past, fold_seed(past, repeat, fold))
            home = comparator_folder(run, FUSED)
            yield files.fold_folder(home, repeat, fold), files.fold_folder(run, repeat, fold), (train, tune)

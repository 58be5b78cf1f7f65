"""Reference: the figures of a run's own patients, and how far out of fold they lie in what each network reads; made once.

It is kept in the run's folder with the hash of what it rests on, and made anew where that has changed. Letters: n patients, d
width of what the heads read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from jaxtyping import Float

from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import fold_seed, parts
from mri_vit.data.cohort import Patient, first_visits, without_labels
from mri_vit.errors import MriVitError
from mri_vit.prediction import figures
from mri_vit.prediction.figures import Figures, Name
from mri_vit.prediction.networks import Place, homes
from mri_vit.predictors.network import Neural
from mri_vit.prepare import prepared, unchanged
from mri_vit.run import files, integrity
from mri_vit.run.atomic import replacing
from mri_vit.run.integrity import sort_header
from mri_vit.settings.schema import Study

FILE = "reference.safetensors"  # in the run's folder
SCHEMA = "mri-vit reference 2"  # a higher number makes it anew
SMALLEST = 1e-6  # of a feature's standard deviation: one that never varies says nothing

Step = Callable[[], None]


@dataclass(frozen=True, eq=False)
class Cloud:
    """Where a fold's training patients lie in what its network reads; `middle` is its test patients' median log distance."""

    mean: Float[np.ndarray, " d"]
    precision: Float[np.ndarray, "d d"]
    middle: float = 0.0

    def log_distance(self, features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """The logarithm of Mahalanobis' distance over √d, less that of the fold's median test patient."""
        away = features.astype(float) - self.mean
        squares = np.einsum("nd,de,ne->n", away, self.precision, away) / len(self.mean)
        return 0.5 * np.log(np.maximum(squares, SMALLEST)) - self.middle


@dataclass(frozen=True, eq=False)
class Reference:
    """The run's patients, one visit of each, in one order throughout."""

    patients: list[Figures]
    distance: Float[np.ndarray, " n"]  # log, out of fold, mean over repeats
    clouds: dict[Place, Cloud]


def of_run(run: Path, past: Study, patients: Sequence[Patient], splits: Sequence[Split], step: Step) -> Reference | str:
    """The reference of a run, read or made, or why there is none: its prepared patients are gone, or are others.

    `past` are the run's settings, `patients` and `splits` those of its folds; `step` is called after each fold that is looked at.
    """
    rests_on = _rests_on(run, [len(split) for split in splits])
    if found := _read(run / FILE, rests_on):
        return found
    first = first_visits(patients)
    try:
        unchanged.refuse_changed_patients(past, patients, run)
    except MriVitError as fault:
        return str(fault)
    if any(prepared.load_record(past.prepared / patient.id).get("schema") != prepared.SCHEMA for patient in first):
        return (
            f"{run}: its patients were prepared with an earlier version, which measured their figures otherwise; train anew to"
            " compare new patients with them"
        )
    made = _made(run, past, patients, first, splits, step)
    with suppress(OSError):  # a run that may only be read: it is made again the next time
        _write(made, rests_on, run / FILE)
    return made


def _rests_on(run: Path, counts: Sequence[int]) -> str:
    """Hash of the folds, the prepared patients and the weights."""
    there = [run / files.FOLDS, run / files.PREPARED, *(home / files.WEIGHTS for home in homes(run, counts).values())]
    known = {file.relative_to(run).as_posix(): integrity.sha256(file) for file in there if file.is_file()}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _made(
    run: Path, past: Study, patients: Sequence[Patient], first: Sequence[Patient], splits: Sequence[Split], step: Step
) -> Reference:
    place_of = {patient.id: place for place, patient in enumerate(first)}
    far: list[list[float]] = [[] for _ in first]
    clouds = {}
    for (repeat, fold), home in homes(run, [len(split) for split in splits]).items():
        train, _, test = parts(patients, splits[repeat][fold], past, fold_seed(past, repeat, fold))
        neural = Neural.fitted(past, home)
        represent = partial(_represent, neural)
        cloud = _cloud(represent(first_visits(train)))
        tested = [patient for patient in test if patient.id in place_of]
        distances = cloud.log_distance(represent(tested))
        middle = float(np.median(distances))
        clouds[repeat, fold] = Cloud(cloud.mean, cloud.precision, middle)
        for patient, distance in zip(tested, (distances - middle).tolist(), strict=True):
            far[place_of[patient.id]].append(distance)
        step()
    found = [figures.of_patient(past.prepared / patient.id) for patient in first]
    return Reference(found, np.array([np.mean(one) if one else np.nan for one in far]), clouds)


def _represent(neural: Neural, patients: Sequence[Patient]) -> Float[np.ndarray, "n d"]:
    return neural.represent([without_labels(patient) for patient in patients])


def _cloud(features: Float[np.ndarray, "n d"]) -> Cloud:
    """Mean and inverse covariance of a fold's training patients, shrunk towards uncorrelated features.

    Features are in units of their standard deviation; the shrinkage is that of Ledoit & Wolf 2004,
    doi:10.1016/S0047-259X(03)00096-4, which finds its strength from the data. The distance is Mahalanobis', as Lee et al. 2018,
    arXiv:1807.03888, use it for what a network was not trained on.
    """
    from sklearn.covariance import LedoitWolf  # here, because it takes half a second, and only making a reference needs it

    deviation = np.maximum(features.std(axis=0).astype(float), SMALLEST)
    fitted = LedoitWolf().fit((features - features.mean(axis=0)) / deviation)
    return Cloud(features.mean(axis=0).astype(float), fitted.precision_ / np.outer(deviation, deviation))


def _write(made: Reference, rests_on: str, file: Path) -> None:
    tensors: dict[str, np.ndarray] = {"distance": made.distance}
    for (repeat, fold), cloud in made.clouds.items():
        tensors |= {f"{repeat} {fold} {name}": np.asarray(value) for name, value in asdict(cloud).items()}
    people = [[[[*name, value] for name, value in one.value.items()], one.quantiles] for one in made.patients]
    with replacing(file) as beside:
        header = {"schema": SCHEMA, "rests_on": rests_on, "patients": json.dumps(people)}
        safetensors.numpy.save_file({name: np.ascontiguousarray(one) for name, one in tensors.items()}, beside, header)
        sort_header(beside)


def _read(file: Path, rests_on: str) -> Reference | None:
    """What was made before from the same; None where there is nothing, or something else."""
    try:
        with safetensors.safe_open(str(file), "np") as opened:
            header: dict[str, Any] = opened.metadata() or {}
            if (header.get("schema"), header.get("rests_on")) != (SCHEMA, rests_on):
                return None
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
            people = json.loads(header["patients"])
    except (OSError, safetensors.SafetensorError, ValueError, KeyError):
        return None
    places = sorted({(int(words[0]), int(words[1])) for name in tensors if len(words := name.split()) == 3})
    clouds = {
        (r, f): Cloud(tensors[f"{r} {f} mean"], tensors[f"{r} {f} precision"], tensors[f"{r} {f} middle"].item())
        for r, f in places
    }
    found = [Figures({Name(figure, scan): value for figure, scan, value in one}, quantiles) for one, quantiles in people]
    return Reference(found, tensors["distance"], clouds)

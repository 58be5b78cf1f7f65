"""Reference: whether a new patient is like a run's own, in figures of their scans and in what each network reads.

The reference is made once, out of fold. It is kept in the run's folder with the hash of what it rests on, and made anew where
that has changed. Letters: n patients, m patients (the run's and last the new one), d width of what the heads read, f figures.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Float

from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import fold_seed, parts
from mri_vit.data.cohort import Patient, first_visits, without_labels
from mri_vit.errors import MriVitError
from mri_vit.finished import prediction_document
from mri_vit.finished.prediction_document import Distribution
from mri_vit.finished.trained_run import Place, network_folders
from mri_vit.predictors.network import Neural
from mri_vit.prepare import prepared
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.run import files, integrity
from mri_vit.run.atomic import replacing
from mri_vit.run.integrity import as_written, sort_header
from mri_vit.settings.recipe import title
from mri_vit.settings.schema import Study

FILE = "reference.safetensors"  # in the run's folder
SCHEMA = "mri-vit reference 2"  # a higher number makes it anew
DEVIATION_EPS = 1e-6  # of a feature's standard deviation: one that never varies says nothing
Step = Callable[[], None]
Side = Literal["both", "high"]  # on which a value is far out
ALPHA = 0.05  # of patients like the run's that may be flagged, over all figures together
LEAST_PATIENTS = math.ceil(1 / ALPHA) - 1  # with fewer of the run, the patient furthest out is one in less than 1 / ALPHA
KEPT = 0.9  # of patients keep within what a distance is measured in: so far out, tails begin, and nine in ten are steady
KNOWN = 0.5  # of the run's patients who must have a figure for it to be compared
SPREAD_EPS = 1e-3  # of a ratio, and of a histogram's distance, before a logarithm is taken
SAID = 2  # figures that the sentence names, the furthest first; all are in the list
RANGE = (2.5, 97.5)  # percentiles of the run's patients that are shown


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
        return 0.5 * np.log(np.maximum(squares, DEVIATION_EPS)) - self.middle


@dataclass(frozen=True, eq=False)
class Reference:
    """The run's patients, one visit of each, in one order throughout."""

    patients: list[Figures]
    distance: Float[np.ndarray, " n"]  # log, out of fold, mean over repeats
    clouds: dict[Place, Cloud]


def reference_of_run(run: Path, past: Study, patients: Sequence[Patient], splits: Sequence[Split], step: Step) -> Reference | str:
    """The reference of a run, read or made, or why there is none: its prepared patients are gone, or are others.

    `past` are the run's settings, `patients` and `splits` those of its folds; `step` is called after each fold that is looked at.
    """
    rests_on = _rests_on(run, [len(split) for split in splits])
    if found := _read(run / FILE, rests_on):
        return found
    first = first_visits(patients)
    try:
        prepared.refuse_changed_patients(past, patients, run)
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
    there = [run / files.FOLDS, run / files.PREPARED, *(home / files.WEIGHTS for home in network_folders(run, counts).values())]
    known = {file.relative_to(run).as_posix(): integrity.sha256(file) for file in there if file.is_file()}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _made(
    run: Path, past: Study, patients: Sequence[Patient], first: Sequence[Patient], splits: Sequence[Split], step: Step
) -> Reference:
    place_of = {patient.id: place for place, patient in enumerate(first)}
    far: list[list[float]] = [[] for _ in first]
    clouds = {}
    for (repeat, fold), home in network_folders(run, [len(split) for split in splits]).items():
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
    found = [figures_of(past.prepared / patient.id) for patient in first]
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

    deviation = np.maximum(features.std(axis=0).astype(float), DEVIATION_EPS)
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


class Name(NamedTuple):
    """Which figure, and of which scan; "" of the whole patient."""

    figure: str
    scan: str


@dataclass(frozen=True)
class Kind:
    """What a figure is called, its unit, and on which scale and side distances from the middle are taken."""

    title: str
    unit: str = ""
    is_ratio: bool = False  # distances are those of its logarithm: half is as far as twice
    side: Side = "both"


TOKENS = Name("tokens", "")


HISTOGRAM, FEATURES = "histogram", "features"  # the two that are distances from the run's patients themselves


WHOLE = {
    "brain_ml": Kind("brain volume", "ml", is_ratio=True),
    "tokens": Kind("number of places with brain", is_ratio=True),
    "squeezed": Kind("least scale of the MNI152 brain to the greatest"),
    "coverage": Kind("least share that is there of a part of the MNI152 brain"),
    "mni_metric": Kind("likeness to the MNI152 brain, mutual information"),
    "fluid_contrast": Kind("asymmetry of T2 less FLAIR deep in the brain", "SD"),
    "enhancement": Kind("asymmetry of T1ce less T1 deep in the brain", "SD"),
    FEATURES: Kind("distance of what the networks read", "times the run's median", is_ratio=True, side="high"),
}


OF_SCAN = {
    HISTOGRAM: Kind("distance of the histogram from the run's median histogram", "SD", is_ratio=True, side="high"),
    "contrast": Kind("standard deviation of the brain to its mean", is_ratio=True),
    "signal_to_noise": Kind("signal over noise", is_ratio=True),
    "likeness": Kind("likeness to the reference"),
}


@dataclass(frozen=True)
class Figures:
    """One patient's figures; None is not known. `quantiles` are those of each scan in its brain, of which histograms are made."""

    value: dict[Name, float | None]
    quantiles: dict[str, list[float]]


def figure_kind(name: Name) -> Kind:
    return (OF_SCAN if name.scan else WHOLE)[name.figure]


def figure_words(name: Name) -> str:
    """A figure's name for a reader."""
    return f"{figure_kind(name).title} of {title(name.scan)}" if name.scan else figure_kind(name).title


def figures_of(folder: Path) -> Figures:
    """The figures of a prepared patient, but for what networks read. Raises IntegrityError where the record is damaged."""
    record = load_record(folder)
    with as_written(folder / files.PATIENT, PREPARE_AGAIN):
        with safetensors.safe_open(str(folder / files.TOKENS), "np") as file:  # its header alone: the rest has megabytes
            (count,) = file.get_slice("place").get_shape()
        return _of_record(record, count)


def _of_record(record: Mapping[str, Any], count: int) -> Figures:
    steps = {step["step"]: step for step in record["steps"]}
    quality = record["quality"]
    found: dict[Name, float | None] = {
        Name("brain_ml", ""): record["brain_ml"],
        TOKENS: float(count),
        Name("squeezed", ""): quality["squeezed"],
        Name("coverage", ""): min((one for one in quality["coverage"].values() if one is not None), default=None),
        Name("mni_metric", ""): steps["to_mni"].get("metric"),
        Name("fluid_contrast", ""): quality["fluid_contrast"],
        Name("enhancement", ""): quality["enhancement"],
    }
    for scan, own in quality["scans"].items():
        found[Name("signal_to_noise", scan)] = own["signal_to_noise"]
        found[Name("likeness", scan)] = own.get("likeness")
        scale = steps["intensity"]["scans"].get(scan, {})
        found[Name("contrast", scan)] = scale["deviation"] / scale["mean"] if scale.get("mean", 0) > 0 else None
    known = {name: None if value is None or not math.isfinite(value) else float(value) for name, value in found.items()}
    return Figures(known, {scan: own["quantiles"] for scan, own in quality["scans"].items()})


def distribution_of(
    new: Figures, features: dict[tuple[int, int], Float[np.ndarray, " d"]], known: Reference | str
) -> Distribution:
    """Whether a patient is like those of a run, over all figures together.

    Definition: each figure's distance from its median is divided by the distance that nine in ten patients keep; a patient's
    place is the largest of these. The patient is outside where at most 5 % of all patients, this one among them, lie as far out.
    Assumption: a patient of the run's population and the run's own are exchangeable. Medians, histograms and distances are taken
    over all of them with the new one, so that the rank is uniform then, and at most 5 % are flagged over all figures together,
    however many there are (full conformal prediction: Vovk, Gammerman & Shafer 2005, doi:10.1007/b106715). What networks read is
    the exception: the run's patients were left out by one fold's network each, the new one by all, whose median counts. It
    varies less, which makes the test more cautious.

    Parameters
    ----------
    new : the patient's figures.
    features : float [d] by repeat and fold, what each fold's network reads of the patient.
    known : the run's reference, or why there is none.
    """
    if isinstance(known, str) or len(known.patients) < LEAST_PATIENTS:
        why = known if isinstance(known, str) else f"the run has {len(known.patients)} patients; {LEAST_PATIENTS} are needed"
        return Distribution(
            placement="not known",
            reason=why,
            patients=0,
            p=math.nan,
            alpha=ALPHA,
            limit=math.nan,
            figures=(),
            sentence=f"Whether the patient is like those whom the run was trained on is not known: {why}.",
        )
    names, values = distribution_table(new, features, known)
    beyond = distances(names, values)
    furthest = np.nanmax(beyond, axis=1)  # (m,)
    p = float((furthest >= furthest[-1]).mean())
    limit = limit_of(furthest[:-1])
    order = np.argsort(-np.nan_to_num(beyond[-1], nan=-math.inf))
    shown = tuple(_figure(names[f], values[:, f], float(beyond[-1, f]), limit) for f in order if np.isfinite(beyond[-1, f]))
    out = [one for one in shown if one.is_outside]
    among = f"compared with {len(known.patients)} patients of the run in {len(shown)} figures"
    more = f"; and {len(out) - SAID} more" if len(out) > SAID else ""
    said = (
        f"Outside of what the run was trained on ({among}): {'; '.join(one.sentence for one in out[:SAID])}{more}."
        if out
        else f"Within what the run was trained on ({among})."
    )
    return Distribution(
        placement="outside" if out else "within",
        reason=None,
        patients=len(known.patients),
        p=p,
        alpha=ALPHA,
        limit=limit,
        figures=shown,
        sentence=said,
    )


def distribution_table(
    new: Figures, features: dict[tuple[int, int], Float[np.ndarray, " d"]], known: Reference
) -> tuple[list[Name], Float[np.ndarray, "m f"]]:
    """The figures that can be compared, of all patients, the new one last; NaN is not known. Ratios are as they are."""
    everybody = [*known.patients, new]
    names = list(dict.fromkeys(name for one in everybody for name in one.value))
    columns = {name: np.array([one.value.get(name) for one in everybody], float) for name in names}
    for scan in dict.fromkeys(scan for one in everybody for scan in one.quantiles):
        columns[Name(HISTOGRAM, scan)] = _apart([one.quantiles.get(scan) for one in everybody])
    read = [known.clouds[place].log_distance(own[None])[0] for place, own in features.items() if place in known.clouds]
    columns[Name(FEATURES, "")] = np.exp([*known.distance, np.median(read) if read else math.nan])
    kept = {name: one for name, one in columns.items() if np.isfinite(one[:-1]).mean() >= KNOWN}
    return list(kept), np.stack(list(kept.values()), axis=1)


def _apart(quantiles: Sequence[list[float] | None]) -> Float[np.ndarray, " m"]:
    """Each histogram's distance (Wasserstein's) from the median histogram; NaN where there is none."""
    width = max(len(one) for one in quantiles if one)
    rows = np.array([one or [math.nan] * width for one in quantiles])
    return np.abs(rows - np.nanmedian(rows, axis=0)).mean(axis=1)


def distances(names: Sequence[Name], values: Float[np.ndarray, "m f"]) -> Float[np.ndarray, "m f"]:
    """How far each patient lies from the median in each figure, by what nine in ten keep; NaN where nothing can be told."""
    scaled = values.copy()
    ratios = [index for index, name in enumerate(names) if figure_kind(name).is_ratio]
    scaled[:, ratios] = np.log(np.maximum(values[:, ratios], SPREAD_EPS))
    away = scaled - np.nanmedian(scaled, axis=0)
    reach = np.nanquantile(np.abs(away), KEPT, axis=0)
    high = np.array([figure_kind(name).side == "high" for name in names])
    far = np.where(high, away, np.abs(away))
    return np.where(reach > 0, far / np.where(reach > 0, reach, 1), math.nan)


def limit_of(furthest: Float[np.ndarray, " n"]) -> float:
    """How far a new patient's furthest figure must lie out to be flagged: beyond this one of the run's patients."""
    allowed = int(ALPHA * (len(furthest) + 1))  # patients, the new one among them, who may lie as far out
    return float(np.sort(furthest)[-allowed])


def _figure(name: Name, values: Float[np.ndarray, " m"], beyond: float, limit: float) -> prediction_document.Figure:
    value, others = float(values[-1]), values[:-1]
    low, high = (float(end) for end in np.nanpercentile(others, RANGE))
    unit = figure_kind(name).unit
    found = f"{_short(value)} {unit}".strip()
    said = f"{figure_words(name)} is {found}; 95 % of the run's patients have {_short(low)} to {_short(high)}"
    outside = beyond > limit
    if outside:
        said += f": {beyond:.1f} times as far from their median as nine in ten of them, and {limit:.1f} is the limit"
    return prediction_document.Figure(
        name=name.figure,
        scan=name.scan,
        title=figure_words(name),
        unit=unit,
        value=value,
        median=float(np.nanmedian(others)),
        low=low,
        high=high,
        beyond=beyond,
        is_outside=outside,
        sentence=said,
    )


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"

"""Reference: whether a new patient resembles a run's own, in measures of their scans and in the networks' features.

The reference is made once, out of fold. It is kept in the run's folder with a hash of its inputs, and made again where these
have changed. Letters: n patients, m patients (the run's, then the new one), d width of what the heads read, f measures.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Float

from mri_vit.data.cohort import Patient, first_visits, without_labels
from mri_vit.errors import MriVitError
from mri_vit.finished import prediction_document
from mri_vit.finished.prediction_document import Distribution
from mri_vit.finished.trained_run import Place, TrainedRun
from mri_vit.predictors.network import Neural
from mri_vit.prepare import prepared
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.run import files, integrity
from mri_vit.run.atomic import replacing
from mri_vit.run.integrity import as_written, sort_header
from mri_vit.settings.recipe import title

FILE = "reference.safetensors"  # in the run's folder
SCHEMA = "mri-vit reference 2"  # a higher number makes it again
DEVIATION_EPS = 1e-6  # of a feature's standard deviation: a constant feature carries no information
Side = Literal["both", "high"]  # on which a value is far out
ALPHA = 0.05  # of patients like the run's that may be flagged, over all measures together
MIN_PATIENTS = math.ceil(1 / ALPHA) - 1  # with fewer, even the furthest patient has a rank above ALPHA
SCALE_QUANTILE = 0.9  # quantile that scales distances: further out it is unsteady
MIN_KNOWN_SHARE = 0.5  # of the run's patients who must have a measure for it to be compared
SPREAD_EPS = 1e-3  # least ratio, or histogram distance, whose logarithm is taken
NAMED_MEASURES = 2  # measures that the sentence names, the furthest first; all are in the list
SHOWN_PERCENTILES = (2.5, 97.5)  # percentiles of the run's patients that are shown


@dataclass(frozen=True, eq=False)
class Cloud:
    """A fold's training patients in its network's features; `middle` is its test patients' median log distance."""

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


def reference_of_run(run: TrainedRun, step: Callable[[], None]) -> Reference | str:
    """The reference of a run, read or made, or why there is none: its prepared patients are gone, or have changed.

    `step` is called after each fold whose network has read its patients.
    """
    depends_on = _depends_on(run)
    if stored := _stored(run.folder / FILE, depends_on):
        return stored
    first = first_visits(run.patients)
    try:
        prepared.refuse_changed_patients(run.study.prepared, run.patients, run.folder)
    except MriVitError as error:
        return str(error)
    if any(load_record(run.study.prepared / patient.id).get("schema") != prepared.SCHEMA for patient in first):
        return (
            f"{run.folder}: its patients were prepared with an earlier version, which measured them differently; train again to"
            " compare new patients with them"
        )
    made = _made(run, first, step)
    with suppress(OSError):  # a read-only run: the reference is made again the next time
        write(made, run.folder / FILE, depends_on)
    return made


def _depends_on(run: TrainedRun) -> str:
    """Hash of the folds, the prepared patients and the weights."""
    weights = [home / files.WEIGHTS for home in run.networks.values()]
    present = [file for file in (run.folder / files.FOLDS, run.folder / files.PREPARED, *weights) if file.is_file()]
    hashes = {file.relative_to(run.folder).as_posix(): integrity.sha256(file) for file in present}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def _made(run: TrainedRun, first: Sequence[Patient], step: Callable[[], None]) -> Reference:
    distances: dict[str, list[float]] = {patient.id: [] for patient in first}
    networks, clouds = run.networks, {}
    for position, train, _, test in run.fold_patients():
        if position not in networks:
            continue
        neural = Neural.fitted(run.study, networks[position])
        cloud = _cloud(neural.represent([without_labels(patient) for patient in first_visits(train)]))
        tested = [patient for patient in test if patient.id in distances]
        away = cloud.log_distance(neural.represent([without_labels(patient) for patient in tested]))
        middle = float(np.median(away))
        clouds[position] = Cloud(cloud.mean, cloud.precision, middle)
        for patient, distance in zip(tested, (away - middle).tolist(), strict=True):
            distances[patient.id].append(distance)
        step()
    measured = [figures_of(run.study.prepared / patient.id) for patient in first]
    return Reference(measured, np.array([np.mean(of) if of else np.nan for of in distances.values()]), clouds)


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


def write(made: Reference, file: Path, depends_on: str = "") -> None:
    """Write a reference; `depends_on` is the hash of what it was made from."""
    tensors: dict[str, np.ndarray] = {"distance": made.distance}
    for (repeat, fold), cloud in made.clouds.items():
        tensors |= {f"{repeat} {fold} {name}": np.asarray(value) for name, value in asdict(cloud).items()}
    people = [[[[*name, value] for name, value in patient.value.items()], patient.quantiles] for patient in made.patients]
    with replacing(file) as beside:
        header = {"schema": SCHEMA, "rests_on": depends_on, "patients": json.dumps(people)}
        safetensors.numpy.save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, beside, header)
        sort_header(beside)


def _stored(file: Path, depends_on: str) -> Reference | None:
    """The stored reference; None where there is none, or its inputs have changed."""
    try:
        return read(file, depends_on)
    except (OSError, safetensors.SafetensorError, ValueError, KeyError):
        return None


def read(file: Path, depends_on: str = "") -> Reference:
    """A written reference. Raises ValueError where it is of another version or was made from something else."""
    with safetensors.safe_open(str(file), "np") as opened:
        header: dict[str, Any] = opened.metadata() or {}
        if (header.get("schema"), header.get("rests_on")) != (SCHEMA, depends_on):
            raise ValueError(f"{file}: found {header.get('schema')}, made from {header.get('rests_on')}; expected {SCHEMA}")
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
        people = json.loads(header["patients"])
    positions = sorted({(int(words[0]), int(words[1])) for name in tensors if len(words := name.split()) == 3})
    clouds = {
        (r, f): Cloud(tensors[f"{r} {f} mean"], tensors[f"{r} {f} precision"], tensors[f"{r} {f} middle"].item())
        for r, f in positions
    }
    measured = [Figures({Name(figure, scan): value for figure, scan, value in values}, quantiles) for values, quantiles in people]
    return Reference(measured, tensors["distance"], clouds)


def unnamed(known: Reference) -> Reference:
    """The same patients in the order of their distances and not of the run's table: none can be found by their place."""
    order = np.argsort(known.distance, kind="stable")
    return Reference([known.patients[index] for index in order], known.distance[order], known.clouds)


class Name(NamedTuple):
    """Which measure, and of which scan; "" for the whole patient."""

    figure: str
    scan: str


@dataclass(frozen=True)
class Kind:
    """A measure's title and unit, and the scale and side on which its distance from the median is taken."""

    title: str
    unit: str = ""
    is_ratio: bool = False  # distances are taken of its logarithm: half is as far as twice
    side: Side = "both"


TOKENS = Name("tokens", "")
HISTOGRAM, FEATURES = "histogram", "features"  # the two that are distances from the run's patients themselves
WHOLE = {
    "brain_ml": Kind("brain volume", "ml", is_ratio=True),
    "tokens": Kind("number of grid positions with brain", is_ratio=True),
    "squeezed": Kind("smallest scale of the MNI152 brain relative to the largest"),
    "coverage": Kind("smallest share of a part of the MNI152 brain that is covered"),
    "mni_metric": Kind("similarity to the MNI152 brain, mutual information"),
    "fluid_contrast": Kind("asymmetry of T2 minus FLAIR deep in the brain", "SD"),
    "enhancement": Kind("asymmetry of T1ce minus T1 deep in the brain", "SD"),
    FEATURES: Kind("distance of the networks' features", "times the run's median", is_ratio=True, side="high"),
}
OF_SCAN = {
    HISTOGRAM: Kind("distance of the histogram from the run's median histogram", "SD", is_ratio=True, side="high"),
    "contrast": Kind("standard deviation of the brain relative to its mean", is_ratio=True),
    "signal_to_noise": Kind("signal-to-noise ratio", is_ratio=True),
    "likeness": Kind("similarity to the reference"),
}


@dataclass(frozen=True)
class Figures:
    """One patient's measures, None where unknown, and each scan's `quantiles` inside the brain, which stand for its histogram."""

    value: dict[Name, float | None]
    quantiles: dict[str, list[float]]


def figure_kind(name: Name) -> Kind:
    return (OF_SCAN if name.scan else WHOLE)[name.figure]


def figure_words(name: Name) -> str:
    """A measure's title for a reader."""
    return f"{figure_kind(name).title} of {title(name.scan)}" if name.scan else figure_kind(name).title


def figures_of(folder: Path) -> Figures:
    """The measures of a prepared patient, without features. Raises IntegrityError where the record is damaged."""
    record = load_record(folder)
    with as_written(folder / files.PATIENT, PREPARE_AGAIN):
        with safetensors.safe_open(str(folder / files.TOKENS), "np") as file:  # its header alone: the rest has megabytes
            (count,) = file.get_slice("place").get_shape()
        return _of_record(record, count)


def _of_record(record: Mapping[str, Any], count: int) -> Figures:
    steps = {step["step"]: step for step in record["steps"]}
    quality = record["quality"]
    measured: dict[Name, float | None] = {
        Name("brain_ml", ""): record["brain_ml"],
        TOKENS: float(count),
        Name("squeezed", ""): quality["squeezed"],
        Name("coverage", ""): min((share for share in quality["coverage"].values() if share is not None), default=None),
        Name("mni_metric", ""): steps["to_mni"].get("metric"),
        Name("fluid_contrast", ""): quality["fluid_contrast"],
        Name("enhancement", ""): quality["enhancement"],
    }
    for scan, own in quality["scans"].items():
        measured[Name("signal_to_noise", scan)] = own["signal_to_noise"]
        measured[Name("likeness", scan)] = own.get("likeness")
        scale = steps["intensity"]["scans"].get(scan, {})
        measured[Name("contrast", scan)] = scale["deviation"] / scale["mean"] if scale.get("mean", 0) > 0 else None
    known = {name: None if value is None or not math.isfinite(value) else float(value) for name, value in measured.items()}
    return Figures(known, {scan: own["quantiles"] for scan, own in quality["scans"].items()})


def distribution_of(
    new: Figures, features: dict[tuple[int, int], Float[np.ndarray, " d"]], known: Reference | str
) -> Distribution:
    """Whether a patient resembles those of a run, over all measures together.

    Definition: each measure's distance from its median is divided by the 90th percentile of the patients' distances; a patient
    is as far out as the largest of these, and outside where at most 5 % of all patients, this one included, are as far out.
    Assumption: a patient of the run's population and the run's own are exchangeable. Medians, histograms and distances are taken
    over all of them with the new one, so that the rank is uniform then, and at most 5 % are flagged over all measures together,
    however many there are (full conformal prediction: Vovk, Gammerman & Shafer 2005, doi:10.1007/b106715). Features are
    the exception: each of the run's patients was left out by one fold's network, the new one by all, whose median is used. It
    varies less, which makes the test more cautious.

    Parameters
    ----------
    new : the patient's measures.
    features : float [d] by repeat and fold, the patient's features by each fold's network.
    known : the run's reference, or why there is none.
    """
    if isinstance(known, str) or len(known.patients) < MIN_PATIENTS:
        reason = known if isinstance(known, str) else f"the run has {len(known.patients)} patients; {MIN_PATIENTS} are needed"
        return Distribution(
            placement="not known",
            reason=reason,
            patients=0,
            p=math.nan,
            alpha=ALPHA,
            limit=math.nan,
            figures=(),
            sentence=f"It is not known whether the patient resembles the run's patients: {reason}.",
        )
    names, values = distribution_table(new, features, known)
    beyond = distances(names, values)
    furthest = np.nanmax(beyond, axis=1)  # (m,)
    p = float((furthest >= furthest[-1]).mean())
    limit = limit_of(furthest[:-1])
    order = np.argsort(-np.nan_to_num(beyond[-1], nan=-math.inf))
    shown = tuple(_figure(names[f], values[:, f], float(beyond[-1, f]), limit) for f in order if np.isfinite(beyond[-1, f]))
    out = [measure for measure in shown if measure.is_outside]
    compared = f"{len(shown)} measures, {len(known.patients)} patients"
    more = f"; and {len(out) - NAMED_MEASURES} more" if len(out) > NAMED_MEASURES else ""
    sentence = (
        f"This patient differs from the run's patients ({compared}): "
        f"{'; '.join(row.sentence for row in out[:NAMED_MEASURES])}{more}."
        if out
        else f"This patient is similar to the run's patients ({compared})."
    )
    return Distribution(
        placement="outside" if out else "within",
        reason=None,
        patients=len(known.patients),
        p=p,
        alpha=ALPHA,
        limit=limit,
        figures=shown,
        sentence=sentence,
    )


def distribution_table(
    new: Figures, features: dict[tuple[int, int], Float[np.ndarray, " d"]], known: Reference
) -> tuple[list[Name], Float[np.ndarray, "m f"]]:
    """The measures that can be compared, of all patients, the new one last; NaN where unknown. Ratios are not yet logarithms."""
    patients = [*known.patients, new]
    names = list(dict.fromkeys(name for patient in patients for name in patient.value))
    columns = {name: np.array([patient.value.get(name) for patient in patients], float) for name in names}
    for scan in dict.fromkeys(scan for patient in patients for scan in patient.quantiles):
        columns[Name(HISTOGRAM, scan)] = _histogram_distance([patient.quantiles.get(scan) for patient in patients])
    read = [known.clouds[position].log_distance(own[None])[0] for position, own in features.items() if position in known.clouds]
    columns[Name(FEATURES, "")] = np.exp([*known.distance, np.median(read) if read else math.nan])
    kept = {name: columns[name] for name in sorted(columns) if np.isfinite(columns[name][:-1]).mean() >= MIN_KNOWN_SHARE}
    return list(kept), np.stack(list(kept.values()), axis=1)


def _histogram_distance(quantiles: Sequence[list[float] | None]) -> Float[np.ndarray, " m"]:
    """Each histogram's distance (Wasserstein's) from the median histogram; NaN where there is none."""
    width = max(len(row) for row in quantiles if row)
    rows = np.array([row or [math.nan] * width for row in quantiles])
    return np.abs(rows - np.nanmedian(rows, axis=0)).mean(axis=1)


def distances(names: Sequence[Name], values: Float[np.ndarray, "m f"]) -> Float[np.ndarray, "m f"]:
    """Each patient's distance from the median in each measure, in units of its 90th percentile; NaN where it is undefined."""
    scaled = values.copy()
    ratios = [index for index, name in enumerate(names) if figure_kind(name).is_ratio]
    scaled[:, ratios] = np.log(np.maximum(values[:, ratios], SPREAD_EPS))
    away = scaled - np.nanmedian(scaled, axis=0)
    reach = np.nanquantile(np.abs(away), SCALE_QUANTILE, axis=0)
    high = np.array([figure_kind(name).side == "high" for name in names])
    far = np.where(high, away, np.abs(away))
    return np.where(reach > 0, far / np.where(reach > 0, reach, 1), math.nan)


def limit_of(furthest: Float[np.ndarray, " n"]) -> float:
    """The distance beyond which a new patient's furthest measure is flagged: that of one of the run's patients."""
    allowed = int(ALPHA * (len(furthest) + 1))  # patients, the new one included, who may be as far out
    return float(np.sort(furthest)[-allowed])


def _figure(name: Name, values: Float[np.ndarray, " m"], beyond: float, limit: float) -> prediction_document.Figure:
    value, others = float(values[-1]), values[:-1]
    low, high = (float(end) for end in np.nanpercentile(others, SHOWN_PERCENTILES))
    unit = figure_kind(name).unit
    measured = f"{_short(value)} {unit}".strip()
    sentence = f"{figure_words(name)} is {measured}; in 95 % of the run's patients it is {_short(low)} to {_short(high)}"
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
        is_outside=beyond > limit,
        sentence=sentence,
    )


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"

"""Distribution: a patient's figures and a run's reference go in; whether the patient is like the run's, and where not, comes out.

Letters: m patients, the run's and last the new one; f figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from mri_vit.prediction import document
from mri_vit.prediction.document import Distribution
from mri_vit.prediction.figures import FEATURES, HISTOGRAM, Figures, Name, kind, words
from mri_vit.prediction.reference import Reference

ALPHA = 0.05  # of patients like the run's that may be flagged, over all figures together
FEWEST = math.ceil(1 / ALPHA) - 1  # with fewer of the run, the patient furthest out is one in less than 1 / ALPHA
KEPT = 0.9  # of patients keep within what a distance is measured in: so far out, tails begin, and nine in ten are steady
KNOWN = 0.5  # of the run's patients who must have a figure for it to be compared
SMALLEST = 1e-3  # of a ratio, and of a histogram's distance, before a logarithm is taken
SAID = 2  # figures that the sentence names, the furthest first; all are in the list
RANGE = (2.5, 97.5)  # percentiles of the run's patients that are shown


def of_patient(new: Figures, features: dict[tuple[int, int], Float[np.ndarray, " d"]], known: Reference | str) -> Distribution:
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
    if isinstance(known, str) or len(known.patients) < FEWEST:
        why = known if isinstance(known, str) else f"the run has {len(known.patients)} patients; {FEWEST} are needed"
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
    names, values = table(new, features, known)
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


def table(
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
    ratios = [index for index, name in enumerate(names) if kind(name).is_ratio]
    scaled[:, ratios] = np.log(np.maximum(values[:, ratios], SMALLEST))
    away = scaled - np.nanmedian(scaled, axis=0)
    reach = np.nanquantile(np.abs(away), KEPT, axis=0)
    high = np.array([kind(name).side == "high" for name in names])
    far = np.where(high, away, np.abs(away))
    return np.where(reach > 0, far / np.where(reach > 0, reach, 1), math.nan)


def limit_of(furthest: Float[np.ndarray, " n"]) -> float:
    """How far a new patient's furthest figure must lie out to be flagged: beyond this one of the run's patients."""
    allowed = int(ALPHA * (len(furthest) + 1))  # patients, the new one among them, who may lie as far out
    return float(np.sort(furthest)[-allowed])


def _figure(name: Name, values: Float[np.ndarray, " m"], beyond: float, limit: float) -> document.Figure:
    value, others = float(values[-1]), values[:-1]
    low, high = (float(end) for end in np.nanpercentile(others, RANGE))
    unit = kind(name).unit
    found = f"{_short(value)} {unit}".strip()
    said = f"{words(name)} is {found}; 95 % of the run's patients have {_short(low)} to {_short(high)}"
    outside = beyond > limit
    if outside:
        said += f": {beyond:.1f} times as far from their median as nine in ten of them, and {limit:.1f} is the limit"
    return document.Figure(
        name=name.figure,
        scan=name.scan,
        title=words(name),
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

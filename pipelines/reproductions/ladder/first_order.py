"""First-order numbers of each sequence over the brain: how its voxels are distributed, and nothing of where they lie.

Names and definitions are those of the Image Biomarker Standardisation Initiative, IBSI (Zwanenburg et al. 2020,
doi:10.1148/radiol.2020191145; manual arXiv:1612.07003, "Intensity-based statistical features" and "Intensity histogram
features"). Three of its numbers are left out: energy, for it counts voxels, which is a volume; and the coefficients of variation
and of quartile dispersion, which divide by a mean that is zero in scans on the scale of their own brain.
Letters: c channels, n voxels of a region.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.errors import IntegrityError
from mri_vit.predictors import patient_tables
from mri_vit.run import files
from mri_vit.settings.schema import Study

BINS = 32  # of the histogram between the least and the greatest value; IBSI advises a fixed number where scans have no unit
MORE = ("min", "range", "iqr", "mad", "rmad", "medad", "rms", "entropy", "uniformity")
NUMBERS = (*patient_tables.STATISTICS, *MORE)


def first_order_table(patients: Sequence[Patient], study: Study) -> pd.DataFrame:
    """A row per visit id: the first-order numbers of each sequence over the brain, in columns `<sequence>_<number>`.

    A sequence that was not acquired gives NaN. Raises IntegrityError naming the patient whose tokens cannot be read.
    """
    rows = []
    for patient in patients:
        try:
            stored = tokens.load(study.prepared / patient.id / files.TOKENS, study.channels)
        except IntegrityError as error:
            raise IntegrityError(f"patient {patient.id}: no first-order numbers: {error}") from None
        rows.append(first_order(patient_tables.brain_voxels(stored), study.channels))
    return pd.DataFrame(rows, index=pd.Index([p.id for p in patients]), dtype=float)


def first_order(voxels: Float[np.ndarray, "c n"], channels: Sequence[str]) -> dict[str, float]:
    """The `NUMBERS` of each sequence's voxels, by `<sequence>_<number>`; NaN where they are undefined.

    The same voxels in another order give the same numbers to the last digit.
    """
    ordered = np.sort(voxels, axis=1)  # sums of floats depend on their order
    found = patient_tables.statistics(ordered, channels)
    for channel, values in zip(channels, ordered.astype(np.float64), strict=True):
        numbers = _more(values) if values.any() else [math.nan] * len(MORE)  # not acquired: stored as zeros
        found |= {f"{channel}_{name}": number for name, number in zip(MORE, numbers, strict=True)}
    return found


def _more(values: Float[np.ndarray, " n"]) -> list[float]:
    """The numbers `MORE` of a sequence.

    Range, interquartile range, mean absolute deviation, the same of the values from the 10th to the 90th percentile from their
    own mean, mean absolute deviation from the median, root mean square, and of the shares p of the histogram's bins the entropy
    -Σ p log₂ p in bits and the uniformity Σ p².
    """
    p10, p25, median, p75, p90 = np.percentile(values, (10, 25, 50, 75, 90))
    inner = values[(values >= p10) & (values <= p90)]
    share = np.histogram(values, BINS)[0] / len(values)
    held = share[share > 0]
    found = (
        values.min(),
        np.ptp(values),
        p75 - p25,
        np.abs(values - values.mean()).mean(),
        np.abs(inner - inner.mean()).mean(),
        np.abs(values - median).mean(),
        math.sqrt(np.square(values).mean()),
        -(held * np.log2(held)).sum() + 0.0,  # no minus before the zero of one bin
        np.square(share).sum(),
    )
    return [float(number) for number in found]

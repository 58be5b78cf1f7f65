"""Is a model not inferior to another by more than a margin, or are the two equivalent within it? A paired difference in."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from scipy.special import ndtr

from mri_vit.metrics.comparison import Z_95

Claim = Literal["equivalent", "not inferior", "inferior", "open"]
ONE_SIDED = 0.025  # of either bound: the two-sided 95 % interval that is shown decides


class WithinMargin(NamedTuple):
    """What a difference shows about a margin, and the one-sided p of its two bounds."""

    claim: Claim
    p_lower: float  # that the model is inferior by the margin or more
    p_upper: float  # that it is superior by the margin or more


def within_margin(difference: float, low: float, high: float, margin: float) -> WithinMargin:
    """Non-inferiority and equivalence of two models by the 95 % interval of their paired difference.

    Definition: not inferior where the interval lies above -margin; equivalent where it lies between -margin and margin;
    inferior where it lies below -margin; else open. Equivalence implies non-inferiority, for one interval decides both: each
    bound is a one-sided test at 2.5 % (two one-sided tests of 2.5 %, stricter than the usual 5 %).
    Formula: p = Φ(-(d + margin) / e) and Φ(-(margin - d) / e), e the standard error of the difference d.
    Assumption: the margin was fixed before the difference was seen, and is no larger than what does not matter to patients.
    Source: Schuirmann 1987, doi:10.1007/BF01068419; Piaggio et al. 2012, doi:10.1001/jama.2012.87802 (CONSORT).
    `low`, `high`: as `comparison.Comparison` has them, the normal 95 % interval.
    Returns: WithinMargin; open with NaN where the interval is undefined or has no width, since nothing was tested.

    >>> within_margin(0.02, -0.03, 0.07, margin=0.05).claim
    'not inferior'
    """
    if not margin > 0:
        raise ValueError(f"found a margin of {margin:g}; expected one above 0")
    if math.isnan(low + high) or low == high:
        return WithinMargin("open", math.nan, math.nan)
    error = (high - low) / (2 * Z_95)
    p_lower, p_upper = (float(ndtr(-distance / error)) for distance in (difference + margin, margin - difference))
    above, below = low > -margin, high < margin
    claim: Claim = "equivalent" if above and below else "not inferior" if above else "inferior" if high < -margin else "open"
    return WithinMargin(claim, p_lower, p_upper)

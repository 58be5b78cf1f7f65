"""A smooth curve through points: x and y of n patients in, the local regression (loess) at g places out, for b sets of weights.

n is the number of patients, g the number of places, b the number of sets of weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

SPAN = 0.75  # share of the patients in each local fit; the default of R's loess, as are the quadratic and the tricube
SINGULAR = 1e-9  # of a determinant whose elements are of order 1: below it too few distinct values hold a curve


def loess(
    x: Float[np.ndarray, " n"],
    y: Float[np.ndarray, " n"],
    at: Float[np.ndarray, " g"],
    weight: Float[np.ndarray, "b n"],
) -> Float[np.ndarray, "b g"]:
    """Local quadratic regression of y on x, as R's `loess` with its defaults and `surface = "direct"` gives it.

    Definition: at each place a quadratic is fitted to the nearest 75 % of the patients by least squares, near ones weighing
    more, and its value there is the curve's. Where values are too few or too equal for a quadratic, a line or a mean is.
    Formula: weights are (1 - (d/h)³)³ of the distance d, h that of the ⌊0.75 n⌋th nearest of all n patients.
    Assumption: the curve is near a quadratic within the reach.
    Source: Cleveland & Devlin 1988, doi:10.1080/01621459.1988.10478639; R's `loess`.

    Parameters
    ----------
    weight : how often each patient counts; the reach h stays that of all patients, so that it is one smoother for all draws.

    Returns
    -------
    float [b, g]; 0 where no patient with a weight is within reach.

    Examples
    --------
    A parabola is its own curve:

    >>> x = np.arange(8.0)
    >>> print(loess(x, x**2, np.array([2.5, 6.0]), np.ones((1, 8))).round(6))
    [[ 6.25 36.  ]]
    """
    return Loess.of(x, y, at).fit(weight)


@dataclass(frozen=True)
class Loess:
    """`loess` of given points at given places, to be fitted to any weights: what each patient adds to each place's sums."""

    moments: Float[np.ndarray, "5 g n"]  # kernel times distance to the power 0 to 4
    outcome: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], at: Float[np.ndarray, " g"]) -> Loess:
        distance = np.abs(x - at[:, None])  # (g, n)
        nearest = max(int(len(x) * SPAN + 1e-5), 1)  # 1e-5 as in R, against rounding
        reach = np.partition(distance, nearest - 1, axis=1)[:, nearest - 1, None]
        # Where so many share one value that the reach is 0, these alone count.
        u = np.where(reach > 0, (x - at[:, None]) / np.where(reach > 0, reach, 1.0), np.where(distance > 0, 2.0, 0.0))
        near = np.clip(1 - np.abs(u) ** 3, 0, None) ** 3
        u = u.clip(-1, 1)  # beyond it nothing weighs
        moments = np.empty((5, *u.shape))  # filled in place: the largest array of a report of many patients
        for power in range(5):
            moments[power] = near * u**power
        return cls(moments, y)

    def fit(self, weight: Float[np.ndarray, "b n"]) -> Float[np.ndarray, "b g"]:
        """The curve at each place for b sets of weights."""
        s0, s1, s2, s3, s4 = (weight @ moment.T for moment in self.moments)  # (b, g) each
        t0, t1, t2 = ((weight * self.outcome) @ moment.T for moment in self.moments[:3])
        # The fits' values at u = 0, by Cramer's rule.
        of_first, of_second, of_third = s2 * s4 - s3**2, s2 * s3 - s1 * s4, s1 * s3 - s2**2
        quadratic, line = s0 * of_first + s1 * of_second + s2 * of_third, s0 * s2 - s1**2
        curved, straight = quadratic > SINGULAR * s0 * s2 * s4, line > SINGULAR * s0 * s2
        parabola = (of_first * t0 + of_second * t1 + of_third * t2) / np.where(curved, quadratic, 1.0)
        chord = (s2 * t0 - s1 * t1) / np.where(straight, line, 1.0)
        return np.where(curved, parabola, np.where(straight, chord, t0 / np.where(s0 > 0, s0, 1.0)))

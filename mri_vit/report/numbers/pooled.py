"""What is asked of any figure of pooled out-of-fold scores: could chance have made it, and do the folds share a scale?

n is the number of patients.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Shaped

from mri_vit.report.numbers.judged import tied

# Below the 0.024 that chance alone gives to an AUC of the 577 pooled patients of Saeed et al. 2023, the two say the same.
MUCH_APART = 0.02


def permutation(
    test: Callable[..., float],
    labels: tuple[np.ndarray, ...],
    score: Float[np.ndarray, " n"],
    group: Shaped[np.ndarray, " n"],
    seed: int,
    permutations: int,
) -> dict[str, float]:
    """One-sided permutation p of doing as well (`p`) and as badly (`p_below`, that of the opposite scores), not yet corrected."""
    above, below = (test(*labels, side, group, np.random.default_rng(seed), permutations) for side in (score, -score))
    return {"p": above, "p_adjusted": math.nan, "permutations": permutations, "p_below": below, "p_below_adjusted": math.nan}


def nothing_told(score: Float[np.ndarray, " n"]) -> str | None:
    """A sentence where all scores are equal; else None."""
    return f"Warning: all {len(score)} scores are equal, so the model tells no patient from another." if tied(score) else None


def remark(measure: str, pooled: float, within: float, repeats: int) -> str | None:
    """A sentence where the pooled figure and that of pairs within a fold are far apart; else None.

    Both are of the first repeat alone: a mean over repeats is the score of an ensemble and does better than one model, so that
    over several repeats the two would differ without any difference of scale.
    """
    if not abs(pooled - within) > MUCH_APART:  # false for NaN too: nothing can be said of what is undefined
        return None
    where = "In the first repeat the" if repeats > 1 else "The"
    return (
        f"{where} pooled {measure} ({pooled:.3f}) and that of pairs within a fold ({within:.3f}) differ by more than "
        f"{MUCH_APART}: the folds' models do not share a scale, and the figure within folds is the safer one."
    )

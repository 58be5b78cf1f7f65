"""Models: the names by which a study's tables know the models that are not comparators."""

from __future__ import annotations

from typing import Literal, get_args

VIT = "vit"  # the study's own network
FUSED = "vit+clinical"  # what the fitted network and the clinical columns say, weighed (predictors/late_fusion.py)
Control = Literal["clinical", "volume", "intensity", "slices", "site", "shuffled"]
CLINICAL: Control = "clinical"  # regression on clinical columns
VOLUME: Control = "volume"  # regression on the volume of brain and tumour
INTENSITY: Control = "intensity"  # regression on first-order statistics of each sequence, in brain and tumour
SLICES: Control = "slices"  # regression on a frozen 2D network's features of axial slices, where a file of one is given
SITE: Control = "site"  # regression on the site alone
CONTROLS: tuple[Control, ...] = get_args(Control)  # what the others are held against
SHUFFLED: Control = "shuffled"  # the model whose labels were permuted: its truth, time_days and event are the permuted ones
RESHUFFLED = "shuffled again"  # the same on a fresh permutation, made where the first looks as if it had learned something
PERMUTED = (SHUFFLED, RESHUFFLED)
RADIOMICS = "radiomics"  # regression on features of the true tumour mask: an upper reference, which nobody has to beat
NO_CANDIDATES = (*CONTROLS, RESHUFFLED, RADIOMICS)  # every other model is a candidate


def is_candidate(model: str) -> bool:
    """Whether a model is judged, rather than there to judge by."""
    return model not in NO_CANDIDATES


def is_bar(model: str) -> bool:
    """Whether a model is a control that a candidate must beat, by its true labels and by what others could know as well."""
    return not is_candidate(model) and model not in (*PERMUTED, RADIOMICS)

"""The preparation of the images in words: settings of `metrics.json` go in, sentences for a paper's Methods come out.

Constants are read from the steps themselves, so that a sentence follows its code.
"""

from __future__ import annotations

from pathlib import Path

from mri_vit.prepare import alignment, bias, brain, intensity, outliers, patient, register
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.words.wording import Facts, counted, escape, settings
from mri_vit.settings.schema import Grid, Prepare

BRAINS = {  # by the way that a patient's brain was found
    "mask": "the mask supplied with the scans",
    "none": "what differs from background in scans that were already skull-stripped (largest piece, holes filled)",
    "deepbet": "where deepbet's [@deepbet] probability, averaged over T1 and T1ce, exceeds one half (largest piece, holes "
    "filled)",
}


def preparation(metrics: Metrics, facts: Facts) -> list[str]:
    """From the scans to the patches that the model reads."""
    found = settings(metrics)
    if found is None:
        return []
    return [
        facts.gap("scanners", "scanner makes, field strengths, sequences and their parameters"),
        *_alignment(found.prepare, facts),
        *(_inhomogeneity() if found.prepare.bias else []),
        *_tokens(found.grid),
    ]


def _alignment(prepare: Prepare, facts: Facts) -> list[str]:
    said = [
        "Four scans of each patient were used: T1, contrast-enhanced T1 (T1ce), T2 and FLAIR, read with their axes laid as RAS+.",
        "T1, T2 and FLAIR were each aligned rigidly to T1ce by maximising Mattes mutual information [@mattes] "
        f"({register.BINS} histogram bins; copies of voxels no finer than {register.COARSE_MM:g} mm, then {register.FINE_MM:g} "
        "mm); the alignment given by the headers was kept where it was no worse.",
        *brains(prepare, facts),
    ]
    if prepare.brain != "none":
        who = "Unless the scans came skull-stripped without a mask, these" if prepare.brain == "auto" else "These"
        said.append(f"{who} alignments were refined on the brain and the {register.INNER_MARGIN_MM:g} mm around it.")
    return [*said, f"A patient with a scan whose field of view held less than {alignment.OVERLAP:.0%} of the brain was excluded."]


def _inhomogeneity() -> list[str]:
    return [
        f"Intensity inhomogeneity was corrected inside the brain with N4 [@n4] ({bias.LEVELS} levels of up to "
        f"{bias.ITERATIONS} iterations, on about {bias.WORKING_MM:g} mm voxels), estimated without voxels more than "
        f"{outliers.CORE:g} robust standard deviations from the brain's median in any of the scans and their surroundings, "
        "so that a lesion is not taken for inhomogeneity, except in scans with more than "
        f"{patient.NEGATIVE_SHARE:.0%} negative voxels in the brain."
    ]


def _tokens(grid: Grid) -> list[str]:
    starts = sum(len(angles) for angles in register.TILTS_DEGREES.values())
    return [
        f"The T1ce brain was aligned rigidly, so that sizes are kept, to the MNI152 brain [@fonov] from {starts} starting "
        "positions.",
        f"All scans were resampled once, from brain voxels alone and smoothed against aliasing [@cardoso], to a cube of "
        f"{grid.edge}³ voxels of {grid.spacing_mm:g} mm in the MNI152 frame.",
        f"Each scan was z-scored inside the brain; for the mean and the standard deviation the outer {intensity.TAIL_PERCENT:g} "
        f"% at each end were moved to their percentile, and values were limited to ±{intensity.LIMIT:g} standard deviations.",
        f"The cube was cut into patches of {grid.patch}³ voxels ({grid.places} places); patches with any brain voxel were "
        "kept, with everything outside the brain set to zero.",
    ]


def brains(prepare: Prepare, facts: Facts) -> list[str]:
    """Which brain mask was used; `brains` of the facts are the ways that "auto" really went."""
    if prepare.brain == "command":
        return [f"The brain was extracted from T1ce with {escape(Path(prepare.brain_command[0]).name)}."]
    if prepare.brain != "auto":
        return [f"The brain is {BRAINS[prepare.brain]}."]
    if facts.brains:
        said = [f"{BRAINS[way]} ({counted(patients, 'patient')})" for way, patients in facts.brains.items() if way in BRAINS]
        return [f"The brain is {'; '.join(said)}."]
    return [
        f"The brain is {BRAINS['mask']} where there was one, else {BRAINS['none']} where at least {brain.STRIPPED_SHARE:.0%} of "
        f"T1ce was background and at most {brain.STRIPPED_ML:g} ml were left, else {BRAINS['deepbet']}.",
        facts.gap("brains", "how many patients each way"),
    ]

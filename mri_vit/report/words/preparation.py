"""The preparation of the images in words: settings of `metrics.json` go in, sentences for a paper's Methods come out.

Constants are read from the steps themselves, so that a sentence follows its code.
"""

from __future__ import annotations

from pathlib import Path

from mri_vit.prepare import alignment, bias, brain, outliers, quality, register
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.words.wording import Facts, counted, escape, in_words, settings
from mri_vit.settings.sections import Grid, Prepare
from mri_vit.settings.sequences import is_quantitative, like_the_template, named, title, titles

BRAINS = {  # by the way that a patient's brain was found
    "mask": "the mask supplied with the scans",
    "none": "what differs from background in scans that were already skull-stripped (largest piece, holes filled)",
    "deepbet": "where deepbet's [@deepbet] probability{averaged} exceeds one half (largest piece, holes filled)",
}


def preparation(metrics: Metrics, facts: Facts) -> list[str]:
    """From the scans to the patches that the model reads."""
    found = settings(metrics)
    if found is None:
        return []
    return [
        facts.gap("scanners", "scanner makes, field strengths, sequences and their parameters"),
        *_alignment(found.prepare, found.channels, facts),
        *(_inhomogeneity(found.channels) if found.prepare.bias else []),
        *_tokens(found.grid, like_the_template(found.channels, found.prepare.reference)),
        *_tumours(found.prepare),
    ]


def _tumours(prepare: Prepare) -> list[str]:
    said = []
    if prepare.tumour_command:
        program = escape(Path(prepare.tumour_command[0]).name)
        said.append(
            f"Where no tumour mask was given, {program} made one from the scans on the {title(prepare.reference)}'s grid."
        )
    if prepare.around_tumour_mm is not None:
        said.append(
            f"Voxels further than {prepare.around_tumour_mm:g} mm from the tumour mask were set to 0 after intensities were "
            "scaled, also of the patients who were predicted, so that every model was given where the tumour lies."
        )
    return said


def _alignment(prepare: Prepare, channels: tuple[str, ...], facts: Facts) -> list[str]:
    reference, others = title(prepare.reference), [channel for channel in channels if channel != prepare.reference]
    if not others:
        return [
            f"One scan of each patient was used: {named(channels)}, read with its axes laid as RAS+.",
            *brains(prepare, channels, facts),
        ]
    said = [
        f"{in_words(len(channels)).capitalize()} scans of each patient were used: {named(channels)}, read with their axes laid "
        "as RAS+.",
        f"{titles(others)} {'was' if len(others) == 1 else 'were each'} aligned rigidly to {reference} by maximising Mattes "
        "mutual information [@mattes] "
        f"({register.BINS} histogram bins; copies of voxels no finer than {register.COARSE_MM:g} mm, then {register.FINE_MM:g} "
        "mm); the alignment given by the headers was kept where it was no worse.",
        *brains(prepare, channels, facts),
    ]
    if prepare.brain != "none":
        who = "Unless the scans came skull-stripped without a mask, these" if prepare.brain == "auto" else "These"
        said.append(f"{who} alignments were refined on the brain and the {register.INNER_MARGIN_MM:g} mm around it.")
    return [*said, f"A patient with a scan whose field of view held less than {alignment.OVERLAP:.0%} of the brain was excluded."]


def _inhomogeneity(channels: tuple[str, ...]) -> list[str]:
    quantities = [channel for channel in channels if is_quantitative(channel)]
    left = f"{titles(quantities)}, which map a quantity, were left as they are." if len(quantities) > 1 else ""
    left = f"{title(quantities[0])}, which maps a quantity, was left as it is." if len(quantities) == 1 else left
    if len(quantities) == len(channels):
        return [left]
    return [
        f"Intensity inhomogeneity was corrected inside the brain with N4 [@n4] ({bias.LEVELS} levels of up to "
        f"{bias.ITERATIONS} iterations, on about {bias.WORKING_MM:g} mm voxels), estimated without voxels more than "
        f"{outliers.CORE:g} robust standard deviations from the brain's median in any of the scans and their surroundings, "
        "so that a lesion is not taken for inhomogeneity, except in scans with more than "
        f"{quality.NEGATIVE_SHARE:.0%} negative voxels in the brain.",
        *([left] if left else []),
    ]


def _tokens(grid: Grid, facing: str) -> list[str]:
    starts = sum(len(angles) for angles in register.TILTS_DEGREES.values())
    return [
        f"The {title(facing)} brain was aligned rigidly, so that sizes are kept, to the MNI152 brain [@fonov] from {starts} "
        "starting positions.",
        f"All scans were resampled once, from brain voxels alone and smoothed against aliasing [@cardoso], to a cube of "
        f"{grid.edge}³ voxels of {grid.spacing_mm:g} mm in the MNI152 frame.",
        f"Each scan was z-scored inside the brain; for the mean and the standard deviation the outer {alignment.TAIL_PERCENT:g} "
        f"% at each end were moved to their percentile, and values were limited to ±{alignment.LIMIT:g} standard deviations.",
        f"The cube was cut into patches of {grid.patch}³ voxels ({grid.places} places); patches with any brain voxel were "
        "kept, with everything outside the brain set to zero.",
    ]


def brains(prepare: Prepare, channels: tuple[str, ...], facts: Facts) -> list[str]:
    """Which brain mask was used; `brains` of the facts are the ways that "auto" really went."""
    reference = title(prepare.reference)
    averaged = f", averaged over T1 and {reference}," if "t1" in channels and prepare.reference != "t1" else f" in {reference}"
    words = {way: text.format(averaged=averaged) for way, text in BRAINS.items()}
    if prepare.brain == "command":
        return [f"The brain was extracted from {reference} with {escape(Path(prepare.brain_command[0]).name)}."]
    if prepare.brain != "auto":
        return [f"The brain is {words[prepare.brain]}."]
    if facts.brains:
        said = [f"{words[way]} ({counted(patients, 'patient')})" for way, patients in facts.brains.items() if way in words]
        return [f"The brain is {'; '.join(said)}."]
    return [
        f"The brain is {words['mask']} where there was one, else {words['none']} where at least {brain.STRIPPED_SHARE:.0%} of "
        f"{reference} was background, at most {brain.STRIPPED_ML:g} ml were left and no skull was seen (a gap below "
        f"{brain.STRIPPED_GAP:g} between the rim and the brain), else {words['deepbet']}.",
        facts.gap("brains", "how many patients each way"),
    ]

"""The limits beyond which a prepared patient is flagged or excluded. Each default has its source on its line.

The 12 real patients are seven of BraTS 2021, two of TCGA (one raw) and three of BraTS 2018, who have T1 and FLAIR alone.
Synthetic ones are heads of `synthetic.phantom`. No figure depends on the study's grid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from mri_vit.settings.recipe import Section

Reason = Literal[
    "mirrored",
    "another head",
    "exchanged",
    "part missing",
    "empty",
    "turned",
    "indistinguishable",
    "shading",
    "ghosts",
    "noise",
    "volume",
    "unlike the cohort",
    "near-duplicate",
]
REASONS = get_args(Reason)
BRAIN_ML = (700.0, 2100.0)  # adults from atrophy to the largest
WRONG = ("mirrored", "another head", "exchanged", "part missing", "empty")  # the scans are not what the table says they are


class Quality(Section):
    """Limits beyond which a prepared patient is excluded or flagged."""

    exclude: tuple[Reason, ...] = Field(default=WRONG, description="Reasons that exclude a patient; the others flag.")
    decisions: Path | None = Field(default=None, description="A reviewer's table; unset is qc_decisions.csv beside the cohort's.")
    own_to_mirrored: float = Field(  # excludes; 12 real patients 1.42 to 3.9, 40 synthetic 1.29 and more; other heads 0.8 to 1.14
        default=1.15, gt=1, description="Least likeness to the reference over that to its mirror image."
    )
    fluid_contrast: float = Field(  # its minus excludes; 9 real patients 2.0 to 5.5, 96 synthetic from 1.2; exchanged: minus that
        default=0.8, ge=0, description="Least asymmetry of T2 less FLAIR deep in the brain, in SD of the brain."
    )
    enhancement: float = Field(  # its minus excludes; 9 real patients 1.4 to 6.0, without contrast -0.3 to 0.3
        default=0.6, ge=0, description="Least asymmetry of T1ce less T1 deep in the brain, in SD; likewise."
    )
    coverage: float = Field(  # excludes; 12 real patients, and synthetic ones, 0.95 and more; without a cerebellum 0.00
        default=0.85, ge=0, le=1, description="Least share that is there of each part of the MNI152 brain."
    )
    squeezed: float = Field(  # excludes; 12 real patients 0.85 and more, halves of five 0.47 to 0.65
        default=0.75, ge=0, le=1, description="Least scale of the MNI152 brain on the patient's, to the greatest."
    )
    filled: float = Field(  # excludes; 12 real patients, and synthetic ones, 0.98 and more
        default=0.90, ge=0, le=1, description="Least share of the brain where a scan is not its background."
    )
    turned_degrees: float = Field(  # 12 real patients 9 to 30: MNI152 itself lies tilted by some 10
        default=32.0, gt=0, description="Most degrees between the head and the MNI152 brain as scanned."
    )
    middle_degrees: float = Field(  # 12 real patients to 2.5, synthetic to 2.1
        default=5.0, gt=0, description="Most degrees between the brain's middle plane and the grid's."
    )
    shading: float = Field(  # 12 real patients 1.1 to 1.7, synthetic to 1.8; a field of six to one was seen as 2.3 and more
        default=2.2, gt=1, description="Most ratio of the ends of the bias field that was corrected."
    )
    ghosts: float = Field(  # one raw patient 0.011 at most; stripped scans 0
        default=0.03, gt=0, description="Most signal of a ghost, as a share of the brain's."
    )
    signal_to_noise: float = Field(  # 12 real patients 10 to 159, synthetic 13 to 18
        default=5.0, ge=0, description="Least signal of the brain over its noise."
    )
    brain_ml: tuple[float, float] = Field(default=BRAIN_ML, description="Least and most ml of brain.")
    robust_z: float = Field(  # beyond 6 lies one in a billion of a normal distribution; real ones have longer tails
        default=6.0, gt=0, description="Most robust standard deviations from the cohort's median."
    )
    duplicate: float = Field(  # copies of 12 real patients 0.78 to 0.95, their 66 pairs to 0.28; synthetic ones to 0.49
        default=0.65, gt=0, le=1, description="Likeness from which two patients look like one."
    )

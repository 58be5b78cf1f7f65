"""The limits beyond which a prepared patient is flagged or excluded. Each default has its source on its line.

Real patients are five whose scans were at hand; synthetic ones are 18 heads of `synthetic.phantom`, and 96 more for
`own_to_mirrored`.
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
    own_to_mirrored: float = Field(  # real patients 1.84 to 3.0, synthetic from 1.2; other heads 0.8 to 1.13
        default=1.15, gt=1, description="Least likeness to the reference over that to its mirror image."
    )
    fluid_contrast: float = Field(  # real patients 3.3 to 8.1; exchanged it has a minus, below minus this it excludes
        default=1.5, ge=0, description="Least asymmetry of T2 less FLAIR deep in the brain, in SD of the brain."
    )
    enhancement: float = Field(  # real patients 1.4 to 6.0; T1 twice, in other contrast, with blur and noise, -0.3 to 0.3
        default=0.6, ge=0, description="Least asymmetry of T1ce less T1 deep in the brain, in SD of the brain; likewise."
    )
    coverage: float = Field(  # whole brains, real and synthetic, 0.96 and more; the cerebellum of one without 0.00
        default=0.85, ge=0, le=1, description="Least share that is there of each part of the MNI152 brain."
    )
    squeezed: float = Field(  # whole brains 0.87 and more, halves 0.47 to 0.65
        default=0.75, ge=0, le=1, description="Least scale of the MNI152 brain on the patient's, to the greatest."
    )
    filled: float = Field(  # synthetic scans, which were stripped one by one, 0.98 and more
        default=0.90, ge=0, le=1, description="Least share of the brain where a scan is not its background."
    )
    turned_degrees: float = Field(  # real patients 13 to 30: MNI152 itself lies tilted by some 10
        default=32.0, gt=0, description="Most degrees between the head and the MNI152 brain as scanned."
    )
    middle_degrees: float = Field(  # real patients to 1.9, synthetic to 2.1
        default=5.0, gt=0, description="Most degrees between the brain's middle plane and the grid's."
    )
    shading: float = Field(  # real patients 1.1 to 1.7, synthetic to 1.8; a field of six to one was seen as 2.3 and more
        default=2.2, gt=1, description="Most ratio of the ends of the bias field that was corrected."
    )
    ghosts: float = Field(  # one raw patient 0.011 at most; stripped scans 0
        default=0.03, gt=0, description="Most signal of a ghost, as a share of the brain's."
    )
    signal_to_noise: float = Field(  # real patients 10 to 98, synthetic 13 to 18
        default=5.0, ge=0, description="Least signal of the brain over its noise."
    )
    brain_ml: tuple[float, float] = Field(default=BRAIN_ML, description="Least and most ml of brain.")
    robust_z: float = Field(  # beyond 6 lies one in a billion of a normal distribution; real ones have longer tails
        default=6.0, gt=0, description="Most robust standard deviations from the cohort's median."
    )
    duplicate: float = Field(  # copies of two real patients 0.81 and 0.89, different ones 0.12, synthetic ones to 0.49
        default=0.65, gt=0, le=1, description="Likeness from which two patients look like one."
    )

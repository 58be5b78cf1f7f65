"""Sections of the study file: the prepared grid, preparation, quality limits, controls, maps, report and executor. Plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from mri_vit.settings.recipe import CHANNELS, CONTROLS, REFERENCE, SLICES, Control, Section

# Middle of the MNI152 brain's box (x -72..72, y -107..73, z -72..82 mm); x = 0 keeps it symmetric.
GRID_CENTRE_MM = (0.0, -17.0, 5.0)
MAX_POSITIONS = 32768  # a place is stored as int16


class Grid(Section):
    """The prepared grid: a cube of voxels, cut into cubic patches."""

    edge: int = Field(default=224, ge=2, le=512, description="Voxels along an edge of the cube.")
    spacing_mm: float = Field(default=1.0, ge=0.1, le=10, description="Edge of a voxel in mm.")
    patch: int = Field(default=16, ge=1, description="Voxels along an edge of a patch; it divides edge.")

    @model_validator(mode="after")
    def _whole_patches(self) -> Grid:
        if self.edge % self.patch:
            raise ValueError(f"edge {self.edge} is not a multiple of patch {self.patch}")
        if self.positions > MAX_POSITIONS:
            raise ValueError(
                f"edge {self.edge} in patches of {self.patch} makes {self.positions} grid positions; "
                f"at most {MAX_POSITIONS} can be stored"
            )
        return self

    @property
    def side(self) -> int:
        """Places along one edge (14 for the default grid)."""
        return self.edge // self.patch

    @property
    def positions(self) -> int:
        """Places in the whole grid (2744 for the default grid)."""
        return self.side**3

    @property
    def affine(self) -> list[list[float]]:
        """4×4, voxel index to RAS+ mm of the MNI152 frame."""
        half = (self.edge - 1) / 2 * self.spacing_mm
        x, y, z = (centre - half for centre in GRID_CENTRE_MM)
        s = self.spacing_mm
        return [[s, 0.0, 0.0, x], [0.0, s, 0.0, y], [0.0, 0.0, s, z], [0.0, 0.0, 0.0, 1.0]]


class Prepare(Section):
    """From a patient's scans to the prepared patient."""

    brain: Literal["auto", "none", "deepbet", "mask", "command"] = Field(
        default="auto", description="How the brain is found; auto: mask if given, none if stripped, or deepbet."
    )
    brain_command: tuple[str, ...] = Field(
        default=(), description='For brain = "command": ["hd-bet", "-i", "{input}", "-o", "{output}"], say.'
    )
    tumour: Literal["auto", "given", "found", "none"] = Field(
        default="auto",
        exclude_if=lambda choice: choice == "auto",  # committed figures of given masks keep their settings
        description="Masks: the table's, or else found (auto); the table's; found; none.",
    )
    tumour_command: tuple[str, ...] = Field(
        default=(),
        exclude_if=lambda words: not words,
        description='Finds tumours in the finder\'s place: ["seg", "{input}", "{output}"].',
    )
    tumour_crop_margin_mm: float | None = Field(
        default=None,
        ge=0,
        exclude_if=lambda margin: margin is None,  # who was prepared without it stays prepared
        description="Voxels further from the tumour are set to 0, mm; unset keeps all.",
    )
    reference: str = Field(
        default=REFERENCE, description="Sequence to which others are aligned; masks and maps lie in its space."
    )
    bias: bool = Field(default=True, description="Whether the bias field is corrected (N4); not in maps such as adc.")
    needs: tuple[str, ...] = Field(
        default=CHANNELS, description="Sequences without which a patient is excluded; others may be missing."
    )
    workers: int = Field(default=1, ge=1, description="Patients prepared at a time, each on one thread.")

    @model_validator(mode="after")
    def _command_given(self) -> Prepare:
        if (self.brain == "command") != bool(self.brain_command):
            raise ValueError('brain_command goes with brain = "command", and only with it')
        if self.tumour_command and not self.finds_tumours:
            raise ValueError(f'tumour_command finds tumours, and tumour = "{self.tumour}" looks for none; leave one of them out')
        return self

    @property
    def finds_tumours(self) -> bool:
        """Whether a patient whose tumour mask is not given gets one."""
        return self.tumour in ("auto", "found")

    @property
    def takes_given_masks(self) -> bool:
        """Whether the cohort table's tumour masks are what is learned from, and not only what maps are judged by."""
        return self.tumour in ("auto", "given")


class Controls(Section):
    """What a model must beat on the same folds."""

    models: tuple[Control, ...] = Field(
        default=CONTROLS,
        description="What the models are compared with; site only where the table has two.",
    )
    columns: tuple[str, ...] | None = Field(
        default=None,
        description="Columns of the control clinical; unset is all but labels and site.",
    )
    slices: Path | None = Field(default=None, description="File of a 2D ViT whose frozen features the control slices reads.")
    slices_licence: str | None = Field(default=None, description="Licence of that file, as its publisher states it.")
    radiomics: bool = Field(default=False, description="Whether radiomics of the tumour mask is shown as an upper reference.")

    @model_validator(mode="after")
    def _slices_are_a_control(self) -> Controls:
        if self.slices and SLICES not in self.models:
            raise ValueError(f'slices names a file, and models leaves "slices" out; found {list(self.models)}')
        if self.slices_licence and not self.slices:
            raise ValueError("slices_licence is that of the file slices, which is not named")
        return self


MapMethod = Literal[
    "rollout", "cls_attention", "gradient_attention", "gradient_rollout", "integrated_gradients", "occlusion"
]  # of a Vision Transformer of ours; explain/methods/names.py says what each is
VolumeMethod = Literal["gradcam", "occlusion_by_air"]  # of a comparator that reads a volume; no key chooses among them
AnyMethod = Literal[MapMethod, VolumeMethod]


class Explain(Section):
    """Maps of what the model drew on, and how they are evaluated."""

    methods: tuple[MapMethod, ...] = Field(
        default=("rollout", "cls_attention", "gradient_attention"),
        description="How maps are made; those of the default are the cheap ones.",
    )
    patients: int | None = Field(
        default=None, ge=0, description="Patients whose maps are written, in cohort order; unset is all."
    )
    scored: int | None = Field(
        default=None, ge=0, description="Patients whose maps are evaluated, in cohort order; unset is all."
    )

    # none: maps of 35 comparators are rarely wanted, and one patient's are evaluated by a thousand passes through a network
    comparators: tuple[str, ...] = Field(
        default=(),
        exclude_if=lambda names: not names,  # a study without them has the records that it always had
        description="Comparators whose maps are made too, by name; of CNNs by Grad-CAM.",
    )

    # a map of each costs a way back, and three times the files: off unless asked for
    every_class: bool = Field(
        default=False,
        exclude_if=lambda wanted: not wanted,  # likewise
        description="Whether every class of an endpoint has maps, not only that predicted.",
    )

    @model_validator(mode="after")
    def _methods_differ(self) -> Explain:
        if not self.methods or len(set(self.methods)) != len(self.methods):
            raise ValueError(f"methods must be one or more that differ, found {list(self.methods)}; patients = 0 makes no maps")
        return self

    @property
    def of_maps(self) -> dict[str, Any]:
        """What a map depends on, as it stands beside the maps; the others only say for which patients maps are made."""
        return {"methods": list(self.methods)} | ({"every_class": True} if self.every_class else {})


class Report(Section):
    """The report; no number of a model depends on it."""

    subgroups: tuple[str, ...] = Field(
        default=("sex", "age", "site"), description="Columns of the cohort table whose groups are reported, where present."
    )
    margin: float | None = Field(
        default=None, gt=0, lt=0.5, description="Difference of AUC or C below which a model is not inferior to another."
    )
    expected_verdicts: dict[str, Literal["better", "chance"]] = Field(
        default={}, description="Expected verdict by endpoint, of a simulated cohort."
    )
    thresholds: tuple[float, float] | None = Field(
        default=None,
        exclude_if=lambda ends: ends is None,  # a study without it has the records that it always had
        description="Range of risks at which one would act; unset: curves alone.",
    )

    @model_validator(mode="after")
    def _thresholds_are_a_range(self) -> Report:
        if self.thresholds and not 0 < self.thresholds[0] <= self.thresholds[1] < 1:
            least, most = self.thresholds
            raise ValueError(f"thresholds are {least:g} and {most:g}; expected a low and a high probability, 0 < low <= high < 1")
        return self


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
    "tumour in doubt",
    "unlike the cohort",
    "near-duplicate",
]
REASONS = get_args(Reason)
BRAIN_ML = (700.0, 2100.0)  # adults from atrophy to the largest
WRONG_SCAN = ("mirrored", "another head", "exchanged", "part missing", "empty")  # the scans are not what the table says they are


class Quality(Section):
    """Limits beyond which a prepared patient is excluded or flagged."""

    exclude: tuple[Reason, ...] = Field(default=WRONG_SCAN, description="Reasons that exclude a patient; the others flag.")
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


EXECUTORS = r"^(local|slurm|dask://[^\s/]+:\d+)$"


class Executor(Section):
    """Who does the work: patients in bundles, and the folds of networks."""

    kind: str = Field(
        default="local",
        pattern=EXECUTORS,
        description="local (processes here), slurm (a cluster's jobs) or dask://host:port.",
    )
    retries: int = Field(default=2, ge=0, description="How often what a cluster lost is handed in again.")
    bundle: int = Field(  # each pays some ten seconds of imports: 5 % of 20 patients at 10 s
        default=20, ge=1, description="Patients in a job of a cluster, one after the other."
    )


class Slurm(Section):
    """What each job of the executor slurm asks for."""

    partition: str | None = Field(default=None, description="Partition; unset is the cluster's default.")
    gpus: int = Field(default=0, ge=0, description="GPUs of a job; one is used, several with train.devices.")
    time: int = Field(  # long enough for a fold of the recommended study; a fold that needs more goes on in a second term
        default=240, ge=1, description="Minutes of a job, which then goes on from its checkpoint in another."
    )
    cpus: int | None = Field(default=None, ge=1, description="CPU cores; unset is train.threads.")
    memory_gb: float = Field(default=16.0, gt=0, description="Memory in GB.")
    at_a_time: int = Field(default=256, ge=1, description="Jobs that may run at a time.")
    options: dict[str, Any] = Field(default={}, description='Further options of sbatch, such as {account = "neuro"}.')

"""Recipe: the sequences that a study reads, a network and how it is trained, and the names by which tables know models.

A study has one recipe, and each of its comparators changes some of its keys. Plain data.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

CHANNELS: tuple[str, ...] = ("t1", "t1ce", "t2", "flair")  # unless a study names others; the order of every stored array
REFERENCE = "t1ce"  # to which the other scans are aligned, and whose space is the patient's own, unless a study names another
T1_LIKE = ("t1ce", "t1")
FLAIR = "flair"  # in which tumours are found
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # a study's or a comparator's, which names a folder
SEQUENCE_NAME = r"[a-z][a-z0-9_]{0,31}"  # a column of the cohort table, and a part of the names of maps' files
RESERVED_COLUMNS = (  # of the cohort table, or words that stand beside sequences in files of maps: no names of sequences
    *("patient", "session", "site", "cohort", "scan_cohort", "same_as", "brain_mask", "tumour_mask"),
    *("grid", "evidence", "empty"),
)
# Maps of a quantity, by a word of their name. What a receive coil does to the signal has been divided out of them, so that a
# smooth trend is the brain's, and N4 would take it for bias.
QUANTITATIVE = {
    *("adc", "md", "fa", "ad", "rd", "mk"),  # diffusion
    *("asl", "cbf", "cbv", "rcbf", "rcbv", "mtt", "ttp", "tmax", "ktrans"),  # perfusion
    *("t1map", "t2map", "r1", "r2", "r2star", "qsm"),  # relaxation and susceptibility
}
SEQUENCE_TITLES = {"t1": "T1", "t1ce": "T1ce", "t2": "T2", "flair": "FLAIR"}
LONG_SEQUENCE_TITLES = {"t1ce": "contrast-enhanced T1"}  # where a text names it first


def title(sequence: str) -> str:
    """A sequence's name for people: T1ce, FLAIR; of one that is not known here its letters as capitals, ASL CBF."""
    return SEQUENCE_TITLES.get(sequence, sequence.upper().replace("_", " "))


def parse_sequences(written: str) -> tuple[str, ...]:
    """The names in a file's header, a list in JSON. Raises ValueError where it is none."""
    names = json.loads(written)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"sequences {written}")
    return tuple(names)


def is_quantitative(sequence: str) -> bool:
    """Whether a name is of a map of a quantity: adc, asl_cbf."""
    return not QUANTITATIVE.isdisjoint(sequence.split("_"))


def template_sequence(sequences: Collection[str], reference: str) -> str:
    """Which of some sequences is aligned to the template, a T1: the reference if it is one, else T1ce or T1 where there is one.

    FLAIR as the reference lay 0.8 mm from where T1ce puts a brain's edge, T1 0.5 (medians over five real patients).
    """
    return next((name for name in (reference, *T1_LIKE) if name in T1_LIKE and name in sequences), reference)


def titles(sequences: Sequence[str]) -> str:
    """Several names for people: T1, T2 and FLAIR."""
    return _listed([title(sequence) for sequence in sequences])


def named(sequences: Sequence[str]) -> str:
    """The same where a text names them first: T1, contrast-enhanced T1 (T1ce), T2 and FLAIR."""
    full = {name: f"{words} ({title(name)})" for name, words in LONG_SEQUENCE_TITLES.items()}
    return _listed([full.get(name) or title(name) for name in sequences])


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


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
RADIOMICS = "radiomics"  # regression on features of the tumour mask: an upper reference, which no model has to beat
NOT_COMPARED = (*CONTROLS, RESHUFFLED, RADIOMICS)  # every other model is a compared model


def is_compared(model: str) -> bool:
    """Whether a model is judged, rather than there to judge by."""
    return model not in NOT_COMPARED


def is_bar(model: str) -> bool:
    """Whether a model is a control that a compared model must beat, by its true labels and by what others could know as well."""
    return not is_compared(model) and model not in (*PERMUTED, RADIOMICS)


SIZES = {  # (dim, depth, heads, mlp): Dosovitskiy et al. 2021, Table 1; "S": Touvron et al. 2021, Table 1
    "S": (384, 12, 6, 1536),
    "B": (768, 12, 12, 3072),
    "L": (1024, 24, 16, 4096),
    "H": (1280, 32, 16, 5120),
}
Architecture = Literal[  # "vit" is ours (model/encoder.py); the others are in model/baselines.py
    "vit", "hybrid", "hybrid_resnet10", "resnet10", "resnet10_max", "resnet10_dilated", "resnet10_dilated_max", "resnet18",
    "resnet34", "densenet121", "densenet169", "densenet201", "efficientnet_b0", "efficientnet_b1", "efficientnet_b3",
    "monai_vit", "swin_vit", "seresnext50",
]  # fmt: skip

Pool = Literal["cls", "mean", "max"]  # what the heads read: see model/encoder.py


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(Section):
    """The network."""

    architecture: Architecture = Field(
        default="vit", description="Network; vit is this package's own encoder, the others are baselines."
    )
    channels: tuple[str, ...] = Field(
        default=CHANNELS, description="Sequences that the network reads; vit reads all of the study's."
    )
    size: Literal["S", "B", "L", "H"] = Field(
        default="B", description="Published width, depth, heads and MLP; the next four keys override it."
    )
    dim: int | None = Field(default=None, ge=1, description="Width of a token.")
    depth: int | None = Field(default=None, ge=0, description="Blocks of the encoder; 0 is its stem alone, read by pool.")
    heads: int | None = Field(default=None, ge=1, description="Attention heads; they divide dim.")
    mlp: int | None = Field(default=None, ge=1, description="Width of each block's MLP.")
    stem: int | None = Field(default=None, ge=0, description="Hidden width of a two-layer patch embedding; 0 is one linear map.")
    conv_stem: int | None = Field(
        default=None, ge=0, description="Channels of the first 3D convolution within each patch; 0 is none."
    )
    texture: int = Field(
        default=0,
        ge=0,
        exclude_if=lambda filters: not filters,  # a study without it has the records that it always had
        description="Filters beside conv_stem whose energy joins a patch's token; 0 is none.",
    )
    pool: Pool = Field(default="cls", description="What the heads read of the encoded tokens.")
    tokens: Literal["all", "foreground"] = Field(
        default="all", description="Grid positions that become tokens: all, or those that hold brain."
    )
    drop_path: float = Field(
        default=0.1, ge=0, lt=1, description="Chance to skip a residual branch; Touvron et al. 2021, Table 9."
    )
    zero_head: bool = Field(default=True, description="Whether heads start at zero (Dosovitskiy et al. 2021) or at random.")
    weights: Path | None = Field(default=None, description="Where the encoder starts: a 2D ViT's or this package's weights file.")
    weights_licence: str | None = Field(
        default=None,
        exclude_if=lambda licence: licence is None,  # a study without it has the records that it always had
        description="Licence of that file, such as CC-BY-4.0, for the report.",
    )
    survival: Literal["hazard", "cox"] = Field(
        default="hazard", description="Head of survival endpoints: discrete-time hazard, or Cox."
    )

    @model_validator(mode="after")
    def _whole_heads(self) -> Model:
        dim, _, heads, _ = self.shape
        if dim % heads:
            raise ValueError(f"dim {dim} is not a multiple of heads {heads}")
        return self

    @model_validator(mode="after")
    def _one_embedding(self) -> Model:
        if self.stem and self.conv_stem:
            raise ValueError("stem and conv_stem are two ways to embed a patch; give one")
        return self

    @model_validator(mode="after")
    def _texture_joins_convolutions(self) -> Model:
        if self.texture and not self.conv_stem:
            raise ValueError(f"texture {self.texture} joins a convolutional stem; give conv_stem too")
        return self

    @model_validator(mode="after")
    def _reads_something(self) -> Model:
        """Without a block nothing passes between tokens: CLS is the same number for every patient."""
        if self.depth != 0:
            return self
        if self.architecture != "vit":
            raise ValueError(f'depth 0 leaves the stem alone, of architecture "vit"; found {self.architecture}')
        if self.pool == "cls":
            raise ValueError('depth 0 has no attention by which CLS could read a position; give pool = "max" or "mean"')
        return self

    @model_validator(mode="after")
    def _channels_differ(self) -> Model:
        if not self.channels or len(set(self.channels)) != len(self.channels):
            raise ValueError(f"channels must be one or more that differ, found {list(self.channels)}")
        return self

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(dim, depth, heads, mlp)."""
        dim, depth, heads, mlp = SIZES[self.size]
        depth = depth if self.depth is None else self.depth
        return self.dim or dim, depth, self.heads or heads, self.mlp or mlp

    @property
    def attends(self) -> bool:
        """Whether it is our own encoder with a block or more, and so has attention that maps are made of."""
        return self.architecture == "vit" and self.shape[1] > 0


class Pretrain(Section):
    """Learning without labels, before training (mae: ViT alone; dino: any)."""

    method: Literal["none", "mae", "dino"] = Field(
        default="none", description="Objective without labels: He et al. 2022 (mae), Caron et al. 2021 (dino)."
    )
    # each fold pretrains anew on "others"; "unlabelled" have no label at all and are learned once for all folds; "all" is
    # transductive, and the report says so
    patients: Literal["others", "unlabelled", "all"] = Field(
        default="others", description="Whose scans: all but the test fold's, those without any label, or all."
    )
    epochs: int = Field(default=200, ge=1, description="Passes over the patients.")
    batch_size: int = Field(default=32, ge=1, description="Patients in a step.")
    learning_rate: float = Field(
        default=1e-3, gt=0, description="Peak learning rate; He et al. 2022 use 1.5e-4 for larger networks."
    )
    target: Literal["patch", "scan"] = Field(
        default="patch", description="MAE's target: normalised patches (He et al. 2022, 1d), or z-scored voxels."
    )
    # the readout is what heads will read: what distinguishes patients must pass through it (CLS in BEiT v2: Peng et al. 2022,
    # arXiv:2208.06366)
    decoder_reads: Literal["tokens", "readout"] = Field(
        default="tokens", description="What MAE's decoder reads: encoded tokens, or the readout alone."
    )
    local_crops: int = Field(default=4, ge=0, description="Boxes that only DINO's student sees, beside two global ones.")

    @model_validator(mode="after")
    def _several(self) -> Pretrain:
        if self.method == "dino" and self.batch_size == 1:
            raise ValueError(
                "method dino centres the teacher and normalises the student over a batch; batch_size must be 2 or more"
            )
        return self


class Train(Section):
    """Cross-validation and optimisation."""

    folds: int = Field(default=5, ge=2, description="Folds of cross-validation; Saeed et al. 2023 use five.")
    repeats: int = Field(default=1, ge=1, description="Times that the patients are divided anew.")
    leave_out: str | None = Field(default=None, description="Column of the cohort table whose values are the test folds.")
    val_fraction: float = Field(
        default=0.2, gt=0, lt=1, description="Share of a training fold that is held out for validation (early stopping)."
    )
    seeds: int = Field(default=1, ge=1, description="Networks per fold that differ in their seed alone; scores are their mean.")
    epochs: int = Field(default=100, ge=1, description="Passes over a training fold.")
    batch_size: int = Field(default=8, ge=1, description="Patients in a step.")
    token_budget: int | None = Field(
        default=None, ge=0, description="Tokens drawn per patient and step (Liu et al. 2022); 0 is every token."
    )
    learning_rate: float = Field(default=3e-4, gt=0, description="Peak learning rate.")
    layer_decay: float = Field(
        default=1.0, gt=0, le=1, description="Ratio of a block's learning rate to the next's; Bao et al. 2022: 0.65."
    )
    embedding_lr_factor: float = Field(
        default=1.0, ge=0, description="Factor on the patch embedding's learning rate; DINOv2's code has 0.2."
    )
    betas: tuple[float, float] = Field(
        default=(0.9, 0.95), description="Betas of AdamW; Chen et al. 2020 (iGPT), as in He et al. 2021."
    )
    weight_decay: float = Field(default=0.05, ge=0, description="Weight decay of AdamW; He et al. 2021, Table 9.")
    warmup: float = Field(default=0.1, ge=0, lt=1, description="Share of all steps in which the learning rate rises.")
    freeze_fraction: float = Field(default=0.0, ge=0, le=1, description="Share of all steps in which only the heads are trained.")
    ema: float = Field(
        default=0.0, ge=0, lt=1, description="Decay of the weights' moving average, which is then evaluated; 0 is off."
    )
    grad_clip_norm: float = Field(default=1.0, gt=0, description="Largest gradient norm; Dosovitskiy et al. 2021, B.1.")
    flip_lr: bool = Field(default=True, description="Whether patients are flipped left–right at random.")
    laterality_endpoints: tuple[str, ...] = Field(
        default=(),
        exclude_if=lambda names: not names,
        description="Endpoints that depend on the side; flipped patients do not train them.",
    )
    translation_mm: float = Field(
        default=0.0,
        ge=0,
        exclude_if=lambda most: not most,
        description="Largest random translation along an axis, in whole voxels; 0 is off.",
    )
    intensity_jitter: float = Field(default=0.1, ge=0, description="SD of a random gain and shift per channel.")
    mixup: float = Field(
        default=0.0, ge=0, description="Alpha of the Beta that mixes two patients (Zhang et al. 2018); 0 is off."
    )
    modality_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="Chance to empty a sequence, never all (Neverova et al. 2016)."
    )
    mask_supervision_attention: float = Field(
        default=0.0,
        ge=0,
        exclude_if=lambda weight: not weight,
        description="Weight of a loss: CLS attends to the tumour's patches; 0 is off.",
    )
    mask_supervision_patch_labels: float = Field(
        default=0.0,
        ge=0,
        exclude_if=lambda weight: not weight,
        description="Weight of a loss: the tumour's embedded patches predict the labels.",
    )
    mask_supervision_token_labels: float = Field(
        default=0.0,
        ge=0,
        exclude_if=lambda weight: not weight,
        description="Weight of a loss: the tumour's encoded tokens predict the labels.",
    )
    tumour_tokens_first: bool = Field(
        default=False,
        exclude_if=lambda kept: not kept,
        description="Whether token_budget draws the patches that hold tumour first.",
    )
    class_weights: bool = Field(default=True, description="Whether positives are weighted by negatives/positives.")
    patience: int = Field(default=20, ge=1, description="Evaluations without a lower validation loss before training stops.")
    val_every: int = Field(default=1, ge=1, description="Epochs between evaluations on the validation patients.")
    precision: Literal["auto", "32-true", "bf16-mixed"] = Field(
        default="auto", description="Floating-point precision; auto is bf16-mixed where the GPU has it."
    )
    threads: int = Field(default=2, ge=1, description="CPU threads; fixed, because the last digits depend on them.")
    devices: int = Field(default=1, ge=1, description="GPUs that one training, or pretraining, shares a batch out among.")
    workers: int = Field(default=1, ge=1, description="Folds trained at a time, each in a process with `threads` threads.")

    @property
    def uses_tumour_masks(self) -> bool:
        """Whether training reads tumour masks: for auxiliary losses, or to draw tokens."""
        return self.mask_supervised or self.tumour_tokens_first

    @property
    def mask_supervised(self) -> bool:
        """Whether an auxiliary loss is computed from tumour masks."""
        weights = (self.mask_supervision_attention, self.mask_supervision_patch_labels, self.mask_supervision_token_labels)
        return any(weights)


class Comparator(Section):
    """A model that is put on the same folds: the study's own, with some keys of its recipe changed."""

    name: str = Field(pattern=f"^{FILE_NAME}$", description="Folder of the model, and its name in tables.")
    model: dict[str, Any] = Field(default={}, description="Keys of [model] that differ from the study's.")
    pretrain: dict[str, Any] = Field(default={}, description="Keys of [pretrain] that differ from the study's.")
    train: dict[str, Any] = Field(default={}, description="Keys of [train] that differ from the study's.")

"""A recipe: a network and how it learns. Plain data; a study has one, and each of its comparators changes some of its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Channel = Literal["t1", "t1ce", "t2", "flair"]  # in the order of every stored array
SIZES = {  # (dim, depth, heads, mlp): Dosovitskiy et al. 2021, Table 1; "S": Touvron et al. 2021, Table 1
    "S": (384, 12, 6, 1536),
    "B": (768, 12, 12, 3072),
    "L": (1024, 24, 16, 4096),
    "H": (1280, 32, 16, 5120),
}
Architecture = Literal[  # "vit" is ours (model/encoder.py); the others are told in baselines.py
    "vit", "hybrid", "hybrid_resnet10", "resnet10", "resnet18", "resnet34", "densenet121", "densenet169", "densenet201",
    "efficientnet_b0", "efficientnet_b1", "efficientnet_b3", "monai_vit", "swin_vit", "seresnext50",
]  # fmt: skip

Pool = Literal["cls", "mean", "max"]  # what the heads read: see model/encoder.py


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(Section):
    """The network. `size` names a published Vision Transformer; dim, depth, heads and mlp override it."""

    architecture: Architecture = "vit"
    channels: tuple[Channel, ...] = ("t1", "t1ce", "t2", "flair")  # fewer only for networks that are no "vit"
    size: Literal["S", "B", "L", "H"] = "B"
    dim: int | None = Field(default=None, ge=1)
    depth: int | None = Field(default=None, ge=1)
    heads: int | None = Field(default=None, ge=1)
    mlp: int | None = Field(default=None, ge=1)
    stem: int | None = Field(
        default=None, ge=0
    )  # hidden width of a two-layer patch embedding; none or 0: one linear map, as published
    conv_stem: int | None = Field(
        default=None, ge=0
    )  # channels of the first of a few strided 3D convolutions within each patch (Xiao et al. 2021); none or 0: none
    pool: Pool = "cls"
    tokens: Literal["all", "foreground"] = "all"
    drop_path: float = Field(default=0.1, ge=0, lt=1)  # Touvron et al. 2021, Table 9
    zero_head: bool = True  # heads start from "no difference" (Dosovitskiy et al. 2021, section 3.2); else at random
    kernel: Literal["spread", "centre"] = "spread"  # how a 2D ViT's patch kernel is laid in depth: evenly, or in the middle slice
    weights: Path | None = None  # where the encoder starts: a 2D ViT's checkpoint, a network's or an encoder's file
    survival: Literal["hazard", "cox"] = "hazard"
    intervals: int = Field(default=10, ge=2)  # of the discrete-time hazard; Gensheimer & Narasimhan 2019 use 10 to 40

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
    def _channels_differ(self) -> Model:
        if not self.channels or len(set(self.channels)) != len(self.channels):
            raise ValueError(f"channels must be one or more that differ, found {list(self.channels)}")
        if self.architecture == "vit" and len(self.channels) < 4:
            raise ValueError('architecture "vit" reads all four channels; train.modality_dropout makes it bear a missing one')
        return self

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(dim, depth, heads, mlp)."""
        dim, depth, heads, mlp = SIZES[self.size]
        return self.dim or dim, self.depth or depth, self.heads or heads, self.mlp or mlp


class Pretrain(Section):
    """Learning without labels, before training (Vision Transformer only)."""

    method: Literal["none", "mae", "dino"] = "none"  # He et al. 2022, Caron et al. 2021
    # "others": all but the fold's test patients, so each fold has its own; "unlabelled": those without any label, once for all
    # folds; "all": test patients too, which the report calls transductive
    patients: Literal["others", "unlabelled", "all"] = "others"
    epochs: int = Field(default=200, ge=1)
    batch: int = Field(default=32, ge=1)
    rate: float = Field(default=1e-3, gt=0)  # peak learning rate; small networks bear more than the 1.5e-4 of He et al.
    visible: float = Field(default=0.25, gt=0, lt=1)  # share of tokens that MAE's encoder sees; He et al. 2022, figure 5
    decoder_dim: int | None = Field(default=None, ge=4)  # of MAE; none: half the encoder's width (He et al. 2022: 512 of 1024)
    # What MAE's decoder tells of hidden patches: each "patch" normalised (He et al. 2022, Table 1d), or its voxels as they are in
    # the z-scored "scan", brightness and all
    target: Literal["patch", "scan"] = "patch"
    # What MAE's decoder knows of the visible patches: their encoded "tokens" (He et al. 2022); or the "readout" alone, which
    # heads will read, so that what tells patients apart must pass through it (CLS in BEiT v2: Peng et al. 2022, arXiv:2208.06366)
    decoder_reads: Literal["tokens", "readout"] = "tokens"
    decoder_depth: int = Field(default=1, ge=1)  # of MAE; one block is enough to fine-tune (Table 1a)
    prototypes: int = Field(default=1024, ge=2)  # outputs of DINO's head; fewer than 65536, for a cohort is no ImageNet
    local_crops: int = Field(default=4, ge=0)  # boxes of DINO that only the student sees, beside two global ones
    momentum: float = Field(default=0.996, gt=0, lt=1)  # of DINO's teacher at the start; Caron et al. 2021

    @model_validator(mode="after")
    def _several(self) -> Pretrain:
        if self.method == "dino" and self.batch == 1:
            raise ValueError("method dino centres the teacher and normalises the student over a batch; batch must be 2 or more")
        return self


class Train(Section):
    """Cross-validation and optimisation."""

    folds: int = Field(default=5, ge=2)  # Saeed et al. 2023 use five
    repeats: int = Field(default=1, ge=1)
    leave_out: str | None = None  # a column of the cohort table, e.g. "site": each of its values is a test fold
    tune_fraction: float = Field(default=0.2, gt=0, lt=1)  # of the training fold, for early stopping
    epochs: int = Field(default=100, ge=1)
    batch: int = Field(default=8, ge=1)
    token_budget: int | None = Field(
        default=None, ge=0
    )  # tokens drawn per patient and step, the others dropped (PatchDropout, Liu et al. 2022); none or 0: every token
    rate: float = Field(default=3e-4, gt=0)  # peak learning rate
    layer_decay: float = Field(default=1.0, gt=0, le=1)  # of the rate from a block to the one before it; Bao et al. 2022 use 0.65
    embedding_rate: float = Field(default=1.0, ge=0)  # share of the rate for the patch embedding; DINOv2's code: 0.2
    betas: tuple[float, float] = (0.9, 0.95)  # Chen et al. 2020 (iGPT), as in He et al. 2021
    weight_decay: float = Field(default=0.05, ge=0)  # He et al. 2021, Table 9
    warmup: float = Field(default=0.1, ge=0, lt=1)  # share of all steps
    frozen: float = Field(default=0.0, ge=0, le=1)  # share of all steps in which the heads alone learn
    ema: float = Field(default=0.0, ge=0, lt=1)  # decay of the weights' moving average, which is then evaluated; 0: off
    clip: float = Field(default=1.0, gt=0)  # gradient norm; Dosovitskiy et al. 2021, B.1
    mirror: bool = True  # left-right flips; the labels have no side
    intensity: float = Field(default=0.1, ge=0)  # spread of the random gain and shift per channel; nnU-Net's order of size
    mixup: float = Field(default=0.0, ge=0)  # alpha of the Beta that mixes two patients' tokens (Zhang et al. 2018); 0: off
    modality_dropout: float = Field(
        default=0.0, ge=0, lt=1
    )  # chance of each scan to be emptied, never all (Neverova et al. 2016)
    class_weights: bool = True  # positives weighted by negatives/positives of the training fold
    patience: int = Field(default=20, ge=1)  # evaluations without a better tuning loss before stopping
    tune_every: int = Field(default=1, ge=1)  # epochs between evaluations on the tuning split
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"
    threads: int = Field(default=2, ge=1)  # CPU threads; fixed, because the last digits depend on it


class Comparator(Section):
    """A model that is put on the same folds: the study's own, with some keys of its recipe changed."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")  # a folder's name, and the model's in tables
    model: dict[str, Any] = {}
    pretrain: dict[str, Any] = {}
    train: dict[str, Any] = {}

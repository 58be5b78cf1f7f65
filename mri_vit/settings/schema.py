"""The settings of a study and its endpoints, frozen and checked. Plain data, importable by all."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Annotated, Literal

import pydantic
from pydantic import Field, model_validator
from pydantic_core import InitErrorDetails

from mri_vit.settings.defaults import CARD, MASK_SUPERVISION, Recipe
from mri_vit.settings.recipe import (
    CHANNELS,
    FILE_NAME,
    NOT_COMPARED,
    RESERVED_COLUMNS,
    SEQUENCE_NAME,
    VIT,
    Comparator,
    Model,
    Pretrain,
    Section,
    Train,
)
from mri_vit.settings.sections import Controls, Executor, Explain, Grid, Prepare, Quality, Report, Slurm

ENDPOINT_NAME = r"[a-z][a-z0-9_]{0,31}"  # a column, a file name, and a section of the report at once
COMPETING = r"^[^\s\x00-\x1f][^\x00-\x1f]{0,59}$"  # words that stand in sentences and headings
MIN_CLASSES = 3  # of two, one is the other's absence
ENDPOINT_TITLES = {  # full names of the defaults below and of what public tables bring; any other endpoint goes by its own
    "mgmt": "MGMT promoter methylation",
    "tertp": "TERT promoter mutation",
    "pten": "PTEN alteration",
    "os": "Overall survival",
    "who_type": "WHO 2021 type",
    "grade": "WHO grade",
}


Kind = Literal["binary", "survival", "multiclass", "ordinal", "continuous"]  # each a folder of `mri_vit.kinds`
KEYS: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {  # of an endpoint: which a kind must have, and which it may have
    "binary": ((), ()),
    "survival": (("time", "event"), ("competing",)),
    "multiclass": ((), ("classes",)),
    "ordinal": (("classes",), ()),
    "continuous": ((), ("unit", "log")),
}


class Endpoint(Section):
    """What is predicted: a label in the column `name`, or a survival time and its event flag."""

    name: str = Field(pattern=f"^{ENDPOINT_NAME}$", description="Name, and but for survival its column of the cohort table.")
    kind: Kind = Field(description="Binary marker, survival time, classes, ordered grades, or number.")
    time: str | None = Field(default=None, description="Column of the days from imaging to death or the last follow-up.")
    event: str | None = Field(default=None, description="Column of the event flag: 1 is death, 0 is censored.")
    competing: str | None = Field(
        default=None,
        pattern=COMPETING,
        exclude_if=lambda words: words is None,  # a study without it has the records that it always had
        description="What a 2 is, such as death of another cause; unset refuses it.",
    )
    classes: tuple[str, ...] | None = Field(
        default=None, description="Classes, those of the table if unset; or grades in their order."
    )
    unit: str | None = Field(default=None, description="Unit of a number.")
    log: bool | None = Field(default=None, description="Whether the logarithm of a number is learned; unset is not.")
    prefer: str | None = Field(default=None, description="Cohort whose label holds where merged cohorts disagree; unset is none.")

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> Endpoint:
        needed, allowed = KEYS[self.kind]
        for key in dict.fromkeys(key for both in KEYS.values() for keys in both for key in keys):
            given = getattr(self, key) is not None
            if given and key not in (*needed, *allowed):
                raise ValueError(f"{key!r} is not a key of a {self.kind} endpoint")
            if key in needed and not given:
                raise ValueError(f"a {self.kind} endpoint needs the key {key!r}")
        return self

    @model_validator(mode="after")
    def _classes_differ(self) -> Endpoint:
        if self.classes is not None:
            if len({folded(name) for name in self.classes}) < len(self.classes) or not all(map(folded, self.classes)):
                raise ValueError(f"classes must have names that differ by more than case and signs; found {list(self.classes)}")
            if len(self.classes) < MIN_CLASSES:
                raise ValueError(f'classes must be {MIN_CLASSES} or more (two are kind = "binary"); found {list(self.classes)}')
        return self

    @property
    def lacks_classes(self) -> bool:
        """Whether it leaves its classes to the cohort table."""
        return self.classes is None and "classes" in KEYS[self.kind][1]

    @property
    def labels(self) -> str:
        """What its labels are, in words: `multiclass (gbm, astro, oligo)`, `continuous (%)`."""
        more = ", ".join(self.classes or ()) or self.unit or (self.competing and "with a competing event")
        return f"{self.kind} ({more})" if more else self.kind

    @property
    def columns(self) -> tuple[str, ...]:
        """The label columns of the cohort table that this endpoint reads."""
        return (self.time, self.event) if self.time and self.event else (self.name,)

    @property
    def title(self) -> str:
        """Its full name."""
        return ENDPOINT_TITLES.get(self.name, self.name)


def folded(name: str) -> str:
    """A class's name without case, spaces and signs: GBM, gbm and "G.B.M." are one."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", name).casefold() if letter.isalnum())


DEFAULT_ENDPOINTS = (
    Endpoint(name="mgmt", kind="binary"),
    Endpoint(name="pten", kind="binary"),
    Endpoint(name="tertp", kind="binary"),
    Endpoint(name="os", kind="survival", time="os_days", event="os_event"),
)

TOKENS_ALONE = {
    "token_budget": None,
    "mixup": 0.0,
    "layer_decay": 1.0,
    "embedding_lr_factor": 1.0,
    "devices": 1,
    "mask_supervision_attention": 0.0,
    "tumour_tokens_first": False,
}  # keys of [train] for a Vision Transformer, and off
WITHOUT_REGIONS = ("hybrid", "hybrid_resnet10", "monai_vit", "swin_vit")  # networks that masks cannot supervise
MAX_SHARED_SEQUENCES = 6  # sequences in the maps of a study: 64 passes per patient and fold, where the four take 16
MAE_IS_FOR_VIT = (  # with method and architecture
    "pretrain.method {!r} is for architecture vit, found {}, which has no tokens to hide; dino pretrains any network"
)
NO_BLOCK = "maps need a block to attend, and model.depth 0 has none"
SPLIT = ("folds", "repeats", "leave_out")  # keys of [train] that divide the patients, for all compared models alike


class Study(Section):
    """One study: which cohort, how prepared, which model, how trained, which endpoints."""

    name: str = Field(pattern=f"^{FILE_NAME}$", description="Name of the study.")
    cohort: Path = Field(description="Cohort table.")
    prepared: Path = Field(description="Folder of the prepared patients.")
    output: Path = Field(description="Folder of the run.")
    seed: int = Field(default=0, ge=0, description="Seed of folds, initial weights and all else that is random.")
    recipe: Recipe = Field(default=CARD, exclude=True, description="What a study file gets for the keys that it leaves out.")
    channels: tuple[Annotated[str, Field(pattern=f"^{SEQUENCE_NAME}$")], ...] = Field(
        default=CHANNELS,
        min_length=1,
        description="Sequences, each a column of the cohort table, as arrays have them.",
    )
    grid: Grid = Grid()
    prepare: Prepare = Prepare()
    qc: Quality = Quality()
    model: Model = Model()
    pretrain: Pretrain = Pretrain()
    train: Train = Train()
    controls: Controls = Controls()
    explain: Explain = Explain()
    report: Report = Report()
    executor: Executor = Executor()
    slurm: Slurm = Slurm()
    endpoints: tuple[Endpoint, ...] = Field(default=DEFAULT_ENDPOINTS, min_length=1, description="What is predicted.")
    comparators: tuple[Comparator, ...] = Field(
        default=(), description="Models on the same folds, each with some keys of its own."
    )
    fused: bool = Field(default=False, description="Whether to add the model vit+clinical: network and clinical columns.")

    @model_validator(mode="after")
    def _sequences_have_names_of_their_own(self) -> Study:
        files = [name.replace("_", "") for name in self.channels]  # as the files of maps have them
        if len(set(files)) != len(files):
            raise ValueError(f"channels must differ, and by more than _; found {list(self.channels)}")
        labels = {column for endpoint in self.endpoints for column in endpoint.columns}
        if taken := [name for name in self.channels if name in {*RESERVED_COLUMNS, *labels} or name.startswith("tumour_")]:
            raise ValueError(f"channels: {taken[0]!r} is a column of another meaning; name the sequence otherwise")
        return self

    @model_validator(mode="after")
    def _sequences_are_the_studys(self) -> Study:
        """What [prepare] and [model] leave out is all of the study's sequences; what they name is among these."""
        self._left_out("prepare", "needs")
        self._left_out("model", "channels")
        reference, known = self.prepare.reference, f"channels {list(self.channels)}"
        if reference not in self.channels:
            unset = "" if "reference" in self.prepare.model_fields_set else ", which it is unless it is set,"
            raise ValueError(f"prepare.reference {reference!r}{unset} is not among {known}; set it to one of them")
        for key, named in (("prepare.needs", self.prepare.needs), ("model.channels", self.model.channels)):
            if unknown := [name for name in named if name not in self.channels]:
                raise ValueError(f"{key}: {unknown[0]!r} is not among {known}")
        if reference not in self.prepare.needs:
            raise ValueError(
                f"prepare.needs must hold the reference {reference!r}, to which the other scans are aligned; found "
                f"{list(self.prepare.needs)}"
            )
        if self.model.architecture == "vit" and set(self.model.channels) != set(self.channels):
            raise ValueError(
                'model.architecture "vit" reads all of the study\'s sequences: leave model.channels out, and name fewer in the '
                "study's channels; train.modality_dropout makes it robust to a missing one"
            )
        return self

    def _left_out(self, section: str, key: str) -> None:
        """Fill a key of a section in with the study's channels, where the file does not give it."""
        found: Section = getattr(self, section)
        if key not in found.model_fields_set:
            object.__setattr__(self, section, found.model_copy(update={key: self.channels}))  # frozen is what a study becomes

    @model_validator(mode="after")
    def _names_are_unique(self) -> Study:
        names = [endpoint.name for endpoint in self.endpoints]
        if len(set(names)) != len(names):
            raise ValueError(f"endpoint names must differ, found {names}")
        files = [name.replace("_", "") for name in names]  # as the files of maps have them
        if len(set(files)) != len(files):
            raise ValueError(f"endpoint names must differ by more than _, found {names}")
        return self

    @model_validator(mode="after")
    def _expected_verdicts_are_studied(self) -> Study:
        names = [endpoint.name for endpoint in self.endpoints]
        if unknown := [name for name in self.report.expected_verdicts if name not in names]:
            raise ValueError(
                f"report.expected_verdicts names {unknown[0]!r}, which is no endpoint of the study (found {', '.join(names)})"
            )
        return self

    @model_validator(mode="after")
    def _comparators_are_recipes(self) -> Study:
        names = [comparator.name for comparator in self.comparators]
        if len({VIT, *NOT_COMPARED, *names}) != 1 + len(NOT_COMPARED) + len(names):
            raise ValueError(f"comparators' names must differ, also from vit, {', '.join(NOT_COMPARED)}; found {names}")
        for comparator in self.comparators:
            if apart := [key for key in SPLIT if key in comparator.train]:
                raise ValueError(
                    f"comparators.{comparator.name}: train.{apart[0]} is the study's, whose folds all share; leave it out"
                )
            try:
                self.of(comparator)
            except pydantic.ValidationError as error:
                raise _of_comparator(comparator, error) from None
        return self

    @model_validator(mode="after")
    def _explained_comparators_are_studied(self) -> Study:
        names, asked = [comparator.name for comparator in self.comparators], self.explain.comparators
        if unknown := [name for name in asked if name not in names]:
            found = f"found {', '.join(names)}" if names else "it has none"
            raise ValueError(f"explain.comparators names {unknown[0]!r}, which is no comparator of the study ({found})")
        if len(set(asked)) != len(asked):
            raise ValueError(f"explain.comparators names one twice: {list(asked)}")
        for comparator in self.comparators:
            if comparator.name in asked and self.of(comparator).model.depth == 0:
                raise ValueError(f"explain.comparators names {comparator.name!r}: {NO_BLOCK}; leave it out")
        if asked and not self.explained:
            raise ValueError(
                f"explain.comparators names {asked[0]!r}, but explain.patients and explain.scored are 0, so that no map is made;"
                " give how many patients"
            )
        return self

    @model_validator(mode="after")
    def _network_and_learning_fit(self) -> Study:
        model, train = self.model, self.train
        if model.architecture != "vit":
            whole = {
                "token_budget": train.token_budget,
                "mixup": train.mixup,
                "layer_decay": train.layer_decay < 1,
                "embedding_lr_factor": train.embedding_lr_factor != 1,
                "mask_supervision_attention": train.mask_supervision_attention,
                "tumour_tokens_first": train.tumour_tokens_first,
            }
            given = [key for key, value in whole.items() if value]
            if given:
                raise ValueError(
                    f"train.{given[0]} is about tokens or blocks, which {model.architecture} does not have; leave it out"
                )
            if self.pretrain.method == "mae":
                raise ValueError(MAE_IS_FOR_VIT.format(self.pretrain.method, model.architecture))
            if train.devices > 1:
                raise ValueError(
                    f"{model.architecture} normalises over a batch, of which each device sees its share: train.devices must be 1"
                )
            if train.batch_size < 2:
                raise ValueError(f"{model.architecture} normalises over a batch: train.batch_size must be 2 or more")
        if train.mask_supervision_attention and model.depth == 0:
            raise ValueError(
                "train.mask_supervision_attention trains the attention of CLS, and model.depth 0 has none; leave it out"
            )
        for key, value in {"mixup": train.mixup, "devices": train.devices > 1}.items():
            if train.uses_tumour_masks and value:
                raise ValueError(
                    f"tumour masks in training need whole patients on one device: leave train.{key} out, or train without masks "
                    '(recipe = "no-masks")'
                )
        names = [one.name for one in self.endpoints]
        for name in train.laterality_endpoints:
            if name not in names:
                raise ValueError(
                    f"train.laterality_endpoints names {name!r}, which is no endpoint of the study ({', '.join(names)})"
                )
        if train.laterality_endpoints and train.flip_lr and train.mixup:
            raise ValueError(
                "train.laterality_endpoints needs patients who are flipped whole, and train.mixup mixes them: leave one out, or "
                "set train.flip_lr = false"
            )
        half_mm = self.grid.patch * self.grid.spacing_mm / 2
        if train.translation_mm > half_mm:
            raise ValueError(
                f"train.translation_mm must be at most half a patch, {half_mm:g} mm here, or a grid position shows nothing of "
                f"what it held; found {train.translation_mm:g}"
            )
        if self.explained and model.architecture != "vit":
            raise ValueError('maps need architecture "vit"; set explain.patients and explain.scored to 0, or change it')
        if self.explained and not model.attends:
            raise ValueError(f"{NO_BLOCK}; set explain.patients and explain.scored to 0, or model.depth to 1 or more")
        if self.explained and len(self.channels) > MAX_SHARED_SEQUENCES:
            raise ValueError(
                f"a score is shared out among sequences by every set of them, 2^{len(self.channels)} for {len(self.channels)} "
                f"channels; at most {MAX_SHARED_SEQUENCES} with maps: name fewer, or set explain.patients and explain.scored to 0"
            )
        if train.batch_size % train.devices:
            raise ValueError(
                f"train.batch_size {train.batch_size} cannot be shared out evenly among train.devices {train.devices}"
            )
        if self.pretrain.method != "none" and self.pretrain.batch_size % train.devices:
            raise ValueError(
                f"pretrain.batch_size {self.pretrain.batch_size} cannot be shared out evenly among train.devices {train.devices}"
            )
        return self

    @property
    def explained(self) -> bool:
        """Whether maps are made of anybody."""
        return self.explain.patients != 0 or self.explain.scored != 0

    def of(self, comparator: Comparator) -> Study:
        """The study that a comparator is trained by: this one with its keys, and no comparators, fusion or maps of its own.

        Keys about tokens are left at their defaults for a network that has none, and the study's weights for one without a block.
        """
        plain = self.model_dump(exclude={"comparators", "explain", "fused"})
        for section in ("model", "pretrain", "train"):
            plain[section] |= getattr(comparator, section)
        if "size" in comparator.model:  # whose width is its own, and not the study's
            plain["model"] |= dict.fromkeys(("dim", "depth", "heads", "mlp")) | comparator.model
        if plain["model"]["architecture"] != "vit":
            plain["train"] |= TOKENS_ALONE | comparator.train
            plain["model"] |= {"weights": None, "tokens": "foreground"} | comparator.model
            plain["pretrain"] |= {"method": "none"} | comparator.pretrain
        if plain["model"]["architecture"] in WITHOUT_REGIONS:  # as a comparator it learns from labels alone
            plain["train"] |= dict.fromkeys(MASK_SUPERVISION, 0.0) | comparator.train
        if plain["model"]["depth"] == 0:
            plain["model"] |= {"weights": None} | comparator.model
            plain["train"] |= {"mask_supervision_attention": 0.0} | comparator.train
        if str(plain["model"]["weights"]) != str(self.model.weights):  # the study's licence is of its own file
            plain["model"]["weights_licence"] = comparator.model.get("weights_licence")
        return Study.model_validate(plain | {"explain": {"patients": 0, "scored": 0}})

    @model_validator(mode="after")
    def _one_way_to_leave_out(self) -> Study:
        if self.train.leave_out and self.train.repeats > 1:
            raise ValueError(
                f"train.leave_out {self.train.leave_out!r} makes one split; found train.repeats {self.train.repeats}"
            )
        if self.train.leave_out and self.pretrain.method != "none" and self.pretrain.patients == "unlabelled":
            raise ValueError(
                f'pretrain.patients "unlabelled" knows scans of the {self.train.leave_out} that a fold leaves out; give "others"'
            )
        return self


def _of_comparator(comparator: Comparator, error: pydantic.ValidationError) -> pydantic.ValidationError:
    """The same faults, placed in the comparator whose keys brought them up."""
    faults = [
        InitErrorDetails(
            type=fault["type"],
            loc=("comparators", comparator.name, *fault["loc"]),
            input=fault["input"],
            ctx=fault.get("ctx", {}),
        )
        for fault in error.errors()
    ]
    return pydantic.ValidationError.from_exception_data(error.title, faults)

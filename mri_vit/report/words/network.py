"""The networks in words: what `metrics.json` says of them goes in, sentences on the study's own network,
its beginning and its comparators come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.run import Contender, Settings
from mri_vit.report.words import recipes, wording
from mri_vit.report.words.wording import Facts, counted, escape, trained
from mri_vit.settings import source as licence
from mri_vit.settings.recipe import Model, Pretrain
from mri_vit.settings.sections import Grid
from mri_vit.settings.sequences import titles

POOLED = {  # what the heads read, by model.pool
    "cls": "the normalised CLS token",
    "mean": "the normalised CLS token, to which the mean of the other normalised tokens is added",
    "max": "the normalised CLS token, to which each feature's largest value over the other normalised tokens is added",
}
METHODS = {
    "mae": "The masked autoencoder [@mae] read {mae.VISIBLE:.0%} of a patient's tokens, and a decoder of depth "
    "{mae.DECODER_DEPTH} and half the encoder's width, given {known}, predicted the patches of a random third of the others, "
    "{target}; the loss is the mean squared error over their brain voxels.",
    "dino": "DINO [@dino] trains a student to give the outputs of a teacher, a moving average of its weights (momentum from "
    "{dino.MOMENTUM:g} to 1), over {dino.PROTOTYPES} prototypes; views are boxes of places, two global ones and {local_crops} "
    "local ones, each with its own intensities and mirroring, and the teacher's outputs are centred and sharpened.",
}
HEADS = {  # what the survival head puts out, by model.survival
    "hazard": "The survival head puts out discrete-time hazards in up to {heads.INTERVALS} intervals that end at quantiles of "
    "the training patients' event times, trained by their likelihood [@gensheimer]; the score is the summed cumulative hazard.",
    "cox": "The survival head puts out a log hazard ratio, trained with Cox's partial likelihood [@cox] and Efron's treatment of "
    "ties [@efron].",
}


def model(metrics: Metrics, facts: Facts) -> list[str]:
    """What reads the patches, and what it puts out; how its weights began comes last."""
    settings = trained(metrics)
    if settings is None:
        return []
    shape, kinds = settings.model, wording.kinds(metrics)
    said = _transformer(shape, settings.grid, settings.channels) if shape.architecture == "vit" else _other(shape)
    if "binary" in kinds:
        said.append("A binary head puts out a logit and is trained with cross-entropy.")
    if "survival" in kinds:
        from mri_vit.model import heads  # here, because a table's report does without PyTorch

        said.append(HEADS[shape.survival].format(heads=heads))
    return [*said, initialised(settings)]


def _transformer(shape: Model, grid: Grid, channels: Sequence[str]) -> list[str]:
    dim, depth, heads, mlp = shape.shape
    embedding = "one linear map"
    if shape.stem:
        embedding = f"two linear maps with {shape.stem} hidden units and a GELU between"
    if shape.conv_stem:
        embedding = (
            f"strided 3D convolutions within the patch [@xiao], the first with {shape.conv_stem} channels, with GELUs between"
        )
    if shape.texture:
        embedding += (
            f", and beside them by a linear map of the log energy, over the patch, of {shape.texture} learned filters of 3³ "
            "voxels without a mean [@laws]; both read each sequence twice, as it is and normalised within the patch"
        )
    read = "the places that hold brain" if shape.tokens == "foreground" else f"all {grid.places} places"
    blocks = f"{depth} pre-norm blocks of width {dim} with {heads} attention heads and {mlp} hidden units with GELU"
    if not depth:
        blocks = f"its patch embedding and positions alone, of width {dim}, without a block"
    return [
        f"The model is a Vision Transformer [@vit] over 3D patches: {blocks}, "
        f"{wording.parameters(shape, grid, len(channels)):,} parameters without the heads.",
        f"A patch of {wording.every_sequence(channels)} is embedded by {embedding}; a CLS token is put first, and each token "
        f"gets a learned position embedding of its place. The encoder reads {read}.",
        f"Each endpoint has a linear head on {POOLED[shape.pool]}, and all endpoints share the encoder.",
    ]


def _other(shape: Model) -> list[str]:
    name, source = recipes.name(shape.architecture), recipes.source(shape.architecture)
    dim, depth, _, _ = shape.shape
    sized = f", with {depth} blocks of width {dim}" if shape.architecture in recipes.SIZED else ""
    return [
        f"The model is {escape(name)} ({escape(source)}){sized}.",
        f"It reads the box of the prepared grid that holds any brain, with {titles(shape.channels)} as its channels.",
        "Each endpoint has a linear head on its features, and all endpoints share the network.",
        "Where it normalises over a batch, means and variances are computed anew, over at most 64 training patients, before it "
        "is judged.",
    ]


def initialised(settings: Settings) -> str:
    """Where the weights of the study's own model started from."""
    heads = "from zero" if settings.model.zero_head else "at random"
    encoder = "Weights started from random numbers"
    if isinstance(settings.pretrain, Pretrain):
        encoder = "The encoder's weights started from pretraining without labels (see there)"
    if settings.model.weights:
        stated = escape(licence.licence_text(settings.model.weights_licence))
        encoder = f"The encoder's weights started from those of the file {escape(settings.model.weights)} ({stated})"
    return f"{encoder}, heads {heads} with the bias that fits the training labels best.{_of_licence(settings)}"


def _of_licence(settings: Settings) -> str:
    """A sentence where the licence of the weights that training started from forbids something, or is not known."""
    if not settings.model.weights:
        return ""
    caution = licence.licence_caution(Path(settings.model.weights).name, licence.stated_licence(settings.model.weights_licence))
    return f" {escape(caution)}." if caution else ""


def pretraining(metrics: Metrics, facts: Facts) -> list[str]:
    """Who was pretrained, how and on whom, or started from a file; and who was then judged on patients whose scans were seen."""
    begun = [contender for contender in metrics.contenders if contender.beginning] if trained(metrics) else []
    said = [f"{escape(contender.model)} was {escape(contender.beginning)}." for contender in begun]
    methods = [_method(contender.pretrain) for contender in begun if isinstance(contender.pretrain, Pretrain)]
    said += dict.fromkeys(methods)  # once for all who share it
    if any("from the weights of" in contender.beginning for contender in begun):
        said.append(facts.gap("weights", "what those weights were learned from, and whether any of these patients was among it"))
    if any(contender.beginning.startswith("pretrained") for contender in begun):
        said.append("Pretraining sees scans and no label.")
    if metrics.transductive:
        said.append(
            f"Transductive: scans of patients whom a model is judged on were among those that it was pretrained on, of "
            f"{escape(metrics.transductive)}. These results are not those on patients whose scans are new to the model."
        )
    return said


def _method(settings: Pretrain) -> str:
    from mri_vit.pretrain import dino, mae  # here, for they import PyTorch and Fabric

    used = f"It used batches of {settings.batch} patients and a learning rate of at most {settings.rate:g}."
    known = "nothing but what the heads read" if settings.decoder_reads == "readout" else "what the encoder made of them"
    target = "as they are in the scans" if settings.target == "scan" else "each normalised"
    words = {**settings.model_dump(), "mae": mae, "dino": dino, "known": known, "target": target}
    return f"{METHODS[settings.method].format(**words)} {used}"


def flat(contender: Contender) -> str:
    """Of how many trainings the tuning loss fell no more at the end; "" where that is not known."""
    if contender.trainings is None:
        return ""
    return f"tuning loss flat at the end of {contender.flat} of {counted(contender.trainings, 'training')}"


def comparators(metrics: Metrics, facts: Facts) -> list[str]:
    """The networks that the study's own model is compared with, each with what differs from its recipe."""
    others = metrics.contenders[1:] if trained(metrics) else ()
    if not others:
        return []
    said = [
        f"{counted(len(others), 'comparator')} {'was' if len(others) == 1 else 'were'} trained and judged on the same folds, "
        "by the same recipe but for what is said of each."
    ]
    for comparator in others:
        source = f" ({comparator.source})" if comparator.source else ""
        words = [comparator.architecture + source, comparator.differs, comparator.beginning, flat(comparator)]
        said.append(f"{escape(comparator.model)}: {escape('; '.join(word for word in words if word))}.")
    own = flat(metrics.contenders[0])
    return [*said, f"{escape(metrics.contenders[0].model)}: {own}."] if own else said

"""The networks in words: what `metrics.json` tells of them goes in, sentences on the study's own network,
its beginning and its comparators come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mri_vit.model import heads
from mri_vit.pretrain import dino, mae
from mri_vit.report.words import recipes, wording
from mri_vit.report.words.wording import Metrics, counted, escape, gap, places, trained

Facts = Mapping[str, Any]

POOLED = {  # what the heads read, by model.pool
    "cls": "the normalised CLS token",
    "mean": "the normalised CLS token, to which the mean of the other normalised tokens is added",
    "max": "the normalised CLS token, to which each feature's largest value over the other normalised tokens is added",
}
METHODS = {
    "mae": "The masked autoencoder [@mae] saw {mae.VISIBLE:.0%} of a patient's tokens, and a decoder of depth "
    "{mae.DECODER_DEPTH} and half the encoder's width, given {known}, predicted the patches of a random third of the others, "
    "{target}; the loss is the mean squared error over their brain voxels.",
    "dino": "DINO [@dino] taught a student to give the outputs of a teacher, a moving average of its weights (momentum from "
    "{dino.MOMENTUM:g} to 1), over {dino.PROTOTYPES} prototypes; views are boxes of places, two global ones and {local_crops} "
    "local ones, each with its own intensities and mirroring, and the teacher's outputs are centred and sharpened.",
}


def model(metrics: Metrics, facts: Facts) -> list[str]:
    """What reads the patches, and what it puts out; how its weights began comes last."""
    shape, grid = trained(metrics, "model"), trained(metrics, "grid")
    if not shape or not grid:
        return []
    kinds = wording.kinds(metrics)
    said = _transformer(shape, grid) if shape.get("architecture", "vit") == "vit" else _other(shape)
    if "binary" in kinds:
        said.append("A binary head puts out a logit and is trained with cross-entropy.")
    if "survival" in kinds and shape["survival"] == "hazard":
        said.append(
            f"The survival head puts out discrete-time hazards in up to {heads.INTERVALS} intervals that end at quantiles of "
            "the training patients' event times, trained by their likelihood [@gensheimer]; the score is the summed cumulative "
            "hazard."
        )
    if "survival" in kinds and shape["survival"] == "cox":
        said.append(
            "The survival head puts out a log hazard ratio, trained with Cox's partial likelihood [@cox] and Efron's treatment "
            "of ties [@efron]."
        )
    return [*said, initialised(metrics)]


def _transformer(shape: Mapping[str, Any], grid: Mapping[str, Any]) -> list[str]:
    embedding = "one linear map"
    if shape.get("stem"):
        embedding = f"two linear maps with {shape['stem']} hidden units and a GELU between"
    if shape.get("conv_stem"):
        embedding = (
            f"strided 3D convolutions within the patch [@xiao], the first with {shape['conv_stem']} channels, with GELUs between"
        )
    read = "the places that hold brain" if shape["tokens"] == "foreground" else f"all {places(grid)} places"
    return [
        f"The model is a Vision Transformer [@vit] over 3D patches: {shape['depth']} pre-norm blocks of width {shape['dim']} "
        f"with {shape['heads']} attention heads and {shape['mlp']} hidden units with GELU, {wording.parameters(shape, grid):,} "
        "parameters without the heads.",
        f"A patch of all four scans is embedded by {embedding}; a CLS token is put first, and each token gets a learned position "
        f"embedding of its place. The encoder reads {read}.",
        f"Each endpoint has a linear head on {POOLED[shape.get('pool', 'cls')]}, and all endpoints share the encoder.",
    ]


def _other(shape: Mapping[str, Any]) -> list[str]:
    name, source = recipes.name(shape["architecture"]), recipes.source(shape["architecture"])
    scans = wording.listed([recipes.SPACES[scan] for scan in shape["channels"]])
    sized = f", with {shape['depth']} blocks of width {shape['dim']}" if shape["architecture"] in recipes.SIZED else ""
    return [
        f"The model is {escape(name)} ({escape(source)}){sized}.",
        f"It reads the box of the prepared grid that holds any brain, with {scans} as its channels.",
        "Each endpoint has a linear head on its features, and all endpoints share the network.",
        "Where it normalises over a batch, means and variances are taken anew, over at most 64 training patients, before it is "
        "judged.",
    ]


def initialised(metrics: Metrics) -> str:
    """Where the weights of the study's own model started from."""
    shape = trained(metrics, "model")
    heads = "from zero" if shape.get("zero_head", True) else "at random"
    encoder = "Weights started from random numbers"
    if trained(metrics, "pretrain").get("method", "none") != "none":
        encoder = "The encoder's weights started from pretraining without labels (see there)"
    if shape.get("weights"):
        encoder = f"The encoder's weights started from those of the file {escape(shape['weights'])}"
    return f"{encoder}, heads {heads} with the bias that fits the training labels best."


def pretraining(metrics: Metrics, facts: Facts) -> list[str]:
    """Who was pretrained, how and on whom, or started from a file; and who was then judged on patients whose scans were seen."""
    contenders = (metrics.get("contenders") or ()) if trained(metrics, "train") else ()
    begun = [contender for contender in contenders if contender["beginning"]]
    said = [f"{escape(contender['model'])} was {escape(contender['beginning'])}." for contender in begun]
    for told in dict.fromkeys(_method(contender["pretrain"]) for contender in begun if contender["pretrain"]):
        said.append(told)  # once for all who share it
    if any("from the weights of" in contender["beginning"] for contender in begun):
        said.append(gap(facts, "weights", "what those weights were learned from, and whether any of these patients was among it"))
    if any(contender["beginning"].startswith("pretrained") for contender in begun):
        said.append("Pretraining sees scans and no label.")
    if metrics.get("transductive"):
        said.append(
            f"Transductive: scans of patients whom a model is judged on were among those that it was pretrained on, of "
            f"{escape(metrics['transductive'])}. These results are not those on patients whose scans are new to the model."
        )
    return said


def _method(settings: Mapping[str, Any]) -> str:
    used = f"It used batches of {settings['batch']} patients and a learning rate of at most {settings['rate']:g}."
    known = "nothing but what the heads read" if settings.get("decoder_reads") == "readout" else "what the encoder made of them"
    target = "as they are in the scans" if settings.get("target") == "scan" else "each normalised"
    words = {**settings, "mae": mae, "dino": dino, "known": known, "target": target}
    return f"{METHODS[settings['method']].format(**words)} {used}"


def comparators(metrics: Metrics, facts: Facts) -> list[str]:
    """Whom the study's own model was held against, each with what differs from its recipe."""
    others = (metrics.get("contenders") or [])[1:] if trained(metrics, "train") else []
    if not others:
        return []
    said = [
        f"{counted(len(others), 'comparator')} {'was' if len(others) == 1 else 'were'} trained and judged on the same folds, "
        "by the same recipe but for what is told of each."
    ]
    for comparator in others:
        words = [
            comparator["architecture"] + (f" ({comparator['source']})" if comparator["source"] else ""),
            comparator["differs"],
            comparator["beginning"],
        ]
        said.append(f"{escape(comparator['model'])}: {escape('; '.join(word for word in words if word))}.")
    return said

"""The networks in words: their architecture, how their weights began, and what a comparator changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mri_vit.report.schema.measured import ModelCosts
from mri_vit.report.schema.metrics import ComparedModel, Metrics, Settings
from mri_vit.report.words import of_kind, run_facts
from mri_vit.report.words.notation import counted, escape, setting
from mri_vit.report.words.run_facts import Facts, trained
from mri_vit.settings.recipe import FUSED, Comparator, Model, Pretrain, title, titles
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid
from mri_vit.settings.source import licence_caution, licence_text, stated_licence

VIT = "Vision Transformer"
FUSION = "vit's networks and a regression on the clinical columns, weighted on each fold's validation patients"
PRETRAINED = {"mae": "a masked autoencoder", "dino": "DINO"}
PRETRAINING_PATIENTS = {
    "others": "for each fold on all patients but its test patients",
    "unlabelled": "once for all folds, on the patients without any label",
    "all": "once for all folds, on all patients, test patients too",
}
POOLED_ALONE = {
    "max": "their largest values over the grid positions",
    "mean": "their mean over the grid positions",
}  # by model.pool, without CLS
SIZED = ("vit", "hybrid", "hybrid_resnet10", "monai_vit")  # architectures whose size the recipe sets
REPORTED_ELSEWHERE = {  # keys that `architecture_in_words` and `weights_origin` report
    *("model.architecture", "model.channels", "model.weights", "model.weights_licence"),
    *("pretrain.method", "pretrain.patients", "pretrain.epochs"),
}


def architecture_in_words(study: Study) -> str:
    """The network in words: 3D ResNet-10; Vision Transformer, 12 blocks of width 768; and its scans where it reads fewer."""
    model = study.model
    label = architecture_name(model.architecture)
    if model.architecture == "vit" and not model.attends:
        embedding = f"patch embedding and positions, of width {model.shape[0]}"
        return f"the {VIT}'s {embedding}, and {POOLED_ALONE[model.pool]}, without a block"
    if model.architecture in SIZED:
        dim, depth, _, _ = model.shape
        label += f", {depth} block{'s' * (depth > 1)} of width {dim}"
    fewer = len(model.channels) < len(study.channels)
    return f"{label}; {' and '.join(map(title, model.channels))} only" if fewer else label


def architecture_name(architecture: str) -> str:
    """An architecture's name for people."""
    if architecture == "vit":
        return VIT
    from mri_vit.model.baselines import BASELINES, HYBRIDS  # here, because it imports torch, which takes seconds

    return (BASELINES | HYBRIDS)[architecture].label


def architecture_source(architecture: str) -> str:
    """Where an architecture was published."""
    if architecture == "vit":
        return "Dosovitskiy et al. 2021, arXiv:2010.11929"
    from mri_vit.model.baselines import BASELINES, HYBRIDS  # here, because it imports torch, which takes seconds

    return (BASELINES | HYBRIDS)[architecture].source


def weights_origin(study: Study) -> str:
    """How the encoder's weights began, where not at random: by pretraining, from a file with its licence; else ""."""
    model, started = study.model, ""
    if model.weights:
        started = f"started from the weights of {Path(model.weights).name} ({licence_text(model.weights_licence)})"
    if study.pretrain.method == "none":
        return started
    method, patients = PRETRAINED[study.pretrain.method], PRETRAINING_PATIENTS[study.pretrain.patients]
    pretrained = f"pretrained without labels by {method}, {patients}, {study.pretrain.epochs} epochs"
    return f"{pretrained}; it {started}" if started else pretrained


def changed_settings(study: Study, comparator: Comparator) -> dict[str, dict[str, Any]]:
    """The keys by which a comparator's recipe differs from the study's own, each with the comparator's value and the study's.

    What `architecture_in_words` and `weights_origin` report is left out, and so are keys that the comparator did not name: those
    about tokens, which are off for a network that has none.
    """
    theirs = study.of(comparator)
    named = [(section, key) for section in ("model", "pretrain", "train") for key in getattr(comparator, section)]
    pairs = {
        f"{section}.{key}": {"value": getattr(getattr(theirs, section), key), "own": getattr(getattr(study, section), key)}
        for section, key in named
        if f"{section}.{key}" not in REPORTED_ELSEWHERE
    }
    return {key: pair for key, pair in pairs.items() if pair["value"] != pair["own"]}


def changes_in_words(study: Study, comparator: Comparator) -> str:
    """The same in words: train.learning_rate 0.001 (not 0.0003)."""
    named = changed_settings(study, comparator).items()
    return ", ".join(f"{key} {setting(pair['value'])} (not {setting(pair['own'])})" for key, pair in named)


def compared_model(figures: ModelCosts, study: Study, recipes: Mapping[str, Study]) -> ComparedModel:
    """A compared model with what it is in words; what is not known stays empty. `recipes` are `Run.recipes`."""
    model, recipe = figures.model, recipes.get(figures.model)
    comparator = next((one for one in study.comparators if one.name == model), None)
    return ComparedModel(
        **vars(figures),
        architecture=architecture_in_words(recipe) if recipe else FUSION if study.fused and model == FUSED else "",
        source=architecture_source(recipe.model.architecture) if recipe else "",
        beginning=weights_origin(recipe) if recipe else "",
        differs=changes_in_words(study, comparator) if comparator else "",
    )


POOLED = {  # what the heads read, by model.pool
    "cls": "the normalised CLS token",
    "mean": "the normalised CLS token, to which the mean of the other normalised tokens is added",
    "max": "the normalised CLS token, to which each feature's largest value over the other normalised tokens is added",
}
PRETRAINING_METHODS = {
    "mae": "The masked autoencoder [@mae] read {mae.VISIBLE_SHARE:.0%} of a patient's tokens, and a decoder of depth "
    "{mae.DECODER_DEPTH} and half the encoder's width, given {known}, predicted the patches of a random third of the others, "
    "{target}; the loss is the mean squared error over their brain voxels.",
    "dino": "DINO [@dino] trains a student to match the outputs of a teacher, a moving average of its weights (momentum from "
    "{dino.TEACHER_MOMENTUM:g} to 1), over {dino.PROTOTYPES} prototypes; views are boxes of grid positions, two global ones and "
    "{local_crops} local ones, each with its own intensity jitter and left–right flip, and the teacher's outputs are centred "
    "and sharpened.",
}
SURVIVAL_HEADS = {  # what the survival head puts out, by model.survival
    "hazard": "The survival head predicts discrete-time hazards in up to {heads.INTERVALS} intervals that end at quantiles of "
    "the training patients' event times, trained by their likelihood [@gensheimer]; the score is the summed cumulative hazard.",
    "cox": "The survival head predicts a log hazard ratio, trained with Cox's partial likelihood [@cox] and Efron's treatment of "
    "ties [@efron].",
}


def model_sentences(metrics: Metrics, facts: Facts) -> list[str]:
    """What reads the patches, and what it puts out; how its weights began comes last."""
    settings = trained(metrics)
    if settings is None:
        return []
    shape, kinds = settings.model, run_facts.kinds(metrics)
    sentences = _transformer(shape, settings.grid, settings.channels) if shape.architecture == "vit" else _volume_network(shape)
    from mri_vit.model import heads  # here, because a table's report does without PyTorch

    sentences += [of_kind.of(kind).head_of(shape).format(heads=heads) for kind in kinds]
    return [*sentences, initial_weights(settings)]


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
            f", and in parallel by a linear map of the log energy, over the patch, of {shape.texture} learned filters of 3³ "
            "voxels without a mean [@laws]; both read each sequence twice, as it is and normalised within the patch"
        )
    read = "the grid positions that hold brain" if shape.tokens == "foreground" else f"all {grid.positions} grid positions"
    blocks = f"{depth} pre-norm blocks of width {dim} with {heads} attention heads and {mlp} hidden units with GELU"
    if not depth:
        blocks = f"its patch embedding and positions alone, of width {dim}, without a block"
    return [
        f"The model is a Vision Transformer [@vit] over 3D patches: {blocks}, "
        f"{encoder_parameters(shape, grid, channels):,} parameters without the heads.",
        f"A patch of {run_facts.every_sequence(channels)} is embedded by {embedding}; a CLS token is prepended, and each token "
        f"gets a learned position embedding. The encoder reads {read}.",
        f"Each endpoint has a linear head on {POOLED[shape.pool]}, and all endpoints share the encoder.",
    ]


def encoder_parameters(model: Model, grid: Grid, channels: Sequence[str]) -> int:
    """Parameters of the encoder, which leaves out the heads: they depend on the fold's labels."""
    import torch  # here, because a table's report does without PyTorch

    from mri_vit.model import network

    with torch.device("meta"):  # shapes alone
        return network.count_parameters(network.encoder(model, grid, tuple(channels)))


def _volume_network(shape: Model) -> list[str]:
    name, source = architecture_name(shape.architecture), architecture_source(shape.architecture)
    dim, depth, _, _ = shape.shape
    sized = f", with {depth} blocks of width {dim}" if shape.architecture in SIZED else ""
    return [
        f"The model is {escape(name)} ({escape(source)}){sized}.",
        f"It reads the box of the prepared grid that holds any brain, with {titles(shape.channels)} as its channels.",
        "Each endpoint has a linear head on its features, and all endpoints share the network.",
        "Where it normalises over a batch, means and variances are computed anew, over at most 64 training patients, before it "
        "is evaluated.",
    ]


def initial_weights(settings: Settings) -> str:
    """Where the weights of the study's own model started from, and what the licence of a file of them forbids or leaves open."""
    heads = "from zero" if settings.model.zero_head else "at random"
    encoder, caution = "Weights started from random numbers", ""
    if isinstance(settings.pretrain, Pretrain):
        encoder = "The encoder's weights started from pretraining without labels (see there)"
    if weights := settings.model.weights:
        terms = settings.model.weights_licence
        encoder = f"The encoder's weights started from those of the file {escape(weights)} ({escape(licence_text(terms))})"
        caution = licence_caution(Path(weights).name, stated_licence(terms))
    warning = f" {escape(caution)}." if caution else ""
    return (
        f"{encoder}, the heads' weights {heads}, and the heads' biases from the values that fit the training labels best."
        f"{warning}"
    )


def pretraining_sentences(metrics: Metrics, facts: Facts) -> list[str]:
    """Which networks were pretrained, how and on which patients, or started from a file; and which were image-exposed."""
    started = [entry for entry in metrics.compared_models if entry.beginning] if trained(metrics) else []
    sentences = [f"{escape(entry.model)} was {escape(entry.beginning)}." for entry in started]
    methods = [_pretraining_method(entry.pretrain) for entry in started if isinstance(entry.pretrain, Pretrain)]
    sentences += dict.fromkeys(methods)  # once for all who share it
    if any("from the weights of" in entry.beginning for entry in started):
        sentences.append(
            facts.gap("weights", "on which data those weights were trained, and whether they include any of these patients")
        )
    if any(entry.beginning.startswith("pretrained") for entry in started):
        sentences.append("Pretraining sees scans and no label.")
    if metrics.transductive:
        sentences.append(
            f"Transductive: a model was pretrained on scans of patients who are also evaluated: "
            f"{escape(metrics.transductive)}. The results may differ for patients whose scans are new to the model."
        )
    return sentences


def _pretraining_method(settings: Pretrain) -> str:
    from mri_vit.pretrain import dino, mae  # here, for they import PyTorch and Fabric

    used = f"It used batches of {settings.batch_size} patients and a learning rate of at most {settings.learning_rate:g}."
    known = "nothing but what the heads read" if settings.decoder_reads == "readout" else "what the encoder made of them"
    target = "as they are in the scans" if settings.target == "scan" else "each normalised"
    words = {**settings.model_dump(), "mae": mae, "dino": dino, "known": known, "target": target}
    return f"{PRETRAINING_METHODS[settings.method].format(**words)} {used}"


def flat_trainings(entry: ComparedModel) -> str:
    """Of how many trainings the validation loss fell no more at the end; "" where that is not known."""
    if entry.trainings is None:
        return ""
    return f"validation loss flat at the end of {entry.flat} of {counted(entry.trainings, 'training')}"


def comparator_sentences(metrics: Metrics, facts: Facts) -> list[str]:
    """The networks that the study's own model is compared with, each with what differs from its recipe."""
    others = metrics.compared_models[1:] if trained(metrics) else ()
    if not others:
        return []
    sentences = [
        f"{counted(len(others), 'comparator')} {'was' if len(others) == 1 else 'were'} trained and evaluated on the same folds, "
        "with the same recipe except as stated for each."
    ]
    for comparator in others:
        source = f" ({comparator.source})" if comparator.source else ""
        words = [comparator.architecture + source, comparator.differs, comparator.beginning, flat_trainings(comparator)]
        sentences.append(f"{escape(comparator.model)}: {escape('; '.join(word for word in words if word))}.")
    own = flat_trainings(metrics.compared_models[0])
    return [*sentences, f"{escape(metrics.compared_models[0].model)}: {own}."] if own else sentences

"""What a recipe is called: the settings of a study and of its comparators in, words out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mri_vit.report.schema.run import Contender
from mri_vit.report.words.notation import setting
from mri_vit.settings import source as licence
from mri_vit.settings.recipe import FUSED, Comparator
from mri_vit.settings.schema import Study
from mri_vit.settings.sequences import title

VIT = "Vision Transformer"
FUSION = "vit's networks as they are and a regression on the clinical columns, weighed on each fold's tuning patients"
PRETRAINED = {"mae": "a masked autoencoder", "dino": "DINO"}
ON_WHOM = {
    "others": "for each fold on all patients but its test patients",
    "unlabelled": "once for all folds, on the patients without any label",
    "all": "once for all folds, on all patients, test patients too",
}
POOLED = {"max": "their largest values over the places", "mean": "their mean over the places"}  # by model.pool, without CLS
SIZED = ("vit", "hybrid", "hybrid_resnet10", "monai_vit")  # architectures whose size the recipe sets
SAID_ELSEWHERE = {  # keys that `architecture` and `beginning` report
    *("model.architecture", "model.channels", "model.weights", "model.weights_licence"),
    *("pretrain.method", "pretrain.patients", "pretrain.epochs"),
}


def architecture(study: Study) -> str:
    """The network in words: 3D ResNet-10; Vision Transformer, 12 blocks of width 768; and its scans where it reads fewer."""
    model = study.model
    label = name(model.architecture)
    if model.architecture == "vit" and not model.attends:
        return f"the {VIT}'s patch embedding and positions, of width {model.shape[0]}, and {POOLED[model.pool]}, without a block"
    if model.architecture in SIZED:
        dim, depth, _, _ = model.shape
        label += f", {depth} block{'s' * (depth > 1)} of width {dim}"
    fewer = len(model.channels) < len(study.channels)
    return f"{label}; {' and '.join(map(title, model.channels))} only" if fewer else label


def name(architecture: str) -> str:
    """An architecture's name for people."""
    if architecture == "vit":
        return VIT
    from mri_vit.model.baselines import BASELINES, HYBRIDS  # here, because it imports torch, which takes seconds

    return (BASELINES | HYBRIDS)[architecture].label


def source(architecture: str) -> str:
    """Where an architecture was published."""
    if architecture == "vit":
        return "Dosovitskiy et al. 2021, arXiv:2010.11929"
    from mri_vit.model.baselines import BASELINES, HYBRIDS  # here, because it imports torch, which takes seconds

    return (BASELINES | HYBRIDS)[architecture].source


def beginning(study: Study) -> str:
    """How the encoder's weights began, where not at random: by pretraining, from a file with its licence; else ""."""
    model, started = study.model, ""
    if model.weights:
        started = f"started from the weights of {Path(model.weights).name} ({licence.licence_text(model.weights_licence)})"
    if study.pretrain.method == "none":
        return started
    method, whom = PRETRAINED[study.pretrain.method], ON_WHOM[study.pretrain.patients]
    said = f"pretrained without labels by {method}, {whom}, {study.pretrain.epochs} epochs"
    return f"{said}; it {started}" if started else said


def differences(study: Study, comparator: Comparator) -> dict[str, dict[str, Any]]:
    """The keys by which a comparator's recipe differs from the study's own, each with the comparator's value and the study's.

    What `architecture` and `beginning` report is left out, and so are keys that the comparator did not name: those about tokens,
    which are off for a network that has none.
    """
    theirs = study.of(comparator)
    named = [(section, key) for section in ("model", "pretrain", "train") for key in getattr(comparator, section)]
    pairs = {
        f"{section}.{key}": {"value": getattr(getattr(theirs, section), key), "own": getattr(getattr(study, section), key)}
        for section, key in named
        if f"{section}.{key}" not in SAID_ELSEWHERE
    }
    return {key: pair for key, pair in pairs.items() if pair["value"] != pair["own"]}


def differing(study: Study, comparator: Comparator) -> str:
    """The same in words: train.rate 0.001 (not 0.0003)."""
    named = differences(study, comparator).items()
    return ", ".join(f"{key} {setting(pair['value'])} (not {setting(pair['own'])})" for key, pair in named)


def described(contender: Contender, study: Study, recipes: Mapping[str, Study]) -> Contender:
    """The contender with what it is in words; what is not known stays empty. `recipes` are `Run.recipes`."""
    model = contender.model
    differs = {comparator.name: differing(study, comparator) for comparator in study.comparators if comparator.name == model}
    fused = FUSION if study.fused and model == FUSED else ""
    recipe = recipes.get(model)
    return contender.model_copy(
        update={
            "architecture": architecture(recipe) if recipe else fused,
            "source": source(recipe.model.architecture) if recipe else "",
            "beginning": beginning(recipe) if recipe else "",
            "differs": differs.get(model, ""),
        }
    )

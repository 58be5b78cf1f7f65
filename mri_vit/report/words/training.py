"""Training and cross-validation in words: settings of `metrics.json` go in, sentences for a paper's Methods come out."""

from __future__ import annotations

from mri_vit.crossval.folds import DEALS
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.words import wording
from mri_vit.report.words.wording import Facts, escape, listed, trained
from mri_vit.settings.recipe import Train

OPTIONS = {  # what is off unless a study asks for it: its value when off, and its sentence
    "layer_decay": (1.0, "A block learned at {:g} times the rate of the one behind it [@beit]."),
    "embedding_rate": (1.0, "The patch embedding learned at {:g} times the rate [@dinov2]."),
    "frozen": (0.0, "In the first {:.0%} of the steps the heads learned alone."),
    "ema": (0.0, "What was evaluated is a moving average of the weights (decay {:g})."),
    "mixup": (0.0, "Two patients' tokens were mixed, with a share drawn from Beta({0:g}, {0:g}) [@mixup,tokenmix]."),
    "move_mm": (
        0.0,
        "Patients were moved at random along each axis, by whole voxels and at most {:g} mm, before patches were cut.",
    ),
    "modality_dropout": (0.0, "Each sequence was emptied with a probability of {:g}, never all of a patient's [@moddrop]."),
}


def training(metrics: Metrics, facts: Facts) -> list[str]:
    """Who trained which model, and how it was optimised."""
    settings = trained(metrics)
    if settings is None:
        return []
    train = settings.train
    return [
        *partition(metrics, train),
        f"In each fold {train.tune_fraction:.0%} of the other patients were set aside for early stopping and the rest "
        "trained the model.",
        "The labels of a test fold were withheld from the model that predicted it.",
        *_seeds(train),
        _optimiser(train),
        "The loss is the sum of the endpoints' losses, each over the patients whose label is known.",
        *guidance(train),
        *_inputs(train, settings.grid.places),
        *_regularisation(train, settings.model.drop_path, "binary" in wording.kinds(metrics)),
        _stopping(train),
        facts.gap("settings", "whether any setting was chosen by looking at these patients"),
    ]


def _seeds(train: Train) -> list[str]:
    if train.seeds == 1:
        return []
    return [
        f"In each fold {train.seeds} networks were trained on the same patients, which differ in their seed alone (initial "
        "weights, order and random draws); a patient's score is the mean of theirs."
    ]


def _optimiser(train: Train) -> str:
    return (
        f"Training used AdamW [@adamw] (β {train.betas[0]:g} and {train.betas[1]:g}; weight decay {train.weight_decay:g} on "
        f"weight matrices only), batches of {train.batch} patients, and a learning rate rising linearly to {train.rate:g} over "
        f"{train.warmup:.0%} of the steps and then falling as half a cosine to zero [@sgdr], with gradients clipped at norm "
        f"{train.clip:g}."
    )


def guidance(train: Train) -> list[str]:
    """What training patients' tumour masks taught."""
    targets = {
        "patches told the share of tumour in them": train.guide_share,
        "CLS's attention in the last block was drawn to the tumour's patches [@qiao]": train.guide_attention,
        "a linear head on the mean of the tumour's embedded patches told the labels": train.guide_labels,
        "a linear head on the mean of the tumour's tokens, as the last block reads them, told the labels": train.guide_encoded,
    }
    said = [f"{target} (weight {value:g})" for target, value in targets.items() if value]
    if not said:
        return []
    return [
        f"Tumour masks of the training patients guided training: beside the labels' losses, {', '.join(said)}; attention and "
        "labels count a patch by the square of its share of tumour. No mask was given to the model that predicted."
    ]


def _inputs(train: Train, places: int) -> list[str]:
    said = []
    if train.token_budget:
        kept = ", those that hold tumour first" if train.guide_tokens else ""
        said.append(f"At each step up to {min(train.token_budget, places)} tokens of each patient were drawn at random{kept}.")
    said += options(train)
    if train.mirror:
        sided = listed([escape(name) for name in train.sided])
        but = f", and then taught nothing of {sided}, which may hang on the side" if sided else ""
        said.append(f"Patients were mirrored left to right with probability one half{but}.")
    if train.intensity:
        said.append(f"Each scan got a random gain and shift (standard deviation {train.intensity:g}).")
    return said


def _regularisation(train: Train, drop_path: float, has_binary: bool) -> list[str]:
    said = []
    if drop_path:
        said.append(
            f"Residual branches were left out at random with a probability rising over depth to {drop_path:g} [@droppath]."
        )
    if train.class_weights and has_binary:
        said.append(
            "Positives were weighted by negatives over positives of the training patients; the shift that this gives to the log "
            "odds was removed from the predicted probability."
        )
    return said


def _stopping(train: Train) -> str:
    every = "every epoch" if train.tune_every == 1 else f"every {train.tune_every} epochs"
    return (
        f"Training lasted at most {train.epochs} epochs. After {every} the loss on the tuning patients was "
        "taken as a share of its value before training, limited to 1, and averaged over endpoints; training stopped after "
        f"{train.patience} such evaluations without a better one, and the weights of the best were kept."
    )


def options(train: Train) -> list[str]:
    """What is off unless a study asks for it."""
    values = {key: getattr(train, key) for key in OPTIONS}
    return [OPTIONS[key][1].format(value) for key, value in values.items() if value != OPTIONS[key][0]]


def partition(metrics: Metrics, train: Train) -> list[str]:
    """How the patients were divided."""
    folds, repeats = metrics.folds, metrics.repeats
    if train.leave_out:
        column = escape(train.leave_out)
        said = [
            f"Patients were divided into {folds} folds before any training: each value of {column} is a test fold of its own."
        ]
    else:
        times = "" if repeats == 1 else f", {repeats} times with different splits"
        said = [
            f"Patients were divided into {folds} folds before any training{times} (seed {metrics.seed}): of {DEALS:,} "
            "random splits that with the most even counts of each endpoint's classes was taken."
        ]
    if metrics.folds_sha256:
        said.append(f"The split was written down first; its SHA-256 is {escape(metrics.folds_sha256)}.")
    return [*said, "Folds are made by patient, with all visits of a patient together: nobody is in two folds of one split."]

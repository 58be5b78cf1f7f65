"""Preparation and training in words: settings of `metrics.json` go in, sentences for a paper's Methods come out.

Constants are read from the steps themselves, so that a sentence follows its code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mri_vit.crossval.folds import FOLD_DRAWS
from mri_vit.prepare import alignment, bias, brain, register
from mri_vit.prepare.tumour import SEEN, SURE
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import Tumour
from mri_vit.report.words import of_kind, run_facts
from mri_vit.report.words.notation import counted, escape, in_words, listed
from mri_vit.report.words.run_facts import Facts, settings, trained
from mri_vit.settings.recipe import Train, is_quantitative, named, template_sequence, title, titles
from mri_vit.settings.sections import Grid, Prepare

BRAIN_MASKS = {  # by the way that a patient's brain was found
    "mask": "the mask supplied with the scans",
    "none": "what differs from background in scans that were already skull-stripped (largest piece, holes filled)",
    "deepbet": "where deepbet's [@deepbet] probability{averaged} exceeds one half (largest piece, holes filled)",
}


def preparation_sentences(metrics: Metrics, facts: Facts) -> list[str]:
    """From the scans to the patches that the model reads."""
    chosen = settings(metrics)
    if chosen is None:
        return []
    return [
        facts.gap("scanners", "scanner makes, field strengths, sequences and their parameters"),
        *_alignment(chosen.prepare, chosen.channels, facts),
        *(_inhomogeneity(chosen.channels) if chosen.prepare.bias else []),
        *_tokens(chosen.grid, template_sequence(chosen.channels, chosen.prepare.reference)),
        *_tumours(chosen.prepare, chosen.channels, tuple(metrics.tumours.values())),
    ]


TUMOUR_MASKS = {  # by the source of a patient's mask
    "given": "supplied with the scans",
    "found": "found automatically in {seen} by a 3D U-Net that had learned from synthetic heads alone",
    "command": "made from the scans by {program}",
}


def _tumours(prepare: Prepare, channels: tuple[str, ...], tumours: Sequence[Tumour]) -> list[str]:
    sentences = [tumour_masks(prepare, channels, tumours)] if any(one.source != "none" for one in tumours) else []
    if prepare.tumour_crop_margin_mm is not None:
        sentences.append(
            f"Voxels further than {prepare.tumour_crop_margin_mm:g} mm from the tumour mask were set to 0 after intensities were "
            "scaled, also for the patients who were predicted, so every model knew where the tumour lies."
        )
    return sentences


def tumour_masks(prepare: Prepare, channels: tuple[str, ...], tumours: Sequence[Tumour]) -> str:
    """Where masks came from, with how many patients each way, and how many of those that were found are in doubt."""
    program = escape(Path(prepare.tumour_command[0]).name) if prepare.tumour_command else ""
    masked = [one for one in tumours if one.tumour_ml is not None]
    seen = titles([name for name in SEEN if name in channels])
    ways = [
        f"{words.format(program=program, seen=seen)} ({counted(number, 'patient')})"
        for way, words in TUMOUR_MASKS.items()
        if (number := sum(one.source == way for one in masked))
    ]
    doubtful = sum(one.confidence is not None and one.confidence < SURE for one in masked)
    without = len(tumours) - len(masked)
    return "".join(
        [
            f"Tumour masks were {'; '.join(ways)}" if ways else "No tumour mask was found",
            f"; of those found {doubtful} had a confidence below {SURE:g}"
            if any(one.source == "found" for one in masked)
            else "",
            f"; {counted(without, 'patient')} had none" if without else "",
            ". No label was used to find them." if any(one.source != "given" for one in masked) else ".",
        ]
    )


def _alignment(prepare: Prepare, channels: tuple[str, ...], facts: Facts) -> list[str]:
    reference, others = title(prepare.reference), [channel for channel in channels if channel != prepare.reference]
    if not others:
        return [
            f"One scan of each patient was used: {named(channels)}, read with its axes in RAS+ order.",
            *brain_masks(prepare, channels, facts),
        ]
    sentences = [
        f"{in_words(len(channels)).capitalize()} scans of each patient were used: {named(channels)}, read with their axes in "
        "RAS+ order.",
        f"{titles(others)} {'was' if len(others) == 1 else 'were each'} aligned rigidly to {reference} by maximising Mattes "
        "mutual information [@mattes] "
        f"({register.BINS} histogram bins; on copies with voxels of at least {register.COARSE_MM:g} mm, then of at least "
        f"{register.FINE_MM:g} mm); the alignment given by the headers was kept where it was no worse.",
        *brain_masks(prepare, channels, facts),
    ]
    if prepare.brain != "none":
        who = "Unless the scans came skull-stripped without a mask, these" if prepare.brain == "auto" else "These"
        sentences.append(f"{who} alignments were refined on the brain and the {register.INNER_MARGIN_MM:g} mm around it.")
    return [
        *sentences,
        f"A patient with a scan whose field of view held less than {alignment.MIN_OVERLAP:.0%} of the brain was excluded.",
    ]


def _inhomogeneity(channels: tuple[str, ...]) -> list[str]:
    quantities = [channel for channel in channels if is_quantitative(channel)]
    left = f"{titles(quantities)}, which are quantitative, were left as they are." if len(quantities) > 1 else ""
    left = f"{title(quantities[0])}, which is quantitative, was left as it is." if len(quantities) == 1 else left
    if len(quantities) == len(channels):
        return [left]
    return [
        f"Intensity inhomogeneity was corrected inside the brain with N4 [@n4] ({bias.LEVELS} levels of up to "
        f"{bias.ITERATIONS} iterations, on about {bias.WORKING_MM:g} mm voxels). Voxels more than {bias.OUTLIER_SD:g} robust "
        "standard deviations from the brain's median in any of the scans, and their surroundings, were left out of the estimate, "
        "so that a lesion does not count as inhomogeneity. Scans with more than "
        f"{bias.NEGATIVE_SHARE:.0%} negative voxels in the brain were not corrected.",
        *([left] if left else []),
    ]


def _tokens(grid: Grid, facing: str) -> list[str]:
    starts = sum(len(angles) for angles in register.TILTS_DEGREES.values())
    return [
        f"The {title(facing)} brain was aligned rigidly, so that sizes are kept, to the MNI152 brain [@fonov] from {starts} "
        "starting positions.",
        f"All scans were resampled once, from brain voxels alone and smoothed against aliasing [@cardoso], to a cube of "
        f"{grid.edge}³ voxels of {grid.spacing_mm:g} mm in the MNI152 frame.",
        f"Each scan was z-scored inside the brain. Its mean and standard deviation were computed with the outer "
        f"{alignment.TAIL_PERCENT:g} % at each end clipped to their percentile; "
        f"z-scores were limited to ±{alignment.Z_LIMIT:g} standard deviations.",
        f"The cube was cut into patches of {grid.patch}³ voxels ({grid.positions} grid positions); patches with any brain voxel "
        "were kept, with everything outside the brain set to zero.",
    ]


def brain_masks(prepare: Prepare, channels: tuple[str, ...], facts: Facts) -> list[str]:
    """Which brain mask was used; `brains` of the facts are the ways that "auto" really went."""
    reference = title(prepare.reference)
    averaged = f", averaged over T1 and {reference}," if "t1" in channels and prepare.reference != "t1" else f" in {reference}"
    words = {way: text.format(averaged=averaged) for way, text in BRAIN_MASKS.items()}
    if prepare.brain == "command":
        return [f"The brain was extracted from {reference} with {escape(Path(prepare.brain_command[0]).name)}."]
    if prepare.brain != "auto":
        return [f"The brain is {words[prepare.brain]}."]
    if facts.brains:
        ways = [f"{words[way]} ({counted(patients, 'patient')})" for way, patients in facts.brains.items() if way in words]
        return [f"The brain is {'; '.join(ways)}."]
    return [
        f"The brain is {words['mask']} where there was one, else {words['none']} where at least {brain.STRIPPED_SHARE:.0%} of "
        f"{reference} was background, at most {brain.STRIPPED_ML:g} ml were left and no skull was seen (a gap below "
        f"{brain.STRIPPED_GAP:g} between the rim and the brain), else {words['deepbet']}.",
        facts.gap("brains", "how many patients each way"),
    ]


OPTIONAL_SETTINGS = {  # what is off unless a study asks for it: its value when off, and its sentence
    "layer_decay": (1.0, "Each block was trained with {:g} times the learning rate of the block behind it [@beit]."),
    "embedding_lr_factor": (1.0, "The patch embedding was trained with {:g} times the learning rate [@dinov2]."),
    "freeze_fraction": (0.0, "In the first {:.0%} of the steps only the heads were trained."),
    "ema": (0.0, "A moving average of the weights (decay {:g}) was evaluated."),
    "mixup": (0.0, "Two patients' tokens were mixed, with a share drawn from Beta({0:g}, {0:g}) [@mixup,tokenmix]."),
    "translation_mm": (
        0.0,
        "Patients were translated at random along each axis, by whole voxels and at most {:g} mm, before patches were cut.",
    ),
    "modality_dropout": (
        0.0,
        "Each sequence was set to zero with a probability of {:g}, but never all sequences of a patient [@moddrop].",
    ),
}


def training_sentences(metrics: Metrics, facts: Facts) -> list[str]:
    """Who trained which model, and how it was optimised."""
    settings = trained(metrics)
    if settings is None:
        return []
    train, sentences = settings.train, partition_sentences(metrics, settings.train)
    sentences += [
        f"In each fold {train.val_fraction:.0%} of the other patients were set aside for early stopping and the rest "
        "trained the model.",
        "The labels of a test fold were withheld from the model that predicted it.",
    ]
    if train.seeds > 1:
        sentences.append(
            f"In each fold {train.seeds} networks were trained on the same patients, which differ in their seed alone (initial "
            "weights, order and random draws); a patient's score is the mean of theirs."
        )
    every = "every epoch" if train.val_every == 1 else f"every {train.val_every} epochs"
    return [
        *sentences,
        f"Training used AdamW [@adamw] (β {train.betas[0]:g} and {train.betas[1]:g}; weight decay {train.weight_decay:g} on "
        f"weight matrices only), batches of {train.batch_size} patients, and a learning rate rising linearly to "
        f"{train.learning_rate:g} over {train.warmup:.0%} of the steps and then falling as half a cosine to zero [@sgdr], "
        f"with gradients clipped at norm {train.grad_clip_norm:g}.",
        "The loss is the sum of the endpoints' losses, each over the patients whose label is known.",
        *mask_supervision(train),
        *_inputs(train, settings.grid.positions),
        *_regularisation(train, settings.model.drop_path, run_facts.kinds(metrics)),
        f"Training lasted at most {train.epochs} epochs. After {every} the loss on the validation patients was "
        "taken as a share of its value before training, limited to 1, and averaged over endpoints; training stopped after "
        f"{train.patience} such evaluations without a better one, and the weights of the best were kept.",
        facts.gap("settings", "whether any setting was chosen by looking at these patients"),
    ]


def mask_supervision(train: Train) -> list[str]:
    """The auxiliary losses that the tumour masks of training patients supervised."""
    targets = {
        "CLS attention in the last block was supervised with the tumour's patches [@qiao]": train.mask_supervision_attention,
        "a linear head on the mean of the tumour's embedded patches predicted the labels": train.mask_supervision_patch_labels,
        "a linear head on the mean of the tumour's tokens before the last block predicted the labels": (
            train.mask_supervision_token_labels
        ),
    }
    losses = [f"{target} (weight {value:g})" for target, value in targets.items() if value]
    if not losses:
        return []
    return [
        f"Tumour masks of the training patients supervised auxiliary losses: {', '.join(losses)}; attention and "
        "labels weight a patch by the square of its tumour fraction. The model needed no mask to predict."
    ]


def _inputs(train: Train, positions: int) -> list[str]:
    sentences = []
    if train.token_budget:
        kept = ", those that hold tumour first" if train.tumour_tokens_first else ""
        sentences.append(
            f"At each step up to {min(train.token_budget, positions)} tokens of each patient were drawn at random{kept}."
        )
    sentences += optional_settings(train)
    if train.flip_lr:
        sided = listed([escape(name) for name in train.laterality_endpoints])
        but = f"; flipped patients did not train {sided}, which may depend on the side" if sided else ""
        sentences.append(f"Patients were flipped left to right with a probability of 0.5{but}.")
    if train.intensity_jitter:
        sentences.append(f"Each scan got a random intensity gain and shift (standard deviation {train.intensity_jitter:g}).")
    return sentences


def _regularisation(train: Train, drop_path: float, kinds: Sequence[str]) -> list[str]:
    sentences = []
    if drop_path:
        sentences.append(
            f"Residual branches were dropped at random with a probability rising over depth to {drop_path:g} [@droppath]."
        )
    return sentences + [words for kind in kinds if (words := of_kind.of(kind).imbalance(train))]


def optional_settings(train: Train) -> list[str]:
    """What is off unless a study asks for it."""
    values = {key: getattr(train, key) for key in OPTIONAL_SETTINGS}
    return [OPTIONAL_SETTINGS[key][1].format(value) for key, value in values.items() if value != OPTIONAL_SETTINGS[key][0]]


def partition_sentences(metrics: Metrics, train: Train) -> list[str]:
    """How the patients were divided."""
    folds, repeats = metrics.folds, metrics.repeats
    if train.leave_out:
        column = escape(train.leave_out)
        sentences = [
            f"Patients were divided into {folds} folds before any training: each value of {column} is a test fold of its own."
        ]
    else:
        times = "" if repeats == 1 else f", {repeats} times with different splits"
        sentences = [
            f"Patients were divided into {folds} folds before any training{times} (seed {metrics.seed}): of {FOLD_DRAWS:,} "
            "random splits, the one with the most even counts of each endpoint's classes was used."
        ]
    if metrics.folds_sha256:
        sentences.append(f"The split was written down first; its SHA-256 is {escape(metrics.folds_sha256)}.")
    return [
        *sentences,
        "Folds are made by patient, with all visits of a patient together: no patient is in two folds of one split.",
    ]

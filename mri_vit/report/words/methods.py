"""Methods: the content of `metrics.json` goes in, Markdown for a paper's Methods and Results comes out.

Each stage writes its own sentences, with the run's figures, and only when settings or figures show that it happened. What a
run cannot know is a gap, **[author: …]**. Constants of the preparation are read from the steps themselves, so that a sentence
follows its code; `[@key]` cites (see `references`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mri_vit.prepare import bias, brain, intensity, outliers, patient, register
from mri_vit.report.words import findings, maps, network, wording
from mri_vit.report.words.references import numbered
from mri_vit.report.words.wording import Metrics, counted, design, escape, gap, places, settings, trained
from mri_vit.settings.models import CONTROLS

Facts = Mapping[str, Any]

AS_MADE = {
    "clinical": "clinical (penalised logistic and Cox regression on clinical columns)",
    "volume": "volume (the same regressions on the volume of the brain and, where a mask was given, of the tumour)",
    "shuffled": "shuffled (the model itself, once over the folds, trained and tested on labels permuted within the folds)",
}
THRESHOLDS = "Thresholds were chosen on the tuning patients of each fold; of several repeats the first is shown."
FITTED = (
    "In each fold the regressions were fitted on the training patients alone, and the thresholds of their probabilities chosen "
    "on the tuning patients, like the model's."
)
COVARIATES = "Covariates were scaled, and a missing number replaced by the median and a flag, from the training patients alone."


def text(metrics: Metrics, facts: Facts) -> str:
    """Methods and Results as Markdown, ready to be pasted.

    Parameters
    ----------
    metrics
        The content of `metrics.json`; keys that are not there are passed over. A table from elsewhere has no settings, and
        then the stages before evaluation are left out.
    facts
        What `metrics.json` does not hold, all of it optional: `excluded` (rows of `excluded.csv`, where the cohort of the
        metrics has no `excluded_reasons`), `brain_sources` (patients by the way their brain was found: mask, none or deepbet)
        and the author's own words by the name of a gap (`ethics`, `scanners`, …).

    Returns
    -------
    Headed sections, then the numbered references that they cite and no others.
    """
    stages = (
        ("Cohort", cohort),
        ("Preparation of the images", preparation),
        ("Model", network.model),
        ("Pretraining", network.pretraining),
        ("Training and cross-validation", training),
        ("Comparators", network.comparators),
        ("Controls", controls),
        ("Evaluation", evaluation),
        ("Maps", maps.attention),
        ("Software", software),
    )
    parts = [f"# Methods and results of “{escape(metrics.get('study', 'study'))}”"]
    parts.append("Written from the run's own settings and figures. What a run cannot know is marked **[author: …]**.")
    parts += [f"## {title}\n\n{' '.join(found)}" for title, stage in stages if (found := stage(metrics, facts))]
    if found := [*findings.lines(metrics), *maps.lines(metrics)]:
        parts.append("## Results\n\nBrackets hold 95 % intervals.\n\n" + "\n".join(f"- {line}" for line in found))
    return numbered("\n\n".join(parts)) + "\n"


def cohort(metrics: Metrics, facts: Facts) -> list[str]:
    """Who was in the table, who was left out and why, and whose labels are known."""
    people = metrics.get("cohort")
    if not people or design(metrics) == "table":
        return []
    said = [
        gap(facts, "source", "where the patients come from: setting, centres, dates"),
        gap(facts, "eligibility", "who was eligible, and treatments"),
        gap(facts, "ethics", "ethics approval and consent"),
        f"The cohort table held {counted(people['patients'], 'patient')}.",
        excluded(metrics, facts),
        f"{counted(people['predicted'], 'patient')} got a prediction.",
    ]
    if people.get("unpredicted"):
        said.append(f"{counted(people['unpredicted'], 'patient')} in the table got none without being excluded.")
    said += labels(metrics)
    said.append(gap(facts, "labels", "how, when and by whom each label was determined"))
    return [*said, "A missing label was left out and never imputed."]


def excluded(metrics: Metrics, facts: Facts) -> str:
    """How many patients were excluded, counted by reason where the reasons are known."""
    number, why = metrics["cohort"]["excluded"], wording.reasons(metrics, facts)
    told = "; ".join(f"{escape(reason)} (n = {count})" for reason, count in why.items())
    return f"Excluded, because their scans could not be used: {counted(number, 'patient')}{f' ({told})' if told else ''}."


def labels(metrics: Metrics) -> list[str]:
    """Of each endpoint: labels known in the table and in the evaluation, and how many are positive or died."""
    people, said = metrics.get("cohort", {}), []
    for name, endpoint in metrics.get("endpoints", {}).items():
        if not endpoint["known"]:
            said.append(f"No label of {escape(name)} entered the evaluation.")
            continue
        known = people.get("known", {}).get(name)
        in_table = "" if known is None else f" was known for {known} of {people['patients']} patients in the table and"
        size = findings.size(endpoint, endpoint["kind"])
        said.append(f"The label of {escape(name)}{in_table} entered the evaluation for {size}.")
    return said


def preparation(metrics: Metrics, facts: Facts) -> list[str]:
    """From the scans to the patches that the model reads."""
    prepare, grid = settings(metrics, "prepare"), settings(metrics, "grid")
    if not prepare or not grid:
        return []
    starts = sum(len(angles) for angles in register.TILTS_DEGREES.values())
    said = [
        gap(facts, "scanners", "scanner makes, field strengths, sequences and their parameters"),
        "Four scans of each patient were used: T1, contrast-enhanced T1 (T1ce), T2 and FLAIR, read with their axes laid as RAS+.",
        "T1, T2 and FLAIR were each aligned rigidly to T1ce by maximising Mattes mutual information [@mattes] "
        f"({register.BINS} histogram bins; copies of voxels no finer than {register.COARSE_MM:g} mm, then {register.FINE_MM:g} "
        "mm); the alignment given by the headers was kept where it was no worse.",
        *brains(prepare, facts),
    ]
    if prepare["brain"] != "none":
        who = "Unless the scans came skull-stripped without a mask, these" if prepare["brain"] == "auto" else "These"
        said.append(f"{who} alignments were refined on the brain and the {register.INNER_MARGIN_MM:g} mm around it.")
    said.append(f"A scan whose field of view held less than {patient.OVERLAP:.0%} of the brain made its patient unusable.")
    if prepare["bias"]:
        said.append(
            f"Intensity inhomogeneity was corrected inside the brain with N4 [@n4] ({bias.LEVELS} levels of up to "
            f"{bias.ITERATIONS} iterations, on about {bias.WORKING_MM:g} mm voxels), estimated without voxels more than "
            f"{outliers.CORE:g} robust standard deviations from the brain's median in any of the scans and their surroundings, "
            "so that a lesion is not taken for inhomogeneity, except in scans with more than "
            f"{patient.NEGATIVE_SHARE:.0%} negative voxels in the brain."
        )
    return [
        *said,
        f"The T1ce brain was aligned rigidly, so that sizes are kept, to the MNI152 brain [@fonov] from {starts} starting "
        "positions.",
        f"All scans were resampled once, from brain voxels alone and smoothed against aliasing [@cardoso], to a cube of "
        f"{grid['edge']}³ voxels of {grid['spacing_mm']:g} mm in the MNI152 frame.",
        f"Each scan was z-scored inside the brain; for the mean and the standard deviation the outer {intensity.TAIL_PERCENT:g} "
        f"% at each end were moved to their percentile, and values were limited to ±{intensity.LIMIT:g} standard deviations.",
        f"The cube was cut into patches of {grid['patch']}³ voxels ({places(grid)} places); patches with any brain voxel were "
        "kept, with everything outside the brain set to zero.",
    ]


def brains(prepare: Mapping[str, Any], facts: Facts) -> list[str]:
    """Which brain mask was used; `brain_sources` among the facts tells the ways that "auto" really went."""
    ways = {
        "mask": "the mask supplied with the scans",
        "none": "what differs from background in scans that were already skull-stripped (largest piece, holes filled)",
        "deepbet": "where deepbet's [@deepbet] probability, averaged over T1 and T1ce, exceeds one half (largest piece, holes "
        "filled)",
    }
    chosen, sources = prepare["brain"], facts.get("brain_sources") or {}
    if chosen == "command":
        return [f"The brain was extracted from T1ce with {escape(Path(prepare['brain_command'][0]).name)}."]
    if chosen != "auto":
        return [f"The brain is {ways[chosen]}."]
    if sources:
        told = [f"{ways[way]} ({counted(patients, 'patient')})" for way, patients in sources.items() if way in ways]
        return [f"The brain is {'; '.join(told)}."]
    return [
        f"The brain is {ways['mask']} where there was one, else {ways['none']} where at least {brain.STRIPPED_SHARE:.0%} of "
        f"T1ce was background and at most {brain.STRIPPED_ML:g} ml were left, else {ways['deepbet']}.",
        gap(facts, "brains", "how many patients each way"),
    ]


def training(metrics: Metrics, facts: Facts) -> list[str]:
    """Who trained which model, and how it was optimised."""
    train, budget = trained(metrics, "train"), trained(metrics, "train").get("token_budget")
    if not train:
        return []
    drop_path = trained(metrics, "model").get("drop_path")
    every = "every epoch" if train["tune_every"] == 1 else f"every {train['tune_every']} epochs"
    said = [
        *partition(metrics),
        f"In each fold {train['tune_fraction']:.0%} of the other patients were set aside for early stopping and the rest "
        "trained the model.",
        "The labels of a test fold were withheld from the model that predicted it.",
        f"Training used AdamW [@adamw] (β {train['betas'][0]:g} and {train['betas'][1]:g}; weight decay "
        f"{train['weight_decay']:g} on weight matrices only), batches of {train['batch']} patients, and a learning rate rising "
        f"linearly to {train['rate']:g} over {train['warmup']:.0%} of the steps and then falling as half a cosine to zero "
        f"[@sgdr], with gradients clipped at norm {train['clip']:g}.",
        "The loss is the sum of the endpoints' losses, each over the patients whose label is known.",
    ]
    if budget:
        said.append(
            f"At each step up to {min(budget, places(settings(metrics, 'grid')))} tokens of each patient were drawn at random."
        )
    said += options(train)
    if train["mirror"]:
        said.append("Patients were mirrored left to right with probability one half.")
    if train["intensity"]:
        said.append(f"Each scan got a random gain and shift (standard deviation {train['intensity']:g}).")
    if drop_path:
        said.append(
            f"Residual branches were left out at random with a probability rising over depth to {drop_path:g} [@droppath]."
        )
    if train["class_weights"] and "binary" in wording.kinds(metrics):
        said.append(
            "Positives were weighted by negatives over positives of the training patients; the shift that this gives to the log "
            "odds was taken back from the predicted probability."
        )
    said.append(
        f"Training lasted at most {train['epochs']} epochs. After {every} the loss on the tuning patients was "
        "taken as a share of its value before training, limited to 1, and averaged over endpoints; training stopped after "
        f"{train['patience']} such evaluations without a better one, and the weights of the best were kept."
    )
    said.append(gap(facts, "settings", "whether any setting was chosen by looking at these patients"))
    return said


def options(train: Mapping[str, Any]) -> list[str]:
    """What is off unless a study asks for it."""
    told = {
        "layer_decay": (1.0, "A block learned at {:g} times the rate of the one behind it [@beit]."),
        "embedding_rate": (1.0, "The patch embedding learned at {:g} times the rate [@dinov2]."),
        "frozen": (0.0, "In the first {:.0%} of the steps the heads learned alone."),
        "ema": (0.0, "What was evaluated is a moving average of the weights (decay {:g})."),
        "mixup": (0.0, "Two patients' tokens were mixed, with a share drawn from Beta({0:g}, {0:g}) [@mixup,tokenmix]."),
        "modality_dropout": (0.0, "Each scan was emptied with a probability of {:g}, never all of a patient's [@moddrop]."),
    }
    return [sentence.format(train[key]) for key, (off, sentence) in told.items() if train.get(key, off) != off]


def partition(metrics: Metrics) -> list[str]:
    """How the patients were divided."""
    train = trained(metrics, "train")
    folds, repeats = metrics.get("folds") or train["folds"], metrics.get("repeats") or train["repeats"]
    if train.get("leave_out"):
        column = escape(train["leave_out"])
        said = [
            f"Patients were divided into {folds} folds before any training: each value of {column} is a test fold of its own."
        ]
    else:
        times = "" if repeats == 1 else f", {repeats} times with different splits"
        said = [
            f"Patients were divided into {folds} folds before any training{times} (seed {metrics.get('seed')}), stratified over "
            "the labels of all endpoints."
        ]
    if metrics.get("folds_sha256"):
        said.append(f"The split was written down first; its SHA-256 is {escape(metrics['folds_sha256'])}.")
    return [*said, "Folds are made by patient, with all visits of a patient together: nobody sits in two folds of one split."]


def controls(metrics: Metrics, facts: Facts) -> list[str]:
    """What the model had to beat. Only what has results is told; what could not be made is told with its reason."""
    run, notes = wording.controls(metrics), metrics.get("notes") or {}
    where = "On the same folds" if design(metrics) == "cross-validation" else "Fitted on the earlier run's patients"
    said = [f"{where}, these controls were made: {'; '.join(AS_MADE[name] for name in run)}."] if run else []
    for name in ("clinical", "volume"):
        if name in run and notes.get(f"{name}_columns"):
            said.append(f"The {name} model read {escape(notes[f'{name}_columns'])}.")
    if {"clinical", "volume"} & set(run):
        said += [FITTED, COVARIATES]
    return said + [f"No {name} control: {escape(notes[name])}." for name in CONTROLS if notes.get(name)]


def evaluation(metrics: Metrics, facts: Facts) -> list[str]:
    """Every measure and test that has a figure, with its source."""
    found = findings.measures(metrics)
    if not found:
        return []
    pooled = {
        "cross-validation": "Each patient was scored by a model that had not seen the patient"
        f"{wording.labels_alone(metrics)}, and the scores of all folds were pooled.",
        "external": "Each patient's score is the mean over the models of an earlier run, none of which was trained on this "
        f"cohort{wording.labels_alone(metrics)}.",
        "table": f"The scores were taken from a table made elsewhere: {gap(facts, 'scores', 'who or what made them, and how')}.",
    }[design(metrics)]
    said = [pooled]
    if (metrics.get("repeats") or 1) > 1:
        said.append("Pooled figures use each patient's mean score over the repeats.")
    said += [*(labels(metrics) if design(metrics) == "table" else []), *found.values()]
    said += sorted({escape(result["cutoffs"]) for _, _, result in wording.results(metrics) if result.get("cutoffs")})
    if design(metrics) == "cross-validation" and "operating_point" in found:
        said.append(THRESHOLDS)
    said.append("A figure that cannot be computed (one class only, no event) is called undefined and is never replaced.")
    if rules := metrics.get("rules"):
        said.append(
            "Verdicts follow rules that were fixed before: " + " ".join(f"({i}) {escape(r)}" for i, r in enumerate(rules, 1))
        )
    return said


def software(metrics: Metrics, facts: Facts) -> list[str]:
    """Versions, commit, device and threads."""
    environment = metrics.get("environment") or {}
    versions = environment.get("versions") or {}
    if not versions:
        return []
    said = ["The software was " + ", ".join(f"{escape(name)} {escape(version)}" for name, version in versions.items()) + "."]
    told = {"git_commit": "It was run from commit", "device": "The device was", "threads": "The number of CPU threads was"}
    said += [f"{words} {escape(environment[key])}." for key, words in told.items() if environment.get(key) is not None]
    return [*said, gap(facts, "availability", "where code, weights and data can be had")]

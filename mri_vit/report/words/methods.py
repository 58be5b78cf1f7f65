"""Methods: the content of `metrics.json` goes in, Markdown for a paper's Methods and Results comes out.

Each stage writes its own sentences, with the run's figures, and only when settings or figures show that it happened. What a
run cannot know is a gap, **[author: …]**; `[@key]` cites (see `references`).
"""

from __future__ import annotations

from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.run import Environment
from mri_vit.report.schema.survival import SurvivalResult
from mri_vit.report.words import findings, maps, network, wording
from mri_vit.report.words.preparation import preparation
from mri_vit.report.words.references import numbered
from mri_vit.report.words.training import training
from mri_vit.report.words.wording import Facts, counted, escape
from mri_vit.settings.recipe import CLINICAL, CONTROLS, INTENSITY, RADIOMICS, RESHUFFLED, SHUFFLED, SITE, SLICES, VOLUME

REGRESSIONS = (CLINICAL, VOLUME, INTENSITY, SLICES, SITE, RADIOMICS)
AS_MADE = {
    CLINICAL: "clinical (penalised logistic and Cox regression on clinical columns)",
    VOLUME: "volume (the same regressions on the volume of the brain and, where a mask was given, of the tumour)",
    INTENSITY: "intensity (the same regressions on mean, SD, skewness, kurtosis, percentiles and maximum of each sequence in the "
    "brain and, where a mask was given, in the tumour)",
    SLICES: "slices (the same regressions on principal components of a frozen 2D network's features, as many as are best on the "
    "tuning patients)",
    RADIOMICS: "as an upper reference, which no model has to beat, radiomics (the same regressions on principal components of "
    "each sequence's radiomic features, by nyxus, in the true tumour mask)",
    SITE: "site (the same regressions on the site alone)",
    SHUFFLED: "shuffled (the model itself, once over the folds, trained and tested on labels permuted within the folds)",
    RESHUFFLED: "shuffled again (the same on a fresh permutation, because the first one looked suspicious)",
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
        A table from elsewhere has no settings, and the stages before evaluation are left out.
    facts
        What `metrics.json` does not hold.

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
    parts = [f"# Methods and results of “{escape(metrics.study)}”"]
    parts.append("Written from the run's own settings and figures. What a run cannot know is marked **[author: …]**.")
    parts += [f"## {title}\n\n{' '.join(found)}" for title, stage in stages if (found := stage(metrics, facts))]
    if found := [*findings.lines(metrics), *maps.lines(metrics)]:
        parts.append("## Results\n\nBrackets hold 95 % intervals.\n\n" + "\n".join(f"- {line}" for line in found))
    return numbered("\n\n".join(parts)) + "\n"


def cohort(metrics: Metrics, facts: Facts) -> list[str]:
    """Who was in the table, who was left out and why, and whose labels are known."""
    people = metrics.cohort
    if metrics.design == "table":
        return []
    said = [
        facts.gap("source", "where the patients come from: setting, centres, dates"),
        facts.gap("eligibility", "who was eligible, and treatments"),
        facts.gap("ethics", "ethics approval and consent"),
        f"The cohort table held {counted(people.patients, 'patient')}.",
        excluded(metrics),
        f"{counted(people.predicted, 'patient')} got a prediction.",
    ]
    if people.unpredicted:
        said.append(f"{counted(people.unpredicted, 'patient')} in the table got none without being excluded.")
    said += labels(metrics)
    said.append(facts.gap("labels", "how, when and by whom each label was determined"))
    return [*said, "A missing label was left out and never imputed."]


def excluded(metrics: Metrics) -> str:
    """How many patients were excluded, counted by reason."""
    reasons = sorted(metrics.cohort.excluded_reasons.items(), key=lambda reason: -reason[1])
    why = "; ".join(f"{escape(reason)} (n = {count})" for reason, count in reasons)
    number = counted(metrics.cohort.excluded, "patient")
    return f"Excluded, because their scans could not or should not be used: {number}{f' ({why})' if why else ''}."


def labels(metrics: Metrics) -> list[str]:
    """Of each endpoint: labels known in the table and in the evaluation, and how many are positive or died."""
    people, said = metrics.cohort, []
    for name, endpoint in metrics.endpoints.items():
        if not endpoint.known:
            said.append(f"No label of {escape(name)} entered the evaluation.")
            continue
        known = people.known.get(name)
        in_table = "" if known is None else f" was known for {known} of {people.patients} patients in the table and"
        said.append(f"The label of {escape(name)}{in_table} entered the evaluation for {findings.size(endpoint)}.")
    return said


def controls(metrics: Metrics, facts: Facts) -> list[str]:
    """What the model has to beat: controls that have results, and those that could not be made with the reason."""
    run, notes = wording.controls(metrics), metrics.notes
    where = "On the same folds" if metrics.design == "cross-validation" else "Fitted on the earlier run's patients"
    said = [f"{where}, these controls were made: {'; '.join(AS_MADE[name] for name in run)}."] if run else []
    for name in REGRESSIONS:
        if name in run and notes.get(f"{name}_columns"):
            said.append(f"The {name} model read {escape(notes[f'{name}_columns'])}.")
    if CLINICAL in run and notes.get(f"{CLINICAL}_withheld"):
        said.append(f"Of these columns not all were read for every endpoint: {escape(notes[f'{CLINICAL}_withheld'])}.")
    if notes.get(f"{CLINICAL}_remarks"):
        said.append(f"Of the clinical columns: {escape(notes[f'{CLINICAL}_remarks'])}.")
    if set(REGRESSIONS) & set(run):
        said += [FITTED, COVARIATES]
    return said + [f"No {name} control: {escape(notes[name])}." for name in (*CONTROLS, RADIOMICS) if notes.get(name)]


def evaluation(metrics: Metrics, facts: Facts) -> list[str]:
    """Every measure and test that has a figure, with its source."""
    found = findings.measures(metrics)
    if not found:
        return []
    said = [_scored(metrics, facts)]
    if metrics.repeats > 1:
        said.append("Pooled figures use each patient's mean score over the repeats.")
    said += [*(labels(metrics) if metrics.design == "table" else []), *found.values()]
    survival = [result for _, _, result in wording.results(metrics) if isinstance(result, SurvivalResult)]
    said += sorted({escape(result.cutoffs) for result in survival if result.cutoffs})
    if metrics.design == "cross-validation" and "operating_point" in found:
        said.append(THRESHOLDS)
    said.append("A figure that cannot be computed (one class only, no event) is called undefined and is never replaced.")
    if metrics.rules:
        rules = " ".join(f"({i}) {escape(rule)}" for i, rule in enumerate(metrics.rules, 1))
        said.append(f"Verdicts follow rules that were fixed before: {rules}")
    return said


def _scored(metrics: Metrics, facts: Facts) -> str:
    """Who scored the patients."""
    unseen = wording.labels_alone(metrics)
    if metrics.design == "cross-validation":
        return (
            f"Each patient was scored by a model that had not seen the patient{unseen}, and the scores of all folds were pooled."
        )
    if metrics.design == "external":
        trained = f"none of which was trained on this cohort{unseen}"
        return f"Each patient's score is the mean over the models of an earlier run, {trained}."
    return f"The scores were taken from a table made elsewhere: {facts.gap('scores', 'who or what made them, and how')}."


def software(metrics: Metrics, facts: Facts) -> list[str]:
    """Versions, commit, device and threads."""
    found = metrics.environment
    if not isinstance(found, Environment) or not found.versions:
        return []
    said = [
        "The software was " + ", ".join(f"{escape(name)} {escape(version)}" for name, version in found.versions.items()) + "."
    ]
    if found.git_commit is not None:
        said.append(f"It was run from commit {escape(found.git_commit)}.")
    said += [f"The device was {escape(found.device)}.", f"The number of CPU threads was {found.threads}."]
    return [*said, facts.gap("availability", "where code, weights and data can be had")]

"""Checklists: the content of `metrics.json` goes in, the tables of TRIPOD+AI and CLAIM come out, filled where the run answers.

The items lie in `items/*.toml`. A filler answers from the metrics alone, in Markdown, and says nothing ("") when they do
not show the thing; the item is then the author's. Longer sentences are those of `methods`, without their citations.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from mri_vit.report.words import findings, maps, methods, network, recipes, wording
from mri_vit.report.words.references import uncited
from mri_vit.report.words.wording import Metrics, counted, design, escape, listed, settings, trained

AUTHOR = "**for the author**"
UNCERTAINTY = (  # of `findings.MEASURES`, those with an interval or a test
    *("auc", "auc_bootstrap", "operating_point", "harrell_c", "logrank", "permutation"),
    *("versus_clinical:binary", "versus_clinical:survival", "versus_own:binary", "versus_own:survival"),
    *("nadeau_bengio", "p_adjusted"),
)


@dataclass(frozen=True)
class Item:
    """One question of a checklist; `fill` names the filler that answers it, `left` what a filler leaves to the author."""

    number: str
    section: str
    asks: str
    fill: str = ""
    left: str = ""


@dataclass(frozen=True)
class Checklist:
    """A published checklist in our own words."""

    title: str
    source: str
    items: tuple[Item, ...]


def tripod_ai(metrics: Metrics) -> str:
    """TRIPOD+AI (Collins et al. 2024, doi:10.1136/bmj-2023-078378) as a Markdown table, filled from `metrics.json`."""
    return table(load("tripod_ai"), metrics)


def claim(metrics: Metrics) -> str:
    """CLAIM, 2024 update (Tejani et al. 2024, doi:10.1148/ryai.240300) as a Markdown table, filled from `metrics.json`."""
    return table(load("claim"), metrics)


def load(name: str) -> Checklist:
    """Read a checklist. Raises ValueError when it does not hold as many items as it says."""
    found = tomllib.loads((files("mri_vit.report.words") / "items" / f"{name}.toml").read_text(encoding="utf-8"))
    items = tuple(Item(**item) for item in found["item"])
    if len(items) != found["items"]:
        raise ValueError(f"{name}.toml: {len(items)} items; expected {found['items']}")
    return Checklist(found["title"], found["source"], items)


def table(checklist: Checklist, metrics: Metrics) -> str:
    """The checklist as Markdown: how much is filled, then a row for each item."""
    answers = {item.number: answer(item, metrics) for item in checklist.items}
    filled = [item for item in checklist.items if answers[item.number]]
    open_parts = sum(bool(item.left) for item in filled)
    rows = [
        f"| {item.number} | {escape(item.section)} | {escape(item.asks)} | {answers[item.number] or AUTHOR} |"
        for item in checklist.items
    ]
    return "\n".join(
        [
            f"# {checklist.title}: “{escape(metrics.get('study', 'study'))}”",
            "",
            f"{len(filled)} of {len(checklist.items)} items filled from the run, the others are for the author. Of the filled, "
            f"{open_parts} leave a part to the author, as they say.",
            "",
            f"Items after {escape(checklist.source)}; what they ask is in our own words, so read the original beside this.",
            "",
            "| Item | Section | Asks | Answer |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def answer(item: Item, metrics: Metrics) -> str:
    """What the run answers to an item, and what it leaves to the author; "" when it answers nothing."""
    said = FILLERS[item.fill](metrics) if item.fill else ""
    if said and item.left:
        return f"{said} {AUTHOR}: {escape(item.left)}"
    return said


def _aim(metrics: Metrics) -> str:
    names = listed([escape(name) for name in metrics.get("endpoints", {})])
    if not names or design(metrics) == "table":
        return ""
    made = recipes.name(settings(metrics, "model").get("architecture", "vit"))
    if design(metrics) == "external":
        return f"Evaluation, on another cohort, of a deep-learning model ({made}) that predicts {names} from brain MRI."
    return (
        f"Development, with internal validation by cross-validation, of a deep-learning model ({made}) that "
        f"predicts {names} from brain MRI."
    )


def _exclusions(metrics: Metrics) -> str:
    return methods.excluded(metrics, {}) if settings(metrics, "prepare") and metrics.get("cohort") else ""


def _preprocessing(metrics: Metrics) -> str:
    prepare, grid = settings(metrics, "prepare"), settings(metrics, "grid")
    if not prepare or not grid:
        return ""
    correction = ", N4 bias correction" if prepare["bias"] else ", no bias correction"
    return (
        f"Rigid alignment to T1ce and to MNI152, brain mask ({escape(prepare['brain'])}){correction}, resampling to "
        f"{grid['edge']}³ voxels of {grid['spacing_mm']:g} mm, z-score inside the brain, patches of {grid['patch']}³ voxels "
        "(Methods: preparation)."
    )


def _outcomes(metrics: Metrics) -> str:
    told = [f"{escape(name)} ({found['kind']})" for name, found in metrics.get("endpoints", {}).items()]
    return f"Endpoints: {listed(told)}." if told else ""


def _inputs(metrics: Metrics) -> str:
    if not settings(metrics, "prepare"):
        return ""
    return "All voxels of the brain in four MRI scans (T1, contrast-enhanced T1, T2, FLAIR), without selection."


def _missing(metrics: Metrics) -> str:
    if not settings(metrics, "prepare"):
        return ""
    return (
        "A missing label is left out and never imputed; a patient who lacks one of the four scans is excluded. "
        + " ".join([*methods.labels(metrics), *([methods.COVARIATES] if "clinical" in wording.controls(metrics) else [])])
    ).strip()


def _selection(metrics: Metrics) -> str:
    return "Every patient of the table whose scans could be prepared was used." if trained(metrics, "train") else ""


def _partitions(metrics: Metrics) -> str:
    train = trained(metrics, "train")
    if not train:
        return ""
    return " ".join(
        [*methods.partition(metrics), f"{train['tune_fraction']:.0%} of the others were set aside for early stopping."]
    )


def _disjoint(metrics: Metrics) -> str:
    return methods.partition(metrics)[-1] if trained(metrics, "train") else ""


def _architecture(metrics: Metrics) -> str:
    return uncited(" ".join(network.model(metrics, {})[:3]))


def _initialised(metrics: Metrics) -> str:
    return network.model(metrics, {})[-1] if trained(metrics, "model") and trained(metrics, "grid") else ""


def _optimised(metrics: Metrics) -> str:
    train = trained(metrics, "train")
    if not train:
        return ""
    return (
        f"AdamW, peak learning rate {train['rate']:g}, weight decay {train['weight_decay']:g}, batches of {train['batch']} "
        f"patients, at most {train['epochs']} epochs, early stopping after {train['patience']} evaluations without a better one "
        "(Methods: training)."
    )


def _building(metrics: Metrics) -> str:
    said = [_architecture(metrics), _optimised(metrics), _internal(metrics)]
    return " ".join(said) if all(said) else ""


def _chosen(metrics: Metrics) -> str:
    if not trained(metrics, "train"):
        return ""
    return "In each fold, the weights of the evaluation with the lowest loss on the tuning patients; the test fold took no part."


def _ensemble(metrics: Metrics) -> str:
    if design(metrics) == "external":
        return "Each patient's score is the mean over the models of the run's folds."
    if not trained(metrics, "train"):
        return ""
    repeats = metrics.get("repeats") or 1
    return f"A patient's scores are averaged over {repeats} repeats." if repeats > 1 else "None: one model scored each patient."


def _clusters(metrics: Metrics) -> str:
    column = trained(metrics, "train").get("leave_out")
    said = [f"Each value of {escape(column)} was a test fold of its own."] if column else []
    probes = (metrics.get("site_probe") or {}).get("models", {})
    return " ".join([*said, *(f"Site probe: {escape(found['sentence'])}." for found in probes.values())])


def _measured(metrics: Metrics) -> str:
    return uncited(" ".join(findings.measures(metrics).values()))


def _uncertainty(metrics: Metrics) -> str:
    found = findings.measures(metrics)
    return uncited(" ".join(found[key] for key in UNCERTAINTY if key in found))


def _updating(metrics: Metrics) -> str:
    return findings.measures(metrics).get("recalibrated", "")


def _predicting(metrics: Metrics) -> str:
    if not trained(metrics, "train"):
        return _ensemble(metrics)
    averaged = f" {_ensemble(metrics)}" if (metrics.get("repeats") or 1) > 1 else ""
    unseen = f"had not seen the patient{wording.labels_alone(metrics)}"
    return f"Each patient was scored by the model of the patient's test fold, which {unseen}.{averaged}"


def _imbalance(metrics: Metrics) -> str:
    if not trained(metrics, "train") or "binary" not in wording.kinds(metrics):
        return ""
    if not trained(metrics, "train")["class_weights"]:
        return "No method against class imbalance was used."
    return "Positives were weighted by negatives over positives; the shift of the log odds was taken back from the probability."


def _subgroups(metrics: Metrics) -> str:
    columns = {row["column"] for found in metrics.get("endpoints", {}).values() for row in found.get("subgroups") or ()}
    if not columns:
        return ""
    return (
        f"Figures with intervals within subgroups by {listed(sorted(escape(name) for name in columns))}; no test compares them."
    )


def _output(metrics: Metrics) -> str:
    if not trained(metrics, "train"):
        return ""
    words = {"binary": "a probability for a binary endpoint", "survival": "a risk for survival (higher: earlier death)"}
    found = [words[kind] for kind in sorted(wording.kinds(metrics))]
    threshold = methods.THRESHOLDS if "operating_point" in findings.measures(metrics) else ""
    return f"The output is {listed(found)}. {threshold}".strip() if found else ""


def _same_cohort(metrics: Metrics) -> str:
    return "None by design: both are folds of one cohort." if trained(metrics, "train") else ""


def _versions(metrics: Metrics) -> str:
    return " ".join(methods.software(metrics, {})[:-1])


def _flow(metrics: Metrics) -> str:
    people = metrics.get("cohort")
    if not people:
        return ""
    said = [f"{counted(people['patients'], 'patient')} in the table."]
    said += [methods.excluded(metrics, {})] if settings(metrics, "prepare") else []
    return " ".join([*said, f"{counted(people['predicted'], 'patient')} predicted.", _sizes(metrics)]).strip()


def _known_labels(metrics: Metrics) -> str:
    return " ".join(methods.labels(metrics))


def _sizes(metrics: Metrics) -> str:
    told = [f"{escape(name)}: {findings.size(found, found['kind'])}" for name, found in metrics.get("endpoints", {}).items()]
    return f"In the evaluation, {'; '.join(told)}." if told else ""


def _performance(metrics: Metrics) -> str:
    told = [f"{escape(name)}, {escape(model)}: {findings.headline(found)}" for name, model, found in wording.results(metrics)]
    return " ".join([f"{'; '.join(told)}.", _subgroups(metrics)]).strip() if told else ""


def _diagnostic(metrics: Metrics) -> str:
    told = [
        f"{escape(name)}, {escape(model)}: {', '.join(rates)}"
        for name, model, found in wording.results(metrics)
        if (rates := findings.rates(found))
    ]
    return f"{'; '.join(told)}." if told else ""


def _robustness(metrics: Metrics) -> str:
    ran = wording.controls(metrics)
    said = [f"Controls: {'; '.join(methods.AS_MADE[name] for name in ran)}."] if ran else []
    return " ".join([*said, _subgroups(metrics)]).strip()


def _explained(metrics: Metrics) -> str:
    return uncited(" ".join(maps.attention(metrics, {})[:-1]))


def _internal(metrics: Metrics) -> str:
    train = trained(metrics, "train")
    if not train:
        return ""
    folds, repeats = metrics.get("folds") or train["folds"], metrics.get("repeats") or train["repeats"]
    return f"Cross-validation with {folds} folds by patient{f', {repeats} times' if repeats > 1 else ''}."


def _external(metrics: Metrics) -> str:
    if design(metrics) != "external":
        return ""
    return f"The models of an earlier run were applied without refitting to another cohort. {_performance(metrics)}".strip()


def _refusals(metrics: Metrics) -> str:
    if not settings(metrics, "prepare"):
        return ""
    return (
        f"The software gives no prediction without all four scans, or when a scan shows less than {methods.patient.OVERLAP:.0%} "
        "of the brain; it names patient, file and reason."
    )


FILLERS: Mapping[str, Callable[[Metrics], str]] = {
    "aim": _aim,
    "exclusions": _exclusions,
    "preprocessing": _preprocessing,
    "outcomes": _outcomes,
    "inputs": _inputs,
    "missing": _missing,
    "selection": _selection,
    "partitions": _partitions,
    "disjoint": _disjoint,
    "architecture": _architecture,
    "initialised": _initialised,
    "optimised": _optimised,
    "building": _building,
    "chosen": _chosen,
    "ensemble": _ensemble,
    "clusters": _clusters,
    "measured": _measured,
    "uncertainty": _uncertainty,
    "updating": _updating,
    "predicting": _predicting,
    "imbalance": _imbalance,
    "subgroups": _subgroups,
    "output": _output,
    "same_cohort": _same_cohort,
    "versions": _versions,
    "flow": _flow,
    "known_labels": _known_labels,
    "sizes": _sizes,
    "performance": _performance,
    "diagnostic": _diagnostic,
    "robustness": _robustness,
    "explained": _explained,
    "internal": _internal,
    "external": _external,
    "refusals": _refusals,
}

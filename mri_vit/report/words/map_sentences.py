"""The maps in words: verdicts on them, their Methods and Results, and one patient's map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mri_vit.explain.methods.catalogue import METHODS, UNIT
from mri_vit.explain.outputs.overlays import nearly_even
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import Kind, Mean
from mri_vit.report.schema.patients import ComparatorMaps, MapFigures, ShownMap
from mri_vit.report.verdicts import MIN_MAP_CORRELATION, MIN_SCORED_PATIENTS, Answer, Answers, is_enough
from mri_vit.report.words import of_kind, run_facts
from mri_vit.report.words.notation import counted, escape, in_words, listed, number, title
from mri_vit.report.words.run_facts import Facts
from mri_vit.settings import recipe

ANSWERS: Mapping[Answer, str] = {"yes": "yes", "no": "no", "unsettled": "unsettled", "undefined": "not judged"}
NO_FINDING_REASONS: Mapping[Kind, str] = {  # why there is no finding, by the kind of the prediction's verdict
    "chance": "shows no evidence of beating chance",
    "worse": "is worse than chance",
    "undefined": "cannot be judged",
}
BESIDE_RANDOM_WEIGHTS = (
    "Hits and shares for randomised weights are means over such networks, with intervals by a bootstrap of networks. Such a "
    "network may hit more often than a random position, by the contrast of the scans alone, so compare a map's hits with both."
)

SUPERVISED = "the network was trained with tumour masks"


def map_checks(result: MapFigures, answers: Answers, mask_supervised: bool) -> str:
    """The questions with their answers; where there is a finding, also how much of the map lies on the tumour, and whether
    tumour masks supervised the network.
    """
    figure = f" (rank correlation {rank_interval(result.randomised)})"  # a "no" comes with its proof
    sentences = [f"depends on the weights: {ANSWERS[answers.moves]}{figure if answers.moves == 'no' else ''}"]
    if answers.labels != "undefined":
        folds = f", {number(result.folds.value, 2)} with maps of other folds" if is_enough(result.label_gain) else ""
        permuted = f"rank correlation {number(result.shuffled.value, 2)} with the map of a network trained on permuted labels"
        sentences.append(f"depends on the labels: {ANSWERS[answers.labels]} ({permuted}{folds})")
    against = f" (fall of {number(result.deletion.value, 2)} vs {number(result.deletion_random.value, 2)} SD)"
    sentences.append(f"better than random deletion: {ANSWERS[answers.gain]}{'' if answers.gain == 'undefined' else against}")
    if answers.is_worse_inserted:
        gaps = f"gap of {number(result.insertion.value, 2)} vs {number(result.insertion_random.value, 2)} SD"
        sentences.append(f"but worse than random insertion ({gaps})")
    for similarity, what in ((result.shift, "a shift of one voxel"), (result.noise, "small noise")):
        if is_enough(similarity):
            sentences.append(f"after {what}: rank correlation {number(similarity.value, 2)}")
    if answers.kind != "none" and (tumour := _on_tumour(result.energy_ratio, answers)):
        sentences += [tumour, SUPERVISED] if mask_supervised else [tumour]
    return "; ".join(sentences)


def map_verdict_sentence(result: MapFigures, answers: Answers, endpoint: str, predicted: Kind, mask_supervised: bool) -> str:
    """The checks, and before them why there is no finding, if there is none."""
    checks = map_checks(result, answers, mask_supervised)
    return f"{no_finding(endpoint, predicted)} ({checks})" if answers.kind == "none" else checks


def no_finding(endpoint: str, predicted: Kind) -> str:
    """Why no map of this endpoint is a finding, by the kind of its prediction's verdict."""
    name = title(endpoint)
    name = name[0].lower() + name[1:] if name[1:2].islower() else name  # not MGMT
    why = NO_FINDING_REASONS.get(predicted, NO_FINDING_REASONS["undefined"])
    return f"no finding: the prediction {why}, so the map shows what the score depends on and not where {name} is visible"


def map_rules() -> list[str]:
    """The rules in plain words, as the report prints them."""
    return [
        "All figures are from test patients, each explained by a model that had not seen the patient; only agreement with the "
        "networks of other folds uses models that had. Intervals are 95 %, by a bootstrap of patients. With fewer than "
        f"{MIN_SCORED_PATIENTS} scored patients a question is “not judged”.",
        "No finding without a prediction: where the prediction of an endpoint is not better than chance, its maps show what the "
        "score depends on. They are no finding, and the report says nothing about the tumour.",
        "“Depends on the weights: yes”: all weights are randomised (the numbers of each tensor permuted, Adebayo et al. 2018), "
        f"and the interval of the rank correlation between the new map and the old one ends below {MIN_MAP_CORRELATION}, so "
        "they share less than a quarter of the variance of their ranks. Otherwise “no”: the map follows the scan or the "
        "architecture.",
        "“Depends on the labels”, where the run has a network trained on shuffled labels: “no” if the interval of the rank "
        f"correlation with its map does not end below {MIN_MAP_CORRELATION}; “yes” if it does and the correlation with the maps "
        "of the other folds' networks, trained on true labels, is higher (the interval of the paired difference lies above "
        "0). Otherwise “unsettled”: networks trained on true labels differ from each other about as much, so the "
        "difference may come from retraining and not from the labels.",
        "“Better than random deletion: yes”: removing positions in the map's order, highest first, weakens the prediction more "
        "than removing them in random order. The fall is the area over the deletion curve, in standard deviations of the "
        "model's evidence over its test patients; the interval of the paired difference lies above 0. Where inserting positions "
        "in the map's order does worse than a random order, the verdict says so.",
        "“After a shift of one voxel”, “after small noise”: the rank correlation with the map of the same scans after that "
        "change. There is no threshold, because it is not known how much a true map would change; the lower the value, the less "
        "the details of a map mean.",
        "“On the tumour”: the map's share inside the tumour mask divided by the tumour's share of the positions, as a ratio of "
        "means: a uniform map has 1. When its interval reaches down to 1, the verdict is “no more than a uniform map”.",
        BESIDE_RANDOM_WEIGHTS,
        "A map “passes” when it depends on the weights, on the labels where that was tested, and is better than random deletion. "
        "One “no” means “fails a check”; with no “no” but unsettled labels it is “not settled”. Passing means that the map "
        "depends on what the model learned. It does not mean that the label is visible there in the tumour.",
    ]


def rank_interval(estimate: Mean) -> str:
    """A rank correlation with its interval, in two digits."""
    return f"{number(estimate.value, 2)} [{number(estimate.low, 2)}, {number(estimate.high, 2)}]"


def _on_tumour(ratio: Mean, answers: Answers) -> str:
    value, ends = number(ratio.value, 1), f"[{number(ratio.low, 1)}, {number(ratio.high, 1)}]"
    sentence = {
        "less": f"on the tumour: less than a uniform map ({value}× {ends})",
        "more": f"on the tumour: {value}× the share of a uniform map {ends}",
        "no more": f"on the tumour: no more than a uniform map ({value}× {ends})",
        "undefined": "",
    }[answers.tumour]
    return sentence if answers.moves == "yes" or not sentence else f"{sentence}, which may not come from what the model learned"


MADE_BY = {
    "rollout": "attention rollout [@rollout] (attention of each block fused over heads by their mean, half of each block's "
    "weight on the residual path, and the CLS row followed through all blocks)",
    "cls_attention": "the last block's attention from CLS [@dino] (mean over heads)",
    "gradient_attention": "gradient-weighted attention [@chefer] (positive part of gradient times attention, averaged over heads "
    "and carried through the blocks)",
    "gradient_rollout": "gradient rollout [@rollout,chefer] (rollout of the positive part of gradient times attention)",
    "integrated_gradients": "integrated gradients [@ig] on the patches (baseline: the brain's mean brightness; positive part of "
    "each grid position's sum)",
    "occlusion": "occlusion [@occlusion] (drop in the evidence when a block of grid positions is left out)",
    "gradcam": "Grad-CAM [@gradcam] (the last convolutional map's channels, each weighted by the mean over its voxels of the "
    "evidence's gradient; positive part of the sum)",
    "occlusion_by_air": "occlusion [@occlusion] (drop in the evidence when the voxels of a block of grid positions are set to "
    "0, as outside the brain)",
}
UNIT_NOTE = (
    "Maps are given relative to a uniform map, interpolated between grid positions and resampled to the patient's own scans."
)
JUDGED = (
    "Maps were evaluated on {patients}. Grid positions were deleted or inserted in the map's order and in random orders [@rise]; "
    "the effect on the evidence is in standard deviations over the fold's test patients. Rank correlations compare each map with "
    "maps of weights randomised from the heads down [@sanity], with maps of the other folds' networks, and with maps after small "
    "noise and shifts by one voxel."
)
JUDGED_BY_TUMOUR = (
    "Where there was a tumour mask, a map's peak counted as a hit within one grid position of the tumour [@pointing], and the "
    "share of the map inside the tumour was compared with the tumour's share of the grid positions [@energy]."
)
SUPERVISION_NOTE = (
    " The network was trained with the masks of its training patients, so a map on the tumour may show only that supervision."
)
SEQUENCES = (
    "Each sequence's part in a score is its exact Shapley value [@shapley] over the {sets} sets of sequences; a map's values "
    "were divided among the sequences by the size of gradient × input at each grid position."
)
STALE_KINDS = ("maps", "scores", "mean maps")  # of what may be to be made again
GROUPS = (
    "Maps on the common grid were averaged by label; the largest difference between two means at any grid position was "
    "compared with those of 999 permutations of the labels, without correction for the number of maps."
)


def map_methods(metrics: Metrics, facts: Facts) -> list[str]:
    """How the maps were made and judged, if there are any."""
    maps, scored = metrics.maps, metrics.map_scores
    if not maps and not scored:
        return []
    sentences = [_made(metrics), UNIT_NOTE] if maps else []
    if scored:
        sentences.append(JUDGED.format(patients=counted(scored.patients, "patient")))
        if any(endpoint.with_tumour for endpoint in scored.endpoints.values()):
            sentences.append(JUDGED_BY_TUMOUR + supervision_note(metrics))
        rules = " ".join(f"({i}) {escape(rule)}" for i, rule in enumerate(scored.rules, 1))
        sentences.append(f"The verdicts on maps follow rules that were fixed in advance: {rules}")
    else:
        sentences.append("The reliability of these maps was not measured.")
    if metrics.map_scans and metrics.map_scans.scores:
        sequences = next(iter(metrics.map_scans.scores.values())).scans
        sentences.append(SEQUENCES.format(sets=in_words(2 ** len(sequences))))
    if metrics.map_groups:
        sentences.append(GROUPS)
    sentences += [_of_comparator(name, found) for name, found in metrics.comparator_maps.items()]
    sentences.append("A map shows what the model used; it does not show where in the brain the label is visible.")
    return [*sentences, facts.gap("maps", "whether a reader judged the maps, and how")]


def supervision_note(metrics: Metrics) -> str:
    """What a map on the tumour shows less of where tumour masks supervised the network."""
    settings = run_facts.settings(metrics)
    return SUPERVISION_NOTE if settings and settings.train.mask_supervised else ""


def comparator_notes(metrics: Metrics) -> list[tuple[str, str]]:
    """What the comparators' maps show: networks and method, and the sentences, which several networks may share."""
    whose: dict[tuple[str, str], list[str]] = {}
    for name, found in metrics.comparator_maps.items():
        for method, note in found.notes.items():
            whose.setdefault((METHODS[method].title, note), []).append(name)
    return [(f"{title} of {listed(names)}", note) for (title, note), names in whose.items()]


def map_result_lines(metrics: Metrics) -> list[str]:
    """A line for each endpoint and method with its verdict."""
    return [
        f"**{escape(name)}**, maps by {METHODS[method].title}: {escape(result.verdict)}."
        for name, endpoint in (metrics.map_scores.endpoints if metrics.map_scores else {}).items()
        for method, result in endpoint.methods.items()
    ]


def to_make_again(metrics: Metrics) -> str | None:
    """What other settings or an earlier version made, and how to make it anew; None where all is of the present ones."""
    counts = {kind: count for kind, count in metrics.stale.items() if count}
    if not counts:
        return None
    parts = [counted(counts[kind], kind.removesuffix("s")) for kind in STALE_KINDS if kind in counts]
    were = "was" if sum(counts.values()) == 1 else "were"
    return f"{listed(parts)} {were} made with other settings or an older version, or lack a picture: run `mri-vit explain` again"


def _of_comparator(name: str, maps: ComparatorMaps) -> str:
    used = {entry.method for patient in maps.maps for entry in patient.maps}
    used |= {method for endpoint in (maps.scores.endpoints.values() if maps.scores else ()) for method in endpoint.methods}
    how = listed([MADE_BY[method] for method in METHODS if method in used])
    judged = f", and evaluated in the same way on {counted(maps.scores.patients, 'patient')}" if maps.scores else ""
    return f"Maps of the comparator {escape(name)} were made by {how}{judged}."


def _made(metrics: Metrics) -> str:
    used = {entry.method for found in metrics.maps for entry in found.maps}
    named = [MADE_BY[name] for name in METHODS if name in used]
    by = f" by {listed(named)}" if named else ""
    unseen = f"had not seen the patient{run_facts.labels_alone(metrics)}"
    made = f"Maps of {counted(len(metrics.maps), 'patient')} were made{by} from a model that {unseen}."
    if not any(METHODS[name].per_endpoint for name in used):
        return made
    return f"{made} {explained(metrics)}; other maps are the same for every endpoint."


def explained(metrics: Metrics) -> str:
    """What maps of the endpoints explain, kind by kind, as the beginning of a sentence."""
    each = [of_kind.of(kind).explained for kind in run_facts.kinds(metrics)]
    said = [f"{whose} {'' if index else 'explain '}{what}" for index, (whose, what) in enumerate(each)]
    return f"Maps of {', maps of '.join(said)}"


def map_label(entry: ShownMap) -> str:
    """A map's name in the choice: endpoint, method and, where the map is no finding, that."""
    name = f"{title(entry.endpoint) if entry.endpoint else 'Every endpoint'}: {entry.title}"
    return f"{name} (no finding)" if entry.kind == "none" else name


def map_facts(patient: Mapping[str, Any], entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `map.json` says of a patient and of one of the maps, as lines for a reader: folds and repeats are counted from 1."""
    shares = entry.get("by_scan") or {}
    source = f" ({entry['source']})" if entry.get("source") else ""
    lines = [
        ("Method", f"{entry['title']}{source}"),
        ("Explains", entry.get("explains") or "the model as a whole: the map is the same for every endpoint"),
        ("Unit", entry.get("unit") or UNIT),
        ("Peak", map_peak(entry)),
        ("From the sequences", ", ".join(f"{recipe.title(scan)} {100 * share:.0f} %" for scan, share in shares.items())),
        ("Model", patient.get("model") or ""),
    ]
    if patient.get("fold") is not None:
        repeat = "" if patient.get("repeat") is None else f" of repeat {patient['repeat'] + 1}"
        lines.append(("Fold", f"fold {patient['fold'] + 1}{repeat}, counted from 1"))
    return [(name, str(text)) for name, text in lines if text]


def map_peak(entry: Mapping[str, Any]) -> str:
    """The map's highest value and where it lies."""
    if not entry["peak"]:
        return "none: this map is 0 everywhere"
    x, y, z = entry["peak_mm"]
    even = " (nearly even: nothing to see)" if nearly_even(entry["peak"]) else ""
    return f"{number(entry['peak'], 2)}{even}, at x {x:.1f}, y {y:.1f}, z {z:.1f} mm (RAS+: right, anterior, superior)"

"""The maps in words: `maps` and `map_scores` of `metrics.json` go in, sentences for Methods and lines for Results come out."""

from __future__ import annotations

from mri_vit.explain.methods.catalogue import METHODS
from mri_vit.report.schema.maps import ComparatorMaps
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.words import wording
from mri_vit.report.words.wording import Facts, counted, escape, in_words, listed

HOW = {
    "rollout": "attention rollout [@rollout] (attention of each block fused over heads by their mean, half of each block's "
    "weight on the residual path, and the CLS row followed through all blocks)",
    "cls_attention": "the last block's attention from CLS [@dino] (mean over heads)",
    "gradient_attention": "gradient-weighted attention [@chefer] (positive part of gradient times attention, averaged over heads "
    "and carried through the blocks)",
    "gradient_rollout": "gradient rollout [@rollout,chefer] (rollout of the positive part of gradient times attention)",
    "integrated_gradients": "integrated gradients [@ig] on the patches (baseline: the brain's mean brightness; positive part of "
    "each place's sum)",
    "occlusion": "occlusion [@occlusion] (fall of the evidence when a block of places is left out)",
    "gradcam": "Grad-CAM [@gradcam] (the last convolutional map's channels, each weighted by the mean over its voxels of the "
    "evidence's gradient; positive part of the sum)",
    "occlusion_by_air": "occlusion [@occlusion] (fall of the evidence when the voxels of a block of places are set to 0, as "
    "outside the brain)",
}
EXPLAINED_CLASS = (
    "the class that is more likely after the classes' weights (log odds of 0 divide them; the threshold of the report may decide "
    "otherwise)"
)
PER_ENDPOINT = (
    f"Maps of an endpoint explain {EXPLAINED_CLASS} by its log odds, and survival by the risk score; the others are the same for "
    "every endpoint."
)
UNIT = "Maps are given relative to a uniform map, interpolated between the places and carried to the patient's own scans."
JUDGED = (
    "Maps were judged on {patients} by leaving out places in the map's order or putting them in [@rise], against random orders, "
    "in standard deviations of the evidence over the fold's test patients; by the rank correlation with maps of weights "
    "randomised from the heads down [@sanity], of the other folds' networks, and after small noise and moves by one voxel."
)
TUMOUR = (
    "Where a tumour mask was given, a map's peak counted as a hit within one place of the tumour [@pointing], and the share of "
    "the map inside the tumour was held against the tumour's share of the places [@energy]."
)
TAUGHT = (
    " Training patients' masks had taught the network where tumours are, so that a map on the tumour may show no more than that."
)
SEQUENCES = (
    "Each sequence's part in a score is its exact Shapley value [@shapley] over the {sets} sets of sequences; a map's values "
    "were divided among the sequences by the size of gradient × input at each place."
)
KINDS = ("maps", "scores", "mean maps")  # of what may be to be made again
GROUPS = (
    "Maps on the common grid were averaged by label; the largest difference between two means at any place was compared with "
    "those of 999 permutations of the labels, without correction for the number of maps."
)


def attention(metrics: Metrics, facts: Facts) -> list[str]:
    """How the maps were made and judged, if there are any."""
    maps, scored = metrics.maps, metrics.map_scores
    if not maps and not scored:
        return []
    said = [_made(metrics), UNIT] if maps else []
    if scored:
        said.append(JUDGED.format(patients=counted(scored.patients, "patient")))
        if any(endpoint.with_tumour for endpoint in scored.endpoints.values()):
            said.append(TUMOUR + taught(metrics))
        rules = " ".join(f"({i}) {escape(rule)}" for i, rule in enumerate(scored.rules, 1))
        said.append(f"The verdicts on maps follow rules that were fixed before: {rules}")
    else:
        said.append("How far these maps can be believed was not measured.")
    if metrics.map_scans and metrics.map_scans.scores:
        sequences = next(iter(metrics.map_scans.scores.values())).scans
        said.append(SEQUENCES.format(sets=in_words(2 ** len(sequences))))
    if metrics.map_groups:
        said.append(GROUPS)
    said += [_of_comparator(name, found) for name, found in metrics.comparator_maps.items()]
    said.append("A map shows what the model drew on; it does not show where in the brain the label can be seen.")
    return [*said, facts.gap("maps", "whether anybody judged the maps, and how")]


def taught(metrics: Metrics) -> str:
    """What masks that taught the network take from a map that lies on the tumour."""
    found = wording.settings(metrics)
    return TAUGHT if found and found.train.taught else ""


def comparator_notes(metrics: Metrics) -> list[tuple[str, str]]:
    """What the comparators' maps show: networks and method, and the sentences, which several networks may share."""
    whose: dict[tuple[str, str], list[str]] = {}
    for name, found in metrics.comparator_maps.items():
        for method, note in found.notes.items():
            whose.setdefault((METHODS[method].title, note), []).append(name)
    return [(f"{title} of {listed(names)}", note) for (title, note), names in whose.items()]


def lines(metrics: Metrics) -> list[str]:
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
    found = [counted(counts[kind], kind.removesuffix("s")) for kind in KINDS if kind in counts]
    were = "was" if sum(counts.values()) == 1 else "were"
    return f"{listed(found)} {were} made with other settings or an older version, or lack a picture: run `mri-vit explain` again"


def _of_comparator(name: str, found: ComparatorMaps) -> str:
    used = {entry.method for one in found.maps for entry in one.maps}
    used |= {method for endpoint in (found.scores.endpoints.values() if found.scores else ()) for method in endpoint.methods}
    how = listed([HOW[method] for method in METHODS if method in used])
    judged = f", and judged likewise on {counted(found.scores.patients, 'patient')}" if found.scores else ""
    return f"Maps of the comparator {escape(name)} were made by {how}{judged}."


def _made(metrics: Metrics) -> str:
    used = {entry.method for found in metrics.maps for entry in found.maps}
    named = [HOW[name] for name in METHODS if name in used]
    by = f" by {listed(named)}" if named else ""
    unseen = f"had not seen the patient{wording.labels_alone(metrics)}"
    made = f"Maps of {counted(len(metrics.maps), 'patient')} were made{by} from a model that {unseen}."
    return f"{made} {PER_ENDPOINT}" if any(METHODS[name].per_endpoint for name in used) else made

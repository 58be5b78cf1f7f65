"""The verdict on a map in words: one method's figures and the answers to its questions in, a sentence out."""

from __future__ import annotations

from collections.abc import Mapping

from mri_vit.report.schema.maps import MapResult
from mri_vit.report.schema.parts import Kind, Mean
from mri_vit.report.verdicts.maps import ALIKE, FEWEST, Answer, Answers, known
from mri_vit.report.words.notation import number, title

ANSWERS: Mapping[Answer, str] = {"yes": "yes", "no": "no", "unsettled": "unsettled", "undefined": "not judged"}
UNTOLD: Mapping[Kind, str] = {  # why there is no finding, by the kind of the prediction's verdict
    "chance": "is not distinguishable from chance",
    "worse": "is worse than chance",
    "undefined": "cannot be judged",
}
BESIDE_RANDOM_WEIGHTS = (
    "Hits and shares of networks with randomised weights are means over such networks, and their intervals are by a bootstrap of "
    "networks. By the scans' contrast alone such a network may hit more often than a random place does, so a map's hits are to "
    "be read against both."
)

TAUGHT = "masks had taught the network where tumours are"


def checks(result: MapResult, found: Answers, taught: bool) -> str:
    """The questions with their answers; where there is a finding, also how much of the map lies on the tumour, and whether
    masks had `taught` that.
    """
    figure = f" (rank correlation {interval(result.randomised)})"  # a "no" comes with its proof
    answers = [f"moves with the model: {ANSWERS[found.moves]}{figure if found.moves == 'no' else ''}"]
    if found.labels != "undefined":
        true = f" vs {number(result.folds.value, 2)} among true labels" if known(result.label_gain) else ""
        answers.append(f"moves with the labels: {ANSWERS[found.labels]} ({number(result.shuffled.value, 2)}{true})")
    against = f" ({number(result.deletion.value, 2)} vs {number(result.deletion_random.value, 2)})"
    answers.append(f"better than random deletion: {ANSWERS[found.gain]}{'' if found.gain == 'undefined' else against}")
    if found.is_worse_inserted:
        gaps = f"{number(result.insertion.value, 2)} vs {number(result.insertion_random.value, 2)}"
        answers.append(f"but worse than random insertion ({gaps})")
    for similarity, what in ((result.shift, "a move by one voxel"), (result.noise, "a little noise")):
        if known(similarity):
            answers.append(f"after {what}: rank correlation {number(similarity.value, 2)}")
    if found.kind != "none" and (tumour := _on_tumour(result.energy_ratio, found)):
        answers += [tumour, TAUGHT] if taught else [tumour]
    return "; ".join(answers)


def sentence(result: MapResult, found: Answers, endpoint: str, predicted: Kind, taught: bool) -> str:
    """The checks, and before them why there is no finding, if there is none."""
    said = checks(result, found, taught)
    return f"{no_finding(endpoint, predicted)} ({said})" if found.kind == "none" else said


def no_finding(endpoint: str, predicted: Kind) -> str:
    """Why no map of this endpoint is a finding, by the kind of its prediction's verdict."""
    name = title(endpoint)
    name = name[0].lower() + name[1:] if name[1:2].islower() else name  # not MGMT
    why = UNTOLD.get(predicted, UNTOLD["undefined"])
    return f"no finding: the prediction itself {why}; the map shows what the score rests on, not where {name} shows"


def rules() -> list[str]:
    """The rules in plain words, as the report prints them."""
    return [
        "All figures are of test patients, each explained by a model that had not seen the patient, but for the agreement with "
        "other folds' networks, which have. Intervals are 95 %, by a bootstrap of patients. With fewer than "
        f"{FEWEST} scored patients a question is “not judged”.",
        "No finding without a prediction: where the model's prediction of an endpoint is not better than chance, its maps show "
        "what the score rests on and are no finding, and nothing is said of the tumour.",
        "“Moves with the model: yes”: after all weights were randomised (each tensor's numbers permuted, Adebayo et al. 2018), "
        f"the rank correlation of the new map with the old one has an interval that ends below {ALIKE}, so that they share under "
        "a quarter of the variance of their ranks. Else the map is drawn by the scan or the architecture: “no”.",
        "“Moves with the labels”, where the run has a network that was trained on shuffled labels: “no” where the interval of "
        f"the rank correlation with its map does not end below {ALIKE}; “yes” where it does, and the correlation with the maps "
        "of the other folds' networks, trained on true labels, is higher (the interval of the paired difference lies above 0). "
        "Else it is “unsettled”: networks of true labels differ among themselves about as much, so that the difference may "
        "come from training anew and not from the labels.",
        "“Better than random deletion: yes”: leaving out places in the map's order, highest first, weakens the prediction more "
        "than in random order. The fall is the area over the deletion curve, in standard deviations of the model's evidence "
        "over its test patients; the interval of the paired difference from the random order's lies above 0. Where putting "
        "places in by the map's order does worse than a random order, this is said beside it.",
        "“After a move by one voxel”, “after a little noise”: the rank correlation with the map of the same scans, so changed. "
        "No threshold is set, for it is not known how far a true map would move; the lower, the less a map's details mean.",
        "“On the tumour”: the map's share inside the tumour mask over the tumour's share of the places, as a ratio of means. "
        "When its interval reaches down to 1, it is “no more than its share”.",
        BESIDE_RANDOM_WEIGHTS,
        "A map “passes” when it moves with the model, with the labels where that was asked, and is better than random deletion. "
        "A “no” to any of these “fails a check”; with no “no”, but labels of which it is unsettled, it is “not settled”. "
        "Passing means that the map depends on what the model learned. It does not mean that the tumour shows the label there.",
    ]


def interval(estimate: Mean) -> str:
    """A rank correlation with its interval, in two digits."""
    return f"{number(estimate.value, 2)} [{number(estimate.low, 2)}, {number(estimate.high, 2)}]"


def _on_tumour(ratio: Mean, found: Answers) -> str:
    value, ends = number(ratio.value, 1), f"[{number(ratio.low, 1)}, {number(ratio.high, 1)}]"
    said = {
        "less": f"on the tumour: less than its share ({value}× {ends})",
        "more": f"on the tumour: {value}× its share {ends}",
        "no more": f"on the tumour: no more than its share ({value}× {ends})",
        "undefined": "",
    }[found.tumour]
    return said if found.moves == "yes" or not said else f"{said}, which need not come from what the model learned"

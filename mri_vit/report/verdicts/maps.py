"""A map in plain words, by rules that are fixed before any map is seen: one method's scores on one endpoint in, a sentence out.

A map can only be a finding where the prediction is one: without it, no word is said of the tumour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mri_vit.report.words.notation import number, title

ALIKE = 0.5  # rank correlation: below it two maps share less than a quarter (0.5²) of the variance of their ranks
DISTURBED = {"shift": "a move by one voxel", "noise": "a little noise"}
FEWEST = 5  # a bootstrap of n patients has n^n draws: with five, over three thousand; with four, 256 for 1000 resamples
ALL_WEIGHTS = "embedding"  # the last stage of the cascade, when every weight has been randomised

BESIDE_RANDOM_WEIGHTS = (
    "Hits and shares of networks with randomised weights are means over such networks, and their intervals are by a bootstrap of "
    "networks. By the scans' contrast alone such a network may hit more often than a random place does, so a map's hits are to "
    "be read against both."
)

Kind = Literal["passes", "unsettled", "fails", "undefined", "none"]
Answer = Literal["yes", "no", "cannot be told", "undefined"]
ORDER: tuple[Kind, ...] = ("passes", "unsettled", "fails", "undefined", "none")  # what carries a finding first
UNTOLD = {  # why there is no finding, by the kind of the prediction's verdict
    "chance": "is not told from chance",
    "worse": "is worse than chance",
    "undefined": "cannot be judged",
}


@dataclass(frozen=True)
class MapVerdict:
    """What is said of a method's maps of an endpoint, and in one word."""

    kind: Kind
    checks: str  # the questions with their answers
    sentence: str  # likewise, and before them why there is no finding, if there is none


def of_method(result: Mapping[str, Any], endpoint: str, predicted: str) -> MapVerdict:
    """The verdict on a method's maps of an endpoint.

    Parameters
    ----------
    result
        Each with value, low, high and n: `randomised`, `shuffled`, `folds` (rank correlations), `label_gain` (folds less
        shuffled), `energy_ratio`, and of `deletion` and `insertion` alike that, `…_random` and `…_gain` over it;
        `noise` and `shift` (rank correlations).
    endpoint
        The endpoint's name.
    predicted
        The kind of verdict on the model that the maps are of: "better" or a key of `UNTOLD`.
    """
    moves, labels, gain = moved(result["randomised"]), _labels(result), _gained(result["deletion_gain"])
    figure = f" (rank correlation {interval(result['randomised'])})"  # a "no" comes with its proof
    answers = [f"moves with the model: {_named(moves)}{figure if moves == 'no' else ''}"]
    if labels != "undefined":
        true = f" vs {number(result['folds']['value'], 2)} among true labels" if _known(result["label_gain"]) else ""
        answers.append(f"moves with the labels: {labels} ({number(result['shuffled']['value'], 2)}{true})")
    fall, random_fall = number(result["deletion"]["value"], 2), number(result["deletion_random"]["value"], 2)
    against = "" if gain == "undefined" else f" ({fall} vs {random_fall})"
    answers.append(f"better than random deletion: {_named(gain)}{against}")
    if _known(result["insertion_gain"]) and result["insertion_gain"]["high"] < 0:
        gap, random_gap = (number(result[key]["value"], 2) for key in ("insertion", "insertion_random"))
        answers.append(f"but worse than random insertion ({gap} vs {random_gap})")
    answers += [
        f"after {what}: rank correlation {number(result[key]['value'], 2)}"
        for key, what in DISTURBED.items()
        if _known(result[key])
    ]
    if predicted != "better":
        checks = "; ".join(answers)
        return MapVerdict("none", checks, f"{no_finding(endpoint, predicted)} ({checks})")
    if tumour := _on_tumour(result["energy_ratio"]):
        answers.append(tumour if moves == "yes" else f"{tumour}, which need not come from what the model learned")
    checks = "; ".join(answers)
    if "no" in (moves, labels, gain):
        return MapVerdict("fails", checks, checks)
    if "undefined" in (moves, gain):
        return MapVerdict("undefined", checks, checks)
    return MapVerdict("unsettled" if labels == "cannot be told" else "passes", checks, checks)


def no_finding(endpoint: str, predicted: str) -> str:
    """Why no map of this endpoint is a finding, by the kind of its prediction's verdict."""
    name = title(endpoint)
    name = name[0].lower() + name[1:] if name[1:2].islower() else name  # not MGMT
    why = UNTOLD.get(predicted, UNTOLD["undefined"])
    return f"no finding: the prediction itself {why}; the map shows what the score rests on, not where {name} shows"


def moved(similarity: Mapping[str, Any]) -> Answer:
    """Whether a map is another one after something was destroyed: yes where the rank correlation's interval ends below 0.5."""
    if not _known(similarity):
        return "undefined"
    return "yes" if similarity["high"] < ALIKE else "no"


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
        "Else it “cannot be told”: networks of true labels differ among themselves about as much, so that the difference may "
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
        "A “no” to any of these “fails a check”; with no “no”, but labels of which it cannot be told, it is “not settled”. "
        "Passing means that the map tells of the model. It does not mean that the tumour shows the label there.",
    ]


def _labels(result: Mapping[str, Any]) -> Answer:
    """Two networks of true labels may differ as much, and then to differ from one of shuffled labels means nothing."""
    answer = moved(result["shuffled"])
    return "cannot be told" if answer == "yes" and _gained(result["label_gain"]) != "yes" else answer


def _gained(gain: Mapping[str, Any]) -> Answer:
    if not _known(gain):
        return "undefined"
    return "yes" if gain["low"] > 0 else "no"


def _known(estimate: Mapping[str, Any]) -> bool:
    return estimate["n"] >= FEWEST and not math.isnan(estimate["low"])


def _named(answer: Answer) -> str:
    return "not judged" if answer == "undefined" else answer


def _on_tumour(ratio: Mapping[str, Any]) -> str:
    if not _known(ratio):
        return ""
    value, ends = number(ratio["value"], 1), f"[{number(ratio['low'], 1)}, {number(ratio['high'], 1)}]"
    if ratio["high"] < 1:
        return f"on the tumour: less than its share ({value}× {ends})"
    if ratio["low"] > 1:
        return f"on the tumour: {value}× its share {ends}"
    return f"on the tumour: no more than its share ({value}× {ends})"


def interval(estimate: Mapping[str, Any]) -> str:
    """A rank correlation with its interval, in two digits."""
    return f"{number(estimate['value'], 2)} [{number(estimate['low'], 2)}, {number(estimate['high'], 2)}]"

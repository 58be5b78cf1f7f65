"""Whether attention segments the tumour, in sentences: what was found, how it was made, and what an encoder is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mri_vit.report.numbers.chance import ALPHA
from mri_vit.report.words.notation import adjusted_p, between, change, number
from mri_vit.settings.schema import Study
from mri_vit.settings.sequences import title as sequence
from reproductions.segmentation.encoders import RANDOM, SUPERVISED
from reproductions.segmentation.numbers import CHANCE, HELD, MOST, Line, Test

METHODS = {"mae": "MAE", "dino": "DINO"}


def titles(study: Study) -> dict[str, str]:
    """What each encoder is called, in the order in which they are shown."""
    methods = [study.of(one).pretrain.method for one in study.comparators]
    called = {RANDOM: "random weights", SUPERVISED: "trained on labels"}
    for one, method in zip(study.comparators, methods, strict=True):
        called[one.name] = METHODS[method] + (f" ({one.name})" if methods.count(method) > 1 else "")
    return called


def sentences(means: Sequence[Line], compared: Sequence[Test], names: Mapping[str, str]) -> list[str]:
    """What was found by the paper's rule: each encoder, the encoders against each other, and against what takes no network."""
    said = []
    for line in means:
        if line.rule != "mass":
            continue
        scans = [name for name in line.others if name not in (CHANCE, MOST)]
        bright = "".join(f", the brightest in {sequence(name)} {number(line.others[name].value)}" for name in scans)
        said.append(
            f"{capital(names[line.encoder])}: the places that are kept are {line.share:.0%} of the brain and "
            "overlap the tumour with a Jaccard index of "
            f"{between(line.chosen.value, line.chosen.low, line.chosen.high)}; as many at random reach "
            f"{number(line.others[CHANCE].value)}{bright}.".replace("%", " %")
        )
    tested = [test for test in compared if test.rule == "mass"]
    between_encoders = [test for test in tested if test.other in names]
    said.append(f"Encoders against each other: {_verdicts(between_encoders, names)}.")
    for against in dict.fromkeys(test.other for test in tested if test.other not in names):
        those = [test for test in tested if test.other == against]
        said.append(f"Against {other(against)}, equally many: {_verdicts(those, names)}.")
    return said


def _verdicts(tested: Sequence[Test], names: Mapping[str, str]) -> str:
    """Who is above and below whom by more than chance; the rest in one breath, without their names if that is all."""
    sure = [test for test in tested if test.p_adjusted <= ALPHA]
    if not sure:
        return "no difference by more than chance"
    said = [
        f"{names[test.one]} is {'above' if test.difference > 0 else 'below'} {names.get(test.other, 'them')} "
        f"({change(test.difference, test.low, test.high)}, {adjusted_p(test.p_adjusted)})"
        for test in sure
    ]
    rest = [names[test.one] + (f" and {names[test.other]}" if test.other in names else "") for test in tested if test not in sure]
    if rest:
        said.append(f"not different by more than chance: {', '.join(rest)}")
    return "; ".join(said)


def facts(study: Study, subjects: int, judged: int, learners: int, starts: int) -> list[str]:
    """How it was made, and what limits it."""
    left_out = judged - subjects
    trained = ", ".join(endpoint.name for endpoint in study.endpoints)
    found = [
        f"Encoders learned from {learners} patients; {subjects} others are judged. All of them learned from the same patients "
        f"and began with the same random weights; there are {starts} such starts, and an index is the mean over them.",
        *([f"{left_out} more have no tumour mask, or no place that is mostly tumour, and are left out."] if left_out else []),
        f"A place has {study.grid.patch * study.grid.spacing_mm:g} mm along an edge. It is tumour where "
        f"more than {HELD:.0%} of its brain is; the mask has whatever the cohort's masks have, core and "
        "oedema alike.".replace("%", " %"),
        f"“Trained on labels” learned {trained}, with its epoch chosen on some of the learners; MAE and DINO learned from the "
        "scans of the same patients. Attention is that of the CLS token in the last block to the brain's places, of every "
        "place that is given.",
        "The head is chosen by its mean index over the other half of the judged patients, for each start anew; the halves are "
        "the same for all. The paper shows the best head of both models.",
        "Intervals and tests hold patients and starts: the variance of a mean is the sum of that over patients and that over "
        "starts, by Student's t with Satterthwaite's degrees of freedom; p is adjusted by Holm's method over all tests of a "
        "rule. Another set of patients to learn from is not in them.",
        "A random set's index is computed, not drawn; the brightest places are those with the highest mean of a sequence over "
        "their brain voxels, z-scored in the brain. All are of as many places as the encoder's own head keeps.",
        "The paper's own figures are of objects in photographs and encoders of twelve blocks that learned from a million of "
        "them; they are not set beside these, for no two of that are alike.",
    ]
    return found


def other(name: str) -> str:
    """What an encoder is held against, when it is no encoder."""
    return "random places" if name == CHANCE else f"the brightest places in {sequence(name)}"


def capital(text: str) -> str:
    """The same with a capital first letter."""
    return text[:1].upper() + text[1:]

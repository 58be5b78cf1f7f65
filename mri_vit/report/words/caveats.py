"""What limits a result, in words: figures and facts in, a sentence of `metrics.json` out, or None where nothing is to be said."""

from __future__ import annotations

from collections.abc import Mapping

from mri_vit.report.numbers.judged import MUCH_APART, Caveats
from mri_vit.report.numbers.subgroups import FEWEST_EVENTS
from mri_vit.report.reading.run import Design
from mri_vit.report.schema.binary import BinarySubgroup
from mri_vit.report.schema.run import Probe
from mri_vit.report.schema.survival import SurvivalSubgroup
from mri_vit.report.words.notation import interval, p_value

RECALIBRATED = "fitted on this cohort's own labels: a description, not a test"
CUTOFFS: Mapping[Design, str] = {  # what the threshold of a predictions table is
    "cross-validation": "the cut-off that the predictions table gives for the patient's fold, the median risk of the training "
    "fold: it was learned without the patients shown",
    "external": "the mean of the run's fold cut-offs, each the median risk of that fold's training patients",
    "table": "the threshold that the predictions table gives; how it was chosen is not known here",
}


def remark(measure: str, caveats: Caveats, n: int) -> str | None:
    """Whether the scores of `n` patients are all equal, or the pooled figure and that of pairs within a fold are far apart."""
    if caveats.tied:
        return f"Warning: all {n} scores are equal, so the model distinguishes no patient from another."
    if not (apart := caveats.apart):
        return None
    where = "In the first repeat the" if apart.repeats > 1 else "The"
    return (
        f"{where} pooled {measure} ({apart.pooled:.3f}) and that of pairs within a fold ({apart.within:.3f}) differ by more than "
        f"{MUCH_APART}: the folds' models do not share a scale, and the figure within folds is the safer one."
    )


def not_probability(caveats: Caveats, n: int) -> str | None:
    """Why the scores of `n` patients are no probabilities."""
    if not caveats.outside:
        return None
    return f"{caveats.outside} of {n} scores lie outside 0 to 1: they rank patients, but are no probabilities"


def cutoffs(has_cutoffs: bool, design: Design, repeats: int) -> str:
    """Where the cut-offs of the risk groups come from."""
    repeated = " Patients are shown as in the first repeat." if repeats > 1 else ""
    if has_cutoffs:
        return f"High risk is a risk at or above {CUTOFFS[design]}.{repeated}"
    return (
        "High risk is a risk above the median of the patient's own test fold, as the table holds no cut-off that was learned "
        f"beforehand: the split shows the order of the risks, it is not a rule for new patients.{repeated}"
    )


def too_small(group: BinarySubgroup | SurvivalSubgroup) -> str | None:
    """Why a subgroup is too small to judge."""
    if not group.small:
        return None
    if isinstance(group, BinarySubgroup):
        rarer = f"{min(group.positive, group.n - group.positive)} of the rarer class"
    else:
        rarer = f"{group.events} deaths"
    return f"too small to judge: {rarer}, fewer than {FEWEST_EVENTS}"


def site_probe(probe: Probe) -> str:
    """Whether the model's CLS vector predicts the site."""
    found = probe.balanced_accuracy
    figures = (
        f"balanced accuracy {interval(found)}, chance {probe.chance:.2f}, one-sided permutation {p_value(probe.p)}, not adjusted"
    )
    if probe.warning:
        return f"the model's CLS vector predicts the site ({figures}): a shortcut is possible where site and label go together"
    return f"the model's CLS vector was not found to predict the site ({figures})"

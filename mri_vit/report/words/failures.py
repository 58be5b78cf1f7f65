"""What the worst patients have in common, in words: `Failures` go in, a sentence that says no more than they carry comes out."""

from __future__ import annotations

from mri_vit.report.schema.parts import Kind
from mri_vit.report.schema.patients import Association, Failures
from mri_vit.report.words.notation import adjusted_p, number
from mri_vit.report.words.wording import listed

TRAITS = {
    "finding": "findings of quality control",
    "site": "site",
    "brain_ml": "brain volume",
    "tumour_share": "the tumour's share of the brain",
}
BY_CHANCE = "The model was not found better than chance, so who is worst is largely who chance put last. "


def sentence(found: Failures, verdict: Kind) -> str:
    """In what the worst differ from the others, and in what they are not told apart; `verdict` is that on the model."""
    head = "" if verdict == "better" else BY_CHANCE
    if not found.associations:
        return f"{head}Nothing is known of these patients that could be compared: no finding, site or volume."
    others = found.ranked - len(found.patients)
    apart = [_figures(test, len(found.patients)) for test in found.associations if test.apart]
    alike = [f"{TRAITS[test.trait]} ({_figures(test, len(found.patients))})" for test in found.associations if not test.apart]
    said = [f"The {len(found.patients)} worst differ from the other {others} in {listed(apart)}."] if apart else []
    if alike:
        who = "they are" if apart else f"The {len(found.patients)} worst are"
        whom = "them" if apart else f"the other {others}"
        line = f"{who} not told apart from {whom} by {listed(alike)}; of so few patients only large differences could be seen."
        said.append(line[:1].upper() + line[1:])
    return head + " ".join(said)


def _figures(test: Association, worst: int) -> str:
    """The two groups' figures with the adjusted p: 3 of 10 against 5 of 72, adjusted p = 0.21."""
    p = adjusted_p(test.p_adjusted)
    if test.trait in ("brain_ml", "tumour_share"):
        known = "" if test.worst == worst else f", known in {test.worst} and {test.others}"
        digits, unit = (0, " ml") if test.trait == "brain_ml" else (3, "")
        figures = f"median {number(test.of_worst, digits)} against {number(test.of_others, digits)}{unit}{known}, {p}"
    else:
        counts = [round(share * n) for share, n in ((test.of_worst, test.worst), (test.of_others, test.others))]
        figures = f"{counts[0]} of {test.worst} against {counts[1]} of {test.others}, {p}"
    if not test.apart:
        return f"{test.level} {figures}".strip()
    return f"{TRAITS[test.trait]} ({f'{test.level} ' if test.level else ''}{figures})"

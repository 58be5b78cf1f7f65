"""Non-inferiority and equivalence by the margin of the study file: results with their paired tests in, statements out.

Never "equal": two models differ by less than a margin, or that is not shown. Against all controls the claim is that of the least
of them (an intersection-union test: Berger 1982, doi:10.1080/00401706.1982.10487790), which needs no correction for their
number; over endpoints and models it is Holm's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mri_vit.metrics.comparison import holm
from mri_vit.metrics.equivalence import ONE_SIDED, Claim, within_margin
from mri_vit.report.schema.kinds import Numbers
from mri_vit.report.schema.margins import EveryControl, Margins, MarginTest
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.schema.parts import OWN, Comparison
from mri_vit.report.verdicts import Verdict, agrees
from mri_vit.report.words.notation import adjusted_p, is_defined, listed, signed
from mri_vit.settings.recipe import is_bar, is_compared

CLAIMS: Mapping[Claim, str] = {
    "equivalent": "{model} and {other} are equivalent within ±{margin:g}",
    "not inferior": "{model} is not inferior to {other} by more than {margin:g}",
    "inferior": "{model} is inferior to {other} by more than {margin:g}",
    "open": "Non-inferiority of {model} to {other} is not shown (margin {margin:g})",
}


class Compared(NamedTuple):
    """One-sided p of non-inferiority to each control that a model could be compared with, and the other controls."""

    p: dict[str, float]
    left_out: tuple[str, ...]


WEAK = "; {other} is itself not shown to beat chance, so that says little"


def margins(
    results: Mapping[str, Mapping[str, Numbers]], verdicts: Mapping[str, Mapping[str, Verdict]], margin: float | None
) -> dict[str, dict[str, Margins]]:
    """By endpoint and compared model; nothing without a margin, nor of models that cannot be judged."""
    if margin is None:
        return {}
    found: dict[str, dict[str, Margins]] = {}
    compared: dict[tuple[str, str], Compared] = {}
    for name, models in results.items():
        of_endpoint = {model: verdict for model, verdict in verdicts[name].items() if not (verdict.unjudged or verdict.leaks)}
        for model in filter(is_compared, of_endpoint):
            pairs = {other: test for other, test in _pairs(models[model]).items() if other in of_endpoint}
            tests = tuple(_tested(model, other, test, margin, of_endpoint[other]) for other, test in pairs.items())
            if not tests:
                continue
            found.setdefault(name, {})[model] = Margins(tests=tests, every_control=None)
            p = {one.other: one.p_lower for one in tests if is_bar(one.other) and is_defined(one.p_lower)}
            if p and len(controls := [one for one in models if is_bar(one)]) > 1:
                compared[name, model] = Compared(p, tuple(one for one in controls if one not in p))
    adjusted = holm(np.array([max(one.p.values()) for one in compared.values()], dtype=float)).tolist()
    for ((name, model), with_controls), p_adjusted in zip(compared.items(), adjusted, strict=True):
        against_all = _against_every_control(model, with_controls, p_adjusted, margin)
        found[name][model] = found[name][model].model_copy(update={"every_control": against_all})
    return found


def _pairs(of_model: Numbers) -> dict[str, Comparison]:
    """The paired tests of a model: with each control, and with the own model."""
    return dict(of_model.versus_controls) | ({OWN: of_model.versus_own} if of_model.versus_own else {})


def _tested(model: str, other: str, test: Comparison, margin: float, of_other: Verdict) -> MarginTest:
    shown = within_margin(test.difference, test.low, test.high, margin)
    words = CLAIMS[shown.claim].format(model=model, other=other, margin=margin)
    if test.difference > 0 and test.p_adjusted <= ALPHA and agrees(test):
        words += ", and better"
    weak = of_other.kind != "better" and shown.claim in ("equivalent", "not inferior")
    return MarginTest(
        other=other,
        difference=test.difference,
        low=test.low,
        high=test.high,
        **shown._asdict(),
        sentence=f"{words}: difference {signed(test)}" + (WEAK.format(other=other) if weak else ""),
    )


def _against_every_control(model: str, compared: Compared, p_adjusted: float, margin: float) -> EveryControl:
    least, p = max(compared.p.items(), key=lambda pair: pair[1])
    shown = p_adjusted <= ONE_SIDED
    form, others = CLAIMS["not inferior" if shown else "open"], listed(list(compared.p))
    claim = form.format(model=model, other=others, margin=margin)
    words = f"{claim}; least clear for {least}, one-sided {adjusted_p(p_adjusted)}"
    if compared.left_out:
        words += f"; not compared with {listed(list(compared.left_out))}, which could not be judged or compared"
    return EveryControl(
        compared=tuple(compared.p),
        left_out=compared.left_out,
        least=least,
        p=p,
        p_adjusted=p_adjusted,
        not_inferior=shown and not compared.left_out,
        sentence=words,
    )

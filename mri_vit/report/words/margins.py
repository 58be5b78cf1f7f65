"""Non-inferiority and equivalence by the margin of the study file: results with their paired tests in, statements out.

Never "equal": two models differ by less than a margin, or that is not shown. Against all controls the claim is that of the least
of them (an intersection-union test: Berger 1982, doi:10.1080/00401706.1982.10487790), which needs no correction for their
number; over endpoints and models it is Holm's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mri_vit.metrics.comparison import holm
from mri_vit.metrics.equivalence import ONE_SIDED, Claim, within_margin
from mri_vit.report.schema.kinds import Numbers
from mri_vit.report.schema.margins import EveryControl, Margins, MarginTest
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.schema.parts import OWN, Comparison
from mri_vit.report.verdicts import Verdict, agrees
from mri_vit.report.words.model_verdicts import turned
from mri_vit.report.words.notation import adjusted_p, signed
from mri_vit.settings.recipe import is_compared

CLAIMS: Mapping[Claim, str] = {
    "equivalent": "{model} and {other} are equivalent within ±{margin:g}",
    "not inferior": "{model} is not inferior to {other} by more than {margin:g}",
    "inferior": "{model} is inferior to {other} by more than {margin:g}",
    "open": "neither shown: {model} may be inferior to {other} by more than {margin:g}, or may not",
}
WEAK = "; {other} is itself not shown to beat chance, so that says little"


def margins(
    results: Mapping[str, Mapping[str, Numbers]], verdicts: Mapping[str, Mapping[str, Verdict]], margin: float | None
) -> dict[str, dict[str, Margins]]:
    """By endpoint and compared model; nothing without a margin, nor of models that cannot be judged."""
    if margin is None:
        return {}
    found: dict[str, dict[str, Margins]] = {}
    least: dict[tuple[str, str], tuple[str, float]] = {}
    for name, models in results.items():
        of_endpoint = {model: verdict for model, verdict in verdicts[name].items() if not (verdict.unjudged or verdict.leaks)}
        for model in filter(is_compared, of_endpoint):
            pairs = {other: test for other, test in _pairs(model, models).items() if other in of_endpoint}
            tests = tuple(_tested(model, other, test, margin, of_endpoint[other]) for other, test in pairs.items())
            if not tests:
                continue
            found.setdefault(name, {})[model] = Margins(tests=tests, every_control=None)
            p = {one.other: one.p_lower for one in tests if one.other in models[model].versus_controls}
            if len(p) > 1 and not np.isnan(list(p.values())).any():
                least[name, model] = max(p.items(), key=lambda pair: pair[1])
    adjusted = holm(np.array([p for _, p in least.values()], dtype=float)).tolist()
    for ((name, model), (other, p)), p_adjusted in zip(least.items(), adjusted, strict=True):
        against_all = _against_every_control(model, other, p, p_adjusted, margin)
        found[name][model] = found[name][model].model_copy(update={"every_control": against_all})
    return found


def _pairs(model: str, models: Mapping[str, Numbers]) -> dict[str, Comparison]:
    """The paired tests of a model: with each control, with the own model, and of that with each comparator."""
    tests = dict(models[model].versus_controls)
    if own := models[model].versus_own:
        tests[OWN] = own
    if model == OWN:
        tests |= {other: turned(test) for other, one in models.items() if (test := one.versus_own)}
    return tests


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


def _against_every_control(model: str, least: str, p: float, p_adjusted: float, margin: float) -> EveryControl:
    figures = f"least clear for {least}, one-sided {adjusted_p(p_adjusted)}"
    shown = p_adjusted <= ONE_SIDED
    words = (
        f"{model} is not inferior to any control by more than {margin:g}"
        if shown
        else f"not shown that {model} is not inferior to every control by more than {margin:g}"
    )
    return EveryControl(least=least, p=p, p_adjusted=p_adjusted, not_inferior=shown, sentence=f"{words} ({figures})")

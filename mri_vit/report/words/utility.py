"""Net benefit over the study's range of thresholds in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

import pandas as pd

from mri_vit.metrics.comparison import Comparison
from mri_vit.report.numbers import utility
from mri_vit.report.numbers.utility import BenefitFigures
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.kinds import Numbers
from mri_vit.report.schema.parts import Difference, Kind
from mri_vit.report.schema.utility import BenefitOverRange, Utility
from mri_vit.report.words.notation import ends, is_defined, listed, number, percent

BEST = "better of both"
UNNAMED = (  # where the study names no range
    "Over which range of risks one would act, the study does not say ([report] thresholds), so no net benefit is summed up."
)


def of_run(
    run: Run,
    tables: Mapping[str, Mapping[str, pd.DataFrame]],
    numbers: Mapping[str, Mapping[str, Numbers]],
    shown: Sequence[str],
    leaking: Collection[str],
) -> Utility | None:
    """By endpoint; None where the study names no range. `leaking` are the endpoints whose labels may leak."""
    if run.study.report.thresholds is None:
        return None
    least, most = run.study.report.thresholds
    found = {e.name: utility.measure(run, e, tables[e.name], numbers[e.name], shown) for e in run.study.endpoints}
    return Utility(
        least=least,
        most=most,
        endpoints={
            name: tuple(_in_words(one, name in leaking) for one in models)
            for name, models in found.items()
            if not isinstance(models, str)
        },
        left_out={name: why for name, why in found.items() if isinstance(why, str)},
    )


def _in_words(figures: BenefitFigures, leaks: bool) -> BenefitOverRange:
    best, band = figures.mean[BEST], figures.band
    better = utility.is_better(figures)
    kind: Kind = "chance" if better is None else "better" if better else "worse"
    if leaks or not is_defined(best.low):
        kind = "undefined"
    return BenefitOverRange(
        model=figures.model,
        days=figures.days,
        n=figures.n,
        mean={name: Difference(**_fields(one)) for name, one in figures.mean.items()},
        thresholds=tuple(figures.thresholds.tolist()),
        difference=tuple(band.difference.tolist()),
        low=tuple(band.low.tolist()),
        high=tuple(band.high.tolist()),
        verdict_kind=kind,
        sentences=tuple(_sentences(figures, kind, leaks)),
    )


def _fields(found: Comparison) -> dict[str, float]:
    fields = asdict(found)
    return {name: fields[name] for name in Difference.model_fields}


def _sentences(figures: BenefitFigures, kind: Kind, leaks: bool) -> list[str]:
    range_ = threshold_range(float(figures.thresholds[0]), float(figures.thresholds[-1]))
    acting = f"Acting on {figures.model} {range_}{by_day(figures.days)}"
    if leaks:
        return [f"{acting}: labels may leak, so nothing is claimed."]
    best = figures.mean[BEST]
    if kind == "undefined":
        return [f"{acting} has no net benefit that can be computed: too few were followed so long, or nothing varies."]
    worth = f"{per_hundred(best)} true positives per 100 patients, at no more false alarms"
    than = "acting on all patients or on none, whichever is better"
    claims = {
        "better": f"{acting} is worth more than {than}: {worth}.",
        "worse": f"{acting} is worth less than {than}: {worth}.",
    }
    first = claims.get(kind, f"No evidence that {acting[0].lower()}{acting[1:]} is worth more than {than}: {worth}.")
    parts = [threshold_range(*ends) for ends in utility.proven(figures)]
    where = f"It is shown to be above both {listed(parts)}" if parts else "At no single risk is it shown to be above both"
    return [first, f"{where} (simultaneous 95 % band)."]


def per_hundred(found: Comparison | Difference) -> str:
    """A difference of net benefit per 100 patients: +2.1 [+0.3, +3.9]."""
    if not is_defined(found.low) or found.low == found.high:
        return _signed(found.difference)
    return f"{_signed(found.difference)} {ends(found.low, found.high, write=_signed)}"


def _signed(share: float) -> str:
    text = number(100 * share, 1)
    return text if not text[0].isdigit() or text == "0.0" else f"+{text}"


def threshold_range(least: float, most: float) -> str:
    """Where in the range: at risks of 10 to 40 %."""
    if least == most:
        return f"at a risk of {_percent(least)}"
    low, _, _ = _percent(least).partition("\N{NO-BREAK SPACE}")
    return f"at risks of {low} to {_percent(most)}"


def _percent(share: float) -> str:
    return percent(share, 0 if round(100 * share, 6).is_integer() else 1)


def by_day(days: float) -> str:
    """Of what one acts on, for survival."""
    return f" of death within {number(days, 0)} days" if is_defined(days) else ""

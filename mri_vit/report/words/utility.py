"""Net benefit over the study's range of thresholds in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from mri_vit.metrics.comparison import Comparison
from mri_vit.report.numbers import utility
from mri_vit.report.numbers.utility import BEST, BenefitFigures
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.kinds import Numbers
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import Difference, Kind
from mri_vit.report.schema.utility import BenefitOverRange, Utility
from mri_vit.report.words.notation import ends, is_defined, listed, number, percent

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
            e.name: tuple(_in_words(one, e.name in leaking, e.competing is not None) for one in models)
            for e in run.study.endpoints
            if not isinstance(models := found[e.name], str)
        },
        left_out={name: why for name, why in found.items() if isinstance(why, str)},
    )


def _in_words(figures: BenefitFigures, leaks: bool, competes: bool) -> BenefitOverRange:
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
        undefined=dict(figures.undefined),
        thresholds=tuple(figures.thresholds.tolist()),
        difference=tuple(band.difference.tolist()),
        low=tuple(band.low.tolist()),
        high=tuple(band.high.tolist()),
        verdict_kind=kind,
        sentences=tuple(_sentences(figures, kind, leaks, competes)),
    )


def _fields(found: Comparison) -> dict[str, float]:
    fields = asdict(found)
    return {name: fields[name] for name in Difference.model_fields}


def _sentences(figures: BenefitFigures, kind: Kind, leaks: bool, competes: bool) -> list[str]:
    """The finding over the thresholds at which there is one, where in the range it is shown, and what is left out."""
    by, at, undefined = by_day(figures.days, competes), figures.thresholds, figures.undefined.get(BEST, ())
    whole = threshold_range(float(at[0]), float(at[-1]))
    if leaks:
        return [f"Acting on {figures.model} {whole}{by}: labels may leak, so nothing is claimed."]
    if kind == "undefined":
        why = "too few were followed so long, or nothing varies"
        return [f"The net benefit of acting on {figures.model} {whole}{by} cannot be computed: {why}.", *_left_out(figures)]
    acting = f"Acting on {figures.model} {_ranges(at, ~np.isin(at, undefined))}{by}"
    than = "on average than acting on all patients or on none, whichever is better"
    worth = f"{per_hundred(figures.mean[BEST])} true positives per 100 patients, at no more false alarms"
    claims = {"better": f"{acting} is worth more {than}", "worse": f"{acting} is worth less {than}"}
    claim = claims.get(kind, f"No evidence that {acting[0].lower()}{acting[1:]} is worth more {than}")
    text, above = [f"{claim}: {worth}."], figures.band.low > 0  # false for NaN
    if above.any():
        text.append(f"It is shown to be worth more {_ranges(at, above)} (95 % band of all risks together).")
    elif kind == "better":
        text.append("At no single risk is it shown to be worth more (95 % band of all risks together).")
    return [*text, *_left_out(figures)]


def _left_out(figures: BenefitFigures) -> Iterator[str]:
    """Thresholds that a mean leaves out."""
    at, own = figures.thresholds, figures.undefined.get(BEST, ())
    if own:
        yield f"Left out {_ranges(at, np.isin(at, own))}: the patients of such a risk were not followed for so long."
    for other, left_out in figures.undefined.items():
        if set(left_out) - set(own):
            more = np.isin(at, left_out) & ~np.isin(at, own)
            yield f"The mean difference from {other} also leaves out thresholds {_ranges(at, more)}."


def _ranges(thresholds: np.ndarray, those: np.ndarray) -> str:
    """Where in the range some thresholds lie: at risks of 10 to 12 % and at a risk of 30 %."""
    return listed([threshold_range(*ends) for ends in utility.parts(thresholds, those)])


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


def by_day(days: float, competes: bool = False) -> str:
    """Of what one acts on, for survival."""
    return f" of {'the event' if competes else 'death'} within {number(days, 0)} days" if is_defined(days) else ""


def unnamed(metrics: Metrics, endpoint: str) -> str:
    """That the study names no range, below the first endpoint's decision curves alone."""
    curves = (
        name
        for name, e in metrics.endpoints.items()
        if any(getattr(one, "net_benefit", ()) or getattr(one, "decision_at", ()) for one in e.models.values())
    )
    return UNNAMED if metrics.utility is None and endpoint == next(curves, "") else ""

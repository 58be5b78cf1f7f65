"""Survival in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mri_vit.kinds.survival.labels import unlike_competing
from mri_vit.metrics.added_value import RISK
from mri_vit.report import verdicts
from mri_vit.report.numbers import added_value, characteristics
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.measured import AddedValueFigures, Caveats, SubgroupFigures
from mri_vit.report.schema.parts import Design, Estimate, Kind
from mri_vit.report.schema.survival import (
    AddedValue,
    AucAt,
    BrierAt,
    CalibrationAt,
    Days,
    HazardRatio,
    SurvivalEndpoint,
    SurvivalNumbers,
    SurvivalResult,
    SurvivalSubgroup,
)
from mri_vit.report.verdicts import Unjudged
from mri_vit.report.words import caveats, competing
from mri_vit.report.words.endpoint_results import (
    ADJUSTED,
    RETRAINED,
    TEST,
    Measure,
    chance_test_in_words,
    distances,
    retrained,
    rows_of,
    scaled_in_words,
    spread,
)
from mri_vit.report.words.notation import adjusted_p, counted, escape, interval, is_defined, is_known, judged, number, p_value
from mri_vit.report.words.of_kind import Fields, Row, Tables, Words, labelled
from mri_vit.settings.recipe import Model
from mri_vit.settings.schema import Endpoint


class SurvivalWords(Words):
    """Deaths and follow-up."""

    kind, same, known = "survival", "the same survival curve", "follow-up time"
    meaning = "a concordance (C) of survival is the share of pairs in which who died earlier has the higher predicted risk"
    undefined = "held no comparable pair; their C is"
    folds_caption = "Harrell's C per fold"
    explained = "survival", "the risk score"
    regression = "Cox"
    output = "a risk for survival (higher: earlier death)"
    loss = "integrated Brier score"
    one_class = "no patient died"
    head = ""

    @property
    def unjudged_short(self) -> Mapping[Unjudged, str]:
        return {**super().unjudged_short, "few": "Too few deaths to judge", "one class": "No patient died: not judged"}

    def endpoint(self, run: Run, endpoint: Endpoint, rows: Tables, shown: Sequence[str], shared: Fields) -> SurvivalEndpoint:
        labels = labelled(rows, ("event", "time_days"))
        died = labels.event.to_numpy(dtype=bool)
        ended = died | labels.competing.to_numpy(dtype=bool) if "competing" in labels else died
        added = added_value.measure(run, endpoint, rows, shown)
        event = died + 2.0 * (ended & ~died)
        if odd := unlike_competing(endpoint, event):
            shared = shared | {"warnings": (*shared["warnings"], odd)}
        return SurvivalEndpoint(
            kind="survival",
            events=int(died.sum()),
            others=int(ended.sum() - died.sum()) if endpoint.competing else None,
            follow_up=characteristics.follow_up_of(labels.time_days.to_numpy(dtype=float), ended),
            added_value=added and with_verdict(added, endpoint.competing is not None),
            competing=competing.of_endpoint(run, endpoint, rows),
            **shared,
        )

    def result(self, numbers: SurvivalNumbers, sentences: Fields, limits: Caveats, design: Design) -> SurvivalResult:
        cutoffs = caveats.risk_group_cutoffs(limits.has_cutoffs, design, len(numbers.repeats))
        return SurvivalResult(**dict(numbers), **sentences, cutoffs=cutoffs)

    def subgroup(self, endpoint: Endpoint, group: SubgroupFigures, fields: Fields) -> SurvivalSubgroup:
        return SurvivalSubgroup(**fields, events=group.counts[0], others=group.counts[1] if endpoint.competing else None)

    def tallied(self, tally: str) -> str:
        return f", {tally.replace(' ', ' of them ', 1)}; the others are censored at that time"

    def scaled(self, result: SurvivalNumbers) -> Estimate | None:
        return result.integrated_brier and result.integrated_brier.scaled

    def head_of(self, model: Model) -> str:
        from mri_vit.report.words.networks import SURVIVAL_HEADS

        return SURVIVAL_HEADS[model.survival]

    def too_few(self, count: int) -> str:
        return counted(count, "death")

    def figures(self, result: SurvivalResult) -> tuple[list[str], list[str]]:
        later = [f"log-rank {escape(p_value(result.logrank.p))}"]
        if result.competing:
            later = [f"cause-specific {later[0]}", f"Gray's test {escape(p_value(result.competing.grays_test.p))}"]
        if is_known(ratio := result.hazard.per_sd):
            later.append(
                f"{'cause-specific ' if result.competing else ''}hazard ratio per standard deviation {interval(ratio, digits=2)}"
            )
        return [f"AUC at {at.days} days {interval(at)}" for at in result.auc_at if is_known(at)], later

    def measure_rows(self, results: Sequence[SurvivalResult]) -> list[Row]:
        named = {**WITH_COMPETING} if any(result.others is not None for result in results) else {}
        measures = [replace(one, label=named.get(one.label, one.label)) for one in (*MEASURES, *_at_horizons(results))]
        return rows_of(measures, results)


def with_verdict(figures: AddedValueFigures, competes: bool = False) -> AddedValue:
    """What a risk adds, with its verdict and sentences."""
    analysis = figures.analysis
    kind: Kind = "undefined"
    if not isinstance(analysis, str):
        kind = verdicts.of_added_value(analysis.both[RISK].value, figures.adjusted_p["risk"])
    sentences = caveats.added_value_sentences(figures, kind, competes)
    return AddedValue(**vars(figures), verdict_kind=kind, sentences=tuple(sentences))


def _at_horizons(results: Sequence[SurvivalResult]) -> list[Measure]:
    """AUC(t) and Brier(t) at every horizon that a model has."""
    aucs = sorted({point.days for result in results for point in result.auc_at})
    briers = sorted({point.days for result in results for point in result.brier_at})
    alone = "Kaplan–Meier" if all(result.competing is None for result in results) else "incidence"
    calibrated = sorted({point.days for result in results for point in result.calibration_at})
    return [
        *(Measure(f"AUC({days} days), cumulative/dynamic", _auc_at(days)) for days in aucs),
        *(Measure(f"Brier score at {days} days ({alone} alone)", _brier_at(days)) for days in briers),
        *(Measure(f"Calibration at {days} days [95 %]", _calibration_at(days)) for days in calibrated),
    ]


def _auc_at(days: Days) -> Callable[[SurvivalResult], str | None]:
    def write(point: AucAt) -> str:
        return f"{interval(point, point.cases + point.controls)}, {point.cases} died by then, {point.controls} alive"

    def competed(point: AucAt) -> str:
        return write(point).replace("died by then", "with the event by then").removesuffix("alive") + "without"

    return lambda r: next(((competed if r.competing else write)(point) for point in r.auc_at if point.days == days), None)


def _brier_at(days: Days) -> Callable[[SurvivalResult], str | None]:
    def write(point: BrierAt) -> str:
        return f"{number(point.value)} ({number(point.reference)})"

    return lambda r: next((write(point) for point in r.brier_at if point.days == days), None)


def _calibration_at(days: Days) -> Callable[[SurvivalResult], str | None]:
    def write(at: CalibrationAt, n: int) -> str | None:
        parts = {"slope": at.slope, "O:E": at.observed_to_expected, "ICI": at.ici}
        known = [f"{name} {interval(part, n, 2)}" for name, part in parts.items() if part and is_defined(part.value)]
        return "; ".join(known + ([f"E50, E90 {further}"] if (further := distances(at, n)) else [])) or None

    return lambda r: next((write(at, r.n) for at in r.calibration_at if at.days == days), None)


def _hazard(r: HazardRatio, n: int) -> str:
    return f"{interval(r, n, 2)}, proportional hazards: {p_value(r.proportional_p)}"


def _logrank(r: SurvivalResult) -> str:
    test = r.logrank
    corrected = test.inflation > 1 and is_defined(test.chi2)
    how = f"; corrected for refitting, {p_value(test.given_p)} for groups as given" if corrected else ""
    return f"χ² = {number(test.chi2, 2)}, {p_value(test.p)}{how}"


def _restricted_mean(r: SurvivalResult) -> str | None:
    if r.competing:
        return None
    mean = r.restricted_mean
    until = f", up to {number(mean.tau_days, 0)} days" if is_defined(mean.tau_days) else ""
    return f"{interval(mean.difference, r.n, 0)} days{until}"


def _integrated_brier(r: SurvivalResult) -> str | None:
    brier = r.integrated_brier
    return brier and f"{interval(brier, r.n)} ({number(brier.reference)})"


MEASURES: tuple[Measure, ...] = (
    Measure("Patients (died)", lambda r: f"{r.n} ({r.events}{'' if r.others is None else f', {r.others}'})"),
    Measure("Harrell's C, judged [95 %, corrected for refitting]", judged),
    Measure("Harrell's C, all patients [95 %]", lambda r: interval(r.harrell_c, r.n)),
    Measure("Harrell's C, mean ± variance over folds", spread),
    Measure("Uno's C [95 %]", lambda r: f"{interval(r.uno_c, r.n)}, up to {number(r.uno_c.tau_days, 0)} days"),
    Measure(TEST, chance_test_in_words),
    Measure(ADJUSTED, lambda r: adjusted_p(r.chance_test.p_adjusted)),
    Measure(RETRAINED, retrained),
    Measure("Log-rank of the risk groups", _logrank),
    Measure("Gray's test of the risk groups", lambda r: competing.grays_test_in_words(r.competing)),
    Measure("Hazard ratio per standard deviation of the risk [95 %]", lambda r: _hazard(r.hazard.per_sd, r.n)),
    Measure("Hazard ratio, high against low risk [95 %]", lambda r: _hazard(r.hazard.high_vs_low, r.n)),
    Measure("Restricted mean survival, high minus low risk [95 %]", _restricted_mean),
    Measure("AUC(t), mean over time", lambda r: number(r.mean_auc, n=r.n)),
    Measure("Integrated Brier score [bootstrap 95 %] (Kaplan–Meier alone)", _integrated_brier),
    Measure(
        "Scaled integrated Brier score, 0 without a model [bootstrap 95 %]",
        lambda r: r.integrated_brier and scaled_in_words(r.integrated_brier.scaled, r.n),
    ),
)

WITH_COMPETING = {  # labels that say something else where another event may come first
    "Patients (died)": "Patients (with the event, with the competing one)",
    "Uno's C [95 %]": "Wolbers's C [95 %]",
    "Log-rank of the risk groups": "Log-rank of the risk groups, cause-specific",
    "Integrated Brier score [bootstrap 95 %] (Kaplan–Meier alone)": "Integrated Brier score [bootstrap 95 %] (incidence alone)",
    "Hazard ratio per standard deviation of the risk [95 %]": "Cause-specific hazard ratio per standard deviation [95 %]",
    "Hazard ratio, high against low risk [95 %]": "Cause-specific hazard ratio, high against low risk [95 %]",
}

PART = SurvivalWords()

"""The figures of survival: curves of the risk groups, AUC(t), Brier(t), calibration, net benefit, what a risk adds."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.figure import Figure

from mri_vit.report.figures import competing, endpoint_curves
from mri_vit.report.figures.of_kind import Figures
from mri_vit.report.numbers.judged import known_rows
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.survival import SurvivalEndpoint
from mri_vit.report.words.notation import file_name
from mri_vit.settings.schema import Endpoint


class SurvivalFigures(Figures):
    """Curves over time."""

    def draw(
        self, run: Run, endpoint: Endpoint, measured: SurvivalEndpoint, survivors: pd.DataFrame
    ) -> Iterator[tuple[str, Figure]]:
        name = endpoint.name
        models = measured.models
        event, alone, what, sides = "death", "Kaplan–Meier", "survival", ()
        if endpoint.competing:
            event, alone, what, sides = "event", "incidence alone", "share without the event", ("later event", "earlier event")
        for model, result in models.items():
            if endpoint.competing:
                rows = known_rows(run.predictions, endpoint, model)
                longest, curves = max(1.0, float(rows.time_days.max())), competing.incidence_curves(rows)
                drawn = competing.incidence(curves, result.groups, result.at_risk_days, longest, endpoint.competing)
                yield file_name("incidence", name, model), drawn
                continue
            own = survivors.query("endpoint == @name and model == @model")
            yield file_name("km", name, model), endpoint_curves.kaplan_meier(own, result.groups, result.at_risk_days)
        if timed := {model: result for model, result in models.items() if result.auc_at}:
            yield file_name("auc_time", name), endpoint_curves.auc_over_time(timed, event)
        if curved := {model: result.curve for model, result in models.items() if result.curve}:
            yield file_name("brier_time", name), endpoint_curves.brier_over_time(curved, alone)
        for days in sorted({at.days for result in models.values() for at in result.calibration_at}):
            then = {model: at for model, result in models.items() for at in result.calibration_at if at.days == days}
            curves = {model: at.curve for model, at in then.items() if at.curve}
            groups = {model: at.groups for model, at in then.items()}
            yield file_name("calibration", name, str(days)), endpoint_curves.survival_calibration(groups, curves, days, what)
        for days in sorted({at.days for result in models.values() for at in result.decision_at}):
            decided = {model: at for model, result in models.items() for at in result.decision_at if at.days == days}
            benefits = {model: at.net_benefit for model, at in decided.items()}
            of_all = next(iter(decided.values())).net_benefit_of_all  # a model's: the shuffled control has other times
            bands = {model: at.net_benefit_band for model, at in decided.items()}
            yield (
                file_name("decision", name, str(days)),
                endpoint_curves.net_benefit(benefits, measured.thresholds, of_all, bands),
            )
        if (added := measured.added_value) and not isinstance(added.analysis, str):
            yield file_name("added_value", name), endpoint_curves.added_value(added.model, added.analysis, *sides)


PART = SurvivalFigures()

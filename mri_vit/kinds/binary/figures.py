"""The figures of a binary marker: ROC, precision and recall, calibration, net benefit."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.metrics import roc_curve

from mri_vit.report.figures import endpoint_curves
from mri_vit.report.figures.of_kind import Figures
from mri_vit.report.numbers import judged
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.binary import BinaryEndpoint
from mri_vit.report.words.notation import file_name
from mri_vit.settings.recipe import is_compared
from mri_vit.settings.schema import Endpoint


class BinaryFigures(Figures):
    """Curves over thresholds."""

    def draw(
        self, run: Run, endpoint: Endpoint, measured: BinaryEndpoint, survivors: pd.DataFrame
    ) -> Iterator[tuple[str, Figure]]:
        name = endpoint.name
        models = measured.models
        for model, result in models.items():
            yield file_name("roc", name, model), endpoint_curves.roc(_fold_curves(run, endpoint, model), result.roc)
        compared = {model: result for model, result in models.items() if is_compared(model)}
        if len(compared) > 1:
            yield file_name("roc", name), endpoint_curves.pooled_roc(compared)
        if models:
            # No label is known where only the shuffled control predicted the endpoint: its labels are permuted.
            prevalence = measured.positive / measured.known if measured.known else math.nan
            yield file_name("precision_recall", name), endpoint_curves.precision_recall(models, prevalence)
        if calibrated := {model: result.calibration for model, result in models.items() if result.calibration}:
            curves = {model: one.curve for model, one in calibrated.items() if one.curve}
            bins = {model: one.bins for model, one in calibrated.items()}
            yield file_name("calibration", name), endpoint_curves.calibration(bins, curves)
        if useful := {model: result.net_benefit for model, result in models.items() if result.net_benefit}:
            bands = {model: band for model in useful if (band := models[model].net_benefit_band)}
            yield (
                file_name("decision", name),
                endpoint_curves.net_benefit(useful, measured.thresholds, measured.net_benefit_of_all, bands),
            )
        if refitted := {model: result.recalibrated.bins for model, result in models.items() if result.recalibrated}:
            shown = {model: bins for model, bins in refitted.items() if is_compared(model)} or refitted
            yield file_name("recalibration", name), endpoint_curves.calibration(shown, {})


def _fold_curves(run: Run, endpoint: Endpoint, model: str) -> list[endpoint_curves.Curve]:
    """The ROC curve of every fold that holds both classes, from the scores of its own model."""
    rows = judged.known_rows(run.predictions, endpoint, model)
    found_curves = []
    for _, fold in rows.groupby(["repeat", "fold"]):
        if fold.truth.nunique() == 2:
            false_positives, true_positives, _ = roc_curve(fold.truth, fold.score)
            found_curves.append((np.asarray(false_positives, float), np.asarray(true_positives, float)))
    return found_curves


PART = BinaryFigures()

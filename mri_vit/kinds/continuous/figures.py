"""The figures of a number: observed against predicted, and the difference of the two over their mean."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

from mri_vit.kinds.continuous.measures import scaled
from mri_vit.report.figures.of_kind import Figures
from mri_vit.report.figures.panels import BLUE, DASHED, GREY, INK, SQUARE_INCHES, legend_below, panel
from mri_vit.report.numbers import judged
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.continuous import Agreement, ContinuousEndpoint
from mri_vit.report.words.notation import file_name, title
from mri_vit.settings.schema import Endpoint

Numbers = Float[np.ndarray, " n"]
DOT = 14  # of a patient, in square points


class ContinuousFigures(Figures):
    """Two for each model."""

    def draw(
        self, run: Run, endpoint: Endpoint, measured: ContinuousEndpoint, survivors: pd.DataFrame
    ) -> Iterator[tuple[str, Figure]]:
        unit = f" ({endpoint.unit})" if endpoint.unit else ""
        for model, result in measured.models.items():
            people = judged.averaged(judged.known_rows(run.predictions, endpoint, model))
            value, predicted = judged.floats(people.truth), judged.floats(people.score)
            name = f"{'log ' if endpoint.log else ''}{title(endpoint.name)}{unit}"
            value, predicted = scaled(endpoint, value), scaled(endpoint, predicted)
            yield file_name("predicted", endpoint.name, model), against(value, predicted, name)
            yield file_name("agreement", endpoint.name, model), differences(value, predicted, result.agreement, name)


def against(value: Numbers, predicted: Numbers, name: str) -> Figure:
    """Observed against predicted; who is predicted rightly lies on the dashed line."""
    with panel(height=SQUARE_INCHES) as (figure, axes):
        ends = np.array([min(value.min(), predicted.min()), max(value.max(), predicted.max())])
        axes.plot(ends, ends, color=INK, lw=1, ls=DASHED, label="predicted = observed")
        axes.scatter(predicted, value, s=DOT, color=BLUE, alpha=0.6, lw=0)
        axes.set(xlabel=f"Predicted {name}", ylabel=f"Observed {name}")
        legend_below(figure, columns=1)
    return figure


def differences(value: Numbers, predicted: Numbers, found: Agreement, name: str) -> Figure:
    """Bland and Altman's figure: the predicted less the observed over the mean of both."""
    with panel() as (figure, axes):
        axes.scatter((value + predicted) / 2, predicted - value, s=DOT, color=BLUE, alpha=0.6, lw=0)
        axes.axhline(0, color=GREY, lw=0.8)
        axes.axhline(found.bias.value, color=INK, lw=1.2, label="mean difference")
        for end, label in ((found.lower, "limits of agreement"), (found.upper, None)):
            axes.axhline(end.value, color=INK, lw=1.2, ls=DASHED, label=label)
        axes.set(xlabel=f"Mean of predicted and observed {name}", ylabel="Predicted − observed")
        legend_below(figure, columns=2)
    return figure


PART = ContinuousFigures()

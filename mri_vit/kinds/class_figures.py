"""The figures of classes and grades: who is called what, and each class's calibration."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mri_vit.report.figures import endpoint_curves
from mri_vit.report.figures.of_kind import Figures
from mri_vit.report.figures.panels import INK, SQUARE_INCHES, panel, shortened
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.classes import Confusion, MulticlassEndpoint, OrdinalEndpoint
from mri_vit.report.words.notation import file_name
from mri_vit.settings.schema import Endpoint

DARK = 0.6  # share of a row from which a cell's number is white


class ClassFigures(Figures):
    """A table of calls for each model, and calibration for each class."""

    def draw(
        self, run: Run, endpoint: Endpoint, measured: MulticlassEndpoint | OrdinalEndpoint, survivors: pd.DataFrame
    ) -> Iterator[tuple[str, Figure]]:
        name = endpoint.name
        for model, result in measured.models.items():
            yield file_name("confusion", name, model), confusion(result.confusion, list(result.counts))
        for place, of_class in enumerate(endpoint.classes or ()):
            of_models = {model: result.classes[of_class].calibration for model, result in measured.models.items()}
            known = {model: one for model, one in of_models.items() if one}
            if known:
                bins = {model: one.bins for model, one in known.items()}
                curves = {model: one.curve for model, one in known.items() if one.curve}
                yield file_name("calibration", name, str(place)), endpoint_curves.calibration(bins, curves)


def confusion(found: Confusion, names: list[str]) -> Figure:
    """Patients by the class that they have and that they are called, shaded by the share of the row."""
    counts = np.array(found.counts, dtype=float)
    shares = counts / counts.sum(axis=1, keepdims=True).clip(1)
    with panel(height=SQUARE_INCHES) as (figure, axes):
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > DARK else INK
            axes.text(column, row, f"{count:.0f}", ha="center", va="center", color=colour)
        ticks, labels = range(len(names)), [shortened(name) for name in names]
        axes.set_xticks(ticks, labels, rotation=30 if max(map(len, labels)) > 6 else 0)
        axes.set_yticks(ticks, labels)
        axes.set(xlabel="Called", ylabel="Is")
        axes.grid(False)
    return figure

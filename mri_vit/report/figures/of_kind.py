"""The figures that a kind of endpoint draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from mri_vit.kinds.kind import part
from mri_vit.report.reading.run import Run
from mri_vit.settings.schema import Endpoint


class Figures(ABC):
    """The figures of a kind."""

    @abstractmethod
    def draw(self, run: Run, endpoint: Endpoint, measured: Any, survivors: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
        """Name and figure, one at a time; `measured` is the endpoint's part of `metrics.json` with the models that are shown,
        `survivors` are the Kaplan–Meier curves of all risk groups.
        """


def of(kind: str) -> Figures:
    """The part of a kind that is drawn."""
    return part(kind, "figures")

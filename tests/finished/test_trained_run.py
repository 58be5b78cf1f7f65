"""The mean of what several models say, where some of them say nothing."""

from __future__ import annotations

import pandas as pd
import pytest

from mri_vit.crossval.loop import Tables
from mri_vit.finished import network_outputs
from mri_vit.predictors.regressions import Regressions


def says(*values: float) -> Tables:
    """What a model that tells MGMT says of two patients; without values of one that had nothing to learn from."""
    ids = pd.Index(["P1", "P2"])
    nothing = Regressions(()).predict(pd.DataFrame(index=ids))
    return (pd.DataFrame({"patient": ids, "endpoint": "mgmt", "score": values}), nothing[1]) if values else nothing


def test_the_mean_is_over_the_models_that_say_something_of_an_endpoint():
    mean, survival = network_outputs.averaged([says(), says(0.25, 0.5), says(0.75, 0.5)])
    assert mean.score.tolist() == pytest.approx([0.5, 0.5])
    assert mean.models.tolist() == [2, 2]
    assert survival.empty


def test_of_models_none_of_which_says_anything_the_mean_has_no_rows():
    assert all(table.empty for table in network_outputs.averaged([says(), says()]))

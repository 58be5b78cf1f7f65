"""Two models of classes are compared by all their probabilities, in whatever order the classes stand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from mri_vit.finished.comparison import ranks
from mri_vit.kinds.kind import labels
from mri_vit.report.numbers import comparisons
from mri_vit.report.numbers.measures import of
from mri_vit.settings.schema import Endpoint

TYPE = Endpoint(name="who_type", kind="multiclass", classes=("gbm", "astro", "oligo"))
N = 90


def rows(signal: float, seed: int) -> pd.DataFrame:
    """Two repeats of three folds, as `known_rows` gives them."""
    random, tables = np.random.default_rng(seed), []
    label = np.arange(N) % 3
    for repeat in range(2):
        shares = softmax(signal * np.eye(3)[label] + random.normal(size=(N, 3)), axis=1)
        each = {f"p{place}": shares[:, place] for place in range(3)}
        about = {"patient": [f"p{row:03d}" for row in range(N)], "model": "m", "endpoint": TYPE.name, "repeat": repeat}
        fold = np.random.default_rng(repeat).permutation(N) % 3
        tables.append(
            pd.DataFrame({**about, "fold": fold, "label": label, **each, "score": shares.max(axis=1), "threshold": np.nan})
        )
    return pd.concat(tables, ignore_index=True)


def test_over_repeats_a_better_model_of_classes_is_found_by_the_resampled_test():
    good, poor = rows(2.0, 1), rows(0.0, 2)
    found = comparisons.versus(TYPE, good, poor, 2**0.5)
    assert found is not None
    assert found.nadeau_bengio is not None
    by_hand = [
        of(TYPE).estimate(good.loc[(good.repeat == repeat) & (good.fold == fold)])
        - of(TYPE).estimate(poor.loc[(poor.repeat == repeat) & (poor.fold == fold)])
        for repeat in range(2)
        for fold in range(3)
    ]
    deviation = np.std(by_hand, ddof=1) * np.sqrt(1 / 6 + 30 / 60)
    assert found.nadeau_bengio.t == pytest.approx(np.mean(by_hand) / deviation)
    assert found.nadeau_bengio.p < 0.05


def test_two_runs_and_the_score_of_a_patient_do_not_depend_on_the_order_of_the_classes():
    table = rows(1.0, 3)
    turned = table.rename(columns={"p0": "p2", "p2": "p0"}).assign(label=2 - table.label).reindex(columns=list(table))
    np.testing.assert_allclose(ranks(turned), ranks(table))
    shares = table[["p0", "p1", "p2"]].to_numpy()
    np.testing.assert_allclose(labels(TYPE).one_number(shares), labels(TYPE).one_number(shares[:, ::-1]))


def test_one_patients_score_is_the_same_alone_and_among_others():
    shares = softmax(np.random.default_rng(0).normal(size=(5, 3)), axis=1)
    for kind in ("multiclass", "ordinal"):
        endpoint = Endpoint(name="x", kind=kind, classes=("a", "b", "c"))
        together = labels(endpoint).one_number(shares)
        assert [float(labels(endpoint).one_number(one)) for one in shares] == pytest.approx(together.tolist())
    number = Endpoint(name="y", kind="continuous")
    assert float(labels(number).one_number(np.array([3.5]))) == 3.5

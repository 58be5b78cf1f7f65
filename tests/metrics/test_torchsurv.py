"""Where torchsurv's survival metrics agree with ours and with the references, and where they do not."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pytest
import torch
from torchsurv.metrics.auc import Auc
from torchsurv.metrics.brier_score import BrierScore
from torchsurv.metrics.cindex import ConcordanceIndex
from torchsurv.stats.ipcw import get_ipcw

from mri_vit.metrics import concordance, ipcw


def single(values) -> torch.Tensor:
    return torch.tensor(np.asarray(values, dtype=np.float32))  # torchsurv turns all it is given into single precision


def auc_by_torchsurv(time_days, event, risk, at_days):
    """With weights, and without: its default leaves them out."""
    time, died, days = single(time_days), torch.tensor(event), single(at_days)
    own, then = get_ipcw(died, time), get_ipcw(died, time, days)
    weighted = Auc()(single(risk), died, time, new_time=days, weight=own, weight_new_time=then)
    plain = Auc()(single(risk), died, time, new_time=days)
    return weighted.numpy(), plain.numpy()


@pytest.mark.parametrize("grid", [0.1, 100.0])  # without and with days that a death and a censoring share
def test_torchsurv_agrees_in_single_precision_when_it_is_handed_the_weights(grid):
    generator = np.random.default_rng(13)
    risk = generator.normal(size=60).round(1)
    time_days = np.ceil(generator.exponential(400 * np.exp(-0.5 * risk)) / grid) * grid
    event, at_days = generator.random(60) < 0.7, np.array([100.0, 300])
    predicted = np.exp(-np.outer(np.exp(0.5 * risk), at_days) / 400)
    time, died, days = single(time_days), torch.tensor(event), single(at_days)
    with warnings.catch_warnings(action="ignore"):
        own, then = get_ipcw(died, time), get_ipcw(died, time, days)
        brier = BrierScore()(single(predicted), died, time, new_time=days, weight=own, weight_new_time=then).numpy()
        uno = ConcordanceIndex()(single(risk), died, time, weight=own)
        auc, _ = auc_by_torchsurv(time_days, event, risk, at_days)
    assert auc.dtype == np.float32
    assert auc == pytest.approx(ipcw.cumulative_dynamic_auc(time_days, event, risk, at_days), abs=1e-5)
    assert brier == pytest.approx(ipcw.brier_at(time_days, event, predicted, at_days), abs=1e-5)
    assert float(uno) == pytest.approx(concordance.uno_c(time_days, event, risk), abs=1e-5)


def test_torchsurv_meets_the_reference_of_auc_at_a_day_with_weights_and_misses_it_by_default(oracles):
    entries = json.loads((oracles / "statistics.json").read_text())["references"]
    entry = next(entry for entry in entries if entry["id"] == "tdauc_15")
    columns = {
        name: np.array([float(number) for number in numbers.split(",")])
        for name, numbers in re.findall(r"(time|event|risk|t) (?:= )?(-?[\d.]+(?:, ?-?[\d.]*\d)+)", entry["inputs"])
    }
    with warnings.catch_warnings(action="ignore"):
        weighted, plain = auc_by_torchsurv(columns["time"], columns["event"] == 1, columns["risk"], columns["t"])
    assert weighted == pytest.approx(entry["expected"][:2], abs=entry["tol"])
    assert abs(plain[1] - entry["expected"][1]) > 1e4 * entry["tol"]  # 0.4286, not 0.45: censored patients are forgotten

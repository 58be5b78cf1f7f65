"""The ablation: its table has a row for each change, and a scan is taken away as a patient lacks it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from reproductions.ablation import __main__ as ablation

from mri_vit.data import cohort, tokens
from mri_vit.data.store import all_tokens, token_file
from mri_vit.model import network
from mri_vit.run.files import fold_folder
from mri_vit.settings.schema import CHANNELS, Endpoint, Study
from mri_vit.train.supervised import untrained

REPRODUCTIONS = Path(__file__).parents[3] / "pipelines" / "reproductions"


def test_the_ablations_table_has_a_row_for_each_change_and_tells_no_folder_of_this_machine():
    of = ablation.of_seed(1)
    models = ["vit", *(comparator.name for comparator in of.comparators)]
    models += [f"{name} without {channel}" for name in ("vit", ablation.BEARING) for channel in CHANNELS]
    generator, truth = np.random.default_rng(0), np.arange(60) % 2
    parts = [
        pd.DataFrame(
            {"seed": seed, "labelled": 192, "model": model, "patient": [f"p{i}" for i in range(60)], "truth": truth}
            | {"score": truth * (model != "pool-cls") + generator.normal(0, 0.5, 60)}
        )
        for seed in range(1, 9)  # Student's t between cohorts tells little of two
        for model in models
    ]
    text = ablation.document(pd.concat(parts), of, [1, 2])
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 1 + len(of.comparators) + 1 + 2  # head, recommended, changes; head, two ways of training
    assert str(REPRODUCTIONS) not in text
    worst = next(row for row in rows if '`model.pool = "cls"`' in row)
    assert worst.endswith("| < 0.001 |")
    assert "−0." in worst


@pytest.mark.parametrize("channel", CHANNELS)
def test_without_a_scan_the_score_is_that_of_a_patient_who_lacks_it(tiny: Study, channel: str):
    study = tiny.model_copy(update={"endpoints": (Endpoint(name="mgmt", kind="binary"),)})
    patients = [p for p in cohort.read(study.cohort, study.endpoints)[:6]]
    torch.manual_seed(0)
    net = untrained(patients, study.model_copy(update={"model": study.model.model_copy(update={"zero_head": False})}), 0).eval()
    for fold in range(2):
        fold_folder(study.output, 0, fold).mkdir(parents=True)
        network.save(net, fold_folder(study.output, 0, fold) / "best.safetensors")
    split = [[p.id for p in patients[:3]], [p.id for p in patients[3:]]]
    found = ablation.lacking(study, patients, split, study.output, channel)
    patches, position = all_tokens(tokens.load(token_file(study.prepared, patients[4])), study.model)
    apart = list(patches.chunk(4, dim=2))
    apart[CHANNELS.index(channel)] = torch.zeros_like(apart[0])
    expected = net(torch.cat(apart, dim=2), position)["mgmt"].sigmoid().item()
    assert found[patients[4].subject] == pytest.approx(expected)
    assert found[patients[4].subject] != pytest.approx(net(patches, position)["mgmt"].sigmoid().item(), abs=1e-6)

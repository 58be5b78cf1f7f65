"""Networks that learned another label first: who learns from whom, and what it is worth where a cause is shared, or is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from reproductions.pretraining_size import encoders
from reproductions.pretraining_size.encoders import FINE_TUNED, PROBE, Start, parted, pretraining, scored, starts, steps
from reproductions.pretraining_size.size_effects import measure
from torch import nn

from mri_vit.crossval import folds
from mri_vit.crossval.comparators import networks
from mri_vit.crossval.loop import cross_validate
from mri_vit.data import cohort, predictions, tokens
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.model import baselines
from mri_vit.model.weights import label_exposed
from mri_vit.predictors.network import Neural
from mri_vit.run import files
from mri_vit.settings.recipe import Comparator, Model, Train
from mri_vit.settings.schema import Endpoint, Study
from mri_vit.settings.sections import Grid

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine

TARGETS, OTHERS = 24, 90
LABELS = tuple(Endpoint(name=name, kind="binary") for name in ("mgmt", "same", "coin"))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Prepared patients whose first sequence tells a cause, while the others differ more, and by nothing."""
    home, rng = tmp_path_factory.mktemp("labelled"), np.random.default_rng(0)
    grid = Grid(edge=8, spacing_mm=10.0, patch=2)
    made = Study(
        name="labelled",
        cohort=home / "cohort.csv",
        prepared=home / "prepared",
        output=home / "run",
        grid=grid,
        model=Model(dim=16, depth=1, heads=2, mlp=32, stem=16, pool="mean", tokens="foreground", drop_path=0.0),
        train=Train(
            folds=2,
            seeds=3,
            epochs=8,
            batch_size=8,
            token_budget=0,
            learning_rate=3e-3,
            threads=1,
            val_every=2,
            intensity_jitter=0.0,
        ),
        endpoints=LABELS,
        comparators=(Comparator(name="cnn", model={"architecture": "resnet10"}),),
    )
    rows = ["patient,t1,t1ce,t2,flair,mgmt,same,coin"]
    for index in range(TARGETS + OTHERS):
        name, cause, coin = f"p{index:03d}", index % 2, int(rng.random() < 0.5)
        (made.prepared / name).mkdir(parents=True)
        volume = rng.normal(size=(4, 8, 8, 8)).astype(np.float32)
        volume[0] += 0.8 * (2 * cause - 1)
        volume[1:] += rng.normal(0, 2.0, size=(3, 1, 1, 1))  # nuisance
        brain = np.zeros((8, 8, 8), bool)
        brain[1:7, 1:7, 1:5] = True
        tokens.save(tokens.from_volume(volume, brain, grid, "-"), made.prepared / name / "tokens.safetensors")
        labels = f"{cause},," if index < TARGETS else f",{cause},{coin}"
        rows.append(f"{name},a.nii.gz,b.nii.gz,c.nii.gz,d.nii.gz,{labels}")
    made.cohort.write_text("\n".join(rows) + "\n")
    return made


@pytest.fixture(scope="module")
def patients(study: Study) -> list[Patient]:
    return cohort.read(study.cohort, study.endpoints)


@pytest.fixture
def small_cnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolutional network with batch normalisation, as small as it can be, under a comparator's name."""
    small = replace(
        baselines.BASELINES["resnet10"],
        build=lambda model, channels, size, patch: nn.Sequential(
            nn.Conv3d(channels, 5, 3), nn.BatchNorm3d(5), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()
        ),
        width=5,
        smallest=1,
    )
    monkeypatch.setitem(baselines.BASELINES, "resnet10", small)


def divided(study: Study, targets: list[Patient]) -> list[list[str]]:
    return folds.make(targets, study.endpoints[:1], study.train, study.seed)[0]


def chosen(study: Study, patients: list[Patient], network: str, label: str | None, most: bool = True) -> Start:
    _, others = parted(study, patients)
    found = [s for s in starts(study, others) if s.network == network and (s.label.name if s.label else None) == label]
    return sorted(found, key=lambda start: len(start.learned_from))[-1 if most else 0]


def test_nobody_is_pretrained_on_and_a_target_not_even_at_another_visit(study: Study, patients: list[Patient]):
    again = replace(patients[3], id="p003_late", session="late", labels={"mgmt": np.nan, "same": 1.0, "coin": 0.0})
    targets, others = parted(study, [*patients, again])
    assert len(targets) == TARGETS
    assert [len(found) for found in others.values()] == [OTHERS, OTHERS]
    for found in others.values():
        assert not {p.subject for p in found} & {p.subject for p in targets}
    twice = replace(patients[-1], id=f"{patients[-1].subject}_late", session="late")
    assert len(parted(study, [*patients, twice])[1][LABELS[1]]) == OTHERS  # a person counts once


def test_too_few_patients_and_a_study_without_a_label_to_pretrain_on_are_refused(study: Study, patients: list[Patient]):
    with pytest.raises(UsageError, match="same is known of 10 patients without mgmt; pretraining needs 18 or more"):
        parted(study, patients[: TARGETS + 10])
    with pytest.raises(UsageError, match=r"the others are pretrained on; found mgmt \(binary\)"):
        parted(study.model_copy(update={"endpoints": LABELS[:1]}), patients)


def test_smaller_numbers_are_within_larger_ones_and_both_labels_have_the_same_patients(study: Study, patients: list[Patient]):
    _, others = parted(study, patients)
    found = starts(study, others)
    assert len({start.id for start in found}) == len(found) == 2 * (1 + 2 * 3)  # networks, from scratch and labels at three sizes
    sets = {
        (start.label.name, len(start.learned_from)): {p.id for p in start.learned_from}
        for start in found
        if start.network == "vit" and start.label
    }
    assert sorted(sets) == [("coin", 10), ("coin", 30), ("coin", 90), ("same", 10), ("same", 30), ("same", 90)]
    assert sets["same", 10] < sets["same", 30] < sets["same", 90]
    assert all(sets["same", size] == sets["coin", size] for size in (10, 30, 90))


def test_every_number_of_patients_is_learned_from_for_as_many_steps(study: Study, patients: list[Patient]):
    _, others = parted(study, patients)
    made = [start for start in starts(study, others) if start.network == "vit" and start.label == LABELS[1]]
    counts = {len(start.learned_from): steps(pretraining(start), len(start.learned_from)) for start in made}
    assert counts == {10: 72, 30: 72, 90: 72}  # 8 epochs of 9 steps; 24 of 3; 72 of 1
    evaluations = {pretraining(start).train.epochs // pretraining(start).train.val_every for start in made}
    assert evaluations == {4}


@pytest.mark.slow
@pytest.mark.parametrize("network", ["vit", "cnn"])
def test_from_scratch_it_is_the_study_without_weights_score_for_score(
    network: str, study: Study, patients: list[Patient], tmp_path: Path, small_cnn: None
):
    targets, _ = parted(study, patients)
    split = divided(study, targets)
    found = scored(chosen(study, patients, network, None), targets, split, tmp_path / "starts")
    plain = networks(study)[network].model_copy(update={"endpoints": LABELS[:1], "comparators": ()})
    cross_validate(targets, [split], plain, tmp_path / "plain", network, lambda folder, seed: Neural(plain, folder, seed))
    tables = [predictions.load_seeds(files.fold_folder(tmp_path / "plain", 0, fold) / files.SEEDS) for fold in range(2)]
    expected = pd.concat(tables).set_index(["seed", "patient"]).score.sort_index()
    tuned = found[found.how == FINE_TUNED].set_index(["run", "patient"]).score.sort_index()
    assert len(tuned) == 3 * TARGETS
    assert tuned.tolist() == expected.tolist()


@pytest.mark.slow
def test_what_is_done_is_not_done_again_and_fine_tuned_weights_are_not_kept(
    study: Study, patients: list[Patient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    targets, _ = parted(study, patients)
    start, split = chosen(study, patients, "vit", "same", most=False), divided(study, targets)
    first = scored(start, targets, split, tmp_path)
    assert [file.parent.name for file in tmp_path.rglob("*.safetensors")] == ["pretrained"]
    monkeypatch.setattr(encoders, "pretrained", lambda *_: pytest.fail("it was there"))
    pd.testing.assert_frame_equal(scored(start, targets, split, tmp_path), first)


@pytest.mark.usefixtures("small_cnn")
@pytest.mark.parametrize("network", ["vit", "cnn"])
def test_weights_know_whose_labels_taught_them_and_are_refused_for_these(
    study: Study, patients: list[Patient], tmp_path: Path, network: str
):
    targets, _ = parted(study, patients)
    start, split = chosen(study, patients, network, "same", most=False), divided(study, targets)
    table = scored(start, targets, split, tmp_path)
    assert set(table.how) == {FINE_TUNED, PROBE}
    weights = tmp_path / start.id / "pretrained" / files.WEIGHTS
    assert sorted(label_exposed(weights)) == sorted(p.subject for p in start.learned_from)
    leaking = replace(start.learned_from[0], labels={"mgmt": 1.0, "same": 1.0, "coin": 0.0})
    with pytest.raises(UsageError, match=f"trained on labels of 1 patients .* the first {leaking.id}"):
        encoders.fine_tuned(start, weights, [*targets, leaking], split, tmp_path / "again")


@pytest.mark.slow
@pytest.mark.parametrize("network", ["vit", "cnn"])
def test_a_shared_cause_helps_the_more_the_more_patients_taught_it_and_a_coin_does_not(
    network: str, study: Study, patients: list[Patient], tmp_path: Path, small_cnn: None
):
    targets, others = parted(study, patients)
    split = divided(study, targets)
    wanted = [f"{network}-{learned}" for learned in ("scratch", "same-10", "same-90", "coin-90")]
    asked = [start for start in starts(study, others) if start.id in wanted]
    points = measure(pd.concat([scored(start, targets, split, tmp_path) for start in asked]), network)
    for how in (FINE_TUNED, PROBE):
        mean = {(p.label, p.patients): p.mean for p in points if p.how == how}
        assert mean["same", 90] > mean["", 0] + 0.1
        assert mean["same", 90] > mean["same", 10]
        assert mean["coin", 90] < mean["same", 90] - 0.05
        coin = next(p for p in points if (p.how, p.label) == (how, "coin"))
        assert coin.gain is not None
        assert not (coin.gain.difference > 0 and coin.gain.p_adjusted < 0.05)

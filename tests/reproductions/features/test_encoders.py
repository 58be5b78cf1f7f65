"""Frozen encoders: who learned from whom, how they are read, and what is said of their probes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from reproductions.features import encoders, probe_page
from reproductions.features.encoders import OWN, as_long, beginnings, encoders_compared, made, parted, readings, scored
from reproductions.features.probe_results import Line, Versus, adjusted, mean_auc, measure, of_brightest, versus, wide
from torch import nn

from mri_vit.crossval import folds
from mri_vit.data import cohort, tokens
from mri_vit.data.store import all_tokens, token_file
from mri_vit.errors import UsageError
from mri_vit.features.fitting import CLS, HEADS, MEAN
from mri_vit.metrics.comparison import holm
from mri_vit.metrics.discrimination import auc, auc_interval, delong_paired
from mri_vit.model.weights import image_exposed
from mri_vit.pretrain.encoder import untrained
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Comparator, Pretrain, Study

COMPARATORS = (
    Comparator(name="mae", pretrain={"method": "mae", "epochs": 1, "batch_size": 4}),
    Comparator(name="dino", pretrain={"method": "dino", "epochs": 1, "batch_size": 4}),
    Comparator(name="wide", model={"dim": 32}),  # another network of random weights
    Comparator(name="wide-dino", model={"dim": 32}, pretrain={"method": "dino", "epochs": 1, "batch_size": 4}),
)
RESNET = {"architecture": "resnet10"}

COMPARATOR_THAT_STAYS = Pretrain(method="mae", epochs=1, batch_size=4, learning_rate=1e-12)  # its weights stay where they began


@pytest.fixture
def study(tiny: Study) -> Study:
    """The tiny study with a max pool, one endpoint, a pretrained comparator and one of random weights."""
    model = tiny.model.model_copy(update={"pool": "max"})
    explain = tiny.explain.model_copy(update={"patients": 0, "scored": 0})
    return tiny.model_copy(
        update={"model": model, "endpoints": tiny.endpoints[:1], "comparators": COMPARATORS, "explain": explain}
    )


@pytest.fixture
def people(study: Study) -> list[cohort.Patient]:
    return cohort.read(study.cohort, study.endpoints)


def test_nobody_is_learned_from_who_is_judged_at_another_visit(study: Study, people: list[cohort.Patient]):
    endpoint = study.endpoints[0]
    known, unknown = next(p for p in people if p.knows(endpoint)), next(p for p in people if not p.knows(endpoint))
    again = dataclasses.replace(known, id=f"{known.id}_again", session="again", labels={**known.labels, endpoint.name: math.nan})
    later = dataclasses.replace(unknown, id=f"{unknown.id}_later", session="later")
    labelled, unlabelled = parted([again, *people, later], endpoint)
    assert {p.id for p in labelled} == {p.id for p in people if p.knows(endpoint)}
    assert {p.id for p in unlabelled} == {p.id for p in people if not p.knows(endpoint)}
    assert len(labelled) + len(unlabelled) == len(people)


def test_smaller_sets_lie_within_larger_ones_and_others_learn_from_nobody(study, people):
    found = encoders_compared(study, people)
    learned = [one for one in found if one.name == "mae" and one.start == 0]
    assert [one.scans for one in learned] == [24, 12, 6, 3]
    for large, small in itertools.pairwise(learned):
        assert {p.id for p in small.learned_from} < {p.id for p in large.learned_from}
    assert {one.name for one in found if not one.scans} == {OWN, "wide"}
    assert len({one.id for one in found}) == len(found)


def test_encoders_of_every_number_of_scans_begin_with_the_same_weights(study, people, tmp_path):
    begun: dict[tuple[str, int], list[int]] = defaultdict(list)
    for one in encoders_compared(study, people):
        begun[one.name, one.scans].append(one.start)
    tested = {key: starts for key, starts in begun.items() if key[1] in (0, 24)}
    assert set(map(tuple, tested.values())) == {tuple(range(encoders.STARTS))}
    assert {tuple(starts) for key, starts in begun.items() if key not in tested} == {tuple(range(encoders.FEWER_STARTS))}
    of = study.model_copy(update={"pretrain": COMPARATOR_THAT_STAYS})
    learned, random = (encoders.Frozen(name, of, tuple(some), start=1) for name, some in (("mae", people[:3]), (OWN, [])))
    torch.testing.assert_close(made(learned, tmp_path, 7).state_dict(), made(random, tmp_path, 7).state_dict(), rtol=0, atol=1e-6)
    other = made(dataclasses.replace(random, start=0), tmp_path, 7).state_dict()
    assert not torch.equal(other["position"], made(random, tmp_path, 7).state_dict()["position"])


@pytest.mark.parametrize(("batch", "epochs"), [(4, 10), (20, 60), (50, 7)])
def test_every_number_of_scans_is_learned_from_in_as_many_steps(study, batch, epochs):
    of = study.model_copy(update={"pretrain": study.pretrain.model_copy(update={"batch_size": batch, "epochs": epochs})})
    wanted = epochs * math.ceil(100 / batch)
    for some in (12, 25, 50, 100):
        each = math.ceil(some / min(batch, some))
        assert abs(as_long(of, some, 100).pretrain.epochs * each - wanted) <= each / 2


def test_too_few_scans_to_learn_from_are_refused(study, people):
    with pytest.raises(UsageError, match="found 15 patients without a label"):
        encoders_compared(study, people[:15])


def test_a_shortened_table_learns_from_all_scans_alone(study, people):
    found = encoders_compared(study, people, {1.0: 2})
    assert {one.scans for one in found} == {0, 24}
    assert all([one.start for one in found if one.name == name] == [0, 1] for name in (OWN, "mae", "dino", "wide"))


def test_a_network_of_another_architecture_learns_from_all_scans_alone(study, people):
    more = (*study.comparators, Comparator(name="cnn", model=RESNET, pretrain={"method": "dino", "epochs": 1, "batch_size": 4}))
    found = encoders_compared(study.model_copy(update={"comparators": more}), people)
    assert [one.scans for one in found if one.name == "cnn"] == [24] * encoders.STARTS
    assert {one.scans for one in found if one.name == "dino"} == {3, 6, 12, 24}


def test_encoders_begin_at_the_random_weights_of_their_own_network(study):
    assert beginnings(study) == {"mae": OWN, "dino": OWN, "wide-dino": "wide"}
    without = study.model_copy(update={"comparators": tuple(one for one in study.comparators if one.name != "wide")})
    assert beginnings(without) == {"mae": OWN, "dino": OWN}


def test_random_weights_are_normalised_over_the_scans_that_others_learn_from(study, people, tmp_path):
    of = study.of(Comparator(name="cnn", model=RESNET, pretrain={"batch_size": 5}))
    encoder: Any = made(encoders.Frozen("cnn", of, (), 0, tuple(people[:11])), tmp_path, 1)  # one is left over
    plain: Any = made(encoders.Frozen("cnn", of, ()), tmp_path, 1)
    assert torch.equal(plain.net.bn1.running_mean, torch.zeros(64))
    torch.testing.assert_close(dict(encoder.named_parameters()), dict(plain.named_parameters()), rtol=0, atol=0)
    with torch.no_grad():
        shown = [all_tokens(tokens.load(token_file(of.prepared, p), of.channels), of.model) for p in people[:10]]
        maps = torch.cat([encoder.net.conv1(encoder.volume(*one)) for one in shown])
    torch.testing.assert_close(encoder.net.bn1.running_mean, maps.mean(dim=(0, 2, 3, 4)), rtol=1e-4, atol=1e-5)
    assert encoder.net.bn1.momentum == plain.net.bn1.momentum == 0.1


def test_statistics_that_a_training_left_are_taken_anew_from_whole_scans(study, people, tmp_path):
    of = study.of(Comparator(name="cnn", model=RESNET, pretrain={"batch_size": 5}))
    encoder: Any = made(encoders.Frozen("cnn", of, (), 0, tuple(people[:11])), tmp_path, 1)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.train()
    with torch.no_grad():
        encoder.net(10 * torch.randn(3, len(of.channels), *(of.grid.edge,) * 3))
    assert not torch.allclose(encoder.net.bn1.running_var, before["net.bn1.running_var"])
    encoders.normalise(encoder, people[:11], of)
    torch.testing.assert_close(dict(encoder.state_dict()), before)


def test_what_heads_read_is_cls_and_the_largest_of_the_tokens(study, people):
    torch.manual_seed(0)
    encoder = untrained(study)
    found = readings(encoder, people[:3], study)
    assert set(found) == {CLS, MEAN, HEADS}
    largest = found[HEADS] - found[CLS]
    assert found[HEADS].shape == (3, 16)
    assert (largest > found[MEAN]).all()  # the largest of different numbers is above their mean
    encoder.pool = "cls"
    plain = readings(encoder, people[:3], study)
    assert set(plain) == {CLS, MEAN}
    np.testing.assert_array_equal(plain[CLS], found[CLS])


def test_another_network_is_read_as_its_heads_read_it_in_the_patients_order(study, people):
    class Sum(nn.Module):
        def forward(self, patches: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            return torch.stack([patches.sum(dim=(1, 2)), position.sum(dim=1).float()], dim=1)

    found = readings(Sum(), people[:4], study)
    assert set(found) == {HEADS}
    np.testing.assert_array_equal(readings(Sum(), people[3::-1], study)[HEADS], found[HEADS][::-1])


def test_a_pretrained_encoder_has_seen_its_scans_alone_and_is_not_learned_again(study, people, tmp_path):
    smallest = next(one for one in encoders_compared(study, people) if (one.name, one.scans) == ("mae", 3))
    first = made(smallest, tmp_path, seed=1).state_dict()
    file = tmp_path / smallest.id / "encoder.safetensors"
    assert set(image_exposed(file)) == {p.subject for p in smallest.learned_from}
    written = file.stat().st_mtime_ns
    again = made(smallest, tmp_path, seed=1).state_dict()
    assert file.stat().st_mtime_ns == written
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    random = made(next(one for one in encoders_compared(study, people) if one.name == OWN), tmp_path, seed=1).state_dict()
    assert any(not torch.equal(first[name], random[name]) for name in first)


@pytest.mark.slow
def test_small_shares_are_drawn_often_and_the_whole_once(study, people, tmp_path, monkeypatch):
    monkeypatch.setattr(encoders, "DRAWS", 2)
    monkeypatch.setattr(encoders, "SHARES", (0.5, 1.0))
    labelled = [p for p in people if p.knows(study.endpoints[0])]
    split = folds.make(labelled, study.endpoints, study.train, 0)[0]
    own = next(one for one in encoders_compared(study, people) if one.name == OWN)
    found, note = scored(own, labelled, split, study.endpoints[0], tmp_path, 0)
    assert note == ""
    assert set(found.encoder) == {OWN}
    assert set(found.scans) == {0}
    assert found.columns.tolist() == encoders.SCORES
    assert found.groupby("share").draw.unique().map(sorted).to_dict() == {0.5: [0, 1], 1.0: [0]}
    assert (found.groupby(["features", "probe", "share", "draw"]).patient.nunique() == len(labelled)).all()
    second = dataclasses.replace(own, start=1)
    again, _ = scored(second, labelled, split, study.endpoints[0], tmp_path, 0)
    assert again.draw.tolist() == found.draw.tolist()
    assert (set(found.start), set(again.start)) == ({0}, {1})
    assert again.labelled.tolist() == found.labelled.tolist()
    first, second = (found[(found.share == 0.5) & (found.draw == draw)].score.to_numpy() for draw in (0, 1))
    assert (first != second).any()


def test_a_collapsed_dino_is_told(study, people, tmp_path, monkeypatch):
    monkeypatch.setattr(encoders, "DRAWS", 1)
    monkeypatch.setattr(encoders, "SHARES", (1.0,))
    monkeypatch.setattr(encoders, "collapsed", lambda history: f"collapsed after {len(history)} epochs")
    labelled = [p for p in people if p.knows(study.endpoints[0])]
    split = folds.make(labelled, study.endpoints, study.train, 0)[0]
    learned = {
        one.name: one for one in encoders_compared(study, people) if (one.scans, one.start) == (3, 0) and one.name != "wide-dino"
    }
    told = {name: scored(one, labelled, split, study.endpoints[0], tmp_path, 0)[1] for name, one in learned.items()}
    assert told == {"mae": "", "dino": f"collapsed after {learned['dino'].study.pretrain.epochs} epochs"}


@pytest.mark.parametrize("name", ["features", "features_hard"])
def test_the_shipped_studies_pretrain_and_keep_a_network_of_random_weights(name: str):
    found = study_file.load(Path(__file__).parents[3] / "pipelines" / "reproductions" / "features" / f"{name}.toml")
    assert found.name == name  # by which the pipeline knows whose cohort to make
    methods = {comparator.name: found.of(comparator).pretrain.method for comparator in found.comparators}
    assert methods == {"mae": "mae", "dino": "dino", "resnet10": "none", "resnet10-dino": "dino"}
    assert beginnings(found) == {"mae": OWN, "dino": OWN, "resnet10-dino": "resnet10"}
    assert probe_page.label(found, "resnet10-dino") == "DINO of 3D ResNet-10"
    assert probe_page.label(found, "dino") == "DINO"
    assert probe_page.label(found, OWN) == "ViT, random"
    assert probe_page.label(found, "resnet10").endswith("ResNet-10, random")


TRUTH = np.arange(40) % 2 == 1
PATIENTS = [f"demo-{i:02d}" for i in range(40)]
LABELS = pd.Series(TRUTH.astype(float), index=PATIENTS)


def noisy(strength: float, seed: int) -> np.ndarray:
    return strength * TRUTH + np.random.default_rng(seed).normal(size=40)


def test_the_brightest_voxel_is_told_of_each_sequence_and_a_missing_one_left_out():
    statistics = pd.DataFrame({"t1_max": TRUTH * 1.0, "flair_max": [math.nan, *np.arange(39) % 3]}, index=pd.Index(PATIENTS))
    found = of_brightest(statistics, LABELS, ["t1", "flair"])
    assert found["t1"] == pytest.approx((1.0, *auc_interval(TRUTH, TRUTH * 1.0)))
    assert found["flair"][0] == pytest.approx(auc(TRUTH[1:], np.arange(39) % 3 * 1.0))
    assert "voxel alone has an AUC of 1.000 [0.9" in probe_page.beside(found)
    assert " in T1, " in probe_page.beside(found)
    assert probe_page.beside(found).endswith(" in FLAIR.")
    dark = of_brightest(1 - statistics, LABELS, ["t1"])
    assert probe_page.beside(dark).endswith("it is the darker brains that have the label: 1.000 in T1 turned round.")


def test_one_start_is_the_aucs_own_interval_and_delongs_paired_test():
    ours, theirs = noisy(1.0, 0), noisy(0.3, 1)
    assert mean_auc(TRUTH, ours[None]) == pytest.approx((auc(TRUTH, ours), *auc_interval(TRUTH, ours)))
    told = mean_auc(TRUTH, np.stack([noisy(20.0, 0), noisy(20.0, 1)]))
    assert (told[0], told[2]) == pytest.approx((1, 1))
    assert 0.8 < told[1] < 0.95  # without an error among 20 and 20 patients
    found, known = versus(TRUTH, {0: ours[None]}, {0: theirs[None]}), delong_paired(TRUTH, ours, theirs)
    for key in ("difference", "low", "high", "p"):
        assert getattr(found, key) == pytest.approx(getattr(known, key))


def test_a_draw_twice_counts_once_and_several_average():
    ours, theirs = np.stack([noisy(1.0, 0), noisy(1.0, 2)]), {0: noisy(0.3, 1)[None]}
    found = versus(TRUTH, {0: ours}, theirs)
    assert found.difference == pytest.approx(np.mean([auc(TRUTH, one) for one in ours]) - auc(TRUTH, theirs[0][0]))
    twice = versus(TRUTH, {0: ours.repeat(2, axis=0)}, theirs)
    assert (twice.low, twice.p) == pytest.approx((found.low, found.p))


def test_a_difference_that_hangs_on_the_start_is_not_found_however_many_patients_there_are():
    truth = np.arange(4000) % 2 == 1
    noise = np.random.default_rng(0).normal(size=4000)
    ours, theirs = ({start: (strength * truth + noise)[None] for start, strength in enumerate(of)} for of in ((1, 0), (0, 0)))
    one, both = versus(truth, {0: ours[0]}, theirs), versus(truth, ours, theirs)
    difference = auc(truth, ours[0][0]) - auc(truth, theirs[0][0])
    assert one.p < 1e-10
    assert both.difference == pytest.approx(difference / 2)
    assert both.p == pytest.approx(0.5, abs=1e-3)  # Student's t with one degree of freedom at t = 1
    assert both.high - both.difference == pytest.approx(
        12.706205 * difference / 2, rel=1e-3
    )  # its 97.5th percentile, from a table


def test_equal_scores_do_not_differ_and_what_never_varies_cannot_be_tested():
    ours = {0: noisy(1.0, 0)[None]}
    assert versus(TRUTH, ours, ours).p == 1
    perfect, reverse = ({0: (sign * TRUTH.astype(float))[None]} for sign in (1, -1))
    found = versus(TRUTH, perfect, reverse)
    assert (found.difference, math.isnan(found.p), math.isnan(found.low)) == (1, True, True)


def made_scores(strengths: dict[tuple[str, int], float]) -> pd.DataFrame:
    """Scores of both probes at two shares, the smaller in two draws, from four starts, planted as strongly as is told."""
    rows = []
    for index, ((encoder, scans), strength) in enumerate(strengths.items()):
        for start, probe, (share, draws) in itertools.product(range(4), ("knn", "linear"), ((0.1, 2), (1.0, 1))):
            for draw in range(draws):
                for i, score in enumerate(noisy(strength, 10 * index + 2 * start + draw)):
                    rows.append((encoder, scans, start, HEADS, probe, share, round(32 * share), PATIENTS[i], i // 8, score, draw))
    return pd.DataFrame(rows, columns=pd.Index(encoders.SCORES))


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    strengths = {
        (OWN, 0): 0.0, ("wide", 0): 0.2, ("mae", 12): 0.1, ("mae", 24): 3.0, ("dino", 12): 0.2, ("dino", 24): 0.3,
        ("wide-dino", 24): 0.4,
    }  # fmt: skip
    return measure(made_scores(strengths), LABELS, {"mae": OWN, "dino": OWN, "wide-dino": "wide"})


def test_encoders_of_the_most_scans_alone_are_tested_against_random_weights_read_alike(lines):
    assert len(lines) == 28
    assert {(line.encoder, line.scans) for line in lines if line.test} == {("mae", 24), ("dino", 24), ("wide-dino", 24)}
    strong = next(line for line in lines if (line.encoder, line.scans, line.probe, line.share) == ("mae", 24, "linear", 1.0))
    wide, random = (
        next(line for line in lines if (line.encoder, line.probe, line.share) == (name, "linear", 1.0))
        for name in ("wide-dino", "wide")
    )
    assert wide.test is not None
    assert wide.test.difference == pytest.approx(wide.auc - random.auc)  # of its own network, not of the study's
    start = next(line for line in lines if (line.encoder, line.probe, line.share) == (OWN, "linear", 1.0))
    assert strong.test is not None
    assert strong.test.difference == pytest.approx(strong.auc - start.auc)
    assert strong.test.p_adjusted < 0.05
    assert len(strong.folds) == 5
    assert {(line.starts, line.draws) for line in lines if line.share == 0.1} == {(4, 2)}


def test_a_fold_of_two_draws_has_their_mean_auc(lines):
    line = next(line for line in lines if (line.encoder, line.probe, line.share) == (OWN, "linear", 0.1))
    for fold, value in enumerate(line.folds):
        here = slice(8 * fold, 8 * fold + 8)
        assert value == pytest.approx(np.mean([auc(TRUTH[here], noisy(0.0, seed)[here]) for seed in range(8)]))


def test_holm_corrects_within_a_probe_and_share(lines):
    for family in {(line.probe, line.share) for line in lines}:
        tests = [line.test for line in lines if line.test and (line.probe, line.share) == family]
        assert [test.p_adjusted for test in tests] == pytest.approx(holm(np.array([test.p for test in tests])).tolist())
    assert adjusted(lines) == lines  # from p alone, so it can be done again


def test_the_table_has_a_row_for_each_line_and_a_cell_for_each_number(lines):
    found = wide(lines)
    assert len(found) == len(lines)
    assert found.auc.tolist() == [line.auc for line in lines]
    assert found.low.tolist() == [line.low for line in lines]
    assert found.versus_random_low.dropna().tolist() == [line.test.low for line in lines if line.test]
    assert found.versus_random_p_adjusted.notna().sum() == 12
    assert found.folds.str.split().map(len).eq(5).all()


def test_the_page_says_what_is_better_and_is_complete_in_itself(study, lines, tmp_path):
    page = probe_page.write(study, lines, PATIENTS, ["mae-24: a note & more"], tmp_path)
    text = page.read_text()
    assert "MAE is better (AUC 0.9" in text
    assert "a note &amp; more" in text
    assert "These patients are synthetic" in text
    assert text.count("data:image/svg+xml;base64,") == 1
    assert "http" not in text.replace("http-equiv", "")
    assert "ViT, random" in text
    assert "Epochs at the most scans: MAE 1, DINO (dino) 1, DINO (wide-dino) 1." in text
    assert len(pd.read_csv(tmp_path / "features.csv")) == len(lines)


def test_the_page_says_how_little_tests_of_few_starts_tell(study, lines):
    of_six = [dataclasses.replace(line, starts=encoders.STARTS) for line in lines]
    assert ["next to no degrees" in probe_page.page(study, some, PATIENTS, []) for some in (lines, of_six)] == [True, False]


def test_the_curve_begins_at_random_weights_and_has_every_number_of_scans(study, lines):
    found = probe_page.curves(study, lines)
    assert list(found) == ["MAE", "DINO (dino)"]  # the other learned from one number of scans alone
    assert sorted((line.scans, line.share) for line in found["MAE"]) == [(s, of) for s in (0, 12, 24) for of in (0.1, 1.0)]
    assert {line.probe for line in found["MAE"]} == {"linear"}


def test_a_table_shows_a_pretrained_encoder_at_its_most_scans_alone(study, lines):
    found = probe_page.rows(study, lines)
    assert [name for name, _, probe, _ in found if probe == "linear"] == [
        "ViT, random",
        "ViT, random",
        "MAE",
        "DINO (dino)",
        "DINO (wide-dino)",
    ]
    assert {line.scans for name, _, _, here in found if name == "MAE" for line in here.values()} == {24}


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (Versus(0.2, 0.1, 0.3, 0.001, 0.01), "is better"),
        (Versus(-0.2, -0.3, -0.1, 0.001, 0.01), "is worse"),
        (Versus(0.2, -0.1, 0.5, 0.03, 0.06), "is not different from them"),
        (Versus(0.5, math.nan, math.nan, math.nan, math.nan), "could not be tested"),
    ],
)
def test_a_sentence_follows_the_corrected_p(study, test, words):
    line = Line("mae", 24, HEADS, "linear", 1.0, 32.0, 1, 1, 0.7, 0.6, 0.8, (0.7,), test)
    (sentence,) = probe_page.sentences(study, [line])
    assert words in sentence
    (of_chance,) = probe_page.sentences(study, [dataclasses.replace(line, auc=0.55, low=0.45)])
    assert ("indistinguishable from chance" in of_chance) == (words == "is better")

"""Attention and tumours of prepared patients: what is read, who learned from whom, and what the page says and shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from made.prepared import add_records
from reproductions.segmentation import encoders, overlap_page
from reproductions.segmentation.encoders import (
    RANDOM,
    SUPERVISED,
    EncoderRun,
    attentions,
    brightness,
    encoder_runs,
    made,
    of_brain,
    of_cls,
    subject,
)
from reproductions.segmentation.overlap import Subject, judged
from reproductions.segmentation.overlap_page import titles

from mri_vit.data import cohort, tokens
from mri_vit.data.store import all_tokens, token_file
from mri_vit.data.volume import Volume, write
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.model.weights import image_exposed
from mri_vit.pretrain.encoder import untrained
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Comparator, Study

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine

COMPARATORS = (
    Comparator(name="mae", pretrain={"method": "mae", "epochs": 1, "batch_size": 4}),
    Comparator(name="dino", pretrain={"method": "dino", "epochs": 1, "batch_size": 4, "local_crops": 0}),
)


@pytest.fixture
def study(tiny: Study) -> Study:
    explain = tiny.explain.model_copy(update={"patients": 0, "scored": 0})
    return tiny.model_copy(update={"comparators": COMPARATORS, "explain": explain})


@pytest.fixture
def people(study: Study) -> list[cohort.Patient]:
    return cohort.read(study.cohort, study.endpoints)


def prepared(study: Study, patient: cohort.Patient) -> tokens.Tokens:
    return tokens.load(token_file(study.prepared, patient), study.channels)


def test_attention_is_the_cls_row_of_the_last_blocks_matrices(study, people):
    torch.manual_seed(0)
    encoder = untrained(study).eval()
    patches, position = all_tokens(prepared(study, people[0]), study.model)
    found = of_cls(encoder, patches, position)
    with torch.no_grad():
        row = encoder.attention(patches, position)[-1][:, :, 0]
    torch.testing.assert_close(found, row[:, :, 1:])
    assert found.shape[1] == 2
    torch.testing.assert_close(found.sum(dim=2) + row[:, :, 0], torch.ones(1, 2))


def test_of_a_network_on_all_places_the_brains_alone_are_read(study, people):
    whole = study.model_copy(update={"model": study.model.model_copy(update={"tokens": "all"})})
    torch.manual_seed(0)
    encoder, one = untrained(whole).eval(), prepared(study, people[0])
    every = of_cls(encoder, *all_tokens(one, whole.model))[0].numpy()
    np.testing.assert_array_equal(of_brain(encoder, one, whole), every[:, one.position])
    np.testing.assert_array_equal(of_brain(encoder, one, study), of_cls(encoder, *all_tokens(one, study.model))[0].numpy())


def test_every_encoder_begins_with_the_same_random_weights_and_starts_differ(study, people, tmp_path):
    still = {"train": study.train.model_copy(update={"learning_rate": 1e-12, "epochs": 1})}
    frozen = study.model_copy(update=still | {"pretrain": study.pretrain.model_copy(update={"learning_rate": 1e-12})})
    learners = (people[:8], people[8:12])
    random = made(EncoderRun(RANDOM, frozen, 0), learners, tmp_path).state_dict()
    for name, method in ((SUPERVISED, "none"), ("mae", "mae"), ("dino", "dino")):
        pretrain = frozen.pretrain.model_copy(update={"method": method, "epochs": 1, "batch_size": 4})
        other = made(EncoderRun(name, frozen.model_copy(update={"pretrain": pretrain}), 0), learners, tmp_path).state_dict()
        torch.testing.assert_close(dict(other), dict(random), rtol=0, atol=1e-6)
    second = made(EncoderRun(RANDOM, frozen, 1), learners, tmp_path).state_dict()
    assert not torch.equal(second["cls"] + second["embed.weight"].sum(), random["cls"] + random["embed.weight"].sum())


def test_nobody_who_is_judged_was_learned_from(study, people, tmp_path):
    learners, others = (people[:8], people[8:12]), people[12:]
    for one in (one for one in encoder_runs(study) if one.start == 0):
        found, note = attentions(one, learners, others, tmp_path)
        assert note == "" or one.name == "dino"
        assert [maps.shape for maps in found] == [(2, len(prepared(study, patient).position)) for patient in others]
    for name in ("mae-0", "dino-0"):
        assert set(image_exposed(tmp_path / name / "pretrained.safetensors")) == {p.subject for p in people[:12]}


@pytest.mark.parametrize("name", ["supervised", "mae"])
def test_an_encoder_that_learned_from_somebody_who_is_judged_is_refused(study, people, tmp_path, name):
    one = next(one for one in encoder_runs(study) if one.id == f"{name}-0")
    attentions(one, (people[:8], people[8:12]), people[12:], tmp_path)
    with pytest.raises(IntegrityError, match=f"learned from patient {people[3].subject}, who is judged"):
        attentions(one, (people[:8], people[8:12]), [people[3], *people[12:]], tmp_path)


def test_a_stopped_study_goes_on_with_the_encoders_that_it_has(study, people, tmp_path):
    learners = (people[:8], people[8:12])
    for one in (one for one in encoder_runs(study) if one.start == 0 and one.name != RANDOM):
        first = made(one, learners, tmp_path)
        before = {file: file.stat().st_mtime_ns for file in (tmp_path / one.id).glob("*.safetensors")}
        again = made(one, learners, tmp_path)
        assert before
        assert {file: file.stat().st_mtime_ns for file in before} == before
        torch.testing.assert_close(dict(first.state_dict()), dict(again.state_dict()), rtol=0, atol=0)


def test_networks_without_attention_and_comparators_that_learn_nothing_are_refused(study):
    def of(comparator: Comparator) -> Study:
        return study.model_copy(update={"comparators": (comparator,)})

    with pytest.raises(UsageError, match="cnn: attention is of architecture vit, found resnet10"):
        encoder_runs(of(Comparator(name="cnn", model={"architecture": "resnet10"})))
    with pytest.raises(UsageError, match=r"comparators\.wide: expected a pretrain\.method"):
        encoder_runs(of(Comparator(name="wide", model={"dim": 32})))
    with pytest.raises(UsageError, match="may not be called random or supervised"):
        encoder_runs(of(COMPARATORS[0].model_copy(update={"name": "random"})))


def test_a_place_is_tumour_where_most_of_its_brain_is(study, people, tmp_path):
    patient, one = people[0], prepared(study, people[0])
    add_records(study, [patient.id])
    edge, patch = study.grid.edge, study.grid.patch
    mask = np.zeros((edge,) * 3, np.float32)
    mask[2:4, 2:4, 2:4] = 1  # a whole place, all brain, and ...
    mask[4, 2:4, 2:4] = 3  # ... half of the next, which is not most of it
    write(Volume(mask, np.array(study.grid.affine)), tmp_path / "mask.nii.gz")
    found = subject(replace(patient, tumour_mask=tmp_path / "mask.nii.gz"), study)
    assert found is not None
    side = edge // patch
    assert one.position[found.tumour].tolist() == [(1 * side + 1) * side + 1]
    assert subject(patient, study) is None  # without a mask
    mask[2:4, 2:4, 2:4] = 0  # the half place alone
    write(Volume(mask, np.array(study.grid.affine)), tmp_path / "half.nii.gz")
    assert subject(replace(patient, tumour_mask=tmp_path / "half.nii.gz"), study) is None


def test_brightness_is_the_mean_over_a_places_brain(study, people):
    one = prepared(study, people[0])
    found = brightness(one)
    assert set(found) == {"t1ce", "flair"}
    volume = tokens.to_volume(one).astype(np.float32)
    for index in (0, 7, len(one.position) - 1):
        i, j, k = np.unravel_index(int(one.position[index]), (4, 4, 4))
        patch = volume[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, 2 * k : 2 * k + 2].reshape(4, -1)
        brain = (patch != 0).any(axis=0)
        assert found["flair"][index] == pytest.approx(patch[3][brain].mean(), abs=1e-5)


def test_the_shipped_studies_compare_the_papers_encoders_and_those_between():
    for name in ("segmentation", "segmentation_ucsf_pdgm"):
        found = study_file.load(Path(__file__).parents[3] / "pipelines" / "reproductions" / "segmentation" / f"{name}.toml")
        assert found.name == name  # by which the pipeline knows whose cohort to make
        assert found.model.pool == "cls"
        assert list(titles(found)) == [RANDOM, SUPERVISED, "mae", "dino"]
        assert len(encoder_runs(found)) == 4 * encoders.STARTS


def test_a_drawn_place_is_where_it_is_in_the_brain_and_right_is_on_the_left(study, people):
    one = prepared(study, people[0])
    right = np.unravel_index(one.position.astype(int), (4, 4, 4))[0] >= 2  # x grows to the patient's right
    shown = overlap_page.Shown("-", one, right, {"dino": right})
    bare, drawn = (panel.astype(float) for panel in overlap_page.panels(shown, "flair", ["dino"]))
    changed = np.abs(drawn - bare).sum(axis=2) > 0
    width = changed.shape[1]
    assert changed[:, : width // 2].sum() > 5 * max(1, changed[:, width // 2 :].sum())


def page_of(study: Study, people: list[cohort.Patient], folder: Path, ids: list[str]) -> str:
    rng = np.random.default_rng(0)
    subjects, found = [], {}
    for patient, name in zip(people, ids, strict=True):
        count = len(prepared(study, patient).position)
        inside = np.arange(count) < 4 + len(subjects) % 3
        subjects.append(Subject(name, inside, {"flair": rng.normal(size=count) + 3 * inside}))
    for start in range(2):
        for encoder, strength in (("random", 0.0), ("supervised", 0.1), ("mae", 0.5), ("dino", 30.0)):
            found[encoder, start] = [
                np.stack([rng.gamma(1, size=len(s.tumour)) + strength * one * s.tumour for one in (0, 1)]) for s in subjects
            ]
    table = pd.concat([judged(name, start, maps, subjects, 0) for (name, start), maps in found.items()])
    named = [replace(patient, id=name) for patient, name in zip(people, ids, strict=True)]
    for patient, name in zip(people, ids, strict=True):
        (study.prepared / name).mkdir(exist_ok=True)
        (study.prepared / name / "tokens.safetensors").write_bytes(token_file(study.prepared, patient).read_bytes())
    return overlap_page.write(study, table, found, subjects, named, 12, ["dino-1: a note & more"], folder).read_text()


def test_the_page_says_what_was_found_beside_chance_and_brightness(study, people, tmp_path):
    text = page_of(study, people[:10], tmp_path / "page", [f"demo-{i:03d}" for i in range(10)])
    for said in (
        "DINO is above random weights", "brightest places in FLAIR", "random places", "best head", "a note &amp; more",
        "These patients are synthetic", "Encoders learned from 12 patients; 10 others are judged",
    ):  # fmt: skip
        assert said in text, said
    files = {file.name for file in (tmp_path / "page").iterdir()}
    assert files == {
        "index.html", "jaccard.csv", "means.csv", "tests.csv", "attention.svg", "attention.png", "jaccard.svg", "jaccard.png",
    }  # fmt: skip
    assert len(pd.read_csv(tmp_path / "page" / "jaccard.csv")) == 10 * 4 * 2 * 2 * 2  # patients, encoders, starts, heads, rules


def test_real_patients_are_not_called_synthetic(study, people, tmp_path):
    assert "are synthetic" not in page_of(study, people[:6], tmp_path / "page", [p.id for p in people[:6]])

"""Features from files stand in the comparison: same patients, folds and probes, with their licence, and nobody's labels known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from reproductions.features import encoders, probe_page
from reproductions.features.encoders import DRAWS, OWN, SCORES, probed
from reproductions.features.probe_results import measure

from mri_vit.crossval import folds
from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.features import extraction
from mri_vit.features.extraction import Features, Origin
from mri_vit.features.fitting import CLS, FIRST_TOKEN, MEAN
from mri_vit.settings.schema import Study
from mri_vit.settings.source import LICENCE_NOT_STATED

CUBE = {"edge": 96, "patch": 16, "spacing_mm": 2.333333, "intensity": "zscore", "axes": "RAS"}
ORIGIN = Origin(
    "brainiac.ckpt", "ab" * 32, "CC-BY-NC-4.0", "MONAI ViT", "arXiv:2010.11929", ("t1", "t2"), "concatenate", 12, CUBE
)


@pytest.fixture
def study(tiny: Study) -> Study:
    return tiny.model_copy(update={"endpoints": tiny.endpoints[:1]})


@pytest.fixture
def people(study: Study) -> list[Patient]:
    return [p for p in cohort.read(study.cohort, study.endpoints) if p.knows(study.endpoints[0])]


def told(patients: list[Patient], origin: Origin = ORIGIN) -> Features:
    """Features of which one way of reading tells the label, and another is noise; patients in another order than the cohort's."""
    ordered, random = patients[::-1], np.random.default_rng(1)
    label = np.array([p.labels["mgmt"] for p in ordered])
    clear = random.normal(size=(len(ordered), 6)) + 4 * label[:, None]
    vectors = {MEAN: clear.astype(np.float32), FIRST_TOKEN: random.normal(size=(len(ordered), 3)).astype(np.float32)}
    return Features(origin, tuple(p.id for p in ordered), vectors)


def saved(features: Features, path: Path) -> Path:
    extraction.save_features(features, path)
    return path


@pytest.mark.slow
def test_a_file_is_scored_patient_by_patient_by_the_same_probes(study, people, tmp_path):
    split = folds.make(people, study.endpoints, study.train, study.seed)[0]
    files = encoders.read([saved(told(people), tmp_path / "f.safetensors")], people, [])
    scores = encoders.scored_from_files(files, people, split, study.endpoints[0], 1)
    assert list(scores.columns) == SCORES
    assert set(scores.encoder) == {"MONAI ViT (brainiac)"}
    truth = pd.Series({p.id: p.labels["mgmt"] for p in people})
    lines = {(one.reading, one.probe, one.share): one for one in measure(scores, truth, {})}
    assert lines[MEAN, "linear", 1.0].auc == 1
    assert lines[MEAN, "knn", 1.0].auc > 0.95
    assert lines[FIRST_TOKEN, "linear", 1.0].auc < 0.9
    assert all(line.test is None for line in lines.values())
    ordered = {name: rows[::-1] for name, rows in told(people).vectors.items()}
    expected = probed(ordered, people, split, study.endpoints[0], 1)
    keys = ["features", "probe", "share", "draw", "patient"]
    pd.testing.assert_series_equal(*(one.set_index(keys).score.sort_index() for one in (scores, expected)))


def test_a_patient_without_features_or_whose_label_was_learned_is_refused(people, tmp_path):
    with pytest.raises(UsageError, match=rf"f\.safetensors: no features of 1 patients who are judged, the first {people[-1].id}"):
        encoders.read([saved(told(people[:-1]), tmp_path / "f.safetensors")], people, [])
    origin = dataclasses.replace(ORIGIN, taught=(people[3].subject, "somebody"))
    with pytest.raises(UsageError, match=rf"trained on labels of 1 patients who are judged, the first {people[3].subject}"):
        encoders.read([saved(told(people, origin), tmp_path / "g.safetensors")], people, [])


def test_files_of_one_name_are_told_apart_and_the_same_file_is_not_taken_twice(people, tmp_path):
    other = dataclasses.replace(ORIGIN, weights_sha256="cd" * 32)
    paths = [saved(told(people, origin), tmp_path / f"{i}.safetensors") for i, origin in enumerate((ORIGIN, other))]
    assert list(encoders.read(paths, people, [])) == ["MONAI ViT (brainiac) abababab", "MONAI ViT (brainiac) cdcdcdcd"]
    with pytest.raises(UsageError, match="given twice"):
        encoders.read([*paths, saved(told(people), tmp_path / "again.safetensors")], people, [])


def test_licences_and_seen_scans_are_said(people):
    origin = dataclasses.replace(ORIGIN, licence=LICENCE_NOT_STATED, seen=(people[0].subject,))
    first, second, third = encoders.notes({"a": told(people), "b": told(people, origin)}, people)
    assert "brainiac.ckpt: the licence of these weights, CC-BY-NC-4.0, does not allow commercial use" in first
    assert "is not stated" in second
    assert third == "Transductive: b was pretrained on scans, without labels, of 1 of those who are judged."
    assert encoders.notes({"c": told(people, dataclasses.replace(ORIGIN, licence="CC-BY-4.0"))}, people) == []


@pytest.mark.slow
def test_the_page_and_the_table_show_files_beside_random_weights_with_their_licence(study, people, tmp_path):
    split = folds.make(people, study.endpoints, study.train, study.seed)[0]
    files = encoders.read([saved(told(people), tmp_path / "f.safetensors")], people, [])
    random = np.random.default_rng(2)
    own = [
        probed({CLS: random.normal(size=(len(people), 4))}, people, split, study.endpoints[0], 1).assign(
            encoder=OWN, scans=0, start=start
        )
        for start in (0, 1)
    ]
    scores = pd.concat([*own, encoders.scored_from_files(files, people, split, study.endpoints[0], 1)]).reindex(columns=SCORES)
    lines = measure(scores, pd.Series({p.id: p.labels["mgmt"] for p in people}), {})
    written = probe_page.write(study, lines, [p.id for p in people], encoders.notes(files, people), tmp_path, files)
    text = " ".join(written.read_text().split())
    assert text.count("MONAI ViT (brainiac)") >= 3  # two readings and the table of files
    assert "<td>CC-BY-NC-4.0</td>" in text
    assert "t1, t2 each by itself, put side by side; 96³ voxels of 2.33 mm, axes RAS, zscore" in text
    assert "does not allow commercial use" in text
    assert "abababababababab" in text
    assert "drawn 2 times" in text  # random weights; the file's one start is not counted among them
    assert f"drawn {DRAWS} times" in text
    csv = pd.read_csv(tmp_path / "features.csv")
    assert set(csv[csv.encoder == "MONAI ViT (brainiac)"].licence) == {"CC-BY-NC-4.0"}
    assert csv[csv.encoder == OWN].licence.isna().all()
    without = probe_page.page(study, [line for line in lines if line.encoder == OWN], [p.id for p in people], [])
    assert "Encoders from files" not in without

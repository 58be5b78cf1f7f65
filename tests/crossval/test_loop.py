"""Cross-validation keeps test patients and their labels out of everything that is fitted; whoever tries otherwise is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mri_vit.crossval import folds
from mri_vit.crossval.loop import Guarded, cross_validate, permuted, thresholds
from mri_vit.data import cohort, predictions
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.errors import IntegrityError
from mri_vit.metrics.decision import choose_cutoff, choose_threshold

NO_SURVIVAL = pd.DataFrame({"patient": [], "endpoint": [], "horizon_days": [], "survival": []})


class Spy:
    """A predictor that scores by the number in the patient's id and sees that it is not handed what it must not see."""

    def fit(self, train, val):
        self.fitted = {p.id for p in [*train, *val]}

    def predict(self, patients):
        assert all(math.isnan(v) for p in patients for v in p.labels.values())
        numbers = [float("".join(filter(str.isdigit, p.subject))) for p in patients]
        rows = [
            {"patient": p.id, "endpoint": e, "score": n} for e in ("mgmt", "os") for p, n in zip(patients, numbers, strict=True)
        ]
        return pd.DataFrame(rows), NO_SURVIVAL


def visits(patients: list[Patient]) -> list[Patient]:
    """Every patient twice, as two sessions."""
    return [replace(p, id=f"{p.id}_{s}", session=s) for p in patients for s in ("1", "2")]


def test_every_visit_is_predicted_once_beside_its_label(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    twice = visits(patients)
    splits = folds.make(twice, tiny.endpoints, tiny.train, 0)
    score, _ = cross_validate(twice, splits, tiny, tiny.output, "spy", lambda folder, seed: Spy())
    assert list(score.columns) == predictions.COLUMNS
    assert not score.duplicated(["patient", "session", "endpoint"]).any()
    truth = score[score.endpoint == "mgmt"].set_index(["patient", "session"]).truth
    for p in twice:
        np.testing.assert_equal(truth[p.subject, p.session], p.labels["mgmt"])
    assert (score.groupby("patient").fold.nunique() == 1).all()


def test_a_fitted_predictor_raises_when_it_is_handed_a_test_patients_label(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    guarded = Guarded(Spy())
    guarded.fit(patients[:12], patients[12:16])
    with pytest.raises(
        IntegrityError, match=r"patient p16 was handed to a fitted predictor with its label \(mgmt, os_days, os_event\)"
    ):
        guarded.predict(patients[16:])
    assert len(guarded.predict([without_labels(p) for p in patients[16:]])[0]) == 16


def test_a_leak_of_a_patient_between_the_parts_of_a_fold_raises(tiny):
    patients = visits(cohort.read(tiny.cohort, tiny.endpoints))
    guarded = Guarded(Spy())
    with pytest.raises(IntegrityError, match="patient p00 is in the training and in the validation part"):
        guarded.fit(patients[:1], patients[1:2])
    guarded.fit(patients[:11], patients[12:14])
    with pytest.raises(IntegrityError, match="patient p05 was fitted on"):
        guarded.predict([without_labels(p) for p in patients[11:12]])  # the second session of one who trained
    with pytest.raises(IntegrityError, match="fitted again"):
        guarded.fit(patients[20:], [])


def test_a_threshold_or_cutoff_chosen_on_test_patients_raises():
    truth, score = np.array([True, False, True, False]), np.array([0.9, 0.2, 0.6, 0.4])
    for chosen in (choose_threshold(list("abcd"), truth, score), choose_cutoff(list("abcd"), score)):
        for test in (["d"], ["x", "a"], list("abcd")):
            with pytest.raises(IntegrityError, match="chosen with this patient's score"):
                chosen.apply(test, np.zeros(len(test)))
        assert chosen.apply(["x", "y"], np.array([0.1, 0.95])).tolist() == [False, True]


def test_thresholds_come_from_validation_patients_and_cutoffs_from_all_outside_the_test_fold(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    train, val = patients[:14], patients[14:20]
    spy = Spy()
    spy.fit(train, val)
    chosen = thresholds(spy, train, val, tiny.endpoints)
    known = {p.id for p in val if p.knows(tiny.endpoints[0])}
    assert chosen["mgmt"].patients == known
    assert chosen["os"].patients == {p.id for p in (*train, *val)}
    assert chosen["os"].value == 9.5  # the median of 0 to 19
    one_class = [replace(p, labels=p.labels | {"mgmt": 1.0}) for p in val]
    assert "mgmt" not in thresholds(spy, train, one_class, tiny.endpoints)


def test_every_fold_of_the_table_has_the_threshold_that_was_chosen_without_it(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    splits = folds.make(patients, tiny.endpoints, tiny.train, 0)
    score, _ = cross_validate(patients, splits, tiny, tiny.output, "spy", lambda folder, seed: Spy())
    for fold, ids in enumerate(splits[0]):
        rest = [int(p.id[1:]) for p in patients if p.id not in ids]
        here = score[(score.fold == fold) & (score.endpoint == "os")]
        assert set(here.threshold) == {float(np.median(rest))}


def test_shuffled_labels_keep_each_folds_classes_and_each_patients_visits_together(tiny):
    patients = visits(cohort.read(tiny.cohort, tiny.endpoints))
    split = folds.make(patients, tiny.endpoints, tiny.train, 0)[0]
    others = permuted(patients, split, seed=1, draw=0)
    assert [p.id for p in others] == [p.id for p in patients]
    assert [repr(p.labels) for p in others] != [repr(p.labels) for p in patients]
    for ids in split:
        before, after = (sorted(repr(p.labels) for p in some if p.id in ids) for some in (patients, others))
        assert before == after
    assert all(repr(others[i].labels) == repr(others[i + 1].labels) for i in range(0, len(others), 2))
    assert [repr(p) for p in permuted(patients, split, seed=1, draw=0)] == [repr(p) for p in others]
    assert [repr(p) for p in permuted(patients, split, seed=1, draw=1)] != [repr(p) for p in others]

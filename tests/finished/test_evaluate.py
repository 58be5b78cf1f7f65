"""The settings of an evaluation: the run's own where they made the networks, the other cohort's where they did not."""

from __future__ import annotations

from pathlib import Path

import pytest
from made.study import make_tiny

from mri_vit.errors import UsageError
from mri_vit.finished.evaluate import study_of_other_cohort
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Study


@pytest.fixture
def past(tmp_path: Path) -> Study:
    study = make_tiny(tmp_path)
    explain = study.explain.model_copy(update={"comparators": ("cnn",)})
    return study.model_copy(
        update={"comparators": (Comparator(name="cnn", model={"architecture": "resnet10"}),), "explain": explain}
    )


@pytest.mark.parametrize("given", [set(), {"explain"}])
def test_comparators_whose_maps_the_run_has_have_none_elsewhere(past: Study, given: set[str]):
    other = past.model_copy(update={"name": "other"})
    found = study_of_other_cohort(TrainedRun(past.output, past), other, given)
    assert found.explain.comparators == ()
    assert found.explain.model_dump(exclude={"comparators"}) == past.explain.model_dump(exclude={"comparators"})
    assert found.comparators == past.comparators


def test_what_made_the_networks_cannot_be_changed(past: Study):
    other = past.model_copy(update={"model": past.model.model_copy(update={"dim": 32})})
    with pytest.raises(UsageError, match=r"\[model\] belongs to the run"):
        study_of_other_cohort(TrainedRun(past.output, past), other, {"model"})


def test_a_competing_event_is_counted_in_both_cohorts_or_in_neither(past: Study):
    def competing(study: Study, other: str | None) -> Study:
        survival = (one.model_copy(update={"competing": other}) if one.kind == "survival" else one for one in study.endpoints)
        return study.model_copy(update={"endpoints": tuple(survival)})

    with_one = competing(past, "death of another cause")
    for learned, here in ((with_one, past), (past, with_one)):
        with pytest.raises(UsageError, match="both must count the same deaths"):
            study_of_other_cohort(TrainedRun(past.output, learned), here, set())
    found = study_of_other_cohort(TrainedRun(past.output, with_one), competing(past, "a stroke"), set())
    assert [one.competing for one in found.endpoints if one.kind == "survival"] == ["a stroke"]

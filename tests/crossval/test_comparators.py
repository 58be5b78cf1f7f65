"""Licences of the weights that networks start from are said before training, and go from file to file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mri_vit.crossval import comparators
from mri_vit.data import cohort
from mri_vit.errors import UsageError
from mri_vit.finished.trained_model import beginning_and_licence
from mri_vit.model import network
from mri_vit.model.network import Network
from mri_vit.model.weights import licence_of
from mri_vit.report.words import networks
from mri_vit.settings.recipe import SLICES
from mri_vit.settings.schema import Comparator, Study
from mri_vit.settings.sections import Controls


def starting(study: Study, **keys: object) -> Study:
    return study.model_copy(update={"model": study.model.model_copy(update=keys)})


def test_each_network_that_starts_from_weights_with_a_catch_is_named(tiny: Study):
    other = Comparator(name="late", model={"weights": "other.pt", "weights_licence": "CC-BY-NC-4.0"})
    study = starting(tiny, weights=Path("b16.npz")).model_copy(update={"comparators": (other,)})
    first, second = comparators.cautions(study)
    assert first.startswith("vit: b16.npz: the licence of these weights is not stated")
    assert second.startswith("late: other.pt: the licence of these weights, CC-BY-NC-4.0, does not allow commercial use")
    assert comparators.cautions(starting(tiny, weights=Path("b16.npz"), weights_licence="Apache-2.0")) == []
    assert comparators.cautions(tiny) == []


def test_the_file_that_slices_reads_has_a_licence_as_well(tiny: Study):
    def reading(licence: str | None = None) -> Study:
        controls = Controls(models=(SLICES,), slices=Path("2d.npz"), slices_licence=licence)
        return tiny.model_copy(update={"controls": controls})

    assert comparators.cautions(reading())[0].startswith("slices: 2d.npz: the licence of these weights is not stated")
    assert "CC-BY-NC-4.0, does not allow commercial use" in comparators.cautions(reading("CC-BY-NC-4.0"))[0]
    assert comparators.cautions(reading("Apache-2.0")) == []
    with pytest.raises(ValueError, match="slices_licence is that of the file slices, which is not named"):
        Controls(slices_licence="MIT")


def test_the_report_and_a_prediction_state_the_licence(tiny: Study):
    stated = starting(tiny, weights=Path("/of/somebody/b16.npz"), weights_licence="CC-BY-NC-4.0")
    assert networks.weights_origin(stated) == "started from the weights of b16.npz (licence CC-BY-NC-4.0)"
    pretrained = stated.model_copy(update={"pretrain": stated.pretrain.model_copy(update={"method": "mae"})})
    assert networks.weights_origin(pretrained).endswith("it started from the weights of b16.npz (licence CC-BY-NC-4.0)")
    for study, told in (
        (stated, "licence CC-BY-NC-4.0; b16.npz: the licence"),
        (starting(tiny, weights=Path("x.pt")), "licence not stated"),
    ):
        assert told in beginning_and_licence(study)[1]
        assert "/of/" not in beginning_and_licence(study)[1]


def test_a_network_that_was_trained_from_others_weights_keeps_their_licence_in_its_file(tiny: Study, tmp_path: Path):
    path = tmp_path / "best.safetensors"
    network.save(Network(starting(tiny, weights_licence="CC-BY-NC-4.0").model, tiny.grid, [], tiny.channels), path)
    assert licence_of(path) == "CC-BY-NC-4.0"
    people = cohort.read(tiny.cohort, tiny.endpoints)
    with pytest.raises(
        UsageError, match=r'best\.safetensors: .* which holds on; state it: model\.weights_licence = "CC-BY-NC-4\.0"'
    ):
        comparators.check(starting(tiny, weights=path), people)
    comparators.check(starting(tiny, weights=path, weights_licence="CC-BY-NC-4.0"), people)


def test_a_network_of_random_weights_records_none_and_its_file_is_what_it_was(tiny: Study, tmp_path: Path):
    path = tmp_path / "best.safetensors"
    network.save(Network(tiny.model, tiny.grid, [], tiny.channels), path)
    assert licence_of(path) is None
    assert b"weights_licence" not in path.read_bytes()

"""The keys in words, as --help and the documentation have them."""

from __future__ import annotations

import pytest

from mri_vit.settings.file import Key, keys, study_sections
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Endpoint, Study


@pytest.mark.parametrize("section", [Study, Endpoint, Comparator])
def test_every_key_is_described_in_one_line(section):
    for key in keys(section):
        assert 10 < len(key.description) <= 74, key  # of 80 columns, behind the help's indent
        assert key.description.endswith("."), key
        assert key.kind, key


def test_keys_have_their_type_bounds_and_default_in_words():
    known = {key.name: key for key in keys()}
    assert known["train.epochs"] == Key("train.epochs", "integer ≥ 1", "160", "Passes over a training fold.")
    assert known["train.seeds"].kind == "integer ≥ 1"
    assert (known["train.epochs"].section, known["seed"].section) == ("train", "")
    assert (known["pretrain.method"].kind, known["pretrain.method"].default) == ("none | mae | dino", '"none"')
    assert known["model.drop_path"].kind == "number ≥ 0 and < 1"
    assert (known["controls.models"].kind, known["controls.columns"].default) == (
        "list of clinical | volume | intensity | slices | site | shuffled",
        "unset",
    )
    assert (known["cohort"].kind, known["cohort"].default) == ("path", None)
    assert {key.section for key in keys()} == set(study_sections())

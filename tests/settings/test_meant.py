"""What was meant by a name that nobody knows."""

from __future__ import annotations

import pytest

from mri_vit.settings.file import did_you_mean, keys, nearest_names

KNOWN = [key.name for key in keys()]


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_name_is_meant_whatever_its_case_and_hyphens(name: str):
    assert nearest_names(name, KNOWN) == [name]
    assert nearest_names(f"--{name.upper().replace('_', '-')}", KNOWN) == [name]


@pytest.mark.parametrize("last", sorted({name.rpartition(".")[2] for name in KNOWN} - set(KNOWN)))
def test_the_last_part_of_a_key_means_all_keys_that_end_with_it(last: str):
    assert set(nearest_names(last, KNOWN)) == {name for name in KNOWN if name.split(".")[-1] == last}


@pytest.mark.parametrize("name", [name for name in KNOWN if len(name) > 9])
def test_a_key_with_two_letters_exchanged_is_found(name: str):
    wrong = f"{name[:-3]}{name[-2]}{name[-3]}{name[-1]}"
    assert name in nearest_names(wrong, KNOWN)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("epochs", ["train.epochs", "pretrain.epochs"]),  # the likeliest first
        ("epoch", ["train.epochs", "pretrain.epochs"]),
        ("train.epoch", ["train.epochs"]),
        ("tran.epochs", ["train.epochs"]),
        ("trainepochs", ["train.epochs"]),
        ("out", ["output"]),
        ("learning-rate", ["train.learning_rate", "pretrain.learning_rate"]),
        ("dropout", ["train.modality_dropout"]),
        ("e", []),
        ("zzz", []),
        ("", []),
    ],
)
def test_a_mistake_is_understood(word: str, found: list[str]):
    assert nearest_names(word, KNOWN) == found


def test_where_nothing_is_alike_the_question_is_where_to_look():
    assert did_you_mean("zzz", KNOWN, "see --help") == "see --help"
    assert did_you_mean("patience", KNOWN, "see --help") == "did you mean train.patience?"

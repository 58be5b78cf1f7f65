"""The sequences of a study: which names are allowed, and what the other keys make of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mri_vit.errors import UsageError
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import is_quantitative, named, template_sequence, title, titles
from mri_vit.settings.schema import CHANNELS, Model, Study
from mri_vit.settings.sections import Explain, Prepare

HEAD = 'name = "x"\ncohort = "c.csv"\nprepared = "p"\noutput = "r"\n'
TWO = 'channels = ["t1", "flair"]\n'
PATHS = {"name": "x", "cohort": Path("c.csv"), "prepared": Path("p"), "output": Path("r")}


def loaded(folder: Path, text: str) -> Study:
    (folder / "study.toml").write_text(HEAD + text)
    return study_file.load(folder / "study.toml")


def test_a_study_that_names_no_sequences_has_the_four_and_t1ce_as_reference(tmp_path: Path):
    study = loaded(tmp_path, "")
    assert study.channels == study.prepare.needs == study.model.channels == CHANNELS == ("t1", "t1ce", "t2", "flair")
    assert study.prepare.reference == "t1ce"


def test_what_a_study_of_two_sequences_leaves_out_is_both_of_them(tmp_path: Path):
    study = loaded(
        tmp_path, TWO + '[prepare]\nreference = "t1"\n[[comparators]]\nname = "cnn"\nmodel = {architecture = "resnet10"}\n'
    )
    assert study.prepare.needs == study.model.channels == study.of(study.comparators[0]).model.channels == ("t1", "flair")
    (tmp_path / "again.toml").write_text(study_file.dumps(study))
    assert study_file.load(tmp_path / "again.toml") == study
    made = Study(**PATHS, channels=("t1", "flair"), prepare=Prepare(reference="t1"), model=Model(dim=48))
    assert (made.model.channels, made.model.dim, made.prepare.needs) == (("t1", "flair"), 48, ("t1", "flair"))
    assert Model().channels == Prepare().needs == CHANNELS  # what was handed over stays as it was


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWO, r"prepare\.reference 't1ce', which it is unless it is set, is not among channels \['t1', 'flair'\]; set it"),
        (TWO + '[prepare]\nreference = "t2"\n', r"prepare\.reference 't2' is not among channels"),
        ('channels = ["t1ce", "t1ce"]\n', "channels must differ"),
        ('channels = ["t1ce", "asl_cbf", "aslcbf"]\n', "channels must differ, and by more than _"),
        ("channels = []\n", r"study\.toml, line 5: channels: .*at least 1"),
        ('channels = ["T1ce"]\n', "expected 1 to 32 of the letters a to z, digits and _"),
        ('channels = ["t1ce", "../t1"]\n', "expected 1 to 32 of the letters a to z, digits and _"),
        *((f'channels = ["t1ce", "{name}"]\n', f"'{name}' is a column of another meaning") for name in (
            "patient", "session", "site", "brain_mask", "tumour_mask", "grid", "mgmt", "os_days", "tumour_t1"
        )),
        ('channels = ["t1ce", "a", "b", "c", "d", "e", "f"]\n', "at most 6 with maps: name fewer, or set explain.patients"),
    ],
)  # fmt: skip
def test_names_that_cannot_be_are_refused_with_the_remedy(tmp_path: Path, text: str, message: str):
    with pytest.raises(UsageError, match=message):
        loaded(tmp_path, text)


def test_any_number_of_sequences_goes_without_maps_and_a_convolutional_network_may_read_some():
    many = ("t1ce", *(f"b{value}" for value in range(12)))
    study = Study(**PATHS, channels=many, explain=Explain(patients=0, scored=0))
    assert study.model.channels == many
    cnn = Model(architecture="resnet10", channels=("b3", "t1ce"))
    assert Study(**PATHS, channels=many, explain=Explain(patients=0, scored=0), model=cnn).model.channels == ("b3", "t1ce")


def test_sequences_have_names_for_people_and_maps_of_a_quantity_are_known_by_a_word():
    assert [title(name) for name in (*CHANNELS, "adc", "asl_cbf")] == ["T1", "T1ce", "T2", "FLAIR", "ADC", "ASL CBF"]
    pairs = [(CHANNELS, "t1ce"), (CHANNELS, "t1"), (CHANNELS, "flair"), (("t1", "flair"), "flair"), (("t2", "flair"), "flair")]
    assert [template_sequence(*pair) for pair in pairs] == ["t1ce", "t1", "t1ce", "t1", "flair"]
    assert (titles(["t1"]), titles(["t1", "flair"])) == ("T1", "T1 and FLAIR")
    assert named(CHANNELS) == "T1, contrast-enhanced T1 (T1ce), T2 and FLAIR"
    assert [name for name in (*CHANNELS, "swi", "dwi", "adc", "dti_fa", "asl_cbf", "faint") if is_quantitative(name)] == [
        "adc",
        "dti_fa",
        "asl_cbf",
    ]

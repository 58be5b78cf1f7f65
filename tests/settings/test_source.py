"""Licences that forbid commercial use are known as such, and an absent one is said to be absent."""

from __future__ import annotations

import pytest

from mri_vit.settings.source import LICENCE_NOT_STATED, is_non_commercial, licence_caution, stated_licence

FORBIDDEN = [
    "CC-BY-NC-4.0",
    "cc-by-nc-sa 4.0",
    "CC BY NC ND",
    "CC-BY-NC4.0",
    "Non-Commercial",
    "Non Commercial",
    "noncommercial use",
]
FORBIDDEN += ["not for commercial use", "Research only", "research use only", "for research purposes only", "only for research"]
FORBIDDEN += ["Academic use", "academic research license"]


@pytest.mark.parametrize("licence", FORBIDDEN)
def test_a_licence_that_forbids_commercial_use_is_known_and_said(licence: str):
    assert is_non_commercial(licence)
    assert f"{licence}, does not allow commercial use" in licence_caution("w.pt", licence)


@pytest.mark.parametrize(
    "licence", ["CC-BY-4.0", "Apache-2.0", "MIT", "BSD-3-Clause", "AFL-3.0", "Academic Free License v3.0", "NCSA", "own"]
)
def test_nothing_is_said_of_other_licences(licence: str):
    assert not is_non_commercial(licence)
    assert licence_caution("w.pt", licence) == ""


@pytest.mark.parametrize("licence", [None, "", "  "])
def test_an_absent_licence_is_recorded_and_said(licence: str | None):
    assert stated_licence(licence) == LICENCE_NOT_STATED
    assert "w.pt: the licence of these weights is not stated" in licence_caution("w.pt", stated_licence(licence))

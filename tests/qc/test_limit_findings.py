"""Limits: each figure that is outside has its reason and a sentence, and one that is inside has none."""

from __future__ import annotations

import copy

import pytest
from made.quality import RECORD

from mri_vit.qc import check
from mri_vit.settings.sections import Quality


def reasons(record):
    return [(one.reason, one.scan) for one in check.findings_of("a", record, Quality())]


def test_a_record_within_the_limits_has_no_finding():
    assert reasons(RECORD) == []


@pytest.mark.parametrize(
    ("where", "value", "reason", "scan"),
    [
        (("brain_ml",), 500.0, "volume", ""),
        (("quality", "squeezed"), 0.5, "part missing", ""),
        (("quality", "coverage", "cerebellum"), 0.1, "part missing", ""),
        (("quality", "turned_degrees"), 41.0, "turned", ""),
        (("quality", "middle_degrees"), 9.0, "turned", ""),
        (("quality", "fluid_contrast"), -3.3, "exchanged", "flair t2"),
        (("quality", "fluid_contrast"), 0.0, "indistinguishable", "flair t2"),
        (("quality", "enhancement"), -1.4, "exchanged", "t1ce t1"),
        (("quality", "enhancement"), 0.3, "indistinguishable", "t1ce t1"),
        (("quality", "enhancement"), -0.3, "indistinguishable", "t1ce t1"),
        (("quality", "scans", "t2", "filled"), 0.5, "empty", "t2"),
        (("quality", "scans", "t2", "shading"), 5.0, "shading", "t2"),
        (("quality", "scans", "t2", "ghosts"), 0.1, "ghosts", "t2"),
        (("quality", "scans", "t2", "signal_to_noise"), 2.0, "noise", "t2"),
    ],
)
def test_a_figure_outside_its_limit_is_named(where, value, reason, scan):
    record = copy.deepcopy(RECORD)
    position = record
    for key in where[:-1]:
        position = position[key]
    position[where[-1]] = value
    assert reasons(record) == [(reason, scan)]


@pytest.mark.parametrize(("back", "reason"), [(1.5, "mirrored"), (1.0, "another head"), (None, "another head")])
def test_a_scan_unlike_the_reference_is_mirrored_if_its_mirror_image_is_like_it(back, reason):
    record = copy.deepcopy(RECORD)
    record["quality"]["scans"]["flair"] |= {"own_to_mirrored": 0.9, "reversed": back}
    assert reasons(record) == [(reason, "flair")]


def test_what_cannot_be_told_is_no_finding():
    record = copy.deepcopy(RECORD)
    record["quality"] |= {"fluid_contrast": None, "enhancement": None}
    for one in record["quality"]["scans"].values():
        one |= {"shading": None, "ghosts": None, "signal_to_noise": None}
    assert reasons(record) == []


def test_scans_that_cannot_be_distinguished_are_flagged_and_exclude_nobody_by_default():
    assert "exchanged" in Quality().exclude
    assert "indistinguishable" not in Quality().exclude


def test_a_study_can_widen_a_limit():
    record = copy.deepcopy(RECORD)
    record["quality"]["turned_degrees"] = 41.0
    assert check.findings_of("a", record, Quality(turned_degrees=45.0)) == []


@pytest.mark.parametrize(
    ("found", "doubtful"),
    [
        ({"source": "found", "tumour_ml": 40.0, "confidence": 0.9}, False),
        ({"source": "found", "tumour_ml": 40.0, "confidence": 0.5}, True),
        ({"source": "found", "confidence": 0.0}, True),
        ({"source": "command"}, True),
        ({"source": "given", "tumour_ml": 40.0}, False),
        ({"source": "none"}, False),
    ],
)
def test_a_tumour_that_was_found_but_not_surely_is_flagged_and_excludes_nobody_by_default(found, doubtful):
    record = {**copy.deepcopy(RECORD), "steps": [{"step": "tumour", "methods": "", **found}]}
    assert reasons(record) == [("tumour in doubt", "")] * doubtful
    assert "tumour in doubt" not in Quality().exclude

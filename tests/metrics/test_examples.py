"""The examples in the docstrings of metrics run, and print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import mri_vit.metrics

MODULES = sorted(file.stem for file in Path(mri_vit.metrics.__path__[0]).glob("*.py") if file.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name: str):
    assert doctest.testmod(importlib.import_module(f"mri_vit.metrics.{name}")).failed == 0


@pytest.mark.parametrize("name", ["discrimination", "concordance", "ipcw", "calibration", "decision", "survival"])
def test_a_room_of_measures_has_examples(name: str):
    assert doctest.testmod(importlib.import_module(f"mri_vit.metrics.{name}")).attempted > 0

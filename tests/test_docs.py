"""The documentation says what is so: its examples are settings that a study takes, and its pictures and README stay small."""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/[!_]*.md"))]
NEEDED = {"name": "a", "cohort": "c.csv", "prepared": "p", "output": "o"}
SETTING = re.compile(r"^(\[+\w+\]+|\w+ = )")  # how a line of a study file begins


def examples(page: Path) -> Iterator[dict[str, Any]]:
    """The parts of study files on a page: indented blocks whose every line is a setting, a section or empty."""
    for block in re.findall(r"(?:^(?: {4}.*)?\n)+", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        text = textwrap.dedent(block)
        lines = [line for line in text.splitlines() if line.strip()]
        if lines and all(SETTING.match(line) for line in lines):
            yield tomllib.loads(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_example_of_a_study_file_is_one_that_a_study_takes(page: Path):
    for settings in examples(page):
        Study.model_validate(NEEDED | settings)


def test_the_command_for_maps_of_a_comparator_asks_for_maps():
    text = (ROOT / "docs/howto/comparators.md").read_text(encoding="utf-8")
    options = shlex.split(next(re.finditer(r"mri-vit explain runs/survival ([^`\n]*)", text))[1])
    asked = {name.removeprefix("--"): value for name, value in zip(options[::2], options[1::2], strict=True)}
    study = study_file.load(ROOT / "configs/survival.toml", asked)
    assert study.explain.comparators == ("seresnext50",)
    assert study.explained


def test_the_study_files_of_the_papers_page_are_there_and_those_for_maps_of_comparators_ask_for_maps():
    named = set(re.findall(r"configs/\w+\.toml", (ROOT / "docs/papers.md").read_text(encoding="utf-8")))
    asked = {name: study_file.load(ROOT / name).explain.comparators for name in named}  # a study that makes no maps is refused
    assert {name for name, found in asked.items() if found} == {
        "configs/comparator_maps.toml", "configs/comparator_maps_gbm.toml"
    }  # fmt: skip


def test_examples_are_found():
    assert sum(len(list(examples(page))) for page in PAGES) >= 5


def test_the_readme_is_one_page():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_picture_of_the_documentation_is_small():
    pictures = list((ROOT / "docs" / "pictures").iterdir())
    assert pictures
    assert all(picture.stat().st_size < 200_000 for picture in pictures)

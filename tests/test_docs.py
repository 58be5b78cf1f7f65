"""The documentation says what is so: its examples are settings that a study takes, and its pictures and README stay small."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cyclopts import CycloptsError, MissingArgumentError

from mri_vit import cli
from mri_vit.errors import UsageError
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/[!_]*.md"))]
REPRODUCTIONS = ROOT / "pipelines" / "reproductions"
BESIDE = sorted(REPRODUCTIONS.glob("*/*.md"))  # pages that lie beside the code of a reproduction
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


def commands(page: Path) -> Iterator[tuple[str, bool]]:
    """Every `mri-vit …` of a page's code blocks and inline code, and whether the page shows how it is refused."""
    text = page.read_text(encoding="utf-8")
    for line, below in itertools.pairwise([*text.splitlines(), ""]):
        if shown := re.match(r" {4,}(?:\$ )?(?:\.venv/bin/)?(mri-vit \S.*)", line):
            yield shown[1], below.strip().startswith("mri-vit: ")
    for inline in re.findall(r"`(?:\.venv/bin/)?(mri-vit [^`]*)`", text):
        yield " ".join(inline.split()), False


def words(command: str) -> list[str]:
    """The words of a command behind `mri-vit`, without a comment and what a shell does with the output."""
    lexed = shlex.shlex(command, posix=True, punctuation_chars=">|;&")
    lexed.whitespace_split = True
    return list(itertools.takewhile(lambda word: word not in (">", "|", ";", "&&", "&"), lexed))[1:]


def parsed(given: list[str]) -> dict[str, Any]:
    """The arguments by name, of a command that the parser takes; nothing is run. Values of keys are held against the settings."""
    _, bound, _ = cli.app.parse_args(given, exit_on_error=False, print_error=False)
    keys = bound.arguments.get("overrides", {})
    study_file.load(ROOT / "configs/survival.toml", keys)
    return bound.arguments


DOCUMENTED = [(page, *shown) for page in PAGES if page.name != "changelog.md" for shown in commands(page)]


@pytest.mark.parametrize("page", dict.fromkeys(page for page, *_ in DOCUMENTED), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_parser_takes_every_command_of_the_documentation_and_refuses_what_is_shown_as_refused(page: Path):
    wrong = []
    for command, refused in ((command, refused) for of, command, refused in DOCUMENTED if of == page and "VERB" not in command):
        try:
            parsed(words(command))
        except (CycloptsError, UsageError) as error:
            if not refused and not (isinstance(error, MissingArgumentError) and is_mention(words(command))):
                wrong.append(f"{command}: {error}")
        else:
            if refused:
                wrong.append(f"{command} is shown as refused")
    assert not wrong


def is_mention(given: list[str]) -> bool:
    """Whether a sentence names a verb alone, or leaves out what it is done to."""
    return "…" in given or not any(word.startswith("-") for word in given)


def test_options_that_a_sentence_names_are_taken_by_a_verb_with_the_values_that_it_names():
    complete = [words(command) for _, command, refused in DOCUMENTED if not refused and "…" not in command]
    complete = [given for given in complete if len(given) > 1 and takes(given)]
    scripts = "".join(script.read_text(encoding="utf-8") for script in (ROOT / "pipelines").rglob("*.py"))
    wrong = []
    for page in PAGES:
        for inline in re.findall(r"`(--[a-z][^`]*)`", page.read_text(encoding="utf-8")):
            option, *values = shlex.split(" ".join(inline.split()))
            named = [given for given in complete if option in options(verb_of(given))]
            if not (any(takes([*given, option, *values]) for given in named) if values else named):
                wrong += [f"{page.name}: {inline}"] if f"{option[2:].replace('-', '_')}:" not in scripts else []
    assert not wrong


def test_scripts_that_the_documentation_names_are_there_and_have_the_options_that_it_gives_them():
    wrong = []
    for page in [*PAGES, *(ROOT / "configs").glob("*.toml")]:
        for script, rest in re.findall(r"python (pipelines/[\w/]+\.py)([^`\n;]*)", page.read_text(encoding="utf-8")):
            if script == "pipelines/reproduce.py":
                continue  # the former is held to the scripts of its questions below
            wrong += [f"{page.name}: {script}{rest}"] if not taken_by_script(ROOT / script, rest) else []
    assert not wrong


def test_reproductions_that_the_documentation_names_are_there_with_their_options_and_study_files():
    wrong = []
    shipped = {file.name for file in study_files()}
    for page in [*PAGES, *BESIDE, *study_files()]:
        text = page.read_text(encoding="utf-8")
        commands = re.findall(r"reproduce\.py ([a-z][\w/]*)([^`\n;|]*)", text)
        for question, rest in commands:
            folder = REPRODUCTIONS / question.split("/")[0]
            script = REPRODUCTIONS / f"{question}.py" if "/" in question else folder / "__main__.py"
            missing = [word for word in rest.split() if word.endswith(".toml") and not (folder / word).is_file()]
            wrong += [f"{page.name}: {question}{rest}"] if missing or not taken_by_script(script, rest) else []
        named = re.findall(r"`(?:[\w/]+/)?(\w+\.toml)`", text) if page in [*BESIDE, ROOT / "docs/reproductions.md"] else []
        wrong += [f"{page.name}: {name}" for name in named if name not in shipped]
    assert not wrong


def taken_by_script(script: Path, rest: str) -> bool:
    """Whether a script is there and its parameters have the names of the options in the rest of a command."""
    source = script.read_text(encoding="utf-8") if script.is_file() else ""
    named = [option.removeprefix("no-").replace("-", "_") for option in re.findall(r" --([a-z-]+)", rest)]
    return bool(source) and all(f"{name}:" in source for name in named)


@pytest.mark.parametrize("page", [ROOT / "README.md", *BESIDE], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_pages_that_are_no_part_of_the_built_documentation_lead_to_files(page: Path):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]


def test_a_page_is_at_most_120_lines_and_the_page_of_simulated_effects_60():
    pages = [page for page in PAGES if page.parent.name != "_made"]
    assert not [page.name for page in pages if len(page.read_text(encoding="utf-8").splitlines()) > 120]
    assert len((ROOT / "docs/simulated_effects.md").read_text(encoding="utf-8").splitlines()) <= 60


def test_a_decision_has_at_most_eight_lines_and_states_its_price():
    entries = [entry for page in (ROOT / "docs/decisions").glob("*.md") for entry in page.read_text("utf-8").split("\n### ")[1:]]
    bodies = {title: body.split("\n## ")[0].strip() for title, body in (entry.split("\n", 1) for entry in entries)}
    assert len(bodies) >= 50
    assert not [title for title, body in bodies.items() if len(body.splitlines()) > 8 or "Price:" not in body]


def takes(given: list[str]) -> bool:
    """Whether the parser takes a command; values of keys are not looked at."""
    try:
        cli.app.parse_args(given, exit_on_error=False, print_error=False)
    except CycloptsError:
        return False
    return True


def verb_of(given: list[str]) -> tuple[str, ...]:
    app, verb = cli.app, []
    for word in given:
        if word.startswith("-") or word not in app:
            break
        app = app[word]
        verb.append(word)
    return tuple(verb)


@cache
def options(verb: tuple[str, ...]) -> frozenset[str]:
    """The names of all that a verb takes."""
    app = cli.app
    for word in verb:
        app = app[word]
    return frozenset(name for argument in app.assemble_argument_collection() for name in argument.names)


def test_the_command_for_maps_of_a_comparator_asks_for_maps():
    text = (ROOT / "docs/howto/comparators.md").read_text(encoding="utf-8")
    options = shlex.split(next(re.finditer(r"mri-vit explain runs/survival ([^`\n]*)", text))[1])
    asked = {name.removeprefix("--"): value for name, value in zip(options[::2], options[1::2], strict=True)}
    study = study_file.load(ROOT / "configs/survival.toml", asked)
    assert study.explain.comparators == ("seresnext50",)
    assert study.explained


def test_the_study_files_of_the_reproductions_page_are_there_and_those_for_maps_of_comparators_ask_for_maps():
    named = set(re.findall(r"\w+\.toml", (ROOT / "docs/reproductions.md").read_text(encoding="utf-8")))
    there = {file.name: file for file in study_files()}
    asked = {name: study_file.load(there[name]).explain.comparators for name in named}  # a study that makes no maps is refused
    assert {name for name, models in asked.items() if models} == {"comparator_maps.toml", "comparator_maps_gbm.toml"}


def study_files() -> list[Path]:
    """The study files that ship: those that a user copies, and those of reproductions."""
    return [*(ROOT / "configs").glob("*.toml"), *REPRODUCTIONS.glob("*/*.toml")]


def test_examples_are_found():
    assert sum(len(list(examples(page))) for page in PAGES) >= 5


def test_the_readme_is_one_page():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 90


def test_all_pages_together_have_at_most_30_000_words():
    written = [page for page in PAGES if page.parent.name != "_made"]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in written) <= 30_000


def test_every_picture_of_the_documentation_is_small():
    pictures = list((ROOT / "docs" / "pictures").iterdir())
    assert pictures
    assert all(picture.stat().st_size < 200_000 for picture in pictures)


def test_every_message_that_the_documentation_explains_is_one_of_the_packages():
    source = {text for file in (ROOT / "mri_vit").rglob("*.py") for text in texts(file.read_text(encoding="utf-8"))}
    page = (ROOT / "docs/messages.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| ", page, flags=re.MULTILINE)
    quoted = [message for row in rows for message in re.findall(r"`([^`]+)`", row)]
    forms = {message: re.compile(".*".join(map(re.escape, re.split(" ?… ?", message)))) for message in quoted}
    assert len(rows) >= 30
    assert [message for message, form in forms.items() if not any(map(form.search, source))] == []


def texts(code: str) -> Iterator[str]:
    """Every text of a module, formatted ones with `{}` for each value, spaces made one."""
    for node in ast.walk(ast.parse(code)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "{}" for part in parts)
        yield " ".join(text.split())

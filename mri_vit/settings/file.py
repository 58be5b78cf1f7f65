"""The study file: TOML in, frozen and checked settings out; and back."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pydantic
import tomli_w
from pydantic import BaseModel

from mri_vit.errors import UsageError
from mri_vit.settings import source
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.keys import keys, question, renamed, under_present_names
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Study

EXPECTED = {  # by pydantic's type of error, what a study file is to have there
    "literal_error": "expected {expected}",
    "missing": "is missing",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "expected an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "expected a number"),
    "finite_number": "expected a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "expected true or false"),
    **dict.fromkeys(("string_type", "path_type"), "expected text"),
    **dict.fromkeys(("tuple_type", "list_type"), "expected a list, such as [1, 2]"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "expected a table of keys"),
    "greater_than_equal": "expected at least {ge}",
    "greater_than": "expected more than {gt}",
    "less_than_equal": "expected at most {le}",
    "less_than": "expected less than {lt}",
    "string_pattern_mismatch": "expected text of the pattern {pattern}",
    "too_short": "expected at least {min_length} of them",
    "too_long": "expected at most {max_length} of them",
}
CLASSES = (
    "several classes or grades are a binary endpoint each, with a column of 0 and 1; a number is one, with the side of a cut-off"
)


def load(path: Path, overrides: dict[str, str] | None = None, place: Callable[[str], str] | None = None) -> Study:
    """Read a study file; paths in it are relative to it; `overrides` maps "train.epochs" to "5".

    With `place` the file is a run's own record: `place` makes its paths, and it may have the keys of a version before 0.5.

    Raises UsageError naming the file, the line and the key; an unknown key gets the nearest known one.
    """
    path = Path(path)
    if wrong := source.fault(path):
        raise UsageError(f"{source.shown(path)}: {wrong.replace('no such file', 'no such study file')}")
    try:
        text = path.read_text(encoding="utf-8-sig")
        settings = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"{path}: not a TOML file: brackets within brackets without end") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None
    settings = under_present_names(settings) if place else settings
    for key, value in (overrides or {}).items():
        _override(settings, key, value)
    try:
        study = Study.model_validate(settings)
    except pydantic.ValidationError as error:
        raise UsageError("\n".join(_explain(path, text, fault) for fault in error.errors())) from None
    beside = path.resolve().parent
    # no link is followed, so that a link is found and named
    return with_paths(study, place or (lambda given: os.path.abspath(beside / given)))


def filled(study: Study, **words: Any) -> Study:
    """The study with what stands in braces in its paths replaced, such as "{seed}" by `seed`: one file for several cohorts."""
    return with_paths(study, lambda given: given.format(**words))


def with_paths(study: Study, change: Callable[[str], str]) -> Study:
    """The study with every path changed: folders, a reviewer's table, and its, its comparators' and a control's weights."""
    changed: dict[str, Any] = {key: Path(change(str(getattr(study, key)))) for key in ("cohort", "prepared", "output")}
    if study.model.weights:
        changed["model"] = study.model.model_copy(update={"weights": Path(change(str(study.model.weights)))})
    if study.controls.slices:
        changed["controls"] = study.controls.model_copy(update={"slices": Path(change(str(study.controls.slices)))})
    if study.qc.decisions:
        changed["qc"] = study.qc.model_copy(update={"decisions": Path(change(str(study.qc.decisions)))})
    changed["comparators"] = tuple(
        comparator.model_copy(update={"model": comparator.model | {"weights": change(str(comparator.model["weights"]))}})
        if "weights" in comparator.model
        else comparator
        for comparator in study.comparators
    )
    return study.model_copy(update=changed)


def dumps(study: Study) -> str:
    """The study as TOML, every setting written out; `load` reads it back to the same study."""
    settings = study.model_dump(mode="json", exclude_none=True)
    lists = {name: settings.pop(name) for name in ("endpoints", "comparators")}
    return _table("", "", settings) + "".join(
        _table(f"\n[[{name}]]\n", f"{name}.", entry) for name, entries in lists.items() for entry in entries
    )


def _table(head: str, prefix: str, table: dict[str, Any]) -> str:
    """A table in the order of the schema; its own tables follow it, as TOML wants them."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    tables = {f"{prefix}{key}": value for key, value in table.items() if isinstance(value, dict)}
    own = "".join(_table(f"\n[{name}]\n", f"{name}.", entry) for name, entry in tables.items() if entry)
    return head + tomli_w.dumps(plain) + own


def _override(settings: dict[str, Any], key: str, value: str) -> None:
    *sections, last = key.split(".")
    for section in sections:
        settings = settings.setdefault(section, {})
        if not isinstance(settings, dict):
            raise UsageError(f"--{key}: {section} is not a section of the study file")
    try:
        settings[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        settings[last] = value  # plain text need not be quoted on the command line


def _explain(path: Path, text: str, fault: Any) -> str:
    location = [str(part) for part in fault["loc"]]
    key = location[-1] if location else ""
    line = _line(text, location)
    where = f"{path}, line {line}" if line else f"{path}"
    name = ".".join(location)
    if fault["type"] == "extra_forbidden":
        if new := renamed(".".join(location[-2:])):
            return f"{where}: unknown key {name!r}: {'.'.join(location[-2:])} is now {new}"
        elsewhere = [one.name for one in keys() if one.name.rpartition(".")[2] == key]
        if elsewhere and location[0] not in ("endpoints", "comparators"):  # whose keys are fewer
            return f"{where}: unknown key {name!r}; {question(key, elsewhere)}"
        near = difflib.get_close_matches(key, _section(location[:-1]).model_fields, n=1, cutoff=0.0)
        return f"{where}: unknown key {name!r}; the nearest known one is {near[0]!r}"
    whole = fault["type"] == "missing" or isinstance(fault["input"], dict)  # a whole section is no help to see
    found = "" if whole else f" (found {fault['input']!r})"
    expected = EXPECTED.get(fault["type"])
    said = expected.format(**fault.get("ctx", {})) if expected else fault["msg"].removeprefix("Value error, ")
    cure = f"; {CLASSES}" if location[:1] == ["endpoints"] and key == "kind" and fault["type"] == "literal_error" else ""
    return f"{where}: {name or 'study'}: {said}{found}{cure}"


def _line(text: str, location: Sequence[str]) -> int | None:
    """The line of the file on which a setting stands, or else the nearest of the tables that it would stand in."""
    lines = _lines(text)
    if location[:1] == ["comparators"] and len(location) > 1:  # which are known by their names once they are read
        names = [str(one.get("name")) for one in tomllib.loads(text).get("comparators", []) if isinstance(one, dict)]
        location = ["comparators", str(names.index(location[1])) if location[1] in names else location[1], *location[2:]]
    places = (".".join(location[:length]) for length in range(len(location), 0, -1))
    return next((lines[place] for place in places if place in lines), None)


def _lines(text: str) -> dict[str, int]:
    """The line of each key and table of a TOML file, by its dotted place; tables of an array are counted from 0."""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, row in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*(\[\[?)\s*([\w.\s\"'-]+?)\s*\]", row):
            table = ""
            for part in _parts(head[2]):
                table = f"{table}.{part}".lstrip(".")
                if table in counts and (part, head[1]) != (_parts(head[2])[-1], "[["):
                    table = f"{table}.{counts[table]}"
            if head[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}.{counts[table]}"
            lines[table] = number
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", row):
            lines[".".join(filter(None, [table, *_parts(key[1])]))] = number
    return lines


def _parts(name: str) -> list[str]:
    return [part.strip().strip("\"'") for part in name.split(".")]


def _section(location: list[str]) -> type[BaseModel]:
    """The section at a place of the study file; a comparator's sections have the study's own keys."""
    if location[:1] == ["endpoints"]:
        return Endpoint
    if location[:1] == ["comparators"]:
        return Comparator if len(location) == 2 else _section(location[2:])
    return cast("type[BaseModel]", Study.model_fields[location[0]].annotation) if location else Study

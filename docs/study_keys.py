"""The page of the study file's keys, from the schema itself: every key with its type, limits, default and description."""

from __future__ import annotations

import inspect
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mri_vit.settings.defaults import of_key
from mri_vit.settings.file import RENAMED, RENAMED_LISTS
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Endpoint, Study

HEAD = """# The study file

A study file is TOML. Paths are relative to the file, an unknown key is refused with the nearest known one, and every key can be
given on the command line instead: `mri-vit run study.toml --train.epochs 5`. Only {confval}`name`, {confval}`cohort`,
{confval}`prepared` and {confval}`output` have no default. This page is written from the schema that checks the file.

Once a run has written its `folds.json`, only `[explain]`, `[report]`, `[executor]`, `[slurm]`, {confval}`prepare.workers` and
{confval}`train.workers` may still change; with any other change, choose another {confval}`output`.

## At the top of the file
"""
RENAMED_HEAD = """## Keys of versions before 0.5

A study file or an option with an old key is refused with its present name. Finished runs keep their files: the old keys in a
run's own `study.toml` and in its weights are read as they are. `settings` in `metrics.json` has the present names.

| before 0.5 | now |
|---|---|"""
LISTS: dict[str, type[BaseModel]] = {"endpoints": Endpoint, "comparators": Comparator}  # [[sections]]
WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", Any: "any value"}
LIMITS = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}


def page() -> str:
    """The page as MyST Markdown."""
    plain = {name: field for name, field in Study.model_fields.items() if not _section(field) and name not in LISTS}
    parts = [HEAD, *(_entry(name, field) for name, field in plain.items())]
    for name, field in Study.model_fields.items():
        if section := _section(field):
            parts.append(f"## `[{name}]`\n\n{inspect.getdoc(section)}\n")
            parts += [_entry(f"{name}.{key}", one) for key, one in section.model_fields.items()]
    for name, section in LISTS.items():
        parts.append(f"## `[[{name}]]`\n\n{inspect.getdoc(section)}\n")
        parts += [_entry(f"{name}.{key}", one) for key, one in section.model_fields.items()]
    rows = [f"| `{name}.{old}` | {{confval}}`{name}.{new}` |" for name, keys in RENAMED.items() for old, new in keys.items()]
    lists = [f"| `[[{old}]]` | `[[{new}]]` |" for old, new in RENAMED_LISTS.items()]
    parts += [RENAMED_HEAD, *lists, *rows, ""]
    return "\n".join(parts)


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _entry(key: str, field: FieldInfo) -> str:
    limits = [
        words.format(f"`{value}`")
        for limit in field.metadata
        for name, words in LIMITS.items()
        if (value := getattr(limit, name, None)) is not None
    ]
    default = "none; the key must be given"
    if not field.is_required():
        default = _value(of_key(key, field.get_default(call_default_factory=True)))
    lines = [f":type: {', '.join([_words(field.annotation), *limits])}", f":default: {default}", "", field.description or ""]
    return "\n".join([f"```{{confval}} {key}", *lines, "```", ""])


def _words(kind: Any) -> str:
    """A type in words, such as 'one of `"mae"`, `"dino"`' or "list of text"."""
    if kind in WORDS:
        return WORDS[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(f'`"{value}"`' for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(one) for one in inner if one is not type(None))
    if origin is tuple and inner[-1] is Ellipsis:
        return (
            f"list of {_words(inner[0])}" if inner[0] not in (Endpoint, Comparator) else f"list of {inner[0].__name__.lower()}s"
        )
    if origin is tuple:
        return f"list of {len(inner)} of {_words(inner[0])}"
    return "table" if origin is dict else str(kind)


def _value(value: Any) -> str:
    if value is None or value is PydanticUndefined:
        return "not set"
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }" if value else "{}"
    return f'"{value}"' if isinstance(value, str | Path) else f"{value}"

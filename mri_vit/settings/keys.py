"""The keys of the study file in words: what --help and the documentation list of each."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.recipe import Section
from mri_vit.settings.schema import Study

WORDS = {bool: "true or false", int: "integer", float: "number", str: "text", Path: "path", dict: "table"}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}  # as pydantic keeps them
UNSET = "unset"  # the default of a key that may be left out of the file, and has no value then


@dataclass(frozen=True)
class Key:
    """One key of the study file."""

    name: str  # dotted: "train.epochs"
    kind: str  # its type in words: "integer ≥ 1"
    default: str | None  # as the file has it; None where the file must have it
    description: str

    @property
    def section(self) -> str:
        """The table of the file that holds it; "" for what stands above the first."""
        return self.name.rpartition(".")[0]


def keys(section: type[Section] = Study, prefix: str = "") -> Iterator[Key]:
    """The keys of a section and of the sections in it, in the order of the schema, their names behind `prefix`."""
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from keys(field.annotation, f"{prefix}{name}.")
        else:
            yield Key(f"{prefix}{name}", _kind(field), _default(field), field.description or "")


def sections(study: type[Study] = Study) -> dict[str, str]:
    """What each section of the study file is about, by name; "" is the file's head."""
    found = {"": "The study"}
    for name, field in study.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found[name] = (field.annotation.__doc__ or "").partition("\n")[0].rstrip(".")
    return found


def _kind(field: FieldInfo) -> str:
    bounds = [f"{sign} {getattr(one, name)}" for one in field.metadata for name, sign in BOUNDS.items() if hasattr(one, name)]
    return f"{_type(field.annotation)} {' and '.join(bounds)}".rstrip()


def _type(annotation: Any) -> str:
    """A type in words; None beside it says only that the key may be left out."""
    inner = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return _type(next(one for one in inner if one is not type(None)))
    if get_origin(annotation) is Annotated:
        return _type(inner[0])
    if get_origin(annotation) is Literal:
        return " | ".join(inner)
    if get_origin(annotation) is tuple:
        return f"list of {_type(inner[0])}"
    known = get_origin(annotation) or annotation
    return "tables" if issubclass(known, Section) else WORDS[known]


def _default(field: FieldInfo) -> str | None:
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True)
    if value is None:
        return UNSET
    if isinstance(value, tuple):
        value = [one.name if isinstance(one, Endpoint) else one for one in value]
    return json.dumps(value)  # JSON's numbers, texts, truth values and lists are TOML's too

"""A metrics.json for a test: what the test names, and nothing or a sample of everything else that the schema asks for."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import Part

P = TypeVar("P", bound=Part)


def filled(named: dict[str, Any]) -> Metrics:
    """Metrics of which a test names what matters; the rest is undefined, empty or absent."""
    return part(Metrics, named)


def read(home: Path) -> Metrics:
    """The metrics of a report that was made."""
    return Metrics.model_validate_json((home / "metrics.json").read_text(encoding="utf-8"))


def attributes(found: dict[str, Any]) -> Any:
    """The keys of one part of a file as attributes."""
    return SimpleNamespace(**found)


def part(kind: type[P], named: dict[str, Any] | None = None) -> P:
    """Likewise one part of them."""
    return kind.model_validate(_filled(kind, named or {}))


def sample(kind: Any, number: float = math.nan, many: int = 0) -> Any:
    """A value of a type as the file may hold it: every number is `number`, every list has `many` items."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return sample(inner[0], number, many)
    if origin in (Union, UnionType):
        return None if type(None) in inner and math.isnan(number) else sample(inner[0], number, many)
    if origin is Literal:
        return inner[0]
    if origin is dict:
        return {sample(inner[0]): sample(inner[1], number, many)} if many else {}
    if origin is tuple:
        return [sample(inner[0], number, many)] * many if inner[-1] is ... else [sample(one, number, many) for one in inner]
    if isinstance(kind, type) and issubclass(kind, Part):
        return {key: sample(field.annotation, number, many) for key, field in kind.model_fields.items()}
    return {float: number, int: 0, bool: False, str: "words" if many else ""}.get(kind, {})


def _filled(kind: Any, named: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(named, Part) or named is None:
        return named
    if origin is Annotated:
        return _filled(inner[0], named)
    if origin in (Union, UnionType):
        return _filled(_chosen([one for one in inner if one is not type(None)], named), named)
    if origin is dict:
        return {key: _filled(inner[1], value) for key, value in named.items()}
    if origin is tuple and inner[-1] is ...:
        return [_filled(inner[0], value) for value in named]
    if isinstance(kind, type) and issubclass(kind, Part):
        fields = {field.alias or key: field.annotation for key, field in kind.model_fields.items()}
        return named | {key: _filled(of, named[key]) if key in named else sample(of) for key, of in fields.items()}
    return named


def _chosen(kinds: list[Any], named: Any) -> Any:
    """Of a union, the part that the named keys are of."""
    if not isinstance(named, dict) or not hasattr(kinds[0], "model_fields"):
        return kinds[0]
    kinds = [one for one in kinds if hasattr(one, "model_fields")]  # not the words that may stand in a part's place
    tagged = [one for one in kinds if "kind" in named and sample(one.model_fields["kind"].annotation) == named["kind"]]
    return (tagged or [one for one in kinds if set(named) <= set(one.model_fields)] or kinds)[0]

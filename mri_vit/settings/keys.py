"""Keys: the keys of the study file in words, as --help and the documentation list them, and what a mistyped name may mean."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.recipe import Section
from mri_vit.settings.schema import Study

WORDS = {bool: "true or false", int: "integer", float: "number", str: "text", Path: "path", dict: "table"}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}  # as pydantic keeps them
RENAMED = {  # keys of sections in versions before 0.5, and what they are called now
    "prepare": {"around_tumour_mm": "tumour_crop_margin_mm"},
    "pretrain": {"batch": "batch_size", "rate": "learning_rate"},
    "train": {
        "batch": "batch_size",
        "clip": "grad_clip_norm",
        "embedding_rate": "embedding_lr_factor",
        "frozen": "freeze_fraction",
        "guide_attention": "mask_supervision_attention",
        "guide_encoded": "mask_supervision_token_labels",
        "guide_labels": "mask_supervision_patch_labels",
        "guide_share": "mask_supervision_fraction",
        "guide_tokens": "tumour_tokens_first",
        "intensity": "intensity_jitter",
        "mirror": "flip_lr",
        "move_mm": "translation_mm",
        "rate": "learning_rate",
        "sided": "laterality_endpoints",
        "tune_every": "val_every",
        "tune_fraction": "val_fraction",
    },
    "report": {"planted": "expected_verdicts"},
}
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


def renamed(name: str) -> str:
    """The present name of a key of versions before 0.5: train.learning_rate for train.rate; "" for any other."""
    section, _, key = name.rpartition(".")
    new = RENAMED.get(section, {}).get(key)
    return f"{section}.{new}" if new else ""


def under_present_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a version before 0.5 wrote them, under the present names of their keys; those of comparators too."""
    present = {
        name: {RENAMED[name].get(key, key): value for key, value in table.items()}
        if name in RENAMED and isinstance(table, Mapping)
        else table
        for name, table in settings.items()
    }
    if isinstance(comparators := settings.get("comparators"), list):
        present["comparators"] = [under_present_names(one) if isinstance(one, Mapping) else one for one in comparators]
    return present


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


ALIKE = 0.65  # as out is to output (0.67), and augment is not to target (0.62)
SURELY = 0.8  # as train.epochs is to tran.epochs (0.96), and model.epochs is not (0.61)
TIED = 0.02  # difference of likeness that does not say which of two was meant
FEW = 3  # letters with which to begin a name: out, gpu


def meant(word: str, known: Iterable[str]) -> list[str]:
    """Known names that `word` may stand for, likeliest first; [] where none is like it.

    These are, whichever comes first: names that differ in case, hyphens and leading dashes alone; names of which it is the last
    part, as epochs is of train.epochs; names that are spelled nearly so; names whose last part it begins, or shares whole words
    with, as learning_rate does; names that are spelled alike.
    """
    wanted, plain = _plain(word), {name: _plain(name) for name in known}
    if same := [name for name, spelled in plain.items() if spelled == wanted]:
        return same
    whole = {name: _alike(wanted, spelled) for name, spelled in plain.items()}
    likeliest = sorted(plain, key=lambda name: -whole[name])
    if found := [name for name in likeliest if _last(plain[name]) == _last(wanted)]:
        return found[:1] if "." in wanted and whole[found[0]] >= SURELY else found
    # the section may be missing beside the mistake
    either = whole if "." in wanted else {name: max(whole[name], _alike(wanted, _last(plain[name]))) for name in likeliest}
    return (
        _best(either, likeliest, SURELY)
        or [name for name in likeliest if _begun(_last(plain[name]), _last(wanted))]
        or [name for name in likeliest if _shared_words(_last(plain[name]), _last(wanted))]
        or _best(either, likeliest, ALIKE)
    )


def question(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """What follows "unknown …;": which known names were meant, or `otherwise`, where else to look."""
    found = meant(word, known)
    return f"did you mean {' or '.join(found)}?" if found else otherwise


def _best(likeness: Mapping[str, float], names: list[str], least: float) -> list[str]:
    """Those of the names that are most alike, and as much as `least`."""
    best = max(likeness.values(), default=0.0)
    return [name for name in names if best >= least and likeness[name] >= best - TIED]


def _begun(last: str, wanted: str) -> bool:
    """Whether a name begins so; of a letter or two that would say little."""
    return len(wanted) >= FEW and last.startswith(wanted)


def _shared_words(last: str, wanted: str) -> bool:
    """Whether all words of the one are among the other's."""
    few, many = sorted((set(last.split("_")), set(wanted.split("_"))), key=len)
    return few < many


def _plain(name: str) -> str:
    return name.lstrip("-").lower().replace("-", "_")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()

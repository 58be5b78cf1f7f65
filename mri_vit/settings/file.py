"""The study file: TOML in, frozen and checked settings out; and back."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import pydantic
import tomli_w
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mri_vit.errors import UsageError
from mri_vit.settings import defaults, recipe, source
from mri_vit.settings.defaults import CARD, filled_in
from mri_vit.settings.recipe import Comparator, Section
from mri_vit.settings.schema import COMPETING, ENDPOINT_NAME, Endpoint, Study
from mri_vit.settings.sections import EXECUTORS, Executor, Slurm

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
    "string_pattern_mismatch": "expected {words}",
    "too_short": "expected at least {min_length} of them",
    "too_long": "expected at most {max_length} of them",
}
IN_WORDS = {  # what the patterns of the sections ask for
    f"^{recipe.FILE_NAME}$": "1 to 64 of the letters A to Z and a to z, digits, dots, _ and -, the first a letter or a digit",
    f"^{recipe.SEQUENCE_NAME}$": "1 to 32 of the letters a to z, digits and _, the first a letter",
    f"^{ENDPOINT_NAME}$": "1 to 32 of the letters a to z, digits and _, the first a letter",
    COMPETING: "1 to 60 letters in one line, the first no space",
    EXECUTORS: "local, slurm or dask://host:port",
}
WRITTEN_OUT = "# Every setting is written out, and what is not here is off: the recipe fills nothing in.\n"


def load(path: Path, overrides: dict[str, str] | None = None, place: Callable[[str], str] | None = None) -> Study:
    """Read a study file; paths in it are relative to it; `overrides` maps "train.epochs" to "5".

    Keys that it leaves out are as its recipe has them (`mri_vit.settings.defaults`). With `place` the file is a run's own record:
    `place` makes its paths, it may have the keys of a version before 0.5, and what it leaves out is off.

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
    if place:
        settings = {"recipe": CARD} | under_present_names(settings)
    for key, value in (overrides or {}).items():
        _override(settings, key, value)
    try:
        study = Study.model_validate(filled_in(settings))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
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


def portable(study: Study) -> Study:
    """The study with the names of its folders as the documentation has them, and without what belongs to one machine alone.

    Of weights and programs the file's name stays, which says what they are.
    """
    named = with_paths(study, _last_part)
    programs = {key: tuple(map(_last_part, getattr(named.prepare, key))) for key in ("brain_command", "tumour_command")}
    return named.model_copy(
        update={
            "cohort": Path("cohort.csv"),
            "prepared": Path("prepared"),
            "output": Path("run"),
            "prepare": named.prepare.model_copy(update=programs),
            "qc": named.qc.model_copy(update={"decisions": None}),
            "executor": Executor(),
            "slurm": Slurm(),
        }
    )


def _last_part(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def dumps(study: Study) -> str:
    """The study as TOML, every setting written out; `load` reads it back to the same study."""
    settings = study.model_dump(mode="json", exclude_none=True)
    settings["prepare"]["tumour"] = study.prepare.tumour  # which hashes leave out where it is the default
    lists = {name: settings.pop(name) for name in ("endpoints", "comparators")}
    return (
        WRITTEN_OUT
        + _table("", "", {"recipe": CARD} | settings)
        + "".join(_table(f"\n[[{name}]]\n", f"{name}.", entry) for name, entries in lists.items() for entry in entries)
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
        if key in REMOVED:
            return f"{where}: unknown key {name!r}: it was not shown to help and has been removed; leave it out"
        if new := present_name(".".join(location[-2:])):
            return f"{where}: unknown key {name!r}: {'.'.join(location[-2:])} is now {new}"
        elsewhere = [one.name for one in keys() if one.name.rpartition(".")[2] == key]
        if elsewhere and location[0] not in ("endpoints", "comparators"):  # whose keys are fewer
            return f"{where}: unknown key {name!r}; {did_you_mean(key, elsewhere)}"
        near = difflib.get_close_matches(key, _section(location[:-1]).model_fields, n=1, cutoff=0.0)
        return f"{where}: unknown key {name!r}; the nearest known one is {near[0]!r}"
    whole = fault["type"] == "missing" or isinstance(fault["input"], dict)  # a whole section is no help to see
    found = "" if whole else f" (found {fault['input']!r})"
    expected = EXPECTED.get(fault["type"])
    wanted = expected.format(**_in_words(fault.get("ctx", {}))) if expected else fault["msg"].removeprefix("Value error, ")
    return f"{where}: {name or 'study'}: {wanted}{found}"


def _in_words(context: dict[str, Any]) -> dict[str, Any]:
    """What a value had to be, a pattern in words."""
    return context | {"words": IN_WORDS[context["pattern"]]} if "pattern" in context else context


def _line(text: str, location: Sequence[str]) -> int | None:
    """The line of the file on which a setting stands, or else the nearest of the tables that it would stand in."""
    lines = _lines(text)
    if location[:1] == ["comparators"] and len(location) > 1:  # which are known by their names once they are read
        names = [str(one.get("name")) for one in tomllib.loads(text).get("comparators", []) if isinstance(one, dict)]
        location = ["comparators", str(names.index(location[1])) if location[1] in names else location[1], *location[2:]]
    places = (f"{'.'.join(location[:length])}{first}" for length in range(len(location), 0, -1) for first in ("", ".0"))
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


# Keys: the keys of the study file in words, as --help and the documentation list them, and what a mistyped name may mean.

TYPE_WORDS = {bool: "true or false", int: "integer", float: "number", str: "text", Path: "path", dict: "table"}
BOUND_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}  # as pydantic keeps them
REMOVED = {"mask_supervision_fraction", "guide_share"}  # of [train]: a loss of earlier trainings, which no prediction needs
RENAMED = {  # keys of versions before 0.5, and what they are called now
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
RENAMED_LISTS = {"rivals": "comparators"}  # likewise lists of tables
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
            yield Key(f"{prefix}{name}", _kind(field), _default(f"{prefix}{name}", field), field.description or "")


def present_name(name: str) -> str:
    """The present name of a key of versions before 0.5: train.learning_rate for train.rate; "" for any other.

    Without its section a key has a present name where only one section had it.
    """
    if name in RENAMED_LISTS:
        return RENAMED_LISTS[name]
    section, _, key = name.rpartition(".")
    found = [f"{head}.{names[key]}" for head, names in RENAMED.items() if key in names and section in ("", head)]
    return found[0] if len(found) == 1 else ""


def under_present_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as an earlier version wrote them, under the present names of their keys; those of comparators too."""
    present = {
        RENAMED_LISTS.get(name, name): {RENAMED[name].get(key, key): table[key] for key in table if key not in REMOVED}
        if name in RENAMED and isinstance(table, Mapping)
        else table
        for name, table in settings.items()
    }
    if isinstance(comparators := present.get("comparators"), list):
        present["comparators"] = [under_present_names(one) if isinstance(one, Mapping) else one for one in comparators]
    return present


def study_sections(study: type[Study] = Study) -> dict[str, str]:
    """What each section of the study file is about, by name; "" is the file's head."""
    found = {"": "The study"}
    for name, field in study.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found[name] = (field.annotation.__doc__ or "").partition("\n")[0].rstrip(".")
    return found


def _kind(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(one, name)}" for one in field.metadata for name, sign in BOUND_SIGNS.items() if hasattr(one, name)
    ]
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
    return "tables" if issubclass(known, Section) else TYPE_WORDS[known]


def _default(name: str, field: FieldInfo) -> str | None:
    if field.is_required():
        return None
    value = defaults.of_key(name, field.get_default(call_default_factory=True))
    if value is None:
        return UNSET
    if isinstance(value, tuple):
        value = [one.name if isinstance(one, Endpoint) else one for one in value]
    return json.dumps(value)  # JSON's numbers, texts, truth values and lists are TOML's too


MIN_LIKENESS = 0.65  # as out is to output (0.67), and augment is not to target (0.62)
SURE_LIKENESS = 0.8  # as train.epochs is to tran.epochs (0.96), and model.epochs is not (0.61)
LIKENESS_TIE = 0.02  # difference of likeness that does not say which of two was meant
SHORTEST_START = 3  # letters with which to begin a name: out, gpu


def nearest_names(word: str, known: Iterable[str]) -> list[str]:
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
        return found[:1] if "." in wanted and whole[found[0]] >= SURE_LIKENESS else found
    # the section may be missing beside the mistake
    either = whole if "." in wanted else {name: max(whole[name], _alike(wanted, _last(plain[name]))) for name in likeliest}
    return (
        _best(either, likeliest, SURE_LIKENESS)
        or [name for name in likeliest if _begun(_last(plain[name]), _last(wanted))]
        or [name for name in likeliest if _shared_words(_last(plain[name]), _last(wanted))]
        or _best(either, likeliest, MIN_LIKENESS)
    )


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """What follows "unknown …;": which known names may be meant, or `otherwise`, where else to look."""
    found = nearest_names(word, known)
    return f"did you mean {' or '.join(found)}?" if found else otherwise


def _best(likeness: Mapping[str, float], names: list[str], least: float) -> list[str]:
    """Those of the names that are most alike, and as much as `least`."""
    best = max(likeness.values(), default=0.0)
    return [name for name in names if best >= least and likeness[name] >= best - LIKENESS_TIE]


def _begun(last: str, wanted: str) -> bool:
    """Whether a name begins so; of a letter or two that would say little."""
    return len(wanted) >= SHORTEST_START and last.startswith(wanted)


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


# The demo: its study file, that of a checkout or else a copy of the package's own; and how its made-up patients are known.

DEMO = Path("configs/demo.toml")
DEMO_PATIENT = "demo-"  # how the ids of the built-in cohort's patients begin
DEMO_FOLDER = Path("mri-vit-demo")  # in the current folder; the study keeps its cohort and its run in it, under runs/


def demo_study_file() -> Path:
    """The demo's study file as seen from the current folder, written there where it is missing."""
    if DEMO.exists():
        return DEMO
    own = DEMO_FOLDER / DEMO
    if not own.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes((files("mri_vit.settings") / "demo.toml").read_bytes())
    return own


def all_from_demo(patients: Iterable[str]) -> bool:
    """Whether these are patients of the built-in cohort alone, by their ids; false where there are none."""
    return all(patient.startswith(DEMO_PATIENT) for patient in patients)

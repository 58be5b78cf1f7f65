"""Arguments of verbs and scripts: a study file or run folder with overrides of its keys, checked numbers, and the layout of
--help.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from mri_vit.errors import UsageError
from mri_vit.run import files
from mri_vit.settings.file import Key, keys, study_sections

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

    from mri_vit.settings.schema import Study

SHORT = {"output": "-o", "executor.kind": "--executor"}
COLUMN = 14  # where descriptions of verbs begin


def overrides() -> Any:
    """A TypedDict with an option for each dotted key; keys that are not given are absent, so the file's values stay."""
    groups = {
        name: Group.create_ordered(f"[{name}] {about}" if name else about, help_formatter=HelpLayout())
        for name, about in study_sections().items()
    }
    each = {key.name: Annotated[str, _option(key, groups[key.section])] for key in keys()}
    return TypedDict("Overrides", each, total=False)  # type: ignore[misc]  # the schema knows the keys


def _option(key: Key, group: Group) -> Parameter:
    return Parameter(
        name=f"--{key.name}",  # as in the file; cyclopts on its own writes hyphens for underscores
        alias=SHORT.get(key.name),
        group=group,
        metavar=key.kind,
        show_default=key.default or False,
        help=key.description,
        allow_repeating=True,  # the last one counts, so that a script's options can be overridden in turn
    )


class HelpLayout:
    """Plain text for 80 columns: each argument with type and default, its description below."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one part of the help."""
        if not panel.entries:
            return
        _print(console, f"{panel.title}:")
        for entry in panel.entries:
            about = _text(entry.description)
            if panel.format == "command":
                name = f"  {', '.join(entry.display_labels)}"
                if len(name) >= COLUMN:  # a line of its own
                    _print(console, name)
                    name = ""
                _print(console, _wrapped(f"{name:<{COLUMN}}{about}", options.max_width, COLUMN, ""))
            else:
                _print(console, _wrapped(_head(entry), options.max_width, 6))
                _print(console, textwrap.indent(_wrapped(about, options.max_width - 4, 2), " " * 4))
        console.print()

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print the first line."""
        _print(console, f"Usage: {_text(usage)}\n")


def _head(entry: HelpEntry) -> str:
    names = " ".join([", ".join(entry.display_labels), entry.metavar or ""]).rstrip()
    return f"{names} (default {entry.default})" if entry.default else names


def _wrapped(text: str, width: int, indent: int, first: str = "  ") -> str:
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=" " * indent, break_on_hyphens=False)


def _text(shown: Any) -> str:
    """The plain text of a cyclopts description."""
    shown = getattr(shown, "primary_renderable", shown)
    return str(getattr(shown, "plain", shown) or "").strip()


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


StudyFile = Annotated[Path, Parameter(help="Study file, or the folder of a run.")]
Count = Annotated[int, Parameter(validator=Number(gte=1))]  # of patients, or of parallel jobs
Several = Annotated[int, Parameter(validator=Number(gte=2))]  # at least two, to have a spread
Share = Annotated[float, Parameter(validator=Number(gt=0, lt=1))]
Margin = Annotated[float, Parameter(validator=Number(gt=0, lt=0.5))]  # of an AUC or C, whose best less chance is 0.5
Deaths = Annotated[float, Parameter(validator=Number(gt=0, lte=1))]
Discrimination = Annotated[float, Parameter(validator=Number(gt=0.5, lt=1))]  # an AUC or C
Seed = Annotated[int, Parameter(validator=Number(gte=0))]  # NumPy takes no other
Seeds = Annotated[tuple[int, ...], Parameter(validator=Number(gte=0))]
Output = Parameter(alias="-o")  # of every verb with --output; the key of the study file has it too
if TYPE_CHECKING:
    Overrides = str  # of any key
else:
    Overrides = Unpack[overrides()]


def loaded(study: Path, overrides: dict[str, str]) -> Study:
    """The settings of a study, with the classes that an endpoint leaves to the cohort table; a run's settings name them."""
    settings = as_written(study, overrides)
    if not any(endpoint.lacks_classes for endpoint in settings.endpoints):
        return settings
    from mri_vit.data.cohort import completed  # here, because it takes longer to import, and most studies need none of it

    return completed(settings)


def as_written(study: Path, overrides: dict[str, str]) -> Study:
    """The settings of a study file, or of the run in a folder, with overridden keys."""
    from mri_vit.run import folder
    from mri_vit.settings import file as study_file

    if not os.path.isdir(study):  # unlike Path.is_dir, it takes any name
        return study_file.load(study, overrides)
    here = study.resolve()
    if not (here / files.ENVIRONMENT).exists():  # a folder with a study file in it is no run
        return study_file.load(here / files.STUDY, overrides)
    if "output" in overrides:
        raise UsageError(f"{study} is a run folder, so its output is fixed; leave out --output, or name the study file")
    study_of_run = folder.run_settings(here, overrides)
    return study_of_run.model_copy(update={"output": here})  # it may have been moved since its settings were written


def trained(study: Study) -> Study:
    """The same study. Raises UsageError where its output holds no trained run, before any folder is made."""
    if not (study.output / files.PREDICTIONS).exists():
        raise UsageError(f"{study.output}: no {files.PREDICTIONS}; run `mri-vit train` first")
    return study

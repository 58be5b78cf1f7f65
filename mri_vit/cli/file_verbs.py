"""Verbs on files: make or merge cohort tables, find tumours, list the keys of the study file, print documents' JSON Schema."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter
from rich.console import Group
from rich.table import Table
from rich.text import Text

from mri_vit.cli.arguments import Output, loaded
from mri_vit.errors import UsageError
from mri_vit.settings.file import Key, did_you_mean, keys, present_name, study_sections
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Endpoint

imports = App(name="import", help="Make a cohort table from a data set, DICOM files or a folder.")


@imports.default
def import_layout(layout: str, source: Path, *, output: Annotated[Path, Output], join_similar_ids: bool = False) -> int:
    """Make a cohort table from a published data set, DICOM files or a folder, with the source of every label.

    Parameters
    ----------
    layout
        brats2021, brats2023, rsna_miccai, ucsf_pdgm, upenn_gbm, tcga, mu_glioma_post, rhuh_gbm, brats2020_survival, nnunet or
        bids; plain for a table or folder with common names; auto recognises the layout, else reads the files as plain.
    source
        Folder of scans and tables, or one table; it is not changed.
    output
        Folder for cohort.csv, study.toml, provenance.csv, conflicts.csv and excluded.csv.
    join_similar_ids
        Match ids of the table and of the scans that differ only in zeros, case, punctuation or a prefix, where unambiguous.
    """
    from rich.console import Console

    from mri_vit.importers import import_cohort

    return 3 if import_cohort.import_layout(layout, source, output, Console(), join_similar_ids) else 0


@imports.command(name="dicom")
def import_dicom(
    folder: Path | None = None,
    *,
    output: Annotated[Path, Output],
    labels: Path | None = None,
    join_similar_ids: bool = False,
    also: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    choices: Path | None = None,
    key: Path | None = None,
    dicomweb: Annotated[str, Parameter(show_default=False)] = "",
) -> int:
    """Make a cohort from DICOM: checks, identifies and converts each series, hashes the ids, keeps nothing else of the headers.

    Parameters
    ----------
    folder
        Folder of DICOM files, at any depth and with any names; they are not changed.
    output
        Folder for cohort.csv, study.toml, the scans, and series.csv, which gives each series' sequence and the reason.
    labels
        Table of labels and clinical columns, by the PatientID of the headers.
    join_similar_ids
        Match ids of the table and of the headers that differ only in zeros, case, punctuation or a prefix, where unambiguous.
    also
        Further sequences: adc, swi or asl; repeat the option for each.
    choices
        A copy of series.csv, its column chosen edited where another series should be used.
    key
        File of the key that hashes the ids; by default OUTPUT.key beside the output.
    dicomweb
        Address of a DICOMweb server on this machine, instead of a folder.
    """
    from rich.console import Console

    from mri_vit.importers import import_cohort

    if (folder is None) == (not dicomweb):
        raise UsageError("expected either a folder of DICOM files or a server's address in --dicomweb")
    source = folder or dicomweb
    return 3 if import_cohort.import_dicom(source, output, Console(), key, choices, also, labels, join_similar_ids) else 0


cohorts = App(name="cohort", help="Merge cohort tables, each patient once.")


@cohorts.command(name="merge")
def merge_cohorts(*tables: Path, output: Annotated[Path, Output], study: Path | None = None) -> int:
    """Merge cohort TABLES into one that lists each person once, with all labels.

    Parameters
    ----------
    tables
        Two or more cohort tables, or folders with a cohort.csv.
    output
        Folder for cohort.csv, study.toml, people.csv, conflicts.csv and alike.csv.
    study
        Study file: its endpoints name the label columns, its key prefer the cohort that wins where labels disagree.
    """
    from rich.console import Console

    from mri_vit.importers.join import join
    from mri_vit.settings import file as study_file

    endpoints = study_file.load(study, {}).endpoints if study else ()
    return 3 if join(tables, output, endpoints, Console()) else 0


def tumour(scans: Annotated[Path, Parameter(alias="--cohort")], *, output: Annotated[Path, Output]) -> int:
    """Find the tumours in SCANS: masks, pictures and a table.

    Parameters
    ----------
    scans
        One patient's folder of NIfTI files or DICOM series; or a table with the columns patient and flair, t2, which makes masks
        better, and t1ce and t1, which help to find the brain.
    output
        Folder for the masks, the pictures and tumours.csv.
    """
    from rich.console import Console

    from mri_vit.tumours import find_tumours

    return 3 if find_tumours(scans, output, Console()) else 0


def settings(key: str = "", /) -> None:
    """List the keys of the study file, or what a study file comes to.

    A terminal shows keys by section; otherwise one key per line, tab-separated.

    Parameters
    ----------
    key
        A section (train), a key (train.epochs) or its last part (epochs); by default all. Or a study file (study.toml) or a run's
        folder: every setting as it is resolved.
    """
    from rich.console import Console

    if key.endswith(".toml") or os.path.isdir(key):
        from mri_vit.settings.file import dumps

        print(dumps(loaded(Path(key), {})), end="")
        return
    listed, console = find_keys(key), Console()
    if console.is_terminal:
        console.print(key_table(listed))
    else:
        for line in key_lines(listed):
            print(line)


def schema(
    *, of: Literal["report", "check", "comparison", "prediction"] = "report", output: Annotated[Path | None, Output] = None
) -> None:
    """Print the JSON Schema of metrics.json or another document.

    Parameters
    ----------
    of
        report: metrics.json; check: output of `check --json`; comparison: comparison.json; prediction: prediction.json.
    output
        File for the schema; by default it is printed.
    """
    import json

    from mri_vit.finished import comparison
    from mri_vit.finished import prediction_document as prediction
    from mri_vit.preflight import document
    from mri_vit.report.schema import metrics
    from mri_vit.run.atomic import write_bytes

    documents = {"report": metrics, "check": document, "comparison": comparison, "prediction": prediction}
    text = json.dumps(documents[of].json_schema(), indent=1, ensure_ascii=False)
    if output:
        write_bytes(f"{text}\n".encode(), output)
    else:
        print(text)


LISTS = {"endpoints": Endpoint, "comparators": Comparator}  # [[sections]], of which a file may have several


def find_keys(name: str = "") -> list[Key]:
    """The keys of a section, or of this name or last part; all for "".

    Raises UsageError with the closest match where there is none.
    """
    known = [*keys(), *(key for head, section in LISTS.items() for key in keys(section, f"{head}."))]
    wanted = name.strip("-[]")
    matching = (
        known
        if not wanted
        else [key for key in known if key.section == wanted] or [key for key in known if f".{key.name}".endswith(f".{wanted}")]
    )
    if new := present_name(wanted):
        raise UsageError(f"unknown key {name}: it is now {new}")
    if not matching:
        answer = did_you_mean(
            wanted, [*filter(None, section_titles()), *(key.name for key in known)], "`mri-vit settings` lists all"
        )
        raise UsageError(f"unknown key {name}; {answer}")
    return matching


def section_titles() -> dict[str, str]:
    """The title of each section and list, by name."""
    return {
        **study_sections(),
        **{name: (section.__doc__ or "").partition("\n")[0].rstrip(".") for name, section in LISTS.items()},
    }


def key_lines(listed: Sequence[Key]) -> Iterator[str]:
    """One line per key: name, type, default and description, tab-separated."""
    for key in listed:
        yield "\t".join([key.name, key.kind, _default(key), key.description])


def key_table(listed: Sequence[Key]) -> Group:
    """A table per section: name beside type, default and description."""
    width = max(len(key.name) for key in listed)  # the same in every section
    shown = []
    for name, about in section_titles().items():
        if rows := [key for key in listed if key.section == name]:
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_column(min_width=width, no_wrap=True)
            grid.add_column()
            for key in rows:
                description = Text.assemble((key.kind, "cyan"), f", {_default(key)}\n", (key.description, "dim"))
                grid.add_row(Text(key.name, style="bold"), description)
            shown += [Text.assemble((_bracketed(name), "bold green"), f"{about}\n"), grid, Text()]
    return Group(*shown[:-1])


def _bracketed(name: str) -> str:
    if name in LISTS:
        return f"[[{name}]] "
    return f"[{name}] " if name else ""


def _default(key: Key) -> str:
    return "must be given" if key.default is None else f"default {key.default}"

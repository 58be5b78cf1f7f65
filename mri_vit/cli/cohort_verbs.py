"""The command line's verbs that make cohort tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from mri_vit.cli.arguments import Output
from mri_vit.errors import UsageError

imports = App(name="import", help="A cohort table of what others publish or store, with the origin of every label.")


@imports.default
def import_layout(layout: str, source: Path, *, output: Annotated[Path, Output], join_similar_ids: bool = False) -> int:
    """A cohort table of what others publish or store, with the origin of every label.

    Parameters
    ----------
    layout
        One of auto, which looks for itself and reads what is not of the layout as plain; brats2021, brats2023, rsna_miccai,
        ucsf_pdgm, upenn_gbm, tcga, mu_glioma_post, rhuh_gbm, brats2020_survival, nnunet, bids; and plain, a table or folder under
        common names.
    source
        Folder of scans and tables, or one table; it stays as it is.
    output
        Folder for cohort.csv, study.toml, provenance.csv, conflicts.csv and excluded.csv.
    join_similar_ids
        Join ids of a table to those of the scans that differ only in zeros, case, signs or a prefix, where unambiguous.
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
    """A cohort of DICOM: series checked, told apart and converted, ids hashed, nothing of the headers kept.

    Parameters
    ----------
    folder
        Folder of DICOM files, at any depth and under any names; they stay as they are.
    output
        Folder for cohort.csv, study.toml, the scans, and series.csv, which says of every series what it was taken for and why.
    labels
        Table of what is known of the patients, under the PatientID of the headers.
    join_similar_ids
        Join its ids to those of the headers that differ only in zeros, case, signs or a prefix, where unambiguous.
    also
        Further sequences: adc, swi, asl; give it once for each.
    choices
        A copy of series.csv with the column chosen edited, where another series is right.
    key
        File of the key by which ids are hashed; OUTPUT.key beside the output where not given.
    dicomweb
        Address of a DICOMweb server on this machine, in place of a folder.
    """
    from rich.console import Console

    from mri_vit.importers import import_cohort

    if (folder is None) == (not dicomweb):
        raise UsageError("expected a folder of DICOM files, or the address of a server by --dicomweb")
    source = folder or dicomweb
    return 3 if import_cohort.import_dicom(source, output, Console(), key, choices, also, labels, join_similar_ids) else 0


cohorts = App(name="cohort", help="Cohort tables: merge several, no patient twice.")


@cohorts.command(name="merge")
def merge_cohorts(*tables: Path, output: Annotated[Path, Output], study: Path | None = None) -> int:
    """Merge cohort TABLES into one in which every person stands once, with all labels.

    Parameters
    ----------
    tables
        Two or more cohort tables, or folders with a cohort.csv.
    output
        Folder for cohort.csv, study.toml, people.csv, conflicts.csv and alike.csv.
    study
        Study file whose endpoints are the labels, and whose key prefer says which cohort is right where they disagree.
    """
    from rich.console import Console

    from mri_vit.importers.join import join
    from mri_vit.settings import file as study_file

    endpoints = study_file.load(study, {}).endpoints if study else ()
    return 3 if join(tables, output, endpoints, Console()) else 0

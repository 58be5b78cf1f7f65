"""TCGA-GBM and TCGA-LGG: scans by patient, `TCGA-02-0003_1996.06.08_t1Gd.nii.gz`, and the tables that others made of TCGA.

Sources: file names of Bakas et al. 2017, doi:10.1038/sdata.2017.117; mutations as the UCI repository has them (Glioma Grading
Clinical and Mutation Features: 1 is mutated); clinical.tsv of the GDC; Table S1 of Ceccarelli et al. 2016,
doi:10.1016/j.cell.2015.12.028. The last two were not at hand: their columns are as these sources name them, and one that is
called otherwise is not read.
"""

from __future__ import annotations

import re

from mri_vit.importers.layout import BRATS, Column, Layout, Table
from mri_vit.importers.rules import EVENT, METHYLATION, MUTATION, SEX, age, days, missing, text
from mri_vit.importers.table import Row

PATIENT = re.compile(r"(?P<patient>TCGA-\w\w-\w{4})(-.*)?")  # more behind it is a sample's number


def _no_day(row: Row) -> str:
    """A death without its day is not on the day of the last follow-up; columns as the GDC names them, before 2024 and since."""
    status, day = (row.cell(name) or row.cell(f"demographic.{name}") for name in ("vital_status", "days_to_death"))
    return "dead on a day that is not known" if EVENT(status, "").value == "1" and missing(day) else ""


LAYOUT = Layout(
    name="tcga",
    example="TCGA-02-0003_1996.06.08_t1Gd.nii.gz, TCGA-02-0003/t1ce.nii.gz, or TCGA-02-0003 in a table with Case_ID and PTEN",
    scans=re.compile(r"(?:^|/)(?P<patient>TCGA-\w\w-\w{4})(_[^/]*_|_|/)(?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"),
    sequences=BRATS | {"glistrboost": "tumour_mask"},
    tables=(
        Table(
            id=("Case_ID",),
            marks=("Project", "PTEN"),
            ids=PATIENT,
            columns=(
                Column("sex", ("Gender",), SEX),
                Column("age", ("Age_at_diagnosis",), age),
                Column("project", ("Project",), text),
                Column("diagnosis", ("Primary_Diagnosis",), text),
                *(Column(gene.lower(), (gene,), MUTATION) for gene in ("PTEN", "IDH1", "IDH2", "TP53", "ATRX", "EGFR")),
            ),
        ),
        Table(
            id=("Case",),
            marks=("MGMT promoter status", "TERT promoter status"),
            ids=PATIENT,
            columns=(
                Column("mgmt", ("MGMT promoter status",), METHYLATION),
                Column("tertp", ("TERT promoter status",), MUTATION),
                Column("idh", ("IDH status",), MUTATION),
                Column("age", ("Age (years at diagnosis)",), age),
                Column("sex", ("Gender",), SEX),
                Column("os_days", ("Survival (months)",), days("month")),
                Column("os_event", ("Vital status (1=dead)",), EVENT),
            ),
        ),
        Table(
            id=("case_submitter_id",),
            marks=("vital_status", "days_to_death"),
            ids=PATIENT,
            columns=(
                Column("sex", ("gender",), SEX),
                Column("os_days", ("days_to_death", "days_to_last_follow_up"), days("day"), unless=_no_day),
                Column("os_event", ("vital_status",), EVENT),
            ),
        ),
        Table(  # the same since the GDC's release of November 2024, whose columns carry the name of their table
            id=("cases.submitter_id",),
            marks=("demographic.vital_status", "demographic.days_to_death"),
            ids=PATIENT,
            columns=(
                Column("sex", ("demographic.gender", "demographic.sex_at_birth"), SEX),
                Column("os_days", ("demographic.days_to_death", "diagnoses.days_to_last_follow_up"), days("day"), unless=_no_day),
                Column("os_event", ("demographic.vital_status",), EVENT),
            ),
        ),
    ),
)

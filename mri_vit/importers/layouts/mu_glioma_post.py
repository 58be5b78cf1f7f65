"""MU-Glioma-Post: `PatientID_0003/Timepoint_1/PatientID_0003_Timepoint_1_brain_t1c.nii.gz`, up to six visits after surgery.

Source: TCIA, doi:10.7937/7k9k-3c83; names of files and columns as public code that reads the collection has them (the table was
not at hand). Its clinical data are a workbook: save the sheet "MU Glioma Post" as CSV. Times count from the diagnosis, so the
days to each visit are subtracted. Of patients who live it has no day last seen, so that their survival is missing. In MGMT
methylation and the mutations 0 and 1 are read; any other number has no rule.
"""

from __future__ import annotations

import re

from mri_vit.importers.layout import Column, Layout, Table
from mri_vit.importers.rules import EVENT, METHYLATION, MUTATION, SEX, age, days
from mri_vit.importers.table import Row

VISITS = {
    f"Timepoint_{n}": f"Number of Days from Diagnosis to {nth} MRI (Timepoint_{n})"
    for n, nth in enumerate(("1st", "2nd", "3rd", "4th", "5th", "6th"), start=1)
}


def _since_diagnosis(row: Row, session: str) -> str:
    return row.cell(VISITS[session])


LAYOUT = Layout(
    name="mu_glioma_post",
    example="PatientID_0003_Timepoint_1_brain_t1c.nii.gz, or a table with Patient_ID and MGMT methylation",
    scans=re.compile(
        r"(?:^|/)(?P<patient>PatientID_\d{4})_(?P<session>Timepoint_\d+)_(brain_)?(?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"
    ),
    sequences={"t1n": "t1", "t1c": "t1ce", "t2w": "t2", "t2f": "flair", "tumormask": "tumour_mask"},
    tables=(
        Table(
            id=("Patient_ID",),
            marks=("MGMT methylation", "Overall Survival (Death)"),
            ids=re.compile(r"(?P<patient>PatientID_\d{4})"),
            columns=(
                Column("sex", ("Sex at Birth",), SEX),
                Column("age", ("Age at diagnosis",), age),
                Column("mgmt", ("MGMT methylation",), METHYLATION),
                Column("tertp", ("TERT promoter mutation",), MUTATION),
                Column("idh1", ("IDH1 mutation",), MUTATION),
                *(
                    Column("os_days", ("Number of days from Diagnosis to death (Days)",), days("day"), visit, _since_diagnosis)
                    for visit in VISITS
                ),
                *(Column("os_event", ("Overall Survival (Death)",), EVENT, visit) for visit in VISITS),
            ),
        ),
    ),
)

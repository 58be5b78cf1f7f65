"""RHUH-GBM: `RHUH-0001/0/RHUH-0001_0_t1ce.nii.gz`; visit 0 is before surgery, 1 within 72 hours after it, 2 at recurrence.

Source: Cepeda et al. 2023, doi:10.1016/j.dib.2023.109617, and the header of clinical_data_TCIA_RHUH-GBM.csv. Survival counts
from the surgery, so it is of visit 0; the days to the later ones are not published. `Right Censored` yes is a censoring. MGMT
is not reported.
"""

from __future__ import annotations

import re

from mri_vit.importers.layout import BRATS, Column, Layout, Table
from mri_vit.importers.rules import CENSORED, MUTATION, SEX, age, days, karnofsky

LAYOUT = Layout(
    name="rhuh_gbm",
    example="RHUH-0001_0_t1ce.nii.gz, or RHUH-0001 in a table with Right Censored",
    scans=re.compile(r"(?:^|/)(?P<patient>RHUH-\d{4})_(?P<session>\d)_(?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"),
    sequences=BRATS | {"segmentations": "tumour_mask"},
    tables=(
        Table(
            id=("Patient ID",),
            marks=("Right Censored", "Overall survival [OS] (days)"),
            ids=re.compile(r"(?P<patient>RHUH-\d{4})"),
            columns=(
                Column("sex", ("Sex",), SEX),
                Column("age", ("Age",), age),
                Column("kps", ("Preoperative KPS",), karnofsky, "0"),
                Column("idh", ("IDH status = (mutant [mut], wild type [wt], NOS)",), MUTATION),
                Column("os_days", ("Overall survival [OS] (days)",), days("day"), "0"),
                Column("os_event", ("Right Censored",), CENSORED, "0"),
            ),
        ),
    ),
)

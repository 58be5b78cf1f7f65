"""UPENN-GBM: `UPENN-GBM-00001_11_T1GD.nii.gz` and UPENN-GBM_clinical_info; `_11` is the first visit, `_21` the one at
recurrence.

Source: Bakas et al. 2022, doi:10.1038/s41597-022-01560-7, and its table v2.1. Survival counts from the surgery of the row's own
visit: of the 41 patients with both, the first row's survival less the second's is the time between them to within 9 days before
and 55 after (the median is 6), so that nothing is subtracted. Where the time is only in Survival_Censor, it is of the day last
seen alive.
"""

from __future__ import annotations

import re

from mri_vit.importers.layout import BRATS, Column, Layout, Table
from mri_vit.importers.rules import EVENT, METHYLATION, MUTATION, SEX, age, days, karnofsky

LAYOUT = Layout(
    name="upenn_gbm",
    example="UPENN-GBM-00001_11_T1GD.nii.gz, or UPENN-GBM-00001_11 in a table with Survival_Censor",
    scans=re.compile(r"(?:^|/)(?P<patient>UPENN-GBM-\d{5})_(?P<session>\d\d)_(?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"),
    sequences=BRATS | {"segm": "tumour_mask"},
    tables=(
        Table(
            id=("ID",),
            marks=("Survival_from_surgery_days_UPDATED", "Survival_Censor"),
            ids=re.compile(r"(?P<patient>UPENN-GBM-\d{5})_(?P<session>\d\d)"),
            columns=(
                Column("sex", ("Gender",), SEX),
                Column("age", ("Age_at_scan_years",), age),
                Column("kps", ("KPS",), karnofsky),
                Column("mgmt", ("MGMT",), METHYLATION),
                Column("idh1", ("IDH1",), MUTATION),
                Column("os_days", ("Survival_from_surgery_days_UPDATED", "Survival_Censor"), days("day")),
                Column("os_event", ("Survival_Status",), EVENT),
            ),
        ),
    ),
)

"""RSNA-MICCAI 2021: `train_labels.csv` with BraTS21ID and MGMT_value; ids are text of five digits, which spreadsheets cut.

Source: kaggle.com/c/rsna-miccai-brain-tumor-radiogenomic-classification, whose data page names the three bad patients. Its
scans are DICOM; converted ones are read as `00000/00000_t1ce.nii.gz`, `00000/T1wCE.nii.gz`.
"""

from __future__ import annotations

import re

from mri_vit.importers.layout import BRATS, Column, Layout, Table
from mri_vit.importers.rules import METHYLATION, SAME_AS, same_brats

BLANK = "known bad: the challenge's data page names it as one with blank images of a sequence"


def _five_digits(patient: str, session: str) -> tuple[str, str]:
    return patient.zfill(5), session


LAYOUT = Layout(
    name="rsna_miccai",
    example="train_labels.csv with BraTS21ID and MGMT_value, or 00000/T1wCE.nii.gz",
    scans=re.compile(r"(?:^|/)(?P<patient>\d{5})/(?:(?P=patient)_)?(?P<sequence>\w+)\.nii(\.gz)?$"),
    sequences=BRATS | {"t1w": "t1", "t1wce": "t1ce"},
    tables=(
        Table(
            id=("BraTS21ID",),
            marks=("MGMT_value",),
            ids=re.compile(r"(?P<patient>\d{1,5})"),
            columns=(Column("mgmt", ("MGMT_value",), METHYLATION), Column(SAME_AS, ("BraTS21ID",), same_brats)),
        ),
    ),
    telling=re.compile(r"(?:^|/)\d{5}/(T1wCE|T1w|T2w|FLAIR)\.nii"),  # five digits alone are any hospital's
    called=_five_digits,
    bad=dict.fromkeys(("00109", "00123", "00709"), BLANK),
)

"""BraTS 2021: `BraTS2021_00001_t1ce.nii.gz`, a patient each; with the labels of RSNA-MICCAI where they lie beside.

Source: Baid et al. 2021, arXiv:2107.02314. The challenge has no survival times. Ids of its two tasks have the same five digits.
"""

from __future__ import annotations

import re

from mri_vit.importers.layout import Column, Layout, Table
from mri_vit.importers.rules import METHYLATION


def _with_prefix(patient: str, session: str) -> tuple[str, str]:
    digits = patient.removeprefix("BraTS2021_")
    return f"BraTS2021_{digits.zfill(5)}", session


LAYOUT = Layout(
    name="brats2021",
    example="BraTS2021_00001_t1ce.nii.gz",
    scans=re.compile(r"(?:^|/)(?P<patient>BraTS2021_\d{5})[_/](?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"),
    tables=(
        Table(
            id=("BraTS21ID",),
            marks=("MGMT_value",),
            ids=re.compile(r"(?P<patient>(BraTS2021_)?\d{1,5})"),
            columns=(Column("mgmt", ("MGMT_value",), METHYLATION),),
        ),
    ),
    called=_with_prefix,
    owns_tables=False,
)

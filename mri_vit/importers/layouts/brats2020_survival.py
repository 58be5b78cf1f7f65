"""BraTS 2020: `BraTS20_Training_001_t1ce.nii.gz`, and survival_info.csv with days, of which `ALIVE (361 days later)` is a
censoring.

Source: the challenge's survival_info.csv as public code reads it: Brats20ID, Age, Survival_days, Extent_of_Resection.
"""

from __future__ import annotations

import re

from mri_vit.importers.layout import Column, Layout, Table
from mri_vit.importers.rules import age, days_or_alive, dead_or_alive, text

LAYOUT = Layout(
    name="brats2020_survival",
    example="BraTS20_Training_001_t1ce.nii.gz, or survival_info.csv with Brats20ID and Survival_days",
    scans=re.compile(r"(?:^|/)(?P<patient>BraTS20_\w+_\d{3})_(?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"),
    tables=(
        Table(
            id=("Brats20ID", "BraTS20ID"),
            marks=("Survival_days",),
            columns=(
                Column("age", ("Age",), age),
                Column("resection", ("Extent_of_Resection",), text),
                Column("os_days", ("Survival_days",), days_or_alive),
                Column("os_event", ("Survival_days",), dead_or_alive),
            ),
        ),
    ),
)

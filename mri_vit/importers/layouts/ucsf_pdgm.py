"""UCSF-PDGM: `UCSF-PDGM-0004_T1c.nii.gz` and UCSF-PDGM-metadata_v2.csv or later; images have ids of four digits, the table of
three.

Source: Calabrese et al. 2022, doi:10.1148/ryai.220058, and TCIA's pages, doi:10.7937/tcia.bdgf-8v37. OS is in days. Six of the
501 are second visits: TCIA renamed them in version 3 (0138 is 0429_FU003d, three days later); in the table of version 2, sex,
age, markers and OS of each are those of its patient, so that OS counts from the first visit. The plain scans are read, not the
`_bias` ones.
"""

from __future__ import annotations

import re

from mri_vit.importers.layout import BRATS, Column, Layout, Table
from mri_vit.importers.rules import EVENT, METHYLATION, SAME_AS, SEX, age, days, named_mutation, number, same_brats, text
from mri_vit.importers.table import Row

FIRST = "baseline"
RENAMED = {
    **{"0138": ("0429", "FU003d"), "0175": ("0396", "FU175d"), "0181": ("0409", "FU001d")},
    **{"0278": ("0431", "FU001d"), "0289": ("0391", "FU016d"), "0315": ("0433", "FU007d")},
}


def _called(number: str, session: str) -> tuple[str, str]:
    patient, visit = RENAMED.get(number.zfill(4), (number.zfill(4), session or FIRST))
    return f"UCSF-PDGM-{patient}", visit


def _since_first(row: Row, session: str) -> str:
    """Days from the first visit, as the name of a later one has them."""
    return "0" if session == FIRST else session.removeprefix("FU").removesuffix("d")


LAYOUT = Layout(
    name="ucsf_pdgm",
    example="UCSF-PDGM-0004_T1c.nii.gz, or UCSF-PDGM-004 in a table with MGMT status",
    scans=re.compile(
        r"(?:^|/)UCSF-PDGM-(?P<patient>\d{3,4})(_(?P<session>FU\d+d))?_(?P<sequence>[A-Za-z0-9]+|\w+_segmentation)\.nii(\.gz)?$"
    ),
    sequences=BRATS | {"brainsegmentation": "brain_mask", "tumorsegmentation": "tumour_mask"},
    tables=(
        Table(
            id=("ID",),
            marks=("MGMT status", "1-dead 0-alive"),
            ids=re.compile(r"UCSF-PDGM-(?P<patient>\d{3,4})(_(?P<session>FU\d+d))?"),
            columns=(
                Column("sex", ("Sex",), SEX),
                Column("age", ("Age at MRI",), age),
                Column("grade", ("WHO CNS Grade",), number),
                # It says what IDH is: by this name, no study of IDH takes it for a covariate.
                Column("idh_diagnosis", ("Final pathologic diagnosis (WHO 2021)",), text),
                Column("mgmt", ("MGMT status",), METHYLATION),  # the index is not made a label: cohorts cut it differently
                Column("mgmt_index", ("MGMT index",), number),
                Column("idh", ("IDH",), named_mutation),
                Column("os_days", ("OS",), days("day"), since=_since_first),
                Column("os_event", ("1-dead 0-alive",), EVENT),
                Column(SAME_AS, ("BraTS21 ID",), same_brats),
            ),
        ),
    ),
    called=_called,
)

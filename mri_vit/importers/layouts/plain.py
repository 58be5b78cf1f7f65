"""Plain: a table with a row per visit, or a folder of scans by patient, under any of the names in `mri_vit/data/spellings.py`.

Names are taken in any case and with any signs between: `BraTS21ID`, `patient_id`, `T1CE`, `t1-gd`. A column or file of another
name is not read, and what it may mean is suggested. A survival time is read where its column names the unit (`os_months`, `OS
(days)`).
"""

from __future__ import annotations

import re

from mri_vit.data.spellings import ALIASES, OURS, key
from mri_vit.importers.layout import Column, Layout, Table
from mri_vit.importers.rules import (
    EVENT,
    METHYLATION,
    MUTATION,
    NO,
    NUMBER,
    SAME_AS,
    SEX,
    UNKNOWN,
    YES,
    Given,
    above_cut_off,
    age,
    days,
    text,
)
from mri_vit.settings.schema import CHANNELS

DEATHS = ("osevent", "death", "dead", "deceased")  # names under which 1 is a death; elsewhere it may be a life


def event(raw: str, column: str) -> Given:
    """Words of life and death under any name; numbers, yes and no only where the column's name says what they mean."""
    unclear = NUMBER.fullmatch(raw) or raw.lower() in (*YES, *NO)
    return UNKNOWN if unclear and key(column) not in DEATHS else EVENT(raw, column)


FILES = (*CHANNELS, "brain_mask", "tumour_mask")
RULES = {
    **{"sex": SEX, "age": age, "mgmt": METHYLATION, "pten": MUTATION, "tertp": MUTATION, "idh": MUTATION},
    **{"site": text, SAME_AS: text, "os_days": days(), "os_event": event},
}
COLUMNS = (
    *(Column(name, (name, *ALIASES.get(name, ())), rule) for name, rule in RULES.items()),
    *(
        Column(name, (), above_cut_off, like=re.compile(rf"(?i)\W*{name}.*cut[-_ ]?off.*\d.*"))
        for name in ("mgmt", "pten", "tertp")
    ),
)
SEQUENCES = {spelling: ours for spelling, ours in OURS.items() if ours in FILES}

LAYOUT = Layout(
    name="plain",
    collection=False,
    example="P001/t1ce.nii.gz, P001_t1ce.nii.gz, or a table with the columns patient, t1, t1ce, t2, flair",
    scans=re.compile(
        r"^(?:(?P<folder>[^/]+)/(?:(?P=folder)[_-])?|(?P<patient>[^/]+?)[_-])"
        r"(?P<sequence>(?i:t1|t2|fl|ce|ct1|seg|brain|tumou?r|native)[A-Za-z0-9 _-]*)\.nii(\.gz)?$"
    ),
    sequences=SEQUENCES,
    tables=(
        Table(
            id=("patient", *ALIASES["patient"]),
            marks=(),
            session=("session", *ALIASES["session"]),
            columns=COLUMNS,
            scans=SEQUENCES,
        ),
    ),
)

"""BIDS: `sub-01[_ses-pre]_ce-GADOLINIUM_T1w.nii.gz`, and participants.tsv. Derivatives and source data are not read.

Source: the specification 1.10, bids-specification.readthedocs.io (entity `ce`, suffixes of anatomy). A T1w with an agent is the
T1ce. A visit with several runs of a sequence is left out: which one is meant is not guessed. pybids would add nothing to the
pattern.
"""

from __future__ import annotations

import re

from mri_vit.importers.layout import Layout, Table
from mri_vit.importers.layouts.plain import COLUMNS

LAYOUT = Layout(
    name="bids",
    collection=False,
    example="sub-01/anat/sub-01_ce-GADOLINIUM_T1w.nii.gz",
    scans=re.compile(
        r"^(?!(?:.*/)?(?:derivatives|sourcedata)/)(?:.*/)?sub-(?P<patient>[A-Za-z0-9]+)(_ses-(?P<session>[A-Za-z0-9]+))?"
        r"(_(?!ce-)[a-z]+-[A-Za-z0-9]+)*(_(?P<agent>ce)-[A-Za-z0-9]+)?(_[a-z]+-[A-Za-z0-9]+)*_(?P<sequence>T1w|T2w|FLAIR)\.nii(\.gz)?$"
    ),
    sequences={"t1w": "t1", "cet1w": "t1ce", "t2w": "t2", "flair": "flair"},
    tables=(Table(id=("participant_id",), marks=(), ids=re.compile(r"(sub-)?(?P<patient>[A-Za-z0-9]+)"), columns=COLUMNS),),
)

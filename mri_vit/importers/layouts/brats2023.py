"""BraTS 2023 and later: `BraTS-GLI-00000-000-t1c.nii.gz`. The last number is the time point of the patient before it.

Source: file names of the challenge, synapse.org/brats2023; -MET-, -PED- and the others are named alike. It has no label table.
"""

from __future__ import annotations

import re

from mri_vit.importers.layout import Layout

LAYOUT = Layout(
    name="brats2023",
    example="BraTS-GLI-00000-000-t1c.nii.gz",
    scans=re.compile(r"(?:^|/)(?P<patient>BraTS-[A-Z]+-\d{4,5})-(?P<session>\d{3})-(?P<sequence>\w+)\.nii(\.gz)?$"),
)

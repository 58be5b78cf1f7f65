"""nnU-Net: `imagesTr/case_0000.nii.gz` … `_0003`, and `labelsTr/case.nii.gz`; which sequence a number is, dataset.json says.

Source: nnU-Net's documentation/dataset_format.md: `channel_names` since version 2, `modality` before. Without that file nothing
is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mri_vit.data.spellings import our_column
from mri_vit.errors import UsageError
from mri_vit.importers.layout import Layout
from mri_vit.run.integrity import read_json
from mri_vit.settings.schema import CHANNELS


def _of_numbers(source: Path) -> Mapping[str, str]:
    """The sequence of each number, and the mask, which has none. Raises UsageError where the file does not say it."""
    file = source / "dataset.json"
    if not file.is_file():
        raise UsageError(f"{file}: no such file; it says which sequence 0000 to 0003 are")
    content = read_json(file)
    names = content.get("channel_names") or content.get("modality")
    if not isinstance(names, dict):
        raise UsageError(f'{file}: no "channel_names"; expected {{"0": "T1", "1": "T1ce", …}}')
    known = {f"{int(number):04d}": our_column(str(name)) for number, name in names.items() if str(number).isdigit()}
    if unknown := [str(name) for number, name in names.items() if known.get(f"{number:0>4}") not in CHANNELS]:
        raise UsageError(f"{file}: channel {unknown[0]!r}; expected names of {', '.join(CHANNELS)}")
    return {number: name for number, name in known.items() if name} | {"": "tumour_mask"}


LAYOUT = Layout(
    name="nnunet",
    collection=False,
    example="imagesTr/case_0000.nii.gz beside dataset.json",
    scans=re.compile(
        r"(?:^|/)(?:images(?:Tr|Ts)/(?P<patient>[^/]+)_(?P<sequence>\d{4})|labels(?:Tr|Ts)/(?P<masked>[^/]+))\.nii(\.gz)?$"
    ),
    told=_of_numbers,
)

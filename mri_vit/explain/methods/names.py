"""What maps are called: each method with title and source, and files named after BIDS derivatives. Plain data, quick to import.

BIDS: https://bids-specification.readthedocs.io (derivatives: entities sub, ses, space, desc; labels are letters and digits).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.settings.sequences import title

SUFFIXES = {"t1": "T1w", "t1ce": "T1w", "t2": "T2w", "flair": "FLAIR"}  # of BIDS, for scans; others have their name
UNIT = "relative to a uniform map"  # 1 is a place's even share of the map's sum
GRID = "grid"  # the space of the prepared grid; the others are the sequences'


@dataclass(frozen=True)
class Method:
    """How a map is made. `per_endpoint` is False where the map belongs to the encoder and is the same for every endpoint."""

    title: str
    source: str
    per_endpoint: bool
    meaning: str  # what a reader may take from it, in one sentence


METHODS = {
    "rollout": Method(
        "attention rollout",
        "Abnar & Zuidema 2020, arXiv:2005.00928",
        False,
        "It shows where information may have flowed; it is the same for every endpoint.",
    ),
    "cls_attention": Method(
        "CLS attention of the last block",
        "Caron et al. 2021, arXiv:2104.14294",
        False,
        "It shows what the last block looked at; it is the same for every endpoint.",
    ),
    "gradient_attention": Method(
        "gradient-weighted attention",
        "Chefer et al. 2021, arXiv:2103.15679",
        True,
        "It shows where attention spoke for the prediction.",
    ),
    "gradient_rollout": Method(
        "gradient rollout",
        "Abnar & Zuidema 2020 with the positive part of gradient × attention, rows made to sum to 1",
        True,
        "It is rollout that follows only attention that spoke for the prediction.",
    ),
    "integrated_gradients": Method(
        "integrated gradients",
        "Sundararajan et al. 2017, arXiv:1703.01365",
        True,
        "It shows which voxels, against a scan of the brain's mean brightness, spoke for the prediction.",
    ),
    "occlusion": Method(
        "occlusion by place",
        "Zeiler & Fergus 2014, arXiv:1311.2901, on tokens left out",
        True,
        "It shows where the prediction weakens when the place is left out.",
    ),
    "gradcam": Method(
        "Grad-CAM",
        "Selvaraju et al. 2017, arXiv:1610.02391",
        True,
        "It shows where the last convolutional map spoke for the prediction.",
    ),
    "occlusion_by_air": Method(
        "occlusion by air",
        "Zeiler & Fergus 2014, arXiv:1311.2901, on blocks of places set to 0, which is air",
        True,
        "It shows where the prediction weakens when the place's voxels are set to 0, as outside the brain; to the network such "
        "a hole is foreign, and its edges count too.",
    ),
}


def file_name(patient: Patient, method: str, endpoint: str, space: str | None, ending: str) -> str:
    """The name of a map's file: `sub-demo001_space-T1ce_desc-gradientAttentionMgmt_map.nii.gz`.

    `endpoint` is "" where the method has none, `space` a sequence or `GRID` (None where the file lies in none, like a picture),
    `ending` suffix and extension, such as "map.nii.gz".
    """
    desc = _camel(method) + _camel(endpoint).capitalize()
    return "_".join([*_entities(patient), *([f"space-{_space(space)}"] if space else []), f"desc-{desc}", ending])


def brain_file(patient: Patient, reference: str) -> str:
    """The name of the reference scan's brain, which a report may publish."""
    return "_".join(
        [*_entities(patient), f"space-{_space(reference)}", "desc-brain", f"{SUFFIXES.get(reference, _space(reference))}.nii.gz"]
    )


def _space(name: str) -> str:
    """Whose voxels a file lies on: a scan's own, or the prepared grid's."""
    return GRID if name == GRID else re.sub(r"[^A-Za-z0-9]", "", title(name))


def _entities(patient: Patient) -> list[str]:
    return [f"sub-{_label(patient.subject)}", *([f"ses-{_label(patient.session)}"] if patient.session else [])]


def _label(text: str) -> str:
    """Letters and digits alone, as BIDS wants it; the folder keeps the patient's own id."""
    label = re.sub(r"[^A-Za-z0-9]", "", text)
    if not label:
        raise UsageError(f"{text!r} has neither letter nor digit, so no file can be named after it")
    return label


def _camel(words: str) -> str:
    first, *rest = words.split("_")
    return first + "".join(word.capitalize() for word in rest)

"""One patient's attention map: from prepared tokens and a fitted network to NIfTI files, a picture and a sidecar.

Letters: x, y, z the T1ce scan's own voxels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from jaxtyping import Bool
from nibabel.affines import apply_affine

from mri_vit import tokens
from mri_vit.batches import everything, token_file
from mri_vit.cohort import Patient
from mri_vit.config import REFERENCE, Study
from mri_vit.explain.native import on_grid, to_native
from mri_vit.explain.overlay import draw
from mri_vit.explain.rollout import rollout
from mri_vit.model.network import Network
from mri_vit.prepare.brain import STRIPPED_ML, volume_ml
from mri_vit.prepare.folder import complete
from mri_vit.prepare.patient import load_record
from mri_vit.volume import Volume, read, write, write_bytes

NOTE = "Attention rollout shows where information may have flowed; it is not specific to an endpoint."
WINDOW = (1, 99.5)  # percentiles inside the brain, as in overlay.py: contrast for the brain, not for one vessel


def explain(patient: Patient, net: Network, study: Study, folder: Path, model: dict[str, Any]) -> None:
    """Write `rollout_native.nii.gz`, `rollout_grid.nii.gz`, `t1ce_brain.nii.gz`, `overlay.png` and `map.json` into `folder`.

    Maps are in times the uniform map: 1 where a place has its even share. `model` (name, repeat, fold) goes into the sidecar.
    There is no `t1ce_brain.nii.gz` where what was taken for the brain is larger than a brain: it may hold a face.
    """
    prepared = tokens.load(token_file(study, patient))
    patches, place = everything(prepared, study)
    device = net.encoder.cls.device
    row = rollout(net.encoder, patches.to(device), place.to(device))[0].cpu().numpy()
    share = row[1:] / row[1:].mean()
    brain = (tokens.to_volume(prepared) != 0).any(axis=0)
    grid_map = on_grid(share, place[0].numpy(), brain, study.grid)
    scan_file = patient.scans[REFERENCE]
    assert scan_file is not None, "a prepared patient has its scans"
    scan = read(scan_file)
    to_grid = np.array(load_record(study.prepared / patient.id)["t1ce_to_grid"])
    heat = to_native(grid_map, scan, to_grid)
    inside = to_native(Volume(brain.astype(np.float32), grid_map.affine), scan, to_grid, sitk.sitkNearestNeighbor)
    inside = inside.array > 0
    heat = Volume(np.where(inside, heat.array, 0).astype(np.float32), scan.affine)
    peak = np.unravel_index(int(heat.array.argmax()), heat.shape)
    sidecar = {
        "schema": 1,
        "patient": patient.id,
        **model,
        "method": "attention rollout (Abnar & Zuidema 2020)",
        "unit": "times the uniform map",
        "peak": round(float(heat.array.max()), 3),
        "peak_mm": [round(float(x), 1) for x in apply_affine(scan.affine, np.array(peak))],
        "cls_share": round(float(row[0]), 4),
        "tokens": int(place.shape[1]),
        "note": NOTE,
    }
    with complete(folder) as beside:
        write(grid_map, beside / "rollout_grid.nii.gz")
        write(heat, beside / "rollout_native.nii.gz")
        if volume_ml(inside, scan) <= STRIPPED_ML:
            write(brain_only(scan, inside), beside / "t1ce_brain.nii.gz")
        draw(scan, heat, f"{patient.id} · over the patient's own T1ce, through the map's peak", beside / "overlay.png")
        write_bytes(json.dumps(sidecar, indent=1).encode(), beside / "map.json")


def brain_only(scan: Volume, inside: Bool[np.ndarray, "x y z"]) -> Volume:
    """The scan as a report may publish it: 0 outside the brain, so that no face can be rebuilt; 1 to 255 inside, as bytes.

    The brain's `WINDOW` of the scan's values is spread over 1 to 255. A screen shows no more levels, and the file is small.
    """
    values = scan.array[inside]
    low, high = np.percentile(values, WINDOW) if values.size else (0.0, 1.0)
    level = 1 + 254 * ((scan.array - low) / max(high - low, 1e-6)).clip(0, 1)  # 1e-6: a brain of one value is black, no fault
    return Volume(np.where(inside, level, 0).round().astype(np.uint8), scan.affine)

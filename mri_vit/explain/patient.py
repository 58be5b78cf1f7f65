"""One patient's attention map: from prepared tokens and a fitted network to NIfTI files, a picture and a sidecar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from nibabel.affines import apply_affine

from mri_vit import tokens
from mri_vit.batches import everything, token_file
from mri_vit.cohort import Patient
from mri_vit.config import REFERENCE, Study
from mri_vit.explain.native import on_grid, to_native
from mri_vit.explain.overlay import draw
from mri_vit.explain.rollout import rollout
from mri_vit.model.network import Network
from mri_vit.prepare.folder import complete
from mri_vit.prepare.patient import load_record
from mri_vit.volume import Volume, read, write, write_bytes

NOTE = "Attention rollout shows where information may have flowed; it is not specific to an endpoint."


def explain(patient: Patient, net: Network, study: Study, folder: Path, model: dict[str, Any]) -> None:
    """Write `rollout_native.nii.gz`, `rollout_grid.nii.gz`, `overlay.png` and `map.json` into `folder`.

    Maps are in times the uniform map: 1 where a place has its even share. `model` (name, repeat, fold) goes into the sidecar.
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
    heat = Volume(np.where(inside.array > 0, heat.array, 0).astype(np.float32), scan.affine)
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
        draw(scan, heat, f"{patient.id} · over the patient's own T1ce, through the map's peak", beside / "overlay.png")
        write_bytes(json.dumps(sidecar, indent=1).encode(), beside / "map.json")

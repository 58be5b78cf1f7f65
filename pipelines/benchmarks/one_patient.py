"""One patient at full size: four scans to a prepared patient, a ViT-B/16 over all 2744 places, and maps on every scan.

.venv/bin/python pipelines/benchmarks/one_patient.py FOLDER OUTPUT     (FOLDER holds t1, t1ce, t2 and flair.nii.gz)

The network has random weights: this shows that geometry and memory hold at full size, not what a trained one attends to.
About 40 s on two cores, 4 GB of memory.
"""

import sys
import time
from pathlib import Path

import torch

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import all_tokens, token_file
from mri_vit.explain.outputs.map_files import explain
from mri_vit.explain.outputs.records import NetworkId
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.prepare.patient import prepare_patient
from mri_vit.prepare.prepared import load_record
from mri_vit.run import files
from mri_vit.settings.schema import CHANNELS, DEFAULT_ENDPOINTS, Model, Study


def main(folder: Path, output: Path) -> None:
    patient = Patient(folder.name, {channel: folder / f"{channel}.nii.gz" for channel in CHANNELS}, {}, {})
    study = Study(name="one", cohort=folder / "none.csv", prepared=output / "prepared", output=output)
    began = time.perf_counter()
    prepare_patient(patient, study.prepared, study.channels, study.grid, study.prepare)
    record = load_record(study.prepared / patient.id)
    print(f"prepared in {time.perf_counter() - began:.1f} s: brain {record['brain_ml']} ml, {len(record['warnings'])} warnings")
    torch.manual_seed(0)
    mgmt = DEFAULT_ENDPOINTS[0]
    network = Network(study.model, study.grid, [Head(mgmt, "binary")]).eval()
    patches, place = all_tokens(tokens.load(token_file(study.prepared, patient)), study.model)
    began = time.perf_counter()
    with torch.no_grad():
        cls = network.encoder(patches, place)
    print(f"ViT-B/16 over {place.shape[1]} places and CLS -> {tuple(cls.shape)} in {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    maps = output / files.MAPS / patient.id
    brain_alone = study.model_copy(update={"model": Model(tokens="foreground")})  # its sixteen sets of scans are forward passes
    explain(patient, network, brain_alone, maps, NetworkId("vit-b16, random weights", 0, 0))
    print(f"maps on every scan and pictures in {time.perf_counter() - began:.1f} s:")
    for picture in sorted(maps.glob("*_overlay.png")):
        print(f"    {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""BIDS: a finished run in; its patients' prepared scans, masks and maps out, as a BIDS derivatives dataset.

The tables of a run do not go out: no label, no score, no clinical column. Patients keep the cohort's own ids. Prepared scans are
the numbers that the network read; maps and found masks are copies of the run's files, byte for byte.

Names and sidecars: bids-specification.readthedocs.io, "Derivatives". BIDS has no suffix for a map of a network's attention:
`probseg` is a probability and `T1w` a scan. Maps keep the suffix `map`, and `.bidsignore` says so to validators.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from rich.console import Console

from mri_vit.data import nifti, run_cohort, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, write
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.explain.outputs.records import GRID, RESEARCH, MapRecord, parse
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.prepare.prepared import load_record, mask_on_grid, refuse_changed_patients
from mri_vit.prepare.tumour import described, of_record
from mri_vit.run import atomic, files
from mri_vit.run.atomic import complete, write_bytes
from mri_vit.run.integrity import as_written, read_json, sha256
from mri_vit.run.screen import WARNING, counted, progress, say
from mri_vit.settings.recipe import title
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid

BIDS_VERSION = "1.10.0"  # of the names and keys below, all of which later versions have too
WHAT = "BIDS dataset"
CONTRAST = "ce-gadolinium"  # the entity by which BIDS tells T1ce from T1
SCANS = {  # by sequence: datatype, entity in front of the space, suffix
    "t1": ("anat", "", "T1w"),
    "t1ce": ("anat", CONTRAST, "T1w"),
    "t2": ("anat", "", "T2w"),
    "flair": ("anat", "", "FLAIR"),
    "adc": ("dwi", "", "ADC"),
}
IGNORED = """\
# BIDS has no suffix for maps of what a network attends to; README says how these are read
*_map.nii.gz
*_map.json
"""
OTHER_SEQUENCE = "# nor for this sequence of the study\n*_{suffix}.nii.gz\n*_{suffix}.json\n"
README = """\
{name}: prepared scans, masks and maps

Derivatives of a run of mri-vit, which predicts from brain-tumour MRI.
{synthetic}{research}

Per patient and visit, in anat/:

space-grid_desc-preproc_*      scans as the network reads them: stripped,
                               aligned, bias-corrected, z-scored in the brain
space-grid_desc-brain_mask     the brain, on the same grid
space-grid_label-tumour_mask   the tumour that the network learned from,
                               where the patient has a mask
space-*_label-tumour_mask      the same on the voxels of the patient's own
                               scan, where mri-vit found it
space-*_desc-brain_*           the brain of the patient's own scan, to lay
                               maps over
space-*_desc-*_map             maps, on the voxels of each of the patient's
                               own scans and on the grid

SpatialReference in a sidecar says where an image lies, SourceSHA256 which
file a scan was prepared from. participants.tsv has the ids of the cohort's
own table. There are no labels, scores or clinical data; the sidecar of a map
says which way the prediction went that it explains.

Maps show what the network's prediction rests on, relative to a uniform map:
1 is an even share of the map's sum. Whether they may be interpreted stands in
the run's report. BIDS has no suffix for such maps, so .bidsignore lists theirs.
"""
HASH_LETTERS = 6  # of an id's SHA-256, where two ids are one label: 16 million possibilities for a handful of ids


@dataclass(frozen=True)
class Visit:
    """A patient's visit in the dataset, and how the names of its files begin: `sub-P001_ses-a`."""

    patient: Patient
    dataset: Path
    prefix: str

    def file(self, entities: str, suffix: str, datatype: str = "anat") -> Path:
        """The image of these entities. Raises UsageError where the dataset has it already."""
        file = self.dataset / self.prefix.replace("_", "/") / datatype / f"{self.prefix}_{entities}_{suffix}.nii.gz"
        if file.exists():
            raise UsageError(
                f"patient {self.patient.id}: two images would be called {file.name}; expected sessions, sequences and endpoints"
                " whose names differ by letters or digits"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def scan(self, sequence: str, space: str, desc: str) -> Path:
        """The image of a sequence."""
        datatype, contrast, suffix = SCANS.get(sequence, ("anat", "", _label(title(sequence))))
        return self.file("_".join(filter(None, [contrast, f"space-{space}", f"desc-{desc}"])), suffix, datatype)

    def uri(self, file: Path) -> str:
        """What a sidecar calls an image of the dataset."""
        return f"bids::{file.relative_to(self.dataset).as_posix()}"


def export(run: TrainedRun, output: Path, licence: str | None, console: Console) -> None:
    """Write the prepared scans, masks and maps of a finished run as a BIDS derivatives dataset, whole or not at all.

    Parameters
    ----------
    run
        Its prepared patients must be where its settings say.
    output
        A new or an empty folder.
    licence
        The licence of the dataset, for `dataset_description.json`; None leaves it out.

    Raises
    ------
    UsageError
        A patient is not prepared here or not as it was, or `output` holds something.
    IntegrityError
        A file of a prepared patient, or of the maps, is damaged, gone or another patient's.
    """
    target = Path(os.path.abspath(output))
    _refuse_filled(target)
    patients, study = run.patients, run.study
    refuse_changed_patients(study.prepared, patients, run.folder)
    labels, mapped = subject_labels([patient.subject for patient in patients]), 0
    with complete(target, _refuse_filled) as dataset, progress(console) as bar:
        task = bar.add_task("export", total=len(patients), note="")
        for patient in patients:
            session = f"_ses-{_label(patient.session)}" if patient.session else ""
            visit = Visit(patient, dataset, f"sub-{labels[patient.subject]}{session}")
            scans = write_prepared(visit, study)
            mapped += write_maps(visit, study, run.folder / files.MAPS / patient.id, scans)
            bar.update(task, advance=1)
        write_head(dataset, run, labels, licence)
        sizes = [file.stat().st_size for file in dataset.rglob("*.nii.gz")]
    of = f"maps of {mapped} of {counted(len(patients), 'visit')}"
    say(console, f"{output}: {counted(len(labels), 'patient')}, {of}; {counted(len(sizes), 'image')}, {sum(sizes) / 1e6:.1f} MB")
    say(
        console, "it holds the cohort's own ids and images of its patients: share it as they and your ethics board allow", WARNING
    )


def _refuse_filled(output: Path) -> None:
    atomic.refuse_foreign(output, False, WHAT)


def subject_labels(subjects: Collection[str]) -> dict[str, str]:
    """By patient's id the label behind `sub-`, which BIDS wants of letters and digits.

    Ids of the same letters and digits, in whatever case, get a part of their hash behind them.
    """
    count = Counter(_label(subject).lower() for subject in set(subjects))
    return {
        subject: _label(subject)
        + (hashlib.sha256(subject.encode()).hexdigest()[:HASH_LETTERS] if count[_label(subject).lower()] > 1 else "")
        for subject in subjects
    }


def _label(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", text)


# --- a visit ------------------------------------------------------------------------------------------------------------------


def write_prepared(visit: Visit, study: Study) -> list[str]:
    """Write a prepared patient's scans and masks; the BIDS URIs of the scans.

    A scan has the numbers of the tokens as float32, and exactly 0 where they have no brain. A sequence that the patient lacks has
    no file. A mask that was found is also copied on the voxels of the reference; one that was given is the cohort's.
    """
    folder, reference = study.prepared / visit.patient.id, study.prepare.reference
    record, prepared = load_record(folder), tokens.load(folder / files.TOKENS, study.channels)
    with as_written(folder / files.PATIENT):
        read = next(step["scans"] for step in record["steps"] if step["step"] == "read")
        steps = " ".join(step["methods"] for step in record["steps"])
        mark = nifti.SYNTHETIC if any(nifti.SYNTHETIC in scan.get("notes", ()) for scan in read.values()) else ""
    volumes, affine = tokens.to_volume(prepared), np.array(study.grid.affine)
    grid = {"SpatialReference": grid_in_words(study.grid), "Resolution": f"{study.grid.spacing_mm:g} mm, isotropic"}
    sources = []
    for sequence, volume in zip(study.channels, volumes, strict=True):
        if sequence in read:
            file = visit.scan(sequence, GRID, "preproc")
            write(Volume(volume.astype(np.float32), affine), file, mark)
            about = {
                "Description": f"{title(sequence)} as the network reads it. {steps}",
                "SkullStripped": True,
                "Units": "standard deviations of the brain",
                "SourceSHA256": record["inputs"][sequence]["sha256"],
            }
            _write_sidecar(file, about | grid)
            sources.append(visit.uri(file))

    def add_mask(mask: Bool[np.ndarray, "e e e"], entity: str, about: dict[str, str]) -> None:
        file = visit.file(f"space-{GRID}_{entity}", "mask")
        write(Volume(mask.astype(np.uint8), affine), file)
        _write_sidecar(file, about | grid | {"Sources": sources})

    kept = (volumes != 0).any(axis=0)
    if study.prepare.tumour_crop_margin_mm is None:
        add_mask(kept, "desc-brain", {"Type": "Brain", "Description": "Voxels of the brain."})
    else:
        add_mask(kept, "desc-kept", {"Type": "ROI", "Description": "Voxels of the brain around the tumour, all that is kept."})
    if mask := visit.patient.tumour_mask:
        about = {"Type": "Lesion", "Description": f"{capitalised(described(of_record(record)))}."}
        add_mask(mask_on_grid(mask, folder, study.grid), "label-tumour", about)
        if mask == folder / files.TUMOUR:
            file = visit.file(f"space-{_label(title(reference))}_label-tumour", "mask")
            shutil.copyfile(mask, file)
            _write_sidecar(file, about | {"SpatialReference": scan_in_words(reference), "Sources": sources})
    return sources


def write_maps(visit: Visit, study: Study, folder: Path, scans: Sequence[str]) -> bool:
    """Copy a patient's maps and the reference's brain, which they lie on, and say what they are; whether there are any."""
    if not (folder / files.MAP).is_file():
        return False
    with as_written(folder / files.MAP):
        record = parse(MapRecord, read_json(folder / files.MAP))
    if record.patient != visit.patient.id:
        raise IntegrityError(f"{folder / files.MAP}: maps of {record.patient!r}; expected {visit.patient.id!r}")
    reference, under = study.prepare.reference, {}
    if record.brain:
        file = visit.scan(reference, _label(title(reference)), "brain")
        _copy(folder / record.brain, file)
        words = f"The brain of the patient's own {title(reference)} scan, on its voxels: 1 to 255 inside, 0 outside."
        _write_sidecar(file, {"Description": words, "SkullStripped": True, "SpatialReference": scan_in_words(reference)})
        under = {reference: visit.uri(file)}
    for entry in record.maps:
        for space, name in entry.files.items():
            entities = re.fullmatch(r"sub-[A-Za-z0-9]+(?:_ses-[A-Za-z0-9]+)?_(space-.+)_map\.nii\.gz", name)
            if entities is None:
                raise IntegrityError(f"{folder / files.MAP}: {name!r} is no name of a map")
            file = visit.file(entities[1], "map")
            _copy(folder / name, file)
            about = read_json(folder / name.replace(".nii.gz", ".json"))
            lies = grid_in_words(study.grid) if space == GRID else under.get(space, scan_in_words(space))
            _write_sidecar(file, about | {"SpatialReference": lies, "Sources": list(scans)})
    return True


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise IntegrityError(f"{source}: {files.MAP} lists it, but it is not there; run `mri-vit explain` again")
    shutil.copyfile(source, target)


def _write_sidecar(image: Path, about: Mapping[str, Any]) -> None:
    write_bytes(json.dumps(about, indent=1, ensure_ascii=False).encode(), image.with_name(image.name.replace(".nii.gz", ".json")))


def capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def grid_in_words(grid: Grid) -> str:
    """Where a file on the prepared grid lies."""
    voxels = f"{grid.edge}³ voxels of {grid.spacing_mm:g} mm, axes RAS+"
    return f"MNI152 (ICBM 2009 a, nonlinear, symmetric), to which the brain is aligned rigidly, at its own size; {voxels}"


def scan_in_words(sequence: str) -> str:
    """Where a file on a scan's own voxels lies."""
    return f"orig: the patient's own {title(sequence)} scan, which is not in this dataset"


# --- the dataset --------------------------------------------------------------------------------------------------------------


def write_head(dataset: Path, run: TrainedRun, labels: Mapping[str, str], licence: str | None) -> None:
    """Write what describes the dataset as a whole."""
    made_with = read_json(run.folder / files.ENVIRONMENT, ("versions", "git_commit", "device"))
    versions = made_with["versions"]
    packages = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "mri-vit")
    commit = f"commit {made_with['git_commit']}; " if made_with["git_commit"] else ""
    made = f"prepared the scans, trained the network and made its maps; {commit}{packages}; {made_with['device']}"
    description = {
        "Name": f"{run.study.name}: prepared scans, masks and maps",
        "BIDSVersion": BIDS_VERSION,
        "DatasetType": "derivative",
        **({"License": licence} if licence else {}),
        "GeneratedBy": [
            {"Name": "mri-vit", "Version": versions["mri-vit"], "Description": made},
            {"Name": "mri-vit", "Version": version("mri-vit"), "Description": "wrote this dataset: mri-vit export bids"},
        ],
        "SourceDatasets": [{"Version": f"cohort table with SHA-256 {sha256(run.folder / files.COHORT)}"}],
    }
    study = run.study
    others = sorted({_label(title(name)) for name in study.channels if name not in SCANS})
    ignored = IGNORED + "".join(OTHER_SEQUENCE.format(suffix=suffix) for suffix in others)
    rows = "".join(f"sub-{label}\t{subject}\n" for subject, label in labels.items())
    columns = {"source_id": {"Description": "The patient's id in the cohort table"}}
    synthetic = run_cohort.synthetic_clause(run.folder)
    synthetic = f"{capitalised(synthetic)}. " if synthetic else ""
    readme = README.format(name=study.name, synthetic=synthetic, research=RESEARCH)
    for name, text in (
        ("dataset_description.json", json.dumps(description, indent=1, ensure_ascii=False)),
        ("README", readme),
        (".bidsignore", ignored),
        ("participants.tsv", f"participant_id\tsource_id\n{rows}"),
        ("participants.json", json.dumps(columns, indent=1)),
    ):
        write_bytes(text.encode(), dataset / name)

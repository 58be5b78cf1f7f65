"""How often a new patient is called unlike a run's: of held-out synthetic patients, who are like them, and of planted outliers.

pipelines/reproduce.py null_studies/outliers runs/demo runs/outliers  (after `make demo`; about 4 minutes on two idle cores)

It makes 130 patients of another seed, changes the scans of the last ten in each of `CHANGES`' ways, prepares all as the run
prepared its own, asks the run's networks for their features, and prints and writes `outliers.csv`: a row for each kind, with how
many of how many are outside and which figure was furthest out most often. The study's limits of quality, by which `predict`
excludes some of these before, are not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from jaxtyping import Float
from rich.console import Console
from scipy import ndimage

from mri_vit import study as stages
from mri_vit import synthetic
from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.finished import network_outputs, reference, trained_run
from mri_vit.model.network import Network
from mri_vit.predictors.network import loaded
from mri_vit.prepare import patient
from mri_vit.run.folder import claimed, run_settings
from mri_vit.settings.schema import Study

SEED, LIKE, CHANGED = 4242, 120, 10  # of the new cohort; patients like the run's, and patients whose scans are changed
ALIKE = "like-the-runs"
Scans = dict[str, nib.Nifti1Image]
Change = Callable[[Scans, np.random.Generator], Scans]


def main(run: Path, folder: Path) -> None:
    """Make, prepare and compare, then print the table."""
    past, console, folder = run_settings(run), Console(), folder.resolve()  # the table's paths would be relative to it
    table = synthetic.make(folder / "cohort", seed=SEED, patients=LIKE + CHANGED)
    people = cohort.read(table, (), past.prepare.needs, past.channels)
    kinds = {ALIKE: [{"patient": one.id, **one.scans} for one in people[:LIKE]]}
    for name, change in CHANGES.items():
        kinds[name] = [changed(one, name, change, folder / "changed") for one in people[LIKE:]]
    study = past.model_copy(
        update={"prepared": folder / "prepared", "qc": past.qc.model_copy(update={"exclude": (), "decisions": None})}
    )
    asked = {kind: prepared(study, kind, rows, folder, console) for kind, rows in kinds.items()}  # apart: they share scans
    trained = trained_run.TrainedRun(run, past)
    like = reference.reference_of_run(trained, lambda: None)
    homes = trained.networks

    def of_fold(place: tuple[int, int]) -> list[Network]:
        return loaded(homes[place], past.train.seeds)

    all_patients = [one for patients in asked.values() for one in patients]
    outputs = network_outputs.fold_outputs(trained.networks, of_fold, study, all_patients, lambda: None)
    found = []
    for kind, one in ((kind, one) for kind, patients in asked.items() for one in patients):
        features = {(each.repeat, each.fold): each.features for each in outputs[one.id]}
        compared = reference.distribution_of(reference.figures_of(study.prepared / one.id), features, like)
        first, outside = compared.figures[0], compared.placement == "outside"
        found.append({"kind": kind, "outside": outside, "furthest": f"{first.name} {first.scan}".strip()})
    told = (
        pd.DataFrame(found)
        .groupby("kind", sort=False)
        .agg(
            patients=("outside", "size"),
            outside=("outside", "sum"),
            furthest=("furthest", lambda names: Counter(names).most_common(1)[0][0]),
        )
    )
    told.to_csv(folder / "outliers.csv")
    console.print(told.to_string())


def prepared(study: Study, kind: str, rows: Sequence[dict[str, object]], folder: Path, console: Console) -> list[Patient]:
    """The patients of one kind who could be prepared."""
    table = folder / f"{kind}.csv"
    pd.DataFrame(rows).to_csv(table, index=False)
    study = study.model_copy(update={"cohort": table, "output": folder / "runs" / kind})
    patients = cohort.read(table, (), study.prepare.needs, study.channels)
    with claimed(study) as home:
        return patient.without_excluded(patients, stages.prepare(study, patients, home, console))


def changed(patient: Patient, name: str, change: Change, folder: Path) -> dict[str, object]:
    """A row of the table for a patient whose scans were changed and written."""
    home = folder / f"{name}-of-{patient.id}"
    home.mkdir(parents=True, exist_ok=True)
    scans = {channel: nib.Nifti1Image.from_filename(file) for channel, file in patient.scans.items() if file}
    made = change(scans, np.random.default_rng(SEED))
    for channel, image in made.items():
        nib.save(image, home / f"{channel}.nii.gz")
    return {"patient": home.name, **{channel: home / f"{channel}.nii.gz" for channel in made}}


def exchanged(one: str, other: str) -> Change:
    """Two sequences under each other's names."""
    return lambda scans, _: scans | {one: scans[other], other: scans[one]}


def each(of: Callable[[Float[np.ndarray, "x y z"], nib.Nifti1Image, np.random.Generator], np.ndarray], *only: str) -> Change:
    """Every scan's voxels changed inside the head, or those of some."""

    def change(scans: Scans, generator: np.random.Generator) -> Scans:
        return {
            name: _like(np.where((values := _values(image)) > 0, of(values, image, generator), values), image)
            if not only or name in only
            else image
            for name, image in scans.items()
        }

    return change


def half(scans: Scans, _: np.random.Generator) -> Scans:
    """The right half of the head is gone."""

    def of(image: nib.Nifti1Image) -> nib.Nifti1Image:
        values, affine = _values(image), np.asarray(image.affine)
        x_mm = np.tensordot(affine[0, :3], np.indices(values.shape), axes=1) + affine[0, 3]
        return _like(np.where(x_mm < 0, values, values.min()), image)

    return {name: of(image) for name, image in scans.items()}


def noise(share: float) -> Change:
    """Rician-like noise of a share of the mean signal."""
    return each(
        lambda values, _, generator: np.abs(values + share * values[values > 0].mean() * generator.normal(size=values.shape))
    )


def contrast(gamma: float) -> Change:
    """Another contrast: signal over its 99th percentile to a power."""

    def of(values: np.ndarray, _: nib.Nifti1Image, __: np.random.Generator) -> np.ndarray:
        top = np.percentile(values[values > 0], 99)
        return top * np.clip(values / top, 0, None) ** gamma

    return each(of)


def blurred(values: np.ndarray, image: nib.Nifti1Image, _: np.random.Generator) -> np.ndarray:
    """By 6 mm, full width at half maximum."""
    return ndimage.gaussian_filter(values, 6 / 2.355 / np.array(image.header.get_zooms()[:3]))


CHANGES: Mapping[str, Change] = {
    "t1-flair-exchanged": exchanged("t1", "flair"),
    "t1-t2-exchanged": exchanged("t1", "t2"),
    "t2-flair-exchanged": exchanged("t2", "flair"),
    "t1-t1ce-exchanged": exchanged("t1", "t1ce"),
    "t1-given-as-flair": lambda scans, _: scans | {"flair": _like(1.001 * _values(scans["t1"]), scans["t1"])},
    "half-a-brain": half,
    "noise-13-percent": noise(0.13),
    "noise-25-percent": noise(0.25),
    "gamma-0.5": contrast(0.5),
    "gamma-1.5": contrast(1.5),
    "gamma-2": contrast(2.0),
    "flair-inverted": each(lambda values, _, __: 1.05 * values.max() - values, "flair"),
    "blurred-by-6-mm": each(blurred),
}


def _values(image: nib.Nifti1Image) -> Float[np.ndarray, "x y z"]:
    return np.asarray(image.dataobj, dtype=np.float32)


def _like(values: np.ndarray, image: nib.Nifti1Image) -> nib.Nifti1Image:
    return nib.Nifti1Image(values.astype(np.float32), image.affine)

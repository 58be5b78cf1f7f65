"""The Python interface for notebooks: plain values in and out, and nothing is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from mri_vit.data import cohort, run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.run import files
from mri_vit.settings.recipe import CHANNELS
from mri_vit.settings.schema import NO_BLOCK, Endpoint, Study
from mri_vit.settings.sections import Grid, Prepare

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]  # called with how many of how many steps are done


def silent(done: int, of: int) -> None:
    """Shows no progress."""


def read_cohort(
    path: Path | str,
    endpoints: Sequence[Endpoint] = (),
    needed: Sequence[str] | None = None,
    channels: Sequence[str] = CHANNELS,
) -> list[Patient]:
    r"""Read a cohort table.

    Parameters
    ----------
    path
        CSV or TSV with the columns `patient`, those of scans and, if there are any, `session`, `brain_mask`,
        `tumour_mask`, labels and clinical columns. Paths of scans are relative to the table.
    endpoints
        Endpoints whose label columns are read; other columns are clinical and stay text. A missing label is NaN.
    needed
        Columns that the table must have beside `patient` and the labels; by default those of scans.
    channels
        The columns of scans; their order is that of the prepared patient.

    Returns
    -------
    list of Patient, one for each row in the table's order. Scans are not opened.

    Raises
    ------
    UsageError
        The table cannot be read, or a cell is wrong; the message names rows and columns.

    Examples
    --------
    >>> from mri_vit import read_cohort
    >>> from mri_vit.settings.schema import Endpoint
    >>> _ = (folder / "cohort.csv").write_text("patient,t1,t1ce,t2,flair,age,mgmt\nA1,a.nii,b.nii,c.nii,d.nii,61,1\n")
    >>> (patient,) = read_cohort(folder / "cohort.csv", [Endpoint(name="mgmt", kind="binary")])
    >>> patient.id, patient.labels, patient.clinical
    ('A1', {'mgmt': 1.0}, {'age': '61'})
    """
    return cohort.read(Path(path), tuple(endpoints), needed, channels)


def prepare_patient(patient: Patient, folder: Path | str, grid: Grid | None = None, prepare: Prepare | None = None) -> Path:
    """Prepare one patient's scans, unless they were already prepared from the same files with the same settings.

    Parameters
    ----------
    patient
        As `read_cohort` returns it; its `scans`, in their order, are those of the prepared patient. The reference (T1ce, unless
        `prepare.reference` names another) and the scans in `prepare.needs` are required.
    folder
        Folder for prepared patients, in which this one gets a folder.
    grid
        The grid; by default 224³ voxels of 1 mm in patches of 16³.
    prepare
        Brain extraction and bias correction; by default as in a study file without them.

    Returns
    -------
    Path of the patient's folder with `tokens.safetensors`, `patient.json` and `qc.png`; see `load_tokens`.

    Raises
    ------
    UnusablePatient
        The scans are unusable; the message names the file, and nothing is left behind.
    UsageError
        Something else lies where the patient's folder would be.
    ValueError
        The reference is not among the patient's scans.

    Examples
    --------
    Of the synthetic cohort, on a small grid and without the bias correction:

    >>> from mri_vit import load_tokens, prepare_patient, read_cohort
    >>> from mri_vit.settings.schema import Grid, Prepare
    >>> patient = read_cohort(cohort)[0]
    >>> grid = Grid(edge=32, spacing_mm=7.0, patch=8)
    >>> done = prepare_patient(patient, folder, grid, Prepare(bias=False))
    >>> tokens = load_tokens(done / "tokens.safetensors")
    >>> tokens.patches.shape[1], tokens.patches.dtype.name, tokens.grid.positions  # four sequences of 8³ voxels, 4³ positions
    (2048, 'float16', 64)
    """
    from mri_vit.prepare import patient as preparing

    return preparing.prepare_patient(patient, Path(folder), tuple(patient.scans), grid or Grid(), prepare or Prepare())


@dataclass(frozen=True)
class FinishedRun:
    """A trained run, or a model that was exported from one: its folder and its settings. `load_run` returns one."""

    folder: Path
    study: Study
    synthetic: str = ""  # how many of its patients are synthetic, in words

    def predict(
        self,
        patients: Sequence[Patient],
        prepared: Path | str | None = None,
        progress: Progress = silent,
        allow_synthetic: bool = False,
    ) -> pd.DataFrame:
        """Predict patients that the run was not trained on, by the mean of all its folds' models. No label is read.

        Parameters
        ----------
        patients
            As `read_cohort` returns them, with the scans of the run's `study.channels`.
        prepared
            Folder for the prepared patients; those already there are not prepared again. By default a temporary folder.
        progress
            Called with the number of folds done, and of all.
        allow_synthetic
            Whether a run of synthetic patients may predict real ones, for which its predictions mean nothing.

        Returns
        -------
        DataFrame with the columns patient, endpoint, score and models. For a binary endpoint a score is the
        networks' uncalibrated probability (`mri-vit predict` calibrates it and makes a call); for survival it is a risk (higher:
        earlier death). It is the mean over the models of `models` folds; with `train.seeds` above 1 a fold's model is itself the
        mean of that many networks.

        Raises
        ------
        UnusablePatient
            A patient's scans are unusable; the message names the file.
        UsageError
            The run was trained on synthetic patients, and one here is real.
        """
        from mri_vit.finished.network_outputs import mean_of_folds  # here, because torch takes seconds
        from mri_vit.prepare import patient as preparing

        run_cohort.refuse_real(self.folder, self.synthetic, patients, allow_synthetic, "allow_synthetic=True")
        with TemporaryDirectory(prefix="mri-vit-") as temporary:
            study = self._prepared_in(prepared or temporary)
            for patient in patients:
                preparing.prepare_patient(patient, study.prepared, study.channels, study.grid, study.prepare)
            return mean_of_folds(self.folder, study, list(patients), progress)[0]

    def explain(
        self, patient: Patient, folder: Path | str, prepared: Path | str | None = None, allow_synthetic: bool = False
    ) -> Path:
        """Write the maps of one patient, in the patient's own space.

        A patient of the run is explained by the network of the first repeat that was not trained on them, any other patient by
        the first fold's; `map.json` records which. With several networks in a fold (`train.seeds`) it is the first.

        Parameters
        ----------
        patient
            As `read_cohort` returns it.
        folder
            Folder for maps, in which the patient gets a folder.
        prepared, allow_synthetic
            As for `predict`.

        Returns
        -------
        Path of the patient's folder with a NIfTI file for each method and scan, pictures, and `map.json`.

        Raises
        ------
        UnusablePatient
            The patient's scans are unusable; the message names the file.
        UsageError
            The run's network is no Vision Transformer, or has no block; or as for `predict`.
        """
        from mri_vit.crossval import folds  # here, because torch takes seconds
        from mri_vit.explain import map_jobs
        from mri_vit.finished import exported_model
        from mri_vit.prepare import patient as preparing

        if self.study.model.architecture != "vit":
            raise UsageError(f"{self.folder}: maps need a Vision Transformer, found {self.study.model.architecture}")
        if not self.study.model.attends:
            raise UsageError(f"{self.folder}: {NO_BLOCK}")
        run_cohort.refuse_real(self.folder, self.synthetic, [patient], allow_synthetic, "allow_synthetic=True")
        exported = exported_model.is_model(self.folder)  # whose patients have no names
        split = [] if exported else folds.load(self.folder / files.FOLDS, run_cohort.included(self.study, self.folder))[0]
        home = Path(folder) / patient.id
        with TemporaryDirectory(prefix="mri-vit-") as temporary:
            study = self._prepared_in(prepared or temporary)
            preparing.prepare_patient(patient, study.prepared, study.channels, study.grid, study.prepare)
            map_jobs.of_one(patient, study, self.folder, split, home)
        return home

    def _prepared_in(self, folder: Path | str) -> Study:
        return self.study.model_copy(update={"prepared": Path(folder)})


def load_run(folder: Path | str) -> FinishedRun:
    """A finished run, or a model that `mri-vit export model` wrote.

    Parameters
    ----------
    folder
        The output folder of a trained study, which may have been moved; or the folder of a model.

    Raises
    ------
    UsageError
        The folder holds no finished run.
    IntegrityError
        A file of the run was changed after it was written.

    Examples
    --------
    >>> from mri_vit import load_run, read_cohort
    >>> finished = load_run(run)
    >>> patients = read_cohort(cohort)[-2:]
    >>> scores = finished.predict(patients)
    >>> list(scores.columns), len(scores)  # two patients, two endpoints
    (['patient', 'endpoint', 'score', 'models'], 4)
    >>> maps = finished.explain(patients[0], folder)
    >>> (maps / "map.json").exists()
    True
    """
    from rich.console import Console

    from mri_vit.finished.exported_model import is_model, open_model
    from mri_vit.finished.trained_run import open_run

    opened = open_model(Path(folder)) if is_model(Path(folder)) else open_run(Path(folder))
    opened.refuse_changed(Console(quiet=True))
    return FinishedRun(Path(folder), opened.study, opened.synthetic)


def write_report(
    predictions: Path | str,
    cohort: Path | str,
    output: Path | str,
    subgroups: Sequence[str] = (),
    design: Literal["cross-validation", "external"] = "cross-validation",
    numbers: Sequence[str] = (),
    grades: Sequence[str] = (),
    competing: Sequence[str] = (),
    margin: float | None = None,
    thresholds: tuple[float, float] | None = None,
) -> Path:
    r"""Write a report from a table of any model's predictions.

    Parameters
    ----------
    predictions
        CSV with `patient`, `endpoint` and `score`, and optionally `class` (a row for each), `model`, `repeat`, `fold`, `truth`,
        `time_days`, `event` and `threshold`.
    cohort
        The table of these patients: `patient`, labels, clinical columns.
    output
        Folder for `index.html`, `metrics.json`, figures and tables.
    subgroups
        Columns of the cohort table for subgroups, beside sex, age and site.
    design
        `"external"` where no model was trained on these patients, as on a test set; else errors are enlarged for refitting.
    numbers
        Endpoints that are numbers.
    grades
        Endpoints whose classes are grades, in the order of their rows.
    competing
        Survival endpoints with 2 in the event column for an event that came first, such as another death.
    margin
        By which an AUC or C may fall short of another and not be called inferior, above 0 and below 0.5.
    thresholds
        Lowest and highest risk from which one would act, for net benefit over this range.

    Returns
    -------
    Path of the page.

    Raises
    ------
    UsageError
        A table is wrong (the message names the row), or `output` holds something else.

    Examples
    --------
    >>> from mri_vit import write_report
    >>> rows = [f"p{i},mgmt,{i / 20},{i % 2}" for i in range(20)]
    >>> _ = (folder / "scores.csv").write_text("\n".join(["patient,endpoint,score,truth", *rows]))
    >>> _ = (folder / "people.csv").write_text("\n".join(["patient,mgmt", *(f"p{i},{i % 2}" for i in range(20))]))
    >>> write_report(folder / "scores.csv", folder / "people.csv", folder / "report").name
    'index.html'
    """
    from rich.console import Console

    from mri_vit.report.pages import report_files  # here, because matplotlib takes seconds
    from mri_vit.report.reading.foreign_table import Declared

    if design not in ("cross-validation", "external"):
        raise UsageError(f"design is {design!r}; expected cross-validation or external")
    declared = Declared(
        held_out=design == "external",
        subgroups=tuple(subgroups),
        numbers=tuple(numbers),
        grades=tuple(grades),
        competing=tuple(competing),
        margin=margin,
        thresholds=thresholds,
    )
    return report_files.report_table(Path(predictions), Path(cohort), Path(output), Console(quiet=True), declared=declared)

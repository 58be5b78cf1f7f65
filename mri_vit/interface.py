"""What a notebook calls where a command line would be in the way: plain values in and out, and nothing is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.run import files
from mri_vit.settings.recipe import CHANNELS
from mri_vit.settings.schema import NO_BLOCK, Endpoint, Study
from mri_vit.settings.sections import Explain, Grid, Prepare

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]  # called with how many of how many steps are done


def silent(done: int, of: int) -> None:
    """No progress is shown."""


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
        Whose label columns are read; other columns are clinical ones and stay text. A missing label is NaN.
    needed
        Columns that the table must have beside `patient` and the labels; those of scans where none are given.
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
    """Prepare one patient's scans, unless that was done before with the same settings from the same files.

    Parameters
    ----------
    patient
        As `read_cohort` gives it; its `scans`, in their order, are those of the prepared patient. The reference must be
        there (T1ce, unless `prepare.reference` names another); of the others those that `prepare.needs` names.
    folder
        For prepared patients; this one's folder goes into it.
    grid
        The grid; 224³ voxels of 1 mm in patches of 16³ where none is given.
    prepare
        Brain extraction and bias correction; as in a study file that says nothing of them where none is given.

    Returns
    -------
    Path of the patient's folder with `tokens.safetensors`, `patient.json` and `qc.png`; see `load_tokens`.

    Raises
    ------
    UnusablePatient
        Something is wrong with the scans; the message names the file, and nothing is left behind.
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
    >>> tokens.patches.shape[1], tokens.patches.dtype.name, tokens.grid.places  # four sequences of 8³ voxels, 4³ places
    (2048, 'float16', 64)
    """
    from mri_vit.prepare import patient as preparing

    folder = Path(folder)
    study = Study(
        name="notebook", cohort=folder / "cohort.csv", prepared=folder, output=folder / "run",
        channels=tuple(patient.scans), grid=grid or Grid(), prepare=prepare or Prepare(), explain=Explain(patients=0, scored=0),
    )  # fmt: skip
    return preparing.prepare_patient(patient, study)


@dataclass(frozen=True)
class FinishedRun:
    """A run that was trained: its folder and its settings. `load_run` gives one."""

    folder: Path
    study: Study

    def predict(
        self,
        patients: Sequence[Patient],
        prepared: Path | str | None = None,
        progress: Progress = silent,
        allow_synthetic: bool = False,
    ) -> pd.DataFrame:
        """Predict patients whom the run was not trained on, by the mean of all its folds' models. No label is read.

        Parameters
        ----------
        patients
            As `read_cohort` gives them, with the scans of the run's `study.channels`.
        prepared
            Folder for the prepared patients, who are prepared where they are not yet; a temporary one where none is given.
        progress
            Called with the number of folds whose model has predicted, and of all.
        allow_synthetic
            Whether a run of synthetic patients may be asked about real ones; what it says of them means nothing.

        Returns
        -------
        DataFrame with the columns patient, endpoint, score and models. A score is for a binary endpoint what the networks take
        for a probability, not calibrated and no call (`mri-vit predict` makes both), and for survival a risk (higher: earlier
        death); `models` is the number of folds' models that it is the mean of. With
        `train.seeds` above 1 a fold's model is itself the mean of so many networks.

        Raises
        ------
        UnusablePatient
            Something is wrong with a patient's scans; the message names the file.
        UsageError
            The run learned from synthetic patients, and one here is real.
        """
        from mri_vit.finished.trained_run import mean_of_folds  # here, because torch takes seconds
        from mri_vit.prepare import patient as preparing

        run_cohort.refuse_real(self.folder, patients, allow_synthetic, "allow_synthetic=True")
        with TemporaryDirectory(prefix="mri-vit-") as temporary:
            study = self._prepared_in(prepared or temporary)
            for patient in patients:
                preparing.prepare_patient(patient, study)
            return mean_of_folds(self.folder, study, list(patients), progress)[0]

    def explain(
        self, patient: Patient, folder: Path | str, prepared: Path | str | None = None, allow_synthetic: bool = False
    ) -> Path:
        """Write the maps of one patient, in the patient's own space.

        A patient of the run is explained by the network of the first repeat that had not seen them; anybody else by that of
        the first fold, and `map.json` says whose it was. Of several networks of a fold (`train.seeds`) it is the first.

        Parameters
        ----------
        patient
            As `read_cohort` gives it.
        folder
            For the maps; the patient's folder goes into it.
        prepared, allow_synthetic
            As for `predict`.

        Returns
        -------
        Path of the patient's folder with a NIfTI file for each method and scan, pictures, and `map.json`.

        Raises
        ------
        UnusablePatient
            Something is wrong with the patient's scans; the message names the file.
        UsageError
            The run's network is of an architecture that has no maps, or has no block; or as for `predict`.
        """
        from mri_vit.crossval import folds  # here, because torch takes seconds
        from mri_vit.data import run_cohort
        from mri_vit.explain import map_jobs
        from mri_vit.prepare import patient as preparing

        if self.study.model.architecture != "vit":
            raise UsageError(f"{self.folder}: maps are of Vision Transformers, found {self.study.model.architecture}")
        if not self.study.model.attends:
            raise UsageError(f"{self.folder}: {NO_BLOCK}")
        run_cohort.refuse_real(self.folder, [patient], allow_synthetic, "allow_synthetic=True")
        split = folds.load(self.folder / files.FOLDS, run_cohort.included(self.study, self.folder))[0]
        home = Path(folder) / patient.id
        with TemporaryDirectory(prefix="mri-vit-") as temporary:
            study = self._prepared_in(prepared or temporary)
            preparing.prepare_patient(patient, study)
            map_jobs.of_one(patient, study, self.folder, split, home)
        return home

    def _prepared_in(self, folder: Path | str) -> Study:
        return self.study.model_copy(update={"prepared": Path(folder)})


def load_run(folder: Path | str) -> FinishedRun:
    """A finished run.

    Parameters
    ----------
    folder
        The output of a study that has been trained; it may have been moved.

    Raises
    ------
    UsageError
        There is no finished run in the folder.
    IntegrityError
        A file of it was changed after it was written.

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

    from mri_vit.finished.trained_run import finished
    from mri_vit.run import integrity

    study = finished(Path(folder))
    integrity.refuse_changed_run(Path(folder), Console(quiet=True), integrity.OWN_FOLDS)
    return FinishedRun(Path(folder), study)


def write_report(predictions: Path | str, cohort: Path | str, output: Path | str, subgroups: Sequence[str] = ()) -> Path:
    r"""Write a report from a table of predictions that somebody else's model made.

    Parameters
    ----------
    predictions
        CSV with `patient`, `endpoint` and `score`, and what else is known of `model`, `repeat`, `fold`, `truth`, `time_days`,
        `event` and `threshold`.
    cohort
        The table of the patients that it is about: `patient`, labels, clinical columns.
    output
        Folder for `index.html`, `metrics.json`, figures and tables.
    subgroups
        Columns of the cohort table that are looked into beside sex, age and site.

    Returns
    -------
    Path of the page.

    Raises
    ------
    UsageError
        A table is wrong, with its row named, or `output` holds something else.

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

    from mri_vit.report.pages import terminal  # here, because matplotlib takes seconds

    return terminal.report_table(Path(predictions), Path(cohort), Path(output), tuple(subgroups), Console(quiet=True))

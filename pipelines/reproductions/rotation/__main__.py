"""How far do predictions and maps move when the patient lies rotated by 0 to 30 degrees? Of a finished run's Vision Transformer.

pipelines/reproduce.py rotation runs/demo
pipelines/reproduce.py rotation runs/demo --patients other.csv --output runs/rotation-other  (patients of another table)

Each patient is read by the network that was not trained on them; patients of another table, of whom no label is read, by the
first fold's. Scans, or headers alone, are turned about the brain's middle and prepared anew; beside them the prepared volume is
turned, which nothing undoes. Result: RUN/rotation/index.html. A run that was stopped goes on with the patients that it has.

Twelve patients of the demo are 372 preparations: eight and a half minutes on two cores beside other work.
Real heads take five to ten times as long: --degrees 10 --degrees 20 --degrees 30 asks for half of the angles.
"""

from pathlib import Path

from rich.console import Console

from mri_vit.cli.arguments import Count
from mri_vit.crossval import folds
from mri_vit.data import cohort, run_cohort
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.interface import load_run
from mri_vit.prepare import prepared
from mri_vit.prepare.patient import prepare_patient
from mri_vit.run import atomic, executors, files, screen
from mri_vit.run.jobs import Workplace
from mri_vit.run.screen import progress
from mri_vit.settings.file import all_from_demo
from reproductions.rotation import rotated, rotated_patients, rotation_page
from reproductions.rotation.rotated_patients import DEGREES, Plan

PATIENTS = "patients"  # the folder of what is done
LIMIT = 12  # patients, the first of the table: less than ten minutes for the demo's
MADE_UP = (
    "The run was trained on synthetic patients and these are real: where heads lie and how far maps move is meant as it stands;"
    " what the network says of these patients means nothing, only how far it moves."
)
AT_A_TIME = 2  # patients, each on a thread of its own; no machine has fewer cores today


def main(
    run: Path,
    *,
    patients: Path | None = None,
    output: Path | None = None,
    limit: Count = LIMIT,
    degrees: tuple[float, ...] = DEGREES,
    axes: tuple[str, ...] = rotated.AXES,
    workers: Count = AT_A_TIME,
) -> None:
    """Rotate the first patients of a run, or of another table, and write the page.

    Parameters
    ----------
    run : folder of a finished run.
    patients : another cohort table, whose patients the run was not trained on.
    output : folder of the page; `rotation` in the run's folder where none is given.
    limit : how many patients.
    degrees : angles beside 0.
    axes : x, y, z or some of them.
    workers : patients at a time.
    """
    console = Console()
    if unknown := sorted(set(axes) - set(rotated.AXES)):
        raise UsageError(f"--axes: found {', '.join(unknown)}; expected some of {', '.join(rotated.AXES)}")
    if wrong := [angle for angle in degrees if not 0 < angle <= 180]:
        raise UsageError(f"--degrees: found {wrong[0]:g}; expected more than 0 and at most 180 (0 is always there)")
    finished = load_run(run)
    study, home = finished.study, output or run / "rotation"
    if study.model.architecture != "vit":
        raise UsageError(f"{run}: maps are of Vision Transformers, found {study.model.architecture}")
    own = run_cohort.included(study, run)
    fold_of = {name: fold for fold, names in enumerate(folds.load(run / files.FOLDS, own)[0]) for name in names}

    with atomic.held(home, (PATIENTS,)):
        # the run's own patients are prepared; those of another table are prepared here
        if patients is None:
            chosen = own[:limit]
            prepared.refuse_changed_patients(study.prepared, chosen, run)
            prepared.refuse_missing_scans((p, path) for p in chosen for path in (*p.scans.values(), p.tumour_mask) if path)
        else:
            study = study.model_copy(update={"prepared": home / "prepared"})
            chosen = []
            for patient in cohort.read(patients, (), study.prepare.needs, study.channels)[:limit]:
                try:
                    prepare_patient(patient, study.prepared, study.channels, study.grid, study.prepare)
                    chosen.append(patient)
                except UnusablePatient as fault:
                    screen.say(console, f"left out {patient.id}: {fault}")
        if not chosen:
            raise UsageError(f"{patients or run}: no patient who can be rotated; --limit was {limit}")

        plans = [Plan(degrees, axes, axis) for axis in axes]
        jobs = rotated_patients.jobs(chosen, fold_of, study, run, plans, home / PATIENTS)
        (home / PATIENTS).mkdir(parents=True, exist_ok=True)
        todo = {name: (job,) for name, job in jobs.items() if not rotated_patients.is_done(job)}
        with progress(console) as bar:
            task = bar.add_task("rotate", total=len(todo), note="")
            for name, _ in executors.each(rotated_patients.make, todo, Workplace(workers)):
                bar.update(task, advance=1, note=name)

        strange = patients is not None and not all_from_demo(one.id for one in chosen)
        page = rotation_page.write(
            rotated_patients.tables(jobs),
            chosen,
            study,
            MADE_UP if strange and all_from_demo(one.id for one in own) else "",
            home,
        )
        screen.say(console, f"page: {page}")

"""The stage that predicts new patients: a finished run and their scans go in, a folder of each and tables of all come out."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from mri_vit import study as stages
from mri_vit.crossval import folds
from mri_vit.crossval.folds import Split
from mri_vit.data import cohort, predictions, run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.finished import new_scans, predicted_endpoints, predicted_patient, reference, trained_run
from mri_vit.finished import overlap as prediction_known
from mri_vit.finished import predicted_patient as prediction_patient
from mri_vit.finished.predicted_endpoints import RunResults, Source
from mri_vit.finished.predicted_patient import Basis
from mri_vit.finished.prediction_document import BinaryValue, Known, Prediction, RunFacts, Weights, is_trusted
from mri_vit.finished.reference import Reference
from mri_vit.finished.trained_run import FoldOutputs, finished
from mri_vit.prepare.patient import Excluded, excluded_table, without_excluded
from mri_vit.run import files, integrity
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import read_json
from mri_vit.run.screen import WARNING, printable, progress, say
from mri_vit.settings.schema import Study
from mri_vit.settings.source import licence_caution, licence_text, stated_licence

OURS = {  # names in the output
    *(files.STUDY, files.ENVIRONMENT, files.ORIGIN, files.COHORT, files.EXCLUDED, files.FINDINGS, files.DECISIONS, files.JOBS),
    *(files.PREDICTIONS, files.SURVIVAL, files.PAGE, files.LOG, "prepared", new_scans.CONVERTED),
}
OUTSIDE = {"within": "false", "outside": "true", "not known": ""}  # by placement
STARTED = "training started from weights of others ({file}), {licence}"
OWN_LICENCE = "the run's own: trained in this study from random weights, so that whoever owns the run decides"
SYNTHETIC = f"the run was trained on synthetic patients ({{learned}}), and this patient is real: {run_cohort.NO_FINDING}"
PRETRAINED = "pretrained without labels ({method}) on the study's own patients, then trained in this study"


@dataclass(frozen=True)
class Allowed:
    """What is predicted, and marked, on demand alone."""

    untrusted: bool = False  # endpoints that the run did not tell from chance; else nothing of them is written
    known: bool = False  # patients on whom the run was trained
    synthetic: bool = False  # real patients by a run of synthetic ones


def predict(run: Path, source: Path, output: Path, workers: int, allowed: Allowed, console: Console) -> Excluded:
    """Predict new patients by the mean of a run's fold models; nothing is fitted anew, and no label is read.

    Parameters
    ----------
    run
        Folder of a run whose training has ended.
    source
        A cohort table, or the folder of one patient's scans (see `scans.of`).
    output
        For each patient a folder with `prediction.json`, `qc.png` and `maps`, whole or not there; beside them
        `predictions.csv`, `survival.csv` and `excluded.csv`. Patients who are prepared there are not prepared again.
    workers
        Patients prepared at a time.

    Returns
    -------
    Rows of `excluded.csv`: who could not be prepared or drawn, with file and reason; all others are done.

    Raises
    ------
    UsageError
        No finished run, no scans that can be told apart, a patient whom the run was trained on, or a real patient where those
        were synthetic.
    IntegrityError
        A file of the run was changed after it was written.
    """
    past = finished(run)
    integrity.refuse_changed_run(run, console, integrity.OWN_FOLDS)
    study = _elsewhere(past, source, output, workers)
    with run_folder.claimed(study) as folder:
        given = new_scans.read_new_patients(source, study, output, lambda line: say(console, line, WARNING))
        real = run_cohort.refuse_real(run, given.patients, allowed.synthetic, "--allow-synthetic")
        for table in (files.PREDICTIONS, files.SURVIVAL):  # of an earlier command, which may have shown more
            (folder / table).unlink(missing_ok=True)
        began = time.monotonic()
        excluded = stages.prepare(study, given.patients, folder, console)
        patients = without_excluded(given.patients, excluded)
        if patients:
            spent = {"prepare": (time.monotonic() - began) / len(given.patients)}
            excluded += _predicted(run, past, study, patients, given, real, allowed, spent, folder, console)
            write_bytes(excluded_table(excluded), folder / files.EXCLUDED)
        for row in excluded:
            predicted_patient.forget(home_of(row["patient"], folder))
    return excluded


def _elsewhere(past: Study, source: Path, output: Path, workers: int) -> Study:
    """The run's settings for other patients, whom its reviewer has not seen.

    A tumour is segmented only where scans are cut around it: no other prediction needs one.
    """
    tumour_command = past.prepare.tumour_command if past.prepare.tumour_crop_margin_mm is not None else ()
    return past.model_copy(
        update={
            "cohort": source.resolve(),
            "output": output.resolve(),
            "prepared": output.resolve() / "prepared",
            "prepare": past.prepare.model_copy(update={"workers": workers, "tumour_command": tumour_command}),
            "qc": past.qc.model_copy(update={"decisions": None}),
        }
    )


def home_of(patient: str, folder: Path) -> Path:
    """A patient's folder in the output; no id starts with _, by which one of an output's own names is told from its file."""
    return folder / (f"_{patient}" if patient.casefold() in OURS else patient)


def _predicted(
    run: Path,
    past: Study,
    study: Study,
    patients: list[Patient],
    given: new_scans.NewPatients,
    real: Sequence[Patient],
    allowed: Allowed,
    spent: dict[str, float],
    folder: Path,
    console: Console,
) -> Excluded:
    """Write the folders and tables of prepared patients; gives those whose scans could not be read for the maps."""
    inside = run_cohort.included(past, run)
    splits = folds.load(run / files.FOLDS, inside)
    homes = trained_run.network_folders(run, [len(split) for split in splits])
    if not homes:
        raise UsageError(f"{run}: no fold has {files.WEIGHTS}; new patients are predicted by the networks of a run")
    met = _known(run, past, study, patients, homes.values(), console)
    refused = [] if allowed.known else prediction_known.refused_patients(run, study, patients, met, console)
    patients = without_excluded(patients, refused)
    metrics, verdicts = predicted_endpoints.reported_verdicts(run)
    like, said = _compared_and_asked(run, past, study, patients, inside, splits, spent, console)
    facts = _facts(run, past, inside, splits, verdicts)
    basis = Basis(
        facts=facts,
        of_run=RunResults.of(metrics, predictions.load(run / files.PREDICTIONS), past.seed),
        reference=like,
        weights={place: home / files.WEIGHTS for place, home in homes.items()},
        synthetic={one.id: SYNTHETIC.format(learned=facts.synthetic) for one in real},
        show_untrusted=allowed.untrusted,
        home=given.home,
        remarks=given.remarks,
        seconds=spent,
        versions=_versions(),
    )
    written, excluded = _written(patients, study, said, met, basis, folder, console)
    _write_tables(written, said, study, folder)
    _tell(written, basis, folder, console)
    return [*refused, *excluded]


def _compared_and_asked(
    run: Path,
    past: Study,
    study: Study,
    patients: Sequence[Patient],
    inside: Sequence[Patient],
    splits: Sequence[Split],
    spent: dict[str, float],
    console: Console,
) -> tuple[Reference | str, dict[str, list[FoldOutputs]]]:
    """The run's reference, and what its networks say of each patient, under a bar; `spent` gets the seconds of each patient."""
    counts = [len(split) for split in splits]
    total = len(trained_run.network_folders(run, counts))
    with progress(console) as bar:
        task = bar.add_task("compare", total=total, note="with the run's patients, who are looked at once")
        began = time.monotonic()
        like = reference.reference_of_run(run, past, inside, splits, lambda: bar.update(task, advance=1))
        bar.update(task, completed=total, note="")
        looked = time.monotonic()
        task = bar.add_task("predict", total=total, note="")
        said = trained_run.fold_outputs(run, counts, study, patients, lambda: bar.update(task, advance=1))
        spent |= {"reference": (looked - began) / len(patients), "networks": (time.monotonic() - looked) / len(patients)}
    return like, said


def _written(
    patients: Sequence[Patient],
    study: Study,
    said: dict[str, list[FoldOutputs]],
    met: dict[str, Known],
    basis: Basis,
    folder: Path,
    console: Console,
) -> tuple[dict[str, Prediction], Excluded]:
    """Each patient's folder, written one after the other; and who could not be drawn, with file and reason."""
    written: dict[str, Prediction] = {}
    excluded: Excluded = []
    with progress(console) as bar:
        task = bar.add_task("write", total=len(patients), note="")
        for one in patients:
            try:
                written[one.id] = prediction_patient.write_patient(
                    one, study, said[one.id], met[one.id], basis, home_of(one.id, folder)
                )
            except UnusablePatient as fault:
                excluded.append({"patient": one.id, "file": printable(Path(fault.file).name), "reason": printable(fault.reason)})
                say(bar.console, f"excluded {one.id}: {fault}", WARNING)
            bar.update(task, advance=1)
    return written, excluded


def _known(
    run: Path, past: Study, study: Study, patients: Sequence[Patient], homes: Collection[Path], console: Console
) -> dict[str, Known]:
    """Of each patient whether the run knows them."""
    own = {one.subject for one in cohort.read(run / files.COHORT, past.endpoints, channels=past.channels)}
    exposed = prediction_known.exposed_labels(homes, own)
    found = {one.id: prediction_known.overlap_of(one, study, run, own, exposed) for one in patients}
    for name, one in found.items():
        if one.twin or one.same_id or one.exposed:
            say(console, f"{name}: {one.sentence}", WARNING)
    return found


def _facts(run: Path, past: Study, inside: Sequence[Patient], splits: Sequence[Split], verdicts: Source) -> RunFacts:
    homes = trained_run.network_folders(run, [len(split) for split in splits])
    weights = [files.seed_folder(home, seed) / files.WEIGHTS for home in homes.values() for seed in range(past.train.seeds)]
    started, terms = _beginning(past)
    return RunFacts(
        study=past.name,
        patients=len({one.subject for one in inside}),
        folds=len(splits[0]),
        repeats=len(splits),
        seeds=past.train.seeds,
        folds_sha256=integrity.sha256(run / files.FOLDS),
        predictions_sha256=integrity.sha256(run / files.PREDICTIONS),
        verdicts=verdicts,
        weights=tuple(Weights(file=file.relative_to(run).as_posix(), sha256=integrity.sha256(file)) for file in weights),
        beginning=started,
        licence=terms,
        versions=read_json(run / files.ENVIRONMENT, ("versions",))["versions"],
        synthetic=run_cohort.synthetic_clause(run) or None,
    )


def _beginning(past: Study) -> tuple[str, str]:
    """Where training started from, and under which licence the weights are: for others' weights the one that the study states."""
    pretrained = PRETRAINED.format(method=past.pretrain.method) if past.pretrain.method != "none" else ""
    if past.model.weights is None:
        return pretrained or "trained in this study from random weights", OWN_LICENCE
    name = past.model.weights.name
    said = f"started from the weights {name}" + (f", {pretrained}" if pretrained else ", then trained in this study")
    stated = stated_licence(past.model.weights_licence)
    terms = STARTED.format(file=name, licence=licence_text(stated))
    return said, "; ".join(filter(None, [terms, licence_caution(name, stated)]))


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("mri-vit", "torch", "numpy", "SimpleITK", "nibabel")}


def _write_tables(written: dict[str, Prediction], said: dict[str, list[FoldOutputs]], study: Study, folder: Path) -> None:
    """The tables of all patients; what is withheld has an empty score and the reason, what is shown on demand alone the doubt.

    `outside` is whether the patient is unlike the run's, empty where that is not known; `trusted` whether nothing speaks against
    the row; `synthetic` whether the run was trained on synthetic patients.
    """
    scores, survival = [], []
    for name, made in written.items():
        for endpoint, one in made.endpoints.items():
            shared = {"patient": name, "endpoint": endpoint}
            ending = {
                "models": predicted_endpoints.models(said[name], endpoint),
                "withheld": one.withheld or "",
                "untrusted": one.untrusted or "",
                "outside": OUTSIDE[made.distribution.placement],
                "trusted": _yes(is_trusted(made, endpoint)),
                "synthetic": _yes(made.run.synthetic is not None),
            }
            called = one.value if isinstance(one.value, BinaryValue) else None
            calibrated = called.probability.value if called and called.probability else np.nan
            value = {
                "score": one.value.score if one.value else np.nan,
                "probability": calibrated,
                "call": (one.value.side if one.value else None) or "",
            }
            scores.append({**shared, **value, **ending})
            if one.kind == "survival":
                alive = [at.survival for at in one.value.horizons] if one.value else [np.nan] * len(HORIZONS_DAYS)
                survival += [
                    {**shared, "horizon_days": days, "survival": value, **ending}
                    for days, value in zip(HORIZONS_DAYS, alive, strict=True)
                ]
    about = ["models", "withheld", "untrusted", "outside", "trusted", "synthetic"]
    columns = {"score": ["patient", "endpoint", "score", "probability", "call", *about]}
    columns["survival"] = ["patient", "endpoint", "horizon_days", "survival", *about]
    predictions.save(pd.DataFrame(survival, columns=pd.Index(columns["survival"])), folder / files.SURVIVAL)
    predictions.save(pd.DataFrame(scores, columns=pd.Index(columns["score"])), folder / files.PREDICTIONS)


def _yes(value: bool) -> str:
    return "true" if value else "false"


def _tell(written: dict[str, Prediction], basis: Basis, folder: Path, console: Console) -> None:
    for said in dict.fromkeys(basis.synthetic.values()):
        say(console, said, WARNING)
    for name, made in written.items():
        for endpoint, one in made.endpoints.items():
            if one.withheld:
                say(console, f"{name}: {endpoint} withheld: {one.withheld}")
        if all(one.withheld for one in made.endpoints.values()):
            say(
                console, f"{name}: every endpoint is withheld; --show-untrusted shows what there is, marked as untrusted", WARNING
            )
        if made.distribution.placement != "within":
            say(console, f"{name}: {made.distribution.sentence}", WARNING)
    say(console, f"predictions: {folder / files.PREDICTIONS}, and a folder of each patient beside it")

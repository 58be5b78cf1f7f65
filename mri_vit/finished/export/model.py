"""Export a model: what predicts, explains and refuses as a run does, in a folder without an id, label or path of a patient.

Weights lose the ids in their headers; the out-of-fold rows become distributions, ids become salted hashes. What stays of the
run's patients is named in the model card: measures of their scans without a name and in an order of their own, because a rank
over all measures together cannot be taken from each one's distribution.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from mri_vit.errors import UsageError
from mri_vit.finished import exported_model, reference, run_metrics, trained_model, trained_run
from mri_vit.finished.export import model_card, monai_bundle
from mri_vit.finished.model_document import HashedPatients, ModelDocument
from mri_vit.finished.predicted_patient import NOTICE
from mri_vit.finished.trained_model import TrainedModel, weights_of
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.kinds.survival.heads import WEEK
from mri_vit.model import network
from mri_vit.run import atomic, files, integrity
from mri_vit.run.atomic import complete, write_bytes
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.run.screen import WARNING, progress, say
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

NO_REFERENCE = "the run's prepared patients were gone, or had changed, when the model was exported"


def export_model(home: Path, output: Path, console: Console) -> None:
    """Write the model of the run in `home` into the folder `output`, complete or not at all. The same run gives the same bytes.

    Raises UsageError where there is no finished run with networks, or something else lies at `output`; IntegrityError where a
    file of the run was changed.
    """
    refuse_foreign(output)
    run = trained_run.open_run(home)
    run.refuse_changed(console)
    if not run.networks:
        raise UsageError(f"{home}: no fold has {files.WEIGHTS}; a model needs the networks of the run")
    model = trained_model.of_run(run)
    with progress(console) as bar:
        task = bar.add_task("compare", total=len(model.networks), note="the run's patients with one another, once per run")
        like = model.reference(lambda: bar.update(task, advance=1))
    if isinstance(like, str):  # which may name a patient or a folder
        say(console, f"new patients cannot be compared with the run's: {like}", WARNING)
        like = None
    with complete(output, refuse_foreign) as beside:
        written = write(run, model, like, beside)
        size = sum(file.stat().st_size for file in beside.rglob("*") if file.is_file())
    say(
        console,
        f"model: {output}, {len(written)} files, {size / 1e6:.1f} MB; {exported_model.FILE} and {model_card.FILE} say what it is",
    )


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is absent, empty or a model of ours."""
    atomic.refuse_link(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; expected a folder for a model, or nothing")
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir()}
    ours = read_json_or_empty(folder / exported_model.FILE).get("schema") == exported_model.SCHEMA
    written = read_json_or_empty(folder / files.HASHES).get("files", {})
    if names and not (ours and names <= {*written, files.HASHES}):
        raise UsageError(
            f"{folder} holds something else than a model of mri-vit; it is left unchanged: choose another output, or delete it"
            " first"
        )


def write(run: TrainedRun, model: TrainedModel, like: reference.Reference | None, folder: Path) -> list[str]:
    """Write all files of a model into an empty folder, without a reference where there is none; returns their names."""
    for place, home in model.networks.items():
        for seed in range(run.study.train.seeds):
            to = files.seed_folder(files.fold_folder(folder, *place), seed)
            to.mkdir(parents=True)
            trained = network.load(files.seed_folder(home, seed) / files.WEIGHTS)
            _refuse_days_of_patients(trained, home)
            trained.label_exposed = trained.image_exposed = (network.UNNAMED,)
            network.save(trained, to / files.WEIGHTS)
    if like:
        reference.write(reference.unnamed(like), folder / exported_model.REFERENCE)
    networks = {place: files.fold_folder(folder, *place) for place in model.networks}
    facts = model.facts.model_copy(update={"weights": weights_of(networks, run.study.train.seeds, folder)})
    salt = hashlib.sha256(f"{facts.folds_sha256}{facts.predictions_sha256}".encode()).hexdigest()  # one of its own for each run
    known = model.known.hashed(salt)
    document = ModelDocument(
        notice=NOTICE,
        version=version("mri-vit"),
        facts=facts,
        networks=tuple(model.networks),
        endpoints=dict(model.endpoints),
        maps=dict(model.maps),
        known=HashedPatients(
            salt=salt,
            scans=dict(known.scans),
            subjects=dict(known.subjects),
            exposed=tuple(known.exposed),
            networks=known.networks,
        ),
        no_reference=None if like else NO_REFERENCE,
    )
    write_bytes(document.model_dump_json(indent=1).encode() + b"\n", folder / exported_model.FILE)
    write_bytes(study_file.dumps(portable(run.study)).encode(), folder / files.STUDY)
    model_card.write(run_metrics.metrics_of_folder(run.folder)[0], document, folder / model_card.FILE)
    monai_bundle.write(run.study, document, folder)
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    integrity.write_hashed(folder, names, {})
    return [*names, files.HASHES]


def _refuse_days_of_patients(trained: network.Network, home: Path) -> None:
    """Raise UsageError where a head's intervals end on days on which patients died, as they once did."""
    for head in trained.heads:
        if any(day % WEEK for day in head.cuts_days):
            raise UsageError(
                f"{home}: the head of {head.endpoint.name} holds days on which patients died, as an earlier version made it;"
                " train again to export a model without them"
            )


def portable(study: Study) -> Study:
    """The settings without a path; where scans are not cropped around it, as in any prediction, no program finds a tumour."""
    bare = study_file.portable(study)
    changed: dict[str, Any] = {"workers": 1}
    if bare.prepare.tumour_command and bare.prepare.tumour_crop_margin_mm is None:
        changed |= {"tumour_command": (), "tumour": "given"}
    return bare.model_copy(update={"prepare": bare.prepare.model_copy(update=changed)})

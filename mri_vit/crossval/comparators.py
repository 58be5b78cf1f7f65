"""Comparators: the networks that a study trains on the same folds as its own, and what must hold before training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.run import files
from mri_vit.run.resource import require_gpus
from mri_vit.settings import source
from mri_vit.settings.recipe import FLAIR, SLICES, VIT
from mri_vit.settings.schema import Endpoint, Study


def check(study: Study, patients: Sequence[Patient]) -> None:
    """See that every network can be made, and filled with the weights that it is to start from.

    Raises UsageError that names the network, before hours have gone into others; IntegrityError for damaged weights.
    """
    for name, of in networks(study).items():
        if of.model.weights and (wrong := source.fault(of.model.weights)):
            raise UsageError(f"{name}: {source.shown(of.model.weights)}: {wrong} (model.weights)")
    if study.controls.slices and (wrong := source.fault(study.controls.slices)):
        raise UsageError(f"slices: {source.shown(study.controls.slices)}: {wrong} (controls.slices)")
    if study.controls.radiomics:
        from mri_vit.predictors import patient_tables  # here, because pandas takes as long to import as all else

        patient_tables.installed()
    refuse_missing_gpus(study)
    for name, of in networks(study).items():
        try:
            if of.train.uses_tumour_masks:
                refuse_without_masks(patients, of)
            if of.model.architecture != "vit" or of.model.weights:  # our own from random weights can be made
                _refuse_unmade(of, patients)
        except (UsageError, ValueError) as error:
            raise UsageError(f"{name}: {error}") from None
    if study.controls.slices:
        from mri_vit.model.checkpoint import read_2d
        from mri_vit.predictors.slices import encoder_2d

        encoder_2d(read_2d(study.controls.slices))


def _refuse_unmade(study: Study, patients: Sequence[Patient]) -> None:
    """Make a network, and fill it with the weights that it is to start from. Raises UsageError or ValueError."""
    import torch  # here, because it takes longer to import than `check` needs for most studies

    from mri_vit.model.network import Network
    from mri_vit.model.weights import fill, licence_of
    from mri_vit.train.mask_supervision import refuse_without_regions

    refuse_label_exposed(study, patients)
    weights = study.model.weights
    with torch.device("cpu" if weights else "meta"):  # "meta": shapes alone
        net = Network(study.model, study.grid, [], study.channels)
    if study.train.uses_tumour_masks:
        refuse_without_regions(net)
    if weights:
        fill(net.encoder, weights, study.model, study.grid)
        if (found := licence_of(weights)) not in (None, study.model.weights_licence):
            raise UsageError(
                f"{weights}: was trained from weights of the licence {found}, which holds on; state it:"
                f' model.weights_licence = "{found}"'
            )


def refuse_without_masks(patients: Sequence[Patient], study: Study) -> None:
    """Raise UsageError where tumour masks are to supervise and no patient has one, or can get one."""
    settings = study.prepare
    given = settings.takes_given_masks and any(patient.tumour_mask for patient in patients)
    found = settings.finds_tumours and (bool(settings.tumour_command) or FLAIR in study.channels)
    if not given and not found:
        raise UsageError(
            f"train.mask_supervision_… needs tumour masks, none of {len(patients)} patients has one, and with"
            f' prepare.tumour = "{settings.tumour}" and the scans {", ".join(study.channels)} none is found: tumours are found in'
            ' FLAIR; name masks in the cohort table\'s column tumour_mask, or train without: recipe = "no-masks"'
        )


def pretrains(study: Study) -> bool:
    """Whether the study's own network or any of its comparators starts from a pretraining of its own."""
    return any(of.pretrain.method != "none" for of in networks(study).values())


def refuse_missing_gpus(study: Study) -> None:
    """Raise UsageError naming the network where this process sees fewer GPUs than its `train.devices`, and would train it."""
    for name, of in networks(study).items():
        if of.train.devices > 1 and study.executor.kind == "local":  # a cluster's jobs see GPUs of their own
            try:
                require_gpus(of.train.devices)
            except UsageError as error:
                raise UsageError(f"{name}: {error}") from None


def cautions(study: Study) -> list[str]:
    """What has to be known of the licences of the weights that the study's networks start from, by the network's name, and of
    those that the control slices reads.
    """
    cautions = {
        name: source.licence_caution(of.model.weights.name, source.stated_licence(of.model.weights_licence))
        for name, of in networks(study).items()
        if of.model.weights
    }
    if of_slices := study.controls.slices:
        cautions[SLICES] = source.licence_caution(of_slices.name, source.stated_licence(study.controls.slices_licence))
    return [f"{name}: {one}" for name, one in cautions.items() if one]


def comparator_folder(run: Path, name: str) -> Path:
    """Where a network's folds lie."""
    return run if name == VIT else run / files.COMPARATORS / name


def control_folder(run: Path, name: str) -> Path:
    """Where a control's folds lie."""
    return run / files.CONTROLS / name.replace(" ", "-")


def networks(study: Study) -> dict[str, Study]:
    """The study of each network that takes part, by name: the study's own and its comparators."""
    return {
        VIT: study.model_copy(update={"comparators": ()}),
        **{comparator.name: study.of(comparator) for comparator in study.comparators},
    }


def judged(study: Study, clinical: bool) -> int:
    """How many models are judged on each endpoint; `clinical`: whether there is a column for late fusion."""
    return len(networks(study)) + (study.fused and clinical)


def tested(endpoints: tuple[Endpoint, ...], patients: Sequence[Patient]) -> set[str]:
    """Subjects with a label, who are tested in some fold."""
    return {p.subject for p in patients if any(p.knows(e) for e in endpoints)}


def refuse_label_exposed(study: Study, patients: Sequence[Patient]) -> None:
    """Raise UsageError when the study starts from weights that are label-exposed to its test patients, by their ids."""
    if not study.model.weights:
        return
    from mri_vit.model.weights import label_exposed  # imports torch

    known = sorted(tested(study.endpoints, patients) & set(label_exposed(study.model.weights)))
    if known:
        raise UsageError(
            f"{study.model.weights}: this network was trained on labels of {len(known)} patients who have the ids of this"
            f" study's, the first {known[0]}, and would be tested on them; start from weights of other patients, or from an"
            " encoder that was pretrained without labels, or give other people other ids"
        )

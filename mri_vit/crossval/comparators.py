"""Comparators: the networks that a study trains on the same folds beside its own, and what must hold before training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.run import files
from mri_vit.settings import source
from mri_vit.settings.models import VIT
from mri_vit.settings.schema import Study


def check(study: Study, patients: Sequence[Patient]) -> None:
    """See that every contender's network can be made, and filled with the weights that it is to start from.

    Raises UsageError that names the contender, before hours have gone into others; IntegrityError for damaged weights.
    """
    for name, of in contenders(study).items():
        if of.model.weights and (wrong := source.fault(of.model.weights)):
            raise UsageError(f"{name}: {source.shown(of.model.weights)}: {wrong} (model.weights)")
    import torch  # here, because its import takes seconds, which a wrong path need not wait for

    from mri_vit.model.network import Network
    from mri_vit.model.weights import fill

    for name, of in contenders(study).items():
        try:
            refuse_taught(of, patients)
            with torch.device("cpu" if of.model.weights else "meta"):  # "meta": shapes alone
                net = Network(of.model, of.grid, [])
            if of.model.weights:
                fill(net.encoder, of.model.weights, of.model, of.grid)
        except (UsageError, ValueError) as error:
            raise UsageError(f"{name}: {error}") from None


def comparator_folder(run: Path, name: str) -> Path:
    """Where a contender's folds lie."""
    return run if name == VIT else run / files.COMPARATORS / name


def contenders(study: Study) -> dict[str, Study]:
    """The study of each network that takes part, by name."""
    return {
        VIT: study.model_copy(update={"comparators": ()}),
        **{comparator.name: study.of(comparator) for comparator in study.comparators},
    }


def judged(study: Study, patients: Sequence[Patient]) -> set[str]:
    """Subjects with a label, who are a test in some fold."""
    return {p.subject for p in patients if any(p.knows(e) for e in study.endpoints)}


def refuse_taught(study: Study, patients: Sequence[Patient]) -> None:
    """Weights that know the labels of those whom they are to be tested on, told by their ids, make no valid design."""
    if not study.model.weights:
        return
    from mri_vit.model.weights import taught

    known = sorted(judged(study, patients) & set(taught(study.model.weights)))
    if known:
        raise UsageError(
            f"{study.model.weights}: this network was trained on labels of {len(known)} patients who have the ids of this"
            f" study's, the first {known[0]}, and would be tested on them; start from weights of other patients, or from an"
            " encoder that was pretrained without labels, or give other people other ids"
        )

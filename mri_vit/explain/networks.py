"""Networks: whose maps a study makes, each with the study that it is explained by, and their methods. Quick to import."""

from __future__ import annotations

from mri_vit.settings.recipe import VIT, Architecture
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import AnyMethod

# Heads of these read no mean of a convolutional map: after a hybrid's trunk comes attention, to which a channel's mean gradient
# over the voxels says little, a maximum has a gradient at one voxel of each channel alone, so that the mean would spread it over
# voxels that counted nothing, and the others have no such map at all. In model/baselines.py they have no layer that is averaged.
WITHOUT_MEAN: tuple[Architecture, ...] = (
    "hybrid", "hybrid_resnet10", "resnet10_max", "resnet10_dilated_max", "monai_vit", "swin_vit",
)  # fmt: skip


def explained(study: Study) -> dict[str, Study]:
    """By name the study of each network whose maps are made, the study's own first; `explain.methods` are the network's.

    A comparator's patients are the study's. A study that is given to a stranger's network may lack its comparators.
    """
    found = {VIT: study}
    for comparator in study.comparators:
        if comparator.name in study.explain.comparators:
            of = study.of(comparator)
            methods = methods_of(of.model.architecture, study.explain.methods)
            found[comparator.name] = of.model_copy(update={"explain": study.explain.model_copy(update={"methods": methods})})
    return found


def methods_of(architecture: Architecture, asked: tuple[AnyMethod, ...]) -> tuple[AnyMethod, ...]:
    """How a network is explained: a Vision Transformer of ours as the study asks, one that reads a volume as it can be."""
    if architecture == "vit":
        return asked
    return ("occlusion_by_air",) if architecture in WITHOUT_MEAN else ("gradcam", "occlusion_by_air")

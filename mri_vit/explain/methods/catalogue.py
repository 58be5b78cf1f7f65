"""Catalogue: each map method with its title and source, and which of them explain which network. Plain data, quick to import."""

from __future__ import annotations

from dataclasses import dataclass

from mri_vit.settings.recipe import VIT, Architecture
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import AnyMethod

# Positions along the edge of what occlusion hides: 32 mm on the full grid, a tumour's size; one alone hides too little.
BLOCK_EDGE = 2
UNIT = "relative to a uniform map"  # 1 is a grid position's even share of the map's sum
# Architectures without Grad-CAM, whose heads do not read the mean of a convolutional map: a hybrid's trunk is followed by
# attention, a maximum has its gradient at one voxel of each channel, which the mean would spread over the others, and the rest
# have no such map. In model/baselines.py they have no layer that is averaged.
WITHOUT_MEAN: tuple[Architecture, ...] = (
    "hybrid", "hybrid_resnet10", "resnet10_max", "resnet10_dilated_max", "monai_vit", "swin_vit",
)  # fmt: skip


@dataclass(frozen=True)
class Method:
    """How a map is made. `per_endpoint` is False where the map belongs to the encoder and is the same for every endpoint."""

    title: str
    source: str
    per_endpoint: bool
    meaning: str  # what it shows, in one sentence


METHODS = {
    "rollout": Method(
        "attention rollout",
        "Abnar & Zuidema 2020, arXiv:2005.00928",
        False,
        "It shows where information may have flowed; it is the same for every endpoint.",
    ),
    "cls_attention": Method(
        "CLS attention of the last block",
        "Caron et al. 2021, arXiv:2104.14294",
        False,
        "It shows what the last block attended to; it is the same for every endpoint.",
    ),
    "gradient_attention": Method(
        "gradient-weighted attention",
        "Chefer et al. 2021, arXiv:2103.15679",
        True,
        "It shows where attention supported the prediction.",
    ),
    "gradient_rollout": Method(
        "gradient rollout",
        "Abnar & Zuidema 2020 with the positive part of gradient × attention, rows made to sum to 1",
        True,
        "It is rollout along the attention that supported the prediction.",
    ),
    "integrated_gradients": Method(
        "integrated gradients",
        "Sundararajan et al. 2017, arXiv:1703.01365",
        True,
        "It shows which voxels, compared with a scan of the brain's mean brightness, supported the prediction.",
    ),
    "occlusion": Method(
        "occlusion by grid position",
        "Zeiler & Fergus 2014, arXiv:1311.2901, on tokens left out",
        True,
        "It shows where the prediction weakens when the grid position is left out.",
    ),
    "gradcam": Method(
        "Grad-CAM",
        "Selvaraju et al. 2017, arXiv:1610.02391",
        True,
        "It shows where the last convolutional map supported the prediction.",
    ),
    "occlusion_by_air": Method(
        "occlusion by air",
        "Zeiler & Fergus 2014, arXiv:1311.2901, on blocks of grid positions set to 0, which is air",
        True,
        "It shows where the prediction weakens when the position's voxels are set to 0, as outside the brain; the network never "
        "saw such a hole in training, and its edges contribute to the map.",
    ),
}


def explained(study: Study) -> dict[str, Study]:
    """By name the study of each network whose maps are made, the study's own first; `explain.methods` are the network's."""
    studies = {VIT: study}
    for comparator in study.comparators:
        if comparator.name in study.explain.comparators:
            of = study.of(comparator)
            methods = methods_of(of.model.architecture, study.explain.methods)
            studies[comparator.name] = of.model_copy(update={"explain": study.explain.model_copy(update={"methods": methods})})
    return studies


def methods_of(architecture: Architecture, asked: tuple[AnyMethod, ...]) -> tuple[AnyMethod, ...]:
    """The methods for a network: of our Vision Transformer those asked for, of a network of volumes those that it allows."""
    if architecture == "vit":
        return asked
    return ("occlusion_by_air",) if architecture in WITHOUT_MEAN else ("gradcam", "occlusion_by_air")

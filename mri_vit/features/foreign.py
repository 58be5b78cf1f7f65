"""Encoders that others have learned: a file goes in, and by its keys and shapes it is told which architecture it is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mri_vit.errors import UsageError
from mri_vit.features import dino, monai_vit, primus
from mri_vit.features.card import Card
from mri_vit.features.fitting import Foreign
from mri_vit.features.scan import Expected
from mri_vit.model.checkpoint import read_tensors
from mri_vit.settings.sections import Grid

Read = Callable[[Mapping[str, Tensor], Path, int | None, int | None], Foreign]


@dataclass(frozen=True)
class Architecture:
    """How an encoder is known and read: `anchor` is a key that it alone has; `axes` are those of the arrays that its authors'
    code gives it, `edge` is read where the weights serve any.
    """

    anchor: str
    read: Read
    axes: str
    edge: int


ARCHITECTURES = {
    "MONAI ViT": Architecture(monai_vit.ANCHOR, monai_vit.read, "RAS", 96),  # BrainIAC's edge
    "Primus": Architecture(primus.ANCHOR, primus.read, "SAR", 160),  # nnU-Net reads z, y, x; at 1 mm 160 hold most of a brain
    "3D DINO ViT": Architecture(dino.ANCHOR, dino.read, "RAS", 96),
}


def load(path: Path, card: Card, grid: Grid) -> tuple[Foreign, Expected]:
    """An encoder with its weights, and the scans that it expects of patients who were prepared on `grid`.

    Where the card states no spacing, the encoder's cube is laid over the whole prepared box.

    Raises
    ------
    UsageError
        The file is of no known architecture, or is not whole: file, key, what was found and what is expected are named.
    IntegrityError
        The file is damaged.
    """
    tensors = read_tensors(path)
    name = next((one for one, kind in ARCHITECTURES.items() if any(key.endswith(kind.anchor) for key in tensors)), None)
    if name is None:
        known = ", ".join(f"{kind.anchor} ({one})" for one, kind in ARCHITECTURES.items())
        raise UsageError(
            f"{path}: no known 3D encoder: found keys such as {sorted(tensors)[0]}; expected one that ends in {known}"
        )
    if empty := [key for key, value in tensors.items() if not value.numel()]:
        raise UsageError(f"{path}: {empty[0]} has shape {list(tensors[empty[0]].shape)}; expected numbers in it")
    kind = ARCHITECTURES[name]
    try:
        encoder = kind.read(tensors, path, card.heads, card.edge)
    except (IndexError, KeyError, ValueError, RuntimeError, ZeroDivisionError) as error:  # of a shape that nobody thought of
        raise UsageError(f"{path}: its tensors do not make up one {name}: {' '.join(str(error).split())}") from None
    edge = encoder.edge or card.edge or kind.edge
    if edge % encoder.patch:
        raise UsageError(f"{path}: an edge of {edge} voxels is no multiple of its patch of {encoder.patch}; give another --edge")
    spacing_mm = card.spacing_mm or round(grid.edge * grid.spacing_mm / edge, 6)
    return encoder, Expected(edge, encoder.patch, spacing_mm, card.intensity, card.axes or kind.axes)

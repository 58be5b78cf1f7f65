"""The command line's verb on weights that others have learned, as thin as the others in `mri_vit.cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mri_vit.arguments import Output, loaded
from mri_vit.run import files


def features(
    source: Path,
    *,
    weights: Path,
    output: Annotated[Path, Output],
    licence: str | None = None,
    channels: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    fusion: Literal["concatenate", "mean"] = "concatenate",
    heads: int | None = None,
    edge: int | None = None,
    spacing_mm: float | None = None,
    intensity: Literal["zscore", "unit"] | None = None,
    axes: str | None = None,
) -> int:
    """Write what a frozen encoder, of others or of ours, reads of each prepared patient; goes on where it was stopped.

    Parameters
    ----------
    source
        Study file, folder of a run, or folder of prepared patients.
    weights
        File of weights: a MONAI ViT, a 3D DINO ViT or a Primus as .safetensors, .pt, .pth or .ckpt; or a network or pretrained
        encoder of ours. A file WEIGHTS.toml beside it may hold what the next options say.
    output
        Folder for features.safetensors.
    licence
        Terms of the weights, such as CC-BY-4.0; they stand wherever the features are used. Unset: not stated.
    channels
        Sequences that are read, in the encoder's order; all where none is named. Give it once for each.
    fusion
        Of an encoder of one channel, which reads each sequence by itself: side by side, or the mean.
    heads
        Attention heads, where the width does not tell them.
    edge
        Voxels along the edge of the cube that is read, where the weights serve any.
    spacing_mm
        Edge of its voxels; as large as lays the cube over the prepared box where none is given.
    intensity
        What the brain's voxels are brought to: zscore, or unit for 0 to 1.
    axes
        Where the array's axes point to, such as RAS; SAR is nnU-Net's z, y, x.
    """
    study = None if any(source.glob(f"*/{files.TOKENS}")) else loaded(source, {})  # before what takes longer to import
    from rich.console import Console

    from mri_vit.features import extraction
    from mri_vit.run.screen import WARNING, say

    console = Console()
    prepared, unprepared = extraction.of_study(study) if study else (extraction.in_folder(source), [])
    if unprepared:
        say(console, f"{len(unprepared)} patients are not prepared, the first {unprepared[0]}; they are left out", WARNING)
    card = {"licence": licence, "heads": heads, "edge": edge, "spacing_mm": spacing_mm, "intensity": intensity, "axes": axes}
    return (
        3
        if extraction.write(prepared, extraction.Asked(weights, channels, fusion, card), output, console) + len(unprepared)
        else 0
    )

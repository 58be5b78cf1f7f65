"""Slices: frozen features of a 2D Vision Transformer, of every axial slice of a prepared patient, averaged, as a table.

The network is a file that the study names; nothing in it learns from the study. It is shown one sequence at a time as a grey
photograph, so that four sequences give four vectors: a slice as it is looked at (columns from the patient's right to left, rows
from front to back, as `inflate` takes it), in the values that the study's network reads, resized to what its positions are of.
Letters: c sequences, x y z axes of the grid, s slices, r image edge, e patch edge, d width, n positions with CLS.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import safetensors.numpy
import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import token_file
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.model.checkpoint import Weights2D, read_2d
from mri_vit.model.encoder import Encoder
from mri_vit.run import files, integrity
from mri_vit.run.atomic import replacing
from mri_vit.run.integrity import sort_header
from mri_vit.settings import source
from mri_vit.settings.recipe import SIZES
from mri_vit.settings.schema import Study

SCHEMA = "mri-vit slices 1"
SLICES_PER_PASS = 16  # slices in one pass: more are no faster on a CPU, and fewer leave a GPU idle
HEAD_WIDTH = 64  # width of an attention head in every published ViT but H (Dosovitskiy et al. 2021, Table 1)


def slices_table(patients: Sequence[Patient], study: Study) -> pd.DataFrame:
    """A row per visit id: the d features of each sequence, in columns `<sequence>_<number>`; NaN of one that was not acquired.

    A patient's features are computed once, and kept in the folder of the prepared patients under the SHA-256 of the file.

    Raises UsageError where the file is missing or holds no plain 2D Vision Transformer, IntegrityError where it, or the tokens of
    the patient who is named, are damaged.
    """
    path = study.controls.slices
    assert path
    torch.set_num_threads(study.train.threads)
    encoder: Encoder | None = None
    if not path.is_file():
        raise UsageError(f"{path}: no such file; controls.slices names a 2D Vision Transformer's weights")
    known, rows = integrity.sha256(path), []
    for patient in patients:
        kept = study.prepared / files.SLICES / known / f"{patient.id}.safetensors"
        try:
            file = token_file(study.prepared, patient)
            if not file.is_file():
                raise IntegrityError(f"{file}: no such file; {tokens.PREPARE_AGAIN}")
            of_tokens = integrity.sha256(file)
            vectors = _kept(kept, of_tokens)
            if vectors is None:
                encoder = encoder or encoder_2d(read_2d(path))
                vectors = features(encoder, tokens.load(file, study.channels))
                kept.parent.mkdir(parents=True, exist_ok=True)
                with replacing(kept) as beside:
                    safetensors.numpy.save_file({"features": vectors}, beside, {"schema": SCHEMA, "tokens": of_tokens})
                    sort_header(beside)
        except IntegrityError as error:
            raise IntegrityError(f"patient {patient.id}: no features of slices by {path.name}: {error}") from None
        rows.append(vectors.ravel())
    columns = [f"{channel}_{number}" for channel in study.channels for number in range(len(rows[0]) // len(study.channels))]
    return pd.DataFrame(np.stack(rows), pd.Index([p.id for p in patients]), pd.Index(columns), dtype=float)


def described(table: pd.DataFrame, study: Study) -> str:
    """The columns in words, with the file that made them."""
    path = study.controls.slices
    assert path
    return (
        f"the CLS features of a frozen 2D Vision Transformer, {path.name} ({source.licence_text(study.controls.slices_licence)}, "
        f"SHA-256 {integrity.sha256(path)}), averaged over the axial slices that hold brain, of {', '.join(study.channels)} "
        f"({len(table.columns)} columns)"
    )


def encoder_2d(weights: Weights2D) -> Encoder:
    """The network of a file, as our encoder over the positions of one image. Raises UsageError where its heads are not known."""
    dim, _, edge, _ = weights.tensors["embed.weight"].shape
    positions, mlp = weights.tensors["position"].shape[1] - 1, len(weights.tensors["blocks.0.mlp.0.bias"])
    published = {(width, depth): heads for width, depth, heads, _ in SIZES.values()}
    heads = weights.heads or published.get((dim, weights.depth)) or dim // HEAD_WIDTH
    if not heads or dim % heads:
        raise UsageError(
            f"{weights.path}: a width of {dim} is no published one, and the file does not state its attention heads; expected a"
            " file of S, B, L or H, or one of the JAX code, which states them"
        )
    with torch.device("meta"):
        encoder = Encoder(3 * edge**2, positions, dim, weights.depth, heads, mlp)
    kernel = rearrange(weights.tensors["embed.weight"], "d rgb row column -> d (rgb row column)")
    encoder.load_state_dict(weights.tensors | {"embed.weight": kernel}, assign=True)
    encoder.norm_eps = weights.norm_eps
    return encoder.eval().requires_grad_(False).to("cuda" if torch.cuda.is_available() else "cpu")


@torch.no_grad()
def features(encoder: Encoder, stored: tokens.Tokens) -> Float[np.ndarray, "c d"]:
    """Each sequence's normalised CLS token, the mean over the axial slices that hold brain; NaN of one that was not acquired."""
    volume = torch.from_numpy(tokens.to_volume(stored).astype(np.float32))
    held = (volume != 0).any(dim=0).any(dim=0).any(dim=0)  # of the brain is what is not 0 in any sequence
    means = np.full((len(volume), encoder.dim), np.nan)
    for index, sequence in enumerate(volume):
        if sequence.any() and held.any():
            each = [_of_images(encoder, some) for some in as_seen(sequence[..., held]).split(SLICES_PER_PASS)]
            means[index] = torch.cat(each).double().mean(dim=0).cpu().numpy()
    return means


def as_seen(slices: Float[Tensor, "x y s"]) -> Float[Tensor, "s row column"]:
    """Axial slices as they are looked at: front up, the patient's right on the left."""
    return rearrange(slices.flip(0, 1), "x y s -> s y x")


def _of_images(encoder: Encoder, grey: Float[Tensor, "s row column"]) -> Float[Tensor, "s d"]:
    """CLS of grey images, which are shown in the size that the positions are of."""
    positions, device = encoder.position.shape[1] - 1, encoder.position.device
    edge = round((encoder.embed.in_features / 3) ** 0.5)  # type: ignore[operator]
    side = round(positions**0.5)
    sized = F.interpolate(grey[:, None], size=(side * edge, side * edge), mode="bilinear", align_corners=False)
    cut = rearrange(sized, "s 1 (i row) (j column) -> s (i j) (row column)", row=edge, column=edge)
    patches = repeat(cut, "s p k -> s p (rgb k)", rgb=3).to(device)
    return encoder(patches, torch.arange(positions, device=device).expand(len(patches), -1))


def _kept(path: Path, of_tokens: str) -> Float[np.ndarray, "c d"] | None:
    """Features that were computed of the same tokens; None where there are none, or they are damaged."""
    if not path.is_file():
        return None
    try:
        with safetensors.safe_open(str(path), "numpy") as file:
            metadata = file.metadata() or {}
            same = (metadata.get("schema"), metadata.get("tokens")) == (SCHEMA, of_tokens)
            return file.get_tensor("features") if same else None
    except (safetensors.SafetensorError, OSError):
        return None

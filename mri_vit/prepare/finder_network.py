"""The finder's network in numpy: inputs on voxels of 2 mm in, log odds of tumour out. PyTorch, whose import takes a second and
200 MB of every process that prepares, is needed for its training alone (`pipelines/tumour_finder/network.py`).

A 3D U-Net (Ronneberger et al. 2015, arXiv:1505.04597; Çiçek et al. 2016, arXiv:1606.06650). Within, voxels are of 4 mm, eight of
2 mm to one, and each level below doubles their edge. Letters: n input channels, o output channels, v voxels.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
from einops import rearrange
from jaxtyping import Float
from safetensors.numpy import load_file
from scipy.special import erf

WEIGHTS = "finder.safetensors"
LEVELS = 4  # of voxels of 4, 8, 16 and 32 mm
NORM_GROUPS = 4  # of channels that share a mean and variance (Wu & He 2018, arXiv:1803.08494)
NORM_EPS = 1e-5  # PyTorch's
Weights = dict[str, np.ndarray]


@cache
def weights() -> Weights:
    """The trained weights, which are stored in half precision; kept for the life of the process."""
    stored = load_file(str(files("mri_vit.prepare") / WEIGHTS))
    return {name: array.astype(np.float32) for name, array in stored.items()}


def log_odds(scans: Float[np.ndarray, "n x y z"], w: Weights) -> Float[np.ndarray, "x y z"]:
    """Of tumour at each voxel, of which there are a multiple of 16 along each axis."""
    x = pointwise(rearrange(scans, "i (x u) (y v) (z w) -> (i u v w) x y z", u=2, v=2, w=2), w, "stem")
    levels = []
    for depth in range(LEVELS):
        x = block(halved(x) if depth else x, w, f"down.{depth}")
        levels.append(x)
    for depth in reversed(range(LEVELS - 1)):
        x = block(levels[depth] + doubled(pointwise(x, w, f"across.{depth}")), w, f"up.{depth}")
    return rearrange(pointwise(x, w, "out"), "(u v w) x y z -> (x u) (y v) (z w)", u=2, v=2, w=2)


def block(x: Float[np.ndarray, "n x y z"], w: Weights, name: str) -> Float[np.ndarray, "o x y z"]:
    """Two 3×3×3 convolutions, each normalised, added to what went in."""
    hidden = gelu(normalised(convolved(x, w, f"{name}.first"), w, f"{name}.norms.0"))
    hidden = gelu(normalised(convolved(hidden, w, f"{name}.second"), w, f"{name}.norms.1"))
    return hidden + (pointwise(x, w, f"{name}.skip") if f"{name}.skip.weight" in w else x)


def pointwise(x: Float[np.ndarray, "n x y z"], w: Weights, name: str) -> Float[np.ndarray, "o x y z"]:
    """A convolution of one voxel."""
    weight = w[f"{name}.weight"].reshape(-1, len(x))
    return (weight @ x.reshape(len(x), -1) + w[f"{name}.bias"][:, None]).reshape(-1, *x.shape[1:])


def convolved(x: Float[np.ndarray, "n x y z"], w: Weights, name: str) -> Float[np.ndarray, "o x y z"]:
    """A 3×3×3 convolution with zeros around.

    Padded voxels lie in a row, where a step along x or y is a shift by some voxels: nine products of matrices, of three voxels
    along z each, with no copy but that of these three.
    """
    n, *shape = x.shape
    padded = np.zeros((3, n, *(size + 2 for size in shape)), np.float32)
    padded[1, :, 1:-1, 1:-1, 1:-1] = x
    padded[0, ..., 1:], padded[2, ..., :-1] = padded[1, ..., :-1], padded[1, ..., 1:]
    rows = padded.reshape(3 * n, -1)
    along_y = shape[2] + 2
    along_x = (shape[1] + 2) * along_y
    first, last = along_x + along_y, rows.shape[1] - along_x - along_y  # between them lie all voxels that are wanted
    kernel = np.ascontiguousarray(rearrange(w[f"{name}.weight"], "o n i j k -> i j o (k n)"))
    out = np.empty((kernel.shape[2], rows.shape[1]), np.float32)
    wanted, product = out[:, first:last], np.empty((kernel.shape[2], last - first), np.float32)
    wanted[:] = w[f"{name}.bias"][:, None]
    for i, j in np.ndindex(3, 3):
        shift = (i - 1) * along_x + (j - 1) * along_y
        wanted += np.matmul(kernel[i, j], rows[:, first + shift : last + shift], out=product)
    return out.reshape(-1, *padded.shape[2:])[:, 1:-1, 1:-1, 1:-1]


def normalised(x: Float[np.ndarray, "o x y z"], w: Weights, name: str) -> Float[np.ndarray, "o x y z"]:
    """Group normalisation."""
    groups = x.reshape(NORM_GROUPS, -1)
    apart = groups - groups.mean(axis=1, keepdims=True)
    scaled = (apart / np.sqrt(np.square(apart).mean(axis=1, keepdims=True) + np.float32(NORM_EPS))).reshape(len(x), -1)
    return (scaled * w[f"{name}.weight"][:, None] + w[f"{name}.bias"][:, None]).reshape(x.shape)


def gelu(x: Float[np.ndarray, "o x y z"]) -> Float[np.ndarray, "o x y z"]:
    """x times the share of a normal distribution below it (Hendrycks & Gimpel 2016, arXiv:1606.08415)."""
    return x * (np.float32(0.5) + np.float32(0.5) * erf(x * np.float32(0.5**0.5)))


def halved(x: Float[np.ndarray, "n x y z"]) -> Float[np.ndarray, "n i j k"]:
    """Means of eight voxels each."""
    return rearrange(x, "n (x u) (y v) (z w) -> n x y z (u v w)", u=2, v=2, w=2).mean(axis=-1)


def doubled(x: Float[np.ndarray, "n x y z"]) -> Float[np.ndarray, "n i j k"]:
    """Twice as many voxels along each axis, interpolated linearly between the middles of the old ones."""
    for axis in (1, 2, 3):
        count = x.shape[axis]
        before, after = (np.take(x, (np.arange(count) + step).clip(0, count - 1), axis) for step in (-1, 1))
        fine = np.stack([x * 0.75 + before * 0.25, x * 0.75 + after * 0.25], axis + 1)
        x = fine.reshape(*x.shape[:axis], 2 * count, *x.shape[axis + 1 :])
    return x

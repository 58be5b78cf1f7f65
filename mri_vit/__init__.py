"""Deep learning on brain-tumour MRI: scans to prepared patients, cross-validated predictions, a report and attention maps.

What a notebook needs stands here; each name is imported when it is first used, so that `import mri_vit` costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mri_vit.data.tokens import load as load_tokens
    from mri_vit.explain.methods.rollout import rollout
    from mri_vit.interface import FinishedRun, load_run, prepare_patient, read_cohort, write_report
    from mri_vit.metrics.concordance import harrell_c
    from mri_vit.metrics.discrimination import auc, delong_interval
    from mri_vit.model.encoder import Encoder as ViT

# Two threads share every product of a network, and torch's OpenMP (libgomp) has the one that is done first spin for a
# millisecond, on a core that another program may need. 3000 turns are some microseconds; it has to be set before torch is
# imported, and changes no number (measured: docs/decisions/network.md).
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

# On a GPU cuBLAS adds up in one order with it (PyTorch's notes on reproducibility), and looks for it at its first product alone.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

__version__ = "0.5.0"
__all__ = [
    "FinishedRun",
    "ViT",
    "auc",
    "delong_interval",
    "harrell_c",
    "load_run",
    "load_tokens",
    "prepare_patient",
    "read_cohort",
    "rollout",
    "write_report",
]
_HOMES = {  # module and name there; those of `interface` are not listed
    "ViT": ("mri_vit.model.encoder", "Encoder"),
    "auc": ("mri_vit.metrics.discrimination", "auc"),
    "delong_interval": ("mri_vit.metrics.discrimination", "delong_interval"),
    "harrell_c": ("mri_vit.metrics.concordance", "harrell_c"),
    "load_tokens": ("mri_vit.data.tokens", "load"),
    "rollout": ("mri_vit.explain.methods.rollout", "rollout"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mri_vit' has no attribute {name!r}")
    module, attribute = _HOMES.get(name, ("mri_vit.interface", name))
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

"""The demo's study file: the one of a checkout, or where there is none a copy of the package's own."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

CHECKOUT = Path("configs/demo.toml")
FOLDER = Path("mri-vit-demo")  # in the current folder; the study keeps its cohort and its run in it, under runs/


def study_file() -> Path:
    """The demo's study file as seen from the current folder, written there where it is missing."""
    if CHECKOUT.exists():
        return CHECKOUT
    own = FOLDER / CHECKOUT
    if not own.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes((files("mri_vit.settings") / "demo.toml").read_bytes())
    return own

"""The demo: its study file, that of a checkout or else a copy of the package's own; and how its made-up patients are known."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

CHECKOUT = Path("configs/demo.toml")
PATIENT = "demo-"  # how the ids of the built-in cohort's patients begin
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


def made_up(patients: Iterable[str]) -> bool:
    """Whether these are patients of the built-in cohort alone, by their ids; nobody is."""
    return all(patient.startswith(PATIENT) for patient in patients)

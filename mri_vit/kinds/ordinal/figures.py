"""The figures of grades."""

from __future__ import annotations

from mri_vit.kinds.class_figures import ClassFigures

PART = ClassFigures()

"""Writing a file whole needs no imaging library."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("SimpleITK", "nibabel", "monai", "deepbet", "nilearn")
LIGHT = ("mri_vit.run.atomic", "mri_vit.data.predictions", "mri_vit.crossval.folds", "mri_vit.train.checkpoint")


def test_what_writes_tables_folds_and_checkpoints_imports_no_imaging_library():
    code = f"import sys, {', '.join(LIGHT)}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

"""What the tests of an installation share: the wheelhouse."""

from __future__ import annotations

from pathlib import Path

import pytest
import wheelhouse as wheels
from conftest import MakeOnce

from mri_vit.errors import UsageError


@pytest.fixture(scope="session")
def wheelhouse(made_once: MakeOnce) -> Path:
    """A wheelhouse of the checkout, with the PyTorch that these tests run on; it is skipped where an index cannot be reached."""

    def make(folder: Path) -> None:
        import torch

        try:
            wheels.build(f"torch=={torch.__version__}", output=folder)
        except UsageError as error:
            pytest.skip(f"the wheels cannot be had here: {error}")

    return made_once("wheelhouse", make)

"""What the tests of an installation share: the wheelhouse, and processes without a network or in another root."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import wheelhouse as wheels
from conftest import MakeOnce


@pytest.fixture(scope="session")
def wheelhouse(made_once: MakeOnce) -> Path:
    """A wheelhouse of the checkout, with the PyTorch that these tests run on; it is skipped where an index cannot be reached."""

    def make(folder: Path) -> None:
        import torch

        try:
            wheels.build(f"torch=={torch.__version__}", output=folder)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"the wheels cannot be had here: pip ended with {error.returncode}")

    return made_once("wheelhouse", make)

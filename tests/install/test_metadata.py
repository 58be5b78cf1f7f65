"""What the package says of itself to others: its citation, and the licences of what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sbom

ROOT = Path(__file__).parents[2]
CFFCONVERT = "cffconvert==2.0.0"  # in an environment of its own: it needs older libraries than we do


def part(name: str, *licences: dict[str, object]) -> dict[str, object]:
    """A part as CycloneDX describes it."""
    return {"name": name, "version": "1", "licenses": list(licences)}


@pytest.mark.parametrize(
    ("licence", "free"),
    [
        ({"license": {"id": "MIT"}}, True),
        ({"license": {"name": "License :: OSI Approved :: BSD License"}}, True),
        ({"expression": "Apache-2.0 OR GPL-3.0-only"}, True),
        ({"expression": "MIT AND LGPL-3.0-or-later"}, False),
        ({"license": {"id": "AGPL-3.0-only"}}, False),
        ({"license": {"name": "GNU General Public License v3 (GPLv3)"}}, False),
        ({"license": {"name": "Other/Proprietary License"}}, False),
        ({"license": {"id": "MPL-2.0"}}, False),
        ({"license": {"id": "CC-BY-NC-4.0"}}, False),
    ],
)
def test_a_licence_that_binds_or_is_not_known_must_be_named(licence: dict[str, object], free: bool):
    assert (sbom.unnamed([part("new-package", licence)]) == []) is free


def test_a_part_that_states_no_licence_must_be_named_and_both_of_two_licences_count():
    assert sbom.unnamed([part("new-package")])
    assert sbom.unnamed([part("new-package", {"license": {"id": "MIT"}}, {"license": {"id": "GPL-2.0-only"}})])
    assert not sbom.unnamed([part("Fill_Voids", {"license": {"id": "LGPL-3.0-or-later"}}), part("nvidia-nccl-cu13")])


@pytest.mark.slow
def test_the_licence_of_everything_that_is_installed_is_permissive_or_named(wheelhouse: Path, tmp_path: Path):
    assert sbom.write(wheelhouse, output=tmp_path / "sbom.json") == 0
    known = {sbom.plain(one) for one in sbom.parts(tmp_path / "sbom.json")}
    assert {"torch", "monai", "deepbet", "pydicom"} <= known
    assert set(sbom.NAMED) <= known  # no name is left of what is no longer needed
    assert not {"pip", "pytest", "cyclonedx-bom"} & known


def test_the_citation_is_valid():
    command = [sys.executable, "-m", "uv", "tool", "run", "--quiet", CFFCONVERT, "--validate", "-i", str(ROOT / "CITATION.cff")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.stderr.startswith("error:"):  # uv's own: no index can be reached
        pytest.skip(f"{CFFCONVERT} cannot be had here: {done.stderr[-200:]}")
    assert "valid according to schema version 1.2.0" in done.stdout

"""The software bill of materials (SBOM) of what a user installs, by cyclonedx-bom, and the licence of each part of it.

Run from the checkout: make sbom     (after make wheelhouse, from which a fresh environment is installed)

Fails where a licence is neither permissive nor named below with a reason.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mri_vit.cli import exit_code
from mri_vit.errors import UsageError

ROOT = Path(__file__).parents[1]
CYCLONEDX = "cyclonedx-bom==7.5.0"  # in an environment of its own, so that it is no part of what it lists
# Free to use, change and pass on, also within other software, as long as the notice stays.
PERMISSIVE = re.compile(
    r"(?i)\b(MIT|0?BSD|Apache|ISC|PSF|Python-2\.0|HPND|Zlib|BSL-1\.0|CC0|CNRI-Python|Unlicense|Public Domain)\b"
)
WITH_CONDITIONS = re.compile(r"(?i)\b(A?GPL|LGPL|GNU|MPL|Mozilla|EPL|EUPL|CDDL|CC-BY-(NC|SA|ND)|Proprietary|Other)\b")
# By package what its metadata does not say, or why a licence with conditions is no obstacle. The package imports these, and
# changes and contains none.
NAMED = {
    "autograd-gamma": "MIT, by its file LICENSE",
    "certifi": "MPL-2.0: covers its own files alone, which are a list of certificates",
    "connected-components-3d": "LGPL-3.0-or-later: a library that can be replaced; extra brain alone (deepbet)",
    "dcm2niix": "BSD and public domain, by its file license.txt; extra dicom alone, a program of its own",
    "fastremap": "LGPL-3.0: a library that can be replaced; extra brain alone (deepbet)",
    "fill-voids": "LGPL-3.0-or-later: a library that can be replaced; extra brain alone (deepbet)",
    "monai": "Apache-2.0, by its file LICENSE",
    "nyxus": "MIT, by its file LICENSE; extra radiomics alone",
    "partd": "BSD-3-Clause, by its file LICENSE.txt; extra cluster alone",
    "protobuf": "BSD-3-Clause, by its file LICENSE",
    "tqdm": "MPL-2.0 and MIT: covers its own files alone",
}
NVIDIA = re.compile(r"nvidia-.*|cuda-toolkit")  # come with PyTorch's build for CUDA alone, and have NVIDIA's own licence


def write(wheelhouse: Path = ROOT / "wheelhouse", *, output: Path = ROOT / "sbom.json") -> int:
    """Write the SBOM of what a wheelhouse installs, and print each part's licence. Returns 1 where one needs a look.

    Parameters
    ----------
    wheelhouse
        As make wheelhouse wrote it.
    output
        The SBOM, as CycloneDX JSON.
    """
    if not (wheelhouse / "requirements.txt").exists():
        raise UsageError(f"{wheelhouse}: no requirements.txt; expected what `make wheelhouse` writes")
    with tempfile.TemporaryDirectory() as scratch:
        python = Path(scratch, "bin", "python")
        _call(sys.executable, "-m", "venv", "--without-pip", scratch)  # pip is no part of it
        install = ("install", "--quiet", "--disable-pip-version-check", "--no-warn-script-location", "--no-compile")
        _call(sys.executable, "-m", "pip", "--python", str(python), *install, "-r", str(wheelhouse / "requirements.txt"))
        made = ("environment", "--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--of", "JSON")
        uv = (sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", CYCLONEDX)
        _call(*uv, "cyclonedx-py", *made, "-o", str(output.absolute()), str(python))
    for part in (found := parts(output)):
        print(f"{part['name']} {part['version']}: {of_part(part)}")
    for line in (faults := unnamed(found)):
        print(line, file=sys.stderr)
    print(f"{output}: {len(found)} parts")
    return 1 if faults else 0


def _call(*command: str) -> None:
    if code := subprocess.run(command).returncode:
        raise UsageError(f"{' '.join(command)} ended with {code}, see the lines above")


def parts(file: Path) -> list[dict[str, Any]]:
    """The parts in an SBOM, by name."""
    return sorted(json.loads(file.read_text(encoding="utf-8"))["components"], key=plain)


def plain(part: Mapping[str, Any]) -> str:
    """The name of a part as the index compares it."""
    return re.sub(r"[-_.]+", "-", part["name"]).lower()


def licences(part: Mapping[str, Any]) -> list[str]:
    """What a part says of its licence."""
    stated = part.get("licenses", ())
    return [str(one.get("expression") or one["license"].get("id") or one["license"].get("name", "")) for one in stated]


def of_part(part: Mapping[str, Any]) -> str:
    """A part's licence for people: what is known of it here, or what it says."""
    said = ", ".join(licences(part)) or "none stated"
    return NAMED.get(plain(part)) or ("NVIDIA's own licence" if NVIDIA.fullmatch(plain(part)) else said)


def unnamed(parts: list[dict[str, Any]]) -> list[str]:
    """A line for each part whose licence is not permissive, or not stated, and is not named."""
    faults = []
    for part in parts:
        offered = [choice for one in licences(part) for choice in one.split(" OR ")]  # the user chooses
        free = any(PERMISSIVE.search(one) and not WITH_CONDITIONS.search(one) for one in offered)
        bound = [one for one in licences(part) if WITH_CONDITIONS.search(one) and " OR " not in one]
        named = plain(part) in NAMED or NVIDIA.fullmatch(plain(part))
        if not named and (bound or not free):
            found = ", ".join(licences(part)) or "none stated"
            faults.append(
                f"{part['name']} {part['version']}: licence {found}; expected a permissive one, or a line in {__file__}"
            )
    return faults


if __name__ == "__main__":
    sys.exit(exit_code.of_script(write))

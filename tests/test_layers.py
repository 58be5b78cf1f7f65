"""The contracts on layers in pyproject.toml: each breaks where it should, so that none is there for show."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.layers import LayersContract

ROOT = Path(__file__).parents[1]
CONFIGURATION = read_configuration(str(ROOT / "pyproject.toml"))
CONTRACTS = {one["name"]: one for one in CONFIGURATION["contracts_options"] if one["type"] == "layers"}
OFFENDERS = (  # (importer, imported): each passed the contracts of versions before 0.5
    ("mri_vit.data.volume", "mri_vit.synthetic"),
    ("mri_vit.crossval.comparators", "mri_vit.cli"),
    ("mri_vit.explain.methods.rollout", "mri_vit.explain.inspection.inspect_network"),
    ("mri_vit.report.figures.panels", "mri_vit.report.pages.report_files"),
)


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("mri_vit", cache_dir=None)


def modules(layer: str) -> list[str]:
    """The names in a layer, an optional one without its parentheses."""
    return [name.strip(" ()") for name in re.split(r"[|:]", layer)]


def forbidden(contract: dict[str, Any], graph: grimp.ImportGraph) -> Iterator[tuple[str, str]]:
    """Of each pair of neighbouring layers, and of each layer of several, an importer and what it must not import."""
    for container in contract["containers"]:
        layers = [[name for name in modules(layer) if f"{container}.{name}" in graph.modules] for layer in contract["layers"]]
        layers = [[f"{container}.{name}" for name in layer] for layer in layers if layer]
        for upper, lower in pairwise(layers):
            yield lower[0], upper[-1]
        for layer in layers:
            if len(layer) > 1:
                yield layer[0], layer[-1]


def broken(contract: dict[str, Any], graph: grimp.ImportGraph) -> set[tuple[str, str]]:
    """The pairs (importer, imported) of layers by which a contract is broken."""
    options = {key: value for key, value in contract.items() if key not in ("name", "type")}
    found = LayersContract(contract["name"], CONFIGURATION["session_options"], options).check(graph, verbose=False)
    return {(one["importer"], one["imported"]) for one in found.metadata["invalid_dependencies"]}


@pytest.mark.parametrize("name", CONTRACTS)
def test_an_import_that_a_layer_must_not_make_breaks_its_contract(name: str, graph: grimp.ImportGraph):
    contract = CONTRACTS[name]
    pairs = list(forbidden(contract, graph))
    assert len(pairs) >= len(contract["layers"]) - 1
    for importer, imported in pairs:
        planted = deepcopy(graph)
        # A planted import stands in a module of the layer, not in the room's empty __init__.
        planted.add_import(importer=inside(importer, graph), imported=inside(imported, graph))
        assert (importer, imported) in broken(contract, planted), f"{importer} may import {imported}"


def inside(layer: str, graph: grimp.ImportGraph) -> str:
    """A module of a layer: the layer itself where it is a file."""
    return min(graph.find_descendants(layer), default=layer)


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_file_in_no_layer_breaks_the_contract(name: str, graph: grimp.ImportGraph):
    grown = deepcopy(graph)
    grown.add_module(f"{CONTRACTS[name]['containers'][0]}.utils")
    options = {key: value for key, value in CONTRACTS[name].items() if key not in ("name", "type")}
    found = LayersContract(name, CONFIGURATION["session_options"], options).check(grown, verbose=False)
    assert f"{CONTRACTS[name]['containers'][0]}.utils" in found.metadata["undeclared_modules"]


def test_what_earlier_versions_let_pass_is_found_by_the_command(tmp_path: Path):
    """ExpectedVerdict as lines of source in a copy, and looked for by `lint-imports`, as in `make check`."""
    shutil.copytree(ROOT / "mri_vit", tmp_path / "mri_vit", ignore=shutil.ignore_patterns("__pycache__", "vendor"))
    for importer, imported in OFFENDERS:
        file = tmp_path / Path(*importer.split(".")).with_suffix(".py")
        file.write_text(file.read_text() + f"\n\ndef planted():\n    import {imported}\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--config", ROOT / "pyproject.toml", "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    for importer, imported in OFFENDERS:
        assert f"{importer} -> {imported} (l." in done.stdout

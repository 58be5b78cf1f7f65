"""The script of figures from a GPU: on a CPU everything of it that one can do, and its arithmetic on the page."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu
import pytest
import torch
from benchmarks.gpu_rollout import carried_by, flexible, on_processor
from benchmarks.gpu_steps import WARM_UP, Way, expected_seconds, step_of
from benchmarks.rollout import full_product, peaked

from mri_vit.model.encoder import Encoder
from mri_vit.settings.schema import Model

ROOT = Path(__file__).parent.parent
SCRIPT, PAGE = ROOT / "pipelines" / "gpu.py", ROOT / "docs" / "howto" / "gpu.md"
FEW = {"patients": 2, "tokens": 20}


@pytest.mark.parametrize("kernel", [on_processor, flexible])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_a_log_sum_exp_carries_rollout_as_the_product_of_matrices_does(kernel):
    torch.manual_seed(0)
    encoder = peaked(Encoder(8, 27, 48, 3, 4, 96).eval())
    patches, position = torch.randn(2, 21, 8), torch.arange(21).expand(2, -1)
    row = carried_by(kernel, encoder, patches, position).double()
    expected = full_product(encoder.double(), patches.double(), position)
    assert expected.std(dim=1).min() > 1e-3  # far from even
    torch.testing.assert_close(row, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "way", [{"masked": True}, {"cast": True}, {"masters": True}, {"fused": False}, {"ordered": True}], ids=str
)
def test_each_way_of_a_step_makes_the_plain_ones_step(way):
    def losses(**how: Any) -> list[float]:
        step = step_of(Way(**FEW, **how), gpu.SMALL)
        return [step().item() for _ in range(WARM_UP + 1)]

    plain = losses()
    assert plain[-1] < plain[0]
    assert losses(**way) == pytest.approx(plain, abs=1e-4)  # a hundredth of what these steps change


def test_the_page_says_what_arithmetic_expects():
    text, ways = PAGE.read_text(), {gpu.words(way): way for way in gpu.WAYS}
    for name in ("plain, patients 16, tokens 640", "graph", "patients 64"):
        rate = ways[name].patients / expected_seconds(ways[name], Model(size="B"))
        assert re.search(rf"\b{rate:.0f}\b", text), name


def test_after_its_minutes_the_script_leaves_the_rest_out(tmp_path):
    found = run(tmp_path / "none.json", "--minutes", "0")
    assert {figures.get("left_out") for part in ("profile", "step", "rollout") for figures in found[part].values()} == {
        "no minutes left"
    }


@pytest.mark.long(120)
def test_the_script_measures_on_a_cpu_what_a_cpu_can_do(tmp_path):
    found = run(tmp_path / "small.json")
    failed = {name: f["failed"] for part in found if part != "machine" for name, f in found[part].items() if "failed" in f}
    assert set(failed) == {gpu.words(way) for way in small_ways() if way.graph}
    assert all("CUDA" in why for why in failed.values())
    losses = [figures["loss"] for figures in found["step"].values() if "failed" not in figures]
    assert len(losses) > 6
    assert losses == pytest.approx([losses[0]] * len(losses), abs=1e-4)
    ways = [figures for name, figures in found["rollout"].items() if not name.startswith("forward")]
    assert max(figures["difference"] for figures in ways) < 1e-6
    assert found["profile"]["the loop's step"]["calls"] > 100


def small_ways() -> list[Way]:
    return [gpu.replace(way, **FEW) for way in gpu.WAYS]


def run(output: Path, *options: str) -> dict[str, dict]:
    subprocess.run([sys.executable, str(SCRIPT), str(output), "--small", *options], check=True, capture_output=True)
    return json.loads(output.read_text())

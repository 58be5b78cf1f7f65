"""A card beside the weights and the command line say what the file does not, and may not contradict each other on the licence."""

from __future__ import annotations

from pathlib import Path

import pytest

from mri_vit.errors import UsageError
from mri_vit.features import foreign


def beside(folder: Path, text: str) -> Path:
    (folder / "w.ckpt.toml").write_text(text)
    return folder / "w.ckpt"


def test_the_command_line_goes_before_the_card_and_the_card_before_defaults(tmp_path: Path):
    weights = beside(tmp_path, 'licence = "CC-BY-4.0"\nheads = 12\nspacing_mm = 2.0\n')
    found = foreign.read_card(weights, {"heads": 6, "licence": None, "spacing_mm": None})
    assert (found.licence, found.heads, found.spacing_mm, found.intensity) == ("CC-BY-4.0", 6, 2.0, "zscore")
    assert foreign.read_card(tmp_path / "other.ckpt", {}).licence is None


def test_another_licence_than_the_cards_is_refused(tmp_path: Path):
    weights = beside(tmp_path, 'licence = "CC-BY-NC-4.0"\n')
    assert foreign.read_card(weights, {"licence": "CC-BY-NC-4.0"}).licence == "CC-BY-NC-4.0"
    with pytest.raises(UsageError, match=r"w\.ckpt\.toml states the licence CC-BY-NC-4\.0, the command MIT; only one is right"):
        foreign.read_card(weights, {"licence": "MIT"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("heads = 0\n", r"w\.ckpt\.toml: heads: .*found 0"),
        ('axes = "RAR"\n', r"w\.ckpt\.toml: axes: .*found 'RAR'"),
        ("width = 3\n", r"w\.ckpt\.toml: width: "),
        ("heads = \n", r"w\.ckpt\.toml: not TOML"),
    ],
)
def test_a_wrong_card_is_refused_by_file_and_key(tmp_path: Path, text: str, told: str):
    with pytest.raises(UsageError, match=told):
        foreign.read_card(beside(tmp_path, text), {})


def test_a_wrong_option_is_refused_by_its_name(tmp_path: Path):
    with pytest.raises(UsageError, match=r"w\.ckpt: edge: .*found 0"):
        foreign.read_card(tmp_path / "w.ckpt", {"edge": 0})

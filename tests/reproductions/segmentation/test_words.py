"""What a page says of attention and tumours: who differs from whom, and only where a test says so."""

from __future__ import annotations

from reproductions.segmentation.overlap import CHANCE, Line, Mean, Test
from reproductions.segmentation.overlap_page import sentences

NAMES = {"random": "random weights", "dino": "DINO", "mae": "MAE"}
LINES = [
    Line(name, "mass", 2, Mean(0.2, 0.1, 0.3), Mean(0.2, 0.0, 1.0), Mean(0.2, 0.0, 1.0), 0.25, {CHANCE: Mean(0.03, 0.0, 1.0)})
    for name in NAMES
]


def pairs(p: float, difference: float = 0.1) -> list[Test]:
    """DINO against random weights and random places with an adjusted p, and MAE against both, not different."""
    of = {"dino": (difference, p), "mae": (0.01, 0.9)}
    return [
        Test(one, other, "mass", found, found - 0.05, found + 0.05, adjusted / 4, adjusted)
        for one, (found, adjusted) in of.items()
        for other in ("random", CHANCE)
    ]


def test_where_no_test_finds_a_difference_no_encoder_is_called_better():
    encoders, positions = sentences(LINES, pairs(p=0.06), NAMES)[-2:]
    assert encoders == "Encoders against each other: no difference by more than chance."
    assert positions == "Against random places, equally many: no difference by more than chance."


def test_a_difference_is_told_with_its_side_interval_and_p_and_the_rest_by_name():
    encoders, positions = sentences(LINES, pairs(p=0.01), NAMES)[-2:]
    assert "DINO is above random weights (+0.100 [+0.050, +0.150], adjusted p = 0.010); not different by more than" in encoders
    assert encoders.endswith("chance: MAE and random weights.")
    assert positions.startswith("Against random places, equally many: DINO is above them (")
    below = sentences(LINES, pairs(p=0.01, difference=-0.1), NAMES)[-2]
    assert "DINO is below random weights (−0.100 [−0.150, −0.050]" in below


def test_every_encoder_is_said_beside_as_many_places_at_random():
    said = sentences(LINES, pairs(p=0.5), NAMES)
    assert said[1] == (
        "DINO: the places that are kept are 25 % of the brain and overlap the tumour with a Jaccard index of "
        "0.200 [0.100, 0.300]; as many at random reach 0.030."
    )

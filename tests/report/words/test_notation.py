"""How numbers are written: what belongs together stays on one line."""

from __future__ import annotations

from mri_vit.report.words.notation import percent, tied


def test_a_number_stays_on_a_line_with_its_per_cent_sign_and_with_its_p():
    assert percent(0.2) == "20\N{NO-BREAK SPACE}%"
    assert percent(0.0046, 1) == "0.5\N{NO-BREAK SPACE}%"
    said = tied("in 5 % (adjusted p = 0.04, p < 0.001) of the group")
    assert said.split(" ") == ["in", "5\u00a0%", "(adjusted", "p\u00a0=\u00a00.04,", "p\u00a0<\u00a00.001)", "of", "the", "group"]

"""How numbers are written: what belongs together stays on one line."""

from __future__ import annotations

from mri_vit import style
from mri_vit.report.words.notation import percent, tied


def test_whatever_a_page_fills_in_is_tied_and_a_script_stays_as_it_is():
    page = style.templates("mri_vit.report.pages").from_string("{{ text }}|{{ code | safe }}").render
    assert page(text="p < 0.001", code="n = 7") == "p\u00a0&lt;\u00a00.001|n = 7"


def test_a_number_stays_on_a_line_with_its_per_cent_sign_and_with_its_p():
    assert percent(0.2) == "20\N{NO-BREAK SPACE}%"
    assert percent(0.0046, 1) == "0.5\N{NO-BREAK SPACE}%"
    assert tied("few (n = 7, 4 positive), all p > 0.1") == "few (n\u00a0=\u00a07, 4 positive), all p\u00a0>\u00a00.1"
    said = tied("in 5 % (adjusted p = 0.04, p < 0.001) of the group")
    assert said.split(" ") == ["in", "5\u00a0%", "(adjusted", "p\u00a0=\u00a00.04,", "p\u00a0<\u00a00.001)", "of", "the", "group"]

"""Cards and glossary: the first screen says little, and doubts go before praise."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import get_args

import pytest

from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.parts import BestControl, Comparison, WithinSites
from mri_vit.report.verdicts import Standing, TooGood, Unjudged, Verdict
from mri_vit.report.words import caveats, model_verdicts

BETTER = Verdict("better", "better", None, False, False, controls="better")


def result(best: BestControl | None = None, sites: WithinSites | None = None) -> BinaryResult:
    test = Comparison(difference=0.1, low=0.0, high=0.2, z=2, p=0.04, p_adjusted=0.04, n=90, nadeau_bengio=None)
    tests = {"intensity": test, "volume": test} if best else {}
    return BinaryResult.model_construct(versus_best=best, versus_controls=tests, within_sites=sites)


def best(beaten: bool) -> BestControl:
    return BestControl(strongest="intensity", least="volume", p=0.01, p_adjusted=0.02, beaten=beaten)


def within(p: float, worse: tuple[str, ...] = ()) -> WithinSites:
    figures = {"least": 0.4, "most": 0.9, "i_squared": 0.1, "compared_sites": 2, "worse": worse, "confounded": False}
    return WithinSites.model_validate({"sites": 3, "value": 0.8, "error": 0.05, "p": p, **figures})


def everything():
    """Every verdict that there can be."""
    yield from (replace(BETTER, kind="undefined", against_chance="undefined", unjudged=one) for one in get_args(Unjudged))
    yield from (Verdict(kind, kind, None, False, False) for kind in ("chance", "worse"))
    doubts = itertools.product([True, False], [None, *get_args(TooGood)], [True, False], get_args(Standing))
    for leaks, good, confounded, standing in doubts:
        yield replace(BETTER, leaks=leaks, too_good=good, confounded=confounded, controls=standing)


def test_no_verdict_on_a_card_is_longer_than_twelve_words():
    for verdict in everything():
        for found in (result(), result(best(True)), result(best(False))):
            assert 1 <= len(model_verdicts.card_headline(found, verdict).split()) <= 12


@pytest.mark.parametrize(
    ("doubt", "said"),
    [
        ({"leaks": True}, "Labels may leak: not judged"),
        ({"too_good": "gap"}, "Too good to believe without checks"),
        ({"confounded": True}, "May be confounded by the site"),
    ],
)
def test_what_casts_doubt_goes_before_what_speaks_for_a_result(doubt, said):
    assert model_verdicts.card_headline(result(best(True)), BETTER) == "Better than chance and every control"
    assert model_verdicts.card_headline(result(best(True)), replace(BETTER, **doubt)) == said


def test_the_control_that_is_not_beaten_is_named():
    one, other = replace(BETTER, controls="not better"), replace(BETTER, controls="not the least")
    assert model_verdicts.card_headline(result(best(False)), one) == "Better than chance, not shown to beat brightness alone"
    assert (
        model_verdicts.card_headline(result(best(False)), other)
        == "Better than chance, not shown to beat brain and tumour volume alone"
    )
    found = model_verdicts.card("vit", result(best(False)), other).beats_controls
    assert (found.holds, found.words) == (False, "not shown to beat brain and tumour volume alone")


def test_nothing_is_ticked_where_there_is_nothing_to_hold():
    card = model_verdicts.card("vit", result(best(True), within(0.001)), Verdict("chance", "chance", None, False, False))
    assert (card.beats_controls.holds, card.holds_in_sites.holds) == (None, None)
    alone = model_verdicts.card("vit", result(), replace(BETTER, controls="not run"))
    assert (alone.beats_controls.holds, alone.holds_in_sites.holds) == (None, None)


@pytest.mark.parametrize(
    ("p", "worse", "confounded", "holds", "said"),
    [
        (0.001, (), False, True, "AUC 0.80 within 3 sites; none of 2 shown to be worse than the others"),
        (0.001, ("A", "B"), False, False, "AUC 0.80 within 3 sites; worse in A, B"),
        (0.001, ("A", "B", "C", "D"), False, False, "worse in A, B, C …"),
        (0.2, (), True, False, "less than over all"),
        (0.2, (), False, None, "too few pairs to tell"),
    ],
)
def test_a_result_holds_within_sites_unless_the_site_explains_it_or_one_is_shown_to_be_worse(p, worse, confounded, holds, said):
    verdict = replace(BETTER, confounded=confounded)
    found = model_verdicts.card("vit", result(best(True), within(p, worse)), verdict).holds_in_sites
    assert found.holds is holds
    assert said in found.words


def test_a_term_leads_to_its_entry_once_and_what_is_no_term_is_left_alone():
    shown = str(caveats.with_glossary_links("AUC and <b>AUC</b>: Brier score [95 %]"))
    assert shown.count("<a ") == 2
    assert 'href="#term-auc"' in shown
    assert 'href="#term-brier-score"' in shown
    assert "&lt;b&gt;AUC&lt;/b&gt;" in shown
    assert str(caveats.with_glossary_links("caucus, folder, thresholds")) == "caucus, folder, thresholds"


def test_every_term_has_an_address_of_its_own():
    addresses = [caveats.glossary_anchor(term) for term in caveats.GLOSSARY]
    assert len(set(addresses)) == len(addresses)
    assert all(re.fullmatch(r"term-[a-z0-9-]+", one) for one in addresses)

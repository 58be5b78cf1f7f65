"""A benchmark: leads have the sign of who is better, a claim is as weak as its weakest part, and cohorts count beside folds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from reproductions.learning_curve.curve import against
from reproductions.simulated_effects import benchmark_pages, cohort_scores, patients_needed

from mri_vit.metrics.within_fold import inflation, within_fold_auc, within_fold_comparison


def made(strength: dict[str, float], seeds: tuple[int, ...] = (1, 2, 3), n: int = 90) -> pd.DataFrame:
    """Scores of models that see a cause as strongly as is said, in three folds of each cohort."""
    rows = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        truth, fold = random.integers(0, 2, n), np.arange(n) % 3
        for cause in ("grain", "side"):
            for model, seen in strength.items():
                score = seen * truth + random.normal(size=n)
                people = {"patient": [f"p{i}" for i in range(n)], "fold": fold, "truth": truth.astype(float), "score": score}
                rows.append(pd.DataFrame(people).assign(seed=seed, model=model, endpoint=cause))
    return pd.DataFrame(pd.concat(rows))


def measured(predicted: pd.DataFrame) -> list[cohort_scores.Line]:
    """The lines of several cohorts, the own model being "vit"."""
    parts = [cohort_scores.of_cohort(pd.DataFrame(one), "vit").assign(seed=seed) for seed, one in predicted.groupby("seed")]
    return cohort_scores.over_cohorts(pd.concat(parts))


@pytest.fixture(scope="module")
def predicted() -> pd.DataFrame:
    return made({"vit": 3.0, "weak": 0.5, "nothing": 0.0, "oracle": 9.0})


def test_each_cohort_gives_the_auc_of_pairs_within_its_folds(predicted):
    (line,) = [one for one in measured(predicted) if (one.model, one.cause) == ("weak", "side")]
    here = predicted[(predicted.model == "weak") & (predicted.endpoint == "side")]
    expected = [
        within_fold_auc(p.truth.to_numpy() == 1, p.score.to_numpy(), p.fold.to_numpy()).value for _, p in here.groupby("seed")
    ]
    assert line.each == pytest.approx(expected)
    assert line.mean == pytest.approx(np.mean(expected))
    assert line.mean_low < line.mean < line.mean_high


def test_of_one_cohort_the_lead_is_the_reports_paired_test(predicted):
    one = pd.DataFrame(predicted[(predicted.seed == 2) & (predicted.endpoint == "side")])
    line = next(line for line in measured(one) if line.model == "weak")
    parts = {m: pd.DataFrame(one[one.model == m]).sort_values("patient") for m in ("vit", "weak")}
    found = [within_fold_auc(p.truth.to_numpy() == 1, p.score.to_numpy(), p.fold.to_numpy()) for p in parts.values()]
    test = within_fold_comparison([found[0]], [found[1]], inflation(3))
    assert line.lead == pytest.approx(test.difference)
    assert line.p == pytest.approx(test.p)
    assert (line.low, line.high) == pytest.approx((test.low, test.high), abs=1e-6)


def test_cohorts_that_were_run_apart_are_compared_as_if_they_had_been_run_together(predicted):
    from_one_table = against(predicted.assign(labelled=0)[predicted.endpoint == "grain"], "vit", "fold").set_index("model")
    for line in (line for line in measured(predicted) if line.cause == "grain" and line.model != "vit"):
        expected = from_one_table.loc[line.model]
        assert (line.lead, line.p) == pytest.approx((-expected.difference, expected.p))
        assert (line.low, line.high) == pytest.approx((-expected.high, -expected.low))


def test_a_claim_is_as_weak_as_its_weakest_part_and_knows_who_is_no_bar(predicted):
    lines = measured(predicted)
    leads, p = cohort_scores.best(lines, "grain", "vit", ("oracle",))
    assert leads
    assert p == max(line.p for line in lines if line.cause == "grain" and line.model in ("weak", "nothing"))
    assert p < 0.05
    assert not cohort_scores.best(lines, "grain", "vit", ())[0]  # the oracle is better
    alone = cohort_scores.best([line for line in lines if line.model == "vit"], "grain", "vit", ())
    assert math.isnan(alone[1])


def test_the_table_has_a_row_for_each_model_that_ran_in_the_order_asked_for(predicted):
    names = {"vit": "**ours**", "absent": "x", "nothing": "none", "weak": "faint"}
    lines = measured(predicted)
    text = benchmark_pages.table(lines, names, ["side", "grain", "absent"])
    head, rule, *rows = text.splitlines()
    assert head == "| model | side | grain |"
    assert rule == "|---|---|---|"
    assert [row.split(" | ")[0] for row in rows] == ["| **ours**", "| none", "| faint"]
    p = benchmark_pages.unbroken("p = ")
    assert p not in rows[0]
    _, side, _ = rows[1].split(" | ")
    assert "<br>+0." in side
    assert f"<br>{p}0.0" in side
    assert p not in benchmark_pages.table(lines, names, ["grain"], leads=False)


def leads(*values: float, error: float) -> pd.DataFrame:
    return pd.DataFrame({"seed": range(len(values)), "lead": values, "lead_error": error})


@pytest.mark.parametrize("values", [(0.05, 0.03, 0.07), (0.05, -0.15, 0.25), (0.05,)], ids=["near", "scattered", "one"])
def test_with_as_many_patients_as_a_lead_needs_four_of_five_cohorts_show_it(values):
    rows, error = leads(*values, error=0.04), 0.04
    needed = patients_needed.needed(rows, 192, 0.05)
    smaller = math.sqrt(192 / needed)
    scatter = max(error, float(rows.lead.std())) if len(values) > 1 else error
    drawn = np.random.default_rng(0).normal(0.05, scatter * smaller, 100_000)
    assert (drawn / (error * smaller) > 1.96).mean() == pytest.approx(0.8, abs=0.01)
    assert patients_needed.needed(rows, 384, 0.05) == pytest.approx(2 * needed)


def test_half_a_lead_needs_four_times_as_many_and_none_no_number():
    rows = leads(0.1, 0.2, error=0.05)
    assert patients_needed.needed(rows, 192, 0.05) == pytest.approx(4 * patients_needed.needed(rows, 192, 0.1))
    assert math.isinf(patients_needed.needed(rows, 192, 0.0))
    assert math.isinf(patients_needed.needed(rows, 192, -0.1))


def test_a_curve_says_of_each_size_what_leads_are_and_need_and_asks_for_fewer_of_nobody():
    def size(lead: float) -> pd.DataFrame:
        rows = leads(lead, lead + 0.02, lead - 0.02, error=0.03).assign(cause="side", model="stem", auc=0.8)
        return pd.concat([rows.assign(model="vit", auc=0.8 + lead, lead=np.nan, error=0.02), rows.assign(error=0.02)])

    text = patients_needed.section({192: size(0.05), 384: size(0.1)}, ["side"], ["stem"])
    assert "Cohorts: 3 of 192, 3 of 384 labelled patients" in text
    own, row = (line for line in text.splitlines() if line.startswith("| side | "))
    assert own.startswith("| side | 0.850<br>[")
    assert " | 0.900<br>[" in own
    assert " | +0.050<br>[" in row
    assert " | +0.100<br>[" in row
    assert row.endswith(
        f" | 540<br>{benchmark_pages.unbroken('[≤ 192, > 10,000]')} | {benchmark_pages.unbroken('≤ 384')}<br>"
        f"{benchmark_pages.unbroken('[≤ 384, 1,100]')} |"
    )
    assert patients_needed.section({192: size(-0.1)}, ["side"], ["stem"]).endswith(" | – |")

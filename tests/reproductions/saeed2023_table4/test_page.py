"""Table 4 of Saeed et al. 2023: the figures that are carried, the comparators made from them, and ours beside them."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made.run import make_run
from reproductions.saeed2023_table4 import scan_choices, table_page
from reproductions.saeed2023_table4.table_rows import (
    SCANS,
    Best,
    Line,
    Measured,
    Row,
    best,
    measure,
    paired_tests,
    published,
    published_tests,
    wide,
    with_comparators,
)
from rich.console import Console
from scipy import stats

from mri_vit.errors import UsageError
from mri_vit.metrics import comparison, discrimination
from mri_vit.metrics.discrimination import mean_and_sample_variance
from mri_vit.model.baselines import BASELINES, Box
from mri_vit.report.numbers import binary
from mri_vit.report.numbers.chance import Background
from mri_vit.report.numbers.judged import averaged, known_rows
from mri_vit.report.reading.run import Run, read_run
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Comparator, Endpoint

CONFIGS = Path(__file__).parents[3] / "pipelines" / "reproductions" / "saeed2023_table4"
MGMT = Endpoint(name="mgmt", kind="binary")
FOUR = ("resnet10-t1ce", "resnet10-all", "densenet121-t1ce", "densenet121-all")  # two networks on two choices of scans
RAN = ("vit", "resnet10-t1ce", "swin_vit-all", "hybrid", "clinical", "shuffled")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two published rows, one network that is none, and two controls, in five folds."""
    return read_run(make_run(tmp_path_factory.mktemp("made") / "run", models=RAN, folds=5, patients=100))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two networks, each trained on two choices of scans."""
    return read_run(make_run(tmp_path_factory.mktemp("made") / "four", models=("vit", *FOUR), folds=5, patients=100))


def scored(run: Run, model: str, score: pd.Series) -> Run:
    """The run with other MGMT scores of one model, by patient."""
    table = run.predictions.copy()
    rows = (table.model == model) & (table.endpoint == "mgmt")
    table.loc[rows, "score"] = table.loc[rows, "patient"].map(score).astype(float)
    return replace(run, predictions=table)


def truths(run: Run) -> pd.Series:
    """MGMT by patient, of those whose label is known."""
    return known_rows(run.predictions, MGMT, "vit").set_index("patient").truth.astype(float)


def line(lines: tuple[Line, ...], contender: str) -> Line:
    return next(found for found in lines if found.comparator == contender)


def printed(lines: tuple[Line, ...], contender: str) -> Row:
    found = line(lines, contender).published
    assert found, contender
    return found


def measured(lines: tuple[Line, ...], contender: str) -> Measured:
    found = line(lines, contender).measured
    assert found, contender
    return found


def test_the_carried_figures_are_those_of_the_reference_data(shared):
    reference = pd.read_csv(shared / "refs" / "saeed2023_table4.csv", keep_default_na=False)
    rows = published()
    assert [(r.model, r.scans, r.mean, r.variance, r.note) for r in rows] == list(
        reference[["model", "modality", "mean", "variance", "note"]].itertuples(index=False, name=None)
    )
    np.testing.assert_array_equal([r.folds for r in rows], reference.filter(like="fold_").to_numpy())


def test_each_published_row_gives_its_mean_and_sample_variance_but_for_the_two_that_are_noted():
    rows = published()
    assert len(rows) == 35
    for row in rows:
        near = abs(np.mean(row.folds) - row.mean) < 1e-4 + 1e-9 and abs(np.var(row.folds, ddof=1) - row.variance) < 1e-4 + 1e-9
        assert near == ("differs" not in row.note), row
    assert [r.model for r in rows if "1.5999" in r.note] == ["EfficientNet-b1"]  # the misprint, corrected here


@pytest.mark.parametrize("name", ["table4_demo", "table4_brats2021"])
def test_a_study_of_the_table_has_a_comparator_for_each_row_that_its_grid_is_large_enough_for(name):
    study = with_comparators(study_file.load(CONFIGS / f"{name}.toml"))
    recipes = {comparator.name: study.of(comparator).model for comparator in study.comparators}
    assert set(recipes) == {row.comparator for row in published()}
    assert len(recipes) == 35
    for row in published():
        recipe = recipes[row.comparator]
        assert recipe.channels == SCANS[row.scans]
        assert re.sub(r"^monai_|[^a-z0-9]", "", recipe.architecture) == re.sub(r"[^a-z0-9]", "", row.model.lower())
        assert min(Box.of_head(study.grid, recipe.channels, study.channels).size) >= BASELINES[recipe.architecture].smallest
    assert (study.model.architecture, study.train.folds) == ("vit", 5)


def test_a_comparator_that_the_study_names_itself_keeps_its_recipe_and_others_stay(tiny):
    own = (Comparator(name="resnet10-t1ce", model={"architecture": "resnet18"}), Comparator(name="wide", model={"dim": 32}))
    study = with_comparators(tiny.model_copy(update={"endpoints": (MGMT,), "comparators": own}))
    assert [comparator.name for comparator in study.comparators[:2]] == ["resnet10-t1ce", "wide"]
    assert study.of(study.comparators[0]).model.architecture == "resnet18"
    assert len(study.comparators) == 36


def test_a_study_that_predicts_anything_but_mgmt_is_refused(tiny):
    with pytest.raises(UsageError, match=r"mgmt alone; found endpoints.*os"):
        with_comparators(tiny)


def test_the_published_tests_are_the_corrected_resampled_t_test_over_the_five_folds():
    rows = published()
    tests = published_tests(rows)
    vit = next(row for row in rows if row.model == "ViT")
    best = next(row for row in rows if row.mean == 0.6309)
    difference = np.subtract(best.folds, vit.folds)
    t = difference.mean() / math.sqrt((1 / 5 + 115 / 462) * difference.var(ddof=1))  # Nadeau & Bengio 2003, by hand
    found = tests[rows.index(best)]
    assert found
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), 4))
    assert found.difference == pytest.approx(best.mean - vit.mean, abs=1e-4)
    assert tests[rows.index(vit)] is None
    others = [(row, test) for row, test in zip(rows, tests, strict=True) if test]
    np.testing.assert_allclose([t.p_adjusted for _, t in others], comparison.holm(np.array([t.p for _, t in others])))
    for row, test in others:  # the correction never finds more than a t-test that takes the folds for independent
        assert test.p >= stats.ttest_rel(row.folds, vit.folds).pvalue


def test_a_row_is_measured_as_the_report_measures_it_but_for_its_interval_and_controls_are_no_line(run):
    lines = measure(run)
    assert [found.comparator for found in lines[:35]] == [row.comparator for row in published()]
    assert [found.comparator for found in lines[35:]] == ["vit", "hybrid"]
    assert {found.comparator for found in lines if found.measured} == {"resnet10-t1ce", "swin_vit-all", "vit", "hybrid"}
    for name in ("resnet10-t1ce", "vit"):
        background = Background(run.design, run.nulls, run.seeds, {})
        expected = binary.measure(MGMT, known_rows(run.predictions, MGMT, name), background, seed=0).figures.model_dump()
        found = measured(lines, name)
        assert found.n == expected["n"]
        assert found.auc == expected["auc"]["value"]
        assert expected["auc"]["low"] < found.low < found.high <= expected["auc"]["high"]  # which allow for refitting
        assert list(found.folds) == [fold["auc"] for fold in expected["folds"]]
        assert (found.mean, found.variance) == (expected["fold_mean"], expected["fold_variance"])


def test_ours_are_held_against_the_studys_own_vit_and_corrected_together(run):
    lines = measure(run)
    tested = {found.comparator: found.test for found in lines if found.test}
    assert set(tested) == {"resnet10-t1ce", "swin_vit-all", "hybrid"}
    a, b = (averaged(known_rows(run.predictions, MGMT, name)) for name in ("hybrid", "vit"))
    expected = discrimination.delong_paired(a.truth.to_numpy(bool), a.score.to_numpy(), b.score.to_numpy())
    assert (tested["hybrid"].difference, tested["hybrid"].p) == (expected.difference, expected.p)
    p = np.array([test.p for test in tested.values()])
    np.testing.assert_allclose([test.p_adjusted for test in tested.values()], comparison.holm(p))


def test_patients_whom_only_one_of_two_models_predicted_are_in_no_test(run):
    tables = {name: known_rows(run.predictions, MGMT, name) for name in ("vit", "hybrid")}
    few = set(tables["hybrid"].patient.iloc[::2])
    fewer, kept = (tables[name].loc[tables[name].patient.isin(few)] for name in ("hybrid", "vit"))
    assert paired_tests({"vit": tables["vit"], "hybrid": fewer}, "vit") == paired_tests({"vit": kept, "hybrid": fewer}, "vit")


def test_a_model_that_is_better_by_more_than_chance_is_said_to_be_and_one_that_is_not_is_not(run):
    truth, noise = truths(run), np.random.default_rng(0)
    blind = pd.Series(noise.random(len(truth)), index=truth.index)
    seeing = 0.7 * truth + 0.3 * pd.Series(noise.random(len(truth)), index=truth.index) + 0.2 * blind
    others = scored(scored(scored(run, "vit", blind), "hybrid", blind), "swin_vit-all", pd.Series(1.0, truth.index))
    ours, theirs = table_page.sentences(measure(scored(others, "resnet10-t1ce", seeing)))
    assert ours.startswith("Ours: 1 of 3 models differs from our ViT by more than chance")
    assert "ResNet-10 on T1ce is better (+" in ours
    assert "hybrid" not in ours
    assert theirs.startswith("Published: none of 34 models differs from its ViT by more than chance")
    worse = table_page.sentences(measure(scored(scored(others, "vit", seeing), "resnet10-t1ce", blind)))[0]
    assert "ResNet-10 on T1ce is worse (\N{MINUS SIGN}" in worse


def test_a_test_that_is_undefined_is_counted_as_such(run):
    truth = truths(run)
    faultless = scored(scored(run, "vit", truth * 0 + 0.5), "hybrid", truth)  # no error against no order: no variance
    told = table_page.sentences(measure(faultless))[0]
    assert "over 2 tests" in told
    assert told.endswith("1 could not be tested.")


def test_without_the_studys_own_vit_nothing_is_held_against_it(run):
    left = run.predictions[run.predictions.model != "vit"]
    lines = measure(replace(run, predictions=left))
    assert all(found.test is None for found in lines)
    assert "nothing was compared with our ViT" in table_page.sentences(lines)[0]


def test_the_csv_holds_every_figure_of_both_sides(run, tmp_path):
    table_page.write(run, tmp_path)
    table = pd.read_csv(tmp_path / "table4.csv").set_index("contender")
    lines = measure(run)
    assert list(table.index) == [found.comparator for found in lines]
    for found in lines:
        row = table.loc[found.comparator]
        if found.published:
            assert tuple(row.filter(regex=r"^published_fold_\d$")) == found.published.folds
            assert row.published_variance == found.published.variance
        assert math.isnan(row.auc) == (found.measured is None)
        if found.measured:
            np.testing.assert_allclose(row.filter(regex=r"^fold_\d$").to_numpy(float), found.measured.folds)
            np.testing.assert_allclose(
                [row.auc, row.low, row.high], [found.measured.auc, found.measured.low, found.measured.high]
            )
        if found.test:
            assert row.versus_p_adjusted == pytest.approx(found.test.p_adjusted)


def test_figures_of_no_line_are_lost_in_the_wide_table_when_no_row_was_run(run):
    none = measure(replace(run, predictions=run.predictions[run.predictions.model == "clinical"]))
    table = wide(none)
    assert len(table) == 35
    assert "auc" not in table
    assert table.published_mean.notna().all()


def test_the_page_holds_every_row_and_fetches_nothing(run, tmp_path):
    text = table_page.write(run, tmp_path).read_text()
    assert len(re.findall(r'<th scope="row"', text)) == 37 + 6
    assert not re.findall(r'(?:src|href)="(?!table4\.csv|table4_scans\.csv|index\.html|data:image/svg)', text)
    assert text.count("not run") == 33 + 6  # rows, and pairs of scans of no network
    assert "synthetic" not in text
    assert "fold 3 printed as 1.5999" in text
    for sentence in table_page.sentences(measure(run)):
        assert sentence.split(":")[0] in text


def test_a_page_on_the_built_in_cohort_says_that_its_patients_are_made_up(run, tmp_path):
    table = run.predictions.assign(patient="demo-" + run.predictions.patient)
    assert "These patients are synthetic" in table_page.write(replace(run, predictions=table), tmp_path).read_text()


def test_the_terminals_table_fits_eighty_columns_with_nothing_cut_off(run):
    stream = StringIO()
    table_page.show(measure(run), table_page.both_sides(run), Console(file=stream, width=80))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    theirs, ours = printed(measure(run), "resnet10-t1ce"), measured(measure(run), "resnet10-t1ce")
    cells = f"{theirs.mean:.3f}±{theirs.variance:.4f}  {ours.mean:.3f}±{ours.variance:.4f}"
    assert re.search(rf"ResNet-10 +{re.escape(cells)}", text)
    assert text.count("not run") == 33
    assert " ".join(f"{value:.3f}" for value in ours.folds) in text


def test_the_largest_of_each_fold_and_of_the_means_is_bold_and_nothing_else(run, tmp_path):
    rows = published()
    largest = best(rows)
    assert largest.folds == (0.6581, 0.6634, 0.6476, 0.6934, 0.6901)  # found by hand in the table as printed
    assert largest.mean == 0.6309
    html, lines = table_page.write(run, tmp_path).read_text(), measure(run)
    ours = best([found.measured for found in lines])
    shown = [line for _, here in table_page.sections(lines) for line in here]
    rows = re.findall(r'<tr><th scope="row" class="n">.*?</tr>', html, re.DOTALL)[: len(shown)]
    for line, row in zip(shown, rows, strict=True):
        published_cell, _, ours_cell, *_ = re.findall(r'<td class="n">(.*?)</td>', row, re.DOTALL)
        for found, of_column, cell in ((line.published, largest, published_cell), (line.measured, ours, ours_cell)):
            expected = [("", "–")] if found is None else []
            if found:
                values = zip((found.mean, *found.folds), (of_column.mean, *of_column.folds), strict=True)
                expected = [("<strong>" if value == most else "", f"{value:.3f}") for value, most in values]
            assert re.findall(r"(<strong>)?([01]\.\d{3}(?!\d)|–)", cell) == expected
    assert html.count("<strong>0.6") >= 6


def test_equal_largest_values_are_all_bold_and_rows_that_were_not_run_are_left_out():
    rows = [replace(published()[0], folds=(0.6, 0.5), mean=0.55), None, replace(published()[1], folds=(0.6, 0.4), mean=0.5)]
    assert best(rows) == Best((0.6, 0.5), 0.55)
    assert math.isnan(best([None]).mean)


def test_published_choices_of_scans_are_compared_over_the_networks_that_have_both():
    side = scan_choices.of_published()
    assert [(c.scans, len(c.auc)) for c in side.choices] == [("t1ce", 9), ("flair", 9), ("t2", 6), ("all", 11)]
    found = next(pair for pair in side.pairs if (pair.scans, pair.other) == ("t2", "all"))
    folds = {(row.model, row.scans): row.folds for row in published()}
    both = [model for model, scans in folds if scans == "t2"]
    difference = np.mean([np.subtract(folds[model, "t2"], folds[model, "all"]) for model in both], axis=0)
    t = difference.mean() / math.sqrt((1 / 5 + 115 / 462) * difference.var(ddof=1))
    assert found.networks == 6
    assert found.difference == pytest.approx(difference.mean())
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), 4))
    assert (found.low < 0 < found.high) == (found.p > 0.05)
    np.testing.assert_allclose(
        [pair.p_adjusted for pair in side.pairs], comparison.holm(np.array([pair.p for pair in side.pairs]))
    )


def test_of_one_network_two_choices_of_scans_are_compared_by_delongs_paired_test(four):
    one = replace(four, predictions=four.predictions[~four.predictions.model.str.startswith("densenet121")])
    (found,) = scan_choices.of_run(one).pairs
    a, b = (averaged(known_rows(four.predictions, MGMT, name)).sort_values("patient") for name in FOUR[:2])
    expected = discrimination.delong_paired(a.truth.to_numpy(bool), a.score.to_numpy(), b.score.to_numpy())
    assert (found.scans, found.other, found.networks) == ("t1ce", "all", 1)
    assert (found.difference, found.low, found.p) == pytest.approx((expected.difference, expected.low, expected.p))


def test_of_several_networks_the_variance_is_that_of_their_mean_components(four):
    (found,) = scan_choices.of_run(four).pairs
    parts = []
    for name in FOUR:
        rows = averaged(known_rows(four.predictions, MGMT, name)).sort_values("patient")
        parts.append(discrimination.delong_components(rows.truth.to_numpy(bool), rows.score.to_numpy()))
    v10, v01 = (np.array([1, -1, 1, -1]) @ np.stack([part[k] for part in parts]) / 2 for k in (0, 1))
    error = math.sqrt(v10.var(ddof=1) / len(v10) + v01.var(ddof=1) / len(v01))
    assert found.networks == 2
    assert found.difference == pytest.approx(v10.mean())
    assert found.high - found.low == pytest.approx(2 * stats.norm.isf(0.025) * error)


def test_scans_that_help_every_network_are_said_to_and_alike_ones_are_not(four):
    truth, noise = truths(four), np.random.default_rng(0)
    better = four
    for name in FOUR:
        blind = pd.Series(noise.random(len(truth)), index=truth.index)
        better = scored(better, name, blind + truth * name.endswith("t1ce"))
    assert "1 of 1 pairs of choices differs" in scan_choices.sentence("Ours", scan_choices.of_run(better))
    alike = scored(scored(four, "resnet10-t1ce", truth * 0.5), "resnet10-all", truth * 0.5)
    pair = scan_choices.of_run(replace(alike, predictions=alike.predictions[alike.predictions.model.str.startswith("resnet")]))
    assert pair.pairs[0].difference == 0
    assert "none of 1 pairs" in scan_choices.sentence("Ours", pair)


def test_a_run_of_no_published_row_has_no_choice_of_scans_and_its_page_is_written_all_the_same(run, tmp_path):
    none = replace(run, predictions=run.predictions[run.predictions.model == "vit"])
    assert scan_choices.of_run(none) == scan_choices.Side((), ())
    assert "no network was trained on two choices" in table_page.write(none, tmp_path).read_text()


def test_mean_and_sample_variance_are_those_printed_in_the_table():
    for row in (row for row in published() if not row.note):
        assert mean_and_sample_variance(np.array(row.folds)) == pytest.approx((row.mean, row.variance), abs=1.5e-4)

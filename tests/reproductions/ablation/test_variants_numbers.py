"""The table of variants and its page, held to the report's own interval and test, and to counts by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from reproductions.ablation import variants_page, vit_variants
from reproductions.ablation.variants_page import Cost, Line, measure, training_flops
from reproductions.ablation.vit_variants import VARIANTS
from torch import nn

from mri_vit.metrics.discrimination import wilson_of_auc
from mri_vit.metrics.within_fold import WithinFold, inflation, within_fold_auc, within_fold_comparison
from mri_vit.model.network import encoder
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import CHANNELS, Endpoint, Model, Study, Train
from mri_vit.settings.sections import Grid

N, FOLDS = 90, 3
WORSE = "no-positions"


def scores(models: tuple[str, ...] = ("vit", *VARIANTS), runs: int = 3, seed: int = 0) -> pd.DataFrame:
    """All models find both markers, but one of them has a coin for TERTp; a tenth of the labels are missing."""
    random, rows = np.random.default_rng(seed), []
    for endpoint in ("tertp", "mgmt"):
        truth = (np.arange(N) % 2).astype(float)
        shared = truth + random.normal(0, 0.5, N)
        truth[random.permutation(N)[: N // 10]] = np.nan
        for model in models:
            for run in range(runs):
                found = shared + random.normal(0, 0.1, N)
                score = random.random(N) if (model, endpoint) == (WORSE, "tertp") else found
                rows += [
                    {
                        "model": model,
                        "endpoint": endpoint,
                        "seed": run,
                        "patient": f"p{i:02d}",
                        "fold": i // 2 % FOLDS,
                        "truth": truth[i],
                        "score": score[i],
                    }
                    for i in range(N)
                ]
    return pd.DataFrame(rows)


def shuffled(table: pd.DataFrame) -> pd.DataFrame:
    """The same rows of each model in another order: the order of patients and runs means nothing."""
    return pd.concat([rows.sample(frac=1, random_state=1) for _, rows in table.groupby(["endpoint", "model"], sort=False)])


def of(table: pd.DataFrame, model: str, run: int, endpoint: str = "tertp") -> WithinFold:
    here = pd.DataFrame(table[(table.model == model) & (table.seed == run) & (table.endpoint == endpoint)])
    here = here.dropna().sort_values("patient")
    return within_fold_auc(here.truth.to_numpy() == 1, here.score.to_numpy(), here.fold.to_numpy())


def test_a_line_holds_each_runs_auc_their_mean_and_their_standard_deviation():
    table = scores()
    lines = {(line.endpoint, line.model): line for line in measure(shuffled(table), "vit", VARIANTS)}
    found = lines["tertp", WORSE]
    runs = [of(table, WORSE, run).value for run in range(3)]
    assert found.n == N - N // 10
    assert found.runs == pytest.approx(runs)
    assert found.mean == pytest.approx(np.mean(runs))
    assert found.sd == pytest.approx(np.std(runs, ddof=1))
    assert found.low < found.mean < found.high
    assert list(lines) == [(endpoint, model) for endpoint in ("tertp", "mgmt") for model in ("vit", *VARIANTS)]


def test_one_run_alone_has_the_reports_interval_and_test_of_pairs_within_a_fold():
    table = scores(runs=1)
    lines = {(line.endpoint, line.model): line for line in measure(table, "vit", VARIANTS)}
    found, own, n = lines["tertp", WORSE], of(table, WORSE, 0), N - N // 10
    expected = within_fold_comparison([own], [of(table, "vit", 0)], inflation(FOLDS))
    assert found.test is not None
    assert (found.test.difference, found.test.p) == pytest.approx((expected.difference, expected.p))
    positives = int(table[(table.model == WORSE) & (table.endpoint == "tertp")].truth.sum())
    assert (found.low, found.high) == pytest.approx(wilson_of_auc(own.value, own.variance, positives, n - positives, refits=True))


def test_an_auc_of_one_has_an_interval():
    table = scores()
    table["score"] = table.truth.fillna(0.5)
    for line in measure(table, "vit", VARIANTS):
        assert line.runs == (1.0, 1.0, 1.0)
        assert line.low < 0.98
        assert line.high == line.mean == 1


def test_scores_of_one_folds_network_are_not_set_beside_anothers():
    table = scores()
    shifted = table.assign(score=table.score + 100 * table.fold)
    assert [line.runs for line in measure(shifted, "vit", ())] == [line.runs for line in measure(table, "vit", ())]


def test_runs_that_disagree_widen_the_interval():
    table = scores()
    narrow = next(line for line in measure(table, "vit", ()) if line.model == WORSE)
    odd = table.copy()
    flipped = (odd.model == WORSE) & (odd.seed == 0) & (odd.endpoint == "tertp")
    odd.loc[flipped, "score"] = odd.truth[flipped].fillna(0)  # one run knows all
    wider = next(line for line in measure(odd, "vit", ()) if line.model == WORSE)
    assert wider.high - wider.low > narrow.high - narrow.low
    assert wider.sd > narrow.sd


def test_the_variant_that_is_worse_is_found_and_the_others_are_not():
    lines = measure(scores(), "vit", VARIANTS)
    found = {(line.endpoint, line.model) for line in lines if line.test and line.test.p_adjusted < 0.05}
    assert found == {("tertp", WORSE)}
    tested = [line.test for line in lines if line.test]
    assert len(tested) == 2 * len(VARIANTS)
    smallest = min(tested, key=lambda test: test.p)
    assert smallest.p_adjusted == pytest.approx(min(1, len(tested) * smallest.p))  # Holm's first: times all tests of the page


def test_a_contender_that_lacks_a_patient_in_a_run_is_refused():
    table = scores()
    lacking = pd.DataFrame(table[~((table.model == "local") & (table.seed == 1) & (table.patient == "p07"))])
    with pytest.raises(ValueError, match="local: "):
        measure(lacking, "vit", VARIANTS)


def study(**train: int) -> Study:
    return Study(
        name="variants", cohort=Path("c.csv"), prepared=Path("p"), output=Path("o"),
        endpoints=(Endpoint(name="tertp", kind="binary"), Endpoint(name="mgmt", kind="binary")),
        grid=Grid(edge=16, spacing_mm=8.0, patch=4), model=Model(dim=24, depth=2, heads=4, mlp=48, drop_path=0.0),
        train=Train.model_validate({"seeds": 3, "token_budget": 10} | train),
        comparators=(
            Comparator(name="small", model={"dim": 12}),
            Comparator(name="cnn", model={"architecture": "resnet10"}),
        ),
    )  # fmt: skip


def test_training_compute_is_three_times_a_forward_pass_of_the_drawn_tokens_for_every_visit():
    tokens, dim, mlp, numbers = 10, 24, 48, len(CHANNELS) * 4**3
    n = tokens + 1
    block = 2 * n * dim * (3 * dim + dim + 2 * mlp) + 2 * 2 * n * n * dim  # linear maps; q·k and weights·v
    assert training_flops(study(), encoder, 7) == 3 * 7 * (2 * tokens * numbers * dim + 2 * block)
    assert training_flops(study(token_budget=0), encoder, 7) > 6 * training_flops(study(), encoder, 7)  # all 64 places


def test_local_attention_costs_what_full_attention_does_and_axial_thrice_the_blocks():
    full, local, axial = (training_flops(study(), encode, 1) for encode in (encoder, vit_variants.local, vit_variants.axial))
    assert local == full
    embedding = 3 * 2 * 10 * len(CHANNELS) * 4**3 * 24
    assert axial - embedding == 3 * (full - embedding)


def test_operations_of_a_backward_pass_are_twice_those_of_a_forward_pass():
    from torch.utils.flop_counter import FlopCounterMode

    linear, x = nn.Linear(24, 48), torch.randn(5, 24, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        out = linear(x)
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    assert backward.get_total_flops() == 2 * forward.get_total_flops()


def page(tmp_path: Path, lines: list[Line], synthetic: bool = True) -> str:
    costs = [Cost(name, 1000.0, 2e9, 3e12 * (1 + index), 4.0) for index, name in enumerate(("vit", *VARIANTS, "small", "cnn"))]
    return variants_page.write(study(), lines, costs, tmp_path, synthetic).read_text()


def test_the_page_says_who_differs_and_whether_the_known_cases_held(tmp_path: Path):
    lines = measure(scores(("vit", *VARIANTS, "small", "cnn")), "vit", VARIANTS)
    text = page(tmp_path, lines)
    assert "Known case held: TERTp" in text
    assert "Known case held: MGMT" in text
    assert "by more than chance worse: No positions (−" in text
    assert "synthetic" in text
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "auc.csv", "blocks.png", "blocks.svg", "compute.png", "compute.svg", "costs.csv", "index.html", "positions.png",
        "positions.svg",
    ]  # fmt: skip
    written = pd.read_csv(tmp_path / "auc.csv")
    assert len(written) == len(lines)
    assert written.versus_own_p_adjusted.notna().sum() == 2 * len(VARIANTS)


def test_a_variant_that_finds_without_positions_what_only_positions_tell_is_reported(tmp_path: Path):
    table = scores(("vit", *VARIANTS, "small", "cnn"))
    knows = (table.model == WORSE) & (table.endpoint == "tertp")
    table.loc[knows, "score"] = table.truth[knows].fillna(0)
    text = page(tmp_path, measure(table, "vit", VARIANTS))
    assert "Known case not held: TERTp" in text
    assert "leaves out the 0.5 of chance" in text.replace("\n", " ")


def test_nothing_is_known_beforehand_of_real_patients(tmp_path: Path):
    text = page(tmp_path, measure(scores(("vit", *VARIANTS, "small", "cnn")), "vit", VARIANTS), synthetic=False)
    assert "Known case" not in text
    assert "synthetic" not in text

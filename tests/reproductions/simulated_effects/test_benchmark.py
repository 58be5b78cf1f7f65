"""The benchmark on simulated effects: its pages, its claims, and the runs that they are made of."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from reproductions.simulated_effects import __main__ as benchmark
from reproductions.simulated_effects import benchmark_pages
from reproductions.simulated_effects.cohort_scores import Line, best, of_cohort, over_cohorts

from mri_vit.errors import UsageError
from mri_vit.model.checkpoint import read_2d
from mri_vit.predictors.slices import encoder_2d
from mri_vit.report.words.notation import p_value
from mri_vit.run import files
from mri_vit.run.files import fold_folder

REPRODUCTIONS = Path(__file__).parents[3] / "pipelines" / "reproductions"
CONFIGS = REPRODUCTIONS / "simulated_effects"


def test_the_benchmarks_page_has_everybody_each_claim_and_who_went_into_the_trap():
    of = benchmark.of_seed(CONFIGS / "benchmark.toml", 1)
    names = ["vit", *(one.name for one in of.comparators), "intensity", "site", "radiomics"]
    random, n = np.random.default_rng(0), 480
    truth, fold = np.arange(n) % 2, np.arange(n) // 2 % 3
    seen = {"vit": 4.0, "radiomics": 9.0}
    cohorts = [
        of_cohort(
            pd.concat(
                pd.DataFrame({"patient": [f"p{i}" for i in range(n)], "fold": fold, "truth": truth.astype(float)}).assign(
                    model=name, endpoint=cause, score=seen.get(name, 0.0) * told * truth + random.normal(size=n)
                )
                for cause, told in {"side": True, "foci": False, "coin": False, "scanner": False}.items()
                for name in names
            ),
            "vit",
        ).assign(seed=seed, patients=n)
        for seed in (1, 2, 3)
    ]
    networks = {
        "parameters": 12345.0,
        "training_seconds": 120.0,
        "flat": 2.0,
        "trainings": 3.0,
        "first_loss": 59.0,
        "last_loss": 19.96,
    }
    rows = pd.concat(cohorts).assign(**{key: np.nan for key in networks}, verdict=None)
    rows.loc[rows.model.isin(["vit", "stem-max"]), list(networks)] = list(networks.values())
    rows.loc[(rows.model == "intensity") & (rows.cause == "scanner"), "verdict"] = "may be confounded"
    text = benchmark_pages.document(rows, [of], n)
    assert "| **Vision Transformer** | 0." in text
    assert "| stem-max | 0." in text
    assert text.count('- stem-max: `model.depth = 0`, `model.pool = "max"`') == 1
    assert "quality check left 480, 480, 480" in text
    side, foci = (next(line for line in text.splitlines() if line.startswith(f"| {cause} | ")) for cause in ("side", "foci"))
    assert "| better than everybody here but radiomics of the true tumour |" in text
    assert f" | **yes** | **yes** | {benchmark_pages.unbroken('p = 0.0')}" in side
    assert benchmark_pages.unbroken(", p < 0.001") + "<br>" in side
    assert " | no | no" in foci
    assert "\n\nBoth hold for side; asked for were three causes, each over every comparator but radiomics.\n\n" in text
    assert "| coin | 0" not in text  # brightness tells it no more than anybody should
    assert "| **Vision Transformer** | 12,345 | 2 | 6 of 9 | 59.0 to 20.0 |" in text
    assert "| 12,345 | 2 | 6 of 9 | – |" in benchmark_pages.document(rows.drop(columns=["first_loss", "last_loss"]), [of], n)
    assert "- data seed 2, intensity: may be confounded" in text
    without = benchmark_pages.document(rows, [of], n, ["benchmark-convolutional"])
    assert "Not here, as not run on enough of these data seeds yet: `benchmark_convolutional.toml`." in without
    assert f" | **yes** | not yet | {benchmark_pages.unbroken('p = 0.0')}" in without  # who is not here at all may yet do better
    assert "still to run: `benchmark_convolutional.toml`." in " ".join(without.split())
    assert "for no cause" in without
    assert str(REPRODUCTIONS) not in text


def test_every_page_of_a_benchmark_is_what_its_study_files_and_committed_figures_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    figures = sorted(CONFIGS.glob("benchmark*_cohorts.csv"))
    for table in figures:
        shutil.copy(table, tmp_path)
    monkeypatch.setattr(benchmark, "HOME", tmp_path)
    pages = {benchmark.page_of(CONFIGS / table.name.replace("_cohorts.csv", ".toml")) for table in figures}
    for together in pages:
        path = benchmark.write(together, benchmark.patients_of(together[0]))
        assert path, together
        assert path.read_text() == (CONFIGS / path.name).read_text(), (
            f"reproduce.py simulated_effects would write another {path.name}"
        )
    assert len(pages) >= 7


def test_the_benchmarks_claims_say_what_data_seeds_that_were_run_later_show_alone_and_who_ran_on_fewer():
    random = np.random.default_rng(0)
    rows = pd.DataFrame(
        [
            {"seed": seed, "patients": 90, "cause": "inward", "model": model, "auc": auc, "error": 0.03}
            | ({} if model == "vit" else {"lead": 0.9 - auc + random.normal(0, spread), "lead_error": 0.03})
            for model, auc, spread, seeds in (
                ("vit", 0.9, 0.0, benchmark_pages.SEEDS),
                ("stem-max", 0.7, 0.02, benchmark_pages.SEEDS),
                ("radiomics", 0.6, 0.02, benchmark_pages.LATER),
            )
            for seed in seeds
        ]
    ).assign(parameters=np.nan, training_seconds=np.nan, flat=np.nan, trainings=np.nan, verdict=None)
    of = benchmark.of_seed(CONFIGS / "benchmark.toml", 1)
    text = benchmark_pages.document(rows, [of], 96)
    assert "| radiomics of the true tumour (data seeds 4, 5, 6) | 0.600" in text
    assert "| **Vision Transformer** | 0.900" in text
    assert "and an adjusted p is held to 0.017, a third of 0.05." in " ".join(text.split())
    (claim,) = (line for line in text.splitlines() if line.startswith("| inward | "))
    alone = over_cohorts(pd.DataFrame(rows[rows.seed.isin(benchmark_pages.LATER)]))
    expected = p_value(next(one.p for one in alone if one.model == "stem-max"))
    assert claim.replace("\N{NO-BREAK SPACE}", " ").endswith(f" | {expected} |")
    assert "| p of data seeds 4, 5, 6 |" in text
    first = benchmark_pages.document(pd.DataFrame(rows[rows.seed.isin(benchmark_pages.FIRST)]), [of], 96)
    assert "p of data seeds" not in first
    assert "third look" not in " ".join(first.split())
    assert "| radiomics" not in first
    one = benchmark_pages.document(pd.DataFrame(rows[rows.seed == 1]), [of], 96)
    assert "holds patients alone" in " ".join(one.split())  # of a single cohort nothing tells how cohorts scatter
    assert "holds patients, refitting and cohorts" in " ".join(first.split())


def test_the_benchmark_claims_nothing_before_every_bar_has_run_on_all_data_seeds():
    def told(seeds: tuple[int, ...], model: str = "dilated-max") -> str:
        rows = [
            {"seed": seed, "patients": 90, "cause": "inward", "model": name, "auc": auc, "error": 0.01}
            | ({} if name == "vit" else {"lead": 0.9 - auc, "lead_error": 0.01})
            for name, auc, on in (
                ("vit", 0.9, benchmark_pages.SEEDS),
                ("stem-max", 0.6, benchmark_pages.SEEDS),
                (model, 0.5, seeds),
            )
            for seed in on
        ]
        unknown = {name: np.nan for name in ("parameters", "training_seconds", "flat", "trainings")}
        of = benchmark.of_seed(CONFIGS / "benchmark.toml", 1)
        return " ".join(benchmark_pages.document(pd.DataFrame(rows).assign(**unknown, verdict=None), [of], 96).split())

    for seeds in (benchmark_pages.LATER, (1, *benchmark_pages.LATER)):
        assert "still to run: dilated-max." in told(seeds)
        assert "| **yes** | not yet | p < 0.001 |" in told(seeds)
        assert "for no cause" in told(seeds)
    for text in (told(benchmark_pages.SEEDS), told(benchmark_pages.LATER, "radiomics")):  # radiomics is no bar
        assert "Nothing is claimed" not in text
        assert "| **yes** | **yes** | p < 0.001 |" in text
        assert "for inward" in text


def test_a_benchmarks_page_has_no_figures_of_another_recipe_of_other_patients_or_of_a_draft(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "HOME", tmp_path)
    file = CONFIGS / "benchmark.toml"
    of, other = (benchmark.of_seed(file, seed) for seed in (1, 2))
    assert benchmark.recipe(of, 192) == benchmark.recipe(other, 192)
    changed = of.model_copy(update={"train": of.train.model_copy(update={"mask_supervision_token_labels": 1.0})})
    recipes = {
        1: benchmark.recipe(of, 192),
        2: benchmark.recipe(changed, 192),
        3: benchmark.recipe(of, 384),
        11: benchmark.recipe(of, 192),
    }
    assert len(set(recipes.values())) == 3
    pd.DataFrame(recipes.items(), columns=pd.Index(["seed", "recipe"])).to_csv(benchmark.results(file), index=False)
    assert benchmark.kept(file, 192).seed.tolist() == [1]
    assert benchmark.kept(file, 96).empty
    assert benchmark.write([file], 96) is None


@pytest.mark.parametrize("recipe", ["318312642056", "0123456789e1"])
def test_a_recipe_that_looks_like_a_number_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str):
    monkeypatch.setattr(benchmark, "HOME", tmp_path)
    monkeypatch.setattr(benchmark, "recipe", lambda of, patients: recipe)
    file = CONFIGS / "benchmark.toml"
    benchmark.results(file).write_text(f"seed,recipe\n1,{recipe}\n2,other\n")
    assert benchmark.kept(file, 192).seed.tolist() == [1]
    benchmark.results(file).write_text(f"seed,recipe\n1,{recipe}\n")
    assert benchmark.kept(file, 192).seed.tolist() == [1]


def test_a_page_has_both_of_its_studies_and_says_how_far_a_vision_transformer_is_that_another_machine_trained_anew(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(benchmark, "HOME", tmp_path)
    networks = {"parameters": 9.0, "training_seconds": 60.0, "flat": 2.0, "trainings": 2.0, "verdict": None}

    def written(first: str, seeds: tuple[int, ...], apart: float) -> list[str]:
        texts, together = [], benchmark.page_of(CONFIGS / first)
        for number, file in enumerate(together):
            of = benchmark.of_seed(file, seeds[0])
            models = {"vit": 0.9 + apart * number, **{one.name: 0.6 for one in of.comparators}}
            rows = [
                {"seed": seed, "patients": 9, "cause": cause, "model": model, "auc": auc, "error": 0.1, "lead_error": 0.1}
                | ({} if model == "vit" else {"lead": models["vit"] - auc})
                for seed in seeds
                for cause in benchmark_pages.FIT
                for model, auc in models.items()
            ]
            rows = pd.DataFrame(rows).assign(**networks, recipe=benchmark.recipe(of, 9))
            rows.to_csv(benchmark.results(file), index=False)
            path = benchmark.write(together, 9)
            assert path
            texts.append(" ".join(path.read_text().split()))
        return texts

    alone, both = written("benchmark_search.toml", benchmark_pages.DRAFT, 0.031)
    assert "Not here, as not run yet: `benchmark_search_convolutional.toml`." in alone
    assert "as not run yet" not in both
    assert "| [Vision Transformer](benchmark.md) | **0.900** |" in both  # the first file's
    assert "| dilated-max | " in both
    assert "- dilated-max: `model.architecture" in both
    alone, both = written("benchmark.toml", benchmark_pages.LATER, 0.031)
    assert "not run on enough" in alone
    assert "trained the Vision Transformer anew" not in alone
    assert "differs by up to 0.031 from the one shown" in both
    assert "| **Vision Transformer** | 0.900" in both
    assert "trained the Vision Transformer anew" not in written("benchmark.toml", benchmark_pages.LATER, 0.0)[1]


def test_the_benchmark_with_twice_the_patients_claims_nothing_before_all_its_data_seeds_and_stands_beside_the_smaller_cohorts(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(benchmark, "HOME", tmp_path)
    larger, smaller = CONFIGS / benchmark.LARGER, CONFIGS / benchmark.AS_MANY
    assert benchmark.seeds_of(larger) == benchmark_pages.NEW
    assert not set(benchmark_pages.NEW) & {*benchmark_pages.SEEDS, *benchmark_pages.DRAFT}
    assert (benchmark.patients_of(larger), benchmark.patients_of(smaller)) == (384, 192)
    of, other = (benchmark.of_seed(file, 8) for file in (larger, smaller))
    assert (of.grid, of.model, of.train, of.endpoints) == (other.grid, other.model, other.train, other.endpoints)
    assert {one.name for one in of.comparators} < {one.name for one in other.comparators}
    assert all(one in other.comparators for one in of.comparators)

    def ran(file: Path, seeds: tuple[int, ...], patients: int, lead: float) -> None:
        of = benchmark.of_seed(file, seeds[0])
        rows = [
            {"seed": seed, "patients": patients, "cause": cause, "model": model, "auc": 0.9, "error": 0.01, "lead_error": 0.02}
            | ({} if model == "vit" else {"auc": 0.9 - lead, "lead": lead + 0.001 * seed})
            for seed in seeds
            for cause in benchmark_pages.FIT
            for model in ("vit", *(one.name for one in of.comparators))
        ]
        unknown = {name: np.nan for name in ("parameters", "training_seconds", "flat", "trainings")}
        rows = pd.DataFrame(rows).assign(**unknown, verdict=None, recipe=benchmark.recipe(of, patients))
        rows.to_csv(benchmark.results(file), index=False)

    def written() -> str:
        path = benchmark.write(benchmark.page_of(larger), 384)
        assert path
        assert path.name == "benchmark_384.md"
        return " ".join(path.read_text().split())

    ran(smaller, benchmark_pages.SEEDS, 192, 0.03)
    ran(larger, benchmark_pages.NEW[:2], 384, 0.1)
    assert "still to run: everybody on data seed 10." in written()
    assert "Both hold for no cause" in written()
    ran(larger, benchmark_pages.NEW, 384, 0.1)
    assert "still to run" not in written()
    assert "an adjusted p is held to 0.05" in written()
    assert "Both hold for texture, mismatch" in written()
    assert "Cohorts: 6 of 192, 3 of 384 labelled patients" in written()
    assert "| over | lead with 192 | lead with 384 |" in written()


def test_a_cause_on_which_the_own_model_is_behind_has_no_p_for_it_and_one_that_cannot_be_tested_does_not_vanish():
    def line(model: str, lead: float | None, p: float = np.nan) -> Line:
        return Line(model, "side", (0.7,), 0.7, 0.6, 0.8, lead=lead, p=p)

    assert best([line("vit", None), line("a", 0.1, 0.02), line("b", 0.2, 0.001)], "side", "vit", ()) == (True, 0.02)
    assert best([line("vit", None), line("a", -0.1, 0.001), line("b", 0.2, 0.001)], "side", "vit", ()) == (False, 1.0)
    for untested_first in (True, False):
        others = [line("a", 0.1), line("b", 0.2, 0.001)][:: 1 if untested_first else -1]
        leads, p = best([line("vit", None), *others], "side", "vit", ())
        assert leads
        assert np.isnan(p)


def test_a_search_names_the_best_recipe_of_each_network_by_the_mean_over_causes_on_a_cohort_that_the_benchmark_has_not():
    of = benchmark.of_seed(CONFIGS / "benchmark_search.toml", 11)
    assert benchmark.seeds_of(CONFIGS / "benchmark_search.toml") == benchmark_pages.DRAFT
    assert not set(benchmark_pages.DRAFT) & set(benchmark_pages.SEEDS)
    names = ["vit", *(one.name for one in of.comparators)]
    better = {"vit": 0.1, "stem-max-faster": 0.2, "resnet10-max-slower": 0.05, "resnet10": 0.01}
    rows = pd.DataFrame(
        [
            {"seed": 11, "patients": 90, "cause": cause, "model": name, "auc": 0.6 + better.get(name, 0.0), "error": 0.03}
            for cause in benchmark_pages.FIT
            for name in names
        ]
    ).assign(parameters=9.0, training_seconds=60.0, flat=2.0, trainings=2.0)
    table = benchmark_pages.means(rows, of.comparators)
    assert sorted(table.index[table.best]) == ["resnet10", "resnet10-max-slower", "stem-max-faster", "vit"]
    text = benchmark_pages.search_document(rows, [of], 96, ["benchmark-search-convolutional"])
    assert "Not here, as not run yet: `benchmark_search_convolutional.toml`." in text
    assert "| [Vision Transformer](benchmark.md) | **0.700** | 0.700 |" in text
    assert "data seed 11, of whom the quality check left 90" in " ".join(text.split())
    assert text.count("**") == 8


def test_who_went_into_the_trap_is_told_in_the_reports_words_but_for_the_site_that_is_the_trap():
    scanner = {
        "intensity": {"verdict_kind": "better", "verdict": "may be confounded"},
        "vit": {"verdict_kind": "chance", "verdict": "is chance"},
        "site": {"verdict_kind": "better", "verdict": "is the site"},
    }
    assert benchmark.trapped({"endpoints": {"scanner": {"models": scanner}}}) == {"intensity": "may be confounded"}
    assert benchmark.trapped({"endpoints": {}}) == {}


def test_a_benchmarks_networks_are_taken_over_where_the_recipe_is_the_same(tmp_path: Path):
    of, other = (benchmark.of_seed(CONFIGS / f"{name}.toml", 1) for name in ("benchmark", "benchmark_convolutional"))
    of, other = (one.model_copy(update={"output": tmp_path / one.name}) for one in (of, other))
    assert benchmark.own_part(of) == benchmark.own_part(other)
    lenders = benchmark.lenders(CONFIGS / "benchmark_convolutional.toml", 1)
    same = {one.name for one in lenders if benchmark.own_part(one) == benchmark.own_part(of)}
    assert {"benchmark", "benchmark-parts", "benchmark-learning"} <= same
    assert lenders[0].name == "benchmark"
    assert "benchmark-convolutional" not in {one.name for one in lenders}
    for fold in range(3):
        fold_folder(of.output, 0, fold).mkdir(parents=True)
        (fold_folder(of.output, 0, fold) / "best.safetensors").write_text(str(fold))
    other.output.mkdir()
    benchmark.borrow(other, [other, of])
    assert not (other.output / files.FOLDS).exists()  # the first is not finished
    (of.output / files.FOLDS).write_text("folds")
    (of.output / "folds.sha256").write_text("hash")
    (of.output / files.PREDICTIONS).write_text("done")
    benchmark.borrow(other.model_copy(update={"seed": 5}), [of])
    assert not (other.output / files.FOLDS).exists()  # another recipe
    benchmark.borrow(other, [other, of])
    assert [(fold_folder(other.output, 0, fold) / "best.safetensors").read_text() for fold in range(3)] == ["0", "1", "2"]
    assert (other.output / files.FOLDS).read_text() == "folds"
    assert (other.output / "folds.sha256").read_text() == "hash"


def test_a_benchmark_reads_all_study_files_before_it_runs_the_first(monkeypatch: pytest.MonkeyPatch):
    run = []
    monkeypatch.setattr(benchmark, "run_benchmark", lambda of, *_: run.append(of))
    with pytest.raises(UsageError, match="6: no such study file"):
        benchmark.main(CONFIGS / "benchmark.toml", Path("6"), seeds=(5,))  # as `--seeds 5 6` is read
    assert not run


def test_the_2d_network_that_the_benchmark_makes_is_one_that_slices_reads(tmp_path: Path):
    benchmark.network_2d(tmp_path / "vit2d.safetensors")
    encoder = encoder_2d(read_2d(tmp_path / "vit2d.safetensors"))
    assert (encoder.dim, len(encoder.layers), encoder.layers[0].attention.heads) == (benchmark.WIDTH_2D, benchmark.DEPTH_2D, 3)

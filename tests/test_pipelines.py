"""The pipelines that compare recipes: their settings, and the table that the ablation writes."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from reproductions import small_tumours
from reproductions.ablation import __main__ as ablation
from reproductions.ladder import __main__ as ladder
from reproductions.learning_curve import __main__ as learning_curve
from reproductions.simulated_effects import __main__ as contest
from reproductions.simulated_effects import page, search
from reproductions.simulated_effects.numbers import Line, best, of_cohort, over_cohorts
from rich.console import Console

from mri_vit import study
from mri_vit.data import cohort, frozen, tokens
from mri_vit.data.batches import everything, token_file
from mri_vit.errors import UsageError
from mri_vit.model import network
from mri_vit.model.vit2d import read_2d
from mri_vit.predictors.slices import encoder_2d
from mri_vit.report.words.notation import p_value
from mri_vit.run import files
from mri_vit.run import folder as run_folder
from mri_vit.run.files import fold_folder
from mri_vit.settings import file as study_file
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.quality import Quality
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.train.supervised import untrained

REPRODUCTIONS = Path(__file__).parents[1] / "pipelines" / "reproductions"
CONFIGS = REPRODUCTIONS / "simulated_effects"


def test_at_every_size_each_contender_makes_as_many_steps_and_is_evaluated_as_often():
    whole = learning_curve.settings(1, 192)
    for size in learning_curve.SIZES:
        study = learning_curve.settings(1, size)
        assert str(size) in study.cohort.name
        assert size in (int(part) for part in study.output.name.split("-")[1:])
        for mine, theirs in [
            (study, whole),
            *((study.of(a), whole.of(b)) for a, b in zip(study.comparators, whole.comparators, strict=True)),
        ]:
            assert mine.train.epochs * size == theirs.train.epochs * 192
            assert mine.train.tune_every * size == theirs.train.tune_every * 192


def test_pretrained_contenders_start_from_their_cohorts_encoder_and_pretrain_no_more():
    begun = learning_curve.begun(learning_curve.settings(2, 48), 2)
    found = {comparator.name: begun.of(comparator) for comparator in begun.comparators}
    assert all(study.pretrain.method == "none" for study in found.values())
    weights = {name: study.model.weights for name, study in found.items() if study.model.weights}
    assert weights == {name: learning_curve.encoder(2, name) for name in ("vit-mae", "vit-dino")}
    assert {comparator.name for comparator in begun.comparators} | {"vit", "clinical"} == set(learning_curve.NAMES)


def test_the_ablations_table_has_a_row_for_each_change_and_tells_no_folder_of_this_machine():
    of = ablation.of_seed(1)
    models = ["vit", *(comparator.name for comparator in of.comparators)]
    models += [f"{name} without {channel}" for name in ("vit", ablation.BEARING) for channel in CHANNELS]
    generator, truth = np.random.default_rng(0), np.arange(60) % 2
    parts = [
        pd.DataFrame(
            {"seed": seed, "labelled": 192, "model": model, "patient": [f"p{i}" for i in range(60)], "truth": truth}
            | {"score": truth * (model != "pool-cls") + generator.normal(0, 0.5, 60)}
        )
        for seed in range(1, 9)  # Student's t between cohorts tells little of two
        for model in models
    ]
    text = ablation.document(pd.concat(parts), of, [1, 2])
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 1 + len(of.comparators) + 1 + 2  # head, recommended, changes; head, two ways of training
    assert str(REPRODUCTIONS) not in text
    worst = next(row for row in rows if '`model.pool = "cls"`' in row)
    assert worst.endswith("| < 0.001 |")
    assert "−0." in worst


@pytest.mark.parametrize("channel", CHANNELS)
def test_without_a_scan_the_score_is_that_of_a_patient_who_lacks_it(tiny: Study, channel: str):
    study = tiny.model_copy(update={"endpoints": (Endpoint(name="mgmt", kind="binary"),)})
    patients = [p for p in cohort.read(study.cohort, study.endpoints)[:6]]
    torch.manual_seed(0)
    net = untrained(patients, study.model_copy(update={"model": study.model.model_copy(update={"zero_head": False})}), 0).eval()
    for fold in range(2):
        fold_folder(study.output, 0, fold).mkdir(parents=True)
        network.save(net, fold_folder(study.output, 0, fold) / "best.safetensors")
    split = [[p.id for p in patients[:3]], [p.id for p in patients[3:]]]
    found = ablation.lacking(study, patients, split, study.output, channel)
    patches, place = everything(tokens.load(token_file(study, patients[4])), study)
    apart = list(patches.chunk(4, dim=2))
    apart[CHANNELS.index(channel)] = torch.zeros_like(apart[0])
    expected = net(torch.cat(apart, dim=2), place)["mgmt"].sigmoid().item()
    assert found[patients[4].subject] == pytest.approx(expected)
    assert found[patients[4].subject] != pytest.approx(net(patches, place)["mgmt"].sigmoid().item(), abs=1e-6)


def test_each_size_of_a_ladder_is_a_part_of_the_next_and_trains_for_as_many_steps(tiny: Study, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ladder.ladder, "FEWEST", 5)
    of = binary(tiny)
    made = ladder.rungs(of)
    assert [rung.size for rung in made] == [21, 10, 5]  # of 24 patients three have no label
    for larger, smaller in pairwise(made):
        assert {p.id for p in smaller.patients} < {p.id for p in larger.patients}
        assert smaller.study.output != larger.study.output
    assert [rung.study.train.epochs for rung in made] == [of.train.epochs, 2 * of.train.epochs, 4 * of.train.epochs]
    assert all(p.knows(of.endpoints[0]) for rung in made for p in rung.patients)
    assert [rung.patients for rung in ladder.rungs(of)] == [rung.patients for rung in made]
    other = ladder.rungs(of.model_copy(update={"seed": 1}))
    assert other[1].patients != made[1].patients


def test_a_ladder_refuses_what_its_page_could_not_show(tiny: Study):
    of = binary(tiny)
    with pytest.raises(UsageError, match="of binary markers; found the endpoint os"):
        ladder.rungs(tiny)
    with pytest.raises(UsageError, match=r"divides the patients once; found train\.repeats 2"):
        ladder.rungs(of.model_copy(update={"train": of.train.model_copy(update={"repeats": 2})}))
    pretrained = Comparator(name="mae", pretrain={"method": "mae"})
    with pytest.raises(UsageError, match="labels alone; mae is pretrained"):
        ladder.rungs(of.model_copy(update={"comparators": (pretrained,)}))
    with pytest.raises(UsageError, match="21 patients with a label; a ladder needs 24 or more"):
        ladder.rungs(of)
    with pytest.raises(UsageError, match="this study has a cohort of its own"):
        ladder.main(ladder.CONFIG.with_name("ladder_brats2021.toml"), seeds=(1, 2))


def binary(tiny: Study) -> Study:
    """The tiny study of MGMT alone, with a run for each size."""
    output = tiny.output.with_name("run-{patients}")
    return tiny.model_copy(update={"endpoints": (Endpoint(name="mgmt", kind="binary"),), "output": output})


@pytest.mark.long
def test_nobody_of_the_hard_variant_is_excluded_because_nothing_but_a_thin_rim_enhances(tmp_path: Path):
    hard = [
        study_file.load(REPRODUCTIONS / name)
        for name in ("learning_curve/learning_curve.toml", "ablation/ablation.toml", "features/features_hard.toml")
    ]
    assert all(one.qc == Quality() for one in hard)
    table = small_tumours.make(tmp_path / "cohort", 1, 4, 0)
    paths = {"cohort": table, "prepared": tmp_path / "prepared", "output": tmp_path / "run"}
    of = hard[0].model_copy(update=paths)
    with run_folder.claimed(of) as run:
        study.prepare(of, frozen.freeze(of, cohort.read(table, of.endpoints), run), run, Console(quiet=True))
        assert len(frozen.included(of, run)) == 4


def test_the_contests_page_has_everybody_each_claim_and_who_went_into_the_trap():
    of = contest.of_seed(CONFIGS / "contest.toml", 1)
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
    text = page.document(rows, [of], n)
    assert "| **Vision Transformer** | 0." in text
    assert "| stem-max | 0." in text
    assert text.count('- stem-max: `model.depth = 0`, `model.pool = "max"`') == 1
    assert "quality check left 480, 480, 480" in text
    side, foci = (next(line for line in text.splitlines() if line.startswith(f"| {cause} | ")) for cause in ("side", "foci"))
    assert "| better than everybody here but radiomics of the true tumour |" in text
    assert f" | **yes** | **yes** | {page.unbroken('p = 0.0')}" in side
    assert page.unbroken(", p < 0.001") + "<br>" in side
    assert " | no | no" in foci
    assert "\n\nBoth hold for side; asked for were three causes, each over every comparator but radiomics.\n\n" in text
    assert "| coin | 0" not in text  # brightness tells it no more than anybody should
    assert "| **Vision Transformer** | 12,345 | 2 | 6 of 9 | 59.0 to 20.0 |" in text
    assert "| 12,345 | 2 | 6 of 9 | – |" in page.document(rows.drop(columns=["first_loss", "last_loss"]), [of], n)
    assert "- data seed 2, intensity: may be confounded" in text
    without = page.document(rows, [of], n, ["contest-convolutional"])
    assert "Not here, as not run on enough of these data seeds yet: `contest_convolutional.toml`." in without
    assert f" | **yes** | not yet | {page.unbroken('p = 0.0')}" in without  # who is not here at all may yet do better
    assert "still to run: `contest_convolutional.toml`." in " ".join(without.split())
    assert "for no cause" in without
    assert str(REPRODUCTIONS) not in text


def test_every_page_of_a_contest_is_what_its_study_files_and_committed_figures_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    figures = sorted(CONFIGS.glob("contest*_cohorts.csv"))
    for table in figures:
        shutil.copy(table, tmp_path)
    monkeypatch.setattr(contest, "HOME", tmp_path)
    pages = {contest.page_of(CONFIGS / table.name.replace("_cohorts.csv", ".toml")) for table in figures}
    for together in pages:
        path = contest.write(together, contest.patients_of(together[0]))
        assert path, together
        assert path.read_text() == (CONFIGS / path.name).read_text(), (
            f"reproduce.py simulated_effects would write another {path.name}"
        )
    assert len(pages) >= 7


def test_the_contests_claims_say_what_data_seeds_that_were_run_later_show_alone_and_who_ran_on_fewer():
    random = np.random.default_rng(0)
    rows = pd.DataFrame(
        [
            {"seed": seed, "patients": 90, "cause": "inward", "model": model, "auc": auc, "error": 0.03}
            | ({} if model == "vit" else {"lead": 0.9 - auc + random.normal(0, spread), "lead_error": 0.03})
            for model, auc, spread, seeds in (
                ("vit", 0.9, 0.0, page.SEEDS),
                ("stem-max", 0.7, 0.02, page.SEEDS),
                ("radiomics", 0.6, 0.02, page.LATER),
            )
            for seed in seeds
        ]
    ).assign(parameters=np.nan, training_seconds=np.nan, flat=np.nan, trainings=np.nan, verdict=None)
    of = contest.of_seed(CONFIGS / "contest.toml", 1)
    text = page.document(rows, [of], 96)
    assert "| radiomics of the true tumour (data seeds 4, 5, 6) | 0.600" in text
    assert "| **Vision Transformer** | 0.900" in text
    assert "and an adjusted p is held to 0.017, a third of 0.05." in " ".join(text.split())
    (claim,) = (line for line in text.splitlines() if line.startswith("| inward | "))
    alone = over_cohorts(pd.DataFrame(rows[rows.seed.isin(page.LATER)]))
    expected = p_value(next(one.p for one in alone if one.model == "stem-max"))
    assert claim.replace("\N{NO-BREAK SPACE}", " ").endswith(f" | {expected} |")
    assert "| p of data seeds 4, 5, 6 |" in text
    first = page.document(pd.DataFrame(rows[rows.seed.isin(page.FIRST)]), [of], 96)
    assert "p of data seeds" not in first
    assert "third look" not in " ".join(first.split())
    assert "| radiomics" not in first
    one = page.document(pd.DataFrame(rows[rows.seed == 1]), [of], 96)
    assert "holds patients alone" in " ".join(one.split())  # of a single cohort nothing tells how cohorts scatter
    assert "holds patients, refitting and cohorts" in " ".join(first.split())


def test_the_contest_claims_nothing_before_every_bar_has_run_on_all_data_seeds():
    def told(seeds: tuple[int, ...], model: str = "dilated-max") -> str:
        rows = [
            {"seed": seed, "patients": 90, "cause": "inward", "model": name, "auc": auc, "error": 0.01}
            | ({} if name == "vit" else {"lead": 0.9 - auc, "lead_error": 0.01})
            for name, auc, on in (("vit", 0.9, page.SEEDS), ("stem-max", 0.6, page.SEEDS), (model, 0.5, seeds))
            for seed in on
        ]
        unknown = {name: np.nan for name in ("parameters", "training_seconds", "flat", "trainings")}
        of = contest.of_seed(CONFIGS / "contest.toml", 1)
        return " ".join(page.document(pd.DataFrame(rows).assign(**unknown, verdict=None), [of], 96).split())

    for seeds in (page.LATER, (1, *page.LATER)):
        assert "still to run: dilated-max." in told(seeds)
        assert "| **yes** | not yet | p < 0.001 |" in told(seeds)
        assert "for no cause" in told(seeds)
    for text in (told(page.SEEDS), told(page.LATER, "radiomics")):  # radiomics is no bar
        assert "Nothing is claimed" not in text
        assert "| **yes** | **yes** | p < 0.001 |" in text
        assert "for inward" in text


def test_a_contests_page_has_no_figures_of_another_recipe_of_other_patients_or_of_a_draft(tmp_path, monkeypatch):
    monkeypatch.setattr(contest, "HOME", tmp_path)
    file = CONFIGS / "contest.toml"
    of, other = (contest.of_seed(file, seed) for seed in (1, 2))
    assert contest.recipe(of, 192) == contest.recipe(other, 192)
    changed = of.model_copy(update={"train": of.train.model_copy(update={"guide_encoded": 1.0})})
    recipes = {
        1: contest.recipe(of, 192),
        2: contest.recipe(changed, 192),
        3: contest.recipe(of, 384),
        11: contest.recipe(of, 192),
    }
    assert len(set(recipes.values())) == 3
    pd.DataFrame(recipes.items(), columns=pd.Index(["seed", "recipe"])).to_csv(contest.results(file), index=False)
    assert contest.kept(file, 192).seed.tolist() == [1]
    assert contest.kept(file, 96).empty
    assert contest.write([file], 96) is None


@pytest.mark.parametrize("recipe", ["318312642056", "0123456789e1"])
def test_a_recipe_that_looks_like_a_number_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str):
    monkeypatch.setattr(contest, "HOME", tmp_path)
    monkeypatch.setattr(contest, "recipe", lambda of, patients: recipe)
    file = CONFIGS / "contest.toml"
    contest.results(file).write_text(f"seed,recipe\n1,{recipe}\n2,other\n")
    assert contest.kept(file, 192).seed.tolist() == [1]
    contest.results(file).write_text(f"seed,recipe\n1,{recipe}\n")
    assert contest.kept(file, 192).seed.tolist() == [1]


def test_a_page_has_both_of_its_studies_and_says_how_far_a_vision_transformer_is_that_another_machine_trained_anew(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(contest, "HOME", tmp_path)
    networks = {"parameters": 9.0, "training_seconds": 60.0, "flat": 2.0, "trainings": 2.0, "verdict": None}

    def written(first: str, seeds: tuple[int, ...], apart: float) -> list[str]:
        texts, together = [], contest.page_of(CONFIGS / first)
        for number, file in enumerate(together):
            of = contest.of_seed(file, seeds[0])
            models = {"vit": 0.9 + apart * number, **{one.name: 0.6 for one in of.comparators}}
            rows = [
                {"seed": seed, "patients": 9, "cause": cause, "model": model, "auc": auc, "error": 0.1, "lead_error": 0.1}
                | ({} if model == "vit" else {"lead": models["vit"] - auc})
                for seed in seeds
                for cause in page.FIT
                for model, auc in models.items()
            ]
            rows = pd.DataFrame(rows).assign(**networks, recipe=contest.recipe(of, 9))
            rows.to_csv(contest.results(file), index=False)
            path = contest.write(together, 9)
            assert path
            texts.append(" ".join(path.read_text().split()))
        return texts

    alone, both = written("contest_search.toml", page.DRAFT, 0.031)
    assert "Not here, as not run yet: `contest_search_convolutional.toml`." in alone
    assert "as not run yet" not in both
    assert "| [Vision Transformer](contest.md) | **0.900** |" in both  # the first file's
    assert "| dilated-max | " in both
    assert "- dilated-max: `model.architecture" in both
    alone, both = written("contest.toml", page.LATER, 0.031)
    assert "not run on enough" in alone
    assert "trained the Vision Transformer anew" not in alone
    assert "differs by up to 0.031 from the one shown" in both
    assert "| **Vision Transformer** | 0.900" in both
    assert "trained the Vision Transformer anew" not in written("contest.toml", page.LATER, 0.0)[1]


def test_the_contest_with_twice_the_patients_claims_nothing_before_all_its_data_seeds_and_stands_beside_the_smaller_cohorts(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(contest, "HOME", tmp_path)
    larger, smaller = CONFIGS / contest.LARGER, CONFIGS / contest.AS_MANY
    assert contest.seeds_of(larger) == page.NEW
    assert not set(page.NEW) & {*page.SEEDS, *page.DRAFT}
    assert (contest.patients_of(larger), contest.patients_of(smaller)) == (384, 192)
    of, other = (contest.of_seed(file, 8) for file in (larger, smaller))
    assert (of.grid, of.model, of.train, of.endpoints) == (other.grid, other.model, other.train, other.endpoints)
    assert {one.name for one in of.comparators} < {one.name for one in other.comparators}
    assert all(one in other.comparators for one in of.comparators)

    def ran(file: Path, seeds: tuple[int, ...], patients: int, lead: float) -> None:
        of = contest.of_seed(file, seeds[0])
        rows = [
            {"seed": seed, "patients": patients, "cause": cause, "model": model, "auc": 0.9, "error": 0.01, "lead_error": 0.02}
            | ({} if model == "vit" else {"auc": 0.9 - lead, "lead": lead + 0.001 * seed})
            for seed in seeds
            for cause in page.FIT
            for model in ("vit", *(one.name for one in of.comparators))
        ]
        unknown = {name: np.nan for name in ("parameters", "training_seconds", "flat", "trainings")}
        rows = pd.DataFrame(rows).assign(**unknown, verdict=None, recipe=contest.recipe(of, patients))
        rows.to_csv(contest.results(file), index=False)

    def written() -> str:
        path = contest.write(contest.page_of(larger), 384)
        assert path
        assert path.name == "contest_384.md"
        return " ".join(path.read_text().split())

    ran(smaller, page.SEEDS, 192, 0.03)
    ran(larger, page.NEW[:2], 384, 0.1)
    assert "still to run: everybody on data seed 10." in written()
    assert "Both hold for no cause" in written()
    ran(larger, page.NEW, 384, 0.1)
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


def test_a_search_names_the_best_recipe_of_each_network_by_the_mean_over_causes_on_a_cohort_that_the_contest_has_not():
    of = contest.of_seed(CONFIGS / "contest_search.toml", 11)
    assert contest.seeds_of(CONFIGS / "contest_search.toml") == page.DRAFT
    assert not set(page.DRAFT) & set(page.SEEDS)
    names = ["vit", *(one.name for one in of.comparators)]
    better = {"vit": 0.1, "stem-max-faster": 0.2, "resnet10-max-slower": 0.05, "resnet10": 0.01}
    rows = pd.DataFrame(
        [
            {"seed": 11, "patients": 90, "cause": cause, "model": name, "auc": 0.6 + better.get(name, 0.0), "error": 0.03}
            for cause in page.FIT
            for name in names
        ]
    ).assign(parameters=9.0, training_seconds=60.0, flat=2.0, trainings=2.0)
    table = search.means(rows, of.comparators)
    assert sorted(table.index[table.best]) == ["resnet10", "resnet10-max-slower", "stem-max-faster", "vit"]
    text = search.document(rows, [of], 96, ["contest-search-convolutional"])
    assert "Not here, as not run yet: `contest_search_convolutional.toml`." in text
    assert "| [Vision Transformer](contest.md) | **0.700** | 0.700 |" in text
    assert "data seed 11, of whom the quality check left 90" in " ".join(text.split())
    assert text.count("**") == 8


def test_who_went_into_the_trap_is_told_in_the_reports_words_but_for_the_site_that_is_the_trap():
    scanner = {
        "intensity": {"verdict_kind": "better", "verdict": "may be confounded"},
        "vit": {"verdict_kind": "chance", "verdict": "is chance"},
        "site": {"verdict_kind": "better", "verdict": "is the site"},
    }
    assert contest.trapped({"endpoints": {"scanner": {"models": scanner}}}) == {"intensity": "may be confounded"}
    assert contest.trapped({"endpoints": {}}) == {}


def test_a_contests_networks_are_taken_over_where_the_recipe_is_the_same(tmp_path: Path):
    of, other = (contest.of_seed(CONFIGS / f"{name}.toml", 1) for name in ("contest", "contest_convolutional"))
    of, other = (one.model_copy(update={"output": tmp_path / one.name}) for one in (of, other))
    assert contest.own_part(of) == contest.own_part(other)
    lenders = contest.lenders(CONFIGS / "contest_convolutional.toml", 1)
    same = {one.name for one in lenders if contest.own_part(one) == contest.own_part(of)}
    assert {"contest", "contest-parts", "contest-learning"} <= same
    assert lenders[0].name == "contest"
    assert "contest-convolutional" not in {one.name for one in lenders}
    for fold in range(3):
        fold_folder(of.output, 0, fold).mkdir(parents=True)
        (fold_folder(of.output, 0, fold) / "best.safetensors").write_text(str(fold))
    other.output.mkdir()
    contest.borrow(other, [other, of])
    assert not (other.output / files.FOLDS).exists()  # the first is not finished
    (of.output / files.FOLDS).write_text("folds")
    (of.output / "folds.sha256").write_text("hash")
    (of.output / files.PREDICTIONS).write_text("done")
    contest.borrow(other.model_copy(update={"seed": 5}), [of])
    assert not (other.output / files.FOLDS).exists()  # another recipe
    contest.borrow(other, [other, of])
    assert [(fold_folder(other.output, 0, fold) / "best.safetensors").read_text() for fold in range(3)] == ["0", "1", "2"]
    assert (other.output / files.FOLDS).read_text() == "folds"
    assert (other.output / "folds.sha256").read_text() == "hash"


def test_a_contest_reads_all_study_files_before_it_runs_the_first(monkeypatch: pytest.MonkeyPatch):
    run = []
    monkeypatch.setattr(contest, "contested", lambda of, *_: run.append(of))
    with pytest.raises(UsageError, match="6: no such study file"):
        contest.main(CONFIGS / "contest.toml", Path("6"), seeds=(5,))  # as `--seeds 5 6` is read
    assert not run


def test_the_2d_network_that_the_contest_makes_is_one_that_slices_reads(tmp_path: Path):
    contest.network_2d(tmp_path / "vit2d.safetensors")
    encoder = encoder_2d(read_2d(tmp_path / "vit2d.safetensors"))
    assert (encoder.dim, len(encoder.layers), encoder.layers[0].attention.heads) == (contest.WIDTH_2D, contest.DEPTH_2D, 3)

"""The study file: known keys, sensible values, and errors that say where."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from mri_vit.errors import UsageError
from mri_vit.prepare.prepared import config_sha256
from mri_vit.settings import file as study_file
from mri_vit.settings.file import RENAMED
from mri_vit.settings.recipe import Model, Train
from mri_vit.settings.schema import Study

ROOT = Path(__file__).parents[2]
CONFIGS, REPRODUCTIONS = ROOT / "configs", ROOT / "pipelines" / "reproductions"
PLAIN = 'name = "x"\ncohort = "in/cohort.csv"\nprepared = "prepared"\noutput = "runs/x"\n'


def study(folder: Path, more: str = "") -> Path:
    (folder / "study.toml").write_text(PLAIN + more)
    return folder / "study.toml"


def test_paths_are_relative_to_the_study_file_and_endpoints_are_the_designs(tmp_path):
    loaded = study_file.load(study(tmp_path))
    assert loaded.cohort == tmp_path / "in" / "cohort.csv"
    assert [e.name for e in loaded.endpoints] == ["mgmt", "pten", "tertp", "os"]


def test_a_reviewers_table_is_relative_to_the_study_file_as_well(tmp_path):
    loaded = study_file.load(study(tmp_path, '[qc]\ndecisions = "seen/by_kim.csv"\n'))
    assert loaded.qc.decisions == tmp_path / "seen" / "by_kim.csv"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("sead = 3\n", "line 5: unknown key 'sead'; the nearest known one is 'seed'"),
        ("[train]\nepoch = 3\n", r"line 6: unknown key 'train\.epoch'; the nearest known one is 'epochs'"),
        ("epochs = 3\n", r"line 5: unknown key 'epochs'; did you mean train\.epochs or pretrain\.epochs\?"),
        ("[train]\nedge = 3\n", r"line 6: unknown key 'train\.edge'; did you mean grid\.edge\?"),
        ('[[endpoints]]\nname = "a"\nkid = "binary"\n', "unknown key.*'kind'"),
        ('seed = "many"\n', r"line 5: seed: .* \(found 'many'\)"),
        ("[grid]\nedge = 224\nspacing_mm = 1.0\npatch = 4\n", "makes 175616 grid positions; at most 32768"),
        ("[grid]\nedge = 225\nspacing_mm = 1.0\n", "edge 225 is not a multiple of patch 8"),
        ("[model]\nheads = 7\n", "dim 64 is not a multiple of heads 7"),
        ('[[endpoints]]\nname = "os"\nkind = "survival"\n', "a survival endpoint needs the key 'time'"),
        ('[[endpoints]]\nname = "os"\nkind = "survival"\nevent = "dead"\n', "a survival endpoint needs the key 'time'"),
        ('[[endpoints]]\nname = "a"\nkind = "binary"\ntime = "os_days"\n', "'time' is not a key of a binary endpoint"),
        ('[[endpoints]]\nname = "a"\nkind = "binary"\nevent = "dead"\n', "'event' is not a key of a binary endpoint"),
        ('[prepare]\nbrain = "command"\n', "brain_command goes with"),
        ('[explain]\nmethods = ["rollout", "rollout"]\n', "methods must be one or more that differ"),
        ("[explain]\nmethods = []\n", "patients = 0 makes no maps"),
        ("seed = \n", "not a TOML file"),
        (
            "[train]\nguide_share = 1\n",
            r"line 6: unknown key 'train\.guide_share': it was not shown to help and has been removed",
        ),
        ("[explain]\nscord = 1\n", r"unknown key 'explain\.scord'; the nearest known one is 'scored'"),
        (
            '[[comparators]]\nname = "a"\nmodle = {depth = 2}\n',
            "unknown key 'comparators.0.modle'; the nearest known one is 'model'",
        ),
        (
            '[[comparators]]\nname = "a"\n[comparators.model]\ndepht = 2\n',
            r"line 8: unknown key 'comparators\.a\.model\.depht'; the nearest known one is 'depth'",
        ),
        (
            '[[comparators]]\nname = "a"\ntrain = {epochs = 0}\n',
            r"comparators\.a\.train\.epochs: expected at least 1 \(found 0\)",
        ),
        (
            '[[comparators]]\nname = "a"\nmodel = {architecture = "resnet9"}\n',
            r"comparators\.a\.model\.architecture: .*'resnet10'",
        ),
        ('[[comparators]]\nname = "a"\nmodel = {heads = 7}\n', r"comparators\.a\.model: dim 64 is not a multiple of heads 7$"),
        (
            '[[comparators]]\nname = "a"\nmodel = {architecture = "resnet10"}\ntrain = {mixup = 0.2}\n',
            r"comparators\.a: train\.mixup is about tokens or blocks, which resnet10 does not have; leave it out$",
        ),
        (
            '[[comparators]]\nname = "a"\nmodel = {architecture = "resnet10"}\npretrain = {method = "mae"}\n',
            r"comparators\.a: pretrain\.method 'mae' is for architecture vit",
        ),
        (
            '[[comparators]]\nname = "a"\ntrain = {repeats = 3}\n',
            r"comparators\.a: train\.repeats is the study's, whose folds all share",
        ),
        ('[train]\nleave_out = "site"\n[pretrain]\nmethod = "mae"\npatients = "unlabelled"\n', "of the site that a fold leaves"),
        ('[[comparators]]\nname = "vit"\n', r"comparators' names must differ, also from vit.*\['vit'\]"),
        ('[[comparators]]\nname = "shuffled"\n', "comparators' names must differ"),
        ('[[comparators]]\nname = "a"\n[[comparators]]\nname = "a"\n', r"comparators' names must differ.*\['a', 'a'\]"),
        ('[[comparators]]\nname = "a/b"\n', r"comparators\.0\.name: .*letters A to Z and a to z, digits, dots"),
        ('[model]\narchitecture = "resnet10"\n', "maps need architecture"),
        ('[model]\npool = "class_attention"\n', r"model\.pool: .*'cls', 'mean' or 'max'"),
        (
            "[model]\ndepth = 0\n",
            'model: depth 0 has no attention by which CLS could read a position; give pool = "max" or "mean"$',
        ),
        ('[model]\ndepth = 0\npool = "max"\n', "maps need a block to attend, and model.depth 0 has none; set explain.patients"),
        (
            '[[comparators]]\nname = "a"\nmodel = {architecture = "monai_vit", depth = 0, pool = "max"}\n',
            'comparators\\.a\\.model: depth 0 leaves the stem alone, of architecture "vit"; found monai_vit$',
        ),
        (
            '[explain]\ncomparators = ["a"]\n[[comparators]]\nname = "a"\nmodel = {depth = 0, pool = "max"}\n',
            r"explain\.comparators names 'a': maps need a block to attend, and model\.depth 0 has none; leave it out$",
        ),
        ("[model]\nstem = 8\nconv_stem = 8\n", "two ways to embed a patch"),
        ("[model]\nconv_stem = 0\ntexture = 8\n", "model: texture 8 joins a convolutional stem; give conv_stem too"),
        (
            "[train]\ntranslation_mm = 9\n",
            "translation_mm must be at most half a patch, 8 mm here, or a grid position shows nothing of what it held; found 9",
        ),
        (
            '[train]\nlaterality_endpoints = ["handed"]\n',
            r"train\.laterality_endpoints names 'handed', which is no endpoint of the study \(mgmt, ",
        ),
        (
            'recipe = "no-masks"\n[train]\nmixup = 0.2\nlaterality_endpoints = ["mgmt"]\n',
            r"train\.laterality_endpoints needs patients who are flipped whole, and train\.mixup mixes them: leave one out",
        ),
        (
            "[train]\nmixup = 0.2\nmask_supervision_attention = 1\n",
            r"masks in training need whole patients on one device: leave train\.mixup out",
        ),
        (
            "[train]\ndevices = 2\nmask_supervision_attention = 1\n",
            r"masks in training need whole patients on one device: leave train\.devices out",
        ),
        (
            '[[comparators]]\nname = "a"\nmodel = {depth = 0, pool = "max"}\ntrain = {mask_supervision_attention = 1.0}\n',
            r"comparators\.a: train\.mask_supervision_attention trains the attention of CLS, and model\.depth 0 has none; leave",
        ),
        (
            '[[comparators]]\nname = "a"\nmodel = {architecture = "resnet10"}\ntrain = {tumour_tokens_first = true}\n',
            r"comparators\.a: train\.tumour_tokens_first is about tokens or blocks, which resnet10 does not have; leave it out$",
        ),
        ('[model]\nchannels = ["t1ce"]\n', "reads all of the study's sequences: leave model.channels out"),
        ('[prepare]\nreference = "adc"\n', r"prepare\.reference 'adc' is not among channels \['t1', 't1ce', 't2', 'flair'\]"),
        ('[prepare]\nneeds = ["t1", "flair"]\n', r"prepare\.needs must hold the reference 't1ce'"),
        ('[prepare]\nneeds = ["t1ce", "adc"]\n', r"prepare\.needs: 'adc' is not among channels"),
    ],
)
def test_a_wrong_study_file_is_refused_with_line_and_remedy(tmp_path, more: str, message: str):
    with pytest.raises(UsageError, match=message):
        study_file.load(study(tmp_path, more))


RENAMED_KEYS = [(section, old, new) for section, keys in RENAMED.items() for old, new in keys.items()]


@pytest.mark.parametrize(("section", "old", "new"), RENAMED_KEYS)
def test_a_key_of_an_older_version_is_refused_with_its_present_name(tmp_path: Path, section: str, old: str, new: str):
    answer = rf"unknown key '{section}\.{old}': {section}\.{old} is now {section}\.{new}$"
    with pytest.raises(UsageError, match=f"line 6: {answer}"):
        study_file.load(study(tmp_path, f"[{section}]\n{old} = 1\n"))
    with pytest.raises(UsageError, match=answer):
        study_file.load(study(tmp_path), {f"{section}.{old}": "1"})
    assert new in Study.model_fields[section].annotation.model_fields  # type: ignore[union-attr]


def test_a_comparators_key_of_an_older_version_is_refused_with_its_present_name(tmp_path: Path):
    with pytest.raises(UsageError, match=r"'comparators\.a\.train\.rate': train\.rate is now train\.learning_rate"):
        study_file.load(study(tmp_path, '[[comparators]]\nname = "a"\ntrain = {rate = 0.1}\n'))


def test_a_list_of_an_older_version_is_refused_with_its_present_name_and_line(tmp_path: Path):
    with pytest.raises(UsageError, match=r"line 5: unknown key 'rivals': rivals is now comparators$"):
        study_file.load(study(tmp_path, '[[rivals]]\nname = "a"\n'))


def test_a_missing_study_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.toml: no such study file"):
        study_file.load(tmp_path / "nothing.toml")


def test_the_command_line_overrides_any_key(tmp_path):
    loaded = study_file.load(study(tmp_path), {"train.epochs": "5", "model.tokens": "foreground", "seed": "9"})
    assert (loaded.train.epochs, loaded.model.tokens, loaded.seed) == (5, "foreground", 9)
    with pytest.raises(UsageError, match="unknown key"):
        study_file.load(study(tmp_path), {"train.epoch": "5"})


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_study_loads_and_survives_being_written(tmp_path, file: Path):
    loaded = study_file.load(file)
    (tmp_path / "again.toml").write_text(study_file.dumps(loaded))
    assert study_file.load(tmp_path / "again.toml") == loaded


COMPARATORS = """
recipe = "vit-b16"
[explain]
patients = 0
scored = 0
[model]
tokens = "all"
weights = "start.npz"
drop_path = 0.2
[train]
token_budget = 128
mixup = 0.4
layer_decay = 0.65
epochs = 40
[pretrain]
method = "mae"
[[comparators]]
name = "deeper"
model = {depth = 14, weights = "other.npz"}
train = {betas = [0.9, 0.99]}
[[comparators]]
name = "resnet10"
model = {architecture = "resnet10", channels = ["t1ce", "flair"]}
train = {batch_size = 4}
"""


def test_a_comparator_is_the_study_with_its_own_keys_changed(tmp_path):
    loaded = study_file.load(study(tmp_path, COMPARATORS))
    deeper = loaded.of(loaded.comparators[0])
    assert deeper.model == loaded.model.model_copy(update={"depth": 14, "weights": tmp_path / "other.npz"})
    assert deeper.train == loaded.train.model_copy(update={"betas": (0.9, 0.99)})
    assert deeper.pretrain == loaded.pretrain
    same = {"cohort", "prepared", "output", "seed", "grid", "prepare", "controls", "report", "endpoints"}
    assert deeper.model_dump(include=same) == loaded.model_dump(include=same)
    assert deeper.comparators == ()
    assert not deeper.explained


def test_a_comparator_without_tokens_drops_the_keys_about_them_and_keeps_the_others(tmp_path):
    loaded = study_file.load(study(tmp_path, COMPARATORS))
    resnet = loaded.of(loaded.comparators[1])
    assert resnet.model.architecture == "resnet10"
    assert resnet.model.channels == ("t1ce", "flair")
    assert (resnet.model.weights, resnet.model.tokens) == (None, "foreground")
    assert (resnet.train.token_budget, resnet.train.mixup, resnet.train.layer_decay) == (None, 0.0, 1.0)
    assert resnet.pretrain.method == "none"
    assert (resnet.train.epochs, resnet.train.batch_size, resnet.model.drop_path) == (40, 4, 0.2)


def test_a_comparator_has_the_licence_of_the_file_that_it_starts_from(tmp_path):
    licensed = COMPARATORS.replace('weights = "start.npz"\n', 'weights = "start.npz"\nweights_licence = "MIT"\n')
    licensed += '[[comparators]]\nname = "same"\nmodel = {dim = 96}\n'
    licensed += '[[comparators]]\nname = "stated"\nmodel = {weights = "third.npz", weights_licence = "CC-BY-NC-4.0"}\n'
    loaded = study_file.load(study(tmp_path, licensed))
    found = {one.name: loaded.of(one).model.weights_licence for one in loaded.comparators}
    assert found == {"deeper": None, "resnet10": None, "same": "MIT", "stated": "CC-BY-NC-4.0"}


def test_a_comparator_without_a_block_takes_no_weights_of_blocks_but_those_that_it_names(tmp_path):
    comparator = '[[comparators]]\nname = "stem-max"\nmodel = {depth = 0, pool = "max"%s}\n'
    loaded = study_file.load(study(tmp_path, '[model]\nweights = "vit.npz"\n' + comparator % ""))
    of = loaded.of(loaded.comparators[0])
    assert of.model == loaded.model.model_copy(update={"depth": 0, "pool": "max", "weights": None})
    assert of.model.shape[1] == 0
    assert (loaded.model.attends, of.model.attends) == (True, False)
    named = study_file.load(study(tmp_path, comparator % ', weights = "stem.safetensors"'))
    assert named.of(named.comparators[0]).model.weights == tmp_path / "stem.safetensors"


def test_comparators_survive_being_written_and_their_weights_lie_beside_the_study_file(tmp_path):
    loaded = study_file.load(study(tmp_path, COMPARATORS))
    elsewhere = tmp_path / "run"
    elsewhere.mkdir()
    (elsewhere / "study.toml").write_text(study_file.dumps(loaded))
    assert study_file.load(elsewhere / "study.toml") == loaded
    assert [comparator.name for comparator in loaded.comparators] == ["deeper", "resnet10"]
    assert loaded.comparators[0].model["weights"] == str(tmp_path / "other.npz")


def test_the_network_without_masks_is_the_one_of_the_learning_curves_and_of_table_4(tmp_path):
    ours = study_file.load(study(tmp_path, 'recipe = "no-masks"\n'))
    names = ("learning_curve/learning_curve", "ablation/ablation", "saeed2023_table4/table4_brats2021")
    names += ("features/features", "features/features_hard", "ablation/variants_gbm")
    others = [study_file.load(REPRODUCTIONS / f"{name}.toml") for name in names]
    assert all(other.model == ours.model for other in others)
    keys = {"learning_rate", "weight_decay", "token_budget", "batch_size", "val_fraction"}
    for other in others[:2]:
        assert other.train.model_dump(include=keys) == ours.train.model_dump(include=keys)


def test_the_recommended_network_is_that_of_the_simulated_effects():
    ours = study_file.load(CONFIGS / "gbm.toml")
    benchmark = study_file.load(REPRODUCTIONS / "simulated_effects" / "benchmark.toml")
    assert ours.model.pool == "cls"  # the heads read CLS alone
    assert (ours.grid, ours.model) == (benchmark.grid, benchmark.model)
    apart = {"folds", "token_budget", "laterality_endpoints", "threads", "workers"}  # real tumours are larger; sides are made up
    assert ours.train.model_dump(exclude=apart) == benchmark.train.model_dump(exclude=apart)


def test_a_study_file_of_names_alone_is_the_recommended_study(tmp_path):
    ours, bare = study_file.load(CONFIGS / "gbm.toml"), study_file.load(study(tmp_path, ""))
    sections = ("grid", "prepare", "model", "train", "explain", "controls")
    assert all(getattr(ours, name) == getattr(bare, name) for name in sections)


@pytest.mark.parametrize("half", ["edge = 64", "spacing_mm = 1.0"])
def test_a_grid_whose_extent_is_half_given_is_refused(tmp_path, half: str):
    with pytest.raises(UsageError, match="give both"):  # 112 voxels of 1 mm would cut every brain
        study_file.load(study(tmp_path, f"[grid]\n{half}\n"))


def test_studies_that_share_prepared_patients_prepare_them_alike():
    by_folder = defaultdict(set)
    for file in (*CONFIGS.glob("*.toml"), *REPRODUCTIONS.rglob("*.toml")):
        if file.name != "pyproject.toml":
            of = study_file.load(file)
            by_folder[of.prepared].add(config_sha256(of.channels, of.grid, of.prepare))
    assert max(len(prepared) for prepared in by_folder.values()) == 1, by_folder
    assert len(by_folder) >= 8


def test_the_published_model_is_the_schemas_own(tmp_path):
    card = study_file.load(study(tmp_path, 'recipe = "vit-b16"\n'))
    assert (card.grid.edge, card.grid.patch, card.grid.positions) == (224, 16, 2744)
    assert card.model == Model()
    assert (card.model.shape, card.model.pool, card.model.tokens) == ((768, 12, 12, 3072), "cls", "all")
    assert card.train == Train()


@pytest.mark.parametrize("name", ["mask-supervision", "no-masks", "vit-b16"])
def test_a_recipe_fills_in_what_a_file_leaves_out_and_is_written_out_in_full(tmp_path, name: str):
    loaded = study_file.load(study(tmp_path, f'recipe = "{name}"\n[train]\nepochs = 7\nema = 0.0\n'))
    assert (loaded.train.epochs, loaded.train.ema) == (7, 0.0)
    (tmp_path / "again.toml").write_text(study_file.dumps(loaded))
    assert study_file.load(tmp_path / "again.toml") == loaded


@pytest.mark.parametrize("name", ['"large"', '["no-masks"]', "3"])
def test_an_unknown_recipe_is_refused_on_its_line(tmp_path, name: str):
    with pytest.raises(UsageError, match=r"line 5: recipe: .*"):
        study_file.load(study(tmp_path, f"recipe = {name}\n"))


@pytest.mark.parametrize(
    ("more", "section", "expected"),
    [
        ('[model]\nsize = "S"\n', "model", {"dim": None, "depth": None, "conv_stem": 16}),
        ("[model]\nstem = 128\n", "model", {"conv_stem": None, "texture": 0, "dim": 64}),
        ("[model]\nconv_stem = 0\n", "model", {"texture": 0}),
        ('[model]\narchitecture = "resnet10"\n[explain]\npatients = 0\nscored = 0\n', "train", {"token_budget": None}),
        ('[model]\ndepth = 0\npool = "max"\n[explain]\npatients = 0\nscored = 0\n', "train", {"mask_supervision_attention": 0}),
        ("[grid]\nedge = 56\nspacing_mm = 4.0\npatch = 2\n", "train", {"translation_mm": 4.0}),
    ],
)  # fmt: skip
def test_what_a_key_of_the_file_rules_out_is_not_filled_in(tmp_path, more: str, section: str, expected: dict[str, object]):
    found = dict(getattr(study_file.load(study(tmp_path, more)), section))
    assert {key: found[key] for key in expected} == expected


def test_a_comparator_of_a_published_size_has_its_width_and_not_the_studys(tmp_path):
    loaded = study_file.load(study(tmp_path, '[[comparators]]\nname = "small"\nmodel = { size = "S", depth = 3 }\n'))
    assert loaded.of(loaded.comparators[0]).model.shape == (384, 3, 6, 1536)


def test_odd_text_survives_being_written(tmp_path):
    odd = 'a "quoted"\\ path\twith = # [brackets]\n\x7f µ'
    loaded = study_file.load(study(tmp_path))
    loaded = loaded.model_copy(
        update={
            "cohort": tmp_path / odd,
            "prepare": loaded.prepare.model_copy(update={"brain": "command", "brain_command": (odd, "{input}")}),
            "report": loaded.report.model_copy(update={"subgroups": ()}),
        }
    )
    (tmp_path / "again.toml").write_text(study_file.dumps(loaded))
    assert study_file.load(tmp_path / "again.toml") == loaded


def test_braces_in_paths_are_filled_in(tmp_path):
    comparator = '[[comparators]]\nname = "b"\nmodel = { weights = "of-{seed}/w" }\n'
    loaded = study_file.load(study(tmp_path, comparator), {"cohort": "of-{seed}/cohort-{labelled}.csv", "output": "run-{seed}"})
    filled = study_file.filled(loaded, seed=3, labelled=48)
    assert (filled.cohort, filled.output) == (tmp_path / "of-3" / "cohort-48.csv", tmp_path / "run-3")
    assert filled.prepared == loaded.prepared
    assert filled.comparators[0].model == {"weights": str(tmp_path / "of-3" / "w")}


def test_the_documented_study_is_the_one_that_we_recommend(tmp_path):
    _, name, after = (CONFIGS.parent / "docs/howto/own_cohort.md").read_text().partition('name = "mine"')
    file = tmp_path / "study.toml"
    file.write_text(name + after[: re.search(r"\n {0,3}\S", after).start()])  # type: ignore[union-attr]  # until indentation ends
    ours, documented = study_file.load(CONFIGS / "gbm.toml"), study_file.load(file)
    for section in ("grid", "prepare", "model", "pretrain", "train"):
        assert getattr(documented, section) == getattr(ours, section)


@pytest.mark.parametrize(
    ("more", "line", "said"),
    [
        (
            '[[endpoints]]\nname = "a"\nkind = "binary"\n[[endpoints]]\nname = "grade"\nkind = "several"\n',
            6,
            "'binary', 'survival',",
        ),
        ('[[endpoints]]\nname = "a"\nkind = 3\n', 3, "'binary', 'survival',"),
        ('[[endpoints]]\nname = "a"\n', 1, "is missing"),
        ('[pretrain]\nepochs = 3\n[train]\nepochs = "x"\n', 4, "an integer"),
        ('[model]\npool = "median"\n', 2, "'cls', 'mean' or 'max'"),
        ('[explain]\nmethods = ["rollouts"]\n', 2, "'rollout'"),
        ("[train]\nflip_lr = 3\n", 2, "true or false"),
        ("[train]\nlearning_rate = true\n[pretrain]\nlearning_rate = []\n", 4, "a number"),
        ("train.folds = 1.5\n", 1, "an integer"),
        (
            '[[comparators]]\nname = "a"\n[comparators.model]\ndepth = 2\n[[comparators]]\nname = "b"\nmodel = {dim = "x"}\n',
            7,
            "an integer",
        ),
        ("[grid]\nedge = []\nspacing_mm = 1.0\n", 2, "an integer"),
        ("prepare = 3\n", 1, "a table of keys"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_on_its_own_line_in_our_words(tmp_path, more: str, line: int, said: str):
    file = study(tmp_path, "")
    before = len(file.read_text().splitlines())
    file = study(tmp_path, more)
    with pytest.raises(UsageError) as refused:
        study_file.load(file)
    message = str(refused.value)
    assert f"line {before + line}: " in message
    assert said in message
    assert not re.search(
        r"(?i)input should|valid (string|integer|number|boolean|dictionary)|unable to parse|field required", message
    )


def test_every_pattern_of_a_setting_is_stated_in_words():
    def patterns(schema: object) -> set[str]:
        if isinstance(schema, dict):
            own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
            return own.union(*map(patterns, schema.values()))
        return set().union(*map(patterns, schema)) if isinstance(schema, list) else set()

    assert patterns(Study.model_json_schema()) <= set(study_file.IN_WORDS)

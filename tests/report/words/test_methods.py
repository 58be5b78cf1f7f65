"""The Methods text against made-up metrics: it tells what is in them, all of it, and nothing that is not."""

from __future__ import annotations

import copy
import inspect
import re
from typing import Any, get_args

import pytest
from made.metrics import filled, sample
from markdown_it import MarkdownIt

from mri_vit.kinds.kind import part
from mri_vit.metrics import calibration_curve, comparison, intervals
from mri_vit.model.encoder import Encoder
from mri_vit.prepare import alignment, bias, register
from mri_vit.report.schema import measured
from mri_vit.report.schema.binary import BinaryEndpoint, BinaryResult
from mri_vit.report.schema.classes import MulticlassEndpoint, OrdinalEndpoint
from mri_vit.report.schema.continuous import ContinuousEndpoint
from mri_vit.report.schema.measured import TAU_DAYS
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.parts import ChanceTest, Comparison, Part, Tumour
from mri_vit.report.schema.survival import SurvivalEndpoint
from mri_vit.report.words import endpoint_results, map_sentences, methods_section, networks, protocol, references
from mri_vit.report.words.run_facts import Facts
from mri_vit.settings.schema import CHANNELS, KEYS, Model, Train
from mri_vit.settings.sections import Controls, Explain, Grid, Prepare

ODD = "a|b <script>alert(1)</script> *c* [d](https://e.org) `f` [@delong]\n\n# g"
GAP = r"\*\*\[author: [^\]]+\]\*\*"


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.0617, "high": value + 0.0523}


def made_up(**changes: Any) -> dict[str, Any]:
    """The content of a metrics.json with two endpoints, a control and every key that has a sentence."""
    binary = {
        "n": 51,
        "positive": 20,
        "auc": estimate(0.7431),
        "auc_within_folds": {"value": 0.7112},
        "remark": "the folds' models do not share a scale",
        "judged": estimate(0.7112),
        "chance_test": {"method": "within folds", "inflation": 1.414, "p": 0.0123, "p_adjusted": 0.0246},
        "average_precision": estimate(0.6644),
        "brier": {"value": 0.2143, "reliability": 0.01},
        "calibration": {"slope": 0.8768, "intercept": -0.1234, "ece": 0.05},
        "operating_point": {"sensitivity": estimate(0.8022), "specificity": estimate(0.6033), "n": 51},
        "fold_mean": 0.7301,
        "fold_variance": 0.0042,
        "verdict": "better than chance",
        "verdict_kind": "better",
    }
    survival = {
        "n": 48,
        "events": 33,
        "harrell_c": estimate(0.6543),
        "harrell_c_within_folds": {"value": 0.6501},
        "uno_c": estimate(0.6321),
        "auc_at": [{"days": 182, **estimate(0.5912)}],
        "judged": estimate(0.6501),
        "chance_test": {"method": "within folds", "inflation": 1.414, "p": 0.091, "p_adjusted": 0.182},
        "logrank": {"chi2": 20.1, "p": 0.00001},
        "cutoffs": "High risk is a risk above a made-up cut-off.",
        "groups": {"low risk": {"n": 24}},
        "verdict": "not distinguishable from chance",
    }
    versus = {"difference": 0.1242, "low": 0.01, "high": 0.23, "z": 2.2, "p": 0.031, "p_adjusted": 0.062, "n": 50}
    versus |= {"nadeau_bengio": {"t": 1.1, "p": 0.1532, "splits": 15}}
    metrics = {
        "study": "made-up",
        "seed": 17,
        "design": "cross-validation",
        "cohort": {"patients": 62, "excluded": 2, "predicted": 59, "unpredicted": 1, "known": {"mgmt": 53, "os": 49}},
        "folds": 5,
        "repeats": 3,
        "folds_sha256": "ab" * 32,
        "endpoints": {
            "mgmt": {
                "kind": "binary",
                "known": 51,
                "positive": 20,
                "models": {
                    "vit": {**binary, "versus_controls": {"clinical": versus}},
                    "clinical": {**binary, "judged": estimate(0.6189)},
                },
            },
            "os": {"kind": "survival", "known": 48, "events": 33, "models": {"vit": survival}},
        },
        "maps": [{"patient": "P1"}, {"patient": "P2"}],
        "settings": settings(),
        "environment": {
            "versions": {"python": "3.11.7", "torch": "2.13.0"},
            "git_commit": "c0ffee",
            "device": "CPU",
            "threads": 2,
            "seed": 17,
            "started": "",
        },
    }
    return copy.deepcopy(metrics | changes)


def written(metrics: dict[str, Any], facts: Facts | None = None) -> str:
    return methods_section.methods_and_results(filled(metrics), facts or Facts())


def settings(
    grid: Grid | None = None, prepare: Prepare | None = None, model: Model | None = None, **train: Any
) -> dict[str, Any]:
    grid, prepare, model = grid or Grid(), prepare or Prepare(), model or Model(size="S", tokens="foreground")
    sections = {
        "grid": grid,
        "prepare": prepare,
        "model": model,
        "train": Train(**train),
        "explain": Explain(),
        "controls": Controls(),
    }
    told: dict[str, Any] = {name: section.model_dump(mode="json") for name, section in sections.items()}
    told["channels"] = list(CHANNELS)
    told["model"] |= dict(zip(("dim", "depth", "heads", "mlp"), model.shape, strict=True))
    return told


def cited(text: str) -> tuple[set[int], list[int]]:
    """Numbers in brackets of the body, and those of the list."""
    body, _, listing = text.partition("## References")
    used = {int(n) for group in re.findall(r"(?<!\\)\[(\d+(?:, \d+)*)\]", body) for n in group.split(", ")}
    return used, [int(n) for n in re.findall(r"^(\d+)\. ", listing, re.MULTILINE)]


def sections(text: str) -> dict[str, str]:
    return dict(part.split("\n\n", 1) for part in text.split("\n## ")[1:])


@pytest.fixture(scope="module")
def text() -> str:
    return written(made_up())


def test_every_stage_that_happened_has_its_section(text):
    stages = ["Cohort", "Preparation of the images", "Model", "Training and cross-validation", "Controls", "Evaluation"]
    assert list(sections(text)) == [*stages, "Maps", "Software", "Results", "References"]


def test_every_figure_of_the_metrics_is_told(text):
    shown = [62, 59, 53, 49, 51, 20, 48, 33, "seed 17", "ab" * 32, "2.13.0", "c0ffee", "5 folds", "3 times"]
    shown += [
        "0.743 [0.681, 0.795]",
        "0.711 [0.650, 0.764]",
        "p = 0.012",
        "0.664",
        "0.214",
        "0.877",
        "−0.123",
        "0.802",
        "0.603",
    ]
    shown += [
        "0.654 [0.593, 0.707]",
        "0.632",
        "p &lt; 0.001",
        "0.730 ± 0.0042",
        "difference +0.124 [+0.010, +0.230]",
        "adjusted p = 0.062",
        "p = 0.15",
        "0.591",
        "adjusted p = 0.025",
        "a made-up cut-off",
        "do not share a scale",
    ]
    assert [value for value in shown if str(value) not in text] == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"learning_rate": 7e-4}, "to 0.0007 over"),
        ({"patience": 13}, "after 13 such evaluations"),
        ({"val_fraction": 0.35}, "35% of the other patients"),
        ({"betas": (0.85, 0.97)}, "β 0.85 and 0.97"),
        ({"weight_decay": 0.31}, "weight decay 0.31"),
        ({"batch_size": 23}, "batches of 23 patients"),
        ({"epochs": 77}, "at most 77 epochs"),
        ({"seeds": 3}, "In each fold 3 networks were trained on the same patients, which differ in their seed alone"),
        ({"val_every": 4}, "After every 4 epochs"),
        ({"token_budget": 99}, "up to 99 tokens"),
        ({"leave_out": "site"}, "each value of site is a test fold"),
        ({"layer_decay": 0.65}, "0.65 times the learning rate of the block behind"),
        ({"embedding_lr_factor": 0.23}, "patch embedding was trained with 0.23 times"),
        ({"freeze_fraction": 0.15}, "In the first 15% of the steps only the heads"),
        ({"ema": 0.97}, "(decay 0.97)"),
        ({"mixup": 0.31}, "from Beta(0.31, 0.31)"),
        ({"modality_dropout": 0.12}, "with a probability of 0.12, but never all"),
        ({"translation_mm": 7.5}, "by whole voxels and at most 7.5 mm"),
        ({"mask_supervision_attention": 0.7}, "supervised with the tumour's patches"),
        ({"mask_supervision_patch_labels": 5.0}, "predicted the labels (weight 5)"),
        (
            {"mask_supervision_token_labels": 2.5},
            "a linear head on the mean of the tumour's tokens before the last block predicted the labels (weight 2.5)",
        ),
        ({"tumour_tokens_first": True, "token_budget": 99}, "were drawn at random, those that hold tumour first."),
    ],
)
def test_a_setting_of_the_training_is_told_with_its_value(change, told, text):
    assert told not in text
    assert told in written(made_up(settings=settings(**change)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"conv_stem": 12}, "convolutions within the patch [3], the first with 12 channels"),
        ({"conv_stem": 12, "texture": 20}, "the log energy, over the patch, of 20 learned filters"),
        ({"pool": "max"}, "each feature's largest value"),
        ({"zero_head": False}, "weights at random, and the heads' biases"),
        ({"weights": "b16.npz"}, "started from those of the file b16.npz (licence not stated)"),
        ({"weights": "b16.npz"}, "b16.npz: the licence of these weights is not stated"),
        ({"weights": "b.pt", "weights_licence": "Apache-2.0"}, "started from those of the file b.pt (licence Apache-2.0)"),
        ({"weights": "b.pt", "weights_licence": "CC-BY-NC-4.0"}, "CC-BY-NC-4.0, does not allow commercial use"),
        ({"architecture": "resnet18", "channels": ("t1ce", "flair")}, "The model is 3D ResNet-18 (He et al. 2016"),
        ({"depth": 0, "pool": "max"}, "patches: its patch embedding and positions alone, of width 768, without a block, "),
        ({"architecture": "resnet18", "channels": ("t1ce", "flair")}, "with T1ce and FLAIR as its channels"),
    ],
)
def test_a_setting_of_the_network_is_told(change, told, text):
    assert told not in text
    text = written(made_up(settings=settings(model=Model.model_validate(change))))
    assert told in re.sub(r"\[\d+\]", "[3]", text)
    assert ("Vision Transformer [" in text) == ("architecture" not in change)


def test_a_step_that_was_switched_off_is_not_claimed(text):
    off = settings(prepare=Prepare(brain="none", bias=False), flip_lr=False, intensity_jitter=0, class_weights=False)
    without = written(made_up(settings=off))
    for words in ("N4", "flipped left to right", "gain and shift", "Positives were weighted", "deepbet", "mm around it"):
        assert words in text
        assert words not in without


def test_endpoints_that_a_flipped_patient_does_not_train_are_named(text):
    told = "Patients were flipped left to right with a probability of 0.5"
    assert f"{told}." in text
    sided = written(made_up(settings=settings(laterality_endpoints=["mgmt", "tertp"])))
    assert f"{told}; flipped patients did not train mgmt and tertp, which may depend on the side" in sided
    assert "flipped" not in written(made_up(settings=settings(laterality_endpoints=["mgmt"], flip_lr=False)))


def test_the_preparation_tells_the_constants_of_its_steps(text):
    told = sections(text)["Preparation of the images"]
    shown = [
        f"{register.INNER_MARGIN_MM:g} mm around it",
        f"{register.BINS} histogram bins",
        f"{alignment.TAIL_PERCENT:g} % at each",
    ]
    shown += [
        f"±{alignment.Z_LIMIT:g} standard",
        f"{bias.LEVELS} levels of up to {bias.ITERATIONS} iterations",
        f"more than {bias.OUTLIER_SD:g} robust standard deviations",
        f"less than {alignment.MIN_OVERLAP:.0%} of the brain",
    ]
    assert [words for words in shown if words not in told] == []


@pytest.mark.parametrize(
    ("way", "words"),
    [("mask", "mask supplied"), ("none", "already skull-stripped"), ("deepbet", "deepbet's"), ("command", "with hd-bet")],
)
def test_the_brain_is_told_by_the_way_that_was_chosen(way, words):
    command = ("/opt/hd-bet", "{input}", "{output}") if way == "command" else ()
    told = protocol.brain_masks(Prepare(brain=way, brain_command=command), CHANNELS, Facts())
    assert len(told) == 1
    assert words in told[0]
    assert "/opt" not in told[0]


def test_the_survival_head_is_the_one_of_the_settings():
    cox = written(made_up(settings=settings(model=Model(survival="cox"))))
    hazard = written(made_up(settings=settings(model=Model(survival="hazard"))))
    assert "partial likelihood" in cox
    assert "hazards in up to" not in cox
    assert "hazards in up to 10 intervals" in hazard
    assert "partial likelihood" not in hazard


def test_without_controls_none_is_claimed(text):
    metrics = made_up()
    del metrics["endpoints"]["mgmt"]["models"]["clinical"], metrics["endpoints"]["mgmt"]["models"]["vit"]["versus_controls"]
    without = written(metrics)
    assert "penalised logistic and Cox regression" in text
    assert "shuffled" not in text  # it is among the settings, but has no results
    for words in ("Controls", "penalised", "clinical", "paired", "resampled t-test"):
        assert words not in without


def test_what_was_not_done_is_told_with_its_reason():
    metrics = made_up(notes={"clinical": "no clinical column", "volume_columns": "brain_ml"})
    told = sections(written(metrics))["Controls"]
    assert "No clinical control: no clinical column." in told
    assert "brain" not in told  # no volume control has results
    assert "No volume control" not in told


def test_the_columns_of_the_clinical_control_are_named():
    assert "The clinical model read age, sex." in written(made_up(notes={"clinical_columns": "age, sex"}))
    odd = {"clinical_columns": "sex", "clinical_remarks": "column age: 1 of 97 filled cells are not numbers"}
    assert "Of the clinical columns: column age: 1 of 97 filled cells are not numbers." in written(made_up(notes=odd))
    withheld = {"clinical_columns": "age, mgmt", "clinical_withheld": "mgmt not for mgmt (it is named after the label itself)"}
    assert "not all were read for every endpoint: mgmt not for mgmt (it is named after the label" in written(
        made_up(notes=withheld)
    )


OF_A_TEST = [
    key
    for key in methods_section.MEASURE_SENTENCES
    if key.startswith(("chance_test:", "hospitals:", "prediction_sets:", "refits", "retraining:", "competing:"))
    or key in ("p_adjusted", "margins:every control", "added_value:imputed")
]


@pytest.mark.parametrize(
    ("method", "design"), [("refitted", "cross-validation"), ("within folds", "table"), ("scores as given", "external")]
)
def test_a_test_against_chance_is_told_as_it_was_made(method, design):
    metrics = made_up() | {"design": design}
    for endpoint in metrics["endpoints"].values():
        for result in endpoint["models"].values():
            result["chance_test"] |= {"method": method}
    told = methods_section.measure_sentences(filled(metrics))
    assert {key for key in told if key.startswith("chance_test:")} == {f"chance_test:{method}"}
    assert ({"refits", "refits:survival"} <= told.keys()) == (design != "external")
    for endpoint in metrics["endpoints"].values():
        for result in endpoint["models"].values():
            result["chance_test"].pop("p_adjusted", None)
            result.pop("versus_controls", None)
    assert "p_adjusted" in told
    assert "p_adjusted" not in methods_section.measure_sentences(filled(metrics))


def test_what_reproduction_needs_is_told_with_the_numbers_that_the_report_used(text):
    told = sections(text)["Evaluation"]
    used = (
        (intervals.RESAMPLES, "bootstrap of patients ({} resamples)"),
        (comparison.PAIRED_RESAMPLES, "a paired bootstrap of patients ({} resamples)"),
        (CALIBRATION_BINS, "expected calibration error over {} bins of equal width"),
        (measured.PERMUTATIONS, "{} permutations of the sites within the folds"),
        (f"{TAU_DAYS:.0f}", "before day {} or the end of follow-up"),
    )
    metrics = made_up()
    metrics["endpoints"]["os"]["pairs"] = [{"model": "vit", "other": "clinical"}]
    metrics["site_probe"] = sample(annotation(Metrics, "site_probe"), 0.5, 1)
    told += sections(written(metrics))["Evaluation"]
    assert [words.format(number) for number, words in used if words.format(number) not in told] == []
    assert "1 / G(t)²" in told


CALIBRATION_BINS = inspect.signature(calibration_curve.expected_calibration_error).parameters["bins"].default


PARTS: dict[str, Any] = {
    "binary": BinaryEndpoint,
    "survival": SurvivalEndpoint,
    "multiclass": MulticlassEndpoint,
    "ordinal": OrdinalEndpoint,
    "continuous": ContinuousEndpoint,
}


def result_part(kind: str) -> Any:
    return PARTS[kind].model_fields["models"].annotation.__args__[1]


def annotation(part: type[Part], name: str) -> Any:
    return part.model_fields[name].annotation


@pytest.mark.parametrize("key", sorted(set(methods_section.MEASURE_SENTENCES) - set(OF_A_TEST)))
def test_a_measure_is_told_exactly_when_it_has_a_figure(key):
    sentence = references.without_citations(methods_section.MEASURE_SENTENCES[key])
    metrics, (name, _, kind) = made_up(), key.partition(":")
    for of in (MulticlassEndpoint, OrdinalEndpoint, ContinuousEndpoint):
        endpoint = sample(of)
        endpoint["models"] = {"vit": sample(get_args(annotation(of, "models"))[1])}
        metrics["endpoints"][endpoint["kind"]] = endpoint
    results = {name: next(iter(endpoint["models"].values())) for name, endpoint in metrics["endpoints"].items()}
    levels: list[tuple[type[Part], dict[str, Any]]] = [
        (Metrics, metrics),
        *((PARTS[found["kind"]], found) for found in metrics["endpoints"].values()),
        *((result_part(metrics["endpoints"][of]["kind"]), result) for of, result in results.items()),
        *((BinaryResult, result) for result in metrics["endpoints"]["mgmt"]["models"].values()),
    ]
    if kind:
        kinds = ("multiclass", "ordinal", "continuous") if kind == "pairs" else (kind.replace("competing", "survival"),)
        results["os"] |= {"others": 4} if kind == "competing" else {}
        levels = [(part, level) for part, level in levels if part in [result_part(one) for one in kinds]]
    holders = [(part, level) for part, level in levels if name in part.model_fields]
    if not holders:  # of a test
        part = Comparison if name == "nadeau_bengio" else ChanceTest
        single = [result["chance_test"] for _, result in levels if "chance_test" in result]
        paired = [test for _, result in levels for test in result.get("versus_controls", {}).values()]
        holders = [(part, test) for test in ([] if part is ChanceTest else paired)] or [(part, test) for test in single]
    for _, level in holders:
        level.pop(name, None)
    assert key not in methods_section.measure_sentences(filled(metrics))
    part, level = holders[0]
    level[name] = sample(annotation(part, name), 0.5, 1)
    assert methods_section.measure_sentences(filled(metrics))[key] == methods_section.MEASURE_SENTENCES[key]
    assert sentence in references.without_citations(" ".join(methods_section.measure_sentences(filled(metrics)).values()))


def test_a_table_from_elsewhere_gets_evaluation_alone():
    metrics = made_up(settings={}, design="table", environment={}, maps=[], folds_sha256=None, folds=1, repeats=1)
    found = sections(written(metrics))
    assert list(found) == ["Evaluation", "Results", "References"]
    assert "table made elsewhere" in found["Evaluation"]
    assert "had not seen" not in found["Evaluation"]
    # Default settings that were filled in for such a table are no claim either.
    assert list(sections(written(metrics | {"settings": settings()}))) == list(found)


def test_an_external_evaluation_claims_no_training():
    found = sections(written(made_up(design="external", maps=[])))
    stages = ["Cohort", "Preparation of the images", "Controls", "Evaluation", "Software", "Results", "References"]
    assert list(found) == stages
    assert "earlier run" in found["Evaluation"]
    assert "earlier run's patients" in found["Controls"]
    assert "Training used" not in "".join(found.values())


def test_an_external_evaluation_tells_the_inner_estimate_beside():
    inner = {"measure": "auc", "n": 40, **estimate(0.7654)}
    told = written(made_up(design="external", internal={"mgmt": {"vit": inner, "shuffled": inner}}))
    assert "**mgmt**, vit, out of fold in the run's own cohort: AUC 0.765 [0.704, 0.818]." in told
    assert "shuffled" not in told  # it was not evaluated here


def test_the_site_probe_is_told_in_its_own_sentence():
    probe = {"site_column": "site", "models": {"vit": {"n": 9, "sentence": "not found to predict the site"}}}
    told = sections(written(made_up(site_probe=probe)))
    assert "**Site probe**, vit: not found to predict the site." in told["Results"]
    assert "linear probe" in told["Evaluation"]


def test_an_endpoint_without_a_known_label_is_told_as_such():
    metrics = made_up()
    metrics["endpoints"]["pten"] = {"kind": "binary", "known": 0, "positive": 0, "models": {}}
    told = sections(written(metrics))
    assert "No label of pten entered the evaluation." in told["Cohort"]
    assert "**pten**: no result." in told["Results"]


def test_the_rules_of_the_verdicts_are_told_in_their_order():
    told = written(made_up(rules=["First rule.", "Second rule."]))
    assert "(1) First rule. (2) Second rule." in told


def test_the_corrected_resampled_test_is_told_to_be_one_sided(text):
    assert "one-sided for a better model" in sections(text)["Evaluation"]
    assert "over the folds of all repeats one-sided p = 0.15" in text


def test_the_regressions_of_the_controls_are_told_to_use_training_patients_alone(text):
    told = sections(text)["Controls"]
    assert "fitted on the training patients alone" in told
    assert "chosen on the validation patients, like the model's" in told
    metrics = made_up()
    del metrics["endpoints"]["mgmt"]["models"]["clinical"]
    assert "fitted on the training patients" not in written(metrics)


@pytest.mark.parametrize("design", ["cross-validation", "external", "table"])
def test_mean_scores_over_repeats_are_told_in_every_design(design):
    sentence = "Pooled figures use each patient's mean score over the repeats."
    assert sentence in written(made_up(design=design))
    assert sentence not in written(made_up(design=design, repeats=1))


def test_every_reference_that_is_cited_is_listed_and_every_listed_one_is_cited(text):
    for told in (
        text,
        written(made_up(design="table")),
        written(made_up(settings=settings(leave_out="site"))),
    ):
        used, listed = cited(told)
        assert used == set(listed)
        assert listed == list(range(1, len(listed) + 1))
        assert len(listed) > 3
    assert "Newcombe" in text
    assert "Vickers" not in text  # no net benefit among the figures


def test_every_key_that_the_code_cites_is_a_reference_and_every_reference_can_be_cited():
    everything = "".join([*methods_section.MEASURE_SENTENCES.values(), methods_section.COVARIATES])
    for survival in ("cox", "hazard"):
        metrics = made_up(settings=settings(model=Model(survival=survival)))
        for stage in (protocol.preparation_sentences, networks.model_sentences, protocol.training_sentences):
            everything += "".join(stage(filled(metrics), Facts()))
    everything += "".join(part(kind, "words").head for kind in KEYS)
    everything += "".join([*networks.POOLED.values(), *networks.PRETRAINING_METHODS.values()])
    everything += "".join(
        networks.model_sentences(filled(made_up(settings=settings(model=Model(conv_stem=8, texture=4)))), Facts())
    )
    asked = Train(
        layer_decay=0.7,
        embedding_lr_factor=0.2,
        freeze_fraction=0.1,
        ema=0.9,
        mixup=0.2,
        modality_dropout=0.1,
        mask_supervision_attention=1.0,
        translation_mm=1.0,
    )
    everything += "".join([*protocol.optional_settings(asked), *protocol.mask_supervision(asked)])
    everything += "".join(
        [*map_sentences.MADE_BY.values(), map_sentences.JUDGED, map_sentences.JUDGED_BY_TUMOUR, map_sentences.SEQUENCES]
    )
    keys = {key for group in references.CITATION.findall(everything) for key in group.split(",")}
    assert keys == set(references.REFERENCES)


def test_masks_that_taught_the_network_take_from_a_map_on_the_tumour():
    assert map_sentences.supervision_note(filled(made_up(settings=settings()))) == ""
    assert "only that supervision" in map_sentences.supervision_note(
        filled(made_up(settings=settings(mask_supervision_attention=1.0)))
    )


def test_an_unknown_citation_is_an_error():
    with pytest.raises(KeyError, match="nobody"):
        references.with_references("As shown [@nobody].")


def test_exclusions_are_counted_by_reason():
    metrics = made_up()
    metrics["cohort"]["excluded_reasons"] = {"empty brain": 1, "no t1 scan": 2}
    assert "(no t1 scan (n = 2); empty brain (n = 1))" in written(metrics)


def test_what_the_author_knows_takes_the_place_of_the_gap(text):
    gaps = re.findall(GAP, text)
    assert len(gaps) == len(set(gaps)) > 5
    told = written(made_up(), Facts(own_words={"ethics": "Approved by the board of X_Y."}))
    assert "Approved by the board of X\\_Y." in told
    assert len(re.findall(GAP, told)) == len(gaps) - 1


def test_the_ways_of_finding_the_brain_are_counted_and_only_those_used_are_told():
    told = written(made_up(), Facts(brains={"none": 40, "mask": 19}))
    assert "already skull-stripped (largest piece, holes filled) (40 patients)" in told
    assert "supplied with the scans (19 patients)" in told
    assert "deepbet" not in told


def test_a_program_that_segments_tumours_is_told_by_its_name_alone(text):
    assert "Tumour masks were" not in text
    made = Tumour(source="command", tumour_ml=20.0)
    program = Prepare(tumour_command=("/opt/seg", "{input}", "{output}"))
    told = written(made_up(settings=settings(prepare=program), tumours={"a": made, "b": made}))
    assert "Tumour masks were made from the scans by seg (2 patients). No label was used to find them." in told


def test_masks_are_told_by_their_source_and_how_many_are_in_doubt():
    tumours = [Tumour(source="given", tumour_ml=30.0), Tumour(source="found"), Tumour(source="none")]
    tumours += [Tumour(source="found", tumour_ml=20.0, confidence=sure) for sure in (0.9, 0.8, 0.3)]
    told = written(made_up(settings=settings(), tumours={f"p{n}": one for n, one in enumerate(tumours)}))
    assert (
        "Tumour masks were supplied with the scans (1 patient); found automatically in FLAIR and T2 by a 3D U-Net that had"
        " learned from synthetic heads alone (3 patients); of those found 1 had a confidence below 0.7; 2 patients had none. No"
        " label was used to find them."
    ) in told


@pytest.mark.parametrize(
    ("kind", "patch"),
    [({}, 4), ({"stem": 40}, 4), ({"conv_stem": 6}, 4), ({"conv_stem": 6}, 8), ({"conv_stem": 6, "texture": 5}, 2)],
)
def test_the_number_of_parameters_is_the_encoder_s_own(kind, patch):
    grid, model = Grid(edge=16, patch=patch), Model(dim=24, depth=3, heads=2, mlp=50, **kind)
    dim, depth, heads, mlp = model.shape
    encoder = Encoder(4 * grid.patch**3, grid.positions, dim, depth, heads, mlp, **kind)
    assert networks.encoder_parameters(model, grid, CHANNELS) == sum(weights.numel() for weights in encoder.parameters())


def test_names_and_reasons_are_neither_markup_nor_html_nor_citations():
    metrics = made_up(study=ODD, notes={"volume": ODD, "clinical_columns": ODD}, rules=[ODD])
    metrics["endpoints"][ODD] = metrics["endpoints"].pop("mgmt")
    metrics["endpoints"][ODD]["models"][ODD] = metrics["endpoints"][ODD]["models"].pop("vit")
    metrics["endpoints"][ODD]["models"][ODD]["verdict"] = ODD
    metrics["environment"]["versions"][ODD] = ODD
    metrics["cohort"]["excluded_reasons"] = {ODD: 1}
    text = written(metrics, Facts(own_words={"ethics": ODD}))
    page = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough").render(text)
    plain = MarkdownIt("commonmark", {"html": True}).render(written(made_up()))
    assert "<script" not in page
    for tag in ("<h1", "<h2", "<a ", "<em", "<code"):
        assert page.count(tag) == plain.count(tag), tag
    assert "a|b &lt;script&gt;alert(1)&lt;/script&gt; *c* [d](https://e.org) `f` [@delong] # g" in page
    used, listed = cited(text)
    assert used == set(listed)


def test_an_undefined_figure_is_called_so():
    metrics = made_up()
    metrics["endpoints"]["mgmt"]["models"]["vit"] |= {
        "auc": {"value": None, "low": None, "high": None},
        "judged": {"value": None, "low": None, "high": None},
        "chance_test": {"method": "within folds", "p": None, "p_adjusted": None},
    }
    line = next(line for line in endpoint_results.result_lines(filled(metrics)) if line.startswith("**mgmt**, vit"))
    assert "AUC undefined" in line
    assert "one-sided against chance p undefined" in line
    assert "nan" not in written(metrics).lower()


def with_a_competing_event(**changes: Any) -> dict[str, Any]:
    """Likewise, where 12 of the 48 patients of survival had another event first."""
    metrics = made_up(**changes)
    os = metrics["endpoints"]["os"]
    os |= {"others": 12, "competing": {"name": "another death", "incidence": [], "sentences": ["Of 48 patients, 69 % died"]}}
    measured = {key: sample(annotation(result_part("survival"), key), 0.5, 1) for key in ("integrated_brier", "decision_at")}
    measured |= {"calibration_at": sample(annotation(result_part("survival"), "calibration_at"), 0.5, 1), "others": 12}
    os["models"]["vit"] |= measured
    return metrics


def test_with_a_competing_event_nothing_is_claimed_of_a_world_without_it():
    plain, competing = with_a_competing_event(), sections(written(with_a_competing_event()))["Evaluation"]
    plain["endpoints"]["os"] |= {"others": None, "competing": None}
    plain["endpoints"]["os"]["models"]["vit"]["others"] = None
    for words in ("Uno's C", "Kaplan-Meier", "restricted means", "complementary log-log"):
        assert words in sections(written(plain))["Evaluation"]
        assert words not in competing.replace("takes Uno's place", "")
    for words in ("Wolbers's C [", "Gray's statistics are halved", "cumulative incidence ["):
        assert words in competing
        assert words not in sections(written(plain))["Evaluation"]
    assert "cumulative incidence: Of 48 patients, 69 % died." in written(with_a_competing_event())


def test_only_models_that_were_trained_here_combine_the_hazards_of_two_events():
    combined, given = "combine the model's cause-specific hazard", "probabilities are the table's"
    for design, is_table in (("cross-validation", False), ("external", False), ("table", True), ("held-out", True)):
        told = written(with_a_competing_event(design=design))
        assert (combined in told, given in told) == (not is_table, is_table)
    without = with_a_competing_event(design="table")
    without["endpoints"]["os"]["models"]["vit"].pop("integrated_brier")
    assert given not in written(without)


def test_two_endpoints_of_survival_are_each_told_in_their_own_words():
    metrics = with_a_competing_event()
    metrics["endpoints"]["pfs"] = {"kind": "survival", "models": copy.deepcopy(made_up()["endpoints"]["os"]["models"])}
    told = methods_section.measure_sentences(filled(metrics))
    assert {"uno_c", "uno_c:competing", "refits:survival", "refits:competing", "groups"} <= told.keys()


def test_what_was_tried_and_gave_no_figure_is_not_claimed():
    tried = {"model": "vit", "tested": 48, "untested": 3, "sentences": ["3 patients of 51 without a label: not compared."]}
    untested = {"model": "vit", "tests": [], "not_tested": {"sex": "too few"}, "sentences": ["Sex is not tested: too few."]}
    metrics = made_up(unlabelled={"os": tried}, interactions={"os": untested})
    metrics["endpoints"]["os"]["added_value"] = {"model": "vit", "sentences": ["Cannot be tested."]}
    found = filled(metrics)
    os = found.endpoints["os"]
    assert isinstance(os, SurvivalEndpoint)
    assert os.added_value
    without = os.model_copy(update={"added_value": os.added_value.model_copy(update={"analysis": "too few died"})})
    told = methods_section.measure_sentences(found.model_copy(update={"endpoints": found.endpoints | {"os": without}}))
    assert not {"unlabelled", "interactions", "added_value", "added_value:imputed"} & told.keys()
    results = sections(written(metrics))["Results"]
    for words in (
        "subgroups: Sex is not tested: too few.",
        "added value: Cannot be tested.",
        "without a label: 3 patients of 51",
    ):
        assert words in results


def test_results_have_one_line_for_each_endpoint_and_measure():
    difference = {"difference": 0.017, "low": 0.004, "high": 0.03, "p": 0.01}
    benefit = {"days": None, "n": 51, "mean": {"better of both": difference}, "verdict_kind": "better", "sentences": ["One."]}
    over = [benefit | {"model": "vit"}, benefit | {"model": "resnet", "verdict_kind": "undefined"}]
    clustered = {"value": 0.71, "low": 0.6, "high": 0.8, "sites": 6, "n": 51, "ratio": 1.2, "usual": {"low": 0.61, "high": 0.79}}
    hospital = {"column": "site", "known": 6, "unseen": None, "clustered": clustered, "sentences": ["One.", "Two."]}
    test = {"other": "clinical", "claim": "not inferior", "sentence": "One", "difference": 0.017, "low": 0.004, "high": 0.03}
    sets = {"calibrated_on": "other patients", "n": 51, "classes": [], "reach": None, "sentences": ["First."]}
    metrics = made_up(
        utility={"least": 0.1, "most": 0.4, "endpoints": {"mgmt": over}, "left_out": {}},
        hospitals={"mgmt": {"vit": hospital}},
        margin=0.05,
        margins={"mgmt": {"vit": {"tests": [test, test | {"other": "volume", "claim": "open"}]}}},
        prediction_sets={"mgmt": {"vit": sets | {"answered": 20, "right": 18}, "clinical": sets}},
    )
    told = sections(written(metrics))["Results"]
    benefits, clusters, margins = (
        re.findall(rf"^- .*{words}.*$", told, re.M) for words in ("net benefit", "clustering", "margin")
    )
    assert len(benefits) == len(clusters) == len(margins) == 1
    assert "at risks of 10 to 40" in benefits[0]
    assert "vit +1.7 \\[+0.4, +3.0\\] (shown to be worth more)." in benefits[0]  # and nothing of a model that was not judged
    assert "vit AUC 0.710 \\[0.600, 0.800\\]" in clusters[0]
    assert "vit is not inferior to clinical" in margins[0]
    assert "shown neither inferior nor non-inferior to volume" in margins[0]
    assert "hold one class alone: vit for 20 of 51 patients, right in 18; clinical for 0 of 51 patients" in told
    metrics["endpoints"]["mgmt"]["models"]["vit"]["verdict_kind"] = "chance"
    assert "vit (not shown to beat chance) for 20 of 51 patients" in sections(written(metrics))["Results"]

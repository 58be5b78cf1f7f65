"""The schema of metrics.json: what is read through it is written again to the letter, for every design of a run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from made.maps import write_maps, write_scores
from made.report import measure
from made.run import ODD_IDS, add_comparators, make_run
from pydantic import ValidationError

from mri_vit.cli import file_verbs
from mri_vit.report.reading import run as reading
from mri_vit.report.reading.run import Run
from mri_vit.report.schema import binary, metrics, patients, survival
from mri_vit.report.schema import parts as bricks
from mri_vit.report.schema.metrics import Metrics, dumps
from mri_vit.report.schema.parts import Nothing, Part, Value

COMPARATORS = {"twin": "", "masked": 'pretrain.method = "mae"\npretrain.epochs = 1'}
LEAVE_OUT = ("repeats = 1\n", 'repeats = 1\nleave_out = "site"\n')


def null(value: Any) -> Any:
    """The same structure with None for NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {key: null(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [null(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def text(run: Run) -> str:
    """The content of metrics.json of one endpoint of each kind, written without the schema."""
    asked = tuple(endpoint for endpoint in run.study.endpoints if endpoint.name in ("mgmt", "os"))
    run = replace(run, study=run.study.model_copy(update={"endpoints": asked}))
    found = null(measure(run)) | {"files": ["figures/roc_mgmt.svg"]}
    return json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def with_maps(folder: Path) -> Run:
    made = make_run(folder, patients=30, models=("vit", "clinical"))
    write_maps(made, ODD_IDS[:2], ["mgmt"])
    write_scores(made, ["mgmt"])
    return reading.read_run(made)


def with_comparators(folder: Path) -> Run:
    made = make_run(folder, patients=30, repeats=2, models=("vit", *COMPARATORS))
    add_comparators(made, COMPARATORS)
    return reading.read_run(made)


def of_sites(folder: Path) -> Run:
    made = make_run(folder, patients=30, models=("vit",))
    study = made / "study.toml"
    study.write_text(study.read_text().replace(*LEAVE_OUT))
    return reading.read_run(made)


def external(folder: Path) -> Run:
    internal = json.loads(text(reading.read_run(make_run(folder / "internal", patients=30, models=("vit",)))))
    return reading.read_run(make_run(folder / "external", patients=30, seed=3, models=("vit",), internal=internal))


def table(folder: Path) -> Run:
    run = reading.read_run(make_run(folder, patients=30, models=("vit", "clinical")))
    scores = run.predictions.score.where(run.predictions.endpoint != "mgmt", run.predictions.score * 5)  # no probabilities
    table = run.predictions.assign(score=scores)
    return replace(run, design="table", environment=Nothing(), folds_sha256=None, predictions=table)


DESIGNS = {
    "a cross-validation with maps": with_maps,
    "repeats and comparators": with_comparators,
    "sites left out": of_sites,
    "an external evaluation": external,
    "a table": table,
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> dict[str, str]:
    return {name: text(made(tmp_path_factory.mktemp("runs") / "made")) for name, made in DESIGNS.items()}


@pytest.mark.parametrize("name", DESIGNS)
def test_what_is_read_through_the_schema_is_written_again_to_the_letter(texts, name):
    assert dumps(Metrics.model_validate_json(texts[name])) == texts[name]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[str, Any]:
    """The JSON Schema as the verb writes it."""
    file = tmp_path_factory.mktemp("schema") / "metrics.schema.json"
    file_verbs.schema(output=file)
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", DESIGNS)
def test_a_report_follows_the_json_schema_that_the_verb_writes(texts, written, name):
    jsonschema.Draft202012Validator.check_schema(written)
    jsonschema.Draft202012Validator(written).validate(json.loads(texts[name]))


@pytest.mark.parametrize(("key", "value"), [("seed", "seven"), ("cohort", {}), ("more", 1)])
def test_the_json_schema_refuses_what_is_no_report(texts, written, key, value):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(written).validate(json.loads(texts["a table"]) | {key: value})


def test_the_verb_prints_the_schema_where_no_file_is_given(written, capsys):
    file_verbs.schema()
    assert json.loads(capsys.readouterr().out) == written


def test_the_designs_fill_every_part_that_may_be_empty(texts):
    found = [Metrics.model_validate_json(text) for text in texts.values()]
    for key in ("site_probe", "internal", "map_settings", "map_scores", "map_scans", "leave_out"):
        assert {getattr(whole, key) is None for whole in found} == {True, False}, key
    results = [result for whole in found for endpoint in whole.endpoints.values() for result in endpoint.models.values()]
    for key in ("calibration", "not_probability", "recalibrated", "versus_own", "versus_best"):
        assert {getattr(result, key) is None for result in results if isinstance(result, binary.BinaryResult)} == {True, False}


def test_undefined_is_nan_here_and_null_in_the_file():
    value = Value.model_validate_json('{"value": null}')
    assert math.isnan(value.value)
    assert value.model_dump_json() == '{"value":null}'


@pytest.mark.parametrize("change", [{"more": 1}, {"seed": "seven"}, {"design": "guess"}, {"endpoints": {"mgmt": {"kind": "?"}}}])
def test_what_the_schema_does_not_know_is_refused(texts, change):
    with pytest.raises(ValidationError):
        Metrics.model_validate(json.loads(texts["a table"]) | change)


def parts() -> list[type[Part]]:
    rooms = [vars(module).values() for module in (bricks, binary, survival, patients, metrics)]
    return [value for room in rooms for value in room if isinstance(value, type) and issubclass(value, Part)]


def test_every_number_has_a_description():
    bare = [
        f"{part.__name__}.{name}"
        for part in parts()
        for name, field in part.model_fields.items()
        if field.annotation in (int, float) and not field.description
    ]
    assert bare == []

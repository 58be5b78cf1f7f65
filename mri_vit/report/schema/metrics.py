"""The whole of `metrics.json`: the run and its models, every number of the report and every sentence that judges one.

`Metrics.model_validate_json(text)` reads the file; `dumps` writes it.
"""

from __future__ import annotations

import io
import json
from typing import Any, Final, Literal

from pydantic import Field

from mri_vit.report.schema.hospitals import Hospitals
from mri_vit.report.schema.instability import Instability, PredictionSets
from mri_vit.report.schema.interactions import Interactions
from mri_vit.report.schema.kinds import Endpoint
from mri_vit.report.schema.margins import Margins
from mri_vit.report.schema.parts import (
    Design,
    Drift,
    Environment,
    Estimate,
    InternalEstimate,
    Measure,
    Nothing,
    Number,
    Part,
    SiteFigure,
    Step,
    Tumour,
)
from mri_vit.report.schema.patients import (
    ComparatorMaps,
    Failures,
    GroupMaps,
    MapEvaluation,
    MapSettings,
    Patient,
    PatientMaps,
    SequenceShares,
    Table1,
)
from mri_vit.report.schema.unlabelled import Unlabelled
from mri_vit.report.schema.utility import Utility
from mri_vit.settings.recipe import CHANNELS, Model, Pretrain, Train
from mri_vit.settings.sections import Controls, Explain, Grid, Prepare


class Cohort(Part):
    """The flow of patients."""

    patients: int = Field(description="patients in the cohort table or the list of the excluded")
    excluded: int = Field(description="patients whose visits were all excluded")
    excluded_reasons: dict[str, int] = Field(description="patients by reason; one may have several")
    predicted: int = Field(description="patients with a prediction")
    unpredicted: int = Field(description="patients neither excluded nor predicted")
    known: dict[str, int] = Field(description="patients of the cohort table with a known label, by endpoint")


class ExpectedVerdict(Part):
    """An endpoint of a simulated cohort: the verdict to expect, and that on the study's own model."""

    expected: Literal["better", "chance"] = Field(description="the verdict to expect: better than chance, or chance")
    found: Literal["better", "chance", "worse", "undefined"] = Field(description="the verdict")
    as_expected: bool


class ComparedModel(Part):
    """One of the compared models: the study's own model or a comparator, what it is and what it costs."""

    model: str
    architecture: str = Field(description="in words; empty where it is not known")
    source: str = Field(description="where the architecture was published; empty where it is not known")
    beginning: str = Field(description="how the weights began, in words; empty where at random")
    pretrain: Nothing | Pretrain = Field(description="settings of pretraining without labels; empty without any")
    differs: str = Field(description="settings that differ from the study's own, in words; empty for the study's own model")
    parameters: int | None = Field(description="weights of a fold's network, median over folds; null where it is not known")
    gflops: Number = Field(description="operations for one patient's prediction, in billions, median over folds")
    patient_seconds: Number = Field(description="seconds for one patient's prediction, median over folds")
    training_seconds: Number = Field(description="seconds of training, sum over folds and repeats")
    trainings: int | None = Field(description="networks trained over folds, repeats and seeds; null where it is not known")
    flat: int | None = Field(
        description="of these, networks whose validation loss fell no more in the last fifth of the epochs; null where not known"
    )
    mean_score: Number = Field(description="mean of the AUC and C over the endpoints")


class Probe(Part):
    """Whether one model's CLS vector predicts the patient's site."""

    n: int = Field(description="patients")
    sites: int = Field(description="sites that the probe distinguishes")
    balanced_accuracy: Estimate = Field(description="mean over sites of the share that the probe got right")
    chance: Number = Field(description="balanced accuracy of guesses: 1 / sites")
    p: Number = Field(description="one-sided permutation p, not adjusted")
    warning: bool = Field(description="whether the vector predicts the site")
    sentence: str = Field(description="the same in words")


class SiteProbe(Part):
    """Whether a model's CLS vector predicts the patient's site."""

    site_column: str
    models: dict[str, Probe]


class Settings(Part):
    """The settings that decide the result, as in the study file; paths are left out."""

    channels: tuple[str, ...] = Field(default=CHANNELS, description="sequences, in the order of every stored array")
    grid: Grid
    prepare: Prepare
    model: Model
    pretrain: Nothing | Pretrain = Field(description="empty without pretraining")
    train: Train
    controls: Controls
    explain: Explain


class CalibrationDrift(Part):
    """How one model's probabilities agree with what is observed, in the run and here."""

    days: Number = Field(description="by which day patients die, of a survival endpoint; null of a binary one")
    n_internal: int = Field(description="patients of the run")
    n_external: int = Field(description="patients here")
    slope: Drift | None = Field(description="calibration slope, 1 at best; null for survival")
    intercept: Drift | None = Field(description="calibration intercept that belongs to the slope, 0 at best; null for survival")
    observed_to_expected: Drift = Field(description="O:E ratio, 1 at best")
    excess: Drift = Field(description="mean probability less the observed share: above 0, probabilities run too high")
    sentence: str = Field(description="the same in words")


class NewHospital(Part):
    """In which range one model's AUC or C is to be expected in a hospital that is in neither cohort."""

    measure: Measure
    method: Literal["sites", "assumed"] = Field(description="from this cohort's sites, or by an assumed heterogeneity")
    value: Number = Field(description="mean over the sites, or this cohort's own")
    low: Number = Field(description="lower end of the 95 % prediction interval")
    high: Number = Field(description="upper end of it")
    tau: Number = Field(description="standard deviation of the AUC or C between sites, estimated or assumed")
    sites: tuple[SiteFigure, ...] = Field(description="sites with patients enough, whichever the method")
    left_out: int = Field(description="sites with too few patients")
    sentence: str = Field(description="the same in words")


class Tick(Part):
    """A question about a result with its answer."""

    holds: bool | None = Field(description="null where the question does not arise")
    words: str = Field(description="the answer in words")


class Card(Part):
    """The verdict on an endpoint in a few words; figures and p stand in `endpoints`."""

    model: str = Field(description="whose result it is: the study's own model, or the first comparator")
    verdict: str = Field(description="the verdict in at most six words")
    beats_controls: Tick = Field(description="does it beat every control?")
    holds_in_sites: Tick = Field(description="is it there among patients of one site, and in no site shown to be worse?")


SCHEMA: Final = 3  # since 0.5.0 `judged`, `chance_test`, `versus_controls` for `permutation`, `versus_clinical`


class Metrics(Part):
    """Every number of a report. Undefined is null; intervals are 95 %; folds and repeats are counted from 0."""

    layout: Literal[3] = Field(alias="schema", description="version of this layout")
    study: str = Field(description="name of the study")
    seed: int = Field(description="from which every resampling starts")
    design: Design = Field(description="out-of-fold predictions, a run's models on another cohort, or a table from elsewhere")
    cohort: Cohort
    table1: Table1
    folds: int = Field(description="folds, or sites that were left out in turn")
    repeats: int = Field(description="repeats of the cross-validation, each with folds of its own")
    leave_out: str | None = Field(description="column whose values are the folds; null for random folds")
    folds_sha256: str | None = Field(description="hash of folds.json; null where the run has none")
    models: tuple[str, ...] = Field(description="the study's own model, its comparators, the best first, and controls")
    compared_models: tuple[ComparedModel, ...] = Field(description="the study's own model and its comparators, in the same order")
    shown: tuple[str, ...] = Field(description="compared models whose curves are drawn")
    transductive: str | None = Field(description="how pretraining saw scans of patients judged here, in words; else null")
    rules: tuple[str, ...] = Field(description="the rules of the verdicts, in words")
    endpoints: dict[str, Endpoint]
    cards: dict[str, Card] = Field(description="by endpoint that a compared model was judged on: the report's first screen")
    patients: tuple[Patient, ...] = Field(
        description="who was predicted, with the scores of the model of each endpoint's card, in the order of the cohort table"
    )
    failures: dict[str, Failures] = Field(
        description="the worst of `patients`, by endpoint; an endpoint without a ranked patient has none"
    )
    expected_verdicts: dict[str, ExpectedVerdict] = Field(description="by endpoint, of a simulated cohort; empty of any other")
    site_probe: SiteProbe | None = Field(description="null without a probe of two sites")
    internal: dict[str, dict[str, InternalEstimate]] | None = Field(
        description="by endpoint and model, of the evaluated run; null where none is evaluated"
    )
    drift: dict[str, dict[str, tuple[CalibrationDrift, ...]]] = Field(
        default={}, description="by endpoint and model, of an evaluation on another cohort; empty of any other"
    )
    new_hospital: dict[str, dict[str, NewHospital]] = Field(default={}, description="by endpoint and model; likewise")
    instability: dict[str, dict[str, tuple[Instability, ...]]] = Field(
        default={},
        exclude_if=lambda found: not found,
        description="by endpoint and compared model that is shown: over repeats, over seeds; no key where trained once",
    )
    prediction_sets: dict[str, dict[str, PredictionSets]] = Field(
        default={},
        exclude_if=lambda found: not found,
        description="by endpoint and such a model; no key without any, or before 0.7",
    )
    no_sets: dict[str, str] = Field(
        default={}, exclude_if=lambda found: not found, description="by endpoint without sets why there are none, in words"
    )
    hospitals: dict[str, dict[str, Hospitals]] = Field(
        default={}, exclude_if=lambda found: not found, description="by endpoint and compared model; no key without two hospitals"
    )
    margin: float | None = Field(
        default=None, exclude_if=lambda found: found is None, description="`report.margin`; no key where it is unset"
    )
    margins: dict[str, dict[str, Margins]] = Field(
        default={}, exclude_if=lambda found: not found, description="by endpoint and compared model; no key without a margin"
    )
    utility: Utility | None = Field(
        default=None, exclude_if=lambda found: found is None, description="no key where the study names no thresholds"
    )
    interactions: dict[str, Interactions] = Field(
        default={}, exclude_if=lambda found: not found, description="by endpoint with subgroups; no key without any"
    )
    unlabelled: dict[str, Unlabelled] = Field(
        default={}, exclude_if=lambda found: not found, description="by endpoint that some patients lack; no key without any"
    )
    maps: tuple[PatientMaps, ...]
    map_settings: MapSettings | None = Field(description="null without maps")
    stale: dict[Literal["maps", "scores", "mean maps"], int] = Field(description="how many of an earlier kind are left out")
    map_scores: MapEvaluation | None = Field(description="null where no patient was scored")
    map_scans: SequenceShares | None = Field(description="null where nothing is shared among sequences")
    map_groups: tuple[GroupMaps, ...]
    comparator_maps: dict[str, ComparatorMaps] = Field(
        default={}, exclude_if=lambda found: not found, description="by comparator whose maps were made; no key without any"
    )
    settings: Nothing | Settings = Field(description="empty for a table from elsewhere")
    environment: Nothing | Environment = Field(description="empty for a table from elsewhere")
    tumours: dict[str, Tumour] = Field(default={}, description="of each prepared visit; empty for a table from elsewhere")
    notes: dict[str, str] = Field(description="what was not done, and why; and columns of the controls")
    preparation: tuple[Step, ...]
    files: tuple[str, ...] = Field(description="figures, tables and pages beside this file, to be deleted with it")


def dumps(metrics: Metrics) -> str:
    """The text of the file: keys in the order of the fields, null for what is undefined."""
    text = io.StringIO()  # written piece by piece: of 50,000 patients, a list of all pieces and of their dicts takes 200 MB
    content = metrics.model_copy(update={"patients": ()}).model_dump(mode="json") | {"patients": metrics.patients}
    json.dump(content, text, indent=1, allow_nan=False, ensure_ascii=False, default=lambda one: one.model_dump(mode="json"))
    return text.getvalue() + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    schema = Metrics.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "metrics.json of mri-vit"}

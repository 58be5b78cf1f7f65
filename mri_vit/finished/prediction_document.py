"""Document: `prediction.json`, one patient's prediction with all by which a reader can judge it; `json_schema` describes it.

A number that is withheld stands nowhere in it: its endpoint's `value` is null, and no map of that endpoint is there.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mri_vit.report.schema.metrics import Step
from mri_vit.report.schema.parts import Estimate, Kind, Number, Part
from mri_vit.report.schema.patients import MapKind, MapVerdict
from mri_vit.settings.sections import Reason

SCHEMA: Final = 1
FILE = "prediction.json"
Placement = Literal["within", "outside", "not known"]  # of a patient, among those of the run


class ReadFile(Part):
    """A file that was read."""

    holds: str = Field(description="a sequence (t1, t1ce, …), brain_mask or tumour_mask")
    file: str = Field(description="its name, relative to what was given")
    sha256: str | None = Field(description="of the file; null for a mask that took no part in preparing")


class QcFinding(Part):
    """What is outside the limits that the run set for its own patients."""

    reason: Reason
    scan: str = Field(description="which scan it is of; empty for the whole patient")
    figure: Number
    sentence: str


class Preparation(Part):
    """What was read and what was done to it."""

    read: tuple[ReadFile, ...]
    missing: tuple[str, ...] = Field(description="sequences of the run that were not given, and were left empty")
    reference: str = Field(description="the sequence in whose space the others were laid")
    brain_source: str = Field(description="where the brain mask came from")
    brain_ml: Number = Field(description="volume of the brain, in ml")
    tokens: int = Field(description="places with brain, each a token")
    steps: tuple[Step, ...] = Field(description="in order, each with its sentence for a Methods section and its figures")
    warnings: tuple[str, ...] = Field(description="of preparing; empty where there was none")
    findings: tuple[QcFinding, ...] = Field(description="outside the run's limits; a patient with one that excludes is not here")
    picture: str = Field(description="the picture by which preparing is checked, beside this file")


class Weights(Part):
    """The weights of one network."""

    file: str = Field(description="in the run's folder")
    sha256: str


class RunFacts(Part):
    """The run whose networks predicted."""

    study: str = Field(description="name of the study")
    patients: int = Field(description="on whom it was cross-validated")
    folds: int
    repeats: int
    seeds: int = Field(description="networks of each fold, which differ in their seed alone")
    folds_sha256: str = Field(description="hash of folds.json")
    predictions_sha256: str = Field(description="hash of predictions.csv, the out-of-fold scores")
    verdicts: Literal["report", "computed"] = Field(description="whether verdicts were read from the run's report or made anew")
    weights: tuple[Weights, ...] = Field(description="of every network that predicted")
    beginning: str = Field(description="where training started from, in words")
    licence: str = Field(description="of the weights, in words")
    versions: dict[str, str] = Field(description="of Python and packages in training")
    synthetic: str | None = Field(description="how many of its patients are synthetic, in words; null where all are real")


class Known(Part):
    """Whether the run was trained on this patient. Scores of one who is known are no out-of-fold scores."""

    twin: str | None = Field(description="the run's patient with the same voxels; null where there is none")
    same_id: bool = Field(description="whether a patient of the run has the same id")
    exposed: bool = Field(description="whether the weights that the run started from knew a patient of the same id")
    sentence: str = Field(description="what follows, in words")


class Figure(Part):
    """One figure of the patient beside the same of the run's patients."""

    name: str = Field(description="such as brain_ml, or features")
    scan: str = Field(description="which scan it is of; empty for the whole patient")
    title: str = Field(description="the same in words")
    unit: str = Field(description="empty for a number without one")
    value: Number
    median: Number = Field(description="of the run's patients")
    low: Number = Field(description="2.5th percentile of the run's patients")
    high: Number = Field(description="97.5th percentile of the run's patients")
    beyond: Number = Field(
        description="distance from the run's median, as a multiple of the distance that 9 in 10 of the run's patients keep"
    )
    is_outside: bool = Field(description="whether it lies beyond the limit that holds over all figures together")
    sentence: str = Field(description="how it compares, in words")


class Distribution(Part):
    """Whether the patient is like those whom the run was trained on, over all figures together."""

    placement: Placement
    reason: str | None = Field(description="why it is not known; null where it is")
    patients: int = Field(description="of the run, with whom the patient was compared")
    p: Number = Field(description="share of patients, this one among them, who lie at least as far out in their furthest figure")
    alpha: Number = Field(description="outside where p is at most this: the most false flags over all figures together")
    limit: Number = Field(description="`beyond` from which a figure is outside")
    figures: tuple[Figure, ...] = Field(description="the furthest first")
    sentence: str = Field(description="all of it in words")


class OfRun(Part):
    """What the run's report says of its own model for an endpoint."""

    measure: Literal["auc", "harrell_c"] = Field(description="of pairs within a fold, out of fold")
    estimate: Estimate
    patients: int = Field(description="with a known label")
    marked: int = Field(description="of these positive; of survival, deaths")
    kind: Kind = Field(description="the verdict in one word")
    verdict: str = Field(description="the verdict in words")


class NetworkScore(Part):
    """What one network says."""

    repeat: int = Field(description="counted from 0")
    fold: int = Field(description="counted from 0")
    seed: int = Field(description="counted from 0")
    score: Number


class Spread(Part):
    """How far the networks differ."""

    networks: int
    deviation: Number = Field(description="sample standard deviation; null of a single network")
    minimum: Number
    maximum: Number


class Calibrated(Estimate):
    """A probability after logistic recalibration on the run's out-of-fold scores; its interval by a bootstrap of patients.

    The interval is that of the recalibration alone. How far networks differ is in `least` and `most`.
    """

    least: Number = Field(description="of the folds' networks, each calibrated by itself")
    most: Number = Field(description="likewise")
    threshold: Number = Field(description="mean of the folds' thresholds on this scale; null where there is none")
    slope: Number = Field(description="of the logistic line through the out-of-fold scores' log odds")
    intercept: Number = Field(description="of the same")
    n: int = Field(description="patients with a known label on whom it was fitted")
    positive: int = Field(description="of these with the marker")
    sentence: str = Field(description="what it is, in words")


class _Shown(Part):
    score: Number = Field(description="mean over folds and seeds: a probability as the networks say it, or a risk")
    threshold: Number = Field(description="mean of the folds' thresholds, on the scale of the score; null where there is none")
    percentile: Number = Field(description="of the score among the run's out-of-fold scores, 0 to 100")
    percentile_n: int = Field(description="patients of the run in that comparison")
    percentile_note: str = Field(description="how to read it")
    networks: tuple[NetworkScore, ...]
    spread: Spread = Field(description="of the networks' scores")


class BinaryValue(_Shown):
    """What is predicted of a marker."""

    side: Literal["positive", "negative"] | None = Field(
        description="the call: whether the calibrated probability is at least one half; without one, whether the score is at or"
        " above the threshold; null without either"
    )
    call: str = Field(description="the call and what it rests on, in words")
    probability: Calibrated | None = Field(description="null where the out-of-fold scores cannot be calibrated")
    uncalibrated: str | None = Field(description="why there is no calibrated probability; null where there is one")


class Horizon(Part):
    """Predicted survival at one time."""

    days: Number = Field(description="from imaging")
    survival: Number = Field(description="probability of being alive, mean over the networks")
    deviation: Number = Field(description="sample standard deviation over the networks; null of a single one")
    minimum: Number
    maximum: Number


class SurvivalValue(_Shown):
    """What is predicted of survival."""

    side: Literal["high risk", "low risk"] | None = Field(description="at or above the threshold, or below; null without one")
    horizons: tuple[Horizon, ...] = Field(description="as the networks say it: not recalibrated")


class _Endpoint(Part):
    of_run: OfRun | None = Field(description="null where the run has no result for it")
    withheld: str | None = Field(description="why nothing is shown; null where something is")
    untrusted: str | None = Field(description="why it would be withheld, where it is shown on demand; else null")


class Binary(_Endpoint):
    """A binary endpoint."""

    kind: Literal["binary"]
    value: BinaryValue | None = Field(description="null where withheld")


class Survival(_Endpoint):
    """A survival endpoint."""

    kind: Literal["survival"]
    value: SurvivalValue | None = Field(description="null where withheld")


class ShownMap(Part):
    """One map, its files relative to this one, and how far such maps were found faithful in the run."""

    method: str
    endpoint: str = Field(description="what the map explains; empty for a map that is the same for all endpoints")
    title: str = Field(description="the method's name in words")
    explains: str = Field(description="the value whose evidence the map shows; empty for all endpoints")
    meaning: str = Field(description="what the map is, in words")
    source: str = Field(description="where the method was published")
    unit: str
    files: dict[str, str] = Field(description="NIfTI by space: a sequence's own voxels, or grid")
    overlay: str = Field(description="picture on the reference scan")
    minimum: Number = Field(description="inside the brain, on the reference's voxels")
    peak: Number = Field(description="likewise")
    peak_mm: tuple[float, float, float] = Field(description="where the highest voxel lies in scanner space (RAS+), in mm")
    cls_share: Number = Field(description="what CLS kept for itself; null where the method does not know")
    by_scan: dict[str, Number] | None = Field(description="share of each sequence; null where there is none")
    kind: MapKind = Field(description="the best of `verdicts`")
    verdicts: tuple[MapVerdict, ...] = Field(
        description="of the run on this method: one for its endpoint, or one for each that is shown, the best first; empty where "
        "the run scored no maps"
    )


class Maps(Part):
    """The patient's maps, of one network."""

    repeat: int = Field(description="of the network, counted from 0")
    fold: int = Field(description="likewise")
    brain: str | None = Field(description="the reference scan's brain as NIfTI; null where it may hold a face")
    mask: str = Field(description="of the brain on the prepared grid, as NIfTI")
    tumour: bool = Field(description="whether a tumour mask was given, whose outline the pictures show")
    evidence_by_scan: dict[str, dict[str, Number]] = Field(
        description='by endpoint: "evidence" of the whole, "empty" without any scan, and each sequence\'s Shapley value'
    )
    maps: tuple[ShownMap, ...] = Field(description="those that carry a finding first")


class Prediction(Part):
    """One patient's prediction. Undefined is null; folds, repeats and seeds are counted from 0."""

    layout: Literal[1] = Field(alias="schema", description="version of this layout")
    notice: str = Field(description="that this is for research")
    patient: str = Field(description="id of the visit, and name of its folder")
    made: str = Field(description="date and time, ISO 8601")
    run: RunFacts
    preparation: Preparation
    known: Known
    distribution: Distribution
    endpoints: dict[str, Annotated[Binary | Survival, Field(discriminator="kind")]]
    maps: Maps | None = Field(description="null where there are none")
    no_maps: str | None = Field(description="why there are no maps; null where there are")
    remarks: tuple[str, ...] = Field(description="what a reader must know before any number, in words; the gravest first")
    seconds: dict[str, Number] = Field(description="by stage: prepare, networks, distribution, maps, and total")
    versions: dict[str, str] = Field(description="of Python and packages that predicted")


def is_trusted(prediction: Prediction, endpoint: str) -> bool:
    """Whether nothing speaks against what is shown of an endpoint: it is not withheld, no doubt is known of it, the run was not
    trained on these scans, and the patient is not unlike the run's patients.
    """
    one = prediction.endpoints[endpoint]
    speaks_against = one.withheld or one.untrusted or prediction.known.twin or prediction.distribution.placement == "outside"
    return not speaks_against


def dumps(prediction: Prediction) -> str:
    """The text of the file: keys in the order of the fields, null for what is undefined."""
    return json.dumps(prediction.model_dump(mode="json"), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    schema = Prediction.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": f"{FILE} of mri-vit"}

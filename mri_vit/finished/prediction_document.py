"""`prediction.json`: one patient's prediction and everything needed to judge it; `json_schema` describes the file.

A withheld number appears nowhere in it: its endpoint's `value` is null, and the endpoint has no map.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mri_vit.kinds.kind import Measure
from mri_vit.report.schema.instability import Answer
from mri_vit.report.schema.parts import Estimate, Kind, Number, Part, Step, Tumour
from mri_vit.report.schema.patients import MapKind, MapVerdict
from mri_vit.settings.sections import Reason

SCHEMA: Final = 2
FILE = "prediction.json"
Placement = Literal["within", "outside", "not known"]  # of a patient, among those of the run


class ReadFile(Part):
    """A file that was read."""

    holds: str = Field(description="a sequence (t1, t1ce, …), brain_mask or tumour_mask")
    file: str = Field(description="path relative to the given folder or table")
    sha256: str | None = Field(description="of the file; null for a mask that was not used in preparation")


class QcFinding(Part):
    """A value outside the run's quality limits."""

    reason: Reason
    scan: str = Field(description="its scan; empty for the whole patient")
    figure: Number
    sentence: str


class Preparation(Part):
    """Files read, and the steps of preparation."""

    read: tuple[ReadFile, ...]
    missing: tuple[str, ...] = Field(description="sequences of the run without a scan; they were left empty")
    reference: str = Field(description="the sequence to which the others were aligned")
    brain_source: str = Field(description="source of the brain mask")
    brain_ml: Number = Field(description="volume of the brain, in ml")
    tumour: Tumour
    tokens: int = Field(description="grid positions with brain, each a token")
    steps: tuple[Step, ...] = Field(description="in order, each with a sentence for a Methods section and its values")
    warnings: tuple[str, ...] = Field(description="of preparation")
    findings: tuple[QcFinding, ...] = Field(
        description="values outside the run's limits; a patient with one that excludes gets no prediction"
    )
    picture: str = Field(description="the picture that shows the preparation, beside this file")


class Weights(Part):
    """The weights of one network."""

    file: str = Field(description="in the run's folder")
    sha256: str


class RunFacts(Part):
    """The run that predicted."""

    study: str = Field(description="name of the study")
    patients: int = Field(description="patients of its cross-validation")
    folds: int
    repeats: int
    seeds: int = Field(description="networks of each fold, which differ only in their seed")
    folds_sha256: str = Field(description="hash of folds.json")
    predictions_sha256: str = Field(description="hash of predictions.csv, the out-of-fold scores")
    verdicts: Literal["report", "computed"] = Field(
        description="whether verdicts were read from the run's report or computed again"
    )
    weights: tuple[Weights, ...] = Field(description="of every network that predicted")
    beginning: str = Field(description="what training started from, in words")
    tumour_masks: str | None = Field(
        default=None, description="where the masks that supervised training came from, in words; null without"
    )
    licence: str = Field(description="of the weights, in words")
    versions: dict[str, str] = Field(description="of Python and packages in training")
    synthetic: str | None = Field(description="how many of its patients are synthetic, in words; null where all are real")


class Known(Part):
    """Whether the run was trained on this patient, whose scores would then not be out-of-fold."""

    twin: str | None = Field(description="the run's patient with the same voxels; null where there is none")
    same_id: bool = Field(description="whether a patient of the run has the same id")
    exposed: bool = Field(description="whether the weights that the run started from were trained on a patient with this id")
    sentence: str = Field(description="the same in words")


class Figure(Part):
    """One measure of the patient compared with the run's patients."""

    name: str = Field(description="such as brain_ml, or features")
    scan: str = Field(description="its scan; empty for the whole patient")
    title: str = Field(description="the same in words")
    unit: str = Field(description="empty for a number without one")
    value: Number
    median: Number = Field(description="of the run's patients")
    low: Number = Field(description="2.5th percentile of the run's patients")
    high: Number = Field(description="97.5th percentile of the run's patients")
    beyond: Number = Field(
        description="distance from the run's median, where 1 is the distance that 90 % of the run's patients stay within"
    )
    is_outside: bool = Field(description="whether it is above the limit for all measures together")
    sentence: str = Field(description="the comparison in words")


class Distribution(Part):
    """Whether the patient resembles the run's patients, over all measures together."""

    placement: Placement
    reason: str | None = Field(description="why it is not known; null where it is known")
    patients: int = Field(description="patients of the run in the comparison")
    p: Number = Field(description="share of patients, this one included, whose furthest measure is at least as far out")
    alpha: Number = Field(
        description="outside where p is at most this: the largest share of false flags over all measures together"
    )
    limit: Number = Field(description="`beyond` above which a measure is outside")
    figures: tuple[Figure, ...] = Field(description="the furthest first")
    sentence: str = Field(description="the same in words")


class OfRun(Part):
    """The run's result of its own model for an endpoint."""

    measure: Measure = Field(description="of pairs within a fold, out of fold")
    estimate: Estimate
    patients: int = Field(description="with a known label")
    marked: int = Field(description="of these positive, or deaths for survival; all of another kind")
    kind: Kind = Field(description="the verdict in one word")
    verdict: str = Field(description="the verdict in words")


class NetworkScore(Part):
    """The score of one network."""

    repeat: int = Field(description="counted from 0")
    fold: int = Field(description="counted from 0")
    seed: int = Field(description="counted from 0")
    score: Number


class Spread(Part):
    """The variation between networks."""

    networks: int
    deviation: Number = Field(description="sample standard deviation; null for a single network")
    minimum: Number
    maximum: Number


class Calibrated(Estimate):
    """A probability after logistic recalibration on the run's out-of-fold scores; its interval by a bootstrap of patients.

    The interval covers only the recalibration; `least` and `most` show the variation between folds.
    """

    least: Number = Field(description="smallest of the folds' calibrated probabilities")
    most: Number = Field(description="largest of them")
    threshold: Number = Field(description="mean of the folds' thresholds on this scale; null where there is none")
    slope: Number = Field(description="of the logistic line through the out-of-fold scores' log odds")
    intercept: Number = Field(description="of the same")
    n: int = Field(description="patients with a label that it was fitted on")
    positive: int = Field(description="positive patients among them")
    sentence: str = Field(description="explanation in words")


class _Shown(Part):
    score: Number = Field(description="mean over folds and seeds: an uncalibrated probability, or a risk")
    threshold: Number = Field(description="mean of the folds' thresholds, on the scale of the score; null where there is none")
    percentile: Number = Field(description="of the score among the run's out-of-fold scores, 0 to 100")
    percentile_n: int = Field(description="patients of the run in that comparison")
    percentile_note: str = Field(description="how to read it")
    networks: tuple[NetworkScore, ...]
    spread: Spread = Field(description="of the networks' scores")


class BinaryValue(_Shown):
    """The prediction of a marker."""

    side: Literal["positive", "negative"] | None = Field(
        description="the call: whether the calibrated probability is at least one half; without one, whether the score is at or"
        " above the threshold; null without either"
    )
    call: str = Field(description="the call and its reason, in words")
    probability: Calibrated | None = Field(description="null where the out-of-fold scores cannot be calibrated")
    uncalibrated: str | None = Field(description="why there is no calibrated probability; null where there is one")


class Horizon(Part):
    """Predicted survival at one time."""

    days: Number = Field(description="from imaging")
    survival: Number = Field(description="probability of being alive, or without the event, mean over the networks")
    deviation: Number = Field(description="sample standard deviation over the networks; null for a single one")
    minimum: Number
    maximum: Number


class SurvivalValue(_Shown):
    """The prediction of survival."""

    side: Literal["high risk", "low risk"] | None = Field(description="at or above the threshold, or below; null without one")
    horizons: tuple[Horizon, ...] = Field(description="not recalibrated")


class ClassValue(_Shown):
    """The prediction of a class or grade; the score is the expected place among the classes, counted from 0."""

    side: str | None = Field(description="the call: the most probable class, or the grade next to the expected one")
    call: str = Field(description="the call and its reason, in words")
    probabilities: dict[str, Number] = Field(description="by class, mean over folds and seeds; not recalibrated")
    spreads: dict[str, Spread] = Field(description="of the networks' probabilities, by class")


class ContinuousValue(_Shown):
    """The prediction of a number, in the endpoint's unit."""

    side: None = Field(description="no call")
    low: Number = Field(
        description="below it lie about 2.5 % of patients with such a prediction, by the run's limits of agreement"
    )
    high: Number = Field(description="above it likewise")


class _Endpoint(Part):
    of_run: OfRun | None = Field(description="null where the run has no result for it")
    withheld: str | None = Field(description="why nothing is shown; null where something is")
    untrusted: str | None = Field(description="why it is unreliable, where it is shown on request; else null")
    answer: Answer | None = Field(
        default=None,
        exclude_if=lambda found: found is None,
        description="set that holds the right class, or the number: 90 % is found, proved is less; no key where there is none",
    )


class Binary(_Endpoint):
    """A binary endpoint."""

    kind: Literal["binary"]
    value: BinaryValue | None = Field(description="null where withheld")


class Survival(_Endpoint):
    """A survival endpoint."""

    kind: Literal["survival"]
    competing: str | None = Field(
        default=None,
        exclude_if=lambda words: words is None,
        description="event that may come first; who has it counts as without the event. Left out where none is declared",
    )
    value: SurvivalValue | None = Field(description="null where withheld")


class Multiclass(_Endpoint):
    """An endpoint of classes."""

    kind: Literal["multiclass"]
    classes: tuple[str, ...]
    value: ClassValue | None = Field(description="null where withheld")


class Ordinal(_Endpoint):
    """An endpoint of grades."""

    kind: Literal["ordinal"]
    classes: tuple[str, ...] = Field(description="in their order")
    value: ClassValue | None = Field(description="null where withheld")


class Continuous(_Endpoint):
    """An endpoint that is a number."""

    kind: Literal["continuous"]
    unit: str
    value: ContinuousValue | None = Field(description="null where withheld")


AnyPredicted = Binary | Survival | Multiclass | Ordinal | Continuous


class ShownMap(Part):
    """One map, its files relative to this one, and the run's verdicts on its method."""

    method: str
    endpoint: str = Field(description="the explained endpoint; empty for a map that is the same for all")
    title: str = Field(description="the method's name in words")
    explains: str = Field(description="the explained value; empty for all endpoints")
    meaning: str = Field(description="explanation in words")
    source: str = Field(description="publication of the method")
    unit: str
    files: dict[str, str] = Field(description="NIfTI by space: a sequence's own voxels, or grid")
    overlay: str = Field(description="picture on the reference scan")
    minimum: Number = Field(description="inside the brain, on the reference's voxels")
    peak: Number = Field(description="likewise")
    peak_mm: tuple[float, float, float] = Field(description="position of the highest voxel in scanner space (RAS+), in mm")
    cls_share: Number = Field(description="share of CLS itself; null where the method has none")
    by_scan: dict[str, Number] | None = Field(description="share of each sequence; null where there is none")
    kind: MapKind = Field(description="the best of `verdicts`")
    verdicts: tuple[MapVerdict, ...] = Field(
        description="of the run on this method, for its endpoint or each shown one, the best first; empty where none were scored"
    )


class Maps(Part):
    """The patient's maps, of one network."""

    repeat: int = Field(description="of the network, counted from 0")
    fold: int = Field(description="likewise")
    brain: str | None = Field(description="the reference scan's brain as NIfTI; null where it may show a face")
    mask: str = Field(description="of the brain on the prepared grid, as NIfTI")
    tumour: bool = Field(description="whether there is a tumour mask; the pictures show its outline")
    maps: tuple[ShownMap, ...] = Field(description="maps with a finding first")


class Prediction(Part):
    """One patient's prediction. Undefined is null; folds, repeats and seeds are counted from 0."""

    layout: Literal[2] = Field(alias="schema", description="version of this layout")
    notice: str = Field(description="the statement that this is for research")
    patient: str = Field(description="id of the visit, and name of its folder")
    made: str = Field(description="date and time, ISO 8601")
    run: RunFacts
    preparation: Preparation
    known: Known
    distribution: Distribution
    endpoints: dict[str, Annotated[AnyPredicted, Field(discriminator="kind")]]
    maps: Maps | None = Field(description="null where there are none")
    no_maps: str | None = Field(description="why there are no maps; null where there are")
    remarks: tuple[str, ...] = Field(description="what a reader must know before any number; the most serious first")
    seconds: dict[str, Number] = Field(description="by stage: prepare, networks, distribution, maps, and total")
    versions: dict[str, str] = Field(description="of Python and packages at prediction")


def is_trusted(prediction: Prediction, endpoint: str) -> bool:
    """Whether an endpoint is shown without doubt, the run was not trained on these scans, and the patient resembles its own."""
    shown = prediction.endpoints[endpoint]
    outside = prediction.distribution.placement == "outside"
    return not (shown.withheld or shown.untrusted or prediction.known.twin or outside)


def dumps(prediction: Prediction) -> str:
    """The text of the file: keys in the order of the fields, null for what is undefined."""
    return json.dumps(prediction.model_dump(mode="json"), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    schema = Prediction.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": f"{FILE} of mri-vit"}

"""The maps in `metrics.json`: each patient's maps with their verdicts, how the methods were evaluated, and mean maps."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema.parts import Estimate, Kind, Mean, Number, Part
from mri_vit.settings.sections import AnyMethod

Order = Literal["deletion", "insertion"]  # of places by their value in a map, highest first: left out, or put in
MapKind = Literal["passes", "unsettled", "fails", "undefined", "none"]  # of the verdict on a method's maps of an endpoint


class MapSettings(Part):
    """The settings that a map depends on."""

    methods: tuple[AnyMethod, ...]


class MapVerdict(Part):
    """The verdict on a map's method for one endpoint."""

    endpoint: str
    kind: MapKind
    sentence: str


class ShownMap(Part):
    """One map of a patient."""

    method: AnyMethod
    endpoint: str = Field(description="what the map explains; empty for a map that is the same for all endpoints")
    title: str = Field(description="the method's name in words")
    explains: str = Field(description="the value whose evidence the map shows, in words; empty for all endpoints")
    unit: str
    peak: Number = Field(description="highest value inside the brain, in `unit`")
    peak_mm: tuple[float, float, float] | None = Field(description="where it lies in scanner space (RAS+), in mm")
    by_scan: dict[str, Number] | None = Field(description="share of each sequence in the map; null where there is none")
    index: int = Field(description="place of the map in the patient's map.json, counted from 0")
    kind: MapKind = Field(description="the best of `verdicts`")
    verdicts: tuple[MapVerdict, ...] = Field(description="of a map for all endpoints: one for each, the best first")


class PatientMaps(Part):
    """A visit's maps, those that carry a finding first."""

    patient: str = Field(description="the visit's id")
    model: str | None = Field(description="whose maps these are")
    repeat: int | None = Field(description="of the model, counted from 0")
    fold: int | None = Field(description="of the model, counted from 0")
    tokens: int | None = Field(description="places that the model read")
    maps: tuple[ShownMap, ...]


class _Stage(Part):
    stage: str = Field(description="the weights that were randomised last, with all before them")


class Stage(Mean, _Stage):  # keys in the order of the bases, the last first
    """Rank correlation with the trained model's map after some weights were randomised, from the top down."""


class MapResult(Part):
    """One method's maps of one endpoint, evaluated over patients. Falls of the evidence are in its standard deviations."""

    n: int = Field(description="patients")
    deletion: Mean = Field(description="fall of the evidence when places are left out in the map's order")
    deletion_random: Mean = Field(description="the same in random order")
    deletion_gain: Mean = Field(description="paired difference of the two; above 0, the map's order is better")
    insertion: Mean = Field(description="gap to the full evidence when places are put in by the map's order")
    insertion_random: Mean = Field(description="the same in random order")
    insertion_gain: Mean = Field(description="paired difference of the two; above 0, the map's order is better")
    hits: Mean = Field(description="share of patients whose map peaks on the tumour")
    hit_chance: Mean = Field(description="the share that a random place has")
    hit_simulated: Mean = Field(description="the share that simulated smooth maps have")
    energy_ratio: Mean = Field(description="the map's share on the tumour over the tumour's share of places")
    energy_simulated: Mean = Field(description="the same of simulated smooth maps")
    hit_randomised: Mean = Field(description="hits of networks with randomised weights; n is networks")
    energy_randomised: Mean = Field(description="energy ratio of networks with randomised weights; n is networks")
    label_gain: Mean = Field(description="`folds` less `shuffled`, paired")
    shuffled: Mean = Field(description="rank correlation with the map of a network that was trained on permuted labels")
    folds: Mean = Field(description="rank correlation with the maps of the other folds' networks")
    noise: Mean = Field(description="rank correlation with the map of the scans with a little noise")
    shift: Mean = Field(description="rank correlation with the map of the scans moved by one voxel")
    cascade: tuple[Stage, ...]
    randomised: Stage | Mean = Field(description="the last stage, in which every weight is randomised")
    verdict: str = Field(description="the verdict in words")
    checks: str = Field(description="the questions that a map is asked, with their answers")
    verdict_kind: MapKind = Field(description="the verdict in one word, by the rules in `rules`")


class MeanCurve(Part):
    """The mean curve of one order."""

    value: tuple[Number, ...] = Field(description="change of the evidence, in its standard deviations")
    low: tuple[Number, ...] = Field(description="lower end of the pointwise 95 % confidence interval")
    high: tuple[Number, ...] = Field(description="upper end of the pointwise 95 % confidence interval")
    n: int = Field(description="patients")


class MapCurves(Part):
    """Curves of leaving places out, or of putting them in."""

    fraction: tuple[Number, ...] = Field(description="share of places left out, or put in")
    orders: dict[str, MeanCurve] = Field(description="by method, and in random order")


class _Pair(Part):
    method: AnyMethod
    other: AnyMethod


class Agreement(Mean, _Pair):  # keys in the order of the bases, the last first
    """Rank correlation of two methods' maps of the same patient."""


class EndpointMaps(Part):
    """The methods evaluated on one endpoint."""

    predicted: Kind = Field(description="kind of the verdict on the model that the maps are of")
    no_finding: str | None = Field(description="why no map of this endpoint is a finding, in words; null where one may be")
    with_tumour: int = Field(description="scored patients with a tumour mask")
    taught: bool = Field(default=False, description="whether training patients' masks taught the network where tumours are")
    methods: dict[AnyMethod, MapResult]
    curves: dict[Order, MapCurves]
    agreement: tuple[Agreement, ...]


class MapEvaluation(Part):
    """How far the maps can be believed."""

    patients: int = Field(description="scored patients")
    settings: MapSettings
    rules: tuple[str, ...] = Field(description="the rules of the verdicts, in words")
    endpoints: dict[str, EndpointMaps]


class ComparatorMaps(Part):
    """A comparator's maps of the same patients, and how far they can be believed."""

    maps: tuple[PatientMaps, ...]
    scores: MapEvaluation | None = Field(description="null where no patient was scored")
    notes: dict[AnyMethod, str] = Field(description="what a map of the method shows, and of Grad-CAM how finely")


class _Shares(Part):
    n: int = Field(description="patients")
    scans: dict[str, Estimate] = Field(description="mean share of each sequence")


class ScoreShares(_Shares):
    """What each sequence adds to an endpoint's score: the size of its Shapley value, up or down, among those of all."""


class _Map(Part):
    method: AnyMethod
    endpoint: str = Field(description="empty for a map that is the same for all endpoints")


class MapShares(_Shares, _Map):  # keys in the order of the bases, the last first
    """What share of a map each sequence has."""


class SequenceShares(Part):
    """Which sequence scores and maps come from."""

    scores: dict[str, ScoreShares] = Field(description="by endpoint")
    maps: tuple[MapShares, ...]


class MapGroup(Part):
    """The patients that one mean map is of."""

    label: str
    title: str = Field(description="the label in words")
    n: int = Field(description="patients")
    file: str | None = Field(description="the mean map; null with too few patients")
    count_file: str | None = Field(default=None, description="patients with brain at each voxel; null with too few patients")


class GroupMaps(Part):
    """The mean maps of two groups of patients, and their difference."""

    method: AnyMethod
    endpoint: str
    groups: tuple[MapGroup, ...]
    largest: Number = Field(description="largest difference, relative to a uniform map")
    p: Number = Field(description="permutation p of so large a difference anywhere, not adjusted over maps")

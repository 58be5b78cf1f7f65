"""Patients in `metrics.json`: Table 1, each patient's results and maps, the worst patients, and how the maps were evaluated."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema.instability import Answer, Retrained
from mri_vit.report.schema.parts import Estimate, Kind, Mean, Number, Part
from mri_vit.settings.sections import AnyMethod

ColumnKind = Literal["number", "words", "label", "follow-up"]
Trait = Literal["finding", "site", "brain_ml", "tumour_share"]
Order = Literal["deletion", "insertion"]  # of positions by their value in a map, highest first: left out, or put in
MapKind = Literal["passes", "unsettled", "fails", "undefined", "none"]  # of the verdict on a method's maps of an endpoint


class Split(Part):
    """One column of the table: patients who are described together."""

    name: str = Field(description="of the column, such as fold 1, or the value that is left out")
    kind: Literal["all", "fold", "left out", "development", "excluded"]
    n: int = Field(description="patients")
    by_chance: Number = Field(
        description="standard deviation of a standardised difference from the patients compared with, were both drawn at random; "
        "null where no patients are compared"
    )


class Cell(Part):
    """One characteristic of one column's patients."""

    known: int = Field(description="patients with a known value")
    missing: int = Field(description="patients without one")
    median: Number = Field(description="of a number; of a follow-up by the reverse Kaplan-Meier estimator; else null")
    low: Number = Field(description="lower quartile of a number; of a follow-up the lower end of its 95 % interval; else null")
    high: Number = Field(description="upper quartile, or upper end; else null")
    mean: Number = Field(description="of a number; else null")
    deviation: Number = Field(description="sample standard deviation of a number; else null")
    counts: tuple[int, ...] = Field(description="patients of each of the row's levels; none of a number or a follow-up")
    difference: Number = Field(
        description="standardised difference from the patients compared with: of a fold or site the others, of the excluded the "
        "included, of a development cohort the evaluated one"
    )


class Row(Part):
    """One characteristic."""

    column: str = Field(description="column of the cohort table, or name of an endpoint")
    kind: ColumnKind
    levels: tuple[str, ...] = Field(description="of words, the most frequent first; of a label what is counted")
    lumped: int = Field(description="rare levels that stand together as the last of `levels`")
    cells: tuple[Cell, ...] = Field(description="of each of the table's splits")


class Table1(Part):
    """The characteristics of the patients."""

    splits: tuple[Split, ...] = Field(description="columns: first all patients who are described, then parts of them")
    rows: tuple[Row, ...]
    left_out: int = Field(description="further clinical columns of the cohort table that are not described")


class PatientResult(Part):
    """One endpoint of a patient: the label, the score, and how wrong it is."""

    truth: bool | None = Field(description="positive, or of survival died; null where the label is not known")
    label: str | None = Field(
        default=None, description="of classes, grades and numbers the label, with a competing event what came; else null"
    )
    predicted: str | None = Field(default=None, description="likewise the prediction in words")
    time_days: Number = Field(description="of survival: days from imaging to death or the last follow-up; else null")
    score: Number = Field(description="mean over repeats, and of a binary endpoint over visits; null without a prediction")
    rank: Number = Field(
        description="place among the scores of the fold, near 0 the lowest, near 1 the highest; mean over repeats"
    )
    pairs: int = Field(
        description="patients of the same fold to compare with: of the other class, or with a known order "
        "of deaths; sum over repeats"
    )
    wrong: Number = Field(description="of these pairs, those that the scores rank the wrong way, ties counting one half")
    error: Number = Field(description="`wrong` / `pairs`; 0.5 by chance; null without a pair")
    retrained: Retrained | None = Field(
        default=None, exclude_if=lambda found: found is None, description="no key of a patient who was predicted by one training"
    )
    answer: Answer | None = Field(
        default=None, exclude_if=lambda found: found is None, description="set with a guarantee; no key where there are none"
    )


class Patient(Part):
    """A patient with a prediction."""

    patient: str
    sessions: tuple[str, ...] = Field(description="visits that were predicted; one without a name where there is one only")
    site: str = Field(description="as in the column `site` of the cohort table; empty where there is none")
    fold: int = Field(description="of the first repeat, counted from 0; of an external evaluation 0")
    endpoints: dict[str, PatientResult]
    findings: tuple[str, ...] = Field(description="what the study's limits of quality found: the reasons of qc.csv")
    maps: tuple[str, ...] = Field(description="ids of the visits that have maps")
    brain_ml: Number = Field(description="volume of the brain of the first visit, in ml; null where it is not known")
    tumour_share: Number = Field(
        description="tumour's share of the brain's positions, of the first scored visit; null without scores or a tumour mask"
    )


class Association(Part):
    """Whether the worst patients differ from the others in one respect."""

    trait: Trait = Field(description="a finding of quality control, the site, or a volume, as in `patients`")
    level: str = Field(description="of a site: the most frequent one among the worst; else empty")
    worst: int = Field(description="worst patients with a known value")
    others: int = Field(description="other patients with a known value")
    of_worst: Number = Field(description="their share with a finding, or from `level`; of a volume the median")
    of_others: Number = Field(description="the same of the others")
    p: Number = Field(
        description="two-sided p, not adjusted: Fisher's exact test of findings, a permutation test of chi-squared of sites, "
        "Mann and Whitney's test of volumes"
    )
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method over all respects and endpoints")
    apart: bool = Field(description="whether the adjusted p shows a difference")


class Failures(Part):
    """The worst patients of an endpoint."""

    model: str = Field(description="whose errors these are")
    patients: tuple[str, ...] = Field(description="names in `patients`, the worst first")
    ranked: int = Field(description="patients in enough pairs to be ranked")
    fewest_pairs: int = Field(description="pairs from which a patient is ranked")
    associations: tuple[Association, ...]
    sentence: str = Field(description="what the worst have in common, in words")


class MapSettings(Part):
    """The settings that a map depends on."""

    methods: tuple[AnyMethod, ...]
    every_class: bool = Field(
        default=False, exclude_if=lambda asked: not asked, description="whether classes that are not predicted have maps too"
    )


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
    of_class: str = Field(
        default="", exclude_if=lambda name: not name, description="the class that is not predicted and has a map all the same"
    )
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
    tokens: int | None = Field(description="grid positions that the model read")
    maps: tuple[ShownMap, ...]

    @property
    def of_prediction(self) -> tuple[ShownMap, ...]:
        """Without those of classes that are not predicted."""
        return tuple(entry for entry in self.maps if not entry.of_class)


class _Stage(Part):
    stage: str = Field(description="the weights that were randomised last, with all before them")


class Stage(Mean, _Stage):  # keys in the order of the bases, the last first
    """Rank correlation with the trained model's map after some weights were randomised, from the top down."""


class MapFigures(Part):
    """One method's maps of one endpoint, evaluated over patients. Falls of the evidence are in its standard deviations."""

    n: int = Field(description="patients")
    deletion: Mean = Field(description="fall of the evidence when positions are left out in the map's order")
    deletion_random: Mean = Field(description="the same in random order")
    deletion_gain: Mean = Field(description="paired difference of the two; above 0, the map's order is better")
    insertion: Mean = Field(description="gap to the full evidence when positions are put in by the map's order")
    insertion_random: Mean = Field(description="the same in random order")
    insertion_gain: Mean = Field(description="paired difference of the two; above 0, the map's order is better")
    hits: Mean = Field(description="share of patients whose map peaks on the tumour")
    hit_chance: Mean = Field(description="the share that a random position has")
    hit_simulated: Mean = Field(description="the share that simulated smooth maps have")
    energy_ratio: Mean = Field(description="the map's share on the tumour over the tumour's share of positions")
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


class MapResult(MapFigures):
    """One method's maps of one endpoint, judged."""

    verdict: str = Field(description="the verdict in words")
    checks: str = Field(description="the checks of the maps, with their answers")
    verdict_kind: MapKind = Field(description="the verdict in one word, by the rules in `rules`")


class MeanCurve(Part):
    """The mean curve of one order."""

    value: tuple[Number, ...] = Field(description="change of the evidence, in its standard deviations")
    low: tuple[Number, ...] = Field(description="lower end of the pointwise 95 % confidence interval")
    high: tuple[Number, ...] = Field(description="upper end of the pointwise 95 % confidence interval")
    n: int = Field(description="patients")


class MapCurves(Part):
    """Curves of leaving positions out, or of putting them in."""

    fraction: tuple[Number, ...] = Field(description="share of positions left out, or put in")
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
    mask_supervised: bool = Field(default=False, description="whether tumour masks of training patients supervised the network")
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

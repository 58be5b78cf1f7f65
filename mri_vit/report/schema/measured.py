"""What is measured before it is judged: plain data that numbers hand to verdicts and words, with the limits that both name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mri_vit.metrics import within_fold
from mri_vit.report.schema.kinds import AnyFigures
from mri_vit.report.schema.parts import ChanceMethod, Drift, Estimate, Measure, Nothing, SiteFigure
from mri_vit.report.schema.patients import Association
from mri_vit.report.schema.survival import CompleteCases, CoxComparison, RiskTest
from mri_vit.settings.recipe import Pretrain

ALPHA = within_fold.ALPHA  # with 95 % intervals throughout
# Below the 0.024 that chance alone gives to an AUC of the 577 pooled patients of Saeed et al. 2023, the two say the same.
MAX_POOLING_GAP = 0.02  # a pooled figure and that within folds; more is tested
# Ten of the rarer class per quantity estimated: Peduzzi et al. 1996, doi:10.1016/S0895-4356(96)00236-3. With ten against ten,
# chance alone gives an AUC a standard error of 0.13.
MIN_EVENTS = 10  # of a subgroup
# Of the rarer class, or deaths, as of a whole cohort that is judged: with fewer a site's variance is mostly a guess.
MIN_OF_SITE = 5
# Of three or four sites the interval by their own differences is as wide as the scale, at any figure that a model may have.
MIN_SITES = 5
PERMUTATIONS = 999  # of sites; (m + 1) a round number, so that p has three exact digits
TABLE_DAYS = (182, 365, 730)  # 6, 12 and 24 months, as in Stupp et al. 2005, doi:10.1056/NEJMoa043330, Table 2
TAU_DAYS = 730.0  # Uno's C and restricted means: up to the last horizon, where the weights of censoring are still small


@dataclass(frozen=True)
class Apart:
    """A pooled figure and that of pairs within a fold, both of the first repeat, that are far apart."""

    pooled: float
    within: float
    repeats: int  # of the run


@dataclass(frozen=True)
class Ordered:
    """An order of the patients that scores follow, though outcome, fold and site are the same."""

    order: str
    correlation: float
    p: float


@dataclass(frozen=True)
class Contradiction:
    """Harrell's and Uno's C that lie further apart than they do in risks of nothing."""

    harrell: float
    uno: float
    p: float


@dataclass(frozen=True)
class Caveats:
    """What limits a result beside its figures; `metrics.json` has it in words."""

    tied: bool  # all scores are equal, so that the model does not distinguish any patients
    apart: Apart | None
    outside: int  # scores of a binary endpoint outside 0 to 1
    like_truth: bool  # the score is the label itself, or every risk follows the order of the deaths
    gap: float  # of probabilities: the least of a positive less the largest of a negative; NaN where there is none to take
    has_cutoffs: bool  # of a survival endpoint: every patient's risk has a threshold from the training fold


@dataclass(frozen=True)
class UnadjustedTest:
    """A `ChanceTest` that is not yet adjusted for those of other models and endpoints."""

    method: ChanceMethod
    value: float
    error: float
    inflation: float
    draws: int | None
    p: float
    p_below: float
    least: float
    least_adjusted: float
    found_80: float
    found_90: float


@dataclass(frozen=True)
class Measurement:
    """One model on one endpoint, measured without regard to any other."""

    figures: AnyFigures
    chance_test: UnadjustedTest
    caveats: Caveats


@dataclass(frozen=True)
class SubgroupFigures:
    """A compared model's AUC or C in one part of the cohort."""

    column: str
    level: str
    model: str
    n: int
    counts: tuple[int, ...]  # of the kind's levels: positive; died; each class
    rarer: int  # patients of the rarer class, or deaths
    value: float
    low: float
    high: float
    beside: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)  # value and ends; none of a small part

    @property
    def small(self) -> bool:
        """Whether it is too small to judge."""
        return self.rarer < MIN_EVENTS


@dataclass(frozen=True)
class AddedValueFigures:
    """What a model's risk adds to the covariates."""

    model: str
    known: int  # patients with a risk and a known outcome
    analysis: CoxComparison | str  # or why there is none
    covariates: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    adjusted_p: Mapping[Literal["risk", "covariates"], float] = field(default_factory=dict)
    beside: Mapping[str, RiskTest | str] = field(default_factory=dict)
    permuted: RiskTest | str | None = None
    imputations: int = 0
    complete_cases: CompleteCases | None = None


@dataclass(frozen=True)
class DriftFigures:
    """How one model's probabilities agree with what is observed, in the run and here: a `CalibrationDrift` without words."""

    days: float
    n_internal: int
    n_external: int
    slope: Drift | None
    intercept: Drift | None
    observed_to_expected: Drift
    excess: Drift


@dataclass(frozen=True)
class Expectation:
    """In which range one model's AUC or C is to be expected in a new hospital: a `NewHospital` without words."""

    measure: Measure
    method: Literal["sites", "assumed"]
    value: float
    low: float
    high: float
    tau: float
    sites: tuple[SiteFigure, ...]
    left_out: int


@dataclass(frozen=True)
class ProbeFigures:
    """How well one model's CLS vector predicts the site."""

    n: int
    sites: int
    balanced_accuracy: Estimate
    chance: float
    p: float


@dataclass(frozen=True)
class Worst:
    """The worst patients of an endpoint, and what they have in common."""

    model: str
    patients: tuple[str, ...]
    ranked: int
    associations: tuple[Association, ...]


@dataclass(frozen=True)
class ModelCosts:
    """What a compared model costs and reaches."""

    model: str
    pretrain: Pretrain | Nothing  # nothing where there was no pretraining
    parameters: int | None
    gflops: float
    patient_seconds: float
    training_seconds: float
    trainings: int | None
    flat: int | None
    mean_score: float

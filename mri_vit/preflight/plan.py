"""Plan: what an endpoint of so many patients can show, and how many a prediction model needs, as numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pydantic import Field

from mri_vit.crossval import comparators, power
from mri_vit.crossval.folds import Split
from mri_vit.crossval.power import Outcomes, found_sentence
from mri_vit.data.cohort import Patient
from mri_vit.data.covariates import clinical_table
from mri_vit.kinds.kind import part, with_article
from mri_vit.report.schema.parts import Number, Part
from mri_vit.report.verdicts import MIN_RARER_GROUP
from mri_vit.run.screen import counted
from mri_vit.settings.schema import Kind, Study

POWERS = (0.8, 0.9)  # that of Cohen 1988 (ISBN 0-8058-0283-5), and that which trials usually plan with


class Minima(Part):
    """Patients that each of three criteria needs; null where no number is enough."""

    needed: dict[str, int | None] = Field(description="by criterion; empty for a kind without a rule")

    @property
    def most(self) -> int | None:
        known = [one for one in self.needed.values() if one is not None]
        return max(known) if len(known) == len(self.needed) else None


class Power(Part):
    """What one endpoint can show, by the test that the report will make."""

    endpoint: str
    kind: Kind
    patients: int = Field(description="whose label is known")
    marked: int = Field(description="positive; or died; or all of another kind")
    results: int = Field(description="endpoints times compared models, whose p are corrected together")
    least: Number = Field(description="least AUC or C that is called better; above 1 where none is, null where none is judged")
    found_80: Number = Field(description="AUC or C that is called better with 80 % power; null where none is")
    found_90: Number = Field(description="likewise with 90 %")
    low: Number = Field(description="lower end of about the 95 % interval that `found_80` will have")
    high: Number = Field(description="upper end")
    sites: int = Field(description="known sites")
    found_within_sites: Number = Field(
        description="`found_80` of pairs within a site and fold, not corrected; null where none is"
    )
    expected: float = Field(description="AUC or C that the rest is of")
    power: Number = Field(description="probability that it is called better")
    parameters: int = Field(description="predictor parameters of a regression")
    development: Minima = Field(description="its patients, by Riley et al. 2019, doi:10.1002/sim.7992")
    validation: Minima = Field(description="to validate it elsewhere, as Riley et al. 2021, doi:10.1002/sim.9025")


def plan(
    endpoint: str, outcomes: Outcomes, share: float, results: int, expected: float, parameters: int, refits: bool = True
) -> Power:
    """What these patients can show.

    `share`: positive, or who die; `expected`: the AUC or C for which sample sizes are given, above 0.5 and below 1.
    `refits`: whether the models will be trained on the patients' other folds; else they come from elsewhere.
    """
    n, of_kind = len(outcomes.labels), outcomes.of_kind
    judged = of_kind.count_rarer(outcomes.labels) >= MIN_RARER_GROUP
    test = outcomes.detection(results, refits)
    found = [test.found(of) if judged else math.nan for of in POWERS]
    low, high = test.interval(found[0])
    sites = outcomes.sites
    within = outcomes.detection(1, refits, within_sites=True).found(POWERS[0]) if sites > 1 and judged else math.nan
    here, elsewhere = (
        Minima(needed={name: int(one) if math.isfinite(one) else None for name, one in vars(of).items()} if of else {})
        for of in of_kind.minima(share, expected, parameters, n * test.error**2) or (None, None)
    )
    return Power(
        endpoint=endpoint,
        kind=outcomes.kind,
        patients=n,
        marked=of_kind.count_marked(outcomes.labels),
        results=results,
        least=test.critical if judged else math.nan,
        found_80=found[0],
        found_90=found[1],
        low=low,
        high=high,
        sites=sites,
        found_within_sites=within,
        expected=expected,
        power=test.power(expected) if judged else math.nan,
        parameters=parameters,
        development=here,
        validation=elsewhere,
    )


def cautions(study: Study, patients: Sequence[Patient], splits: Sequence[Split], covariates: Sequence[str]) -> Iterator[str]:
    """See `power.power_cautions`."""
    return power.power_cautions(patients, study.endpoints, splits, comparators.judged(study, bool(covariates)))


def of_study(study: Study, patients: Sequence[Patient], splits: Sequence[Split], covariates: Sequence[str]) -> tuple[Power, ...]:
    """What each endpoint with a defined test can show; parameters are those of the clinical columns and the network's score."""
    site_of = {p.subject: p.clinical.get("site", "") for p in patients}
    outcomes = {endpoint: power.of_patients(patients, endpoint, splits, site_of) for endpoint in study.endpoints}
    defined = {endpoint: one for endpoint, one in outcomes.items() if one.detection().error > 0}
    results = len(defined) * comparators.judged(study, bool(covariates))
    table = clinical_table(patients, covariates)
    parameters = 1 + sum(1 if table[name].dtype == float else max(1, table[name].nunique() - 1) for name in covariates)
    return tuple(
        plan(endpoint.name, one, one.marked, results, one.of_kind.expected, parameters) for endpoint, one in defined.items()
    )


def sentences(one: Power) -> Iterator[str]:
    """What a reader has to know, a sentence each."""
    of_kind = part(one.kind, "labels")
    symbol, marked = of_kind.symbol, f" ({one.marked} {of_kind.marked_as})" if of_kind.marked_as else ""
    corrected = f", corrected for {one.results} results" * (one.results > 1)
    head = f"{one.endpoint}, {one.patients:,} patients{marked}"
    if math.isnan(one.least):
        yield f"{head}: nothing is judged with fewer than {MIN_RARER_GROUP} {of_kind.rarer}"
    elif one.least > 1:
        yield f"{head}: no {symbol} can be called better than chance{corrected}"
    else:
        yield f"{head}: the least {symbol} that is called better than chance is {one.least:.2f}{corrected}"
    if not math.isnan(one.found_80):
        yield (
            f"{found_sentence(symbol, one.found_80, one.found_90)}, one of {one.expected:.2f} in {100 * one.power:.0f}; "
            f"the interval of {one.found_80:.2f} is about {one.low:.2f} to {one.high:.2f}"
        )
    if one.sites > 1 and not math.isnan(one.least):
        found = "none is found" if math.isnan(one.found_within_sites) else f"one of {one.found_within_sites:.2f} is found in 80"
        yield f"among patients of one of {one.sites} sites, by a test that is not corrected, {found}"
    here, elsewhere = one.development, one.validation
    if not here.needed:
        return
    yield (
        f"for {with_article(symbol)} of {one.expected:.2f}, a regression of "
        f"{counted(one.parameters, 'parameter')} needs {_patients(here.most)} patients (Riley's criteria 1 to 3: "
        f"{_each(here)}), its validation elsewhere {_patients(elsewhere.most)} (O:E, slope, {symbol}: {_each(elsewhere)})"
    )


def _each(minima: Minima) -> str:
    return "; ".join(map(_patients, minima.needed.values()))


def _patients(count: int | None) -> str:
    return "no number of" if count is None else f"{count:,}"

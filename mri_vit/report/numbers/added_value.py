"""Whether a model's risk adds to age and molecular markers: a run and a survival endpoint in, the analyses out.

Patients are those with a risk and a known outcome. For hazard ratios and tests, covariates that some lack are imputed several
times with the outcome; C, which must not know it, is that of the patients who have every covariate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from mri_vit.data.cohort import visit_id
from mri_vit.metrics.added_value import (
    Concordances,
    Patients,
    RepeatScores,
    added_value,
    concordances,
    pooled,
    pooled_risk_test,
    risk_given_covariates,
    standardised,
)
from mri_vit.metrics.checked import Events
from mri_vit.metrics.comparison import Comparison, holm
from mri_vit.metrics.competing_risks import cumulative_hazard
from mri_vit.metrics.cox import NotEstimableError, dependent
from mri_vit.metrics.imputation import MIN_IMPUTATIONS, chained_equations, imputations
from mri_vit.report.numbers import chance
from mri_vit.report.numbers.judged import flags, floats, fold_of
from mri_vit.report.reading.run import Run
from mri_vit.report.schema import measured
from mri_vit.report.schema.measured import AddedValueFigures
from mri_vit.report.schema.parts import OWN, Estimate
from mri_vit.report.schema.survival import CompleteCases, CoxComparison, RiskTest
from mri_vit.settings.recipe import INTENSITY, PERMUTED, SHUFFLED, VOLUME
from mri_vit.settings.schema import Endpoint

ASSIGNED_FOLDS = 5  # for the Cox regressions' own coefficients where the run has no folds; Kohavi 1995: five or ten
MAX_MISSING_SHARE = 0.5  # of the patients: a column that most of them lack would decide who is analysed
FROM_SCANS = (VOLUME, INTENSITY)  # controls that read the scans: the simplest explanations of a network's risk


@dataclass(frozen=True, eq=False)
class Selection:
    """The patients, in a table for each imputation, and those with every covariate; what is adjusted for, how many patients lack
    what, and what is left out and why.
    """

    tables: tuple[Patients, ...]
    complete: Patients
    covariates: tuple[str, ...]
    missing: dict[str, int]
    left_out: dict[str, str]


def measure(run: Run, endpoint: Endpoint, tables: Mapping[str, pd.DataFrame], shown: Sequence[str]) -> AddedValueFigures | None:
    """Hold the risk of the study's own model, else of the first that is shown, against the covariates; None without a model.

    `tables` are each model's rows, as `judged.known_rows` gives them. Where there is no analysis, the result says why.
    """
    model = next((name for name in (*shown, *tables) if name in tables and name not in PERMUTED), None)
    if model is None:
        return None
    rows, seed = tables[model], run.study.seed
    known, selected = int(rows.patient.nunique()), {}
    inflation = chance.inflation(rows, run.design)
    try:
        table, too_sparse = _covariates(run, rows)
        selection = _selected(table, rows, seed)
        selected = {
            "covariates": selection.covariates,
            "missing": selection.missing,
            "left_out": too_sparse | selection.left_out,
            "imputations": len(selection.tables) if len(selection.tables) > 1 else 0,
            "complete_cases": _complete_cases(selection.complete, inflation) if len(selection.tables) > 1 else None,
        }
        analysis = _analysis(selection, inflation)
    except NotEstimableError as error:
        return AddedValueFigures(model, known, str(error), **selected)
    p_risk, p_covariates = holm(np.array([analysis.test.p, analysis.reverse.p])).tolist()
    controls = [name for name in FROM_SCANS if name in tables and name != model] if p_risk <= measured.ALPHA else []
    has_permuted = model == OWN and SHUFFLED in tables
    return AddedValueFigures(
        model=model,
        known=known,
        analysis=analysis,
        **selected,
        adjusted_p={"risk": p_risk, "covariates": p_covariates},
        beside={name: _attempt(_with_control(table, name, tables[name]), rows, seed, inflation) for name in controls},
        permuted=_attempt(table, tables[SHUFFLED], seed, inflation) if has_permuted else None,
    )


def _attempt(table: pd.DataFrame, rows: pd.DataFrame, seed: int, inflation: float) -> RiskTest | str:
    """The test of another risk, or why there is none; of few tables, for it is read beside that of all."""
    try:
        return _risk_test(_selected(table, rows, seed).tables[:MIN_IMPUTATIONS], inflation)
    except NotEstimableError as error:
        return str(error)


def _complete_cases(patients: Patients, inflation: float) -> CompleteCases:
    """The test of the same risk in those who have every covariate."""
    try:
        test: RiskTest | str = _risk_test((patients,), inflation)
    except NotEstimableError as error:
        test = str(error)
    return CompleteCases(n=len(patients.days), deaths=int(patients.died.sum()), test=test)


def _risk_test(tables: Sequence[Patients], inflation: float) -> RiskTest:
    return RiskTest.model_validate(asdict(pooled_risk_test([risk_given_covariates(one, inflation) for one in tables])))


def _analysis(selection: Selection, inflation: float) -> CoxComparison:
    result = pooled([added_value(one, inflation) for one in selection.tables])
    return CoxComparison.model_validate(asdict(result) | _concordances(selection.complete))


def _concordances(complete: Patients) -> dict[str, Estimate]:
    """The figures of C by name; NaN where too few have every covariate, or their risk does not vary."""
    try:
        found = concordances(complete)
    except NotEstimableError:
        unknown = Estimate(value=math.nan, low=math.nan, high=math.nan)
        return dict.fromkeys((field.name for field in fields(Concordances)), unknown)
    return {
        name: Estimate(value=one.difference if isinstance(one, Comparison) else one.value, low=one.low, high=one.high)
        for name, one in vars(found).items()
    }


def _visits(rows: pd.DataFrame, table: pd.DataFrame) -> list[str]:
    """The visit of each row; the patient, where a table from elsewhere names visits that the cohort table does not have."""
    ids = ((visit_id(patient, session), patient) for patient, session in zip(rows.patient, rows.session, strict=True))
    return [visit if visit in table.index else patient for visit, patient in ids]


def _covariates(run: Run, rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """The covariates that most of the patients have, by visit; and those that are not taken, with the reason."""
    if isinstance(run.covariates, str):
        raise NotEstimableError(f"the cohort table gives no covariates ({run.covariates})")
    table = run.covariates
    share = {str(name): float(column.isna().mean()) for name, column in table.reindex(_visits(rows, table)).items()}
    too_sparse = {
        name: f"is missing in {100 * missing:.0f} % of the patients"
        for name, missing in share.items()
        if missing > MAX_MISSING_SHARE
    }
    if len(too_sparse) == len(share):
        reasons = "; ".join(f"{name} {why}" for name, why in too_sparse.items())
        raise NotEstimableError(f"the cohort table has 0 covariates that most patients have{f' ({reasons})' if reasons else ''}")
    return table.drop(columns=list(too_sparse)), too_sparse


def _with_control(table: pd.DataFrame, control: str, rows: pd.DataFrame) -> pd.DataFrame:
    """One covariate more: the control's out-of-fold risk, standardised as the network's is, mean over repeats."""
    risk = pd.Series(standardised(floats(rows.score), fold_of(rows)), index=pd.Index(_visits(rows, table)))
    return table.assign(**{f"risk by {control}": risk.groupby(level=0).mean().reindex(table.index)})


def _selected(table: pd.DataFrame, rows: pd.DataFrame, seed: int) -> Selection:
    """The patients of every repeat, their covariates in numbers and complete. Raises NotEstimableError without a covariate."""
    rows = rows.assign(visit=_visits(rows, table))
    risks = rows.pivot(index="visit", columns="repeat", values="score").dropna().sort_index()
    folds = rows.pivot(index="visit", columns="repeat", values="fold").reindex(risks.index)
    cells = table.reindex(risks.index)
    missing = {str(name): int(column.isna().sum()) for name, column in cells.items() if column.isna().any()}
    if not cells.notna().to_numpy().any():
        counts = ", ".join(f"{name} of {count}" for name, count in missing.items())
        raise NotEstimableError(f"0 of {len(risks)} patients have a covariate (missing: {counts})")
    outcome = rows.drop_duplicates("visit").set_index("visit").reindex(cells.index)
    days, died = floats(pd.Series(outcome.time_days)), flags(pd.Series(outcome.event))
    columns, covariate, left_out = coded(cells)
    repeats = [_scores(floats(pd.Series(risks[repeat])), folds[repeat].to_numpy(int), seed) for repeat in risks]
    competing = flags(pd.Series(outcome.competing)) if "competing" in outcome else None
    filled = completed(columns, covariate, Patients(days, died, columns, repeats), competing, seed)
    left_out |= (wrong := dependent(filled[0], [scores.network for scores in repeats]))
    kept = [name for name in columns if name not in wrong]
    if not kept:
        raise NotEstimableError(f"no covariate varies: {'; '.join(f'{name} {why}' for name, why in left_out.items())}")
    return Selection(
        tables=tuple(Patients(days, died, one.loc[:, kept], repeats) for one in filled),
        complete=of_complete(Patients(days, died, columns.loc[:, kept], repeats)),
        covariates=tuple(dict.fromkeys(covariate[name] for name in kept)),
        missing=missing,
        left_out=left_out,
    )


def completed(
    columns: pd.DataFrame, covariate: Mapping[str, str], of: Patients, competing: Events | None, seed: int
) -> list[pd.DataFrame]:
    """The columns, completed as often as is needed; as they are where nothing is missing.

    The imputation has what the regressions have: the risk (its mean over repeats), the event and its cumulative hazard, and those
    of a competing event.
    """
    tables = imputations(float(np.isnan(columns.to_numpy()).any(axis=1).mean()), len(columns) * len(of.repeats))
    if not tables:
        return [columns]
    risk = np.mean([standardised(scores.risk, scores.network) for scores in of.repeats], axis=0)
    events = [of.died] if competing is None else [of.died, competing]
    beside = np.column_stack([risk, *events, *(cumulative_hazard(of.days, event, of.days) for event in events)]).astype(float)
    names = list(columns)
    variables = [
        [place for place, name in enumerate(names) if covariate[name] == one] for one in dict.fromkeys(covariate.values())
    ]
    found = chained_equations(columns.to_numpy(float), variables, beside, tables, np.random.default_rng(seed))
    return [pd.DataFrame(one, columns.index, columns.columns) for one in found]


def of_complete(patients: Patients) -> Patients:
    """Those who have every covariate, if any."""
    whole = ~np.isnan(patients.covariates.to_numpy()).any(axis=1)
    repeats = [RepeatScores(one.risk[whole], one.network[whole], one.fold[whole]) for one in patients.repeats]
    return Patients(patients.days[whole], patients.died[whole], patients.covariates.loc[whole], repeats)


def _scores(risk: Float[np.ndarray, " n"], fold: Int[np.ndarray, " n"], seed: int) -> RepeatScores:
    if len(np.unique(fold)) > 1:
        return RepeatScores(risk, fold, fold)
    return RepeatScores(risk, fold, np.random.default_rng(seed).permutation(len(risk)) % ASSIGNED_FOLDS)


def coded(cells: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str], dict[str, str]]:
    """Covariates in numbers, each column named by what its hazard ratio is of; the covariate of each; those left out and why.

    What is missing is NaN. A number is divided by its standard deviation; of two values the higher is held against the lower, of
    several words each against the most frequent one.
    """
    columns: dict[str, np.ndarray] = {}
    covariate, left_out = {}, {}
    for name, column in cells.items():
        before = len(columns)
        counted = column.value_counts().sort_index(kind="stable").sort_values(ascending=False, kind="stable")
        levels = counted.index.tolist()  # the most frequent first
        if len(levels) < 2:
            left_out[str(name)] = f"is {_level(levels[0])} for all" if levels else "is missing for all"
        elif column.dtype == float and len(levels) > 2:
            deviation = float(column.std())
            columns[f"{name}, per {deviation:.3g} (SD)"] = ((column - column.mean()) / deviation).to_numpy(float)
        else:
            reference = min(levels) if column.dtype == float else levels[0]
            for level in sorted(set(levels) - {reference}):
                columns[f"{name}: {_level(level)} vs {_level(reference)}"] = (
                    (column == level).astype(float).where(column.notna()).to_numpy()
                )
        covariate |= dict.fromkeys(list(columns)[before:], str(name))
    return pd.DataFrame(columns, index=cells.index), covariate, left_out


def _level(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

"""Numbers: two runs in, what their models differ by on the common patients out, without a word of judgement.

n is the number of patients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.compared.document import Compared, EndpointCompared, Kind, Role
from mri_vit.compared.runs import Rows, Runs
from mri_vit.data import predictions
from mri_vit.metrics import comparison, within_fold
from mri_vit.metrics.delong import Comparison as Tested
from mri_vit.metrics.within_fold import WithinFold
from mri_vit.report.numbers import chance
from mri_vit.report.numbers.chance import ALPHA, Background
from mri_vit.report.numbers.judged import averaged, by_fold, flags, floats
from mri_vit.report.reading import tables
from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.parts import Estimate
from mri_vit.report.schema.run import Design
from mri_vit.report.verdicts.models import FEWEST
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.models import is_candidate

MEASURES = {"binary": "auc", "survival": "harrell_c"}


def measure(runs: Runs) -> dict[str, EndpointCompared]:
    """Every model that both runs have, by endpoint; endpoints without one are left out. Verdicts are still empty.

    p are adjusted by Holm's method over all models and endpoints that are `tested`.
    """
    designs = runs.a.run.design, runs.b.run.design
    found = {
        endpoint.name: {rows.model: _compared(endpoint, rows, designs) for rows in runs.rows[endpoint.name]}
        for endpoint in runs.endpoints
        if runs.rows[endpoint.name]
    }
    kinds = {endpoint.name: endpoint.kind for endpoint in runs.endpoints}
    every = [one.p if tested(kinds[name], one) else np.nan for name, models in found.items() for one in models.values()]
    adjusted = iter(comparison.holm(np.array(every, dtype=float)).tolist())
    return {
        endpoint.name: EndpointCompared.model_validate(
            {
                "kind": endpoint.kind,
                "measure": MEASURES[endpoint.kind],
                "models": {model: _judged(one, next(adjusted)) for model, one in found[endpoint.name].items()},
            }
        )
        for endpoint in runs.endpoints
        if endpoint.name in found
    }


def tested(kind: str, one: Compared) -> bool:
    """Whether there is a test: not of equal predictions, and not of too few."""
    return not one.same_predictions and not few(kind, one)


def few(kind: str, one: Compared) -> bool:
    """Whether there are, as for a report, too few patients of a class, or with an event, to judge."""
    return (min(one.marked, one.n - one.marked) if kind == "binary" else one.marked) < FEWEST


def same_folds(runs: Runs) -> bool:
    """Whether every common patient was tested in the same fold of each repeat."""
    return all(divided_alike(rows) for of_endpoint in runs.rows.values() for rows in of_endpoint)


def inflation(runs: Runs) -> float:
    """The largest factor that a standard error is multiplied by (see `test`)."""
    designs = runs.a.run.design, runs.b.run.design
    return max(_inflation(rows, designs) for of_endpoint in runs.rows.values() for rows in of_endpoint)


def divided_alike(rows: Rows) -> bool:
    """Whether the patients of a pair of tables are in the same fold of each repeat."""
    columns = ["repeat", "patient", "fold"]
    return rows.a[columns].astype(str).equals(rows.b[columns].astype(str))


def test(endpoint: Endpoint, rows: Rows, designs: tuple[Design, Design]) -> Tested:
    """The difference of two runs' figures, A less B, and the two-sided test that it is zero.

    Definition: each run's figure is of the pairs within its own folds. Both are sums over the same patients, so the test pairs
    patients, not pairs: z is the difference over the root of the sum of squared differences of each patient's influences on the
    two figures, times an inflation for refitting. Who is in whose fold is an attribute of a patient, as a score is, and an
    influence holds it; so the folds need not be the same.
    Formula: of the same folds that of `compare.versus`: repeat by repeat, with its inflation. Of different folds repeat r of A
    has nothing to do with repeat r of B: the influences are averaged over each run's repeats first, which takes off what
    the inflation of several repeats would take off; so it is that of one, √2.
    Assumption: patients are independent, and influences add up (large n, as for DeLong). Scores are near linear in the labels, by
    which √2 is an upper bound without a signal (`within_fold.inflation`). The bound holds of a difference whatever the folds are:
    without a signal each figure is a sum over two patients i, j of M_ij y_i y_j, with M_ij 0 where one did not teach the other's
    model, and so is the difference, M being A's less B's. Its variance is the sum of M_ij (M_ij + M_ji), at most twice the sum of
    M_ij², which is what the squared influences expect. Scores of patients who taught no model add a sum over single patients,
    for which twice is too much, never too little; two runs of these have no inflation.
    Not in it: which of all trainings with these settings this one is (seed, and by luck of the folds).
    Source: see `within_fold.compared`.

    Returns
    -------
    Comparison; p 1 for figures without any difference and variance; all but the difference NaN where it cannot be tested.
    """
    ours, theirs = (chance.within_folds(endpoint, table) for table in (rows.a, rows.b))
    if not divided_alike(rows):
        ours, theirs = [over_repeats(ours)], [over_repeats(theirs)]
    return within_fold.compared(ours, theirs, _inflation(rows, designs))


def _inflation(rows: Rows, designs: tuple[Design, Design]) -> float:
    if divided_alike(rows):
        return max(chance.inflation(table, design) for table, design in zip((rows.a, rows.b), designs, strict=True))
    folds = int(max(table.fold.nunique() for table in (rows.a, rows.b)))
    return within_fold.inflation(folds)


def over_repeats(found: Sequence[WithinFold]) -> WithinFold:
    """The mean of the repeats, patient by patient."""
    return WithinFold(
        float(np.mean([one.value for one in found])),
        float(np.mean([one.error for one in found])),
        np.mean([one.influence for one in found], axis=0),
    )


def ranks(rows: pd.DataFrame) -> Float[np.ndarray, " n"]:
    """Each patient's rank within the fold, 0 the lowest score and 1 the highest, mean over repeats; in order of patients.

    Scores of two folds are of two networks, whose scales may differ; the figure that is judged compares within folds alone.
    """
    parts = [(fold.patient, (fold.score.rank() - 1) / max(len(fold) - 1, 1)) for _, _, fold in by_fold(rows)]
    patient, share = (pd.concat(column, ignore_index=True) for column in zip(*parts, strict=True))
    return pd.DataFrame({"patient": patient, "share": share}).groupby("patient", sort=True).share.mean().to_numpy(dtype=float)


def marked(endpoint: Endpoint, rows: pd.DataFrame) -> np.ndarray:
    """Whether each patient is positive, or has had the event, in order of patients."""
    people = averaged(rows)
    return flags(people.truth if endpoint.kind == "binary" else people.event)


def _compared(endpoint: Endpoint, rows: Rows, designs: tuple[Design, Design]) -> Compared:
    found = test(endpoint, rows, designs)
    a, b = (_figure(endpoint, table, design) for table, design in zip((rows.a, rows.b), designs, strict=True))
    of_patients = marked(endpoint, rows.a)
    same = divided_alike(rows) and bool((floats(rows.a.score) == floats(rows.b.score)).all())
    role: Role = "own" if rows.model == OWN else "comparator" if is_candidate(rows.model) else "control"
    return Compared(
        role=role,
        n=len(of_patients),
        marked=int(of_patients.sum()),
        a=a,
        b=b,
        **vars(found),
        p_adjusted=float("nan"),
        same_predictions=same,
        agreement=_correlation(ranks(rows.a), ranks(rows.b)),
        kind="undefined",
        verdict="",
    )


def _figure(endpoint: Endpoint, rows: pd.DataFrame, design: Design) -> Estimate:
    """What a report of these patients alone would judge."""
    nothing = Background(design, tables.empty(predictions.NULL_COLUMNS), tables.empty(predictions.SEED_COLUMNS), {})
    return chance.measure(endpoint, rows, nothing).judged


def _correlation(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) > 0 and np.ptp(b) > 0 else float("nan")


def _judged(one: Compared, p_adjusted: float) -> Compared:
    """With its adjusted p, by which alone it is judged; NaN where nothing was tested."""
    return one.model_copy(update={"p_adjusted": p_adjusted, "kind": _kind(one, p_adjusted)})


def _kind(one: Compared, p_adjusted: float) -> Kind:
    if one.same_predictions:
        return "same"
    if np.isnan(p_adjusted):
        return "undefined"
    if p_adjusted > ALPHA:
        return "alike"
    return "a" if one.difference > 0 else "b"

"""Each patient's error: the pairs with others of the fold that the model ranks the wrong way, counted here one by one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made.maps import write_maps, write_scores
from made.run import ODD_IDS, TWO_VISITS, make_run

from mri_vit.report import assembly
from mri_vit.report.numbers import patients
from mri_vit.report.numbers.judged import known_rows
from mri_vit.report.reading import run as reading
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.patients import Patient


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    made = make_run(tmp_path_factory.mktemp("runs") / "made", repeats=2, models=("vit", "clinical"))
    write_maps(made, [*ODD_IDS[:2], "A_b.c-D_b"], ["mgmt"])
    told = made / "maps" / "A_b.c-D_b" / "map.json"
    told.write_text(told.read_text().replace('"subject": "A_b.c-D_b"', '"subject": "A_b.c-D"'))
    write_scores(made, ["mgmt"])  # whose sample of a tumour is a tenth of the brain
    header = "patient,reason,scan,figure,became,words\n"
    rows = "007,turned,,6,flagged,it leans\nA_b.c-D_b,noise,t1,2,kept,it is noisy\nA_b.c-D_b,noise,t2,2,kept,it is noisy\n"
    (made / "qc.csv").write_text(header + rows)
    return reading.read_run(made)


@pytest.fixture(scope="module")
def people(run) -> dict[str, Patient]:
    return {one.patient: one for one in patients.measure(run, {one.name: "vit" for one in run.study.endpoints})}


def wrong_of(name: str, rows: pd.DataFrame, kind: str) -> tuple[float, int]:
    """A patient's pairs, looked at one by one."""
    wrong, pairs = 0.0, 0
    for own in rows.loc[rows.patient == name].itertuples():
        for other in rows.loc[(rows.repeat == own.repeat) & (rows.fold == own.fold)].itertuples():
            if kind == "binary":
                higher, lower = (own, other) if own.truth else (other, own)
                comparable = own.truth != other.truth
            else:
                higher, lower = sorted((own, other), key=lambda row: (row.time_days, not row.event))
                first = higher.time_days < lower.time_days or not lower.event
                comparable = higher.patient != lower.patient and higher.event and first
            if comparable:
                pairs += 1
                wrong += 0.5 if higher.score == lower.score else float(higher.score < lower.score)
    return wrong, pairs


@pytest.mark.parametrize("name", ["mgmt", "os"])
def test_an_error_is_the_share_of_the_pairs_of_the_fold_that_are_ranked_the_wrong_way(run, people, name):
    endpoint = next(e for e in run.study.endpoints if e.name == name)
    rows = known_rows(run.predictions, endpoint, "vit")
    for patient in rows.patient.unique()[:15]:
        wrong, pairs = wrong_of(patient, rows, endpoint.kind)
        found = people[patient].endpoints[name]
        assert (found.wrong, found.pairs) == (
            (pytest.approx(wrong), pairs) if pairs else (pytest.approx(math.nan, nan_ok=True), 0)
        )


@pytest.mark.parametrize("name", ["mgmt", "pten", "os"])
def test_errors_weighted_by_their_pairs_add_up_to_what_the_judged_figure_lacks(run, people, name):
    one = replace(run, predictions=run.predictions.loc[run.predictions.repeat == 0])
    judged = assembly.metrics(one).endpoints[name].models["vit"].judged.value
    found = [patient.endpoints[name] for patient in patients.measure(one, {one.name: "vit" for one in run.study.endpoints})]
    pairs = [result.pairs for result in found if result.pairs]
    assert np.average([result.error for result in found if result.pairs], weights=pairs) == pytest.approx(1 - judged)


def test_who_has_no_known_label_has_a_score_and_no_error(run, people):
    unknown = set(run.cohort.patient[(run.cohort.mgmt == "")]) & set(people)
    assert unknown
    for name in unknown:
        found = people[name].endpoints["mgmt"]
        assert (found.truth, found.pairs) == (None, 0)
        assert math.isfinite(found.score)
        assert math.isnan(found.error)


def test_everybody_with_a_prediction_is_there_once_in_the_order_of_the_table(run, people):
    assert list(people) == [name for name in run.cohort.patient if name in set(run.predictions.patient)]
    assert people[TWO_VISITS[0]].sessions == ("a", "b")
    assert people["007"].sessions == ("",)


def test_a_rank_does_not_change_when_a_fold_s_scores_are_stretched(run, people):
    own_scale = run.predictions.score * (1 + run.predictions.fold) + 10 * run.predictions.fold
    stretched = replace(run, predictions=run.predictions.assign(score=own_scale))
    for one in patients.measure(stretched, {one.name: "vit" for one in run.study.endpoints}):
        before = people[one.patient].endpoints["os"]
        assert one.endpoints["os"].error == pytest.approx(before.error, nan_ok=True)
        assert one.endpoints["os"].rank == pytest.approx(before.rank)
        assert 0 < before.rank < 1


def test_findings_maps_and_tumour_belong_to_the_patient_whose_visit_it_is(people):
    assert people["007"].findings == ("turned",)
    assert people["A_b.c-D"].findings == ("noise",)
    assert people["NA"].findings == ()
    assert people["A_b.c-D"].maps == ("A_b.c-D_b",)
    assert people["007"].maps == ("007",)
    assert people["007"].tumour_share == pytest.approx(0.1)


def test_a_table_without_a_candidate_has_no_patients(run):
    controls = replace(run, predictions=run.predictions.loc[run.predictions.model == "clinical"])
    assert assembly.metrics(controls).patients == ()


def test_each_endpoint_has_the_scores_of_its_own_first_model(tmp_path):
    run = reading.read_run(make_run(tmp_path / "run", models=("alpha", "beta", "clinical")))
    table = run.predictions
    apart = table.loc[
        ~((table.model == "alpha") & (table.endpoint == "os")) & ~((table.model == "beta") & (table.endpoint != "os"))
    ]
    found = assembly.metrics(replace(run, predictions=apart))
    for one in found.patients:
        for name, model in (("mgmt", "alpha"), ("os", "beta")):
            own = apart.loc[(apart.model == model) & (apart.endpoint == name) & (apart.patient == one.patient)]
            assert one.endpoints[name].score in own.score.tolist() or len(own) > 1  # of two visits it is a mean
    assert {name: one.model for name, one in found.failures.items() if name in ("mgmt", "os")} == {"mgmt": "alpha", "os": "beta"}

"""An endpoint with a competing event: which cells it reads, what heads and regressions learn, and what they predict."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from mri_vit.data import cohort, predictions
from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.errors import UsageError
from mri_vit.kinds.kind import labels, part
from mri_vit.metrics import competing_risks
from mri_vit.model import heads, network
from mri_vit.settings.schema import Endpoint

ALONE = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
COMPETING = ALONE.model_copy(update={"competing": "death of another cause"})
FROM_R = "patient,os_days,os_event\np1,306,2\np2,455,2\np3,1010,1\np4,210,2\n"  # survival::lung's first patients


def drawn(n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """A risk, and days and events 0, 1 and 2; the risk is of the event alone."""
    random = np.random.default_rng(0)
    risk = random.normal(size=n)
    event, other, left = random.exponential(600 * np.exp(-0.5 * risk)), random.exponential(900, n), random.uniform(100, 1500, n)
    days = np.ceil(np.minimum.reduce([event, other, left]))
    code = np.select([event < np.minimum(other, left), other < left], [1.0, 2.0])
    return risk, np.stack([days, code], axis=1)


def fitted(endpoint: Endpoint, rows: torch.Tensor, kind: str, intervals: int, weighted: bool) -> heads.Head:
    head = heads.from_labels(endpoint, rows, kind, intervals, weighted)
    assert head is not None
    return head


def test_a_two_is_refused_with_its_row_and_the_cure_unless_it_is_named(tmp_path: Path):
    """R codes a death as 2 and a censored patient as 1: read in silence, all who lived would have died."""
    table = tmp_path / "cohort.csv"
    table.write_text(FROM_R)
    with pytest.raises(UsageError, match=r"row 2, column os_event: '2'; expected 0, 1, or empty; .*competing.*subtract 1"):
        cohort.read(table, (ALONE,), needed=())
    codes = [patient.labels["os_event"] for patient in cohort.read(table, (COMPETING,), needed=())]
    assert codes == [2, 2, 1, 2]


def test_rs_codes_are_suspected_where_a_two_is_named():
    rows = np.array([[306.0, 2.0], [455.0, 2.0], [1010.0, 1.0]])
    (words, of), *_ = labels(COMPETING).remarks(COMPETING, rows, {})
    assert "no patient has 0, censored" in words
    assert "R's codes" in words
    assert not of
    (words, _), *_ = labels(COMPETING).remarks(COMPETING, np.array([[306.0, 0.0], [455.0, 1.0]]), {})
    assert "no patient has 2, death of another cause" in words
    assert not list(labels(COMPETING).remarks(COMPETING, np.array([[306.0, 0.0], [455.0, 1.0], [500.0, 2.0]]), {}))
    assert not list(labels(ALONE).remarks(ALONE, np.array([[306.0, 1.0], [455.0, 1.0]]), {}))


def test_neither_event_is_on_day_0():
    assert labels(COMPETING).row_fault(COMPETING, {"os_days": 0.0, "os_event": 2.0}, {"os_days": True, "os_event": True})


def test_a_two_in_a_table_of_predictions_needs_its_endpoint(tmp_path: Path):
    table = tmp_path / "predictions.csv"
    table.write_text("patient,endpoint,score,time_days,event\np1,os,0.1,100,1\np2,os,0.2,200,2\n")
    with pytest.raises(UsageError, match=r"row 3, column event: '2'; expected 0, 1, or empty; .*--competing"):
        predictions.load(table, [ALONE])
    rows = labels(COMPETING).known_rows(COMPETING, predictions.load(table, [COMPETING]))
    assert rows.event.tolist() == [True, False]
    assert rows.competing.tolist() == [False, True]
    assert labels(COMPETING).arrays(rows)[0].tolist() == [[100, 1], [200, 2]]


def test_folds_are_balanced_over_both_events_and_need_the_predicted_one_alone():
    rows = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    strata = labels(COMPETING).strata(COMPETING, rows)
    assert strata == ["0", "1", "2"]
    assert labels(COMPETING).needed(Counter(strata)) == {"1"}
    assert labels(COMPETING).counted(COMPETING, Counter(strata)) == "1 patients with 1, 1 with 2 and 1 with 0"


def test_a_head_learns_the_events_own_hazard():
    """Who had the other event is censored on that day: the loss and where training starts are the same."""
    _, known = drawn(400)
    censored = known * [1, 1]
    censored[censored[:, 1] == 2, 1] = 0
    for kind in ("hazard", "cox"):
        both = [
            (fitted(endpoint, torch.tensor(rows), kind, 5, False), torch.tensor(rows))
            for endpoint, rows in ((COMPETING, known), (ALONE, censored))
        ]
        output = torch.randn(400, both[0][0].width, generator=torch.Generator().manual_seed(0))
        losses = [heads.loss(head, output, rows.float()) for head, rows in both]
        assert both[0][0].cuts_days == both[1][0].cuts_days
        assert float(losses[0]) == pytest.approx(float(losses[1]))
        completed = [heads.of(head.endpoint).completed(head, output, rows.float()) for head, rows in both]
        scores = [heads.scores(head, output) for head in completed]
        assert torch.equal(*scores)


@pytest.mark.parametrize("kind", ["hazard", "cox"])
def test_a_heads_chance_of_the_event_is_the_cumulative_incidence(kind: str):
    _, known = drawn()
    rows = torch.tensor(known).float()
    head = fitted(COMPETING, rows, kind, 20, False)
    output = (heads.bias(head, rows) if kind == "hazard" else torch.zeros(1)).expand(len(rows), -1)
    head = heads.of(COMPETING).completed(head, output, rows)
    free = heads.survival(head, output[:1])
    assert free is not None
    days, event = known.T
    observed = [1 - competing_risks.incidence_at(days, event == 1, event == 2, day)[0] for day in head.cuts_days]
    assert free[0].tolist() == pytest.approx(observed, abs=0.01)
    alone = heads.survival(fitted(ALONE, rows, kind, 20, False), output[:1]) if kind == "hazard" else None
    assert alone is None or float(alone[0, -1]) < float(free[0, -1]) - 0.1  # as though the other event could not happen


def test_a_head_keeps_its_other_hazard_in_a_file_and_an_older_file_has_none():
    head = heads.Head(COMPETING, "hazard", (7.0, 14.0), other_hazard=(0.1, 0.3))
    fields = network._described(head)
    assert fields["other_hazard"] == (0.1, 0.3)
    assert fields["endpoint"]["competing"] == "death of another cause"
    plain = network._described(heads.Head(ALONE, "hazard", (7.0, 14.0)))
    assert "other_hazard" not in plain
    assert "competing" not in plain["endpoint"]


def test_a_regressions_chance_of_the_event_is_calibrated():
    risk, known = drawn()
    learned = part("survival", "regression").fit(COMPETING, pd.DataFrame({"x": risk}), known)
    free = learned.survival(pd.DataFrame({"x": risk})).mean(axis=0)
    days, event = known.T
    observed = [1 - competing_risks.incidence_at(days, event == 1, event == 2, day)[0] for day in HORIZONS_DAYS]
    assert free.tolist() == pytest.approx(observed, abs=0.01)
    as_censored = part("survival", "regression").fit(ALONE, pd.DataFrame({"x": risk}), known)
    assert as_censored.survival(pd.DataFrame({"x": risk})).mean(axis=0)[-1] < free[-1] - 0.1
    assert np.allclose(as_censored.scores(pd.DataFrame({"x": risk})), learned.scores(pd.DataFrame({"x": risk})))


def test_words_that_name_the_event_are_one_line():
    for wrong in ("", " ", "a\nb", "x" * 61):
        with pytest.raises(ValueError, match="competing"):
            Endpoint(name="os", kind="survival", time="d", event="e", competing=wrong)
    with pytest.raises(ValueError, match="not a key of a binary endpoint"):
        Endpoint(name="mgmt", kind="binary", competing="death")

"""What of a run may be shown: what its report told from chance, unless something speaks against that."""

import os
from pathlib import Path
from typing import Any

import pytest
from made.metrics import filled
from made.run import make_run

from mri_vit.finished import out_of_fold, run_metrics
from mri_vit.report import assembly
from mri_vit.report.schema import metrics as schema
from mri_vit.report.schema.metrics import Metrics


def told(own: dict[str, Any], **others: dict[str, Any]) -> Metrics:
    """Metrics with one endpoint, of the own model and of others."""
    return filled({"endpoints": {"mgmt": {"kind": "binary", "models": {"vit": {"n": 60, "positive": 30} | own, **others}}}})


BETTER = {"verdict_kind": "better", "verdict": "better than chance (…)"}
FOUND = {"chance_test": {"p": 0.001}}


@pytest.mark.parametrize(
    ("own", "others", "said"),
    [
        (BETTER, {}, None),
        ({"verdict_kind": "chance", "verdict": "indistinguishable from chance"}, {}, "indistinguishable from chance"),
        ({"verdict_kind": "worse", "verdict": "worse than chance"}, {}, "worse than chance"),
        ({"verdict_kind": "undefined", "verdict": "labels may leak"}, {}, "labels may leak"),
        (BETTER | {"too_good": "too good to be believed unchecked: x"}, {}, "too good to be believed"),
        (BETTER | {"within_sites": {"confounded": True}}, {}, "the site"),
        (BETTER | {"within_sites": {"confounded": False}}, {}, None),
        (BETTER, {"shuffled": FOUND}, "permuted labels"),
        (BETTER, {"shuffled": FOUND, "shuffled again": {"chance_test": {"p": 0.4}}}, None),
        (BETTER, {"shuffled": {"chance_test": {"p": 0.2}}}, None),
    ],
)
def test_an_endpoint_is_withheld_with_the_reason_unless_the_run_told_it_from_chance(own, others, said):
    reason = out_of_fold.reason_withheld(told(own, **others), "mgmt")
    assert (reason is None) == (said is None)
    assert said is None or said in str(reason)


def test_an_endpoint_without_a_result_of_the_own_model_is_withheld():
    assert out_of_fold.reason_withheld(told(BETTER), "idh") == out_of_fold.NO_RESULT
    alone = filled({"endpoints": {"mgmt": {"kind": "binary", "models": {"clinical": BETTER}}}})
    assert out_of_fold.reason_withheld(alone, "mgmt") == out_of_fold.NO_RESULT


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("trust") / "run")


def test_verdicts_are_those_of_the_report_where_it_is_of_this_run_and_else_computed(run: Path, monkeypatch: pytest.MonkeyPatch):
    computed, source = run_metrics.metrics_of_folder(run)
    monkeypatch.setattr(assembly, "metrics", lambda run: computed)  # it takes seconds each time
    assert source == "computed"
    assert out_of_fold.reason_withheld(computed, "mgmt") is None, "planted"
    assert str(out_of_fold.reason_withheld(computed, "pten")).startswith("the run's verdict is “no evidence")
    file = run / "report" / "metrics.json"
    file.parent.mkdir()
    marked = computed.model_copy(update={"study": "from the report"})
    file.write_text(schema.dumps(marked))
    found, source = run_metrics.metrics_of_folder(run)
    assert (source, found.study) == ("report", "from the report")
    stale = (run / "predictions.csv").stat().st_mtime_ns - 1
    for spoil in (
        lambda: os.utime(file, ns=(stale, stale)),
        lambda: file.write_text(schema.dumps(marked)[:-40]),
        lambda: file.write_text(schema.dumps(marked.model_copy(update={"folds_sha256": "0" * 64}))),
    ):
        spoil()
        found, source = run_metrics.metrics_of_folder(run)
        assert (source, found.study) == ("computed", "made-up")

"""Trust: what a run's report found of its own model goes in; which endpoints may be shown, and why others may not, comes out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from mri_vit.crossval.alarm import suspicion
from mri_vit.prediction.document import OfRun
from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.metrics import Metrics, Result
from mri_vit.run import files, hashes
from mri_vit.settings.models import RESHUFFLED, SHUFFLED, VIT

Source = Literal["report", "computed"]
NO_RESULT = "the run has no result of its own model for it"
SUSPICIOUS = (
    "labels may leak through the design: a network trained on permuted labels looks as if it had found them, and no fresh"
    " permutation has settled it"
)
CONFOUNDED = "it may be the site that the model tells: among patients of one site it is not better than chance"


def verdicts(run: Path) -> tuple[Metrics, Source]:
    """What the report says of a finished run, from its `metrics.json` where that is of this run, else computed (seconds).

    It is of this run where it is whole, names the run's folds and is not older than the out-of-fold predictions. The run's
    tables are taken to be those that were written (`intact.refuse_changed`).
    """
    if found := _reported(run):
        return found, "report"
    from mri_vit.report import assembly  # here, because it imports what a report needs, for seconds
    from mri_vit.report.reading.run import read_run

    return assembly.metrics(read_run(run)), "computed"


def _reported(run: Path) -> Metrics | None:
    file, table = run / files.REPORT / files.METRICS, run / files.PREDICTIONS
    try:
        if file.stat().st_mtime_ns < table.stat().st_mtime_ns:
            return None
        found = Metrics.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):  # none, another version's, or damaged
        return None
    return found if found.folds_sha256 == hashes.sha256(run / files.FOLDS) else None


def of_run(metrics: Metrics, endpoint: str) -> OfRun | None:
    """The run's result of its own model for an endpoint; None where it has none."""
    result = _own(metrics, endpoint)
    if result is None:
        return None
    binary = isinstance(result, BinaryResult)
    return OfRun(
        measure="auc" if binary else "harrell_c",
        estimate=result.judged,
        patients=result.n,
        marked=result.positive if binary else result.events,
        kind=result.verdict_kind,
        verdict=result.verdict,
    )


def reason(metrics: Metrics, endpoint: str) -> str | None:
    """Why a prediction of an endpoint is withheld; None where the run told it from chance and nothing speaks against that."""
    result = _own(metrics, endpoint)
    if result is None:
        return NO_RESULT
    if result.verdict_kind != "better":
        return f"the run's result is: {result.verdict}"
    if result.too_good:
        return f"the run's result is {result.too_good}"
    if endpoint in _suspicious({name: one.models for name, one in metrics.endpoints.items()}):
        return SUSPICIOUS
    if result.within_sites and result.within_sites.confounded:
        return CONFOUNDED
    return None


def _own(metrics: Metrics, endpoint: str) -> Result | None:
    return metrics.endpoints[endpoint].models.get(VIT) if endpoint in metrics.endpoints else None


def _suspicious(endpoints: Mapping[str, Mapping[str, Result]]) -> set[str]:
    """The endpoints that a network of permuted labels seems to have found, while no second permutation says whether it did."""
    shuffled = {name: models[SHUFFLED] for name, models in endpoints.items() if SHUFFLED in models}
    limit = suspicion(len(shuffled))
    return {name for name, one in shuffled.items() if one.chance_test.p <= limit and RESHUFFLED not in endpoints[name]}

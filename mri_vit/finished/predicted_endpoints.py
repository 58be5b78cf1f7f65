"""Predicted endpoints: a patient's network outputs and the run's results in; what is shown of each endpoint, and tables, out.

A score becomes a probability by the line through the run's out-of-fold scores; an endpoint is withheld where the run's result is
no better than chance. Letters: n networks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.finished import of_kind
from mri_vit.finished.answers import answer
from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.finished.out_of_fold import OutOfFold
from mri_vit.finished.prediction_document import AnyPredicted, NetworkScore, Prediction, Spread, is_trusted
from mri_vit.kinds.kind import labels
from mri_vit.settings.schema import Endpoint

EVEN_PROBABILITY = 0.5  # of a calibrated probability: on either side of it a call is right more often than wrong
UNLEARNED = "no network learned it: no fold had enough labels"
OUTSIDE = {"within": "false", "outside": "true", "not known": ""}  # by placement


def of_endpoint(
    endpoint: Endpoint, outputs: Sequence[FoldOutputs], run: OutOfFold, show_untrusted: bool, doubt: str | None = None
) -> AnyPredicted:
    """What is shown of one endpoint; `show_untrusted` shows also what the run predicts no better than chance, with the reason.

    `doubt` says why nothing of the run holds for this patient; a value that is shown then carries it.
    """
    own = _with_head(outputs, endpoint.name)
    reason = run.withheld if own else UNLEARNED
    shown = reason is None or (show_untrusted and reason != UNLEARNED)
    untrusted = "; ".join(filter(None, (doubt, reason))) or None
    about: dict[str, Any] = {
        "of_run": run.of_run,
        "withheld": None if shown else reason,
        "untrusted": untrusted if shown else None,
    }
    about["answer"] = answer(endpoint, own, run.fold_scores) if shown and not untrusted else None
    return of_kind.of(endpoint.kind).shown(endpoint, own if shown else None, run, untrusted, about)


def _with_head(outputs: Sequence[FoldOutputs], endpoint: str) -> list[FoldOutputs]:
    return [fold for fold in outputs if endpoint in fold.scores[0]]


def per_cent(share: float) -> str:
    """A probability in per cent; one just below one half is not rounded to 50 %."""
    return f"{min(100 * share, 49.9):.1f} %" if round(100 * share) == 50 and share < EVEN_PROBABILITY else f"{100 * share:.0f} %"


def shared(endpoint: Endpoint, outputs: Sequence[FoldOutputs], run: OutOfFold, place: int | None = None) -> dict[str, Any]:
    """The fields that all kinds have; the score is the mean over folds of each fold's mean over seeds.

    `place` is that of the class whose probability is the score, of classes without an order.
    """
    name, of_labels = endpoint.name, labels(endpoint)

    def number(scores: Float[np.ndarray, " k"]) -> float:
        return float(of_labels.one_number(scores) if place is None else scores[place])

    networks = tuple(
        NetworkScore(repeat=fold.repeat, fold=fold.fold, seed=seed, score=number(scores[name]))
        for fold in outputs
        for seed, scores in enumerate(fold.scores)
    )
    each = np.array([network.score for network in networks])
    mean = number(np.mean([fold.mean(name) for fold in outputs], axis=0))
    others = np.array(run.scores.get("score" if place is None else f"p{place}", ()))
    below = (others < mean).mean() + (others == mean).mean() / 2 if len(others) else math.nan
    return {
        "score": mean,
        "threshold": run.threshold,
        "percentile": round(100 * float(below), 1),
        "percentile_n": len(others),
        "percentile_note": _note(len(networks), run.repeats),
        "networks": networks,
        "spread": Spread(networks=len(each), deviation=deviation(each), minimum=float(each.min()), maximum=float(each.max())),
    }


def _note(networks: int, repeats: int) -> str:
    own = "the fold that did not train on them" if repeats == 1 else f"the {repeats} folds that did not train on them"
    return (
        f"Compared with the run's patients, each scored by {own}. This patient's score is a mean over all {networks} networks,"
        " which varies less and so tends to lie nearer the middle."
    )


def deviation(values: Float[np.ndarray, " n"]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def tables(written: Mapping[str, Prediction], outputs: Mapping[str, Sequence[FoldOutputs]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores and survival of all patients; a withheld endpoint has an empty score and the reason.

    `models` is the number of folds whose model has a head for the endpoint; `untrusted` why a value shown on request is
    unreliable; `outside` whether the patient is unlike the run's, empty where that is not known; `trusted` whether nothing casts
    doubt on the row; `synthetic` whether the run was trained on synthetic patients.
    """
    scores: list[dict[str, Any]] = []
    survival: list[dict[str, Any]] = []
    for name, made in written.items():
        for endpoint, result in made.endpoints.items():
            head = {"patient": name, "endpoint": endpoint}
            about = {
                "models": len(_with_head(outputs[name], endpoint)),
                "withheld": result.withheld or "",
                "untrusted": result.untrusted or "",
                "outside": OUTSIDE[made.distribution.placement],
                "trusted": str(is_trusted(made, endpoint)).lower(),
                "synthetic": str(made.run.synthetic is not None).lower(),
            }
            kind = of_kind.of(result.kind)
            scores += [{**head, **cells, **about} for cells in kind.score_cells(result)]
            survival += [{**head, **cells, **about} for cells in kind.survival_cells(result)]
    about = ["models", "withheld", "untrusted", "outside", "trusted", "synthetic"]
    several = ["class"] if any("class" in row for row in scores) else []
    columns = [[*several, "score", "probability", "call"], ["horizon_days", "survival"]]
    made_scores, made_survival = (
        pd.DataFrame(rows, columns=pd.Index(["patient", "endpoint", *own, *about]))
        for rows, own in zip((scores, survival), columns, strict=True)
    )
    return made_scores, made_survival

"""What the texts ask of a run: its settings, results, controls, and the models that are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mri_vit.crossval import power
from mri_vit.metrics import within_fold
from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.endpoints import Result
from mri_vit.report.schema.metrics import Metrics, Settings
from mri_vit.report.words.notation import escape, in_words, symbol
from mri_vit.settings.recipe import NO_CANDIDATES, is_candidate
from mri_vit.settings.sequences import title


@dataclass(frozen=True)
class Facts:
    """What `metrics.json` does not hold, all of it optional.

    `brains` are the patients by the way their brain was found (mask, none or deepbet); `own_words` the author's own by the
    name of a gap (ethics, scanners, …).
    """

    brains: Mapping[str, int] = field(default_factory=dict)
    own_words: Mapping[str, str] = field(default_factory=dict)

    def gap(self, name: str, wanted: str) -> str:
        """The author's own words for something that a run cannot know, or a marked gap that says what is wanted."""
        return escape(self.own_words[name]) if self.own_words.get(name) else f"**[author: {wanted}]**"


def every_sequence(channels: Sequence[str]) -> str:
    """All four sequences; both sequences; the sequence T1."""
    if len(channels) == 1:
        return f"the sequence {title(channels[0])}"
    return "both sequences" if len(channels) == 2 else f"all {in_words(len(channels))} sequences"


def settings(metrics: Metrics) -> Settings | None:
    """The study's settings; None for a table from elsewhere, whose settings say nothing of its making."""
    return metrics.settings if isinstance(metrics.settings, Settings) and metrics.design != "table" else None


def trained(metrics: Metrics) -> Settings | None:
    """Likewise, but None too for an external evaluation, which trains nothing."""
    return settings(metrics) if metrics.design == "cross-validation" else None


def results(metrics: Metrics) -> Iterator[tuple[str, str, Result]]:
    """(endpoint, model, result) of every result."""
    for name, endpoint in metrics.endpoints.items():
        for model, result in endpoint.models.items():
            yield name, model, result


def controls(metrics: Metrics) -> list[str]:
    """The controls of the run, or of the evaluated run, that have results."""
    ran = {model for _, model, _ in results(metrics)} if settings(metrics) else set()
    return [name for name in NO_CANDIDATES if name in ran]


def kinds(metrics: Metrics) -> set[str]:
    """Of the endpoints: "binary", "survival"."""
    return {endpoint.kind for endpoint in metrics.endpoints.values()}


def labels_alone(metrics: Metrics) -> str:
    """ "'s labels" where somebody's scans were seen in pretraining, so that a claim says no more than is true; else ""."""
    return "'s labels" if metrics.transductive else ""


def could_show(result: Result) -> str:
    """What the patients could have shown at all, as is said before a run; "" where all scores are equal or there is no pair."""
    test = result.chance_test
    if not test.error > 0:
        return ""
    return power.sentence(symbol(result), within_fold.least_above_chance(test.error, test.inflation))


def visible(metrics: Metrics, models: Mapping[str, Result]) -> dict[str, Result]:
    """Of these models, the candidates that are shown (see `numbers.comparators`) and the controls."""
    return {model: result for model, result in models.items() if model in metrics.shown or not is_candidate(model)}


def chief(metrics: Metrics) -> tuple[str, ...]:
    """Models that are reported at length: the study's own, or every model shown where there is none of its own."""
    return (OWN,) if OWN in metrics.shown else metrics.shown


def absence(known: int, design: str) -> str:
    """Why an endpoint that was asked for, with so many labels known in the table, has no result."""
    if known:
        return "labels are known, but for no patient with a prediction"
    # Only cross-validation trains on the labels that are shown.
    return f"no patient has a label, so it is not {'trained' if design == 'cross-validation' else 'judged'}"

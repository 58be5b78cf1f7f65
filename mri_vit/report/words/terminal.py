"""What the terminal says of a report: `metrics.json` in, the rows of a table and sentences out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.maps import AnyMethod, MapEvaluation, MapResult
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.survival import SurvivalResult
from mri_vit.report.verdicts import maps as map_verdict
from mri_vit.report.words import maps as map_texts
from mri_vit.report.words import notation

COLUMNS = ("endpoint", "model", "n", "result [95 % interval]", "judged")


PLANTED = ("endpoint", "planted", "found", "as expected")
OF_PLANTED = {"better": "a cause", "chance": "nothing"}


@dataclass(frozen=True)
class Row:
    """A row of the terminal's table: the endpoint, the model, patients, the result and its verdict in one word."""

    endpoint: str
    model: str
    n: str
    result: str
    judged: str


def rows(metrics: Metrics) -> list[Row]:
    """A row per endpoint and model shown."""
    found = []
    for name, endpoint in metrics.endpoints.items():
        if not endpoint.models:
            found.append(Row(name, "–", "0", "–", "no result"))
        few = notation.visible(metrics, endpoint.models)
        found += [_row(name, model, result) for model, result in few.items()]
        if left := len(endpoint.models) - len(few):
            found.append(Row(name, f"{left} more", "", "in the report", ""))
    return found


def _row(name: str, model: str, result: BinaryResult | SurvivalResult) -> Row:
    text = notation.judged(result) if notation.is_defined(result.estimate.value) else "undefined"
    return Row(name, model, str(result.n), f"{notation.symbol(result)} {text}", notation.KINDS[result.verdict_kind])


def planted(metrics: Metrics) -> list[tuple[str, str, str, str]]:
    """Of a made-up cohort a row per endpoint, under `PLANTED`: what is in it, the verdict on the own model, and yes or no."""
    return [
        (name, OF_PLANTED[one.planted], notation.KINDS[one.found], "yes" if one.as_expected else "NO")
        for name, one in metrics.planted.items()
    ]


def verdicts(metrics: Metrics) -> list[str]:
    """The verdicts as sentences, the candidates' and then the maps': "MGMT promoter methylation, vit: better than chance (…)".

    Where the study's own model has comparators, one sentence reports them, and the table has the rest.
    """
    sentences = []
    if metrics.transductive:
        sentences.append(f"Transductive: pretraining saw scans of patients judged here: {metrics.transductive}")
    for name, endpoint in metrics.endpoints.items():
        if not endpoint.models:
            sentences.append(f"{notation.title(name)}: {notation.absence(metrics.cohort.known[name], metrics.design)}")
        for model in notation.chief(metrics):
            if model in endpoint.models:
                sentences.append(f"{notation.title(name)}, {model}: {endpoint.models[model].verdict}")
        if endpoint.rivals:
            sentences.append(f"{notation.title(name)}, comparators: {endpoint.rivals.sentence}")
    to_do = map_texts.to_make_again(metrics)
    scored = _map_verdicts(metrics.map_scores) if metrics.map_scores else []
    return [*sentences, *scored, *([to_do] if to_do else [])]


def _map_verdicts(scored: MapEvaluation) -> list[str]:
    """A line per endpoint on its best map, or why there is none."""
    sentences = []
    for name, endpoint in scored.endpoints.items():
        head, best = f"Maps of {notation.title(name)}", map_verdict.best(endpoint)
        found = [(method, result) for method, result in endpoint.methods.items() if method == best]
        if endpoint.no_finding:
            sentences.append(f"{head}: {endpoint.no_finding}")
        elif not found:
            sentences.append(f"{head}: {_none_passes(endpoint.methods)}")
        for method, result in [] if endpoint.no_finding else found:
            count = f"best of {len(endpoint.methods)}" if len(endpoint.methods) > 1 else "the only one"
            sentences.append(f"{head}, {notation.short(method)} ({count}): {result.verdict}")
    return sentences


def _none_passes(methods: Mapping[AnyMethod, MapResult]) -> str:
    """A map that cannot be judged is another thing than one that fails."""
    kinds = Counter(result.verdict_kind for result in methods.values())
    if set(kinds) == {"undefined"}:
        return f"not judged: fewer than {map_verdict.FEWEST} patients could be scored"
    counts = ", ".join(f"{kinds[kind]} {notation.MAP_KINDS[kind]}" for kind in map_verdict.ORDER if kinds[kind])
    return f"none of {len(methods)} passes its checks ({counts})"

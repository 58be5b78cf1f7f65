"""Which scan scores and maps come from: what each patient's `map.json` says in, mean shares with intervals out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mri_vit.report.numbers.means import means
from mri_vit.report.reading.run import Map
from mri_vit.report.schema.maps import MapShares, ScoreShares, SequenceShares
from mri_vit.report.schema.part import Estimate
from mri_vit.settings.sections import AnyMethod


def measure(maps: Sequence[Map], channels: Sequence[str], seed: int) -> SequenceShares | None:
    """Mean share of each scan in every endpoint's score and in every map; None where no patient has either.

    Of a patient's visits the first counts. A score's share is the size of the scan's Shapley value, up or down, among those of
    the study's scans.
    """
    scores: dict[str, list[list[float]]] = {}
    shares: dict[tuple[AnyMethod, str], list[list[float]]] = {}
    for shown in {shown.subject: shown for shown in reversed(maps)}.values():
        for endpoint, parts in (shown.facts.get("score_by_scan") or {}).items():
            sizes = [abs(float(parts[scan])) for scan in channels]
            if sum(sizes) > 0:
                scores.setdefault(endpoint, []).append([size / sum(sizes) for size in sizes])
        for entry in shown.facts["maps"]:
            if entry.get("by_scan"):
                own = [float(entry["by_scan"][scan]) for scan in channels]
                shares.setdefault((entry["method"], entry["endpoint"]), []).append(own)
    if not scores and not shares:
        return None
    return SequenceShares(
        scores={endpoint: _by_scan(rows, channels, seed) for endpoint, rows in scores.items()},
        maps=tuple(
            MapShares(method=method, endpoint=endpoint, **dict(_by_scan(rows, channels, seed)))
            for (method, endpoint), rows in shares.items()
        ),
    )


def _by_scan(rows: list[list[float]], channels: Sequence[str], seed: int) -> ScoreShares:
    found = means(np.array(rows, float), seed)
    ends = zip(channels, found.value, found.low, found.high, strict=True)
    return ScoreShares(n=found.n, scans={scan: Estimate(value=value, low=low, high=high) for scan, value, low, high in ends})

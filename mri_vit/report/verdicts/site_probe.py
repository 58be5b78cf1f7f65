"""Whether a model's CLS vector predicts the site, by the rule that verdicts on models follow."""

from __future__ import annotations

from mri_vit.report.numbers.chance import ALPHA
from mri_vit.report.schema.run import Probe


def tells_site(probe: Probe) -> bool:
    """Both its p and its interval must say so, as for a verdict."""
    return probe.p <= ALPHA and probe.balanced_accuracy.low > probe.chance

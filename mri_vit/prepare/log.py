"""Log: what was done to a patient's scans, each step with its figures and its sentence for a Methods section, and warnings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Log:
    """What was done, in order, and what someone should look at."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, step: str, methods: str, **figures: Any) -> None:
        self.steps.append({"step": step, "methods": methods, **figures})

"""Content-Security-Policies: which scripts, styles and pictures a page may show, and that nothing comes from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

NOWHERE = {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}


def of(sources: Mapping[str, str]) -> str:
    """The policy that allows these sources and no connection, worker, frame, WebAssembly or eval."""
    return "; ".join(f"{name} {allowed}" for name, allowed in {**NOWHERE, **sources}.items())


def hash_of(text: str) -> str:
    """A script or style in the page itself, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

"""The command line's verbs that describe files, as thin as the others in `mri_vit.cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def schema(
    *, of: Literal["report", "check", "comparison"] = "report", output: Annotated[Path | None, Parameter(alias="-o")] = None
) -> None:
    """Write the JSON Schema of metrics.json or another document.

    Parameters
    ----------
    of
        metrics.json of a report, what `check --json` prints, or comparison.json of a comparison.
    output
        The file; if none is given, the schema is printed.
    """
    import json

    from mri_vit.compared import document as comparison
    from mri_vit.preflight import document
    from mri_vit.report.schema import metrics
    from mri_vit.run.atomic import write_bytes

    described = {"report": metrics, "check": document, "comparison": comparison}[of].json_schema()
    text = json.dumps(described, indent=1, ensure_ascii=False)
    if output:
        write_bytes(f"{text}\n".encode(), output)
    else:
        print(text)

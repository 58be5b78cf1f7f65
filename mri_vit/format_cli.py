"""The command line's verbs that describe files, as thin as the others in `mri_vit.cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def schema(
    *, of: Literal["report", "check", "prediction"] = "report", output: Annotated[Path | None, Parameter(alias="-o")] = None
) -> None:
    """Write the JSON Schema of a report's metrics.json, of what `check --json` prints, or of a patient's prediction.json.

    Parameters
    ----------
    of
        Which of the three.
    output
        The file; if none is given, the schema is printed.
    """
    import json

    from mri_vit.prediction import document as prediction
    from mri_vit.preflight import document
    from mri_vit.report.schema import metrics
    from mri_vit.run.atomic import write_bytes

    described = {"report": metrics, "check": document, "prediction": prediction}[of].json_schema()
    text = json.dumps(described, indent=1, ensure_ascii=False)
    if output:
        write_bytes(f"{text}\n".encode(), output)
    else:
        print(text)

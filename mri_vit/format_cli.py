"""The command line's verbs that describe files, as thin as the others in `mri_vit.cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from mri_vit.arguments import Output


def settings(key: str = "", /) -> None:
    """List the keys of the study file, each with its type, its default and what it is, or those asked about.

    In a terminal by section, otherwise one a line with tabs between.

    Parameters
    ----------
    key
        A section (train), a key (train.epochs) or its last part (epochs); all where none is named.
    """
    from rich.console import Console

    from mri_vit.settings import listing

    listed, console = listing.asked(key), Console()
    if console.is_terminal:
        console.print(listing.table(listed))
    else:
        for line in listing.lines(listed):
            print(line)


def schema(
    *, of: Literal["report", "check", "comparison", "prediction"] = "report", output: Annotated[Path | None, Output] = None
) -> None:
    """Write the JSON Schema of metrics.json or another document.

    Parameters
    ----------
    of
        metrics.json of a report, what `check --json` prints, a comparison.json, or a patient's prediction.json.
    output
        The file; if none is given, the schema is printed.
    """
    import json

    from mri_vit.finished import comparison_document as comparison
    from mri_vit.finished import prediction_document as prediction
    from mri_vit.preflight import document
    from mri_vit.report.schema import metrics
    from mri_vit.run.atomic import write_bytes

    documents = {"report": metrics, "check": document, "comparison": comparison, "prediction": prediction}
    text = json.dumps(documents[of].json_schema(), indent=1, ensure_ascii=False)
    if output:
        write_bytes(f"{text}\n".encode(), output)
    else:
        print(text)

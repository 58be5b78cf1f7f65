"""Worker: a process of its own with the model in memory, that predicts one patient after another.

It reads a line of JSON per patient from its standard input and writes lines of JSON to its standard output: `ready` once, then
for each patient `doing` several times, and at the end `done`, `failed` or `lacking`. What libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from io import TextIOBase
from pathlib import Path
from typing import Any

from rich.console import Console

from mri_vit.errors import FolderHeld, MriVitError, OutOfResource
from mri_vit.finished.exported_model import ExportedModel, open_model
from mri_vit.finished.predict import Allowed, predict_by
from mri_vit.run.resource import lack

BUG = "a fault of mri-vit and not of your scans; the service's terminal shows the lines to report"


class ProgressLines:
    """A file for a console, whose lines become messages."""

    def __init__(self, to: TextIOBase) -> None:
        self.to, self.line = to, ""

    def write(self, text: str) -> int:
        *lines, self.line = (self.line + text).split("\n")
        for line in filter(str.strip, lines):
            send(self.to, doing=line.strip())
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def send(to: TextIOBase, **message: Any) -> None:
    to.write(json.dumps(message) + "\n")
    to.flush()


def main(folder: str) -> None:
    """Serve the model in a folder until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anything else prints is no answer
    try:
        model = open_model(Path(folder), warm=True)
        model.refuse_changed(Console(quiet=True))
        for place in model.networks:
            model.model.of_fold(place)
    except MriVitError as error:
        send(answers, unusable=str(error))
        return
    send(answers, ready=True)
    for line in sys.stdin:
        asked = json.loads(line)
        send(answers, **answer(model, Path(asked["scans"]), Path(asked["result"]), Allowed(**asked["allowed"]), answers))


def answer(model: ExportedModel, scans: Path, result: Path, allowed: Allowed, to: TextIOBase) -> dict[str, str]:
    """Predict a patient's folder of scans: where the result lies, or why there is none, or what was lacking."""
    console = Console(file=ProgressLines(to), width=200, force_terminal=False, highlight=False)  # type: ignore[arg-type]
    try:
        excluded = predict_by(model, scans, result, 1, allowed, console)
    except FolderHeld:  # by the worker of a server that was killed: it ends with its patient
        return {"lacking": "an earlier worker is still at work on this patient"}
    except Exception as error:
        known = error if isinstance(error, MriVitError) else lack(error, result)
        if known is None:
            traceback.print_exc()
            return {"failed": BUG}
        if not isinstance(known, OutOfResource):
            return {"failed": str(known)}
        return {"lacking": str(known)} | ({"memory": ""} if "memory" in str(known) else {})
    if excluded:
        return {"failed": "; ".join(": ".join(filter(None, (row["file"], row["reason"]))) for row in excluded)}
    return {"done": ""}


if __name__ == "__main__":
    main(sys.argv[1])

"""Answers one question of `pipelines/reproductions/`: .venv/bin/python pipelines/reproduce.py rotation runs/demo

    .venv/bin/python pipelines/reproduce.py                        (the questions)
    .venv/bin/python pipelines/reproduce.py QUESTION --help        (what a question takes)

A question is a folder, or a script in a folder (`null_studies/comparisons`); its README says what it costs and what came out.
A study file of the question's folder may be named without its folder.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

REPRODUCTIONS = Path(__file__).parent / "reproductions"


def questions() -> list[str]:
    """Each folder with a `__main__.py`, and each script in a folder that has a `main`."""
    scripts = (path for path in REPRODUCTIONS.glob("*/*.py") if "\ndef main(" in path.read_text(encoding="utf-8"))
    return sorted(path.parent.name if path.stem == "__main__" else f"{path.parent.name}/{path.stem}" for path in scripts)


def script(question: str) -> ModuleType:
    """The module of a question, imported by its name: its worker processes import it in the same way, and not this file."""
    folder, _, name = question.partition("/")
    return importlib.import_module(f"reproductions.{folder}.{name or '__main__'}")


def main(arguments: list[str]) -> int:
    """Run the question that the first argument names, with the others; return its exit code."""
    if not arguments or arguments[0] in ("--help", "-h"):
        print(__doc__, *questions(), sep="\n")
        return 0
    question, *further = arguments
    if question not in questions():
        print(f"no question {question}; there are {', '.join(questions())}", file=sys.stderr)
        return 2
    home = REPRODUCTIONS / question.partition("/")[0]
    named = [str(home / word) if word.endswith(".toml") and not Path(word).exists() else word for word in further]
    sys.argv = [f"reproduce.py {question}", *named]
    asked = script(question)  # before our own modules: some set how many threads libraries take
    from mri_vit.run import exit_code

    return exit_code.of_script(asked.main)


if __name__ == "__main__":  # worker processes import this file
    sys.exit(main(sys.argv[1:]))

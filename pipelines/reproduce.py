"""Answers one question of `pipelines/reproductions/`: .venv/bin/python pipelines/reproduce.py rotation runs/demo

    .venv/bin/python pipelines/reproduce.py                        (the questions)
    .venv/bin/python pipelines/reproduce.py QUESTION --help        (what a question takes)

A question is a folder, or a script in a folder (`null_studies/comparisons`); its README says what it costs and what came out.
"""

import runpy
import sys
from pathlib import Path

REPRODUCTIONS = Path(__file__).parent / "reproductions"


def questions() -> list[str]:
    """Each folder with a `__main__.py`, and each script beside it that is run by itself."""
    scripts = {path for path in REPRODUCTIONS.glob("*/*.py") if '__name__ == "__main__"' in path.read_text(encoding="utf-8")}
    names = (path.parent.name if path.stem == "__main__" else f"{path.parent.name}/{path.stem}" for path in scripts)
    return sorted(names)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--help"] or sys.argv[1:] == []:
        print(__doc__, *questions(), sep="\n")
    elif (question := sys.argv[1]) not in questions():
        sys.exit(f"no question {question}; there are {', '.join(questions())}")
    else:
        sys.argv = [f"reproduce.py {question}", *sys.argv[2:]]
        runpy.run_module(f"reproductions.{question.replace('/', '.')}", run_name="__main__", alter_sys=True)

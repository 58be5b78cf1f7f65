"""How `make docs` builds these pages: offline, every warning an error, no notebook run."""

import shutil
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT)]

import metrics_page  # noqa: E402  # beside this file
import study_keys  # noqa: E402  # likewise

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MADE = HERE / "_made"  # pages that are written anew by every build; git ignores it
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

shutil.rmtree(MADE, ignore_errors=True)
MADE.mkdir()
(MADE / "study_keys.md").write_text(study_keys.page(), encoding="utf-8")
(MADE / "metrics.md").write_text(metrics_page.page(), encoding="utf-8")
for notebook in NOTEBOOKS:
    shutil.copy(notebook, MADE / notebook.name)

project = "mri_vit"
release = PROJECT["version"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "smartquotes"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # the changelog repeats "Results" and "Code" under every version

nb_execution_mode = "off"  # the notebooks keep their outputs
nb_merge_streams = True

default_role = "literal"  # docstrings set names in single backticks
autodoc_typehints = "none"  # numpydoc's sections name the types, with shapes and units
autosummary_generate = False  # api.md names every function itself
numpydoc_show_class_members = False
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!mri_vit).*")]  # other projects' names are not linked, so that a build needs no network

html_theme = "furo"
html_title = f"mri_vit {release}"
html_static_path = ["_static"]
html_css_files = ["mri_vit.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"footer_icons": []}


def apart(app, what, name, thing, options, lines) -> None:
    """Definition, formula, assumption and source of a metric each in a paragraph of their own."""
    for at in reversed(range(len(lines))):
        word, colon, rest = lines[at].partition(": ")
        if colon and word in ("Definition", "Formula", "Assumption", "Source"):
            lines[at : at + 1] = ["", f"**{word}**: {rest}"]


def setup(app) -> None:
    app.connect("autodoc-process-docstring", apart, priority=400)  # before numpydoc, which has the default of 500

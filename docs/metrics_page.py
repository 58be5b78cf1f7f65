"""The page of the metrics, from the package itself: every module with its public functions."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from types import ModuleType

from mri_vit import metrics

HEAD = """# Metrics

Pure functions of arrays, without files, settings or a network. Each docstring gives definition, formula, assumption and source;
references of the tests are R's pROC, survival and survcomp, scikit-learn, lifelines and published tables. Every function raises
ValueError for labels other than 0 and 1, for numbers that are not finite, and for arrays of unequal length. A figure that is
undefined, such as an AUC of one class, is NaN.

This page is written from `mri_vit.metrics`.
"""


def page() -> str:
    """The page as MyST Markdown: a section for each module that has public functions or classes of its own."""
    modules = [import_module(f"mri_vit.metrics.{found.name}") for found in pkgutil.iter_modules(metrics.__path__)]
    return "\n".join([HEAD, *(section(module) for module in modules if public(module))])


def section(module: ModuleType) -> str:
    short = module.__name__.rsplit(".", 1)[1].replace("_", " ")
    directives = [f".. autofunction:: {module.__name__}.{name}" for name in public(module)]
    about = " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split())
    return f"## {short.capitalize()}\n\n{about}\n\n```{{eval-rst}}\n" + "\n\n".join(directives) + "\n```\n"


def public(module: ModuleType) -> list[str]:
    """The names of functions that a module defines itself, in its own order."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and inspect.isfunction(value) and value.__module__ == module.__name__
    ]

"""The part of the bench that judges predictions: 100,000 rows through the metrics, and a whole report of 600 patients.

.venv/bin/python pipelines/bench.py --part evaluation --threads 2
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from lifelines.utils import concordance_index
from sklearn.metrics import roc_auc_score

from benchmarks.report import make
from mri_vit.metrics.concordance import harrell_c
from mri_vit.metrics.discrimination import delong_interval
from mri_vit.report.pages import report_files
from mri_vit.report.reading.foreign_table import run_from_tables
from mri_vit.run import files
from mri_vit.settings.recipe import CLINICAL, VIT, VOLUME

ROWS = 100_000  # a registry; far more patients than any cohort with scans
PATIENTS, MODELS = 600, (VIT, CLINICAL, VOLUME)
BINARY = ("mgmt", "tertp", "pten")


def evaluation(folder: Path) -> dict[str, dict[str, Callable[[], Callable[[], Any]]]]:
    """What is timed, by group and name; the first of a group is what the others are set against."""
    return {
        f"AUC, {ROWS:,} rows": {
            "scikit-learn's AUC": partial(scored, roc_auc_score),
            "with DeLong": partial(scored, delong_interval),
        },
        f"C, {ROWS:,} rows": {"lifelines": partial(timed, lifelines_c), "ours": partial(timed, harrell_c)},
        f"report, {PATIENTS} people": {"4 × 5 folds × 3 models": partial(reported, folder)},
    }


def scored(measure: Callable[..., Any]) -> Callable[[], Any]:
    generator = np.random.default_rng(0)
    truth = generator.random(ROWS) < 0.4
    return partial(measure, truth, generator.normal(size=ROWS) + truth)


def timed(measure: Callable[..., Any]) -> Callable[[], Any]:
    generator = np.random.default_rng(0)
    risk = generator.normal(size=ROWS)
    days = np.ceil(400 * np.exp(-risk) * generator.exponential(size=ROWS))
    return partial(measure, days, generator.random(ROWS) < 0.7, risk)


def lifelines_c(days: np.ndarray, event: np.ndarray, risk: np.ndarray) -> float:
    return concordance_index(days, -risk, event)


def reported(folder: Path) -> Callable[[], Any]:
    """A report from a table of predictions, with survival curves; the page's size is printed each time."""
    make(folder, PATIENTS, BINARY, MODELS)

    def run() -> None:
        home = folder / files.REPORT
        page = report_files.write_report(run_from_tables(folder / files.PREDICTIONS, folder / files.COHORT, home), home).page
        print(f"page of {page.stat().st_size / 1e6:.1f} MB")

    return run

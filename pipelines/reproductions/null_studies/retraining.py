"""How much steadier is a result when the networks of several seeds are averaged?

    .venv/bin/mri-vit run configs/demo.toml --train.seeds 6 --output runs/seeds
    .venv/bin/python pipelines/reproduce.py null_studies/retraining runs/seeds

Of a run with R networks per fold, every choice of k of them is averaged and judged. Written to retraining.csv: for each
endpoint and k the mean, least and largest AUC or C of pairs within a fold, and the standard deviation over another R networks
of the same kind: that of the choices over sqrt(1 - k / R), for they are drawn from R without replacement.
"""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd

from mri_vit.kinds.kind import labels
from mri_vit.report.numbers import chance
from mri_vit.report.numbers.judged import known_rows
from mri_vit.report.reading.run import Run, read_run
from mri_vit.report.schema.parts import OWN
from mri_vit.settings.schema import Endpoint

TABLE = Path(__file__).with_name("retraining.csv")
COLUMNS = ["endpoint", "networks", "choices", "mean", "deviation", "least", "largest"]


def of_choices(run: Run, endpoint: Endpoint) -> dict[int, list[float]]:
    """By number of networks, what each choice of them reaches on the endpoint when their scores are averaged."""
    judged = known_rows(run.predictions, endpoint, OWN)
    seeds = run.seeds.loc[(run.seeds.endpoint == endpoint.name) & (run.seeds.model == OWN)]
    names = labels(endpoint).scores_by(endpoint, seeds.astype({"score": float}), ["patient", "seed"]).columns
    each = [chance.of_seed(endpoint, judged, own) for _, own in seeds.groupby("seed")]
    found = {}
    for k in range(1, len(each) + 1):
        choices = itertools.combinations(each, k)
        averaged = (judged.assign(**{name: sum(one[name] for one in chosen) / k for name in names}) for chosen in choices)
        found[k] = [chance.within_folds(endpoint, rows)[0].value for rows in averaged]
    return found


def table(run: Run) -> pd.DataFrame:
    """A row for each endpoint and number of networks; without a deviation where all of them are averaged."""
    rows = []
    for endpoint in run.study.endpoints:
        found = of_choices(run, endpoint)
        for k, values in found.items():
            beyond = math.sqrt(1 - k / len(found)) if k < len(found) else math.nan
            figures = (np.mean(values), np.std(values) / beyond, min(values), max(values))
            rows.append([endpoint.name, k, len(values), *(f"{figure:.4f}" for figure in figures)])
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def main(run: Path) -> None:
    """Judge every choice of a run's networks, print the table and write it."""
    written = table(read_run(run))
    written.to_csv(TABLE, index=False, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
    print(written.to_string(index=False))

"""Files: the name of every file and folder in a run, in a fold of it and in a prepared patient, each at home here alone.

These names are a promise: scripts of others look for them.
"""

from __future__ import annotations

import os
from pathlib import Path

# What a run was made with and from.
STUDY = "study.toml"  # the settings; paths in it are relative to the run
ENVIRONMENT = "environment.json"  # versions, commit, device; by it a folder is known as a run
ORIGIN = "origin.json"  # where the run was when its records were written
COHORT = "cohort.csv"  # the frozen cohort table
EXCLUDED = "excluded.csv"  # patients who could not be prepared, with file and reason
FINDINGS = "qc.csv"  # what is outside the study's limits, and what became of it
DECISIONS = "qc_decisions.csv"  # a reviewer's, as they were respected; beside a cohort table, where they are looked for
FOLDS = "folds.json"
INPUTS = "inputs.json"  # SHA-256 of each patient's scan files; every version writes it when training begins
TUMOUR = "tumour.nii.gz"  # of a prepared patient: its mask in the reference's space, where it was found and not given
PREPARED = "prepared.json"  # SHA-256 of each patient's tokens, as training first found them
VOXELS = "voxels.json"  # SHA-256 of each patient's voxels, by which an external cohort is known to hold none of them

# What it found. A folder with `PREDICTIONS` is done: it is written last.
PREDICTIONS = "predictions.csv"
SURVIVAL = "survival.csv"
SITE_PROBE = "site_probe.csv"
SITE_PROBE_COLUMNS = ["patient", "repeat", "fold", "site", "predicted"]
NULLS = "nulls.csv"  # what regressions reach on permuted labels
SEEDS = "seeds.csv"  # the scores of each seed's network, where a fold has several
NOTES = "notes.json"  # what was not done, and why
EVALUATION = "evaluation.json"  # of an evaluation on another cohort: the figures of the run itself
EVALUATED = "evaluated.json"  # of an evaluation, from its beginning: the run that is evaluated
INTERNAL = "internal.csv"  # of an evaluation: what the run's models said of its own patients, who have numbers for names
INTERNAL_SURVIVAL = "internal_survival.csv"  # likewise their probabilities to survive
HASHES = "hashes.json"
LOG = "run.log"  # what a run with --detach prints

# Its folders.
MAPS = "maps"  # a folder per patient
SCORES = "scores"  # a file per patient
MEAN_MAPS = "mean_maps"
COMPARATORS = "rivals"  # a folder per comparator, with its folds
CONTROLS = "controls"  # a folder per control, with its folds
REPORT = "report"
INSPECT = "inspect"
JOBS = "jobs"  # a folder per stage while it runs; see run/jobs.py
QC_FOLDER = "qc"  # the page of all patients, the worst first
FOLD_GLOB = "*fold-*"  # see `fold_folder`
SEED_GLOB = "seed-*"  # in the folder of a fold; see `seed_folder`

# In the folder of a fold.
WEIGHTS = "best.safetensors"
PRETRAINED = "pretrained.safetensors"  # the encoder that the fold's training started from
FUSION = "fusion.json"  # how image and clinical columns were weighed
HISTORY = "history.csv"
STATE = "last/state.safetensors"  # of a training that is not done; deleted with the fold's end
COST = "cost.json"

# In the folders of maps and of the report.
MAP = "map.json"
GROUP = "group.json"
METRICS = "metrics.json"
PAGE = "index.html"

# Beside the prepared patients.
# No patient's id starts with a dot.
SLICES = ".slices"  # a folder per file of a 2D network, by its SHA-256, with a file per patient
RADIOMICS = ".radiomics"  # a file per patient

# In the folder of a prepared patient.
PATIENT = "patient.json"
TOKENS = "tokens.safetensors"
QC = "qc.png"


def path_from(folder: str | Path, path: str | Path) -> str:
    """A path as seen from a folder; as it is where there is no way from one to the other: on another drive of Windows."""
    try:
        return os.path.relpath(path, folder)
    except ValueError:
        return str(path)


def fold_folder(home: Path, repeat: int, fold: int) -> Path:
    """Where a fold of a model lies, repeat and fold counted from 0: `fold-1` … of the first repeat, `repeat-2-fold-1` …"""
    return home / (f"fold-{fold + 1}" if repeat == 0 else f"repeat-{repeat + 1}-fold-{fold + 1}")


def seed_folder(fold: Path, seed: int) -> Path:
    """Where a network of a fold lies, seeds counted from 0: the first in the fold's own folder, the next in its `seed-2` …"""
    return fold / f"seed-{seed + 1}" if seed else fold

"""A made-up run folder for the report's tests: what is planted in it is known, and no scan or network is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from mri_vit.data import cohort, predictions
from mri_vit.settings import recipe

ODD_IDS = ["007", "1e5", "NA", "A_b.c-D"]  # legal, and each spoiled by a careless reader of tables
TWO_VISITS = ("A_b.c-D",)  # seen twice, in sessions "a" and "b"
REASON = '<b>bold</b> & "quoted" <script>alert(1)</script>'
FOLDS = 3
BINARY = ("mgmt", "pten", "idh1", "tertp")
HORIZONS = (91, 182, 274, 365, 456, 548, 639, 730)  # quarter years
SIGNAL = {"mgmt": 2.5, "pten": 0.0, "idh1": 1.0}  # distance of the two classes' mean scores, in standard deviations
MODELS = ("vit", "clinical", "volume", "shuffled")
ENVIRONMENT = {
    "versions": {"torch": "2.13.0", "mri-vit": "0.1.0", "monai": "1.5.2"},
    "git_commit": None,
    "device": "cpu",
    "threads": 2,
    "seed": 7,
    "started": "2026-01-01",
}


def make_run(
    folder: Path,
    *,
    name: str = "made-up",
    repeats: int = 1,
    patients: int = 60,
    seed: int = 0,
    models: Sequence[str] = MODELS,
    folds: int = FOLDS,
    internal: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run: a strong mgmt, an empty pten, an idh1 whose last fold is of one class, an unlabelled tertp, and os.

    Age tells something of os to the clinical control; no other control knows anything. Any model that is not a control sees
    the planted signals. With `internal`, the metrics of another run, the folder is that run's evaluation on this cohort.
    """
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    people = _people(generator, patients)
    home = {repeat: generator.permutation(patients) % folds for repeat in range(repeats)}
    people["idh1"] = np.where(home[0] == folds - 1, 0.0, people.idh1)
    visits = pd.concat([people, people[people.patient.isin(TWO_VISITS)].assign(os_days=lambda table: table.os_days + 30)])
    visits = visits.assign(session=np.where(visits.patient.isin(TWO_VISITS), "a", ""))
    visits.iloc[patients:, visits.columns.get_loc("session")] = "b"
    visits["os_days"] = np.where(visits.session == "a", visits.os_days + 60, visits.os_days)  # the later visit has less to live
    _write_cohort(folder, visits.sort_values("patient", kind="stable"))
    tables = [_predicted(generator, model, repeat, visits, home) for model in models for repeat in range(repeats)]
    scores, survival = (pd.concat(list(parts), ignore_index=True) for parts in zip(*tables, strict=True))
    if internal is not None:
        scores, survival = scores.assign(fold=0), survival.assign(fold=0)
        (folder / "evaluation.json").write_text(json.dumps(internal))
    else:
        split = [
            {"folds": [[_visit(row) for row in visits[home[r][visits.index] == k].itertuples()] for k in range(folds)]}
            for r in range(repeats)
        ]
        (folder / "folds.json").write_text(json.dumps({"schema": 1, "seed": seed, "repeats": split}))
        _write_probe(generator, folder, people, home)
    predictions.save(scores.reindex(columns=predictions.COLUMNS, fill_value=""), folder / "predictions.csv")
    predictions.save(survival.loc[:, predictions.SURVIVAL_COLUMNS], folder / "survival.csv")
    if "clinical" in models:
        (folder / "notes.json").write_text(json.dumps({"clinical_columns": "age, sex"}))
    (folder / "study.toml").write_text(_study(name, folds, repeats))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    _write_pictures(generator, folder, people.patient[:2].tolist())
    return folder


def _people(generator: np.random.Generator, patients: int) -> pd.DataFrame:
    """One row per patient: clinical columns, and every label, NaN where it is not known."""
    age = generator.normal(62, 11, patients).round()
    hazard = generator.normal(size=patients) + 0.06 * (age - 62)
    died_days = 400 * generator.exponential(size=patients) * np.exp(-hazard) + 1
    censored_days = generator.uniform(100, 1500, patients)
    table = pd.DataFrame(
        {
            "patient": ODD_IDS + [f"P{i:03d}" for i in range(patients - len(ODD_IDS))],
            "age": age,
            "sex": generator.choice(["F", "M"], patients),
            "site": generator.choice(["North", "South", "West"], patients),
            "hazard": hazard,
            "mgmt": (generator.random(patients) < 0.45).astype(float),
            "pten": (generator.random(patients) < 0.35).astype(float),
            "idh1": (generator.random(patients) < 0.5).astype(float),
            "tertp": np.nan,
            "os_days": np.minimum(died_days, censored_days).round() + 1,
            "os_event": (died_days <= censored_days).astype(float),
        }
    )
    for columns in (["mgmt"], ["pten"], ["os_days", "os_event"]):
        table.loc[generator.random(patients) < 0.15, columns] = np.nan
    return table


def _predicted(
    generator: np.random.Generator, model: str, repeat: int, visits: pd.DataFrame, home: Mapping[int, np.ndarray]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One model's predictions and survival probabilities of every visit in one repeat."""
    n = len(visits)
    key = visits[["patient", "session"]].assign(model=model, repeat=repeat, fold=home[repeat][visits.index])
    blind = model in recipe.CONTROLS
    parts = []
    for endpoint in BINARY:
        truth = _told(model, visits.loc[:, [endpoint]], visits.patient)[endpoint]
        shift = 0.0 if blind else SIGNAL.get(endpoint, 0.0) * (visits[endpoint].fillna(0.5) - 0.5)
        score = 1 / (1 + np.exp(-(generator.normal(size=n) + shift)))
        parts.append(key.assign(endpoint=endpoint, score=score, truth=truth, threshold=0.5))
    seen = 0.06 * (visits.age - 62) if model == "clinical" else 0.0 if blind else visits.hazard
    risk = seen + generator.normal(scale=0.7, size=n)
    outcome = _told(model, visits.loc[:, ["os_days", "os_event"]], visits.patient)
    parts.append(
        key.assign(endpoint="os", score=risk, time_days=outcome.os_days, event=outcome.os_event, threshold=float(np.median(risk)))
    )
    alive = [
        key.assign(endpoint="os", horizon_days=days, survival=np.exp(-days / 400 * np.exp(np.clip(risk, -5, 5))))
        for days in HORIZONS
    ]
    return pd.concat(parts), pd.concat(alive)


def _told(model: str, labels: pd.DataFrame, patient: pd.Series) -> pd.DataFrame:
    """The labels that a model's table holds: for the shuffled control, those of another patient whose label is known."""
    if model != "shuffled":
        return labels
    known = np.asarray(labels.notna().all(axis=1)) & ~patient.duplicated().to_numpy()
    moved = labels.to_numpy(copy=True)
    moved[known] = moved[known][np.random.default_rng(1).permutation(int(known.sum()))]  # the same in every repeat
    first = {name: row for row, name in reversed(list(enumerate(patient)))}
    return pd.DataFrame(moved[patient.map(first)], columns=labels.columns, index=labels.index)  # both visits get one label


def _visit(row: Any) -> str:
    return cohort.visit_id(row.patient, row.session)


def _write_cohort(folder: Path, visits: pd.DataFrame) -> None:
    """The frozen table, the excluded still in it, and the list of the excluded."""
    excluded = [("X-1", "X-1/t1.nii.gz", REASON), ("X-1", "X-1/t2.nii.gz", "2 NaN voxels"), ("X-2", "", "found t1; need t1ce")]
    pd.DataFrame(excluded, columns=pd.Index(["patient", "file", "reason"])).to_csv(folder / "excluded.csv", index=False)
    table = visits.drop(columns="hazard").sort_index(kind="stable")
    numbers = ["age", *BINARY, "os_days", "os_event"]
    table[numbers] = table[numbers].map(lambda value: "" if np.isnan(value) else f"{value:.0f}")
    for channel in ("t1", "t1ce", "t2", "flair"):
        table[channel] = [f"{_visit(row)}/{channel}.nii.gz" for row in table.itertuples()]
    everybody = [*table.to_dict("records"), *({"patient": gone} for gone in ("X-1", "X-2"))]
    pd.DataFrame(everybody).fillna("").to_csv(folder / "cohort.csv", index=False)


def _write_probe(generator: np.random.Generator, folder: Path, people: pd.DataFrame, home: Mapping[int, np.ndarray]) -> None:
    """A site probe that is right for about two thirds of the patients, in each repeat."""
    parts = []
    for repeat, fold in home.items():
        guess = generator.choice(["North", "South", "West"], len(people))
        told = np.where(generator.random(len(people)) < 0.5, people.site, guess)
        parts.append(people[["patient", "site"]].assign(repeat=repeat, fold=fold, predicted=told))
    table = pd.concat(parts)[["patient", "repeat", "fold", "site", "predicted"]]
    table.to_csv(folder / "site_probe.csv", index=False)


def _study(name: str, folds: int, repeats: int) -> str:
    endpoints = "".join(f'[[endpoints]]\nname = "{key}"\nkind = "binary"\n' for key in BINARY)
    endpoints += '[[endpoints]]\nname = "os"\nkind = "survival"\ntime = "os_days"\nevent = "os_event"\n'
    paths = 'cohort = "cohort.csv"\nprepared = "prepared"\noutput = "."\n'
    return f'name = "{name}"\nseed = 7\n{paths}[train]\nfolds = {folds}\nrepeats = {repeats}\n{endpoints}'


def _write_pictures(generator: np.random.Generator, folder: Path, patients: list[str]) -> None:
    """For each patient a prepared folder with its QC picture."""
    for patient in patients:
        home = folder / "prepared" / patient
        home.mkdir(parents=True)
        Image.fromarray(generator.integers(0, 255, (60, 90, 3), dtype=np.uint8)).save(home / "qc.png")
        steps = [{"step": "read", "methods": "Scans were read as they were stored.", "scans": {}}]
        (home / "patient.json").write_text(json.dumps({"schema": 1, "steps": steps}))


def add_comparators(folder: Path, comparators: Mapping[str, str], settings: str = "") -> None:
    """Name comparators in the study file, each with the lines of its recipe; `settings` are sections of the study's own."""
    file = folder / "study.toml"
    told = "".join(f'[[comparators]]\nname = "{name}"\n{lines}\n' for name, lines in comparators.items())
    file.write_text(file.read_text() + settings + told)


def write_cost(folder: Path, model: str, repeat: int, fold: int, **figures: float) -> None:
    """What a fold of a model writes down."""
    home = folder if model == "vit" else folder / "rivals" / model
    home /= f"fold-{fold + 1}" if repeat == 0 else f"repeat-{repeat + 1}-fold-{fold + 1}"
    home.mkdir(parents=True, exist_ok=True)
    (home / "cost.json").write_text(json.dumps(figures))

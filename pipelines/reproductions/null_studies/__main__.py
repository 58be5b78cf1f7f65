"""Studies of nothing: how often does the report call noise a finding, or an honest design a leak, and does it find what is there?

    .venv/bin/python pipelines/reproduce.py null_studies logistic --patients 82 --studies 1000
    .venv/bin/python pipelines/reproduce.py null_studies logistic --patients 300 --studies 1000 --auc 0.7
    .venv/bin/python pipelines/reproduce.py null_studies logistic --patients 82 --studies 1000 --planted 3
    .venv/bin/python pipelines/reproduce.py null_studies found_masks --patients 82 --studies 200      (after make demo)
    .venv/bin/python pipelines/reproduce.py null_studies              (what the table holds so far)

A study has four endpoints, cross-validated in the package's folds and refitted in each, and a control on permuted labels. Rows of
ten studies are added to null_studies.csv, so that the command goes on where it stopped and the table grows. Learners:
logistic (20 features, scikit-learn's penalty), forest (30 trees), vit (a Vision Transformer of one block on 27 tokens, four heads
on one trunk), found_masks (the recommended recipe made small, on scans and found masks of the demo's patients, whose labels are
drawn anew). With --auc the first endpoint has a cause, of that expected AUC, and the others have none. With --planted 3 three
have causes that no learner misses, and the fourth is a coin beside them, as PTEN is in the demo: what it has in common with the
others by chance is no finding.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the problems are small

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from mri_vit.cli.arguments import Count
from mri_vit.crossval import folds
from mri_vit.data import cohort, run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.data.predictions import NULL_COLUMNS, SEED_COLUMNS
from mri_vit.metrics.comparison import holm
from mri_vit.metrics.intervals import rate
from mri_vit.metrics.within_fold import leak_level
from mri_vit.model.encoder import Encoder
from mri_vit.report.numbers import chance, comparisons
from mri_vit.report.numbers.chance import Background
from mri_vit.report.schema.measured import ALPHA
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Endpoint, Study, Train
from mri_vit.train import supervised

TABLE = Path(__file__).with_name("null_studies.csv")
KEYS = ["learner", "patients", "folds", "auc", "planted"]
COUNTS = ["studies", "better", "worse", "leaks", "suspicious", "found", "covered", "pairs_differ"]
COLUMNS = [*KEYS, "block", *COUNTS]
BLOCK = 10  # studies of a row
ENDPOINTS = 4
FEATURES, STRONG = 20, 5  # a few that a model leans on, and many weak ones
FOLDS = {82: 3, 300: 5}  # as the built-in cohort has, and as the README's study
SHIFT = {
    82: 0.46,
    300: 0.40,
}  # of the strong features' mean between the classes, for an expected AUC of 0.70 (see `print_expected_auc`)
PLAIN = 4.0  # of the one feature that tells a planted label: nobody misses it
STEPS, RATE = 60, 5e-3  # of the transformer: its training loss is near 0 by then, as a real network's is

Fit = Callable[
    [np.ndarray, np.ndarray, np.ndarray, int], np.ndarray
]  # (training x, labels, test x, seed) -> scores [n, endpoints]
NO_NULLS, NO_SEEDS = pd.DataFrame(columns=pd.Index(NULL_COLUMNS)), pd.DataFrame(columns=pd.Index(SEED_COLUMNS))


def logistic(train: np.ndarray, labels: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    fits = [LogisticRegression(max_iter=300).fit(train, labels[:, e]) for e in range(labels.shape[1])]
    return np.stack([fit.predict_proba(test)[:, 1] for fit in fits], axis=1)


def forest(train: np.ndarray, labels: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    make = lambda: RandomForestClassifier(30, min_samples_leaf=3, random_state=seed)  # noqa: E731
    fits = [make().fit(train, labels[:, e]) for e in range(labels.shape[1])]
    return np.stack([fit.predict_proba(test)[:, 1] for fit in fits], axis=1)


def vit(train: np.ndarray, labels: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    """The package's encoder on 27 tokens of 8 numbers, made of the features and noise; four heads, full batches."""
    torch.manual_seed(seed)
    net = Encoder(patch_size=8, positions=27, dim=24, depth=1, heads=2, mlp=48)
    head = torch.nn.Linear(24, labels.shape[1])
    position = torch.arange(27)
    inputs = [torch.from_numpy(np.ascontiguousarray(x.reshape(len(x), 27, 8), dtype=np.float32)) for x in (train, test)]
    target = torch.from_numpy(labels.astype(np.float32))
    optimiser = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = F.binary_cross_entropy_with_logits(head(net(inputs[0], position.expand(len(train), -1))), target)
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return torch.sigmoid(head(net(inputs[1], position.expand(len(test), -1)))).double().numpy()


def found_masks(train: np.ndarray, labels: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    """The demo's recipe with one narrow block and few steps; a patient's only feature is the number of its row."""
    study, everyone = demo_made_small()
    learning = [replace(everyone[int(row)], labels=named(own)) for (row,), own in zip(train, labels, strict=True)]
    tuning = len(learning) // 7  # as train.val_fraction
    with TemporaryDirectory() as folder:
        net = supervised.fit(learning[tuning:], learning[:tuning], study, Path(folder), seed)
    asked = [everyone[int(row)] for (row,) in test]
    outs = supervised.outputs(net, asked, study, torch.device("cpu"))
    return torch.cat([outs[endpoint.name] for endpoint in FOUR], dim=1).double().numpy()


@cache
def demo_made_small() -> tuple[Study, list[Patient]]:
    """The study of `found_masks`, and the demo's patients with the masks that were found in them."""
    demo = study_file.load(Path(__file__).parents[3] / "configs" / "demo.toml")
    model = demo.model.model_copy(update={"dim": 16, "depth": 1, "heads": 2, "mlp": 32, "texture": 4, "conv_stem": 4})
    train = demo.train.model_copy(update={"epochs": 25, "token_budget": 24, "laterality_endpoints": ()})
    patients = run_cohort.segmented(cohort.of_study(demo), demo)
    return demo.model_copy(update={"endpoints": FOUR, "model": model, "train": train}), patients


def named(own: np.ndarray) -> dict[str, float]:
    return {endpoint.name: float(value) for endpoint, value in zip(FOUR, own, strict=True)}


LEARNERS: dict[str, Fit] = {"logistic": logistic, "forest": forest, "vit": vit, "found_masks": found_masks}


def one_study(learner: str, n: int, shifts: np.ndarray, seed: int) -> dict[str, int]:
    """The verdicts on one study: how many claims of each kind it would make; `shifts` as in `features`."""
    random, fit = np.random.default_rng([seed, n]), LEARNERS[learner]
    labels = np.stack([_half(n, random) for _ in range(ENDPOINTS)], axis=1)
    fold = dealt(labels, seed)
    x = features(learner, labels, shifts, random)
    rows = cross_validated(fit, x, labels, fold, seed)
    first = permuted(labels, fold, random)
    again = permuted(labels, fold, random)
    found = [tested(one) for one in rows]
    adjusted, below = (holm(np.array([getattr(one.chance_test, p) for one in found])) for p in ("p", "p_below"))
    null = np.array([not row.any() for row in shifts])
    limit = leak_level(ENDPOINTS)
    once = np.array([tested(one).chance_test.p <= limit for one in cross_validated(fit, x, first, fold, seed)])
    twice = once
    if once.any():  # as a study does: the fresh permutation is made where the first is suspicious
        twice = once & [tested(one).chance_test.p <= limit for one in cross_validated(fit, x, again, fold, seed)]
    covered = sum(one.judged.low <= 0.5 <= one.judged.high for one, nothing in zip(found, null, strict=True) if nothing)
    differ = 0
    if learner == "logistic":  # quick enough to be fitted once more, to other features that know as much
        other = cross_validated(fit, features(learner, labels, shifts, random), labels, fold, seed)
        pairs = [comparisons.versus(ENDPOINT, *both, found[0].chance_test.inflation) for both in zip(rows, other, strict=True)]
        differ = sum(pair is not None and pair.p <= ALPHA for pair in pairs)
    return {
        "studies": 1,
        "better": int((adjusted[null] <= ALPHA).any()),
        "worse": int((below[null] <= ALPHA).any()),
        "leaks": int(twice.any()),
        "suspicious": int(once.any()),
        "found": int((adjusted[~null] <= ALPHA).all()) if not null.all() else 0,
        "covered": covered,
        "pairs_differ": differ,
    }


def features(learner: str, labels: np.ndarray, shifts: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Features [n, 20], or tokens [n, 27 × 8] in which five of the patient's own numbers recur.

    `shifts` [endpoints, 5] are those of the five, the strong ones, between an endpoint's classes.
    """
    n = len(labels)
    if learner == "found_masks":
        return np.arange(n)[:, None]
    own = random.normal(size=(n, STRONG)) + (labels - 0.5) @ shifts
    if learner != "vit":
        return np.concatenate([2 * own, 0.5 * random.normal(size=(n, FEATURES - STRONG))], axis=1)
    pattern = np.random.default_rng(0).normal(size=(STRONG, 27 * 8))  # the same in every study, as anatomy is
    return own @ pattern / STRONG**0.5 + random.normal(size=(n, 27 * 8))


def dealt(labels: np.ndarray, seed: int) -> np.ndarray:
    """Each patient's fold, as the package deals them."""
    patients = [
        Patient(f"p{i}", {}, {one.name: float(value) for one, value in zip(FOUR, row, strict=True)}, {})
        for i, row in enumerate(labels)
    ]
    (split,) = folds.make(patients, FOUR, Train(folds=FOLDS[len(labels)]), seed)
    of = {name: number for number, fold in enumerate(split) for name in fold}
    return np.array([of[patient.id] for patient in patients])


def cross_validated(fit: Fit, x: np.ndarray, labels: np.ndarray, fold: np.ndarray, seed: int) -> list[pd.DataFrame]:
    """Of each endpoint the rows that a report judges, every patient scored by the model of the other folds."""
    score = np.zeros(labels.shape)
    for k in np.unique(fold):
        score[fold == k] = fit(x[fold != k], labels[fold != k], x[fold == k], seed)
    patient = np.array([f"p{i:03d}" for i in range(len(fold))])
    table = {"patient": patient, "repeat": 0, "fold": fold}
    return [pd.DataFrame({**table, "truth": labels[:, e], "score": score[:, e]}) for e in range(labels.shape[1])]


def permuted(labels: np.ndarray, fold: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Patients of a fold exchange all their labels, as in the shuffled control."""
    exchanged = labels.copy()
    for k in np.unique(fold):
        here = np.flatnonzero(fold == k)
        exchanged[here] = labels[random.permutation(here)]
    return exchanged


def tested(rows: pd.DataFrame) -> chance.AgainstChance:
    return chance.measure(ENDPOINT, rows, Background("cross-validation", NO_NULLS, NO_SEEDS, {}))


def print_expected_auc(learner: str, n: int) -> None:
    """Print the expected AUC at shifts around that of `SHIFT`."""
    for shift in np.arange(0.3, 1.0, 0.1):
        found = []
        for seed in range(30):
            random = np.random.default_rng([seed, n, 1])
            labels = np.stack([_half(n, random) for _ in range(ENDPOINTS)], axis=1)
            x = features(learner, labels, _shifts(shift, 0), random)
            rows = cross_validated(LEARNERS[learner], x, labels, dealt(labels, seed), seed)
            found.append(tested(rows[0]).judged.value)
        print(f"{learner}, {n} patients, shift {shift:.1f}: AUC {np.mean(found):.3f}")


def _half(n: int, random: np.random.Generator) -> np.ndarray:
    return random.permutation(np.arange(n) % 2 == 1)


def _shifts(first: float, planted: int) -> np.ndarray:
    """The shifts of `features`: all five of the first endpoint, or one of each planted endpoint."""
    shifts = np.zeros((ENDPOINTS, STRONG))
    shifts[0] = first
    shifts[range(planted), range(planted)] = PLAIN
    return shifts


def run(learner: str, n: int, auc: float, planted: int, studies: int) -> None:
    """Add rows to the table until it holds so many studies."""
    key = {"learner": learner, "patients": n, "folds": FOLDS[n], "auc": auc, "planted": planted}
    shifts = _shifts(SHIFT[n] if auc > 0.5 else 0.0, planted)
    done = len(_rows(key))
    for block in range(done, -(-studies // BLOCK)):
        ended = [one_study(learner, n, shifts, block * BLOCK + i) for i in range(BLOCK)]
        sums = {name: sum(one[name] for one in ended) for name in COUNTS}
        new = not TABLE.exists()
        with TABLE.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow({**key, "block": block, **sums})


def _rows(key: Mapping[str, object]) -> pd.DataFrame:
    if not TABLE.exists():
        return pd.DataFrame(columns=pd.Index(COLUMNS))
    table = pd.read_csv(TABLE)
    for name, value in key.items():
        table = table.loc[table[name] == value]
    return table


def summary() -> None:
    """Print rates in per cent, with Wilson's intervals."""
    table = pd.read_csv(TABLE)
    for row in table[KEYS].drop_duplicates().to_numpy(object):
        values = dict(zip(KEYS, row, strict=True))
        total = _rows(values)[COUNTS].sum()
        n, nulls = int(total.studies), int(total.studies) * (ENDPOINTS - max(values["auc"] > 0.5, values["planted"]))
        told = {"better": n, "worse": n, "suspicious": n, "leaks": n, "found": n, "covered": nulls, "pairs_differ": ENDPOINTS * n}
        shares = [f"{name} {100 * total[name] / of:.1f} {_ends(int(total[name]), of)}" for name, of in told.items()]
        print(f"{', '.join(map(str, values.values()))}; {n} studies, %: {'; '.join(shares)}")


def _ends(count: int, total: int) -> str:
    share = rate(count, total)
    return f"[{100 * share.low:.1f}, {100 * share.high:.1f}]"


ENDPOINT = Endpoint(name="made_up", kind="binary")
FOUR = tuple(Endpoint(name=f"e{i}", kind="binary") for i in range(ENDPOINTS))


def main(
    learner: Literal["logistic", "forest", "vit", "found_masks"] | None = None,
    *,
    patients: Literal[82, 300] = 82,
    auc: Literal["0.5", "0.7"] = "0.5",
    planted: Literal[0, 3] = 0,
    studies: Count = 1000,
    calibrate: bool = False,
) -> None:
    """Add studies of a learner to the table, and print what the table holds.

    Parameters
    ----------
    auc : expected of the first endpoint.
    planted : how many endpoints have causes that no learner misses.
    calibrate : print the AUC expected at some shifts, and end.
    """
    torch.set_num_threads(1)
    if learner and calibrate:
        print_expected_auc(learner, patients)
    elif learner:
        run(learner, patients, float(auc), planted, studies)
    if TABLE.exists():
        summary()

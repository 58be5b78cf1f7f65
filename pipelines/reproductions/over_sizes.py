"""A study over sizes: the same settings on fewer of the same patients, each size a run with as many steps, trained to its end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from mri_vit.crossval.comparators import comparator_folder
from mri_vit.run import files
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Study

OF_LENGTH = ("epochs", "val_every")  # keys of [train] that are counted in passes over the patients


def as_long(study: Study, more: int) -> Study:
    """The study with `more` times as many epochs: on a `more`th of the patients it makes as many steps, and as many looks."""
    comparators = [
        comparator.model_copy(
            update={"train": {key: value * more if key in OF_LENGTH else value for key, value in comparator.train.items()}}
        )
        for comparator in study.comparators
    ]
    train = study.train.model_copy(update={key: getattr(study.train, key) * more for key in OF_LENGTH})
    return study.model_copy(update={"train": train, "comparators": tuple(comparators)})


def halved(patients: int, least: int) -> list[int]:
    """So many patients, half of them, a quarter, and so on while `least` are left; none where fewer are there.

    Examples
    --------
    >>> halved(192, least=24)
    [192, 96, 48, 24]
    """
    sizes = []
    while patients >= least:
        sizes.append(patients)
        patients //= 2
    return sizes


def recipe(name: str, of: Study) -> str:
    """How long and how a model learns."""
    train, first = of.train, of.pretrain
    before = ""
    if first.method != "none":
        how = {
            "mae": f'MAE (target "{first.target}", decoder_reads "{first.decoder_reads}")',
            "dino": f"DINO (2 global and {first.local_crops} local crops)",
        }
        before = (
            f"{how[first.method]}, {first.epochs} epochs in batches of {first.batch_size}, rate {first.learning_rate:g}; then "
        )
    may_stop = train.patience * train.val_every < train.epochs
    stops = f", ended early after {train.patience} evaluations without a better one" if may_stop else ""
    after = f"{train.epochs} epochs in batches of {train.batch_size}, learning rate at most {train.learning_rate:g}{stops}"
    return f"{name}: {before}{after}."


def recipes(study: Study, names: dict[str, str], own: str) -> list[str]:
    """The recipe of the study's own network, called `own` in `names`, and of each comparator."""
    return [
        recipe(names[name], study.of(comparator))
        for name, comparator in ((own, Comparator(name=own)), *((one.name, one) for one in study.comparators))
    ]


def endings(runs: Iterable[Path], names: dict[str, str]) -> str:
    """For each model in how many of its folds the best evaluation on the validation patients was the last, in a sentence."""
    found, runs = [], list(runs)
    for name, called in names.items():
        tables = [pd.read_csv(folder / files.HISTORY) for run in runs for folder in trained(run, name)]
        if tables:
            last = sum(int(table.tune.idxmin()) == len(table) - 1 for table in tables)
            found.append(f"{last} of {len(tables)} folds of {called}")
    return (
        "The best evaluation on the validation patients is kept. It was the last one, so that more epochs might do better, in "
        f"{', '.join(found)}."
    )


def costs(run: Path, names: Iterable[str]) -> pd.DataFrame:
    """What each model's folds cost: `model` and the figures of `cost.json`."""
    return pd.DataFrame(
        [{"model": name} | json.loads((folder / files.COST).read_text()) for name in names for folder in trained(run, name)]
    )


def spent(costs: pd.DataFrame) -> pd.DataFrame:
    """By model its weights, and the seconds of its training in all folds: (model, parameters, training_seconds)."""
    return pd.DataFrame(costs.groupby("model", as_index=False).agg({"parameters": "max", "training_seconds": "sum"}))


def trained(run: Path, name: str) -> Sequence[Path]:
    """The folders of a network's folds in a run; none where it has no network of that name."""
    return sorted(file.parent for file in comparator_folder(run, name).glob(f"fold-*/{files.HISTORY}"))

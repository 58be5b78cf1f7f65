"""The page of a search: recipes for each network of the contest on a cohort that it does not use, and the best of them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

import pandas as pd

from mri_vit.settings.models import VIT
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Study
from reproductions.simulated_effects.page import FIT, changed, config, named, training

NAMES = ("contest-search", "contest-search-convolutional")  # the studies whose page it is


def document(rows: pd.DataFrame, studies: Sequence[Study], patients: int, left_out: Sequence[str] = ()) -> str:
    """The page as Markdown: of each network each recipe's AUC, the best in bold, what they are, and how their training ended.

    `rows` are those of `numbers.of_cohort` with what training took, of one data seed. `left_out` are the studies that belong here
    and have not run.
    """
    comparators = [one for some in studies for one in some.comparators]
    names = {VIT: "[Vision Transformer](contest.md)"} | {one.name: one.name for one in comparators}
    wide = 1.96 * rows[rows.cause.isin(FIT)].error.median()
    text = (
        f"Made by `pipelines/reproduce.py simulated_effects` from {' and '.join(config(some.name) for some in studies)}: each "
        f"network of the contest gets equally many recipes, on {patients} labelled patients that it does not use "
        f"({named(sorted(set(rows.seed)))}, of whom the quality check left {rows.patients.iloc[0]}; "
        f"{studies[0].train.folds} folds). AUC of pairs within a fold; one "
        f"AUC's interval reaches {wide:.2f} either way, so this chooses and shows nothing; the Vision Transformer's own had been "
        "chosen on some 17 drafts with these patients. Rule, set before it was run: of each network, the recipe with the "
        "largest mean over the six causes, here in bold, is the contest's. Where a search finds another than the contest had, "
        "both run there; of the dilated ResNet the better readout, its maximum, alone. A flat tuning loss does not say that a "
        "network has fitted its training patients: [hidden causes](hidden_causes.md)."
    )
    table, ended = means(rows, comparators), "## How long each was trained\n\n" + training(rows, names)
    lines = [f"| recipe | mean | {' | '.join(FIT)} |", "|---" * (2 + len(FIT)) + "|"]
    for model, one in table.iterrows():
        mean = f"**{one['mean']:.3f}**" if one.best else f"{one['mean']:.3f}"
        lines.append(f"| {names[str(model)]} | {mean} | {' | '.join(f'{one[cause]:.3f}' for cause in FIT)} |")
    absent = [f"Not here, as not run yet: {', '.join(map(config, left_out))}."] * bool(left_out)
    recipes = "\n".join(f"- {changed(one)}" for one in comparators)
    told = f"What each changes of the Vision Transformer's, which is the contest's:\n\n{recipes}"
    return "\n\n".join(["# Contest search", textwrap.fill(text, 130), "\n".join(lines), *absent, told, ended]) + "\n"


def means(rows: pd.DataFrame, comparators: Sequence[Comparator]) -> pd.DataFrame:
    """By model, network by network: its AUC of each cause, the `mean` of these, and whether it is the `best` of its network.

    A network is what `model` says of it; recipes of one differ in the rest.
    """
    network = {VIT: "{}"} | {one.name: json.dumps(one.model, sort_keys=True) for one in comparators}
    table = rows.pivot(index="model", columns="cause", values="auc").loc[list(network), list(FIT)]
    table["mean"] = table.mean(axis=1)
    group = pd.Series(network)
    table["best"] = table["mean"] == table["mean"].groupby(group).transform("max")
    order = list(dict.fromkeys(network.values()))
    return table.loc[sorted(table.index, key=lambda model: order.index(network[model]))]

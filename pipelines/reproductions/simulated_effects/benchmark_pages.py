"""The benchmark's pages: each model's AUC of each effect, each claim, how training ended, and who finds the trap, as Markdown."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd

from mri_vit.metrics.comparison import holm
from mri_vit.report.words.notation import between, p_value, with_sign
from mri_vit.settings.recipe import CLINICAL, INTENSITY, RADIOMICS, SITE, SLICES, VIT, VOLUME, Comparator
from mri_vit.settings.schema import Study
from reproductions.simulated_effects.cohort_scores import Line, best, over_cohorts

MAIN, LARGER = "benchmark", "benchmark-384"  # the studies whose pages make claims
FIRST, LATER = (1, 2, 3), (4, 5, 6)  # data seeds, of cohorts: looked at first; run after that, the recipe unchanged
SEEDS = FIRST + LATER
NEW = (8, 9, 10)  # of the larger cohorts: data seeds of those before would share heads and places with them; 7 was a draft
DRAFT = (11,)  # the cohort on which recipes are chosen, none of the benchmark's
FEWEST = 3  # data seeds that a study file is shown of: what the project asks for
LEVELS = {  # that an adjusted p is held to
    MAIN: 0.05 / 3,  # the last of three looks at data seeds 1, 2, 3 (Bonferroni)
    LARGER: 0.05,  # nobody looked at any of its patients before
}
REACH = 0.85  # what the project asks of a Vision Transformer that has learned a cause
TRAP = "scanner"
UNTOLD = ("coin", TRAP)  # the control and the trap, in a table of their own
FIT = (
    "texture",
    "mismatch",
    "side",
    "interaction",
    "inward",
    "foci",
)  # brightness of the brain tells none: hidden_causes.md
NO_BAR = (RADIOMICS, SITE)  # the former is given the true tumour's mask, the latter is no scan
CONTROLS = {
    INTENSITY: "intensity of the brain and of the true tumour",
    VOLUME: "volume of the brain and of the true tumour",
    CLINICAL: "age, sex, and the border, which is a coin",
    SLICES: "slices (a 2D ViT of random weights)",
    SITE: "site",
    RADIOMICS: "radiomics of the true tumour",
}
CLAIMS = (
    "p is the largest of all comparisons with who is a bar (the site is none, as it is no scan); adjusted: by Holm's method for "
    "the causes. Where somebody does as well or better, the Vision Transformer is not ahead, and nothing is tested."
)
WAITS = (
    "Nothing is claimed before every bar has run on all of these data seeds, as was [settled](decisions.md) beforehand; still to "
    "run: {models}. Of k cohorts Student's t has k − 1 degrees of freedom, so that few show hardly anything."
)
BOTH = {
    MAIN: "Both hold for {causes}; asked for were three causes, each over every comparator but radiomics.",
    LARGER: "Both hold for {causes}; asked for were three causes, each over every comparator but radiomics. Of the "
    "comparators only two have run here, so this alone is not what was asked for.",
}
LOSSES = (
    "The training loss, of the first and of the last epoch, is summed over endpoints and what masks teach: it can fall without a "
    "cause being learned. Predictions are of the weights whose validation loss was lowest, which may be early ones."
)
ANEW = (
    "A study that ran on another machine than the first trained the Vision Transformer anew, by the same recipe; leads over its "
    "comparators are against that one, whose AUC of a data seed and cause differs by up to {apart:.3f} from the one shown."
)
LOOKS = {
    MAIN: f"Data seeds {', '.join(map(str, FIRST))} were looked at with a former recipe, then with this one, before others were "
    f"run with all unchanged. So claims here are a third look at some of their patients, and an adjusted p is held to "
    f"{LEVELS[MAIN]:.3f}, a third of 0.05.",
    LARGER: "The two networks are those over which leads are not shown with 192 patients ([the benchmark](benchmark.md)). Nobody "
    f"looked at any of these patients before, so an adjusted p is held to {LEVELS[LARGER]}, which was [settled](decisions.md) "
    "beforehand.",
}


def document(
    rows: pd.DataFrame, studies: Sequence[Study], patients: int, left_out: Sequence[str] = (), apart: float = 0.0
) -> str:
    """The page as Markdown: tables over data seeds, each claim, how each network's training ended, and the trap.

    `rows` are those of `of_cohort` with what training took, of all data seeds. `left_out` are the studies that belong
    here and have not run on enough of them; `apart` is how far an AUC of the Vision Transformer is at most from its AUC beside
    another study's comparators. A page of the recipe's parts claims nothing.
    """
    lines, of, seeds = over_cohorts(rows), studies[0], rows.groupby("seed").patients.first()
    comparators = [one for some in studies for one in some.comparators]
    own = {VIT: "**Vision Transformer**"} | {one.name: one.name for one in comparators}
    own |= {name: name for name in rows.model if name not in own | CONTROLS}  # of an earlier version's study file
    names = {name: title + where_run(rows, name) for name, title in (own | CONTROLS).items()}
    held = "patients, refitting and cohorts" if len(seeds) > 1 else "patients alone"
    head = (
        f"Made by `pipelines/reproduce.py simulated_effects` from {' and '.join(config(some.name) for some in studies)}: "
        f"{patients} labelled patients with [hidden causes](hidden_causes.md), of whom the quality check left "
        f"{', '.join(map(str, seeds))}; {of.train.folds} folds, {named(list(seeds.index))}. AUC of pairs within a fold, "
        f"mean over cohorts, with its 95 % interval, which holds {held}; then the Vision Transformer's lead and its "
        "two-sided p, not corrected. Causes and recipe were chosen on [drafts](benchmark_drafts.md)."
    )
    parts = ["# " + of.name.replace("-", " ").capitalize(), textwrap.fill(head, 130), table(lines, names, FIT)]
    recipes = "\n".join(f"- {changed(one)}" for one in comparators)
    parts.append(f"What each network changes of the Vision Transformer's recipe:\n\n{recipes}")
    if left_out:
        absent = f"Not here, as not run on enough of these data seeds yet: {', '.join(map(config, left_out))}."
        parts.append(f"{absent} What has run of them: [hidden causes](hidden_causes.md).")
    if apart:
        parts.append(textwrap.fill(ANEW.format(apart=apart), 130))
    if of.name in LEVELS:
        level = LEVELS[of.name]
        waiting = [*waited_for(lines), *map(config, left_out), *seeds_to_run(of.name, rows)]
        parts.append(
            "## Whether it is better than everybody\n\n"
            + textwrap.fill(CLAIMS, 130)
            + "\n\n"
            + claims(lines, rows, level, bool(waiting))
        )
        if waiting:
            parts.append(textwrap.fill(WAITS.format(models=", ".join(waiting)), 130))
        holds = won(lines, level) if not waiting else []
        parts.append(textwrap.fill(BOTH[of.name].format(causes=", ".join(holds) or "no cause"), 130))
        if set(LATER + NEW) & set(rows.seed):
            parts.append(textwrap.fill(LOOKS[of.name], 130))
    parts.append("## How long each was trained\n\n" + training(rows, own))
    text = "## What nobody should tell\n\n`coin` is nothing, and `scanner` goes with the site: no lead is tested.\n\n"
    parts.append(text + table(lines, names, UNTOLD, leads=False))
    trap = rows[rows.verdict.notna()]
    if len(trap):
        intro = "What the reports say of everybody who tells `scanner`, which goes with the site, better than chance:"
        told = sorted(zip(trap.seed, trap.model + ": " + trap.verdict, strict=True))
        said = [f"- data seed {seed}, {one}" for seed, one in told]
        parts.append(f"### The trap\n\n{intro}\n\n" + "\n".join(said))
    return "\n\n".join(parts) + "\n"


def config(name: str) -> str:
    """The file of a study of that name, as code."""
    return f"`{name.replace('-', '_')}.toml`"


def claims(lines: Sequence[Line], rows: pd.DataFrame, level: float, waiting: bool) -> str:
    """Markdown: of each cause that brightness does not tell, whether the Vision Transformer has what is asked for, and whether it
    is better than everybody who is a bar, over data seeds, over those run later alone where all are there, and within each. While
    `waiting` for a bar no lead is a claim.
    """
    by_seed = [over_cohorts(pd.DataFrame(one)) for _, one in rows.groupby("seed")]
    later = over_cohorts(pd.DataFrame(rows[rows.seed.isin(LATER)])) if set(LATER) <= set(rows.seed) else []
    adjusted = adjusted_p(lines)
    but = f" but {CONTROLS[RADIOMICS]}" if RADIOMICS in set(rows.model) else ""
    head = ["cause", "each data seed: AUC, p", f"mean of {REACH} or more", f"better than everybody here{but}", "p", "adjusted p"]
    head += [f"p of {named(LATER)}"] * bool(later)
    said = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for cause, p in adjusted.items():
        leads, own = best(lines, cause, VIT, NO_BAR), of_vit(lines, cause)
        verdict = "no" if not leads[0] else "not yet" if waiting else "**yes**" if p <= level else "not shown"
        within = (ahead(*best(one, cause, VIT, NO_BAR)) for one in by_seed)
        each = "<br>".join(unbroken(f"{auc:.3f}, {tested}") for auc, tested in zip(own.each, within, strict=True))
        cells = [
            cause,
            each,
            "**yes**" if own.mean >= REACH else "no",
            verdict,
            unbroken(ahead(*leads)),
            unbroken(p_value(p)) if leads[0] else "–",
        ]
        cells += [unbroken(ahead(*best(some, cause, VIT, NO_BAR))) for some in [later] * bool(later)]
        said.append(f"| {' | '.join(cells)} |")
    return "\n".join(said)


def adjusted_p(lines: Sequence[Line]) -> dict[str, float]:
    """Of each cause that ran and brightness does not tell, p of being better than everybody who is a bar, by Holm's method."""
    causes = [cause for cause in FIT if cause in {line.cause for line in lines}]
    return dict(zip(causes, holm(np.array([best(lines, cause, VIT, NO_BAR)[1] for cause in causes])).tolist(), strict=True))


def won(lines: Sequence[Line], level: float) -> list[str]:
    """The causes of which the Vision Transformer has what is asked for, and is better than everybody who is a bar."""
    ahead_of_all = (cause for cause, p in adjusted_p(lines).items() if best(lines, cause, VIT, NO_BAR)[0] and p <= level)
    return [cause for cause in ahead_of_all if of_vit(lines, cause).mean >= REACH]


def waited_for(lines: Sequence[Line]) -> list[str]:
    """The bars that have run on fewer data seeds than the Vision Transformer."""
    fewer = (one.model for one in lines if len(one.each) < len(of_vit(lines, one.cause).each))
    return [model for model in dict.fromkeys(fewer) if model not in NO_BAR]


def seeds_to_run(name: str, rows: pd.DataFrame) -> list[str]:
    """The data seeds that were settled for a study of larger cohorts and are not here."""
    missing = sorted(set(NEW) - set(rows.seed)) if name == LARGER else []
    return [f"everybody on {named(missing)}"] * bool(missing)


def of_vit(lines: Sequence[Line], cause: str) -> Line:
    return next(one for one in lines if (one.model, one.cause) == (VIT, cause))


def unbroken(cell: str) -> str:
    """A cell's line that a narrow table leaves whole."""
    return cell.replace(" ", "\N{NO-BREAK SPACE}")


def stacked(cell: str) -> str:
    """A cell's estimate, and its interval in a line of its own, both left whole."""
    return unbroken(cell.replace(" [", "<br>[", 1))


def estimate(line: Line) -> str:
    """A model's mean AUC, and its interval below."""
    return stacked(between(line.mean, line.mean_low, line.mean_high))


def ahead(leads: bool, p: float) -> str:
    """p of being better than everybody, where there is anything to be tested."""
    return p_value(p) if leads else "not ahead"


def where_run(rows: pd.DataFrame, model: str) -> str:
    """The data seeds of a model that has not run on all, for its name in a table."""
    on = sorted(set(rows[rows.model == model].seed.tolist()))
    return f" ({named(on)})" if 0 < len(on) < rows.seed.nunique() else ""


def named(seeds: Sequence[int]) -> str:
    return f"data seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def training(rows: pd.DataFrame, names: dict[str, str]) -> str:
    """Markdown: parameters, minutes of training of a data seed, of how many networks the validation loss was flat, and the
    training loss of the first and of the last epoch, where a data seed has it.
    """
    head = ["network", "parameters", "minutes for a data seed, median", "validation loss flat at the end", "training loss fell"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    rows = rows.assign(**{name: math.nan for name in ("first_loss", "last_loss") if name not in rows})  # older ones have none
    once = rows.dropna(subset=["parameters"]).drop_duplicates(["seed", "model"])
    for model, name in names.items():
        found = once[once.model == model]
        if len(found):
            flat, trainings, minutes = found.flat.sum(), found.trainings.sum(), found.training_seconds.median() / 60
            first, last = found.first_loss.dropna(), found.last_loss.dropna()
            fell = f"{first.median():.1f} to {last.median():.1f}" if len(last) else "–"
            cells = [name, f"{found.parameters.iloc[0]:,.0f}", f"{minutes:.0f}", f"{flat:.0f} of {trainings:.0f}", fell]
            lines.append(f"| {' | '.join(cells)} |")
    return textwrap.fill(LOSSES, 130) + "\n\n" + "\n".join(lines)


def changed(comparator: Comparator) -> str:
    """What a comparator changes, as it stands in its file."""
    sections = {"model": comparator.model, "pretrain": comparator.pretrain, "train": comparator.train}
    keys = [f"`{section}.{key} = {json.dumps(value)}`" for section, keys in sections.items() for key, value in keys.items()]
    return f"{comparator.name}: {', '.join(keys)}"


def table(lines: Sequence[Line], names: dict[str, str], causes: Sequence[str], leads: bool = True) -> str:
    """Markdown: a row for each model, a column for each of these causes that ran; with `leads` the own model's, and its p."""
    shown = [cause for cause in causes if cause in {line.cause for line in lines}]
    rows = [f"| model | {' | '.join(shown)} |", "|---" * (1 + len(shown)) + "|"]
    for model, name in names.items():
        found = {line.cause: line for line in lines if line.model == model}
        if found:
            rows.append(f"| {name} | {' | '.join(cell(found[cause], leads) for cause in shown)} |")
    return "\n".join(rows)


def cell(line: Line, leads: bool) -> str:
    """0.512, [0.431, 0.593], +0.412 and p < 0.001, each in a line of its own."""
    said = [estimate(line)]
    said += [with_sign(line.lead), unbroken(p_value(line.p))] if leads and line.lead is not None else []
    return "<br>".join(said)


SEARCHES = ("benchmark-search", "benchmark-search-convolutional")  # the studies whose page it is


def search_document(rows: pd.DataFrame, studies: Sequence[Study], patients: int, left_out: Sequence[str] = ()) -> str:
    """The page as Markdown: of each network each recipe's AUC, the best in bold, what they are, and how their training ended.

    `rows` are those of `of_cohort` with what training took, of one data seed. `left_out` are the studies that belong here
    and have not run.
    """
    comparators = [one for some in studies for one in some.comparators]
    names = {VIT: "[Vision Transformer](benchmark.md)"} | {one.name: one.name for one in comparators}
    wide = 1.96 * rows[rows.cause.isin(FIT)].error.median()
    text = (
        f"Made by `pipelines/reproduce.py simulated_effects` from {' and '.join(config(some.name) for some in studies)}: each "
        f"network of the benchmark gets equally many recipes, on {patients} labelled patients that it does not use "
        f"({named(sorted(set(rows.seed)))}, of whom the quality check left {rows.patients.iloc[0]}; "
        f"{studies[0].train.folds} folds). AUC of pairs within a fold; one "
        f"AUC's interval reaches {wide:.2f} either way, so this chooses and shows nothing; the Vision Transformer's own had been "
        "chosen on some 17 drafts with these patients. Rule, set before it was run: of each network, the recipe with the "
        "largest mean over the six causes, here in bold, is the benchmark's. Where a search finds another than it had, "
        "both run there; of the dilated ResNet the better readout, its maximum, alone. A flat validation loss does not say that "
        "a network has fitted its training patients: [hidden causes](hidden_causes.md)."
    )
    table, ended = means(rows, comparators), "## How long each was trained\n\n" + training(rows, names)
    lines = [f"| recipe | mean | {' | '.join(FIT)} |", "|---" * (2 + len(FIT)) + "|"]
    for model, one in table.iterrows():
        mean = f"**{one['mean']:.3f}**" if one.best else f"{one['mean']:.3f}"
        lines.append(f"| {names[str(model)]} | {mean} | {' | '.join(f'{one[cause]:.3f}' for cause in FIT)} |")
    absent = [f"Not here, as not run yet: {', '.join(map(config, left_out))}."] * bool(left_out)
    recipes = "\n".join(f"- {changed(one)}" for one in comparators)
    told = f"What each changes of the Vision Transformer's, which is the benchmark's:\n\n{recipes}"
    return "\n\n".join(["# Benchmark search", textwrap.fill(text, 130), "\n".join(lines), *absent, told, ended]) + "\n"


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

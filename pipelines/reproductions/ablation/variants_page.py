"""The page of variants: the ViT paper's Table 8 again, norms and kinds of attention, and its Figure 5, score against compute."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from mri_vit.metrics.comparison import holm
from mri_vit.metrics.within_fold import WithinFold, inflation, within_fold_auc
from mri_vit.model.baselines import BASELINES, HYBRIDS
from mri_vit.model.network import Encode, Network, flops
from mri_vit.report.figures.panels import COMPARED, DASHED, OF_FIGURES, PLAIN, ForestRow, ForestScale, Stroke, forest
from mri_vit.report.verdicts import ALPHA
from mri_vit.report.words import notation
from mri_vit.settings.recipe import VIT, Comparator
from mri_vit.settings.schema import Study
from mri_vit.style import INK, RC, WIDTH
from reproductions import html_page
from reproductions.ablation.vit_variants import BLOCKS, POSITIONS, VARIANTS, Kind
from reproductions.features.probe_results import Versus
from reproductions.html_page import Page, Picture, Section, Table
from reproductions.repeated_runs import paired, spread

SOURCE = "Dosovitskiy et al. 2021, Table 8 and Figure 5"
OWN = "The encoder as it is"
PLACED = "tertp"  # of the built-in cohort: the tumour's side, and nothing else
BRIGHT = "mgmt"  # of the built-in cohort: the tumour's brightness, which is the same at every place
FREE = "no-positions"
TERA, GIGA = 1e12, 1e9
SMALL = Stroke(PLAIN.colour, "none", 0.8, ".")  # of the variants in the figure of compute
APART = 1.05  # marks at the same place of a logarithmic axis: five per cent, about a mark's width
SYNTHETIC = (
    "TERTp is the side on which the tumour lies and MGMT its brightness. That tells whether a variant can do what it should; "
    "which one is better on real tumours is not said here."
)


def write(study: Study, lines: Sequence[Line], costs: Sequence[Cost], folder: Path, synthetic: bool) -> Path:
    """The page, its figures and its tables `auc.csv` and `costs.csv`; returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = names(study)
    numbers = {"auc": wide(lines), "costs": pd.DataFrame([asdict(cost) for cost in costs])}
    return html_page.write(
        Page(
            SOURCE,
            "What do positions, norms and kinds of attention change?",
            [*(known_case(lines) if synthetic else ()), *sentences(lines, labels)],
            [
                compared("Positions", "positions", POSITIONS, lines, labels),
                compared("Norms and attention", "blocks", BLOCKS, lines, labels),
                against_compute(study, lines, costs, labels),
            ],
            facts(study, lines),
            numbers,
            SYNTHETIC if synthetic else "",
        ),
        folder,
    )


def names(study: Study) -> dict[str, str]:
    """What each model is called, in the order in which they are shown."""
    others = {comparator.name: called(comparator) for comparator in study.comparators}
    return {VIT: OWN, **{name: kind.label for name, kind in VARIANTS.items()}, **others}


def called(comparator: Comparator) -> str:
    """A comparator by its architecture, or a Vision Transformer by its own name in the study file."""
    known = BASELINES | HYBRIDS
    architecture = comparator.model.get("architecture")
    return known[architecture].label if architecture in known else comparator.name


def known_case(lines: Sequence[Line]) -> Iterator[str]:
    """On the built-in cohort: without positions nothing may tell the tumour's side, and its brightness needs none."""
    by = {(line.endpoint, line.model): line for line in lines}
    if (PLACED, FREE) in by:
        free, own = by[PLACED, FREE], by[PLACED, VIT]
        at_chance = free.low <= 0.5 <= free.high
        yield (
            f"{_known(at_chance and own.low > 0.5)}: TERTp is the tumour's side here, which a bag of patches does not show. "
            f"Without positions the encoder reaches AUC {_between(free)}, which {'holds' if at_chance else 'leaves out'} the "
            f"0.5 of chance; with its own positions {_between(own)}."
        )
    if (BRIGHT, FREE) in by:
        free = by[BRIGHT, FREE]
        yield (
            f"{_known(free.low > 0.5)}: MGMT is the tumour's brightness, which needs no position. Without positions it is "
            f"predicted with AUC {_between(free)}."
        )


def _known(held: bool) -> str:
    return f"Known case {'held' if held else 'not held'}"


def sentences(lines: Sequence[Line], labels: Mapping[str, str]) -> Iterator[str]:
    """For each endpoint which variants differ from the encoder as it is by more than chance."""
    for endpoint in dict.fromkeys(line.endpoint for line in lines):
        here = [line for line in lines if line.endpoint == endpoint]
        own = next(line for line in here if line.model == VIT)
        tested = [(line, line.test) for line in here if line.test]
        said = [f"{notation.title(endpoint)}: the encoder as it is reaches AUC {_between(own)}"]
        for word, sign in (("better", 1), ("worse", -1)):
            found = [
                f"{labels[line.model]} ({notation.change(test.difference, test.low, test.high)}, "
                f"{notation.adjusted_p(test.p_adjusted)})"
                for line, test in tested
                if test.p_adjusted <= ALPHA and sign * test.difference > 0
            ]
            if found:
                said.append(f"by more than chance {word}: {', '.join(found)}")
        others = [labels[line.model] for line, test in tested if not test.p_adjusted <= ALPHA]
        if others:
            said.append(f"no difference is shown for {', '.join(others)}")
        yield "; ".join(said) + "."


def compared(title: str, name: str, kinds: Mapping[str, Kind], lines: Sequence[Line], labels: Mapping[str, str]) -> Section:
    """A section of some variants beside the encoder: what they are, their AUCs as a figure, and a table for each endpoint."""
    shown = (VIT, *kinds)
    groups = [
        (notation.title(endpoint), [line for line in lines if line.endpoint == endpoint and line.model in shown])
        for endpoint in dict.fromkeys(line.endpoint for line in lines)
    ]
    picture = Picture(
        name,
        forest([(heading, [_row(line, labels) for line in here]) for heading, here in groups], "AUC", _scale(lines)),
        f"{title}: AUC of each variant and endpoint with 95 % intervals",
        "AUC out of fold, mean over runs; bars are 95 % intervals over patients and runs. Filled marks differ from chance.",
    )
    differing = [(VIT, "learned for each place, waves of x, y and z at the start; norms before, GELU; full attention")]
    differing += [(model, kind.differs) for model, kind in kinds.items()]
    described = Table(f"{title}: what differs", ("", "What it is"), [(labels[model], differs) for model, differs in differing])
    return Section(title, (), (picture,), (described, *(_table(heading, here, labels) for heading, here in groups)))


def _row(line: Line, labels: Mapping[str, str]) -> ForestRow:
    stroke = COMPARED[0] if line.model == VIT else PLAIN
    differs = not line.low <= 0.5 <= line.high
    return ForestRow(labels[line.model], _between(line), line.mean, line.low, line.high, stroke, differs)


def _scale(lines: Sequence[Line]) -> ForestScale:
    """From 0, or from 0.3 where all is above it: a scale that half of is empty shows half as much."""
    if min(line.low for line in lines) < 0.3:
        return OF_FIGURES
    return ForestScale(0.3, 1.0, 0.5, ((0.3, "0.3"), (0.5, "0.5"), (1.0, "1")), (0.4, 0.6, 0.7, 0.8, 0.9))


def _table(heading: str, lines: Sequence[Line], labels: Mapping[str, str]) -> Table:
    columns = (heading, "AUC, mean ± SD of runs", "95 %", "Less the encoder's", "Adjusted p")
    rows = [
        (
            labels[line.model],
            f"{line.mean:.3f} ± {line.sd:.3f}",
            notation.ends(line.low, line.high),
            notation.change(line.test.difference, line.test.low, line.test.high) if line.test else "",
            notation.p_alone(line.test.p_adjusted) if line.test else "",
        )
        for line in lines
    ]
    return Table(
        f"AUC for {heading}", columns, rows, f"{lines[0].n} patients with a label, each predicted out of fold in every run."
    )


def against_compute(study: Study, lines: Sequence[Line], costs: Sequence[Cost], labels: Mapping[str, str]) -> Section:
    """The section of Figure 5: AUC over the operations of training, and what each model costs."""
    of = {cost.model: cost for cost in costs}
    picture = Picture(
        "compute",
        figure(study, lines, of, labels),
        "AUC over the floating-point operations of training, a panel for each endpoint",
        "AUC over the operations of one training, on a logarithmic axis; bars are 95 % intervals over patients and runs. The "
        "line joins Vision Transformers that differ in size alone; small grey marks are the variants, each a little to "
        "the right, so that none hides another.",
    )
    rows = [
        (
            label,
            f"{of[model].parameters / 1000:,.0f}",
            notation.significant(of[model].flops / GIGA),
            notation.significant(of[model].training_flops / TERA),
            notation.significant(of[model].seconds),
        )
        for model, label in labels.items()
    ]
    columns = ("", "Thousand parameters", "GFLOP for a prediction", "TFLOP of a training", "Seconds of a training")
    explained = (
        f"Training compute is {PASSES} × the operations of a forward pass over one patient as a step reads it × visits of "
        "patients: a backward pass has twice the operations of a forward pass (Kaplan et al. 2020, section 2.1). A multiply-add "
        "counts 2."
    )
    cost = Table(
        "What each model costs", columns, rows, "Of one run, mean over folds. Seconds are of the machine that it ran on."
    )
    return Section("Score against compute", (explained,), (picture,), (cost,))


def figure(study: Study, lines: Sequence[Line], of: Mapping[str, Cost], labels: Mapping[str, str]) -> Figure:
    """AUC over training compute, a panel for each endpoint: sizes of the Vision Transformer are joined by a line."""
    others = [comparator.name for comparator in study.comparators if comparator.model.get("architecture", "vit") != "vit"]
    sizes = [VIT, *(comparator.name for comparator in study.comparators if comparator.name not in others)]
    sizes.sort(key=lambda model: of[model].training_flops)
    endpoints = list(dict.fromkeys(line.endpoint for line in lines))
    x = {model: cost.training_flops / TERA for model, cost in of.items()}
    with mpl.rc_context(RC):
        drawn = Figure(figsize=(WIDTH, 2.3 * len(endpoints) + 0.9), layout="constrained")
        for endpoint, axes in zip(endpoints, drawn.subplots(len(endpoints), 1, sharex=True, squeeze=False)[:, 0], strict=True):
            here = {line.model: line for line in lines if line.endpoint == endpoint}
            varied = [model for model in here if model in VARIANTS]
            _points(
                axes,
                side_by_side([x[model] for model in varied]),
                [here[model] for model in varied],
                SMALL,
                "Variants of the ViT",
            )
            _points(axes, [x[model] for model in sizes], [here[model] for model in sizes], COMPARED[0], "ViT, by size")
            for model, stroke in zip(others, COMPARED[1:], strict=False):
                _points(axes, [x[model]], [here[model]], stroke, labels[model])
            axes.axhline(0.5, color=INK, lw=1, ls=DASHED, zorder=0)
            axes.set(xscale="log", ylabel="AUC", ylim=(min(0.4, min(line.low for line in here.values())) - 0.02, 1.03))
            axes.set_title(notation.title(endpoint), loc="left", fontsize=9, weight="bold")
        axes.set_xlabel("Operations of a training, TFLOP")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        handles, said = axes.get_legend_handles_labels()
        drawn.legend(handles, said, loc="outside lower center", ncols=2)
    return drawn


def _points(axes: Axes, x: Sequence[float], lines: Sequence[Line], stroke: Stroke, label: str) -> None:
    """Some models with their intervals."""
    reach = [[line.mean - line.low for line in lines], [line.high - line.mean for line in lines]]
    look: dict[str, Any] = {"color": stroke.colour, "ls": stroke.line, "zorder": 2.5 if stroke.compared else 2.0}
    axes.errorbar(x, [line.mean for line in lines], reach, marker=stroke.marker, ms=5, elinewidth=1, label=label, **look)


def side_by_side(x: Sequence[float]) -> list[float]:
    """Each a little beyond those before it that lie at the same place, so that none hides another."""
    return [own * APART ** sum(math.isclose(own, other) for other in x[: index + 1]) for index, own in enumerate(x)]


def facts(study: Study, lines: Sequence[Line]) -> list[str]:
    """How it was made, and what limits it."""
    train, runs = study.train, len(lines[0].runs)
    return [
        f"{train.folds} folds, the same for every model; {runs} runs in each, which differ in their seed alone: initial "
        "weights, order and draws. The patients and the division into folds are the same in every run.",
        f"The study's own recipe for all Vision Transformers: {train.epochs} epochs in batches of {train.batch_size}, "
        f"learning rate at most {train.learning_rate:g}; of the evaluations on {notation.percent(train.val_fraction)} of a "
        "training fold the best is kept. Nothing was tuned for a variant: one that needs another learning rate, as post-norm is "
        "known to, is shown at a disadvantage.",
        *(_recipe(study, comparator) for comparator in study.comparators),
        "AUC is of the pairs within a fold, and its 95 % interval Wilson's; it accounts for patients, the folds' refits and the "
        "runs. So does the difference to the encoder as it is, of which nothing can be said where no score is out of order in "
        f"either. p is Holm's over all {sum(line.test is not None for line in lines)} tests of the page. Other sizes and "
        "architectures are placed in the figure and not tested.",
        "Relative positions enter through attention between places. CLS has no place, so that in the last block they do nothing "
        "for it" + ("." if study.model.pool == "cls" else "; heads read the places themselves as well."),
        "Local and axial attention compute all scores and drop those of other places, since tokens are a set of places of any "
        "shape: they change what is learned, and save no operation here.",
        "In the paper (Table 8, ImageNet, thousands of times as many images) positions of any kind were about three points of "
        "accuracy better than none, and alike. It does not measure the norms, and its axial encoders are 2D.",
    ]


def _recipe(study: Study, comparator: Comparator) -> str:
    train, changed = study.of(comparator).train, study.of(comparator).model
    sizes = ", ".join(f"{key} {value}" for key, value in comparator.model.items() if key != "architecture")
    what = f" ({sizes})" if sizes and changed.architecture == "vit" else ""
    return (
        f"{called(comparator)}{what}: {train.epochs} epochs in batches of {train.batch_size}, "
        f"learning rate at most {train.learning_rate:g}."
    )


def _between(line: Line) -> str:
    return notation.between(line.mean, line.low, line.high) if not math.isnan(line.mean) else notation.number(line.mean)


SCORES = ["model", "endpoint", "seed", "patient", "fold", "truth", "score"]  # of the table that AUCs are computed from
# A forward pass, and a backward pass of twice its operations: Kaplan et al. 2020, arXiv:2001.08361, 2.1
PASSES = 3


@dataclass(frozen=True)
class Line:
    """A model's AUC of an endpoint, of n patients: of each run the pairs within a fold, their mean and standard deviation.

    The 95 % interval of the mean, [low, high], holds patients and runs. `test` is None where there was none.
    """

    model: str
    endpoint: str
    n: int
    runs: tuple[float, ...]
    mean: float
    sd: float
    low: float
    high: float
    test: Versus | None = None


@dataclass(frozen=True)
class Cost:
    """What one run of a model costs: mean over folds.

    `parameters` are learned; `flops` are of the prediction of a patient with every token, `training_flops` of the whole training
    of a fold, as of `training_flops`; `seconds` it took.
    """

    model: str
    parameters: float
    flops: float
    training_flops: float
    seconds: float


def measure(scores: pd.DataFrame, own: str, tested: Collection[str]) -> list[Line]:
    """Every model's AUC of each endpoint, in the order of `scores`; those `tested` are held against the `own` one.

    Parameters
    ----------
    scores : out-of-fold, a row per model, endpoint, run (`seed`) and patient, with the columns `SCORES`; every model
        has the same patients, runs and folds. Patients without a truth are left out.
    own, tested : models.

    Returns
    -------
    Lines, as of `repeated_runs.spread` and `paired`; p is corrected by Holm's method over all lines that are tested.

    Raises
    ------
    ValueError when a model lacks a patient or run of another's.
    """
    lines = []
    for endpoint, here in scores.dropna(subset=["truth"]).groupby("endpoint", sort=False):
        labels = here.drop_duplicates("patient").set_index("patient").truth.sort_index()
        positives, by_model = int((labels == 1).sum()), {}
        inflated = inflation(here.fold.nunique())  # of one repeat; of several it would be less
        for model, rows in here.groupby("model", sort=False):
            by_model[str(model)] = _runs(f"{model}: {endpoint}", rows, labels, here.seed.nunique())
        for model, runs in by_model.items():
            found = spread(runs, positives, len(labels) - positives)
            test = paired(runs, by_model[own], inflated) if model in tested else None
            values = tuple(run.value for run in runs)
            lines.append(Line(model, str(endpoint), len(labels), values, found.mean, found.sd, found.low, found.high, test))
    return _adjusted(lines)


def _runs(what: str, rows: pd.DataFrame, labels: pd.Series, count: int) -> list[WithinFold]:
    """A model's AUC in each run, in their order, with the patients' influences in the order of the labels."""
    score, fold = (
        rows.pivot(index="seed", columns="patient", values=key).reindex(columns=labels.index) for key in ("score", "fold")
    )
    if score.isna().to_numpy().any() or len(score) != count:
        raise ValueError(f"{what} lacks a score of some patient in some run")
    truth = labels.to_numpy() == 1
    return [within_fold_auc(truth, *pair) for pair in zip(score.to_numpy(float), fold.to_numpy(int), strict=True)]


def _adjusted(lines: Sequence[Line]) -> list[Line]:
    """The same lines with Holm's correction over all their tests."""
    p = holm(np.array([line.test.p if line.test else math.nan for line in lines]))
    return [
        replace(line, test=replace(line.test, p_adjusted=float(adjusted))) if line.test else line
        for line, adjusted in zip(lines, p, strict=True)
    ]


def training_flops(study: Study, encode: Encode, visits: int) -> float:
    """Floating-point operations of a training in which patients are visited so many times in all.

    Definition: passes × operations of a forward pass over one patient as a step reads it × visits. A step reads
    `train.token_budget` tokens of a patient, so this is no multiple of what a prediction costs, which reads all; a convolutional
    network reads its whole box in both. The heads, the optimiser and evaluations are left out.
    Assumption: a backward pass has twice the operations of a forward pass, see `PASSES`; with no budget a token for every place.
    Source: Dosovitskiy et al. 2021, Figure 5, plots accuracy over the operations of pretraining; operations as of `model.cost`.
    """
    tokens = min(study.train.token_budget or study.grid.positions, study.grid.positions)
    net = Network(study.model, study.grid, [], study.channels, encode)
    patches = torch.empty(1, tokens, len(study.channels) * study.grid.patch**3, device="meta")
    return float(PASSES * flops(net, patches, torch.zeros(1, tokens, dtype=torch.long, device="meta")) * visits)


def wide(lines: Sequence[Line]) -> pd.DataFrame:
    """A row per line: each run's AUC, and the test beside it under names that begin with versus_own."""
    rows = []
    for line in lines:
        row = asdict(line)
        test, runs = row.pop("test") or {}, row.pop("runs")
        row |= {f"run_{number}": value for number, value in enumerate(runs, 1)}
        rows.append(row | {f"versus_own_{key}": value for key, value in test.items()})
    return pd.DataFrame(rows)

"""Supervised pretraining by its size, on a page: Figures 3 and 4 of Dosovitskiy et al. 2021, with a control and with tests.

Starts (see `encoders`) and the points that they came to go in; sentences, figures and tables come out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mri_vit.data.cohort import Patient
from mri_vit.report.figures.panels import DASHED, strokes
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.words import networks, notation
from mri_vit.report.words.notation import adjusted_p, change, number, p_alone
from mri_vit.run import files
from mri_vit.settings.recipe import INTENSITY, VIT
from mri_vit.settings.schema import Study
from mri_vit.style import GREY, INK, RC, WIDTH
from reproductions import html_page
from reproductions.features.probe_results import Versus
from reproductions.html_page import Page, Picture, Section, Table
from reproductions.pretraining_size.encoders import CONTROL, COSTS, FINE_TUNED, PROBE, SHOTS, Start, pretraining, steps
from reproductions.pretraining_size.size_effects import Point, measure, wide

APART = 0.13  # of the distance between two numbers of patients: so far lie the intervals of two networks from each other
MARGIN = 0.02  # of an AUC above and below what is drawn
HIGH = 2.3  # inches of a label's panel
TITLES = {FINE_TUNED: "Fine-tuned (Figure 3)", PROBE: f"Linear probe of {SHOTS} patients of each class (Figure 4)"}
HOW = {FINE_TUNED: "fine-tuned", PROBE: f"{SHOTS}-shot probe"}
SHARED, COIN = "solid", "pten"  # labels of the built-in cohort, see pipelines/reproduce.py pretraining_size
CAPTION = (
    "A mark is the mean of the runs, its thick bar their standard deviation, its thin line the mean's 95 % interval. Numbers of"
    " patients stand at equal distances."
)


def write(
    study: Study,
    made: Sequence[Start],
    targets: Sequence[Patient],
    scores: pd.DataFrame,
    home: Path,
    synthetic: str = "",
) -> Path:
    """The page `index.html` with its figures and tables in `home`, as `html_page.write` has them.

    Parameters
    ----------
    made : every start, with its cost in its folder in `home`/starts.
    scores : of all starts and of the control, see `encoders`.
    synthetic : what it means that patients are made up, else "".
    """
    points, names, labels = measure(scores, VIT), named(study), pretrained_on(study)
    target = study.endpoints[0].name
    sections = [
        Section(
            TITLES[how],
            pictures=[
                Picture(
                    name,
                    figure(points, names, labels, how),
                    f"AUC of {notation.title(target)} by patients pretrained on, a line for each network; see the table.",
                    CAPTION + (" Dashed: a regression on brightness alone." if how == FINE_TUNED else ""),
                )
            ],
            tables=[table(points, names, labels, how)],
        )
        for name, how in (("fine_tuned", FINE_TUNED), ("probe", PROBE))
    ]
    found = Page(
        source="Dosovitskiy et al. 2021, Figures 3 and 4",
        title=f"How many labelled patients is a pretraining worth? {notation.title(target)}",
        sentences=[*([known_case(points)] if synthetic else []), *sentences(points, names, labels)],
        sections=[
            *sections,
            Section("What pretraining itself learned", tables=[learned(made, names, home)]),
            Section("Cost", tables=[costs(made, names, home)]),
        ],
        facts=facts(study, made, targets),
        numbers={"points": wide(points), "scores": scores},
        synthetic=synthetic,
    )
    return html_page.write(found, home)


def named(study: Study) -> dict[str, str]:
    """What each network is called: its architecture, and its own name where two have the same."""
    of = {VIT: study} | {comparator.name: study.of(comparator) for comparator in study.comparators}
    names = {name: networks.architecture_name(one.model.architecture) for name, one in of.items()}
    return {
        name: f"{called} ({name})" if list(names.values()).count(called) > 1 and name != VIT else called
        for name, called in names.items()
    }


def pretrained_on(study: Study) -> list[str]:
    """The labels to pretrain on, in the order of the study file."""
    return [label.name for label in study.endpoints[1:]]


def sentences(points: Sequence[Point], names: Mapping[str, str], labels: Sequence[str]) -> list[str]:
    """For each way of learning and network what pretraining changed; then whether networks change places, as published."""
    said = []
    for how in (FINE_TUNED, PROBE):
        for name, called in names.items():
            here = [point for point in points if (point.how, point.network) == (how, name)]
            scratch = next(point for point in here if not point.label)
            parts = [_after(max((p for p in here if p.label == label), key=lambda p: p.patients)) for label in labels]
            said.append(f"{called}, {HOW[how]}: AUC {spread(scratch)} from scratch; {'; '.join(parts)}.")
        said += [_places(points, how, name, names, labels) for name in names if name != VIT]
    brightness = next((point for point in points if point.how == CONTROL), None)
    if brightness:
        figures = notation.between(brightness.mean, brightness.low, brightness.high)
        said.append(
            f"The simplest explanation beside it: a regression on brightness alone has an AUC of {figures} on the same folds."
        )
    return said


def known_case(points: Sequence[Point]) -> str:
    """On the built-in cohort: the target's own cause under another name must help somewhere, and a coin nowhere."""
    words = {label: [_word(p.gain) for p in points if p.label == label and p.gain] for label in (SHARED, COIN)}
    better = {label: found.count("better") for label, found in words.items()}
    held = better[SHARED] > 0 and not better[COIN] and "worse" not in (*words[SHARED], *words[COIN])
    return (
        f"Known case {'held' if held else 'not held'}: “{SHARED}” is the target's own cause, {notation.title(COIN)} a coin."
        f" Better than from scratch by more than chance, after the most patients: {better[SHARED]} of {len(words[SHARED])} with"
        f" “{SHARED}”, {better[COIN]} of {len(words[COIN])} with {notation.title(COIN)}."
    )


def _after(most: Point) -> str:
    """What the largest pretraining on a label changed."""
    learned = f"after {most.patients} patients with {notation.title(most.label)} {spread(most)}"
    return f"{learned}, which {_against(most.gain, 'from scratch')}"


def _places(points: Sequence[Point], how: str, name: str, names: Mapping[str, str], labels: Sequence[str]) -> str:
    """How a network compares with the study's own at the smallest and the largest number, by label."""
    parts = []
    for label in labels:
        here = [p for p in points if (p.how, p.network, p.label) == (how, name, label)]
        few, most = min(here, key=lambda p: p.patients), max(here, key=lambda p: p.patients)
        seen = _word(few.rival) == "better" and _word(most.rival) == "worse"
        parts.append(
            f"after {notation.title(label)} of {few.patients} patients it {_against(few.rival, names[VIT])}, of"
            f" {most.patients} it {_against(most.rival, names[VIT])}: that it leads after few patients and is overtaken is"
            f" {'seen' if seen else 'not shown'}"
        )
    return f"{names[name]} against {names[VIT]}, {HOW[how]}: {'; '.join(parts)}."


def _word(test: Versus | None) -> str:
    if test is None or math.isnan(test.p):
        return "untested"
    if not test.p_adjusted <= ALPHA:
        return "same"
    return "better" if test.difference > 0 else "worse"


def _against(test: Versus | None, what: str) -> str:
    """The verdict of a test in words, with its figures."""
    word = _word(test)
    if test is None or word == "untested":
        return f"could not be tested against {what}"
    figures = f"({change(test.difference, test.low, test.high)}, {adjusted_p(test.p_adjusted)})"
    if word == "same":
        return f"is not different by more than chance {figures}"
    return f"is {word} than {what} {figures}"


def spread(point: Point) -> str:
    """Mean and standard deviation over runs: 0.912 ± 0.013."""
    return f"{number(point.mean)}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{number(point.sd)}"


def figure(points: Sequence[Point], names: Mapping[str, str], labels: Sequence[str], how: str) -> Figure:
    """AUC by patients pretrained on, a panel for each label, a line for each network; every line starts from scratch."""
    with mpl.rc_context(RC):
        drawn = Figure(figsize=(WIDTH, HIGH * len(labels) + 0.7), layout="constrained")
        panels = drawn.subplots(len(labels), 1, sharey=True, squeeze=False)[:, 0]
        for axes, label in zip(panels, labels, strict=True):
            _panel(axes, [p for p in points if p.how == how and p.label in ("", label)], names)
            axes.set_title(f"Pretrained on {notation.title(label)}", loc="left", fontsize=9.5)
            axes.set_ylabel(f"AUC, {HOW[how]}")
            if how == FINE_TUNED:
                for point in (point for point in points if point.how == CONTROL):
                    axes.axhline(point.mean, color=GREY, lw=1, ls=DASHED, zorder=0)
            axes.axhline(0.5, color=INK, lw=0.8, ls=":", zorder=0)
        shown = [point.low for point in points if point.how == how] + [0.5]
        panels[0].set_ylim(min(shown) - MARGIN, 1 + MARGIN)  # of all panels, once all is drawn
        panels[-1].set_xlabel("Patients with the label that were learned from")
        handles, texts = panels[0].get_legend_handles_labels()
        drawn.legend(handles, texts, loc="outside lower center", ncols=2)
    return drawn


def _panel(axes: Axes, points: Sequence[Point], names: Mapping[str, str]) -> None:
    counts, styles = sorted({point.patients for point in points}), strokes(list(names))
    for index, (name, called) in enumerate(names.items()):
        line = sorted((point for point in points if point.network == name), key=lambda point: point.patients)
        x = np.array([counts.index(point.patients) for point in line]) + APART * (index - (len(names) - 1) / 2)
        mean, sd, low, high = (np.array([getattr(point, key) for point in line]) for key in ("mean", "sd", "low", "high"))
        stroke = styles[name]
        axes.vlines(x, low, high, color=stroke.colour, lw=0.9, alpha=0.6)
        axes.vlines(x, mean - sd, mean + sd, color=stroke.colour, lw=3.2, alpha=0.75)
        axes.plot(x, mean, marker=stroke.marker, ms=4.5, label=called, **stroke.look)
    axes.set_xticks(range(len(counts)), [str(count) if count else "none:\nfrom scratch" for count in counts])


def table(points: Sequence[Point], names: Mapping[str, str], labels: Sequence[str], how: str) -> Table:
    """Every point of a figure in words."""
    rows = [
        (
            names[point.network],
            notation.title(point.label) if point.label else "nothing",
            str(point.patients),
            spread(point),
            notation.ends(point.low, point.high).replace(" ", "\N{NO-BREAK SPACE}"),
            _cell(point.gain),
            _cell(point.rival),
        )
        for name in names
        for label in ("", *labels)
        for point in points
        if (point.how, point.network, point.label) == (how, name, label)
    ]
    columns = ("Network", "Pretrained on", "Patients", "AUC ± SD", "95 %", "less from scratch (p)", f"less {names[VIT]} (p)")
    return Table(f"AUC, {HOW[how]}", columns, rows, "Differences with their 95 % interval and the p adjusted by Holm's method.")


def _cell(test: Versus | None) -> str:
    return f"{change(test.difference, test.low, test.high)} ({p_alone(test.p_adjusted)})" if test else ""


def learned(made: Sequence[Start], names: Mapping[str, str], home: Path) -> Table:
    """Whether a label was learned at all, before anything could be carried over."""
    rows = [
        (
            called,
            notation.title(start.label.name),
            str(len(start.learned_from)),
            number(float(pd.read_csv(home / "starts" / start.id / "pretrained" / files.HISTORY).tune.min())),
        )
        for name, called in names.items()
        for start in sorted(made, key=lambda start: len(start.learned_from))
        if start.network == name and start.label
    ]
    return Table(
        "What was learned",
        ("Network", "Label", "Patients", "Lowest validation loss"),
        rows,
        "As a share of the loss at the start, which knows nothing: 1 or more is a label that was not learned. Of few "
        "validation patients it is a rough number.",
    )


def costs(made: Sequence[Start], names: Mapping[str, str], home: Path) -> Table:
    """Parameters of each network, steps and seconds of all its trainings."""
    rows = []
    for name, called in names.items():
        mine = [start for start in made if start.network == name]
        found = [json.loads((home / "starts" / start.id / COSTS).read_text()) for start in mine]
        counts = sorted({steps(pretraining(start), len(start.learned_from)) for start in mine if start.label})
        seconds = [notation.duration(sum(cost[key] for cost in found)) for key in ("pretraining_seconds", "training_seconds")]
        rows.append(
            (called, f"{found[0]['parameters']:,}", " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))), *seconds)
        )
    columns = ("Network", "Parameters", "Steps of a pretraining", "All pretraining, h:mm:ss", "All fine-tuning, h:mm:ss")
    return Table("Cost", columns, rows, "Seconds are those of this run's machine, whatever else it was doing.")


def facts(study: Study, made: Sequence[Start], targets: Sequence[Patient]) -> list[str]:
    """How it was made, and what limits it."""
    target, *labels = study.endpoints
    positive, runs = sum(p.labels[target.name] == 1 for p in targets), study.train.seeds
    first = [start for start in made if start.network == VIT]
    numbers = "; ".join(
        f"{notation.title(label.name)}: {', '.join(map(str, sorted(len(s.learned_from) for s in first if s.label == label)))}"
        for label in labels
    )
    return [
        f"The target cohort has {len(targets)} patients, {positive} of them positive. Scores are out of fold, of"
        f" {study.train.folds} folds that are the same for every point;"
        f" {notation.percent(study.train.val_fraction)} of a training fold choose the epoch.",
        f"Pretraining is on patients whose {notation.title(target.name)} is not known ({numbers}). Nobody is in both parts, which"
        " is checked by the ids that a file of weights carries. The patients of a smaller number are among those of a larger"
        " one.",
        "Every number of patients is learned from for as many steps, to a part of an epoch, with early stopping on the same share"
        " of them. Fine-tuning has as many steps at every point. From scratch there are no steps before: what more steps alone"
        " are worth shows in a label that has nothing to do with the target.",
        f"The standard deviation is of {runs} runs. Of fine-tuning they differ by seed and start from the same pretrained"
        f" weights, from scratch each from random weights of its own; of the probe each is another draw of {SHOTS} patients"
        " of each class."
        " No point was pretrained twice, so neither the standard deviation nor a test holds the luck of one pretraining.",
        "AUC is of the pairs within a fold. The 95 % interval is Wilson's, and holds patients, the folds' refits and the runs."
        " Tests are two-sided and paired by patient, and hold the same. Asked are the most patients against none, and networks"
        " against each other after the fewest and after the most; Holm's correction is over each of the two questions of"
        " a figure.",
        f"Brightness alone ({INTENSITY}) is a regression on statistics of every sequence, in the brain and, where the table has"
        " masks, in the tumour.",
    ]

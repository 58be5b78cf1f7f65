"""How good frozen features are, in words: sentences, tables for the terminal, a page with the few-shot curve, and a CSV file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mri_vit import style
from mri_vit.features.extraction import Features
from mri_vit.features.fitting import CLS, FIRST_TOKEN, HEADS, MEAN
from mri_vit.metrics.within_fold import CHANCE
from mri_vit.report.figures.panels import COMPARED, DASHED, panel
from mri_vit.report.pages import csv_tables
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.words import networks, notation
from mri_vit.report.words.notation import adjusted_p, between, change, number, percent, with_sign
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import plain
from mri_vit.settings.file import all_from_demo
from mri_vit.settings.recipe import title as sequence
from mri_vit.settings.schema import Study
from mri_vit.style import INK
from reproductions.features import encoders, probe_results
from reproductions.features.encoders import DRAWS, OWN, STARTS, beginnings
from reproductions.features.probe_results import Line
from reproductions.html_page import environment
from reproductions.probes import FEWEST

METHODS = {"mae": "MAE", "dino": "DINO"}
NO_FILES: Mapping[str, Features] = {}
PROBES = {"linear": "linear probe", "knn": "k-NN"}
CURVED = 2  # of the shares: the largest, in which the curve is drawn; the smallest has a handful of patients


def write(
    study: Study,
    lines: Sequence[Line],
    patients: Sequence[str],
    notes: Sequence[str],
    home: Path,
    files: Mapping[str, Features] = NO_FILES,
) -> Path:
    """Write `features.csv` and `features.html` into the folder `home` and return the page's path.

    `patients` are those that were scored; `notes` are sentences for the page, such as that an encoder had collapsed; `files` are
    features that were read elsewhere, by the name that their encoder has in `lines`.
    """
    licences = {name: found.origin.licence for name, found in files.items()}
    wide = probe_results.wide(lines)
    if files:
        wide["licence"] = [licences.get(line.encoder, "") for line in lines]
    write_bytes(csv_tables.to_csv(wide).encode(), home / "features.csv")
    write_bytes(page(study, lines, patients, notes, files).encode(), home / "features.html")
    return home / "features.html"


def page(
    study: Study,
    lines: Sequence[Line],
    patients: Sequence[str],
    notes: Sequence[str],
    files: Mapping[str, Features] = NO_FILES,
) -> str:
    """The page, with nothing that is fetched from elsewhere."""
    templates = environment(
        Path(__file__).parent,
        p=notation.p_value,
        adjusted_p=adjusted_p,
        number=number,
        between=between,
        change=change,
        percent=percent,
        tied=notation.tied,
    )
    found, begun = curves(study, lines), [line for line in lines if line.encoder not in files]
    drawn = style.to_bytes(few_shot(found, curved_shares(lines)), "svg") if found else None
    return templates.get_template("features.html").render(
        study=study,
        sentences=[*sentences(study, lines), *notes],
        rows=rows(study, lines),
        shares=shares(lines),
        labelled={(line.probe, line.share): line.labelled for line in lines},
        picture=style.data_url(drawn, "image/svg+xml") if drawn else None,
        probes=PROBES,
        read=reading(study),
        readings=(CLS, MEAN, HEADS, FIRST_TOKEN),
        patients=len(patients),
        synthetic=all_from_demo(patients),
        scans=max(line.scans for line in lines),
        epochs={label(study, one.name): study.of(one).pretrain.epochs for one in study.comparators if one.pretrain},
        draws=DRAWS,
        starts=max(line.starts for line in begun),
        few_starts=max(line.starts for line in begun) < STARTS,
        fewer_starts=min(line.starts for line in begun),
        files={name: (found.origin, encoders.described(found.origin)) for name, found in files.items()},
        fewest=FEWEST,
        alpha=ALPHA,
    )


def show(study: Study, lines: Sequence[Line], notes: Sequence[str], console: Console) -> None:
    """Print the AUCs with the tests against random weights, the curve's points, and what follows from them."""
    console.print(_table(study, lines))
    if curves(study, lines):
        console.print(_curve(study, lines))
    for sentence in [*sentences(study, lines), *notes]:
        console.print(plain(f"- {sentence}"))


def label(study: Study, encoder: str) -> str:
    """An encoder's name for people: MAE, DINO; those of random weights say so, and one from a file is called as it is there."""
    if encoder != OWN and encoder not in {one.name for one in study.comparators}:
        return encoder
    of = next((study.of(comparator) for comparator in study.comparators if comparator.name == encoder), study)
    if encoder != OWN and of.pretrain.method != "none":
        alike = [one for one in map(study.of, study.comparators) if _learning(one) == _learning(of)]
        whose = "" if of.model.architecture == "vit" else f" of {networks.architecture_name(of.model.architecture)}"
        return f"{METHODS[of.pretrain.method]}{whose}" + (f" ({encoder})" if len(alike) > 1 else "")
    name = "ViT" if of.model.architecture == "vit" else networks.architecture_name(of.model.architecture)
    return f"{name}, random"


def _learning(of: Study) -> tuple[str, str]:
    return of.pretrain.method, of.model.architecture


def reading(study: Study) -> str:
    """What the curve is of: that which heads of the study's network read."""
    return CLS if study.model.pool == "cls" else HEADS


def shares(lines: Sequence[Line]) -> list[float]:
    return sorted({line.share for line in lines})


def curved_shares(lines: Sequence[Line]) -> list[float]:
    return shares(lines)[-CURVED:]


def curves(study: Study, lines: Sequence[Line]) -> dict[str, list[Line]]:
    """The points of the curve of each method that learned from several numbers of scans, random weights first, by its name."""
    asked = [
        line for line in lines
        if (line.reading, line.probe) == (reading(study), "linear") and line.share in curved_shares(lines)
    ]  # fmt: skip
    numbers = {
        one: {line.scans for line in asked if line.encoder == one} for one in dict.fromkeys(line.encoder for line in asked)
    }
    begun = beginnings(study)
    return {
        label(study, one): [line for name in (begun.get(one), one) for line in asked if line.encoder == name]
        for one in numbers
        if len(numbers[one]) > 1
    }


def rows(study: Study, lines: Sequence[Line]) -> list[tuple[str, str, str, dict[float, Line]]]:
    """The table: encoder, how it is read, probe, and a line per share; of a pretrained one, that of the most scans."""
    most = {line.encoder: max(other.scans for other in lines if other.encoder == line.encoder) for line in lines}
    found: dict[tuple[str, str, str], dict[float, Line]] = {}
    for line in sorted(lines, key=lambda line: (line.scans > 0, line.encoder != OWN)):  # random weights first, the ViT's own
        if line.scans == most[line.encoder]:
            found.setdefault((line.encoder, line.reading, line.probe), {})[line.share] = line
    ordered = sorted(found.items(), key=lambda item: list(PROBES).index(item[0][2]))  # a probe's rows together
    return [(label(study, encoder), read, probe, here) for (encoder, read, probe), here in ordered]


def sentences(study: Study, lines: Sequence[Line]) -> list[str]:
    """For each way of reading: whether a linear probe with every label does better on pretrained features than on random ones."""
    said = []
    asked = [(name, read, here[1.0]) for name, read, probe, here in rows(study, lines) if probe == "linear" and 1.0 in here]
    for read in dict.fromkeys(read for _, read, _ in asked):
        tested = [(name, line, line.test) for name, found, line in asked if found == read and line.test]
        if tested:
            verdicts = "; ".join(_verdict(name, line, test) for name, line, test in tested)
            said.append(f"Linear probe with every label on {read}, against random weights: {verdicts}.")
    return said


def beside(brightest: Mapping[str, tuple[float, float, float]]) -> str:
    """What the brightest voxel of each sequence tells, of `of_brightest`: the simplest thing that any probe has to beat."""
    told = ", ".join(f"{between(*figures)} in {sequence(name)}" for name, figures in brightest.items())
    said = f"Without any network, the brain's brightest voxel alone has an AUC of {told}."
    turned = [f"{number(1 - value)} in {sequence(name)}" for name, (value, _, high) in brightest.items() if high < CHANCE]
    return f"{said} Below 0.5 it is the darker brains that have the label: {', '.join(turned)} turned round." if turned else said


def _verdict(name: str, line: Line, test: probe_results.Versus) -> str:
    if math.isnan(test.p):
        return f"{name} (AUC {number(line.auc)}) could not be tested"
    word = (
        "is not different from them by more than chance"
        if not test.p_adjusted <= ALPHA
        else "is better"
        if test.difference > 0
        else "is worse"
    )
    if word == "is better" and line.low <= CHANCE:
        word = "is better, but itself indistinguishable from chance"
    figures = f"AUC {number(line.auc)}, {change(test.difference, test.low, test.high)}, {adjusted_p(test.p_adjusted)}"
    return f"{name} {word} ({figures})"


def _table(study: Study, lines: Sequence[Line]) -> Table:
    """Fits 80 columns: intervals and tests of the largest share alone; the page has the others."""
    *few, most = shares(lines)
    table = _empty("AUC out of fold by share of the labels; difference from random weights (p by Holm's method)")
    for title in ("encoder", "read as", *map(percent, few), f"{percent(most)} [95 %]", "vs random (p)"):
        table.add_column(title, no_wrap=title != "encoder")
    for kind, title in PROBES.items():
        table.add_row(plain(title, "bold"))
        for name, read, probe, here in rows(study, lines):
            if probe == kind:
                points = (number(here[one].auc) if one in here else "" for one in few)
                table.add_row(plain(name), plain(read), *points, _interval(here.get(most)), _difference(here.get(most)))
    return table


def _curve(study: Study, lines: Sequence[Line]) -> Table:
    table = _empty(f"Few-shot: linear probe on {reading(study)}, AUC [95 %] by scans learned from")
    for title in ("scans", "labels", *curves(study, lines)):
        table.add_column(title, no_wrap=True)
    points: Mapping[tuple[int, float], dict[str, Line]] = {}
    for name, found in curves(study, lines).items():
        for line in found:
            points.setdefault((line.scans, line.share), {})[name] = line
    for (scans, of), here in sorted(points.items()):
        table.add_row(str(scans), percent(of), *(_interval(here.get(name)) for name in curves(study, lines)))
    return table


def _empty(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def _interval(line: Line | None) -> str:
    return between(line.auc, line.low, line.high) if line else ""


def _difference(line: Line | None) -> str:
    if line is None or line.test is None:
        return ""
    return f"{with_sign(line.test.difference)} ({notation.p_alone(line.test.p_adjusted)})"


APART = 0.07  # of the distance between two numbers of scans: so far lie the intervals of two curves from each other
SAME = 1e-9  # two shares of the labels are written as decimals


def few_shot(curves: Mapping[str, Sequence[Line]], shares: Sequence[float]) -> Figure:
    """A colour for each method; filled marks and whole lines are the largest share of labels, open ones others; dashed: chance.

    Numbers of scans stand at equal distances, because each is about twice the one before it, and none comes first.
    """
    counts = sorted({line.scans for lines in curves.values() for line in lines})
    pairs = [(name, share) for name in curves for share in shares]
    with panel(height=3.9) as (figure, axes):
        axes.axhline(0.5, color=INK, lw=1, ls=DASHED, zorder=0)
        for index, (name, share) in enumerate(pairs):
            stroke = COMPARED[list(curves).index(name) % len(COMPARED)]
            lines = sorted((line for line in curves[name] if abs(line.share - share) < SAME), key=lambda line: line.scans)
            x = np.array([counts.index(line.scans) for line in lines]) + APART * (index - (len(pairs) - 1) / 2)
            y, low, high = (np.array([getattr(line, key) for line in lines]) for key in ("auc", "low", "high"))
            whole = share == max(shares)
            axes.vlines(x, low, high, color=stroke.colour, lw=1.1, alpha=0.7)
            axes.plot(
                x, y, stroke.marker, ls="-" if whole else (0, (2, 1.5)), color=stroke.colour, lw=1.8 if whole else 1.2,
                ms=5.5, mfc=stroke.colour if whole else "white", label=f"{name}, {100 * share:.0f} % of labels",
            )  # fmt: skip
        axes.set_xticks(range(len(counts)), [str(count) for count in counts])
        axes.set(xlabel="Scans that the encoder learned from (0: random weights)", ylabel="AUC of the linear probe")
        figure.legend(loc="outside lower center", ncols=2)
    return figure

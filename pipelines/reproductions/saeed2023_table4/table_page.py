"""Table 4 of Saeed et al. 2023 with a run's own figures beside it: sentences, tables for the terminal, a page and a CSV file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mri_vit import style
from mri_vit.report.pages import csv_tables
from mri_vit.report.reading.run import Run
from mri_vit.report.verdicts import ALPHA
from mri_vit.report.words import notation
from mri_vit.report.words.caveats import SAEED
from mri_vit.report.words.notation import adjusted_p, between, change, p_alone, p_value, with_sign
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import plain
from mri_vit.settings.file import all_from_demo
from mri_vit.style import to_bytes
from reproductions.html_page import environment
from reproductions.saeed2023_table4 import scan_choices, table_rows
from reproductions.saeed2023_table4.scan_choices import Side
from reproductions.saeed2023_table4.table_rows import Best, Line, Measured, Row, Test, best

SCANS = {"t1ce": "T1ce", "flair": "FLAIR", "t2": "T2", "all": "all four scans"}
PUBLISHED_TEST = "the corrected resampled t-test of Nadeau and Bengio over the five folds, two-sided"
OWN = "our ViT"
NAME_WIDTH = 15  # of "EfficientNet-b0", the longest of the paper's names


def write(run: Run, home: Path) -> Path:
    """Write `table4.csv` and `table4.html` into the folder `home`, beside the run's report, and return the page's path."""
    lines, sides = table_rows.measure(run), both_sides(run)
    write_bytes(csv_tables.to_csv(table_rows.wide(lines)).encode(), home / "table4.csv")
    write_bytes(csv_tables.to_csv(scan_choices.wide(sides)).encode(), home / "table4_scans.csv")
    drawn = scan_choices.figure(sides)
    for kind in ("svg", "png"):
        write_bytes(to_bytes(drawn, kind), home / f"table4_scans.{kind}")
    write_bytes(page(run, lines, sides, drawn).encode(), home / "table4.html")
    return home / "table4.html"


def both_sides(run: Run) -> dict[str, Side]:
    """What the choice of scans does, published and in a run, by the side's title."""
    return {"Published": scan_choices.of_published(), "Ours": scan_choices.of_run(run)}


def page(run: Run, lines: Sequence[Line], sides: Mapping[str, Side], drawn: Figure) -> str:
    """The page, with nothing that is fetched from elsewhere."""
    templates = environment(
        Path(__file__).parent,
        number=notation.number,
        between=notation.between,
        change=notation.change,
        p=p_value,
        adjusted_p=adjusted_p,
        label=label,
        tied=notation.tied,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    return templates.get_template("table4.html").render(
        study=run.study.name,
        sentences=sentences(lines),
        sections=sections(lines),
        best=dict(zip(("published", "measured"), _largest(lines), strict=True)),
        sides=sides,
        scans_sentences=[scan_choices.sentence(title, side) for title, side in sides.items()],
        scans_title=SCANS,
        scans_picture=style.data_url(to_bytes(drawn, "svg"), "image/svg+xml"),
        synthetic=all_from_demo(run.predictions.patient),
        epochs=run.study.train.epochs,
        grid=run.study.grid,
        own=OWN,
        source=SAEED,
        alpha=ALPHA,
    )


def show(lines: Sequence[Line], sides: Mapping[str, Side], console: Console) -> None:
    """Print the table, once with means and tests and once with the values of the folds, and what follows from it."""
    console.print(_summary(lines))
    console.print(_folds(lines))
    for sentence in (*sentences(lines), *(scan_choices.sentence(title, side) for title, side in sides.items())):
        console.print(plain(f"- {sentence}"))


def sections(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """The lines by the scans that they read, as the paper's table is parted."""
    named = dict.fromkeys([*SCANS, *(line.scans for line in lines)])
    found = [(SCANS.get(scans, scans), [line for line in lines if line.scans == scans]) for scans in named]
    return [(title, here) for title, here in found if here]


def sentences(lines: Sequence[Line]) -> list[str]:
    """What differs from the Vision Transformer by more than chance: among ours, and among the published figures."""
    measured = [line.measured for line in lines if line.measured]
    n = max((found.n for found in measured), default=0)
    ours = [(line, line.test) for line in lines if line.test]
    theirs = [(line, line.published_test) for line in lines if line.published_test]
    return [
        _sentence("Ours", ours, OWN, f"DeLong's paired test on {n} patients")
        if ours
        else f"Ours: nothing was compared with {OWN}: there are no predictions of both it and another model.",
        _sentence("Published", theirs, f"its {table_rows.REFERENCE}", PUBLISHED_TEST),
    ]


def _sentence(whose: str, tested: Sequence[tuple[Line, Test]], reference: str, how: str) -> str:
    known = [test for _, test in tested if not math.isnan(test.p)]
    said = f"{whose}: "
    sure = sorted(((line, test) for line, test in tested if test.p_adjusted <= ALPHA), key=lambda pair: pair[1].p_adjusted)
    count = f"{len(sure) or 'none'} of {len(tested)} models {'differs' if len(sure) < 2 else 'differ'}"
    said += f"{count} from {reference} by more than chance ({how}, Holm's correction over {len(known)} tests)"
    if sure:
        said += ": " + "; ".join(_difference(line, test) for line, test in sure)
    elif known:
        said += f"; the smallest is {p_value(min(t.p for t in known))}, {adjusted_p(min(t.p_adjusted for t in known))}"
    if len(known) < len(tested):
        said += f"; {len(tested) - len(known)} could not be tested"
    return said + "."


def _difference(line: Line, test: Test) -> str:
    word = "better" if test.difference > 0 else "worse"
    scans = SCANS.get(line.scans, line.scans)
    figures = f"{change(test.difference, test.low, test.high)}, {adjusted_p(test.p_adjusted)}"
    return f"{label(line)} on {scans} is {word} ({figures})"


def label(line: Line) -> str:
    """A line's name for people."""
    return OWN if line.comparator == table_rows.OWN else line.model


def _summary(lines: Sequence[Line]) -> Table:
    """Fits 80 columns."""
    table = _table("Saeed et al. 2023, Table 4: MGMT, mean ± sample variance of the folds")
    table.add_column("model", min_width=NAME_WIDTH)
    for title in ("published", "ours", "pooled [95 %]", "vs our\nViT", "adjusted\np"):
        table.add_column(title, no_wrap=True)
    largest = _largest(lines)
    for title, here in sections(lines):
        table.add_row(plain(title, "bold"))
        for line in here:
            table.add_row(plain(label(line)), *_summary_cells(line, largest))
    return table


def _summary_cells(line: Line, largest: Sequence[Best]) -> Iterator[Text]:
    for side, most in zip((line.published, line.measured), largest, strict=True):
        yield Text.assemble(_set(side.mean, most.mean), f"±{side.variance:.4f}") if side else Text()
    found = line.measured
    yield plain(between(found.auc, found.low, found.high) if found else "not run")
    yield plain(with_sign(line.test.difference) if line.test else "")
    yield plain(p_alone(line.test.p_adjusted) if line.test else "")


def _largest(lines: Sequence[Line]) -> tuple[Best, Best]:
    return best([line.published for line in lines]), best([line.measured for line in lines])


def _set(value: float, largest: float) -> Text:
    """A number, in bold where it is the largest."""
    return Text(f"{value:.3f}", "bold" if value == largest else "")


def _folds(lines: Sequence[Line]) -> Table:
    table = _table("The same, AUC in each fold")
    table.add_column("model", min_width=NAME_WIDTH)
    table.add_column("published")
    table.add_column("ours")
    largest = _largest(lines)
    for title, here in sections(lines):
        table.add_row(plain(title, "bold"))
        for line in here:
            sides = zip((line.published, line.measured), largest, strict=True)
            table.add_row(plain(label(line)), *(_fold_values(side, most) for side, most in sides))
    return table


def _fold_values(side: Row | Measured | None, most: Best) -> Text:
    return Text(" ").join(_set(value, top) for value, top in zip(side.folds, most.folds, strict=True)) if side else Text()


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)

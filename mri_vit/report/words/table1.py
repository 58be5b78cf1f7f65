"""Table 1 in words: its part of `metrics.json` goes in, heads and lines as the page has them come out."""

from __future__ import annotations

from typing import NamedTuple

from mri_vit.report.schema.patients import Cell, Row, Split, Table1
from mri_vit.report.schema.run import Design
from mri_vit.report.words.notation import is_defined, number, title

ALONE = ("fold", "left out", "development")  # splits whose difference counts; of the excluded little is known
HEADS = {"all": "All", "excluded": "Not predicted", "development": "Development cohort"}
DIFFERENCE: dict[str, str] = {
    "fold": "The last column holds the largest standardised difference of a fold from the other folds' patients",
    "left out": "The last column holds the largest standardised difference of one value's patients from all others",
    "development": "The last column holds the standardised difference of the two cohorts",
}


class Line(NamedTuple):
    """One line: what it is of, whether it stands below another, a cell per split, and the largest difference."""

    head: str
    below: bool
    cells: tuple[str, ...]
    difference: str


def heads(table: Table1, design: Design) -> list[tuple[str, int]]:
    """Each column's head and number of patients."""
    everybody = "Evaluated cohort" if design == "external" else HEADS["all"]
    names = {"all": everybody, "excluded": HEADS["excluded"], "development": HEADS["development"]}
    return [(names.get(split.kind, split.name[:1].upper() + split.name[1:]), split.n) for split in table.splits]


def lines(table: Table1) -> list[Line]:
    """The lines of every row, each with one for its missing values where there are any."""
    return [line for row in table.rows for line in _lines(row, table.splits)]


def caption(table: Table1) -> str:
    """What the columns of differences say, and why there is no p."""
    compared = [split for split in table.splits if split.kind in ALONE]
    said = "Medians with quartiles in brackets; counts with the share of the patients in whom it is known."
    if compared:
        said += f" {DIFFERENCE[compared[0].kind]} (Austin 2009)"
        if compared[0].kind == "fold":
            chance = number(max(split.by_chance for split in compared), 2)
            said += (
                f"; between random groups of these sizes that of a number or of two levels is {chance} in the root mean square, "
                "and that of more levels is larger. There is no p: folds are dealt at random, labels evenly, so that every "
                "difference between them is chance's, and STROBE advises against such tests"
            )
        said += "."
    if table.left_out:
        said += f" {table.left_out} further columns of the cohort table are not described here."
    return said


def _lines(row: Row, splits: tuple[Split, ...]) -> list[Line]:
    told = [
        cell.difference
        for cell, split in zip(row.cells, splits, strict=True)
        if split.kind in ALONE and is_defined(cell.difference)
    ]
    largest = number(max(told), 2) if told else "–"
    if row.kind == "number":
        found = [Line(f"{row.column}, median", False, tuple(map(_quartiles, row.cells)), largest)]
    elif row.kind == "follow-up":
        found = [Line(f"{title(row.column)}: median follow-up in days", False, tuple(map(_quartiles, row.cells)), "")]
    elif row.kind == "label":
        found = [
            Line(f"{title(row.column)}: known", False, tuple(str(cell.known) for cell in row.cells), ""),
            Line(row.levels[0], True, tuple(_share(cell, 0) for cell in row.cells), largest),
        ]
    else:
        found = [Line(row.column, False, ("",) * len(row.cells), largest)]
        found += [
            Line(_level(row, place), True, tuple(_share(cell, place) for cell in row.cells), "")
            for place in range(len(row.levels))
        ]
    if row.kind in ("number", "words") and any(cell.missing for cell in row.cells):
        found.append(Line("missing", True, tuple(str(cell.missing) for cell in row.cells), ""))
    return found


def _level(row: Row, place: int) -> str:
    lumped = row.lumped and place == len(row.levels) - 1
    return f"{row.levels[place]}: {row.lumped}" if lumped else row.levels[place]


def _quartiles(cell: Cell) -> str:
    if not is_defined(cell.median):
        return "not reached" if cell.known else "–"
    low, high = (_plain(value) if is_defined(value) else "–" for value in (cell.low, cell.high))
    return f"{_plain(cell.median)} [{low}, {high}]"


def _plain(value: float) -> str:
    """Whole numbers as such; others with three digits that count, or one decimal from 100 on."""
    return (
        number(value, 0)
        if float(value).is_integer() or abs(value) >= 1000
        else f"{value:.3g}"
        if abs(value) < 100
        else number(value, 1)
    )


def _share(cell: Cell, place: int) -> str:
    """12 (38 %)."""
    if not cell.known:
        return "–"
    return f"{cell.counts[place]} ({100 * cell.counts[place] / cell.known:.0f} %)" if cell.counts else "–"

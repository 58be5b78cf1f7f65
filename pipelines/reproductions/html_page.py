"""The page of a study: what was asked, what was found, figures and tables with their numbers, and how it was made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from mri_vit import style
from mri_vit.report.pages import csv_tables
from mri_vit.report.words import notation
from mri_vit.run.atomic import write_bytes
from mri_vit.style import to_bytes


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure: `name` is that of its files, `alt` what it shows to who cannot see it, `caption` how it is read."""

    name: str
    drawn: Figure
    alt: str
    caption: str


@dataclass(frozen=True)
class Table:
    """A table in words, as a person reads it: column titles, and a cell each in every row, of which the first names the row."""

    label: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the page: a title, paragraphs, then its figures and tables."""

    title: str
    paragraphs: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """What a study found.

    Attributes
    ----------
    source : the paper and its figure or table, over the heading.
    title : the question.
    sentences : the answer, a finding each.
    sections : figures and tables.
    facts : how it was made, and what limits it, a sentence each.
    numbers : every figure's numbers by file name, written as CSV beside the page.
    synthetic : whether the patients are made up; then what that means for the figures, else "".
    """

    source: str
    title: str
    sentences: Sequence[str]
    sections: Sequence[Section]
    facts: Sequence[str]
    numbers: dict[str, pd.DataFrame]
    synthetic: str = ""


def environment(folder: Path, **filters: Callable[..., object]) -> jinja2.Environment:
    """The templates in a folder, which may extend those of the report's pages, with these filters."""
    found = style.templates("mri_vit.report.pages")
    assert found.loader
    found.loader = jinja2.ChoiceLoader([jinja2.FileSystemLoader(folder), found.loader])
    found.filters.update(filters)
    return found


def write(page: Page, folder: Path) -> Path:
    """Write `index.html`, each figure as SVG and PNG, and each table as CSV into `folder`; return the page's path.

    The page needs nothing beside it and fetches nothing.
    """
    drawn = {}
    for picture in (picture for section in page.sections for picture in section.pictures):
        for kind in ("svg", "png"):
            write_bytes(to_bytes(picture.drawn, kind), folder / f"{picture.name}.{kind}")
        drawn[picture.name] = style.data_url((folder / f"{picture.name}.svg").read_bytes(), "image/svg+xml")
    for name, table in page.numbers.items():
        write_bytes(csv_tables.to_csv(table).encode(), folder / f"{name}.csv")
    template = environment(Path(__file__).parent, tied=notation.tied).get_template("page.html")
    html = template.render(page=page, drawn=drawn, files=[f"{name}.csv" for name in page.numbers])
    write_bytes(html.encode(), folder / "index.html")
    return folder / "index.html"

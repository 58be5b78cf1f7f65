"""Page: a comparison and the runs that it is of in; one self-contained page and `comparison.json` out."""

from __future__ import annotations

from pathlib import Path

from mri_vit import style
from mri_vit.compared import document, figures, words
from mri_vit.compared.document import Comparison
from mri_vit.compared.runs import Runs
from mri_vit.report.figures.pictures import data_url
from mri_vit.report.reading.run import OWN
from mri_vit.report.words import notation
from mri_vit.report.words.notation import counted, listed
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.ownership import record, refuse_foreign, refuse_link

RECORD = "comparison.json"
MARKS = {"schema", "a", "b", "endpoints", "tests"}  # keys that the record has
NAMED = 40  # patients of one run alone whose ids stand on the page; the record has them all


def refuse(home: Path) -> None:
    """Raise UsageError when `home` holds something else than a comparison of ours, IntegrityError when it is a link."""
    refuse_link(home)
    refuse_foreign(home, set(record(home / RECORD)) >= MARKS, "comparison")


def write(runs: Runs, found: Comparison, home: Path) -> Path:
    """Write `comparison.json` and `index.html` into the folder `home`, which there is, and return the page's path.

    Raises as `refuse` does.
    """
    refuse(home)
    text = html(found, drawn(runs, found))
    write_bytes(document.dumps(found).encode(), home / RECORD)
    write_bytes(text.encode(), home / files.PAGE)  # last, so that a page is never newer than what it rests on
    return home / files.PAGE


def drawn(runs: Runs, found: Comparison) -> dict[str, str]:
    """The figures by name as data: URLs: the forest of differences, and for each endpoint how the own model ranks patients."""
    groups = figures.groups(found.endpoints)
    made = {"forest": figures.forest(groups)} if groups else {}
    for endpoint in runs.endpoints:
        own = [rows for rows in runs.rows[endpoint.name] if rows.model == OWN]
        if own and not found.endpoints[endpoint.name].models[OWN].same_predictions:
            made[f"ranks {endpoint.name}"] = figures.scatter(endpoint, own[0])
    return {name: data_url(style.to_bytes(figure, "svg"), "image/svg+xml") for name, figure in made.items()}


def html(found: Comparison, pictures: dict[str, str]) -> str:
    """The page, with nothing that is fetched from elsewhere; `pictures` are its figures as data: URLs by name."""
    environment = style.templates("mri_vit.report.pages")
    environment.filters.update(
        number=notation.number,
        between=notation.between,
        interval=notation.interval,
        change=notation.change,
        adjusted_p=notation.adjusted_p,
        p_alone=notation.p_alone,
        setting=notation.setting,
        significant=notation.significant,
        duration=notation.duration,
        title=notation.title,
        counted=counted,
        listed=listed,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    return environment.get_template("compared.html").render(
        c=found,
        own=OWN,
        pictures=pictures,
        kinds=words.KINDS,
        marks=words.MARKS,
        designs=words.DESIGNS,
        roles=words.ROLES,
        marked=words.MARKED,
        symbols=notation.SYMBOLS,
        controls=notation.EXPLAINED,
        named=NAMED,
        record=RECORD,
    )

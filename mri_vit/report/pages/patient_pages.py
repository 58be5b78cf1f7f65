"""The patients' pages: predictions beside the truth, and the scans in three planes and 3D with maps as overlays.

A page opens from disk without a network. Viewer, script and style are shared in `viewer/`; a page's volumes, most of its bytes,
lie beside it and are kept while their contents have not changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import matplotlib as mpl
import numpy as np
from markupsafe import Markup

from mri_vit import style
from mri_vit.data.cohort import visit_id
from mri_vit.explain.methods.catalogue import UNIT
from mri_vit.explain.outputs.overlays import OPACITY, OUTLINE, SCALE
from mri_vit.prepare.tumour import described
from mri_vit.report.pages import page_pictures
from mri_vit.report.reading.run import Run
from mri_vit.report.reading.run_files import Map
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.patients import Patient, PatientMaps
from mri_vit.report.words import map_sentences, run_facts
from mri_vit.report.words.notation import file_name, title
from mri_vit.run import files
from mri_vit.run.atomic import replacing, write_bytes

COLOURS = "inferno"  # explain/outputs/overlays.py's, like scale and opacity, so that page and picture agree
COLOUR_NODES = 33  # of the colour table; NiiVue interpolates between them, within 2 of 255 of inferno
WIDTH, QUALITY, BUDGET = 960, 80, 4_000_000  # of the pictures that stand in for the viewer: pixels, WebP's scale, bytes of page
SHEET_QUALITY = 70  # of a QC sheet: 40 kB a patient
BUNDLE = ("niivue.umd.js", "LICENSE", "LICENSES-BUNDLED")  # both licences ask to travel with the script
LAYOUT = 2  # of the volumes: a higher number makes them again
# 'self' of a file:// page is the disk; `data:` pictures are NiiVue's own letters and the maps' pictures
POLICY = style.content_policy({"script-src": "'self'", "style-src": "'self'", "img-src": "'self' data:"})
Points = dict[str, list[tuple[float, float]]]  # by patient, days and the probability of being alive
Survival = dict[str, tuple[str, Points]]  # by endpoint, with the cohort's curve


@dataclass(frozen=True)
class Visit:
    """One visit of a patient, whose page is `patients/<name>.html`."""

    visit: str
    name: str
    person: Patient
    session: str
    maps: Map | None  # None where they cannot be drawn
    measured: PatientMaps | None  # of these maps
    prepared: Path | None
    tumour: Path | None

    @property
    def link(self) -> str:
        """The page's address relative to the report's, quoted for a link."""
        return f"patients/{quote(self.name)}.html"


def visits(run: Run, metrics: Metrics) -> list[Visit]:
    """Every predicted visit, in the order of the report's patients."""
    reference = run.study.prepare.reference
    shown = {
        found.patient: (found, measured)
        for found, measured in zip(run.maps, metrics.maps, strict=True)
        if page_pictures.drawable(found, reference)
    }
    prepared = {visit: path.parent for visit, path in run.qc if (path.parent / files.TOKENS).is_file()}
    found = []
    for person in metrics.patients:
        for session in person.sessions:
            visit = visit_id(person.patient, session)
            tumour = run.tumours.get(visit)
            maps, measured = shown.get(visit, (None, None))
            there = tumour if tumour and tumour.is_file() else None
            found.append(Visit(visit, file_name(visit), person, session, maps, measured, prepared.get(visit), there))
    return found


def page_files(found: Sequence[Visit]) -> list[str]:
    """Every file of these visits' pages, relative to the report's folder."""
    return [
        f"patients/{one.name}.{kind}"
        for one in found
        for kind, there in (
            ("html", True),
            ("js", _has_volumes(one)),
            ("webp", one.prepared and (one.prepared / files.QC).is_file()),
        )
        if there
    ]


def write_patient_pages(run: Run, metrics: Metrics, found: Sequence[Visit], home: Path, templates: jinja2.Environment) -> None:
    """Write `viewer/` and the visits' pages into a report's folder.

    Raises
    ------
    UnusablePatient, IntegrityError
        A scan, a map or a prepared patient is damaged.
    """
    if not found:
        return
    (home / "patients").mkdir(parents=True, exist_ok=True)
    write_viewer(home / "viewer", any(map(_has_volumes, found)))
    page, of_people = templates.get_template("patient.html"), _survival(run, metrics)
    for index, one in enumerate(found):
        around = {"before": found[index - 1] if index else None, "after": found[index + 1] if index + 1 < len(found) else None}
        text = page.render(**_context(run, metrics, one, of_people), **around, study=run.study.name, policy=POLICY)
        (home / "patients" / f"{one.name}.html").write_text(text, encoding="utf-8")  # not synced: a page is quickly made again
        _write_sheet(one, home / "patients" / f"{one.name}.webp")
        _write_volumes(run, one, home / "patients" / f"{one.name}.js")


def write_viewer(folder: Path, has_volumes: bool = True) -> None:
    """Write script and style of patients' pages, and the viewer with its licences where a page has volumes."""
    folder.mkdir(parents=True, exist_ok=True)
    vendored = resources.files("mri_vit.report.pages") / "vendor" / "niivue"
    for name in BUNDLE if has_volumes else ():
        write_bytes((vendored / name).read_bytes(), folder / name)
    templates = style.templates("mri_vit.report.pages")
    for name, filled in (
        ("patient.js", {"colours": Markup(json.dumps(colour_table())), "outline": "rgb({} {} {})".format(*OUTLINE)}),
        ("patient.css", {"gradient": ", ".join(css_colours())}),
    ):
        write_bytes(templates.get_template(name).render(**filled).encode(), folder / name)


def _context(run: Run, metrics: Metrics, one: Visit, survival: Survival) -> dict[str, Any]:
    """The template's variables for a visit."""
    own = [one.maps.facts["maps"][entry.index] for entry in one.measured.maps] if one.maps and one.measured else []
    packed = (
        page_pictures.shrunk([one.maps.overlays[entry.index] for entry in one.measured.maps], WIDTH, QUALITY, BUDGET)
        if one.maps and one.measured
        else []
    )
    return {
        "one": one,
        "results": run_facts.patient_lines(metrics, one.person),
        "curves": list(_survival_curves(one, survival)),
        "unit": UNIT,
        "scale": SCALE,
        "opacity": OPACITY,
        "has_volumes": _has_volumes(one),
        "located": described(run.located[one.visit].model_dump(exclude_none=True)) if one.visit in run.located else "",
        "has_sheet": one.prepared is not None and (one.prepared / files.QC).is_file(),
        "curve_size": (page_pictures.CURVE_WIDTH, page_pictures.CURVE_HEIGHT),
        "maps": [
            {
                "label": map_sentences.map_label(entry),
                "facts": map_sentences.map_facts(one.maps.facts, drawn),
                "verdicts": [f"{title(verdict.endpoint)}: {verdict.sentence}" for verdict in entry.verdicts],
                "note": drawn.get("note"),
                "picture": picture,
            }
            for entry, drawn, picture in zip_longest(one.measured.maps, own, packed)
        ]
        if one.maps and one.measured
        else [],
    }


def _survival(run: Run, metrics: Metrics) -> Survival:
    """By survival endpoint the cohort's curve, and each patient's survival as predicted by its card's model."""
    found = {}
    for name, card in metrics.cards.items():
        if name in set(run.survival.endpoint):
            rows = run.survival.loc[(run.survival.endpoint == name) & (run.survival.model == card.model)]
            means = rows.groupby(["patient", "horizon_days"]).survival.mean()  # sorted by both
            points: Points = {}
            for (patient, days), alive in means.items():  # type: ignore[misc]  # of an index of two levels
                points.setdefault(str(patient), []).append((float(days), float(alive)))
            people = [person.endpoints[name] for person in metrics.patients if name in person.endpoints]
            known = [one for one in people if one.truth is not None and not np.isnan(one.time_days)]
            times, died = np.array([one.time_days for one in known]), np.array([one.truth for one in known], dtype=bool)
            event = getattr(metrics.endpoints[name], "competing", None)
            other = np.array([one.label == event.name for one in known], dtype=bool) if event else None
            found[name] = (page_pictures.cohort_curve(times, died, other), points)
    return found


def _survival_curves(one: Visit, survival: Survival) -> Iterator[tuple[str, page_pictures.SurvivalCurve]]:
    for name, (of_all, of_people) in survival.items():
        points, result = of_people.get(one.person.patient), one.person.endpoints.get(name)
        if points and result:
            yield title(name), page_pictures.patient_curve(points, result, of_all)


def _has_volumes(one: Visit) -> bool:
    return bool(one.maps or one.prepared)


def _write_sheet(one: Visit, path: Path) -> None:
    """The QC picture: written every time, which is faster than checking whether it changed."""
    source = one.prepared and one.prepared / files.QC
    if source and source.is_file():
        with replacing(path) as beside:
            page_pictures.opened(source).save(beside, "WEBP", quality=SHEET_QUALITY, method=0)


def _write_volumes(run: Run, one: Visit, path: Path) -> None:
    """The volumes, unless a file exists whose first line shows that it was made from the same contents."""
    if not _has_volumes(one):
        return
    stamp = f"// {_stamp(one)}\n"
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            if file.readline() == stamp:
                return
    entries = [one.maps.facts["maps"][entry.index] for entry in one.measured.maps] if one.maps and one.measured else []
    drawn = page_pictures.viewer_volumes(one.prepared, one.maps, one.tumour, entries, run.study.prepare.reference)
    write_bytes(f"{stamp}window.patientVolumes = {json.dumps(drawn)};\n".encode(), path)


def _stamp(one: Visit) -> str:
    """A hash of the volumes' sources: records identify scans and maps by content, size and time identify a mask."""
    records = [one.prepared and one.prepared / files.PATIENT, one.maps and one.maps.folder / files.MAP]
    order = [entry.index for entry in one.measured.maps] if one.measured else []
    mask = [one.tumour.stat().st_size, one.tumour.stat().st_mtime_ns] if one.tumour else []
    parts = [str(LAYOUT).encode(), *(file.read_bytes() if file else b"" for file in records), json.dumps([order, mask]).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def colour_table() -> dict[str, list[int]]:
    """The colour scale in NiiVue's form: colour R, G, B at level I; only level 0 is transparent (A)."""
    level = np.rint(np.linspace(0, 255, COLOUR_NODES)).astype(int)
    red, green, blue, _ = np.rint(255 * mpl.colormaps[COLOURS]((level / 255) ** 2)).astype(int).T
    columns = (red, green, blue, np.where(level > 0, 255, 0), level)
    return {key: column.tolist() for key, column in zip("RGBAI", columns, strict=True)}


def css_colours() -> list[str]:
    """The colour scale from 1 to its top, linear in the logarithm."""
    rows = np.rint(255 * mpl.colormaps[COLOURS](np.linspace(0, 1, COLOUR_NODES))).astype(int)
    return [f"rgb({red} {green} {blue})" for red, green, blue, _ in rows]

"""Patient pages: each patient's brain with one of the maps over it, chosen on the page, in three planes and in 3D.

A page opens from disk with no network: scan and maps lie in it, NiiVue (BSD-2) lies once beside the pages. Where a browser
cannot draw, and in print, the page shows the maps' pictures instead. Letters: x, y, z voxels.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import matplotlib as mpl
import nibabel as nib
import numpy as np
from jaxtyping import Float, UInt8
from markupsafe import Markup

from mri_vit import style as look
from mri_vit.data.volume import Volume, read
from mri_vit.explain.images.overlay import OPACITY, SCALE
from mri_vit.explain.methods.names import UNIT
from mri_vit.report.figures import pictures
from mri_vit.report.pages import policy
from mri_vit.report.reading.run import Map
from mri_vit.report.schema.maps import PatientMaps
from mri_vit.report.words import patient_map
from mri_vit.report.words.notation import title
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import sequences

COLOURS = "inferno"  # explain/overlay.py's, like scale and opacity, so that page and picture agree
NODES = 33  # of the colour table; NiiVue interpolates between them, within 2 of 255 of inferno
WIDTH, QUALITY, BUDGET = 960, 80, 4_000_000  # of the pictures that stand in for the viewer: pixels, WebP's scale, bytes of page
LEVEL = 6  # of gzip: twice as fast as 9 for a hundredth more bytes
MARGIN = 4  # voxels kept around the brain, so that its edge does not touch the picture's
BUNDLE = ("niivue.umd.js", "LICENSE", "LICENSES-BUNDLED")  # both licences ask to travel with the script


def links(maps: Sequence[Map], reference: str) -> dict[str, str]:
    """Each page's address relative to the report's, quoted for a link, by patient; who has no drawable maps has no page."""
    return {found.patient: f"patients/{quote(found.folder.name)}.html" for found in maps if drawable(found, reference)}


def write(maps: Sequence[Map], shown: Sequence[PatientMaps], home: Path, study_name: str, reference: str) -> None:
    """Write `viewer/` and `patients/<patient>.html` into a report's folder.

    A patient whose brain was not written beside the maps gets no page.

    Parameters
    ----------
    maps
        The run's maps; their files lie in each one's folder.
    shown
        What the page says of each, in their order of showing: `maps` of `metrics.json`.
    home
        The report's folder, the one of `index.html`.
    study_name
        For the page's head.
    reference
        The sequence on whose scan the maps are shown.

    Raises
    ------
    UnusablePatient
        A scan or map is damaged.
    """
    pages = [(found, said) for found, said in zip(maps, shown, strict=True) if drawable(found, reference)]
    if not pages:
        return
    for folder in ("patients", "viewer"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    vendored = resources.files("mri_vit.report.pages") / "vendor" / "niivue"
    for name in BUNDLE:
        write_bytes((vendored / name).read_bytes(), home / "viewer" / name)
    for found, said in pages:
        text = page(found, said, study_name, reference)
        # a folder's name is a safe file name
        write_bytes(text.encode(), home / "patients" / f"{found.folder.name}.html")


def page(found: Map, shown: PatientMaps, study_name: str, reference: str) -> str:
    """One patient's page, for a folder beside `viewer/`."""
    own = [found.facts["maps"][entry.index] for entry in shown.maps]
    packed = pictures.shrunk([found.overlays[entry.index] for entry in shown.maps], WIDTH, QUALITY, BUDGET)
    template, style, script = _template()
    return template.render(
        style=Markup(style),
        script=Markup(script),
        policy=rules(style, script),
        study=study_name,
        patient=found.patient,
        maps=[
            {
                "label": patient_map.label(entry),
                "facts": patient_map.facts(found.facts, drawn),
                "verdicts": [f"{title(verdict.endpoint)}: {verdict.sentence}" for verdict in entry.verdicts],
                "note": drawn.get("note"),
                "picture": picture,
            }
            for entry, drawn, picture in zip_longest(shown.maps, own, packed)
        ],
        unit=UNIT,
        scale=SCALE,
        opacity=OPACITY,
        scan=sequences.title(reference),
        data=_volumes(found, own, reference),
    )


def _volumes(found: Map, entries: Sequence[Mapping[str, Any]], reference: str) -> dict[str, Any]:
    """What the viewer draws: the brain, the maps over it, and their colours."""
    scan = read(found.folder / found.facts["brain"])
    box = around(scan.array)
    heats = [cut(_heat(found.folder, entry, scan, reference), box) for entry in entries]
    return {
        "scan": embedded(cut(scan, box)),
        "maps": [
            {"map": embedded(Volume(levels(heat.array), heat.affine)), "peak_mm": list(entry["peak_mm"])}
            for entry, heat in zip(entries, heats, strict=True)
        ],
        "top": SCALE[-1],
        "colours": colour_table(),
    }


@cache
def _template() -> tuple[jinja2.Template, str, str]:
    """The page, its style and its script; the same for every patient, so they are compiled once."""
    environment = look.templates("mri_vit.report.pages")
    style = environment.get_template("patient.css").render(gradient=", ".join(_css_colours()))
    return environment.get_template("patient.html"), style, environment.get_template("patient.js").render()


def _heat(folder: Path, entry: Mapping[str, Any], scan: Volume, reference: str) -> Volume:
    """A map on the reference's voxels, like the brain. One of zeros is legal, though as a scan it would be refused as empty."""
    return read(folder / entry["files"][reference]) if entry["peak"] else Volume(np.zeros_like(scan.array), scan.affine)


def drawable(found: Map, reference: str) -> bool:
    """Whether the brain and every map lie on the reference's voxels."""
    needed = [found.facts.get("brain"), *(entry["files"].get(reference) for entry in found.facts["maps"])]
    return len(needed) > 1 and all(name and (found.folder / name).is_file() for name in needed)


def rules(style: str, script: str) -> str:
    """The page's Content-Security-Policy: what it holds itself, by hash, and the viewer beside it; nothing from elsewhere.

    `data:` pictures are NiiVue's own letters and the overlay. Showing two embedded volumes needs nothing else.
    """
    own = f"'self' {policy.hash_of(script)}"  # 'self' of a file:// page is the disk; it cannot be allowed by hash there
    return policy.of({"script-src": own, "style-src": policy.hash_of(style), "img-src": "data:"})


def levels(heat: Float[np.ndarray, "x y z"]) -> UInt8[np.ndarray, "x y z"]:
    """A map in times the uniform map as bytes: 0 at an even share or less, 255 at the scale's top.

    Between them the squared level is even in the map's logarithm, because NiiVue's opacity below a threshold is the squared
    level: so the opacity grows evenly with each doubling, as in explain/overlay.py.
    """
    height = np.log(heat.clip(SCALE[0], SCALE[-1])) / np.log(SCALE[-1])
    return np.rint(255 * np.sqrt(height)).astype(np.uint8)


def colour_table() -> dict[str, list[int]]:
    """NiiVue's form of the colour scale: at level I the colour R, G, B; only level 0 is clear of itself (A)."""
    level = np.rint(np.linspace(0, 255, NODES)).astype(int)
    red, green, blue, _ = np.rint(255 * mpl.colormaps[COLOURS]((level / 255) ** 2)).astype(int).T
    columns = (red, green, blue, np.where(level > 0, 255, 0), level)
    return {key: column.tolist() for key, column in zip("RGBAI", columns, strict=True)}


def around(array: Float[np.ndarray, "x y z"]) -> tuple[slice, slice, slice]:
    """The box of what is not 0, with a margin."""
    ends = [np.flatnonzero(array.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3)]
    x, y, z = (slice(max(int(end[0]) - MARGIN, 0), int(end[-1]) + MARGIN + 1) for end in ends)
    return x, y, z


def cut(volume: Volume, box: tuple[slice, slice, slice]) -> Volume:
    """The part of a volume in a box, lying where it lay."""
    affine = volume.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ [part.start for part in box]
    return Volume(volume.array[box], affine)


def embedded(volume: Volume) -> str:
    """A volume of bytes as the base64 text of its .nii.gz; equal volumes give equal texts."""
    image = nib.Nifti1Image(volume.array.astype(np.uint8), volume.affine)
    image.set_qform(volume.affine, code=1)
    image.header.set_xyzt_units("mm")
    return base64.b64encode(gzip.compress(image.to_bytes(), LEVEL, mtime=0)).decode()


def _css_colours() -> list[str]:
    """The scale from 1 to its top, even in the logarithm."""
    rows = np.rint(255 * mpl.colormaps[COLOURS](np.linspace(0, 1, NODES))).astype(int)
    return [f"rgb({red} {green} {blue})" for red, green, blue, _ in rows]

"""Page: one patient's prediction as a page that opens from disk, with all that it shows beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from mri_vit import style
from mri_vit.explain.images.overlay import OPACITY, SCALE
from mri_vit.explain.methods.names import UNIT
from mri_vit.prediction import endpoints
from mri_vit.prediction.calibration import on_line
from mri_vit.prediction.document import Binary, Prediction, ShownMap, Survival
from mri_vit.prediction.endpoints import OfRun
from mri_vit.report.pages import patient_drawings, patient_pages
from mri_vit.report.reading.maps import Map
from mri_vit.report.words import map_sentences, notation
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import sequences

VOLUMES = "scans.js"
MASKS = {"brain_mask": "a mask of the brain", "tumour_mask": "a mask of the tumour"}
FIGURES_SHOWN = 6  # of those by which a patient is compared with the run's; the others are folded


def write(made: Prediction, run: OfRun, prepared: Path, tumour: Path | None, folder: Path) -> None:
    """Write `index.html`, the volumes that it shows and `viewer/` into a patient's folder, which may then be handed on alone.

    Parameters
    ----------
    made
        The document, whose maps and picture lie in `folder` already.
    run
        Whose out-of-fold scores stand beside the patient's, of the endpoints that are shown alone.
    prepared, tumour
        The prepared patient, and the tumour's mask in the reference's space if there is one.
    """
    maps = made.maps.maps if made.maps else ()
    facts = {"brain": made.maps and made.maps.brain, "maps": [one.model_dump(mode="json") for one in maps]}
    found = Map(made.patient, folder, facts)
    reference = made.preparation.reference
    can_draw = patient_drawings.drawable(found, reference)
    drawn = patient_drawings.viewer_volumes(prepared, found if can_draw else None, tumour, facts["maps"], reference)
    write_bytes(f"window.patientVolumes = {json.dumps(drawn)};\n".encode(), folder / VOLUMES)
    patient_pages.write_viewer(folder / "viewer")
    templates = style.templates("mri_vit.report.pages")
    templates.filters.update(
        per_cent=endpoints.per_cent,
        number=notation.number,
        title=notation.title,
        sequence=sequences.title,
        interval=notation.interval,
    )
    templates.tests.update(known=notation.is_defined)
    templates.globals.update(kinds=notation.KINDS, marks=notation.MARKS)
    text = templates.get_template("prediction.html").render(
        p=made,
        policy=patient_pages.POLICY,
        name=made.patient,
        volumes=VOLUMES,
        qc=files.QC,
        given=[MASKS.get(one.holds) or sequences.title(one.holds) for one in made.preparation.read],
        strips={name: _strip(run, name, one) for name, one in made.endpoints.items() if one.value},
        curves={name: _curve(run, name, one) for name, one in made.endpoints.items() if isinstance(one, Survival) and one.value},
        strip_width=patient_drawings.STRIP_WIDTH,
        curve_size=(patient_drawings.CURVE_WIDTH, patient_drawings.CURVE_HEIGHT),
        figures_shown=FIGURES_SHOWN,
        maps=[_of_map(one, made) for one in maps],
        unit=UNIT,
        scale=SCALE,
        opacity=OPACITY,
    )
    write_bytes(text.encode(), folder / files.PAGE)


def _strip(run: OfRun, name: str, one: Binary | Survival) -> patient_drawings.ScoreStrip:
    """On the scale on which the call is made, so that the patient lies on its side of the dashed line."""
    assert one.value is not None
    rows = run.of_endpoint(name)
    if isinstance(one, Binary) and one.value.probability:
        line = one.value.probability
        rows = rows.assign(score=on_line(line.slope, line.intercept, rows.score.to_numpy(float)))
        return patient_drawings.score_strip(rows, one.kind, line.value, endpoints.EVEN, "calibrated probability")
    return patient_drawings.score_strip(rows, one.kind, one.value.score, one.value.threshold)


def _curve(run: OfRun, name: str, one: Survival) -> patient_drawings.SurvivalCurve:
    assert one.value is not None
    known = run.of_endpoint(name).dropna(subset=["time_days", "event"]).drop_duplicates("patient")
    of_all = patient_drawings.cohort_curve(known.time_days.to_numpy(dtype=float), known.event.to_numpy(dtype=bool))
    return patient_drawings.survival_curve([(at.days, at.survival) for at in one.value.horizons], of_all)


def _of_map(one: ShownMap, made: Prediction) -> dict[str, object]:
    """What the page says of a map."""
    assert made.maps is not None
    head = notation.title(one.endpoint) if one.endpoint else "Every endpoint"
    network = {"model": "the run's Vision Transformer", "repeat": made.maps.repeat, "fold": made.maps.fold}
    shares = one.by_scan and {scan: share for scan, share in one.by_scan.items() if not np.isnan(share)}
    return {
        "label": f"{head}: {one.title}",
        "facts": map_sentences.map_facts(network, one.model_dump() | {"by_scan": shares}),
        "verdicts": [f"{notation.title(verdict.endpoint)}: {verdict.sentence}" for verdict in one.verdicts],
        "note": one.meaning,
        "picture": one.overlay,
    }

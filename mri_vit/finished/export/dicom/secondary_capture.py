"""Secondary capture: a prediction's summary and maps go in; RGB pictures that every viewer shows come out.

Pictures are drawn anew: those of `mri-vit predict` have the patient's id in their pixels, and may show a face.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from highdicom.sc import SCImage
from jaxtyping import UInt8
from PIL import Image, ImageDraw
from pydicom import Dataset

from mri_vit.data.volume import Volume, resample
from mri_vit.explain.outputs import overlays
from mri_vit.explain.outputs.overlays import BLACK, GREY, NOTICE_COLOUR, WHITE, font, wrapped
from mri_vit.finished.export.dicom.common_modules import Export, completed
from mri_vit.finished.export.dicom.predicted_scans import PredictedScans, read_image
from mri_vit.finished.export.dicom.summary import RESEARCH_USE, Summary
from mri_vit.finished.prediction_document import ShownMap
from mri_vit.report.words import notation
from mri_vit.settings.recipe import title

SERIES = "captures"
WIDTH_PX, MARGIN_PX = 1000, 36  # of the page; a viewer on a ward has 1024 pixels and more
HEAD, SUBHEAD, BODY = 26, 20, 16  # sizes of letters; 16 pixels are read where a viewer halves the picture
LEADING = 1.4  # of a line, relative to its letters
GREEN = (120, 210, 120)  # of a shown endpoint
NEAREST = 1  # sitk.sitkNearestNeighbor
Line = tuple[str, int, tuple[int, int, int]]  # text, size, colour


def summary_capture(summary: Summary, export: Export, series: int) -> Dataset:
    """The page's summary, the first picture of the `series`-th series."""
    return _capture(summary_picture(summary), export, 1, series)


def map_capture(entry: ShownMap, mask: Volume | None, export: Export, instance: int, series: int) -> Dataset | None:
    """A map over the reference's brain; None where the prediction published no brain because it may hold a face."""
    picture = map_picture(entry, mask, export.predicted)
    return None if picture is None else _capture(picture, export, instance, series)


def summary_picture(summary: Summary) -> UInt8[np.ndarray, "h w 3"]:
    """The summary as text in pixels."""
    lines = [
        (part, size, colour) for text, size, colour in _lines(summary) for part in wrapped(text, WIDTH_PX - 2 * MARGIN_PX, size)
    ]
    height = 2 * MARGIN_PX + sum(round(LEADING * size) for _, size, _ in lines)
    picture = Image.new("RGB", (WIDTH_PX, height), BLACK)
    pen, top = ImageDraw.Draw(picture), MARGIN_PX
    for text, size, colour in lines:
        pen.text((MARGIN_PX, top), text, colour, font(size))
        top += round(LEADING * size)
    return np.asarray(picture)


def _lines(summary: Summary) -> Iterator[Line]:
    blank = ("", BODY, WHITE)
    yield "Prediction by mri-vit", HEAD, WHITE
    yield RESEARCH_USE, SUBHEAD, NOTICE_COLOUR
    for caution in summary.cautions:
        yield caution, BODY, NOTICE_COLOUR
    for one in summary.endpoints:
        yield blank
        unreliable = NOTICE_COLOUR if one.figures else GREY
        yield f"{one.title}: {one.headline}", SUBHEAD, GREEN if one.is_reliable else unreliable
        if one.figures:
            yield f"{'; '.join(figure.text for figure in one.figures)}.", BODY, WHITE
        for sentence in one.sentences:
            yield f"{sentence.label}: {sentence.text}", BODY, NOTICE_COLOUR if sentence.code == "untrusted" else WHITE
    yield blank
    yield "Tumour", SUBHEAD, WHITE
    yield summary.tumour, BODY, WHITE
    yield blank
    yield "Quality and model", SUBHEAD, WHITE
    for text in (*summary.quality, summary.model):
        yield text, BODY, WHITE


def map_picture(entry: ShownMap, mask: Volume | None, predicted: PredictedScans) -> UInt8[np.ndarray, "h w 3"] | None:
    """A map in planes through its peak, over the brain that the prediction published; None where it published none."""
    maps, reference = predicted.document.maps, predicted.reference
    if maps is None or maps.brain is None:
        return None
    brain = read_image(predicted.folder / maps.brain)
    tumour = None if mask is None else resample(mask, brain.shape, brain.affine, interpolation=NEAREST).array > 0
    under = overlays.underlay(brain, brain.array > 0, tumour)
    of = notation.title(entry.endpoint) if entry.endpoint else "all endpoints"
    head = " · ".join(filter(None, (entry.title, of, f"on {title(reference)}", "research use only", predicted.doubt(entry))))
    checked = "; ".join(f"{notation.title(one.endpoint)}: {notation.MAP_KINDS[one.kind]}" for one in entry.verdicts)
    note = f"{RESEARCH_USE} {entry.meaning} Checks of the method's maps in the run: {checked or 'none were made'}."
    drawn = overlays.drawn(under, predicted.map_on(entry, reference), head, note)
    with Image.open(io.BytesIO(drawn)) as picture:
        return np.asarray(picture.convert("RGB"))


def _capture(pixels: UInt8[np.ndarray, "h w 3"], export: Export, instance: int, series: int) -> Dataset:
    made = SCImage.from_ref_dataset(
        ref_dataset=export.source.images[0],
        pixel_array=np.ascontiguousarray(pixels),
        photometric_interpretation="RGB",
        bits_allocated=8,
        coordinate_system="PATIENT",
        patient_orientation=("L", "F"),  # which highdicom needs
        series_description="mri-vit research: summary and maps",
        **export.placed(SERIES, series, instance),
    )
    made.ConversionType = "SYN"  # synthetic image, PS3.3, C.8.6.1
    for keyword in ("DateOfSecondaryCapture", "TimeOfSecondaryCapture"):
        if keyword in made:
            del made[keyword]
    made.BurnedInAnnotation = "NO"  # no pixel names a person
    made["PatientOrientation"].value = None  # a sheet of planes has none; empty is allowed
    made.ImageType = ["DERIVED", "SECONDARY"]
    return completed(made, export)

"""Parametric map: an attention map on the source's voxels goes in; a DICOM object with the same float32 numbers comes out."""

from __future__ import annotations

import numpy as np
from highdicom import VOILUTTransformation
from highdicom.pm import ParametricMap, RealWorldValueMapping
from highdicom.sr import CodedConcept
from pydicom import Dataset
from pydicom.sr.codedict import codes

from mri_vit.errors import UsageError
from mri_vit.explain.outputs.overlays import SCALE
from mri_vit.finished.export.dicom.common_modules import Export, completed, cut
from mri_vit.finished.export.dicom.source_series import SAME_PLACE_MM, laid_on
from mri_vit.finished.prediction_document import ShownMap
from mri_vit.report.words import notation

DESCRIPTION = 1024  # characters of a short text (ST), PS3.5, 6.2


def parametric_map(entry: ShownMap, export: Export, number: int, series: int) -> Dataset:
    """The `number`-th map, counted from 1, of the `series`-th series.

    Raises UsageError where the map does not lie on the source's voxels: it is never resampled.
    """
    volume = export.predicted.map_on(entry, export.scan)
    array, apart_mm = laid_on(volume, export.source.shape, export.source.affine)
    if apart_mm > SAME_PLACE_MM:
        raise UsageError(
            f"{export.predicted.folder}: the map “{entry.title}” lies {apart_mm:.2f} mm from the series' voxels (tolerance"
            f" {SAME_PLACE_MM} mm); nothing was exported"
        )
    frames = export.source.frames(np.asarray(array, np.float32))
    head = notation.title(entry.endpoint) if entry.endpoint else "all endpoints"
    research = ", ".join(filter(None, ("research", export.predicted.doubt(entry))))
    mapping = RealWorldValueMapping(
        lut_label=cut(entry.method, "SH"),
        lut_explanation=cut(f"{entry.title}, {entry.unit}", "LO"),
        unit=codes.UCUM.NoUnits,
        value_range=(float(frames.min()), float(frames.max())),
        slope=1.0,
        intercept=0.0,
        quantity_definition=codes.DCM.Saliency,
    )
    made = ParametricMap(
        source_images=export.source.images,
        pixel_array=frames,
        contains_recognizable_visual_features=False,  # 0 outside the brain
        real_world_value_mappings=[mapping],
        voi_lut_transformations=[
            VOILUTTransformation(window_center=(SCALE[0] + SCALE[-1]) / 2, window_width=float(SCALE[-1] - SCALE[0]))
        ],
        content_label="ATTRIBUTION",
        content_description=cut(f"{entry.title} of {head}", "LO"),
        series_description=cut(f"mri-vit {research}: {entry.title}, {head}", "LO"),
        **export.placed(f"map {number}", series),
    )
    anatomy = Dataset()
    anatomy.FrameLaterality = "U"  # the brain is unpaired
    anatomy.AnatomicRegionSequence = [CodedConcept.from_code(codes.SCT.Brain)]
    made.SharedFunctionalGroupsSequence[0].FrameAnatomySequence = [anatomy]  # without which dcmqi ends with a fault
    for frame in made.PerFrameFunctionalGroupsSequence:
        for derivation in frame.get("DerivationImageSequence", ()):
            derivation.DerivationDescription = _derivation(entry)
    _order_frames(made)
    return completed(made, export)


def _order_frames(made: Dataset) -> None:
    """Order frames along the normal (row × column); highdicom orders them against it.

    The standard allows any order, but dcmqi 1.5 takes the first frame for the lowest, and a map would be mirrored in it.
    """
    groups = list(made.PerFrameFunctionalGroupsSequence)
    orientation = made.SharedFunctionalGroupsSequence[0].PlaneOrientationSequence[0].ImageOrientationPatient
    normal = np.cross(np.array(orientation[:3], float), np.array(orientation[3:], float))
    places = [np.array(group.PlanePositionSequence[0].ImagePositionPatient, float) @ normal for group in groups]
    order = np.argsort(places)
    frames = np.frombuffer(made.FloatPixelData, np.float32).reshape(len(groups), -1)
    made.FloatPixelData = frames[order].tobytes()
    made.PerFrameFunctionalGroupsSequence = [groups[index] for index in order]
    for number, group in enumerate(made.PerFrameFunctionalGroupsSequence, start=1):
        group.FrameContentSequence[0].DimensionIndexValues = [number]


def _derivation(entry: ShownMap) -> str:
    """How the numbers came to be, in words."""
    explained = f" It explains {entry.explains}." if entry.explains else ""
    described = (
        f"{entry.meaning} Values are {entry.unit}: 1 is an even share of the map's sum, 0 lies outside the brain.{explained}"
    )
    return f"{described} Method: {entry.source}"[:DESCRIPTION]

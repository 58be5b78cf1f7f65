"""Segmentation: the patient's tumour mask goes in; a binary DICOM segmentation on the source's voxels comes out."""

from __future__ import annotations

import numpy as np
from highdicom import AlgorithmIdentificationSequence
from highdicom.seg import SegmentAlgorithmTypeValues, Segmentation, SegmentationTypeValues, SegmentDescription
from pydicom import Dataset
from pydicom.sr.codedict import codes

from mri_vit.data.volume import Volume
from mri_vit.finished.export.dicom.common_modules import Export, completed
from mri_vit.finished.export.dicom.source_series import SAME_PLACE_MM, laid_on
from mri_vit.settings.recipe import title

TUMOUR = "Tumour"
FINDERS = {"found": "tumour finder of mri-vit", "command": "program of the study"}  # by source of the mask


def why_no_segmentation(mask: Volume | None, export: Export) -> str | None:
    """Why the tumour's mask cannot be an object beside the source; None where it can."""
    if mask is None:
        return "there is no tumour mask"
    if export.scan != export.predicted.reference:
        reference = title(export.predicted.reference)
        return f"the tumour mask lies on {reference}, and the series is {title(export.scan)}: name the {reference} series"
    _, apart_mm = laid_on(mask, export.source.shape, export.source.affine)
    if apart_mm > SAME_PLACE_MM:
        return f"the tumour mask lies on other voxels than the {title(export.scan)} series, and is not resampled"
    return None


def segmentation(mask: Volume, export: Export, series: int) -> Dataset:
    """The mask, against which `why_no_segmentation` has no reason, in the `series`-th series; empty frames are left out."""
    array, _ = laid_on(mask, export.source.shape, export.source.affine)
    drawn = export.source.frames(array != 0).astype(np.uint8)
    by = FINDERS.get(export.predicted.document.preparation.tumour.source)
    algorithm = (
        AlgorithmIdentificationSequence(name=by, family=codes.DCM.ArtificialIntelligence, version=export.software) if by else None
    )
    segment = SegmentDescription(
        segment_number=1,
        segment_label=TUMOUR,
        segmented_property_category=codes.SCT.MorphologicallyAbnormalStructure,
        segmented_property_type=codes.SCT.Neoplasm,
        algorithm_type=SegmentAlgorithmTypeValues.AUTOMATIC if by else SegmentAlgorithmTypeValues.MANUAL,
        algorithm_identification=algorithm,
        tracking_uid=tracking_uid(export),
        tracking_id=TUMOUR,
        anatomic_regions=[codes.SCT.Brain],
    )
    made = Segmentation(
        source_images=export.source.images,
        pixel_array=drawn,
        segmentation_type=SegmentationTypeValues.BINARY,
        segment_descriptions=[segment],
        content_label="TUMOUR",
        content_description="Tumour mask, found automatically" if by else "Tumour mask, supplied with the scans",
        series_description="mri-vit research: tumour mask",
        **export.placed("tumour", series),
    )
    return completed(made, export)


def tracking_uid(export: Export) -> str:
    """Of the tumour, in segmentation and report."""
    return export.uid("tracking", TUMOUR)

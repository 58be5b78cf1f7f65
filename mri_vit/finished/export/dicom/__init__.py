"""DICOM objects of a prediction: a patient's folder and a DICOM series go in; files for an archive come out."""

from __future__ import annotations

from types import ModuleType

from mri_vit.errors import UsageError


def writer() -> ModuleType:
    """The module `dicom_objects`, whose dependencies are an extra."""
    try:
        from mri_vit.finished.export.dicom import dicom_objects
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed, which writes DICOM: pip install 'mri-vit[dicom]'") from None
    return dicom_objects

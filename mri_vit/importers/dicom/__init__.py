"""DICOM: files as a scanner or an archive exports them go in; scans without personal data, and reasons for the rest, come out."""

from __future__ import annotations

from types import ModuleType

from mri_vit.errors import UsageError


def reader() -> ModuleType:
    """The module `importer`, whose dependencies are an extra that only the import of DICOM needs."""
    try:
        from mri_vit.importers.dicom import importer
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed, which reads DICOM: pip install 'mri-vit[dicom]'") from None
    return importer

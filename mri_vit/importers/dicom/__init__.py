"""DICOM: files as a scanner or an archive exports them in; scans without personal data, and what was left out, out."""

from __future__ import annotations

from types import ModuleType

from mri_vit.errors import UsageError


def reader() -> ModuleType:
    """The module `importer`, whose tools are an extra: whoever imports no DICOM need not have them."""
    try:
        from mri_vit.importers.dicom import importer
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed, which reads DICOM: pip install 'mri-vit[dicom]'") from None
    return importer

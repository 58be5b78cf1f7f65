"""Cohorts as others publish or store them: a download, an export or DICOM in, a cohort table and its cells' origins out."""

"""Cohorts as others publish or store them: a download, an export or DICOM goes in; a cohort table with its origins comes out."""

"""DICOM: files as a scanner or an archive exports them in; scans without personal data, and what was left out, out."""

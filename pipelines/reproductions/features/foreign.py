"""Features from files in the comparison of frozen encoders: read by the same probes, on the same patients, folds and labels.

A file is one that `mri-vit features` wrote, of an encoder of others or of ours. It has no random weights that it began with here,
and so no test against them; its AUC has an interval over patients as all others have.

Letters: n patients, d numbers of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.features import extraction
from mri_vit.features.extraction import Features, Origin
from mri_vit.settings import licence
from mri_vit.settings.endpoint import Endpoint
from reproductions.features.encoders import SCORES, probed

DIGITS = 8  # of a SHA-256, where two files would have one name


def read(paths: Sequence[Path], patients: Sequence[Patient], taken: Sequence[str]) -> dict[str, Features]:
    """The files by the name of their encoder, which is none of those `taken`.

    Raises UsageError where a file lacks one of the patients, or its encoder has learned the label of one.
    """
    files = {path: extraction.load_features(path) for path in paths}
    counts = Counter(found.origin.name for found in files.values())
    named: dict[str, Features] = {}
    for path, found in files.items():
        refuse(found, patients, path)
        name = found.origin.name
        if counts[name] > 1 or name in taken:
            name += f" {found.origin.weights_sha256[:DIGITS]}"
        if name in named:
            raise UsageError(f"{path}: features of {name} are given twice")
        named[name] = found
    return named


def refuse(found: Features, patients: Sequence[Patient], path: Path) -> None:
    """Raise UsageError where a patient has no features there, or was learned from with the label."""
    there = set(found.patients)
    if lacking := [p.id for p in patients if p.id not in there]:
        raise UsageError(f"{path}: no features of {len(lacking)} patients who are judged, the first {lacking[0]}; make them anew")
    if known := sorted({p.subject for p in patients} & set(found.origin.taught)):
        raise UsageError(
            f"{path}: its encoder was trained on labels of {len(known)} patients who are judged, the first {known[0]}; only an"
            " encoder that knows none of their labels can be compared"
        )


def scored(
    files: Mapping[str, Features], patients: Sequence[Patient], folds: Sequence[Sequence[str]], endpoint: Endpoint, seed: int
) -> pd.DataFrame:
    """Out-of-fold scores of the probes on each file's features, in the columns of `encoders.scored`; no scans, one start."""
    parts = []
    for name, found in files.items():
        row = {patient: index for index, patient in enumerate(found.patients)}
        at = np.array([row[patient.id] for patient in patients])
        vectors = {reading: rows[at] for reading, rows in found.vectors.items()}
        parts.append(probed(vectors, patients, folds, endpoint, seed).assign(encoder=name, scans=0, start=0))
    return pd.concat(parts, ignore_index=True).reindex(columns=SCORES)


def notes(files: Mapping[str, Features], patients: Sequence[Patient]) -> list[str]:
    """What has to be known of the files: licences that forbid something, and whose scans an encoder has seen."""
    said = []
    for name, found in files.items():
        if caution := licence.caution(found.origin.weights, found.origin.licence):
            said.append(f"{caution}.")
        if seen := sorted({p.subject for p in patients} & set(found.origin.seen)):
            said.append(f"Transductive: {name} was pretrained on scans, without labels, of {len(seen)} of those who are judged.")
    return said


def described(origin: Origin) -> str:
    """What an encoder of others was given, in words: 96³ voxels of 2.33 mm, axes RAS, zscore; each sequence by itself, …"""
    fused = {"none": "at once", "concatenate": "each by itself, put side by side", "mean": "each by itself, their mean"}
    given = f"{', '.join(origin.channels)} {fused[origin.fusion]}"
    if origin.expected is None:
        return given
    cube = origin.expected
    return f"{given}; {cube['edge']}³ voxels of {cube['spacing_mm']:.3g} mm, axes {cube['axes']}, {cube['intensity']}"

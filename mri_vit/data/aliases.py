"""Aliases: what others call the columns of a cohort table and the scans of a patient. Any spelling goes in, ours comes out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

# Spellings are compared by `key`: T1-Gd, t1_gd and T1GD are one. A word that could mean two of ours ("status") is none.
ALIASES: dict[str, tuple[str, ...]] = {
    "patient": (
        *("patientid", "patientname", "pid", "subject", "subjectid", "participantid", "participant", "id", "case", "caseid"),
        *("brats21id", "brats2021id", "brats20id", "brats2020id", "bratsid", "bratssubjectid"),
    ),
    "session": ("sessionid", "ses", "visit", "visitid", "timepoint"),
    "t1": ("t1w", "t1n", "t1pre", "t1native", "nativet1"),
    "t1ce": ("t1c", "t1gd", "t1gad", "t1post", "t1wce", "t1wgd", "t1contrast", "cet1", "ct1", "t1km", "t1cegd"),
    "t2": ("t2w",),
    "flair": ("t2f", "t2flair", "fl", "flairw"),
    "brain_mask": ("brainmask", "brainsegmentation"),
    "tumour_mask": ("tumourmask", "tumormask", "tumorsegmentation", "tumoursegmentation", "seg", "segm", "segmentation"),
    "site": ("centre", "center", "hospital", "institution", "institute", "clinic"),
    "age": ("ageyears", "ageatmri", "ageatscan", "ageatscanyears", "ageatdiagnosis"),
    "sex": ("gender", "sexatbirth"),
    "mgmt": ("mgmtstatus", "mgmtvalue", "mgmtmethylation", "mgmtpromoter", "mgmtpromoterstatus", "mgmtmethylationstatus"),
    "pten": ("ptenmutation", "ptenstatus"),
    "tertp": ("tertpromoter", "tertpromotermutation", "tertpromoterstatus", "tertpstatus"),
    "idh": ("idhstatus", "idhmutation"),
    "os_days": (
        *("osmonths", "osweeks", "survivaldays", "survivalmonths", "survivalweeks", "daystodeathorlastfollowup"),
        *("overallsurvivaldays", "overallsurvivalmonths", "overallsurvivalweeks", "os", "overallsurvival", "survival"),
    ),
    "os_event": ("death", "dead", "deceased", "vitalstatus", "survivalstatus", "overallsurvivalstatus", "osstatus"),
}


def key(name: str) -> str:
    """A name without case, spaces and signs: `T1-Gd` is t1gd."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


OURS = {spelling: ours for ours, others in ALIASES.items() for spelling in (key(ours), *others)}


def ours(name: str) -> str | None:
    """The column of a cohort table that a name stands for, whatever its case and signs; None where it stands for none."""
    return OURS.get(key(name))


def suggestion(name: str) -> str | None:
    """The column that a name may mean although it is none of its known spellings; None where none is like it."""
    like = difflib.get_close_matches(key(name), OURS, n=1, cutoff=0.75)
    return OURS[like[0]] if like else None


def nearest(column: str, header: Sequence[str]) -> str:
    """The name in a header that is meant by `column` in another spelling, or else the one that looks most like it."""
    meant = [name for name in header if ours(name) == column]
    return meant[0] if meant else difflib.get_close_matches(column, header, n=1, cutoff=0.0)[0]

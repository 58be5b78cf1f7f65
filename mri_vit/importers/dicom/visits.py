"""Visits: the series of a patient on one day go in; one scan per channel, converted, comes out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mri_vit.data import volume
from mri_vit.data.volume import Volume
from mri_vit.importers.dicom import candidates, checks, enhancement, recognise, table
from mri_vit.importers.dicom.candidates import Candidate
from mri_vit.importers.dicom.fault import Fault, Refused
from mri_vit.importers.dicom.ledger import Ledger, Place
from mri_vit.importers.dicom.recognise import AgentBy, Guess
from mri_vit.importers.dicom.series import Series

SCANS = "scans"  # a folder per patient, with one per session where there are several
ENDING = ".nii.gz"

ToVolume = Callable[[Series], Volume]  # raises Refused
Convert = Callable[[Candidate], Volume | None]  # None of a series that was refused, which is listed
T1S = {"t1", "t1ce"}


def fit_series(
    place: Place, found: Sequence[Series], wanted: Sequence[str], chosen: Collection[str], ledger: Ledger
) -> list[Candidate]:
    """Series that passed the checks; those known to be something else (a localizer) are not checked, and leave nobody out.

    Unless they are among the `chosen`, by name, of the table of choices.
    """
    fit = []
    for one in found:
        guess = recognise.channel(one.tags)
        name = ledger.hasher.uid(one.name)
        if guess.known and guess.channel not in wanted and name not in chosen:
            ledger.passed_over(place, one, guess.reason + (", which was not asked for" if guess.channel else ""))
            continue
        faults = checks.faults(one) if one.patient_id else [Fault("its headers have no PatientID")]
        if faults:
            ledger.refused(place, one, guess.channel or "", faults)
        else:
            fit.append(Candidate(name, one, guess))
    return fit


def scans(
    place: Place,
    fit: Sequence[Candidate],
    wanted: Sequence[str],
    chosen: Mapping[str, str],
    output: Path,
    to_volume: ToVolume,
    ledger: Ledger,
) -> dict[str, Path]:
    """Convert and write one scan per channel, if there is one; `chosen` gives the name of a series by channel."""
    volumes: dict[str, Volume | None] = {}

    def convert(one: Candidate) -> Volume | None:
        if one.name not in volumes:
            volumes[one.name] = _converted(place, one, to_volume, ledger)
        return volumes[one.name]

    fit = _told_apart(place, _overridden(fit, chosen), chosen, convert, ledger)
    found = {}
    for channel in wanted:
        ones = [one for one in fit if one.guess.channel == channel]
        if chosen.get(channel) == table.NOTHING:
            for one in ones:
                ledger.not_chosen(place, one, channel, "the table of choices takes none")
            continue
        if scan := _best(place, channel, ones, chosen.get(channel), convert, ledger):
            path = output / SCANS / place.patient / place.session / f"{channel}{ENDING}"
            path.parent.mkdir(parents=True, exist_ok=True)
            volume.write(scan, path)
            found[channel] = path
    for one in fit:
        if one.guess.channel is None:
            ledger.passed_over(place, one.series, one.guess.reason)
    return found


def _overridden(fit: Sequence[Candidate], chosen: Mapping[str, str]) -> list[Candidate]:
    """Candidates, taken for what the table of choices says where it says something."""
    channel_of = {name: channel for channel, name in chosen.items()}
    return [
        replace(one, guess=Guess(channel_of[one.name], True, "chosen by the table of choices")) if one.name in channel_of else one
        for one in fit
    ]


def _told_apart(
    place: Place, fit: Sequence[Candidate], chosen: Mapping[str, str], convert: Convert, ledger: Ledger
) -> list[Candidate]:
    """Candidates of which T1 and T1ce are told apart, by voxels where names and fields leave it open or say nothing of a T1.

    What voxels do not settle, and T1 and T1ce whose voxels contradict their names, is listed as undecided and left out.
    """
    if chosen.keys() >= T1S:
        return list(fit)
    t1s = [one for one in fit if one.guess.channel in T1S]
    only_by_field = len(t1s) > 1 and {one.guess.channel for one in t1s} == {"t1ce"}
    if candidates.open_t1(t1s) or (only_by_field and any(one.guess.agent_by is AgentBy.FIELD for one in t1s)):
        scans = {one.name: scan for one in t1s if (scan := convert(one))}
        t1s = candidates.by_content([one for one in t1s if one.name in scans], scans)
    undecided = candidates.open_t1(t1s)
    if undecided:
        ledger.undecided(place, undecided, "names, fields and voxels do not tell them apart")
    t1s = [one for one in t1s if one not in undecided]
    if not T1S & chosen.keys() and _contradicted(t1s, convert):
        ledger.undecided(place, t1s, "what is called T1 enhances against what is called T1ce")
        t1s = []
    return [*(one for one in fit if one.guess.channel not in T1S), *(candidates.by_default(one, t1s) for one in t1s)]


def _contradicted(t1s: Sequence[Candidate], convert: Convert) -> bool:
    """Whether the T1 that would be chosen enhances against the T1ce that would be."""
    best = []
    for channel in ("t1", "t1ce"):
        order = candidates.ranked([one for one in t1s if one.guess.channel == channel])
        best += [(one, scan) for one in order if (scan := convert(one))][:1]
    if len(best) < 2 or len({recognise.fat_suppressed(one.series.tags) for one, _ in best}) > 1:
        return False
    (_, t1), (_, t1ce) = best
    return enhancement.enhances(t1, t1ce)


def _best(
    place: Place, channel: str, ones: Sequence[Candidate], chosen: str | None, convert: Convert, ledger: Ledger
) -> Volume | None:
    """The scan of the chosen series, or of the best that can be converted."""
    order = candidates.ranked(ones)
    if chosen:
        order.sort(key=lambda one: one.name != chosen)
    while order:
        best = order.pop(0)
        if scan := convert(best):
            ledger.chosen(place, best, channel)
            for one in order:
                why = "the table of choices takes another" if chosen else candidates.why_not(one, best)
                ledger.not_chosen(place, one, channel, why)
            return scan
    return None


def _converted(place: Place, one: Candidate, to_volume: ToVolume, ledger: Ledger) -> Volume | None:
    try:
        return to_volume(one.series)
    except Refused as refused:
        ledger.refused(place, one.series, one.guess.channel or "", [refused.fault])
        return None

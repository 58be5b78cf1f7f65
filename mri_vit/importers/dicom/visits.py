"""Visits: the series of one visit go in; one scan per channel, converted, comes out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mri_vit.data import volume
from mri_vit.data.volume import Volume
from mri_vit.importers.dicom import candidates, checks, recognise, table
from mri_vit.importers.dicom.candidates import Candidate
from mri_vit.importers.dicom.fault import Fault, Refused
from mri_vit.importers.dicom.identity import Hasher
from mri_vit.importers.dicom.ledger import Ledger, Place
from mri_vit.importers.dicom.recognise import Guess
from mri_vit.importers.dicom.series import Series

SCANS = "scans"  # a folder per patient, with one per session where there are several
ENDING = ".nii.gz"

ToVolume = Callable[[Series], Volume]  # raises Refused


@dataclass(frozen=True)
class Assessed:
    """Series of one patient: those that passed the checks, those that did not, and those that are known to be something else."""

    fit: tuple[Candidate, ...]
    refused: tuple[tuple[Candidate, Sequence[Fault]], ...]
    other: tuple[Candidate, ...]


def assess(series: Sequence[Series], wanted: Sequence[str], chosen: Collection[str], hasher: Hasher) -> Assessed:
    """Check each series; those known to be something else (a localizer) are not checked, and leave nobody out.

    Unless they are among the `chosen`, by name, of the table of choices.
    """
    fit, refused, other = [], [], []
    for one in series:
        candidate = Candidate(hasher.uid(one.name), one, recognise.channel(one.tags))
        if candidate.guess.known and candidate.guess.channel not in wanted and candidate.name not in chosen:
            other.append(candidate)
        elif faults := checks.faults(one):
            refused.append((candidate, faults))
        else:
            fit.append(candidate)
    return Assessed(tuple(fit), tuple(refused), tuple(other))


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
    fit = _overridden(fit, chosen)
    if not {"t1", "t1ce"} & chosen.keys():
        fit = _told_by_content(place, fit, to_volume, ledger)
    found = {}
    for channel in wanted:
        ones = [one for one in fit if one.guess.channel == channel]
        if chosen.get(channel) == table.NOTHING:
            for one in ones:
                ledger.not_chosen(place, one, channel, "the table of choices takes none")
            continue
        if scan := _best(place, channel, ones, chosen.get(channel), to_volume, ledger):
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


def _told_by_content(place: Place, fit: Sequence[Candidate], to_volume: ToVolume, ledger: Ledger) -> list[Candidate]:
    """T1 told from T1ce by voxels, where a visit has several T1 scans and no field says of any whether an agent was given."""
    unsaid = [one for one in fit if one.guess.agent_unsaid]
    if len(unsaid) < 2 or sum(one.guess.channel in ("t1", "t1ce") for one in fit) > len(unsaid):
        return list(fit)
    arrays, readable = [], []
    for one in unsaid:
        if scan := _converted(place, one, to_volume, ledger):
            arrays.append(scan.array)
            readable.append(one)
    told = {one.name: one for one in candidates.by_content(readable, arrays)}
    return [told.get(one.name, one) for one in fit if one.name in told or not one.guess.agent_unsaid]


def _best(
    place: Place, channel: str, ones: Sequence[Candidate], chosen: str | None, to_volume: ToVolume, ledger: Ledger
) -> Volume | None:
    """The scan of the chosen series, or of the best that can be converted."""
    order = candidates.ranked(ones)
    if chosen:
        order.sort(key=lambda one: one.name != chosen)
    while order:
        best = order.pop(0)
        if scan := _converted(place, best, to_volume, ledger):
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
        ledger.refused(place, one, [refused.fault])
        return None

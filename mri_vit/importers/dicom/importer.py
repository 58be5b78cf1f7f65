"""Importer: DICOM files, of a folder or a DICOMweb server, go in; scans under hashed names, `series.csv` and visits come out."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPMessage
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from mri_vit.data import volume
from mri_vit.data.volume import Volume
from mri_vit.errors import OutOfResource, UsageError
from mri_vit.importers.dicom import exams
from mri_vit.importers.dicom.channel import (
    AgentBy,
    Candidate,
    ChannelGuess,
    by_content,
    by_default,
    fat_suppressed,
    open_t1,
    ranked,
    recognise_channel,
    shows_agent,
    why_not,
)
from mri_vit.importers.dicom.conversion import conversion_faults, convert_series
from mri_vit.importers.dicom.identity import Fault, Hasher, Refused, default_key, is_placeholder_id, load_hasher
from mri_vit.importers.dicom.ledger import NO_SERIES, SERIES_TABLE, Ledger, Place, read_choices, write_series_table
from mri_vit.importers.dicom.series import Series, find_series
from mri_vit.importers.layout import SourceContents, Visit
from mri_vit.run import atomic
from mri_vit.settings.schema import CHANNELS

LOOPBACK = ("127.0.0.1", "::1", "localhost")  # nothing here goes out to a network; for a server elsewhere there are tunnels
PAGE_SIZE = 500  # studies or instances per question
WEB_TIMEOUT_S = 60
STUDY_TAG, SERIES_TAG, INSTANCE_TAG = "0020000D", "0020000E", "00080018"  # UIDs, by tag
UID_PATTERN = re.compile(r"[0-9.]{1,64}")  # it becomes part of an address


class _NoRedirect(HTTPRedirectHandler):
    """An answer that leads elsewhere is an error: elsewhere may be outside."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch_dicomweb(url: str, folder: Path) -> int:
    """Write every instance that the server at `url` has into `folder`, under names of our own; how many there are.

    Raises
    ------
    UsageError
        The address is not on this machine, or no DICOMweb server answers there.
    OutOfResource
        The server stops answering on the way.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname not in LOOPBACK:
        raise UsageError(f"{url}: expected http://127.0.0.1:PORT/…, a server on this machine (for another, open a tunnel)")
    base = url.rstrip("/")
    try:
        studies = list(_found(f"{base}/studies", (STUDY_TAG,)))
    except (OSError, ValueError) as error:
        raise UsageError(f"{url}: no DICOMweb server answers there ({error})") from None
    count = 0
    try:
        for (study,) in studies:
            for series, instance in _found(f"{base}/studies/{study}/instances", (SERIES_TAG, INSTANCE_TAG)):
                count += 1
                address = f"{base}/studies/{study}/series/{series}/instances/{instance}"
                (folder / f"{count:08}.dcm").write_bytes(_instance(address))
    except (URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise OutOfResource(f"{url}: the server stopped answering after {count} instances ({error})") from None
    return count


def _found(address: str, tags: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The UIDs by `tags` of all that a question finds, page by page until one brings nothing new."""
    seen: set[tuple[str, ...]] = set()
    while True:
        body, _ = _get(f"{address}?limit={PAGE_SIZE}&offset={len(seen)}", "application/dicom+json")
        page = {tuple(_uid(one, tag) for tag in tags) for one in json.loads(body or b"[]")} - seen
        if not page:
            return
        seen |= page
        yield from sorted(page)


def _uid(answer: dict[str, Any], tag: str) -> str:
    value = str(answer.get(tag, {}).get("Value", [""])[0])
    if not UID_PATTERN.fullmatch(value):
        raise ValueError(f"an answer without a UID in {tag}")
    return value


def _instance(address: str) -> bytes:
    """The file of one instance, out of the one part of a multipart answer."""
    body, headers = _get(address, 'multipart/related; type="application/dicom"; transfer-syntax=*')
    boundary = headers.get_param("boundary")
    if headers.get_content_type() != "multipart/related" or not isinstance(boundary, str):
        raise ValueError(f"an answer of {headers.get_content_type()}; expected multipart/related")
    start = body.index(b"\r\n\r\n", body.index(b"--" + boundary.encode())) + 4
    return body[start : body.rindex(b"\r\n--" + boundary.encode())]


def _get(address: str, accept: str) -> tuple[bytes, HTTPMessage]:
    opener = build_opener(ProxyHandler({}), _NoRedirect())  # no proxy, through which it would leave the machine
    with opener.open(Request(address, headers={"Accept": accept}), timeout=WEB_TIMEOUT_S) as answer:
        return answer.read(), answer.headers


SCANS_FOLDER = "scans"  # a folder per patient, with one per session where there are several
ENDING = ".nii.gz"

ToVolume = Callable[[Series], Volume]  # raises Refused
Convert = Callable[[Candidate], Volume | None]  # None of a series that was refused, which is listed
T1S = {"t1", "t1ce"}


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
        candidate = Candidate(hasher.uid(one.name), one, recognise_channel(one.tags))
        if candidate.guess.known and candidate.guess.channel not in wanted and candidate.name not in chosen:
            other.append(candidate)
        elif faults := conversion_faults(one):
            refused.append((candidate, faults))
        else:
            fit.append(candidate)
    return Assessed(tuple(fit), tuple(refused), tuple(other))


def visit_scans(
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
    converted = {}
    for channel in wanted:
        ones = [one for one in fit if one.guess.channel == channel]
        if chosen.get(channel) == NO_SERIES:
            for one in ones:
                ledger.not_chosen(place, one, channel, "the table of choices takes none")
            continue
        if scan := _best(place, channel, ones, chosen.get(channel), convert, ledger):
            path = output / SCANS_FOLDER / place.patient / place.session / f"{channel}{ENDING}"
            path.parent.mkdir(parents=True, exist_ok=True)
            volume.write(scan, path)
            converted[channel] = path
    for one in fit:
        if one.guess.channel is None:
            ledger.passed_over(place, one.series, one.guess.reason)
    return converted


def _overridden(fit: Sequence[Candidate], chosen: Mapping[str, str]) -> list[Candidate]:
    """Candidates, taken for what the table of choices says where it says something."""
    channel_of = {name: channel for channel, name in chosen.items()}
    return [
        replace(one, guess=ChannelGuess(channel_of[one.name], True, "chosen by the table of choices"))
        if one.name in channel_of
        else one
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
    if open_t1(t1s) or (only_by_field and any(one.guess.agent_by is AgentBy.FIELD for one in t1s)):
        scans = {one.name: scan for one in t1s if (scan := convert(one))}
        t1s = by_content([one for one in t1s if one.name in scans], scans)
    undecided = open_t1(t1s)
    if undecided:
        ledger.undecided(place, undecided, "names, fields and voxels do not tell them apart")
    t1s = [one for one in t1s if one not in undecided]
    if not T1S & chosen.keys() and _contradicted(t1s, convert):
        ledger.undecided(place, t1s, "what is called T1 enhances against what is called T1ce")
        t1s = []
    return [*(one for one in fit if one.guess.channel not in T1S), *(by_default(one, t1s) for one in t1s)]


def _contradicted(t1s: Sequence[Candidate], convert: Convert) -> bool:
    """Whether the T1 that would be chosen enhances against the T1ce that would be."""
    best = []
    for channel in ("t1", "t1ce"):
        order = ranked([one for one in t1s if one.guess.channel == channel])
        best += [(one, scan) for one in order if (scan := convert(one))][:1]
    if len(best) < 2 or len({fat_suppressed(one.series.tags) for one, _ in best}) > 1:
        return False
    (_, t1), (_, t1ce) = best
    return shows_agent(t1, t1ce)


def _best(
    place: Place, channel: str, ones: Sequence[Candidate], chosen: str | None, convert: Convert, ledger: Ledger
) -> Volume | None:
    """The scan of the chosen series, or of the best that can be converted."""
    order = ranked(ones)
    if chosen:
        order.sort(key=lambda one: one.name != chosen)
    while order:
        best = order.pop(0)
        if scan := convert(best):
            ledger.chosen(place, best, channel)
            for one in order:
                why = "the table of choices takes another" if chosen else why_not(one, best)
                ledger.not_chosen(place, one, channel, why)
            return scan
    return None


def _converted(place: Place, one: Candidate, to_volume: ToVolume, ledger: Ledger) -> Volume | None:
    try:
        return to_volume(one.series)
    except Refused as refused:
        ledger.refused(place, one, [refused.fault])
        return None


EXTRAS = ("adc", "swi", "asl")  # channels that are imported where asked for

_STANDS_FOR = "study {}: its PatientID is empty or stands for nobody; labels find the patient under this StudyInstanceUID"
WRITTEN = (SCANS_FOLDER, SERIES_TABLE)  # what an import writes into its output beside the tables of every import

Say = Callable[[str], None]
Begin = Callable[[], None]


def silent(line: str) -> None:
    """For whom nothing is to be said."""


def nothing() -> None:
    """For whom nothing is to be done."""


@contextmanager
def files_of(source: Path | str, output: Path) -> Iterator[Path]:
    """The folder of a source's files: itself, or one beside the output with all that a DICOMweb server on this machine has."""
    if isinstance(source, Path):
        _sweep(output, "dicomweb")
        yield source
        return
    with _beside(output, "dicomweb") as held:
        fetch_dicomweb(source, held)
        yield held


def read(
    folder: Path,
    output: Path,
    key: Path | None = None,
    choices: Path | None = None,
    also: Sequence[str] = (),
    say: Say = silent,
    begin: Begin = nothing,
) -> SourceContents:
    """The visits in a folder of DICOM files, their scans converted into `output`/scans, and `series.csv` beside them.

    Nothing that is returned or written holds a name, a date, an id, a UID or a text of a header.

    Parameters
    ----------
    folder
        Searched at any depth; files are known by their content, and left as they are.
    output
        Outside of `folder`.
    key
        The file of the key by which ids are hashed, outside of `output`; default `<output>.key`, made where there is none.
    choices
        A CSV that overrides which series is taken for a channel: see `ledger.read_choices`.
    also
        Of `EXTRAS`, the channels to import beside the four.
    say
        Told of each refused series, with UIDs by which a hospital finds it. For a terminal: its lines are personal data.
    begin
        Called before the first file is written, when nothing speaks against the import any more.

    Raises
    ------
    UsageError
        The folder holds no DICOM image, a choice fits nothing, or folders or key lie where they may not.
    IntegrityError
        A DICOMDIR points outside `folder`.
    """
    wanted = _checked(folder, output, also)
    chosen = read_choices(choices, wanted) if choices else {}
    contents = find_series(folder)
    if not (contents.series or contents.unreadable or contents.missing):
        raise UsageError(f"{folder}: holds no DICOM image")
    ledger = Ledger(load_hasher(key or default_key(output), output), say)
    ledger.unread(contents)
    by_visit = _by_visit(contents.series, wanted, set(chosen.values()), ledger)
    by_place = _by_place(chosen, by_visit, choices)
    output.mkdir(parents=True, exist_ok=True)
    begin()
    imported = []
    with _beside(output, "dcm2niix") as scratch:
        to_volume = partial(convert_series, scratch=scratch)
        for place, visit in by_visit.items():
            asked = by_place.get(place, {})
            drawn = _drawn(place, visit, set(asked.values()), ledger)
            if scans := visit_scans(place, drawn, wanted, asked, output, to_volume, ledger):
                imported.append(Visit(place.patient, place.session, scans))
            else:
                ledger.nothing_of(place, wanted)
    write_series_table(ledger.rows, output)
    return SourceContents(tuple(imported), (), tuple(ledger.left_out))


@contextmanager
def _beside(output: Path, what: str) -> Iterator[Path]:
    """A folder beside the output, never in it, for files with whole headers; only its owner can read it, and it is deleted.

    One of an import that was cut off is deleted first.
    """
    folder = _sweep(output, what)
    folder.mkdir(mode=0o700, parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _sweep(output: Path, what: str) -> Path:
    """The place of such a folder, without one that a power cut left."""
    folder = output.resolve().with_name(f".{output.resolve().name}.{what}")
    atomic.refuse_link(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _checked(folder: Path, output: Path, also: Sequence[str]) -> tuple[str, ...]:
    """The channels to import, if folders and names make sense."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no folder; expected one of DICOM files")
    if unknown := [name for name in also if name not in EXTRAS]:
        raise UsageError(f"cannot import {', '.join(unknown)}; beside {', '.join(CHANNELS)} there are {', '.join(EXTRAS)}")
    if output.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"output {output} lies in the source {folder}, which is left as it is; expected a place outside")
    return (*CHANNELS, *also)


def _by_visit(
    series: Sequence[Series], wanted: Sequence[str], chosen: Collection[str], ledger: Ledger
) -> dict[Place, exams.Planned]:
    """The visits of all patients; what is refused before any conversion is in the ledger then."""
    patients: dict[str, list[Series]] = defaultdict(list)
    for one in series:
        patients[one.patient_id].append(one)
    by_visit = {}
    for patient_id, ones in sorted(patients.items()):
        placeholder = is_placeholder_id(patient_id)
        assessed = assess(ones, wanted, chosen, ledger.hasher)
        against = exams.of_one_person(ones)
        plan = exams.Plan(refused=against) if against else exams.planned(ones, assessed.fit)
        name = ledger.hasher.patient(patient_id)
        if placeholder:
            name = ledger.hasher.patient(plan.visits[0].exams[0].study_uid) if plan.visits and plan.visits[0].exams else ""
        sessions = [f"{number:02}" if len(plan.visits) > 1 else "" for number in range(1, len(plan.visits) + 1)]
        places = [Place(name, session) for session in sessions]
        of_study = {uid: place for place, visit in zip(places, plan.visits, strict=True) for uid in visit.studies}
        elsewhere = places[0] if len(places) == 1 else Place(name, "")
        for uid, fault in sorted(plan.refused.items()):
            refused = [one for one in assessed.fit if one.series.study_uid == uid]
            ledger.refused_study(of_study.get(uid, elsewhere), refused, fault)
        for candidate, faults in assessed.refused:
            ledger.refused(of_study.get(candidate.series.study_uid, elsewhere), candidate, faults)
        for candidate in assessed.other:
            reason = candidate.guess.reason + (", which was not asked for" if candidate.guess.channel else "")
            ledger.passed_over(of_study.get(candidate.series.study_uid, elsewhere), candidate.series, reason)
        placed = {one.name for visit in plan.visits for one in visit.candidates}
        for candidate in assessed.fit:
            if candidate.name not in placed and candidate.series.study_uid not in plan.refused:
                ledger.passed_over(elsewhere, candidate.series, candidate.guess.reason)
        if not plan.visits and not plan.refused:
            ledger.nothing_of(elsewhere, wanted)
        for remark in plan.remarks:
            ledger.say(remark.with_uids())
        if placeholder and name:
            ledger.say(_STANDS_FOR.format(plan.visits[0].exams[0].study_uid))
        by_visit |= dict(zip(places, plan.visits, strict=True))
    return dict(sorted(by_visit.items(), key=lambda item: (item[0].patient, item[0].session)))


def _drawn(place: Place, visit: exams.Planned, chosen: Collection[str], ledger: Ledger) -> list[Candidate]:
    """The candidates from which a visit's scans are taken, and those that the table of choices names."""
    drawn = visit.drawn
    earlier = [(one, "an earlier study of the day has one") for one in visit.repeated]
    for one, why in (*visit.aside, *earlier):
        if one.name in chosen:
            drawn.append(one)
        elif why and one.guess.channel:
            ledger.not_chosen(place, one, one.guess.channel, why)
        else:
            ledger.passed_over(place, one.series, one.guess.reason)
    return drawn


def _by_place(
    chosen: Mapping[tuple[str, str, str], str], by_visit: Mapping[Place, exams.Planned], path: Path | None
) -> dict[Place, dict[str, str]]:
    """Choices by visit and channel, each of which names a series of the visit that passed the checks, and only once."""
    by_place: dict[Place, dict[str, str]] = defaultdict(dict)
    for (patient, session, channel), name in chosen.items():
        place = Place(patient, session)
        where = f"{path}: {channel} of patient {patient}{f', session {session}' if session else ''}"
        if place not in by_visit:
            raise UsageError(f"{where}: no such visit in this folder; see series.csv of an import with the same key")
        if name != NO_SERIES and name not in {one.name for one in by_visit[place].candidates}:
            raise UsageError(f"{where}: series {name!r} is none of the visit's, or was refused; see {SERIES_TABLE}")
        if name != NO_SERIES and name in by_place[place].values():
            raise UsageError(f"{where}: series {name} is chosen for another channel as well")
        by_place[place][channel] = name
    return by_place

"""Importer: DICOM files of a folder or a DICOMweb server go in; scans under hashed names, `series.csv` and visits come out."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
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
from mri_vit.importers.dicom.identity import Fault, Refused, default_key, is_placeholder_id, load_hasher
from mri_vit.importers.dicom.ledger import NO_SERIES, SERIES_TABLE, Ledger, VisitId, read_choices, write_series_table
from mri_vit.importers.dicom.series import Series, find_series
from mri_vit.importers.layout import SourceContents, Visit
from mri_vit.run import atomic
from mri_vit.settings.schema import CHANNELS

LOOPBACK = ("127.0.0.1", "::1", "localhost")  # no request leaves this machine; a server elsewhere needs a tunnel
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
        studies = list(_uids(f"{base}/studies", (STUDY_TAG,)))
    except (OSError, ValueError) as error:
        raise UsageError(f"{url}: no DICOMweb server answers there ({error})") from None
    count = 0
    try:
        for (study,) in studies:
            for series, instance in _uids(f"{base}/studies/{study}/instances", (SERIES_TAG, INSTANCE_TAG)):
                count += 1
                address = f"{base}/studies/{study}/series/{series}/instances/{instance}"
                (folder / f"{count:08}.dcm").write_bytes(_instance(address))
    except (URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise OutOfResource(f"{url}: the server stopped answering after {count} instances ({error})") from None
    return count


def _uids(address: str, tags: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The UIDs by `tags` of all that a query finds, page by page until one brings nothing new."""
    known: set[tuple[str, ...]] = set()
    while True:
        body, _ = _get(f"{address}?limit={PAGE_SIZE}&offset={len(known)}", "application/dicom+json")
        page = set()
        for entry in json.loads(body or b"[]"):
            uids = tuple(str(entry.get(tag, {}).get("Value", [""])[0]) for tag in tags)
            if not all(map(UID_PATTERN.fullmatch, uids)):
                raise ValueError(f"an answer without UIDs in {', '.join(tags)}")
            page.add(uids)
        page -= known
        if not page:
            return
        known |= page
        yield from sorted(page)


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

Convert = Callable[[Candidate], Volume | None]  # None of a series that was refused, which is listed
T1S = {"t1", "t1ce"}
EXTRAS = ("adc", "swi", "asl")  # channels that are imported on request
WRITTEN = (SCANS_FOLDER, SERIES_TABLE)  # what an import writes into its output beside the tables of every import


@contextmanager
def files_of(source: Path | str, output: Path) -> Iterator[Path]:
    """The folder of a source's files: itself, or one beside the output with all that a DICOMweb server on this machine has."""
    if isinstance(source, Path):
        _sweep(output, "dicomweb")
        yield source
        return
    with _beside(output, "dicomweb") as fetched:
        fetch_dicomweb(source, fetched)
        yield fetched


def read(
    folder: Path,
    output: Path,
    key: Path | None = None,
    choices: Path | None = None,
    also: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
    begin: Callable[[], None] = lambda: None,
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
        Gets a line for each refused series, with UIDs by which a hospital finds it. For a terminal: these are personal data.
    begin
        Called before the first file is written, when all checks have passed.

    Raises
    ------
    UsageError
        The folder holds no DICOM image, a choice fits nothing, or folders or key lie where they may not.
    IntegrityError
        A DICOMDIR points outside `folder`.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no folder; expected one of DICOM files")
    if unknown := [name for name in also if name not in EXTRAS]:
        raise UsageError(f"cannot import {', '.join(unknown)}; beside {', '.join(CHANNELS)} there are {', '.join(EXTRAS)}")
    if output.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"output {output} lies in the source {folder}, which is left as it is; expected a place outside")
    wanted = (*CHANNELS, *also)
    chosen = read_choices(choices, wanted) if choices else {}
    contents = find_series(folder)
    if not (contents.series or contents.unreadable or contents.missing):
        raise UsageError(f"{folder}: holds no DICOM image")
    ledger = Ledger(load_hasher(key or default_key(output), output), say)
    ledger.unread(contents)
    plans = _planned_visits(contents.series, wanted, set(chosen.values()), ledger)
    choices_of = _choices_by_visit(chosen, plans, choices)
    output.mkdir(parents=True, exist_ok=True)
    begin()
    imported = []
    with _beside(output, "dcm2niix") as scratch:
        for visit, plan in plans.items():
            choice = choices_of.get(visit, {})
            usable = _usable(visit, plan, set(choice.values()), ledger)
            if scans := _visit_scans(visit, usable, wanted, choice, output, scratch, ledger):
                imported.append(Visit(visit.patient, visit.session, scans))
            else:
                ledger.no_scan(visit, wanted)
    write_series_table(ledger.rows, output)
    return SourceContents(tuple(imported), (), tuple(ledger.left_out))


@contextmanager
def _beside(output: Path, what: str) -> Iterator[Path]:
    """A folder beside the output, never in it, for files with whole headers; only its owner can read it, and it is deleted.

    One of an import that was interrupted is deleted first.
    """
    folder = _sweep(output, what)
    folder.mkdir(mode=0o700, parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _sweep(output: Path, what: str) -> Path:
    """The path of such a folder, without one that a power cut left."""
    folder = output.resolve().with_name(f".{output.resolve().name}.{what}")
    atomic.refuse_link(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _planned_visits(
    series: Sequence[Series], wanted: Sequence[str], chosen: Collection[str], ledger: Ledger
) -> dict[VisitId, exams.PlannedVisit]:
    """The visits of all patients; series that are refused before any conversion go to the ledger.

    Series known to be something else (a localizer) are not checked, unless they are `chosen` by the table of choices.
    """
    patients: dict[str, list[Series]] = defaultdict(list)
    for one in series:
        patients[one.patient_id].append(one)
    plans = {}
    for patient_id, of_patient in sorted(patients.items()):
        fit: list[Candidate] = []
        refused: list[tuple[Candidate, Sequence[Fault]]] = []
        other: list[Candidate] = []
        for one in of_patient:
            candidate = Candidate(ledger.hasher.uid(one.name), one, recognise_channel(one.tags))
            if candidate.guess.known and candidate.guess.channel not in wanted and candidate.name not in chosen:
                other.append(candidate)
            elif faults := conversion_faults(one):
                refused.append((candidate, faults))
            else:
                fit.append(candidate)
        faults_of = exams.identity_faults(of_patient)
        plan = exams.Plan(refused=faults_of) if faults_of else exams.plan_visits(of_patient, fit)
        placeholder, name = is_placeholder_id(patient_id), ledger.hasher.patient(patient_id)
        if placeholder:
            name = ledger.hasher.patient(plan.visits[0].exams[0].study_uid) if plan.visits and plan.visits[0].exams else ""
        sessions = [f"{number:02}" if len(plan.visits) > 1 else "" for number in range(1, len(plan.visits) + 1)]
        visits = [VisitId(name, session) for session in sessions]
        of_study = {uid: visit for visit, planned in zip(visits, plan.visits, strict=True) for uid in planned.studies}
        elsewhere = visits[0] if len(visits) == 1 else VisitId(name, "")
        for uid, fault in sorted(plan.refused.items()):
            of_uid = [candidate for candidate in fit if candidate.series.study_uid == uid]
            ledger.refused_study(of_study.get(uid, elsewhere), of_uid, fault)
        for candidate, faults in refused:
            ledger.refused(of_study.get(candidate.series.study_uid, elsewhere), candidate, faults)
        for candidate in other:
            reason = candidate.guess.reason + (", which was not requested" if candidate.guess.channel else "")
            ledger.not_used(of_study.get(candidate.series.study_uid, elsewhere), candidate, reason)
        planned = {candidate.name for visit in plan.visits for candidate in visit.candidates}
        for candidate in fit:
            if candidate.name not in planned and candidate.series.study_uid not in plan.refused:
                ledger.not_used(elsewhere, candidate, candidate.guess.reason)
        if not plan.visits and not plan.refused:
            ledger.no_scan(elsewhere, wanted)
        for remark in plan.remarks:
            ledger.say(remark.with_uids())
        if placeholder and name:
            uid = plan.visits[0].exams[0].study_uid
            ledger.say(
                f"study {uid}: its PatientID is empty or a placeholder; labels find the patient under this StudyInstanceUID"
            )
        plans |= dict(zip(visits, plan.visits, strict=True))
    return dict(sorted(plans.items(), key=lambda item: (item[0].patient, item[0].session)))


def _choices_by_visit(
    chosen: Mapping[tuple[str, str, str], str], plans: Mapping[VisitId, exams.PlannedVisit], path: Path | None
) -> dict[VisitId, dict[str, str]]:
    """Choices by visit and channel, each of which names a series of the visit that passed the checks, and only once."""
    by_visit: dict[VisitId, dict[str, str]] = defaultdict(dict)
    for (patient, session, channel), name in chosen.items():
        visit = VisitId(patient, session)
        where = f"{path}: {channel} of patient {patient}{f', session {session}' if session else ''}"
        if visit not in plans:
            raise UsageError(f"{where}: no such visit in this folder; see series.csv of an import with the same key")
        if name != NO_SERIES and name not in {candidate.name for candidate in plans[visit].candidates}:
            raise UsageError(f"{where}: series {name!r} is none of the visit's, or was refused; see {SERIES_TABLE}")
        if name != NO_SERIES and name in by_visit[visit].values():
            raise UsageError(f"{where}: series {name} is chosen for another channel as well")
        by_visit[visit][channel] = name
    return by_visit


def _usable(visit: VisitId, plan: exams.PlannedVisit, chosen: Collection[str], ledger: Ledger) -> list[Candidate]:
    """The candidates from which a visit's scans are taken, and those that the table of choices names."""
    usable = plan.used
    earlier = [(candidate, "an earlier study of the day has one") for candidate in plan.repeated]
    for candidate, why in (*plan.aside, *earlier):
        if candidate.name in chosen:
            usable.append(candidate)
        elif why and candidate.guess.channel:
            ledger.not_chosen(visit, candidate, candidate.guess.channel, why)
        else:
            ledger.not_used(visit, candidate, candidate.guess.reason)
    return usable


def _visit_scans(
    visit: VisitId,
    candidates: Sequence[Candidate],
    wanted: Sequence[str],
    chosen: Mapping[str, str],
    output: Path,
    scratch: Path,
    ledger: Ledger,
) -> dict[str, Path]:
    """Convert and write one scan per channel, if there is one; `chosen` gives the name of a series by channel."""
    volumes: dict[str, Volume | None] = {}

    def convert(candidate: Candidate) -> Volume | None:
        if candidate.name not in volumes:
            try:
                volumes[candidate.name] = convert_series(candidate.series, scratch)
            except Refused as refused:
                ledger.refused(visit, candidate, [refused.fault])
                volumes[candidate.name] = None
        return volumes[candidate.name]

    channel_of = {name: channel for channel, name in chosen.items()}
    by_choice = [
        replace(candidate, guess=ChannelGuess(channel_of[candidate.name], True, "chosen by the table of choices"))
        if candidate.name in channel_of
        else candidate
        for candidate in candidates
    ]
    candidates = _separate_t1s(visit, by_choice, chosen, convert, ledger)
    paths = {}
    for channel in wanted:
        order = ranked([candidate for candidate in candidates if candidate.guess.channel == channel])
        choice = chosen.get(channel)
        if choice == NO_SERIES:
            for candidate in order:
                ledger.not_chosen(visit, candidate, channel, "the table of choices takes none")
            continue
        if choice:
            order.sort(key=lambda candidate: candidate.name != choice)
        for place, best in enumerate(order):
            if scan := convert(best):
                ledger.chosen(visit, best, channel)
                for candidate in order[place + 1 :]:
                    why = "the table of choices takes another" if choice else why_not(candidate, best)
                    ledger.not_chosen(visit, candidate, channel, why)
                paths[channel] = output / SCANS_FOLDER / visit.patient / visit.session / f"{channel}{ENDING}"
                paths[channel].parent.mkdir(parents=True, exist_ok=True)
                volume.write(scan, paths[channel])
                break
    for candidate in candidates:
        if candidate.guess.channel is None:
            ledger.not_used(visit, candidate, candidate.guess.reason)
    return paths


def _separate_t1s(
    visit: VisitId, candidates: Sequence[Candidate], chosen: Mapping[str, str], convert: Convert, ledger: Ledger
) -> list[Candidate]:
    """Candidates with T1 and T1ce separated: by voxels where names and fields leave it open or name no T1.

    T1s that voxels do not settle, and T1 and T1ce whose voxels contradict their names, are listed as undecided and left out.
    """
    if chosen.keys() >= T1S:
        return list(candidates)
    t1s = [candidate for candidate in candidates if candidate.guess.channel in T1S]
    only_t1ce = len(t1s) > 1 and {candidate.guess.channel for candidate in t1s} == {"t1ce"}
    if open_t1(t1s) or (only_t1ce and any(candidate.guess.agent_by is AgentBy.FIELD for candidate in t1s)):
        scans = {candidate.name: scan for candidate in t1s if (scan := convert(candidate))}
        t1s = by_content([candidate for candidate in t1s if candidate.name in scans], scans)
    undecided = open_t1(t1s)
    if undecided:
        ledger.undecided(visit, undecided, "names, fields and voxels do not separate them")
    t1s = [candidate for candidate in t1s if candidate not in undecided]
    if not T1S & chosen.keys() and _contradicted(t1s, convert):
        ledger.undecided(visit, t1s, "the series named T1 enhances against the one named T1ce")
        t1s = []
    others = [candidate for candidate in candidates if candidate.guess.channel not in T1S]
    return [*others, *(by_default(candidate, t1s) for candidate in t1s)]


def _contradicted(t1s: Sequence[Candidate], convert: Convert) -> bool:
    """Whether the T1 that would be chosen enhances against the T1ce that would be."""
    best = []
    for channel in ("t1", "t1ce"):
        order = ranked([candidate for candidate in t1s if candidate.guess.channel == channel])
        best += [(candidate, scan) for candidate in order if (scan := convert(candidate))][:1]
    if len(best) < 2 or len({fat_suppressed(candidate.series.tags) for candidate, _ in best}) > 1:
        return False
    (_, t1), (_, t1ce) = best
    return shows_agent(t1, t1ce)

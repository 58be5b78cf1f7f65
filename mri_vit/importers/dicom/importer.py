"""Importer: DICOM files, of a folder or server, go in; scans under hashed names, `series.csv` and what was found come out."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from mri_vit.errors import UsageError
from mri_vit.importers.dicom import convert, exams, identity, person, series, table, visits, web
from mri_vit.importers.dicom.candidates import Candidate
from mri_vit.importers.dicom.ledger import Ledger, Place
from mri_vit.importers.dicom.series import Series
from mri_vit.importers.found import Found, Visit
from mri_vit.run import atomic
from mri_vit.settings.schema import CHANNELS

EXTRAS = ("adc", "swi", "asl")  # channels that are imported where asked for

_STANDS_FOR = "study {}: its PatientID is empty or stands for nobody; labels find the patient under this StudyInstanceUID"
WRITTEN = (visits.SCANS, table.SERIES)  # what an import writes into its output beside the tables of every import

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
        web.fetch(source, held)
        yield held


def read(
    folder: Path,
    output: Path,
    key: Path | None = None,
    choices: Path | None = None,
    also: Sequence[str] = (),
    say: Say = silent,
    begin: Begin = nothing,
) -> Found:
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
        A CSV that overrides which series is taken for a channel: see `table.choices`.
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
    chosen = table.choices(choices, wanted) if choices else {}
    contents = series.find(folder)
    if not (contents.series or contents.unreadable or contents.missing):
        raise UsageError(f"{folder}: holds no DICOM image")
    ledger = Ledger(identity.hasher(key or identity.default_key(output), output), say)
    ledger.unread(contents)
    by_visit = _by_visit(contents.series, wanted, set(chosen.values()), ledger)
    by_place = _by_place(chosen, by_visit, choices)
    output.mkdir(parents=True, exist_ok=True)
    begin()
    found = []
    with _beside(output, "dcm2niix") as scratch:
        to_volume = partial(convert.volume, scratch=scratch)
        for place, visit in by_visit.items():
            asked = by_place.get(place, {})
            drawn = _drawn(place, visit, set(asked.values()), ledger)
            if scans := visits.scans(place, drawn, wanted, asked, output, to_volume, ledger):
                found.append(Visit(place.patient, place.session, scans))
            else:
                ledger.nothing_of(place, wanted)
    table.write(ledger.rows, output)
    return Found(tuple(found), (), tuple(ledger.left_out))


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
        placeholder = person.is_placeholder_id(patient_id)
        assessed = visits.assess(ones, wanted, chosen, ledger.hasher)
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
        if name != table.NOTHING and name not in {one.name for one in by_visit[place].candidates}:
            raise UsageError(f"{where}: series {name!r} is none of the visit's, or was refused; see {table.SERIES}")
        if name != table.NOTHING and name in by_place[place].values():
            raise UsageError(f"{where}: series {name} is chosen for another channel as well")
        by_place[place][channel] = name
    return by_place

"""Exams: the usable series of one patient go in; visits in order of time, and the series used for each, come out.

A visit uses one study wherever one has all channels of the day; a scan of one study completes another only where too little time
lies between them for an operation.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import combinations, pairwise

from mri_vit.importers.dicom import identity
from mri_vit.importers.dicom.channel import Candidate
from mri_vit.importers.dicom.identity import Fault
from mri_vit.importers.dicom.series import Series
from mri_vit.settings.schema import CHANNELS

PAUSE_S = 2 * 3600  # between scans of one visit: a craniotomy with its anaesthesia takes longer, a protocol for the head less
DAY_S = 24 * 3600
REMEDY = "give each person's studies an id of their own, and import again"


@dataclass(frozen=True)
class Exam:
    """Candidates of one study that were scanned without a long pause."""

    study_uid: str
    candidates: tuple[Candidate, ...]

    @property
    def channels(self) -> set[str]:
        """Its channels; of several T1 scans for which no field states whether an agent was given, one may be T1ce."""
        known = {candidate.guess.channel for candidate in self.candidates if candidate.guess.channel}
        unknown = sum(candidate.guess.agent_unknown for candidate in self.candidates)
        return known | ({"t1ce"} if unknown > 1 else set())

    @property
    def start_s(self) -> float:
        """Second of the day at which its first scan began; NaN where no header has it."""
        return min(self._seconds, default=math.nan)

    @property
    def end_s(self) -> float:
        """Second of the day at which its last scan began."""
        return max(self._seconds, default=math.nan)

    @property
    def is_timed(self) -> bool:
        """Whether headers give the time of each of its scans."""
        return len(self._seconds) == len(self.candidates)

    @property
    def _seconds(self) -> list[float]:
        return [second for candidate in self.candidates if math.isfinite(second := _second(candidate))]

    def part(self, candidates: Iterable[Candidate]) -> Exam:
        """An exam of the same study with some of its candidates."""
        return Exam(self.study_uid, tuple(candidates))


@dataclass(frozen=True)
class PlannedVisit:
    """A visit: scans of a channel come from the first exam that has it; `aside` are candidates that are not used, and why."""

    day: date | None
    exams: tuple[Exam, ...] = ()
    aside: tuple[tuple[Candidate, str], ...] = ()
    studies: frozenset[str] = frozenset()  # all studies of the visit, also those without a usable series

    @property
    def used(self) -> list[Candidate]:
        """The candidates from which scans are taken."""
        return [candidate for _, used in self._by_exam() for candidate in used]

    def _by_exam(self) -> list[tuple[Exam, list[Candidate]]]:
        had: set[str] = set()
        by_exam = []
        for exam in self.exams:
            by_exam.append((exam, [candidate for candidate in exam.candidates if candidate.guess.channel not in had]))
            had |= exam.channels
        return by_exam

    @property
    def candidates(self) -> list[Candidate]:
        """All, used or not."""
        return [candidate for exam in self.exams for candidate in exam.candidates] + [candidate for candidate, _ in self.aside]

    @property
    def repeated(self) -> list[Candidate]:
        """Candidates of a later exam for a channel that an earlier one has."""
        used = {candidate.name for candidate in self.used}
        return [candidate for exam in self.exams for candidate in exam.candidates if candidate.name not in used]

    @property
    def sources(self) -> list[str]:
        """Studies from which scans are taken."""
        return list(dict.fromkeys(exam.study_uid for exam, used in self._by_exam() if any(c.guess.channel for c in used)))


@dataclass
class Plan:
    """Visits of one patient in order of time, studies that are refused, and remarks for the terminal."""

    visits: list[PlannedVisit] = field(default_factory=list)
    refused: dict[str, Fault] = field(default_factory=dict)  # by study
    remarks: list[Fault] = field(default_factory=list)

    def refuse(self, uid: str, words: str, remedy: str = REMEDY) -> None:
        """Refuse a study for a reason, with a remedy."""
        self.refused[uid] = Fault(f"study {{}}: {words}; {remedy}", (uid,))

    def remark(self, words: str, *uids: str) -> None:
        """Note on studies, whose UIDs fill the places `{}`."""
        self.remarks.append(Fault(words, uids))


def identity_faults(series: Sequence[Series]) -> dict[str, Fault]:
    """By study of one PatientID, the evidence against its series being of one person; empty where there is none."""
    placeholder = identity.is_placeholder_id(series[0].patient_id)
    people = sorted(frozenset[identity.Person]().union(*(one.people for one in series)), key=lambda person: person.study_uid)
    against: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))  # kinds, and studies
    for first, second in combinations(people, 2):
        kinds = identity.disagreements(first, second, placeholder)
        for here, there in ((first, second), (second, first)) if kinds else ():
            against[here.study_uid][0].update(kinds)
            against[here.study_uid][1].add(there.study_uid)
    if not against:
        return {}
    what = "a placeholder as PatientID" if placeholder else "its PatientID"
    faults = {}
    for uid in dict.fromkeys(one.study_uid for one in series):
        kinds, studies = against.get(uid, (set(), set()))
        if kinds:
            others = sorted(studies - {uid}) or [uid]
            detail = f"it differs from study {{}}{' and others' if len(others) > 1 else ''} in {' and '.join(sorted(kinds))}"
            uids = (uid, others[0])
        else:
            detail, uids = "other studies under it disagree on the person", (uid,)
        faults[uid] = Fault(f"study {{}}: scans of several people under {what}: {detail}; {REMEDY}", uids)
    return faults


def plan_visits(series: Sequence[Series], candidates: Sequence[Candidate]) -> Plan:
    """The visits of one person.

    Parameters
    ----------
    series
        All of the person, also unusable ones: a day with a study is a visit, whatever happens to its series.
    candidates
        Those of them that passed the checks.
    """
    plan = Plan()
    placeholder = identity.is_placeholder_id(series[0].patient_id)
    by_study: dict[str, list[Candidate]] = {one.study_uid: [] for one in sorted(series, key=lambda one: one.study_uid)}
    for candidate in candidates:
        by_study[candidate.series.study_uid].append(candidate)
    useful = [candidate.series for candidate in candidates if candidate.guess.channel]
    days = {one.study_uid: when for one in (*series, *useful) if (when := identity.date_of(one.study_date))}
    used = [uid for uid, group in by_study.items() if any(candidate.guess.channel for candidate in group)]
    if placeholder:
        _refuse_unlinked(plan, series, used)
    elif not used:  # nothing but what a table of choices may name
        plan.visits.append(PlannedVisit(None, (), _aside(candidates, ""), frozenset(by_study)))
        return plan
    for uid in set(used) - plan.refused.keys():
        _refuse_several_days(plan, [one for one in useful if one.study_uid == uid])
    unknown = "its date is missing or a placeholder"
    undated = [uid for uid in used if uid not in days and uid not in plan.refused]
    if undated and len(used) > 1:
        for uid in undated:
            words = f"{unknown}, so that its place among {len(used)} studies is unknown"
            plan.refuse(uid, words, "give it its StudyDate, or leave out the patient's other studies")
    elif undated:
        plan.visits += _of_undated(plan, Exam(undated[0], tuple(by_study[undated[0]])), placeholder, unknown)
        return plan
    by_day: dict[date, list[str]] = defaultdict(list)
    for uid in used if placeholder else by_study:
        if (day := days.get(uid)) and uid not in plan.refused:
            by_day[day].append(uid)
    for day, uids in sorted(by_day.items()):
        _refuse_several_days(plan, [one for one in useful if one.study_uid in uids])
        studies = [Exam(uid, tuple(by_study[uid])) for uid in uids if uid not in plan.refused]
        if placeholder and studies and not studies[0].is_timed:  # the only one, as several are refused
            plan.visits += _of_undated(plan, studies[0], placeholder, "no times show that its scans belong together")
        else:
            plan.visits += _of_day(plan, day, uids, [exam for study in studies for exam in _exams(study)])
    return plan


def _refuse_several_days(plan: Plan, useful: Sequence[Series]) -> None:
    """Refuse studies of one date or UID whose headers have several days; scans of one visit may lie before and after midnight."""
    studied = {when for one in useful if (when := identity.date_of(one.study_date))}
    taken = {when for one in useful if (when := identity.date_of(one.taken_date))}
    if len(studied) < 2 and (not taken or (max(taken) - min(taken)).days <= 1):
        return
    uids = sorted({one.study_uid for one in useful})
    for uid in uids:
        under = "date" if len(uids) > 1 else "UID" if uid else "empty UID"
        words = f"scans under its {under} are of several days, and may be of several visits"
        plan.refuse(uid, words, "give the scans of each day a StudyInstanceUID and a StudyDate of their own, and import again")


def _refuse_unlinked(plan: Plan, series: Sequence[Series], used: Sequence[str]) -> None:
    """Under a placeholder id, only a study's UID shows that scans are of one person."""
    nameless = {one.study_uid for one in series if not one.study_uid or one.study_per_image}
    if len(used) > 1 or nameless & set(used):
        why = f"{len(used)} studies are under it" if len(used) > 1 else "its StudyInstanceUID is no evidence either"
        for uid in used:
            plan.refuse(uid, f"its PatientID is empty or a placeholder, and {why}: they may be of several people")


def _of_undated(plan: Plan, exam: Exam, placeholder: bool, unknown: str) -> list[PlannedVisit]:
    """The visit of the one study without a date or times: of one frame of reference, where one has all that is there."""
    parts = _frames(exam)
    full = [part for part in parts if exam.channels <= part.channels]
    uid = exam.study_uid
    count = Counter(candidate.guess.channel for candidate in exam.candidates if candidate.guess.channel)
    if placeholder and not parts and len(count) > 1 and min(count.values()) > 1:
        plan.refuse(uid, "it has every scan several times, and neither PatientID, date nor frame of reference tells them apart")
        return []
    frames = f"its scans have {len(parts)} frames of reference"
    if len(parts) > 1 and (len(full) > 1 or (placeholder and not full)):
        plan.refuse(uid, f"{unknown}, and {frames}: they may be of several visits or people")
        return []
    if len(parts) > 1 and full:
        rest = tuple(candidate for candidate in exam.candidates if candidate not in full[0].candidates)
        plan.remark(f"study {{}}: {unknown}; scans are taken from the one frame of reference that has all", uid)
        return [PlannedVisit(None, (full[0],), _aside(rest, "another frame of reference has all scans"), frozenset({uid}))]
    if len(parts) > 1:
        plan.remark(f"study {{}}: {frames}, and no date shows that they are of one day", uid)
    return [PlannedVisit(None, (exam,), (), frozenset({uid}))]


def _exams(study: Exam) -> list[Exam]:
    """A study in parts, between which a long pause lies, if one of them has all its channels: scans during an operation.

    Without times, its parts are those frames of reference that have all four; what they lack stays with a single such one.
    """
    if len(study.channels) < 2:
        return [study]
    if not study.is_timed:
        needed = study.channels & set(CHANNELS) or study.channels
        full = [part for part in _frames(study) if needed <= part.channels]
        if len(full) != 1:
            return full or [study]
        rest = [
            candidate
            for candidate in study.candidates
            if candidate not in full[0].candidates and candidate.guess.channel in full[0].channels
        ]
        kept = [candidate for candidate in study.candidates if candidate not in rest]
        return [study.part(part) for part in (kept, rest) if part]
    ordered = sorted(study.candidates, key=_second)
    parts = [[ordered[0]]]
    for before, after in pairwise(ordered):
        if _second(after) - _second(before) > PAUSE_S:
            parts.append([])
        parts[-1].append(after)
    exams = [study.part(part) for part in parts]
    return exams if any(study.channels <= exam.channels for exam in exams) else [study]


def _frames(study: Exam) -> list[Exam]:
    """Its parts of one frame of reference each."""
    frames = {candidate.series.frame_uid for candidate in study.candidates if candidate.guess.channel} - {""}
    return [
        study.part(candidate for candidate in study.candidates if candidate.series.frame_uid == uid) for uid in sorted(frames)
    ]


def _of_day(plan: Plan, day: date, uids: Sequence[str], exams: Sequence[Exam]) -> list[PlannedVisit]:
    """The visits of one day."""
    scanned = sorted((exam for exam in exams if exam.channels), key=lambda exam: exam.start_s)
    every: set[str] = set().union(*(exam.channels for exam in scanned))
    needed = every & set(CHANNELS) or every
    full = [exam for exam in scanned if needed <= exam.channels]
    idle = tuple(candidate for exam in exams if not exam.channels for candidate in exam.candidates)
    bases = full or scanned
    year_alone = not full and len({exam.study_uid for exam in bases}) > 1 and (day.month, day.day) in identity.YEAR_ALONE
    if len(bases) > 1 and (year_alone or not _in_order(bases)):
        each = "each has all scans" if full else "none has all scans"
        why = "that date may stand for a year" if year_alone else "no times show which came first"
        words = f"{len(bases)} studies are of its day, {each}, and {why}: they may lie before and after an operation"
        for uid in {exam.study_uid for exam in scanned}:
            plan.refuse(uid, words, "leave out all but one, or give them their dates and times")
        bases = []
    if not bases:
        return [PlannedVisit(day, (), _aside(idle, ""), frozenset(uids))]
    visits = _around(full, scanned) if full else _in_clusters(scanned)
    made = []
    for number, (used, rest) in enumerate(visits):
        aside = _aside([candidate for exam in rest for candidate in exam.candidates], "another exam of the day has all scans")
        studies = frozenset(uids) if number == 0 else frozenset(exam.study_uid for exam in (*used, *rest))
        made.append(PlannedVisit(day, tuple(used), (*aside, *(_aside(idle, "") if number == 0 else ())), studies))
    _remark(plan, made)
    return made


def _in_order(exams: Sequence[Exam]) -> bool:
    """Whether times are known and show which came first, at least of those that have a channel in common."""
    timed = not any(math.isnan(exam.start_s) for exam in exams)
    return timed and not any(
        one.start_s == other.start_s and one.channels & other.channels for one, other in combinations(exams, 2)
    )


def _around(full: Sequence[Exam], exams: Sequence[Exam]) -> list[tuple[list[Exam], list[Exam]]]:
    """A visit for each exam that has all; others lend it an extra that it lacks where no long pause lies between them."""
    visits = [([exam], list[Exam]()) for exam in full]
    for exam in exams:
        if exam not in full:
            earlier = [at for at, base in enumerate(full) if base.start_s <= exam.start_s]
            used, rest = visits[earlier[-1] if earlier else 0]
            lends = bool(exam.channels - used[0].channels) and _pause_s(used[0], exam) <= PAUSE_S
            (used if lends else rest).append(exam)
    return visits


def _in_clusters(exams: Sequence[Exam]) -> list[tuple[list[Exam], list[Exam]]]:
    """Exams in order of time, together as long as no long pause lies between them."""
    visits = [([exams[0]], list[Exam]())]
    for exam in exams[1:]:
        if min(_pause_s(before, exam) for before in visits[-1][0]) <= PAUSE_S:
            visits[-1][0].append(exam)
        else:
            visits.append(([exam], []))
    return visits


def _pause_s(one: Exam, other: Exam) -> float:
    """Seconds between two exams of a day, 0 where they overlap, infinite where times are unknown."""
    apart = max(one.start_s, other.start_s) - min(one.end_s, other.end_s)
    return math.inf if math.isnan(apart) else max(apart, 0.0)


def _remark(plan: Plan, visits: Sequence[PlannedVisit]) -> None:
    """Note what the result does not show: which studies a visit uses, and that a day is several visits."""
    if len(visits) > 1:
        uids = [visit.exams[0].study_uid for visit in visits]
        places = ", ".join("{}" for _ in uids)
        plan.remark(f"studies {places}: of one day, and {len(visits)} visits, in order of time", *uids)
    for visit in visits:
        base = visit.exams[0].study_uid
        seconds = sorted(_second(candidate) for candidate in visit.used if candidate.guess.channel)
        pause_s = max((after - before for before, after in pairwise(seconds)), default=0.0)
        if pause_s > PAUSE_S:
            detail = f"{pause_s / 3600:.1f} hours lie between its scans, which may be of before and after an operation"
            plan.remark(f"study {{}}: {detail}", base)
        if len(visit.sources) > 1:
            places = ", ".join("{}" for _ in visit.sources)
            detail = "no study of the day has all scans; they are taken from these in order of time"
            plan.remark(f"studies {places}: {detail}", *visit.sources)
        left = {candidate.series.study_uid for candidate, why in visit.aside if why}
        for uid in sorted(left & set(visit.sources)):
            plan.remark("study {}: scans are taken from the one part of it that has all", uid)
        for uid in sorted(left - set(visit.sources)):
            plan.remark("study {}: no scan is taken from it, because study {} of its day has all", uid, base)


def _aside(candidates: Sequence[Candidate], why: str) -> tuple[tuple[Candidate, str], ...]:
    return tuple((candidate, why) for candidate in candidates)


def _second(candidate: Candidate) -> float:
    """Second of the day at which a series was taken, of the next day behind midnight; NaN where unknown."""
    taken, study = candidate.series.taken_s, candidate.series.study_s
    if math.isnan(taken):
        return study
    return taken + DAY_S if taken < study - DAY_S / 2 else taken

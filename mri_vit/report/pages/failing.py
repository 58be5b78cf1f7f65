"""Cards of the worst patients: a run and its failures in; of each patient the facts, a link and two small pictures out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mri_vit.data.cohort import visit_id
from mri_vit.report.figures import pictures
from mri_vit.report.reading.run import Run, subject
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.patients import Patient
from mri_vit.report.verdicts.maps import is_finding

WIDTH, QUALITY = 420, 60  # pixels, WebP's scale: a sheet of four scans and a map in 5 to 20 kB each
LARGEST = 30_000  # bytes of a picture, beyond which it is left out: ten cards with two each are then 0.6 MB of an endpoint
BUDGET = 1_500_000  # bytes of page of all of them


@dataclass(frozen=True)
class Card:
    """One of the worst patients; a picture is a data: URL, "" where there is none."""

    patient: Patient
    link: str
    qc: str
    map: str


def cards(run: Run, metrics: Metrics, links: Mapping[str, str]) -> dict[str, list[Card]]:
    """Of each endpoint the worst patients in their order; `links` are the patients' pages by visit."""
    people = {one.patient: one for one in metrics.patients}
    sheets = _sheets(run)
    shown: dict[str, list[tuple[Patient, Path | None, Path | None]]] = {}
    for name, found in metrics.failures.items():
        worst = [people[patient] for patient in found.patients]
        shown[name] = [(one, sheets.get(one.patient), _map(run, metrics, one, name)) for one in worst]
    wanted = list(dict.fromkeys(path for told in shown.values() for _, *both in told for path in both if path))
    packed = dict(zip(wanted, pictures.shrunk(wanted, WIDTH, QUALITY, BUDGET), strict=False))
    small = {path: url for path, url in packed.items() if len(url) <= LARGEST}
    return {
        name: [
            Card(one, _link(one, links), small.get(sheet, "") if sheet else "", small.get(drawn, "") if drawn else "")
            for one, sheet, drawn in told
        ]
        for name, told in shown.items()
    }


def _sheets(run: Run) -> dict[str, Path]:
    """The picture of the preparation of each patient's first visit."""
    people = set(run.cohort.patient)
    return {subject(visit, people): path for visit, path in reversed(run.qc) if path.is_file()}


def _map(run: Run, metrics: Metrics, patient: Patient, endpoint: str) -> Path | None:
    """The picture of the first map of the endpoint, else of one for all endpoints; None without any, and where none may stand."""
    card = metrics.cards.get(endpoint)
    if card is None or not is_finding(metrics.endpoints[endpoint].models[card.model]):
        return None
    for found, said in zip(run.maps, metrics.maps, strict=True):
        if found.patient in patient.maps:
            own = [entry for entry in said.maps if entry.endpoint == endpoint] or [one for one in said.maps if not one.endpoint]
            return found.overlays[own[0].index] if own else None
    return None


def _link(patient: Patient, links: Mapping[str, str]) -> str:
    visits = (visit_id(patient.patient, session) for session in patient.sessions)
    return next((links[visit] for visit in visits if visit in links), "")

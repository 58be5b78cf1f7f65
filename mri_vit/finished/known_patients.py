"""Known patients: those that a model, or the weights that it started from, saw in training.

Patients are compared by the voxels of their scans; an equal id alone is a warning. A model that leaves its run keeps no id: it
compares salted hashes. They cannot hide who is known from an owner of the same scans, or of a list of ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field
from rich.console import Console

from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.finished.prediction_document import Known
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.report.schema.parts import Part
from mri_vit.run import files
from mri_vit.run.screen import WARNING, counted, say

if TYPE_CHECKING:
    from mri_vit.prepare.patient import Excluded

SCRYPT = {"n": 2**14, "r": 8, "p": 1}  # RFC 7914's interactive use: 16 MiB and some 40 ms for each id that is guessed


class Member(Part):
    """A patient of the run who has a scan."""

    name: str
    networks: int = Field(description="networks that saw the patient in training")


@dataclass(frozen=True)
class KnownPatients:
    """By the hash of a scan's voxels, and by subject, the run's patients; with a `salt` both are hashed with it."""

    scans: Mapping[str, Member]
    subjects: Mapping[str, int]  # networks that saw them in training
    exposed: Collection[str]  # other subjects, to which the weights that the run started from were exposed
    networks: int
    salt: str = ""

    def hashed(self, salt: str) -> KnownPatients:
        """The same without an id: patients have numbers, in the order of their hashes."""
        scans = sorted(((_sha256(voxels, salt), one) for voxels, one in self.scans.items()), key=lambda pair: pair[0])
        numbers = {
            name: f"training patient {number}" for number, name in enumerate(dict.fromkeys(one.name for _, one in scans), 1)
        }
        return KnownPatients(
            scans={key: Member(name=numbers[one.name], networks=one.networks) for key, one in scans},
            subjects=dict(sorted((_scrypt(name, salt), networks) for name, networks in self.subjects.items())),
            exposed=sorted(_scrypt(name, salt) for name in self.exposed),
            networks=self.networks,
            salt=salt,
        )

    def twin(self, prepared: Path) -> Member | None:
        """The run's patient who has a scan with the same voxels as a prepared patient."""
        from mri_vit.prepare.prepared import voxels

        keys = [_sha256(one, self.salt) if self.salt else one for one in voxels(prepared)]
        return next((self.scans[key] for key in keys if key in self.scans), None)

    def of(self, prepared: Path, subject: str) -> Known:
        """What is known of a prepared patient."""
        key = _scrypt(subject, self.salt) if self.salt else subject
        twin, same_id, is_exposed = self.twin(prepared), key in self.subjects, key in self.exposed
        sentence = "The run was not trained on these scans."
        if twin:
            sentence = f"A scan has the same voxels as one of {twin.name}, a patient of the run: {self._clause(twin.networks)}."
        elif same_id:
            sentence += (
                f" The run has another patient called {subject}: if they are the same person, {self._clause(self.subjects[key])}."
            )
        if is_exposed:
            sentence += f" The weights it started from were trained on a patient called {subject} as well."
        return Known(twin=twin and twin.name, same_id=same_id, exposed=is_exposed, sentence=sentence)

    def _clause(self, saw: int) -> str:
        """How many of the networks saw a patient in training, and what that does to the scores."""
        if not saw:
            return f"none of {counted(self.networks, 'network')} saw this patient in training"
        return (
            f"{saw} of {counted(self.networks, 'network')} saw this patient in training, so the scores are not"
            " out-of-fold and look better than they are"
        )


def _sha256(text: str, salt: str) -> str:
    return hashlib.sha256(f"{salt}{text}".encode()).hexdigest()


def _scrypt(text: str, salt: str) -> str:
    """Of an id, which unlike voxels could be guessed, and so must take long."""
    return hashlib.scrypt(text.encode(), salt=salt.encode(), dklen=16, **SCRYPT).hex()


def of_run(run: TrainedRun) -> KnownPatients:
    """The patients that a run knows.

    Raises IntegrityError where its hashes of voxels are damaged, UsageError where an older version recorded none.
    """
    from mri_vit.model.weights import image_exposed, label_exposed

    weights = [home / files.WEIGHTS for home in run.networks.values()]
    exposed = {name for file in weights for known in (label_exposed, image_exposed) for name in known(file)} - run.subjects
    saw = {subject: run.networks_that_saw(subject) for subject in run.subjects}
    subject_of = {patient.id: patient.subject for patient in run.patients}
    return KnownPatients(
        scans={sha256: Member(name=name, networks=saw.get(subject_of.get(name, name), 0)) for sha256, name in run.scans.items()},
        subjects=saw,
        exposed=exposed,
        networks=len(run.networks) * run.study.train.seeds,
    )


def overlap(known: KnownPatients, prepared: Path, patients: Sequence[Patient], console: Console) -> dict[str, Known]:
    """By patient whether the model saw them in training; warns of those it did."""
    overlaps = {patient.id: known.of(prepared / patient.id, patient.subject) for patient in patients}
    for name, one in overlaps.items():
        if one.twin or one.same_id or one.exposed:
            say(console, f"{name}: {one.sentence}", WARNING)
    return overlaps


def refused_patients(home: Path, cohort: Path, overlaps: Mapping[str, Known], console: Console) -> Excluded:
    """The patients that the run in `home` was trained on, as excluded. Raises UsageError naming both where no other is left."""
    reasons = {
        name: f"has a scan of {known.twin}, whom the run {home.name} was trained on, so a score would look better than it"
        " is; --allow-known predicts anyway, and marks the prediction"
        for name, known in overlaps.items()
        if known.twin
    }
    if len(reasons) == len(overlaps):
        name, reason = next(iter(reasons.items()))
        raise UsageError(f"{cohort}: patient {name} {reason}")
    for name, reason in reasons.items():
        say(console, f"excluded {name}: {reason}", WARNING)
    return [{"patient": name, "file": "", "reason": reason} for name, reason in reasons.items()]

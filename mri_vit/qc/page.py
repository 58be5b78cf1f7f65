"""The page of a checked cohort: findings go in; one HTML page, the worst patient first, and the pictures come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

from mri_vit import style
from mri_vit.prepare import tumour
from mri_vit.qc import check
from mri_vit.qc.check import COLUMNS, DROP, KEEP, CheckedCohort, Decision, Finding
from mri_vit.run import atomic, files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import counted, say
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import REASONS

PICTURE = ".webp"
WEBP_QUALITY = 75  # WebP's scale: 40 kB a patient, at all of the sheet's pixels, which a card of the grid shows nearly all of
SHOWN_FIGURES = {  # the figures of a patient's card: key of the record, words, unit, digits
    "turned_degrees": ("rotated by", "°", 0),
    "middle_degrees": ("midsagittal plane leans", "°", 1),
    "squeezed": ("MNI152 brain squeezed to", "", 2),
    "fluid_contrast": ("T2 minus FLAIR in fluid", " SD", 1),
    "enhancement": ("T1ce minus T1", " SD", 1),
}
SCAN_FIGURES = {  # the same for each scan, a row of a table
    "likeness": ("similarity to the reference", "", 2),
    "own_to_mirrored": ("ratio to the similarity with its mirror image", "", 2),
    "signal_to_noise": ("signal-to-noise", "", 0),
    "ghosts": ("ghosts", "", 3),
    "shading": ("shading", "", 2),
    "filled": ("brain covered", "", 2),
}
COLUMNS_OF_SCAN = (
    *(words for words, _, _ in SCAN_FIGURES.values()),
    "similarity below the cohort's median, robust SD",
    "histogram from the cohort's median, robust SD",
    "brain in the field of view",
    "lesion-like contrast before and after bias correction, SD",
)
STATES = (check.EXCLUDED, check.FLAGGED, check.KEPT, "fine")  # of a patient, the worst first


@dataclass(frozen=True)
class Card:
    """What the page shows of one patient."""

    patient: str
    pixels: tuple[int, int]  # width and height of its picture, so that the page has its place before it is loaded
    findings: Sequence[tuple[Finding, str]]  # each with what became of it
    decision: Decision | None
    figures: Sequence[tuple[str, str]]
    scans: Mapping[str, Sequence[str]]
    coverage: Sequence[tuple[str, str]]
    brain_ml: float
    warnings: Sequence[str]

    @property
    def state(self) -> str:
        """Excluded, flagged, kept or without findings; a patient that a reviewer drops is excluded."""
        if self.decision and not self.decision.keep:
            return check.EXCLUDED
        outcomes = {outcome for _, outcome in self.findings}
        return next((state for state in (check.EXCLUDED, check.FLAGGED, check.KEPT) if state in outcomes), "fine")


def write(study: Study, checked: CheckedCohort, home: Path, console: Console) -> None:
    """Write `index.html` and the pictures into the folder `home`.

    Raises IntegrityError where `home` is a link, and UsageError where it holds something else.
    """
    atomic.refuse_strangers(home, lambda name: name == files.PAGE or name.endswith(PICTURE), "a page of qc")
    home.mkdir(exist_ok=True)
    for old in home.glob(f"*{PICTURE}"):  # of patients who left the study too
        old.unlink()
    pixels = {}
    for name in checked.records:
        sheet = Image.open(study.prepared / name / files.QC).convert("RGB")
        pixels[name] = sheet.size
        write_bytes(_webp(sheet), home / f"{name}{PICTURE}")
    cards = sorted((_card(study, checked, name, pixels[name]) for name in checked.records), key=_worst_first)
    text = (
        style.templates("mri_vit.qc")
        .get_template("qc.html")
        .render(
            study=study.name,
            cards=cards,
            picture=PICTURE,
            out=[row for row in checked.excluded if row["patient"] not in checked.records],
            reasons=[
                reason for reason in REASONS if any(finding.reason == reason for card in cards for finding, _ in card.findings)
            ],
            columns=COLUMNS_OF_SCAN,
            limits={key: value for key, value in study.qc.model_dump(mode="json").items() if key not in ("exclude", "decisions")},
            excluding=study.qc.exclude,
            decisions=files.DECISIONS,
            header=",".join(COLUMNS),
            before=[[row.patient, KEEP if row.keep else DROP, row.who, row.why] for row in checked.decisions.values()],
            states=[(state, sum(card.state == state for card in cards)) for state in STATES],
        )
    )
    write_bytes(text.encode(), home / files.PAGE)
    say(console, f"{home / files.PAGE}: {counted(len(cards), 'patient')}, the worst first")


def _worst_first(card: Card) -> tuple[int, int, int, str]:
    """By state, by the gravest reason, by how many findings there are."""
    gravest = min((REASONS.index(finding.reason) for finding, _ in card.findings), default=len(REASONS))
    return STATES.index(card.state), gravest, -len(card.findings), card.patient


def _card(study: Study, checked: CheckedCohort, name: str, pixels: tuple[int, int]) -> Card:
    record = checked.records[name]
    quality = record["quality"]
    far = {figure: {scan: zs.get(name) for scan, zs in of.items()} for figure, of in checked.deviations.items()}
    return Card(
        name,
        pixels,
        [(finding, check.outcome(finding, checked.decisions, study.qc)) for finding in checked.findings[name]],
        checked.decisions.get(name),
        [
            ("tumour", tumour.described(tumour.of_record(record))),
            *((words, _shown(quality[key], digits) + unit) for key, (words, unit, digits) in SHOWN_FIGURES.items()),
        ],
        {scan: _of_scan(record, scan, far) for scan in quality["scans"]},
        [(part, f"{share:.0%}") for part, share in quality["coverage"].items()],
        record["brain_ml"],
        record["warnings"],
    )


def _of_scan(record: Mapping[str, Any], scan: str, far: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    """The cells of a scan's row, in the order of `COLUMNS_OF_SCAN`."""
    figures = record["quality"]["scans"][scan]
    steps = {step["step"]: step for step in record["steps"]}
    held = steps.get("overlap", {}).get("shares", {}).get(scan)
    contrast = steps.get("bias", {}).get("scans", {}).get(scan, {}).get("lesion_like_contrast")
    return [
        *(_shown(figures.get(key), digits) for key, (_, _, digits) in SCAN_FIGURES.items()),
        *(_shown(far[figure].get(scan), 1) for figure in ("likeness", "histogram")),
        _shown(held, 2),
        f"{contrast[0]:.2f} to {contrast[1]:.2f}" if contrast else "–",
    ]


def _shown(value: Any, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def _webp(picture: Image.Image) -> bytes:
    out = BytesIO()
    picture.save(out, "WEBP", quality=WEBP_QUALITY)
    return out.getvalue()

"""A folder of DICOM to a cohort: channels, visits, choices, keys, and that nothing personal reaches any output."""

from __future__ import annotations

import csv
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import dicom
from pydicom import dcmread
from pydicom.uid import HTJ2KLossless

from mri_vit.data import volume
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.importers.dicom import identity, importer
from mri_vit.importers.layout import SourceContents

pytestmark = pytest.mark.long(21)

AGENT = {"ContrastBolusAgent": "GADAVIST"}
FOUR = {"t1": "t1 mprage", "t1ce": "t1 mprage post", "t2": "t2 tse", "flair": "t2 flair"}


def write_visit(folder: Path, **tags: Any) -> None:
    """One study of four scans, whose voxels tell them apart."""
    for number, (channel, words) in enumerate(FOUR.items()):
        study = {"StudyInstanceUID": "1.2.3", "SeriesDescription": words, "SeriesNumber": number + 1} | tags
        dicom.write_series(folder / channel, dicom.head() + 1000 * number, **study)


def bring_in(tmp_path: Path, **options: Any) -> SourceContents:
    return importer.read(tmp_path / "in", tmp_path / "out", **options)


def series_rows(tmp_path: Path) -> list[dict[str, str]]:
    with (tmp_path / "out" / "series.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_four_scans_of_a_patient_lie_where_their_headers_say(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    found = bring_in(tmp_path)
    assert not found.left_out
    (visit,) = found.visits
    for number, channel in enumerate(FOUR):
        path = visit.scans[channel]
        scan = volume.canonical(volume.read(path))
        np.testing.assert_allclose(scan.affine, volume.canonical(volume.Volume(dicom.head().T, dicom.affine(dicom.AXIAL))).affine)
        assert scan.array.min() == 100 + 1000 * number
    assert [row["chosen"] for row in series_rows(tmp_path)] == ["yes"] * 4
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_a_refused_series_is_left_out_with_hashes_and_told_with_uids_while_others_go_on(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    gap = dicom.write_series(
        tmp_path / "in" / "gap", steps=[0, 1, 2, 4, 5, 6], SeriesDescription="t2 tse", StudyInstanceUID="1.2.3"
    )
    told: list[str] = []
    found = bring_in(tmp_path, say=told.append)
    (left_out,) = found.left_out
    uid = dcmread(gap[2]).SOPInstanceUID
    assert "missing slice" in left_out.reason
    assert left_out.file is None  # its path may hold a name
    assert uid not in left_out.reason
    assert any(uid in line for line in told)
    assert set(found.visits[0].scans) == set(FOUR)


def test_a_patient_without_any_usable_scan_is_left_out(tmp_path: Path) -> None:
    dicom.write_series(tmp_path / "in" / "x", SeriesDescription="t2 localizer")
    found = bring_in(tmp_path)
    assert not found.visits
    assert [one.reason for one in found.left_out] == ["no series could be used as t1, t1ce, t2, flair"]


def test_a_localizer_is_listed_and_leaves_nobody_out(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    dicom.write_series(tmp_path / "in" / "loc", dicom.head(3), SeriesDescription="localizer", StudyInstanceUID="1.2.3")
    assert not bring_in(tmp_path).left_out
    assert "a localizer, by its name" in [row["reason"] for row in series_rows(tmp_path)]


def test_visits_are_numbered_by_date_and_a_day_with_one_whole_study_is_one_visit(tmp_path: Path) -> None:
    write_visit(tmp_path / "in" / "b", StudyInstanceUID="1.1", StudyDate="20240301")
    write_visit(tmp_path / "in" / "a", StudyInstanceUID="1.9", StudyDate="20230115")
    dicom.write_series(
        tmp_path / "in" / "c", StudyInstanceUID="1.5", StudyDate="20240301", SeriesDescription="t2 tse", SeriesNumber=9
    )
    found = bring_in(tmp_path)
    assert [one.session for one in found.visits] == ["01", "02"]
    assert len({one.patient for one in found.visits}) == 1


def test_the_best_of_several_is_taken_unless_a_table_chooses_another(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    dicom.write_series(
        tmp_path / "in" / "more", dicom.head(8) + 9000, SeriesDescription="t2 tse", StudyInstanceUID="1.2.3", SeriesNumber=9
    )
    first = bring_in(tmp_path)
    assert volume.read(first.visits[0].scans["t2"]).shape[2] == 8
    other = next(row for row in series_rows(tmp_path) if row["channel"] == "t2" and row["chosen"] == "no")
    assert other["reason"] == "T2-weighted, by its name; another was chosen for more slices: 8 against 6"
    choices = tmp_path / "choices.csv"
    patient = first.visits[0].patient
    choices.write_text(f"patient,session,channel,series\n{patient},,t2,{other['series']}\n{patient},,flair,none\n")
    second = importer.read(tmp_path / "in", tmp_path / "out2", tmp_path / "out.key", choices)
    assert volume.read(second.visits[0].scans["t2"]).shape[2] == 6
    assert set(second.visits[0].scans) == {"t1", "t1ce", "t2"}


def test_a_series_that_was_taken_for_something_else_can_be_chosen(tmp_path: Path) -> None:
    dicom.write_series(tmp_path / "in" / "x", SeriesDescription="t2 scout")
    bring_in(tmp_path)
    (row,) = series_rows(tmp_path)
    choices = tmp_path / "choices.csv"
    choices.write_text("patient,session,channel,series\n{patient},{session},t2,{series}\n".format(**row))
    found = importer.read(tmp_path / "in", tmp_path / "out2", tmp_path / "out.key", choices)
    assert set(found.visits[0].scans) == {"t2"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("{patient},,t3,{series}", "channel 't3'; expected one of"),
        ("{patient},,t2,U000", "is none of the visit's, or was refused"),
        ("P000,,t2,{series}", "no such visit"),
        ("{patient},,t2,{series}\n{patient},,t2,{series}", "a second choice"),
        ("{patient},,t2,{series}\n{patient},,t1,{series}", "for another channel as well"),
    ],
)
def test_a_choice_that_fits_nothing_is_refused_before_anything_is_converted(tmp_path: Path, rows: str, expected: str) -> None:
    write_visit(tmp_path / "in")
    bring_in(tmp_path)
    row = series_rows(tmp_path)[0]
    choices = tmp_path / "choices.csv"
    choices.write_text("patient,session,channel,series\n" + rows.format(**row) + "\n")
    with pytest.raises(UsageError, match=expected):
        importer.read(tmp_path / "in", tmp_path / "out2", tmp_path / "out.key", choices)
    assert not (tmp_path / "out2").exists()


def test_extras_are_imported_where_asked_for(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    dicom.write_series(tmp_path / "in" / "adc", SeriesDescription="ep2d_diff_ADC", StudyInstanceUID="1.2.3")
    assert "adc" not in bring_in(tmp_path).visits[0].scans
    assert "which was not requested" in " ".join(row["reason"] for row in series_rows(tmp_path))
    asked = importer.read(tmp_path / "in", tmp_path / "out2", also=("adc",))
    assert set(asked.visits[0].scans) == {*FOUR, "adc"}
    with pytest.raises(UsageError, match="cannot import bold"):
        importer.read(tmp_path / "in", tmp_path / "out3", also=("bold",))


def brain(enhancing_ml: float = 0.0) -> np.ndarray:
    """A head of 150 mm in voxels of 2.5 x 2.5 x 3 mm, noisy, with a ball in its depth that enhances."""
    draw = np.random.default_rng(int(enhancing_ml))
    k, j, i = np.indices((50, 60, 60))
    head = (k - 25) ** 2 * 9 + (j - 30) ** 2 * 6.25 + (i - 30) ** 2 * 6.25 < 72**2
    ball = (k - 30) ** 2 * 9 + (j - 38) ** 2 * 6.25 + (i - 28) ** 2 * 6.25 < (enhancing_ml * 1000 * 3 / 4 / np.pi) ** (2 / 3)
    return np.where(head, draw.normal(600, 15, head.shape) * np.where(ball, 1.8, 1.0), 5.0).astype(np.uint16)


def write_t1s(folder: Path, *series: tuple[str, float, dict[str, Any]]) -> None:
    """T1-weighted series of one visit: name, enhancing volume, and tags."""
    for number, (words, ml, tags) in enumerate(series):
        voxels = brain(ml)
        voxels[0, 0, 0] = 7000 + number  # by which a scan is known
        common = {"StudyInstanceUID": "1.2.3", "SeriesDescription": words, "SeriesNumber": number + 1, "PixelSpacing": [2.5, 2.5]}
        dicom.write_series(folder / str(number), voxels, **(common | tags))


def taken(found: SourceContents) -> dict[str, int]:
    """Which of the series became which scan."""
    if not found.visits:
        return {}
    return {channel: int(volume.read(path).array.max()) - 7000 for channel, path in found.visits[0].scans.items()}


@pytest.mark.parametrize("order", [(0.0, 6.0), (6.0, 0.0)])
def test_t1_and_t1ce_are_told_by_what_enhances_where_no_field_says(tmp_path: Path, order: tuple[float, float]) -> None:
    write_t1s(tmp_path / "in", *(("t1 tse", ml, {}) for ml in order))
    found = bring_in(tmp_path)
    assert taken(found) == {"t1": order.index(0.0), "t1ce": order.index(6.0)}
    assert not found.left_out
    assert all("by its voxels" in row["reason"] for row in series_rows(tmp_path))


def test_t1_and_t1ce_that_nothing_tells_apart_are_left_out_and_both_are_named_with_the_cure(tmp_path: Path) -> None:
    write_t1s(tmp_path / "in", ("t1 tse", 0.0, {}), ("t1 tse", 0.1, {}))
    dicom.write_series(tmp_path / "in" / "t2", SeriesDescription="t2 tse", StudyInstanceUID="1.2.3")
    found = bring_in(tmp_path)
    assert set(found.visits[0].scans) == {"t2"}
    rows = [row for row in series_rows(tmp_path) if "undecided" in row["reason"]]
    assert len(rows) == 2
    (left_out,) = found.left_out
    assert all(row["series"] in left_out.reason for row in rows)
    assert "--choices" in left_out.reason
    choices = tmp_path / "choices.csv"
    patient, (first, second) = found.visits[0].patient, rows
    choices.write_text(f"patient,session,channel,series\n{patient},,t1ce,{first['series']}\n{patient},,t1,{second['series']}\n")
    chosen = importer.read(tmp_path / "in", tmp_path / "out2", tmp_path / "out.key", choices)
    assert set(chosen.visits[0].scans) == {"t1", "t1ce", "t2"}
    assert not chosen.left_out


@pytest.mark.parametrize(
    ("series", "expected", "left_out"),
    [
        ([("AX T1 PRE", 0, {}), ("AX T1 POST", 6, {})], {"t1": 0, "t1ce": 1}, 0),
        ([("AX T1", 0, {}), ("SAG T1", 0, {"SeriesNumber": 9}), ("AX T1 POST", 6, {})], {"t1": 1, "t1ce": 2}, 0),
        ([("AX T1 WITHOUT CONTRAST", 0, AGENT)], {"t1": 0}, 0),
        ([("AX T1", 0, {})], {"t1": 0}, 0),
        ([("AX T1 pre and post", 0, AGENT)], {}, 1),
        ([("AX T1 PRE", 0, {}), ("AX T1", 6, {})], {"t1": 0, "t1ce": 1}, 0),  # voxels tell the silent one
        ([("AX T1 PRE", 0, {}), ("AX T1", 0.1, {})], {"t1": 0}, 1),  # or not
        (
            [("AX T1", 0, AGENT), ("AX T1 POST", 6, {})],
            {"t1": 0, "t1ce": 1},
            0,
        ),  # a field for the exam
        ([("AX T1", 6, AGENT), ("AX T1 SE", 0, AGENT)], {"t1": 1, "t1ce": 0}, 0),
        ([("AX T1", 0, AGENT), ("AX T1 SE", 0.1, AGENT)], {}, 1),  # not the later one
        ([("AX T1", 6, AGENT), ("COR T1", 6, AGENT), ("SAG T1", 0, {})], {"t1": 2, "t1ce": 1}, 0),
        ([("AX T1 PRE", 6, {}), ("AX T1 POST", 0, {})], {}, 1),  # exchanged names
        ([("AX T1", 6, {}), ("AX T1 POST", 0, {})], {}, 1),
        ([("AX T1 PRE", 6, {}), ("AX T1 FS POST", 0, {})], {"t1": 0, "t1ce": 1}, 0),  # with fat suppressed nothing is compared
        ([("AX T1 PRE", 0, {}), ("AX T1 POST", 0.1, {})], {"t1": 0, "t1ce": 1}, 0),  # a tumour that does not enhance
    ],
)
def test_names_decide_and_voxels_settle_or_contradict(
    tmp_path: Path, series: list[tuple[str, float, dict[str, Any]]], expected: dict[str, int], left_out: int
) -> None:
    write_t1s(tmp_path / "in", *series)
    found = bring_in(tmp_path)
    assert taken(found) == expected
    undecided = [one.reason for one in found.left_out if "T1 or T1ce is undecided" in one.reason]
    assert len(undecided) == left_out
    assert len(found.left_out) == left_out + (not expected)  # a visit without any scan is listed as well


def test_the_reason_why_a_silent_series_counts_as_t1_is_listed(tmp_path: Path) -> None:
    write_t1s(tmp_path / "in", ("AX T1", 0, {}))
    bring_in(tmp_path)
    (row,) = series_rows(tmp_path)
    assert "neither name nor field" in row["reason"]
    assert "only T1-weighted series" in row["reason"]


def test_a_series_that_cannot_be_converted_gives_way_to_the_next(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    for path in dicom.write_series(tmp_path / "in" / "best", dicom.head(8), SeriesDescription="t2 tse", StudyInstanceUID="1.2.3"):
        dicom.encapsulate_as(path, HTJ2KLossless)  # no such code stream is inside
    found = bring_in(tmp_path)
    assert "cannot be decoded" in found.left_out[0].reason
    assert volume.read(found.visits[0].scans["t2"]).shape[2] == 6


def test_the_same_key_gives_the_same_names_and_another_key_others(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    first = bring_in(tmp_path)
    again = importer.read(tmp_path / "in", tmp_path / "out2", tmp_path / "out.key")
    other = importer.read(tmp_path / "in", tmp_path / "out3")
    assert first.visits[0].patient == again.visits[0].patient != other.visits[0].patient
    assert (tmp_path / "out" / "series.csv").read_bytes() == (tmp_path / "out2" / "series.csv").read_bytes()


def test_the_key_lies_beside_the_output_for_its_owner_alone(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    bring_in(tmp_path)
    key = tmp_path / "out.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "out.key"]
    key.chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others"):
        identity.load_hasher(key, tmp_path / "out2")
    key.chmod(0o600)
    key.write_text("short")
    with pytest.raises(UsageError, match="is not a key"):
        identity.load_hasher(key, tmp_path / "out2")
    with pytest.raises(UsageError, match="lies in the output"):
        identity.load_hasher(tmp_path / "out" / "a.key", tmp_path / "out")
    (tmp_path / "link.key").symlink_to(key)
    with pytest.raises(IntegrityError):
        identity.load_hasher(tmp_path / "link.key", tmp_path / "out")


def test_folders_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(UsageError, match="holds no DICOM"):
        bring_in(tmp_path)
    with pytest.raises(UsageError, match="no folder"):
        importer.read(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(UsageError, match="lies in the source"):
        importer.read(tmp_path / "in", tmp_path / "in" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_without_the_extra_the_remedy_is_named() -> None:
    code = "import sys; sys.modules['dcm2niix'] = None; from mri_vit.importers import dicom; dicom.reader()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "UsageError: dcm2niix is not installed, which reads DICOM: pip install 'mri-vit[dicom]'" in done.stderr

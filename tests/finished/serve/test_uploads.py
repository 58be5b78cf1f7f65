"""What is sent lands in the patient's folder and nowhere else, or is refused in words."""

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path

import pytest

from mri_vit.errors import OutOfResource, UsageError
from mri_vit.finished.serve import uploads
from mri_vit.finished.serve.uploads import Limits, Sent, TooMuch

FOUR = ("t1", "t1ce", "t2", "flair")
SMALL = Limits(sent=10_000, unpacked=100_000, files=10, spare=0)


def packed(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> dict[str, Sent]:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    stream.seek(0)
    return {"archive": Sent("exam.zip", stream)}


def stored(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_scans_are_named_by_their_field_whatever_the_sender_calls_them(tmp_path: Path):
    sent = {name: Sent(f"../../{name.upper()} of Müller.NII.GZ", io.BytesIO(name.encode())) for name in FOUR}
    uploads.store(sent | {"tumour_mask": Sent("x.nii", io.BytesIO(b"m"))}, FOUR, tmp_path / "sent", SMALL)
    assert stored(tmp_path) == {f"sent/{name}.nii.gz": name.encode() for name in FOUR} | {"sent/tumour_mask.nii": b"m"}


def test_no_path_of_an_archive_is_used(tmp_path: Path):
    evil = {
        "../../escaped": b"1",
        "/etc/passwd": b"2",
        "C:\\Windows\\x": b"3",
        "..\\..\\y.nii.gz": b"4",
        "a/b/DICOM/I0001": b"5",
        "__MACOSX/a/._I0001": b"junk",
        "a/.DS_Store": b"junk",
        "sub/.hidden.nii": b"6",
    }
    uploads.store(packed(evil), FOUR, tmp_path / "in" / "sent", SMALL)
    found = stored(tmp_path)
    assert sorted(found.values()) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert sorted(found) == [f"in/sent/{name}" for name in ("000000", "000001", "000002", "000004", "hidden.nii", "y.nii.gz")]


def test_a_link_in_an_archive_is_a_file_with_its_text(tmp_path: Path):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    uploads.store({"archive": Sent("x.zip", stream)}, FOUR, tmp_path / "sent", SMALL)
    assert not (tmp_path / "sent" / "000000").is_symlink()
    assert (tmp_path / "sent" / "000000").read_text() == "/etc/passwd"


def test_a_bomb_ends_where_the_limit_is_whatever_sizes_it_states(tmp_path: Path):
    bomb = packed({"zeros": bytes(50_000_000)})
    raw = bytearray(bomb["archive"].content.read())
    assert len(raw) < 100_000
    for mark, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):  # the stated size of the file, in both headers
        place = raw.index(mark) + offset
        raw[place : place + 4] = (10).to_bytes(4, "little")
    for content in (bomb["archive"].content.getvalue(), bytes(raw)):  # type: ignore[attr-defined]
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        with pytest.raises(UsageError):
            uploads.store({"archive": Sent("x.zip", io.BytesIO(content))}, FOUR, folder, SMALL)
        assert sum(len(one) for one in stored(folder).values()) <= SMALL.unpacked
    with pytest.raises(TooMuch, match=r"its list of files has 0\.1 MB; at most 10 files"):
        uploads.store(packed({f"{i:06}": b"" for i in range(1000)}), FOUR, tmp_path / "list", SMALL)
    with pytest.raises(TooMuch, match="11 files; at most 10"):
        uploads.store(packed({f"{i}": b"" for i in range(11)}), FOUR, tmp_path / "many", SMALL)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({}, "no file was sent; expected t1, t1ce"),
        ({"t1": Sent("scan.dcm", io.BytesIO(b""))}, "t1: found 'scan.dcm'; expected a NIfTI file"),
        ({"archive": Sent("a.zip", io.BytesIO(b"Rar!"))}, "no zip archive that can be read"),
        (packed({}), "the archive is empty"),
        (packed({"a/t1.nii": b"1", "b/t1.nii": b"2"}), "two files called t1.nii"),
        (packed({"x": b"1"}) | {"t1": Sent("t1.nii", io.BytesIO(b""))}, "an archive and single scans"),
    ],
)
def test_what_is_no_patient_is_refused_in_words(sent: dict[str, Sent], words: str, tmp_path: Path):
    with pytest.raises(UsageError, match=words):
        uploads.store(sent, FOUR, tmp_path / "sent", SMALL)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_damaged_anywhere_is_refused_or_read(method: int, tmp_path: Path):
    good = packed({"x": bytes(range(256)) * 20}, method)["archive"].content.getvalue()
    for place in range(0, len(good), 7):
        content = good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :]
        with contextlib.suppress(UsageError):  # and nothing else
            uploads.store({"archive": Sent("x.zip", io.BytesIO(content))}, FOUR, tmp_path / f"{place}", SMALL)


def test_a_long_name_is_cut_and_a_full_disk_is_said(tmp_path: Path):
    uploads.store(packed({"n" * 300 + "_t1ce.nii.gz": b"1"}), FOUR, tmp_path / "long", SMALL)
    (name,) = stored(tmp_path)
    assert name.endswith("n_t1ce.nii.gz")
    for sent in (packed({"x": b"1"}), {"t1": Sent("t1.nii", io.BytesIO(b"1"))}):
        with pytest.raises(OutOfResource, match="GiB free"):
            uploads.store(sent, FOUR, tmp_path / f"{len(sent)}{next(iter(sent))}", Limits(spare=2**60))


def test_a_damaged_or_locked_archive_is_refused(tmp_path: Path):
    good = packed({"x": b"content " * 100})["archive"].content.getvalue()  # type: ignore[attr-defined]
    damaged = good[:60] + bytes([good[60] ^ 0xFF]) + good[61:]
    locked = bytearray(good)
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        locked[good.index(mark) + offset] |= 1  # says that it is encrypted
    for number, content in enumerate((damaged, good[:-30], bytes(locked))):
        with pytest.raises(UsageError, match="archive"):
            uploads.store({"archive": Sent("x.zip", io.BytesIO(content))}, FOUR, tmp_path / f"{number}", SMALL)


@pytest.mark.parametrize(
    ("text", "name"), [("P001", "P001"), ("../x y", "x-y"), ("", "patient"), ("…", "patient"), ("a" * 99, "a" * 64)]
)
def test_a_patients_name_can_be_a_folder(text: str, name: str):
    assert uploads.patient_name(text) == name

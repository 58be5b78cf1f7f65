"""Source: a file that somebody else made: whether it can be read, and under which licence its weights were published.

Nothing but a regular file is opened: a pipe would wait for a writer for ever.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Literal

from mri_vit.errors import UsageError

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
ABSENT = "no such file"
NIFTI = (".nii", ".nii.gz")
FORMATS = {  # endings of scans that are no NIfTI
    **{".mha": "MetaImage", ".mhd": "MetaImage", ".nrrd": "NRRD", ".nhdr": "NRRD", ".mnc": "MINC", ".mif": "MRtrix"},
    **{".mgz": "FreeSurfer's MGZ", ".mgh": "FreeSurfer's MGH", ".img": "a two-file image, .hdr and .img"},
    **{
        ".nii.bz2": "NIfTI in bzip2",
        ".nii.xz": "NIfTI in xz",
        ".nii.zst": "NIfTI in Zstandard",
        ".nii.zip": "NIfTI in a zip file",
    },
}
CONVERTERS = {  # by what a format's name begins with; each keeps the scan's place in the patient
    "FreeSurfer": "mri_convert, or nibabel",
    "NIfTI": "the program that packed it, then gzip",
    "MRtrix": "mrconvert",
    "MINC": "mnc2nii, or nibabel",
}
ERROR_WORDS = {errno.ENOENT: ABSENT, errno.ENOTDIR: ABSENT, errno.ELOOP: "a link that leads back to itself"}
UNUSABLE = {
    errno.ENAMETOOLONG: "a name that is too long for a file",
    errno.ELOOP: "a link that leads back to itself",
    errno.ENOTDIR: "a file stands where a folder is expected",
}
DICOM_START = 1024  # bytes by which a file is known as DICOM; its first elements take some 100
DICOM_ELEMENTS = 3  # that have to follow each other; every object of DICOM has more in group 8
DICOM_GROUPS = (0x02, 0x08, 0x10, 0x18, 0x20)  # of the first elements: file, identity, patient, acquisition, relation
VALUE_REPRESENTATIONS = {  # of these elements, DICOM PS3.5, 6.2
    *(b"AE", b"AS", b"CS", b"DA", b"DS", b"DT", b"IS", b"LO", b"PN", b"SH", b"ST", b"TM", b"UI", b"UL", b"US"),
    *(b"OB", b"SQ", b"UN", b"UT", b"LT"),
}
LONG_REPRESENTATIONS = {b"OB", b"SQ", b"UN", b"UT"}  # whose length has four bytes
UNDEFINED = 0xFFFFFFFF  # the length of a sequence that ends by a mark
MAX_PATH_LETTERS = 200  # characters of a path in a message; the start and the end of a longer one say which it is


def fault(path: Path) -> str:
    """Why a path is no file that can be read; "" where it is one. A folder or a file of DICOM is named as such."""
    try:
        mode = os.stat(path).st_mode
    except ValueError:
        return "no such file: its name holds a NUL character"
    except OSError as error:
        reason = ERROR_WORDS.get(error.errno or 0, f"cannot be read: {error.strerror}")
        return reason + _near(path) if reason == ABSENT else reason
    if stat.S_ISREG(mode):
        return other_format(path)
    kind = KINDS.get(stat.S_IFMT(mode), "something else")
    if stat.S_ISDIR(mode) and holds_dicom(path):
        return "a folder of DICOM files; expected one NIfTI file: convert the series first, for example with dcm2niix"
    if stat.S_ISDIR(mode) and path.name.lower().endswith(NIFTI):
        return "a folder that is named like a file; name the file in it"
    return f"{kind}; expected a file"


def other_format(path: Path) -> str:
    """What a scan is that its name says is no NIfTI, and how it becomes one; "" for any other file."""
    name = next((FORMATS[ending] for ending in FORMATS if path.name.lower().endswith(ending)), "")
    if not name:
        return ""
    by = next((tool for start, tool in CONVERTERS.items() if name.startswith(start)), "SimpleITK: WriteImage(ReadImage(…), …)")
    return f"{name}; expected NIfTI: convert it, for example by {by}"


def _near(path: Path) -> str:
    """What may be meant by the path of a file that is not there, as the end of a message."""
    if "\\" in str(path) or any(re.fullmatch("[A-Za-z]:", part) for part in path.parts):
        return ": a path as Windows writes it; write it with / from this system's root, or from the table"
    if path.name.startswith("file:") or "://" in str(path) or "file:" in path.parts:
        return ": an address; write a path"
    start = re.sub(r"(?i)\.nii(\.gz)?$", "", path.name)
    endings = (".nii", ".nii.gz", ".NII", ".NII.GZ") if start != path.name else ()
    there = next((end for end in endings if os.path.lexists(path.with_name(start + end))), "")
    if there:
        return f"; there is one of this name that ends in {there}"
    return "" if os.path.lexists(path.parent) else "; its folder is not there either"


def unusable_name(error: Exception) -> UsageError | None:
    """What is wrong with a path of a command or a study file that no system takes as a name; None for any other error."""
    if isinstance(error, OSError) and error.errno in UNUSABLE:
        return UsageError(f"{shown(str(error.filename))}: {UNUSABLE[error.errno]}; give another path")
    if isinstance(error, ValueError) and "null byte" in str(error):
        return UsageError("a path holds a NUL character; give another path")
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":  # how Python holds bytes of no UTF-8
        line = error.object[: error.start].splitlines()[-1:] + error.object[error.start :].splitlines()[:1]
        return UsageError(f"{shown(''.join(line))}: a name in this path is not UTF-8; rename it, or work in another folder")
    return None


def is_dicom(start: bytes) -> bool:
    """Whether a file that starts like this is DICOM, of which `DICOM_START` bytes are enough.

    Part 10 has 128 bytes of anything, then DICM. Archives and toolkits of old leave out the 128 bytes, or all before the
    data elements, whose tags rise from group 2 or 8 on, each with a length and in most encodings a type (DICOM PS3.5, 7.1).
    """
    bare = _elements(start, "little", True) or _elements(start, "little", False) or _elements(start, "big", True)
    return bare or b"DICM" in (start[128:132], start[:4])


def _elements(start: bytes, order: Literal["little", "big"], explicit: bool) -> bool:
    """Whether these bytes are `DICOM_ELEMENTS` data elements, one behind the other."""
    at, last = 0, (0, 0)
    for number in range(DICOM_ELEMENTS):
        tag = (int.from_bytes(start[at : at + 2], order), int.from_bytes(start[at + 2 : at + 4], order))
        kind = start[at + 4 : at + 6]
        if tag <= last or tag[0] not in (DICOM_GROUPS if number else DICOM_GROUPS[:2]):
            return False
        if explicit and kind not in VALUE_REPRESENTATIONS:
            return False
        first, width = (4, 4) if not explicit else (8, 4) if kind in LONG_REPRESENTATIONS else (6, 2)
        value = at + first + width
        length = int.from_bytes(start[at + first : value], order)
        if length == UNDEFINED:
            return number > 0
        if length % 2 or length > len(start):  # values are padded to an even length, and the first ones are short
            return False
        at, last = value + length, tag
    return True


def shown(path: Path | str) -> str:
    """A path as a message has it: shortened where it is absurdly long."""
    text = str(path)
    return text if len(text) <= MAX_PATH_LETTERS else f"{text[: MAX_PATH_LETTERS // 2]} … {text[-MAX_PATH_LETTERS // 2 :]}"


def holds_dicom(folder: Path) -> bool:
    """Whether one of the first files in a folder is DICOM."""
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(32), strict=False):  # a series names all its files alike; a few are enough
                if entry.name == "DICOMDIR" or entry.name.lower().endswith((".dcm", ".ima")):
                    return True
                if entry.is_file():
                    with open(entry.path, "rb") as file:
                        if is_dicom(file.read(DICOM_START)):
                            return True
    except OSError:
        return False
    return False


LICENCE_NOT_STATED = "not stated"
OWN_LICENCE = "own"  # of weights that this package has learned from random ones: whoever owns the run decides
# Words of licences that do not allow commercial use: Creative Commons' NC, and how others say it; not the Academic Free License.
NON_COMMERCIAL = re.compile(
    r"\bnc(?![a-z])|\b(non|not for|no)[- ]?commercial|\bresearch([ -](use|purposes?))?[ -]only|\bonly for research"
    r"|\bacademic[ -](use|purposes?|research|only|non)"
)


def stated_licence(licence: str | None) -> str:
    """The licence, or that none is stated."""
    return (licence or "").strip() or LICENCE_NOT_STATED


def is_non_commercial(licence: str) -> bool:
    """Whether a licence says that it does not allow commercial use: CC-BY-NC-4.0, "academic use"."""
    return bool(NON_COMMERCIAL.search(licence.lower().replace("_", "-")))


def licence_text(licence: str | None) -> str:
    """For a sentence about weights: licence CC-BY-4.0; licence not stated."""
    return f"licence {stated_licence(licence)}"


def licence_caution(file: str, licence: str) -> str:
    """What whoever uses the weights of `file` has to know of their licence; "" where nothing speaks against them."""
    if licence == LICENCE_NOT_STATED:
        return f"{file}: the licence of these weights is not stated; ask who made them whether they may be used and shared"
    if is_non_commercial(licence):
        return f"{file}: the licence of these weights, {licence}, does not allow commercial use, nor of what is made from them"
    return ""

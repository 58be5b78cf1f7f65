"""Bad and unusual inputs, row by row: what is put in, the exit code it gets, and words that say why. No input is modified.

A row spoils a copy of a tiny sound study (`made/inputs.py`) and runs a verb on it; without one, `mri-vit check`.
"""

from __future__ import annotations

import ast
import errno
import gzip
import os
import re
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from made import spoiled as made
from made.inputs import ARRAY, Desk, Make, checked, copied, ended, nifti, patched, sound

from mri_vit.cli import exit_code

GZIPPED = gzip.compress(nifti(), mtime=0)
SKEWED = np.array([[1.0, 0.2, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
MAN = {"PatientID": "ANONYMOUS", "PatientName": "", "PatientSex": "M", "PatientAge": "061Y", "StudyDate": "19000101"}
WOMAN = MAN | {"PatientSex": "F", "PatientAge": "034Y"}
NOBODY = {"PatientID": "", "PatientName": ""}
MORNING, EVENING = {"StudyTime": "080000"}, {"StudyTime": "190000"}
T1CE = EVENING | {"channels": ["t1ce"]}
EVERY_SECOND = slice(0, None, 2)
BRATS = [f"BraTS2021_0000{n}/BraTS2021_0000{n}_t1.nii.gz" for n in (1, 2)]
OWN = {"clinical.csv": "Patient;Age;MGMT\n1;61,5;1\nBraTS2021_00002;50;0\nH1;50;0\n"}
CLASSES = 'kind = "multiclass"\nclasses = ["gbm", "astro", "oligo"]'
NUMBERS = 'kind = "continuous"\nunit = "%"'
RGB = np.zeros((4, 4, 4), np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")]))


def own_uid(number: int) -> str:
    return f"1.9.{number}"


def same_uid(number: int) -> str:
    return "1.9"


class Row(NamedTuple):
    number: int
    given: str
    code: int
    words: str  # a regular expression, in what is printed or in excluded.csv
    make: Make


# fmt: off
ROWS = [
    Row(1, "an empty file", 3, "not NIfTI", made.scan(b"")),
    Row(1, "a file of random bytes", 3, "not NIfTI", made.scan(bytes(range(256)) * 9)),
    Row(2, "a .nii cut off", 3, "holds 1,350 bytes where its header announces 1,360", made.scan(nifti()[:-10])),
    Row(3, "a .nii.gz cut off", 3, r"ends early, after [\d,]+ of 1,360 bytes", made.scan(GZIPPED[:-30], "bad.nii.gz")),
    Row(4, "a .nii.gz with a wrong CRC", 3, "damaged gzip", made.scan(GZIPPED[:-8] + b"\0" * 4 + GZIPPED[-4:], "bad.nii.gz")),
    Row(5, "a .gz that is none", 3, r"named .gz, but not gzip \(starts with", made.scan(nifti(), "bad.nii.gz")),
    Row(6, "bytes behind the voxels", 3, "holds 1,362 bytes", made.scan(nifti() + b"xx")),
    Row(6, "bytes behind the gzip stream", 3, "damaged gzip", made.scan(GZIPPED + b"more", "bad.nii.gz")),
    Row(7, "a Git LFS pointer", 3, "a Git LFS or annex pointer", made.scan(b"version https://git-lfs.github.com/spec/v1\n")),
    Row(7, "an annex pointer", 3, "a Git LFS or annex pointer", made.scan(b"/annex/objects/SHA256E-s7\n", "bad.nii.gz")),
    Row(8, "dimensions of 32767³", 3, "is refused", made.scan(patched(40, "<8h", 3, 32767, 32767, 32767, 1, 1, 1, 1))),
    Row(8, "a gzip bomb", 3, "unpacks to more than", made.scan(gzip.compress(nifti() + bytes(10**7)), "bad.nii.gz")),
    Row(9, "a dimension of 0", 3, "not positive", made.scan(patched(40, "<8h", 3, 9, 8, 0, 1, 1, 1, 1))),
    Row(9, "a negative dimension", 3, "not positive|unreadable", made.scan(patched(40, "<8h", 3, -9, 8, 7, 1, 1, 1, 1))),
    Row(10, "a fourth dimension of 1", 0, r"squeezed from \(9, 8, 7, 1\)", made.read_alike(nifti(ARRAY[..., None]))),
    Row(11, "a fourth dimension of 2", 3, "expected one 3D volume", made.scan(nifti(np.stack([ARRAY, ARRAY], -1)))),
    Row(12, "a single slice", 3, "expected one 3D volume", made.scan(nifti(ARRAY[..., :1]))),
    Row(13, "voxels in colour", 3, "expected one real number each", made.scan(nifti(RGB))),
    Row(13, "complex voxels", 3, "expected one real number each", made.scan(nifti(ARRAY.astype(np.complex64)))),
    Row(14, "a bitpix that contradicts the type", 3, "bitpix 32 contradicts", made.scan(patched(72, "<h", 32))),
    Row(15, "a NaN and an infinite voxel", 3, "2 of 504 voxels are NaN or infinite", made.scan(nifti(made.with_nan()))),
    Row(16, "a slope of NaN", 0, "scl_slope NaN read as 1", made.read_alike(patched(112, "<ff", np.nan, 0))),
    Row(16, "a slope of 0", 0, "scl_slope 0 read as 1", made.read_alike(patched(112, "<ff", 0, 0))),
    Row(17, "a slope of 1e30", 3, "scl_slope 1e.30 is absurd", made.scan(patched(112, "<ff", 1e30, 0))),
    Row(18, "a constant image", 3, "every voxel is 7: an empty image", made.scan(nifti(np.full_like(ARRAY, 7)))),
    Row(20, "a big-endian file", 0, "", made.read_alike(nifti(big_endian=True))),
    Row(21, "neither sform nor qform", 3, "sform and qform are both unset", made.scan(patched(252, "<2h", 0, 0))),
    Row(22, "an sform 3 mm off the qform", 3, r"disagree by 3\.00 mm: sform\n(.|\n)*qform", made.scan(made.moved_qform())),
    Row(23, "skewed axes", 3, r"axes are skewed by 0\.2", made.scan(made.sform_only(SKEWED))),
    Row(24, "a singular affine", 3, "singular", made.scan(made.sform_only(np.ones((4, 4))))),
    Row(25, "pixdim that contradicts the affine", 3, "pixdim .* contradicts the affine", made.scan(made.other_pixdim())),
    Row(26, "voxels of 0.01 mm", 3, "voxel spacing .* expected 0.1 to 10", made.scan(made.sform_only(np.eye(4) / 100))),
    Row(26, "voxels of 20 mm", 3, "voxel spacing .* expected 0.1 to 10", made.scan(made.sform_only(np.eye(4) * 20))),
    Row(27, "left-handed axes", 0, "", made.read_alike(made.laid("LAS"))),
    Row(28, "each of 48 orientations", 0, "48 alike", made.read_alike(*map(made.laid, made.ORIENTATIONS))),
    Row(31, "one scan under two columns", 3, "the same scan is listed twice .p00 t1, p00 t2.", made.cell(t2="p00/t1.nii.gz")),
    Row(32, "no FLAIR", 3, "p00: no scan: flair; the patient will be excluded", made.cell(flair="")),
    Row(32, "no FLAIR, which the study allows", 0, "no scan: flair; it is left empty", made.allowed_to_lack_flair),
    Row(32, "a scan that is not there", 3, "p00: t1: no such file", made.cell(t1="gone.nii.gz")),
    Row(32, "no tumour mask to cut around", 3, "p00: no tumour mask, .* will be excluded", made.cut_around_tumours),
    Row(33, "a brain mask on another grid", 3, "is on another grid than the T1ce", made.mask(nifti(ARRAY[1:]))),
    Row(34, "a .hdr without its .img", 3, "a .hdr of a two-file NIfTI", made.scan(patched(344, "4s", b"ni1\0"))),
    Row(35, "DICOM without a slice", 3, r"missing slice: from 18\.25 to 24\.25 mm", made.dicom_steps(0, 1, 2, 4, 5, 6)),
    Row(36, "DICOM with two orientations", 3, "mixed orientation, slices 11.5 degrees apart", made.dicom_turned),
    Row(37, "DICOM with a slice twice", 3, "duplicate slice: 1 of 6", made.dicom_steps(0, 1, 2, 2, 3, 4)),
    Row(38, "DICOM that no codec decodes", 3, r"\(1\.2\.840[.\d]*\); no codec here decodes it", made.dicom_mpeg),
    Row(39, "a DICOMDIR that points outside", 6, "lists a file outside", made.dicomdir_outside),
    Row(41, "the id ../../x", 2, "row 2: patient id '../../x'; expected", made.patient("../../x")),
    Row(41, "the id /etc/x", 2, "row 2: patient id '/etc/x'; expected", made.patient("/etc/x")),
    Row(41, "the id C:\\x", 2, "row 2: patient id .* no device name", made.patient("C:\\x")),
    Row(42, "the id CON", 2, "row 2: patient id 'CON'; .* no device name", made.patient("CON")),
    Row(42, "an id with NUL", 2, r"row 2: patient id 'a\\x00b'", made.patient("a\0b")),
    Row(42, "an id of 300 characters", 2, "row 2: patient id .*; expected 1 to 64 letters", made.patient("x" * 300)),
    Row(42, "an id with a right-to-left mark", 2, r"row 2: patient id 'a\\u202eb'", made.patient("a\u202eb")),
    Row(42, "no id", 2, "row 2: patient id ''", made.patient("")),
    Row(43, "ids that differ by case", 2, "row 3: patient id 'P00' repeats 'p00' in row 2", made.cell(1, patient="P00")),
    Row(43, "an id of full-width letters", 2, "row 3: patient id", made.cell(1, patient="ｐ00")),
    Row(44, "a patient twice", 2, "row 3: patient id 'p00' repeats 'p00' in row 2", made.cell(1, patient="p00")),
    Row(44, "a visit twice", 2, "row 3: patient id 'p00_1' repeats 'p00_1' in row 2", made.visit_twice),
    Row(45, "the ids 007 and 1e5", 3, r"2 patients: t1: no such file \(007, 1e5\)", made.ids_of_digits),
    Row(46, "an id that is a script", 2, "row 2: patient id '<script>'", made.patient("<script>")),
    Row(47, "a cell that is a formula", 2, r"row 2: column age: '=cmd\|x' looks like a .* formula", made.cell(age="=cmd|x")),
    Row(48, "a missing column", 2, "no column 'mgmt'; the nearest one is 'mgmt_status'", made.header("mgmt", "mgmt_status")),
    Row(49, "a byte-order mark, CRLF and ;", 0, "12 patients", made.spreadsheet("utf-8-sig")),
    Row(49, "UTF-16", 0, "12 patients", made.spreadsheet("utf-16")),
    Row(49, "Latin-1", 2, "neither UTF-8 nor UTF-16", made.latin),
    Row(50, "a row with a cell too many", 2, "row 2: 11 cells; expected 10", made.header(",0\n", ",0,x\n")),
    Row(51, "label 2", 2, "row 2: column mgmt: '2'; expected 0, 1, or empty when missing", made.cell(mgmt="2")),
    Row(51, "label yes", 2, "row 2: column mgmt: 'yes'; expected 0, 1, or empty when missing", made.cell(mgmt="yes")),
    Row(51, "label 0.5", 2, "row 2: column mgmt: '0.5'; expected 0, 1, or empty when missing", made.cell(mgmt="0.5")),
    Row(51, "a number where classes are named", 2,
        r"rows 3, .*: column added: .3.; expected one of gbm, astro, oligo, .* numbers are kind = .continuous",
        made.labelled(CLASSES, "gbm", "3", "oligo")),
    Row(51, "a class where numbers are", 2,
        "rows 2, .*: column added: .high.; expected a number in %.* names of classes are kind",
        made.labelled(NUMBERS, "high", "3")),
    Row(51, "a misspelled class", 2, r"rows 3, .*: column added: .astr0.; .* is it 'astro'\?",
        made.labelled(CLASSES, "gbm", "astr0", "oligo")),
    Row(51, "a code for a missing number", 2, "row 2: column added: .*999 stands for a missing value, .* leave the cell empty",
        made.labelled(NUMBERS, "999", *map(str, range(10, 21)))),
    Row(52, "an empty label and one NA", 0, "mgmt 10, os 12", made.two_missing_labels),
    Row(53, "an endpoint that nobody has", 0, "no patient has a label of mgmt, so mgmt is not trained", made.cell(-1, mgmt="")),
    Row(54, "a patient without any label", 0, r"1 patients?: no label is known; .* \(p00\)", made.unlabelled),
    Row(55, "time -3", 2, "row 2: column os_days: '-3'; expected days", made.cell(os_days="-3")),
    Row(55, "time inf", 2, "row 2: column os_days: 'inf'; expected days", made.cell(os_days="inf")),
    Row(55, "time 0 with an event", 2, "row 2: column os_days: an event on day 0", made.cell(os_days="0", os_event="1")),
    Row(56, "a time without event", 2, "row 2: os_days and os_event must both be filled", made.cell(os_event="")),
    Row(57, "a site without any event", 0, "os: 1 of 3 .* no event; C is undefined there", made.sites("os_event", "0")),
    Row(58, "days and months mixed", 0, r"os_days: \d+ of 120 times lie around \d+.* months", made.months_mixed),
    Row(59, "a patient's visits in two folds", 2, "sits in two folds: visits of one patient stay together", made.visits_apart),
    Row(60, "a scan under two ids", 2, "the same scan is listed twice .p00 t1, p01 t1.", made.cell(1, t1="p00/t1.nii.gz")),
    Row(60, "a copy of a scan under two ids", 2, "the same scan is listed twice", made.copied_scan),
    Row(62, "more folds than the rarer class", 2, "mgmt: 7 folds, but 6 .* and 6 with 0", made.settings("= 2\n[[", "= 7\n[[")),
    Row(62, "a class that no patient has", 2, "12 patients with 1 and 0 with 0; no number of folds", made.cell(-1, mgmt="1")),
    Row(62, "a class of one patient", 2, "added: .*1 .*oligo", made.labelled(CLASSES, *["gbm", "astro"] * 5, "gbm", "oligo")),
    Row(62, "a class that the table has not", 0, "added: no patient .*oligo", made.labelled(CLASSES, "gbm", "astro")),
    Row(63, "a site with one class", 0, "mgmt: 1 of 3 .* only one class; its AUC is undefined", made.sites("mgmt", "1")),
    Row(64, "a constant prediction", 0, r"0\.5\b", made.constant_scores),
    Row(65, "a malicious pickle as weights", 6, "weights cannot be read", made.malicious),
    Row(66, "weights cut off", 6, "weights cannot be read", made.weights_cut_off),
    Row(67, "weights of another architecture", 2, r"its model\.dim is 32, the study's 16", made.weights_of_another_network),
    Row(68, "a run resumed with other settings", 2, "train.learning_rate: .* then, .* now", made.resumed_otherwise),
    Row(68, "a run resumed with another table", 2, "p01 was in it.*p00: mgmt was '0', and is '1'", made.resumed_with_others),
    Row(69, "a setting of the wrong type", 2, r"line \d+: .*folds: expected an integer", made.settings("= 2\n[[", '= "!!x"\n[[')),
    Row(69, "a kind of another name", 2, r"line \d+: .*kind: expected 'binary', ", made.settings('"binary"', '"several"')),
    Row(70, "an unknown setting", 2, "unknown key 'train.fold'; the nearest .* 'folds'", made.settings("folds", "fold")),
    Row(71, "an output that holds the input", 2, "holds the input", made.output(".")),
    Row(71, "an output that is a link to itself", 6, "is a link|leads back", made.output_link("run")),
    Row(72, "an output that is a link elsewhere", 6, "is a link", made.output_link("elsewhere")),
    Row(73, "an output that nobody may write", 4, "/proc/run cannot be written", made.output("/proc/run")),
    Row(74, "a full disk", 4, "disk is full: 400 MB needed, .* free; make room", made.raising(OSError(errno.ENOSPC, "No space"))),
    Row(75, "no memory", 4, "out of memory: .* needed at once, .* free; try", made.raising(MemoryError("allocate 9.0 TiB"))),
    Row(77, "Ctrl-C", 130, "the same command continues", made.raising(KeyboardInterrupt())),
    Row(77, "SIGTERM", 143, "", made.terminated),
    Row(78, "a folder that another run holds", 5, "is held by another run .process 1 on here", made.held),
    Row(79, "a stale lock", 3, "not NIfTI", made.stale_lock),
    Row(80, "modification times of 1970", 0, "12 patients", made.of_1970),
    Row(81, "spaces, Hangul, emoji and % in paths", 0, "12 patients", made.moved_to("스캔 %41 🧠 x/study")),
    Row(82, "two people under ANONYMOUS", 3, "0 patients.* differs .* in age and sex", made.dicom_studies(MAN, WOMAN)),
    Row(82, "two studies without any id", 3, "0 patients.* may be of several people", made.dicom_studies(NOBODY, NOBODY)),
    Row(83, "a morning's and an evening's study", 0, "1 patient, 2 visits", made.dicom_studies(MORNING, EVENING)),
    Row(83, "an evening's study of T1ce alone", 0, "1.2.2: no scan .* 1.2.1 .* 1 visit;", made.dicom_studies(MORNING, T1CE)),
    Row(84, "T1 WITHOUT CONTRAST, agent", 0, "t1 1, t1ce 0", made.dicom_t1("T1 AX WITHOUT CONTRAST", agent="GADAVIST")),
    Row(84, "T1 ohne KM, agent", 0, "t1 1, t1ce 0", made.dicom_t1("T1 ohne KM", agent="Gadovist")),
    Row(84, "T1 sans gado", 0, "t1 1, t1ce 0", made.dicom_t1("T1 sans gado")),
    Row(84, "T1 조영전, agent", 0, "t1 1, t1ce 0", made.dicom_t1("T1 조영전", agent="DOTAREM")),
    Row(84, "T1 of the posterior fossa", 0, "t1 1, t1ce 0", made.dicom_t1("SAG T1 POST FOSSA")),
    Row(84, "T1 before an operation, agent", 0, "t1 0, t1ce 1", made.dicom_t1("T1 AX PRE OP STEALTH", agent="MULTIHANCE")),
    Row(84, "T1 PRE in an exam W CONTRAST", 0, "t1 1, t1ce 0", made.dicom_t1("T1 PRE", protocol="BRAIN TUMOR W CONTRAST")),
    Row(84, "T1 pre and post", 3, "T1 or T1ce is undecided of series U.*choices", made.dicom_t1("T1 pre and post", agent="GD")),
    Row(84, "two T1 alike", 3, "T1 or T1ce is undecided of series U.*, U.*choices", made.dicom_t1("AX T1", "AX T1")),
    Row(85, "every second slice gone", 3, "6 lie .* expected 11", made.dicom_thinned(EVERY_SECOND, SpacingBetweenSlices=3)),
    Row(85, "and without a spacing", 3, "by 2 from each of 6 .* expected 11", made.dicom_thinned(EVERY_SECOND)),
    Row(86, "an end cut off", 3, "7 images; expected 12", made.dicom_thinned(slice(7), ImagesInAcquisition=12)),
    Row(87, "files without preamble", 0, "1 patient, 1 visit; scans: t1 1", made.dicom_files(lambda old, _: old[132:])),
    Row(88, "every second without", 0, "t1 1, t1ce 1", made.dicom_files(lambda old, n: old[132 * (n % 2) :])),
    Row(88, "one file cut short", 3, "files .* cannot be read: 1", made.dicom_files(lambda old, n: old if n else old[132:250])),
    Row(89, "a series UID per slice", 0, "24 images has a SeriesIn.* 1 patient,", made.dicom_uids(SeriesInstanceUID=own_uid)),
    Row(89, "one series UID for all", 0, "4 sequences have .* 1 patient,", made.dicom_uids(SeriesInstanceUID=same_uid)),
    Row(89, "one image UID for all", 0, "24 different files have .* 1 patient,", made.dicom_uids(SOPInstanceUID=same_uid)),
    Row(90, "an age of >89", 0, r"row 7: column age: 1 of 12 .*'>89'.* column is not read", made.cell(5, age=">89")),
    Row(90, "an age of 061Y", 0, r"row 7: column age: 1 of 12 .*'061Y'.* column is not read", made.cell(5, age="061Y")),
    Row(90, "an age of 61,5", 0, r"row 7: column age: 1 of 12 .*'61,5'.* read as a point", made.cell(5, age="61,5")),
    Row(91, "a column without a name", 0, "not read a column without a name .it has no name", made.column("", "x{}".format)),
    Row(91, "a column that counts the rows", 0, r"not read case .it numbers the rows from 0 in", made.column("case", str)),
    Row(92, "ages of -1, -999 and 999", 0, "rows 2, 3, 4: column age: 3 of 12 .* unknown", made.ages("-1", "-999", "999")),
    Row(92, "and at import", 3, r"no rule for '-1' .* row 2, column age.; age is miss", made.labels_under({"00012": "-1"})),
    Row(93, "ids whose zeros are lost", 2, r"12 is in the table, 00012 among .* zeros lost\?", made.labels_under({"12": "61"})),
    Row(93, "joined on request", 0, "ids of the table joined .*: 1", made.labels_under({"12": "61"}, "--join-similar-ids")),
    Row(93, "1, 001 and 0001", 0, "the ids 0001, 001, 1 differ only in form", made.ids_of_one_form),
    Row(94, "BIDS with acq-postgd alone", 0, "t1 0, t1ce 1, t2 1", made.bids_t1w("_acq-postgd")),
    Row(94, "BIDS with ce-none", 0, "t1 1, t1ce 1, t2 1", made.bids_t1w("_ce-none", "_acq-post")),
    Row(94, "BIDS with labels that disagree", 3, "does not show whether it is T1 or T1ce", made.bids_t1w("_acq-postgd_ce-none")),
    Row(95, "folders of BraTS beside a table of one's own", 3, r"mgmt 2 0 .*read by the rules of plain",
        made.folders("auto", *BRATS, tables=OWN)),
    Row(95, "and beside other folders", 0, r"3 patients.*mgmt 3 0 .*1 patient \(H1\) is",
        made.folders("auto", *BRATS, "H1/t1.nii", tables=OWN)),
    Row(95, "the same where BraTS alone is asked for", 3, "mgmt 2 0 .*import auto",
        made.folders("brats2021", *BRATS, "H1/t1.nii", tables=OWN)),
    Row(95, "a table that names no patients", 3, "not read: MGMT, but no patient_id",
        made.folders("auto", *BRATS, tables={"c.csv": "who,MGMT\nx,1\n"})),
    Row(95, "patients deeper than they are read", 3, "import the folder itself",
        made.folders("auto", *BRATS, "H1/a/b/t1.nii", tables=OWN)),
    Row(96, "a workbook", 0, "12 patients.* mgmt 12, os 12", made.workbook()),
    Row(96, "a workbook named .csv", 0, "12 patients", made.workbook(name="cohort.csv")),
    Row(96, "a workbook with two sheets", 2, r"2 sheets \('Sheet', 'codes'\); .* CSV UTF-8", made.workbook(made.two_sheets)),
    Row(96, "a workbook with a formula that has no result", 2, "row 2: column age: a formula whose",
        made.workbook(lambda s: s.__setitem__("F2", "=30+1"))),
    Row(96, "a workbook with an error", 2, "row 3: column age: '#N/A' is an error",
        made.workbook(lambda s: s.__setitem__("F3", "#N/A"))),
    Row(96, "a workbook with merged cells", 2, "row 2: column sex: cells G2:G3 are merged",
        made.workbook(lambda s: s.merge_cells("G2:G3"))),
    Row(96, "a workbook with a date for the id 1-2", 2, "row 2: patient id '2026-02-01' is a date in",
        made.workbook(lambda s: s.__setitem__("A2", date(2026, 2, 1)))),
    Row(96, "a workbook with a hidden row", 0, "1 rows are hidden",
        made.workbook(lambda s: setattr(s.row_dimensions[4], "hidden", True))),
    Row(96, "an old workbook", 2, "before 2007 .*save it as CSV UTF-8",
        made.table_of(bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512), "cohort.xls")),
    Row(96, "an OpenDocument spreadsheet", 2, "OpenDocument .*save it as CSV UTF-8",
        made.table_of(made.archive("mimetype", "content.xml"), "cohort.ods")),
    Row(97, "a first line sep=;", 0, "12 patients", made.rewritten(lambda text: "sep=;\n" + text.replace(",", ";"))),
    Row(97, "blank columns and lines", 0, "12 patients",
        made.rewritten(lambda text: "".join(f",{line},,\n" for line in (*text.splitlines(), ",,,")))),
    Row(97, "UTF-16 without a mark", 0, "12 patients", made.rewritten(lambda text: text, "utf-16-le")),
    Row(97, "a decimal comma among semicolons", 0, "comma is read as the decimal point in age",
        made.rewritten(lambda text: text.replace(",", ";").replace(";40;", ";40,5;"))),
    Row(97, "a decimal comma among commas", 2, "11 cells; expected 10; a number with a decimal comma",
        made.rewritten(lambda text: text.replace(",40,", ",40,5,"))),
    Row(97, "a path in quotation marks, and one with back-slashes", 0, "12 patients", made.quoted_path),
    Row(97, "a path of Windows", 3, "a path as Windows writes it", made.cell(t1="C:\\scans\\t1.nii.gz")),
    Row(97, ".nii for .nii.gz", 3, r"ends in \.nii\.gz", made.cell(t1="p00/t1.nii")),
    Row(97, "an id that a spreadsheet shortened", 2, "patient id '1E.05'; .*shortens numbers", made.patient("1E+05")),
    Row(98, "a scan in MetaImage's format", 3, "MetaImage; expected NIfTI: convert it",
        made.scan(b"ObjectType = Image\n", "bad.mha")),
    Row(98, "a scan in FreeSurfer's format", 3, "MGZ; expected NIfTI: convert it", made.scan(b"\x1f\x8b", "bad.mgz")),
    Row(98, "a folder named like a file, in the table", 3, "named like a file; name the file in it",
        made.folder_named_like_a_file),
    Row(98, "folders named like files", 0, "scans: t1 1, t1ce 1",
        made.folders("auto", "P1/P1_t1.nii/P1_t1.nii", "P1/P1_t1ce.nii/0001.nii")),
    Row(98, "names in capital letters", 0, "scans: t1 1, t1ce 1", made.folders("auto", "P1/T1.NII.GZ", "P1/T1CE.NII")),
    Row(98, "scans in other formats", 3, r"left out: 1 × t1ce: NRRD; expected NIfTI",
        made.folders("auto", "P1/t1.nii", "P1/t1ce.nrrd")),
    Row(98, "a folder's name that is not UTF-8", 3, "1 patient,.*not UTF-8; rename it",
        made.folders("auto", "P1/t1.nii", os.fsdecode(b"P\xe9/t1.nii"))),
    Row(100, "a pixdim[0] of 0", 0, r"pixdim.0. 0 read as 1", made.read_alike(made.qfac_of_zero())),
    Row(100, "an unused qform of NaN", 0, "the sform .* alone", made.read_alike(made.unused_qform())),
    Row(101, "metres", 0, "from metre to mm", made.read_alike(made.in_unit(1, 1e-3))),
    Row(101, "micrometres", 0, "from micrometre to mm", made.read_alike(made.in_unit(3, 1e3))),
    Row(102, "a header extension of 1.6 MB", 0, "1 alike", made.read_alike(made.extended(1_600_000))),
    Row(102, "a vox_offset of 0", 0, "vox_offset 0 read as 352", made.read_alike(patched(108, "<f", 0))),
    Row(102, "gzip under the name .nii", 0, "read as gzip", made.read_alike(GZIPPED)),
    Row(102, "a tumour mask with a slope of 2^-32", 0, "12 patients", made.mask_of_tiny_slope),
    Row(105, "a patient called scans", 0, "12 patients", made.patient("scans")),
    Row(105, "folders called like files of the output", 0, "2 patients",
        made.folders("auto", "scans/t1.nii", "cohort.csv/t1.nii")),
    Row(106, "more devices than there are GPUs", 2, r"train.devices is 64, and this process sees \d+ GPU", made.devices(64)),
]
SYNTHETIC = "a_real_patient_is_refused_to_a_run_of_synthetic_ones_and_marked_everywhere_where_asked_for"
SHOWN_BY = [  # rows that take a whole head or several processes, by the tests that show them
    (19, "negative intensities", "prepare/test_patient", "negative_background_is_found_from_the_border_and_warned_of"),
    (29, "a scan that misses the brain", "prepare/test_patient", "a_field_of_view_that_misses_much_of_the_brain_is_refused"),
    (30, "one scan mirrored", "prepare/test_quality", "a_mirrored_scan_another_heads_scan_and_a_shaded_one_are_told_apart"),
    (33, "a brain mask with other labels", "prepare/test_patient", "a_brain_mask_that_does_not_fit_is_refused"),
    (47, "text that starts with + or -", "data/test_sheet",
        "text_that_a_spreadsheet_takes_for_a_formula_is_prefixed_and_read_back"),
    (105, "a patient called scans, predicted", "finished/test_predict",
        "patients_whose_names_are_those_of_files_of_the_output_are_predicted_under_their_names"),
    (40, "personal data in NIfTI headers", "test_study", "no_header_text_and_no_folder_of_a_scan_reaches_what_others_read"),
    (40, "and in DICOM", "importers/test_import_dicom", "no_name_date_id_uid_or_text_of_a_header_is_in_any_output"),
    (61, "a near-duplicate", "qc/test_check", "a_copy_under_another_name_is_flagged_on_both_and_a_visit_is_not"),
    (64, "a loss of NaN", "run/test_resource", "a_loss_that_is_no_number_ends_with_7_and_the_remedy"),
    (104, "a synthetic run asked for real patients", "finished/test_predict", SYNTHETIC),
    (107, "pages of many patients", "report/pages/test_designs", "a_table_of_many_patients_has_their_pages_on_request_alone"),
    (76, "a worker killed", "run/test_executor", "one_who_is_killed_is_named_and_all_others_are_done_whoever_worked_beside"),
    (99, "a head that looks stripped", "prepare/test_brain", "a_real_head_is_never_taken_for_stripped_whatever_was_done_to_it"),
    (103, "a T2 scan as tumour mask", "prepare/test_patient", "a_t2_scan_as_tumour_mask_excludes_with_its_volume_and_share"),
    (103, "a brain or probabilities", "prepare/test_tumour", "a_scan_a_brain_and_probabilities_are_no_tumour_mask"),
]
# fmt: on
BY_HEADERS = {1, 2, 3, 5, 6, 7, 8, 9, 11, 12, 13, 14, 21, 22, 23, 24, 25, 26, 34}  # what `check` sees without the voxels
BY_VOXELS = {"bytes behind the gzip stream", "a gzip bomb"}  # of these rows: what only reading to the end tells


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound(tmp_path_factory.mktemp("sound") / "study")


@pytest.fixture
def desk(template: Path, tmp_path: Path) -> Desk:
    return copied(template, tmp_path / "study")


def named(row: Row) -> str:
    return f"{row.number} {row.given}"


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("row", ROWS, ids=named)
def test_an_input_gets_its_exit_code_and_is_told_why(row: Row, desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = row.make(desk)
    before = desk.files()
    code = exit_code.of(found) if callable(found) else ended(*(found if isinstance(found, list) else ["check", desk.study]))
    printed = capsys.readouterr()
    said = " ".join((printed.out + printed.err).split()) + desk.excluded()
    assert code == row.code, said
    assert re.search(row.words, said), said
    assert "Traceback" not in said
    after = desk.files()
    assert {name: after.get(name) for name in before} == before  # inputs are never modified
    assert not list(desk.folder.parent.glob("stolen"))


def test_every_row_has_its_entry():
    shown = {number for number, *_ in SHOWN_BY}
    assert {row.number for row in ROWS} | shown == set(range(1, 108))


@pytest.mark.parametrize(("number", "given", "file", "test"), SHOWN_BY)
def test_a_row_that_is_shown_elsewhere_is_shown_there(number: int, given: str, file: str, test: str):
    tree = ast.parse(Path(__file__).parent.joinpath(f"{file}.py").read_text(encoding="utf-8"))
    assert f"test_{test}" in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("row", [row for row in ROWS if row.number in BY_HEADERS and row.given not in BY_VOXELS], ids=named)
def test_what_a_header_tells_is_told_by_check_before_anything_is_prepared(row: Row, desk: Desk, capsys):
    row.make(desk)
    found = checked(desk, capsys)
    assert found["exit_code"] == 3
    assert found["excluded"] == ["p00"]
    (fault,) = [one for one in found["findings"] if one["severity"] == "excluded"]
    assert re.search(row.words, fault["said"])
    assert fault["files"][0].startswith("bad.nii")

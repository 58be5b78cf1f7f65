"""Strict reading: what is damaged is named, what is unusual but right is read, and nothing moves."""

from __future__ import annotations

import gzip
import itertools
import re
import struct
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from nibabel.nifti1 import Nifti1Extension
from scipy.spatial.transform import Rotation

from mri_vit.data import nifti, volume
from mri_vit.data.volume import Volume, canonical, laid_as, read, read_mask, resample, write
from mri_vit.errors import UnusablePatient

AFFINE = np.array([[-0.9, 0.05, 0.3, 80.0], [0.06, 0.88, 0.9, -100.0], [0.05, -0.1, 5.3, -40.0], [0, 0, 0, 1]])
U, _, VT = np.linalg.svd(AFFINE[:3, :3] / np.linalg.norm(AFFINE[:3, :3], axis=0))
AFFINE[:3, :3] = (U @ VT) * [0.9, 0.9, 5.5]  # oblique, thick slices, no skew
ARRAY = np.random.default_rng(0).integers(0, 900, (9, 8, 7)).astype(np.int16)


def image(array: np.ndarray = ARRAY, affine: np.ndarray = AFFINE) -> nib.Nifti1Image:
    made = nib.Nifti1Image(array, affine)
    made.set_sform(affine, 1)
    made.set_qform(affine, 1)
    return made


def stored(folder: Path, made: nib.Nifti1Image, name: str = "scan.nii.gz") -> Path:
    content = made.to_bytes()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


def patched(folder: Path, offset: int, form: str, *values: float) -> Path:
    content = bytearray(image().to_bytes())
    struct.pack_into(form, content, offset, *values)
    (folder / "scan.nii").write_bytes(content)
    return folder / "scan.nii"


@pytest.mark.parametrize("name", ["scan.nii", "scan.nii.gz", "스캔 %41 🧠.nii.gz"])
def test_a_sound_file_is_read_as_nibabel_reads_it(tmp_path, name: str):
    path = stored(tmp_path, image(), name)
    scan = read(path)
    np.testing.assert_array_equal(scan.array, nib.Nifti1Image.from_filename(path).get_fdata())
    np.testing.assert_allclose(scan.affine, AFFINE, atol=1e-4)
    assert scan.spacing_mm == pytest.approx((0.9, 0.9, 5.5), abs=1e-4)


def test_a_big_endian_file_reads_the_same(tmp_path):
    big = nib.Nifti1Image(ARRAY, AFFINE, header=nib.Nifti1Header(endianness=">"))
    big.set_sform(AFFINE, 1)
    np.testing.assert_array_equal(read(stored(tmp_path, big)).array, ARRAY)


def test_a_qform_alone_is_enough(tmp_path):
    made = image()
    made.set_sform(None, 0)
    np.testing.assert_allclose(read(stored(tmp_path, made)).affine, AFFINE, atol=1e-4)


def test_a_slope_scales_and_a_slope_of_zero_is_noted(tmp_path):
    scaled = read(patched(tmp_path, 112, "<ff", 2.0, 5.0))
    np.testing.assert_allclose(scaled.array, ARRAY * 2.0 + 5)
    plain = read(patched(tmp_path, 112, "<ff", 0.0, 0.0))
    np.testing.assert_array_equal(plain.array, ARRAY)
    assert plain.notes == ("scl_slope 0 read as 1",)


@pytest.mark.parametrize(
    ("slope", "intercept", "note"),
    [
        (np.nan, 0.0, "scl_slope NaN read as 1"),
        (2.5, np.nan, "scl_inter NaN read as 0"),
        (2.5, -3.0, "scaled by scl_slope 2.5 and"),
    ],
)
def test_what_was_assumed_of_the_scaling_is_noted(tmp_path, slope: float, intercept: float, note: str):
    scan = read(patched(tmp_path, 112, "<ff", slope, intercept))
    assert any(note in one for one in scan.notes)
    by = 1.0 if np.isnan(slope) else slope
    np.testing.assert_allclose(scan.array, ARRAY * by + (0 if np.isnan(intercept) else intercept))


def test_which_frame_a_scan_rests_on_is_noted(tmp_path):
    made = image()
    made.set_qform(AFFINE, 0)
    assert read(stored(tmp_path, made)).notes == ("placed by the sform (code 1); the qform has code 0 and says the same",)
    made.header["qoffset_x"] = AFFINE[0, 3] + 0.01
    made.header["sform_code"] = 2
    assert (
        "placed by the sform (code 2) alone, which nothing"
        in read(stored(tmp_path, nib.Nifti1Image(ARRAY, None, made.header))).notes[0]
    )
    made = image()
    made.set_sform(None, 0)
    made.header["srow_x"] = 0
    assert "placed by the qform (code 1) alone" in read(stored(tmp_path, made)).notes[0]


@pytest.mark.parametrize("turned", [np.eye(3), np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]])
def test_of_a_headers_bits_hardly_one_in_a_hundred_changes_a_scan_unseen(turned: np.ndarray):
    affine = np.eye(4)
    affine[:3] = np.c_[turned * [0.9, 0.9, 5.5], [80.0, -100.0, -40.0]]
    array = np.random.default_rng(0).integers(0, 900, (64, 48, 6)).astype(np.int16)
    made = image(array, affine)
    content = bytearray(made.to_bytes())
    struct.pack_into("<ff", content, 112, 1.0, 0.0)  # as scanners write it
    sound, unseen = Volume(*nifti.parse(bytes(content), named_gz=False)), 0
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in array.shape], [1], indexing="ij"), float).reshape(4, -1)
    for bit in range(348 * 8):
        content[bit // 8] ^= 1 << bit % 8
        try:
            found = Volume(*nifti.parse(bytes(content), named_gz=False))
        except UnusablePatient:
            continue
        finally:
            content[bit // 8] ^= 1 << bit % 8
        moved_mm = np.abs(((found.affine - sound.affine) @ corners)[:3]).max()
        changed = moved_mm > 1e-3 or not np.array_equal(found.array, sound.array)
        unseen += changed and found.notes == sound.notes
    assert unseen / (348 * 8) <= 0.015  # 3 in a hundred before slopes were bounded and frames compared


def test_a_last_dimension_of_one_is_squeezed_and_noted(tmp_path):
    scan = read(stored(tmp_path, image(ARRAY[..., None])))
    assert scan.array.shape == ARRAY.shape
    assert "squeezed" in scan.notes[0]


def header_with(**fields: object) -> bytes:
    """A file without the header's check by nibabel, which mends some of what is tested here."""
    content = bytearray(image().to_bytes())
    header = nib.Nifti1Header(bytes(content[:348]), check=False)
    for name, value in fields.items():
        header[name] = value
    content[:348] = header.binaryblock
    return bytes(content)


def lengths_times(factor: float, unit: int) -> bytes:
    """The same scan in another unit of length."""
    usual = nib.Nifti1Header(image().to_bytes()[:348])
    lengths = {
        name: np.asarray(usual[name], np.float64) * factor
        for name in ("qoffset_x", "qoffset_y", "qoffset_z", "srow_x", "srow_y", "srow_z")
    }
    pixdim = np.array(usual["pixdim"]) * [1, factor, factor, factor, 1, 1, 1, 1]
    return header_with(pixdim=pixdim, xyzt_units=unit | 8, **lengths)  # 8: and seconds


def with_extension(size: int) -> bytes:
    made = image()
    made.header.extensions.append(Nifti1Extension("comment", b"x" * size))
    return made.to_bytes()


LEGAL = {  # a header that the standard allows, or that others write and read without a doubt; and what is noted of it
    "an unused qform of NaN": (header_with(qform_code=0, quatern_b=np.nan, qoffset_x=np.inf), "sform .* alone"),
    "an unused qform of nonsense": (
        header_with(qform_code=0, quatern_b=9, pixdim=[7, 0.9, 0.9, 5.5, 1, 1, 1, 1]),
        "sform .* alone",
    ),
    "an unused sform of NaN": (header_with(sform_code=0, srow_x=np.nan), "qform .* alone"),
    "an unused sform of infinity": (header_with(sform_code=0, srow_y=np.inf), "qform .* alone"),
    "an unused sform of 1e38": (header_with(sform_code=0, srow_y=1e38), "qform .* alone"),
    "metres": (lengths_times(1e-3, 1), "from metre to mm"),
    "micrometres": (lengths_times(1e3, 3), "from micrometre to mm"),
    "no unit": (header_with(xyzt_units=0), ""),
    "a metre that is none": (header_with(xyzt_units=1), "unit is metre, but .* read as mm"),
    "an extension of 1.6 MB": (with_extension(1_600_000), ""),
    "vox_offset 0": (header_with(vox_offset=0), "vox_offset 0 read as 352"),
    "a minus in pixdim": (header_with(pixdim=[-1, -0.9, 0.9, 5.5, 1, 1, 1, 1]), "read without its minus"),
    "five dimensions": (header_with(dim=[5, 9, 8, 7, 1, 1, 1, 1]), "squeezed"),
    "an intent and a display range": (header_with(intent_code=1002, cal_max=np.nan, cal_min=5, dim_info=57, slice_code=9), ""),
}


@pytest.mark.parametrize("name", LEGAL)
def test_an_unusual_but_legal_header_is_read_as_the_plain_one_and_noted(tmp_path, name: str):
    content, note = LEGAL[name]
    for file, stored in (("a.nii", content), ("a.nii.gz", gzip.compress(content, 1))):
        (tmp_path / file).write_bytes(stored)
        scan = read(tmp_path / file)
        np.testing.assert_array_equal(scan.array, ARRAY)
        np.testing.assert_allclose(scan.affine, AFFINE, atol=1e-4)
        assert any(re.search(note, one) for one in (*scan.notes, ""))
    if name in ("metres", "micrometres", "vox_offset 0"):  # nibabel reads no unit, and no vox_offset of 0
        return
    theirs = nib.Nifti1Image.from_bytes(content)
    np.testing.assert_array_equal(scan.array, theirs.get_fdata().squeeze())
    np.testing.assert_allclose(scan.affine, np.array(theirs.affine), atol=1e-4)


@pytest.mark.parametrize("code", [0, 1])
def test_a_qfac_of_0_is_one_of_1_and_never_turns_a_scan_over(tmp_path, code: int):
    right_handed = AFFINE @ np.diag([-1, 1, 1, 1])
    for affine, qfac in ((right_handed, 1), (AFFINE, -1)):
        content = bytearray(image(affine=affine).to_bytes())
        assert struct.unpack_from("<f", content, 76) == (qfac,)
        struct.pack_into("<f", content, 76, 0.0)
        struct.pack_into("<h", content, 254, code)  # sform_code
        (tmp_path / "a.nii").write_bytes(content)
        if qfac == -1 and code == 1:
            with pytest.raises(UnusablePatient, match="sform and qform disagree"):
                read(tmp_path / "a.nii")
            continue
        scan = read(tmp_path / "a.nii")
        assert "pixdim[0] 0 read as 1" in scan.notes
        np.testing.assert_allclose(scan.affine, np.array(nib.Nifti1Image.from_filename(tmp_path / "a.nii").affine), atol=1e-4)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.int64, np.float64])
def test_every_type_of_real_numbers_is_read_as_nibabel_reads_it(tmp_path, kind: type):
    made = nib.Nifti2Image(ARRAY.astype(kind), AFFINE, dtype=kind)
    np.testing.assert_array_equal(read(stored(tmp_path, made)).array, np.asarray(made.dataobj).astype(np.float32))


def test_gzip_under_the_name_of_plain_nifti_is_read_and_noted(tmp_path):
    (tmp_path / "a.nii").write_bytes(gzip.compress(image().to_bytes()))
    scan = read(tmp_path / "a.nii")
    np.testing.assert_array_equal(scan.array, ARRAY)
    assert scan.notes == ("read as gzip, though its name does not end in .gz",)
    (tmp_path / "b.NII.GZ").write_bytes(gzip.compress(image().to_bytes()))
    assert read(tmp_path / "b.NII.GZ").notes == ()
    (tmp_path / "a.nii").write_bytes(gzip.compress(image().to_bytes())[:-30])
    with pytest.raises(UnusablePatient, match="ends early"):
        read(tmp_path / "a.nii")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pixdim": [-1, -0.9, 0.9, 5.5, 1, 1, 1, 1], "sform_code": 0}, "orientation cannot be read"),  # left or right?
        ({"pixdim": [3, 0.9, 0.9, 5.5, 1, 1, 1, 1]}, "orientation cannot be read"),
        ({"quatern_b": np.nan}, "disagree|cannot be read|NaN"),
        ({"srow_x": np.nan}, "NaN"),
        ({"xyzt_units": 1, "pixdim": [1, 9e-3, 9e-3, 5.5e-2, 1, 1, 1, 1]}, "spacing|contradicts"),
        ({"vox_offset": 100}, "vox_offset 100 is absurd"),
        ({"vox_offset": 348}, "holds 1,360 bytes where its header announces 1,356"),
        ({"vox_offset": 1e9}, "vox_offset 1e.09 is absurd"),
        ({"magic": b"ni1"}, "two-file"),
    ],
)
def test_what_the_standard_does_not_settle_is_refused(tmp_path, fields: dict[str, object], reason: str):
    (tmp_path / "a.nii").write_bytes(header_with(**fields))
    with pytest.raises(UnusablePatient, match=reason):
        read(tmp_path / "a.nii")


def test_of_a_mask_only_zero_or_not_counts_whatever_its_slope(tmp_path):
    mask = (ARRAY > 700).astype(np.uint8)
    for slope in (2.0**-32, 1e-12, -1.0, 1e30):
        content = bytearray(image(mask).to_bytes())
        struct.pack_into("<ff", content, 112, slope, 0.0)
        (tmp_path / "mask.nii").write_bytes(content)
        drawn = read_mask(tmp_path / "mask.nii")
        np.testing.assert_array_equal(drawn.array, mask)
        assert "was not applied" in drawn.notes[0]
        with pytest.raises(UnusablePatient, match="is absurd"):
            read(tmp_path / "mask.nii")
    struct.pack_into("<ff", content, 112, 2.0**-32, 1.0)  # which stored number is zero is not clear then
    (tmp_path / "mask.nii").write_bytes(content)
    with pytest.raises(UnusablePatient, match="is absurd"):
        read_mask(tmp_path / "mask.nii")


def test_a_mask_with_a_usual_slope_keeps_its_labels(tmp_path):
    labels = (ARRAY % 5).astype(np.uint8)
    np.testing.assert_array_equal(read_mask(stored(tmp_path, image(labels))).array, labels)
    spm = (ARRAY > 700).astype(np.uint8) * 255
    content = bytearray(image(spm).to_bytes())
    struct.pack_into("<ff", content, 112, 1 / 255, 0.0)
    (tmp_path / "mask.nii").write_bytes(content)
    np.testing.assert_allclose(read_mask(tmp_path / "mask.nii").array, ARRAY > 700, atol=1e-6)
    with pytest.raises(UnusablePatient, match="every voxel is 0"):
        read_mask(stored(tmp_path, image(np.zeros_like(labels))))
    broken = np.where(ARRAY > 700, np.nan, 0).astype(np.float32)
    content = bytearray(image(broken).to_bytes())
    struct.pack_into("<ff", content, 112, 2.0**-32, 0.0)
    (tmp_path / "mask.nii").write_bytes(content)
    with pytest.raises(UnusablePatient, match="voxels are NaN"):
        read_mask(tmp_path / "mask.nii")


def corrupt(content: bytes) -> bytes:
    return content[:300] + bytes([content[300] ^ 0xFF]) + content[301:]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.nii.gz", b"", "not gzip"),
        ("a.nii", b"", "not NIfTI"),
        ("a.nii", bytes(range(256)) * 4, "not NIfTI"),
        ("a.nii.gz", image().to_bytes(), "not gzip"),
        ("a.nii", image().to_bytes()[:-10], "holds 1,350 bytes where its header announces 1,360"),
        ("a.nii", image().to_bytes() + b"xx", "holds 1,362 bytes"),
        ("a.nii.gz", gzip.compress(image().to_bytes())[:-30], "damaged gzip stream .ends early"),
        ("a.nii.gz", corrupt(gzip.compress(image().to_bytes())), "damaged gzip"),
        (
            "a.nii.gz",
            gzip.compress(image().to_bytes())[:-8] + b"\0" * 4 + gzip.compress(image().to_bytes())[-4:],
            "damaged gzip.*data check",
        ),
        ("a.nii.gz", gzip.compress(image().to_bytes() + bytes(10_000_000)), "unpacks to more than the 1,360 bytes"),
        ("a.nii.gz", gzip.compress(image().to_bytes()) + gzip.compress(bytes(10_000_000)), "unpacks to more"),
        ("a.nii.gz", gzip.compress(image().to_bytes()) + b"more", "damaged gzip"),
        ("a.nii", bytes(128) + b"DICM" + bytes(400), "a DICOM file; expected NIfTI: convert"),
        ("a.nii.gz", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path, name: str, content: bytes, reason: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnusablePatient, match=reason) as fault:
        read(tmp_path / name)
    assert fault.value.file == str(tmp_path / name)


@pytest.mark.parametrize(
    ("offset", "form", "values", "reason"),
    [
        (40, "<8h", (3, 32767, 32767, 32767, 1, 1, 1, 1), "refused"),
        (40, "<8h", (3, -9, 8, 7, 1, 1, 1, 1), "not positive|unreadable"),
        (40, "<8h", (3, 9, 8, 0, 1, 1, 1, 1), "not positive"),
        (72, "<h", (32,), "bitpix"),
        (112, "<ff", (1e30, 0.0), "absurd"),
        (112, "<ff", (float("inf"), 0.0), "scl_slope inf is absurd"),
        (112, "<ff", (-1.0, 0.0), "scl_slope -1 is absurd"),
        (112, "<ff", (1.0, 1e9), "scl_inter 1e.09 is absurd"),
        (112, "<ff", (1.0, float("inf")), "scl_inter inf is absurd"),
        (268, "<f", (80.01,), r"disagree by 0\.01 mm"),
        (70, "<h", (128,), "bitpix|one real number"),
        (76, "<4f", (1.0, 0.9, 0.9, 4.0), "pixdim|disagree"),
        (280, "<4f", (0.0, 0.0, 0.0, 0.0), "singular|disagree|skew|spacing"),
        (108, "<f", (float("nan"),), "vox_offset|bytes"),
    ],
)
def test_a_header_of_nonsense_is_refused(tmp_path, offset: int, form: str, values: tuple[float, ...], reason: str):
    with pytest.raises(UnusablePatient, match=reason):
        read(patched(tmp_path, offset, form, *values))


def test_nan_voxels_are_refused_with_their_count(tmp_path):
    array = ARRAY.astype(np.float32)
    array[0, 0, :3] = np.nan
    array[1, 1, 1] = np.inf
    with pytest.raises(UnusablePatient, match="4 of 504 voxels are NaN or infinite"):
        read(stored(tmp_path, image(array)))


def test_a_constant_image_is_refused(tmp_path):
    with pytest.raises(UnusablePatient, match="every voxel is 7"):
        read(stored(tmp_path, image(np.full_like(ARRAY, 7))))


def test_sform_and_qform_that_disagree_are_both_printed(tmp_path):
    made = image()
    moved = AFFINE.copy()
    moved[0, 3] += 3
    made.set_qform(moved, 1)
    with pytest.raises(UnusablePatient, match=r"disagree by 3\.00 mm: sform\n(.|\n)*qform"):
        read(stored(tmp_path, made))


@examples(100)
@given(st.integers(0, 10_000))
def test_no_turn_of_the_head_makes_sform_and_qform_disagree(tmp_path_factory, seed: int):
    turn = Rotation.random(rng=np.random.default_rng(seed)).as_matrix()
    near_half = Rotation.from_rotvec(np.pi * (1 - 10.0 ** -(seed % 8)) * turn[0]).as_matrix()  # where quaternions are weakest
    affine = np.eye(4)
    affine[:3, :3] = near_half * 9.0
    path = tmp_path_factory.mktemp("turned") / "scan.nii.gz"
    write(Volume(ARRAY.astype(np.float32), affine), path)
    np.testing.assert_allclose(read(path).affine, affine, atol=1e-3)


def test_unset_frames_skewed_axes_and_absurd_spacing_are_refused(tmp_path):
    unset = image()
    unset.set_sform(None, 0)
    unset.set_qform(None, 0)
    with pytest.raises(UnusablePatient, match="both unset"):
        read(stored(tmp_path, unset))
    for shear, scale, reason in ((0.2, 1.0, "skewed"), (0.0, 0.01, "spacing"), (0.0, 20.0, "spacing")):
        affine = np.diag([scale, scale, scale, 1.0])
        affine[0, 1] = shear
        made = nib.Nifti1Image(ARRAY, affine)
        made.set_qform(None, 0)
        with pytest.raises(UnusablePatient, match=reason):
            read(stored(tmp_path, made))


@examples(60)
@given(data=st.data())
def test_no_flipped_bit_goes_unseen_in_a_gzip_file(tmp_path_factory, data):
    content = bytearray(gzip.compress(image().to_bytes(), mtime=0))
    bit = data.draw(st.integers(10 * 8, len(content) * 8 - 1))  # gzip's own first ten bytes hold no voxel
    content[bit // 8] ^= 1 << bit % 8
    path = tmp_path_factory.mktemp("flipped") / "scan.nii.gz"
    path.write_bytes(content)
    try:
        scan = read(path)
    except UnusablePatient:
        return
    np.testing.assert_array_equal(scan.array, ARRAY)  # a few bits of a deflate stream are padding: the scan is whole
    np.testing.assert_array_equal(scan.affine, AFFINE.astype(np.float32))  # as the header holds it


@pytest.mark.parametrize("codes", [c for p in itertools.permutations(["RL", "AP", "SI"]) for c in itertools.product(*p)])
def test_each_of_the_48_orientations_becomes_the_same_canonical_scan(codes: tuple[str, str, str]):
    straight = canonical(Volume(ARRAY, AFFINE))
    change = nib.orientations.ornt_transform(nib.io_orientation(straight.affine), nib.orientations.axcodes2ornt(codes))
    turned = nib.orientations.apply_orientation(straight.array, change)
    affine = straight.affine @ nib.orientations.inv_ornt_aff(change, straight.shape)
    again = canonical(Volume(turned, affine))
    np.testing.assert_array_equal(again.array, straight.array)
    np.testing.assert_allclose(again.affine, straight.affine, atol=1e-9)
    np.testing.assert_array_equal(laid_as(again, affine).array, turned)  # and back


def test_resampling_onto_its_own_grid_changes_nothing_and_a_shift_moves_the_right_way():
    scan = Volume(ARRAY.astype(np.float32), AFFINE)
    np.testing.assert_allclose(resample(scan, scan.shape, scan.affine).array, scan.array, atol=1e-2)
    step = np.eye(4)
    step[:3, 3] = AFFINE[:3, 0]  # one voxel along the first axis
    np.testing.assert_allclose(resample(scan, scan.shape, scan.affine, to_source=step).array[:-1], scan.array[1:], atol=1e-2)


def test_a_written_file_is_read_back_carries_no_text_and_is_the_same_each_time(tmp_path):
    scan = Volume(ARRAY.astype(np.float32), AFFINE)
    write(scan, tmp_path / "a.nii.gz")
    write(scan, tmp_path / "b.nii.gz")
    assert (tmp_path / "a.nii.gz").read_bytes() == (tmp_path / "b.nii.gz").read_bytes()
    np.testing.assert_array_equal(read(tmp_path / "a.nii.gz").array, scan.array)
    header = nib.Nifti1Image.from_filename(tmp_path / "a.nii.gz").header
    assert all(bytes(header[field]).strip(b"\0") == b"" for field in ("descrip", "aux_file", "intent_name", "db_name"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.nii.gz", "b.nii.gz"]


def test_the_real_scans_are_read_whole(shared):
    for file in sorted((shared / "data").glob("*/TCGA-*/t*.nii.gz")):
        scan = volume.read(file)
        np.testing.assert_array_equal(scan.array, nib.Nifti1Image.from_filename(file).get_fdata(dtype=np.float32))

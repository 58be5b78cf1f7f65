"""NIfTI: the bytes of a file go in, strictly read; voxels, affine and notes, or an UnusablePatient, come out.

The bytes are decompressed to their end with the CRC checked, and must hold exactly the voxels that the header announces.
"""

from __future__ import annotations

from dataclasses import dataclass

import nibabel as nib
import numpy as np
from jaxtyping import Float, Shaped
from zlib_ng import zlib_ng

from mri_vit.errors import UnusablePatient
from mri_vit.settings import source

MAX_BYTES = 2 << 30  # a 1024³ int16 scan; more is a damaged header or a bomb, refused before allocation
MAX_OFFSET = 64 << 20  # header extensions of public files reach 1.6 MB; far more is a damaged vox_offset
GZIP = 31  # zlib's wbits of a stream with gzip's header and CRC
GZIP_LEVEL = 4  # zlib-ng's 3 to 9 pack a patient's maps to 11.5 to 11.8 MB; 4 in an eighth of 9's time
MAGIC = b"\x1f\x8b"  # of gzip; a NIfTI file starts with 348 or 540
START_BYTES = 4096  # of a file: a header of 540 bytes and what gzip puts before it
SPACING_MM = (0.1, 10.0)  # from histology to the thickest clinical slice; outside is a unit error
AFFINE_TOLERANCE = 1e-3  # relative; float32 headers of real scanners agree to 1e-6, a quaternion near half a turn to 7e-4
ORIGIN_TOLERANCE_MM = 1e-3  # sform and qform store it as the same three numbers
# Of sform against qform at the corners: near half a turn, a float32 quaternion alone is off by up to 0.35 mm.
FRAMES_TOLERANCE_MM = 0.5
FRAMES_NOTED_MM = 5e-3  # from here on it is noted how far apart they are; of 56 public files none is
SYNTHETIC = "synthetic: made by mri-vit, of no real person"  # in `descrip`, the one free text of a header that is looked at
SLOPE = (1e-6, 1e6)  # SPM stores a mask by 0.0039 and 16 bits of a probability by 1.5e-5
ROWS_COPIED = 4  # of 512 × 512 × 68 voxels 30 ms, of 8 rows 35, of 16 and more 50 to 60, of all 138
LENGTHS = {1: ("metre", 1e3), 3: ("micrometre", 1e-3)}  # by the code in xyzt_units, in mm; 2 is mm, and 0 names none

WHOLE = (slice(None), slice(None), slice(None))  # of a scan: no box of it
Parsed = tuple[Float[np.ndarray, "x y z"], Float[np.ndarray, "4 4"], tuple[str, ...]]


def parse(raw: bytes, named_gz: bool, part: tuple[slice, slice, slice] = WHOLE) -> Parsed:
    """Voxels as float32, the 4×4 from voxel index to RAS+ mm, and notes, of a NIfTI-1 or -2 file's bytes.

    `named_gz` is whether its name ends in .gz; of the voxels the box `part` alone is looked at. Raises UnusablePatient that says
    what is wrong with the bytes.
    """
    stored, header, affine, notes = _stored(raw, named_gz)
    affine[:3, 3] += affine[:3, :3] @ [one.start or 0 for one in part]
    return _scaled(stored[part], header, affine, notes)


def parse_mask(raw: bytes, named_gz: bool) -> Parsed:
    """A mask's labels as float32, and the rest as `parse` gives it.

    Of a mask, whether a voxel is zero is all that counts: with a slope that no intensities have, it is 1 where the stored number
    is not 0.
    """
    stored, header, affine, notes = _stored(raw, named_gz)
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    if not np.isfinite(slope) or slope == 0 or intercept != 0 or SLOPE[0] <= slope <= SLOPE[1]:
        return _scaled(stored, header, affine, notes)
    _refuse_nan(stored)
    notes.append(f"scl_slope {slope:g} was not applied: the mask is 1 where the stored number is not 0")
    return _refuse_empty((stored != 0).astype(np.float32, order="C")), affine, tuple(notes)


def _stored(
    raw: bytes, named_gz: bool
) -> tuple[Shaped[np.ndarray, "x y z"], nib.Nifti1Header, Float[np.ndarray, "4 4"], list[str]]:
    """The numbers as a file stores them, its header and affine, and what reading these had to settle."""
    header, shape, start, expected = _start(raw, named_gz)
    gzipped, notes = raw.startswith(MAGIC), list[str]()
    content = _inflate(raw, expected, whole=True) if gzipped else raw
    if len(content) != expected:
        raise UnusablePatient(f"holds {len(content):,} bytes where its header announces {expected:,}")
    if _is_synthetic(header):
        notes.append(SYNTHETIC)
    if gzipped and not named_gz:
        notes.append("read as gzip, though its name does not end in .gz")
    if header["vox_offset"] == 0:
        notes.append(f"vox_offset 0 read as {start}")
    array = np.frombuffer(content, header.get_data_dtype(), offset=start).reshape(shape, order="F")
    if array.ndim > 3:
        array = array.reshape(shape[:3])
        notes.append(f"squeezed from {shape}")
    return array, header, _affine(header, shape[:3], notes), notes


def _scaled(
    stored: Shaped[np.ndarray, "x y z"], header: nib.Nifti1Header, affine: Float[np.ndarray, "4 4"], notes: list[str]
) -> Parsed:
    """Intensities instead of stored numbers."""
    slope, intercept = _scaling(header, stored, notes)
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite, which is refused
        array = in_c_order(stored, np.float32)
    if (slope, intercept) != (1.0, 0.0):
        array = array * np.float32(slope) + np.float32(intercept)
    _refuse_nan(array)
    return _refuse_empty(array), affine, tuple(notes)


def in_c_order(array: Shaped[np.ndarray, "x y z"], kind: type | np.dtype) -> Shaped[np.ndarray, "x y z"]:
    """A copy whose last axis is next to each other in memory; some rows at a time, whose cache lines are used up before they go:
    a quarter of the time where the first axis was.
    """
    copy = np.empty(array.shape, kind)
    for start in range(0, array.shape[1], ROWS_COPIED):
        rows = np.s_[:, start : start + ROWS_COPIED]
        copy[rows] = array[rows]
    return copy


def _refuse_nan(array: Shaped[np.ndarray, "x y z"]) -> None:
    if not np.isfinite([array.min(), array.max()]).all():  # a NaN anywhere is the least and the greatest
        bad = int(array.size - np.isfinite(array).sum())
        raise UnusablePatient(f"{bad:,} of {array.size:,} voxels are NaN or infinite")


def _refuse_empty(array: Float[np.ndarray, "x y z"]) -> Float[np.ndarray, "x y z"]:
    if array.min() == array.max():
        raise UnusablePatient(f"every voxel is {array.flat[0]:g}: an empty image")
    return array


@dataclass(frozen=True)
class Announced:
    """What a file's header says of it: dimensions, place, bytes when unpacked, and whether the scan is marked as made up."""

    shape: tuple[int, ...]
    affine: Float[np.ndarray, "4 4"]
    content_bytes: int
    gzipped: bool
    synthetic: bool


def announced(start: bytes, named_gz: bool) -> Announced:
    """What the first bytes of a file (START_BYTES are enough) say of it. Raises UnusablePatient as `parse` does."""
    header, shape, _, expected = _start(start, named_gz)
    return Announced(shape[:3], _affine(header, shape[:3], []), expected, start.startswith(MAGIC), _is_synthetic(header))


def _is_synthetic(header: nib.Nifti1Header) -> bool:
    """Whether `volume.write` marked the scan as made up."""
    return header["descrip"].item() == SYNTHETIC.encode()


def _start(raw: bytes, named_gz: bool) -> tuple[nib.Nifti1Header, tuple[int, ...], int, int]:
    """The header of a file, its dimensions, where its voxels start, and how many bytes it announces. Raises UnusablePatient."""
    if raw[:40].startswith((b"version https://git-lfs", b"/annex/objects", b"../.git/annex")):
        raise UnusablePatient("a Git LFS or annex pointer, not the scan itself; fetch the file's content")
    if source.is_dicom(raw):
        raise UnusablePatient("a DICOM file; expected NIfTI: convert the whole series first, for example with dcm2niix")
    gzipped = raw.startswith(MAGIC)
    if named_gz and not gzipped:
        raise UnusablePatient(f"named .gz, but not gzip (starts with {raw[:4]!r})")
    header = _header(_inflate(raw, 544, whole=False) if gzipped else raw[:544])  # a NIfTI-2 header is 540 bytes
    shape = header.get_data_shape()
    start = int(header["vox_offset"]) or header.single_vox_offset  # 0: behind the header, as files of other programs have it
    expected = start + int(np.prod(shape, dtype=object)) * header.get_data_dtype().itemsize
    if expected > MAX_BYTES:
        raise UnusablePatient(f"announces {expected:,} bytes of voxels {shape}; more than {MAX_BYTES:,} is refused")
    return header, shape, start, expected


def _scaling(header: nib.Nifti1Header, array: Shaped[np.ndarray, "x y z"], notes: list[str]) -> tuple[float, float]:
    """Slope and intercept by which stored numbers become intensities; other ones than 1 and 0, and what was assumed, are noted.

    NaN and 0 mean "as stored" (the standard says so of 0, nibabel writes NaN). An intercept only puts the stored range in its
    place, so that it is at most as large as that range.
    """
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    if np.isnan(slope) or slope == 0:
        notes.append(f"scl_slope {'NaN' if np.isnan(slope) else 0} read as 1")
        return 1.0, 0.0
    if not SLOPE[0] <= slope <= SLOPE[1]:
        raise UnusablePatient(f"scl_slope {slope:g} is absurd; expected {SLOPE[0]:g} to {SLOPE[1]:g}")
    if np.isnan(intercept):
        notes.append("scl_inter NaN read as 0")
        intercept = 0.0
    kind = array.dtype
    stored = float(2 ** (8 * kind.itemsize)) if kind.kind in "iu" else float(np.nanmax(np.abs(array), initial=0.0))
    if not abs(intercept) <= slope * stored:
        span = f"with scl_slope {slope:g}, {kind} voxels span {slope * stored:g}"
        raise UnusablePatient(f"scl_inter {intercept:g} is absurd; {span}")
    if (slope, intercept) != (1.0, 0.0):
        notes.append(f"scaled by scl_slope {slope:.9g} and scl_inter {intercept:.9g}")
    return slope, intercept


def packed(content: bytes) -> bytes:
    """A gzip file without time or name: equal contents give equal bytes. zlib-ng takes half of zlib's time, to unpack a third."""
    return zlib_ng.compress(content, GZIP_LEVEL, GZIP)


def _inflate(raw: bytes, size: int, whole: bool) -> bytes:
    """The first `size` bytes of a gzip file; with `whole`, all of it, which must end there with its CRC right."""
    content = b""
    try:
        while raw:  # a gzip file may consist of several members
            member = zlib_ng.decompressobj(wbits=GZIP)
            content += member.decompress(raw, size + 1 - len(content))  # one more than expected, never all of a bomb
            if not whole:
                return content[:size]
            if len(content) > size:
                raise UnusablePatient(f"unpacks to more than the {size:,} bytes that its header announces")
            if not member.eof:
                raise UnusablePatient(f"damaged gzip stream (ends early, after {len(content):,} of {size:,} bytes)")
            raw = member.unused_data
    except zlib_ng.error as error:  # type: ignore[misc]  # its stub calls the class an instance
        raise UnusablePatient(f"damaged gzip stream ({error}); expected {size:,} bytes of content") from None
    return content


def _header(start: bytes) -> nib.Nifti1Header:
    kind = next((k for k in (nib.Nifti1Header, nib.Nifti2Header) if k.may_contain_header(start)), None)
    if kind is None:
        raise UnusablePatient(f"not NIfTI (starts with {start[:4]!r})")
    if start[344:347] == b"ni1" or start[4:7] == b"ni2":
        raise UnusablePatient("a .hdr of a two-file NIfTI; expected a single .nii or .nii.gz")
    try:
        header = kind(start[: kind.sizeof_hdr], check=False)
        shape, dtype = header.get_data_shape(), header.get_data_dtype()
    except Exception as error:  # nibabel raises many kinds for a header of nonsense
        raise UnusablePatient(f"unreadable NIfTI header: {error}") from None
    if dtype.fields or dtype.kind == "c" or dtype.kind not in "iuf":
        raise UnusablePatient(f"voxels are {dtype}; expected one real number each")
    if int(header["bitpix"]) != dtype.itemsize * 8:
        raise UnusablePatient(f"bitpix {int(header['bitpix'])} contradicts the datatype {dtype}")
    if any(n < 1 for n in shape):
        raise UnusablePatient(f"dimensions {shape} are not positive")
    if len(shape) < 3 or min(shape[:3]) < 2 or any(n != 1 for n in shape[3:]):
        raise UnusablePatient(f"dimensions {shape}; expected one 3D volume")
    if header["vox_offset"] != 0 and not kind.sizeof_hdr <= float(header["vox_offset"]) <= MAX_OFFSET:
        raise UnusablePatient(f"vox_offset {header['vox_offset']:g} is absurd; expected {kind.sizeof_hdr} to {MAX_OFFSET:,}")
    return header


def _affine(header: nib.Nifti1Header, shape: tuple[int, ...], notes: list[str]) -> Float[np.ndarray, "4 4"]:
    """The header's one affine; sform and qform must agree where both are set. What one rests on alone is noted."""
    codes = {"sform": int(header["sform_code"]), "qform": int(header["qform_code"])}
    if not any(codes.values()):
        raise UnusablePatient("sform and qform are both unset: the scan's place and left/right are unknown")
    chosen, other = ("sform", "qform") if codes["sform"] else ("qform", "sform")
    header, unit_mm = _legal(header, alone=chosen == "qform", notes=notes)
    frames = {name: _frame(header, name, unit_mm, needed=codes[name] != 0) for name in (chosen, other)}
    affine = frames[chosen]
    assert affine is not None  # one that is needed is there, or unusable
    if not np.isfinite(affine).all():
        raise UnusablePatient(f"affine holds NaN or infinity:\n{affine}")
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    rounding = 1 + AFFINE_TOLERANCE  # an oblique slice of 10 mm comes out of a float32 header as 10.0000004
    if spacing.min() * rounding < SPACING_MM[0] or spacing.max() > SPACING_MM[1] * rounding:
        raise UnusablePatient(f"voxel spacing {spacing.round(4).tolist()} mm; expected {SPACING_MM[0]} to {SPACING_MM[1]} mm")
    axes = affine[:3, :3] / spacing
    if abs(np.linalg.det(axes)) < AFFINE_TOLERANCE:  # unit axes: 1 when they stand upright on each other, 0 in one plane
        raise UnusablePatient(f"affine is singular:\n{affine}")
    skew = np.abs(axes.T @ axes - np.eye(3)).max()
    if skew > AFFINE_TOLERANCE:
        raise UnusablePatient(f"axes are skewed by {skew:.2g} (cosine); tolerance {AFFINE_TOLERANCE}")
    zooms = np.asarray(header.get_zooms()[:3], np.float64) * unit_mm
    if np.abs(zooms / spacing - 1).max() > AFFINE_TOLERANCE:
        raise UnusablePatient(f"pixdim {zooms.round(4).tolist()} contradicts the affine's spacing {spacing.round(4).tolist()}")
    apart_mm, alike = _apart(affine, frames[other], shape)
    if codes[other]:
        if not alike:
            both = f"sform\n{frames['sform']}\nqform\n{frames['qform']}"
            raise UnusablePatient(f"sform and qform disagree by {apart_mm:.2f} mm: {both}")
        if apart_mm > FRAMES_NOTED_MM:
            notes.append(f"sform and qform are {apart_mm:.3f} mm apart; the sform was taken")
    elif alike and apart_mm <= FRAMES_NOTED_MM:
        notes.append(f"placed by the {chosen} (code {codes[chosen]}); the {other} has code 0 and says the same")
    else:
        rows = "; ".join(" ".join(f"{number:.7g}" for number in row) for row in affine[:3])
        notes.append(f"placed by the {chosen} (code {codes[chosen]}) alone, which nothing in the header confirms: {rows}")
    return affine


def _legal(header: nib.Nifti1Header, alone: bool, notes: list[str]) -> tuple[nib.Nifti1Header, float]:
    """The header with its pixdim as nibabel takes it, and how many mm its unit of length is. What was settled is noted.

    `alone` is whether the qform alone places the scan. A negative pixdim[1..3], which the standard forbids, then leaves open
    which side is left, and stays.
    """
    header = header.copy()
    pixdim = header["pixdim"]
    if pixdim[0] == 0:  # nifti1.h: qfac is -1 or 1, and 0 counts as 1
        pixdim[0] = 1
        notes.append("pixdim[0] 0 read as 1")
    spacing = np.array(pixdim[1:4], np.float64)
    if (spacing < 0).any() and not alone:
        notes.append(f"pixdim {spacing.round(4).tolist()} read without its minus")
        pixdim[1:4] = spacing = np.abs(spacing)
    code = int(header["xyzt_units"]) & 7  # the unit of length; higher bits are of time
    if code not in LENGTHS:
        return header, 1.0
    unit, unit_mm = LENGTHS[code]
    if spacing.min() >= SPACING_MM[0] and spacing.max() <= SPACING_MM[1]:
        notes.append(f"the header's unit is {unit}, but voxels of {spacing.round(4).tolist()} are in mm; read as mm")
        return header, 1.0
    notes.append(f"lengths converted from {unit} to mm")
    return header, unit_mm


def _frame(header: nib.Nifti1Header, name: str, unit_mm: float, needed: bool) -> Float[np.ndarray, "4 4"] | None:
    """One of a header's two affines, mm; of one that is not needed, None where it makes no sense."""
    try:
        with np.errstate(all="ignore"):  # numbers of nonsense; whoever needs them finds out
            frame = header.get_sform() if name == "sform" else header.get_qform()
    except Exception as error:  # a quaternion of nonsense
        if not needed:
            return None
        raise UnusablePatient(f"orientation cannot be read: {error}") from None
    return np.asarray(frame, np.float64) * np.array([[unit_mm], [unit_mm], [unit_mm], [1.0]])


def corners_apart_mm(
    one: Float[np.ndarray, "4 4"], other: Float[np.ndarray, "4 4"], shape: tuple[int, ...]
) -> Float[np.ndarray, "8"]:
    """How far apart two affines put each corner of a volume."""
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in shape], [1], indexing="ij"), float).reshape(4, -1)
    return np.linalg.norm(((one - other) @ corners)[:3], axis=0)


def _apart(one: Float[np.ndarray, "4 4"], other: Float[np.ndarray, "4 4"] | None, shape: tuple[int, ...]) -> tuple[float, bool]:
    """How far apart two affines put a corner of the scan, mm, and whether they say the same."""
    if other is None or not np.isfinite(other).all():
        return np.inf, False
    apart_mm = float(corners_apart_mm(one, other, shape).max())
    lengths = [np.linalg.norm(affine[:3, :3], axis=0) for affine in (one, other)]
    if not lengths[1].all():
        return apart_mm, False
    turned = np.abs(one[:3, :3] / lengths[0] - other[:3, :3] / lengths[1]).max()
    moved_mm = np.abs(one[:3, 3] - other[:3, 3]).max()
    alike = turned <= AFFINE_TOLERANCE and moved_mm <= ORIGIN_TOLERANCE_MM and apart_mm <= FRAMES_TOLERANCE_MM
    return apart_mm, bool(alike)

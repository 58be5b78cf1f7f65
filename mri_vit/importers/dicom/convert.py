"""Convert: a series that passed the checks goes in, its volume comes out: dcm2niix's voxels, held against the headers."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import dcm2niix
import nibabel as nib
import numpy as np
from jaxtyping import Float
from pydicom.uid import UID, DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian, MRImageStorage, generate_uid

from mri_vit.data.volume import Volume, canonical
from mri_vit.importers.dicom import checks, geometry, header
from mri_vit.importers.dicom.fault import Fault, Refused
from mri_vit.importers.dicom.header import File, lenient
from mri_vit.importers.dicom.series import Series

TOLERANCE_MM = 1e-3  # between dcm2niix's affine and the headers', at the farthest corner, beside what rounding explains
TIMEOUT_S = 600  # a series takes seconds; one that takes longer hangs
OPTIONS = (
    *("-g", "i"),  # heed no ~/.dcm2nii.ini
    *("-b", "n"),  # no JSON sidecar, which repeats the header
    *("-z", "n"),
    *("-x", "i"),  # neither crop nor rotate: voxels as they were stored
    *("-f", "volume"),  # nothing of the header in the name
)


def volume(series: Series, scratch: Path) -> Volume:
    """The series as a volume: its voxels as they were stored, in the order of axes nearest RAS+, and the headers' affine.

    `scratch` is where a temporary folder is made; nothing of it remains.

    Raises
    ------
    Refused
        dcm2niix fails, or what it writes is not the one volume that the headers describe.
    """
    with tempfile.TemporaryDirectory(dir=scratch.resolve(), prefix=".dcm2niix-") as name:
        given, made = Path(name, "in"), Path(name, "out")
        given.mkdir()
        made.mkdir()
        _stage(series, given)
        try:
            done = subprocess.run(
                [dcm2niix.bin, *OPTIONS, "-o", str(made), str(given)],
                stdin=subprocess.DEVNULL,
                capture_output=True,  # what it prints names patients and paths, and is shown nowhere
                timeout=TIMEOUT_S,
                env={"HOME": name, "LC_ALL": "C"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Refused(Fault(f"dcm2niix took longer than {TIMEOUT_S} s")) from None
        if done.returncode:
            syntax = UID(series.files[0].syntax)
            stored = f"; pixels are stored as {syntax.name}, and may be damaged" if syntax.is_compressed else ""
            raise Refused(Fault(f"dcm2niix ended with exit code {done.returncode}{stored}"))
        files = sorted(path for path in made.iterdir() if path.suffix == ".nii")
        if len(files) != 1:
            raise Refused(Fault(f"dcm2niix made {len(files)} files of it; expected 1"))
        found = _loaded(files[0])
    return _verified(found, series)


def _stage(series: Series, folder: Path) -> None:
    """Put the series' files, and no others, in a folder under names of our own.

    They are links, or copies where dcm2niix has no codec, would part images by their UIDs, or would stack slices by instance
    numbers that do not run with their places: of a series of six such slices it makes a volume of two, with exit code 0.
    """
    files = {file.path: file for file in series.files}
    order = list(dict.fromkeys(image.path for image in geometry.ordered(series.images)))
    linked = series.as_stored and not checks.decompress_first(series) and _runs_with_place(series)
    uid = series.series_uid or generate_uid()
    for number, path in enumerate(order, start=1):
        place = folder / f"{number:06}.dcm"
        if linked:
            place.symlink_to(path.resolve())
        else:
            _rewrite(files[path], uid, number, place)


def _runs_with_place(series: Series) -> bool:
    """Whether instance numbers rise, or fall, from slice to slice; those of frames of one file say nothing."""
    steps = np.diff([image.instance for image in geometry.ordered(series.images)])
    return len(series.files) == 1 or bool((steps > 0).all() or (steps < 0).all())


def _rewrite(file: File, series_uid: str, number: int, place: Path) -> None:
    """A copy of a file with another instance number, and decompressed; what names the series is the same in all."""
    try:
        with lenient():
            dataset = header.dataset(file.path)
            if dataset.file_meta.TransferSyntaxUID.is_encapsulated:
                dataset.decompress(generate_instance_uid=False)
            elif dataset.file_meta.TransferSyntaxUID == DeflatedExplicitVRLittleEndian:
                dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
            dataset.InstanceNumber, dataset.SeriesNumber = number, 1
            dataset.SeriesInstanceUID = dataset.StudyInstanceUID = series_uid
            dataset.StudyDate = dataset.StudyTime = dataset.SeriesDescription = dataset.ProtocolName = ""
            dataset.SOPClassUID = dataset.get("SOPClassUID") or MRImageStorage  # which old files lack
            dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid()
            dataset.save_as(place, enforce_file_format=True)
    except Exception as error:  # pydicom and its codecs raise whatever a damaged file leads to
        raise Refused(Fault(f"image {{}} cannot be decoded ({type(error).__name__})", (file.sop_uid,))) from None


def _loaded(path: Path) -> Volume:
    image = nib.Nifti1Image.from_filename(path)
    if len(image.shape) != 3:
        raise Refused(Fault(f"dcm2niix made an image of {' x '.join(map(str, image.shape))}; expected three dimensions"))
    array = np.asanyarray(image.dataobj)
    if array.dtype == np.float64:  # scaled; float32 holds 16 bits of a scanner exactly enough
        array = array.astype(np.float32)
    return Volume(np.array(array), np.asarray(image.affine, np.float64))


def _verified(found: Volume, series: Series) -> Volume:
    """dcm2niix's voxels on the headers' grid, unless matrix, slices or affine of the two differ.

    dcm2niix takes the step between slices from two neighbours; the headers' affine takes it from the first and the last. Where
    a scanner rounds positions to 0.001 mm, the two drift apart by tenths of a millimetre over 180 slices, and the latter holds.
    """
    slices = geometry.ordered(series.images)
    expected = canonical(Volume(np.broadcast_to(np.uint8(0), geometry.shape(slices)), geometry.affine(slices)))
    upright = canonical(found)
    if upright.shape != expected.shape:
        told = f"{' x '.join(map(str, upright.shape))} voxels; the headers say {' x '.join(map(str, expected.shape))}"
        raise Refused(Fault(f"dcm2niix made a volume of {told}"))
    apart_mm = np.sort(corners_apart_mm(upright.affine, expected.affine, expected.shape))
    for corners_mm, allowed_mm in ((apart_mm[:4], TOLERANCE_MM), (apart_mm, TOLERANCE_MM + geometry.drift_mm(slices))):
        if corners_mm.max() > allowed_mm:  # the slice at one end lies where its header says, the one at the other drifts
            told = f"{corners_mm.max():.4f} mm from where the headers do; tolerance {allowed_mm:.4f} mm"
            raise Refused(Fault(f"dcm2niix put the volume {told}"))
    return Volume(upright.array, expected.affine)


def corners_apart_mm(
    one: Float[np.ndarray, "4 4"], other: Float[np.ndarray, "4 4"], shape: tuple[int, int, int]
) -> Float[np.ndarray, "8"]:
    """How far apart two affines put each corner of a volume."""
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in shape], [1], indexing="ij"), float).reshape(4, -1)
    return np.linalg.norm(((one - other) @ corners)[:3], axis=0)

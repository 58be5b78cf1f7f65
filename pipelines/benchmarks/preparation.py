"""Preparing a patient: this code beside older code, and beside the usual way with SimpleITK.

Each preparation is a process of its own, from its start to its end, single-threaded; the tree whose `mri_vit` it imports is on
its PYTHONPATH. Bytecode is compiled before, into a folder of the bench's for all of them alike.
"""

import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

SCANS = ("t1", "t1ce", "t2", "flair")  # FOLDER/<scan>.nii.gz
HERE = Path(__file__).parents[2]


def preparation(scratch: Path, patients: tuple[Path, ...], before: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    """Each patient's folder prepared by older trees and by this one."""
    trees = {**{f"before, {commit(tree)}": tree for tree in before}, "now": HERE}
    return {
        f"preparing {patient.name}": {name: partial(prepares, scratch, patient, tree) for name, tree in trees.items()}
        for patient in patients
    }


def preparation_unstripped(scratch: Path, patients: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    """Each patient's folder prepared by SimpleITK as is usual and by this tree, which is given the brain and finds none."""
    return {
        f"preparing {patient.name} without stripping": {
            "SimpleITK, the usual way": partial(usual_way, scratch, patient),
            "now, brain given": partial(prepares, scratch, patient, HERE, brain_given=True),
        }
        for patient in patients
    }


def commit(tree: Path) -> str:
    return subprocess.check_output(["git", "-C", str(tree), "rev-parse", "--short", "HEAD"], text=True).strip()


def prepares(scratch: Path, patient: Path, tree: Path, brain_given: bool = False) -> Any:
    mask = [str(brain_of(patient, scratch))] if brain_given else []
    in_a_process(scratch, tree, "imports")
    return partial(in_a_process, scratch, tree, "ours", str(patient), str(scratch / "prepared"), *mask)


def usual_way(scratch: Path, patient: Path) -> Any:
    in_a_process(scratch, HERE, "imports")
    return partial(in_a_process, scratch, HERE, "usual", str(patient), str(scratch / "usual"))


def in_a_process(scratch: Path, tree: Path, *arguments: str) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ours = {"PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(scratch / "bytecode"), "OMP_NUM_THREADS": "1"}
    rmtree(scratch / "prepared", ignore_errors=True)
    subprocess.run([sys.executable, "-W", "ignore", __file__, *arguments], check=True, env={**kept, **ours})


def children_cpu_seconds() -> float:
    """Processor time, user and system, of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def brain_of(patient: Path, scratch: Path) -> Path:
    """The brain on the T1ce's voxels, as this code finds it on T1ce alone; made once, untimed."""
    from mri_vit.data.volume import Volume, canonical, read, write
    from mri_vit.prepare import brain
    from mri_vit.settings.sections import Prepare

    path = scratch / f"{patient.name}.nii"
    if not path.exists():
        t1ce = canonical(read(patient / "t1ce.nii.gz"))
        found = brain.extract(t1ce, None, "t1ce", None, Prepare(), scratch)
        write(Volume(found.mask.astype("uint8"), t1ce.affine), path)
    return path


# What the processes do. Names are taken from the module that every version has, wherever it took them from.


def imports() -> None:
    import deepbet  # noqa: F401
    import SimpleITK as sitk

    import mri_vit.prepare.patient  # noqa: F401

    sitk.Image(1, 1, sitk.sitkUInt8)


def ours(patient: Path, prepared: Path, brain_mask: Path | None = None) -> None:
    from mri_vit.prepare.patient import Patient, Study, prepare_patient

    scans: dict[str, Path | None] = {scan: patient / f"{scan}.nii.gz" for scan in SCANS}
    study = Study(name="bench", cohort=prepared / "none.csv", prepared=prepared, output=prepared / "none")
    prepare_patient(Patient(patient.name, scans, {}, {}, brain_mask), study.prepared, study.channels, study.grid, study.prepare)


def usual(patient: Path, output: Path) -> None:
    """N4 of every scan, each aligned to T1ce and T1ce to MNI152 down to full resolution, resampled to the grid and z-scored.

    N4 is as in SimpleITK's example: inside Otsu's mask, four levels of 50 iterations, with a shrink factor of 4. Registration has
    the settings of its introduction (insightsoftwareconsortium.github.io/SimpleITK-Notebooks, 60_Registration_Introduction), but
    samples a tenth of the voxels, as ours does, instead of a hundredth.
    """
    import SimpleITK as sitk

    from mri_vit.data.volume import Volume, to_itk
    from mri_vit.prepare.register import mni152
    from mri_vit.settings.sections import Grid

    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
    scans = {scan: sitk.ReadImage(str(patient / f"{scan}.nii.gz"), sitk.sitkFloat32) for scan in SCANS}
    scans = {scan: sitk.DICOMOrient(image, "LPS") for scan, image in scans.items()}
    template, grid = sitk.PermuteAxes(to_itk(mni152()), [2, 1, 0]), Grid()  # its first axis from left to right, as in its file
    to_t1ce = {scan: aligned(scans["t1ce"], image) for scan, image in scans.items() if scan != "t1ce"}
    to_t1ce["t1ce"] = sitk.Transform(3, sitk.sitkIdentity)
    to_mni = aligned(template, scans["t1ce"])
    edge = (grid.edge,) * 3
    import numpy as np

    frame = to_itk(Volume(np.zeros(edge, np.float32), np.array(grid.affine)))
    volume = []
    for scan, image in scans.items():
        even = sitk.Resample(without_bias(image), frame, sitk.CompositeTransform([to_t1ce[scan], to_mni]), sitk.sitkLinear)
        array = sitk.GetArrayFromImage(even)
        head = array > 0
        volume.append(np.where(head, (array - array[head].mean()) / array[head].std(), 0))
    output.mkdir(exist_ok=True)
    np.save(output / f"{patient.name}.npy", np.stack(volume).astype(np.float16))


def without_bias(image: Any) -> Any:
    import SimpleITK as sitk

    mask = sitk.OtsuThreshold(image, 0, 1, 200)
    n4 = sitk.N4BiasFieldCorrectionImageFilter()
    n4.SetMaximumNumberOfIterations([50] * 4)
    shrink = [min(4, n) if mm < 3 else 1 for n, mm in zip(image.GetSize(), image.GetSpacing(), strict=True)]
    n4.Execute(sitk.Shrink(image, shrink), sitk.Shrink(mask, shrink))
    return image / sitk.Exp(sitk.Cast(n4.GetLogBiasFieldAsImage(image), sitk.sitkFloat32))


def aligned(fixed: Any, moving: Any) -> Any:
    import SimpleITK as sitk

    start = sitk.CenteredTransformInitializer(
        fixed, moving, sitk.Euler3DTransform(), sitk.CenteredTransformInitializerFilter.MOMENTS
    )
    method = sitk.ImageRegistrationMethod()
    method.SetMetricAsMattesMutualInformation(50)
    method.SetMetricSamplingStrategy(method.RANDOM)
    method.SetMetricSamplingPercentage(0.1, 1)
    method.SetInterpolator(sitk.sitkLinear)
    method.SetOptimizerAsGradientDescent(1.0, 100, 1e-6, 10)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetShrinkFactorsPerLevel([4, 2, 1])
    method.SetSmoothingSigmasPerLevel([2, 1, 0])
    method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOn()
    method.SetInitialTransform(start, True)
    method.Execute(fixed, moving)
    return start


if __name__ == "__main__":
    {"imports": imports, "ours": ours, "usual": usual}[sys.argv[1]](*map(Path, sys.argv[2:]))

"""The cohort's mean maps by label, on the prepared grid, and where two groups differ.

Brains are aligned to the MNI152 frame rigidly and keep their size, so the same voxel is the same structure within about a
centimetre only. Letters: e grid edge, n patients, p grid positions, h, w pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float, Int32, UInt8

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient, first_visits, label_rows
from mri_vit.data.volume import Volume, canonical, read, resample
from mri_vit.data.volume import write as write_volume
from mri_vit.errors import UsageError
from mri_vit.explain.methods.catalogue import METHODS, UNIT
from mri_vit.explain.outputs import overlays
from mri_vit.explain.outputs.overlays import PLANES, Bar, Row
from mri_vit.explain.outputs.records import (
    GRID,
    GROUP_SCHEMA,
    MAP_SCHEMA,
    RESEARCH,
    GroupEntry,
    GroupMean,
    GroupRecord,
    file_name,
    write_json,
)
from mri_vit.kinds.kind import labels
from mri_vit.prepare.register import template
from mri_vit.run import atomic, files, integrity
from mri_vit.run.atomic import complete, write_bytes
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.schema import Endpoint
from mri_vit.settings.sections import Grid

MIN_PATIENTS = 3  # with brain at a voxel, or it has no mean: one or two patients are no group
MIN_SHARE = 0.5  # of the group as well, so that the rim is not the mean of the few largest heads
PERMUTATIONS = 999  # of the labels; the smallest p is 0.001
DECIMALS = 2  # of stored values, as in the patients' maps
DIFFERENCE_LIMIT = 8  # relative to a uniform map, where the difference's colours end; the same in every picture
MAX_TEMPLATE_GREY = 0.8  # of white: the template's white matter, so that faint colours can be seen on it
DIFFERENCE_COLOURS = "RdBu_r"  # red where the first group has more, blue where the second has; safe for the colour-blind


@dataclass(frozen=True)
class Group:
    """Patients of one label: the label as files have it, what it means, and who they are."""

    label: str
    title: str
    ids: frozenset[str]


@dataclass(eq=False)
class Sums:
    """A group's maps, added up as they are read."""

    total: Float[np.ndarray, "e e e"]
    brains: Int32[np.ndarray, "e e e"]  # patients with brain at the voxel
    by_place: list[Float[np.ndarray, "p"]] = field(default_factory=list)  # each patient's, for the permutations

    @classmethod
    def empty(cls, grid: Grid) -> Sums:
        shape = (grid.edge, grid.edge, grid.edge)
        return cls(np.zeros(shape, np.float32), np.zeros(shape, np.int32))

    def add(self, heat: Float[np.ndarray, "e e e"], brain: Bool[np.ndarray, "e e e"], grid: Grid) -> None:
        """Take in one patient's map."""
        self.total += heat
        self.brains += brain
        self.by_place.append(tokens.patchify(heat[None], grid.patch).mean(axis=1))

    @property
    def patients(self) -> int:
        return len(self.by_place)

    @property
    def known(self) -> Bool[np.ndarray, "e e e"]:
        """Where enough patients have brain for a mean."""
        return self.brains >= max(MIN_PATIENTS, MIN_SHARE * self.patients)

    @property
    def mean(self) -> Float[np.ndarray, "e e e"]:
        """0 where it is not known."""
        return np.where(self.known, self.total / np.maximum(self.brains, 1), 0).astype(np.float32).round(DECIMALS)


def write_group_maps(
    maps: Path,
    patients: Sequence[Patient],
    endpoints: Sequence[Endpoint],
    grid: Grid,
    folder: Path,
    settings: Mapping[str, Any],
) -> list[GroupEntry]:
    """Write every method's mean maps by every endpoint's groups into `folder`, and list them in its `group.json`.

    Per method and endpoint: each group's mean and the number of brains at each voxel, the difference (first group less
    second), sidecars, and a picture over the MNI152 brain. A map that is the same for every endpoint is divided by each.

    `maps` holds a folder for each patient, as `map_files.write_maps` writes it; patients without one are left out, and so are
    maps of other `settings` (`Explain.of_maps`). Of a patient's visits the first counts, because patients whose maps are averaged
    must be independent. `folder` appears whole or not at all. Entries have None for means of fewer than `MIN_PATIENTS`.
    """
    first = first_visits(patients)
    grid_maps = {patient.id: named for patient in first if (named := _grid_maps(maps / patient.id, settings))}
    split = {endpoint.name: groups(first, endpoint) for endpoint in endpoints}
    entries = []
    refuse_foreign(folder)
    with complete(folder, refuse_foreign) as beside:
        for method, own in dict.fromkeys(key for of_patient in grid_maps.values() for key in of_patient.maps):
            # All endpoints of a map that is the same for them, so that it is read once.
            groups_of = {name: pair for name, pair in split.items() if own in ("", name)}
            sums = {(name, group): Sums.empty(grid) for name, pair in groups_of.items() for group in pair}
            for patient, of_patient in grid_maps.items():
                part_of = [total for (_, group), total in sums.items() if patient in group.ids]
                if (method, own) not in of_patient.maps or not part_of:
                    continue
                brain, file = read(maps / patient / of_patient.mask).array > 0, of_patient.maps[method, own]
                heat = (
                    read(file).array if file else np.zeros(brain.shape, np.float32)
                )  # one value throughout is refused as no scan
                for total in part_of:
                    total.add(heat, brain, grid)
            for name, pair in groups_of.items():
                named = file_name(patients[0], method, name, "", GRID, "map.nii.gz").partition("_space-grid_")[2]
                totals = {group: sums[name, group] for group in pair}
                entries.append(_write_means(named, method, name, totals, np.array(grid.affine), beside))
        write_json(asdict(GroupRecord(GROUP_SCHEMA, UNIT, settings, entries)), beside / files.GROUP)
    return entries


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is nothing, or mean maps of ours and nothing else."""
    atomic.refuse_strangers(folder, lambda name: name == files.GROUP or name.startswith("group_"), "mean maps")
    if atomic.entries(folder) and not {"unit", "entries"} <= set(integrity.read_json_or_empty(folder / files.GROUP)):
        raise UsageError(f"{folder}: its {files.GROUP} is not there, damaged or another program's; the folder is left alone")


def groups(patients: Sequence[Patient], endpoint: Endpoint) -> tuple[Group, Group]:
    """The two groups whose maps are set against each other.

    A binary endpoint's 1 and 0. For survival, those who died by the median of the patients' known times of death, and those
    who lived beyond it; a patient censored before it belongs to neither.
    """
    known = [patient for patient in patients if patient.knows(endpoint)]
    first, second = labels(endpoint).sides(endpoint, label_rows(known, endpoint))
    one, other = (Group(name, words, frozenset(known[row].id for row in rows)) for name, words, rows in (first, second))
    return one, other


def largest_difference(
    first: Float[np.ndarray, "n p"], second: Float[np.ndarray, "m p"], generator: np.random.Generator
) -> tuple[float, float]:
    """The largest absolute difference of two groups' mean maps over the grid positions, and how often chance makes one as large.

    Definition: p = (1 + number of permutations of the labels whose largest difference is as large) / (1 + permutations).
    Assumption: patients are independent, and without a difference their labels could be exchanged. The largest over all
    positions is compared with the largest over all positions, so p holds for the whole map, however many grid positions it has.
    Source: Nichols & Holmes 2002, doi:10.1002/hbm.1058.
    """
    values = np.concatenate([first, second]).astype(np.float64)
    label = np.repeat([1.0, 0.0], [len(first), len(second)])
    shuffled = np.stack([label] + [generator.permutation(label) for _ in range(PERMUTATIONS)])
    weight = shuffled / len(first) - (1 - shuffled) / len(second)  # a row times the values is a difference of means
    largest = np.abs(weight @ values).max(axis=1)
    as_large = largest[1:] >= largest[0] * (1 - 1e-9)  # 1e-9: the same split must not miss itself by rounding
    return float(largest[0]), float((1 + as_large.sum()) / (1 + PERMUTATIONS))


@dataclass(frozen=True)
class GridMaps:
    """A patient's maps on the grid, from `map.json`: the brain's mask, and by method and endpoint the map, None where it is 0."""

    mask: str
    maps: dict[tuple[str, str], Path | None]


def _grid_maps(folder: Path, settings: Mapping[str, Any]) -> GridMaps | None:
    """None where there is no record, or one of another layout or other settings."""
    file = folder / files.MAP
    record = read_json(file) if file.is_file() else {}
    if (record.get("schema"), record.get("settings")) != (MAP_SCHEMA, settings):
        return None
    with as_written(file):
        maps = {
            (entry["method"], entry["endpoint"]): entry["files"][GRID] if entry["peak"] else None
            for entry in record["maps"]
            if not entry.get("of_class")
        }
        return GridMaps(record["mask"], {key: name and folder / name for key, name in maps.items()})


def _write_means(
    named: str, method: str, endpoint: str, pair: dict[Group, Sums], affine: Float[np.ndarray, "4 4"], folder: Path
) -> GroupEntry:
    """One method's and endpoint's files, and their entry in `group.json`; `named` is the end of the files' names."""
    title = f"{METHODS[method].title}, {endpoint}"
    means = [_write_mean(named, title, group, total, affine, folder) for group, total in pair.items()]
    first, second = pair.values()
    both = first.known & second.known
    if not both.any():
        return GroupEntry(method, endpoint, METHODS[method].title, means, None, None, None, None)
    generator = np.random.default_rng(0)  # of the permutations alone: a report made anew has the same p
    largest, p = largest_difference(np.stack(first.by_place), np.stack(second.by_place), generator)
    chance = f"Largest anywhere: {largest:.1f}; as large by chance with p = {p:.3f} ({PERMUTATIONS} permutations of the labels)"
    difference = np.where(both, first.mean - second.mean, 0).astype(np.float32)
    file = f"group_space-grid_{named.replace('_map.nii.gz', 'Difference_map.nii.gz')}"
    sizes = ", ".join(f"{total.patients} with {group.title}" for group, total in pair.items())
    _save(difference, affine, folder / file, f"difference of {title}", UNIT, sizes, chance)
    picture = f"group_{named.replace('_map.nii.gz', '_overlay.png')}"
    drawn = draw_means(
        f"{title} · mean maps over the MNI152 brain",
        [(f"{group.title}, mean of {total.patients} patients", Volume(total.mean, affine)) for group, total in pair.items()],
        (f"difference, first less second. {chance}", Volume(difference, affine)),
        f"Brains keep their size, so anatomy agrees within about a centimetre. {RESEARCH}",
    )
    write_bytes(drawn, folder / picture)
    return GroupEntry(method, endpoint, METHODS[method].title, means, file, picture, largest, p)


def _write_mean(named: str, title: str, group: Group, total: Sums, affine: Float[np.ndarray, "4 4"], folder: Path) -> GroupMean:
    """A group's mean and its number of brains, where there are patients enough."""
    if not total.known.any():
        return GroupMean(group.label, group.title, total.patients, None, None)
    file = f"group_space-grid_label-{group.label}_{named}"
    count = file.replace("_map.nii.gz", "Patients_map.nii.gz")
    rule = f"Mean over patients with brain at the voxel; 0 where fewer than {MIN_PATIENTS} patients or half of the group have it."
    _save(total.mean, affine, folder / file, f"mean of {title}: {group.title}", UNIT, total.patients, rule)
    _save(total.brains, affine, folder / count, f"brains at each voxel: {group.title}", "patients", total.patients, rule)
    return GroupMean(group.label, group.title, total.patients, file, count)


def _save(
    array: np.ndarray, affine: Float[np.ndarray, "4 4"], path: Path, description: str, unit: str, patients: int | str, note: str
) -> None:
    """A NIfTI with its sidecar."""
    write_volume(Volume(array, affine), path)
    sidecar = {
        "Description": description,
        "Units": unit,
        "Range": [round(float(array.min()), DECIMALS), round(float(array.max()), DECIMALS)],
        "Patients": patients,
        "SpatialReference": "the prepared grid, rigidly aligned to the MNI152 brain",
        "Note": f"{note} {RESEARCH}",
    }
    write_json(sidecar, path.with_name(path.name.removesuffix(".nii.gz") + ".json"))


def draw_means(title: str, means: Sequence[tuple[str, Volume]], difference: tuple[str, Volume], note: str) -> bytes:
    """The picture as PNG; each map, relative to a uniform map, comes with the line above its row."""
    brain = canonical(template()[0])
    shown = overlays.window(brain.array > 0, brain.spacing_mm)
    *maps, (caption, less) = [(caption, resample(heat, brain.shape, brain.affine)) for caption, heat in (*means, difference)]
    both = sum(heat.array for _, heat in maps)
    peak = tuple(int(i) for i in np.unravel_index(int(np.argmax(both)), brain.shape))
    contrast = 0.0, float(brain.array.max()) / MAX_TEMPLATE_GREY
    rows = [
        Row(
            title_of_row,
            [overlays.panel(brain, contrast, heat, axis, peak, shown) for _, axis, _ in PLANES],
            overlays.colour_bar(),
            overlays.nearly_even(float(heat.array.max())),
        )
        for title_of_row, heat in maps
    ]
    cuts = [[overlays.plane(part.array, axis, peak[axis], shown) for part in (brain, less)] for _, axis, _ in PLANES]
    differing = [blend_difference((scan / contrast[1]).clip(0, 1), cut) for scan, cut in cuts]
    return overlays.sheet(title, [*rows, Row(caption, differing, difference_bar())], shown, note)


def blend_difference(grey: Float[np.ndarray, "h w"], difference: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """Colour mixed into grey: colour and opacity grow evenly with the difference, whose zero is clear."""
    height = (difference / DIFFERENCE_LIMIT).clip(-1, 1)
    colour = mpl.colormaps[DIFFERENCE_COLOURS]((1 + height) / 2)[..., :3]
    opacity = overlays.OPACITY * np.abs(height)[..., None]
    return np.rint(255 * ((1 - opacity) * grey[..., None] + opacity * colour)).astype(np.uint8)


def difference_bar() -> Bar:
    """The difference's scale as it looks over tissue from black (left) to white (right)."""
    grey, difference = np.meshgrid(np.linspace(0, 1, 18), np.linspace(-DIFFERENCE_LIMIT, DIFFERENCE_LIMIT, 129))
    half = DIFFERENCE_LIMIT // 2
    labels = (f"≤ −{DIFFERENCE_LIMIT}", f"−{half}", "0", f"{half}", f"≥ {DIFFERENCE_LIMIT}")
    return Bar(blend_difference(grey, difference), [(index / 4, label) for index, label in enumerate(labels)], UNIT)

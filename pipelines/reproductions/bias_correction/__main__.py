"""What bias correction does to a tumour: synthetic heads with a known tumour and a known field, and real patients with masks.

.venv/bin/python pipelines/reproduce.py bias_correction [--real ../shared/data] [--picture FOLDER --output bias.png] [--json FILE]

Phantoms: the MNI152 head of `mri_vit.phantom`, 2 mm voxels, 24 cases: tumours of 20, 70 and 200 ml (oedema, enhancing rim, dark
core) at four places, under fields of ±20 % and ±40 % of three kinds (eight receive coils with unequal gain, a quadratic, four
waves 300 to 500 mm long), another draw in every case. Each voxel has the commonest healthy tissue of the template's maps,
softened by half a voxel: the maps themselves are averages over many brains, in which grey and white matter blend as in no single
head. Noise is 3 % of white matter. What the phantom lacks: tissue that differs within its class, vessels, motion, a skull.

Figures, of each scan and case:
kept      contrast of the tumour after correction by that in the same head without a field. Contrast is the mean of the tumour
          (on T1ce of the enhancing part) less the mean of the rest of the brain, in standard deviations of the rest.
removed   1 - variance of what is left of the log field by the variance of the field planted, inside the brain.
Real patients have no known field: their contrast and the spread of healthy brain (SD by mean) are given before and after.

About 8 minutes on one busy core, --real included. README.md has what it printed.
"""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image, ImageDraw, ImageFont
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from scipy.ndimage import gaussian_filter

from mri_vit.data.volume import Volume, canonical, read
from mri_vit.prepare import bias, brain
from mri_vit.settings.schema import CHANNELS
from mri_vit.synthetic import BEND_MM, CONTROLS, DENT_SHARE, TISSUE, Case, Phantom, scaled, unscaled_bend

PICTURE = Path(__file__).with_name("bias.png")
SPACING_MM = 2.0
NOISE = 0.03  # of white matter, as in the built-in cohort
GAIN = 500.0
PLACES = {"frontal": (28, 38, 28), "temporal": (-46, -18, -12), "parietal": (-30, -52, 38), "deep": (14, -12, 12)}  # MNI, mm
SIZES_ML = (20, 70, 200)
STRENGTHS = (0.2, 0.4)
KINDS = ("coils", "quadratic", "waves")
SETTINGS = {
    f"{levels} level{'s' * (levels > 1)}, {'outliers left out' if rounds else 'all of the brain'}": (levels, rounds)
    for rounds, levels in product((0, bias.ROUNDS), (1, 2, 3, 4))
}
KEPT, REMOVED, REAL_KEPT = 0.90, 0.70, 0.85  # what is asked for
UNMOVED = {channel: np.eye(4) for channel in CHANNELS}


@dataclass(frozen=True, eq=False)
class Head:
    """A patient with masks; a phantom also has its field and its scans without one."""

    name: str
    scans: dict[str, Volume]
    brain: Bool[np.ndarray, "x y z"]
    tumour: Bool[np.ndarray, "x y z"]
    enhancing: Bool[np.ndarray, "x y z"]
    rest: Bool[np.ndarray, "x y z"]
    clean: dict[str, Volume] | None = None
    log_field: Float[np.ndarray, "x y z"] | None = None

    def contrast(self, array: np.ndarray, channel: str) -> float:
        part = self.enhancing if channel == "t1ce" and self.enhancing.any() else self.tumour
        found = bias.lesion_contrast(array, part, self.rest | part)
        assert found is not None
        return found


def main(*, real: Path | None = None, picture: Path | None = None, output: Path = PICTURE, json_file: Path | None = None) -> None:
    """Measure and print; `--picture` draws the raw patient's reference scans of that folder before and after instead."""
    if picture:
        draw(raw(picture), output)
        return
    began = time.perf_counter()
    console = Console(width=150)
    figures = [row for head in phantoms() for row in measured(head)]
    for row in summary(figures):
        console.print(row)
    console.print(cases(figures))
    if real:
        for head in patients(real):
            console.print(of_patient(head))
    console.print(f"{time.perf_counter() - began:.0f} s")
    if json_file:
        json_file.write_text(json.dumps(figures, indent=1) + "\n")


def phantoms() -> Iterator[Head]:
    for index, (place, size_ml) in enumerate(product(PLACES, SIZES_ML)):
        shares = tissue(place, size_ml, seed=index)
        for strength in STRENGTHS:
            yield phantom(f"{place} {size_ml} ml ±{strength:.0%}", shares, KINDS[(index + index // 3) % 3], strength, index)


def tissue(place: str, size_ml: float | int, seed: int, spacing_mm: float = SPACING_MM) -> Float[np.ndarray, "x y z 6"]:
    """Shares of CSF, grey, white, core, enhancement and oedema around the MNI152 brain; the tumour has the size asked for."""
    generator = np.random.default_rng(seed)
    bend = unscaled_bend(generator)
    dent = gaussian_filter(generator.normal(size=CONTROLS), 1)

    def at(radius_mm: float, points: np.ndarray) -> np.ndarray:
        rim_mm = min(5.0, 0.4 * radius_mm)
        x, y, z = (float(mm) for mm in PLACES[place])
        person = {"id": "phantom", "age": 60, "sex": "F", "site": "a", "labels": {}}
        case = Case(
            **person,
            centre_mm=(x, y, z),
            radius_mm=radius_mm,
            solid=False,
            wide_oedema=bool(seed % 2),
            rim_mm=rim_mm,
            rim_signal=TISSUE["t1ce"][4],
        )
        return Phantom(np.eye(4), scaled(bend, BEND_MM), case, scaled(dent, DENT_SHARE)).tissues(points)

    fine, coarse = grid(spacing_mm), grid(2 * spacing_mm)
    low, high = 2.0, 60.0
    for _ in range(8):
        middle = (low + high) / 2
        held_ml = (at(middle, coarse)[:, 3:].sum(axis=1) > 0.5).sum() * (2 * spacing_mm) ** 3 / 1000
        low, high = (middle, high) if held_ml < size_ml else (low, middle)
    soft = at(middle, fine).reshape(*shape(spacing_mm), 6)
    inside = soft.sum(axis=-1) > 0
    commonest = np.eye(3)[soft[..., :3].argmax(axis=-1)] * (soft[..., :3].sum(axis=-1) > 0)[..., None]
    crisp = np.stack([gaussian_filter(commonest[..., k], 0.6) for k in range(3)], axis=-1)
    crisp /= np.maximum(crisp.sum(axis=-1, keepdims=True), 1e-6)
    sick = soft[..., 3:]
    return np.concatenate([crisp * (1 - sick.sum(axis=-1, keepdims=True)), sick], axis=-1) * inside[..., None]


def shape(spacing_mm: float) -> tuple[int, int, int]:
    x, y, z = (round(mm / spacing_mm) for mm in (200, 232, 200))  # the MNI152 brain and about 3 cm around it
    return x, y, z


def affine(spacing_mm: float) -> Float[np.ndarray, "4 4"]:
    matrix = np.diag([spacing_mm, spacing_mm, spacing_mm, 1.0])
    matrix[:3, 3] = np.array([0, -17, 5]) - spacing_mm * (np.array(shape(spacing_mm)) - 1) / 2
    return matrix


def grid(spacing_mm: float) -> Float[np.ndarray, "n 3"]:
    index = np.indices(shape(spacing_mm)).reshape(3, -1).T
    return index * spacing_mm + affine(spacing_mm)[:3, 3]


def phantom(
    name: str, shares: Float[np.ndarray, "x y z 6"], kind: str, strength: float, seed: int, spacing_mm: float = SPACING_MM
) -> Head:
    """The four scans of a head under one field, and the same without it."""
    inside = shares.sum(axis=-1) > 0
    sick = shares[..., 3:].sum(axis=-1)
    gain = field(kind, strength, inside, seed, spacing_mm)
    generator = np.random.default_rng(seed)
    clean, scans = {}, {}
    for channel in CHANNELS:
        signal = shares @ np.array(TISSUE[channel]) + generator.normal(0, NOISE, inside.shape)
        array = np.where(inside, np.maximum(GAIN * signal, 1), 0)
        clean[channel] = Volume(array.astype(np.float32), affine(spacing_mm))
        scans[channel] = Volume((array * gain).astype(np.float32), affine(spacing_mm))
    return Head(name, scans, inside, sick > 0.5, shares[..., 4] > 0.5, inside & (sick < 0.01), clean, np.log(gain))


def field(kind: str, strength: float, inside: np.ndarray, seed: int, spacing_mm: float) -> Float[np.ndarray, "x y z"]:
    """A smooth gain that spans 1 ± strength over the brain; 1 outside."""
    generator = np.random.default_rng([seed, 1])
    points = grid(spacing_mm)[inside.ravel()] / 100  # decimetres: about -1 to 1 over a head
    if kind == "coils":
        around = generator.normal(size=(8, 3)) * (1, 1, 0.5)
        places = 1.3 * around / np.linalg.norm(around, axis=1, keepdims=True) + (0, -0.17, 0.05)
        power = [(1 + ((points - place) ** 2).sum(axis=1) / 0.8**2) ** -3 for place in places]  # a loop's, 8 cm wide
        drawn = np.sqrt(generator.uniform(0.5, 1.5, 8) @ np.array(power))
    elif kind == "quadratic":
        cross = points[:, [0, 0, 1]] * points[:, [1, 2, 2]]
        slope, curve, twist = generator.normal(0, (1, 0.7, 0.7), (3, 3)).T
        drawn = points @ slope + points**2 @ curve + cross @ twist
    else:
        ways = generator.normal(size=(4, 3))
        ways *= 2 * math.pi / generator.uniform(3, 5, (4, 1)) / np.linalg.norm(ways, axis=1, keepdims=True)
        drawn = np.cos(points @ ways.T + generator.uniform(0, 2 * math.pi, 4)) @ generator.normal(size=4)
    gain = np.ones(inside.shape)
    gain[inside] = 1 + strength * (2 * (drawn - drawn.min()) / np.ptp(drawn) - 1)
    return gain


def measured(head: Head) -> list[dict[str, str | float]]:
    """A row for each setting and scan of a phantom."""
    assert head.clean is not None
    assert head.log_field is not None
    rows: list[dict[str, str | float]] = []
    masks = {channel: head.brain for channel in CHANNELS}
    for setting, (levels, rounds) in SETTINGS.items():
        found = bias.correct(head.scans, masks, UNMOVED, levels, rounds)
        for channel, one in found.items():
            without = head.contrast(head.clean[channel].array, channel)
            left = np.log(one.volume.array[head.brain] / head.clean[channel].array[head.brain])
            planted = head.log_field[head.brain]
            rows.append(
                {
                    "case": head.name,
                    "setting": setting,
                    "channel": channel,
                    "without": without,
                    "came": head.contrast(head.scans[channel].array, channel) / without,
                    "kept": head.contrast(one.volume.array, channel) / without,
                    "removed": float(1 - left.var() / planted.var()),
                }
            )
    return rows


def summary(figures: list[dict]) -> Iterator[Table]:
    """Per setting and scan: median and least over the cases, and how many reach both bars."""
    for strength in STRENGTHS:
        table = Table(box=SIMPLE_HEAD, title=f"phantoms, ±{strength:.0%}: contrast kept | field removed, median (least); met")
        table.add_column("")
        for channel in CHANNELS:
            table.add_column(channel, justify="right")
        for setting in SETTINGS:
            cells = []
            for channel in CHANNELS:
                rows = [
                    row
                    for row in figures
                    if (row["setting"], row["channel"]) == (setting, channel) and row["case"].endswith(f"±{strength:.0%}")
                ]
                kept, removed = ([row[key] for row in rows] for key in ("kept", "removed"))
                met = sum(row["kept"] >= KEPT and row["removed"] >= REMOVED for row in rows)
                cells.append(
                    f"{median(kept):.2f} ({min(kept):.2f}) | {median(removed):.2f} ({min(removed):.2f}); {met}/{len(rows)}"
                )
            table.add_row(setting, *cells)
        yield table


def cases(figures: list[dict]) -> Table:
    """Every case under the shipped setting."""
    shipped = next(name for name, chosen in SETTINGS.items() if chosen == (bias.LEVELS, bias.ROUNDS))
    table = Table(box=SIMPLE_HEAD, title=f"{shipped}: contrast as it came → kept | field removed")
    for column in ("case", *CHANNELS):
        table.add_column(column, justify="right")
    for case in dict.fromkeys(row["case"] for row in figures):
        rows = {row["channel"]: row for row in figures if (row["case"], row["setting"]) == (case, shipped)}
        table.add_row(case, *(f"{r['came']:.2f} → {r['kept']:.2f} | {r['removed']:.2f}" for r in rows.values()))
    return table


def patients(folder: Path) -> Iterator[Head]:
    """Real patients with tumour masks: the three of `tumours`, and the references of the raw and of the stripped one."""
    for one in sorted((folder / "tumours").iterdir()):
        scans = {channel: canonical(read(one / f"{channel}.nii.gz")) for channel in CHANNELS}
        yield head_of(one.name, scans, brain.foreground(scans["t1ce"].array), canonical(read(one / "seg.nii.gz")).array)
    yield raw(folder / "raw" / "TCGA-FG-6692")
    yield raw(folder / "stripped" / "TCGA-DU-7294")


def raw(folder: Path) -> Head:
    """A patient's scans in SRI24 space, made by others, without bias correction."""
    names = ("brain_mask", "tumour", *CHANNELS)
    found = {name: canonical(read(folder / "reference" / f"sri24_{name}.nii.gz")) for name in names}
    scans = {channel: found[channel] for channel in CHANNELS}
    return head_of(folder.name, scans, found["brain_mask"].array > 0, found["tumour"].array)


def head_of(name: str, scans: dict[str, Volume], inside: np.ndarray, label: np.ndarray) -> Head:
    """Labels as in BraTS: 1 necrosis, 2 oedema, 4 enhancing."""
    tumour = inside & (label > 0)
    return Head(name, scans, inside, tumour, inside & (label == 4), inside & ~tumour)


def of_patient(head: Head) -> Table:
    sizes = [brain.volume_ml(mask, head.scans["t1ce"]) for mask in (head.tumour, head.enhancing)]
    table = Table(box=SIMPLE_HEAD, title=f"{head.name}: tumour {sizes[0]:.0f} ml, enhancing {sizes[1]:.0f} ml; contrast (spread)")
    for column in ("", *CHANNELS):
        table.add_column(column, justify="right")

    def cell(array: np.ndarray, channel: str) -> str:
        rest = array[head.rest]
        return f"{head.contrast(array, channel):.2f} ({rest.std() / rest.mean():.3f})"

    table.add_row("as they came", *(cell(scan.array, channel) for channel, scan in head.scans.items()))
    masks = {channel: head.brain for channel in CHANNELS}
    for setting, (levels, rounds) in SETTINGS.items():
        found = bias.correct(head.scans, masks, UNMOVED, levels, rounds)
        table.add_row(setting, *(cell(one.volume.array, channel) for channel, one in found.items()))
    return table


def draw(head: Head, output: Path) -> None:
    """FLAIR and T1ce in the axial plane that holds most tumour: as they came, with four levels, as shipped."""
    plane = int(head.tumour.sum(axis=(0, 1)).argmax())
    masks = {channel: head.brain for channel in CHANNELS}
    columns = {
        "as it came": head.scans,
        "4 levels": {c: o.volume for c, o in bias.correct(head.scans, masks, UNMOVED, 4, 0).items()},
        "as shipped": {c: o.volume for c, o in bias.correct(head.scans, masks, UNMOVED).items()},
    }
    edge, top = 220, 22
    picture = Image.new("L", (edge * len(columns), (edge + top) * 2), 16)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(12)
    for row, channel in enumerate(("flair", "t1ce")):
        for column, (title, scans) in enumerate(columns.items()):
            array = scans[channel].array
            low, high = np.percentile(array[head.brain], (1, 99.5))
            shown = np.where(head.brain, ((array - low) / (high - low)).clip(0, 1) * 255, 0).astype(np.uint8)
            box = [slice(int(i.min()), int(i.max()) + 1) for i in np.nonzero(head.brain)][:2]
            image = Image.fromarray(shown[box[0], box[1], plane].T[::-1, ::-1])
            image.thumbnail((edge, edge))
            picture.paste(image, (column * edge + (edge - image.width) // 2, row * (edge + top) + top))
            label = f"{channel} {title}: {head.contrast(array, channel):.2f} SD"
            pen.text((column * edge + 4, row * (edge + top) + 4), label, 225, font)
    picture.save(output, "PNG", optimize=True)

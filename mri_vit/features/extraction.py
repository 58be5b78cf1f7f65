"""Extraction: frozen features of every prepared patient, one file a patient while it runs, and one file of all at the end.

The file holds what the features were read from and under which licence. Encoders are those of others (foreign.py) or ours: a
trained network or a pretrained encoder.

Letters: n patients, d numbers of each; in a batch b patients, p tokens of each, k numbers in a patch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
import safetensors.numpy
import torch
from einops import rearrange
from jaxtyping import Float, Int
from rich.console import Console
from torch import Tensor, nn

from mri_vit.data import cohort, run_cohort, tokens
from mri_vit.data.store import chosen_tokens, token_file
from mri_vit.data.tokens import Tokens
from mri_vit.errors import IntegrityError, UnusablePatient, UsageError
from mri_vit.features import foreign
from mri_vit.features.fitting import CLS, HEADS, MEAN, Foreign
from mri_vit.features.foreign import Expected
from mri_vit.model import network, weights
from mri_vit.model.encoder import Encoder
from mri_vit.pretrain.mae import encoded
from mri_vit.run import files, integrity
from mri_vit.run.atomic import held, replacing
from mri_vit.run.integrity import as_written, sort_header
from mri_vit.run.screen import WARNING, counted, progress, say
from mri_vit.settings import source
from mri_vit.settings.recipe import Model
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid

FILE, PARTS = "features.safetensors", "patients"  # in the output; the second has a file of each patient
Fusion = Literal["concatenate", "mean"]
Reads = Callable[[Tokens, Path], dict[str, Tensor]]  # a patient's features [d] by reading; may raise UnusablePatient
MIN_INSIDE_SHARE = 0.98  # of the brain; a cube that cuts off more causes a warning
SCHEMA = "mri-vit features 1"
TUPLES = ("channels", "taught", "seen")


@dataclass(frozen=True)
class Asked:
    """What to read: `channels` in the encoder's order (none: all that were prepared); `card` as `foreign.read_card` takes it."""

    weights: Path
    channels: tuple[str, ...]
    fusion: Fusion
    card: Mapping[str, Any]


def write(prepared: Mapping[str, Path], asked: Asked, output: Path, console: Console) -> int:
    """Write `features.safetensors` of these patients; what an earlier command has read of a patient is not read again.

    `prepared` names each patient's token file. `output` also keeps a file of each patient that has been read, from which a
    stopped command resumes. Returns how many patients could not be read; each is named with the reason.

    Raises UsageError without a patient, for weights of no known architecture, for other sequences than those that were prepared,
    and for an output that holds features of other weights or settings.
    """
    if not prepared:
        raise UsageError("there is no prepared patient; run `mri-vit prepare` first")
    if wrong := source.fault(asked.weights):
        raise UsageError(f"{source.shown(asked.weights)}: {wrong} (--weights)")
    first = next(iter(prepared))
    origin, reads = reader(asked, prepared[first])
    say(console, f"{origin.architecture} ({origin.source}); licence {origin.licence}; features of {', '.join(origin.channels)}")
    for warned in (source.licence_caution(origin.weights, origin.licence), _cut_off(origin, first, prepared[first])):
        if warned:
            say(console, warned, WARNING)
    with held(output, (PARTS,)):
        if (output / FILE).exists() and (earlier := load_features(output / FILE).origin) != origin:
            other = next(key for key, value in asdict(origin).items() if asdict(earlier)[key] != value)
            raise UsageError(f"{output / FILE}: holds features of another {other}; choose another output")
        (output / PARTS).mkdir(exist_ok=True)
        rows, left_out = _rows(prepared, origin, reads, output / PARTS, console)
        if not rows:
            raise UsageError(f"{asked.weights}: no patient could be read; the first because {next(iter(left_out.values()))}")
        vectors = {name: np.stack([row[name] for row in rows.values()]) for name in next(iter(rows.values()))}
        save_features(Features(origin, tuple(rows), vectors), output / FILE)
    shapes = ", ".join(f"{name} {row.shape[1]}" for name, row in vectors.items())
    say(console, f"{counted(len(rows), 'patient')}, numbers of each: {shapes}; {output / FILE}")
    return len(left_out)


def reader(asked: Asked, example: Path) -> tuple[Origin, Reads]:
    """What features are read from, and how; `example` is a patient's tokens, whose grid and sequences are those of all."""
    sha256, name = integrity.sha256(asked.weights), asked.weights.name
    if own_schema(asked.weights):
        own = load_ours(asked.weights)
        given = [key for key, value in asked.card.items() if value is not None and key != "licence"]
        if given or asked.channels not in ((), own.channels):
            raise UsageError(f"{asked.weights}: this file stores its own settings; leave --{(given or ['channels'])[0]} out")
        licence = asked.card.get("licence") or own.model.weights_licence or source.OWN_LICENCE
        origin = Origin(
            name, sha256, licence, f"our {own.model.architecture}", "this package", own.channels, "none",
            taught=tuple(sorted(own.label_exposed)), seen=tuple(sorted(own.image_exposed)),
        )  # fmt: skip
        return origin, partial(read_ours, own)
    known = foreign.read_card(asked.weights, asked.card)
    prepared = tokens.load(example)
    encoder, expected = foreign.load(asked.weights, known, prepared.grid)
    channels = asked.channels or prepared.channels
    if unknown := [name for name in channels if name not in prepared.channels]:
        raise UsageError(f"--channels {unknown[0]}: found {', '.join(prepared.channels)} in {example}")
    if encoder.channels not in (1, len(channels)):
        raise UsageError(
            f"{asked.weights}: the encoder reads {encoder.channels} channels at once; found {', '.join(channels)}; name as many,"
            " in its order, by --channels"
        )
    fusion = asked.fusion if encoder.channels == 1 and len(channels) > 1 else "none"
    origin = Origin(
        name, sha256, source.stated_licence(known.licence), encoder.architecture, encoder.source, channels, fusion, encoder.heads,
        asdict(expected),
    )  # fmt: skip
    return origin, partial(read_foreign, encoder, expected, channels, fusion)


@torch.no_grad()
def read_foreign(
    encoder: Foreign, expected: Expected, channels: tuple[str, ...], fusion: str, prepared: Tokens, path: Path
) -> dict[str, Float[Tensor, " d"]]:
    """What an encoder of others reads of a patient.

    One of a single channel reads each sequence by itself; they are put side by side, or their mean is taken over those that the
    patient has. Raises UnusablePatient where a sequence is missing that would have its own place.
    """
    scan = foreign.expected_scan(prepared, expected, channels)
    missing = [name for name in channels if name not in scan.channels]
    if missing and (fusion != "mean" or not scan.channels):
        raise UnusablePatient(f"the sequence {missing[0]} is missing; --fusion mean takes those that there are", str(path))
    volumes = torch.from_numpy(scan.volumes)
    if encoder.channels > 1:
        return {name: rows[0] for name, rows in encoder.network(volumes[None]).items()}
    read = encoder.network(volumes[:, None])  # each sequence as a volume of one channel: [c d]
    if fusion == "mean":
        return {name: rows.mean(dim=0) for name, rows in read.items()}
    return {name: rearrange(rows, "c d -> (c d)") for name, rows in read.items()}


def _cut_off(origin: Origin, name: str, path: Path) -> str:
    """A sentence where the encoder's cube does not hold a patient's brain; "" where it does, or where there is no cube."""
    if origin.expected is None:
        return ""
    prepared, expected = tokens.load(path), Expected(**origin.expected)
    inside = foreign.share_inside((tokens.to_volume(prepared) != 0).any(axis=0), prepared.grid, expected)
    if inside >= MIN_INSIDE_SHARE:
        return ""
    held = f"{expected.edge} voxels of {expected.spacing_mm:g} mm hold {inside:.0%} of the brain of {name}"
    return f"{held}; the rest is cut off, which a larger --spacing-mm or --edge avoids"


def _rows(
    prepared: Mapping[str, Path], origin: Origin, reads: Reads, home: Path, console: Console
) -> tuple[dict[str, dict[str, Float[np.ndarray, " d"]]], dict[str, str]]:
    """The features of each patient, read where they are not there yet; and who could not be read, with the reason."""
    rows: dict[str, dict[str, Float[np.ndarray, " d"]]] = {}
    left_out: dict[str, str] = {}
    with progress(console) as bar:
        task = bar.add_task("features", total=len(prepared), note="")
        for name, path in prepared.items():
            try:
                rows[name] = _of_patient(name, path, origin, reads, home)
            except UnusablePatient as fault:
                left_out[name] = fault.reason
                say(bar.console, f"left out {name}: {fault}", WARNING)
            bar.update(task, advance=1, note=name)
    return rows, left_out


def _of_patient(name: str, path: Path, origin: Origin, reads: Reads, home: Path) -> dict[str, Float[np.ndarray, " d"]]:
    """A patient's features; those that lie there are taken if they are of the same weights, settings and voxels."""
    made_of = {"origin": asdict(origin), "tokens": integrity.sha256(path)}
    key = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    file = home / f"{name}.{key[:16]}.safetensors"
    if file.exists():
        try:
            return {reading: rows[0] for reading, rows in load_features(file).vectors.items()}
        except IntegrityError:
            file.unlink()
    vectors = {reading: vector.numpy() for reading, vector in reads(tokens.load(path), path).items()}
    for reading, vector in vectors.items():
        if not np.isfinite(vector).all():
            raise UnusablePatient(f"{reading} holds NaN or infinite numbers", str(path))
    save_features(Features(origin, (name,), {reading: vector[None] for reading, vector in vectors.items()}), file)
    return vectors


def in_folder(folder: Path) -> dict[str, Path]:
    """The token files in a folder of prepared patients, by patient in the order of their names."""
    return {path.parent.name: path for path in sorted(folder.glob(f"*/{files.TOKENS}")) if not path.parent.name.startswith(".")}


def of_study(study: Study) -> tuple[dict[str, Path], list[str]]:
    """The token file of each of a study's patients, and which are not prepared; of a run without those that it excluded."""
    run = study.output
    frozen_there = all((run / name).exists() for name in (files.COHORT, files.EXCLUDED))
    patients = run_cohort.included(study, run) if frozen_there else cohort.of_study(study)
    paths = {patient.id: token_file(study.prepared, patient) for patient in patients}
    return {name: path for name, path in paths.items() if path.exists()}, [
        name for name, path in paths.items() if not path.exists()
    ]


@dataclass(frozen=True)
class Origin:
    """What features were read from: everything on which a number depends but the patient.

    `weights` is the file's name and `weights_sha256` its content; `fusion` how sequences that were read one by one were put
    together, "none" where they were read at once; `expected` the scans that the encoder was given, as in `foreign.Expected`;
    `taught` and `seen`, as the file names them, are the subjects whose labels, or scans, trained an encoder of ours.
    """

    weights: str
    weights_sha256: str
    licence: str
    architecture: str
    source: str
    channels: tuple[str, ...]
    fusion: str
    heads: int | None = None
    expected: dict[str, Any] | None = None
    taught: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the encoder, for tables: Primus (weights.pth)."""
        return f"{self.architecture} ({Path(self.weights).stem})"


@dataclass(frozen=True, eq=False)
class Features:
    """Of each of `patients` a row [n d], by the way the encoder is read."""

    origin: Origin
    patients: tuple[str, ...]
    vectors: dict[str, Float[np.ndarray, "n _"]]


def save_features(features: Features, path: Path) -> None:
    """Write the file atomically."""
    metadata = {"schema": SCHEMA, "origin": json.dumps(asdict(features.origin)), "patients": json.dumps(features.patients)}
    with replacing(path) as beside:
        safetensors.numpy.save_file(
            {name: np.ascontiguousarray(rows) for name, rows in features.vectors.items()}, beside, metadata
        )
        sort_header(beside)


def load_features(path: Path) -> Features:
    """Read a file of features. Raises UsageError when there is none, IntegrityError when it is damaged or is something else."""
    if wrong := source.fault(path):
        raise UsageError(f"{source.shown(path)}: {wrong}; a file that `mri-vit features` wrote is expected")
    try:
        with safetensors.safe_open(str(path), "numpy") as file:
            metadata = file.metadata() or {}
            vectors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        raise IntegrityError(f"{path}: not a file of features: {error}") from None
    if metadata.get("schema") != SCHEMA:
        raise IntegrityError(f"{path}: found {metadata.get('schema')}; expected {SCHEMA}")
    with as_written(path):
        written = json.loads(metadata["origin"])
        origin = Origin(**written | {key: tuple(written[key]) for key in TUPLES})
        patients = tuple(str(name) for name in json.loads(metadata["patients"]))
        if any(rows.ndim != 2 or len(rows) != len(patients) for rows in vectors.values()) or not vectors:
            raise ValueError(f"features of shape {[rows.shape for rows in vectors.values()]} for {len(patients)} patients")
    return Features(origin, patients, vectors)


# --- encoders of ours ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ours:
    """An encoder with what it was made for; `label_exposed` and `image_exposed` are subjects, as in a network."""

    encoder: nn.Module
    model: Model
    grid: Grid
    channels: tuple[str, ...]
    label_exposed: tuple[str, ...]
    image_exposed: tuple[str, ...]


def own_schema(path: Path) -> str:
    """The schema of a file of ours; "" for any other."""
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            schema = (file.metadata() or {}).get("schema", "")
    except (safetensors.SafetensorError, OSError):
        return ""
    return schema if schema in (network.SCHEMA, weights.SCHEMA) else ""


def load_ours(path: Path) -> Ours:
    """The encoder of a file of ours. Raises IntegrityError where it is damaged."""
    if own_schema(path) == network.SCHEMA:
        net = network.load(path)
        return Ours(
            net.encoder.eval(),
            net.model,
            net.grid,
            tuple(net.channels),
            tuple(weights.label_exposed(path)),
            tuple(weights.image_exposed(path)),
        )
    tensors, header = weights.load_encoder(path)
    with as_written(path):
        model, grid = Model.model_validate(header["model"]), Grid.model_validate(header["grid"])
        channels = tuple(header["channels"])
    encoder = network.encoder(model.model_copy(update={"drop_path": 0.0}), grid, channels)
    with as_written(path):
        encoder.load_state_dict(tensors)
    if header.get("norm_eps"):
        encoder.norm_eps = float(header["norm_eps"])
    return Ours(encoder.eval(), model, grid, channels, tuple(weights.label_exposed(path)), tuple(weights.image_exposed(path)))


def read_ours(ours: Ours, prepared: Tokens, path: Path) -> dict[str, Float[Tensor, " d"]]:
    """What it reads of a patient. Raises UsageError where the patient was prepared on another grid, or with other sequences."""
    if prepared.grid != ours.grid:
        own, expected = (json.dumps(grid.model_dump()) for grid in (prepared.grid, ours.grid))
        raise UsageError(f"{path}: prepared on the grid {own}; the encoder reads {expected}")
    if prepared.channels != ours.channels:
        own, expected = (", ".join(names) for names in (prepared.channels, ours.channels))
        raise UsageError(f"{path}: found the sequences {own}; the encoder reads {expected}")
    return {name: vector[0] for name, vector in readings(ours.encoder, *chosen_tokens(prepared, ours.model.tokens)).items()}


@torch.no_grad()
def readings(
    encoder: nn.Module, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]
) -> dict[str, Float[Tensor, "b d"]]:
    """An encoder's features of patients, by the way it is read.

    Of Vision Transformers `CLS` and the mean over the other tokens, both after the last norm; what heads read, where that is
    something else.
    """
    found: dict[str, Tensor] = {}
    if isinstance(encoder, Encoder):
        x = encoded(encoder, patches, position)  # (b, n, d)
        found = {CLS: x[:, 0], MEAN: x[:, 1:].mean(dim=1)}
    if not isinstance(encoder, Encoder) or encoder.pool != "cls":
        found[HEADS] = encoder(patches, position)
    return found

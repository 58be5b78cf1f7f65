"""Two patients at full size: a ViT-B/16 inflated from a 2D one takes two steps of training on their foreground tokens.

.venv/bin/python pipelines/benchmarks/full_size.py FOLDER FOLDER     (each holds t1, t1ce, t2 and flair.nii.gz)

The 2D weights are random and the labels invented: this shows that a network of the published size, started from a 2D
checkpoint, is prepared, trained, saved and read back in 6 GB of memory, not that it learns. About three minutes on one core.
"""

import resource
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import safetensors.torch
import torch

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import token_file
from mri_vit.model.network import Network
from mri_vit.prepare.patient import prepare_patient
from mri_vit.settings.schema import CHANNELS, Endpoint, Model, Study, Train
from mri_vit.train.supervised import fit

LIMIT_GB = 6.0  # what an ordinary machine has free
IMAGE = 224  # pixels along an edge of what published ViTs were trained on


def write_random_2d(path: Path, model: Model, patch: int) -> None:
    """A random 2D ViT of the model's shape, as timm names its weights."""
    dim, depth, _, mlp = model.shape
    shapes = {
        "cls_token": (1, 1, dim),
        "pos_embed": (1, (IMAGE // patch) ** 2 + 1, dim),
        "patch_embed.proj.weight": (dim, 3, patch, patch),
        "patch_embed.proj.bias": (dim,),
    }
    inside = {"attn.qkv": (3 * dim, dim), "attn.proj": (dim, dim), "mlp.fc1": (mlp, dim), "mlp.fc2": (dim, mlp)}
    for i in range(depth):
        for name, (rows, columns) in inside.items():
            shapes |= {f"blocks.{i}.{name}.weight": (rows, columns), f"blocks.{i}.{name}.bias": (rows,)}
    generator = torch.Generator().manual_seed(0)
    weights = {name: 0.02 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}  # as ViTs start
    for norm in ("norm", *(f"blocks.{i}.norm{n}" for i in range(depth) for n in (1, 2))):
        weights |= {f"{norm}.weight": torch.ones(dim), f"{norm}.bias": torch.zeros(dim)}
    safetensors.torch.save_file(weights, path)


def peak_gb(who: int) -> float:
    """Most resident memory so far, of this process or of the largest child."""
    return resource.getrusage(who).ru_maxrss * 1024 / 1e9  # Linux counts in KiB


def moved(network: Network, checkpoint: Path) -> float:
    """How far the weights of the last block went from the 2D ones; as if drawn anew, it would be about 0.1."""
    name = f"blocks.{len(network.encoder.layers) - 1}.mlp.fc2.weight"
    with safetensors.safe_open(str(checkpoint), "pt") as file:
        start = file.get_tensor(name)
    return float((network.state_dict()["encoder." + name.replace("fc2", "2")].cpu() - start).abs().max())


def main(folders: list[Path]) -> None:
    torch.set_num_threads(1)
    patients = [
        Patient(folder.name, {channel: folder / f"{channel}.nii.gz" for channel in CHANNELS}, {"mgmt": float(label)}, {})
        for label, folder in enumerate(folders)
    ]
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary)
        checkpoint = output / "vit_b16_2d.safetensors"
        study = Study(
            name="full-size", cohort=output / "none.csv", prepared=output / "prepared", output=output / "run",
            model=Model(size="B", tokens="foreground", weights=checkpoint),
            train=Train(epochs=2, batch_size=2, warmup=0, threads=1),  # a step is an epoch, so that each step's loss is told
            endpoints=(Endpoint(name="mgmt", kind="binary"),),
        )  # fmt: skip
        write_random_2d(checkpoint, study.model, study.grid.patch)
        for patient in patients:
            began = time.perf_counter()
            with get_context("spawn").Pool(1) as pool:  # as studies prepare: memory of its own
                pool.apply(prepare_patient, (patient, study))
            positions = len(tokens.load(token_file(study.prepared, patient)).position)
            print(f"{patient.id}: {positions} of {study.grid.positions} places hold brain, {time.perf_counter() - began:.1f} s")

        def report(step: int, steps: int, loss: float, per_second: float) -> None:
            print(f"step {step} of {steps}: loss {loss:.4f}, {len(patients) / per_second:.1f} s", flush=True)

        began = time.perf_counter()
        (output / "run").mkdir()
        network = fit(patients, patients, study, output / "run", seed=0, report=report)
        seconds, far = time.perf_counter() - began, moved(network, checkpoint)
        millions = sum(parameter.numel() for parameter in network.parameters()) / 1e6
        print(f"{millions:.1f} million weights trained, tuned, saved and read back in {seconds:.1f} s")
        print(f"no weight of the last block went further than {far:.5f} from the 2D one")
    training, preparing = peak_gb(resource.RUSAGE_SELF), peak_gb(resource.RUSAGE_CHILDREN)
    print(f"peak resident memory {training:.2f} GB (limit {LIMIT_GB}), {preparing:.2f} GB while preparing")
    if far > 2 * 2 * study.train.learning_rate:  # AdamW goes about one rate a step; there were two, and twice that is room
        sys.exit("the network did not start from the 2D weights")
    if max(training, preparing) > LIMIT_GB:
        sys.exit(f"more memory than {LIMIT_GB} GB was needed")


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])

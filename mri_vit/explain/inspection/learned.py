"""What any network has learned: the inputs that its outputs and units answer most to, and its loss landscape.

An input is found by activation maximisation, after Simonyan et al. 2014 (arXiv:1312.6034) and Olah et al. 2017 ("Feature
Visualization", doi:10.23915/distill.00007), in three dimensions: within a brain, as strong as a prepared scan at most (L2),
smooth (total variation), and robust to small shifts. Beside it stands that of a network which learned nothing.

The loss landscape is the loss on a plane through the weights, spanned by two filter-normalised random directions, after Li et al.
2018, "Visualizing the Loss Landscape of Neural Nets", arXiv:1712.09913, section 4.

Letters: c scans, e grid edge, n patients, k inputs of noise, d features, m numbers a head puts out, s steps along a direction.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.draw import stream
from mri_vit.data.store import all_tokens, token_file
from mri_vit.explain.faithfulness import randomised
from mri_vit.explain.inspection.vit_numbers import InspectedFold
from mri_vit.explain.methods.target import evidences
from mri_vit.model import heads
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.schema import Study
from mri_vit.train.feed import Feed
from mri_vit.train.supervised import batch_outputs, settle, total_loss

ENCODER_UNITS = 2  # of the encoder, beside the endpoints: a page shows examples, and a network has hundreds
FEATURE_PATIENTS = 32  # with which an input is compared: a range is wanted, no estimate
NOISE_INPUTS = 8  # inputs of noise, likewise
# standard deviations of the target among patients that an input as rough as a scan costs; of 1, 5 and 15 on the
ROUGHNESS_PENALTY = 5.0
# demo's ViT 1 left the inputs of MGMT noisy, and 15 left little of any
JITTER = 0.25  # of a patch's edge; without it patterns hang on the borders of patches, and are edges and corners of them
ASCENT_STEPS = 64  # of gradient ascent, whose lengths sum to eight times the way from nothing to an input as strong as a scan
FIRST_STEP = 0.25  # of the largest strength; steps shrink to 0, so that the end is no accident of the last one
START_NOISE = 0.01  # strength of the noise that it starts from: next to nothing, but no point of symmetry
GRADIENT_SMOOTHING = 0.01  # in the unit of voxels: below it a difference counts as its square, so that no gradient is infinite
# Odd, so that the network itself is a point; Li et al. 2018 take 51, which costs twelve times as much.
LANDSCAPE_POINTS = 15  # along each direction
LANDSCAPE_REACH = 1.0  # in lengths of the network's own filters, as Li et al. 2018, Figure 5
LANDSCAPE_PATIENTS = 12  # of the training part, and as many of the test fold: the surface's form is wanted, its level has a table
Readout = Callable[[Float[Tensor, "b d"]], Float[Tensor, "b"]]  # from features to the number that is maximised
Target = Callable[[Float[Tensor, "c e e e"]], Float[Tensor, ""]]
Direction = dict[str, Tensor]  # by the names of the weights that are moved
Loss = Callable[[nn.Module], float]


# --- features -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OptimisedInput:
    """The input that raises a number of one network most; the number for it, for patients and for noise."""

    volume: Float[np.ndarray, "c e e e"]
    reached: float
    strength: float  # root mean square in the brain, of at most 1
    patients: Float[np.ndarray, "n"]
    noise: Float[np.ndarray, "k"]
    shares: dict[str, float]  # of the input's energy, by scan

    @property
    def middle(self) -> float:
        """The median patient's number."""
        return float(np.median(self.patients))

    @property
    def beyond(self) -> bool:
        """Whether the input exceeds patients and noise by a standard deviation among patients: less may be chance."""
        return self.reached - float(max(self.patients.max(), self.noise.max())) > float(self.patients.std())


@dataclass(frozen=True, eq=False)
class Feature:
    """A number of the network, an endpoint's or a unit's: the input that raises it most, and the same of a control network.

    `likeness` is the cosine of the angle between the two inputs: what they share was not learned.
    """

    name: str  # of its files
    label: str
    learned: OptimisedInput
    control: OptimisedInput
    control_is: str
    likeness: float


@dataclass(frozen=True, eq=False)
class BrainFrame:
    """Where inputs are optimised: the positions and the brain of one patient; `roughness` is that of the patient's own scans."""

    position: Int[Tensor, "p"]
    brain: Bool[Tensor, "e e e"]
    roughness: float


@dataclass(frozen=True, eq=False)
class Features:
    """Every feature, and the brain within which all inputs lie."""

    each: Sequence[Feature]
    brain: Bool[np.ndarray, "e e e"]


def measure_features(subject: InspectedFold) -> Features:
    """Each endpoint's feature, then those of the units that matter most."""
    study, after, before = subject.study, subject.after.eval(), normalised(subject)
    frame = frame_of(subject.patients[0], study, after)
    permuted = randomised(after, np.random.default_rng(study.seed))
    represented_by = {net: represented(net, subject.patients[:FEATURE_PATIENTS], study) for net in (after, permuted, before)}
    features = []

    def add(name: str, label: str, readouts: Sequence[tuple[Network, Readout]], control_is: str) -> None:
        best, control = (optimised(net, readout, represented_by[net], frame, study) for net, readout in readouts)
        features.append(Feature(name, label, best, control, control_is, cosine(best.volume, control.volume)))

    for head, of_class, question in asked(after):
        name = f"{head.endpoint.name}_{int(question) + 1}" if of_class else head.endpoint.name
        label = f"{head.endpoint.title}{f' = {of_class}' if of_class else ''} ({heads.of(head.endpoint).unit})"
        add(name, label, [(net, partial(_evidence, net, head, question)) for net in (after, permuted)], "permuted weights")
    for index in leading_units(after, represented_by[after]):
        readouts = [(net, lambda x, index=index: x[:, index]) for net in (after, before)]
        add(f"unit_{index + 1}", f"unit {index + 1} of {represented_by[after].shape[1]}", readouts, "before training")
    return Features(features, frame.brain.cpu().numpy())


def asked(net: Network) -> list[tuple[Head, str, float]]:
    """The endpoints, of each as many as it has classes that can be asked for: the head, the class or "", and the question."""
    return [
        (head, of_class, question)
        for head in net.heads
        for of_class, question in (heads.of(head.endpoint).asked(head) or {"": 1.0}).items()
    ]


def _evidence(net: Network, head: Head, question: float, x: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
    return heads.target(head, net.head[head.endpoint.name](x), x.new_full((1,), question))


def normalised(subject: InspectedFold) -> Network:
    """The network before training, its batch normalisation with means and variances of training scans.

    As initialised they are 0 and 1, unlike any scan: units then hardly respond to patients.
    """
    if not batch_normalised(subject.before):
        return subject.before.eval()
    net = copy.deepcopy(subject.before)
    settle(net, Feed(subject.train, subject.study, next(net.parameters()).device, subject.study.seed))
    return net.eval()


def batch_normalised(net: Network) -> bool:
    """Whether it normalises over a batch."""
    return any(isinstance(module, nn.BatchNorm3d) for module in net.modules())


def frame_of(patient: Patient, study: Study, net: Network) -> BrainFrame:
    """The frame that a prepared patient gives, on the network's device."""
    prepared = tokens.load(token_file(study.prepared, patient), study.channels)
    device = next(net.parameters()).device
    volume = torch.from_numpy(tokens.to_volume(prepared)).float().to(device)
    brain = (volume != 0).any(dim=0)
    position = all_tokens(prepared, study.model)[1][0].to(device)
    return BrainFrame(position, brain, float(roughness(volume, brain)))


@torch.no_grad()
def represented(net: Network, patients: Sequence[Patient], study: Study) -> Float[Tensor, "n d"]:
    """What the heads read of each patient."""
    device, rows = next(net.parameters()).device, []
    for patient in patients:
        patches, position = all_tokens(tokens.load(token_file(study.prepared, patient), study.channels), study.model)
        rows.append(net.encoder(patches.to(device), position.to(device)))
    return torch.cat(rows)


def read(net: Network, volume: Float[Tensor, "c e e e"], position: Int[Tensor, "p"]) -> Float[Tensor, "1 d"]:
    """What the heads read of a volume at these grid positions."""
    patch = net.grid.patch
    patches = rearrange(volume, "c (i x) (j y) (k z) -> (i j k) (c x y z)", x=patch, y=patch, z=patch)
    return net.encoder(patches[position][None], position[None])


def optimised(
    net: Network, readout: Readout, represented: Float[Tensor, "n d"], frame: BrainFrame, study: Study
) -> OptimisedInput:
    """The input that raises what is read out of the network's features most; `represented` are the patients' features."""
    generator = torch.Generator().manual_seed(study.seed)
    patients = readout(represented).detach()
    spread = float(patients.std()) if len(patients) > 1 else 0.0
    cost = ROUGHNESS_PENALTY * spread / frame.roughness if frame.roughness else 0.0

    def target(volume: Float[Tensor, "c e e e"]) -> Float[Tensor, ""]:
        return readout(read(net, volume, frame.position))[0]

    how = Regularisation(roughness=cost, jitter=round(JITTER * net.grid.patch))
    volume = maximise(target, frame.brain, len(study.channels), how, generator)
    with torch.no_grad():
        noise = []
        for _ in range(NOISE_INPUTS):
            drawn = torch.randn(volume.shape, generator=generator).to(volume) * frame.brain
            noise.append(float(target(drawn / strength(drawn, frame.brain))))
        reached = float(target(volume))
    energy = volume.square().sum(dim=(1, 2, 3)).cpu().numpy()
    shares = dict(zip(study.channels, (energy / energy.sum()).tolist(), strict=True))
    strong = float(strength(volume, frame.brain))
    return OptimisedInput(volume.cpu().numpy(), reached, strong, patients.cpu().numpy(), np.array(noise), shares)


def leading_units(net: Network, represented: Float[Tensor, "n d"]) -> list[int]:
    """The features, counted from 0, whose spread among patients moves the heads most, each head's in units of its own spread."""
    parts = torch.zeros_like(represented[0])
    for name, values in evidences(net, represented).items():
        weight = net.head[name].weight  # [m d]
        moved = represented.std(dim=0) * weight.norm(dim=0)  # type: ignore[operator]
        parts += moved.detach() / values.std().detach().clamp_min(torch.finfo(values.dtype).tiny)
    return parts.argsort(descending=True, stable=True)[:ENCODER_UNITS].tolist()


def cosine(a: Float[np.ndarray, "..."], b: Float[np.ndarray, "..."]) -> float:
    """Of the angle between two inputs; 0 where one is empty."""
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a.astype(np.float64) * b).sum()) / length if length else 0.0


# --- activation maximisation --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regularisation:
    """What keeps an optimised input like a scan.

    `strength` is the largest root mean square over the brain's voxels and the scans, 1 for prepared scans, which are z-scored;
    `roughness` is what `roughness` of 1 costs in the target's unit; `jitter` is by how many voxels the input is shifted at most.
    """

    strength: float = 1.0
    roughness: float = 0.0
    jitter: int = 0


def maximise(
    target: Target,
    brain: Bool[Tensor, "e e e"],
    channels: int,
    regularisation: Regularisation,
    generator: torch.Generator,
    steps: int = ASCENT_STEPS,
) -> Float[Tensor, "c e e e"]:
    """The volume that gradient ascent ends with: it maximises target(x) - roughness · TV(x) where x is as strong as allowed.

    The bound is L2 regularisation: a volume that maximises target(x) on it maximises target(x) - λ‖x‖² for some λ. Of a linear
    target w·x without other regularisation it is w/2λ, with λ such that this is as strong as allowed.

    `brain` are the voxels that may differ from 0; the state of `generator`, on the CPU, sets the start and the shifts. Where the
    target is flat, the noise of the start is returned.
    """
    x = torch.randn(channels, *brain.shape, generator=generator).to(brain.device) * brain
    x *= START_NOISE * regularisation.strength / strength(x, brain)
    for step in range(steps):
        shifts = torch.randint(-regularisation.jitter, regularisation.jitter + 1, (3,), generator=generator).tolist()
        x.requires_grad_()
        reached = target(torch.roll(x, shifts, (1, 2, 3)) * brain)
        if regularisation.roughness:
            reached = reached - regularisation.roughness * roughness(x, brain)
        (slope,) = torch.autograd.grad(reached, x)
        steepness = strength(slope, brain)
        with torch.no_grad():
            if steepness > 0:
                x = x + FIRST_STEP * (1 - step / steps) * regularisation.strength * slope / steepness
            x = x * (regularisation.strength / strength(x, brain)).clamp(max=1)
    return x.detach() * brain


def strength(volume: Float[Tensor, "c e e e"], brain: Bool[Tensor, "e e e"]) -> Float[Tensor, ""]:
    """The root mean square over the scans and the brain's voxels."""
    return volume[:, brain].square().mean().sqrt()


def roughness(volume: Float[Tensor, "c e e e"], brain: Bool[Tensor, "e e e"]) -> Float[Tensor, ""]:
    """Total variation: the mean over scans and the brain's voxels of the differences' length from a voxel to its next neighbours.

    Only neighbours within the brain count, so that the brain's border costs nothing. Rudin et al. 1992,
    doi:10.1016/0167-2789(92)90242-F; for images of a network's features Mahendran & Vedaldi 2015, arXiv:1412.0035.
    """
    squares = torch.zeros_like(volume)
    for axis in range(3):
        both = brain.narrow(axis, 1, brain.shape[axis] - 1) & brain.narrow(axis, 0, brain.shape[axis] - 1)
        after = [0, 0] * (2 - axis) + [0, 1]  # zeros behind the last voxel along this axis; F.pad counts from the last axis
        squares = squares + F.pad((volume.diff(dim=1 + axis) * both).square(), after)
    return ((squares + GRADIENT_SMOOTHING**2).sqrt() - GRADIENT_SMOOTHING)[:, brain].mean()


# --- loss landscape -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Landscape:
    """The loss of one network by where its weights are moved to, [up across], for "training" and "test" patients.

    `untrained` is the same patients' loss before training, and `patients` how many they are.
    """

    name: str
    steps: Float[np.ndarray, "s"]
    loss: dict[str, Float[np.ndarray, "s s"]]
    untrained: dict[str, float]
    patients: dict[str, int]

    def trained(self, part: str) -> float:
        """The loss of the network itself."""
        middle = len(self.steps) // 2
        return float(self.loss[part][middle, middle])

    def lowest(self, part: str) -> tuple[float, float, float]:
        """The least loss on the plane, and where it is: across, up."""
        values = np.nan_to_num(self.loss[part], nan=np.inf)
        up, across = np.unravel_index(values.argmin(), values.shape)
        return float(values[up, across]), float(self.steps[across]), float(self.steps[up])

    def below_untrained(self, part: str) -> float:
        """The share of the plane's points where the loss is lower than before training."""
        return float((self.loss[part] < self.untrained[part]).mean())


def measure_landscape(subject: InspectedFold) -> Landscape:
    """The landscape of a subject's trained network."""
    study, net = subject.study, subject.after.eval()
    labelled = [p for p in subject.train if any(p.knows(endpoint) for endpoint in study.endpoints)]
    chosen = {"training": sample(labelled, study.seed), "test": sample(subject.patients, study.seed)}
    losses = {part: loss_of(patients, study, net) for part, patients in chosen.items()}
    generator = torch.Generator().manual_seed(study.seed)
    across, up = random_direction(net, generator), random_direction(net, generator)
    steps = np.linspace(-LANDSCAPE_REACH, LANDSCAPE_REACH, LANDSCAPE_POINTS)
    return Landscape(
        subject.name,
        steps,
        surface(net, across, up, losses, steps.tolist()),
        {part: loss(subject.before) for part, loss in losses.items()},
        {part: len(patients) for part, patients in chosen.items()},
    )


def sample(patients: Sequence[Patient], seed: int) -> list[Patient]:
    """At most `LANDSCAPE_PATIENTS` of them, the same every time; a table may be sorted by label."""
    order = stream("landscape", seed).permutation(len(patients))
    return [patients[index] for index in sorted(order[:LANDSCAPE_PATIENTS])]


def loss_of(patients: Sequence[Patient], study: Study, net: Network) -> Loss:
    """The sum of the endpoints' losses of these patients, from all tokens and without augmentation, like the validation loss."""
    feed = Feed(patients, study, next(net.parameters()).device, study.seed)

    def loss(net: nn.Module) -> float:
        assert isinstance(net, Network)
        return float(total_loss(net, batch_outputs(net, feed, study.train.batch_size), feed.labels))

    return loss


def random_direction(net: nn.Module, generator: torch.Generator) -> Direction:
    """A random direction whose filters are as long as the network's own.

    Definition: Gaussian numbers, of which each filter's are scaled to the length of the network's filter.
    Formula: d_ij ← d_ij / ‖d_ij‖ · ‖θ_ij‖ for filter j of layer i. A filter is the weights of one output: a row of a matrix, a
    kernel over all channels of a convolution; of a table of vectors (positions, CLS) it is one vector.
    Assumption: biases and the weights of normalisations, which have one axis, stay where they are, as in the authors' code
    (net_plotter.py, "biasbn"); so do batch normalisation's running statistics, which are no weights.
    Source: Li et al. 2018, arXiv:1712.09913, equation 1.
    """
    direction = {}
    for name, weight in net.named_parameters():
        if weight.dim() > 1:
            drawn = torch.randn(weight.shape, generator=generator).to(weight)
            direction[name] = drawn * (lengths(weight.detach()) / lengths(drawn))
    return direction


def lengths(weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The length of each filter of a weight with two axes or more, to be multiplied with it."""
    axes = (-1,) if weight.dim() == 3 else tuple(range(1, weight.dim()))  # a table of vectors is stored as [1 positions width]
    return weight.square().sum(dim=axes, keepdim=True).sqrt()


def surface(
    net: nn.Module, across: Direction, up: Direction, losses: Mapping[str, Loss], steps: Sequence[float]
) -> dict[str, Float[np.ndarray, "s s"]]:
    """Each loss at weights + a · across + b · up, as [b a], for all a and b of `steps`.

    The losses are given a copy that is moved; the network is left as it was, bit for bit.
    """
    moved, weights = copy.deepcopy(net), dict(net.named_parameters())
    surfaces = {name: np.empty((len(steps), len(steps))) for name in losses}
    for row, b in enumerate(steps):
        for column, a in enumerate(steps):
            with torch.no_grad():
                for name, weight in moved.named_parameters():
                    if name in across:
                        weight.copy_(weights[name] + a * across[name] + b * up[name])
            for name, loss in losses.items():
                surfaces[name][row, column] = loss(moved)
    return surfaces

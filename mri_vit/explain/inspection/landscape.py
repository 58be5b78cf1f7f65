"""Loss landscape: the loss of an inspected network on a plane through its weights, on training and on test patients.

The plane is spanned by two filter-normalised random directions, after Li et al. 2018, "Visualizing the Loss Landscape of Neural
Nets", arXiv:1712.09913, section 4. Letters: s steps along a direction.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from mri_vit.data.cohort import Patient
from mri_vit.data.draw import stream
from mri_vit.explain.inspection.subject import Subject
from mri_vit.model.network import Network
from mri_vit.settings.schema import Study
from mri_vit.train.feed import Feed
from mri_vit.train.supervised import batch_outputs, total_loss

# Odd, so that the network itself is a point; Li et al. 2018 take 51, which costs twelve times as much.
POINTS = 15  # along each direction
REACH = 1.0  # in lengths of the network's own filters, as Li et al. 2018, Figure 5
PATIENTS = 12  # of the training part, and as many of the test fold: the surface's form is wanted, its level has a table
Direction = dict[str, Tensor]  # by the names of the weights that are moved
Loss = Callable[[nn.Module], float]


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


def measure_landscape(subject: Subject) -> Landscape:
    """The landscape of a subject's trained network."""
    study, net = subject.study, subject.after.eval()
    labelled = [p for p in subject.train if any(p.knows(endpoint) for endpoint in study.endpoints)]
    chosen = {"training": sample(labelled, study), "test": sample(subject.patients, study)}
    losses = {part: loss_of(patients, study, net) for part, patients in chosen.items()}
    generator = torch.Generator().manual_seed(study.seed)
    across, up = random_direction(net, generator), random_direction(net, generator)
    steps = np.linspace(-REACH, REACH, POINTS)
    return Landscape(
        subject.name,
        steps,
        surface(net, across, up, losses, steps.tolist()),
        {part: loss(subject.before) for part, loss in losses.items()},
        {part: len(patients) for part, patients in chosen.items()},
    )


def sample(patients: Sequence[Patient], study: Study) -> list[Patient]:
    """At most `PATIENTS` of them, the same every time; a table may be sorted by label."""
    order = stream("landscape", study.seed).permutation(len(patients))
    return [patients[index] for index in sorted(order[:PATIENTS])]


def loss_of(patients: Sequence[Patient], study: Study, net: Network) -> Loss:
    """The sum of the endpoints' losses over these patients, every token given and nothing augmented, as tuning computes it."""
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

    Parameters
    ----------
    net : is left as it was.
    generator : on the CPU.
    """
    direction = {}
    for name, weight in net.named_parameters():
        if weight.dim() > 1:
            drawn = torch.randn(weight.shape, generator=generator).to(weight)
            direction[name] = drawn * (lengths(weight.detach()) / lengths(drawn))
    return direction


def lengths(weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The length of each filter of a weight with two axes or more, to be multiplied with it."""
    axes = (-1,) if weight.dim() == 3 else tuple(range(1, weight.dim()))  # a table of vectors is stored as [1 places width]
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

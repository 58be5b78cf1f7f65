"""Surfaces: the loss landscape of an inspected network on training and test patients, and what is read off it.

Letters: s steps along a direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from mri_vit.data.cohort import Patient
from mri_vit.data.draw import stream
from mri_vit.explain.inspection.landscape import Loss, random_direction, surface
from mri_vit.explain.inspection.subject import Subject
from mri_vit.model.network import Network
from mri_vit.settings.schema import Study
from mri_vit.train.feed import Feed
from mri_vit.train.supervised import batch_outputs, total_loss

POINTS = (
    15  # along each direction, odd so that the network itself is one; Li et al. 2018 take 51, which costs twelve times as much
)
REACH = 1.0  # in lengths of the network's own filters, as Li et al. 2018, Figure 5
PATIENTS = 12  # of the training part, and as many of the test fold: the surface's form is wanted, its level has a table


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


def measure(subject: Subject) -> Landscape:
    """The landscape of a subject's trained network."""
    study, net = subject.study, subject.after.eval()
    labelled = [p for p in subject.train if any(p.knows(endpoint) for endpoint in study.endpoints)]
    chosen = {"training": some(labelled, study), "test": some(subject.patients, study)}
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


def some(patients: Sequence[Patient], study: Study) -> list[Patient]:
    """At most `PATIENTS` of them, the same every time; a table may be sorted by label."""
    order = stream("landscape", study.seed).permutation(len(patients))
    return [patients[index] for index in sorted(order[:PATIENTS])]


def loss_of(patients: Sequence[Patient], study: Study, net: Network) -> Loss:
    """The sum of the endpoints' losses over these patients, every token given and nothing augmented, as tuning computes it."""
    feed = Feed(patients, study, next(net.parameters()).device, study.seed)

    def loss(net: nn.Module) -> float:
        assert isinstance(net, Network)
        return float(total_loss(net, batch_outputs(net, feed, study.train.batch), feed.labels))

    return loss

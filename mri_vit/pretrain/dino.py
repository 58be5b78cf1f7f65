"""DINO: a student learns to give for one crop of a patient the output that a teacher gives for another, without a label.

The teacher is the moving average of the student, sees large crops only, and gets no gradient; centring keeps it from giving
every patient the same prototype, sharpening from giving each all prototypes (Caron et al. 2021, arXiv:2104.14294).

The student is any network of `model.network.encoder`. One of dense volumes sees a crop at its position on the grid, in its own
size, with air around it. Where it normalises over a batch, teacher and student each do so over their own crops of a kind, and
each keeps its own running statistics for use outside training: as in the authors' code, the moving average is of what is learned,
which statistics are not.

Letters: f foreground positions of a patient, b patients, p tokens of each crop, k numbers in a patch, d the encoder's width,
m prototypes, t views of the teacher, s views of the student (the first t are the teacher's). "CLS" are the features that heads
read, of whatever network.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from mri_vit.data.draw import Draw, Member, stacked, view
from mri_vit.settings.schema import Study
from mri_vit.train.devices import at_least_float32, of_one

# share of the brain's positions in the boxes that the teacher sees; Caron et al. 2021, section 3.1 and code
GLOBAL_SHARE = (0.4, 1.0)
# of those that the student alone sees: from a tenth, for below it a box holds few positions (theirs: 0.05)
LOCAL_SHARE = (0.1, 0.4)
GLOBAL_BOXES = 2  # boxes that the teacher sees
# Half of the 0.04 of Caron et al. 2021, section 3.2: brains differ less than photographs. Measured on 40 synthetic patients, 150
# epochs: CLS of one crop finds another crop of its patient among 60 new ones in 37 % (0.04: 15 %; random weights: 3 %).
TEACHER_TEMPERATURE = 0.02
STUDENT_TEMPERATURE = 0.1
CENTRE_MOMENTUM = 0.9
PROTOTYPES = 1024  # outputs of the head; fewer than the 65536 of Caron et al. 2021, for a cohort is no ImageNet
TEACHER_MOMENTUM = 0.996  # of the teacher at the start; Caron et al. 2021
FROZEN_EPOCHS = 1  # in which the head's last layer does not learn
HIDDEN_RATIO = 4  # of the head's hidden layers to the encoder's width; theirs: 2048 for 384 and 768
BOTTLENECK_WIDTH = 256  # width before the last layer; theirs
STANDARDISED_FLOOR = 1e-6  # added to a variance over the batch; CLS vectors have variance 1 over their dimensions
ALIKE_NATS = 0.05  # of information in an output on the patient; measured: 0.0002 in a collapsed run, 0.2 to 1.2 in others
ALIKE_SPREAD = 0.01  # of CLS vectors, where 1 is even; measured: 0.03 to 0.04 in a collapsed run, 0.10 to 0.20 in others
# share of the epochs, at the end, in which collapse is looked for; single epochs of few patients are unsteady
COLLAPSE_SHARE = 0.1


# of a box's edges against each other, at most: the usual limits of aspect are 3/4 to 4/3 (Szegedy et al. 2015)
MAX_ASPECT = 4 / 3


def box(member: Member, side: int, count: int) -> Int[np.ndarray, " p"]:
    """Indices of the `count` tokens within a random box, its edges along the axes of a grid of side³ positions.

    The box grows around a random point near one of the brain's positions until it holds `count` of these; of the face that comes
    last, as many at random as are lacking. So every crop holds exactly as many as are asked for, and those of several patients
    make one batch.

    Raises ValueError when the patient has fewer tokens.
    """
    position, random = member.position, member.random
    if count > len(position):
        raise ValueError(f"found {len(position)} tokens; {count} are asked for")
    at = np.stack(np.unravel_index(position.astype(np.int64), (side,) * 3), axis=1)  # (f, 3)
    chosen = random.integers(len(at))
    jitter, stretch = random.random((2, 3))
    centre = at[chosen] + jitter - 0.5  # off the lattice, so that no two faces come at once
    edge = MAX_ASPECT ** (stretch - 0.5)  # of the box along each axis; the longest is at most MAX_ASPECT times the shortest
    distance = (np.abs(at - centre) / edge).max(axis=1)  # a box is a ball of this norm
    last = np.partition(distance, count - 1)[count - 1]
    inside, face = np.flatnonzero(distance < last), np.flatnonzero(distance == last)
    return np.concatenate([inside, random.permutation(face)[: count - len(inside)]])


class Dino(nn.Module):
    """Student, teacher and centre, and their loss on a batch; a `Method` of `pretrain.encoder`."""

    def __init__(self, encoder: Any, study: Study) -> None:
        super().__init__()
        self.study, self.gather = study, of_one
        self.encoder = encoder  # the student's
        self.head = Head(encoder.dim, PROTOTYPES)
        self.teacher = copy.deepcopy(nn.ModuleList([encoder, self.head])).requires_grad_(False)
        self.centre: Tensor
        self.register_buffer("centre", torch.zeros(PROTOTYPES))
        self._probabilities: list[Tensor] = []  # the teacher's, and its CLS vectors, since `watched` was asked
        self._cls: list[Tensor] = []

    def learned(self) -> list[nn.Parameter]:
        """The student's weights; the teacher's follow them."""
        return [*self.encoder.parameters(), *self.head.parameters()]

    def draws(self, members: Sequence[Member], shared: np.random.Generator) -> tuple[Draw, ...]:
        """The global crops, one after the other along the batch, and, where there are any, the local ones.

        All crops of a kind in a batch hold equally many tokens: a random share of the smallest patient's, of which at most
        `train.token_budget` are kept (PatchDropout: a crop is as large as before, but thinner).
        """
        smallest = min(len(member.position) for member in members)
        most = self.study.train.token_budget or smallest
        kinds: list[Draw] = []
        for (low, high), number in ((GLOBAL_SHARE, GLOBAL_BOXES), (LOCAL_SHARE, self.study.pretrain.local_crops)):
            count = max(1, round(shared.uniform(low, high) * smallest))
            crops = []
            for member in list(members) * number:
                tokens = member.random.permutation(box(member, self.study.grid.side, count))[:most]
                crops.append(view(member, tokens, self.study))
            kinds += [stacked(crops)] if crops else []
        return tuple(kinds)

    def forward(self, *views: Tensor) -> Float[Tensor, ""]:
        """The loss of `views`: patches and grid positions of the global crops, and, where there are any, of the local ones."""
        pairs = list(zip(views[::2], views[1::2], strict=True))
        student = torch.cat([self.head(self.gather(self.encoder(patches, position))) for patches, position in pairs])
        output, cls = self.answer(*pairs[0])
        teacher, patients = probabilities(output, self.centre), len(output) // GLOBAL_BOXES
        loss = cross_entropy(
            rearrange(teacher, "(t b) m -> t b m", b=patients), rearrange(student, "(s b) m -> s b m", b=patients)
        )
        self._probabilities.append(teacher)
        self._cls.append(at_least_float32(cls[:patients]))  # of one view of each patient
        if self.training:
            self.centre.copy_(moved(self.centre, output))
        return loss

    @torch.no_grad()
    def answer(self, patches: Float[Tensor, "b p k"], position: Int[Tensor, "b p"]) -> tuple[Tensor, Tensor]:
        """The teacher's output before centring and softmax [b m], and the CLS vectors that it is of [b d]."""
        encoder, head = self.teacher
        cls = self.gather(encoder(patches, position))
        return at_least_float32(head(cls)), cls

    def begin(self, epoch: int) -> None:
        """The last layer stays as it is for the first epoch, so that the features do not follow random prototypes' growth."""
        self.head.prototypes.requires_grad_(epoch >= FROZEN_EPOCHS)

    @torch.no_grad()
    def stepped(self, progress: float) -> None:
        """The teacher's weights move a little towards the student's; its running statistics are its own."""
        keep = momentum(TEACHER_MOMENTUM, progress)
        for teachers, students in zip(self.teacher.parameters(), self.learned(), strict=True):
            teachers.lerp_(students, 1 - keep)

    def watched(self) -> dict[str, float]:
        """Signs of collapse over the batches since the last call, see `signs`."""
        outputs, cls = torch.cat(self._probabilities), torch.cat(self._cls)
        self._probabilities, self._cls = [], []
        return signs(outputs, cls)


class Head(nn.Module):
    """From CLS to prototypes: three layers to a bottleneck of length 1, then its cosine to each prototype.

    CLS vectors are standardised over the batch first. Brains that are aligned give vectors that are nearly alike; without
    this the outputs differ by less than the temperature, and the teacher goes to the even output and stays there (measured
    on 40 synthetic patients: after 60 epochs an output held 0.0002 nats of information on the patient).
    Caron et al. keep the weight-normed last layer's lengths at 1, so it is written here as what it then is: cosines.
    """

    def __init__(self, dim: int, prototypes: int) -> None:
        super().__init__()
        hidden = HIDDEN_RATIO * dim
        self.layers = nn.Sequential(
            nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, BOTTLENECK_WIDTH)
        )
        self.prototypes = nn.Parameter(torch.randn(prototypes, BOTTLENECK_WIDTH))

    def forward(self, cls: Float[Tensor, "b d"]) -> Float[Tensor, "b m"]:
        return F.linear(F.normalize(self.layers(standardised(cls)), dim=1), F.normalize(self.prototypes, dim=1))


def standardised(x: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
    """Every dimension with mean 0 and variance 1 over the batch (Ioffe & Szegedy 2015, without weights of its own)."""
    return F.batch_norm(at_least_float32(x), None, None, training=True, eps=STANDARDISED_FLOOR)


def probabilities(output: Float[Tensor, "b m"], centre: Float[Tensor, " m"]) -> Float[Tensor, "b m"]:
    """The teacher's output, centred and sharpened."""
    return torch.softmax((output - centre) / TEACHER_TEMPERATURE, dim=1)


def moved(centre: Float[Tensor, " m"], output: Float[Tensor, "b m"]) -> Float[Tensor, " m"]:
    """The centre after a batch: the moving average of the teacher's mean output."""
    return CENTRE_MOMENTUM * centre + (1 - CENTRE_MOMENTUM) * output.mean(dim=0)


def momentum(start: float, progress: float) -> float:
    """How much of the teacher is kept in a step: from `start` along half a cosine to 1."""
    return 1 - (1 - start) * (1 + math.cos(math.pi * progress)) / 2


def cross_entropy(teacher: Float[Tensor, "t b m"], student: Float[Tensor, "s b m"]) -> Float[Tensor, ""]:
    """Mean cross-entropy of the student's softmax to the teacher's probabilities, over all pairs of different views.

    View i of the student is view i of the teacher for the first t; these pairs are left out.
    """
    log = torch.log_softmax(at_least_float32(student) / STUDENT_TEMPERATURE, dim=2)
    each = -torch.einsum("tbm,sbm->ts", teacher, log) / teacher.shape[1]
    same = torch.eye(len(teacher), len(student), dtype=torch.bool, device=each.device)
    return each.masked_fill(same, 0.0).sum() / (each.numel() - len(teacher))


def signs(outputs: Float[Tensor, "n m"], cls: Float[Tensor, "b d"]) -> dict[str, float]:
    """Figures that show whether the teacher has collapsed, from its n probabilities and b CLS vectors.

    `entropy`: of one output, on average, in nats; log(m) when it is even over all prototypes, 0 when it names one.
    `mean_entropy`: of the mean output; at least `entropy`. The difference is the output's mutual information with the view,
    and is 0 in either kind of collapse.
    `spread`: standard deviation over patients of CLS vectors of length 1, mean over dimensions, times √d: 0 when all are
    alike, 1 when they point evenly everywhere (Chen & He 2021, arXiv:2011.10566, section 4.1).
    """
    dispersion = F.normalize(cls, dim=1).std(dim=0, correction=0).mean() * cls.shape[1] ** 0.5
    return {
        "entropy": float(torch.special.entr(outputs).sum(dim=1).mean()),
        "mean_entropy": float(torch.special.entr(outputs.mean(dim=0)).sum()),
        "spread": float(dispersion),
    }


def collapsed(history: pd.DataFrame) -> str | None:
    """A sentence on how the teacher had collapsed by the end, with its figures; None when it had not.

    `history` is what `pretrain.encoder.pretrain` returned for DINO; means over the last tenth of its epochs are judged.
    """
    last = history.iloc[-max(1, round(COLLAPSE_SHARE * len(history))) :]
    entropy, mean_entropy, spread = (float(last[name].mean()) for name in ("entropy", "mean_entropy", "spread"))
    if mean_entropy - entropy < ALIKE_NATS:
        what = (
            "gives every patient the same prototype"
            if mean_entropy < math.log(2)
            else "gives every patient the same mixture of prototypes"
        )
        return (
            f"DINO has collapsed: the teacher {what} (entropy {entropy:.2f} nats, of its mean output {mean_entropy:.2f}; "
            f"a difference below {ALIKE_NATS} holds no information about the patient)"
        )
    if spread < ALIKE_SPREAD:
        return (
            f"DINO has collapsed: CLS vectors of different patients are alike (spread {spread:.4f}, where 1 is even; "
            f"below {ALIKE_SPREAD} counts as alike)"
        )
    return None

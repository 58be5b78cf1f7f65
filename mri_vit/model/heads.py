"""Endpoints on what an encoder puts out: what a head puts out, its loss where the label is known, and its score.

A head's arithmetic is that of its endpoint's kind (`HeadKind`); what all heads share is here. Letters: b patients, m numbers that
a head puts out, k numbers of a prediction, c label columns, q = b or 1 questions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mri_vit.kinds.kind import part
from mri_vit.settings.schema import Endpoint

KnownLabels = Float[Tensor, "b c"]
INTERVALS = 10  # of the discrete-time hazard; Gensheimer & Narasimhan 2019 use 10 to 40


@dataclass(frozen=True)
class Head:
    """One endpoint with what it has learned from its training fold's labels.

    `kind` is what it puts out: "binary", "hazard", "cox", "softmax", "cumulative" or "number". `cuts_days` are the ends of the
    hazard's intervals (or, for Cox, the horizons at which survival is predicted), `baseline_hazard` Cox's cumulative hazard
    there; `positive_weight` balances two classes, `class_weights` several; `centre` and `spread` are of a number. `loss_weight`
    brings a loss to the size of a binary endpoint's. `other_hazard` is the training fold's cumulative hazard of a competing event
    at the ends of `cuts_days`, the same for every patient; empty where none is declared.
    """

    endpoint: Endpoint
    kind: str
    cuts_days: tuple[float, ...] = ()
    positive_weight: float = 1.0
    baseline_hazard: tuple[float, ...] = ()
    class_weights: tuple[float, ...] = ()
    centre: float = 0.0
    spread: float = 1.0
    loss_weight: float = 1.0
    other_hazard: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Numbers that the linear map puts out."""
        return of(self.endpoint).width(self)


class HeadKind(ABC):
    """The arithmetic of a kind's heads. Labels that are given are known."""

    unit: str  # of the evidence

    @abstractmethod
    def fitted(self, endpoint: Endpoint, known: KnownLabels, survival: str, intervals: int, weighted: bool) -> Head | None:
        """As `from_labels`."""

    def width(self, head: Head) -> int:
        """Numbers that the linear map puts out."""
        return 1

    @abstractmethod
    def bias(self, head: Head, known: Float[Tensor, "b c"]) -> Float[Tensor, "m"]:
        """As `bias`."""

    @abstractmethod
    def losses(self, head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Float[Tensor, "b"]:
        """Each patient's loss, with a finite gradient; the label of who is masked afterwards is 0."""

    def loss(
        self, head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"], known: Bool[Tensor, "b"]
    ) -> Float[Tensor, ""]:
        """The mean over those whose label is known; 0 without any."""
        each = self.losses(head, output, labels.masked_fill(~known[:, None], 0.0))
        mean = each.masked_fill(~known, 0.0).sum() / known.sum().clamp_min(1)
        return mean if head.loss_weight == 1 else head.loss_weight * mean

    @abstractmethod
    def scores(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b k"]:
        """What the table of predictions holds: a probability, risk or number, or a probability for each class."""

    def survival(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b horizons"] | None:
        """Probability of being alive, or free of the event, at each of `head.cuts_days`; None where a kind predicts none."""
        return None

    @abstractmethod
    def evidence(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
        """What the score follows, on a scale on which parts add up."""

    def question(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
        """What a map explains where nothing else is asked: 1 what raises the evidence, -1 what lowers it."""
        return torch.ones_like(self.evidence(head, output))

    def target(self, head: Head, output: Float[Tensor, "b m"], question: Float[Tensor, "q"]) -> Float[Tensor, "b"]:
        """The evidence for what `question` names, one for all patients or one for each; a map shows what raises it."""
        return question * self.evidence(head, output)

    def of_score(self, question: Float[Tensor, "q"]) -> Float[Tensor, "q"]:
        """The question to which the score is the answer, where `question` is what the network predicts."""
        return torch.ones_like(question)

    def asked(self, head: Head) -> dict[str, float]:
        """The question of each class; none where 1 is the only one beside its opposite."""
        return {}

    @abstractmethod
    def explains(self, head: Head, question: float) -> str:
        """What a map explains, in words."""

    def joint_evidence(self, heads: Sequence[Head], outputs: Sequence[Float[Tensor, "b m"]]) -> Float[np.ndarray, "b q"]:
        """What late fusion weighs of several networks of one endpoint: by default of the mean of their scores."""
        each = [self.scores(head, output).double().numpy() for head, output in zip(heads, outputs, strict=True)]
        return self.from_scores(heads[0].endpoint, np.mean(each, axis=0))

    @abstractmethod
    def from_scores(self, endpoint: Endpoint, scores: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b q"]:
        """The same of scores, on a scale on which evidence adds up."""

    @abstractmethod
    def to_scores(self, endpoint: Endpoint, evidence: Float[np.ndarray, "b q"]) -> Float[np.ndarray, "b k"]:
        """Scores of evidence again, of a mean of two models'."""

    def completed(self, head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Head:
        """The head with what can only be learned from the trained network's outputs for the training patients."""
        return head

    def needs_outputs(self, head: Head) -> bool:
        """Whether `completed` changes anything."""
        return False


def of(endpoint: Endpoint) -> HeadKind:
    """The part of an endpoint's kind that is about heads."""
    return part(endpoint.kind, "heads")


def from_labels(endpoint: Endpoint, labels: Float[Tensor, "b c"], survival: str, intervals: int, weighted: bool) -> Head | None:
    """A head fitted to the training fold's labels, or None when there is nothing to learn (one class only, or no event)."""
    return of(endpoint).fitted(endpoint, labels[~labels.isnan().any(dim=1)], survival, intervals, weighted)


def bias(head: Head, labels: Float[Tensor, "b c"]) -> Float[Tensor, "m"]:
    """The constant output that fits the training fold best, from which training starts (Lin et al. 2017, section 4.1)."""
    return of(head.endpoint).bias(head, labels[~labels.isnan().any(dim=1)])


def loss(head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Float[Tensor, ""]:
    """Mean loss over the patients whose label is known; zero, with a gradient of zero, when none is.

    The host never waits for the device: nothing is read back or copied there, so patients of unknown label are masked, not left
    out. The loss is in single precision at least; autocast may hand over an output in half.
    """
    known = ~labels.isnan().any(dim=1)
    # zeros go in before the loss, not only after it: a NaN that is masked afterwards still makes NaN of the gradient
    output = output.to(torch.promote_types(output.dtype, torch.float32)).masked_fill(~known[:, None], 0.0)
    return of(head.endpoint).loss(head, output, labels, known)


def scores(head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b k"]:
    """What the table of predictions holds of each patient."""
    return of(head.endpoint).scores(head, output)


def survival(head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b horizons"] | None:
    """Probability of being alive at each of `head.cuts_days`; None of an endpoint that is no survival."""
    return of(head.endpoint).survival(head, output)


def evidence(head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
    """What the score follows: log odds which 0 balances after the classes' weights, a risk, an expected grade or a number."""
    return of(head.endpoint).evidence(head, output)


def question(head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
    """What a map of the prediction explains: 1 what speaks for a one, a higher risk, grade or number, -1 what speaks for a zero;
    of classes without an order the place of the one that is predicted.
    """
    return of(head.endpoint).question(head, output)


def target(head: Head, output: Float[Tensor, "b m"], question: Float[Tensor, "q"]) -> Float[Tensor, "b"]:
    """The evidence for what `question` names."""
    return of(head.endpoint).target(head, output, question)


def filled(numbers: tuple[float, ...], like: Tensor) -> Float[Tensor, "m"]:
    """`numbers` on the device of `like`, by one fill each; `new_tensor` would copy them from the host, which waits for that."""
    return torch.stack([like.new_full((), number) for number in numbers])

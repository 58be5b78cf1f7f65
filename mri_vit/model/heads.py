"""Endpoints on what an encoder puts out: what a head puts out, its loss where the label is known, and its score.

Letters: b patients, d width, m numbers a head puts out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mri_vit.settings.schema import Endpoint

INTERVALS = 10  # of the discrete-time hazard; Gensheimer & Narasimhan 2019 use 10 to 40


@dataclass(frozen=True)
class Head:
    """One endpoint with what it has learned from its training fold's labels.

    `kind` is "binary", "hazard" or "cox"; `cuts_days` are the ends of the hazard's intervals (or, for Cox, the horizons
    at which survival is predicted), `baseline_hazard` Cox's cumulative hazard there; `positive_weight` balances the classes.
    """

    endpoint: Endpoint
    kind: str
    cuts_days: tuple[float, ...] = ()
    positive_weight: float = 1.0
    baseline_hazard: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Numbers that the linear map puts out."""
        return len(self.cuts_days) if self.kind == "hazard" else 1


def from_labels(endpoint: Endpoint, labels: Float[Tensor, "b c"], survival: str, intervals: int, weighted: bool) -> Head | None:
    """A head fitted to the training fold's labels, or None when there is nothing to learn (one class only, or no event).

    Hazard intervals end at quantiles of the event times, so that each holds as many events
    (Gensheimer & Narasimhan 2019, PeerJ 7:e6257, recommend intervals that widen as events thin out).
    """
    known = labels[~labels.isnan().any(dim=1)]
    if endpoint.kind == "binary":
        positive = int(known.sum())
        if positive in (0, len(known)):
            return None
        return Head(endpoint, "binary", positive_weight=(len(known) - positive) / positive if weighted else 1.0)
    times = known[known[:, 1] == 1, 0]
    if len(times) == 0:
        return None
    quantiles = torch.linspace(0, 1, intervals + 1)[1:]
    cuts = torch.quantile(times.double(), quantiles.double()).unique()
    return Head(endpoint, survival, tuple(cuts.tolist()))


def bias(head: Head, labels: Float[Tensor, "b c"]) -> Float[Tensor, "m"]:
    """The constant output that fits the training fold best, from which training starts (Lin et al. 2017, section 4.1).

    A binary output starts from the weighted share of ones, each hazard from its interval's share of deaths among those at
    risk, Cox from zero.
    """
    known = labels[~labels.isnan().any(dim=1)]
    if head.kind == "binary":
        return torch.logit(known.mean(dim=0)) + math.log(head.positive_weight)
    if head.kind == "cox":
        return torch.zeros(1)
    died, survived = _intervals(known[:, 0], known[:, 1], known.new_tensor(head.cuts_days))
    deaths, at_risk = died.sum(dim=0), (died + survived).sum(dim=0)
    return torch.logit((deaths + 0.5) / (at_risk + 1))  # a half each way keeps 0 of n and n of n finite


def loss(head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Float[Tensor, ""]:
    """Mean loss over the patients whose label is known; zero, with a gradient of zero, when none is.

    The host never waits for the device: nothing is read back or copied there, so patients of unknown label are masked, not left
    out. The loss is in single precision at least; autocast may hand over an output in half.
    """
    known = ~labels.isnan().any(dim=1)
    # zeros go in before the loss, not only after it: a NaN that is masked afterwards still makes NaN of the gradient
    output = output.to(torch.promote_types(output.dtype, torch.float32)).masked_fill(~known[:, None], 0.0)
    if head.kind == "cox":  # whoever left before the first death is in no risk set, and counts for nothing
        return cox_loss(output[:, 0], labels[:, 0].masked_fill(~known, -math.inf), known & (labels[:, 1] == 1))
    labels = labels.masked_fill(~known[:, None], 0.0)
    if head.kind == "binary":
        weight = output.new_full((), head.positive_weight)
        target = labels[:, 0].to(output.dtype)
        each = F.binary_cross_entropy_with_logits(output[:, 0], target, pos_weight=weight, reduction="none")
    else:
        each = hazard_losses(output, labels[:, 0], labels[:, 1], _filled(head.cuts_days, labels))
    return each.masked_fill(~known, 0.0).sum() / known.sum().clamp_min(1)


def hazard_losses(
    logits: Float[Tensor, "b m"], days: Float[Tensor, "b"], event: Float[Tensor, "b"], cuts_days: Float[Tensor, "m"]
) -> Float[Tensor, "b"]:
    """Each patient's negative log-likelihood of a discrete-time hazard (Gensheimer & Narasimhan 2019, equation 3).

    A patient contributes log(1 - hazard) for each interval survived and log(hazard) for the one of death; a censored patient
    has survived an interval whose middle was passed, and deaths after the last cut count as survival up to it.
    """
    died, survived = _intervals(days, event, cuts_days)
    return -(died * F.logsigmoid(logits) + survived * F.logsigmoid(-logits)).sum(dim=1)


def cox_loss(eta: Float[Tensor, "b"], days: Float[Tensor, "b"], died: Bool[Tensor, "b"]) -> Float[Tensor, ""]:
    """Efron's negative log partial likelihood of the log hazards `eta`, divided by the number of deaths; 0 without a death.

    Of the m deaths on one day, the r-th (r = 0 … m - 1, in any order) adds

        log( Σ exp(η) over the risk set - r/m · Σ exp(η) over the m deaths ) - its own η

    (Efron 1977, doi:10.1080/01621459.1977.10480613; in R's coxph and in lifelines the default). The risk set is everyone whose
    death or censoring comes on that day or later: a patient censored on the day of a death was alive at it. Divided by the
    deaths, as in DeepSurv (Katzman et al. 2018, doi:10.1186/s12874-018-0482-1), a batch's loss keeps its scale.

    torchsurv 0.2.0 differs in two ways. Where no two deaths share a day, a patient censored on the day of a death is in the risk
    set or not by the order of a sort; R and lifelines have them in it. Where two deaths do, its mean is over the days with a
    death instead of the deaths.
    """
    at_risk = days >= days[:, None]  # row i: those who may die when patient i does
    tied = died & died[:, None] & (days == days[:, None])  # row i: those who die with patient i
    deaths, earlier = (pairs.sum(dim=1).to(eta.dtype) for pairs in (tied, tied.tril(-1)))  # earlier: r, by place in the batch
    share = earlier / deaths.clamp_min(1)
    # To take off r/m of the tied deaths' hazards is to weigh them by 1 - r/m, which is never 0. Without a difference, and with
    # each risk set's own largest eta taken out by logsumexp, every logarithm is finite and exact, whatever the range of eta.
    weight = (1 - share[:, None] * tied).log().masked_fill(~at_risk, -math.inf)
    each = torch.logsumexp(eta + weight, dim=1) - eta
    return each.masked_fill(~died, 0.0).sum() / died.sum().clamp_min(1)


def _filled(numbers: Sequence[float], like: Tensor) -> Float[Tensor, "m"]:
    """`numbers` on the device of `like`, by one fill each; `new_tensor` would copy them from the host, which waits for that."""
    return torch.stack([like.new_full((), number) for number in numbers])


def _intervals(
    days: Float[Tensor, "b"], event: Float[Tensor, "b"], cuts_days: Float[Tensor, "m"]
) -> tuple[Float[Tensor, "b m"], Float[Tensor, "b m"]]:
    """1 in the interval of a patient's death, and 1 in each that the patient survived."""
    starts = F.pad(cuts_days[:-1], (1, 0))
    died = (starts < days[:, None]) & (days[:, None] <= cuts_days) & (event[:, None] == 1)
    survived = torch.where(event[:, None] == 1, cuts_days < days[:, None], (starts + cuts_days) / 2 <= days[:, None])
    return died.to(days.dtype), survived.to(days.dtype)


def score(head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
    """Probability of 1 for a binary endpoint; for survival a risk, higher = earlier death.

    The hazard's risk is the cumulative hazard summed over the intervals, as in random survival forests' mortality
    (Ishwaran et al. 2008); Cox's is the log of the cumulative hazard at the fold's last death.
    """
    if head.kind == "binary":  # the weight shifted the log odds by its logarithm; take that back, so that it is a probability
        return torch.sigmoid(output[:, 0] - math.log(head.positive_weight))
    if head.kind == "hazard":
        return -survival(head, output).clamp_min(1e-12).log().sum(dim=1)  # 1e-12: keeps the risk finite at certain death
    return output[:, 0] + math.log(head.baseline_hazard[-1])


def evidence(head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
    """What a map explains: the log odds of 1, which 0 balances after the classes' weights, or the risk of `score`."""
    return output[:, 0] if head.kind == "binary" else score(head, output)


def direction(head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
    """1 where a map explains what speaks for a one or a higher risk, -1 where the prediction is a zero and it explains that."""
    value = evidence(head, output)
    return torch.where(value < 0, -1.0, 1.0) if head.kind == "binary" else torch.ones_like(value)


def survival(head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b horizons"]:
    """Probability of being alive at each of `head.cuts_days`."""
    if head.kind == "hazard":
        return F.logsigmoid(-output).cumsum(dim=1).exp()
    return torch.exp(-output.new_tensor(head.baseline_hazard) * output.exp())


def with_baseline(head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Head:
    """A Cox head completed with Breslow's cumulative baseline hazard of the training fold, so that it can predict survival."""
    known = ~labels.isnan().any(dim=1)
    days, event, risk = labels[known, 0], labels[known, 1], output[known, 0].double().exp()
    deaths = days[event == 1]
    at_risk = (risk * (days >= deaths[:, None])).sum(dim=1)
    cuts = deaths.new_tensor(head.cuts_days)
    hazard = ((deaths <= cuts[:, None]) / at_risk).sum(dim=1)
    return Head(head.endpoint, head.kind, head.cuts_days, head.positive_weight, tuple(hazard.tolist()))

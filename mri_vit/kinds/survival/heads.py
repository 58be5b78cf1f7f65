"""Heads of survival: a discrete-time hazard, or Cox's log hazard ratio. Letters as in `model/heads.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mri_vit.metrics.competing_risks import cumulative_hazard, free_of_event
from mri_vit.model.heads import Head, HeadKind, KnownLabels, filled
from mri_vit.settings.schema import Endpoint

WEEK = 7.0  # days
MIN_RISK = float(np.finfo(np.float32).eps)  # of a hazard head: the nearest to no risk that its single precision holds


class SurvivalHeads(HeadKind):
    """The hazard's likelihood, or Cox's partial one, as `model.survival` has it.

    With a competing event both are of the cause-specific hazard: who had the other event is censored on that day.
    """

    unit = "risk"

    def fitted(self, endpoint: Endpoint, known: KnownLabels, survival: str, intervals: int, weighted: bool) -> Head | None:
        """Hazard intervals end at quantiles of the event times, so that each holds as many events (Gensheimer & Narasimhan 2019,
        PeerJ 7:e6257, recommend intervals that widen as events thin out), moved to the end of a week: no patient's day is in the
        weights.
        """
        times = known[known[:, 1] == 1, 0]
        if len(times) == 0:
            return None
        quantiles = torch.linspace(0, 1, intervals + 1)[1:]
        cuts = WEEK * (torch.quantile(times.double(), quantiles.double()) / WEEK).ceil().unique()
        other = ()
        if endpoint.competing:
            days, event = known.double().numpy().T
            other = tuple(cumulative_hazard(days, event == 2, cuts.double().numpy()).tolist())
        return Head(endpoint, survival, tuple(cuts.tolist()), other_hazard=other)

    def width(self, head: Head) -> int:
        return len(head.cuts_days) if head.kind == "hazard" else 1

    def bias(self, head: Head, known: Float[Tensor, "b c"]) -> Float[Tensor, "m"]:
        """Each hazard from its interval's share of deaths among those at risk, Cox from zero."""
        if head.kind == "cox":
            return torch.zeros(1)
        died, survived = _intervals(known[:, 0], known[:, 1], known.new_tensor(head.cuts_days))
        deaths, at_risk = died.sum(dim=0), (died + survived).sum(dim=0)
        return torch.logit((deaths + 0.5) / (at_risk + 1))  # a half each way keeps 0 of n and n of n finite

    def loss(
        self, head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"], known: Bool[Tensor, "b"]
    ) -> Float[Tensor, ""]:
        if head.kind == "cox":  # who left before the first death is in no risk set, and counts for nothing
            return cox_loss(output[:, 0], labels[:, 0].masked_fill(~known, -math.inf), known & (labels[:, 1] == 1))
        return super().loss(head, output, labels, known)

    def losses(self, head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Float[Tensor, "b"]:
        return hazard_losses(output, labels[:, 0], labels[:, 1], filled(head.cuts_days, labels))

    def scores(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b k"]:
        """A risk, higher = earlier death.

        The hazard's risk is the cumulative hazard summed over the intervals, as in random survival forests' mortality
        (Ishwaran et al. 2008); Cox's is the log of the cumulative hazard at the fold's last death.
        """
        return self.evidence(head, output)[:, None]

    def evidence(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b"]:
        if head.kind == "hazard":
            alive = self._alone(head, output)
            return -alive.clamp_min(1e-12).log().sum(dim=1)  # 1e-12: keeps the risk finite at certain death
        return output[:, 0] + math.log(head.baseline_hazard[-1])

    def survival(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b horizons"]:
        alive = self._alone(head, output)
        if not head.other_hazard:
            return alive
        hazard = -alive.double().clamp_min(1e-300).log()  # 1e-300: certain death has a finite hazard
        return torch.from_numpy(free_of_event(hazard.numpy(), np.array(head.other_hazard))).to(alive.dtype)

    def _alone(self, head: Head, output: Float[Tensor, "b m"]) -> Float[Tensor, "b horizons"]:
        """Survival by the head's own hazard, if there were no other event."""
        if head.kind == "hazard":
            return F.logsigmoid(-output).cumsum(dim=1).exp()
        return torch.exp(-output.new_tensor(head.baseline_hazard) * output.exp())

    def joint_evidence(self, heads: Sequence[Head], outputs: Sequence[Float[Tensor, "b m"]]) -> Float[np.ndarray, "b q"]:
        """The logarithm of the mean cumulative hazard; Cox's scores are logarithms already, of which the mean is taken."""
        evidence = torch.stack([self.evidence(head, output) for head, output in zip(heads, outputs, strict=True)])
        if heads[0].kind == "cox":
            return evidence.mean(dim=0).double().numpy()[:, None]
        logs = evidence.clamp_min(MIN_RISK).log()
        return (logs.logsumexp(dim=0) - math.log(len(logs))).double().numpy()[:, None]

    def from_scores(self, endpoint: Endpoint, scores: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b q"]:
        """Of the controls, whose scores are log hazard ratios."""
        return scores

    def to_scores(self, endpoint: Endpoint, evidence: Float[np.ndarray, "b q"]) -> Float[np.ndarray, "b k"]:
        return evidence

    def explains(self, head: Head, question: float) -> str:
        return f"higher risk ({head.endpoint.name})"

    def needs_outputs(self, head: Head) -> bool:
        return head.kind == "cox"

    def completed(self, head: Head, output: Float[Tensor, "b m"], labels: Float[Tensor, "b c"]) -> Head:
        """A Cox head with Breslow's cumulative baseline hazard of the training fold, so that it can predict survival."""
        known = ~labels.isnan().any(dim=1)
        days, event, risk = labels[known, 0], labels[known, 1], output[known, 0].double().exp()
        deaths = days[event == 1]
        at_risk = (risk * (days >= deaths[:, None])).sum(dim=1)
        cuts = deaths.new_tensor(head.cuts_days)
        hazard = ((deaths <= cuts[:, None]) / at_risk).sum(dim=1)
        return replace(head, baseline_hazard=tuple(hazard.tolist()))


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


def _intervals(
    days: Float[Tensor, "b"], event: Float[Tensor, "b"], cuts_days: Float[Tensor, "m"]
) -> tuple[Float[Tensor, "b m"], Float[Tensor, "b m"]]:
    """1 in the interval of a patient's death, and 1 in each that the patient survived."""
    starts = F.pad(cuts_days[:-1], (1, 0))
    died = (starts < days[:, None]) & (days[:, None] <= cuts_days) & (event[:, None] == 1)
    survived = torch.where(event[:, None] == 1, cuts_days < days[:, None], (starts + cuts_days) / 2 <= days[:, None])
    return died.to(days.dtype), survived.to(days.dtype)


PART = SurvivalHeads()

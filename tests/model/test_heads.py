"""Heads: their losses against formulas, other programs and the device's point of view; their scores and survival."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lifelines import CoxPHFitter
from lifelines.datasets import load_lung, load_rossi
from made.examples import examples
from made.network import HEADS
from torchsurv.loss.cox import neg_partial_log_likelihood
from waits import Waits

from mri_vit.kinds.survival.heads import cox_loss, hazard_losses
from mri_vit.model import heads
from mri_vit.model.heads import Head
from mri_vit.settings.schema import Endpoint

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
ALL = pytest.mark.parametrize("head", HEADS, ids=lambda head: head.kind)


def labels_of(endpoint: Endpoint) -> torch.Tensor:
    if endpoint.kind == "binary":
        return torch.tensor([[0.0], [1.0], [math.nan], [1.0]])
    return torch.tensor([[100.0, 1.0], [300.0, 0.0], [math.nan, math.nan], [500.0, 1.0]])


@pytest.mark.parametrize("kind", ["binary", "hazard", "cox"])
def test_an_unknown_label_changes_no_loss_and_a_batch_without_labels_costs_nothing(kind: str):
    endpoint = MGMT if kind == "binary" else OS
    labels = labels_of(endpoint)
    head = heads.from_labels(endpoint, labels, kind, intervals=3, weighted=True)
    assert head is not None
    output = torch.randn(4, head.width, requires_grad=True)
    changed = output.detach().clone()
    changed[2] = 1e3
    assert float(heads.loss(head, output, labels).detach()) == float(heads.loss(head, changed, labels))
    nothing = heads.loss(head, output, torch.full_like(labels, math.nan))
    nothing.backward()
    assert nothing.item() == 0
    assert output.grad is not None
    assert not output.grad.any()


@pytest.mark.parametrize("event", [1.0, 0.0])
@pytest.mark.parametrize("kind", ["hazard", "cox"])
def test_one_known_survival_in_a_batch_has_a_finite_loss_of_the_one_patient_alone(kind: str, event: float):
    labels = torch.tensor([[math.nan, math.nan], [300.0, event], [math.nan, math.nan]])
    head = Head(OS, kind, (100.0, 400.0))
    output = torch.randn(3, head.width, requires_grad=True)
    loss = heads.loss(head, output, labels)
    loss.backward()
    assert output.grad is not None
    assert not output.grad[[0, 2]].any()
    if kind == "cox":  # the risk set of a lone patient is that patient, so the partial likelihood is 1 whatever the risk
        assert loss.item() == 0
        assert not output.grad.any()
    else:
        assert loss.item() > 0


def test_the_hazard_loss_is_the_likelihood_worked_by_hand():
    cuts = torch.tensor([100.0, 200.0])
    hazard = torch.tensor([0.2, 0.5])
    logits = torch.logit(hazard).expand(4, 2)
    days = torch.tensor([50.0, 150.0, 160.0, 120.0])
    event = torch.tensor([1.0, 1.0, 0.0, 0.0])
    # died in the first; survived the first, died in the second; censored past the second's middle; before its middle
    likelihood = torch.tensor([0.2, 0.8 * 0.5, 0.8 * 0.5, 0.8])
    torch.testing.assert_close(hazard_losses(logits, days, event, cuts), -likelihood.log())


def test_survival_falls_and_risk_rises_with_the_hazard():
    head = Head(OS, "hazard", (100.0, 200.0, 300.0))
    low, high = torch.full((1, 3), -2.0), torch.full((1, 3), 1.0)
    assert float(heads.scores(head, high)) > float(heads.scores(head, low))
    alive = heads.survival(head, high)
    assert alive is not None
    survival = alive[0]
    assert (survival.diff() < 0).all()
    torch.testing.assert_close(survival, (1 - torch.sigmoid(high[0])).cumprod(0))


def test_a_cox_heads_baseline_is_breslows():
    from lifelines import NelsonAalenFitter

    labels = torch.tensor([[100.0, 1.0], [150.0, 0.0], [300.0, 1.0], [400.0, 1.0]])
    head = heads.from_labels(OS, labels, "cox", intervals=3, weighted=True)
    assert head is not None
    completed = heads.of(head.endpoint).completed(head, torch.zeros(4, 1), labels)  # with equal risks Breslow's is Nelson-Aalen's
    fitted = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(labels[:, 0].numpy(), labels[:, 1].numpy())
    expected = fitted.cumulative_hazard_at_times(completed.cuts_days).to_numpy()
    np.testing.assert_allclose(completed.baseline_hazard, expected, rtol=1e-6)


def test_a_weighted_heads_score_is_a_probability_again():
    labels = torch.tensor([[1.0]] * 2 + [[0.0]] * 6)
    head = heads.from_labels(MGMT, labels, "hazard", 3, weighted=True)
    assert head is not None
    assert head.positive_weight == 3.0
    assert float(heads.scores(head, torch.zeros(1, 1))) == pytest.approx(0.25)  # the training fold's share of ones


@given(st.lists(st.sampled_from([0.0, 1.0, math.nan]), min_size=1, max_size=6))
@examples(30)
def test_one_class_alone_gives_no_head(values: list[float]):
    head = heads.from_labels(MGMT, torch.tensor(values)[:, None], "hazard", 3, weighted=True)
    assert (head is not None) == (0.0 in values and 1.0 in values)


# Labels on their way to a loss: unknown in part, deaths on one day and censored patients on it, too


def batch(head: Head, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and labels of nine patients, two of them unknown."""
    output = torch.randn(9, head.width, generator=torch.Generator().manual_seed(0)).to(dtype)
    if head.kind == "binary":
        return output, torch.tensor([0, 1, math.nan, 1, 0, 1, math.nan, 0, 1], dtype=dtype)[:, None]
    days = torch.tensor([50, 200, math.nan, 200, 200, 350, 350, 400, 1000], dtype=dtype)
    died = torch.tensor([1, 1, math.nan, 1, 0, 1, math.nan, 0, 1], dtype=dtype)
    return output, torch.stack([days, died], dim=1)


@ALL
def test_the_loss_has_the_gradient_of_its_finite_differences(head: Head):
    output, labels = batch(head, torch.float64)
    assert torch.autograd.gradcheck(lambda out: heads.loss(head, out, labels), output.requires_grad_())


@ALL
def test_what_a_network_puts_out_for_a_patient_without_label_reaches_neither_loss_nor_gradient(head: Head):
    output, labels = batch(head)
    unknown = labels.isnan().any(dim=1)
    gradients, losses = [], []
    for value in (0.0, 1e30, math.inf, math.nan):
        changed = output.clone().masked_fill(unknown[:, None], value).requires_grad_()
        losses.append(heads.loss(head, changed, labels))
        gradients.append(*torch.autograd.grad(losses[-1], changed))
    for loss, gradient in zip(losses, gradients, strict=True):
        assert torch.equal(loss, losses[0])
        assert torch.equal(gradient, gradients[0])
        assert not gradient[unknown].any()
        assert gradient[~unknown].any()


@ALL
def test_a_loss_of_outputs_that_are_no_numbers_is_none_either(head: Head):
    output, labels = batch(head)
    output[3] = math.nan  # a patient with a label
    assert heads.loss(head, output, labels).isnan()


@ALL
def test_the_loss_is_that_of_the_known_patients_alone(head: Head):
    output, labels = batch(head, torch.float64)
    known = ~labels.isnan().any(dim=1)
    torch.testing.assert_close(heads.loss(head, output, labels), heads.loss(head, output[known], labels[known]))


@ALL
def test_an_output_in_half_precision_has_a_loss_in_single(head: Head):
    output, labels = batch(head)
    half = output.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = heads.loss(head, half, labels)
    loss.backward()
    assert loss.dtype == torch.float32
    assert torch.equal(loss, heads.loss(head, half.detach().float(), labels))
    assert half.grad is not None
    assert half.grad.isfinite().all()


# The host does not wait


@pytest.mark.parametrize(
    ("name", "act"),
    {
        "item": ("_local_scalar_dense", lambda x: x.sum().item()),
        "if": ("_local_scalar_dense", lambda x: bool((x > 0).any())),
        "equal": ("equal", lambda x: torch.equal(x, x)),
        "nonzero": ("nonzero", lambda x: x.nonzero()),
        "one-armed where": ("nonzero", lambda x: torch.where(x > 0)),
        "masked_select": ("masked_select", lambda x: x.masked_select(x > 0)),
        "unique": ("_unique2", lambda x: x.unique()),
        "unique_consecutive": ("unique_consecutive", lambda x: x.unique_consecutive()),
        "read by a mask": ("index", lambda x: x[x > 0]),
        "written by a mask": ("index_put_", lambda x: x.index_put_((x > 0,), x.new_full((), 1.0))),
        "copied to a device": ("_to_copy", lambda x: x.to("meta")),
        "copied into a device": ("copy_", lambda x: torch.empty(4, device="meta").copy_(x)),
        "made of Python's numbers": ("lift_fresh", lambda x: x.new_tensor([1.0, 2.0])),
    }.values(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_operation_that_waits_is_counted(name: str, act: Callable[[torch.Tensor], object]):
    x = torch.tensor([1.0, -1.0, 2.0, 0.0])
    with Waits() as waits:
        act(x)
    assert waits.found == {name: 1}


def test_a_mask_is_counted_in_the_backward_pass_too_and_an_operation_that_waits_for_nothing_is_not():
    x = torch.randn(4, requires_grad=True)
    picked = x[x > 0].sum()
    with Waits() as waits:
        picked.backward()
    assert sum(waits.found.values()) == 1
    order = torch.tensor([1, 0, 3, 2])
    with Waits() as waits:
        torch.where(x > 0, x[order], 0.0).to(torch.float64).sum().backward()
    assert not waits.found


@pytest.mark.parametrize("chosen", [*([head] for head in HEADS), HEADS], ids=["binary", "hazard", "cox", "sum"])
def test_no_loss_waits_for_the_device_forward_or_backward(chosen: list[Head]):
    batches = [batch(head) for head in chosen]
    for output, _ in batches:
        output.requires_grad_()
    with Waits() as waits:
        torch.stack([heads.loss(head, *pair) for head, pair in zip(chosen, batches, strict=True)]).sum().backward()
    assert not waits.found
    assert all(output.grad is not None and output.grad.any() for output, _ in batches)


@pytest.mark.parametrize(
    ("read", "error", "said"),
    [
        ("item", RuntimeError, r"Tensor\.item\(\) cannot be called on meta tensors"),
        ("__bool__", RuntimeError, r"Tensor\.item\(\) cannot be called on meta tensors"),
        ("tolist", NotImplementedError, "Cannot copy out of meta tensor"),
        ("cpu", NotImplementedError, "Cannot copy out of meta tensor"),
        ("numpy", TypeError, "can't convert meta device type tensor to numpy"),
        ("nonzero", NotImplementedError, r"torch\.nonzero\(\) raises unimplemented"),
    ],
)
def test_no_number_can_be_read_from_the_device_meta(read: str, error: type[Exception], said: str):
    act = getattr(torch.ones((), device="meta"), read)
    with pytest.raises(error, match=said):
        act()


@ALL
def test_a_loss_and_its_gradient_are_computed_where_no_number_can_be_read(head: Head):
    output, labels = (tensor.to("meta") for tensor in batch(head))  # shapes on a device without numbers
    with Waits() as waits:
        heads.loss(head, output.requires_grad_(), labels).backward()
    assert not waits.found
    assert output.grad is not None
    assert output.grad.is_meta


# Cox's partial likelihood by Efron


def efrons(eta: np.ndarray, days: np.ndarray, died: np.ndarray) -> float:
    """Minus the logarithm of Efron's 1977 approximation, as a loop over the days with a death and the deaths of the day."""
    total = 0.0
    for day in set(days[died]):
        at_risk, dying = eta[days >= day], eta[(days == day) & died]
        total -= sum(dying)
        for r in range(len(dying)):
            total += math.log(sum(map(math.exp, at_risk)) - r / len(dying) * sum(map(math.exp, dying)))
    return total


def ours(eta: np.ndarray, days: np.ndarray, died: np.ndarray) -> float:
    """The sum that the loss divides by the deaths."""
    return float(cox_loss(*map(torch.from_numpy, (eta, days.astype(float), died)))) * died.sum()


def torchsurvs(eta: np.ndarray, days: np.ndarray, died: np.ndarray) -> float:
    single = torch.tensor(eta, dtype=torch.float32), torch.tensor(died), torch.tensor(days, dtype=torch.float32)
    return float(neg_partial_log_likelihood(*single, ties_method="efron", reduction="sum"))


PATIENT = st.tuples(st.floats(-6, 6), st.integers(0, 4), st.booleans())


def columns(people: list[tuple[float, int, bool]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    eta, days, died = zip(*people, strict=True)
    return np.array(eta, dtype=float), np.array(days, dtype=float), np.array(died)


@given(st.lists(PATIENT, min_size=1, max_size=12))
@example([(0.3, 1, True), (2.0, 1, False), (-1.0, 2, False)])  # censored on the day of the only death
@example([(0.3, 1, False), (2.0, 1, False)])  # nobody dies
@settings(deadline=None)
def test_coxs_loss_is_efrons_formula_over_the_deaths(people: list[tuple[float, int, bool]]):
    eta, days, died = columns(people)
    assert ours(eta, days, died) == pytest.approx(efrons(eta, days, died), rel=1e-12, abs=1e-12)


@given(st.lists(PATIENT, min_size=1, max_size=12), st.floats(-50, 50), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_coxs_loss_hangs_on_neither_a_common_factor_of_the_hazards_nor_the_order_of_patients(people, constant, random):
    eta, days, died = columns(people)
    expected = ours(eta, days, died)
    assert ours(eta + constant, days, died) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    order = random.sample(range(len(people)), len(people))
    assert ours(eta[order], days[order], died[order]) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(st.lists(st.one_of(PATIENT, st.none()), min_size=1, max_size=12))
@settings(deadline=None)
def test_patients_without_survival_change_no_cox_loss_and_no_gradient(people: list[tuple[float, int, bool] | None]):
    rows = [(0.5, math.nan, math.nan) if patient is None else patient for patient in people]
    eta, labels = torch.tensor(rows, dtype=torch.float64).split([1, 2], dim=1)
    known = ~labels.isnan().any(dim=1)
    head, everyone, those = HEADS[2], eta.clone().requires_grad_(), eta[known].requires_grad_()
    losses = heads.loss(head, everyone, labels), heads.loss(head, those, labels[known])
    torch.testing.assert_close(*losses, rtol=1e-12, atol=1e-12)
    gradient, expected = (torch.autograd.grad(loss, x)[0] for loss, x in zip(losses, (everyone, those), strict=True))
    torch.testing.assert_close(gradient[known], expected, rtol=1e-12, atol=1e-12)
    assert not gradient[~known].any()


def test_coxs_loss_is_exact_where_hazards_differ_by_more_than_single_precision_holds():
    eta = torch.tensor([0.0, 200.0, -200.0, 0.0, -300.0], requires_grad=True)
    loss = cox_loss(eta, torch.tensor([1.0, 2.0, 2.0, 3.0, 3.0]), torch.tensor([True, True, True, True, False]))
    # day 1: 200 - 0; day 2: Σ is exp(200), then half of it, less 200 and -200; day 3: nothing, exp(-300) beside exp(0)
    assert loss.item() == pytest.approx((200 + (200 + 200 + math.log(0.5)) - 0 + 0) / 4, rel=1e-6)
    loss.backward()
    torch.testing.assert_close(eta.grad, torch.tensor([-1.0, 2.0, -1.0, 0.0, 0.0]) / 4)


def test_coxs_likelihood_is_rs_with_the_patient_censored_on_the_day_of_a_death_at_risk(oracles: Path):
    entries = {entry["id"]: entry for entry in json.loads((oracles / "statistics.json").read_text())["references"]}
    coefficient, likelihood, error = entries["cox_toy_efron"]["expected"]
    x = torch.tensor([0.0, 1, 1, 1, 0, 0], dtype=torch.float64)  # the entry's columns; the third is censored on the second's day
    days, died = np.array([9.0, 1, 1, 6, 6, 8]), np.array([True, True, False, True, True, False])

    def negative(beta: torch.Tensor) -> torch.Tensor:
        return cox_loss(beta * x, torch.tensor(days), torch.tensor(died)) * died.sum()

    beta = torch.tensor(coefficient, dtype=torch.float64)
    assert float(negative(beta)) == pytest.approx(-likelihood, abs=1e-12)
    assert float(torch.func.grad(negative)(beta)) == pytest.approx(0, abs=1e-9)
    assert float(torch.func.hessian(negative)(beta)) == pytest.approx(error**-2, rel=1e-9)
    eta = (beta * x).numpy()
    assert ours(eta, np.where(died, days, days - 0.5), died) < -likelihood - 0.3  # without that one it would be less


def with_lone_deaths(table: pd.DataFrame) -> pd.DataFrame:
    """One death of each day, and every second censored patient, moved to the next day with a death."""
    single = table.query("died").drop_duplicates(subset=["days"])
    censored = table.query("not died")[::2]
    position = np.searchsorted(np.sort(single.days), censored.days).clip(max=len(single) - 1)
    moved = censored.assign(days=np.sort(single.days)[position])
    return pd.concat([moved, single], ignore_index=True)  # the censored first, where torchsurv's sort leaves them


def lung() -> pd.DataFrame:
    table = load_lung()
    columns = {"age": table.age, "sex": table.sex, "days": table.time, "died": table.status == 1}
    return pd.DataFrame(columns).dropna()


def rossi() -> pd.DataFrame:
    table = load_rossi()
    return table.drop(columns=["week", "arrest"]).assign(days=table.week, died=table.arrest == 1)


@pytest.mark.parametrize(
    "table",
    [lung(), rossi(), with_lone_deaths(lung()), with_lone_deaths(rossi())],
    ids=["lung", "rossi", "lung without tied deaths", "rossi likewise"],
)
def test_lifelines_has_our_likelihood_and_torchsurv_leaves_out_some_censored_on_the_day_of_a_lone_death(table: pd.DataFrame):
    days, died = table.days.to_numpy(float), table.died.to_numpy()
    fit = CoxPHFitter().fit(table, "days", "died")
    eta = table[fit.params_.index].to_numpy(float) @ fit.params_.to_numpy()
    eta -= eta.mean()  # single precision
    assert set(days[died]) & set(days[~died])
    assert ours(eta, days, died) == pytest.approx(-fit.log_likelihood_, rel=1e-12)
    if len(set(days[died])) < died.sum():  # two die on one day
        with pytest.warns(UserWarning, match="Ties in `time`"):
            assert torchsurvs(eta, days, died) == pytest.approx(-fit.log_likelihood_, rel=1e-6)
    else:
        assert torchsurvs(eta, days, died) < -fit.log_likelihood_ - 0.01  # single precision is good to 1e-4 here


@given(st.lists(PATIENT, min_size=2, max_size=12))
@settings(deadline=None)
@pytest.mark.filterwarnings("ignore:Ties in `time`:UserWarning")
def test_coxs_loss_is_torchsurvs_sum_where_nobody_is_censored_on_the_day_of_a_death(people: list[tuple[float, int, bool]]):
    eta, days, died = columns(people)
    died[0] = True  # without a death torchsurv warns
    days = np.where(died, days, days + 0.5)
    assert torchsurvs(eta, days, died) == pytest.approx(ours(eta, days, died), rel=1e-5, abs=1e-4)

"""Features and landscapes of whole networks: known cases, and what the pages say of them."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from made import network as made
from made.study import make_tiny

from mri_vit.crossval.comparators import networks
from mri_vit.data import cohort, tokens
from mri_vit.data.store import all_tokens, labels, token_file
from mri_vit.explain.inspection import costs, drawings, inspect_network, learned
from mri_vit.explain.inspection.learned import BrainFrame
from mri_vit.explain.inspection.vit_numbers import InspectedFold, VitNumbers, measure_vit
from mri_vit.model.encoder import Encoder
from mri_vit.settings.schema import CHANNELS, Comparator
from mri_vit.settings.sections import Grid
from mri_vit.train.supervised import fit, outputs, total_loss, untrained

pytestmark = [
    pytest.mark.long(30),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]
GRID = Grid(edge=8, spacing_mm=10.0, patch=2)
READS_ONE = {"architecture": "resnet10", "channels": ("t1ce",)}


@pytest.fixture(scope="module", autouse=True)
def few_points() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned, "LANDSCAPE_POINTS", 3)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> InspectedFold:
    """A small network that was trained for a second."""
    study = make_tiny(tmp_path_factory.mktemp("tiny"))
    patients = cohort.read(study.cohort, study.endpoints)
    after = fit(patients[:16], patients[16:20], study, study.output, seed=3).eval()
    return InspectedFold(study, "tiny, fold 1", untrained(patients[:16], study, 3).eval(), after, patients[20:], patients[:16])


@pytest.fixture
def subject(trained: InspectedFold) -> InspectedFold:
    """The same for a test that may change its weights."""
    return replace(trained, before=copy.deepcopy(trained.before), after=copy.deepcopy(trained.after))


@pytest.fixture(scope="module")
def cnn(trained: InspectedFold) -> InspectedFold:
    """A convolutional comparator that reads T1ce alone, as training starts; its heads are not zero."""
    study = networks(trained.study.model_copy(update={"comparators": (Comparator(name="cnn", model=READS_ONE),)}))["cnn"]
    before, after = (untrained(trained.train, study, 3).eval() for _ in range(2))
    torch.manual_seed(0)
    for linear in after.head.values():
        torch.nn.init.normal_(linear.weight)  # type: ignore[arg-type]
    return InspectedFold(study, "tiny, fold 1, cnn", before, after, trained.patients, trained.train, "cnn")


@pytest.fixture
def other(cnn: InspectedFold) -> InspectedFold:
    return replace(cnn, before=copy.deepcopy(cnn.before), after=copy.deepcopy(cnn.after))


@pytest.fixture(scope="module")
def results(trained: InspectedFold, cnn: InspectedFold) -> inspect_network.LearnedResults:
    """What is measured of the trained network, with the comparator's landscape beside its own."""
    return inspect_network.measure_learned(trained, [cnn])


@pytest.fixture(scope="module")
def of_cnn(cnn: InspectedFold) -> inspect_network.LearnedResults:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned, "ENCODER_UNITS", 1)
        return inspect_network.measure_learned(cnn)


@pytest.fixture(scope="module")
def numbers(trained: InspectedFold) -> VitNumbers:
    return measure_vit(trained)


def each(results: inspect_network.LearnedResults) -> Sequence[learned.Feature]:
    assert results.features
    return results.features.each


def test_the_work_that_is_done_is_that_which_was_estimated(subject, monkeypatch):
    monkeypatch.setattr(learned, "FEATURE_PATIENTS", len(subject.patients))
    monkeypatch.setattr(learned, "LANDSCAPE_PATIENTS", 4)
    monkeypatch.setattr(learned, "LANDSCAPE_POINTS", 5)
    done = []

    def count(module: torch.nn.Module, given: tuple) -> None:
        if isinstance(module, Encoder):
            done.append((int(given[0].requires_grad), 0 if given[0].requires_grad else len(given[0])))

    hook = torch.nn.modules.module.register_module_forward_pre_hook(count)
    learned.measure_features(subject)
    work, done[:] = costs.Work(*np.sum(done, axis=0).tolist()), []
    assert work == costs.features_work(len(subject.study.endpoints), len(subject.patients))
    learned.measure_landscape(subject)
    hook.remove()
    assert costs.Work(*np.sum(done, axis=0).tolist()) == costs.landscape_work(len(subject.train), len(subject.patients))


def test_a_linear_networks_input_is_its_slope(subject):
    """Filters, projection and head as one weight: what autograd says of a linear network at any point."""
    net = made.linear(side=4)
    study = subject.study.model_copy(update={"endpoints": tuple(head.endpoint for head in net.heads)})
    position = torch.arange(net.grid.positions)
    frame = BrainFrame(position, torch.ones((net.grid.edge,) * 3, dtype=torch.bool), 0.0)  # 0: no scan to be as rough as
    volume = torch.zeros(4, *frame.brain.shape, requires_grad=True)
    (slope,) = torch.autograd.grad(learned.read(net, volume, position)[0, 3], volume)
    found = learned.optimised(net, lambda cls: cls[:, 3], torch.randn(5, 16), frame, study)
    assert learned.cosine(found.volume, slope.numpy()) == pytest.approx(1, abs=1e-4)


def test_a_volume_is_read_as_the_patient_that_it_was_cut_from(subject):
    prepared = tokens.load(token_file(subject.study.prepared, subject.patients[0]))
    patches, position = all_tokens(prepared, subject.study.model)
    volume = torch.from_numpy(tokens.to_volume(prepared)).float()
    torch.testing.assert_close(learned.read(subject.after, volume, position[0]), subject.after.encoder(patches, position))


def test_inputs_raise_what_they_are_made_for_above_patients_and_noise(results):
    for feature in each(results):
        found = feature.learned
        assert found.reached > found.patients.max(), feature.label
        assert found.reached > found.noise.max(), feature.label
        assert found.strength <= 1 + 1e-5
        assert sum(found.shares.values()) == pytest.approx(1)


def test_endpoints_stand_beside_permuted_weights_and_units_beside_the_start(results):
    found = {feature.name: feature.control_is for feature in each(results)}
    assert list(found.values()) == ["permuted weights"] * 2 + ["before training"] * learned.ENCODER_UNITS
    assert list(found)[:2] == ["mgmt", "os"]


def test_units_of_a_convolutional_network_before_training_answer_to_patients(other):
    drawn, normal = (learned.represented(net, other.train, other.study) for net in (other.before, learned.normalised(other)))
    assert normal.std(dim=0).min() > 0.1
    assert normal.std(dim=0).median() > 20 * drawn.std(dim=0).median()


def test_the_control_of_a_unit_is_the_normalised_network_before_training(other, of_cnn):
    (unit,) = (feature for feature in each(of_cnn) if feature.control_is == "before training")
    seen = learned.represented(learned.normalised(other), other.patients, other.study)
    number = int(unit.name.removeprefix("unit_")) - 1
    np.testing.assert_allclose(unit.control.patients, seen[:, number].numpy(), atol=1e-6)


def test_what_is_normalised_for_the_control_is_a_copy_and_a_network_without_batch_norm_is_itself(subject, other):
    before = {name: value.clone() for name, value in other.before.state_dict().items()}
    settled = learned.normalised(other)
    torch.testing.assert_close(dict(other.before.state_dict()), before, rtol=0, atol=0)
    assert not torch.equal(settled.state_dict()["encoder.net.bn1.running_mean"], before["encoder.net.bn1.running_mean"])
    assert learned.normalised(subject) is subject.before


@pytest.mark.parametrize("reached", [4.0, 1.28])  # noise reaches 1.27, patients 1
def test_a_caption_praises_no_input_that_noise_all_but_reaches_and_says_where_a_control_is_none(
    subject, numbers, tmp_path, sketched, reached: float
):
    volume, shares = np.zeros((4, 8, 8, 8), np.float32), dict.fromkeys(CHANNELS, 0.25)
    one = learned.OptimisedInput(volume, reached, 1.0, np.array([0.0, 1.0]), np.array([0.5, 1.27]), shares)
    flat = replace(one, reached=0.0, strength=0.01, patients=np.zeros(2), noise=np.zeros(2))
    for control, is_none in ((one, reached < 2), (flat, True)):
        feature = learned.Feature("mgmt", "MGMT", one, control, "permuted weights", 0.0)
        found = inspect_network.LearnedResults(learned.Features([feature], np.ones((8, 8, 8), bool)))
        html = inspect_network.write_page(subject, tmp_path / "out", numbers, found).read_text(encoding="utf-8")
        assert ("exceeds all of these" in html) == (reached > 2)
        assert ("does not exceed these" in html) == (reached < 2)
        assert ("not a control" in html) == is_none


def test_the_same_study_gives_the_same_inputs(subject, results):
    again = learned.measure_features(subject).each[0].learned
    np.testing.assert_array_equal(again.volume, each(results)[0].learned.volume)


def test_a_feature_has_its_endpoints_full_name(results):
    assert each(results)[0].label == "MGMT promoter methylation (log odds)"


def test_a_network_that_reads_one_scan_gets_nothing_in_the_others(of_cnn):
    for feature in each(of_cnn):
        assert feature.learned.shares["t1ce"] > 0.999, feature.label


def test_the_units_shown_are_those_that_move_the_heads(subject):
    seen = torch.randn(20, 16)
    seen[:, 5] *= 100
    for linear in subject.after.head.values():
        linear.weight.data[:, 11] = 50.0
        linear.weight.data[:, 5] = 10.0
    assert learned.leading_units(subject.after, seen) == [5, 11]


def test_the_middle_of_a_landscape_is_the_loss_of_the_trained_network(subject, results):
    found = results.landscapes[0]
    net, study = subject.after, subject.study
    chosen = learned.sample([p for p in subject.train if any(p.knows(e) for e in study.endpoints)], study.seed)
    assert found.patients == {"training": len(chosen), "test": 4}
    for part, patients in (("training", chosen), ("test", learned.sample(subject.patients, study.seed))):
        own = learned.loss_of(patients, study, net)
        assert found.trained(part) == own(net)
        truth = {e.name: labels(patients, e) for e in study.endpoints}
        one_by_one = total_loss(net, outputs(net, patients, study, torch.device("cpu")), truth)
        assert found.trained(part) == pytest.approx(float(one_by_one), rel=1e-5)


def test_a_landscapes_lowest_point_is_where_it_is(subject):
    loss = np.array([[3.0, 2.0, 4.0], [1.0, 1.5, np.nan], [9.0, 8.0, 7.0]])
    one = learned.Landscape("vit", np.array([-1.0, 0.0, 1.0]), {"test": loss}, {"test": 2.5}, {"test": 4})
    assert one.lowest("test") == (1.0, -1.0, 0.0)
    assert one.trained("test") == 1.5
    assert one.below_untrained("test") == pytest.approx(3 / 9)


def test_a_vision_transformers_page_shows_its_features_and_the_landscapes_of_others_beside_its_own(
    subject, results, numbers, tmp_path, sketched
):
    html = inspect_network.write_page(subject, tmp_path / "out", numbers, results).read_text(encoding="utf-8")
    names = {path.stem for path in (tmp_path / "out" / "figures").glob("*.svg")}
    assert {"landscape_vit", "landscape_cnn", "feature_mgmt_learned", "feature_mgmt_control"} <= names
    assert len(re.findall("<img ", html)) == len(names)
    assert "A plane is 2 of " in html
    assert " %" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)  # a number and its sign are on one line
    assert "<script" not in html


def test_a_convolutional_networks_page_has_these_two_alone(other, of_cnn, tmp_path, sketched):
    html = inspect_network.write_page(other, tmp_path / "out", None, of_cnn).read_text(encoding="utf-8")
    assert re.findall('<section id="([a-z]+)">', html) == ["features", "landscape", "limits"]
    assert "3D ResNet-10" in html
    assert all(source.startswith("data:image/svg+xml;base64,") for source in re.findall(r'src="([^"]*)"', html))


def test_what_is_left_out_is_not_on_the_page(subject, numbers, tmp_path, sketched):
    html = inspect_network.write_page(subject, tmp_path / "out", numbers).read_text(encoding="utf-8")
    assert 'id="features"' not in html
    assert 'href="#landscape"' not in html


def test_the_page_of_a_network_that_reads_places_past_cls_says_so(subject, tmp_path, sketched):
    alone = inspect_network.write_page(subject, tmp_path / "cls", measure_vit(subject)).read_text(encoding="utf-8")
    subject.after.model = subject.after.model.model_copy(update={"pool": "max"})
    pooled = inspect_network.write_page(subject, tmp_path / "max", measure_vit(subject)).read_text(encoding="utf-8")
    assert ("from the CLS token alone" in alone, "from the CLS token alone" in pooled) == (True, False)
    assert "the largest value of each number among the other tokens is added" in pooled


def test_synthetic_patients_are_called_so_whatever_the_study_is_called(subject, numbers, tmp_path, sketched):
    demo = [replace(patient, id=f"demo-{number}") for number, patient in enumerate(subject.patients)]
    told = [
        "These patients are synthetic" in inspect_network.write_page(one, tmp_path / name, numbers).read_text(encoding="utf-8")
        for name, one in (("real", subject), ("made", replace(subject, patients=demo)))
    ]
    assert told == [False, True]


def test_the_colours_of_a_landscape_end_where_its_losses_do():
    shallow, steep = np.array([[1.4, 2.0], [3.0, 10.0]]), np.array([[1.0, np.nan], [2.0, 500.0]])
    assert drawings.colour_span([shallow], [3.4]) == (1.4, 10.0)
    assert drawings.colour_span([shallow, steep], [3.4]) == (1.0, pytest.approx(drawings.HIGHEST_LOSS * 3.4))
    low, high = drawings.colour_span([np.full((2, 2), 0.7)], [3.4])
    assert low < high


def test_a_hostile_name_is_shown_as_it_is(subject, numbers, tmp_path, sketched):
    hostile = replace(subject, title='<script>alert("1")</script>', name="<b>")
    html = inspect_network.write_page(hostile, tmp_path / "out", numbers).read_text(encoding="utf-8")
    assert "<script>alert" not in html


def test_planes_are_drawn_as_a_radiologist_sees_them():
    volume, brain = np.zeros((1, 8, 8, 8), np.float32), np.ones((8, 8, 8), bool)
    volume[0, 7, 7, 4] = 2.0  # far right, far front
    figure = drawings.input_planes(volume, brain, ["t1ce"], GRID)
    sheet = np.asarray(figure.axes[0].images[0].get_array())
    assert sheet[0, 0] == 2.0  # of the axial plane: the patient's right at the left, the front at the top


def test_scans_of_a_study_are_the_rows_of_an_inputs_picture(subject):
    volume, brain = np.ones((4, 8, 8, 8), np.float32), np.ones((8, 8, 8), bool)
    figure = drawings.input_planes(volume, brain, CHANNELS, GRID)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["T1", "T1ce", "T2", "FLAIR"]

"""Maps of endpoints of classes: of the class that is predicted, or of each, which stays the same whatever is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from made.network import inputs
from made.prepared import prepared_by
from torch import Tensor

from mri_vit.data import cohort
from mri_vit.explain.faithfulness import reader
from mri_vit.explain.inspection import learned
from mri_vit.explain.methods import patient_maps, target
from mri_vit.explain.methods.gradient import gradient_attention, integrated_gradients_by_scan
from mri_vit.explain.methods.occlusion import occlusion, scores_by_scan
from mri_vit.explain.outputs.map_files import write_maps
from mri_vit.explain.outputs.records import NetworkId
from mri_vit.kinds.multiclass.heads import log_odds
from mri_vit.model import heads
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.report.judged_maps import patient as with_verdicts
from mri_vit.report.reading.run_files import Map
from mri_vit.report.words.map_sentences import map_label
from mri_vit.report.words.notation import title
from mri_vit.settings.schema import Endpoint, Model, Study
from mri_vit.settings.sections import Explain, Grid

TYPE = Endpoint(name="who_type", kind="multiclass", classes=("gbm", "astro", "олиго"))
GRADE = Endpoint(name="grade", kind="ordinal", classes=("2", "3", "4"))
HEADS = [Head(TYPE, "softmax", class_weights=(1.0, 1.0, 1.0)), Head(GRADE, "cumulative")]


def network(model: Model, grid: Grid) -> Network:
    torch.manual_seed(0)
    net = Network(model, grid, HEADS)
    for name, weights in net.named_parameters():
        if "head" in name and "weight" in name:
            torch.nn.init.normal_(weights)
    torch.nn.init.normal_(net.get_parameter("encoder.cls"))
    return net.double().eval()


@pytest.fixture(scope="module")
def net() -> Network:
    """No class is the most probable of every patient."""
    net = network(Model(dim=16, depth=2, heads=2, mlp=24), Grid(edge=6, spacing_mm=8.0, patch=2))
    with torch.no_grad():
        mean = net(*inputs(net, batch=20, dtype=torch.float64))["who_type"].mean(dim=0)
        net.get_parameter("head.who_type.bias").sub_(mean)
    return net


@pytest.fixture(scope="module")
def given(net: Network) -> tuple[Tensor, Tensor]:
    return inputs(net, batch=4, dtype=torch.float64)


def odds(net: Network, patches: Tensor, position: Tensor) -> Tensor:
    with torch.no_grad():
        return log_odds(net(patches, position)["who_type"])


def asking(place: int, of: int) -> dict[str, Tensor]:
    return {"who_type": torch.full((of,), float(place), dtype=torch.float64), "grade": torch.ones(of, dtype=torch.float64)}


def test_a_map_without_a_question_is_that_of_the_class_with_the_highest_log_odds(net: Network, given: tuple[Tensor, Tensor]):
    best = odds(net, *given).argmax(dim=1)
    assert len(best.unique()) > 1
    found = gradient_attention(net, *given)["who_type"]
    for place in range(3):
        asked = gradient_attention(net, *given, asking(place, 4))["who_type"]
        torch.testing.assert_close(asked[best == place], found[best == place])
        assert not torch.isclose(asked[best != place], found[best != place]).all(dim=1).any()


@pytest.mark.parametrize("place", range(3))
def test_integrated_gradients_of_a_class_add_up_to_what_its_log_odds_rise_from_empty_patches(
    net: Network, given: tuple[Tensor, Tensor], place: int
):
    patches, position = given
    found = integrated_gradients_by_scan(net, patches, position, asking(place, 4))["who_type"].sum(dim=(1, 2))
    rise = odds(net, patches, position) - odds(net, torch.zeros_like(patches), position)
    torch.testing.assert_close(found, rise[:, place], atol=0.02, rtol=0.02)


@pytest.mark.parametrize("place", range(3))
def test_without_some_tokens_the_same_class_is_asked_for_though_another_is_predicted(
    net: Network, given: tuple[Tensor, Tensor], place: int
):
    patches, position = (one[:1] for one in given)
    read = reader(net, patches, position, questions=asking(place, 1))
    kept = torch.stack([torch.randperm(27, generator=torch.Generator().manual_seed(seed))[:9] for seed in range(30)])
    found = read(kept)["who_type"]
    rest = torch.cat([odds(net, patches[:, some], position[:, some]) for some in kept])
    torch.testing.assert_close(found, rest[:, place])
    assert len(rest.argmax(dim=1).unique()) > 1
    value = occlusion(net, patches, position, asking(place, 1))["who_type"]
    assert (value >= 0).all()
    assert (value > 0).any()


def test_sequences_share_out_the_log_odds_of_the_class_that_the_whole_patient_is_predicted(
    net: Network, given: tuple[Tensor, Tensor]
):
    patches, position = given
    found, full = scores_by_scan(net, patches, position)["who_type"], odds(net, patches, position)
    empty = odds(net, torch.zeros_like(patches), position)
    best = full.argmax(dim=1, keepdim=True)
    torch.testing.assert_close(found["evidence"], full.gather(1, best)[:, 0])
    torch.testing.assert_close(found["empty"], empty.gather(1, best)[:, 0])
    torch.testing.assert_close(torch.stack([found[scan] for scan in net.channels]).sum(dim=0), found["evidence"] - found["empty"])


def test_the_expected_grade_is_explained_upwards(net: Network, given: tuple[Tensor, Tensor]):
    with torch.no_grad():
        summary = target.features(net, *given)
    assert (target.questions_of(net, summary)["grade"] == 1).all()
    grades = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    shares = heads.scores(HEADS[1], net.head["grade"](summary))
    torch.testing.assert_close(target.evidences(net, summary)["grade"], shares @ grades)


def test_each_class_is_looked_for_in_the_inspection_of_a_network(net: Network):
    assert [(head.endpoint.name, name, question) for head, name, question in learned.asked(net)] == [
        ("who_type", "gbm", 0.0),
        ("who_type", "astro", 1.0),
        ("who_type", "олиго", 2.0),
        ("grade", "", 1.0),
    ]


def test_every_class_has_files_of_its_own_and_no_verdict_but_the_predicted_ones(scans: Path, tmp_path: Path):
    study = Study(
        name="x",
        cohort=scans,
        prepared=tmp_path / "prepared",
        output=tmp_path,
        grid=Grid(edge=56, spacing_mm=4.0, patch=4),
        model=Model(dim=16, depth=2, heads=2, mlp=16, tokens="foreground"),
        explain=Explain(methods=("rollout", "gradient_attention"), every_class=True),
        endpoints=(TYPE, GRADE),
    )
    patient = cohort.read(scans, ())[0]
    prepared_by(study, patient)
    net = network(study.model, study.grid).float()
    made = patient_maps.of_patient(patient, net, study)
    write_maps(made, study, tmp_path / "maps", NetworkId("vit", 0, 0))
    record = json.loads((tmp_path / "maps" / "map.json").read_text())
    names = TYPE.classes or ()
    called = names[int(made.questions["who_type"][0])]
    others = [name for name in names if name != called]
    assert record["settings"] == {"methods": ["rollout", "gradient_attention"], "every_class": True}
    assert [(entry["endpoint"], entry["explains"], entry["of_class"]) for entry in record["maps"]] == [
        ("", "", ""),
        ("who_type", f"who_type = {called}", ""),
        ("grade", "higher grade (grade)", ""),
        *[("who_type", f"who_type = {name}", name) for name in others],
    ]
    written = [name for entry in record["maps"] for name in [*entry["files"].values(), entry["overlay"]]]
    assert len(set(written)) == len(written)
    assert all((tmp_path / "maps" / name).is_file() for name in written)
    assert all(name.isascii() for name in written)
    shown = with_verdicts(Map(patient.id, tmp_path / "maps", record), None)
    labels = {map_label(entry) for entry in shown.maps}
    assert {f"{title('who_type')}: gradient-weighted attention of {name}" for name in others} < labels
    assert len(labels) == len(shown.maps)
    assert all(entry.verdicts == () for entry in shown.maps)
    assert [entry.explains for entry in shown.of_prediction] == [f"who_type = {called}", "higher grade (grade)", ""]


def test_the_maps_of_a_study_that_asks_for_no_class_say_so_nowhere(tiny: Study):
    assert tiny.explain.of_maps == {"methods": list(tiny.explain.methods)}
    assert "every_class" not in tiny.model_dump(mode="json")["explain"]

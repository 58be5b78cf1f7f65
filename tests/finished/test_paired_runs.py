"""What cannot be compared is refused in a sentence that names folder, patient and endpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from made.metrics import filled
from made.pair import copied, make_a, opened
from made.run import make_run

from mri_vit.data import predictions
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.run import integrity

EVALUATED = json.loads(filled({}).model_dump_json())


def relabelled(column: str, endpoint: str, patient: str):
    """What gives one patient another label, in all models' rows."""

    def change(table: pd.DataFrame) -> pd.DataFrame:
        here = (table.endpoint == endpoint) & (table.patient == patient)
        other = 1 - table[column] if column in ("truth", "event") else table[column] + 1
        return table.assign(**{column: table[column].where(~here, other)})

    return change


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path):
    a = make_a(tmp_path / "a")
    with pytest.raises(UsageError, match="nowhere: no such folder"):
        opened(a, tmp_path / "nowhere")
    for name in ("predictions.csv", "folds.json", "environment.json"):
        begun = copied(a, f"without-{name}")
        (begun / name).unlink()
        with pytest.raises(UsageError, match=rf"without-{name}: no {name}; a run can be compared once `mri-vit train`"):
            opened(begun, a)


def test_runs_without_a_common_patient_are_refused(tmp_path: Path):
    a = make_a(tmp_path / "a")
    b = copied(a, "b", lambda table: table.assign(patient="other-" + table.patient, session=""))
    folds = json.loads((b / "folds.json").read_text())
    for split in folds["repeats"]:
        split["folds"] = [[f"other-{visit.removesuffix('_a').removesuffix('_b')}" for visit in fold] for fold in split["folds"]]
    (b / "folds.json").write_text(json.dumps(folds))
    twice = pd.read_csv(b / "predictions.csv").drop_duplicates(["model", "repeat", "endpoint", "patient"])
    twice.to_csv(b / "predictions.csv", index=False)
    with pytest.raises(UsageError, match="have no patient in common"):
        opened(a, b)


@pytest.mark.parametrize(("endpoint", "column"), [("pten", "truth"), ("os", "event"), ("os", "time_days")])
def test_another_label_of_a_common_patient_is_refused_by_name(tmp_path: Path, endpoint: str, column: str):
    a = make_a(tmp_path / "a")
    table = pd.read_csv(a / "predictions.csv", dtype={"patient": str}, keep_default_na=False, na_values=[""])
    known = table[(table.endpoint == endpoint) & table[column].notna() & (table.model == "vit")]
    patient = sorted(known.patient)[3]
    b = copied(a, "b", relabelled(column, endpoint, patient))
    with pytest.raises(
        UsageError, match=rf"patient {patient}, endpoint {endpoint}: {'truth' if endpoint == 'pten' else 'time_days'}"
    ):
        opened(a, b)


def test_a_label_known_in_one_run_alone_leaves_the_patient_out(tmp_path: Path):
    a = make_a(tmp_path / "a")
    unknown = lambda table: table.assign(truth=table.truth.where((table.endpoint != "pten") | (table.patient != "P010")))  # noqa: E731
    both = opened(a, copied(a, "b", unknown))
    people = {rows.model: set(rows.a.patient) for rows in both.rows["pten"]}
    whole = {rows.model: set(rows.a.patient) for rows in opened(a, a).rows["pten"]}
    assert all(people[model] == whole[model] - {"P010"} for model in people)
    for rows in both.rows["pten"]:
        assert rows.a.patient.tolist() == rows.b.patient.tolist()


def test_an_endpoint_of_another_kind_and_none_in_common_are_refused(tmp_path: Path):
    a = make_a(tmp_path / "a")
    b, c = copied(a, "b"), copied(a, "c")
    text = (a / "study.toml").read_text()
    (b / "study.toml").write_text(text.replace('kind = "survival"\ntime = "os_days"\nevent = "os_event"', 'kind = "binary"'))
    with pytest.raises(UsageError, match=r"endpoint os is survival in .*a and binary in .*b"):
        opened(a, b)
    for name in ("mgmt", "pten", "idh1", "tertp", "os"):
        text = text.replace(f'name = "{name}"', f'name = "other_{name}"')
    (c / "study.toml").write_text(text)
    with pytest.raises(UsageError, match="have no endpoint in common: mgmt, pten, idh1, tertp, os in the first, other_mgmt"):
        opened(a, c)


def test_predictions_that_were_changed_after_they_were_written_are_refused(tmp_path: Path):
    a = make_a(tmp_path / "a")
    b = copied(a, "b")
    integrity.write_hashed(b, [], {"predictions.csv": (b / "predictions.csv").read_bytes()})
    opened(a, b)
    (b / "predictions.csv").write_bytes((b / "predictions.csv").read_bytes().replace(b"0.", b"0.0", 1))
    with pytest.raises(IntegrityError, match="it was changed after it was written"):
        opened(a, b)


def test_an_evaluation_is_compared_with_a_run_that_was_cross_validated_and_with_another(tmp_path: Path):
    a = make_a(tmp_path / "a", seed=3)
    outside = make_run(tmp_path / "outside", models=("vit", "clinical"), internal=EVALUATED, seed=3)
    assert {rows.model for rows in opened(a, outside).rows["mgmt"]} == {"vit", "clinical"}
    assert opened(outside, outside).a.run.design == "external"


def with_a_competing_event(run: Path, name: str, other: str = "death of another cause") -> Path:
    """A copy of a run in which the last five who died did of another cause, which the study names `other`."""
    table = predictions.load(run / "predictions.csv")
    own = (table.endpoint == "os") & (table.model != "shuffled")  # whose events are of other patients
    here = own & table.patient.isin(table.loc[own & (table.event == 1)].patient.drop_duplicates().sort_values()[-5:])
    b = copied(run, name, lambda rows: rows.assign(event=rows.event.where(~here, 2.0)))
    text = (b / "study.toml").read_text()
    (b / "study.toml").write_text(text.replace('event = "os_event"\n', f'event = "os_event"\ncompeting = "{other}"\n'))
    return b


def test_runs_with_a_competing_event_are_compared_and_who_had_it_did_not_die(tmp_path: Path):
    a = make_a(tmp_path / "a")
    b, c = with_a_competing_event(a, "b"), with_a_competing_event(a, "c", "death of a stroke")
    for rows in opened(b, c).rows["os"]:
        assert rows.a.competing.equals(rows.b.competing)
        one_repeat = rows.a.loc[rows.a.repeat == 0]
        assert one_repeat.competing.sum() == 5
        assert not (one_repeat.event.astype(bool) & one_repeat.competing.astype(bool)).any()


def test_a_competing_event_that_one_run_alone_knows_is_refused(tmp_path: Path):
    a = make_a(tmp_path / "a")
    b = with_a_competing_event(a, "b")
    for pair in ((a, b), (b, a)):
        with pytest.raises(UsageError, match=r"endpoint os is survival( \(with a competing event\))? in .* and survival"):
            opened(*pair)
    declared = copied(a, "declared")
    (declared / "study.toml").write_text((b / "study.toml").read_text())
    with pytest.raises(UsageError, match=r"patient \S+, endpoint os: .*event 1, competing 0 in .*event 0, competing 1"):
        opened(declared, b)
    (b / "study.toml").write_text((a / "study.toml").read_text())
    with pytest.raises(UsageError, match=r"column event: '2'; expected 0, 1, or empty; .*competing"):
        opened(a, b)

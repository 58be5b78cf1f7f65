"""The page of what a risk adds: whose covariates and risks are read, what is left out, what is said, and what is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import added_value as pipeline
import numpy as np
import pandas as pd
import pytest
from made.metrics import filled
from made.run import make_run
from mri_vit.studies.added_value import page as added_value
from mri_vit.studies.added_value import people as added_value_people
from mri_vit.studies.added_value import words as added_value_words
from mri_vit.studies.added_value.findings import Findings, find
from mri_vit.studies.added_value.people import asked, taken

from mri_vit.data import predictions
from mri_vit.errors import UsageError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("one") / "run", patients=80)


@pytest.fixture(scope="module")
def found(run: Path) -> Findings:
    return find(asked(run))


def changed(run: Path, folder: Path, **columns: object) -> Path:
    """The same run with other columns in its cohort table: of each, what gives a row's cell from the row."""
    made = make_run(folder, patients=80)
    table = pd.read_csv(made / "cohort.csv", dtype=str, keep_default_na=False)
    for name, cell in columns.items():
        table[name] = [cell(row) if callable(cell) else cell for row in table.to_dict("records")]
    table.to_csv(made / "cohort.csv", index=False)
    return made


def test_clinical_columns_and_known_markers_are_the_covariates(run: Path):
    of = asked(run)
    assert (of.model, of.endpoint.name) == ("vit", "os")
    assert list(of.table) == ["age", "sex", "mgmt", "pten", "idh1"]  # the site is where a patient is from
    assert of.sparse == {"tertp": "is missing in 100 % of the patients"}
    assert of.inflated == pytest.approx(2**0.5)


def test_markers_that_the_study_does_not_predict_are_covariates_too(run: Path, tmp_path: Path):
    made = changed(run, tmp_path / "run")
    file = made / "study.toml"
    file.write_text(re.sub(r'\[\[endpoints\]\]\nname = "\w+"\nkind = "binary"\n', "", file.read_text()))
    assert list(asked(made).table) == ["age", "sex", "idh1", "mgmt", "pten"]


def test_who_lacks_a_covariate_is_left_out_and_counted(run: Path):
    of, table = asked(run, ["age", "mgmt"]), pd.read_csv(run / "cohort.csv", dtype=str, keep_default_na=False)
    people = taken(of)
    known = pd.DataFrame(table[(table.os_days != "") & ~table.duplicated("patient")])
    complete = pd.DataFrame(known[known.mgmt != ""]).age.astype(float)
    assert people.known == len(known)
    assert people.lacking == {"mgmt": int((known.mgmt == "").sum())}
    assert len(people.people.days) == len(complete) < len(known)
    ages = people.people.covariates.iloc[:, 0].to_numpy() * complete.std()
    assert np.ptp(ages) == pytest.approx(np.ptp(complete))  # nobody's was made up


def test_of_several_visits_the_covariates_are_those_of_the_visit_whose_time_counts(run: Path, tmp_path: Path):
    made = changed(run, tmp_path / "run", dose=lambda row: {"a": "100", "b": "900"}.get(row["session"], row["age"]))
    people = taken(asked(made, ["dose", "age"]))
    row = people.people.covariates.loc["A_b.c-D_a"]
    others = people.people.covariates.drop("A_b.c-D_a")
    assert row.iloc[0] > others.iloc[:, 0].max()
    assert "A_b.c-D_b" not in people.people.covariates.index


def test_covariates_in_numbers_are_per_deviation_and_categories_against_the_most_frequent():
    cells = pd.DataFrame(
        {
            "age": [50.0, 60, 70, 60],
            "grade": ["II", "IV", "IV", "III"],
            "flag": [0.0, 1, 1, 1],
            "all": ["x"] * 4,
            "one": [3.0] * 4,
        },
        index=pd.Index(list("abcd")),
    )
    columns, covariate, left_out = added_value_people.coded(cells)
    assert list(columns) == ["age, per 8.16 (SD)", "grade: II vs IV", "grade: III vs IV", "flag: 1 vs 0"]
    assert columns.iloc[:, 0].std() == pytest.approx(1)
    assert columns["grade: II vs IV"].tolist() == [1, 0, 0, 0]
    assert columns["flag: 1 vs 0"].tolist() == [0, 1, 1, 1]
    assert covariate["grade: III vs IV"] == "grade"
    assert left_out == {"all": "is x for all", "one": "is 3 for all"}


def test_what_tells_nothing_new_is_dropped_with_a_word(run: Path, tmp_path: Path):
    made = changed(run, tmp_path / "run", same="1", months=lambda row: str(12 * int(row["age"] or 0)))
    people = taken(asked(made, ["age", "sex", "same", "months"]))
    assert people.adjusted == ["age", "sex"]
    (months, why) = next((name, why) for name, why in people.left_out.items() if name.startswith("months"))
    assert why == "is told by the other covariates"
    assert people.left_out["same"] == "is 1 for all"
    said = added_value_words.left_out(find(asked(made, ["age", "sex", "same", "months"])))
    assert f"{months} is told by the other covariates and is left out." in said
    with pytest.raises(UsageError, match="no covariate to adjust for: same is 1 for all"):
        taken(asked(made, ["same"]))


def test_names_that_the_run_does_not_know_are_refused_with_those_that_it_does(run: Path):
    with pytest.raises(UsageError, match=r"no covariate 'ki67' .*; found age, sex, site, mgmt, pten, idh1, tertp"):
        asked(run, ["age", "ki67"])
    with pytest.raises(UsageError, match="no covariate 'os_days'"):  # what is to be predicted is none
        asked(run, ["os_days"])
    with pytest.raises(UsageError, match="no risk of os by 'hybrid'; found vit, clinical, volume"):
        asked(run, model="hybrid")
    with pytest.raises(UsageError, match="expected one survival endpoint 'pfs'; found os"):
        asked(run, endpoint="pfs")
    with pytest.raises(UsageError, match=r"no patient of \d+ has every covariate \(missing: tertp of \d+\)"):
        taken(asked(run, ["age", "tertp"]))


def test_the_control_on_clinical_columns_adds_nothing_to_its_own_column(run: Path):
    """In this run it reads age and adds noise to it, so that it is no copy; nothing else in it is of survival."""
    found = find(asked(run, ["age"], model="clinical"))
    assert found.p_risk > 0.05
    assert found.permuted is None  # which is of the own model


def test_the_planted_risk_adds_and_the_permuted_one_does_not(found: Findings):
    first, *rest = added_value_words.sentences(found)
    assert first.startswith(
        "The risk of vit adds to age, sex, MGMT promoter methylation, PTEN alteration and idh1 by more than chance: hazard ratio "
    )
    assert any("It still adds where the out-of-fold risk of the control volume" in sentence for sentence in rest)
    assert any("permuted labels, asked likewise of these labels, adds nothing" in sentence for sentence in rest)
    assert any("6.3 for each of 6 coefficients: fewer than 10" in sentence for sentence in rest)


def test_a_risk_that_a_control_has_too_is_said_to_know_no_more(run: Path, tmp_path: Path):
    made = changed(run, tmp_path / "run")
    table = predictions.load(made / "predictions.csv")
    own = (table.model == "vit") & (table.endpoint == "os")
    noise = np.random.default_rng(0).normal(0, 0.1, int(own.sum()))
    volume = pd.DataFrame(table[own]).assign(model="volume", score=lambda rows: rows.score + noise)
    without = pd.DataFrame(table[(table.model != "volume") | (table.endpoint != "os")])
    predictions.save(pd.concat([without, volume]), made / "predictions.csv")
    found = find(asked(made, ["age", "sex"]))
    said = added_value_words.sentences(found)
    assert "adds to age and sex by more than chance" in said[0]
    assert said[1].startswith("It does not add by more than chance where the out-of-fold risk of the control volume")


def test_two_tests_are_adjusted_together(found: Findings):
    p = sorted([found.found.test.p, found.found.reverse.p])
    assert sorted([found.p_risk, found.p_covariates]) == pytest.approx([min(1, 2 * p[0]), max(2 * p[0], p[1])])


def test_an_evaluation_takes_risks_as_given(run: Path, tmp_path: Path):
    inside = json.loads(filled({}).model_dump_json())
    outside = find(asked(make_run(tmp_path / "outside", models=("vit", "clinical"), internal=inside, seed=3, patients=80)))
    (one,) = outside.taken.people.repeats
    assert outside.asked.inflated == 1.0
    assert outside.found.test.p == outside.found.test.given_p
    assert len(np.unique(one.network)) == 1  # one ensemble scored them all
    assert len(np.unique(one.fold)) == added_value_people.DEALT
    facts = " ".join(added_value_words.facts(outside))
    assert "The patients taught no network" in facts
    assert "chance counts twice" not in facts


def test_the_page_holds_what_was_measured_and_its_numbers_lie_beside_it(found: Findings, tmp_path: Path):
    text = added_value.write(found, tmp_path / "page").read_text()
    ratio = added_value_words.of_ratio(found.found.both["risk"])
    assert text.count(ratio) >= 2  # in the sentence and in the table
    assert "risk of vit, per SD" in text
    assert "TERT promoter mutation is missing in 100\N{NO-BREAK SPACE}% of the patients and is left out." in text
    assert "synthetic" not in text  # these names are no built-in patients'
    table = pd.read_csv(tmp_path / "page" / "hazard_ratios.csv")
    own = table[(table.regression == "both") & (table.column == "risk")].iloc[0]
    assert own.value == found.found.both["risk"].value
    assert {"forest.svg", "forest.png", "tests.csv", "concordance.csv", "others.csv", "patients.csv"} <= {
        file.name for file in (tmp_path / "page").iterdir()
    }


def test_columns_and_levels_are_shown_as_text(run: Path, tmp_path: Path):
    hostile = "<script>alert(1)</script>"
    made = changed(run, tmp_path / "run", **{"<b>bold</b>": lambda row: hostile if int(row["age"] or 0) > 60 else "$x$"})
    found = find(asked(made, ["<b>bold</b>", "sex"]))
    text = added_value.write(found, tmp_path / "page").read_text()
    assert "<script" not in text
    assert "<b>bold" not in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text


def test_the_command_writes_a_page_into_the_run(run: Path, capsys: pytest.CaptureFixture[str]):
    pipeline.main(run, covariates="age, sex")
    assert (run / "added_value" / "index.html").exists()
    assert "adds to age and sex" in capsys.readouterr().out
    pipeline.main(run, covariates="age", model="clinical")
    assert (run / "added_value_clinical" / "index.html").exists()


def test_a_marker_among_the_covariates_has_its_full_name(run: Path, tmp_path: Path):
    found = find(asked(run, ["age", "mgmt"]))
    assert "age and MGMT promoter methylation" in added_value_words.sentences(found)[0]
    assert any("MGMT promoter methylation in" in said for said in added_value_words.left_out(found))
    names = [row[0] for row in added_value_words.hazard_table(found).rows]
    assert "MGMT promoter methylation: 1 vs 0" in names
    text = added_value.write(found, tmp_path / "page").read_text()
    assert "mgmt" not in re.sub(r'src="[^"]*"', "", text)

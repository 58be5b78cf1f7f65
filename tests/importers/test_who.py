"""WHO type and grade: the type follows from markers and diagnosis as written, is never guessed, and reaches study and merge."""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from made.layouts import folder, imported
from rich.console import Console

from mri_vit.cli import app
from mri_vit.data import cohort
from mri_vit.importers import cohort_table, layout_reader, who
from mri_vit.importers.collections import LAYOUTS, PLAIN
from mri_vit.importers.import_cohort import POSSIBLE, import_layout
from mri_vit.importers.layout import NO_RULE
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Endpoint

UCSF_HEAD = "ID,MGMT status,1-dead 0-alive,IDH,1p/19q,WHO CNS Grade,Final pathologic diagnosis (WHO 2021)"
MU_HEAD = (
    "Patient_ID,MGMT methylation,Overall Survival (Death),IDH1 mutation,IDH2 mutation,1p/19q,ATRX mutation,"
    "Grade of Primary Brain Tumor,Primary Diagnosis,EGFR amplification,H3-3A mutation"
)
S1_HEAD = (
    "Case,MGMT promoter status,TERT promoter status,IDH status,1p/19q codeletion,IDH/codel subtype,ATRX status,Grade,Histology,"
    "Chr 7 gain/Chr 10 loss"
)
ASTRO, OLIGO = '"Astrocytoma, IDH-mutant"', '"Oligodendroglioma, IDH-mutant, 1p/19q-codeleted"'
WHO_TYPE, GRADE = POSSIBLE


def typed(home: Path, layout: str, text: str) -> tuple[str, str]:
    """Type and grade of the one patient of a table."""
    rows = imported(layout, folder(home, tables={"t.csv": text})).cells.values()
    (found,) = {(cells["who_type"], cells.get("grade", "")) for cells in rows}  # the same for all visits
    return found


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        *(("4", "4"), ("IV", "4"), ("4.0", "4"), ("WHO grade IV", "4"), ("Grade 4", "4"), ("grade iii", "3"), ("G2", "2")),
        *(("WHO II", "2"), ("CNS WHO grade 3", "3"), ("WHO CNS Grade 2", "2"), ("1", ""), ("I", ""), ("GX", ""), ("3 vs 4", "")),
        *(("", ""), ("not reported", ""), ("Unknown", "")),
    ],
)
def test_a_grade_is_read_in_arabic_and_roman_numerals(raw: str, value: str):
    given = who.read_grade(raw, "Grade")
    assert given.value == value
    assert given.rule != NO_RULE


@pytest.mark.parametrize("raw", ["high", "LGG", "5", "V", "-4", "4?", "IIII", "2-3", "grade"])
def test_what_is_no_grade_has_no_rule(raw: str):
    assert who.read_grade(raw, "Grade").rule == NO_RULE


@pytest.mark.parametrize(
    ("diagnosis", "value"),
    [
        ("Glioblastoma, IDH-wildtype", "gbm"),
        ("glioblastoma, IDH wild type", "gbm"),
        ("Astrocytoma, IDH-mutant", "astro"),
        ("Astrocytoma, IDH-mutant, grade 4", "astro"),
        ("Glioblastoma, IDH-mutant", "astro"),  # of 2016
        ("Oligodendroglioma, IDH-mutant, 1p/19q-codeleted", "oligo"),
        ("Oligodendroglioma, IDH-mutant and 1p/19q-codeleted", "oligo"),
        ("Oligodendroglioma, IDH-mutant, 1p/19q not codeleted", ""),
        ("Oligodendroglioma, IDH-mutant", ""),
        ("Oligoastrocytoma, IDH-mutant", ""),
        ("Astrocytoma, IDH-wildtype", ""),
        ("Glioblastoma", ""),
        ("Oligodendroglioma, NOS", ""),
        ("Pilocytic astrocytoma", ""),
        ("", ""),
    ],
)
def test_only_a_diagnosis_that_names_idh_names_a_type(diagnosis: str, value: str):
    given = who.named_type(diagnosis, "diagnosis")
    assert given.value == value
    assert given.rule != NO_RULE


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ('wildtype,,4,"Glioblastoma, IDH-wildtype"', ("gbm", "4")),
        ("wildtype,intact,IV,", ("gbm", "4")),
        ('wildtype,intact,2,"Astrocytoma, IDH-wildtype"', ("", "2")),  # molecular features are not in the table
        ("IDH1 p.R132H,intact,3,", ("astro", "3")),
        (f"mutated (NOS),,4,{ASTRO}", ("astro", "4")),  # the diagnosis decides where 1p/19q is not known
        ("mutated (NOS),,4,", ("", "4")),
        (f"mutated (NOS),Co-deletion,2,{OLIGO}", ("oligo", "2")),
        (f"mutated (NOS),relative co-deletion,3,{OLIGO}", ("oligo", "3")),
        (f"mutated (NOS),relative co-deletion,4,{ASTRO}", ("astro", "4")),
        ("IDH2 p.R172K,relative co-deletion,3,", ("", "3")),
        ("wildtype,co-deletion,4,", ("", "4")),
        (",intact,4,Glioblastoma", ("", "4")),
    ],
)
def test_the_type_in_ucsf_pdgm_follows_from_idh_1p19q_grade_and_diagnosis(tmp_path: Path, cells: str, found: tuple[str, str]):
    assert typed(tmp_path, "ucsf_pdgm", f"{UCSF_HEAD}\nUCSF-PDGM-004,positive,1,{cells}\n") == found


def test_markers_and_diagnosis_that_disagree_leave_the_type_empty_and_are_listed(tmp_path: Path):
    text = f"{UCSF_HEAD}\nUCSF-PDGM-004,positive,1,IDH1 p.R132H,Co-deletion,4,{ASTRO}\n"
    found = imported("ucsf_pdgm", folder(tmp_path / "in", tables={"t.csv": text}))
    assert found.cells["UCSF-PDGM-0004", "baseline"]["who_type"] == ""
    assert import_layout("ucsf_pdgm", tmp_path / "in", tmp_path / "out", Console(quiet=True))
    with (tmp_path / "out" / "conflicts.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert [(row["column"], row["value"], row["source_column"]) for row in listed] == [
        ("who_type", "oligo", "IDH"),
        ("who_type", "astro", "Final pathologic diagnosis (WHO 2021)"),
    ]
    assert "1p/19q Co-deletion" in listed[0]["rule"]  # the cells that were looked at


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ("0,0,10,4,4,GBM,0,0", ("gbm", "4")),
        ("0,0,10,4,4,Astrocytoma,0,0", ("gbm", "4")),
        ("0,0,10,4,4,Diffuse glioma,0,0", ("", "4")),  # it may be a midline glioma
        ("0,0,10,4,4,GBM,0,1", ("", "4")),
        ("0,0,10,4,2,Astrocytoma,0,0", ("", "2")),
        ("0,0,10,4,2,Astrocytoma,1,0", ("gbm", "2")),
        ("0,2,10,4,4,GBM,0,0", ("", "4")),  # IDH2 is not known
        ("0,0,0,0,1,Pilocytic astrocytoma,0,0", ("", "")),
        ("1,2,1,0,3,Oligodendro-glioma,0,0", ("oligo", "3")),
        ("0,1,0,0,2,Astrocytoma,0,0", ("astro", "2")),
        ("1,2,10,1,4,GBM,0,0", ("astro", "4")),  # ATRX is lost
        ("1,2,10,1,2,Oligodendro-glioma,0,0", ("", "2")),
        ("1,2,4,4,4,GBM,0,0", ("", "4")),  # a partial loss
        ("1,2,10,0,3 vs 4,Astrocytoma,0,0", ("", "")),
    ],
)
def test_the_type_in_mu_glioma_post_follows_from_its_codes(tmp_path: Path, cells: str, found: tuple[str, str]):
    assert typed(tmp_path, "mu_glioma_post", f"{MU_HEAD}\nPatientID_0003,1,0,{cells}\n") == found


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ("WT,WT,non-codel,IDHwt,WT,G4,glioblastoma,No combined CNA", ("gbm", "4")),
        ("WT,WT,non-codel,IDHwt,WT,G2,astrocytoma,No combined CNA", ("", "2")),
        ("Mutant,WT,non-codel,IDHwt,WT,G2,astrocytoma,No combined CNA", ("gbm", "2")),
        ("NA,WT,NA,IDHwt,NA,G3,astrocytoma,Gain chr 7 & loss chr 10", ("gbm", "3")),
        ("Mutant,WT,non-codel,IDHwt,WT,G3,oligodendroglioma,NA", ("", "3")),
        ("Mutant,Mutant,codel,IDHmut-codel,WT,G3,astrocytoma,NA", ("oligo", "3")),
        ("WT,Mutant,NA,IDHmut-non-codel,NA,G4,glioblastoma,NA", ("astro", "4")),
        ("WT,Mutant,NA,NA,Mutant,G2,oligoastrocytoma,NA", ("astro", "2")),
        ("WT,Mutant,NA,NA,WT,G2,astrocytoma,NA", ("", "2")),
        ("WT,NA,NA,NA,NA,NA,NA,NA", ("", "")),
    ],
)
def test_the_type_in_table_s1_of_ceccarelli_follows_from_its_markers(tmp_path: Path, cells: str, found: tuple[str, str]):
    assert typed(tmp_path, "tcga", f"{S1_HEAD}\nTCGA-02-0003,NA,{cells}\n") == found


def test_the_grades_of_the_gdc_are_joined_by_those_of_glioblastomas_in_the_mutations(tmp_path: Path):
    tables = {
        "clinical.tsv": "cases.submitter_id\tdemographic.vital_status\tdemographic.days_to_death\tdemographic.age_at_index\t"
        "diagnoses.tumor_grade\tdiagnoses.primary_diagnosis\nTCGA-FG-6692\tAlive\t'--\t61\tG3\tAstrocytoma, anaplastic\n"
        "TCGA-02-0006\tAlive\t'--\t56\tnot reported\tGlioblastoma\n",
        "mutations.csv": "Grade,Project,Case_ID,PTEN,IDH1,IDH2,ATRX,Primary_Diagnosis\n"
        'LGG,TCGA-LGG,TCGA-FG-6692,0,0,1,1,"Astrocytoma, anaplastic"\nGBM,TCGA-GBM,TCGA-02-0006,0,0,0,0,Glioblastoma\n',
    }
    found = layout_reader.read_source(LAYOUTS["tcga"], folder(tmp_path, tables=tables), PLAIN)
    merged = cohort_table.merge(found)
    assert {patient: (c["who_type"], c["grade"], c["age"]) for (patient, _), c in merged.cells.items()} == {
        "TCGA-FG-6692": ("astro", "3", "61"),
        "TCGA-02-0006": ("gbm", "4", "56"),
    }
    assert not merged.conflicts
    assert not cohort_table.no_rule(merged)


def test_all_of_upenn_gbm_are_glioblastomas_and_mutant_ones_without_1p19q_have_no_type(tmp_path: Path):
    head = "ID,Survival_from_surgery_days_UPDATED,Survival_Censor,IDH1"
    rows = "".join(f"UPENN-GBM-0000{n}_11,9,NA,{idh}\n" for n, idh in enumerate(("Wildtype", "Mutated", "NOS/NEC")))
    found = imported("upenn_gbm", folder(tmp_path, tables={"t.csv": f"{head}\n{rows}"}))
    assert [row["who_type"] for row in found.cells.values()] == ["gbm", "", ""]


@pytest.mark.parametrize(
    ("cells", "found"),
    [("Glioblastoma,4,wt", ("gbm", "4")), ("Glioblastoma,IV,mut", ("", "4")), ("Astrocytoma,3,wt", ("", "3"))],
)
def test_the_type_in_rhuh_gbm_follows_from_idh_and_grade(tmp_path: Path, cells: str, found: tuple[str, str]):
    idh = '"IDH status = (mutant [mut], wild type [wt], NOS)"'
    head = f"Patient ID,Right Censored,Overall survival [OS] (days),Histopathological subtype,WHO grade,{idh}"
    assert typed(tmp_path, "rhuh_gbm", f"{head}\nRHUH-0001,no,300,{cells}\n") == found


@pytest.mark.parametrize(
    ("layout", "file", "types", "grades"),
    [
        (
            *("ucsf_pdgm", "UCSF-PDGM-metadata_v2.csv"),
            {"gbm": 374, "astro": 90, "oligo": 13, "": 24},  # none: IDH wildtype of grade 2 or 3
            {"2": 56, "3": 43, "4": 402},
        ),
        ("upenn_gbm", "UPENN-GBM_clinical_info_v2.1.csv", {"gbm": 546, "": 125}, {"": 671}),
        ("tcga", "TCGA_GBM_LGG_Mutations_all.csv", {"gbm": 338, "astro": 164, "": 360}, {"4": 363, "": 499}),
    ],
)
def test_types_and_grades_of_the_published_tables_are_counted(
    shared: Path, layout: str, file: str, types: dict[str, int], grades: dict[str, int]
):
    found = cohort_table.merge(layout_reader.read_source(LAYOUTS[layout], shared / "data" / "tables" / file, PLAIN))
    assert Counter(row["who_type"] for row in found.cells.values()) == types
    assert Counter(row.get("grade", "") for row in found.cells.values()) == grades


def test_the_diagnosis_of_ucsf_pdgm_never_contradicts_the_type_by_its_markers(shared: Path):
    found = layout_reader.read_source(LAYOUTS["ucsf_pdgm"], shared / "data" / "tables" / "UCSF-PDGM-metadata_v2.csv")
    stated: dict[tuple[str, str], list[str]] = {}
    for reading in found.readings:
        if reading.column == "who_type":
            stated.setdefault((reading.patient, reading.session), []).append(reading.value)
    pairs = Counter(tuple(values) for values in stated.values())
    assert pairs == {
        **{("gbm", "gbm"): 374, ("astro", "astro"): 84, ("oligo", "oligo"): 9, ("", ""): 24},
        **{("", "astro"): 6, ("", "oligo"): 4},
    }


@pytest.mark.parametrize("layout", ["plain", "auto"])
def test_classes_of_a_table_of_ones_own_stay_as_they_are_spelled(tmp_path: Path, layout: str):
    text = "patient,WHO_type,grade\nA,Glioblastoma,IV\nB,AO,3\nC,unknown,\n"
    import_layout(layout, folder(tmp_path / "in", tables={"t.csv": text}), tmp_path / "out", Console(quiet=True))
    with (tmp_path / "out" / "cohort.csv").open(newline="") as file:
        rows = [(row["who_type"], row["grade"]) for row in csv.DictReader(file)]
    assert rows == [("Glioblastoma", "IV"), ("AO", "3"), ("", "")]


def test_a_table_of_grades_beside_a_collection_is_read(tmp_path: Path):
    scan = "BraTS2021_00001/BraTS2021_00001_t1ce.nii.gz"
    home = folder(tmp_path, scan, tables={"own.csv": "patient,grade\nBraTS2021_00001,4\n"})
    found = cohort_table.merge(layout_reader.read_source(LAYOUTS["brats2021"], home, PLAIN))
    assert found.cells["BraTS2021_00001", ""] == {"grade": "4"}


def written(home: Path, rows: list[str], head: str = "patient,mgmt,who_type,grade") -> str:
    text = "\n".join([head, *(f"P{n},{n % 2},{row}" for n, row in enumerate(rows)), ""])
    import_layout("plain", folder(home / "in", tables={"t.csv": text}), home / "out", Console(quiet=True))
    return (home / "out" / "study.toml").read_text(encoding="utf-8")


def test_a_study_proposes_type_and_grade_as_comments_that_load_once_uncommented(tmp_path: Path):
    text = written(tmp_path, ["gbm,4", "astro,3", "oligo,2"] * 2)
    assert [one["name"] for one in tomllib.loads(text)["endpoints"]] == ["mgmt"]
    before, _, after = text.partition("# more endpoints that this table could support")
    taken = "".join(f"{line.removeprefix('# ').removeprefix('#')}\n" for line in after.splitlines()[1:])
    file = tmp_path / "out" / "study.toml"
    file.write_text(f"{before}{taken}", encoding="utf-8")
    study = study_file.load(file)
    assert study.endpoints[1:] == POSSIBLE
    assert len(cohort.of_study(study)) == 6


@pytest.mark.parametrize(
    "rows",
    [
        ["gbm,4", "astro,3"] * 3,  # two classes
        ["gbm,4", "astro,3", "gbm,4", "astro,3", "oligo,2"],  # a class of one patient
        ["Glioblastoma,IV", "Astrocytoma,III", "Oligo,II"] * 2,  # other names
    ],
)
def test_what_could_not_be_studied_is_not_proposed(tmp_path: Path, rows: list[str]):
    assert "more endpoints" not in written(tmp_path, rows)


def test_age_is_never_proposed(tmp_path: Path):
    text = written(tmp_path, ["60,4", "50,3", "40,2"] * 2, "patient,mgmt,age,grade")
    assert '# name = "grade"' in text
    assert '"age"' not in text


def cohorts(home: Path, *tables: str) -> list[str]:
    """Folders with a cohort table each, of patients who are one person where their numbers are."""
    for name, table in zip("ab", tables, strict=True):
        (home / name).mkdir()
        lines = [f"{name}{line},{name},a:a{line[0]} b:b{line[0]}" for line in table.split()]
        (home / name / "cohort.csv").write_text("\n".join(["patient,who_type,grade,cohort,same_as", *lines, ""]))
    return [str(home / name) for name in "ab"]


def merged(home: Path) -> tuple[dict[str, tuple[str, str]], list[tuple[str, ...]]]:
    with (home / "cohort.csv").open(newline="") as file:
        cells = {row["patient"]: (row["who_type"], row["grade"]) for row in csv.DictReader(file)}
    columns = ("endpoint", "cohort", "says", "rule", "value")
    with (home / "conflicts.csv").open(newline="") as file:
        return cells, [tuple(row[name] for name in columns) for row in csv.DictReader(file)]


def test_types_and_grades_of_merged_cohorts_are_the_person_s_and_conflicts_are_listed_as_of_markers(tmp_path: Path):
    both = cohorts(tmp_path, "1,gbm,4 2,,3 3,astro,2", "1,GBM,4.0 2,oligo, 3,oligo,2")
    assert app(["cohort", "merge", *both, "-o", str(tmp_path / "out")], result_action="return_value") == 3
    cells, conflicts = merged(tmp_path / "out")
    assert cells == {"a1": ("gbm", "4"), "a2": ("oligo", "3"), "a3": ("", "2")}
    assert conflicts == [("who_type", "a", "astro", "", ""), ("who_type", "b", "oligo", "", "")]
    text = (tmp_path / "out" / "study.toml").read_text()
    assert [one["name"] for one in tomllib.loads(text)["endpoints"]] == ["mgmt"]  # neither is studied by itself


def test_a_study_s_own_endpoint_settles_types_and_is_studied_after_a_merge(tmp_path: Path):
    both = cohorts(tmp_path, "1,gbm,4 2,astro,3 3,astro,2 4,gbm,4 5,oligo,2", "1,gbm,4 2,astro,3 3,oligo,2 4,gbm,4 5,oligo,2")
    study = 'name = "s"\ncohort = "c.csv"\nprepared = "p"\noutput = "o"\n[[endpoints]]\nname = "who_type"\nkind = "multiclass"\n'
    (tmp_path / "s.toml").write_text(f'{study}classes = ["gbm", "astro", "oligo"]\nprefer = "b"\n')
    call = ["cohort", "merge", *both, "-o", str(tmp_path / "out"), "--study", str(tmp_path / "s.toml")]
    assert app(call, result_action="return_value") == 0
    cells, conflicts = merged(tmp_path / "out")
    assert cells["a3"] == ("oligo", "2")
    assert {rule for *_, rule, _ in conflicts} == {"who_type is that of b"}
    assert [one.name for one in study_file.load(tmp_path / "out" / "study.toml").endpoints] == ["who_type"]


@pytest.mark.parametrize(
    ("kinds", "written"),
    [("gbm astro oligo", '\nclasses = ["astro", "gbm", "oligo"]'), ("gbm astro", "# Not studied: who_type; column")],
)
def test_classes_that_a_study_leaves_to_the_table_are_those_of_the_merged_one(tmp_path: Path, kinds: str, written: str):
    first = " ".join(f"{n},{name},4" for n, name in enumerate(kinds.split() * 2))
    both = cohorts(tmp_path, first, first.upper())  # GBM beside gbm
    study = 'name = "s"\ncohort = "c.csv"\nprepared = "p"\noutput = "o"\n[[endpoints]]\nname = "who_type"\nkind = "multiclass"\n'
    (tmp_path / "s.toml").write_text(study)
    call = ["cohort", "merge", *both, "-o", str(tmp_path / "out"), "--study", str(tmp_path / "s.toml")]
    assert app(call, result_action="return_value") == 0
    cells, conflicts = merged(tmp_path / "out")
    assert {name for name, _ in cells.values()} == set(kinds.split())
    assert not conflicts
    assert written in (tmp_path / "out" / "study.toml").read_text()


def test_the_possible_endpoints_are_those_that_layouts_bring():
    assert (WHO_TYPE.classes, GRADE.classes) == (who.TYPES, who.GRADES)
    assert all(isinstance(endpoint, Endpoint) for endpoint in POSSIBLE)
    named = {column.name for layout in LAYOUTS.values() for table in layout.tables for column in table.columns}
    assert {endpoint.name for endpoint in POSSIBLE} <= named

"""The tables that were published, as downloaded: what an import makes of each, counted, and each count explained."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from mri_vit.data import cohort, sheet
from mri_vit.data.columns import contents
from mri_vit.data.sheet import harmless
from mri_vit.importers import cohort_table, layout_reader
from mri_vit.importers.cohort_table import Imported, unit_warning
from mri_vit.importers.collections import LAYOUTS
from mri_vit.importers.import_cohort import import_layout
from mri_vit.settings.schema import CHANNELS, Endpoint

UCSF, UPENN = "UCSF-PDGM-metadata_v2.csv", "UPENN-GBM_clinical_info_v2.1.csv"
TCGA = "TCGA_GBM_LGG_Mutations_all.csv"
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")


def read(shared: Path, name: str, file: str) -> Imported:
    return cohort_table.merge(layout_reader.read_source(LAYOUTS[name], shared / "data" / "tables" / file))


def raw(shared: Path, file: str) -> list[dict[str, str]]:
    """The table as Python's own reader has it."""
    with (shared / "data" / "tables" / file).open(newline="", encoding="utf-8-sig") as lines:
        return list(csv.DictReader(lines))


def values(imported: Imported, column: str) -> Counter[str]:
    return Counter(row[column] for row in imported.cells.values())


def given(imported: Imported, column: str) -> Counter[tuple[str, str]]:
    """How often each raw value became each value."""
    return Counter((r.raw, r.value) for r in imported.readings if r.column == column)


def test_ucsf_pdgm_has_501_visits_of_495_patients(shared: Path):
    found = read(shared, "ucsf_pdgm", UCSF)
    assert len(found.visits) == 501  # one for each row
    assert len({v.patient for v in found.visits}) == 495  # six rows are second visits, which TCIA renamed in version 3
    again = {v.patient: v.session for v in found.visits if v.session != "baseline"}
    assert again == {
        **{"UCSF-PDGM-0429": "FU003d", "UCSF-PDGM-0396": "FU175d", "UCSF-PDGM-0409": "FU001d"},
        **{"UCSF-PDGM-0431": "FU001d", "UCSF-PDGM-0391": "FU016d", "UCSF-PDGM-0433": "FU007d"},
    }
    assert given(found, "mgmt") == {
        ("positive", "1"): 302,
        ("negative", "0"): 114,
        ("indeterminate", ""): 5,  # tested without a clear result
        ("", ""): 80,  # not tested
    }
    assert values(found, "idh") == {"0": 398, "1": 103}  # wildtype, and eight spellings of a mutation
    assert sum(count for value, count in values(found, "same_as").items() if value) == 298
    assert not cohort_table.no_rule(found)
    assert not found.conflicts


def test_the_second_visits_of_ucsf_pdgm_are_of_their_patients(shared: Path):
    """What justifies that ids were joined: age, sex, markers and survival are the same, to the day, in all six pairs."""
    rows = {row["ID"]: row for row in raw(shared, UCSF)}
    same = ("Sex", "Age at MRI", "IDH", "MGMT status", "MGMT index", "1-dead 0-alive", "OS", "EOR")
    for one, other in (("138", "429"), ("175", "396"), ("181", "409"), ("278", "431"), ("289", "391"), ("315", "433")):
        assert [rows[f"UCSF-PDGM-{one}"][name] for name in same] == [rows[f"UCSF-PDGM-{other}"][name] for name in same]
    found = read(shared, "ucsf_pdgm", UCSF)
    assert found.cells["UCSF-PDGM-0396", "baseline"]["os_days"] == "1084"
    assert found.cells["UCSF-PDGM-0396", "FU175d"]["os_days"] == "909"  # 175 days later
    rule = {r.patient: r.rule for r in found.readings if r.column == "os_days" and r.session.startswith("FU")}
    assert rule["UCSF-PDGM-0429"] == "days, less the 3 days to the visit"


def test_a_death_of_ucsf_pdgm_without_a_time_is_not_used(shared: Path):
    found = read(shared, "ucsf_pdgm", UCSF)
    assert sum(bool(row["os_days"]) for row in found.cells.values()) == 500
    assert values(found, "os_event") == {"1": 250, "0": 250, "": 1}
    (reading,) = (r for r in found.readings if r.column == "os_event" and not r.value)
    assert (reading.patient, reading.raw, reading.rule) == ("UCSF-PDGM-0169", "1", "1 is 1; not used: no os_days")


def test_upenn_gbm_has_671_visits_of_630_patients(shared: Path):
    found = read(shared, "upenn_gbm", UPENN)
    sessions: dict[str, set[str]] = {}
    for visit in found.visits:
        sessions.setdefault(visit.patient, set()).add(visit.session)
    assert len(found.visits) == 671
    assert len(sessions) == 630
    assert Counter(map(frozenset, sessions.values())) == {
        frozenset({"11"}): 570,
        frozenset({"21"}): 19,
        frozenset({"11", "21"}): 41,
    }
    assert given(found, "mgmt") == {
        ("Methylated", "1"): 121,
        ("Unmethylated", "0"): 170,
        ("Indeterminate", ""): 32,
        ("Not Available", ""): 348,
    }
    assert given(found, "idh1") == {("Wildtype", "0"): 546, ("NOS/NEC", ""): 106, ("Mutated", "1"): 19}
    assert values(found, "sex") == {"M": 405, "F": 266}
    assert values(found, "kps")[""] == 596
    assert not cohort_table.no_rule(found)
    assert not found.conflicts  # MGMT of one patient differs between visits, each of which has its own cell


def test_times_only_in_survival_censor_are_censored_there(shared: Path):
    found = read(shared, "upenn_gbm", UPENN)
    late = {(r.patient, r.session): r for r in found.readings if r.source_column == "Survival_Censor"}
    assert len(late) == 27
    assert {found.cells[visit]["os_event"] for visit in late} == {"0"}  # nobody is dead on the day last seen alive
    status = Counter(r.raw for r in found.readings if r.column == "os_event" and (r.patient, r.session) in late)
    assert status == {"Alive": 17, "Lost to Follow-up": 7, "Deceased - uncertain date of death": 3}
    assert values(found, "os_event") == {"1": 644, "0": 27}
    assert all(row["os_days"] for row in found.cells.values())


def test_survival_of_upenn_gbm_counts_from_the_rows_own_visit(shared: Path):
    """What justifies that nothing is subtracted: the difference between both rows of a patient is the time between them."""
    rows = {row["ID"]: row for row in raw(shared, UPENN)}
    pairs = [(row, rows[f"{name[:-3]}_21"]) for name, row in rows.items() if name.endswith("_11") and f"{name[:-3]}_21" in rows]
    column = "Survival_from_surgery_days_UPDATED"
    gaps = [int(a[column]) - int(b[column]) - int(b["Time_since_baseline_preop"]) for a, b in pairs]
    assert len(gaps) == 41
    assert min(gaps) >= -9
    assert max(gaps) <= 55
    assert sorted(gaps)[20] == 6
    cells = read(shared, "upenn_gbm", UPENN).cells
    assert all(cells[b["ID"][:-3], "21"]["os_days"] == b[column] for _, b in pairs)


def test_tcga_mutations_are_862_rows_behind_a_byte_order_mark(shared: Path):
    found = read(shared, "tcga", TCGA)
    assert (shared / "data" / "tables" / TCGA).read_bytes()[:3] == b"\xef\xbb\xbf"
    assert len(found.visits) == len({v.patient for v in found.visits}) == 862
    assert values(found, "pten") == {"1": 144, "0": 718}
    assert values(found, "project") == {"TCGA-LGG": 499, "TCGA-GBM": 363}
    assert given(found, "sex")["--", ""] == 4
    assert given(found, "age")["0.0", ""] == 5  # four of them with -- in the other cells
    assert not cohort_table.no_rule(found)


@pytest.mark.parametrize(("name", "file"), [("ucsf_pdgm", UCSF), ("upenn_gbm", UPENN), ("tcga", TCGA)])
def test_every_cell_of_an_imported_table_is_one_of_its_source(shared: Path, tmp_path: Path, name: str, file: str):
    """Row, column and raw value in provenance.csv are looked up in the source; every filled cell of the cohort has a line."""
    source = shared / "data" / "tables" / file
    assert not import_layout(name, source, tmp_path, Console(quiet=True))
    lines = raw(shared, file)
    with (tmp_path / "provenance.csv").open(newline="", encoding="utf-8") as opened:
        origins = list(csv.DictReader(opened))
    for origin in origins:
        assert origin["file"] == str(source)
        cell = lines[int(origin["row"]) - 2][origin["source_column"]]  # no cell of these holds a line break
        assert origin["raw"] == harmless(cell)  # TCGA's -- is text to a spreadsheet too
        assert origin["rule"]
    labels_read: dict[tuple[str, str, str], str] = {}
    for o in origins:  # of several readings of a cell some may state nothing
        cell = o["patient"], o["session"], o["column"]
        labels_read[cell] = labels_read.get(cell) or o["value"]
    header, rows = sheet.read(tmp_path / "cohort.csv")
    columns = [c for c in header if c not in ("patient", "session", "cohort", *CHANNELS, *cohort.MASKS)]
    written = {(row["patient"], row.get("session", ""), c): row[c] for _, row in rows for c in columns}
    assert written == labels_read


@pytest.mark.parametrize(
    ("name", "file", "endpoints", "known"),
    [
        ("ucsf_pdgm", UCSF, (Endpoint(name="mgmt", kind="binary"), OS), (416, 500)),
        ("upenn_gbm", UPENN, (Endpoint(name="mgmt", kind="binary"), OS), (291, 671)),
        ("tcga", TCGA, (Endpoint(name="pten", kind="binary"),), (862,)),
    ],
)
def test_an_imported_table_is_read_as_a_cohort(shared: Path, tmp_path: Path, name: str, file: str, endpoints, known):
    import_layout(name, shared / "data" / "tables" / file, tmp_path, Console(quiet=True))
    visits = cohort.read(tmp_path / "cohort.csv", endpoints)
    assert tuple(sum(visit.knows(endpoint) for visit in visits) for endpoint in endpoints) == known


@pytest.mark.parametrize(("file", "column"), [(UCSF, "OS"), (UPENN, "Survival_from_surgery_days_UPDATED")])
def test_real_survival_in_days_is_not_suspected_and_a_part_in_months_is(shared: Path, file: str, column: str):
    days = [float(row[column]) for row in raw(shared, file) if row[column].isdigit()]
    assert unit_warning(days) == ""
    for every in (10, 3, 2):
        assert "months among days" in unit_warning([time / 30.4 if i % every == 0 else time for i, time in enumerate(days)])
    assert "are they months" in unit_warning([time / 30.4 for time in days])


@pytest.mark.parametrize(("file", "marked"), [(UCSF, {}), (UPENN, {}), (TCGA, {"Age_at_diagnosis": 5})])
def test_of_the_published_columns_none_is_lost_and_nothing_is_odd_but_ages_of_0(shared: Path, file: str, marked: dict[str, int]):
    table = raw(shared, file)
    held = {
        name: contents(name, [row[name].strip() for row in table], [str(at) for at in range(len(table))]) for name in table[0]
    }
    assert {name: len(column.rows) for name, column in held.items() if column.remark} == marked
    assert {name for name, column in held.items() if column.kind is None} <= {"ID", "Case_ID", "BraTS21 ID"}

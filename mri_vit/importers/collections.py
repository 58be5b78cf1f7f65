"""The layouts of public collections and of common ways to lay files out, by name, each with its source.

A new one needs a `Layout` here, an entry at the end, a test, and the steps of docs/extending/layout.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mri_vit.data.columns import ALIASES, OURS, key, our_column
from mri_vit.errors import UsageError
from mri_vit.importers import contrast_agent, layout, who
from mri_vit.importers.contrast_agent import Agent
from mri_vit.importers.layout import BRATS, SAME_AS, CellValue, Column, Layout, Row, Table
from mri_vit.run.integrity import read_json
from mri_vit.settings.schema import CHANNELS

# Plain: a table with a row per visit, or a folder of scans by patient, under any of the names in `mri_vit/data/columns.py`.
#
# Names may have any case and signs: `BraTS21ID`, `patient_id`, `T1CE`, `t1-gd`. A column or file of another name is not read, and
# its probable meaning is suggested. A survival time is read where its column names the unit (`os_months`, `OS (days)`).
DEATHS = ("osevent", "death", "dead", "deceased")  # names under which 1 is a death; elsewhere it may be a life


def event(raw: str, column: str) -> CellValue:
    """Words of life and death under any name; numbers, yes and no only where the column's name defines them."""
    unclear = layout.NUMBER.fullmatch(raw) or raw.lower() in (*layout.YES, *layout.NO)
    return layout.UNKNOWN if unclear and key(column) not in DEATHS else layout.EVENT(raw, column)


def _path(pattern: str) -> re.Pattern[str]:
    """A scan's path that ends like this, in a folder at any depth."""
    return re.compile(rf"(?:^|/){pattern}\.nii(\.gz)?$")


RULES = {
    **{"sex": layout.SEX, "age": layout.age, "mgmt": layout.METHYLATION},
    **dict.fromkeys(("pten", "tertp", "idh"), layout.MUTATION),
    **{"site": layout.text, SAME_AS: layout.text, "os_days": layout.days(), "os_event": event},
    **dict.fromkeys(("who_type", "grade"), layout.text),  # a table's own classes stay as they are spelled
}
WITH_CUT_OFF = ("mgmt", "pten", "tertp")  # may be an assay's number, with the cut-off in the column's name
COLUMNS = (
    *(Column(name, (name, *ALIASES.get(name, ())), rule) for name, rule in RULES.items()),
    *(Column(name, (), layout.above_cut_off, like=re.compile(rf"(?i)\W*{name}.*cut[-_ ]?off.*\d.*")) for name in WITH_CUT_OFF),
)
SEQUENCES = {spelling: ours for spelling, ours in OURS.items() if ours in (*CHANNELS, "brain_mask", "tumour_mask")}

PLAIN = Layout(
    name="plain",
    collection=False,
    example="P001/t1ce.nii.gz, P001_t1ce.nii.gz, or a table with the columns patient, t1, t1ce, t2, flair",
    scans=re.compile(
        r"^(?:(?P<folder>[^/]+)/(?:(?P=folder)[_-])?|(?P<patient>[^/]+?)[_-])"
        r"(?P<sequence>(?i:t1|t2|fl|ce|ct1|seg|brain|tumou?r|native)[A-Za-z0-9 _-]*)\.nii(\.gz)?$"
    ),
    sequences=SEQUENCES,
    tables=(
        Table(
            id=("patient", *ALIASES["patient"]),
            marks=(),
            session=("session", *ALIASES["session"]),
            columns=COLUMNS,
            scans=SEQUENCES,
        ),
    ),
)


# BraTS 2020: `BraTS20_Training_001_t1ce.nii.gz`, and survival_info.csv with days; `ALIVE (361 days later)` is a censoring.
#
# Source: the challenge's survival_info.csv as public code reads it: Brats20ID, Age, Survival_days, Extent_of_Resection.
BRATS2020_SURVIVAL = Layout(
    name="brats2020_survival",
    example="BraTS20_Training_001_t1ce.nii.gz, or survival_info.csv with Brats20ID and Survival_days",
    scans=_path(r"(?P<patient>BraTS20_\w+_\d{3})_(?P<sequence>[A-Za-z0-9]+)"),
    tables=(
        Table(
            id=("Brats20ID", "BraTS20ID"),
            marks=("Survival_days",),
            columns=(
                Column("age", ("Age",), layout.age),
                Column("resection", ("Extent_of_Resection",), layout.text),
                Column("os_days", ("Survival_days",), layout.days_or_alive),
                Column("os_event", ("Survival_days",), layout.dead_or_alive),
            ),
        ),
    ),
)


# BraTS 2021: `BraTS2021_00001_t1ce.nii.gz`, a patient each; with the labels of RSNA-MICCAI where they lie beside.
#
# Source: Baid et al. 2021, arXiv:2107.02314. The challenge has no survival times. Ids of its two tasks have the same five digits.
BRATS2021 = Layout(
    name="brats2021",
    example="BraTS2021_00001_t1ce.nii.gz",
    scans=_path(r"(?P<patient>BraTS2021_\d{5})[_/](?P<sequence>[A-Za-z0-9]+)"),
    tables=(
        Table(
            id=("BraTS21ID",),
            marks=("MGMT_value",),
            ids=re.compile(r"(?P<patient>(BraTS2021_)?\d{1,5})"),
            columns=(Column("mgmt", ("MGMT_value",), layout.METHYLATION),),
        ),
    ),
    called=lambda patient, session: (f"BraTS2021_{patient.removeprefix('BraTS2021_').zfill(5)}", session),
    owns_tables=False,
)


# BraTS 2023 and later: `BraTS-GLI-00000-000-t1c.nii.gz`. The last number is the time point of the patient before it.
#
# Source: file names of the challenge, synapse.org/brats2023; -MET-, -PED- and the others are named alike. It has no label table.
BRATS2023 = Layout(
    name="brats2023",
    example="BraTS-GLI-00000-000-t1c.nii.gz",
    scans=_path(r"(?P<patient>BraTS-[A-Z]+-\d{4,5})-(?P<session>\d{3})-(?P<sequence>\w+)"),
)


# RSNA-MICCAI 2021: `train_labels.csv` with BraTS21ID and MGMT_value; ids are text of five digits, which spreadsheets cut.
#
# Source: kaggle.com/c/rsna-miccai-brain-tumor-radiogenomic-classification, whose data page names the three bad patients. Its
# scans are DICOM; converted ones are read as `00000/00000_t1ce.nii.gz`, `00000/T1wCE.nii.gz`.
BLANK_IMAGES = "known bad: the challenge's data page names it as one with blank images of a sequence"

RSNA_MICCAI = Layout(
    name="rsna_miccai",
    example="train_labels.csv with BraTS21ID and MGMT_value, or 00000/T1wCE.nii.gz",
    scans=_path(r"(?P<patient>\d{5})/(?:(?P=patient)_)?(?P<sequence>\w+)"),
    sequences=BRATS | {"t1w": "t1", "t1wce": "t1ce"},
    tables=(
        Table(
            id=("BraTS21ID",),
            marks=("MGMT_value",),
            ids=re.compile(r"(?P<patient>\d{1,5})"),
            columns=(Column("mgmt", ("MGMT_value",), layout.METHYLATION), Column(SAME_AS, ("BraTS21ID",), layout.same_brats)),
        ),
    ),
    distinctive=re.compile(r"(?:^|/)\d{5}/(T1wCE|T1w|T2w|FLAIR)\.nii"),  # five digits alone are any hospital's
    called=lambda patient, session: (patient.zfill(5), session),
    bad=dict.fromkeys(("00109", "00123", "00709"), BLANK_IMAGES),
)


# UCSF-PDGM: `UCSF-PDGM-0004_T1c.nii.gz` and UCSF-PDGM-metadata_v2.csv or later, whose ids have three digits.
#
# Source: Calabrese et al. 2022, doi:10.1148/ryai.220058, and TCIA's pages, doi:10.7937/tcia.bdgf-8v37. OS is in days. Six of the
# 501 are second visits: TCIA renamed them in version 3 (0138 is 0429_FU003d, three days later); in the table of version 2, sex,
# age, markers and OS of each are those of its patient, so that OS counts from the first visit. The plain scans are read, not the
# `_bias` ones.
UCSF_FIRST = "baseline"
UCSF_RENAMED = {
    **{"0138": ("0429", "FU003d"), "0175": ("0396", "FU175d"), "0181": ("0409", "FU001d")},
    **{"0278": ("0431", "FU001d"), "0289": ("0391", "FU016d"), "0315": ("0433", "FU007d")},
}


def _ucsf_visit(number: str, session: str) -> tuple[str, str]:
    patient, visit = UCSF_RENAMED.get(number.zfill(4), (number.zfill(4), session or UCSF_FIRST))
    return f"UCSF-PDGM-{patient}", visit


def _ucsf_since_first(row: Row, session: str) -> str:
    """Days from the first visit, as the name of a later one has them."""
    return "0" if session == UCSF_FIRST else session.removeprefix("FU").removesuffix("d")


UCSF_MARKERS = who.Markers(
    idh=("IDH",), codeletion=("1p/19q",), grade=("WHO CNS Grade",), diagnosis=("Final pathologic diagnosis (WHO 2021)",)
)

UCSF_PDGM = Layout(
    name="ucsf_pdgm",
    example="UCSF-PDGM-0004_T1c.nii.gz, or UCSF-PDGM-004 in a table with MGMT status",
    scans=_path(r"UCSF-PDGM-(?P<patient>\d{3,4})(_(?P<session>FU\d+d))?_(?P<sequence>[A-Za-z0-9]+|\w+_segmentation)"),
    sequences=BRATS | {"brainsegmentation": "brain_mask", "tumorsegmentation": "tumour_mask"},
    tables=(
        Table(
            id=("ID",),
            marks=("MGMT status", "1-dead 0-alive"),
            ids=re.compile(r"UCSF-PDGM-(?P<patient>\d{3,4})(_(?P<session>FU\d+d))?"),
            columns=(
                Column("sex", ("Sex",), layout.SEX),
                Column("age", ("Age at MRI",), layout.age),
                Column("grade", ("WHO CNS Grade",), who.read_grade),
                Column("who_type", ("IDH",), layout.text, of_row=UCSF_MARKERS),
                Column("who_type", UCSF_MARKERS.diagnosis, who.named_type),
                # It contains the IDH status: under this name, no study of IDH uses it as a covariate.
                Column("idh_diagnosis", UCSF_MARKERS.diagnosis, layout.text),
                Column("mgmt", ("MGMT status",), layout.METHYLATION),  # the index is not made a label: cohorts cut it differently
                Column("mgmt_index", ("MGMT index",), layout.number),
                Column("idh", ("IDH",), layout.named_mutation),
                Column("os_days", ("OS",), layout.days("day"), since=_ucsf_since_first),
                Column("os_event", ("1-dead 0-alive",), layout.EVENT),
                Column(SAME_AS, ("BraTS21 ID",), layout.same_brats),
            ),
        ),
    ),
    called=_ucsf_visit,
)


# UPENN-GBM: `UPENN-GBM-00001_11_T1GD.nii.gz` and UPENN-GBM_clinical_info; `_11` is the first visit, `_21` that at recurrence.
#
# Source: Bakas et al. 2022, doi:10.1038/s41597-022-01560-7, and its table v2.1. Survival counts from the surgery of the row's own
# visit: of the 41 patients with both, the first row's survival less the second's is the time between them to within 9 days before
# and 55 after (the median is 6), so that nothing is subtracted. Where the time is only in Survival_Censor, it is of the day last
# seen alive. All patients have glioblastoma, so that each is of grade 4, which is no column; 1p/19q is not reported.
UPENN_GBM = Layout(
    name="upenn_gbm",
    example="UPENN-GBM-00001_11_T1GD.nii.gz, or UPENN-GBM-00001_11 in a table with Survival_Censor",
    scans=_path(r"(?P<patient>UPENN-GBM-\d{5})_(?P<session>\d\d)_(?P<sequence>[A-Za-z0-9]+)"),
    sequences=BRATS | {"segm": "tumour_mask"},
    tables=(
        Table(
            id=("ID",),
            marks=("Survival_from_surgery_days_UPDATED", "Survival_Censor"),
            ids=re.compile(r"(?P<patient>UPENN-GBM-\d{5})_(?P<session>\d\d)"),
            columns=(
                Column("sex", ("Gender",), layout.SEX),
                Column("age", ("Age_at_scan_years",), layout.age),
                Column("kps", ("KPS",), layout.karnofsky),
                Column("mgmt", ("MGMT",), layout.METHYLATION),
                Column("idh1", ("IDH1",), layout.MUTATION),
                Column("who_type", ("IDH1",), layout.text, of_row=who.Markers(idh=("IDH1",), collected="4")),
                Column("os_days", ("Survival_from_surgery_days_UPDATED", "Survival_Censor"), layout.days("day")),
                Column("os_event", ("Survival_Status",), layout.EVENT),
            ),
        ),
    ),
)


# TCGA-GBM and TCGA-LGG: scans by patient, `TCGA-02-0003_1996.06.08_t1Gd.nii.gz`, and the tables that others made of TCGA.
#
# Sources: file names of Bakas et al. 2017, doi:10.1038/sdata.2017.117; mutations as the UCI repository has them (Glioma Grading
# Clinical and Mutation Features: 1 is mutated); clinical.tsv of the GDC; Table S1 of Ceccarelli et al. 2016,
# doi:10.1016/j.cell.2015.12.028. The last two were not at hand: their columns are as these sources and public code name them, and
# one that is called otherwise is not read. `Grade` of the mutations is the project, GBM or LGG: a glioblastoma is of grade 4 in
# every edition, the others are of 2 or 3. There ATRX 1 is any mutation; of the 164 astrocytomas by it 3 have CIC mutated too.
UCI_GRADE = layout.words({"4": ("gbm",)}, ("lgg",))
UCI_MARKERS = who.Markers(
    idh=("IDH1", "IDH2"), atrx=("ATRX",), grade=("Grade",), diagnosis=("Primary_Diagnosis",), of_grade=UCI_GRADE
)
CECCARELLI_MARKERS = who.Markers(
    idh=("IDH status",),
    codeletion=("1p/19q codeletion", "IDH/codel subtype"),
    atrx=("ATRX status",),
    grade=("Grade",),
    diagnosis=("Histology",),
    features=("TERT promoter status", "Chr 7 gain/Chr 10 loss"),
)
TCGA_ID = re.compile(r"(?P<patient>TCGA-\w\w-\w{4})(-.*)?")  # more behind it is a sample's number


def _tcga_no_day(row: Row) -> str:
    """A death without its day is not on the day of the last follow-up; columns as the GDC names them, before 2024 and since."""
    status, day = (row.cell(name) or row.cell(f"demographic.{name}") for name in ("vital_status", "days_to_death"))
    return "dead on a day that is not known" if layout.EVENT(status, "").value == "1" and layout.missing(day) else ""


TCGA = Layout(
    name="tcga",
    example="TCGA-02-0003_1996.06.08_t1Gd.nii.gz, TCGA-02-0003/t1ce.nii.gz, or TCGA-02-0003 in a table with Case_ID and PTEN",
    scans=_path(r"(?P<patient>TCGA-\w\w-\w{4})(_[^/]*_|_|/)(?P<sequence>[A-Za-z0-9]+)"),
    sequences=BRATS | {"glistrboost": "tumour_mask"},
    tables=(
        Table(
            id=("Case_ID",),
            marks=("Project", "PTEN"),
            ids=TCGA_ID,
            columns=(
                Column("sex", ("Gender",), layout.SEX),
                Column("age", ("Age_at_diagnosis",), layout.age),
                Column("project", ("Project",), layout.text),
                Column("diagnosis", ("Primary_Diagnosis",), layout.text),
                Column("grade", ("Grade",), UCI_GRADE),
                Column("who_type", ("IDH1",), layout.text, of_row=UCI_MARKERS),
                *(Column(gene.lower(), (gene,), layout.MUTATION) for gene in ("PTEN", "IDH1", "IDH2", "TP53", "ATRX", "EGFR")),
            ),
        ),
        Table(
            id=("Case",),
            marks=("MGMT promoter status", "TERT promoter status"),
            ids=TCGA_ID,
            columns=(
                Column("mgmt", ("MGMT promoter status",), layout.METHYLATION),
                Column("tertp", ("TERT promoter status",), layout.MUTATION),
                Column("idh", ("IDH status",), layout.MUTATION),
                Column("grade", ("Grade",), who.read_grade),
                Column("who_type", ("IDH status",), layout.text, of_row=CECCARELLI_MARKERS),
                Column("age", ("Age (years at diagnosis)",), layout.age),
                Column("sex", ("Gender",), layout.SEX),
                Column("os_days", ("Survival (months)",), layout.days("month")),
                Column("os_event", ("Vital status (1=dead)",), layout.EVENT),
            ),
        ),
        *(  # clinical.tsv; since the GDC's release of November 2024 columns carry the name of their table
            Table(
                id=(case_id,),
                marks=(f"{about}vital_status", f"{about}days_to_death"),
                ids=TCGA_ID,
                columns=(
                    Column("sex", (f"{about}gender", f"{about}sex_at_birth"), layout.SEX),
                    Column("age", (f"{about}age_at_index",), layout.age),
                    Column("grade", (f"{diagnoses}tumor_grade", f"{diagnoses}who_cns_grade"), who.read_grade),
                    Column("who_type", (f"{diagnoses}primary_diagnosis",), who.named_type),
                    Column(
                        "os_days",
                        (f"{about}days_to_death", f"{diagnoses}days_to_last_follow_up"),
                        layout.days("day"),
                        unless=_tcga_no_day,
                    ),
                    Column("os_event", (f"{about}vital_status",), layout.EVENT),
                ),
            )
            for case_id, about, diagnoses in (
                ("case_submitter_id", "", ""),
                ("cases.submitter_id", "demographic.", "diagnoses."),
            )
        ),
    ),
)


# MU-Glioma-Post: `PatientID_0003/Timepoint_1/PatientID_0003_Timepoint_1_brain_t1c.nii.gz`, up to six visits after surgery.
#
# Source: TCIA, doi:10.7937/7k9k-3c83; names of files and columns as public code that reads the collection has them (the table was
# not at hand). Its clinical data are a workbook: save the sheet "MU Glioma Post" as CSV. Times count from the diagnosis, so the
# days to each visit are subtracted. Of patients who live it has no day last seen, so that their survival is missing. In MGMT
# methylation and the mutations 0 and 1 are read; any other number has no rule. Of 1p/19q 1 is codeleted and 0 intact; other
# numbers are partial losses and 10 is unknown, which decide nothing.
MU_VISITS = {
    f"Timepoint_{n}": f"Number of Days from Diagnosis to {nth} MRI (Timepoint_{n})"
    for n, nth in enumerate(("1st", "2nd", "3rd", "4th", "5th", "6th"), start=1)
}


MU_DEATH = "Number of days from Diagnosis to death (Days)"

MU_MARKERS = who.Markers(
    idh=("IDH1 mutation", "IDH2 mutation"),
    codeletion=("1p/19q",),
    atrx=("ATRX mutation",),
    grade=("Grade of Primary Brain Tumor",),
    diagnosis=("Primary Diagnosis",),
    features=("TERT promoter mutation", "EGFR amplification", "Chromosome 7 gain and Chromosome 10 loss"),
    others=("H3-3A mutation",),
)

MU_GLIOMA_POST = Layout(
    name="mu_glioma_post",
    example="PatientID_0003_Timepoint_1_brain_t1c.nii.gz, or a table with Patient_ID and MGMT methylation",
    scans=_path(r"(?P<patient>PatientID_\d{4})_(?P<session>Timepoint_\d+)_(brain_)?(?P<sequence>[A-Za-z0-9]+)"),
    sequences={"t1n": "t1", "t1c": "t1ce", "t2w": "t2", "t2f": "flair", "tumormask": "tumour_mask"},
    tables=(
        Table(
            id=("Patient_ID",),
            marks=("MGMT methylation", "Overall Survival (Death)"),
            ids=re.compile(r"(?P<patient>PatientID_\d{4})"),
            columns=(
                Column("sex", ("Sex at Birth",), layout.SEX),
                Column("age", ("Age at diagnosis",), layout.age),
                Column("mgmt", ("MGMT methylation",), layout.METHYLATION),
                Column("tertp", ("TERT promoter mutation",), layout.MUTATION),
                Column("idh1", ("IDH1 mutation",), layout.MUTATION),
                Column("grade", MU_MARKERS.grade, who.read_grade),
                Column("who_type", ("IDH1 mutation",), layout.text, of_row=MU_MARKERS),
                *(
                    Column(
                        "os_days", (MU_DEATH,), layout.days("day"), visit, since=lambda row, session: row.cell(MU_VISITS[session])
                    )
                    for visit in MU_VISITS
                ),
                *(Column("os_event", ("Overall Survival (Death)",), layout.EVENT, visit) for visit in MU_VISITS),
            ),
        ),
    ),
)


# RHUH-GBM: `RHUH-0001/0/RHUH-0001_0_t1ce.nii.gz`; visit 0 is before surgery, 1 within 72 hours after it, 2 at recurrence.
#
# Source: Cepeda et al. 2023, doi:10.1016/j.dib.2023.109617, and the header of clinical_data_TCIA_RHUH-GBM.csv. Survival counts
# from the surgery, so it is of visit 0; the days to the later ones are not published. `Right Censored` yes is a censoring. MGMT
# is not reported, nor are 1p/19q and ATRX, so that a patient with mutant IDH has no type.
RHUH_IDH = "IDH status = (mutant [mut], wild type [wt], NOS)"
RHUH_MARKERS = who.Markers(idh=(RHUH_IDH,), grade=("WHO grade",), diagnosis=("Histopathological subtype",))

RHUH_GBM = Layout(
    name="rhuh_gbm",
    example="RHUH-0001_0_t1ce.nii.gz, or RHUH-0001 in a table with Right Censored",
    scans=_path(r"(?P<patient>RHUH-\d{4})_(?P<session>\d)_(?P<sequence>[A-Za-z0-9]+)"),
    sequences=BRATS | {"segmentations": "tumour_mask"},
    tables=(
        Table(
            id=("Patient ID",),
            marks=("Right Censored", "Overall survival [OS] (days)"),
            ids=re.compile(r"(?P<patient>RHUH-\d{4})"),
            columns=(
                Column("sex", ("Sex",), layout.SEX),
                Column("age", ("Age",), layout.age),
                Column("kps", ("Preoperative KPS",), layout.karnofsky, "0"),
                Column("idh", (RHUH_IDH,), layout.MUTATION),
                Column("grade", ("WHO grade",), who.read_grade),
                Column("who_type", (RHUH_IDH,), layout.text, of_row=RHUH_MARKERS),
                Column("os_days", ("Overall survival [OS] (days)",), layout.days("day"), "0"),
                Column("os_event", ("Right Censored",), layout.CENSORED, "0"),
            ),
        ),
    ),
)


# nnU-Net: `imagesTr/case_0000.nii.gz` … `_0003`, and `labelsTr/case.nii.gz`; dataset.json names the sequence of a number.
#
# Source: nnU-Net's documentation/dataset_format.md: `channel_names` since version 2, `modality` before. Without that file nothing
# is read.
def _nnunet_channels(source: Path) -> Mapping[str, str]:
    """The sequence of each number, and the mask, which has none. Raises UsageError where the file does not say it."""
    file = source / "dataset.json"
    if not file.is_file():
        raise UsageError(f"{file}: no such file; it names the sequences 0000 to 0003")
    content = read_json(file)
    names = content.get("channel_names") or content.get("modality")
    if not isinstance(names, dict):
        raise UsageError(f'{file}: no "channel_names"; expected {{"0": "T1", "1": "T1ce", …}}')
    known = {f"{int(number):04d}": our_column(str(name)) for number, name in names.items() if str(number).isdigit()}
    if unknown := [str(name) for number, name in names.items() if known.get(f"{number:0>4}") not in CHANNELS]:
        raise UsageError(f"{file}: channel {unknown[0]!r}; expected names of {', '.join(CHANNELS)}")
    return {number: name for number, name in known.items() if name} | {"": "tumour_mask"}


NNUNET = Layout(
    name="nnunet",
    collection=False,
    example="imagesTr/case_0000.nii.gz beside dataset.json",
    scans=_path(r"(?:images(?:Tr|Ts)/(?P<patient>[^/]+)_(?P<sequence>\d{4})|labels(?:Tr|Ts)/(?P<masked>[^/]+))"),
    read_sequences=_nnunet_channels,
)


# BIDS: `sub-01[_ses-pre]_ce-GADOLINIUM_T1w.nii.gz`, and participants.tsv. Derivatives and source data are not read.
#
# Source: the specification 1.10, bids-specification.readthedocs.io (entity `ce`, suffixes of anatomy). A T1w with an agent is
# the T1ce. The words of `acq-` count as well, into which many write the agent; a T1w is left out whose labels contradict each
# other or hold a word that may be an agent's, and so is a visit with several runs of a sequence: which one is meant is not
# guessed. pybids would add nothing to the pattern.
BIDS_AGENT = re.compile(r"_ce-([A-Za-z0-9]+)")
BIDS_FREE_TEXT = re.compile(r"_(?:acq|desc|rec|label)-([A-Za-z0-9]+)")  # ses- and run- do not describe a scan
# Of an agent within a label, which can hold no signs between words: post3d, fsgd, 1mmpost. What is glued to it is not known.
BIDS_GLUED_AGENT = re.compile(
    r"(?i)post(?!op|rt|foss|rad|chem|proc|er|ur|\d*(?:mo|wk|week|day))|gd|gad|contrast|kontrast|(?<![a-z])km|km(?![a-z])"
    r"|(?<![a-z])ce(?![a-z])|(?<!spa)(?<!surfa)(?<!sli)ce(?![a-z])|ce(?=\d)|t1w?c(?![a-z])|plusc?(?![a-z])|(?<![a-z0-9])c(?![a-z0-9])"
)
BIDS_SUFFIXES = {"T1w": "t1", "T2w": "t2", "FLAIR": "flair"}


def bids_channel(words: Mapping[str, str]) -> str:
    """The channel of a file by suffix and labels, `UNDECIDED` where labels contradict each other, "" of one that is not read."""
    agent = BIDS_AGENT.search(words["labels"])
    by_labels = {contrast_agent.in_field(agent[1])} if agent else set()
    if words["sequence"] != "T1w":
        return "" if by_labels == {Agent.GIVEN} else BIDS_SUFFIXES[words["sequence"]]
    unknown = bool(agent) and Agent.UNKNOWN in by_labels
    naming = BIDS_FREE_TEXT.findall(words["labels"])
    by_labels.add(contrast_agent.named(" ".join(naming)))
    if by_labels == {Agent.UNKNOWN} and any(BIDS_GLUED_AGENT.search(label) for label in naming):
        return layout.UNDECIDED
    if by_labels >= {Agent.GIVEN, Agent.NONE} or Agent.UNCLEAR in by_labels or unknown:
        return layout.UNDECIDED
    return "t1ce" if Agent.GIVEN in by_labels else "t1"


BIDS = Layout(
    name="bids",
    collection=False,
    example="sub-01/anat/sub-01_ce-GADOLINIUM_T1w.nii.gz",
    scans=re.compile(
        r"^(?!(?:.*/)?(?:derivatives|sourcedata)/)(?:.*/)?sub-(?P<patient>[A-Za-z0-9]+)(_ses-(?P<session>[A-Za-z0-9]+))?"
        r"(?P<labels>(?:_[a-z]+-[A-Za-z0-9]+)*)_(?P<sequence>T1w|T2w|FLAIR)\.nii(\.gz)?$"
    ),
    sequence=bids_channel,
    tables=(Table(id=("participant_id",), marks=(), ids=re.compile(r"(sub-)?(?P<patient>[A-Za-z0-9]+)"), columns=COLUMNS),),
)


# The layouts by name; docs/extending/layout.md explains how to add one. PLAIN is last: it matches much of the others.
LAYOUTS: dict[str, Layout] = {
    entry.name: entry
    for entry in (
        *(BRATS2021, BRATS2023, RSNA_MICCAI, UCSF_PDGM, UPENN_GBM, TCGA, MU_GLIOMA_POST, RHUH_GBM, BRATS2020_SURVIVAL),
        *(NNUNET, BIDS, PLAIN),
    )
}

"""The layouts of public collections and of common ways to lay files out, by name, each with its source.

A new one is a `Layout` here, a line in the dictionary at the end, a test, and what docs/extending/layout.md says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mri_vit.data.columns import ALIASES, OURS, key, our_column
from mri_vit.errors import UsageError
from mri_vit.importers import contrast_agent
from mri_vit.importers.contrast_agent import Agent
from mri_vit.importers.layout import (
    BRATS,
    CENSORED,
    EVENT,
    METHYLATION,
    MUTATION,
    NO,
    NUMBER,
    SAME_AS,
    SEX,
    UNDECIDED,
    UNKNOWN,
    YES,
    CellValue,
    Column,
    Layout,
    Row,
    Table,
    above_cut_off,
    age,
    days,
    days_or_alive,
    dead_or_alive,
    karnofsky,
    missing,
    named_mutation,
    number,
    same_brats,
    text,
)
from mri_vit.run.integrity import read_json
from mri_vit.settings.schema import CHANNELS

# Plain: a table with a row per visit, or a folder of scans by patient, under any of the names in `mri_vit/data/columns.py`.
#
# Names are taken in any case and with any signs between: `BraTS21ID`, `patient_id`, `T1CE`, `t1-gd`. A column or file of another
# name is not read, and what it may mean is suggested. A survival time is read where its column names the unit (`os_months`, `OS
# (days)`).
DEATHS = ("osevent", "death", "dead", "deceased")  # names under which 1 is a death; elsewhere it may be a life


def event(raw: str, column: str) -> CellValue:
    """Words of life and death under any name; numbers, yes and no only where the column's name says what they mean."""
    unclear = NUMBER.fullmatch(raw) or raw.lower() in (*YES, *NO)
    return UNKNOWN if unclear and key(column) not in DEATHS else EVENT(raw, column)


FILES = (*CHANNELS, "brain_mask", "tumour_mask")
RULES = {
    **{"sex": SEX, "age": age, "mgmt": METHYLATION, "pten": MUTATION, "tertp": MUTATION, "idh": MUTATION},
    **{"site": text, SAME_AS: text, "os_days": days(), "os_event": event},
}
COLUMNS = (
    *(Column(name, (name, *ALIASES.get(name, ())), rule) for name, rule in RULES.items()),
    *(
        Column(name, (), above_cut_off, like=re.compile(rf"(?i)\W*{name}.*cut[-_ ]?off.*\d.*"))
        for name in ("mgmt", "pten", "tertp")
    ),
)
SEQUENCES = {spelling: ours for spelling, ours in OURS.items() if ours in FILES}

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


# BraTS 2020: `BraTS20_Training_001_t1ce.nii.gz`, and survival_info.csv with days, of which `ALIVE (361 days later)` is a
# censoring.
#
# Source: the challenge's survival_info.csv as public code reads it: Brats20ID, Age, Survival_days, Extent_of_Resection.
BRATS2020_SURVIVAL = Layout(
    name="brats2020_survival",
    example="BraTS20_Training_001_t1ce.nii.gz, or survival_info.csv with Brats20ID and Survival_days",
    scans=re.compile(r"(?:^|/)(?P<patient>BraTS20_\w+_\d{3})_(?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"),
    tables=(
        Table(
            id=("Brats20ID", "BraTS20ID"),
            marks=("Survival_days",),
            columns=(
                Column("age", ("Age",), age),
                Column("resection", ("Extent_of_Resection",), text),
                Column("os_days", ("Survival_days",), days_or_alive),
                Column("os_event", ("Survival_days",), dead_or_alive),
            ),
        ),
    ),
)


# BraTS 2021: `BraTS2021_00001_t1ce.nii.gz`, a patient each; with the labels of RSNA-MICCAI where they lie beside.
#
# Source: Baid et al. 2021, arXiv:2107.02314. The challenge has no survival times. Ids of its two tasks have the same five digits.
def _with_prefix(patient: str, session: str) -> tuple[str, str]:
    digits = patient.removeprefix("BraTS2021_")
    return f"BraTS2021_{digits.zfill(5)}", session


BRATS2021 = Layout(
    name="brats2021",
    example="BraTS2021_00001_t1ce.nii.gz",
    scans=re.compile(r"(?:^|/)(?P<patient>BraTS2021_\d{5})[_/](?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"),
    tables=(
        Table(
            id=("BraTS21ID",),
            marks=("MGMT_value",),
            ids=re.compile(r"(?P<patient>(BraTS2021_)?\d{1,5})"),
            columns=(Column("mgmt", ("MGMT_value",), METHYLATION),),
        ),
    ),
    called=_with_prefix,
    owns_tables=False,
)


# BraTS 2023 and later: `BraTS-GLI-00000-000-t1c.nii.gz`. The last number is the time point of the patient before it.
#
# Source: file names of the challenge, synapse.org/brats2023; -MET-, -PED- and the others are named alike. It has no label table.
BRATS2023 = Layout(
    name="brats2023",
    example="BraTS-GLI-00000-000-t1c.nii.gz",
    scans=re.compile(r"(?:^|/)(?P<patient>BraTS-[A-Z]+-\d{4,5})-(?P<session>\d{3})-(?P<sequence>\w+)\.nii(\.gz)?$"),
)


# RSNA-MICCAI 2021: `train_labels.csv` with BraTS21ID and MGMT_value; ids are text of five digits, which spreadsheets cut.
#
# Source: kaggle.com/c/rsna-miccai-brain-tumor-radiogenomic-classification, whose data page names the three bad patients. Its
# scans are DICOM; converted ones are read as `00000/00000_t1ce.nii.gz`, `00000/T1wCE.nii.gz`.
BLANK_IMAGES = "known bad: the challenge's data page names it as one with blank images of a sequence"


def _five_digits(patient: str, session: str) -> tuple[str, str]:
    return patient.zfill(5), session


RSNA_MICCAI = Layout(
    name="rsna_miccai",
    example="train_labels.csv with BraTS21ID and MGMT_value, or 00000/T1wCE.nii.gz",
    scans=re.compile(r"(?:^|/)(?P<patient>\d{5})/(?:(?P=patient)_)?(?P<sequence>\w+)\.nii(\.gz)?$"),
    sequences=BRATS | {"t1w": "t1", "t1wce": "t1ce"},
    tables=(
        Table(
            id=("BraTS21ID",),
            marks=("MGMT_value",),
            ids=re.compile(r"(?P<patient>\d{1,5})"),
            columns=(Column("mgmt", ("MGMT_value",), METHYLATION), Column(SAME_AS, ("BraTS21ID",), same_brats)),
        ),
    ),
    telling=re.compile(r"(?:^|/)\d{5}/(T1wCE|T1w|T2w|FLAIR)\.nii"),  # five digits alone are any hospital's
    called=_five_digits,
    bad=dict.fromkeys(("00109", "00123", "00709"), BLANK_IMAGES),
)


# UCSF-PDGM: `UCSF-PDGM-0004_T1c.nii.gz` and UCSF-PDGM-metadata_v2.csv or later; images have ids of four digits, the table of
# three.
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


UCSF_PDGM = Layout(
    name="ucsf_pdgm",
    example="UCSF-PDGM-0004_T1c.nii.gz, or UCSF-PDGM-004 in a table with MGMT status",
    scans=re.compile(
        r"(?:^|/)UCSF-PDGM-(?P<patient>\d{3,4})(_(?P<session>FU\d+d))?_(?P<sequence>[A-Za-z0-9]+|\w+_segmentation)\.nii(\.gz)?$"
    ),
    sequences=BRATS | {"brainsegmentation": "brain_mask", "tumorsegmentation": "tumour_mask"},
    tables=(
        Table(
            id=("ID",),
            marks=("MGMT status", "1-dead 0-alive"),
            ids=re.compile(r"UCSF-PDGM-(?P<patient>\d{3,4})(_(?P<session>FU\d+d))?"),
            columns=(
                Column("sex", ("Sex",), SEX),
                Column("age", ("Age at MRI",), age),
                Column("grade", ("WHO CNS Grade",), number),
                # It says what IDH is: by this name, no study of IDH takes it for a covariate.
                Column("idh_diagnosis", ("Final pathologic diagnosis (WHO 2021)",), text),
                Column("mgmt", ("MGMT status",), METHYLATION),  # the index is not made a label: cohorts cut it differently
                Column("mgmt_index", ("MGMT index",), number),
                Column("idh", ("IDH",), named_mutation),
                Column("os_days", ("OS",), days("day"), since=_ucsf_since_first),
                Column("os_event", ("1-dead 0-alive",), EVENT),
                Column(SAME_AS, ("BraTS21 ID",), same_brats),
            ),
        ),
    ),
    called=_ucsf_visit,
)


# UPENN-GBM: `UPENN-GBM-00001_11_T1GD.nii.gz` and UPENN-GBM_clinical_info; `_11` is the first visit, `_21` the one at
# recurrence.
#
# Source: Bakas et al. 2022, doi:10.1038/s41597-022-01560-7, and its table v2.1. Survival counts from the surgery of the row's own
# visit: of the 41 patients with both, the first row's survival less the second's is the time between them to within 9 days before
# and 55 after (the median is 6), so that nothing is subtracted. Where the time is only in Survival_Censor, it is of the day last
# seen alive.
UPENN_GBM = Layout(
    name="upenn_gbm",
    example="UPENN-GBM-00001_11_T1GD.nii.gz, or UPENN-GBM-00001_11 in a table with Survival_Censor",
    scans=re.compile(r"(?:^|/)(?P<patient>UPENN-GBM-\d{5})_(?P<session>\d\d)_(?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"),
    sequences=BRATS | {"segm": "tumour_mask"},
    tables=(
        Table(
            id=("ID",),
            marks=("Survival_from_surgery_days_UPDATED", "Survival_Censor"),
            ids=re.compile(r"(?P<patient>UPENN-GBM-\d{5})_(?P<session>\d\d)"),
            columns=(
                Column("sex", ("Gender",), SEX),
                Column("age", ("Age_at_scan_years",), age),
                Column("kps", ("KPS",), karnofsky),
                Column("mgmt", ("MGMT",), METHYLATION),
                Column("idh1", ("IDH1",), MUTATION),
                Column("os_days", ("Survival_from_surgery_days_UPDATED", "Survival_Censor"), days("day")),
                Column("os_event", ("Survival_Status",), EVENT),
            ),
        ),
    ),
)


# TCGA-GBM and TCGA-LGG: scans by patient, `TCGA-02-0003_1996.06.08_t1Gd.nii.gz`, and the tables that others made of TCGA.
#
# Sources: file names of Bakas et al. 2017, doi:10.1038/sdata.2017.117; mutations as the UCI repository has them (Glioma Grading
# Clinical and Mutation Features: 1 is mutated); clinical.tsv of the GDC; Table S1 of Ceccarelli et al. 2016,
# doi:10.1016/j.cell.2015.12.028. The last two were not at hand: their columns are as these sources name them, and one that is
# called otherwise is not read.
TCGA_ID = re.compile(r"(?P<patient>TCGA-\w\w-\w{4})(-.*)?")  # more behind it is a sample's number


def _tcga_no_day(row: Row) -> str:
    """A death without its day is not on the day of the last follow-up; columns as the GDC names them, before 2024 and since."""
    status, day = (row.cell(name) or row.cell(f"demographic.{name}") for name in ("vital_status", "days_to_death"))
    return "dead on a day that is not known" if EVENT(status, "").value == "1" and missing(day) else ""


TCGA = Layout(
    name="tcga",
    example="TCGA-02-0003_1996.06.08_t1Gd.nii.gz, TCGA-02-0003/t1ce.nii.gz, or TCGA-02-0003 in a table with Case_ID and PTEN",
    scans=re.compile(r"(?:^|/)(?P<patient>TCGA-\w\w-\w{4})(_[^/]*_|_|/)(?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"),
    sequences=BRATS | {"glistrboost": "tumour_mask"},
    tables=(
        Table(
            id=("Case_ID",),
            marks=("Project", "PTEN"),
            ids=TCGA_ID,
            columns=(
                Column("sex", ("Gender",), SEX),
                Column("age", ("Age_at_diagnosis",), age),
                Column("project", ("Project",), text),
                Column("diagnosis", ("Primary_Diagnosis",), text),
                *(Column(gene.lower(), (gene,), MUTATION) for gene in ("PTEN", "IDH1", "IDH2", "TP53", "ATRX", "EGFR")),
            ),
        ),
        Table(
            id=("Case",),
            marks=("MGMT promoter status", "TERT promoter status"),
            ids=TCGA_ID,
            columns=(
                Column("mgmt", ("MGMT promoter status",), METHYLATION),
                Column("tertp", ("TERT promoter status",), MUTATION),
                Column("idh", ("IDH status",), MUTATION),
                Column("age", ("Age (years at diagnosis)",), age),
                Column("sex", ("Gender",), SEX),
                Column("os_days", ("Survival (months)",), days("month")),
                Column("os_event", ("Vital status (1=dead)",), EVENT),
            ),
        ),
        Table(
            id=("case_submitter_id",),
            marks=("vital_status", "days_to_death"),
            ids=TCGA_ID,
            columns=(
                Column("sex", ("gender",), SEX),
                Column("os_days", ("days_to_death", "days_to_last_follow_up"), days("day"), unless=_tcga_no_day),
                Column("os_event", ("vital_status",), EVENT),
            ),
        ),
        Table(  # the same since the GDC's release of November 2024, whose columns carry the name of their table
            id=("cases.submitter_id",),
            marks=("demographic.vital_status", "demographic.days_to_death"),
            ids=TCGA_ID,
            columns=(
                Column("sex", ("demographic.gender", "demographic.sex_at_birth"), SEX),
                Column(
                    "os_days", ("demographic.days_to_death", "diagnoses.days_to_last_follow_up"), days("day"), unless=_tcga_no_day
                ),
                Column("os_event", ("demographic.vital_status",), EVENT),
            ),
        ),
    ),
)


# MU-Glioma-Post: `PatientID_0003/Timepoint_1/PatientID_0003_Timepoint_1_brain_t1c.nii.gz`, up to six visits after surgery.
#
# Source: TCIA, doi:10.7937/7k9k-3c83; names of files and columns as public code that reads the collection has them (the table was
# not at hand). Its clinical data are a workbook: save the sheet "MU Glioma Post" as CSV. Times count from the diagnosis, so the
# days to each visit are subtracted. Of patients who live it has no day last seen, so that their survival is missing. In MGMT
# methylation and the mutations 0 and 1 are read; any other number has no rule.
MU_VISITS = {
    f"Timepoint_{n}": f"Number of Days from Diagnosis to {nth} MRI (Timepoint_{n})"
    for n, nth in enumerate(("1st", "2nd", "3rd", "4th", "5th", "6th"), start=1)
}


def _mu_since_diagnosis(row: Row, session: str) -> str:
    return row.cell(MU_VISITS[session])


MU_GLIOMA_POST = Layout(
    name="mu_glioma_post",
    example="PatientID_0003_Timepoint_1_brain_t1c.nii.gz, or a table with Patient_ID and MGMT methylation",
    scans=re.compile(
        r"(?:^|/)(?P<patient>PatientID_\d{4})_(?P<session>Timepoint_\d+)_(brain_)?(?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"
    ),
    sequences={"t1n": "t1", "t1c": "t1ce", "t2w": "t2", "t2f": "flair", "tumormask": "tumour_mask"},
    tables=(
        Table(
            id=("Patient_ID",),
            marks=("MGMT methylation", "Overall Survival (Death)"),
            ids=re.compile(r"(?P<patient>PatientID_\d{4})"),
            columns=(
                Column("sex", ("Sex at Birth",), SEX),
                Column("age", ("Age at diagnosis",), age),
                Column("mgmt", ("MGMT methylation",), METHYLATION),
                Column("tertp", ("TERT promoter mutation",), MUTATION),
                Column("idh1", ("IDH1 mutation",), MUTATION),
                *(
                    Column("os_days", ("Number of days from Diagnosis to death (Days)",), days("day"), visit, _mu_since_diagnosis)
                    for visit in MU_VISITS
                ),
                *(Column("os_event", ("Overall Survival (Death)",), EVENT, visit) for visit in MU_VISITS),
            ),
        ),
    ),
)


# RHUH-GBM: `RHUH-0001/0/RHUH-0001_0_t1ce.nii.gz`; visit 0 is before surgery, 1 within 72 hours after it, 2 at recurrence.
#
# Source: Cepeda et al. 2023, doi:10.1016/j.dib.2023.109617, and the header of clinical_data_TCIA_RHUH-GBM.csv. Survival counts
# from the surgery, so it is of visit 0; the days to the later ones are not published. `Right Censored` yes is a censoring. MGMT
# is not reported.
RHUH_GBM = Layout(
    name="rhuh_gbm",
    example="RHUH-0001_0_t1ce.nii.gz, or RHUH-0001 in a table with Right Censored",
    scans=re.compile(r"(?:^|/)(?P<patient>RHUH-\d{4})_(?P<session>\d)_(?P<sequence>[A-Za-z0-9]+)\.nii(\.gz)?$"),
    sequences=BRATS | {"segmentations": "tumour_mask"},
    tables=(
        Table(
            id=("Patient ID",),
            marks=("Right Censored", "Overall survival [OS] (days)"),
            ids=re.compile(r"(?P<patient>RHUH-\d{4})"),
            columns=(
                Column("sex", ("Sex",), SEX),
                Column("age", ("Age",), age),
                Column("kps", ("Preoperative KPS",), karnofsky, "0"),
                Column("idh", ("IDH status = (mutant [mut], wild type [wt], NOS)",), MUTATION),
                Column("os_days", ("Overall survival [OS] (days)",), days("day"), "0"),
                Column("os_event", ("Right Censored",), CENSORED, "0"),
            ),
        ),
    ),
)


# nnU-Net: `imagesTr/case_0000.nii.gz` … `_0003`, and `labelsTr/case.nii.gz`; which sequence a number is, dataset.json says.
#
# Source: nnU-Net's documentation/dataset_format.md: `channel_names` since version 2, `modality` before. Without that file nothing
# is read.
def _nnunet_channels(source: Path) -> Mapping[str, str]:
    """The sequence of each number, and the mask, which has none. Raises UsageError where the file does not say it."""
    file = source / "dataset.json"
    if not file.is_file():
        raise UsageError(f"{file}: no such file; it says which sequence 0000 to 0003 are")
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
    scans=re.compile(
        r"(?:^|/)(?:images(?:Tr|Ts)/(?P<patient>[^/]+)_(?P<sequence>\d{4})|labels(?:Tr|Ts)/(?P<masked>[^/]+))\.nii(\.gz)?$"
    ),
    read_sequences=_nnunet_channels,
)


# BIDS: `sub-01[_ses-pre]_ce-GADOLINIUM_T1w.nii.gz`, and participants.tsv. Derivatives and source data are not read.
#
# Source: the specification 1.10, bids-specification.readthedocs.io (entity `ce`, suffixes of anatomy). A T1w with an agent is
# the T1ce. The words of `acq-` count as well, into which many write the agent; a T1w is left out whose labels contradict each
# other or hold a word that may be an agent's, and so is a visit with several runs of a sequence: which one is meant is not
# guessed. pybids would add nothing to the pattern.
BIDS_AGENT = re.compile(r"_ce-([A-Za-z0-9]+)")
BIDS_FREE_TEXT = re.compile(
    r"_(?:acq|desc|rec|label)-([A-Za-z0-9]+)"
)  # labels that are free text; ses- and run- say nothing of a scan
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
    unknown = bool(agent) and Agent.UNSAID in by_labels
    naming = BIDS_FREE_TEXT.findall(words["labels"])
    by_labels.add(contrast_agent.named(" ".join(naming)))
    if by_labels == {Agent.UNSAID} and any(BIDS_GLUED_AGENT.search(label) for label in naming):
        return UNDECIDED
    if by_labels >= {Agent.GIVEN, Agent.NONE} or Agent.UNCLEAR in by_labels or unknown:
        return UNDECIDED
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


# The layouts by name; docs/extending/layout.md says how a new one is added.
LAYOUTS: dict[str, Layout] = {
    "brats2021": BRATS2021,
    "brats2023": BRATS2023,
    "rsna_miccai": RSNA_MICCAI,
    "ucsf_pdgm": UCSF_PDGM,
    "upenn_gbm": UPENN_GBM,
    "tcga": TCGA,
    "mu_glioma_post": MU_GLIOMA_POST,
    "rhuh_gbm": RHUH_GBM,
    "brats2020_survival": BRATS2020_SURVIVAL,
    "nnunet": NNUNET,
    "bids": BIDS,
    "plain": PLAIN,  # last: it takes much that the others name more exactly
}

"""What a name or a field says of a contrast agent: descriptions of series as hospitals, collections and scanners write them."""

from __future__ import annotations

import pytest

from mri_vit.data.columns import OURS
from mri_vit.importers import contrast_agent
from mri_vit.importers.contrast_agent import Agent

# Among them are descriptions of UPENN-GBM, TCGA-GBM and ICDC-Glioma as TCIA lists them.
# fmt: off
NAMES = {
    Agent.NONE: (
        "t1_tse_tra_oKM", "T1 o. KM", "T1 senza MdC", "T1 vorher", "T1 POST COILING W/O GAD", "SAG T1 SE NON CONTRAST",
        "T1WI (pre)",
        "T1 contrast not given", "T1 pas de gado", "T1 KM nicht gegeben", "T1 nicht kontrastiert", "T1 ohne jegliches KM",
        "T1 KM-freies 3D", "T1 sans aucune injection", "T1 sin MC", "T1 sin cte", "T1 IV-", "T1 CE 전", "T1 전", "T1 Gd전",
        "T1 POST OP NO GAD", "T1 PRE OP NO CONTRAST", "T1 PREOP, PRE-CONTRAST", "PRE AX T1 POST OP", "T1 수술 후 조영 전",
        "T1 préinjection",
        "T1 C- 3D", "AX T1 (W/O)", "T1 (PRE)", "T1 AX W O CONTRAST", "T1 w.o. contrast", "T1WITHOUTCONTRAST", "T1 NON GADO",
        "T1 PRE-C", "T1 PRE C", "T1 PRE C-", "T1 w-o contrast", "T1 kein Kontrastmittel", "T1 preKM", "T1 w/oKM",
        "T1 without any contrast agent", "AX T1 PRE", "t1_se_tra ohne KM", "AX T1 W/O", "AX T1 C-", "T1 AX WITHOUT CONTRAST",
        "AX T1 W/O CONTRAST", "T1 ohne KM", "Ax T1 w/o Gd", "Pre-Gd T1", "T1 sin contraste", "T1 sans gado", "T1 senza mdc",
        "T1 vor KM", "AX T1 BEFORE CONTRAST", "AX T1 NO IV CONTRAST", "T1 Contrast: None", "Ax T1 PRE", "SAG T1 PRE GAD",
        "t1_tse_tra_nativ", "T1 sem contraste", "T1 avant injection", "T1 prima del contrasto", "T1 sans injection",
        "T1 sin gadolinio", "T1 Gd: no", "AX T1 -C", "AX T1 NON-CON", "T1 noncontrast", "T1 unenhanced", "T1 precontrast",
        "pre-Gd T1", "AX T1 PRE-CONTRAST", "T1 조영전", "조영 전 T1", "T1 비조영", "T1 조영증강 전",
        "T1 조영제 없이", "T1 조영(-)", "T1 CE(-)",
        "T1 Gd(-)", "T1 (C-)", "T1 w/o", "T1 WO", "T1 WO AX", "AX T1 WO STEALTH", "AX T1 FS PRE", "AX T1 PRE FS",
        "COR T1 PRE 3MM", "T1 IDEAL pre gad_W", "T1 DIXON wo_W", "AX T1 DIXON SS IV_W", "T1 VIBE DIXON SANS IV CAIPI_W",
        "axial t1 pre gd", "t1_tse_sag_ohne_KM", "T1 nativ", "T1 ohne i.v. KM", "T1 pre KM", "T1 non contrast",
        "T1 without iv contrast", "AX T1 NO GAD", "AX T1 NO CONTRAST", "NOGAD T1", "t1 nogd", "T1 not enhanced",
        "T1 non-enhanced", "AX T1 nonenhanced", "T1 before Gd", "T1 prior to contrast", "T1 before injection of contrast",
        "T1 pré-contraste", "T1 pré-contrast", "T1 PRÉ GADOLINIO", "T1 sans injection de gadolinium",
        "T1 sans produit de contraste", "T1 sans PDC", "T1 sans IV", "T1 avant gado", "T1 avant injection de gado",
        "T1 non injecté", "T1 spontané", "T1 sin civ", "T1 antes de contraste", "T1 antes del gadolinio", "T1 s/ contraste",
        "T1 S/C", "T1 simple", "T1 sin medio de contraste", "T1 senza mezzo di contrasto",
        "T1 senza contrasto", "T1 s.m.d.c.",
        "T1 prima di gadolinio", "T1 basale", "T1 pre mdc", "T1 antes do contraste", "T1 pré contraste", "T1 sem gadolínio",
        "T1 não contrastado", "T1 kein KM", "T1 keine KM-Gabe", "T1 vor KM-Gabe", "T1 vor Kontrastmittel", "T1 ohne Kontrast",
        "T1 KM-frei", "T1_ohne_KM", "T1W_TSE_ohneKM", "t1_mprage_pre_KM", "T1 native", "T1 plain", "T1 KM: keine",
        "T1 contraste: non", "T1 gado aucun", "T1 mdc: nessuno", "T1 contraste: nenhum", "PREOP T1 PRE GAD",
        "T1 POST OP PRE CONTRAST", "T1 POSTOP W/O CONTRAST", "POST FOSSA T1 W/O GAD", "T1 W/O GD FS", "AXT1PRE", "T1pre",
        "t1_pre", "T1W_PRE", "3D_Brain_VIEW_T1_pre", "AX T1 FSE PRE", "T1 w/o contrast postop", "SAG T1 W/OUT CONTRAST",
        "T1 WITH NO CONTRAST", "T1 SE C-", "T1 FS C(-)", "T1 미조영",
        "AX T1 PRE BRAIN", "AX T1 PRE TUMOR", "AX T1 PRE ORBITS RT", "AX T1 W/O BRAIN SURGERY", "T1 PRE GAD POST LEFT CRANI",
        "T1 v KM", "T1 v. KM", "T1_vKM", "t1_tse_tra_v_KM", "T1 KM verweigert", "T1 unverstärkt", "T1 unverstaerkt",
        "T1 previo contraste", "T1 previo a contraste", "T1 PREVIO", "T1 S/CTE", "T1 ausencia de contraste", "T1 avt inj",
        "T1 vierge", "T1 bianca", "T1 in bianco", "T1 diretta", "T1 조영제 사용 안함", "T1 조영제 부작용으로 미투여",
        "T1 contrast refused", "T1 patient declined contrast", "T1 contrast absent", "T1 contrast minus", "T1 contrast zero",
        "T1 minus gad", "T1 zero contrast", "T1 CONTRAST=N", "T1 CONTRAST=0", "T1 Contrast: -", "T1 PREVIOUS TO GAD",
        "T1 ANTE CONTRAST", "AX T1 WOCONTRAST", "AX T1 W/OCON", "AX T1 UNENH", "T1 NCE", "AX T1 PRE1", "T1 Gd neg",
        "T1 Gd 0ml", "T1 KM negativ", "T1 contrast contraindicated",
        "T1 vor Gabe von KM", "T1 GD 주입 전", "T1 Gd 투여 전",
        "T1 zonder contrast", "T1 geen contrast", "T1 voor contrast", "T1 uden kontrast", "T1 utan kontrast", "T1 uten kontrast",
        "T1 før kontrast", "T1 före kontrast", "T1 bez kontrastu", "T1 przed kontrastem", "T1 před kontrastem",
        "T1 без контраста", "T1 kontrastsiz", "T1 kontrastlos", "造影前 T1", "T1 造影なし", "T1 非造影", "T1 平扫", "T1 单纯平扫",
    ),
    Agent.GIVEN: (
        "T1 nachher", "AX T1 W/", "t1_tse_mKM", "T1WI(CE)", "AX T1 POST STEREOTACTIC", "T1-weighted post-contrast",
        "T1 con MC", "T1 IV+", "T1 CE 후", "T1 후", "T1 수술 전 조영증강", "T1 POST OP CONTRAST", "T1 W FS POST GAD",
        "T1 SIN FS CON GADO",
        "T1(+C)", "T1 W/CONTRAST", "T1 WITHCONTRAST", "T1 POST C", "T1 POST C+", "T1 POST-C",
        "t1_tse_cor_KM_fs", "Ax T1 FS+C",
        "T1 3D+C", "+Gad T1", "T1 after iv contrast", "T1 suivant injection", "T1 Post Op Gad", "AX T1 POST", "T1 +C 3D",
        "T1_MPRAGE_POST_GAD", "t1_tse_tra_km", "T1Gd", "t1ce", "MPRAGE+C", "AX T1 C+", "AX T1 POST GAD", "T1 AX SE +C",
        "t1_mprage_sag_p2_iso_KM", "Ax T1 FSE C+", "T1W_3D_TFE_KM", "3D_Brain_VIEW_T1_post", "t1 axial stealth-post",
        "AX T1 3D POST STEALTH", "AX T1 POST STEALTH_TERA", "AX T1 SE C+", "t1_mprage_tra_p2_iso_1.0 POST",
        "AXIAL T1 3D MPRAGE BRAIN POST", "SurgNavSys_AX T1 3D POST STEALTH - T1Post.R", "T1 MPRAGE SAG ISO post gad",
        "AXIAL T1 FLOW COMP POST", "POST AX T1  FS FSE", "COR T1 POST FS", "axial t1post gd", "coronal t1 post gd",
        "cor t1 post gad.", "axial t1 gd", "T1/SAG/SE +C", "BRAIN/T1_TRANS+C", "MP RAGE FS +C", "T1 Gado post op",
        "T1 Gado postop", "T1 3D gado", "Ax 3D T1 Gado", "T1 MPR3D TRA GADO", "HKCL SE T1 tra post KM HawkAI", "T1W_TSE +C",
        "t1_mprage_sag Gd", "T1 KM", "T1+C", "T1 tra +KM", "T1 CE", "T1 contrast", "T1 mit KM", "T1 with contrast",
        "T1 CON GADOLINIO", "3D T1 POS CONTRASTE", "3D T1 PÓS-CONTRASTE", "3D T1 BRAVO GD", "T1 W/ CONTRAST", "T1 W CONTRAST",
        "T1 w/Gd", "T1 W GAD", "T1 nach KM", "T1 nach Kontrastmittelgabe", "T1 nach KM-Gabe", "T1 après injection",
        "T1 apres gado", "T1 avec gado", "T1 injecté", "T1 inj", "T1 avec injection", "T1 con contraste",
        "T1 después de gadolinio", "T1 tras contraste", "T1 contrastada", "T1 c/ contraste", "T1 con mdc", "T1 dopo mdc",
        "T1 dopo gadolinio", "T1 c.m.d.c.", "T1 con mezzo di contrasto", "T1 com contraste", "T1 após gadolínio",
        "T1 depois do contraste", "T1 pós gado", "T1 조영후", "T1 조영 후", "조영증강 T1", "T1 조영증강 후",
        "조영제 주입 후 T1", "T1 CE(+)",
        "T1 조영", "PRE OP T1 +C", "T1 PREOP POST GAD", "T1 POST OP +C", "T1 POSTOP W CONTRAST", "POST FOSSA T1 POST",
        "T1 POST FOSSA POST GAD", "T1 POST RT POST GD", "T1 without FS +C", "T1 POST GD NO FS", "AX T1 POST W/O FS",
        "T1 MULTIHANCE", "T1 Gadovist", "T1 GD-DTPA", "T1 post Gd-DOTA", "AXT1POST", "T1post", "t1_post", "T1c", "t1gd",
        "T1KM", "sT1W_3D_TFE_KM", "WIP T1W_3D_TFE GD SENSE", "T1W_3D_TFE_sag_KM", "eTHRIVE_post", "t1_vibe_fs_tra_KM",
        "t1_space_sag_p2_iso_post", "CET1", "CE-T1", "GD T1", "postgd", "mprageGd", "T1 enhanced", "T1 contrast enhanced",
        "AX T1 FS GAD", "SAG T1 +GD", "T1 + C", "T1+", "T1+ tra", "T1 (+)", "POST CON T1", "T1 POST CONT", "T1 POST IV",
        "T1 post-contrast", "Contrast: yes T1", "AX T1 POST 3D", "AX T1 POST 2D FS", "T1_C", "AX T1 C+ SPAIR",
        "SAG T1 C+ W/O FS", "T1 SE post i.v. KM",
        "AX T1 POST GAD BRAIN LAB", "AX T1 POST BRAIN LAB", "T1 POST 3 MIN", "AX T1 POST TUMOR PROTOCOL", "AX T1 POST ORBITS RT",
        "COR T1 POST PITUITARY FOSSA", "AX T1 POST THIN CRANIAL NERVES", "AX T1 POST HEAD COIL", "AX T1 POST STEALTH PLAN",
        "AX T1 POST DOUBLE DOSE", "AX T1 POST FS SURGERY", "AX T1 POST FOR GAMMA KNIFE", "T1 POST AX SRS", "T1 POST BRAIN PRE OP",
        "T1 POST GAD TUMOR RESECTION", "T1 GAD POST LEFT RESECTION", "T1 v2 POST",
        "T1 n KM", "T1 n. KM", "T1_nKM", "T1 i. v. KM", "T1 i v KM", "T1 GD 0.9mm iso", "t1_mprage_km_0", "T1 CONTRAST=Y",
        "T1 C/CTE", "AX T1 POST1", "T1 Gd 10ml", "T1 CONTRAST: GAD", "T1 조영제 사용", "T1 조영제 투여 후", "T1 PREVIOUS OP +C",
        "T1 met contrast", "T1 na contrast", "T1 med kontrast", "T1 efter kontrast", "T1 etter kontrast", "T1 z kontrastem",
        "T1 po kontraste", "T1 с контрастом", "T1 после контраста", "T1 kontrastlı", "造影後 T1", "T1 增强", "T1 造影あり",
        "T1 GAD MET PROTOCOL",
    ),
    Agent.UNCLEAR: (
        "T1 pre and post", "MRI BRAIN W WO CONTRAST", "W/WO CONTRAST", "T1 W/ & W/O CONTRAST", "W+WO", "MRI BRAIN W AND WO",
        "T1 with and without contrast", "T1 pre/post", "T1 pre-post", "T1 mit und ohne KM", "T1 vor und nach KM",
        "T1 avant et après injection", "sans et avec injection", "T1 con e senza mdc", "T1 sin y con contraste",
        "T1 com e sem contraste", "T1 pre und post KM", "T1 조영 전후", "T1 조영전·후", "T1 +/- C",
        "T1 +/-GAD", "T1 C+/C-", "T1-C",
        "T1 without XYZ", "T1 AV GADO", "T1 NC", "T1 -Gd", "T1 c/s contraste", "T1 조영전/조영후",
        "MRI BRAIN WITHOUT AND WITH CONTRAST", "MRI BRAIN W/ + W/O CONTRAST (EPILEPSY)",
        "MRI BRAIN SEIZURE PROTOCOL W+ W/O CONT", "T1 POST GAD MINUS PRE GAD", "AX T1 POST MINUS PRE", "AX T1 NGAD",
        "T1 previo y tras contraste", "T1 voor en na contrast", "T1 bez i z kontrastem", "T1 uden og med kontrast", "T1 造影前後",
        "T1 до и после контраста",
    ),
    Agent.UNKNOWN: (
        "N/D", "ORAL", "not specified", "not known",
        "t1_mprage_sag_p2_iso", "Sag T1 FLAIR", "3D BRAVO", "t1_mprage_pat2", "T1 postop", "AxT1 post op", "*tfl3d1_16ns",
        "SAG T1 POST FOSSA", "T1 AX PRE OP STEALTH", "T1 posterior fossa", "T1 POST-RT", "T1 post chemo", "T1 post biopsy",
        "T1 post resection", "T1 pre-surgery", "T1 pre-treatment", "T1 PRE RT", "T1 PREOP", "T1 PRE SURGERY",
        "T1 PRE-SURGICAL NAV", "T1 post surgical", "T1 postsurgical", "T1 pre and post op", "T1 prä-op", "T1 vor OP",
        "T1 nach OP", "T1 nach Bestrahlung", "T1 vor Therapie", "T1 post opératoire", "T1 avant chirurgie",
        "T1 postquirurgico", "T1 post cirugia", "T1 pre intervento", "T1 post-operatorio", "T1 pós-operatório",
        "T1 pre cirurgia", "T1 수술 후", "T1 수술전", "T1 POST GAMMA KNIFE", "T1 PRE SRS", "T1 POST TX", "T1 without fat sat",
        "T1 w/o FS", "T1 ohne FS", "MPRAGE w/ GRAPPA", "T1 mit FS", "T1W_3D_TFE", "sT1W_3D_TFE", "csAI_3D_BrainVIEW_T1W",
        "T1W_TSE", "T1_FFE", "t1_fl2d_tra", "t1_vibe_dixon_tra_W", "T1 DIXON_W", "AX T1", "T1 SAG MPRAGE",
        "AX T1 MPRAGE ISOTROPIC", "COR T1 MPR", "AX TI 3D MPRAGE", "T1 MPRAGE AX", "T1 C-SPINE", "T1 tra C5-C7",
        "T1 POST 3 MONTHS", "T1 post 24h", "T1 POST CRANIOTOMY", "T1 FOSSA POST", "T1 fosse post", "T1 fosa posterior",
        "T1 high contrast", "T1 NORM", "T1 con FS", "T1 sin FS", "T1 SS TSE", "T1 S/P RESECTION", "혈관조영 T1", "T1 intraop",
        "T1 baseline", "T1 no angle", "SAG T1 POST TREATMENT", "AX T1 PRE/POST OP", "T1 Z.n. OP", "T1 avant traitement",
        "T1 post RTH", "T1 PRE-BX", "T1 POST CCRT", "WIP T1W_SE SENSE", "AXIAL T1 BRAIN 3D", "FSPGR 3D", "T1 PRE STROKE",
        "DAY 1 POST OP T1", "T1 POST OP DAY 1",
        "AX T1 POST TUMOR RESECTION", "POST BRAIN BIOPSY T1", "T1 POST LEFT CRANI", "AX T1 POST HEAD INJURY", "POST FOSS T1",
        "T1 pos radioterapia", "T1 POST FALL", "T1 POST MVA", "T1 POST MI", "T1 POST DELIVERY", "AX T1 POST RX", "AX T1 PRE-RX",
        "AX T1 PRE TUMOR RESECTION", "AX T1 PRE 2ND SURGERY", "T1 PRE AWAKE CRANI", "AX T1 PRE BRAIN SURGERY",
        "AX T1 POST RIGHT FRONTAL LOBE RESECTION", "T1 POST ENDOVASCULAR TREATMENT", "AX T1 POST 2 BRAIN SURGERIES",
        "T1 PRE SECOND GAMMA KNIFE", "T1 POST WHOLE BRAIN RT", "T1_POST_BRAIN_RT",
        "T1 vor zweiter OP", "T1 apres seconde chirurgie",
        "T1 POST ANEURYSM CLIPPING", "T1 POST VP SHUNT", "T1 POST TRANSSPHENOIDAL SURGERY", "T1 v2",
        "AX T1 PREVIOUS", "T1 PREVIO A CIRUGIA", "T1 voor operatie", "T1 før operation", "T1 przed operacją", "T1 BRAIN MET",
        "T1 血管造影",
        "T1 PRE CORTICAL RESECTION",
    ),
}
FIELDS = {
    Agent.NONE: (
        "None", "NO", "ohne", "keine", "kein KM", "ohne KM", "sans", "aucun", "aucune", "sin",
        "ninguno", "nessuno", "senza", "nenhum",
        "sem contraste", "não", "없음", "조영제 없음", "N", "n/a", "N.A.", "0", "0.0", "0 ml",
        "0 ML GADAVIST", "GADOVIST 0.0 ml", "-", "--",
        "No contrast", "No Contrast Agent", "W/O CONTRAST", "NONE GIVEN", "not given", "nil", "NULL", "Unenhanced", "pre",
        "Saline", "NaCl", "NaCl 0.9%", "Gadavist 0", "Patient declined contrast",
    ),
    Agent.GIVEN: (
        "OMNISCAN", "12ML MULTIHANCE", "OMNISCAN 3.0 + 12.0", "OMNI 15 ML", "DOTAREM 0.5 mmol/ml",
        "Gadovist 1,0 mmol/ml", "Gadavist 1.0 ML",
        "10.0 ml Dotarem 0.5mmol", "Gadoteric acid", "Gd", "Y", "Yes", "CONTRAST", "IV", "조영제", "coded", "10 ml",
    ),
    Agent.UNKNOWN: ("", " ", "?", "unknown", "UNBEKANNT", "X", "."),
}
# fmt: on


@pytest.mark.parametrize(("name", "agent"), [(name, agent) for agent, names in NAMES.items() for name in names])
def test_a_name_says_whether_an_agent_was_given(name: str, agent: Agent) -> None:
    assert contrast_agent.named(name) is agent
    assert contrast_agent.named(name.upper()) is agent


@pytest.mark.parametrize("encoding", ["utf-8", "cp949"])
def test_korean_of_a_header_that_does_not_declare_its_characters_is_read(encoding: str) -> None:
    for name, agent in (("T1 조영전", Agent.NONE), ("T1 조영후", Agent.GIVEN)):
        assert contrast_agent.named(name.encode(encoding).decode("latin-1")) is agent
    assert contrast_agent.named("T1 \ufffd\ufffd\ufffd") is Agent.UNCLEAR


@pytest.mark.parametrize(("value", "agent"), [(value, agent) for agent, values in FIELDS.items() for value in values])
def test_the_agent_s_field_may_say_that_there_was_none(value: str, agent: Agent) -> None:
    assert contrast_agent.in_field(value) is agent


ABSENT = (
    "without",
    "w/o",
    "wo",
    "no",
    "non",
    "before",
    "pre",
    "ohne",
    "kein",
    "vor",
    "sans",
    "avant",
    "sin",
    "antes de",
    "senza",
    "prima di",
    "sem",
)
PRESENT = ("with", "w/", "after", "post", "mit", "nach", "avec", "après", "con", "tras", "dopo", "com", "após")
NOUNS = (
    "contrast",
    "gad",
    "Gd",
    "gadolinium",
    "IV contrast",
    "KM",
    "Kontrastmittel",
    "gado",
    "injection",
    "contraste",
    "mdc",
    "contrasto",
)


@pytest.mark.parametrize("noun", NOUNS)
@pytest.mark.parametrize(
    "frame", ["AX T1 {}", "{} t1_mprage_sag_p2_iso", "T1 POST OP {}", "T1W_3D_TFE {} FS", "SAG T1 PREOP {} STEALTH"]
)
def test_what_governs_the_agent_decides_wherever_it_stands(noun: str, frame: str) -> None:
    for words, agent in ((ABSENT, Agent.NONE), (PRESENT, Agent.GIVEN)):
        wrong = [word for word in words if contrast_agent.named(frame.format(f"{word} {noun}")) is not agent]
        assert wrong == []
        underscored = [frame.format(f"{word} {noun}").replace(" ", "_") for word in words]
        assert [name for name in underscored if contrast_agent.named(name) is not agent] == []


EVENTS = (
    "op",
    "surgery",
    "RT",
    "chemo",
    "biopsy",
    "resection",
    "treatment",
    "therapy",
    "SRS",
    *("craniotomy", "lobectomy", "radiation", "GKRS", "embolization", "stent", "seizure", "injury", "evacuation"),
    "OP",
    "Bestrahlung",
    "chirurgie",
    "cirugía",
)


@pytest.mark.parametrize("event", EVENTS)
def test_before_and_after_anything_else_says_nothing_of_an_agent(event: str) -> None:
    names = [
        f"AX T1 {word}{sign}{event}" for word in ("pre", "post", "vor", "nach", "avant", "after") for sign in (" ", "-", "_")
    ]
    assert [name for name in names if contrast_agent.named(name) is not Agent.UNKNOWN] == []


def test_names_of_scans_that_every_table_may_have_agree_with_the_words() -> None:
    said = {spelling: contrast_agent.named(spelling) for spelling, ours in OURS.items() if ours in ("t1", "t1ce")}
    assert [spelling for spelling, agent in said.items() if OURS[spelling] == "t1" and agent is Agent.GIVEN] == []
    unsaid = [spelling for spelling, agent in said.items() if OURS[spelling] == "t1ce" and agent is not Agent.GIVEN]
    assert unsaid == ["ct1"]  # clear as the whole name of a file; among other words it may be a corrected T1

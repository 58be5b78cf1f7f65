"""Recognise: what a header says goes in; which channel the series is, and why, come out.

Rules are asked in the order in which they stand, words before times. No rule guesses: a series that none covers is listed as
unrecognised. Reasons are our own words and numbers, and quote no text of a header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from mri_vit.importers import contrast_agent
from mri_vit.importers.contrast_agent import Agent
from mri_vit.importers.dicom.header import Tags

# Times by which a weighting is known, ms. MS-SMART is the table of nine scanners' protocols in BMJ Open 2018, 8:e021944, table 4.
SHORT_ECHO_MS = 30  # IMAIOS e-MRI, "Signal weighting": a short TE is usually lower than 30 ms
LONG_ECHO_MS = 80  # MS-SMART: T2 with a TE of 85 ms and more, FLAIR of 100 ms and more
SHORT_REPETITION_MS = 1000  # MS-SMART: T1 spin echo with a TR of 518 to 700 ms; about the T1 of brain at 1.5 T is short (IMAIOS)
LONG_REPETITION_MS = 1500  # IMAIOS e-MRI: a long TR is usually greater than 1500 ms
FAST_REPETITION_MS = 15  # MS-SMART: spoiled 3D gradient echo with a TR of 6.9 to 13 ms
T1_INVERSION_MS = (400, 1100)  # MS-SMART: 450 to 1000 ms
FLAIR_INVERSION_MS = (1400, 3000)  # from Hyperfine's 64 mT FLAIR (MS-SMART: 2200 to 2400) to CSF's null, 4.3 s x ln 2

# T1 as a word, or behind the plane as in AxT1, or a letter of Philips' as in sT1W_3D_TFE (survey) and csT1W (compressed sense).
_HEAD = r"(?<![a-z0-9])(?:axial|ax|sagittal|sag|coronal|cor|tra|3d|2d|w|s|cs|e|wip)?"
T1_WORD = re.compile(_HEAD + r"t1(?!\d)|(?:gd|ce|km|gado|pre|post)t1|sst1|mp ?rage|bravo|fspgr|spgr|tfl3d")
T2_WORD = re.compile(_HEAD + r"t2(?!\d)")
FLAIR_WORD = re.compile(r"flair|dark ?fluid|spcir|\bda ?fl\b")  # *spcir is Siemens' 3D SPACE with inversion
STAR_WORD = re.compile(r"t2 ?\*|t2 ?star|\bt2w? (?:ax|tra|sag|cor)? ?(?:gre|ffe|fl2d|me2d)\b|\bgre\b.*hem|hemo\b")
DENSITY_WORD = re.compile(r"\bpd(?!\w)|\bpdt2|proton ?density")
FAT_WORD = re.compile(r"\bfs\b|fat ?s|fatsat|\bspair|\bspir\b|dixon|\bideal\b|\bwater\b|\bwe\b")  # of suppressed fat

# What is none of the channels, by a word, in words.
OTHER_WORDS = {
    "a localizer": re.compile(r"localizer|localiser|\bscout|survey|\bloc\b|3 ?plane"),
    "a calibration": re.compile(r"calibration|\bcal\b|asset|shim|field ?map|\bref(?:erence)? scan"),
    "a projection or subtraction": re.compile(r"\bm?mip\b|\bminip\b|subtract|\bsub\b"),
    "perfusion": re.compile(r"perf|\bdsc\b|\bdce\b|\bpwi\b|\br?cb[vf]\b|\bttp\b|\bmtt\b|k ?trans"),
    "functional": re.compile(r"\bbold\b|fmri|resting"),
    "angiography": re.compile(r"angio|혈관 ?조영|\btof\b|\bmr[av]\b|phase ?contrast"),
    "spectroscopy": re.compile(r"spectro|\bcsi\b|\bsvs\b|\bmrs\b"),
    "diffusion": re.compile(r"\bdwi\b|\bdti\b|diff|\btrace\b|\bb ?1000|tensor|\bfa\b|colfa|\bexp(?:onential)? ?adc"),
    "T2*-weighted": STAR_WORD,
    "a STIR": re.compile(r"stir\b"),
    "a map": re.compile(r"\bt[12] ?map|quantitative"),
}
OTHER_TYPES = {
    "LOCALIZER": "a localizer",
    "PROJECTION IMAGE": "a projection or subtraction",
    "SUBTRACTION": "a projection or subtraction",
    "MNIP": "a projection or subtraction",
    "P": "an image of phase",
    "PHASE": "an image of phase",
    "PHASE MAP": "an image of phase",
    "R": "a real or imaginary part",
    "I": "a real or imaginary part",
    "REAL": "a real or imaginary part",
    "IMAGINARY": "a real or imaginary part",
}
EXTRA_WORDS = {
    "adc": re.compile(r"\badc\b|apparent diff"),
    "swi": re.compile(r"\bswi\b|\bswan\b|venobold|suscept"),
    "asl": re.compile(r"\bp?c?asl\b|spin label"),
}
CODED = {"T1": "t1", "T2": "t2", "FLUID_ATTENUATED": "flair"}  # AcquisitionContrast, DICOM PS3.3 C.8.13.3.1.4
CODED_OTHER = {
    "DIFFUSION": "diffusion",
    "PERFUSION": "perfusion",
    "PROTON_DENSITY": "proton density",
    "T2_STAR": "T2*-weighted",
    "FLOW_ENCODED": "angiography",
    "STIR": "a STIR",
    "TAGGING": "a tagged image",
}


class AgentBy(Enum):
    """How T1 and T1ce are told apart."""

    NAME = "by its name"
    FIELD = "by the agent's field"
    VOXELS = "by its voxels"
    NOTHING = "no name and no field says whether a contrast agent was given"
    UNCLEAR = "its name speaks of both, with and without contrast agent"


@dataclass(frozen=True)
class Guess:
    """What a series is taken for.

    `channel` is None for what no cohort has a column for (`known` says whether a rule named it) and for what no rule covers.
    `agent_by` says how a T1 was told from a T1ce; None of any other.
    """

    channel: str | None
    known: bool
    reason: str
    agent_by: AgentBy | None = None

    @property
    def agent_unsaid(self) -> bool:
        """Whether neither names nor fields tell a T1 from a T1ce."""
        return self.agent_by in (AgentBy.NOTHING, AgentBy.UNCLEAR)


def channel(tags: Tags) -> Guess:
    """Which channel the tags speak for."""
    for rule in (_other, _by_words, _by_code, _by_times):
        if guess := rule(tags):
            return _with_agent(tags, guess) if guess.channel == "t1" else guess
    return Guess(None, False, f"no rule covers {_times(tags)}, and neither name nor fields say what it is")


def _words(tags: Tags) -> str:
    """The names in lower case, with signs between words taken out."""
    return " ".join(re.sub(r"[_\-.,:;()\[\]\\]", " ", tags.words.lower()).split())


def _other(tags: Tags) -> Guess | None:
    """Extras and what is no structural scan; ADC maps and ASL come with words of diffusion and perfusion."""
    words = _words(tags)
    kinds = {part.upper() for part in tags.image_type}
    for part in sorted(kinds & OTHER_TYPES.keys()):
        return Guess(None, True, f"{OTHER_TYPES[part]}, by its image type")
    if "ADC" in kinds:
        return Guess("adc", True, "an ADC map, by its image type")
    if kinds & {"DIFFUSION", "TRACEW", "FA"}:
        return Guess(None, True, "diffusion, by its image type")
    for what in ("a localizer", "a calibration", "a projection or subtraction"):
        if OTHER_WORDS[what].search(words):
            return Guess(None, True, f"{what}, by its name")
    for name, pattern in EXTRA_WORDS.items():
        if pattern.search(words):
            return Guess(name, True, f"{name.upper()}, by its name")
    for what, pattern in OTHER_WORDS.items():
        if pattern.search(words):
            return Guess(None, True, f"{what}, by its name")
    return None


def _by_words(tags: Tags) -> Guess | None:
    words = _words(tags)
    t1, t2, flair = (bool(pattern.search(words)) for pattern in (T1_WORD, T2_WORD, FLAIR_WORD))
    if DENSITY_WORD.search(words):  # PD and T2 are often the two echoes of one series, whose times tell them apart
        return None if t2 else Guess(None, True, "proton density, by its name")
    if flair and t1 and not t2:
        return Guess("t1", True, "T1-weighted with nulled fluid (a T1 FLAIR), by its name")
    if flair:
        return Guess("flair", True, "FLAIR, by its name")
    if t1 and not t2:
        return Guess("t1", True, "T1-weighted, by its name")
    if t2 and not t1:
        if "IR" in tags.sequence and FLAIR_INVERSION_MS[0] <= tags.inversion_ms <= FLAIR_INVERSION_MS[1]:
            return Guess("flair", True, f"FLAIR: T2-weighted by its name, with fluid nulled by TI {tags.inversion_ms:g} ms")
        return Guess("t2", True, "T2-weighted, by its name")
    return None


def _by_code(tags: Tags) -> Guess | None:
    """The field in which an enhanced file codes its weighting."""
    code = tags.contrast.upper()
    if code in CODED:
        return Guess(CODED[code], True, f"{CODED[code].upper()}, by AcquisitionContrast {code}")
    if code in CODED_OTHER:
        return Guess(None, True, f"{CODED_OTHER[code]}, by AcquisitionContrast {code}")
    return None


def _by_times(tags: Tags) -> Guess | None:
    """TE, TR and TI where all else is silent; a comparison with an unknown time (NaN) is false."""
    echo, repetition, inversion = tags.echo_ms, tags.repetition_ms, tags.inversion_ms
    inverted = inversion > 0
    said = f"by {_times(tags)}"
    if "EP" in tags.sequence:
        return Guess(None, True, "echo-planar, which no structural scan is")
    if inverted and FLAIR_INVERSION_MS[0] <= inversion <= FLAIR_INVERSION_MS[1] and echo >= LONG_ECHO_MS:
        return Guess("flair", True, f"FLAIR, {said}")
    if inverted and T1_INVERSION_MS[0] <= inversion <= T1_INVERSION_MS[1] and echo <= SHORT_ECHO_MS:
        return Guess("t1", True, f"T1-weighted with inversion, {said}")
    if inverted:
        return None
    if repetition <= FAST_REPETITION_MS and echo < repetition:
        if tags.variant and not {"SP", "MP"} & set(tags.variant):
            return None  # a balanced gradient echo, whose contrast is T2 by T1
        return Guess("t1", True, f"T1-weighted gradient echo, {said}")
    if "GR" in tags.sequence:
        return None  # its weighting depends on the flip angle
    if repetition <= SHORT_REPETITION_MS and echo <= SHORT_ECHO_MS:
        return Guess("t1", True, f"T1-weighted spin echo, {said}")
    if repetition >= LONG_REPETITION_MS and echo >= LONG_ECHO_MS:
        return Guess("t2", True, f"T2-weighted spin echo, {said}")
    return None


def _with_agent(tags: Tags, guess: Guess) -> Guess:
    """T1 or T1ce: the series' own name is asked first, then its protocol's, last the agent's field.

    A protocol that names no sequence is the examination's ("BRAIN TUMOR W CONTRAST"), and says nothing of a series. The field is
    often filled for all series of an examination, also for those before the agent: where a name says both, it settles nothing.
    """
    description, protocol, *_ = [*tags.words.split("\n"), ""]
    verdict = contrast_agent.named(description)
    if verdict is Agent.UNSAID and T1_WORD.search(_words(replace(tags, words=protocol))):
        verdict = contrast_agent.named(protocol)
    by = AgentBy.NAME
    if verdict is Agent.UNSAID:
        verdict, by = contrast_agent.in_field(tags.agent), AgentBy.FIELD
    if verdict is Agent.GIVEN:
        return Guess("t1ce", True, f"{guess.reason}; after contrast agent, {by.value}", by)
    if verdict is Agent.NONE:
        return Guess("t1", True, f"{guess.reason}; before or without contrast agent, {by.value}", by)
    by = AgentBy.UNCLEAR if verdict is Agent.UNCLEAR else AgentBy.NOTHING
    return Guess("t1", True, f"{guess.reason}; {by.value}", by)


def fat_suppressed(tags: Tags) -> bool:
    """Whether a name or the scan's options say that fat is suppressed, which changes a scan as much as an agent does."""
    return "FS" in tags.options or bool(FAT_WORD.search(_words(tags)))


def _times(tags: Tags) -> str:
    times = {"TE": tags.echo_ms, "TR": tags.repetition_ms, "TI": tags.inversion_ms}
    known = [f"{name} {ms:g}" for name, ms in times.items() if ms == ms]
    return f"{', '.join(known)} ms" if known else "a header without TE, TR and TI"

"""Channel: series of one visit go in; the channel of each, the one that is taken, and why, come out.

Rules apply in the order in which they stand, words before times. No rule guesses: a series that none covers is listed as
unrecognised. Reasons are our own words and numbers, and quote no text of a header. Where neither names nor fields separate T1
from T1ce, voxels may: an agent brightens small regions deep in the head, and none the other way. Sequences and coils differ, so
that neither brightness nor its spread is evidence: the brightest 0.5 % of the head (fat) stand out more in the T1 than in the
T1ce of a real patient.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache

import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage

from mri_vit.data.volume import Volume
from mri_vit.importers import contrast_agent
from mri_vit.importers.contrast_agent import Agent
from mri_vit.importers.dicom.header import Tags
from mri_vit.importers.dicom.series import Series, ordered_slices, places_mm, slice_normal

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

# Series of other kinds than the channels, and the words by which they are known.
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
    **dict.fromkeys(("PROJECTION IMAGE", "SUBTRACTION", "MNIP"), "a projection or subtraction"),
    **dict.fromkeys(("P", "PHASE", "PHASE MAP"), "an image of phase"),
    **dict.fromkeys(("R", "I", "REAL", "IMAGINARY"), "a real or imaginary part"),
}
EXTRA_WORDS = {
    "adc": re.compile(r"\badc\b|apparent diff"),
    "swi": re.compile(r"\bswi\b|\bswan\b|venobold|suscept"),
    "asl": re.compile(r"\bp?c?asl\b|spin label"),
}
CODED = {"T1": "t1", "T2": "t2", "FLUID_ATTENUATED": "flair"}  # AcquisitionContrast, DICOM PS3.3 C.8.13.3.1.4
CODED_OTHER = {
    **{"DIFFUSION": "diffusion", "PERFUSION": "perfusion", "PROTON_DENSITY": "proton density", "T2_STAR": "T2*-weighted"},
    **{"FLOW_ENCODED": "angiography", "STIR": "a STIR", "TAGGING": "a tagged image"},
}


class AgentBy(Enum):
    """The evidence that separates T1 from T1ce."""

    NAME = "by its name"
    FIELD = "by the agent's field"
    VOXELS = "by its voxels"
    NOTHING = "neither name nor field shows whether a contrast agent was given"
    UNCLEAR = "its name contains both, with and without contrast agent"


@dataclass(frozen=True)
class ChannelGuess:
    """As what a series is recognised.

    `channel` is None for kinds that no cohort has a column for, and where no rule applies; `known` is whether a rule applied.
    `agent_by` is the evidence that separates a T1 from a T1ce; None for any other.
    """

    channel: str | None
    known: bool
    reason: str
    agent_by: AgentBy | None = None

    @property
    def agent_unknown(self) -> bool:
        """Whether neither names nor fields separate T1 from T1ce."""
        return self.agent_by in (AgentBy.NOTHING, AgentBy.UNCLEAR)


def recognise_channel(tags: Tags) -> ChannelGuess:
    """The channel by a series' tags."""
    for rule in (_other, _by_words, _by_code, _by_times):
        if guess := rule(tags):
            return _with_agent(tags, guess) if guess.channel == "t1" else guess
    return ChannelGuess(None, False, f"no rule covers {_times(tags)}, and neither name nor fields identify it")


def _words(tags: Tags) -> str:
    """The names in lower case, with signs between words taken out."""
    return " ".join(re.sub(r"[_\-.,:;()\[\]\\]", " ", tags.words.lower()).split())


def _other(tags: Tags) -> ChannelGuess | None:
    """Extras and series that are no structural scan; ADC maps and ASL come with words of diffusion and perfusion."""
    words = _words(tags)
    kinds = {part.upper() for part in tags.image_type}
    for part in sorted(kinds & OTHER_TYPES.keys()):
        return ChannelGuess(None, True, f"{OTHER_TYPES[part]}, by its image type")
    if "ADC" in kinds:
        return ChannelGuess("adc", True, "an ADC map, by its image type")
    if kinds & {"DIFFUSION", "TRACEW", "FA"}:
        return ChannelGuess(None, True, "diffusion, by its image type")
    for what in ("a localizer", "a calibration", "a projection or subtraction"):
        if OTHER_WORDS[what].search(words):
            return ChannelGuess(None, True, f"{what}, by its name")
    for name, pattern in EXTRA_WORDS.items():
        if pattern.search(words):
            return ChannelGuess(name, True, f"{name.upper()}, by its name")
    for what, pattern in OTHER_WORDS.items():
        if pattern.search(words):
            return ChannelGuess(None, True, f"{what}, by its name")
    return None


def _by_words(tags: Tags) -> ChannelGuess | None:
    words = _words(tags)
    t1, t2, flair = (bool(pattern.search(words)) for pattern in (T1_WORD, T2_WORD, FLAIR_WORD))
    if DENSITY_WORD.search(words):  # PD and T2 are often the two echoes of one series, whose times tell them apart
        return None if t2 else ChannelGuess(None, True, "proton density, by its name")
    if flair and t1 and not t2:
        return ChannelGuess("t1", True, "T1-weighted with nulled fluid (a T1 FLAIR), by its name")
    if flair:
        return ChannelGuess("flair", True, "FLAIR, by its name")
    if t1 and not t2:
        return ChannelGuess("t1", True, "T1-weighted, by its name")
    if t2 and not t1:
        if "IR" in tags.sequence and FLAIR_INVERSION_MS[0] <= tags.inversion_ms <= FLAIR_INVERSION_MS[1]:
            return ChannelGuess(
                "flair", True, f"FLAIR: T2-weighted by its name, with fluid nulled by TI {tags.inversion_ms:g} ms"
            )
        return ChannelGuess("t2", True, "T2-weighted, by its name")
    return None


def _by_code(tags: Tags) -> ChannelGuess | None:
    """The field in which an enhanced file codes its weighting."""
    code = tags.contrast.upper()
    if code in CODED:
        return ChannelGuess(CODED[code], True, f"{CODED[code].upper()}, by AcquisitionContrast {code}")
    if code in CODED_OTHER:
        return ChannelGuess(None, True, f"{CODED_OTHER[code]}, by AcquisitionContrast {code}")
    return None


def _by_times(tags: Tags) -> ChannelGuess | None:
    """TE, TR and TI where there is no other evidence; a comparison with an unknown time (NaN) is false."""
    echo, repetition, inversion = tags.echo_ms, tags.repetition_ms, tags.inversion_ms
    inverted = inversion > 0
    by_times = f"by {_times(tags)}"
    if "EP" in tags.sequence:
        return ChannelGuess(None, True, "echo-planar, which no structural scan is")
    if inverted and FLAIR_INVERSION_MS[0] <= inversion <= FLAIR_INVERSION_MS[1] and echo >= LONG_ECHO_MS:
        return ChannelGuess("flair", True, f"FLAIR, {by_times}")
    if inverted and T1_INVERSION_MS[0] <= inversion <= T1_INVERSION_MS[1] and echo <= SHORT_ECHO_MS:
        return ChannelGuess("t1", True, f"T1-weighted with inversion, {by_times}")
    if inverted:
        return None
    if repetition <= FAST_REPETITION_MS and echo < repetition:
        if tags.variant and not {"SP", "MP"} & set(tags.variant):
            return None  # a balanced gradient echo, whose contrast is T2 by T1
        return ChannelGuess("t1", True, f"T1-weighted gradient echo, {by_times}")
    if "GR" in tags.sequence:
        return None  # its weighting depends on the flip angle
    if repetition <= SHORT_REPETITION_MS and echo <= SHORT_ECHO_MS:
        return ChannelGuess("t1", True, f"T1-weighted spin echo, {by_times}")
    if repetition >= LONG_REPETITION_MS and echo >= LONG_ECHO_MS:
        return ChannelGuess("t2", True, f"T2-weighted spin echo, {by_times}")
    return None


def _with_agent(tags: Tags, guess: ChannelGuess) -> ChannelGuess:
    """T1 or T1ce: by the series' own name, then by its protocol's, last by the agent's field.

    A protocol that names no sequence is the examination's ("BRAIN TUMOR W CONTRAST") and does not describe a series. The field is
    often filled for all series of an examination, also for those before the agent: a contradictory name is not settled by it.
    """
    description, protocol, *_ = [*tags.words.split("\n"), ""]
    verdict = contrast_agent.named(description)
    if verdict is Agent.UNKNOWN and T1_WORD.search(_words(replace(tags, words=protocol))):
        verdict = contrast_agent.named(protocol)
    by = AgentBy.NAME
    if verdict is Agent.UNKNOWN:
        verdict, by = contrast_agent.in_field(tags.agent), AgentBy.FIELD
    if verdict is Agent.GIVEN:
        return ChannelGuess("t1ce", True, f"{guess.reason}; after contrast agent, {by.value}", by)
    if verdict is Agent.NONE:
        return ChannelGuess("t1", True, f"{guess.reason}; before or without contrast agent, {by.value}", by)
    by = AgentBy.UNCLEAR if verdict is Agent.UNCLEAR else AgentBy.NOTHING
    return ChannelGuess("t1", True, f"{guess.reason}; {by.value}", by)


def fat_suppressed(tags: Tags) -> bool:
    """Whether fat is suppressed, by name or the scan's options; this changes a scan as much as an agent does."""
    return "FS" in tags.options or bool(FAT_WORD.search(_words(tags)))


def _times(tags: Tags) -> str:
    times = {"TE": tags.echo_ms, "TR": tags.repetition_ms, "TI": tags.inversion_ms}
    known = [f"{name} {ms:g}" for name, ms in times.items() if ms == ms]
    return f"{', '.join(known)} ms" if known else "a header without TE, TR and TI"


STEP_MM = 3.0  # of the grid of the comparison: evens out noise and a head that moved by a voxel, and keeps a rim that enhances
THICKEST_MM = 3.0  # in thicker slices a move of 1 mm and another contrast look like an agent (T1 of two patients against itself)
DEPTH_MM = 15.0  # below the surface of the head, past scalp, skull and meninges, and past the cortex of a stripped brain
SMOOTH_MM = 15.0  # standard deviation: a coil's shading is smoother, an enhancing tumour's rim is not
HEAD_FRACTION = 0.1  # of the 99th percentile: above it a voxel is head and not air
BRIGHT = 1.15  # times the median: an agent brightens above normal tissue; fluid and necrosis, which lie below, are left aside
LOG_GAIN = 0.25  # of the natural logarithm, 28 %: noise of 5 % stays below it everywhere
LEVELS = 40  # of brightness, at which what the other scan explains is the median
MIN_GAIN_ML = 1.0  # seven BraTS patients have 1.1 to 6.1 ml, and at most 0.1 ml the other way
MIN_GAIN_RATIO = 10.0  # more than the other way; two patients with slices of 5 mm have 1.4 and 6


def shows_agent(scan: Volume, other: Volume) -> bool:
    """Whether a scan clearly shows an agent that the other does not show; False in both orders where voxels are inconclusive."""
    if max(_spacing_mm(scan).max(), _spacing_mm(other).max()) > THICKEST_MM + 0.01:
        return False
    gain_ml, loss_ml = gains_ml(other, scan)
    return gain_ml >= MIN_GAIN_ML and gain_ml >= MIN_GAIN_RATIO * loss_ml


def gains_ml(before: Volume, after: Volume) -> tuple[float, float]:
    """Volumes that are brighter in `after` than `before` explains, and the other way; both lie where their affines say.

    A voxel counts if it is brighter than normal tissue, if the ratio of both scans is higher there than around it, and if it is
    brighter than others with the same value in the other scan, which removes a different weighting of grey and white matter.
    """
    spacing_mm, grid = _spacing_mm(before), before.affine.copy()  # a grid of STEP_MM over the scan's box
    grid[:3, :3] *= STEP_MM / spacing_mm
    shape = tuple(int(n) for n in np.maximum(1, np.array(before.shape) * spacing_mm / STEP_MM))
    first, second = _on_grid(before, grid, shape), _on_grid(after, grid, shape)
    head = (first > HEAD_FRACTION * np.percentile(first, 99)) & (second > HEAD_FRACTION * np.percentile(second, 99))
    head = np.pad(np.asarray(ndimage.binary_fill_holes(head)), 1)  # the border of the box is surface as well
    first, second = np.pad(first, 1), np.pad(second, 1)
    inner = np.asarray(ndimage.distance_transform_edt(head)) * STEP_MM > DEPTH_MM
    if inner.sum() < LEVELS**2:
        return 0.0, 0.0
    first, second = (np.maximum(scan / np.median(scan[inner]), HEAD_FRACTION / 2) for scan in (first, second))
    ratio = _less_smooth(np.log(second / first), head)
    ml = STEP_MM**3 / 1000
    gain = (_unexplained(first, second, inner) > LOG_GAIN) & (ratio > LOG_GAIN) & (second > BRIGHT) & inner
    loss = (_unexplained(second, first, inner) > LOG_GAIN) & (ratio < -LOG_GAIN) & (first > BRIGHT) & inner
    return float(gain.sum() * ml), float(loss.sum() * ml)


def _unexplained(
    by: Float[np.ndarray, "x y z"], scan: Float[np.ndarray, "x y z"], inner: Bool[np.ndarray, "x y z"]
) -> np.ndarray:
    """Logarithm of a scan over its median at each level of another, less its smooth part; 0 outside."""
    levels = np.array_split(np.argsort(by[inner], kind="stable"), LEVELS)
    centres = [np.median(by[inner][level]) for level in levels]
    expected = np.interp(by[inner], centres, [np.median(scan[inner][level]) for level in levels])
    logarithm = np.zeros(scan.shape)
    logarithm[inner] = np.log(scan[inner] / expected)
    return _less_smooth(logarithm, inner)


def _less_smooth(values: Float[np.ndarray, "x y z"], where: Bool[np.ndarray, "x y z"]) -> Float[np.ndarray, "x y z"]:
    weight = np.maximum(ndimage.gaussian_filter(where.astype(float), SMOOTH_MM / STEP_MM), 1e-3)
    smooth = ndimage.gaussian_filter(np.where(where, values, 0.0), SMOOTH_MM / STEP_MM) / weight
    return np.where(where, values - smooth, 0.0)


def _spacing_mm(scan: Volume) -> np.ndarray:
    return np.linalg.norm(scan.affine[:3, :3], axis=0)


def _on_grid(scan: Volume, affine: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A scan without detail below a step, sampled on a grid; 0 outside."""
    to_voxels = np.linalg.inv(scan.affine) @ affine
    even = ndimage.gaussian_filter(np.asarray(scan.array, dtype=np.float32), STEP_MM / 2 / _spacing_mm(scan))
    offset = to_voxels[:3, 3].tolist()
    return ndimage.affine_transform(even, to_voxels[:3, :3], offset, output_shape=shape, order=1).astype(float)


WHOLE_BRAIN_MM = 100  # along the slices; an adult's brain is some 130 mm long in its shortest direction
AXIAL = 0.8  # cosine of the slices' normal with the body's axis: within 37 degrees, nearer to it than to any other


@dataclass(frozen=True)
class Candidate:
    """A series that passed the checks, and its channel."""

    name: str  # the series' hash
    series: Series
    guess: ChannelGuess


def ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best first: whole head, recognised by name, original, 3D or axial, finest voxels, most slices, latest."""
    return sorted(candidates, key=lambda candidate: ([-value for value in _merits(candidate).values()], candidate.series.name))


def why_not(candidate: Candidate, chosen: Candidate) -> str:
    """The first merit by which the chosen one comes before a candidate."""
    own, best = _merits(candidate), _merits(chosen)
    for merit, value in own.items():
        if value != best[merit]:
            sizes = f": {abs(best[merit]):g} against {abs(value):g}" if merit in ("finer voxels (mm)", "more slices") else ""
            return f"another was chosen for {merit}{sizes}"
    return "another was chosen, of equal merit, by the order of their UIDs"


def series_summary(series: Series) -> str:
    """Slices, voxels and plane of a series, in words."""
    slices = ordered_slices(series.images)
    rows, columns = slices[0].spacing_mm
    kind = "3D" if series.tags.is_3d else "2D"
    return f"{len(slices)} slices, {columns:.2f} x {rows:.2f} x {_step_mm(series):.2f} mm, {_plane(series)}, {kind}"


def open_t1(t1s: Sequence[Candidate]) -> list[Candidate]:
    """The T1-weighted series of a visit for which names and fields leave open whether they are T1 or T1ce.

    A series without such evidence is the T1 where another is the T1ce, and where it is the only one that was acquired; others
    are reformatted from it. A field that is filled for all of several series, without names, separates none of them.
    """
    evidence = {t1.guess.agent_by for t1 in t1s}
    has_t1ce = any(t1.guess.channel == "t1ce" for t1 in t1s)
    derived = [t1 for t1 in t1s if "DERIVED" in t1.series.tags.image_type]
    several = len(t1s) > 1 and len(t1s) - len(derived) != 1
    if several and evidence == {AgentBy.FIELD} and all(t1.guess.channel == "t1ce" for t1 in t1s):
        return list(t1s)
    decided = not all(t1.guess.agent_unknown for t1 in t1s)
    unnamed = [] if has_t1ce or not several else [t1 for t1 in t1s if not (decided and t1 in derived)]
    return [t1 for t1 in t1s if t1.guess.agent_by is AgentBy.UNCLEAR or (t1.guess.agent_by is AgentBy.NOTHING and t1 in unnamed)]


def by_content(t1s: Sequence[Candidate], scans: Mapping[str, Volume]) -> list[Candidate]:
    """A visit's T1-weighted series with the evidence of voxels: T1ce enhances against another and none against it, T1 inversely.

    Series that names or choices decide stay as they are. Scans of which one has suppressed fat are not compared.
    """
    enhances = cache(lambda name, other: shows_agent(scans[name], scans[other]))
    decided = []
    for t1 in t1s:
        others = [
            other for other in t1s if other is not t1 and fat_suppressed(t1.series.tags) == fat_suppressed(other.series.tags)
        ]
        above = any(enhances(t1.name, other.name) for other in others)
        below = any(enhances(other.name, t1.name) for other in others)
        channel = "t1ce" if above else "t1"
        if t1.guess.agent_by in (AgentBy.NAME, None) or above == below or (t1.guess.agent_by is AgentBy.FIELD and above):
            decided.append(t1)
        else:
            why = f"taken for {channel} by its voxels: {'it' if above else 'another of the visit'} enhances against the other"
            decided.append(replace(t1, guess=ChannelGuess(channel, True, f"{t1.guess.reason}; {why}", AgentBy.VOXELS)))
    return decided


def by_default(t1: Candidate, t1s: Sequence[Candidate]) -> Candidate:
    """A series without any evidence of an agent, with the reason why it counts as T1; any other as it is."""
    if t1.guess.agent_by is not AgentBy.NOTHING:
        return t1
    with_agent = any(other.guess.channel == "t1ce" for other in t1s)
    why = "another of the visit is the T1ce" if with_agent else "it is the only T1-weighted series that was acquired in the visit"
    return replace(t1, guess=replace(t1.guess, reason=f"{t1.guess.reason}; it counts as T1, as {why}"))


def _merits(candidate: Candidate) -> dict[str, float]:
    """By merit, in the order in which they count; more is better."""
    series = candidate.series
    slices = ordered_slices(series.images)
    step_mm = _step_mm(series)
    return {
        "covering the head": float(step_mm * len(slices) >= WHOLE_BRAIN_MM),
        "a name that shows whether an agent was given": float(candidate.guess.agent_by is AgentBy.NAME),
        "being original": float("DERIVED" not in series.tags.image_type),
        "being 3D": float(series.tags.is_3d),
        "being axial": float(series.tags.is_3d or _plane(series) == "axial"),
        "finer voxels (mm)": -round(max(*slices[0].spacing_mm, step_mm), 2),
        "more slices": float(len(slices)),
        "being later": float(series.tags.number),
        "being taken later": series.taken_s if math.isfinite(series.taken_s) else 0.0,
    }


def _step_mm(series: Series) -> float:
    return float(np.median(np.diff(places_mm(ordered_slices(series.images)))))


def _plane(series: Series) -> str:
    across = np.abs(slice_normal(series.images[0]))
    axis = int(np.argmax(across))
    return ("sagittal", "coronal", "axial")[axis] if across[axis] >= AXIAL else "oblique"

"""The page on attention and tumours: what was found in sentences, tables and two figures, and how it was made.

Letters: p places that hold brain, x y z voxels of the grid, h w pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, UInt8
from matplotlib.figure import Figure

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import token_file
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume
from mri_vit.explain.outputs import overlays
from mri_vit.report.figures.panels import COMPARED, panel
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.words.notation import adjusted_p, between, change, number, p_alone
from mri_vit.settings.file import all_from_demo
from mri_vit.settings.recipe import title as sequence
from mri_vit.settings.schema import Study
from mri_vit.style import GREY, INK, RC, WIDTH
from reproductions import html_page
from reproductions.html_page import Page, Picture, Section, Table
from reproductions.segmentation.encoders import BRIGHT, RANDOM, SUPERVISED
from reproductions.segmentation.overlap import CHANCE, HELD, MASS, MOST, Line, Subject, Test, heaviest, lines, paired, values

SHOWN = (0.25, 0.5, 0.75)  # of the patients by the size of their tumours: whom the picture shows, so that nobody is picked
MADE_UP = (
    "Their tumours are spheres with a bright rim on an otherwise healthy brain: brighter, and with sharper borders, than real "
    "ones. The figures say what attention does with such; they say nothing about real tumours."
)

Attention = Mapping[tuple[str, int], Sequence[Float[np.ndarray, "h _"]]]  # by encoder and start, of each judged patient


def write(
    study: Study,
    table: pd.DataFrame,
    found: Attention,
    subjects: Sequence[Subject],
    judged: Sequence[Patient],
    learners: int,
    notes: Sequence[str],
    folder: Path,
) -> Path:
    """Write the page with its figures and tables into `folder`; return its path.

    Parameters
    ----------
    table : as `overlap.judged` gives it, of all encoders and starts.
    found : the attention that the table was made of, of `judged` patients in the order of `subjects`.
    learners : how many patients the encoders learned from.
    notes : sentences for the page, such as that an encoder had collapsed.
    """
    means, compared = lines(table, study.seed), paired(table, study.seed)
    names = titles(study)
    by_mass = [line for line in means if line.rule == "mass"]
    pictured = shown(study, table, found, subjects, judged)
    over = next((name for name in reversed(BRIGHT) if name in study.channels), study.channels[0])
    sections = (
        Section(
            "Attention beside the tumour",
            pictures=(
                Picture(
                    "attention",
                    attention(pictured, over, names),
                    "Axial planes of three patients: the tumour's places, and the places that hold each encoder's attention",
                    "Line: the places that are mostly tumour. Colour: the places that are kept, of the first start, with the "
                    "head that was best on the other half of the patients. Patients are those at a quarter, half and three "
                    "quarters of all by the size of their tumours; nobody was picked. The patient's right is on the left.",
                ),
            ),
        ),
        Section(
            f"Places that hold {MASS:.0%} of the attention".replace("%", " %"),
            (
                "As in the paper, the fewest places are kept that hold so much of a head's attention; they are held against "
                f"the places that are tumour. A map that lay evenly on the tumour and nowhere else would keep {MASS:g} of it, "
                "and reach no more than that. Where attention is spread out, many places are kept, and chance is as high as "
                "their number makes it.",
            ),
            (
                Picture(
                    "jaccard",
                    indices(by_mass, names),
                    "Jaccard index of each encoder's attention with the tumour, beside random and the brightest places",
                    "The head was chosen on other patients than those that it is judged on. Marks below a line: as many "
                    "places at random, and the brightest ones, which take no network.",
                ),
            ),
            (_table(by_mass, names, "Jaccard index, places that hold 60 % of the attention"),),
        ),
        Section(
            "As many places as the tumour has",
            (
                "Here each map keeps exactly as many places as are tumour, so that it is judged by their order alone: a map that "
                "ranks the tumour first reaches 1, however spread out it is. A user does not know that number.",
            ),
            tables=(
                _table([line for line in means if line.rule == "size"], names, "Jaccard index, as many places as are tumour"),
            ),
        ),
        Section("Tests", tables=(_tests(compared, names),)),
    )
    numbers = {
        "jaccard": table,
        "means": pd.json_normalize([asdict(line) for line in means], sep="_"),
        "tests": pd.DataFrame([asdict(test) for test in compared]),
    }
    synthetic = all_from_demo(subject.id for subject in subjects)
    folder.mkdir(parents=True, exist_ok=True)
    made = Page(
        source="Caron et al. 2021 (DINO), arXiv:2104.14294, Figure 4",
        title="Does attention segment the tumour, unasked?",
        sentences=[*sentences(means, compared, names), *notes],
        sections=sections,
        facts=facts(study, len(subjects), len(judged), learners, means[0].starts),
        numbers=numbers,
        synthetic=MADE_UP if synthetic else "",
    )
    return html_page.write(made, folder)


def shown(
    study: Study, table: pd.DataFrame, found: Attention, subjects: Sequence[Subject], judged: Sequence[Patient]
) -> list[Shown]:
    """Whom the picture shows, and which places each encoder's attention keeps, by the head that the first start chose."""
    names = list(titles(study))
    heads = {name: values(table, name, "mass", study.seed).heads[0] for name in names}
    column = {patient: index for index, patient in enumerate(sorted(subject.id for subject in subjects))}
    by_size = np.argsort([subject.tumour.sum() for subject in subjects], kind="stable")
    positions = {patient.id: token_file(study.prepared, patient) for patient in judged}
    pictured = []
    for at in dict.fromkeys(int(by_size[round(share * (len(by_size) - 1))]) for share in SHOWN):
        subject = subjects[at]
        kept = {}
        for name in names:
            attention = found[name, 0][at][heads[name][column[subject.id]]]
            kept[name] = heaviest(attention, MASS, np.random.default_rng(study.seed))
        pictured.append(Shown(subject.id, tokens.load(positions[subject.id], study.channels), subject.tumour, kept))
    return pictured


def _table(of: Sequence[Line], names: Mapping[str, str], label: str) -> Table:
    scans = [name for name in of[0].others if name not in (CHANCE, MOST)]
    columns = (
        "Encoder", "Head chosen on others [95 %]", "Best head, same patients", "Each patient's best head", "Random places",
        *(f"Brightest, {sequence(name)}" for name in scans), "Most possible", "Places kept",
    )  # fmt: skip
    rows = [
        (
            capital(names[line.encoder]),
            between(line.chosen.value, line.chosen.low, line.chosen.high),
            number(line.same.value),
            number(line.own.value),
            *(number(line.others[name].value) for name in (CHANCE, *scans, MOST)),
            f"{line.share:.0%}".replace("%", " %"),
        )
        for line in of
    ]
    note = (
        "The second and third columns of figures are optimistic: who picks among heads by the answer finds a better one by "
        "chance. All others are of the head of the first. Most possible: the index of that many places if they fitted the "
        "tumour as well as they can."
    )
    return Table(label, columns, rows, note)


def _tests(compared: Sequence[Test], names: Mapping[str, str]) -> Table:
    rules = {"mass": "60 % of attention", "size": "as many as the tumour"}
    rows = [
        (
            f"{capital(names[test.one])} less {names.get(test.other) or other(test.other)}",
            rules[test.rule],
            change(test.difference, test.low, test.high),
            p_alone(test.p),
            p_alone(test.p_adjusted),
        )
        for test in compared
    ]
    columns = ("Index of", "Places kept", "Difference [95 %]", "p", "Adjusted p")
    return Table("Paired tests, heads chosen on others", columns, rows)


METHODS = {"mae": "MAE", "dino": "DINO"}


def titles(study: Study) -> dict[str, str]:
    """What each encoder is called, in the order in which they are shown."""
    methods = [study.of(one).pretrain.method for one in study.comparators]
    called = {RANDOM: "random weights", SUPERVISED: "trained on labels"}
    for one, method in zip(study.comparators, methods, strict=True):
        called[one.name] = METHODS[method] + (f" ({one.name})" if methods.count(method) > 1 else "")
    return called


def sentences(means: Sequence[Line], compared: Sequence[Test], names: Mapping[str, str]) -> list[str]:
    """What was found by the paper's rule: each encoder, the encoders against each other, and against what takes no network."""
    said = []
    for line in means:
        if line.rule != "mass":
            continue
        scans = [name for name in line.others if name not in (CHANCE, MOST)]
        bright = "".join(f", the brightest in {sequence(name)} {number(line.others[name].value)}" for name in scans)
        said.append(
            f"{capital(names[line.encoder])}: the places that are kept are {line.share:.0%} of the brain and "
            "overlap the tumour with a Jaccard index of "
            f"{between(line.chosen.value, line.chosen.low, line.chosen.high)}; as many at random reach "
            f"{number(line.others[CHANCE].value)}{bright}.".replace("%", " %")
        )
    tested = [test for test in compared if test.rule == "mass"]
    between_encoders = [test for test in tested if test.other in names]
    said.append(f"Encoders against each other: {_verdicts(between_encoders, names)}.")
    for against in dict.fromkeys(test.other for test in tested if test.other not in names):
        those = [test for test in tested if test.other == against]
        said.append(f"Against {other(against)}, equally many: {_verdicts(those, names)}.")
    return said


def _verdicts(tested: Sequence[Test], names: Mapping[str, str]) -> str:
    """Who is above and below whom by more than chance; the rest in one breath, without their names if that is all."""
    sure = [test for test in tested if test.p_adjusted <= ALPHA]
    if not sure:
        return "no difference by more than chance"
    said = [
        f"{names[test.one]} is {'above' if test.difference > 0 else 'below'} {names.get(test.other, 'them')} "
        f"({change(test.difference, test.low, test.high)}, {adjusted_p(test.p_adjusted)})"
        for test in sure
    ]
    rest = [names[test.one] + (f" and {names[test.other]}" if test.other in names else "") for test in tested if test not in sure]
    if rest:
        said.append(f"not different by more than chance: {', '.join(rest)}")
    return "; ".join(said)


def facts(study: Study, subjects: int, judged: int, learners: int, starts: int) -> list[str]:
    """How it was made, and what limits it."""
    left_out = judged - subjects
    trained = ", ".join(endpoint.name for endpoint in study.endpoints)
    found = [
        f"Encoders learned from {learners} patients; {subjects} others are judged. All of them learned from the same patients "
        f"and began with the same random weights; there are {starts} such starts, and an index is the mean over them.",
        *([f"{left_out} more have no tumour mask, or no place that is mostly tumour, and are left out."] if left_out else []),
        f"A place has {study.grid.patch * study.grid.spacing_mm:g} mm along an edge. It is tumour where "
        f"more than {HELD:.0%} of its brain is; the mask has whatever the cohort's masks have, core and "
        "oedema alike.".replace("%", " %"),
        f"“Trained on labels” learned {trained}, with its epoch chosen on some of the learners; MAE and DINO learned from the "
        "scans of the same patients. Attention is that of the CLS token in the last block to the brain's places, of every "
        "place that is given.",
        "The head is chosen by its mean index over the other half of the judged patients, for each start anew; the halves are "
        "the same for all. The paper shows the best head of both models.",
        "Intervals and tests hold patients and starts: the variance of a mean is the sum of that over patients and that over "
        "starts, by Student's t with Satterthwaite's degrees of freedom; p is adjusted by Holm's method over all tests of a "
        "rule. Another set of patients to learn from is not in them.",
        "A random set's index is computed, not drawn; the brightest places are those with the highest mean of a sequence over "
        "their brain voxels, z-scored in the brain. All are of as many places as the encoder's own head keeps.",
        "The paper's own figures are of objects in photographs and encoders of twelve blocks that learned from a million of "
        "them; they are not set beside these, for no two of that are alike.",
    ]
    return found


def other(name: str) -> str:
    """What an encoder is held against, when it is no encoder."""
    return "random places" if name == CHANCE else f"the brightest places in {sequence(name)}"


def capital(text: str) -> str:
    """The same with a capital first letter."""
    return text[:1].upper() + text[1:]


AXIAL = 2  # the axis that an axial plane is cut across
MARKS = {
    "chance": ("|", INK, "random places"),
    "t1ce": ("^", "#882255", "brightest in T1ce"),
    "flair": ("v", "#44AA99", "brightest in FLAIR"),
}
OTHER = ("x", GREY)  # the mark of any other sequence's brightest places
SHADE = 6.0  # of the overlay's scale: one colour for all that is kept, through which anatomy is seen
PANEL = 1.6  # inches, a row's height


@dataclass(frozen=True, eq=False)
class Shown:
    """A patient as drawn: the prepared scans, which of the places are tumour, and by encoder which are kept."""

    title: str
    prepared: Tokens
    tumour: Bool[np.ndarray, " p"]
    kept: Mapping[str, Bool[np.ndarray, " p"]]


def attention(patients: Sequence[Shown], channel: str, names: Mapping[str, str]) -> Figure:
    """A column for each patient: the scan with the tumour's outline, then the places that each encoder keeps over it.

    Axial planes through most of the tumour, in radiological convention: the patient's right is on the left.
    """
    titles = (sequence(channel), *names.values())
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH, PANEL * len(titles)), layout="constrained")
        grid = figure.subplots(len(titles), len(patients), squeeze=False)
        for column, patient in enumerate(patients):
            for row, drawn in enumerate(panels(patient, channel, list(names))):
                axes = grid[row, column]
                axes.imshow(drawn)
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set_visible(False)
                if row == 0:
                    axes.set_title(patient.title, fontsize=9, color=INK)
                if column == 0:
                    axes.set_ylabel(titles[row], color=INK)
                for letter, x, side in (("R", 0.02, "left"), ("L", 0.98, "right")):
                    axes.text(x, 0.5, letter, transform=axes.transAxes, color="white", fontsize=8, ha=side, va="center")
    return figure


def panels(patient: Shown, channel: str, names: Sequence[str]) -> list[UInt8[np.ndarray, "h w 3"]]:
    """The scan, then the places that each encoder keeps over it, all in one plane and with the tumour's outline."""
    prepared = patient.prepared
    volume = tokens.to_volume(prepared).astype(np.float32)
    brain, affine = (volume != 0).any(axis=0), np.array(prepared.grid.affine)
    bright = volume[prepared.channels.index(channel)]
    low, high = (float(end) for end in np.percentile(bright[brain], overlays.CONTRAST))
    scan = Volume(np.where(brain, bright, low), affine)
    tumour = (on_grid(patient.tumour, prepared) > 0) & brain
    window = overlays.window(brain, scan.spacing_mm)
    voxel = (0, 0, int(tumour.sum(axis=(0, 1)).argmax()))
    heats = [None, *(Volume(SHADE * on_grid(patient.kept[name], prepared) * brain, affine) for name in names)]
    return [overlays.panel(scan, (low, high), heat, AXIAL, voxel, window, tumour) for heat in heats]


def on_grid(flags: Bool[np.ndarray, " p"], prepared: Tokens) -> Float[np.ndarray, "x y z"]:
    """1 at all voxels of the stored places that are flagged, 0 elsewhere."""
    side, patch = prepared.grid.side, prepared.grid.patch
    positions = np.zeros(side**3, np.float32)
    positions[prepared.position] = flags
    return np.kron(positions.reshape(side, side, side), np.ones((patch,) * 3, np.float32))


def indices(lines: Sequence[Line], names: Mapping[str, str]) -> Figure:
    """Each encoder's index with its interval, and what random and the brightest places reach where equally many are kept."""
    with panel(height=0.9 + 0.5 * len(lines)) as (figure, axes):
        for row, line in enumerate(lines):
            stroke = COMPARED[row % len(COMPARED)]
            axes.plot([line.chosen.low, line.chosen.high], [row, row], color=stroke.colour, lw=2.2, solid_capstyle="butt")
            axes.plot(line.chosen.value, row, "o", ms=7, color=stroke.colour, label="attention [95 %]" if row == 0 else None)
            for name, found in line.others.items():
                if name == "most":
                    continue
                mark, colour, title = MARKS.get(name, (*OTHER, f"brightest in {name}"))
                axes.plot(found.value, row + 0.28, mark, ms=6, color=colour, label=title if row == 0 else None)
        axes.set_yticks(range(len(lines)), [names[line.encoder] for line in lines])
        axes.set(ylim=(len(lines) - 0.4, -0.5), xlim=(0, None), xlabel="Jaccard index with the tumour's places")
        figure.legend(loc="outside lower center", ncols=2)
    return figure

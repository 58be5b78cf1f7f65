"""Whether attention segments the tumour, in words: what was found, tables, figures and how it was made, as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.data import tokens
from mri_vit.data.batches import token_file
from mri_vit.data.cohort import Patient
from mri_vit.report.words.notation import between, change, number, p_alone
from mri_vit.settings.demo import made_up
from mri_vit.settings.schema import Study
from mri_vit.settings.sequences import title as sequence
from reproductions import page
from reproductions.page import Page, Picture, Section, Table
from reproductions.segmentation import picture as segmentation_picture
from reproductions.segmentation.encoders import BRIGHT
from reproductions.segmentation.numbers import CHANCE, MASS, MOST, Line, Subject, Test, heaviest, lines, paired, values
from reproductions.segmentation.picture import Shown
from reproductions.segmentation.words import capital, facts, other, sentences, titles

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
    table : as `numbers.judged` gives it, of all encoders and starts.
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
                    segmentation_picture.attention(pictured, over, names),
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
                    segmentation_picture.indices(by_mass, names),
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
    synthetic = made_up(subject.id for subject in subjects)
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
    return page.write(made, folder)


def shown(
    study: Study, table: pd.DataFrame, found: Attention, subjects: Sequence[Subject], judged: Sequence[Patient]
) -> list[Shown]:
    """Whom the picture shows, and which places each encoder's attention keeps, by the head that the first start chose."""
    names = list(titles(study))
    heads = {name: values(table, name, "mass", study.seed).heads[0] for name in names}
    column = {patient: index for index, patient in enumerate(sorted(subject.id for subject in subjects))}
    by_size = np.argsort([subject.tumour.sum() for subject in subjects], kind="stable")
    places = {patient.id: token_file(study, patient) for patient in judged}
    pictured = []
    for at in dict.fromkeys(int(by_size[round(share * (len(by_size) - 1))]) for share in SHOWN):
        subject = subjects[at]
        kept = {}
        for name in names:
            attention = found[name, 0][at][heads[name][column[subject.id]]]
            kept[name] = heaviest(attention, MASS, np.random.default_rng(study.seed))
        pictured.append(Shown(subject.id, tokens.load(places[subject.id], study.channels), subject.tumour, kept))
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

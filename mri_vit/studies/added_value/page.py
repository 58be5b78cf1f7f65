"""The page of an added value: findings in; a forest of hazard ratios, tables, sentences and numbers out."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from reproductions import page
from reproductions.page import Page, Picture, Section

from mri_vit.report.figures import panels
from mri_vit.report.figures.panels import CANDIDATES, PLAIN, ForestRow, ForestScale
from mri_vit.report.reading.run import OWN
from mri_vit.report.words.notation import file_name, title
from mri_vit.settings.demo import made_up
from mri_vit.studies.added_value import words
from mri_vit.studies.added_value.findings import Findings
from mri_vit.studies.added_value.numbers import RISK, HazardRatio

SOURCE = "Lee et al. 2023, Neuro-Oncology, doi:10.1093/neuonc/noad202: multivariable Cox regression, multimodal C"
MADE_UP = "Survival was planted: a larger tumour and age shorten it, sex and markers do not. Nothing is said of real tumours."
REACHES = (2, 3, 5, 10, 30, 100, 1000)  # how far the forest's axis may go to both sides of 1, as a factor
LETTERS = 22  # of a label beside the axis


def write(of: Findings, folder: Path) -> Path:
    """Write `index.html`, the forest and the tables into `folder` and return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    return page.write(laid_out(of), folder)


def home(of: Findings) -> str:
    """The name of the page's folder in a run."""
    return "added_value" if of.asked.model == OWN else file_name("added_value", of.asked.model)


def laid_out(of: Findings) -> Page:
    """The findings as a page."""
    model, endpoint = of.asked.model, title(of.asked.endpoint.name)
    ratios = (
        "Hazard ratios of Cox regressions on the covariates alone, and on these and the network's out-of-fold risk together.",
        *words.left_out(of),
    )
    alone = "Each likelihood ratio is twice the gain in log likelihood by what is added, on the same patients."
    sections = [
        Section("Hazard ratios", ratios, (forest_picture(of),), (words.hazard_table(of),)),
        Section("What the risk adds, and what is added to it", (alone,), (), (words.test_table(of), words.concordance_table(of))),
    ]
    if of.beside:
        said = ("A risk from scans may be no more than what is measured simply. Here it is held against that as well.",)
        sections.append(Section("Beside a simpler explanation", said, (), (words.beside_table(of),)))
    synthetic = made_up(map(str, of.taken.people.covariates.index))
    return Page(
        SOURCE,
        f"{endpoint}: does the risk of {model} add to what is known without it?",
        words.sentences(of),
        sections,
        words.facts(of),
        numbers(of),
        MADE_UP if synthetic else "",
    )


def numbers(of: Findings) -> dict[str, pd.DataFrame]:
    """Every figure of the page, by file name."""
    found = of.found
    regressions = {"covariates": found.without, "risk": found.alone, "both": found.both}
    ratios = [
        {"regression": name, "column": column, **asdict(ratio)}
        for name, columns in regressions.items()
        for column, ratio in columns.items()
    ]
    tests = [
        {"adds": name, **asdict(test), "p_adjusted": p}
        for name, test, p in (("risk", found.test, of.p_risk), ("covariates", found.reverse, of.p_covariates))
    ]
    known = {name: one for name, one in of.beside.items() if not isinstance(one, str)}
    known |= {} if of.permuted is None or isinstance(of.permuted, str) else {"permuted labels": of.permuted}
    others = [
        {"analysis": name, **asdict(one.both[RISK]), **{f"test_{key}": value for key, value in asdict(one.test).items()}}
        for name, one in known.items()
    ]
    concordances = {"covariates": found.c_without, "risk": found.c_alone, "both": found.c_both}
    gains = {"both less covariates": found.gain, "both less risk": found.gain_reverse}
    c = [{"figure": name, **asdict(one)} for name, one in concordances.items()]
    c += [{"figure": name, "value": one.difference, "low": one.low, "high": one.high} for name, one in gains.items()]
    patients = {"known": of.taken.known, "analysed": found.n, "died": found.deaths, "coefficients": found.coefficients}
    patients |= {f"without {name}": count for name, count in of.taken.lacking.items()}
    tables = {"hazard_ratios": ratios, "tests": tests, "concordance": c, "others": others}
    return {name: pd.DataFrame(rows) for name, rows in tables.items() if rows} | {
        "patients": pd.DataFrame({"what": list(patients), "patients": list(patients.values())})
    }


def forest_picture(of: Findings) -> Picture:
    """The hazard ratios of both regressions."""
    parts = ", ".join(f"{words.label(name, of)} {words.of_ratio(ratio)}" for name, ratio in of.found.both.items())
    return Picture(
        "forest",
        forest(of),
        f"Forest plot of hazard ratios with 95 % intervals; with the risk: {parts}",
        "Hazard ratios with 95 % intervals, on a logarithmic axis; right of 1 a higher value dies sooner. A filled mark: the "
        "interval leaves out 1. Numbers are per standard deviation (SD).",
    )


def forest(of: Findings) -> Figure:
    """Covariates alone, then with the risk, which has a mark and colour of its own."""
    groups = [("Covariates alone", of.found.without), ("With the network's risk", of.found.both)]
    ends = [abs(math.log(end)) for _, ratios in groups for ratio in ratios.values() for end in (ratio.low, ratio.high)]
    reach = next((reach for reach in REACHES if math.log(reach) >= max(ends)), REACHES[-1])
    far = math.log(reach)
    scale = ForestScale(-far, far, 0.0, ((-far, f"1/{reach}"), (0.0, "1"), (far, f"{reach}")), (-far / 2, far / 2))
    drawn = [(heading, [_row(name, ratio, of) for name, ratio in ratios.items()]) for heading, ratios in groups]
    return panels.forest(drawn, "← lives longer      dies sooner →", scale)


def _row(name: str, ratio: HazardRatio, of: Findings) -> ForestRow:
    shown = words.label(name, of)
    shown = shown if len(shown) <= LETTERS else f"{shown[: LETTERS - 1]}…"
    value, low, high = (max(-math.log(REACHES[-1]), min(math.log(REACHES[-1]), math.log(end))) for end in _ends(ratio))
    stroke = CANDIDATES[0] if name == RISK else PLAIN
    return ForestRow(shown, words.of_ratio(ratio), value, low, high, stroke, filled=not low <= 0 <= high)


def _ends(ratio: HazardRatio) -> tuple[float, float, float]:
    return ratio.value, ratio.low, ratio.high

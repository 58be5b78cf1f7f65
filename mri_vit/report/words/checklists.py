"""Checklists: the content of `metrics.json` goes in, the tables of TRIPOD+AI, CLAIM and STARD-AI come out, filled from the run.

The items lie in `items/*.toml`; `checklist_answers` fills them from the metrics alone, and what it leaves empty is the author's.
"""

from __future__ import annotations

from dataclasses import dataclass

from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.words.checklist_answers import FILLERS
from mri_vit.report.words.notation import escape, word_list

AUTHOR = "**for the author**"
SILENT = "The run does not show it: write what the item asks."  # of an item that a filler answers for other runs


@dataclass(frozen=True)
class Item:
    """One question of a checklist.

    `fill` names the filler that answers it, `left` what a filler leaves to the author; `write` is what the author has to write of
    an item that no run can answer.
    """

    number: str
    section: str
    asks: str
    fill: str = ""
    left: str = ""
    write: str = ""


@dataclass(frozen=True)
class Checklist:
    """A published checklist in our own words."""

    title: str
    source: str
    items: tuple[Item, ...]


def tripod_ai(metrics: Metrics) -> str:
    """TRIPOD+AI (Collins et al. 2024, doi:10.1136/bmj-2023-078378) as a Markdown table, filled from `metrics.json`."""
    return checklist_table(read_checklist("tripod_ai"), metrics)


def claim(metrics: Metrics) -> str:
    """CLAIM, 2024 update (Tejani et al. 2024, doi:10.1148/ryai.240300) as a Markdown table, filled from `metrics.json`."""
    return checklist_table(read_checklist("claim"), metrics)


def stard_ai(metrics: Metrics) -> str:
    """STARD-AI (Sounderajah et al. 2025, doi:10.1038/s41591-025-03953-8) as a Markdown table, filled from `metrics.json`."""
    return checklist_table(read_checklist("stard_ai"), metrics)


def read_checklist(name: str) -> Checklist:
    """Read a checklist. Raises ValueError when it does not hold as many items as it says."""
    content = word_list(name)
    items = tuple(Item(**item) for item in content["item"])
    if len(items) != content["items"]:
        raise ValueError(f"{name}.toml: {len(items)} items; expected {content['items']}")
    return Checklist(content["title"], content["source"], items)


def checklist_table(checklist: Checklist, metrics: Metrics) -> str:
    """The checklist as Markdown: how much is filled, then a row for each item."""
    answers = {item.number: answer(item, metrics) for item in checklist.items}
    filled = [item for item in checklist.items if answers[item.number]]
    in_part = sum(bool(item.left) for item in filled)
    rows = [
        f"| {item.number} | {escape(item.section)} | {escape(item.asks)} | {answers[item.number] or left_alone(item)} |"
        for item in checklist.items
    ]
    return "\n".join(
        [
            f"# {checklist.title}: “{escape(metrics.study)}”",
            "",
            f"Of {len(checklist.items)} items {len(filled) - in_part} are answered from the run and {in_part} in part, as they "
            "say; the others are for the author.",
            "",
            f"Items after {escape(checklist.source)}; what they ask is in our own words, so read the original as well.",
            "",
            "| Item | Section | Asks | Answer |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def left_alone(item: Item) -> str:
    """The note to the author on an item that the run does not answer."""
    return f"{AUTHOR}: {escape(item.write or SILENT)}"


def answer(item: Item, metrics: Metrics) -> str:
    """What the run answers to an item, and what it leaves to the author; "" when it answers nothing."""
    answered = FILLERS[item.fill](metrics) if item.fill else ""
    if answered and item.left:
        return f"{answered} {AUTHOR}: {escape(item.left)}"
    return answered

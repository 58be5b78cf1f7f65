"""Checklists: the content of `metrics.json` goes in, a table of each published checklist comes out, filled from the run.

The items lie in `items/*.toml`; answers come from the metrics alone, and an item whose answer is "" is the author's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.words import answers_on_patients, answers_on_results, answers_on_training, run_facts
from mri_vit.report.words.answering import Answer
from mri_vit.report.words.notation import escape, word_list

AUTHOR = "**for the author**"
LONG = 120  # characters, a line of a table: a longer answer is not repeated in its checklist
CHECKLISTS = ("tripod_ai", "claim", "stard_ai", "probast_ai", "future_ai")  # files of `items/`; a report has each as NAME.md
SILENT = "The run does not show it: write what the item asks."  # of an item that a filler answers for other runs

FILLERS: Mapping[str, Answer] = {  # by the name that an item of `items/*.toml` gives as its `fill`
    answer.__name__: answer for part in (answers_on_patients, answers_on_training, answers_on_results) for answer in part.ANSWERS
}


@dataclass(frozen=True)
class Item:
    """One question of a checklist.

    `fill` names the filler that answers it, `left` what a filler leaves to the author; `write` is what the author has to write of
    an item that no run can answer. `of_training` items ask how a model was made, so only a run that trained it answers them.
    """

    number: str
    section: str
    asks: str
    fill: str = ""
    left: str = ""
    write: str = ""
    of_training: bool = False


@dataclass(frozen=True)
class Checklist:
    """A published checklist in our own words; `below` is Markdown that stands below its table."""

    title: str
    source: str
    items: tuple[Item, ...]
    below: str = ""


def filled_checklist(name: str, metrics: Metrics) -> str:
    """One of `CHECKLISTS` as a Markdown table, filled from `metrics.json`."""
    return checklist_table(read_checklist(name), metrics)


def read_checklist(name: str) -> Checklist:
    """Read a checklist. Raises ValueError when it does not hold as many items as it says."""
    content = word_list(name)
    items = tuple(Item(**item) for item in content["item"])
    if len(items) != content["items"]:
        raise ValueError(f"{name}.toml: {len(items)} items; expected {content['items']}")
    return Checklist(content["title"], content["source"], items, content.get("below", ""))


def checklist_table(checklist: Checklist, metrics: Metrics) -> str:
    """The checklist as Markdown: how much is filled, then a row for each item."""
    answers = answers_by_item(checklist, metrics)
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
            *([checklist.below] if checklist.below else []),
        ]
    )


def left_alone(item: Item) -> str:
    """The note to the author on an item that the run does not answer."""
    return f"{AUTHOR}: {escape(item.write or SILENT)}"


def answers_by_item(checklist: Checklist, metrics: Metrics) -> dict[str, str]:
    """What the run answers to each item, "" where nothing; a long answer stands once, and later items refer to it."""
    answers, first = {}, {}
    for item in checklist.items:
        found = answer(item, metrics)
        where = first.setdefault(found, item.number) if len(found) > LONG else item.number
        answers[item.number] = found if where == item.number else f"As answered under {where}."
        if answers[item.number] and item.left:
            answers[item.number] += f" {AUTHOR}: {escape(item.left)}"
    return answers


def answer(item: Item, metrics: Metrics) -> str:
    """What the run answers to an item; "" when it answers nothing."""
    if not item.fill or (item.of_training and run_facts.trained(metrics) is None):
        return ""
    return FILLERS[item.fill](metrics)

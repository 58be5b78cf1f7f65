"""References: Markdown with `[@key]` in; numbered citations, and the list of what is cited, out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mri_vit.report.words.notation import escape, word_list

CITATION = re.compile(r" ?(?<!\\)\[@([a-z0-9,]+)\]")

REFERENCES: Mapping[str, str] = word_list("references")


def with_references(text: str) -> str:
    """The text with its keys as numbers in order of first use, and the list of these references under it.

    Raises KeyError for a key that is not in `REFERENCES`.
    """
    order: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return " [" + ", ".join(str(order.setdefault(key, len(order) + 1)) for key in found[1].split(",")) + "]"

    text = CITATION.sub(number, text)
    if not order:
        return text
    return text + "\n\n## References\n\n" + "\n".join(f"{place}. {escape(REFERENCES[key])}" for key, place in order.items())


def without_citations(text: str) -> str:
    """The text without its citations."""
    return CITATION.sub("", text)

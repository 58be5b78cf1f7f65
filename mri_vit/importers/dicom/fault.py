"""Fault: why a series is refused, in words that name images by UID on a terminal and by a keyed hash in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A reason with a place `{}` for each UID; the text around them holds numbers and our own words, nothing from a header."""

    reason: str
    uids: tuple[str, ...] = ()

    def with_uids(self) -> str:
        """For a terminal."""
        return self.reason.format(*self.uids)

    def with_hashes(self, short: Callable[[str], str]) -> str:
        """For a file: `short` gives the hash of a UID."""
        return self.reason.format(*map(short, self.uids))


class Refused(Exception):
    """A series cannot be converted; `fault` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault

"""How many examples of a property Hypothesis draws where one takes long: fewer at a landing than by night."""

from __future__ import annotations

from hypothesis import settings

EXAMPLES = 100  # of a property by night, unless the test names a number


def examples(by_night: int) -> settings:
    """So many by night, and at a landing the share of them that every other property has."""
    return settings(max_examples=max(5, by_night * settings().max_examples // EXAMPLES))

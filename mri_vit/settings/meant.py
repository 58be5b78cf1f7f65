"""Meant: a name that nobody knows goes in, the known ones that it may stand for come out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

ALIKE = 0.65  # as out is to output (0.67), and augment is not to target (0.62)
SURELY = 0.8  # as train.epochs is to tran.epochs (0.96), and model.epochs is not (0.61)
TIED = 0.02  # difference of likeness that does not say which of two was meant
FEW = 3  # letters with which to begin a name: out, gpu


def meant(word: str, known: Iterable[str]) -> list[str]:
    """Known names that `word` may stand for, likeliest first; [] where none is like it.

    These are, whichever comes first: names that differ in case, hyphens and leading dashes alone; names of which it is the last
    part, as epochs is of train.epochs; names that are spelled nearly so; names whose last part it begins, or shares whole words
    with, as learning_rate does; names that are spelled alike.
    """
    wanted, plain = _plain(word), {name: _plain(name) for name in known}
    if same := [name for name, spelled in plain.items() if spelled == wanted]:
        return same
    whole = {name: _alike(wanted, spelled) for name, spelled in plain.items()}
    likeliest = sorted(plain, key=lambda name: -whole[name])
    if found := [name for name in likeliest if _last(plain[name]) == _last(wanted)]:
        return found[:1] if "." in wanted and whole[found[0]] >= SURELY else found
    # the section may be missing beside the mistake
    either = whole if "." in wanted else {name: max(whole[name], _alike(wanted, _last(plain[name]))) for name in likeliest}
    return (
        _best(either, likeliest, SURELY)
        or [name for name in likeliest if _begun(_last(plain[name]), _last(wanted))]
        or [name for name in likeliest if _shared_words(_last(plain[name]), _last(wanted))]
        or _best(either, likeliest, ALIKE)
    )


def question(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """What follows "unknown …;": which known names were meant, or `otherwise`, where else to look."""
    found = meant(word, known)
    return f"did you mean {' or '.join(found)}?" if found else otherwise


def _best(likeness: Mapping[str, float], names: list[str], least: float) -> list[str]:
    """Those of the names that are most alike, and as much as `least`."""
    best = max(likeness.values(), default=0.0)
    return [name for name in names if best >= least and likeness[name] >= best - TIED]


def _begun(last: str, wanted: str) -> bool:
    """Whether a name begins so; of a letter or two that would say little."""
    return len(wanted) >= FEW and last.startswith(wanted)


def _shared_words(last: str, wanted: str) -> bool:
    """Whether all words of the one are among the other's."""
    few, many = sorted((set(last.split("_")), set(wanted.split("_"))), key=len)
    return few < many


def _plain(name: str) -> str:
    return name.lstrip("-").lower().replace("-", "_")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()

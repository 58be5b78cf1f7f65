"""Stream: random numbers that hang on their name alone, such as seed, epoch and patient, and not on what was drawn before.

So a patient's share of a batch is the same whoever else is in it, in whatever order or process it is made.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(*names: int | str) -> np.random.Generator:
    """The random stream of that name, the same on every machine.

    Philox (Salmon et al. 2011, doi:10.1145/2063384.2063405) is made for many streams: each key gives one of its own. The key is
    a hash of the name, so that two names share none.
    """
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))

"""A file of tensors (safetensors) whose bytes depend on nothing but the tensors and what its header says."""

from __future__ import annotations

import json
from pathlib import Path


def sort_header(path: Path) -> None:
    """Put the header's keys in order, in place: safetensors writes its metadata in an order that changes from run to run.

    The format: the header's length in 8 bytes, the header as JSON padded with spaces, the arrays. Sorted, the header takes as
    many bytes as before, so that no array moves and none is read, however large the file is.

    Raises
    ------
    ValueError
        The sorted header would be longer, because the file was not written by safetensors.
    """
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        # Spelled as safetensors (serde_json) spells it: no spaces, letters beyond ASCII as they are.
        ordered = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode().ljust(length)
        if len(ordered) != length:
            raise ValueError(f"{path}: a header of {length} bytes takes {len(ordered)} when it is sorted; expected as many")
        file.seek(8)
        file.write(ordered)

"""Where the host waits for the device: a counter of the operations that read a number back or copy one over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READ_BACK = {  # their result, or how long it is, is known to the host only when the device has worked it out
    "_local_scalar_dense",  # item(), float() and bool(), hence every `if` on a tensor
    "is_nonzero",
    "equal",
    "nonzero",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}  # by a mask: its nonzero places are counted first


class Waits(TorchDispatchMode):
    """Counts, by name, what makes the host wait for a device, or would if the tensors lay on one.

    On a CPU nothing waits, so a tensor that is made of Python's numbers counts as well (`lift_fresh`): for a device it is made
    on the host and copied. `numpy()`, `tolist()` and `cpu()` are seen on no CPU; on the device "meta" they are errors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, op: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if _waits(name := op.overloadpacket.__name__, args, kwargs):
            self.found[name] += 1
        return op(*args, **kwargs)


def _waits(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if name in INDEXED:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    if name == "_to_copy":
        return kwargs.get("device", args[0].device) != args[0].device and not kwargs.get("non_blocking")
    if name == "copy_":
        non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking")
        return args[0].device != args[1].device and not non_blocking
    return name in READ_BACK or name == "lift_fresh"

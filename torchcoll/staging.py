"""GPU tensors under gloo, which reads host memory only: pinned memory in between.

Its counterpart is `mpicoll.staging`.
"""

from __future__ import annotations

from functools import partial

import torch

from mpicoll.backend import Array, Thunk


def staged(data: Array, before: list[Thunk] | None, after: list[Thunk] | None) -> Array:
    """Return pinned host memory for a tensor, copied from it `before` or to it `after`."""
    host = torch.empty(data.shape, dtype=data.dtype, pin_memory=data.is_cuda)
    if before is not None:
        before.append(partial(host.copy_, data))
    if after is not None:
        after.append(partial(data.detach().copy_, host))
    return host

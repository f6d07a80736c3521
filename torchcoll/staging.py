"""GPU tensors under gloo, which reads host memory only: pinned memory in between.

Its counterpart is `mpicoll.staging`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from mpicoll.backend import Array, Call, Native, Thunk


def staged(data: Array, before: list[Thunk] | None, after: list[Thunk] | None) -> Array:
    """Return pinned host memory for a tensor, copied from it `before` or to it `after`."""
    host = torch.empty(data.shape, dtype=data.dtype, pin_memory=data.is_cuda)
    if before is not None:
        before.append(partial(host.copy_, data))
    if after is not None:
        after.append(partial(data.detach().copy_, host))
    return host


def on_host(call: Call, bind: Callable[[Call], Native]) -> Native:
    """Bind a native collective to host mirrors of its GPU tensors."""
    before: list[Thunk] = []
    after: list[Thunk] = []
    x = None if call.x is None else staged(call.x, before, None)
    out = None if call.out is None else staged(call.out, before, after)
    native = bind(replace(call, x=x, out=out, in_place=False))

    def run() -> None:
        for thunk in before:
            thunk()
        native.run()
        for thunk in after:
            thunk()

    return native._replace(run=run, start=lambda: _Blocking(run))


class _Blocking:
    """A staged call runs to its end when it starts."""

    def __init__(self, run: Thunk) -> None:
        run()

    def wait(self) -> None:
        pass

    def test(self) -> bool:
        return True

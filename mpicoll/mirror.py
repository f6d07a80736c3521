"""A native collective on GPU arrays that its library cannot read: run on host mirrors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mpicoll.backend import Array, Call, Native, Thunk

Stage = Callable[[Array, list[Thunk] | None, list[Thunk] | None], Any]
"""Return host memory for an array, copied from it before a call, or to it after."""


def on_host(call: Call, stage: Stage, bind: Callable[[Call], Native]) -> Native:
    """Bind a native collective to host mirrors of its arrays, as `stage` makes them."""
    before: list[Thunk] = []
    after: list[Thunk] = []
    x = None if call.x is None else stage(call.x, before, None)
    out = None if call.out is None else stage(call.out, before, after)
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

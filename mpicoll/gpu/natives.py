"""A native collective on GPU arrays that its library cannot read: run on host mirrors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mpicoll.gpu.staging import Copies, Mirror
from mpicoll.interfaces import DIRECT, STAGED, Array, Arrays, Native, NativeCall, Request, Thunk


def on_host(
    call: NativeCall, arrays: Arrays, copies: Copies, bind: Callable[[NativeCall], Native]
) -> Native:
    """Bind a native collective to host mirrors of its arrays."""
    x = None if call.x is None else Mirror(arrays.flat(call.x), copies, None)
    out = None if call.out is None else Mirror(arrays.flat(call.out), copies, None)
    native = bind(replace(call, x=_like(call.x, x), out=_like(call.out, out), in_place=False))
    # What a rank is not sent, it keeps: its mirror holds what its array did.
    mirrors = [each for each in (x, out) if each is not None]

    def run() -> None:
        for each in mirrors:
            each.download()
        for each in mirrors:
            each.settle_all()
        native.run()
        if out is not None:
            out.upload_all()
            out.settle_all()

    return native._replace(run=run, start=lambda: _Blocking(run), way=STAGED)


def behind(native: Native, first: Thunk) -> Native:
    """Bind a native collective that reads GPU arrays, behind the work that produces them."""

    def run() -> None:
        first()
        native.run()

    def start() -> Request:
        first()
        return native.start()

    return native._replace(run=run, start=start, way=DIRECT)


def _like(array: Array | None, mirror: Mirror | None) -> Array | None:
    """Return a mirror's memory in the shape of its array."""
    return None if mirror is None else mirror.pieces[0].host.reshape(array.shape)  # type: ignore[union-attr]


class _Blocking:
    """A staged call runs to its end when it starts."""

    def __init__(self, run: Thunk) -> None:
        run()

    def wait(self) -> None:
        pass

    def test(self) -> bool:
        return True

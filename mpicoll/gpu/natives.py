"""A library's own collective on GPU arrays: through host memory, or once the arrays are ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mpicoll.gpu.staging import Copies, HostStaging
from mpicoll.interfaces import DIRECT, STAGED, Array, Arrays, Native, NativeCall, Request, Thunk


def staged(
    call: NativeCall, arrays: Arrays, copies: Copies, bind: Callable[[NativeCall], Native]
) -> Native:
    """Bind a native collective to host copies of its GPU arrays, which the library cannot read."""
    x = None if call.x is None else HostStaging(arrays.flat(call.x), copies, None)
    out = None if call.out is None else HostStaging(arrays.flat(call.out), copies, None)
    native = bind(replace(call, x=_host(call.x, x), out=_host(call.out, out), in_place=False))
    # `out` is copied too: the library leaves alone what this rank does not receive.
    staging = [each for each in (x, out) if each is not None]

    def run() -> None:
        for each in staging:
            each.start_to_host()
        for each in staging:
            each.wait_all()
        native.run()
        if out is not None:
            out.start_all_to_gpu()
            out.wait_all()

    return native._replace(run=run, start=lambda: _run_at_once(run), transport=STAGED)


def direct(native: Native, synchronize: Thunk) -> Native:
    """Make a native collective that reads GPU arrays wait for the work that produces them."""

    def run() -> None:
        synchronize()
        native.run()

    def start() -> Request:
        synchronize()
        return native.start()

    return native._replace(run=run, start=start, transport=DIRECT)


def _host(array: Array | None, staging: HostStaging | None) -> Array | None:
    """Return an array's host memory in the shape of the array."""
    if array is None or staging is None:
        return None
    return staging.pieces[0].host.reshape(array.shape)


def _run_at_once(run: Thunk) -> Request:
    """Run a call to its end, and return a request that is complete."""
    run()
    return _Complete()


class _Complete:
    """A request of a call that has ended."""

    def wait(self) -> None:
        pass

    def test(self) -> bool:
        return True

"""A library's own collective on GPU arrays: through host memory, or once the arrays are ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mpicoll.backend import DIRECT, STAGED, Array, Arrays, Native, NativeCall, Request, Thunk
from mpicoll.engine.runs import Followed
from mpicoll.gpu.staging import Copies, HostStaging
from mpicoll.gpu.streams import PlanStream, StreamRequest


def staged(
    call: NativeCall, arrays: Arrays, copies: Copies, bind: Callable[[NativeCall], Native]
) -> Native:
    """Bind a native collective to host copies of its GPU arrays, which the library cannot read."""
    x = None if call.x is None else HostStaging(arrays.flat(call.x), copies)
    out = None if call.out is None else HostStaging(arrays.flat(call.out), copies)
    native = bind(call._replace(x=_host(call.x, x), out=_host(call.out, out), in_place=False))
    # Of all collectives and ranks, rank 0 of exscan alone gets nothing: its `out` is to stay.
    keeps = call.collective.name == "exscan" and call.rank == 0
    read = [staging for staging in (x, out if keeps else None) if staging is not None]
    order = PlanStream(arrays, call.array)

    def to_host() -> None:
        for staging in read:
            staging.start_to_host()
        for staging in read:
            staging.wait()

    def to_gpu() -> None:
        if out is not None:
            out.start_to_gpu()
            out.wait()

    def ended(error: BaseException | None) -> None:
        if error is None:
            to_gpu()

    def run() -> None:
        order.begin()
        to_host()
        native.run()
        to_gpu()

    def begin() -> Request:
        to_host()
        return Followed(native.start(), ended)

    def start() -> Request:
        return StreamRequest(order, begin)

    # The library's own method knows the host's copies only.
    return native._replace(run=run, start=start, transport=STAGED, method=None, run_on=None)


def direct(native: Native, arrays: Arrays, like: Array) -> Native:
    """Make a native collective that reads GPU arrays wait for the work that produces them."""
    order = PlanStream(arrays, like)

    def ready() -> None:
        order.begin()
        arrays.synchronize(like)

    return after(ready, native)._replace(transport=DIRECT)


def after(first: Thunk, native: Native) -> Native:
    """Have a call come before each run of a native collective."""

    def run() -> None:
        first()
        native.run()

    def start() -> Request:
        first()
        return native.start()

    def method() -> None:
        assert native.method is not None
        first()
        native.method()

    new_method = method if native.method is not None else None
    return native._replace(run=run, start=start, method=new_method, run_on=None)


def queued(arrays: Arrays, like: Array, calls: Sequence[Thunk], transport: str) -> Native:
    """Bind calls that only put work on the caller's stream, so that a CUDA graph captures them.

    Args:
        like: an array of the call.
        transport: for the record.
    """
    order = PlanStream(arrays, like, captures=True)

    def run() -> None:
        order.begin()
        for call in calls:
            call()

    def start() -> Request:
        stream = order.begin()
        for call in calls:
            call()
        return Queued(partial(order.end, stream))

    return Native(run, start, lambda: None, transport)


def _host(array: Array | None, staging: HostStaging | None) -> Array | None:
    """Return an array's host memory in the shape of the array."""
    if array is None or staging is None:
        return None
    return staging.host.reshape(array.shape)


class Queued:
    """Work that is on its stream; a wait makes the caller's stream follow that.

    Args:
        ends: waits on the host until the work is done, if anything does.
        is_done: whether it is done, where `ends` is given.
    """

    def __init__(
        self, follow: Thunk, ends: Thunk | None = None,
        is_done: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self.follow, self.ends, self.is_done = follow, ends, is_done

    def wait(self) -> None:
        self.follow()
        if self.ends is not None:
            self.ends()

    def test(self) -> bool:
        self.follow()
        return self.is_done()

"""The stream of a plan's runs on a GPU, and of a message, and a stopwatch of its work.

The work of one run is in the order of the stream on which the run began, and the runs of one plan
are in order: they share scratch memory and slots. So a run on another stream than the last begins
by waiting, on the GPU, for all that is on the last one.

Memory that a plan has taken for itself goes back to the stream on which it was made: torch's and
CuPy's pools give it to the next who asks there, at once, as "if a tensor is used on a stream
different from the stream of origin, the allocator might reuse the memory unexpectedly" (torch,
`Tensor.record_stream`). So when a plan goes, that stream waits for its last run, too.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mpicoll.backend import Array, Arrays, Request, Stream
from mpicoll.engine.stream_watch import StreamWatch
from mpicoll.errors import Unsupported


class PlanStream:
    """The stream of a plan's runs: at each, that of the caller.

    Args:
        like: an array of the plan.
        captures: whether all of a run is work on the GPU, as over NCCL.

    Attributes:
        current: the stream of the run that is being put there.
        watch: over runs that wait for other ranks on the GPU; None where hosts wait.
    """

    current: Stream
    watch: StreamWatch | None = None

    def __init__(self, arrays: Arrays, like: Array, *, captures: bool = False) -> None:
        # A query for each run would make an object of its GPU.
        self.arrays, self.gpu, self.captures = arrays, arrays.gpu(like), captures
        self.last: list[Stream] = []
        arguments = arrays.current_stream(self.gpu), self.last, os.getpid()
        weakref.finalize(self, _give_back, *arguments).atexit = False

    def check(self) -> None:
        """Raise the error that has ended an earlier run on the GPU: RankLost."""
        if self.watch is not None and self.watch.error is not None:
            raise self.watch.error

    def begin(self) -> Stream:
        """Return the stream of a run that begins.

        Raises:
            Unsupported: a CUDA graph is being captured on it.
        """
        self.current = stream = self.arrays.current_stream(self.gpu)
        if not stream.is_capturing():
            if self.last and self.last[0] != stream:
                stream.follow(self.last[0])
            self.last[:] = [stream]
        elif not self.captures:
            raise Unsupported(
                "a CUDA graph cannot capture this: the host waits for flags and messages of the "
                "other ranks every time, and a graph repeats the work of the GPU alone"
            )
        # Between what a graph records and other runs, the order is the graph's business.
        if self.watch is not None:
            self.watch.enter(stream)
        return stream

    def end(self, stream: Stream) -> None:
        caller_stream = self.arrays.current_stream(self.gpu)
        if caller_stream != stream:
            caller_stream.follow(stream)


def _give_back(made_on: Stream, last: list[Stream], process: int) -> None:
    """Have the stream on which a plan was made wait for its last run."""
    if os.getpid() != process:
        return  # a forked child has no GPU
    with suppress(Exception):  # the driver may be shutting down
        for stream in last:
            # A graph would take in what was put on the other stream before.
            if stream != made_on and not (made_on.is_capturing() or stream.is_capturing()):
                made_on.follow(stream)


class StreamRequest:
    """A request whose work goes on the stream on which it began, whoever waits for it.

    What comes from the host is so written after all that the stream did with the array before;
    whoever learns that it is complete finds it on a stream of its own, too.

    Args:
        start: begins it.

    Raises:
        Unsupported: a CUDA graph is being captured on the stream.
    """

    def __init__(self, order: PlanStream, start: Callable[[], Request]) -> None:
        self.order, self.stream = order, order.begin()
        self.request = start()

    def wait(self) -> None:
        with self.stream.use():
            self.request.wait()
        self.order.end(self.stream)

    def test(self) -> bool:
        with self.stream.use():
            is_complete = self.request.test()
        if is_complete:
            self.order.end(self.stream)
        return is_complete


class EventStopwatch:
    """`mpicoll.backend.Stopwatch` by two events of CUDA.

    Args:
        new_event: makes an event of torch's or CuPy's.
        elapsed: returns the milliseconds from one to the other.
    """

    def __init__(self, new_event: Callable[[], Any], elapsed: Callable[..., float]) -> None:
        self.begin, self.end, self.elapsed = new_event(), new_event(), elapsed

    def start(self) -> None:
        self.begin.record()

    def stop(self) -> None:
        self.end.record()
        self.end.synchronize()

    def nanoseconds(self) -> int:
        return int(self.elapsed(self.begin, self.end) * 1e6)

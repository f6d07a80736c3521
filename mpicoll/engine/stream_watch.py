"""Watch the runs that wait on a GPU: no host is there to see that a rank does not come.

A thread looks from time to time at a line of host memory in which the stream writes where it is.
Where it stays, and the rank it waits for has ended, has left the operation or does not come before
the deadline, the thread writes the words that the stream waits for itself: the stream goes on, with
results that mean nothing, and the error is raised at the plan's next run, as of any work on a GPU.
Until then it stands on standard error. A run that a CUDA graph repeats is not watched.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from time import sleep
from typing import NamedTuple

from mpicoll.backend import Memory, SharedMemory, Stream, WaitContext
from mpicoll.errors import RankLost
from mpicoll.machine.hidden_threads import HiddenThread
from mpicoll.machine.living import has_ended
from mpicoll.machine.waited import Waited
from mpicoll.memory.slots import SharedResources

_SECONDS = 0.1
"""Between two looks."""
_MOST_RUNS = 1 << 30
_LOW = 0xFFFFFFFF


class Awaited(NamedTuple):
    """A word that a stream waits for: see `WordOperation`."""

    words: Memory
    offset: int
    value: int
    context: WaitContext


class StreamWatch:
    """The watch over the runs of one plan.

    Args:
        words: the stream writes the number of the run at `index`, 0 at its end, and its position
            in the word after it.
        awaited: what the stream waits for at each position.
        begin: takes the number that the stream writes at the begin of the next run.

    Attributes:
        error: what has ended a run.
    """

    def __init__(
        self, memory: SharedMemory, resources: SharedResources, words: Memory, index: int,
        awaited: Sequence[Sequence[Awaited]], begin: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.memory, self.resources, self.begin = memory, resources, begin
        self.words, self.index, self.awaited = words, index, awaited
        contexts = (word.context for part in awaited for word in part)
        self.peers = [*{context.peer: context for context in contexts}.values()]
        self.run, self.seen = 0, (0, 0)
        self.waited = Waited()
        self.error: RankLost | None = None

    def enter(self, stream: Stream) -> None:
        """Give a new run on a stream its number, 0 where a graph records it."""
        if self.resources.failed:
            return
        self.run = 0 if stream.is_capturing() else self.run % _MOST_RUNS + 1
        self.begin(self.run)
        _watch(self)

    def look(self) -> None:
        """See whether the stream will go on; let it go, with an error, where it will not."""
        run, position = (value & _LOW for value in self.words[self.index : self.index + 2])
        if (run, position) != self.seen:
            self.seen, self.waited = (run, position), Waited()
        waits = bool(run) and position < len(self.awaited)
        missing = (
            [word for word in self.awaited[position] if not _has_arrived(word)] if waits else []
        )
        if self.error is None and not self.resources.failed:
            self._end(self._error_of_left_rank() or self._lost(missing))
        if self.error is not None:
            for word in missing:
                word.words[word.offset] = word.value

    def _end(self, error: RankLost | None) -> None:
        if error is not None:
            self.error = error
            self.resources.fail(error)
            os.write(2, f"the results of this call mean nothing: {error}\n".encode())

    def _error_of_left_rank(self) -> RankLost | None:
        """Return the error of a rank that has left: its stream goes on, but without results."""
        for context in self.peers:
            if why := context.abort_reason():
                return self.memory.wait_policy.lost(context, why)
        return None

    def _lost(self, missing: Sequence[Awaited]) -> RankLost | None:
        """Return the error of a rank that will not come, or has not by the deadline."""
        policy, seconds = self.memory.wait_policy, self.waited.look()
        for word in missing:
            if has_ended(self.memory.processes[word.context.peer]) and not _has_arrived(word):
                return policy.lost(word.context, "which has ended")
        if missing and seconds > policy.deadline:
            return policy.lost(missing[0].context, f"which did not come in {seconds:.3g} s")
        return None


def _has_arrived(word: Awaited) -> bool:
    value = word.words[word.offset] & _LOW
    return value >= word.value if word.value else value == 0


_lock = threading.Lock()
_watches: weakref.WeakSet[StreamWatch] = weakref.WeakSet()
_thread: HiddenThread | None = None


def _watch(watch: StreamWatch) -> None:
    """Look at a plan's runs from now on."""
    global _thread
    if watch in _watches:
        return
    with _lock:
        _watches.add(watch)
        if _thread is None:
            _thread = HiddenThread(_look, "mpicoll stream watch")


def _look() -> None:
    global _thread
    while True:
        sleep(_SECONDS)
        with _lock:
            watches = list(_watches)
            if not watches:
                _thread = None
                return
        for watch in watches:
            watch.look()
        del watch, watches

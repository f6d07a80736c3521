"""A rank that makes empty calls, and the flight file that it writes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from launcher import LIMIT

from mpicoll.engine import _compiled
from mpicoll.flight import groups
from mpicoll.flight.reader import Dump, read
from mpicoll.flight.recorder import Recorder
from mpicoll.flight.records import Call, Group


class Rank(NamedTuple):
    """A rank whose calls are empty."""

    recorder: Recorder
    log: Any
    place: int

    def call(self) -> None:
        """Make a call."""
        self.log.end(self.log.begin(self.place))

    def sample(self, condition: Callable[[Dump], bool] | None = None) -> Dump:
        """Make calls until the condition holds, or for a sample; return what the file has."""
        last = self.dump().samples[-1:]
        until = time.monotonic() + LIMIT
        while not (condition(self.dump()) if condition else self.dump().samples[-1:] != last):
            assert time.monotonic() < until
            time.sleep(0.001)
            self.call()
        return self.dump()

    def dump(self) -> Dump:
        """Return the content of the file."""
        return read(self.recorder.path)


def rank_of_file(number: int = 0) -> Rank:
    """Return a rank that has a file, and nothing else of the recorder."""
    recorder = Recorder("job-of-a-test", (number, 2), writers=_compiled)
    log = _compiled.Log(recorder.ring, recorder.intern(Group("1234", "world", number, "0-1")))
    return Rank(recorder, log, recorder.intern(Call("allreduce")))


def rank_of_process() -> Rank:
    """Return a rank of this process, whose signals the recorder watches."""
    flight = groups.join(lambda item, kind: [item, item], 0, 2, writers=_compiled)
    assert flight is not None
    return Rank(flight.recorder, flight.log, flight.call("allreduce", "", "", ""))


def descriptors() -> set[int]:
    """Return the descriptors of this process from which samples are read."""
    links = {number: f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")}
    return {
        int(number)
        for number, link in links.items()
        if os.path.lexists(link) and "schedstat" in os.readlink(link)
    }

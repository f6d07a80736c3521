"""Run a plan for the calls of a method between nodes, and state in which call this rank is.

`stated_type.c` does the same for plans that run on copies of a call's arrays on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mpicoll.backend import Array
from mpicoll.execution import extension
from mpicoll.peers.calls import BEGUN, ENDED, PLAN, Calls
from mpicoll.runtime.arguments import Arguments
from mpicoll.runtime.kept import Kept
from mpicoll.runtime.known_calls import Serve


class Served(NamedTuple):
    """A call that plans of calls from Python serve.

    Attributes:
        arguments: of such a call; its arrays are not kept.
        digest: what all ranks state of it.
        takes: whether it uses the `x` and the `out` that are given.
        gives: whether it writes a result on this rank.
        place: in the table of the flight recorder.
    """

    kept: Kept
    arguments: Arguments
    digest: bytes
    takes: tuple[bool, bool]
    gives: bool
    place: int

    @property
    def returns(self) -> bool:
        """Whether it returns an array on this rank."""
        return self.kept.arguments is None or self.kept.plan.out is not None

    @property
    def copies(self) -> bool:
        """Whether its plan runs on copies of arrays on the host."""
        return self.kept.arguments is not None and self.arguments.device != "gpu"


class NoLog:
    """Records nothing."""

    begin = staticmethod(lambda place: 0)
    end = staticmethod(lambda row, error: None)


class Steps(NamedTuple):
    """What the plans of one group need to serve a call.

    Attributes:
        make: makes the array of a result.
        run: runs the plan for an input and an output.
        fail: takes the error of such a call, and its x and out; serves it otherwise, or raises.
    """

    make: Callable[[], Array | None]
    run: Callable[[Array | None, Array | None], object]
    fail: Callable[[BaseException, Array | None, Array | None], Array | None]


def stated(served: Served, steps: Steps, calls: Calls, log: Any, arrays: Any) -> Serve:
    """Return what serves calls like one that was served.

    Args:
        log: of the flight recorder; None where nothing is recorded.
        arrays: a table that reads arrays without Python; None where there is none.
    """
    kept, (takes_x, takes_out), numbers = served.kept, served.takes, calls.numbers
    begin, end = (log or NoLog).begin, (log or NoLog).end
    meet, release = (None if each is None else each.run for each in (kept.meet, kept.release))
    make, run, fail = steps

    def serve(x: Array | None, out: Array | None) -> Array | None:
        row, found = begin(served.place), out
        try:
            if out is None or not takes_out:
                found = make()
            numbers[PLAN] = kept.number
            numbers[BEGUN] += 1
            if meet is not None:
                meet()
            run(x if takes_x else None, found)
            if release is not None:
                release()
        except BaseException as error:
            end(row, error)
            return fail(error, x, out)
        numbers[ENDED] = numbers[BEGUN]
        end(row, None)
        return found if served.returns else None

    if arrays is None or not served.copies:
        return serve
    own = kept.arguments
    assert own is not None
    compiled: Serve = extension.stated(
        arrays, numbers, kept.number, log, served.place,
        x=own.x if takes_x else None, out=kept.plan.out if served.gives else None,
        meet=meet, run=kept.plan.run, release=release,
        make=make if served.arguments.has_output else None, failed=fail, otherwise=serve,
        takes_out=takes_out, returns=served.returns,
    )  # fmt: skip
    return compiled

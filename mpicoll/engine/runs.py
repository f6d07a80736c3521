"""Runs of plans that were started, which their program advances.

The extension's thread advances rows that need no Python. A run of messages goes on as it is tested
or waited for, and a wait for one run advances all, so that ranks may wait in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from mpicoll.backend import Request, Stream
from mpicoll.engine.row_waits import RowWaits
from mpicoll.errors import RankLost
from mpicoll.flight.rows import Log
from mpicoll.machine.waited import Looks
from mpicoll.memory.waiting import StartedRun, Unadvanced, advance_others

if TYPE_CHECKING:
    from mpicoll.engine._compiled import Program
    from mpicoll.engine.stream_watch import StreamWatch


class PlanStream(Protocol):
    """The stream of a plan's runs on a GPU: `mpicoll.gpu.streams`.

    Attributes:
        current: the stream of the run that is being put there.
        watch: over runs that wait for other ranks on the GPU; None where hosts wait.
    """

    current: Stream
    watch: StreamWatch | None

    def check(self) -> None:
        """Raise the error that has ended an earlier run on the GPU."""

    def begin(self) -> Stream:
        """Return the stream of a run that begins."""

    def end(self, stream: Stream) -> None:
        """Make the caller's stream follow a run that was started on another one."""


class Followed:
    """A request of which somebody is told the end.

    Args:
        then: takes the error by which it has ended, None where it is complete; called once.
    """

    def __init__(self, request: Request, then: Callable[[BaseException | None], object]) -> None:
        self.request = request
        self.then: Callable[[BaseException | None], object] | None = then

    def wait(self) -> None:
        try:
            self._wait()
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)

    def _wait(self) -> None:
        self.request.wait()

    def test(self) -> bool:
        try:
            is_complete = self.request.test()
        except BaseException as error:
            self._end(error)
            raise
        if is_complete:
            self._end(None)
        return is_complete

    def _end(self, error: BaseException | None) -> None:
        then, self.then = self.then, None
        if then is not None:
            then(error)


def recorded_start(log: Log, call: int, start: Callable[[], Request]) -> Request:
    """Return a request that is started, whose row in the flight recorder ends with it."""
    number = log.start(call)
    try:
        return Followed(start(), partial(log.end, number))
    except BaseException as error:
        log.end(number, error)
        raise


class ProgramRun:
    """A run of a program: it begins at once, and goes on as it is tested or waited for.

    An error ends this run alone and is raised where this run is waited for, as a wait for another
    run may be what advances it.

    Args:
        calls: the program has callbacks, which the extension's thread cannot run.
        started: the runs that this thread advances.
        order: the stream that all its work on a GPU goes to; None on the host.
    """

    is_complete = True
    """Until it has begun."""

    def __init__(
        self, program: Program, waits: RowWaits, started: list[StartedRun], *, calls: bool,
        order: PlanStream | None = None,
    ) -> None:  # fmt: skip
        self.program, self.waits, self.resources = program, waits, waits.resources
        self.started, self.order = started, order
        self.stream = None if order is None else order.begin()
        self.error: BaseException | None = None
        self.is_complete = False
        self.marked: object = None
        self.tested: Looks | None = None
        self.resources.under_way = True
        self._attempt(program.start)
        goes_on_by_itself = program.given and not calls
        if not (self.is_complete or goes_on_by_itself):
            self.started.append(self)

    def __del__(self) -> None:
        # Other ranks wait for a run that nobody here waits for.
        if not self.is_complete and self not in self.started:
            self.started.append(self)

    def test(self) -> bool:
        self.advance()
        if not self.is_complete:
            self._attempt(self._look)
        return self._result()

    def _look(self) -> bool:
        """Give up where tests have been in vain until the deadline, as a wait would be.

        Raises:
            RankLost: nothing has advanced until then, or a rank will not come.
        """
        mark = self.mark()
        if self.tested is None or mark != self.marked:
            self.marked, self.tested = mark, Looks()
        seconds = self.tested.look()
        if self.tested.is_due():
            self._look_at_ranks()
            self.tested.look()  # to ask a rank may take a second, which is no suspension
        if seconds > self.resources.deadline():
            reason = f"which did not come in {seconds:.3g} s"
            raise self._lost(reason) or Unadvanced(f"no test was of use in {seconds:.3g} s")
        return False

    def wait(self) -> None:
        deadline = self.resources.deadline()
        try:
            while not self.is_complete:
                if self.started and self.started != [self]:
                    all_here = list(dict.fromkeys((self, *self.started)))
                    look = self._look_at_ranks
                    try:
                        advance_others(all_here, lambda: self.is_complete, deadline, look)
                    except Unadvanced as error:
                        reason = f"which did not come in {deadline:.3g} s"
                        raise self._lost(reason) or error from None
                else:
                    if self in self.started:
                        self.started.remove(self)  # the program waits for the others alone
                    self._attempt(self._complete)
        except Exception as error:
            self._fail(error)
        except BaseException as interrupt:
            self._fail(interrupt)
            raise
        self._result()

    def _complete(self) -> bool:
        self.program.wait()
        return True

    def mark(self) -> object:
        return self.program.position

    def advance(self) -> None:
        self._attempt(self.program.test)

    def _look_at_ranks(self) -> None:
        """Raise RankLost where a rank that it waits for will not come."""
        self.waits.look(self.program.position)

    def _lost(self, reason: str) -> RankLost | None:
        """Return the error of its wait, given the reason as the end of a sentence."""
        return self.waits.lost(self.program.position, reason)

    def _result(self) -> bool:
        if self.error is not None:
            raise self.error
        if self.is_complete and self.order is not None and self.stream is not None:
            self.order.end(self.stream)
        return self.is_complete

    def _attempt(self, step: Callable[[], bool]) -> None:
        try:
            if self.resources.failed and not self.is_complete:
                raise RuntimeError("this plan runs no more: it has failed, or was forked")
            if not self.is_complete and self._runs(step):
                self._leave()
        except Exception as error:
            self._fail(error)
        except BaseException as interrupt:
            # It may have ended a step in its middle.
            self._fail(interrupt)
            raise

    def _runs(self, step: Callable[[], bool]) -> bool:
        """Run a step on its stream; whether it completes the run."""
        if self.stream is None:
            return step()
        with self.stream.use():
            return step()

    def _fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self.program.stop()
        self.resources.fail(error)
        self._leave()

    def _leave(self) -> None:
        self.is_complete, self.resources.under_way = True, False
        if self in self.started:
            self.started.remove(self)

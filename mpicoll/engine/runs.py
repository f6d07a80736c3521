"""Runs of plans that were started, which their program advances.

The extension's thread advances rows that need no Python. A run of messages goes on as it is tested
or waited for, and a wait for one run advances all, so that ranks may wait in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mpicoll.backend import Request, Stream, Thunk
from mpicoll.engine.row_waits import RowWaits
from mpicoll.errors import RankLost
from mpicoll.machine.waited import Looks
from mpicoll.memory.waiting import StartedRun, Unadvanced, advance_others

if TYPE_CHECKING:
    from mpicoll.engine._compiled import Program


class PlanStream(Protocol):
    """The stream of a plan's runs on a GPU: `mpicoll.gpu.streams`."""

    def check(self) -> None:
        """Raise the error that has ended an earlier run on the GPU."""

    def begin(self) -> Stream:
        """Return the stream of a run that begins."""

    def end(self, stream: Stream) -> None:
        """Make the caller's stream follow a run that was started on another one."""


class Resources(Protocol):
    """The requests and memory of a plan, kept alive as long as the plan can run.

    Attributes:
        under_way: whether a started run is not complete.
        failed: whether a run has failed in its middle.
    """

    under_way: bool
    failed: bool

    def fail(self, error: BaseException) -> None:
        """Run no more, as a run has failed, and tell the other ranks."""

    def free(self) -> None:
        """Release the library's requests and the shared memory."""

    def deadline(self) -> float:
        """Return the seconds after which a rank that waits gives up."""


class Run(Protocol):
    """One run of a schedule, on its way."""

    @property
    def goes_on(self) -> bool:
        """Whether it advances by itself once it has begun."""

    def begin(self) -> bool:
        """Begin; whether it is complete."""

    def advance(self) -> bool:
        """Advance as far as is possible without waiting; whether it is complete."""

    def wait(self) -> bool:
        """Advance, waiting if need be; whether it is complete."""

    def mark(self) -> object:
        """Return something that differs once it has advanced."""

    def look(self) -> None:
        """Raise RankLost where a rank that it waits for will not come."""

    def stop(self) -> None:
        """Advance no more."""

    def lost(self, reason: str) -> RankLost | None:
        """Return the error of its wait, given the reason as the end of a sentence."""


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


class OnStream:
    """A run whose work goes on one stream of a GPU, whoever advances it."""

    goes_on = False

    def __init__(self, run: Run, stream: Stream) -> None:
        self.run, self.stream = run, stream
        self.mark, self.look, self.stop, self.lost = run.mark, run.look, run.stop, run.lost

    def begin(self) -> bool:
        with self.stream.use():
            return self.run.begin()

    def advance(self) -> bool:
        with self.stream.use():
            return self.run.advance()

    def wait(self) -> bool:
        with self.stream.use():
            return self.run.wait()


class ProgramRun:
    """A run of a program.

    Args:
        calls: the program has callbacks, which the extension's thread cannot run.
    """

    def __init__(self, program: Program, waits: RowWaits, *, calls: bool) -> None:
        self.program, self.waits, self.calls = program, waits, calls
        self.begin, self.advance, self.stop = program.start, program.test, program.stop

    @property
    def goes_on(self) -> bool:
        return self.program.given and not self.calls

    def mark(self) -> object:
        return self.program.position

    def look(self) -> None:
        self.waits.look(self.program.position)

    def wait(self) -> bool:
        self.program.wait()
        return True

    def lost(self, reason: str) -> RankLost | None:
        return self.waits.lost(self.program.position, reason)


class Progress:
    """A schedule under way: it begins at once, and goes on as it is tested or waited for.

    An error ends this run alone and is raised where this run is waited for, as a wait for another
    run may be what advances it.

    Args:
        arrive: what whoever waits for it does when it is complete.
    """

    def __init__(
        self, run: Run, resources: Resources, started: list[StartedRun],
        arrive: Thunk | None = None,
    ) -> None:  # fmt: skip
        self.run, self.resources, self.started, self.arrive = run, resources, started, arrive
        self.error: BaseException | None = None
        self.is_complete = False
        self.marked: object = None
        self.tested: Looks | None = None
        resources.under_way = True
        self._attempt(run.begin)
        if not (self.is_complete or run.goes_on):
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
        mark = self.run.mark()
        if self.tested is None or mark != self.marked:
            self.marked, self.tested = mark, Looks()
        seconds = self.tested.look()
        if self.tested.is_due():
            self.run.look()
            self.tested.look()  # to ask a rank may take a second, which is no suspension
        if seconds > self.resources.deadline():
            reason = f"which did not come in {seconds:.3g} s"
            raise self.run.lost(reason) or Unadvanced(f"no test was of use in {seconds:.3g} s")
        return False

    def wait(self) -> None:
        deadline = self.resources.deadline()
        try:
            while not self.is_complete:
                if self.started and self.started != [self]:
                    all_here = list(dict.fromkeys((self, *self.started)))
                    try:
                        look = self.run.look
                        advance_others(all_here, lambda: self.is_complete, deadline, look)
                    except Unadvanced as error:
                        reason = f"which did not come in {deadline:.3g} s"
                        raise self.run.lost(reason) or error from None
                else:
                    if self in self.started:
                        self.started.remove(self)  # the program waits for the others alone
                    self._attempt(self.run.wait)
        except Exception as error:
            self._fail(error)
        except BaseException as interrupt:
            self._fail(interrupt)
            raise
        self._result()

    def mark(self) -> object:
        return self.run.mark()

    def advance(self) -> None:
        self._attempt(self.run.advance)

    def _result(self) -> bool:
        if self.error is not None:
            raise self.error
        if self.is_complete and self.arrive is not None:
            self.arrive()
        return self.is_complete

    def _attempt(self, step: Callable[[], bool]) -> None:
        try:
            if self.resources.failed and not self.is_complete:
                raise RuntimeError("this plan runs no more: it has failed, or was forked")
            if not self.is_complete and step():
                self._leave()
        except Exception as error:
            self._fail(error)
        except BaseException as interrupt:
            # It may have ended a step in its middle.
            self._fail(interrupt)
            raise

    def _fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self.run.stop()
        self.resources.fail(error)
        self._leave()

    def _leave(self) -> None:
        self.is_complete, self.resources.under_way = True, False
        if self in self.started:
            self.started.remove(self)

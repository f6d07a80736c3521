"""Plans: a collective bound to its arrays, to run many times.

Interpreting a schedule at each call costs more than a small message, so a plan is a flat tuple of
calls without arguments, bound to memory and to the library's requests. A started plan takes the
same calls round by round; a wait for one advances all, so ranks may wait in any order. A compiled
program is advanced by a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from math import inf
from typing import Any, NamedTuple, Protocol, Self

from mpicoll.interfaces import Array, Messages, Request, Stream, Thunk
from mpicoll.memory.waiting import StartedRun, advance_others, started_here


class BoundRound(NamedTuple):
    """One round, bound to memory and messages.

    Attributes:
        during: local work that may be done while the messages travel.
    """

    before: tuple[Thunk, ...]
    messages: Messages
    during: tuple[Thunk, ...] = ()
    after: tuple[Thunk, ...] = ()


NO_MESSAGES = Messages((), (), lambda: True, lambda: None)

Variant = Callable[[], list[BoundRound]]
"""Binds the rounds of a run; a program whose buffers have a depth of n has n variants."""


class PlanStream(Protocol):
    """The stream of a plan's runs on a GPU: `mpicoll.gpu.streams`."""

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


class Plan:
    """A collective bound to its arrays, to run many times.

    Every rank runs its plans in the same order. ``run()`` blocks; ``start()`` returns a
    request whose ``wait()`` completes it and whose ``test()`` advances it. Until one of them
    says that it is complete, the plan neither runs nor starts again; after an error in the middle
    of a run it never does, and the other ranks of that run get RankLost. `free` (or leaving a
    ``with`` block, or dropping the plan) releases the library's requests.

    Attributes:
        algorithm: the algorithm that runs, with its parameters.
        transport: how its messages travel.
        note: for a library's default, the library's own choice and how this one differs from it.
        out: the array that holds the result after a run, None where this rank gets none.
        program: the compiled program that it runs, None where calls from Python do.
        executor: ``compiled``, ``closures`` of Python, or ``native``: the library's own call.
        method: of a native plan, the library's own method as its users write it, on the same
            arrays; None where `run` is that.
        run: run the collective once. RuntimeError where it is under way, freed or has failed: a
            function that raises replaces this attribute, so that a run need not check.
        fail: takes the error by which this rank has left a run.
    """

    note = ""
    executor = "closures"
    program: Program | None = None
    method: Thunk | None = None
    fail: Callable[[BaseException], None] = staticmethod(lambda error: None)

    def __init__(
        self, algorithm: str, transport: str, out: Array | None, run: Thunk,
        start: Callable[[], Request], free: Thunk,
    ) -> None:  # fmt: skip
        self.algorithm, self.transport, self.out = algorithm, transport, out
        self.run = self._run = run
        self._start, self._free = start, free

    def start(self) -> Request:
        """Begin to run the collective.

        Raises:
            RuntimeError: it is under way or freed, or has failed.
        """
        if self.run is not self._run:
            self.run()
        request = self._start()
        self.run = _busy
        if self.program is not None:
            self.program.busy = True
        return _Started(request, self._end)

    def _end(self) -> None:
        self.run = self._run
        if self.program is not None:
            self.program.busy = False

    def free(self) -> None:
        """Release the library's requests and the memory; the plan cannot run afterwards.

        Raises:
            RuntimeError: it is under way.
        """
        if self.run is _busy:
            _busy()
        self.run = _freed
        self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # An error during a started run must not be hidden by one about that run.
        if exception[0] is None or self.run is not _busy:
            self.free()

    def __repr__(self) -> str:
        return f"<Plan {self.algorithm} over {self.transport}>"


def _freed() -> Any:
    raise RuntimeError("this plan has been freed: make a new one")


def _busy() -> Any:
    raise RuntimeError("this plan is under way: wait for it before it runs again, or is freed")


def _failed() -> Any:
    raise RuntimeError("this plan failed in the middle of its last run: make a new one")


class _Started:
    """A started run; `then` is called once it is complete or has failed."""

    def __init__(self, request: Request, then: Thunk) -> None:
        self.request = request
        self.then: Thunk | None = then

    def wait(self) -> None:
        try:
            if (started := started_here()) and not isinstance(self.request, Progress):
                # The library's own wait would advance nothing else.
                advance_others(started, self.request.test, inf)
            self.request.wait()
        finally:
            self._end()

    def test(self) -> bool:
        done = True
        try:
            done = self.request.test()
        finally:
            if done:
                self._end()
        return done

    def _end(self) -> None:
        then, self.then = self.then, None
        if then is not None:
            then()


def scheduled(
    algorithm: str, transport: str, out: Array | None, variants: Sequence[Variant],
    finish: list[Thunk], resources: Resources, *, at_once: bool = False,
    stream: PlanStream | None = None,
) -> Plan:  # fmt: skip
    """Make a plan of a schedule; its runs take the variants in turn.

    Args:
        at_once: a start posts all rounds before it returns, as their messages are matched by the
            order in which they are posted: those of two plans that go on as they are waited for
            would come in an order of its own on every rank.
        stream: that of its work on a GPU; None for work on the host.
    """
    order = _runs(variants, finish)
    only = next(order)[0] if len(variants) == 1 else None
    started = started_here()

    # A caller may keep only `plan.run`: the default argument keeps the requests alive with it.
    def run(_alive: object = resources) -> None:
        if started or resources.failed:
            start().wait()
            return
        try:
            for thunk in only or next(order)[0]:
                thunk()
        except BaseException as error:
            resources.fail(error)
            raise

    def run_on_gpu() -> None:
        assert stream is not None
        if not resources.failed:
            stream.begin()
        run()

    def start() -> Request:
        _check(resources)
        rounds = Rounds(next(order)[1], finish)
        if stream is None:
            progress = Progress(rounds, resources, started)
        else:
            used = stream.begin()
            end = partial(stream.end, used)
            progress = Progress(OnStream(rounds, used), resources, started, end)
        if at_once:
            progress.wait()
        return progress

    plan = Plan(algorithm, transport, out, run_on_gpu if stream else run, start, resources.free)
    plan.fail = resources.fail
    return plan


def compiled(
    algorithm: str, transport: str, out: Array | None, program: Program, resources: Resources
) -> Plan:
    """Make a plan of a compiled program."""
    started = started_here()

    def start() -> Request:
        _check(resources)
        return Progress(ProgramRun(program), resources, started)

    plan = Plan(algorithm, transport, out, program.run, start, resources.free)
    plan.program, plan.executor = program, "compiled"
    plan.fail = resources.fail
    return plan


def _check(resources: Resources) -> None:
    """Raise RuntimeError where a plan cannot run."""
    if resources.under_way:
        _busy()
    if resources.failed:
        _failed()


def _runs(
    variants: Sequence[Variant], finish: list[Thunk]
) -> Iterator[tuple[tuple[Thunk, ...], list[BoundRound]]]:
    """Yield the variants over and over, flat and in rounds; each is bound at its first use."""
    made = []
    for variant in variants:
        rounds = variant()
        made.append(((*_flat(rounds), *finish), rounds))
        yield made[-1]
    yield from cycle(made)


def _flat(rounds: Sequence[BoundRound]) -> Iterator[Thunk]:
    """Yield the calls of a blocking run."""
    for each in rounds:
        yield from (*each.before, *each.messages.start, *each.during)
        yield from (*each.messages.wait, *each.after)


# -- started runs -------------------------------------------------------------------------


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

    def stop(self) -> None:
        """Advance no more."""


class Rounds:
    """A run of rounds: its begin posts the first one, and what advances it later ones."""

    goes_on = False

    def __init__(self, rounds: list[BoundRound], finish: list[Thunk]) -> None:
        self.remaining, self.finish = iter(rounds), finish
        self.current: BoundRound | None = None

    def mark(self) -> object:
        return id(self.current)

    def stop(self) -> None:
        pass

    def begin(self) -> bool:
        self._next()
        return self.current is None

    def advance(self) -> bool:
        while self.current is not None and self.current.messages.test():
            self._land(self.current)
        return self.current is None

    def wait(self) -> bool:
        if self.current is not None:
            for thunk in self.current.messages.wait:
                thunk()
            self._land(self.current)
        return self.current is None

    def _next(self) -> None:
        self.current = next(self.remaining, None)
        if self.current is None:
            posted: Sequence[Thunk] = self.finish
        else:
            posted = (*self.current.before, *self.current.messages.start, *self.current.during)
        for thunk in posted:
            thunk()

    def _land(self, current: BoundRound) -> None:
        for thunk in current.after:
            thunk()
        self._next()


class OnStream:
    """A run whose work goes on one stream of a GPU, whoever advances it."""

    goes_on = False

    def __init__(self, run: Run, stream: Stream) -> None:
        self.run, self.stream = run, stream
        self.mark, self.stop = run.mark, run.stop

    def begin(self) -> bool:
        with self.stream.use():
            return self.run.begin()

    def advance(self) -> bool:
        with self.stream.use():
            return self.run.advance()

    def wait(self) -> bool:
        with self.stream.use():
            return self.run.wait()


class Program(Protocol):
    """A compiled program: `mpicoll.execution._compiled.Program`.

    Attributes:
        busy: it may not run, as a run that was started has not been waited for.
        given: the progress thread runs it; or has, and nobody has asked since.
        sequence: the number of the run that is under way, or was the last.
        position: the next instruction.
    """

    busy: bool
    given: bool
    sequence: int
    position: int

    def run(self) -> None:
        """Run it once."""

    def run_on(self, x: int, out: int) -> None:
        """Run it once, on an input and an output at these addresses."""

    def start(self) -> bool:
        """Begin a run; whether it is complete."""

    def test(self) -> bool:
        """Advance without waiting; whether the run is complete."""

    def wait(self) -> None:
        """Complete the run."""

    def stop(self) -> None:
        """Leave the run as it is: the progress thread must not go on with it."""


class ProgramRun:
    """A run of a compiled program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.begin, self.advance, self.stop = program.start, program.test, program.stop

    @property
    def goes_on(self) -> bool:
        return self.program.given

    def mark(self) -> object:
        return self.program.position

    def wait(self) -> bool:
        self.program.wait()
        return True


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
        return self._result()

    def wait(self) -> None:
        deadline = self.resources.deadline()
        try:
            while not self.is_complete:
                if self.started and self.started != [self]:
                    all_here = list(dict.fromkeys((self, *self.started)))
                    advance_others(all_here, lambda: self.is_complete, deadline)
                else:
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
        """Advance as far as is possible without waiting."""
        self._attempt(self.run.advance)

    def _result(self) -> bool:
        if self.error is not None:
            raise self.error
        if self.is_complete and self.arrive is not None:
            self.arrive()
        return self.is_complete

    def _attempt(self, step: Callable[[], bool]) -> None:
        try:
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

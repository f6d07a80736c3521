"""A collective bound to its arrays: schedules compiled once, natives, and chains of them.

Interpreting a schedule at each call costs more than a small message, so a plan is a
flat tuple of calls without arguments, bound to memory and to the library's requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from math import inf
from typing import Any, NamedTuple, Protocol, Self

from mpicoll.interfaces import Array, Arrays, Message, Messages, Native, Request, Thunk, Transport
from mpicoll.memory.waiting import Idle
from mpicoll.notation.contract import ReduceOp
from mpicoll.programs.messages import Combine, Move, Piece, Program, Step, Transfer, apart


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


def bind(
    program: Program,
    buffers: dict[str, Array],
    op: ReduceOp,
    transport: Transport,
    tag: int,
) -> list[BoundRound]:
    """Bind a program's steps to flat buffers ``input``, ``output``, ``scratch``, ``staging``."""
    arrays = transport.arrays

    def view(piece: Piece) -> Array:
        return buffers[piece.buffer][piece.start : piece.start + piece.length]

    def local(action: Move | Combine) -> Thunk:
        if isinstance(action, Move):
            return arrays.copier(view(action.target), view(action.source))
        return arrays.folder(op, view(action.left), view(action.right), view(action.target))

    def messages(transfers: list[Transfer]) -> list[Message]:
        return [Message(each.peer, each.piece and view(each.piece)) for each in transfers]

    def bound(step: Step) -> BoundRound:
        during, after = apart(step)
        return BoundRound(
            tuple(map(local, step.before)),
            transport.messages(messages(step.sends), messages(step.receives), tag)
            if step.sends or step.receives
            else NO_MESSAGES,
            tuple(map(local, during)),
            tuple(map(local, after)),
        )

    return [*map(bound, program.steps)]


class Plan:
    """A collective bound to its arrays, to run many times.

    Every rank runs its plans in the same order. ``run()`` blocks; ``start()`` returns a
    request whose ``wait()`` completes it and whose ``test()`` advances it. Until one of them
    says that it is complete, the plan neither runs nor starts again. `free` (or leaving a
    ``with`` block, or dropping the plan) releases the library's requests.

    Attributes:
        algorithm: what really runs, with its parameters.
        transport: how its messages travel.
        note: where a library's default was asked for, what it takes and how this differs.
        out: the array that holds the result after a run, None where this rank gets none.
        run: run the collective once. RuntimeError where it is under way or freed: what says so
            takes the place of this attribute, as a run has no time to ask.
    """

    note = ""

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
            RuntimeError: it is under way, or freed.
        """
        if self.run is not self._run:
            self.run()
        request = self._start()
        self.run = _busy
        return _Started(request, self._rest)

    def _rest(self) -> None:
        self.run = self._run

    def free(self) -> None:
        """Release what the plan holds of the library; it cannot run afterwards.

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
        # Whoever fails while a run is under way must hear why, not that it is.
        if exception[0] is None or self.run is not _busy:
            self.free()

    def __repr__(self) -> str:
        return f"<Plan {self.algorithm} over {self.transport}>"


def _freed() -> Any:
    raise RuntimeError("this plan has been freed: make a new one")


def _busy() -> Any:
    raise RuntimeError("this plan is under way: wait for it before it runs again, or is freed")


class _Started:
    """A run of a plan, which is told when this is complete, or has failed."""

    def __init__(self, request: Request, tell: Thunk) -> None:
        self.request = request
        self.tell: Thunk | None = tell

    def wait(self) -> None:
        try:
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
        tell, self.tell = self.tell, None
        if tell is not None:
            tell()


class Resources(Protocol):
    """What a plan holds; it lives as long as the plan can run.

    Attributes:
        under_way: whether a started run is not complete.
    """

    under_way: bool

    def free(self) -> None:
        """Release what the library below holds."""

    def deadline(self) -> float:
        """Return after how many seconds a rank that waits gives up."""


Turn = Callable[[], list[BoundRound]]
"""Binds the rounds of a run."""


class Posts:
    """The life of a plan of messages alone."""

    def __init__(self, bound: list[BoundRound]) -> None:
        self.bound, self.under_way = bound, False

    def free(self) -> None:
        for each in self.bound:
            each.messages.free()

    def deadline(self) -> float:
        """Wait as long as the library does."""
        return inf


def scheduled(
    algorithm: str, transport: str, out: Array | None, turns: Sequence[Turn],
    finish: list[Thunk], resources: Resources,
) -> Plan:  # fmt: skip
    """Make a plan of bound rounds, each run taking the next of its `turns`."""
    order = _in_order(turns, finish)
    only = next(order)[0] if len(turns) == 1 else None
    under_way = _started_here()

    # A caller may keep only `plan.run`: the default argument keeps the requests alive with it.
    def run(_alive: object = resources) -> None:
        if under_way:
            start().wait()
            return
        for thunk in only or next(order)[0]:
            thunk()

    def start() -> Request:
        if resources.under_way:
            _busy()
        return _Progress(next(order)[1], finish, resources, under_way)

    return Plan(algorithm, transport, out, run, start, resources.free)


def _in_order(
    turns: Sequence[Turn], finish: list[Thunk]
) -> Iterator[tuple[tuple[Thunk, ...], list[BoundRound]]]:
    """Yield the turns over and over, flat and in rounds; each is bound when its time comes."""
    made = []
    for turn in turns:
        bound = turn()
        made.append(((*_flat(bound), *finish), bound))
        yield made[-1]
    yield from cycle(made)


def _flat(bound: Sequence[BoundRound]) -> Iterator[Thunk]:
    for each in bound:
        yield from (*each.before, *each.messages.start, *each.during)
        yield from (*each.messages.wait, *each.after)


_local = threading.local()


def _started_here() -> list[_Progress]:
    """Return the started schedules of this thread, which may be a rank of its own.

    Whoever waits for one of them advances all, so ranks may wait in any order.
    """
    found: list[_Progress] = _local.__dict__.setdefault("started", [])
    return found


class _Progress:
    """A schedule under way: the first round is posted at once, later ones as it advances.

    What fails ends this run alone, and is raised to whoever waits for it: others may be the
    ones that advance it.
    """

    def __init__(
        self, bound: list[BoundRound], finish: list[Thunk], resources: Resources,
        under_way: list[_Progress],
    ) -> None:  # fmt: skip
        self.remaining = iter(bound)
        self.finish, self.resources, self.under_way = finish, resources, under_way
        self.current: BoundRound | None = None
        self.error: Exception | None = None
        resources.under_way = True
        under_way.append(self)
        self._attempt(self._next)

    def test(self) -> bool:
        self._attempt(self._advance)
        return self._is_complete()

    def wait(self) -> None:
        self._attempt(self._complete)
        self._is_complete()

    def _is_complete(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.current is None

    def _attempt(self, action: Thunk) -> None:
        try:
            action()
        except Exception as error:
            self.error = error
            self._leave()

    def _leave(self) -> None:
        self.current, self.resources.under_way = None, False
        if self in self.under_way:
            self.under_way.remove(self)

    def _next(self) -> None:
        self.current = next(self.remaining, None)
        if self.current is None:
            self._leave()
            posted: Sequence[Thunk] = self.finish
        else:
            posted = (*self.current.before, *self.current.messages.start, *self.current.during)
        for thunk in posted:
            thunk()

    def _land(self, current: BoundRound) -> None:
        for thunk in current.after:
            thunk()
        self._next()

    def _advance(self) -> None:
        """Go as far as is possible without waiting."""
        while self.current is not None and self.current.messages.test():
            self._land(self.current)

    def _complete(self) -> None:
        """Go to the end, and advance all others on the way."""
        idle = Idle(self.resources.deadline())
        while self.current is not None:
            if len(self.under_way) > 1:
                before = [each.current for each in self.under_way]
                for each in list(self.under_way):
                    each._attempt(each._advance)
                if before == [each.current for each in self.under_way]:
                    idle.pause()
                else:
                    idle.began = None
            else:
                for thunk in self.current.messages.wait:
                    thunk()
                self._land(self.current)


def native_plan(algorithm: str, out: Array | None, call: Native, finish: list[Thunk]) -> Plan:
    """Make a plan of the library's own collective and what follows it."""
    plan = Plan(algorithm, call.way, out, call.run, call.start, call.free)
    return chained(algorithm, call.way, out, [plan], finish) if finish else plan


def chained(
    algorithm: str, transport: str, out: Array | None, plans: Sequence[Plan],
    after: Sequence[Thunk], before: Sequence[Thunk] = (),
) -> Plan:  # fmt: skip
    """Make a plan that runs plans one after the other, between two lists of local work."""

    def run() -> None:
        for thunk in before:
            thunk()
        for plan in plans:
            plan.run()
        for thunk in after:
            thunk()

    def free() -> None:
        for plan in plans:
            plan.free()

    return Plan(algorithm, transport, out, run, lambda: _Chain(plans, after, before), free)


class _Chain:
    """Plans under way, one after the other."""

    def __init__(
        self, plans: Sequence[Plan], after: Sequence[Thunk], before: Sequence[Thunk]
    ) -> None:
        self.remaining = iter(plans)
        self.after = after
        self.current: Request | None = None
        for thunk in before:
            thunk()
        self._next()

    def _next(self) -> None:
        plan = next(self.remaining, None)
        self.current = plan.start() if plan else None
        if plan is None:
            for thunk in self.after:
                thunk()

    def test(self) -> bool:
        while self.current is not None and self.current.test():
            self._next()
        return self.current is None

    def wait(self) -> None:
        while self.current is not None:
            self.current.wait()
            self._next()


def buffers_for(arrays: Arrays, x: Array | None, out: Array | None) -> dict[str, Array]:
    """Return the caller's arrays as the flat buffers ``input`` and ``output``."""
    given = {"input": x, "output": out}
    return {name: arrays.flat(array) for name, array in given.items() if array is not None}


def scratch_for(
    arrays: Arrays, needed: Mapping[str, int], dtype: str, x: Array | None, out: Array | None
) -> dict[str, Array]:
    """Return the buffers that a program needs of its own."""
    like = x if x is not None else out
    return {name: arrays.empty((count,), dtype, like) for name, count in needed.items()}

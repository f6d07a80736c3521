"""Plans: a collective bound to its arrays, to run many times.

Interpreting a schedule at each call costs more than a small message, so a plan is a
flat tuple of calls without arguments, bound to memory and to the library's requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any, Self

from mpicoll.execution.progress import Progress, started_here
from mpicoll.execution.rounds import BoundRound, Resources, Variant, flat
from mpicoll.interfaces import Array, Native, Request, Thunk


class Plan:
    """A collective bound to its arrays, to run many times.

    Every rank runs its plans in the same order. ``run()`` blocks; ``start()`` returns a
    request whose ``wait()`` completes it and whose ``test()`` advances it. Until one of them
    says that it is complete, the plan neither runs nor starts again. `free` (or leaving a
    ``with`` block, or dropping the plan) releases the library's requests.

    Attributes:
        algorithm: the algorithm that runs, with its parameters.
        transport: how its messages travel.
        note: for a library's default, the library's own choice and how this one differs from it.
        out: the array that holds the result after a run, None where this rank gets none.
        run: run the collective once. RuntimeError where it is under way or freed: a
            function that raises replaces this attribute, so that a run need not check.
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
        return _Started(request, self._end)

    def _end(self) -> None:
        self.run = self._run

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


class _Started:
    """A started run; `then` is called once it is complete or has failed."""

    def __init__(self, request: Request, then: Thunk) -> None:
        self.request = request
        self.then: Thunk | None = then

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
        then, self.then = self.then, None
        if then is not None:
            then()


def scheduled(
    algorithm: str, transport: str, out: Array | None, variants: Sequence[Variant],
    finish: list[Thunk], resources: Resources,
) -> Plan:  # fmt: skip
    """Make a plan of a schedule; its runs take the variants in turn."""
    order = _runs(variants, finish)
    only = next(order)[0] if len(variants) == 1 else None
    started = started_here()

    # A caller may keep only `plan.run`: the default argument keeps the requests alive with it.
    def run(_alive: object = resources) -> None:
        if started:
            start().wait()
            return
        for thunk in only or next(order)[0]:
            thunk()

    def start() -> Request:
        if resources.under_way:
            _busy()
        return Progress(next(order)[1], finish, resources, started)

    return Plan(algorithm, transport, out, run, start, resources.free)


def _runs(
    variants: Sequence[Variant], finish: list[Thunk]
) -> Iterator[tuple[tuple[Thunk, ...], list[BoundRound]]]:
    """Yield the variants over and over, flat and in rounds; each is bound at its first use."""
    made = []
    for variant in variants:
        rounds = variant()
        made.append(((*flat(rounds), *finish), rounds))
        yield made[-1]
    yield from cycle(made)


def native_plan(algorithm: str, out: Array | None, call: Native, finish: list[Thunk]) -> Plan:
    """Make a plan of the library's own collective, followed by `finish`."""
    plan = Plan(algorithm, call.transport, out, call.run, call.start, call.free)
    return chained(algorithm, call.transport, out, [plan], finish) if finish else plan


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

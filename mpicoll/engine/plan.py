"""Plans: a collective bound to its arrays, to run many times.

Interpreting a schedule at each call costs more than a small message, so a plan holds a compiled
program, or the library's own call. `mpicoll.engine.runs` has the runs that are started.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Self

from mpicoll.backend import Array, Request, RunOn, Thunk
from mpicoll.engine.compiled import Table
from mpicoll.engine.runs import Followed, PlanStream, ProgramRun, recorded_start
from mpicoll.flight.rows import Log
from mpicoll.memory.waiting import advance_others, started_here

if TYPE_CHECKING:
    from mpicoll.engine._compiled import Program


class Plan:
    """A collective bound to its arrays, to run many times.

    Every rank runs its plans in the same order. ``run()`` blocks; ``start()`` returns a request
    whose ``wait()`` completes it and whose ``test()`` advances it. The plan neither runs nor
    starts again until one of them reports that the run is complete. After an error in the middle
    of a run it never does, and the other ranks of that run get RankLost. `free` (or leaving a
    ``with`` block, or dropping the plan) releases the library's requests.

    >>> import mpicoll, numpy as np
    >>> def program(c):
    ...     with c.plan("allreduce", np.ones(2), algorithm="ring") as plan:
    ...         plan.run()
    ...         return plan.algorithm, plan.executor, plan.out
    >>> mpicoll.threads(2)(program)[0]
    ('ring', 'compiled', array([2., 2.]))

    Attributes:
        algorithm: the algorithm that runs, with its parameters.
        transport: how its messages travel.
        note: for a library's default, the library's own choice and how this one differs from it.
        out: the array that holds the result after a run, None if this rank gets none.
        program: its compiled program, if that runs on any arrays of its signature; else None.
        executor: ``compiled``, or ``native``: the library's own call.
        method: of a native plan, the library's own method as its users write it, on the same
            arrays; None if `run` is that.
        run: run the collective once. RuntimeError if it is under way, freed or has failed: a
            function that raises replaces this attribute, so that a run need not check.
        fail: takes the error by which this rank has left a run.
        run_on: of a native plan, runs it on arrays that are like its own; None if it must be
            bound to them.
        deadline: of a native plan, returns the seconds after which a started run is given up.
    """

    note = ""
    executor = "compiled"
    program: Program | None = None
    _program: Program | None = None
    method: Thunk | None = None
    run_on: RunOn | None = None
    fail: Callable[[BaseException], None] = staticmethod(lambda error: None)
    deadline: Callable[[], float] = staticmethod(lambda: inf)

    def __init__(
        self, algorithm: str, transport: str, out: Array | None, run: Thunk,
        start: Callable[[], Request], free: Thunk,
    ) -> None:  # fmt: skip
        self.algorithm, self.transport, self.out = algorithm, transport, out
        self.run = self._run = run
        self._start, self._free = start, free
        _ALL.add(self)

    def _repr_html_(self) -> str:
        shape = getattr(self.out, "shape", None)
        out = None if shape is None else f"{getattr(self.out, 'dtype', '')} {tuple(shape)}"
        facts = {
            "algorithm": self.algorithm, "transport": self.transport, "executor": self.executor,
            "note": self.note, "result": out,
        }  # fmt: skip
        from mpicoll.text.html import facts_table

        return facts_table("plan", facts)

    def start(self) -> Request:
        """Begin to run the collective; return its request.

        A composition of two calls of the library runs to its end.

        >>> import mpicoll, numpy as np
        >>> def program(c):
        ...     with c.plan("allgather", np.full(1, c.rank)) as plan:
        ...         plan.start().wait()
        ...         return plan.out.ravel()
        >>> mpicoll.threads(2)(program)[0]
        array([0, 1])

        Raises:
            RuntimeError: it is under way or freed, or has failed.
        """
        if self.run is not self._run:
            self.run()
        request = self._start()
        self.run = _busy
        if self._program is not None:
            self._program.busy = True
        return _Started(request, self._end, self.deadline)

    def record(self, log: Log, call: int) -> None:
        """Record the runs from now on, under the description `call`."""
        if self._program is not None:
            self._program.record(log, call)
            return
        self.run = self._run = log.recorded(call, self.run)
        self._start = partial(recorded_start, log, call, self._start)

    def _end(self, _error: BaseException | None) -> None:
        self.run = self._run
        if self._program is not None:
            self._program.busy = False

    def free(self) -> None:
        """Release the library's requests and the memory; the plan cannot run afterwards.

        >>> import mpicoll
        >>> mpicoll.threads(2)(lambda c: c.plan("barrier").free())
        [None, None]

        Raises:
            RuntimeError: it is under way.
        """
        if self.run is _busy:
            _busy()
        self.run = self._start = _freed
        self._run = _unbound
        if self._program is not None:
            self._program.free()
        self._free()

    def without_arrays(self) -> Plan:
        """Return what tells of this plan, but has no arrays and cannot run."""
        plan = Plan(self.algorithm, self.transport, None, _unbound, _unbound, lambda: None)
        plan.executor = self.executor
        return plan

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # An error during a started run must not be hidden by one about that run.
        if exception[0] is None or self.run is not _busy:
            self.free()

    def __repr__(self) -> str:
        return f"<Plan {self.algorithm} over {self.transport}>"


_ALL: weakref.WeakSet[Plan] = weakref.WeakSet()


def _disown_all() -> None:
    """Run no plan in a forked child: its messages would pass for its parent's."""
    for plan in _ALL:
        plan.run = plan._run = plan._start = _forked


os.register_at_fork(after_in_child=_disown_all)


def _refusal(text: str) -> Callable[[], Any]:
    """Return what stands in the place of a run that is impossible."""

    def refuse() -> Any:
        raise RuntimeError(text)

    return refuse


_forked = _refusal("this process is a fork of the one that has made this plan")
_unbound = _refusal("this plan has no arrays of its own: it runs on those of each call")
_freed = _refusal("this plan has been freed: make a new one")
_busy = _refusal("this plan is under way: wait for it before it runs again, or is freed")
_failed = _refusal("this plan failed in the middle of its last run: make a new one")


class _Started(Followed):
    """A started run; `then` is called once it is complete or has failed."""

    def __init__(
        self, request: Request, then: Callable[[BaseException | None], None],
        deadline: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__(request, then)
        self.deadline = deadline

    def _wait(self) -> None:
        if (started := started_here()) and not isinstance(self.request, ProgramRun):
            # The library's own wait would advance nothing else.
            advance_others(started, self.request.test, self.deadline())
        super()._wait()


def compiled(
    algorithm: str, transport: str, out: Array | None, table: Table, *, at_once: bool = False,
    stream: PlanStream | None = None, is_bound: bool = True,
) -> Plan:  # fmt: skip
    """Make a plan of a program.

    Args:
        at_once: a start posts all rounds before it returns, as their messages are matched by the
            order in which they are posted: those of two plans that go on as they are waited for
            would come in an order of its own on every rank.
        stream: that of its work on a GPU; None for work on the host.
        is_bound: it runs on its own arrays alone; the same on all ranks.
    """
    program, resources, calls = table.compile_program(), table.resources, bool(table.callbacks)
    waits, started, run = table.waits, started_here(), program.run

    def run_on_gpu() -> None:
        assert stream is not None
        stream.check()
        if not resources.failed:
            stream.begin()
        run()

    def start() -> Request:
        if stream is not None:
            stream.check()
        if resources.under_way:
            _busy()
        if resources.failed:
            _failed()
        started_run = ProgramRun(program, waits, started, calls=calls, order=stream)
        if at_once:
            started_run.wait()
        return started_run

    plan = Plan(algorithm, transport, out, run_on_gpu if stream else run, start, resources.free)
    plan._program, plan.fail = program, resources.fail
    plan.program = None if is_bound else program
    return plan

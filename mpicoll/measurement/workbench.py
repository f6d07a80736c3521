"""The arrays of a group: made once for each backend, checked and timed by all candidates.

A candidate with new arrays in every call takes those of a pool in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any

from mpicoll.backend import Array, Thunk
from mpicoll.collectives import Collectives
from mpicoll.engine.plan import Plan
from mpicoll.measurement.candidate import Call, Runnable
from mpicoll.measurement.cases import BASELINES, CUDA, NEW_ARRAYS, PLAN, Case, Group
from mpicoll.measurement.checking import Check
from mpicoll.measurement.patterns import CheckedCall
from mpicoll.notation.elements import reduce_op

_SMALL_POOL, _LARGE_POOL, _SMALL = 48, 3, 64 * 1024
"""How many arrays a pool has, up to so many bytes in each, and above."""


class Workbench:
    """One backend's arrays for a group: every candidate is checked and timed on the same.

    Args:
        pool: whether there is a candidate with new arrays in every call.
    """

    def __init__(self, world: Collectives, group: Group, pool: bool = False) -> None:
        self.world, self.group = world, group
        self.arrays = [buffers(world, group) for _ in range(pool_size(group) if pool else 1)]
        has_data = group.contract.unit != "none"
        self._checks = [self._checker(*pair) for pair in self.arrays if has_data]
        self.on_gpu = group.device == CUDA
        arrays = world.transport.arrays
        self.watch = arrays.stopwatch() if self.on_gpu else _HOST

    def _checker(self, x: Array | None, out: Array | None) -> Check:
        group, world = self.group, self.world
        case = CheckedCall.of(
            group.contract, world.rank, world.size, group.root, group.width, group.dtype,
            reduce_op(group.op),
        )  # fmt: skip
        check = Check(case, world.transport.arrays, x, out)
        check.prepare()
        check.zero_input()
        return check

    def checks(self, case: Case) -> list[Check]:
        """Return the checks of the arrays that a candidate runs on, of each once in a round."""
        return self._checks if case.call == NEW_ARRAYS else self._checks[:1]

    def bind(self, case: Case) -> Runnable:
        """Bind an algorithm to these arrays, or its method.

        Raises:
            CollectiveError: it cannot serve them.
        """
        pairs = self.arrays if case.call == NEW_ARRAYS else self.arrays[:1]
        plan = self._plan(case, pairs[0])
        if case.call == PLAN:
            return plan
        if case.algorithm in BASELINES:
            plans = [plan, *(self._plan(case, pair) for pair in pairs[1:])]
            return Call(plan, _in_turn([plan.method or plan.run for plan in plans]), plans)
        # It was made for its name, and for the refusal that it may have met.
        plan.free()
        call = Call(plan, _in_turn([self._method(case, pair) for pair in pairs]))
        if case.algorithm == "auto":
            group, (x, out) = self.group, pairs[0]
            checked = self.world.planner.checked(
                group.contract.name, x, out, group.op, group.root, None, "auto"
            )
            ran = self.world.plans.by_channel.ran(checked)
            call.algorithm, call.transport = ran or (call.algorithm, call.transport)
        return call

    def _plan(self, case: Case, pair: tuple[Array | None, Array | None]) -> Plan:
        group, (x, out) = self.group, pair
        options: dict[str, Any] = {"op": group.op} if group.contract.reduces else {}
        if group.contract.rooted:
            options["root"] = group.root
        return self.world.plan(group.contract.name, x, out=out, algorithm=case.algorithm, **options)

    def _method(self, case: Case, pair: tuple[Array | None, Array | None]) -> Thunk:
        """Return the call of a method as its users write it: without default arguments."""
        group, (x, out) = self.group, pair
        method = getattr(self.world, group.contract.name)
        options: dict[str, Any] = {}
        if group.op != "sum":
            options["op"] = group.op
        if group.root:
            options["root"] = group.root
        if case.algorithm != "auto":
            options["algorithm"] = case.algorithm
        if group.contract.unit == "none":
            return partial(method, **options)
        return partial(method, x, out=out, **options)


def pool_size(group: Group) -> int:
    """Return how many inputs and outputs a candidate with new arrays in every call has."""
    # A fold of halves takes one of the few operators that mpi4py can make for its users.
    is_small = group.bytes_total <= _SMALL and group.dtype not in ("float16", "bfloat16")
    return _SMALL_POOL if is_small else _LARGE_POOL


def _in_turn(calls: Sequence[Thunk]) -> Thunk:
    """Return a function that makes these calls in turn, one at a time."""
    if len(calls) == 1:
        return calls[0]
    turns = cycle(calls)

    def run() -> None:
        next(turns)()

    return run


def buffers(world: Collectives, group: Group) -> tuple[Array | None, Array | None]:
    """Return this rank's input and output; in place they share memory."""
    contract, rank = group.contract, world.rank
    has_input = contract.has_input(rank, group.root)
    has_output = contract.has_output(rank, group.root)
    row = (group.width,)
    shapes = [contract.shape(side, row, rank, world.size) for side in ("input", "output")]
    if not (group.in_place and has_input and has_output):
        x, out = (
            _make(world, group, shapes[0], has_input),
            _make(world, group, shapes[1], has_output),
        )
        return x, out
    # Allocation in shared memory is collective: ranks with one array take part twice as well.
    shared: Any = _make(world, group, max(shapes, key=len), True)
    _make(world, group, (0,), False)
    if shapes[0] == shapes[1]:
        return shared, shared
    return (shared, shared[rank]) if len(shapes[0]) > len(shapes[1]) else (shared[rank], shared)


def _make(world: Collectives, group: Group, shape: tuple[int, ...], needed: bool) -> Array | None:
    like = world.gpu() if group.device == CUDA else None
    if group.allocated:
        array = world.allocate(shape if needed else (0,), group.dtype, like=like)
        return array if needed else None
    return world.transport.arrays.empty(shape, group.dtype, like) if needed else None


class _NoWatch:
    """The stopwatch where there is no GPU: it reads 0."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def nanoseconds(self) -> int:
        return 0


_HOST = _NoWatch()

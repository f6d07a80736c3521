"""The arrays of a group: made once for each backend, checked and timed by all candidates."""

from __future__ import annotations

from typing import Any

from mpicoll.collectives import Collectives
from mpicoll.execution.plan import Plan
from mpicoll.interfaces import Array
from mpicoll.measurement.cases import CUDA, Case, Group
from mpicoll.measurement.checking import Check
from mpicoll.measurement.patterns import CheckedCall
from mpicoll.notation.elements import reduce_op


class Workbench:
    """One backend's arrays for a group: every candidate is checked and timed on the same."""

    def __init__(self, world: Collectives, group: Group) -> None:
        self.world, self.group = world, group
        self.x, self.out = buffers(world, group)
        self.check = None if group.what.unit == "none" else self._checker()
        self.on_gpu = group.device == CUDA
        arrays = world.transport.arrays
        self.watch = arrays.stopwatch() if self.on_gpu else _HOST

    def _checker(self) -> Check:
        group, world = self.group, self.world
        case = CheckedCall.of(
            group.what, world.rank, world.size, group.root, group.width, group.dtype,
            reduce_op(group.op),
        )  # fmt: skip
        check = Check(case, world.transport.arrays, self.x, self.out)
        check.prepare()
        check.rest()
        return check

    def plan(self, case: Case) -> Plan:
        """Bind an algorithm to these arrays."""
        group = self.group
        options: dict[str, Any] = {"op": group.op} if group.what.reduces else {}
        if group.what.rooted:
            options["root"] = group.root
        return self.world.plan(
            group.what.name, self.x, out=self.out, algorithm=case.algorithm, **options
        )


def buffers(world: Collectives, group: Group) -> tuple[Array | None, Array | None]:
    """Return this rank's input and output; in place they share memory."""
    what, rank = group.what, world.rank
    given = what.has_input(rank, group.root)
    taken = what.has_output(rank, group.root)
    row = (group.width,)
    shapes = [what.shape(side, row, rank, world.size) for side in ("input", "output")]
    if not (group.in_place and given and taken):
        x, out = _make(world, group, shapes[0], given), _make(world, group, shapes[1], taken)
        return x, out
    # Allocation in shared memory is collective: ranks with one array take part twice as well.
    both: Any = _make(world, group, max(shapes, key=len), True)
    _make(world, group, (0,), False)
    if shapes[0] == shapes[1]:
        return both, both
    return (both, both[rank]) if len(shapes[0]) > len(shapes[1]) else (both[rank], both)


def _make(world: Collectives, group: Group, shape: tuple[int, ...], needed: bool) -> Array | None:
    if group.allocated:
        array = world.allocate(shape if needed else (0,), group.dtype)
        return array if needed else None
    like = world.gpu() if group.device == CUDA else None
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

"""Bind a schedule to arrays: its messages to the library's, or to memory that ranks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from mpicoll.backend import CMA, DIRECT, STAGED, Array, Transport
from mpicoll.calls.allocation import empty_like_input, with_memory
from mpicoll.calls.arguments import Arguments
from mpicoll.calls.routes import Routes
from mpicoll.calls.tags import Tags
from mpicoll.engine.compiled import Table
from mpicoll.engine.plan import Plan, compiled
from mpicoll.errors import Unavailable
from mpicoll.lowering.instructions import MESSAGES, Reach, SharedProgram
from mpicoll.lowering.messages import INPUT, OUTPUT, Buffer
from mpicoll.lowering.shared_memory import share
from mpicoll.memory.layout import LaidOut, lay_out
from mpicoll.memory.notes import GROUP
from mpicoll.memory.slots import SharedResources
from mpicoll.notation.schedule import Block, Round

if TYPE_CHECKING:
    from mpicoll.algorithms.registry import Algorithm
    from mpicoll.gpu.ipc import GpuMemory
    from mpicoll.gpu.streams import PlanStream


@dataclass(frozen=True)
class _Call:
    """A call to be served by a schedule.

    Attributes:
        rounds: the schedule of this rank.
        copies_input: a run first copies the input, which the output overwrites.
    """

    arguments: Arguments
    chosen: Algorithm
    rounds: Sequence[Round]
    copies_input: bool = False

    @property
    def title(self) -> str:
        return f"{self.arguments.collective.name} {self.chosen}"

    @property
    def dtype(self) -> str:
        return self.arguments.dtype or "uint8"

    @property
    def blocks(self) -> tuple[dict[Block, int], Sequence[Block], list[Block]]:
        """The elements of each block, and the blocks of the input and of the output."""
        return self.arguments.blocks(self.chosen.blocks(self.arguments.size))


class Binder:
    """Binds the schedules of one group of ranks."""

    def __init__(self, transport: Transport, routes: Routes, tags: Tags) -> None:
        self.transport, self.routes, self.tags = transport, routes, tags

    def bind(
        self, arguments: Arguments, chosen: Algorithm, rounds: Sequence[Round], user_route: str
    ) -> Plan:
        """Bind a schedule to the arrays of a call; collective.

        Args:
            rounds: the schedule of this rank.
            user_route: the transport that the caller named; empty for the fastest.
        """
        call = _Call(arguments, chosen, rounds)
        if arguments.in_place and arguments.collective.unit == "pairs":
            call = self._on_a_copy(call)
        route, store = self.routes.open(call.arguments, user_route)
        try:
            return self._bound(call, route, store)
        except Unavailable:
            # There may be no memory to share for as much as this call moves.
            by_messages = self.transport.gpu_transport if store else self.transport.name
            if user_route or route == by_messages:
                raise
            return self._bound(call, by_messages, None)

    def _on_a_copy(self, call: _Call) -> _Call:
        """Have an alltoall in place read a copy of its input."""
        arguments = call.arguments
        x = with_memory(self.transport, partial(empty_like_input, self.transport, arguments))
        arguments = replace(arguments, x=x, in_place=False)
        return replace(call, arguments=arguments, copies_input=True)

    def _bound(self, call: _Call, route: str, store: GpuMemory | None) -> Plan:
        tag = self.tags.take()
        if route in (self.transport.name, DIRECT, STAGED):
            return self._by_messages(call, route, tag)
        return self._by_memory(call, route, store, tag)

    def _buffers(self, call: _Call) -> dict[Buffer, Array]:
        """Return the flat arrays of a call, which a program for any arrays does not keep."""
        arguments = call.arguments
        arrays = {} if _is_unbound(arguments) else {INPUT: arguments.x, OUTPUT: arguments.out}
        return {name: self.transport.arrays.flat(x) for name, x in arrays.items() if x is not None}

    def _filled(
        self, call: _Call, tag: int, program: SharedProgram, buffers: dict[Buffer, Array],
        resources: SharedResources, laid_out: LaidOut | None = None,
        stream: PlanStream | None = None,
    ) -> Table:  # fmt: skip
        """Return the table of a program, with all its rows."""
        arguments = call.arguments
        make: Callable[..., Table] = Table
        if stream is not None:
            from mpicoll.engine.stream_order import StreamTable

            make = partial(StreamTable, stream=stream)
        elif arguments.device == "gpu":
            from mpicoll.engine.device_table import DeviceTable

            make = DeviceTable
        table = make(
            self.transport, program, buffers, resources, call.dtype, arguments.op, call.title,
            tag=tag, laid_out=laid_out,
        )  # fmt: skip
        if call.copies_input:
            table.copy_input(arguments.x)
        table.fill()
        if arguments.out is not None and arguments.is_mean:
            table.divide(arguments.out, self.transport.size)
        return table

    # -- by messages of the library ---------------------------------------------------

    def _by_messages(self, call: _Call, route: str, tag: int) -> Plan:
        transport, arguments = self.transport, call.arguments
        program = share(call.rounds, *call.blocks, MESSAGES, in_place=arguments.in_place)
        buffers = self._buffers(call)
        resources = SharedResources(
            GROUP - tag, deadline=lambda: transport.deadline, leave=transport.leave
        )

        def fill() -> Table:
            for name, count in program.scratch.items():
                buffers[name] = transport.arrays.empty((count,), call.dtype, arguments.array)
            resources.buffers += buffers.values()
            return self._filled(call, tag, program, buffers, resources)

        table = with_memory(transport, fill)
        self.tags.hold(tag, resources)
        return self._plan(call, route, table)

    # -- over shared memory -------------------------------------------------------------

    def _by_memory(self, call: _Call, route: str, store: GpuMemory | None, tag: int) -> Plan:
        transport, arguments = self.transport, call.arguments
        laid_out = self._laid_out(call, route, store)
        layout, _, resources = laid_out
        self.tags.hold(tag, resources)
        stream = None
        if layout.by_streams:
            from mpicoll.gpu.streams import PlanStream

            stream = PlanStream(transport.arrays, arguments.array, captures=True)
        fill = partial(
            self._filled, call, tag, layout.program, layout.buffers, resources, laid_out, stream
        )
        try:
            # CMA takes memory for the data that it fetches.
            table = with_memory(transport, fill) if route == CMA else fill()
        except Unavailable:
            if route == CMA:
                resources.free()
            raise
        if len(layout.memory.intra_node) < transport.size or (store and store.partial):
            route = f"{route}+{transport.gpu_transport if store else transport.name}"
        return self._plan(call, route, table, stream)

    def _laid_out(self, call: _Call, route: str, store: GpuMemory | None) -> LaidOut:
        """Lower a schedule to shared memory, and find room for its published blocks; collective."""
        shared, arguments = self.transport.shared, call.arguments
        assert shared is not None
        buffers = self._buffers(call)
        rounds, (sizes, input_blocks, output_blocks) = call.rounds, call.blocks
        is_even = arguments.counts is None and all(sizes.values())

        def laid_out_by(reach: Reach) -> LaidOut:
            return lay_out(
                share(
                    rounds, sizes, input_blocks, output_blocks, reach, in_place=arguments.in_place
                ),
                shared, dict(buffers), call.dtype, label=call.title,
                meets=arguments.collective.synchronizes and is_even, store=store,
                like=call.arguments.array, tile=0 if store else reach.tile,
            )  # fmt: skip

        if store is None:
            return laid_out_by(shared.reach(route, buffers, call.dtype))
        try:
            return laid_out_by(store.reach(buffers, call.dtype))
        except Unavailable:
            # Some rank cannot share or open private memory: all copy to slots.
            return laid_out_by(store.reach(buffers, call.dtype, private=False))

    def _plan(
        self, call: _Call, route: str, table: Table, stream: PlanStream | None = None
    ) -> Plan:
        transport, arguments = self.transport, call.arguments
        at_once = transport.matches_by_order and DIRECT in route.split("+")
        if stream is None and arguments.device == "gpu" and arguments.array is not None:
            from mpicoll.gpu.streams import PlanStream

            stream = PlanStream(transport.arrays, arguments.array, captures=at_once)
        out = None if _is_unbound(arguments) else arguments.out
        return compiled(
            str(call.chosen), route, out, table, at_once=at_once, stream=stream,
            is_bound=arguments.device == "gpu",
        )  # fmt: skip


def _is_unbound(arguments: Arguments) -> bool:
    """Whether a program is to run on any arrays; the work on a GPU is bound to its own."""
    return arguments.unbound and arguments.device != "gpu"

"""Bind a schedule to arrays: its messages to the library's, or to memory that ranks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from mpicoll.algorithms.registry import Algorithm
from mpicoll.backend import CMA, DIRECT, STAGED, SYMMETRIC, Array, Transport
from mpicoll.errors import Unavailable
from mpicoll.execution.compiled import Table
from mpicoll.execution.messages import bind_messages
from mpicoll.execution.plan import Plan, Variant, compiled, scheduled
from mpicoll.execution.runs import NO_MESSAGES, BoundRound, Resources
from mpicoll.execution.shared_memory import Binding
from mpicoll.execution.stream_order import StreamBinding
from mpicoll.gpu.ipc import GpuMemory
from mpicoll.gpu.streams import PlanStream
from mpicoll.memory.layout import LaidOut, lay_out
from mpicoll.notation.elements import itemsize
from mpicoll.notation.schedule import Block, Round
from mpicoll.programs.instructions import Reach
from mpicoll.programs.messages import INPUT, OUTPUT, Buffer, lower
from mpicoll.programs.parting import in_two_parts
from mpicoll.programs.shared_memory import share
from mpicoll.runtime.allocation import Made, empty_like_input, with_memory
from mpicoll.runtime.arguments import Arguments
from mpicoll.runtime.mean import divide_mean, is_mean
from mpicoll.runtime.routes import Routes
from mpicoll.runtime.tags import Tags

if TYPE_CHECKING:
    from mpicoll.execution._compiled import Program


@dataclass(frozen=True)
class _Call:
    """A call to be served by a schedule.

    Attributes:
        rounds: the schedule of this rank.
        first: what a run does before them.
    """

    arguments: Arguments
    chosen: Algorithm
    rounds: Sequence[Round]
    first: BoundRound | None = None

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
        self, arguments: Arguments, chosen: Algorithm, rounds: Sequence[Round], asked: str
    ) -> Plan:
        """Bind a schedule to the arrays of a call; collective.

        Args:
            rounds: the schedule of this rank.
            asked: the transport that the caller named; empty for the fastest.
        """
        call = _Call(arguments, chosen, rounds)
        if arguments.in_place and arguments.collective.unit == "pairs":
            call = self._on_a_copy(call)
        route, store = self.routes.open(call.arguments, asked)
        try:
            return self._bound(call, route, store)
        except Unavailable:
            # There may be no memory to share for as much as this call moves.
            by_messages = self.transport.gpu_transport if store else self.transport.name
            if asked or route == by_messages:
                raise
            return self._bound(call, by_messages, None)

    def _on_a_copy(self, call: _Call) -> _Call:
        """Have an alltoall in place read a copy of its input."""
        arguments, arrays = call.arguments, self.transport.arrays
        x = with_memory(self.transport, partial(empty_like_input, self.transport, arguments))
        copy = arrays.copier(arrays.flat(x), arrays.flat(arguments.x))
        arguments = replace(arguments, x=x, in_place=False)
        return replace(call, arguments=arguments, first=BoundRound((copy,), NO_MESSAGES))

    def _bound(self, call: _Call, route: str, store: GpuMemory | None) -> Plan:
        tag = self.tags.take()
        if route in (self.transport.name, DIRECT, STAGED):
            return self._by_messages(call, route, tag)
        compiles = self.routes.may_compile(call.arguments) and route in (SYMMETRIC, CMA)
        laid_out = self._laid_out(call, route, store, compiles=compiles)
        self.tags.hold(tag, laid_out.resources)
        if compiles:
            return self._compiled(call, route, laid_out)
        return self._by_calls(call, route, store, laid_out, tag)

    def _buffers(self, call: _Call) -> dict[Buffer, Array]:
        given = {INPUT: call.arguments.x, OUTPUT: call.arguments.out}
        return {name: self.transport.arrays.flat(x) for name, x in given.items() if x is not None}

    # -- by messages of the library ---------------------------------------------------

    def _by_messages(self, call: _Call, route: str, tag: int) -> Plan:
        arguments = call.arguments
        program = lower(call.rounds, *call.blocks, in_place=arguments.in_place)
        given = self._buffers(call), call.dtype, arguments.op, self.transport, tag, call.title
        resources, variants = with_memory(self.transport, partial(bind_messages, program, *given))
        self.tags.hold(tag, resources)
        return self._scheduled(call, route, variants, resources)

    # -- over shared memory -------------------------------------------------------------

    def _laid_out(
        self, call: _Call, route: str, store: GpuMemory | None, *, compiles: bool
    ) -> LaidOut:
        """Lower a schedule to shared memory, and find room for its published blocks; collective."""
        shared, arguments = self.transport.shared, call.arguments
        assert shared is not None
        unbound = arguments.unbound and compiles
        buffers = {} if unbound else self._buffers(call)
        rounds, (sizes, before, after) = call.rounds, call.blocks
        largest = max(sizes.values(), default=0) * itemsize(call.dtype)
        is_even = arguments.counts is None and all(sizes.values())
        if self.routes.fetches_part(arguments, route, largest):
            rounds, sizes, before, after = in_two_parts(rounds, sizes, before, after)

        def laid_out_by(reach: Reach) -> LaidOut:
            return lay_out(
                share(rounds, sizes, before, after, reach, in_place=arguments.in_place),
                shared, dict(buffers), call.dtype, what=call.title,
                meets=arguments.collective.synchronizes and is_even, store=store,
                like=call.arguments.array, tile=reach.tile if compiles else 0,
            )  # fmt: skip

        if store is None:
            return laid_out_by(
                shared.reach(
                    route, buffers, call.dtype, compiled=compiles, unbound=unbound,
                    block=largest, one_way=arguments.collective.one_way,
                )
            )  # fmt: skip
        try:
            return laid_out_by(store.reach(buffers, call.dtype))
        except Unavailable:
            # Some rank cannot share or open private memory: all copy to slots.
            return laid_out_by(store.reach(buffers, call.dtype, private=False))

    def _with_room(self, route: str, make: Callable[[], Made], resources: Resources) -> Made:
        """Return the result of `make`, which takes memory for the data it fetches; collective.

        Raises:
            Unavailable: as for `with_memory`; the resources are released.
        """
        if route != CMA:
            return make()
        try:
            return with_memory(self.transport, make)
        except Unavailable:
            resources.free()
            raise

    def _compiled(self, call: _Call, route: str, laid_out: LaidOut) -> Plan:
        """Return a plan that the compiled executor runs."""
        out = call.arguments.out

        def fill() -> Program:
            table = Table(laid_out, call.dtype, call.arguments.op, call.title)
            if call.first is not None:
                table.copy_input(call.arguments.x)
            table.fill()
            if out is not None and is_mean(call.arguments):
                table.divide(prod(out.shape), self.transport.size)
            return table.made()

        program = self._with_room(route, fill, laid_out.resources)
        # A program that runs on any arrays keeps none of a caller's.
        kept = None if call.arguments.unbound else out
        return compiled(str(call.chosen), route, kept, program, laid_out.resources)

    def _by_calls(
        self, call: _Call, route: str, store: GpuMemory | None, laid_out: LaidOut, tag: int
    ) -> Plan:
        """Return a plan of calls from Python."""
        transport, shared, resources = self.transport, self.transport.shared, laid_out.resources
        assert shared is not None
        given = laid_out, call.dtype, call.arguments.op, call.title
        stream: PlanStream | None = None
        if laid_out.layout.by_streams:
            stream = PlanStream(transport.arrays, call.arguments.array, captures=True)
            ordered = StreamBinding(*given, stream)
            variants = ordered.variants(transport, tag)
            stream.watch = ordered.watch()
        else:
            binding = Binding(*given)
            self._with_room(route, binding.reserve, resources)
            variants = binding.variants(transport, tag)
        if len(shared.intra_node) < transport.size or (store and store.partial):
            route = f"{route}+{transport.gpu_transport if store else transport.name}"
        return self._scheduled(call, route, variants, resources, stream)

    def _scheduled(
        self, call: _Call, route: str, variants: list[Variant], resources: Resources,
        stream: PlanStream | None = None,
    ) -> Plan:  # fmt: skip
        transport, arguments, first = self.transport, call.arguments, call.first
        if first is not None:
            variants = [_after(first, variant) for variant in variants]
        at_once = transport.matches_by_order and DIRECT in route.split("+")
        if stream is None and arguments.device == "gpu" and call.arguments.array is not None:
            stream = PlanStream(transport.arrays, call.arguments.array, captures=at_once)
        # A user's function is called by no thread but the caller's.
        by_itself = transport.serves_threads and not at_once and arguments.op.function is None
        return scheduled(
            str(call.chosen), route, arguments.out, variants, divide_mean(transport, arguments),
            resources, at_once=at_once, stream=stream, by_itself=by_itself,
        )  # fmt: skip


def _after(first: BoundRound, variant: Variant) -> Variant:
    return lambda: [first, *variant()]

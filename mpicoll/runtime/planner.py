"""From checked arguments to a plan: native, a composition of natives, a schedule, or a choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Protocol, TypeVar

from mpicoll import defaults
from mpicoll.algorithms.registry import Algorithm, algorithms, aliases, find
from mpicoll.errors import (
    ArgumentError,
    CollectiveError,
    Unavailable,
    UnknownName,
    Unsupported,
    brief,
    on_all,
)
from mpicoll.execution.compiled import MISSING, Table
from mpicoll.execution.messages import bind_messages
from mpicoll.execution.plan import Plan, Variant, compiled, scheduled
from mpicoll.execution.runs import NO_MESSAGES, BoundRound, Program, Resources
from mpicoll.execution.shared_memory import Binding, LaidOut, lay_out
from mpicoll.execution.stream_order import StreamBinding
from mpicoll.gpu.ipc import GpuMemory
from mpicoll.gpu.streams import PlanStream
from mpicoll.interfaces import CMA, DIRECT, STAGED, SYMMETRIC, TRANSPORTS, Transport
from mpicoll.notation.schedule import Round, Schedule
from mpicoll.programs.instructions import Reach
from mpicoll.programs.messages import lower
from mpicoll.programs.shared_memory import share
from mpicoll.runtime.arguments import (
    Arguments,
    divide_mean,
    empty,
    empty_like_input,
    is_mean,
)
from mpicoll.runtime.natives import COMPOSITIONS, compose, plan_bound, plan_native
from mpicoll.runtime.order import FoldOrder, is_asked_for
from mpicoll.runtime.routes import Routes, Tags

_MOST_SCHEDULES = 64
Made = TypeVar("Made")


class Chooser(Protocol):
    """Chooses for names that leave the algorithm open: `mpicoll.selection.auto`."""

    names: Sequence[str]

    def preferred(self, arguments: Arguments) -> Iterator[str]:
        """Yield algorithms in the order in which to try them; collective when first asked."""

    def candidates(self, arguments: Arguments) -> list[str]:
        """Return the algorithms worth measuring, the same on all ranks; collective."""

    def default(self, library: str, arguments: Arguments) -> defaults.Choice:
        """Return the choice that a library would make; the same on all ranks."""


class Planner:
    """Makes the plans of one group of ranks."""

    def __init__(self, transport: Transport, routes: Routes, chooser: Chooser) -> None:
        self.transport, self.routes, self.chooser = transport, routes, chooser
        self.tags = Tags(transport.exchange)
        # Messages to other nodes are the library's, whose calls are made from Python.
        on_one_node = transport.shared is not None and len(transport.nodes) == 1
        found = transport.exchange((not MISSING, is_asked_for()), tuple[bool, bool])
        if on_one_node and all(compiled for compiled, _ in found):
            routes.use_executor()
        self.order = FoldOrder(transport, is_fixed=any(asked for _, asked in found))
        self._schedules: dict[tuple[Callable[..., Schedule], str, int, Any], list[Round]] = {}

    def algorithms(self, name: str) -> list[str]:
        """Return every algorithm name of a collective that this backend takes."""
        natives = ["native", *self._other_natives(name)]
        if self.transport.backend == "mpi4py":
            natives.insert(1, "native_persistent")
        return [*natives, *map(str, algorithms(name))]

    def _other_natives(self, name: str) -> list[str]:
        """Return the names of a collective's compositions, and of other libraries."""
        found = (*COMPOSITIONS.get(name, ()), *self.transport.other_natives(name))
        return [f"native:{each}" for each in found]

    # -- checking -------------------------------------------------------------------

    def check(self, arguments: Arguments) -> None:
        """Check that this rank can run the algorithm, before anything is bound.

        Raises:
            ArgumentError: there is no such algorithm or transport.
            Unsupported: the algorithm cannot serve this size or operator.
            Unavailable: the library has no such call, or the group no such transport.
        """
        text, what = arguments.algorithm, arguments.collective
        if not isinstance(text, str):
            raise ArgumentError(f"algorithm must be a name, not {brief(text)}")
        if text == "native_persistent" and self.transport.backend != "mpi4py":
            backend = self.transport.backend
            raise Unavailable(f"{backend} has no persistent collectives; use 'native'")
        name, _, route = text.partition("@")
        if route and route not in TRANSPORTS:
            raise UnknownName("transport", route, TRANSPORTS)
        if name in defaults.NAMES:
            return
        if route and (name in self.chooser.names or name.startswith("native")):
            raise ArgumentError(f"{name} chooses its own transport: leave out @{route}")
        if name in self.chooser.names:
            return
        if name.startswith("native"):
            self.order.check_native(arguments)
        if name in ("native", "native_persistent"):
            return
        if name.startswith("native:"):
            known = self._other_natives(what.name)
            if name not in known:
                raise UnknownName(f"{what.name} composition", name, known)
            return
        chosen = self._find(what.name, name)
        # An error on some ranks alone must be known to all before anything is bound.
        self._rounds(chosen, arguments)
        chosen.serve(self.transport.size)
        self.order.check(chosen, arguments)
        self.routes.check(arguments, route)

    def _find(self, what: str, name: str) -> Algorithm:
        try:
            return find(what, name)
        except UnknownName:
            names = [*self.algorithms(what), *self.chooser.names, *aliases(what)]
            raise UnknownName(f"{what} algorithm", name, names) from None

    def _rounds(self, chosen: Algorithm, arguments: Arguments) -> list[Round]:
        """Return this rank's schedule of an algorithm.

        Raises:
            Unsupported: the algorithm cannot serve this number of ranks, root or counts.
        """
        rank, size, nodes = self.transport.rank, self.transport.size, self.transport.nodes
        root, counts = arguments.root, arguments.counts if chosen.takes("counts") else None
        key = chosen.generator, str(chosen), root, counts
        if key not in self._schedules:
            if len(self._schedules) == _MOST_SCHEDULES:
                self._schedules.clear()
            self._schedules[key] = chosen.rounds(rank, size, root, nodes, counts)
        return self._schedules[key]

    # -- building -------------------------------------------------------------------

    def build(self, arguments: Arguments) -> Plan:
        """Bind a call that all ranks have agreed on; collective."""
        return self.build_allocated(self.allocated(arguments))

    def build_allocated(self, arguments: Arguments) -> Plan:
        """Bind a call that has all its arrays on all ranks; collective."""
        if arguments.device == "gpu":
            self.transport.prepare_gpu(arguments.x if arguments.x is not None else arguments.out)
        return self._build(arguments)

    def allocated(self, arguments: Arguments, *, copies: bool = False) -> Arguments:
        """Return a call with the output that the caller did not give; collective.

        Args:
            copies: give it arrays of its own, whatever the caller gave.

        Raises:
            Unavailable: on all ranks, where one has no memory for its arrays.
        """

        def allocate() -> Arguments:
            found = arguments
            if copies:
                x = empty_like_input(self.transport, found)
                found = replace(found, x=x, out=None, in_place=False)
            if found.out is None and found.has_output:
                out = empty(self.transport, found, found.shape("output"))
                found = replace(found, out=out)
            return found

        return self._on_all(allocate)

    def _on_all(self, make: Callable[[], Made]) -> Made:
        """Return what `make` does, which takes memory; collective.

        Raises:
            Unavailable: on all ranks, where one has no memory for it. One that failed alone would
                leave the others waiting for it in the call.
        """
        what = "there is no memory for the arrays of a call: "
        exchange = partial(self.transport.exchange, kind=str)
        refusals = MemoryError, RuntimeError  # NumPy's and CuPy's, and torch's
        return on_all(make, self.transport.rank, exchange, what, refusals)

    def _with_room(self, make: Callable[[], Made], resources: Resources) -> Made:
        """Return what `make` does, which takes memory for what it fetches; collective.

        Raises:
            Unavailable: as for `_on_all`; the resources are released.
        """
        try:
            return self._on_all(make)
        except Unavailable:
            resources.free()
            raise

    def _build(self, arguments: Arguments) -> Plan:
        text = arguments.algorithm
        if text == "auto":
            return self._choose(arguments)
        if text in ("native", "native_persistent"):
            persistent = text == "native_persistent"
            return plan_native(self.transport, arguments, persistent=persistent)
        if text.startswith("native:"):
            others = self.transport.other_natives(arguments.collective.name)
            bind = others.get(text.removeprefix("native:"))
            if bind is not None:
                return plan_bound(self.transport, arguments, text, bind)
            return compose(self.transport, arguments, text)
        name, _, route = text.partition("@")
        if name in defaults.NAMES:
            return self._default(arguments, name, route)
        return self._schedule(arguments, find(arguments.collective.name, name), route)

    def _choose(self, arguments: Arguments) -> Plan:
        """Bind the first of the preferred algorithms that can serve the call."""
        refused: CollectiveError | None = None
        for text in self.chooser.preferred(arguments):
            try:
                return self._build_checked(arguments, text)
            except (Unavailable, Unsupported, UnknownName) as error:
                refused = error
        assert refused is not None
        raise refused

    def _default(self, arguments: Arguments, library: str, route: str) -> Plan:
        """Bind the schedule that corresponds to a library's own choice."""
        name, schedule, note = self.chooser.default(library, arguments)
        plan = self._build_checked(arguments, f"{schedule}@{route}".rstrip("@"))
        plan.note = f"{name}: {note}" if note else name
        return plan

    def _build_checked(self, arguments: Arguments, text: str) -> Plan:
        trial = replace(arguments, algorithm=text)
        self.check(trial)
        return self._build(trial)

    def _schedule(self, arguments: Arguments, chosen: Algorithm, asked: str) -> Plan:
        """Bind a schedule; an alltoall in place reads a copy of its input."""
        if not arguments.in_place or arguments.collective.unit != "pairs":
            return self._bind(arguments, chosen, asked)
        arrays = self.transport.arrays
        x = self._on_all(partial(empty_like_input, self.transport, arguments))
        copy = arrays.copier(arrays.flat(x), arrays.flat(arguments.x))
        return self._bind(
            replace(arguments, x=x, in_place=False), chosen, asked, BoundRound((copy,), NO_MESSAGES)
        )

    def _bind(
        self, arguments: Arguments, chosen: Algorithm, asked: str, first: BoundRound | None = None
    ) -> Plan:
        route, store = self.routes.open(arguments, asked)
        try:
            return self._bound(arguments, chosen, route, store, first)
        except Unavailable:
            # There may be no memory to share for as much as this call moves.
            by_messages = self.transport.gpu_transport if store else self.transport.name
            if asked or route == by_messages:
                raise
            return self._bound(arguments, chosen, by_messages, None, first)

    def _bound(
        self, arguments: Arguments, chosen: Algorithm, route: str, store: GpuMemory | None,
        first: BoundRound | None,
    ) -> Plan:  # fmt: skip
        transport, what, in_place = self.transport, arguments.collective, arguments.in_place
        compiles = self.compiles(arguments, route)
        unbound = arguments.unbound and compiles
        given = {} if unbound else {"input": arguments.x, "output": arguments.out}
        buffers = {name: transport.arrays.flat(x) for name, x in given.items() if x is not None}
        blocks = chosen.blocks(transport.size)
        place, sizes = arguments.place(blocks), arguments.sizes(blocks)
        before, after = what.before(place), list(what.after(place))
        rounds, dtype = self._rounds(chosen, arguments), arguments.dtype or "uint8"
        tag, title = self.tags.take(), f"{what.name} {chosen}"
        array = arguments.x if arguments.x is not None else arguments.out
        resources: Resources
        stream: PlanStream | None = None
        if route in (transport.name, DIRECT, STAGED):
            program = lower(rounds, sizes, before, after, in_place=in_place)
            resources, variants = self._on_all(
                partial(bind_messages, program, buffers, dtype, arguments.op, transport, tag, title)
            )
        else:
            shared = transport.shared
            assert shared is not None
            meets = what.synchronizes and arguments.counts is None and all(sizes.values())

            def laid_out_by(reach: Reach) -> LaidOut:
                return lay_out(
                    share(rounds, sizes, before, after, reach, in_place=in_place),
                    shared, dict(buffers), dtype, what=title, meets=meets, store=store,
                    like=array,
                    tile=reach.tile if compiles else 0,
                )  # fmt: skip

            if store is None:
                laid_out = laid_out_by(
                    shared.reach(route, buffers, dtype, compiled=compiles, unbound=unbound)
                )
            else:
                try:
                    laid_out = laid_out_by(store.reach(buffers, dtype))
                except Unavailable:
                    # Some rank cannot share or open private memory: all copy to slots.
                    laid_out = laid_out_by(store.reach(buffers, dtype, private=False))
            resources = laid_out.resources
            self.tags.hold(tag, resources)
            if compiles:
                table = Table(laid_out, dtype, arguments.op, title)
                fill = partial(self._compiled, table, arguments, first is not None)
                made = self._with_room(fill, resources) if route == CMA else fill()
                return compiled(str(chosen), route, arguments.out, made, resources)
            if laid_out.layout.by_streams:
                stream = PlanStream(transport.arrays, array, captures=True)
                ordered = StreamBinding(laid_out, dtype, arguments.op, title, stream)
                variants = ordered.variants(transport, tag)
                stream.watch = ordered.watch()
            else:
                binding = Binding(laid_out, dtype, arguments.op, title)
                if route == CMA:
                    self._with_room(binding.reserve, resources)
                variants = binding.variants(transport, tag)
            if len(shared.intra_node) < transport.size or (store and store.partial):
                route = f"{route}+{transport.gpu_transport if store else transport.name}"
        self.tags.hold(tag, resources)
        if first is not None:
            variants = [_after(first, variant) for variant in variants]
        finish = divide_mean(transport, arguments)
        at_once = transport.matches_by_order and DIRECT in route.split("+")
        if stream is None and arguments.device == "gpu" and array is not None:
            stream = PlanStream(transport.arrays, array, captures=at_once)
        return scheduled(
            str(chosen), route, arguments.out, variants, finish, resources, at_once=at_once,
            stream=stream,
        )  # fmt: skip

    def compiles(self, arguments: Arguments, route: str) -> bool:
        """Whether the compiled executor runs a schedule, on all ranks alike."""
        return self.may_compile(arguments) and route in (SYMMETRIC, CMA)

    def may_compile(self, arguments: Arguments) -> bool:
        """Whether it runs a schedule over shared memory of the host, on all ranks alike."""
        return self.routes.has_executor and arguments.op.function is None

    def _compiled(self, table: Table, arguments: Arguments, copies: bool) -> Program:
        """Return the program of a table; `copies`: it reads a copy of its input."""
        if copies:
            table.copy_input(arguments.x)
        table.fill()
        out = arguments.out
        if out is not None and is_mean(arguments):
            table.divide(prod(out.shape), self.transport.size)
        return table.made()


def _after(first: BoundRound, variant: Variant) -> Variant:
    return lambda: [first, *variant()]

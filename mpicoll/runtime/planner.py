"""From checked arguments to a plan: native, a composition of natives, a schedule, or a choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from mpicoll import defaults
from mpicoll.algorithms.registry import Algorithm, algorithms, aliases, find
from mpicoll.errors import ArgumentError, CollectiveError, Unavailable, UnknownName, Unsupported
from mpicoll.execution.rounds import (
    NO_MESSAGES,
    BoundRound,
    MessageResources,
    Resources,
    Variant,
    bind_messages,
    buffers_for,
    scratch_for,
)
from mpicoll.execution.shared_memory import bind_shared
from mpicoll.interfaces import DIRECT, STAGED, TRANSPORTS, Transport
from mpicoll.programs.messages import lower
from mpicoll.programs.shared_memory import share
from mpicoll.runtime.allocation import empty, empty_like_input
from mpicoll.runtime.arguments import Arguments
from mpicoll.runtime.compositions import COMPOSITIONS, compose
from mpicoll.runtime.natives import divide_mean, plan_native
from mpicoll.runtime.plan import Plan, scheduled
from mpicoll.runtime.routes import Routes
from mpicoll.runtime.schedules import Schedules
from mpicoll.runtime.tags import Tags


class Chooser(Protocol):
    """Chooses for names that leave the algorithm open: `mpicoll.selection.auto`."""

    names: Sequence[str]

    def preferred(self, arguments: Arguments) -> Iterator[str]:
        """Yield algorithms in the order in which to try them; collective when first asked."""

    def default(self, library: str, arguments: Arguments) -> defaults.Choice:
        """Return the choice that a library would make; the same on all ranks."""


class Planner:
    """Makes the plans of one group of ranks."""

    def __init__(self, transport: Transport, routes: Routes, chooser: Chooser) -> None:
        self.transport, self.routes, self.chooser = transport, routes, chooser
        self.schedules = Schedules(transport)
        self.tags = Tags(transport.exchange)

    def algorithms(self, name: str) -> list[str]:
        """Return every algorithm name of a collective that this backend takes."""
        natives = ["native", *(f"native:{text}" for text in COMPOSITIONS.get(name, ()))]
        if self.transport.backend == "mpi4py":
            natives.insert(1, "native_persistent")
        return [*natives, *map(str, algorithms(name))]

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
            raise ArgumentError(f"algorithm must be a name, not {text!r}")
        if text == "native_persistent" and self.transport.backend != "mpi4py":
            backend = self.transport.backend
            raise Unavailable(f"{backend} has no persistent collectives; use 'native'")
        name, _, route = text.partition("@")
        if route and route not in TRANSPORTS:
            raise UnknownName("transport", route, TRANSPORTS)
        if name in defaults.NAMES:
            return
        if route and (name == "auto" or name.startswith("native")):
            raise ArgumentError(f"{name} chooses its own transport: leave out @{route}")
        if name in ("auto", "native", "native_persistent"):
            return
        if name.startswith("native:"):
            _check_composition(what.name, name)
            return
        chosen = self._find(what.name, name)
        # An error on some ranks alone must be known to all before anything is bound.
        self.schedules.rounds(chosen, arguments)
        self.schedules.check_order(chosen, arguments)
        self.routes.check(arguments, route)

    def _find(self, what: str, name: str) -> Algorithm:
        try:
            return find(what, name)
        except UnknownName:
            names = [*self.algorithms(what), *self.chooser.names, *aliases(what)]
            raise UnknownName(f"{what} algorithm", name, names) from None

    # -- building -------------------------------------------------------------------

    def build(self, arguments: Arguments) -> Plan:
        """Bind a call that all ranks have agreed on; collective."""
        if arguments.out is None and arguments.has_output:
            out = empty(self.transport, arguments, arguments.shape("output"))
            arguments = replace(arguments, out=out)
        text = arguments.algorithm
        if text == "auto":
            return self._choose(arguments)
        if text in ("native", "native_persistent"):
            persistent = text == "native_persistent"
            return plan_native(self.transport, arguments, persistent=persistent)
        if text.startswith("native:"):
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
        return self.build(trial)

    def _schedule(self, arguments: Arguments, chosen: Algorithm, asked: str) -> Plan:
        """Bind a schedule; an alltoall in place reads a copy of its input."""
        if not arguments.in_place or arguments.collective.unit != "pairs":
            return self._bind(arguments, chosen, asked)
        arrays = self.transport.arrays
        x = empty_like_input(self.transport, arguments)
        copy = arrays.copier(arrays.flat(x), arrays.flat(arguments.x))
        return self._bind(
            replace(arguments, x=x, in_place=False), chosen, asked, BoundRound((copy,), NO_MESSAGES)
        )

    def _bind(
        self, arguments: Arguments, chosen: Algorithm, asked: str, first: BoundRound | None = None
    ) -> Plan:
        transport, what, in_place = self.transport, arguments.collective, arguments.in_place
        arrays, x, out = transport.arrays, arguments.x, arguments.out
        blocks = chosen.blocks(transport.size)
        place, sizes = arguments.place(blocks), arguments.sizes(blocks)
        rounds = self.schedules.rounds(chosen, arguments)
        blocks_in, blocks_out = what.before(place), list(what.after(place))
        dtype, buffers = arguments.dtype or "uint8", buffers_for(arrays, x, out)
        route, store = self.routes.open(arguments, asked)
        tag = self.tags.take()
        if route in (transport.name, DIRECT, STAGED):
            program = lower(rounds, sizes, blocks_in, blocks_out, in_place=in_place)
            buffers |= scratch_for(arrays, program.scratch, dtype, x, out)
            bound = bind_messages(program, buffers, arguments.op, transport, tag)
            resources: Resources = MessageResources(bound)
            variants: list[Variant] = [lambda: bound]
        else:
            shared = transport.shared
            assert shared is not None
            reach = store.reach(buffers, dtype) if store else shared.reach(route, buffers, dtype)
            both = share(rounds, sizes, blocks_in, blocks_out, reach, in_place=in_place)
            meets = what.synchronizes and arguments.counts is None and all(sizes.values())
            resources, variants = bind_shared(
                both, shared, buffers, dtype, arguments.op, transport, tag,
                what=f"{what.name} {chosen}", meets=meets, store=store,
            )  # fmt: skip
            if len(shared.intra_node) < transport.size:
                route = f"{route}+{transport.gpu_transport if store else transport.name}"
        self.tags.hold(tag, resources)
        if first is not None:
            variants = [_after(first, variant) for variant in variants]
        finish = divide_mean(transport, arguments)
        return scheduled(str(chosen), route, out, variants, finish, resources)


def _after(first: BoundRound, variant: Variant) -> Variant:
    return lambda: [first, *variant()]


def _check_composition(what: str, text: str) -> None:
    known = [f"native:{each}" for each in COMPOSITIONS.get(what, ())]
    if text not in known:
        raise UnknownName(f"{what} composition", text, known)

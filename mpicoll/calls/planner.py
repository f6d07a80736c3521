"""From checked arguments to a plan: native, a composition of natives, a schedule, or a choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mpicoll import defaults
from mpicoll.algorithms.registry import Algorithm, algorithms, aliases, find
from mpicoll.backend import TRANSPORTS, Nodes, Transport
from mpicoll.calls.agreement import refusal
from mpicoll.calls.allocation import with_arrays
from mpicoll.calls.arguments import Arguments, check_arguments
from mpicoll.calls.binding import Binder
from mpicoll.calls.natives import COMPOSITIONS, compose, plan_bound, plan_native
from mpicoll.calls.order import FoldOrder
from mpicoll.calls.routes import Routes
from mpicoll.calls.tags import Tags
from mpicoll.engine.plan import Plan
from mpicoll.errors import (
    ArgumentError,
    CollectiveError,
    Unavailable,
    UnknownName,
    Unsupported,
    brief,
)
from mpicoll.lowering.instructions import MESSAGES
from mpicoll.lowering.shared_memory import share
from mpicoll.machine.settings import is_reproducible
from mpicoll.notation.schedule import Round, Schedule

_MOST_SCHEDULES, _MOST_PROVED = 64, 1 << 16
"""Schedules that are kept; operations of a user's algorithm, of all ranks, that are proved."""


class Chooser(Protocol):
    """Chooses for names that leave the algorithm open: `mpicoll.selection.auto`."""

    names: Sequence[str]

    def preferred(self, arguments: Arguments) -> Iterator[str]:
        """Yield algorithms in the order in which to try them; collective when first asked."""

    def decided(self, arguments: Arguments) -> Sequence[str]:
        """Return what a measured table says of a call, if anything; collective when first asked."""

    def has_read(self, arguments: Arguments) -> bool:
        """Whether the tables for a call have been read, so that no rank waits for others."""

    def default(self, library: str, arguments: Arguments) -> defaults.Choice:
        """Return the choice that a library would make; the same on all ranks."""


class Planner:
    """Makes the plans of one group of ranks."""

    def __init__(self, transport: Transport, routes: Routes, chooser: Chooser) -> None:
        self.transport, self.routes, self.chooser = transport, routes, chooser
        self.tags = Tags(transport.exchange)
        self.binder = Binder(transport, routes, self.tags)
        is_fixed = any(transport.exchange(is_reproducible(), bool))
        self.order = FoldOrder(transport, is_fixed=is_fixed)
        self._schedules: dict[tuple[Callable[..., Schedule], str, int, Any], list[Round]] = {}

    def algorithms(self, name: str) -> list[str]:
        """Return every algorithm name of a collective that this backend takes."""
        natives = ["native", *self._other_natives(name)]
        if self.transport.backend == "mpi4py":
            natives.insert(1, "native_persistent")
        return [*natives, *map(str, algorithms(name))]

    def _other_natives(self, name: str) -> list[str]:
        """Return the names of a collective's compositions, and of other libraries."""
        names = (*COMPOSITIONS.get(name, ()), *self.transport.other_natives(name))
        return [f"native:{native}" for native in names]

    # -- checking -------------------------------------------------------------------

    def checked(
        self, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any, algorithm: Any
    ) -> Arguments | CollectiveError:
        """Return the checked arguments of a call, or the error that all ranks are to raise."""
        try:
            arguments = check_arguments(
                self.transport.arrays, self.transport.rank, self.transport.size, name, x,
                out=out, op=op, root=root, counts=counts, algorithm=algorithm,
            )  # fmt: skip
            self.check(arguments)
        except Exception as error:
            return refusal(error)
        return arguments

    def check(self, arguments: Arguments) -> None:
        """Check that this rank can run the algorithm, before anything is bound.

        Raises:
            ArgumentError: there is no such algorithm or transport.
            Unsupported: the algorithm cannot serve this size or operator.
            Unavailable: the library has no such call, or the group no such transport.
        """
        text, collective = arguments.algorithm, arguments.collective
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
            compositions = self._other_natives(collective.name)
            if name not in compositions:
                raise UnknownName(f"{collective.name} composition", name, compositions)
            return
        chosen = self._find(collective.name, name)
        # An error on some ranks alone must be known to all before anything is bound.
        self._rounds(chosen, arguments)
        chosen.serve(self.transport.size)
        self.order.check(chosen, arguments)
        self.routes.check(arguments, route)

    def _find(self, collective_name: str, name: str) -> Algorithm:
        try:
            return find(collective_name, name)
        except UnknownName:
            names = [
                *self.algorithms(collective_name),
                *self.chooser.names,
                *aliases(collective_name),
            ]
            raise UnknownName(f"{collective_name} algorithm", name, names) from None

    def _rounds(self, chosen: Algorithm, arguments: Arguments) -> list[Round]:
        """Return this rank's schedule of an algorithm.

        Raises:
            ScheduleError: the schedule of a user's algorithm is wrong on this rank.
            Unsupported: the algorithm cannot serve this number of ranks, root or counts.
        """
        rank, size, nodes = self.transport.rank, self.transport.size, self.transport.nodes
        root, counts = arguments.root, arguments.counts if chosen.takes("counts") else None
        key = chosen.generator, str(chosen), root, counts
        if key not in self._schedules:
            if len(self._schedules) == _MOST_SCHEDULES:
                self._schedules.clear()
            rounds = chosen.rounds(rank, size, root, nodes, counts)
            if not chosen.is_catalogued:
                # Only for its errors.
                share(rounds, *arguments.blocks(chosen.blocks(size)), MESSAGES)
                if counts is None and sum(map(len, rounds)) * size <= _MOST_PROVED:
                    _prove(chosen, size, root, nodes)
            self._schedules[key] = rounds
        return self._schedules[key]

    def schedule(self, arguments: Arguments, names: Iterable[str]) -> str | None:
        """Return the first algorithm that serves a call, None where a native comes first."""
        for text in names:
            if text.startswith("native"):
                return None
            try:
                self.check(replace(arguments, algorithm=text))
            except (Unavailable, Unsupported, UnknownName):
                continue
            return text
        return None

    def resolved(self, arguments: Arguments) -> Arguments:
        """Return a call that `auto` leaves to the library as one of the library's own.

        As far as the tables have been read, which all ranks do together.
        """
        if arguments.algorithm != "auto" or not self.chooser.has_read(arguments):
            return arguments
        collective, native = arguments.collective, replace(arguments, algorithm="native")
        # gloo does not have all operators.
        may_lack = collective.reduces and self.transport.backend == "torch"
        is_free = native.is_any_length and not self.order.is_fixed
        if may_lack or not is_free or self.transport.lacks(collective):
            return arguments
        schedule = self.schedule(arguments, self.chooser.preferred(arguments))
        return native if schedule is None else arguments

    # -- building -------------------------------------------------------------------

    def build(self, arguments: Arguments) -> Plan:
        """Bind a call that all ranks have agreed on; collective."""
        arguments = with_arrays(self.transport, arguments)
        if arguments.device == "gpu":
            self.transport.prepare_gpu(arguments.array)
        return self._build(arguments)

    def _build(self, arguments: Arguments) -> Plan:
        text = arguments.algorithm
        if text == "auto":
            return self._choose(arguments)
        if text in ("native", "native_persistent"):
            persistent = text == "native_persistent"
            return plan_native(self.transport, arguments, persistent=persistent)
        if text.startswith("native:"):
            natives = self.transport.other_natives(arguments.collective.name)
            bind = natives.get(text.removeprefix("native:"))
            if bind is not None:
                return plan_bound(self.transport, arguments, text, bind)
            return compose(self.transport, arguments, text)
        name, _, route = text.partition("@")
        if name in defaults.NAMES:
            return self._default(arguments, name, route)
        chosen = find(arguments.collective.name, name)
        return self.binder.bind(arguments, chosen, self._rounds(chosen, arguments), route)

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


def _prove(chosen: Algorithm, size: int, root: int, nodes: Nodes) -> None:
    """Simulate a user's algorithm on all ranks, before any data moves.

    Raises:
        ScheduleError: its schedule never ends, or is wrong on some rank.
    """
    from mpicoll.simulator import prove  # importing mpicoll is quicker without

    prove(chosen, size, root, nodes, log=False)

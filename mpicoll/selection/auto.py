"""Choose algorithms: ``auto`` by a measured table or by price, and libraries' defaults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf, prod

from mpicoll import defaults
from mpicoll.algorithms.registry import algorithms, find
from mpicoll.backend import CMA, IPC, STAGED, SYMMETRIC, Nodes, Transport
from mpicoll.gpu.ipc import ZERO_COPY
from mpicoll.memory.segments import tile_of
from mpicoll.notation.elements import itemsize
from mpicoll.programs.instructions import Reach
from mpicoll.programs.messages import INPUT, OUTPUT, SCRATCH
from mpicoll.runtime.arguments import Arguments
from mpicoll.runtime.natives import FOLDED
from mpicoll.runtime.rates import NEVER
from mpicoll.runtime.routes import Routes
from mpicoll.selection import tables
from mpicoll.selection.prices import ON_GPU, price

CHOOSERS = (*tables.OPEN, *defaults.NAMES)
"""Names that leave the algorithm to a choice at each call."""

CANDIDATES: dict[str, tuple[str, ...]] = {
    "barrier": ("dissemination(radix=2)", "dissemination(radix=4)"),
    "broadcast": ("one_shot", "binomial"),
    "reduce": ("one_shot", "binomial", "two_shot"),
    "allreduce": ("one_shot", "recursive_doubling", "two_shot"),
    "gather": ("naive", "binomial"),
    "allgather": ("direct", "recursive_doubling"),
    "scatter": ("naive", "binomial"),
    "reduce_scatter": ("direct", "recursive_halving"),
    "alltoall": ("naive", "bruck(radix=2)"),
    "scan": ("one_shot", "linear", "chain(segments=8)", "two_shot"),
    "exscan": ("one_shot", "linear", "chain(segments=8)", "two_shot"),
}
"""The schedules that may be the fastest where all ranks share memory."""

_LARGE = 65536
_FOLDED = {"scan": 16384, "exscan": 128}
"""Bytes of all ranks' vectors up to which each rank folds a prefix from all of them between nodes:
up to there that took at most the time of MPI's own with four hosts of one and of two ranks."""
_BETWEEN_NODES = {
    "barrier": ("dissemination",) * 2,
    "broadcast": ("binomial", "scatter_ring"),
    "reduce": ("binomial", "rabenseifner"),
    "allreduce": ("recursive_doubling", "rabenseifner"),
    "gather": ("binomial", "naive"),
    "allgather": ("bruck", "ring"),
    "scatter": ("binomial", "naive"),
    "reduce_scatter": ("recursive_halving", "ring"),
    "alltoall": ("naive", "pairwise"),
    "scan": ("recursive_doubling", "chain"),
    "exscan": ("recursive_doubling", "chain"),
}
"""The schedules for small and large payloads where the library has no call of its own."""
_ONE_BY_ONE = {
    "reduce": ("one_shot", "two_shot"),
    "allreduce": ("one_shot", "two_shot"),
    "reduce_scatter": ("direct",) * 2,
    "scan": ("one_shot", "chain"),
    "exscan": ("one_shot", "chain"),
}
"""The same where the order of folding is fixed (`mpicoll.runtime.order`)."""
_BY_NODES = {
    "barrier": ("two_level", "recexch(radix=4)"),
    "broadcast": ("two_level", "chain(segments=64)", "pipelined_circulant(segments=16)"),
    "reduce": ("two_level", "circulant"),
    "allreduce": ("two_level", "lanes(across=circulant)", "lane_ring"),
    "gather": ("knomial(radix=4)",),
    "allgather": ("lanes(across=circulant)", "lane_ring"),
    "scatter": ("knomial(radix=4)",),
    "reduce_scatter": ("lanes(across=circulant)", "lane_ring"),
    "alltoall": ("bruck",),
    "scan": ("linear", "two_shot"),
    "exscan": ("linear", "two_shot"),
}
"""Schedules that use the links between nodes best; some do not serve uneven nodes."""


class AutoChooser:
    """Chooses for one group of ranks; the choice is the same on all of them."""

    names: Sequence[str] = CHOOSERS

    def __init__(self, transport: Transport, routes: Routes) -> None:
        self.transport, self.routes = transport, routes
        self.prices: dict[tuple[str, int, str, bool, bool], list[str]] = {}
        self._decisions: dict[str, tables.Decisions] = {}

    def decided(self, arguments: Arguments) -> list[str]:
        """Return the entry for a call in this machine's table, if any.

        Rank 0 reads it; collective, as what another library lacks on one rank, all do without.
        """
        device = arguments.device or "host"
        if device not in self._decisions:
            found: tables.Decisions = {}
            if self.transport.rank == 0:
                on_gpu, arrays = device == "gpu", self.transport.arrays
                gpu = arrays.gpu_name(arguments.array) if on_gpu else ""
                found = tables.load(*self._key(), gpu=gpu)
            self._decisions[device] = self.transport.exchange(found, tables.Decisions)[0]
        name = arguments.collective.name
        decision = self._decisions[device].get(name)
        if decision is None:
            return []
        text = decision.lookup(arguments.nbytes)
        is_other = text.startswith("native:") and "+" not in text
        return self._everywhere(name, text) if is_other else [text]

    def _key(self) -> tuple[str, str, list[int]]:
        return self.transport.backend, self.transport.library, layout(self.transport.nodes)

    def preferred(self, arguments: Arguments) -> Iterator[str]:
        on_node = self.transport.shared is not None and len(self.transport.nodes) == 1
        yield from self.decided(arguments)
        if arguments.device == "gpu":
            # A library that reads GPU memory knows its links; one that cannot is no match.
            if self.transport.gpu_transport == STAGED:
                if on_node:
                    yield from (f"{text}@{IPC}" for text in self._by_price(arguments))
                yield from self._everywhere(arguments.collective.name, "native:nccl")
        elif on_node:
            yield from self._by_price(arguments)
        elif self._is_folded(arguments):
            yield FOLDED
        yield "native"
        name = arguments.collective.name
        is_large = arguments.bytes_per_row >= _LARGE
        yield _BETWEEN_NODES[name][is_large]
        if name in _ONE_BY_ONE:
            yield _ONE_BY_ONE[name][is_large]
        yield from map(str, algorithms(name))

    def _is_folded(self, arguments: Arguments) -> bool:
        """Whether a prefix of small vectors takes less time from all of them than by MPI's own."""
        rows = self.transport.size * arguments.bytes_per_row
        is_small = 0 < rows <= _FOLDED.get(arguments.collective.name, 0)
        return is_small and self.transport.backend == "mpi4py"

    def _everywhere(self, name: str, text: str) -> list[str]:
        """Return another library's own collective, where all ranks have it; collective."""
        has_it = text.removeprefix("native:") in self.transport.other_natives(name)
        return [text] if all(self.transport.exchange(has_it, bool)) else []

    def candidates(self, arguments: Arguments) -> list[str]:
        """Return the algorithms worth measuring, likely ones first, the same on all ranks.

        Collective. On a GPU only `auto`: runs end there before their results are ready.
        """
        if arguments.device == "gpu":
            return ["auto"]
        name, shared = arguments.collective.name, self.transport.shared
        likely = self.decided(arguments)
        if shared is None or len(self.transport.nodes) > 1:
            if self._is_folded(arguments):
                likely.append(FOLDED)
            return list(dict.fromkeys((*likely, "native", *between(name))))
        fetches = arguments.nbytes >= shared.least_fetched and not shared.no_cma
        routes = (SYMMETRIC, CMA) if fetches else (SYMMETRIC,)
        priced = [f"{text}@{each}" for text in self._by_price(arguments) for each in routes]
        return list(dict.fromkeys((*likely, *priced, "native")))

    def default(self, library: str, arguments: Arguments) -> defaults.Choice:
        """Return the choice that a library would make; the same on all ranks.

        Args:
            library: one of `defaults.NAMES`.
        """
        call, counted = _call(arguments, self.transport.nodes), arguments.counts is not None
        return defaults.choose(library, arguments.collective.name, call, counted=counted)

    def _by_price(self, arguments: Arguments) -> list[str]:
        """Return the candidates, cheapest first, for payloads within a power of two."""
        name = arguments.collective.name
        on_gpu = arguments.device == "gpu"
        size, in_place = arguments.nbytes.bit_length(), arguments.in_place
        key = name, size, arguments.dtype or "", on_gpu, in_place
        if key not in self.prices:
            shared = self.transport.shared
            assert shared is not None
            rates = ON_GPU if on_gpu else self.routes.costs().rates
            # All ranks must make the same choice, wherever the arrays of each lie.
            width = itemsize(arguments.dtype) if arguments.dtype else 1
            fetches = arguments.bytes_per_row >= self.routes.fetches_from(arguments)
            private = frozenset((INPUT, OUTPUT, SCRATCH) if fetches else ())
            tile = tile_of(CMA if fetches else SYMMETRIC, compiled=self.routes.has_executor)
            reach = Reach(frozenset(), private, shared.least_fetched // width, tile // width)
            if on_gpu:
                everything = frozenset((INPUT, OUTPUT, SCRATCH))
                reach = Reach(frozenset(), everything, ZERO_COPY // width, NEVER)
            prices = {
                text: price(
                    find(name, text), arguments, reach, rates, inf if on_gpu else shared.cores
                )
                for text in CANDIDATES[name]
            }
            self.prices[key] = sorted(prices, key=prices.__getitem__)
        return self.prices[key]


def _call(arguments: Arguments, nodes: Nodes) -> defaults.Call:
    """Return the properties of a call by which libraries choose."""
    what, counts = arguments.collective, arguments.counts
    rows = [1] if what.unit == "vector" else [1] * arguments.size
    if counts is not None:
        rows = list(chain.from_iterable(counts)) if what.unit == "pairs" else list(counts)  # type: ignore[arg-type]
    total = arguments.bytes_per_row * sum(rows)
    sizes, ranks = layout(nodes), list(chain.from_iterable(nodes))
    return defaults.Call(
        ranks=arguments.size, bytes=total // len(rows), total=total,
        count=prod(arguments.row or ()),
        commutative=arguments.op.commutative, builtin=arguments.op.function is None,
        regular=len(set(rows)) == 1, root=arguments.root,
        # With counts, or at a root alone, in place is a matter of each rank.
        in_place=arguments.in_place and counts is None and not what.rooted,
        nodes=len(nodes), largest=max(sizes), balanced=len(set(sizes)) == 1,
        consecutive=ranks == sorted(ranks),
    )  # fmt: skip


def between(name: str) -> tuple[str, ...]:
    """Return the schedules worth measuring between nodes."""
    return tuple(dict.fromkeys((*_BETWEEN_NODES[name], *_BY_NODES[name])))


def layout(nodes: Nodes) -> list[int]:
    """Return how many ranks each node has."""
    return [len(each) for each in nodes]

"""Choose algorithms: ``auto`` by a measured table or the shipped one, and libraries' defaults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod

from mpicoll import defaults
from mpicoll.backend import IPC, STAGED, Array, Nodes, Transport
from mpicoll.calls.arguments import Arguments
from mpicoll.selection import shipped, tables

CHOOSERS = ("auto", *defaults.NAMES)
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

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._decisions: dict[bool, tables.Decisions] = {}

    def decided(self, arguments: Arguments) -> list[str]:
        """Return the entry for a call in the table that `mpicoll.tune` wrote, if any.

        Collective: a library that one rank lacks serves no rank.
        """
        name, on_gpu = arguments.collective.name, arguments.device == "gpu"
        decision = self._measured(arguments.array if on_gpu else None, on_gpu).get(name)
        if decision is None:
            return []
        text = decision.lookup(arguments.nbytes)
        is_other = text.startswith("native:") and "+" not in text
        return self._everywhere(name, text) if is_other else [text]

    def has_read(self, arguments: Arguments) -> bool:
        return (arguments.device == "gpu") in self._decisions

    def source(self, gpu: Array | None = None) -> str:
        """Say which tables decide; collective.

        Args:
            gpu: an array on this rank's GPU; None for arrays on the host.
        """
        measured = self._measured(gpu, gpu is not None)
        if not measured:
            return "the shipped table"
        path = self.transport.exchange(str(tables.default_path()), str)[0]
        remark = "" if len(measured) == len(CANDIDATES) else "; the shipped table for others"
        return f"{path} for {', '.join(sorted(measured))}{remark}"

    def _measured(self, like: Array | None, on_gpu: bool) -> tables.Decisions:
        """Return the decisions of the table that `mpicoll.tune` wrote; collective, read once."""
        if on_gpu not in self._decisions:
            decisions: tables.Decisions = {}
            if self.transport.rank == 0:
                gpu = self.transport.arrays.gpu_name(like) if on_gpu else ""
                key = self.transport.backend, self.transport.library, layout(self.transport.nodes)
                decisions = tables.load(*key, gpu=gpu)
            self._decisions[on_gpu] = self.transport.exchange(decisions, tables.Decisions)[0]
        return self._decisions[on_gpu]

    def preferred(self, arguments: Arguments) -> Iterator[str]:
        name, place = arguments.collective.name, self._place(arguments)
        yield from self.decided(arguments)
        if not place.is_on_gpu:
            yield from shipped.choices(name, arguments.nbytes, place)
        elif self.transport.gpu_transport == STAGED:
            # A library that reads GPU memory knows its links; one that cannot is no match.
            for text in shipped.choices(name, arguments.nbytes, place):
                yield f"{text}@{IPC}"
            yield from self._everywhere(name, "native:nccl")
        yield "native"
        yield from shipped.by_messages(name, arguments.nbytes, place)
        from mpicoll.algorithms.registry import algorithms

        yield from map(str, algorithms(name))

    def _place(self, arguments: Arguments) -> shipped.Place:
        transport, shared = self.transport, self.transport.shared
        return shipped.Place(
            transport.size, transport.backend, is_on_gpu=arguments.device == "gpu",
            shares_memory=shared is not None and len(transport.nodes) == 1,
            shares_cores=shared is not None and shared.wait_policy.oversubscribed,
            has_levels=1 < len(transport.nodes) < transport.size,
        )  # fmt: skip

    def _everywhere(self, name: str, text: str) -> list[str]:
        """Return another library's own collective, where all ranks have it; collective."""
        has_it = text.removeprefix("native:") in self.transport.other_natives(name)
        return [text] if all(self.transport.exchange(has_it, bool)) else []

    def default(self, library: str, arguments: Arguments) -> defaults.Choice:
        """Return the choice that a library would make; the same on all ranks.

        Args:
            library: one of `defaults.NAMES`.
        """
        call, has_counts = _call(arguments, self.transport.nodes), arguments.counts is not None
        return defaults.choose(library, arguments.collective.name, call, has_counts=has_counts)


def _call(arguments: Arguments, nodes: Nodes) -> defaults.Call:
    """Return the properties of a call by which libraries choose."""
    collective, counts = arguments.collective, arguments.counts
    rows = [1] if collective.unit == "vector" else [1] * arguments.size
    if counts is not None:
        rows = list(chain.from_iterable(counts)) if collective.unit == "pairs" else list(counts)  # type: ignore[arg-type]
    total = arguments.bytes_per_row * sum(rows)
    sizes, ranks = layout(nodes), list(chain.from_iterable(nodes))
    return defaults.Call(
        ranks=arguments.size, bytes=total // len(rows), total=total,
        count=prod(arguments.row or ()),
        commutative=arguments.op.commutative, builtin=arguments.op.function is None,
        regular=len(set(rows)) == 1, root=arguments.root,
        # With counts, or at a root alone, in place is a matter of each rank.
        in_place=arguments.in_place and counts is None and not collective.rooted,
        nodes=len(nodes), largest=max(sizes), balanced=len(set(sizes)) == 1,
        consecutive=ranks == sorted(ranks),
    )  # fmt: skip


def between(name: str) -> tuple[str, ...]:
    """Return the schedules worth measuring between nodes."""
    usual = (row[2] for row in shipped.BY_MESSAGES[name])
    return tuple(dict.fromkeys((*usual, *_BY_NODES[name])))


def layout(nodes: Nodes) -> list[int]:
    """Return how many ranks each node has."""
    return [len(node) for node in nodes]

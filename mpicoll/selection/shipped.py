"""The decision table that is shipped: what `auto` runs where `mpicoll.tune` has measured nothing.

A row reads: up to so many ranks, up to so many bytes, these algorithms. Bytes are the total bytes
of a call, as in a table of `mpicoll.tune`. The first row that covers a call decides. A row can name
alternatives: some calls demand an order of folding that the first algorithm does not keep.

The table is data and nothing is measured, so every launch makes the same choice.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from mpicoll.calls.natives import FOLDED

ANY = inf
KIB, MIB = 1 << 10, 1 << 20

Rows = tuple[tuple[float, float, str, *tuple[str, ...]], ...]
"""Rows of one collective: the most ranks, the most bytes, and the algorithms."""
Table = dict[str, Rows]

OWN_CORES: Table = {
    "barrier": (
        (2, ANY, "dissemination(radix=2)"),
        (ANY, ANY, "dissemination(radix=4)"),
    ),
    "broadcast": ((ANY, ANY, "one_shot"),),
    "reduce": (
        (2, ANY, "one_shot"),
        (8, KIB, "one_shot"),
        (ANY, 8 * KIB, "binomial", "one_shot"),
        (ANY, ANY, "two_shot"),
    ),
    "allreduce": (
        (2, 64 * KIB, "one_shot"),
        (8, 2 * KIB, "one_shot"),
        (ANY, 4 * KIB, "recursive_doubling", "one_shot"),
        (ANY, ANY, "two_shot"),
    ),
    "gather": (
        (3, ANY, "naive"),
        (ANY, 64 * KIB, "binomial"),
        (ANY, ANY, "naive"),
    ),
    "allgather": ((ANY, ANY, "direct"),),
    "scatter": (
        (4, ANY, "naive"),
        (ANY, 4 * KIB, "binomial"),
        (ANY, ANY, "naive"),
    ),
    "reduce_scatter": (
        (4, ANY, "direct"),
        (ANY, 32 * KIB, "recursive_halving", "direct"),
        (ANY, ANY, "direct"),
    ),
    "alltoall": (
        (8, ANY, "naive"),
        (ANY, 4 * KIB, "bruck(radix=2)"),
        (ANY, ANY, "naive"),
    ),
    **dict.fromkeys(("scan", "exscan"), (
        (2, ANY, "one_shot"),
        (ANY, 2 * KIB, "one_shot"),
        (ANY, ANY, "linear"),
    )),
}  # fmt: skip
"""All ranks are on one node, and each has a core."""

SHARED_CORES: Table = OWN_CORES | {
    "reduce": (
        (8, ANY, "one_shot"),
        (ANY, 512 * KIB, "one_shot"),
        (ANY, ANY, "two_shot"),
    ),
    "allreduce": (
        (8, 32 * KIB, "one_shot"),
        (ANY, 16 * KIB, "recursive_doubling", "one_shot"),
        (ANY, ANY, "two_shot"),
    ),
    "scatter": ((ANY, ANY, "naive"),),
    "scan": ((2, ANY, "one_shot"), (ANY, ANY, "linear")),
    "exscan": ((3, ANY, "one_shot"), (ANY, ANY, "linear")),
}
"""All ranks are on one node that has fewer cores, where the work of all ranks counts."""

ON_GPU: Table = OWN_CORES | {
    "reduce": (
        (4, 32 * MIB, "one_shot"),
        (ANY, 32 * MIB, "binomial", "one_shot"),
        (ANY, ANY, "two_shot"),
    ),
    "allreduce": (
        (ANY, 16 * MIB, "one_shot"),
        (ANY, ANY, "two_shot"),
    ),
    "scatter": (
        (4, ANY, "naive"),
        (ANY, 32 * MIB, "binomial"),
        (ANY, ANY, "naive"),
    ),
    "reduce_scatter": (
        (4, ANY, "direct"),
        (ANY, ANY, "recursive_halving", "direct"),
    ),
}
"""Arrays lie on GPUs whose memory all ranks map: a round costs much more than on the host."""

BETWEEN_NODES: Table = {
    "scan": ((16, KIB, FOLDED),),
    "exscan": ((16, 16, FOLDED),),
}
"""Where calls go between nodes over MPI, other than by the library's own call."""

_SMALL_VECTOR, _SMALL_ROWS = "two_level(local=one_shot)", "two_level(local=naive)"
_DIRECT_ROWS = "two_level(local=naive,across=naive)"

LEVELS: Table = BETWEEN_NODES | {
    "barrier": ((ANY, ANY, _SMALL_VECTOR),),
    "broadcast": ((ANY, MIB, _SMALL_VECTOR),),
    "reduce": ((ANY, ANY, _SMALL_VECTOR),),
    "allreduce": (
        (ANY, MIB, _SMALL_VECTOR),
        (ANY, ANY, "lane_ring", "two_level(local=one_shot,across=ring)", _SMALL_VECTOR),
    ),
    "gather": ((ANY, ANY, _SMALL_ROWS),),
    "allgather": (
        (ANY, 256 * KIB, _SMALL_ROWS),
        (ANY, 2 * MIB, "lanes", "two_level(local=naive,across=ring)"),
        (ANY, ANY, "lane_ring", "two_level(local=naive,across=ring)"),
    ),
    "scatter": ((ANY, 256 * KIB, _SMALL_ROWS),),
    "reduce_scatter": (
        (ANY, 256 * KIB, _SMALL_ROWS),
        (ANY, 2 * MIB, "lanes", _SMALL_ROWS),
        (ANY, ANY, "lane_ring", _SMALL_ROWS),
    ),
    "alltoall": ((ANY, 64 * KIB, _SMALL_ROWS),),
}
"""The same where a node has several ranks, so that one message serves all of them."""

GLOO_LEVELS: Table = {
    "barrier": ((ANY, ANY, _SMALL_VECTOR),),
    "broadcast": ((ANY, ANY, _SMALL_VECTOR),),
    "reduce": ((4, ANY, _SMALL_VECTOR), (ANY, 256 * KIB, _SMALL_VECTOR)),
    "allreduce": (
        (ANY, 256 * KIB, _SMALL_VECTOR),
        (4, ANY, "two_level(local=one_shot,across=ring)", _SMALL_VECTOR),
    ),
    "gather": ((ANY, 128 * KIB, _DIRECT_ROWS),),
    "allgather": ((ANY, 256 * KIB, _SMALL_ROWS), (ANY, ANY, "lanes", _SMALL_ROWS)),
    "scatter": ((ANY, 128 * KIB, _DIRECT_ROWS),),
    "reduce_scatter": ((ANY, ANY, _SMALL_ROWS),),
    "alltoall": ((ANY, 32 * KIB, _DIRECT_ROWS),),
}
"""The same over gloo's messages."""

BY_MESSAGES: Table = {
    "barrier": ((ANY, ANY, "dissemination"),),
    "broadcast": ((ANY, 64 * KIB, "binomial"), (ANY, ANY, "scatter_ring")),
    "reduce": ((ANY, 64 * KIB, "binomial", "one_shot"), (ANY, ANY, "rabenseifner", "two_shot")),
    "allreduce": (
        (ANY, 64 * KIB, "recursive_doubling", "one_shot"),
        (ANY, ANY, "rabenseifner", "two_shot"),
    ),
    "gather": ((ANY, 64 * KIB, "binomial"), (ANY, ANY, "naive")),
    "allgather": ((ANY, 64 * KIB, "bruck"), (ANY, ANY, "ring")),
    "scatter": ((ANY, 64 * KIB, "binomial"), (ANY, ANY, "naive")),
    "reduce_scatter": (
        (ANY, 64 * KIB, "recursive_halving", "direct"),
        (ANY, ANY, "ring", "direct"),
    ),
    "alltoall": ((ANY, 64 * KIB, "naive"), (ANY, ANY, "pairwise")),
    "scan": ((ANY, 64 * KIB, "recursive_doubling", "one_shot"), (ANY, ANY, "chain")),
    "exscan": ((ANY, 64 * KIB, "recursive_doubling", "one_shot"), (ANY, ANY, "chain")),
}
"""Where the library has no call that serves."""


class Place(NamedTuple):
    """The properties of a group on which the choice depends.

    Attributes:
        is_on_gpu: the arrays lie on GPUs.
        shares_memory: all ranks are on one node and map each other's memory.
        shares_cores: a node has more ranks than cores.
        has_levels: there are several nodes, and a node has several ranks.
    """

    ranks: int
    backend: str
    is_on_gpu: bool = False
    shares_memory: bool = True
    shares_cores: bool = False
    has_levels: bool = False

    @property
    def table(self) -> Table:
        """The table that comes before the library's own call."""
        if self.shares_memory:
            return ON_GPU if self.is_on_gpu else SHARED_CORES if self.shares_cores else OWN_CORES
        if self.is_on_gpu:
            return {}
        if self.backend == "torch":
            return GLOO_LEVELS if self.has_levels else {}
        return LEVELS if self.has_levels else BETWEEN_NODES


def choices(name: str, nbytes: int, place: Place) -> tuple[str, ...]:
    """Return the algorithms of a collective for so many bytes; none leaves it to the library."""
    return _covering(place.table.get(name, ()), nbytes, place)


def by_messages(name: str, nbytes: int, place: Place) -> tuple[str, ...]:
    """Return the same where the library has no call that serves."""
    return _covering(BY_MESSAGES[name], nbytes, place)


def _covering(rows: Rows, nbytes: int, place: Place) -> tuple[str, ...]:
    """Return the algorithms of the first row that covers a call."""
    for max_ranks, max_bytes, *algorithms in rows:
        if place.ranks <= max_ranks and nbytes <= max_bytes:
            return tuple(algorithms)
    return ()

"""Two levels: inside every node, and across one rank of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mpicoll.algorithms.levels import (
    Runs,
    by_rows,
    fine,
    inside,
    leaders,
    node_of,
    rows_between,
    rows_of,
    split,
    way_back,
)
from mpicoll.algorithms.registry import Algorithm, Nodes, Pairs, Rows, algorithm, find
from mpicoll.notation.schedule import Block, Schedule, reverse, then


@algorithm("barrier", name="two_level")
def barrier(
    rank: int, size: int, nodes: Nodes, local: str = "binomial", across: str = "dissemination"
) -> Schedule:
    """Signal up to one rank of each node, between these by `across`, and down again.

    `local` is any broadcast, whose messages are signals here, and that backwards; `across` any
    barrier. Few signals cross the network.

    Rounds: twice those of `local` plus those of `across` on the nodes.

    >>> from mpicoll.algorithms import find
    >>> find("barrier", "two_level").show(0, 4)
    recv(1)
    recv(2)
    send(2)
    send(1)
    """
    node, heads = node_of(rank, nodes), leaders(nodes)

    def out() -> Schedule:
        return inside(node, rank, "broadcast", local, node[0], lambda block, count: ())

    return then(
        reverse(out(), rank, folds=False),
        inside(heads, rank, "barrier", across, heads[0], lambda block, count: ()),
        out(),
    )


def _blocks(of: str, size: int, local: str, across: str) -> int:
    return fine(size, find(of, local), find(of, across))


def _parts(
    of: str, rank: int, size: int, root: int, nodes: Nodes, local: str, across: str
) -> tuple[Schedule, Schedule]:
    """Return the parts of a vector's collective across the nodes, and inside the rank's own."""
    heads, node = leaders(nodes, root), node_of(rank, nodes)
    (head,) = leaders((node,), root)
    whole = split(range(_blocks(of, size, local, across)))
    return (
        inside(heads, rank, of, across, root, whole), inside(node, rank, of, local, head, whole)
    )  # fmt: skip


@algorithm("broadcast", name="two_level", blocks=partial(_blocks, "broadcast"))
def broadcast(
    rank: int, size: int, root: int, nodes: Nodes, local: str = "binomial",
    across: str = "binomial",
) -> Schedule:  # fmt: skip
    """Broadcast across one rank of each node, then inside every node.

    The vector crosses the network once for each node. Both algorithms may be any broadcast.

    Rounds: those of `across` on the nodes plus those of `local`; bytes sent: likewise.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "two_level").show(0, 4)
    send(2, 0, 1, 2, 3)
    send(1, 0, 1, 2, 3)
    """
    between, within = _parts("broadcast", rank, size, root, nodes, local, across)
    return then(between, within)


@algorithm("reduce", name="two_level", blocks=partial(_blocks, "reduce"))
def reduce(
    rank: int, size: int, root: int, nodes: Nodes, local: str = "binomial",
    across: str = "binomial",
) -> Schedule:  # fmt: skip
    """Reduce inside every node, then across one rank of each node.

    The vector crosses the network once for each node. Both algorithms may be any reduce.

    Rounds: those of `local` plus those of `across` on the nodes; bytes sent and reduced: likewise.

    >>> from mpicoll.algorithms import find
    >>> find("reduce", "two_level").show(0, 4)
    reduce_right(1, 0, 1, 2, 3)
    reduce_right(2, 0, 1, 2, 3)
    """
    between, within = _parts("reduce", rank, size, root, nodes, local, across)
    return then(within, between)


def _all_three(size: int, local: str, across: str, back: str) -> int:
    reduction, between = find("reduce", local), find("allreduce", across)
    return fine(size, reduction, between, find("broadcast", way_back("broadcast", local, back)))


@algorithm("allreduce", name="two_level", blocks=_all_three)
def allreduce(
    rank: int, size: int, nodes: Nodes, local: str = "binomial", across: str = "recursive_doubling",
    back: str = "",
) -> Schedule:  # fmt: skip
    """Reduce inside every node, allreduce across one rank of each, broadcast inside every node.

    The vector crosses the network as often as if each node were one rank. `local` is any
    reduce, `across` any allreduce and `back` any broadcast, by default the one that is called
    as `local`; ``across="ring"`` moves the least between nodes.

    Rounds: those of its three parts; bytes sent and reduced: likewise.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "two_level").show(0, 4)
    reduce_right(1, 0, 1, 2, 3)
    reduce_right(2, 0, 1, 2, 3)
    send(2, 0, 1, 2, 3)
    send(1, 0, 1, 2, 3)
    """
    heads, node = leaders(nodes), node_of(rank, nodes)
    whole = split(range(_all_three(size, local, across, back)))
    return then(
        inside(node, rank, "reduce", local, node[0], whole),
        inside(heads, rank, "allreduce", across, heads[0], whole),
        inside(node, rank, "broadcast", back or local, node[0], whole),
    )


@algorithm("gather", name="two_level")
def gather(
    rank: int, size: int, root: int, nodes: Nodes, counts: Rows, local: str = "binomial",
    across: str = "binomial",
) -> Schedule:  # fmt: skip
    """Collect the rows of each node on one rank, and send them to the root in one bundle.

    The root is the first of its node. Both algorithms are any scatter, read backwards.

    Rounds those of `local` plus those of `across` on the nodes; bytes received (p-1)/p m by
    the root.

    >>> from mpicoll.algorithms import find
    >>> find("gather", "two_level").show(0, 4, nodes=((0, 1), (2, 3)))
    recv(1, 1)
    recv(2, 2, 3)
    """
    down = scatter(rank, size, root, nodes, counts, local, across)
    return reverse(down, rank, folds=False)


@algorithm("scatter", name="two_level")
def scatter(
    rank: int, size: int, root: int, nodes: Nodes, counts: Rows, local: str = "binomial",
    across: str = "binomial",
) -> Schedule:  # fmt: skip
    """Send each node its rows in one bundle, then hand them out inside every node.

    The root is the first of its node. Both algorithms are any scatter.

    Rounds those of `across` on the nodes plus those of `local`; bytes sent (p-1)/p m by the
    root.

    >>> from mpicoll.algorithms import find
    >>> find("scatter", "two_level").show(0, 4, nodes=((0, 1), (2, 3)))
    send(2, 2, 3)
    send(1, 1)
    """
    heads, node = leaders(nodes, root), node_of(rank, nodes)
    (head,) = leaders((node,), root)
    rows = counts.__getitem__
    return then(
        inside(heads, rank, "scatter", across, root, by_rows(nodes), rows=rows),
        inside(node, rank, "scatter", local, head, by_rows([*zip(node)]), rows=rows),
    )


def _whole_rows(size: int, *inner: Algorithm) -> int:
    """Return into how many blocks to cut all rows, each into as many, so that others fit inside."""
    return -(-fine(size, *inner) // size) * size


def _runs_of_rows(node: Sequence[int], nodes: Nodes, parts: int) -> tuple[Runs, Runs]:
    """Return the blocks of each rank of a node, and of each node, of `parts` blocks per row."""
    node_rows = by_rows([rows_of([member], parts) for member in node])
    return node_rows, by_rows([rows_of(members, parts) for members in nodes])


def _cut(size: int, local: str, across: str, back: str) -> int:
    """Return a multiple of the number of ranks that suits all three parts."""
    home = find("broadcast", way_back("broadcast", local, back))
    return _whole_rows(size, find("allgather", across), home)


@algorithm("allgather", name="two_level", blocks=_cut)
def allgather(
    rank: int, size: int, nodes: Nodes, counts: Rows, local: str = "binomial",
    across: str = "bruck", back: str = "",
) -> Schedule:  # fmt: skip
    """Gather inside every node, allgather across one rank of each, broadcast inside every node.

    `local` is any gather, `across` any allgather and `back` any broadcast, by default the one
    that is called as `local`. Each row crosses each node's link once, all by one rank; see `lanes`.

    Rounds: those of its three parts; bytes sent: likewise.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "two_level").show(0, 4, nodes=((0, 1), (2, 3)))
    recv(1, 1)
    send(2, 0, 1) recv(2, 2, 3)
    send(1, 0, 1, 2, 3)
    """
    heads, node, count = leaders(nodes), node_of(rank, nodes), _cut(size, local, across, back)
    parts = count // size
    node_rows, bundles = _runs_of_rows(node, nodes, parts)
    return then(
        inside(
            node, rank, "gather", local, node[0], node_rows, rows=lambda at: counts[at // parts]
        ),
        inside(heads, rank, "allgather", across, heads[0], bundles),
        inside(node, rank, "broadcast", back or local, node[0], split(range(count))),
    )


def _cut_to_scatter(size: int, local: str, across: str, back: str) -> int:
    """Return a multiple of the number of ranks that suits a reduce, and a reduce_scatter."""
    return _whole_rows(size, find("reduce", local), find("reduce_scatter", across))


@algorithm("reduce_scatter", name="two_level", blocks=_cut_to_scatter)
def reduce_scatter(
    rank: int, size: int, nodes: Nodes, counts: Rows, local: str = "binomial",
    across: str = "direct", back: str = "",
) -> Schedule:  # fmt: skip
    """Reduce inside every node, reduce_scatter across one rank of each, scatter inside every node.

    `local` is any reduce, `across` any reduce_scatter and `back` any scatter, by default the one
    that is called as `local`. One rank of each node sends everything, so it is for small rows; see
    `lanes`.

    Rounds: those of its three parts; bytes sent and reduced: likewise.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "two_level").show(0, 4, nodes=((0, 1), (2, 3)))
    reduce_right(1, 0, 1, 2, 3)
    send(2, 2, 3) recv(2, from1[0], from1[1]) fold_right(0, from1[0]) fold_right(1, from1[1])
    send(1, 1)
    """
    heads, node = leaders(nodes), node_of(rank, nodes)
    count = _cut_to_scatter(size, local, across, back)
    parts = count // size
    node_rows, bundles = _runs_of_rows(node, nodes, parts)
    return then(
        inside(node, rank, "reduce", local, node[0], split(range(count))),
        inside(heads, rank, "reduce_scatter", across, heads[0], bundles),
        inside(
            node, rank, "scatter", way_back("scatter", local, back), node[0], node_rows,
            rows=lambda at: counts[at // parts],
        ),
    )  # fmt: skip


@algorithm("alltoall", name="two_level")
def alltoall(
    rank: int, size: int, nodes: Nodes, counts: Pairs, local: str = "binomial",
    across: str = "pairwise", back: str = "",
) -> Schedule:  # fmt: skip
    """Gather the rows on one rank of each node, exchange bundles among those, then scatter.

    One message each way is all that two nodes exchange, but one rank of each sends everything:
    for small rows. `local` is any gather, `across` any alltoall and `back` any scatter, by
    default the one that is called as `local`.

    Rounds those of its parts; bytes sent (c(p-c)+(c-1)(p-1))/p m by the first of c ranks.

    >>> from mpicoll.algorithms import find
    >>> find("alltoall", "two_level").show(0, 4, nodes=((0, 1), (2, 3)))
    recv(1, (1, 0), (1, 2), (1, 3))
    send(2, (0, 2), (0, 3), (1, 2), (1, 3)) recv(2, (2, 0), (2, 1), (3, 0), (3, 1))
    send(1, (0, 1), (2, 1), (3, 1))
    """
    node = node_of(rank, nodes)

    def gathered(row: int, _: int) -> list[Block]:
        return [(node[row], target) for target in range(size) if target != node[row]]

    def bundle(pair: Any, _: int) -> list[Block]:
        return [(source, target) for source in nodes[pair[0]] for target in nodes[pair[1]]]

    def handed_out(row: int, _: int) -> list[Block]:
        return [(source, node[row]) for source in range(size) if source != node[row]]

    rows, back = rows_between(counts), way_back("scatter", local, back)
    return then(
        inside(node, rank, "gather", local, node[0], gathered, rows=rows),
        inside(leaders(nodes), rank, "alltoall", across, nodes[0][0], bundle, rows=rows),
        inside(node, rank, "scatter", back, node[0], handed_out, rows=rows),
    )

"""Lanes of one rank of each node, all of which share the links between nodes.

Nodes must have as many ranks each (Träff and Hunold 2020).
"""

from __future__ import annotations

from functools import partial
from math import isqrt
from typing import Any

from mpicoll.algorithms.levels import (
    by_rows,
    finer,
    inside,
    lane,
    rows_between,
    rows_of,
    split,
    way_back,
)
from mpicoll.algorithms.registry import Constraint, Nodes, Pairs, algorithm, any_size, find
from mpicoll.notation.schedule import Block, Schedule, recv, reverse, send, then


def _blocks(of: str, size: int, local: str, across: str) -> int:
    return finer(size, find(of, local), find(of, across))


def _parts(
    of: str, rank: int, size: int, nodes: Nodes, local: str, across: str
) -> tuple[Schedule, Schedule]:
    """Return the parts of a collective on rows along the rank's lane, and inside its node."""
    number, _, group = lane(rank, nodes)
    node, parts = nodes[number], _blocks(of, size, local, across) // size
    lane_rows = by_rows([rows_of([member], parts) for member in group])
    shared = by_rows([rows_of(members, parts) for members in zip(*nodes, strict=True)])
    return (
        inside(group, rank, of, across, group[0], lane_rows),
        inside(node, rank, of, local, node[0], shared),
    )


@algorithm("allgather", name="lanes", blocks=partial(_blocks, "allgather"))
def allgather(
    rank: int, size: int, nodes: Nodes, local: str = "direct", across: str = "ring"
) -> Schedule:
    """Allgather along each lane, then inside every node.

    A lane is one rank of each node (Träff and Hunold 2020). Both algorithms are any allgather.
    Nodes must have as many ranks each.

    Rounds: those of its two parts. On n nodes m(n-1)/n bytes cross each node's link, each of
    them once.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "lanes").show(0, 4, nodes=((0, 1), (2, 3)))
    send(2, 0) recv(2, 2)
    send(1, 0, 2) recv(1, 1, 3)
    """
    along, within = _parts("allgather", rank, size, nodes, local, across)
    return then(along, within)


@algorithm("reduce_scatter", name="lanes", blocks=partial(_blocks, "reduce_scatter"))
def reduce_scatter(
    rank: int, size: int, nodes: Nodes, local: str = "direct", across: str = "ring"
) -> Schedule:
    """Reduce-scatter inside every node by lanes, then along each lane.

    A lane is one rank of each node (Träff and Hunold 2020). Both algorithms are any
    reduce_scatter. Nodes must have as many ranks each. On several nodes the default loses rank
    order.

    Rounds: those of its two parts. On n nodes m(n-1)/n bytes cross each node's link.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "lanes").show(0, 4, nodes=((0, 1), (2, 3)))
    send(1, 1, 3) recv(1, from1[0], from1[2]) fold_right(0, from1[0]) fold_right(2, from1[2])
    reduce_right(2, 0) send(2, 2)
    """
    along, within = _parts("reduce_scatter", rank, size, nodes, local, across)
    return then(within, along)


def _of_all_three(size: int, local: str, across: str, back: str) -> int:
    reduction, between = find("reduce_scatter", local), find("allreduce", across)
    return finer(size, reduction, between, find("allgather", way_back("allgather", local, back)))


@algorithm("allreduce", name="lanes", blocks=_of_all_three, aliases=("split_rail", "blueconnect"))
def allreduce(
    rank: int,
    size: int,
    nodes: Nodes,
    local: str = "direct",
    across: str = "ring",
    back: str = "",
) -> Schedule:
    """Reduce-scatter inside every node, allreduce along each lane, allgather inside every node.

    A lane is one rank of each node; all of them share the nodes' links, so that one's folds
    hide behind another's messages (Träff and Hunold 2020). `local` is any reduce_scatter,
    `across` any allreduce and `back` any allgather, by default the one that is called as `local`.
    Nodes must have as many ranks each. On several nodes the default loses rank order.

    Rounds: those of its three parts. On n nodes 2m(n-1)/n bytes cross each node's link.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "lanes").show(0, 4, nodes=((0, 1), (2, 3)))
    send(1, 2, 3) recv(1, from1[0], from1[1]) fold_right(0, from1[0]) fold_right(1, from1[1])
    send(2, 0) reduce_left(2, 1)
    send(2, 1) recv(2, 0)
    send(1, 0, 1) recv(1, 2, 3)
    """
    number, place, group = lane(rank, nodes)
    node, blocks = nodes[number], range(_of_all_three(size, local, across, back))
    whole, share = split(blocks), len(blocks) // len(node)
    return then(
        inside(node, rank, "reduce_scatter", local, node[0], whole),
        inside(group, rank, "allreduce", across, group[0], split(blocks[place * share :][:share])),
        inside(node, rank, "allgather", back or local, node[0], whole),
    )


@algorithm("alltoall", name="lanes")
def alltoall(
    rank: int, size: int, nodes: Nodes, counts: Pairs, local: str = "pairwise",
    across: str = "pairwise",
) -> Schedule:  # fmt: skip
    """Send each node its rows by the rank in the same place there, which hands them out.

    All ranks of a node share in what is sent to other nodes, each to the rank in its own place
    there (after Träff and Hunold 2020). Nodes must have as many ranks each.

    Rounds N+c-2 for N nodes of c ranks; bytes sent (2p-N-c)/p m, (p-c)/p m of them to
    other nodes.

    >>> from mpicoll.algorithms import find
    >>> find("alltoall", "lanes").show(0, 4, nodes=((0, 1), (2, 3)))
    send(2, (0, 2), (0, 3)) recv(2, (2, 0), (2, 1))
    send(1, (0, 1), (2, 1)) recv(1, (1, 0), (3, 0))
    """
    number, _, group = lane(rank, nodes)
    node = nodes[number]

    def bundle(pair: Any, _: int) -> list[Block]:
        return [(group[pair[0]], target) for target in nodes[pair[1]]]

    def handed_out(pair: Any, _: int) -> list[Block]:
        return [(ranks[pair[0]], node[pair[1]]) for ranks in nodes]

    rows = rows_between(counts)
    return then(
        inside(group, rank, "alltoall", across, group[0], bundle, rows=rows),
        inside(node, rank, "alltoall", local, node[0], handed_out, rows=rows),
    )


def in_rows(rows: int) -> Constraint:
    """Return the numbers of ranks that `grid` serves."""
    if not rows:
        return any_size
    return Constraint(f"a multiple of rows={rows} ranks", lambda size: size % rows == 0)


@algorithm("alltoall", needs=in_rows)
def grid(rank: int, size: int, rows: int = 0) -> Schedule:
    """Exchange bundles along the columns of a grid of ranks, then rows along its rows.

    Ranks lie row by row. All that a row of ranks is to get from one rank goes to its member in
    that rank's column, who hands it out: far fewer messages than in pairwise, nothing sent more
    than twice. By default the grid is as square as can be. For a prime p that is a single row,
    and pairwise; there tuna with a radix near sqrt(p) does the like.

    Rounds R+C-2 for p = RC; bytes sent (2p-R-C)/p m.

    >>> from mpicoll.algorithms import find
    >>> find("alltoall", "grid").show(0, 4)
    send(2, (0, 2), (0, 3)) recv(2, (2, 0), (2, 1))
    send(1, (0, 1), (2, 1)) recv(1, (1, 0), (3, 0))
    """
    height = rows or max(divisor for divisor in range(1, isqrt(size) + 1) if size % divisor == 0)
    width = size // height
    grid = tuple(tuple(range(at, at + width)) for at in range(0, size, width))
    return alltoall(rank, size, grid, [[1] * size] * size)


@algorithm("allgather", name="lane_ring", blocks=lambda size, segments: size * segments)
def allgather_ring(rank: int, size: int, nodes: Nodes, segments: int = 4) -> Schedule:
    """Pass rows in segments along the ring of each lane; share each in its node on arrival.

    A lane is one rank of each node. As in `lanes`, each row crosses each node's link once, but
    while a segment is on its way the ranks of a node already exchange the last one, so that only
    the last exchange is not hidden (a multi-lane ring, after Träff and Hunold 2020, and Cho et
    al. 2019). Nodes must have as many ranks each.

    Rounds s(n-1)+1 on n nodes for s segments, s on one; m(n-1)/n bytes cross each node's link.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "lane_ring(segments=1)").show(0, 4, nodes=((0, 1), (2, 3)))
    send(1, 0) recv(1, 1) send(2, 0) recv(2, 2)
    send(1, 2) recv(1, 3)
    """
    number, place, group = lane(rank, nodes)
    successor, predecessor = group[(number + 1) % len(nodes)], group[number - 1]
    mates = [(member, mate) for member, mate in enumerate(nodes[number]) if mate != rank]
    messages = (len(nodes) - 1) * segments

    def part(index: int, member: int) -> int:
        """Return the block of a lane that is the index-th to be sent: one's own row comes first."""
        step, segment = divmod(index, segments)
        return nodes[number - step][member] * segments + segment

    for now in range(max(messages + 1, segments)):
        ready = [now] if now < segments else []
        ready += [now + segments - 1] if 0 < now <= messages else []
        ops = [
            op
            for index in ready
            for member, mate in mates
            for op in (send(mate, part(index, place)), recv(mate, part(index, member)))
        ]
        if now < messages:
            ops += send(successor, part(now, place)), recv(predecessor, part(now + segments, place))
        yield tuple(ops)


@algorithm("reduce_scatter", name="lane_ring", blocks=lambda size, segments: size * segments)
def reduce_scatter_ring(rank: int, size: int, nodes: Nodes, segments: int = 4) -> Schedule:
    """Reduce in segments along the ring of each lane, and inside each node one round ahead of it.

    The allgather backwards in time: only the first exchange inside a node is not hidden
    behind messages between nodes. Nodes must have as many ranks each. Commutative operators
    only.

    Rounds s(n-1)+1 on n nodes for s segments, s on one; m(n-1)/n bytes cross each node's link.

    >>> from mpicoll.algorithms import find
    >>> find("reduce_scatter", "lane_ring(segments=1)").show(0, 4, nodes=((0, 1), (2, 3)))
    reduce_right(1, 2) send(1, 3)
    reduce_right(1, 0) send(1, 1) reduce_right(2, 0) send(2, 2)
    """
    return reverse(allgather_ring(rank, size, nodes, segments), rank, folds=True)


@algorithm("allreduce", name="lane_ring", blocks=lambda size, segments: size * segments)
def allreduce_ring(rank: int, size: int, nodes: Nodes, segments: int = 4) -> Schedule:
    """Reduce-scatter, then allgather by rings along lanes, overlapped with steps inside nodes.

    A lane is one rank of each node, as in the allgather of that name. Only the first fold and the
    last exchange inside a node are not hidden behind messages between nodes: a segment of a row
    each. Nodes must have as many ranks each. Commutative operators only.

    Rounds 2s(n-1)+2 on n nodes for s segments, 2s on one; 2m(n-1)/n bytes cross each node's link.

    >>> from mpicoll.algorithms import find
    >>> find("allreduce", "lane_ring(segments=1)").show(0, 4, nodes=((0, 1), (2, 3)))
    reduce_right(1, 2) send(1, 3)
    reduce_right(1, 0) send(1, 1) reduce_right(2, 0) send(2, 2)
    send(1, 0) recv(1, 1) send(2, 0) recv(2, 2)
    send(1, 2) recv(1, 3)
    """
    return then(
        reduce_scatter_ring(rank, size, nodes, segments),
        allgather_ring(rank, size, nodes, segments),
    )

"""Classes of ranks whose times are equal on a topology, as arrays to simulate.

Two ranks are of one class if they are of one kind, and if their peers are of the same classes,
message by message. Groups are divided until that holds (the coarsest equitable partition). The
ranks of a group are always of different classes. So a class uses each port, and each link of a
node, as often as one of its ranks does, and the simulation of one rank for each class is that of
all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mpicoll.costs.patterns import Flags, Ints, Pattern
from mpicoll.costs.topology import NONE, Topology
from mpicoll.errors import ScheduleError, Unsupported

MOST_ROWS = 1 << 24
"""Rows that are simulated at most: about 2 GiB."""
_CHUNK = 1 << 16
_UNMATCHED = "some message is sent and not received, or the other way round"
_ODD = np.uint64(0x9E3779B97F4A7C15)
"""For hashes: 2^64 divided by the golden ratio."""


@dataclass(frozen=True, eq=False)
class Classes:
    """The messages of one rank of each class; a row is one side of a message.

    Attributes:
        rank: one rank of each class, in the order of their numbers.
        base: the first round of each class, and the end.
        first: the first row of each round, and the end; round: of each row.
        folded: blocks folded at the end of each round; head: before the first.
        peer: of each row, the class of the peer; partner: the row of the other side.
        blocks, sends: as in `Pattern`.
        path: the first link of each row in `links`, and the end.
        intra_node: whether a row is a message within a node.
    """

    rank: Ints
    base: Ints
    first: Ints
    round: Ints
    folded: Ints
    head: Ints
    peer: Ints
    partner: Ints
    blocks: Ints
    sends: Flags
    path: Ints
    links: Ints
    link_count: int
    intra_node: Flags


@lru_cache(maxsize=1)
def classes_of(pattern: Pattern, topology: Topology) -> Classes:
    """Return the classes of ranks on a topology.

    Raises:
        Unsupported: there are too many.
        ScheduleError: some message is not sent and received.
    """
    groups = pattern.groups
    colors = _colors(pattern, topology)
    lead = np.unique(colors, return_index=True)[1]  # a group of each color
    width = groups.widths[lead]
    rank = np.sort(groups.ranks[_spread(groups.first[lead], width)])
    kind = pattern.kind[rank]
    if (rows := int(np.diff(pattern.start)[kind].sum())) > MOST_ROWS:
        raise Unsupported(
            f"its ranks differ: {len(rank):,} of them have {rows:,} messages, "
            f"and at most {MOST_ROWS:,} are simulated"
        )
    number = np.empty(pattern.size, np.int64)
    number[rank] = np.arange(len(rank))
    row = _spread(pattern.start[kind], np.diff(pattern.start)[kind])
    owner = np.repeat(np.arange(len(rank)), np.diff(pattern.start)[kind])
    xor, sends = pattern.xor[kind][owner], pattern.sends[row]
    group = groups.at(groups.group[rank[owner]], pattern.distance[row], xor)
    if (pattern.place[row] >= groups.widths[group]).any():
        raise ScheduleError(_UNMATCHED)
    peers = groups.rank(group, pattern.place[row])
    peer = number[groups.rank(lead[colors[groups.group[peers]]], groups.place[peers])]
    blocks = pattern.blocks[row]
    partner = _partners(pattern, rank[owner], peers, owner, peer, sends, blocks)
    rounds = _spread(pattern.base[kind], np.diff(pattern.base)[kind])
    count = np.diff(pattern.first)[rounds]
    path, links, link_count, intra_node = _paths(
        topology, colors, len(lead), np.where(sends, rank[owner], peers),
        np.where(sends, peers, rank[owner]), sends,
    )  # fmt: skip
    return Classes(
        rank,
        base=np.concatenate([[0], np.cumsum(np.diff(pattern.base)[kind])]),
        first=np.concatenate([[0], np.cumsum(count)]),
        round=np.repeat(np.arange(len(rounds)), count),
        folded=pattern.folded[rounds], head=pattern.head[kind],
        peer=peer, partner=partner, blocks=blocks, sends=sends,
        path=path, links=links, link_count=link_count, intra_node=intra_node,
    )  # fmt: skip


def _spread(first: Ints, count: Ints) -> Ints:
    """Return first[0], first[0] + 1, ..., then first[1], ...: so many as `count` says of each."""
    ends = np.cumsum(count)
    spread: Ints = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
        first - ends + count, count
    )
    return spread


def _colors(pattern: Pattern, topology: Topology) -> Ints:
    """Return a color for each group: those of one color do the same, message by message."""
    groups = pattern.groups
    everyone = np.arange(groups.count)
    if not topology.permits(groups):
        return everyone
    kinds = np.zeros((groups.count, int(groups.widths.max())), np.int64) + NONE
    kinds[groups.group, groups.place] = pattern.kind
    colors, lead = _renumbered(np.unique(kinds, axis=0, return_inverse=True)[1].ravel())
    initial, count = colors, len(lead)
    if 2 * count > groups.count:
        return everyone
    distances = [_distances(pattern, kinds[group]) for group in lead]
    while count > 1:
        mixed = colors.astype(np.uint64)
        for index, (distance, xor) in enumerate(distances):
            members = np.flatnonzero(initial == index)
            for step, is_xor in zip(distance, xor, strict=True):
                neighbors = groups.at(members, step, is_xor)
                mixed[members] = _mix(mixed[members], colors[neighbors])
        colors, lead = _renumbered(mixed)
        if len(lead) == count:
            break
        count = len(lead)
        if 2 * count > groups.count:
            return everyone
    return colors


def _distances(pattern: Pattern, kinds: Ints) -> tuple[Ints, Flags]:
    """Return the distances from a group to the groups of its ranks' peers, each once."""
    kinds = kinds[kinds != NONE]
    row = _spread(pattern.start[kinds], np.diff(pattern.start)[kinds])
    xor = np.repeat(pattern.xor[kinds], np.diff(pattern.start)[kinds])
    distance, is_xor = np.unique(np.stack([pattern.distance[row], xor]), axis=1)
    return distance, is_xor.astype(bool)


def _mix(hashes: Ints, colors: Ints) -> Ints:
    """Return hashes of the hashes so far and further colors."""
    mixed: Ints = (hashes ^ (colors.astype(np.uint64) + np.uint64(1)) * _ODD) * _ODD
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _renumbered(colors: Ints) -> tuple[Ints, Ints]:
    """Number colors by first appearance; return the numbers, and the first place of each color."""
    _, first, inverse = np.unique(colors, return_index=True, return_inverse=True)
    number = np.empty_like(first)
    number[np.argsort(first)] = np.arange(len(first))
    return number[inverse.ravel()], np.sort(first)


def _partners(
    pattern: Pattern, rank: Ints, peers: Ints, owner: Ints, peer: Ints, sends: Flags, blocks: Ints
) -> Ints:
    """Match the k-th send from one rank to another with its k-th receive.

    Both are numbered by the class of the sender, its distance to the receiver's group, and the
    receiver's place.
    """
    groups = pattern.groups
    outgoing, incoming = np.flatnonzero(sends), np.flatnonzero(~sends)
    if len(outgoing) == len(incoming):
        keys = []
        for rows, sources, targets, senders in (
            (outgoing, rank, peers, owner), (incoming, peers, rank, peer)
        ):  # fmt: skip
            source, target = sources[rows], targets[rows]
            xor = pattern.xor[pattern.kind[source]]
            key = groups.place[target], groups.distance(source, target, xor), senders[rows]
            order = np.lexsort(key)  # stable: those between two ranks stay in their order
            keys.append((rows[order], np.stack(key)[:, order]))
        (outgoing, sent), (incoming, received) = keys
        if np.array_equal(sent, received) and np.array_equal(blocks[outgoing], blocks[incoming]):
            partner = np.empty(len(sends), np.int64)
            partner[outgoing], partner[incoming] = incoming, outgoing
            return partner
    raise ScheduleError(_UNMATCHED)


def _paths(
    topology: Topology, colors: Ints, count: int, sources: Ints, targets: Ints, sends: Flags
) -> tuple[Ints, Ints, int, Flags]:  # fmt: skip
    """Return the links of each sent message, how many there are, and which ones use memory.

    A link of a group becomes that of its color: links are numbered by direction, then by group.
    """
    lengths, links = np.zeros(len(sends), np.int64), [np.empty(0, np.int64)]
    intra_node = np.zeros(len(sends), bool)
    for begin in range(0, len(sends), _CHUNK):
        rows = np.flatnonzero(sends[begin : begin + _CHUNK]) + begin
        pair = sources[rows], targets[rows]
        used = topology.path(*pair).T
        lengths[rows] = (used != NONE).sum(axis=1)
        links.append(used[used != NONE])
        local = topology.is_intra_node(*pair)
        if local is not None:
            intra_node[rows] = local
    path = np.concatenate([[0], np.cumsum(lengths)])
    joined = np.concatenate(links)
    if count == len(colors):
        return path, joined, topology.links, intra_node
    per_group = topology.links // (2 * len(colors))
    direction, link = np.divmod(joined, max(1, topology.links // 2))
    group, lane = np.divmod(link, max(1, per_group))
    joined = (direction * count + colors[group]) * per_group + lane
    return path, joined, 2 * count * per_group, intra_node

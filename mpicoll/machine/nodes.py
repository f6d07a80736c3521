"""Which ranks share a node: as the library sees it, or as the user states it."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from mpicoll.errors import ArgumentError, brief
from mpicoll.text.numbers import whole

if TYPE_CHECKING:
    from mpicoll.backend import Nodes

MOST_RANKS = 1 << 20
RANKS_PER_NODE = "MPICOLL_RANKS_PER_NODE"


@cache
def host_identity() -> str:
    """Return a text that is equal in processes that share this machine's memory."""
    boot = ""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return f"{os.uname().nodename} {boot}"


def stated_node(rank: int) -> int | None:
    """Return the node of a rank of the world where the user states how many ranks share one.

    Hosts that share one kernel, as containers and network namespaces do, look like one.
    """
    text = os.environ.get(RANKS_PER_NODE)
    if text is None:
        return None
    count = whole(text, MOST_RANKS)
    if not count:
        raise ArgumentError(
            f"{RANKS_PER_NODE} must be a number of ranks, at least 1, not {brief(text)}"
        )
    return rank // count


def place_on_node(rank: int, nodes: Nodes) -> int:
    """Return the place of a rank among those of its node.

    >>> place_on_node(2, ((0, 1), (2, 3)))
    0
    """
    return next(node for node in nodes if rank in node).index(rank)


def group_by_node(
    hosts: Sequence[Hashable], node_numbers: Sequence[int | None]
) -> tuple[Nodes, str]:
    """Return the ranks of each node, and why those of some node cannot share memory.

    Args:
        hosts: the host of each rank, as the library identifies it.
        node_numbers: the node of each rank that the user states.

    >>> group_by_node(["a", "a", "b", "b"], [None] * 4)
    (((0, 1), (2, 3)), '')
    >>> group_by_node(["a", "a", "a", "a"], [0, 0, 1, 1])
    (((0, 1), (2, 3)), '')
    >>> group_by_node(["a", "b"], [0, 0])
    (((0, 1),), 'the library reports several hosts for the ranks of one stated node')
    """
    members: dict[Hashable, list[int]] = {}
    for rank, (host, node) in enumerate(zip(hosts, node_numbers, strict=True)):
        members.setdefault(host if node is None else ("stated", node), []).append(rank)
    nodes = tuple(map(tuple, members.values()))
    is_split = any(len({hosts[rank] for rank in node}) > 1 for node in nodes)
    reason = "the library reports several hosts for the ranks of one stated node"
    return nodes, reason if is_split else ""

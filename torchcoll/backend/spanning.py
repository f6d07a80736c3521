"""Find out whether the ranks of a new group lie on several nodes, where gloo serves its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from torch.distributed import distributed_c10d

from mpicoll.calls.order import is_asked_for
from mpicoll.machine.network import host_identity
from mpicoll.machine.nodes import group_by_node, stated_node
from mpicoll.text.encoding import decode, encode
from torchcoll.backend.opening import wait_for_keys

# torch's stubs lack the store's prefix, and that it takes bytes.
c10d: Any = distributed_c10d
_PREFIX = "torchcoll/node"


class Place(NamedTuple):
    """The place of a rank in a new group.

    Attributes:
        ranks: those of the group in the default group; empty for the default group itself.
    """

    rank: int
    size: int
    ranks: Sequence[int]


class _Member(NamedTuple):
    """A rank's host, the node that the user states for it, and whether it needs our schedules."""

    host: str
    node: int | None
    needs_schedules: bool


def is_left_to_gloo(
    store: Any, place: Place, algorithms: Mapping[str, str], timeout: timedelta
) -> bool:
    """Whether gloo serves all calls of a new group, as its ranks lie on several nodes; collective.

    A group is ours, wherever its ranks lie, if a rank has chosen an algorithm or asks for one order
    of folding.

    Args:
        store: of this group.
        algorithms: this rank's algorithm of each collective.
        timeout: for which this rank waits for the others.

    Raises:
        RankLost: a rank did not come within the timeout.
    """
    rank, size, ranks = place
    if size == 1:
        return False
    needs_schedules = is_asked_for() or {*algorithms.values()} != {"auto"}
    node = stated_node(ranks[rank] if ranks else rank)
    members_store = c10d.PrefixStore(_PREFIX, store)
    members_store.set(str(rank), encode(_Member(host_identity(), node, needs_schedules)))
    keys = [str(peer) for peer in range(size)]
    wait_for_keys(members_store, keys, timeout.total_seconds(), "come to make this group")
    hosts, stated_nodes, needs = zip(*decode(members_store.multi_get(keys), _Member), strict=True)
    nodes, _ = group_by_node(hosts, stated_nodes)
    return len(nodes) > 1 and not any(needs)

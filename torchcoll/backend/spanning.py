"""The calls of a group whose ranks lie on several nodes: by plans of ours, or by gloo.

No rank asks another before a call. torch demands that all ranks make the same blocking calls, with
the same lengths and dtypes. So all ranks count the calls of a key alike, and choose alike.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from secrets import randbits
from typing import Any, NamedTuple

import torch

from mpicoll.backend import Nodes
from mpicoll.c_extension import _compiled
from mpicoll.calls.plan_cache import MOST_PLANS
from mpicoll.flight.groups import standing
from mpicoll.machine.nodes import Cores, group_by_node, host_identity, own_cores, stated_node
from mpicoll.machine.settings import is_reproducible
from mpicoll.memory.files import is_switched_off
from mpicoll.text.encoding import decode, encode
from torchcoll.arrays import NAMES, TorchArrays
from torchcoll.backend.opening import exchange_values
from torchcoll.backend.tensors import Tensor

_REPEATS = 8
"""Calls of a key that are gloo's: a plan takes about as long to make as so many calls."""
_MOST_COUNTS = 4096
"""Keys whose calls are counted: a program of more lengths makes few calls of each."""


class Member(NamedTuple):
    """What a rank tells the others of itself when they make a group.

    Attributes:
        node: that the user states for it.
        may_share: it can use a channel.
        has_choices: it has chosen algorithms.
        is_reproducible: it asks for one order of folding.
        standing: of its recorder of calls.
        token: a random number.
    """

    host: str
    node: int | None
    process: int
    cores: Cores
    may_share: bool
    has_choices: bool
    is_reproducible: bool
    standing: tuple[int, ...]
    token: int


def find_members(
    store: Any, rank: int, size: int, ranks: Sequence[int], algorithms: Mapping[str, str],
    timeout: timedelta,
) -> list[Member]:  # fmt: skip
    """Return the members of a new group, none of a group of one rank; collective.

    Args:
        store: of this group.
        ranks: those of the group in the default group; empty for the default group itself.
        algorithms: this rank's algorithm of each collective.
        timeout: for which this rank waits for the others.

    Raises:
        RankLost: a rank did not come within the timeout.
    """
    if size == 1:
        return []
    may_share = not is_switched_off() and size <= _compiled.MOST_MEMBERS
    member = Member(
        host_identity(), stated_node(ranks[rank] if ranks else rank), os.getpid(), own_cores(),
        may_share and TorchArrays().layout() is not None, {*algorithms.values()} != {"auto"},
        is_reproducible(), standing(rank, size), randbits(63),
    )  # fmt: skip
    members = exchange_values(
        store, "node", rank, size, encode(member), timeout.total_seconds(),
        "come to make this group",
    )  # fmt: skip
    return decode(members, Member)


def nodes_of(members: Sequence[Member]) -> Nodes:
    """Return the nodes of a group, if there are several, and gloo may run some of its calls.

    There are none if a rank has chosen an algorithm or asks for one order of folding.
    """
    if not members or any(member.has_choices or member.is_reproducible for member in members):
        return ()
    hosts, stated_nodes = zip(*((member.host, member.node) for member in members), strict=True)
    nodes, _ = group_by_node(hosts, stated_nodes)
    return () if len(nodes) == 1 else nodes


class Key(NamedTuple):
    """The properties of a call that decide who runs it.

    Attributes:
        op: the operator; "sum" where nothing is reduced.
        length: the elements of a vector or of a row.
    """

    name: str
    op: str | None
    root: int
    dtype: torch.dtype
    length: int


class SpanningCalls:
    """The blocking calls of a group on several nodes.

    Our plans run the calls of a key from its eighth call on, if `auto` has a schedule for them.
    gloo runs all others. A group has plans for the first 64 such keys.

    Args:
        opened: returns the group's collectives, with all its ranks.

    Attributes:
        planned: the keys whose calls our plans run.
    """

    def __init__(self, nodes: Nodes, opened: Callable[[], Any]) -> None:
        self.nodes, self.size = nodes, sum(map(len, nodes))
        self._opened = opened
        self._counts: Counter[Key] = Counter()
        self.planned: set[Key] = set()

    def count(self, name: str, part: Any, whole: Any, op: str | None, root: int) -> bool:
        """Count a call, and return whether our plan runs it: the same on all ranks.

        Args:
            part: a vector, one row, or all rows of an alltoall; None for a barrier.
            whole: the rows, as one tensor or a list; None where this rank has none.
        """
        dtype, length = torch.uint8, 0
        if part is not None:
            if not (isinstance(part, Tensor) and part.numel()):  # or an alltoall of lists
                return False
            dtype, length = part.dtype, part.numel()
            if name == "alltoall":
                length //= self.size
            if whole is not None and not _fits(whole, self.size, dtype, length):
                return False
        key = Key(name, op, root, dtype, length)
        if key in self.planned or len(self.planned) == MOST_PLANS:
            return key in self.planned
        if len(self._counts) == _MOST_COUNTS:
            self._counts.clear()
        self._counts[key] += 1
        if self._counts[key] == _REPEATS and self._has_schedule(key):
            self.planned.add(key)
        return key in self.planned

    def _has_schedule(self, key: Key) -> bool:
        """Whether `auto` runs the calls of a key by a schedule; collective."""
        from mpicoll.calls.arguments import Arguments  # rarely needed
        from mpicoll.notation.contract import collective
        from mpicoll.notation.elements import OPS

        opened = self._opened()
        contract = collective(key.name)
        arguments = Arguments(
            contract, "auto", OPS[str(key.op)], key.root, None, None, None,
            # One that only torch knows moves as bytes.
            (key.length,), NAMES.get(key.dtype, "uint8"), opened.rank, self.size, device="host",
        )  # fmt: skip
        names = opened.chooser.preferred(arguments)
        return opened.planner.schedule(arguments, names) is not None


def _fits(whole: Any, size: int, dtype: torch.dtype, length: int) -> bool:
    """Whether there is a row of so many elements for each rank; gloo refuses others."""
    if isinstance(whole, Tensor):
        return whole.dtype == dtype and whole.numel() == size * length
    return len(whole) == size and all(row.dtype == dtype and row.numel() == length for row in whole)

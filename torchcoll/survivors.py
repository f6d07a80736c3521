"""The process group of the ranks that are left of another, over a store of their own.

Its counterpart is MPI_Comm_create_group.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from torch.distributed import distributed_c10d as c10d

from mpicoll.machine.network import LOOPBACK, host_address
from mpicoll.peers.survivors import Decision
from torchcoll.groups import Group, make_group
from torchcoll.rendezvous.sealed import SealedStore
from torchcoll.rendezvous.store import Store, distributed, server

_opened: dict[str, Store] = {}
"""Stores that this process has opened, each at a place, until the groups that meet there end."""


def meeting_place(one_host: bool) -> str:
    """Open a store, and return its address."""
    host = LOOPBACK if one_host else host_address()
    store, port = server(host, 0)
    place = f"{host}:{port}"
    _opened[place] = store
    return place


class Meeting(NamedTuple):
    """A group whose ranks have met at a place, by a store that is sealed where they have a key."""

    group: Group
    place: str
    sealed: SealedStore | None

    def end(self) -> None:
        """Destroy the group, and end the store where this process has opened it."""
        if self.group in c10d._world.pg_map:
            distributed().destroy_process_group(self.group)
        if self.sealed is not None:
            self.sealed.close()
        _opened.pop(self.place, None)


def meet_survivors(
    parent: Group, rank: int, world: Sequence[int], sealed: SealedStore | None, limit: timedelta,
    decision: Decision, attempt: int,
) -> Meeting:  # fmt: skip
    """Return the meeting of some ranks of a group, which make another one.

    Args:
        rank: of this process in `parent`.
        world: the ranks of `parent` in the default group; empty where that does not hold them.
        sealed: the store of `parent`, whose key they have.
        limit: within which they meet.

    Raises:
        RuntimeError: some rank did not come.
    """
    name = f"{parent.group_name}/survivors {attempt} of {decision.place}"
    size = len(decision.ranks)
    members = [world[member] for member in decision.ranks] if world else []
    try:
        host, _, port = decision.place.rpartition(":")
        store: Any = distributed().TCPStore(
            host, int(port), is_master=False, wait_for_workers=False, timeout=limit
        )
        key = None if sealed is None else SealedStore(store, sealed.key)
        if key is not None:
            key.keep_for_ever()
        group = make_group(
            parent, name, decision.ranks.index(rank), size, members, key or store, limit
        )
    except BaseException:
        _opened.pop(decision.place, None)
        raise
    return Meeting(group, decision.place, key)

"""The first exchange of all ranks, on a store; the error names a rank that is missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from mpicoll.errors import LaunchError
from torchcoll.place import Place
from torchcoll.rendezvous.store import Store


class Member(msgspec.Struct):
    """What the others need of a rank: the number of ranks it was given, its host, its GPUs."""

    size: int
    host: str
    gpus: list[str]


def meet(store: Store, place: Place, own: Member, timeout: float) -> list[Member]:
    """Return the `Member` of every rank, in rank order.

    Raises:
        LaunchError: a rank is missing after `timeout` seconds, joined twice, or has another size.
    """
    if store.add(f"joined/{place.rank}", 1) > 1:
        raise LaunchError(
            f"rank {place.rank} joined twice: two processes have the same rank, "
            "or the rendezvous file is left over from an earlier run (remove it)"
        )
    store.set(f"member/{place.rank}", msgspec.json.encode(own).decode())
    keys = [f"member/{rank}" for rank in range(place.size)]
    try:
        store.wait(keys, timedelta(seconds=timeout))
    except RuntimeError:
        raise LaunchError(_missing(store, place, keys, timeout)) from None
    members = [msgspec.json.decode(store.get(key), type=Member) for key in keys]
    sizes = [each.size for each in members]
    if len(set(sizes)) > 1:
        raise LaunchError(f"ranks 0 to {place.size - 1} were given sizes {sizes}: they must agree")
    return members


def _missing(store: Store, place: Place, keys: Sequence[str], timeout: float) -> str:
    """Return a message that names the missing ranks."""
    try:
        missing = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
    except RuntimeError:
        return f"rank {place.rank} of {place.size} lost the store: the rank that held it has ended"
    return (
        f"rank {place.rank} waited {timeout:g} s for rank {', '.join(missing)} of {place.size}: "
        f"start exactly {place.size} processes, each with a rank of its own"
    )

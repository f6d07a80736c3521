"""The first exchange of all ranks, on a store; the error names a rank that is missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from mpicoll.errors import LaunchError
from torchcoll.place import Place
from torchcoll.rendezvous.store import Store


class Member(msgspec.Struct):
    """What a rank tells the others: the number of ranks it expects, its host, its GPUs."""

    size: int
    host: str
    gpus: list[str]


def meet(store: Store, place: Place, own: Member, timeout: float) -> list[Member]:
    """Return what every rank tells, in rank order.

    Raises:
        LaunchError: a rank did not come in time, came twice, or expects another size.
    """
    if store.add(f"came/{place.rank}", 1) > 1:
        raise LaunchError(
            f"rank {place.rank} came twice: two processes have the same rank, "
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
        raise LaunchError(f"ranks 0 to {place.size - 1} were told sizes {sizes}: they must agree")
    return members


def _missing(store: Store, place: Place, keys: Sequence[str], timeout: float) -> str:
    """Return the message that names the ranks that did not come."""
    try:
        missing = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
    except RuntimeError:
        return f"rank {place.rank} of {place.size} lost the store: the rank that held it gave up"
    return (
        f"rank {place.rank} waited {timeout:g} s for rank {', '.join(missing)} of {place.size}: "
        f"start exactly {place.size} processes, each with a rank of its own"
    )

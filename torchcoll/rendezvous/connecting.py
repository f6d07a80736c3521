"""Let torch connect the ranks of a group, which no rank can leave while it waits for another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from mpicoll.errors import LaunchError
from mpicoll.machine.background import background, is_done
from torchcoll.rendezvous.sealed import SealedStore

Connected = TypeVar("Connected")
_LOOKS = 0.1
"""Seconds between two looks at whether another rank has refused."""


def connect(
    connects: Callable[[], Connected], store: SealedStore, name: str, rank: int, size: int,
    timeout: float,
) -> Connected:  # fmt: skip
    """Return the result of `connects`; raise on every rank where it fails on one.

    gloo waits for a rank that has failed until its own timeout, half an hour, and cannot be
    interrupted. It therefore waits in a separate thread, which such an error leaves behind. Or it
    finds that rank's port open, and knows of nothing: so all ranks count those that have
    connected.

    Args:
        name: of the group, which no other group of this store has.
        rank: of this process among the `size` that connect.
        size: see `rank`.
        timeout: seconds in which the others have connected, once this rank has.

    Raises:
        LaunchError: another rank could not connect, with its reason; or the store is gone.
        Exception: what `connects` raised on this rank.
    """
    future = background(connects, f"torchcoll connecting {name}")
    try:
        while not is_done(future, _LOOKS):
            store.check_refused()
        if (failed := future.exception()) is None:
            store.wait_for_all(name, size, timeout)
    except BaseException as error:
        store.keep_for_ever()
        if isinstance(error, LaunchError) or not isinstance(error, RuntimeError):
            raise
        raise LaunchError(
            f"rank {rank} of {size} lost the store: the rank that held it has ended"
        ) from None
    if failed is not None:
        store.keep_for_ever()
        with suppress(LaunchError, RuntimeError):
            store.refuse(rank, size - 1, failed)
    return future.result()

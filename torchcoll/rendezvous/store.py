"""Key-value stores of torch.distributed on one TCP address."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from mpicoll.errors import LaunchError
from mpicoll.machine.background import within
from mpicoll.machine.network import listener
from torchcoll.place import Place

Store = Any
"""A key-value store of torch.distributed."""
_ANSWERS_WITHIN = 10.0
"""Seconds in which whoever accepts a connection must prove to be such a store."""
LONGEST_NAP = 0.05
"""Seconds between two looks at a store, which serves all ranks."""
_MARKER = "torchcoll"
"""A key of stores that a rank has opened, and torchrun has not."""


class Rendezvous(NamedTuple):
    """A store that all ranks reach, a secret that only they know, and a call for the end."""

    store: Store
    secret: bytes
    finish: Callable[[], None] = lambda: None


def store_lost(rank: int, size: int) -> LaunchError:
    """Return the error of a rank whose store has gone."""
    return LaunchError(f"rank {rank} of {size} lost the store: the rank that held it has ended")


def distributed() -> Any:
    """Return torch.distributed, which takes seconds to import."""
    import torch.distributed

    return torch.distributed


def tcp_store(place: Place, host: str, port: int, timeout: float) -> Store:
    """Open the store on rank 0, and connect to it on the others.

    Raises:
        LaunchError: nobody can listen there, or nobody does.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise LaunchError(
            f"there is no host {host!r} ({getattr(error, 'strerror', None) or error}): give the "
            "name or address of rank 0's host"
        ) from None
    if place.rank == 0:
        return server(host, port)[0]
    # What keeps rank 0 from listening must not leave the others waiting: they try it, too.
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            elsewhere = error.errno == errno.EADDRNOTAVAIL and place.local_size != place.size
            if error.errno != errno.EADDRINUSE and not elsewhere:
                listener(host, port).close()
    store = client(place, host, port, timeout)
    try:
        store.wait([_MARKER], timedelta(seconds=_ANSWERS_WITHIN))
    except RuntimeError:
        raise LaunchError(_foreign(place, host, port)) from None
    return store


def _foreign(place: Place, host: str, port: int) -> str:
    return (
        f"rank {place.rank} of {place.size}: whoever listens at {host}:{port} is not rank 0: give "
        "a free port"
    )


def server(host: str, port: int) -> tuple[Store, int]:
    """Open the store on one address; return it and its port. Port 0 is any free one."""
    with listener(host, port) as bound:
        address, port, *_ = bound.getsockname()
        descriptor = bound.detach()
    store = distributed().TCPStore(
        address, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor
    )
    store.set(_MARKER, "")
    return store, port


def client(place: Place, host: str, port: int, timeout: float) -> Store:
    """Connect to the store.

    Raises:
        LaunchError: nobody listens there, or no store of torch.distributed.
    """
    until = time.monotonic() + timeout
    while True:
        remaining = max(0.1, until - time.monotonic())
        try:
            socket.create_connection((host, port), remaining).close()
            break
        except OSError as error:
            if time.monotonic() + 0.1 > until:
                raise LaunchError(
                    f"rank {place.rank} of {place.size} found nobody at {host}:{port} in "
                    f"{timeout:g} s ({os.strerror(error.errno or errno.ETIMEDOUT)}): is rank 0 "
                    "running, and is that its address?"
                ) from None
        time.sleep(0.05)
    # torch waits without end for the answer of one who listens and says nothing.
    soon = min(remaining, _ANSWERS_WITHIN)
    foreign = LaunchError(_foreign(place, host, port))
    connects = partial(
        distributed().TCPStore, host, port, is_master=False, wait_for_workers=False,
        timeout=timedelta(seconds=soon),
    )  # fmt: skip
    try:
        store = within(soon, connects, foreign)
    except (RuntimeError, ValueError):
        raise foreign from None
    store.set_timeout(timedelta(seconds=timeout))
    return store

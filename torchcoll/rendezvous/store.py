"""Key-value stores of torch.distributed on one TCP address."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from mpicoll.errors import LaunchError
from mpicoll.machine.network import listener
from torchcoll.place import Place

Store = Any
"""A key-value store of torch.distributed."""

Rendezvous = tuple[Store, Callable[[], None]]
"""A store that all ranks reach, and what to do once all have."""


def distributed() -> Any:
    """Return torch.distributed, which takes seconds to import."""
    import torch.distributed

    return torch.distributed


def nothing() -> None:
    """Do nothing once all ranks have met."""


def tcp_store(place: Place, host: str, port: int, timeout: float) -> Store:
    """Open the store on rank 0, and connect to it on the others."""
    if place.rank:
        return client(place, host, port, timeout)
    return server(host, port)[0]


def server(host: str, port: int) -> tuple[Store, int]:
    """Open the store on one address; return it and its port. Port 0 is any free one."""
    with listener(host, port) as bound:
        address, port, *_ = bound.getsockname()
        descriptor = bound.detach()
    store = distributed().TCPStore(
        address, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor
    )
    return store, port


def client(place: Place, host: str, port: int, timeout: float) -> Store:
    """Connect to the store.

    Raises:
        LaunchError: nobody listens there.
    """
    try:
        return distributed().TCPStore(
            host, port, is_master=False, wait_for_workers=False,
            timeout=timedelta(seconds=timeout),
        )  # fmt: skip
    except RuntimeError:
        raise LaunchError(
            f"rank {place.rank} of {place.size} found nobody at {host}:{port} in {timeout:g} s: "
            "is rank 0 running, and is that its address?"
        ) from None

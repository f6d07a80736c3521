"""Which network interface leads to the other hosts."""

from __future__ import annotations

import os
import socket

from mpicoll.errors import LaunchError

LOOPBACK = "127.0.0.1"


def interfaces() -> dict[str, str | None]:
    """Return the IPv4 address of every interface, None for one that has none."""
    import psutil  # a program starts quickly without

    return {
        name: next((entry.address for entry in addresses if entry.family == socket.AF_INET), None)
        for name, addresses in psutil.net_if_addrs().items()
    }


def check_interface(name: str) -> str:
    """Return `name`, or raise LaunchError listing the interfaces that exist."""
    available = interfaces()
    if name not in available:
        listed = ", ".join(
            f"{interface} ({address or 'no IPv4'})" for interface, address in available.items()
        )
        raise LaunchError(f"there is no network interface {name!r} on this host: it has {listed}")
    return name


def interface_of(address: str) -> str | None:
    """Return the interface that carries an address."""
    return next((name for name, candidate in interfaces().items() if candidate == address), None)


def host_address(toward: str | None = None) -> str:
    """Return the address by which other hosts reach this one, on the way to `toward` if given."""
    try:
        named = socket.gethostbyname(socket.gethostname())
    except OSError:
        named = LOOPBACK
    if toward is None and not named.startswith("127."):
        return named
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((toward or "192.0.2.1", 9))  # no packet is sent: it asks for the route
        except OSError:
            return named
        return str(probe.getsockname()[0])


def listener(host: str, port: int) -> socket.socket:
    """Bind a socket to one address, so that nothing listens on all interfaces.

    Raises:
        LaunchError: the address is not of this host, or the port is taken.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(1024)
    except OSError as error:
        raise LaunchError(
            f"rank 0 cannot listen on {host}:{port} ({os.strerror(error.errno or 0)}): "
            "give an address of rank 0's host and a free port"
        ) from None
    return bound

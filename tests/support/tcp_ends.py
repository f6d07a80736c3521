"""Both ends of a TCP connection in this process, and what a flight file has of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mpicoll.flight.reader import Dump, Link


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Make a connection over which data has gone; give its sender and its receiver."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    with sender, receiver:
        send(sender, receiver)
        yield sender, receiver


def send(sender: socket.socket, receiver: socket.socket) -> None:
    """Send 50,000 bytes."""
    sender.sendall(bytes(50_000))
    assert len(receiver.recv(50_000, socket.MSG_WAITALL)) == 50_000


def of_sender(dump: Dump, sender: socket.socket) -> list[Link]:
    """Return the readings of one end."""
    ends = *sender.getsockname(), *sender.getpeername()
    return [link for link in dump.links if link.connection == ends]

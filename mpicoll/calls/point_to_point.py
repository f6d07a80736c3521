"""Point-to-point messages of a group, each recorded while it is under way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mpicoll.backend import Array, Message, Request, Transport
from mpicoll.calls.arguments import check_array, check_rank, check_tag
from mpicoll.calls.recording import Recording
from mpicoll.errors import RankLost
from mpicoll.machine import forks

_MOST_MESSAGES = 1024


class PointToPoint:
    """The messages among the ranks of one group."""

    def __init__(self, transport: Transport, recording: Recording) -> None:
        self.transport, self.recording = transport, recording
        self.rank, self.size = transport.rank, transport.size
        self._generation = forks.generation()
        self._messages: dict[tuple[str, str, int, int], Callable[..., None]] = {}

    def send(self, x: Array, peer: int, tag: int = 0) -> None:
        """Send `x` to `peer`."""
        message = self._message("x", x, peer, tag)
        self._recorded("send", "to", peer, tag, self._send)(*message)

    def recv(self, out: Array, peer: int, tag: int = 0) -> Array:
        """Receive into `out` from `peer` and return it."""
        message = self._message("out", out, peer, tag)
        self._recorded("recv", "from", peer, tag, self._receive)(*message)
        return out

    def isend(self, x: Array, peer: int, tag: int = 0) -> Request:
        """Start sending `x`; leave it alone until the request is complete."""
        message = self._message("x", x, peer, tag)
        start = partial(self.transport.isend, *message)
        return self.recording.started("isend", f"to rank {peer}", tag, start)

    def irecv(self, out: Array, peer: int, tag: int = 0) -> Request:
        """Start receiving into `out`."""
        message = self._message("out", out, peer, tag)
        start = partial(self.transport.irecv, *message)
        return self.recording.started("irecv", f"from rank {peer}", tag, start)

    def sendrecv(
        self, x: Array, to: int, out: Array, source: int | None = None, tag: int = 0
    ) -> Array:
        """Send `x` to rank `to` while receiving `out` from `source` (`to` by default)."""
        received, source, _ = self._message("out", out, to if source is None else source, tag)
        sent, to, _ = self._message("x", x, to, tag)
        messages = Message(to, sent), Message(source, received)
        self._recorded("sendrecv", f"from rank {source}, to", to, tag, self._exchange)(
            *messages, tag
        )
        return out

    def _recorded(
        self, kind: str, way: str, peer: int, tag: int, run: Callable[..., None]
    ) -> Callable[..., None]:  # fmt: skip
        """Return a recorded function for messages of one kind, the same for all of them."""
        key = kind, way, peer, tag
        function = self._messages.get(key)
        if function is None:
            if len(self._messages) >= _MOST_MESSAGES:
                self._messages.clear()
            function = self.recording.message(kind, f"{way} rank {peer}", tag, run)
            self._messages[key] = function
        return function

    def _send(self, *message: Any) -> None:
        self.transport.isend(*message).wait()

    def _receive(self, *message: Any) -> None:
        self.transport.irecv(*message).wait()

    def _exchange(self, *messages: Any) -> None:
        for request in self.transport.sendrecv(*messages):
            request.wait()

    def _message(self, label: str, array: Any, peer: Any, tag: Any) -> tuple[Array, int, int]:
        if forks.generation() != self._generation:
            raise RankLost(f"this group has ended, make a new one: {forks.FORKED}")
        flat = check_array(self.transport.arrays, label, array)
        self.transport.arrays.dtype(array)
        check_tag(tag)
        return flat, check_rank(peer, self.size, "peer"), tag

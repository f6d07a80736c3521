"""Point-to-point messages of a group, each recorded while it is under way."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from mpicoll.backend import Array, Message, Request, Transport
from mpicoll.calls.arguments import check_array, check_rank, check_tag
from mpicoll.calls.recording import Recording
from mpicoll.errors import RankLost
from mpicoll.machine import forks

_MOST_MESSAGES = 1024


class PointToPoint:
    """The messages among the ranks of one group.

    Arrays are C-contiguous; sender and receiver give as many bytes. `peer` is a rank of the group,
    and `tag` a number from 0 to 32767.

    Attributes:
        rank: of the caller in the group.
        size: number of ranks.
    """

    def __init__(self, transport: Transport, recording: Recording) -> None:
        self.transport, self.recording = transport, recording
        self.rank, self.size = transport.rank, transport.size
        self._generation = forks.generation()
        self._recorded = lru_cache(_MOST_MESSAGES)(self._record)

    def send(self, x: Array, peer: int, tag: int = 0) -> None:
        """Send `x`, of any shape, to `peer`; return when `x` can be changed.

        >>> import mpicoll, numpy as np
        >>> def program(c):
        ...     if c.rank == 0:
        ...         c.send(np.arange(3), 1)
        ...         return None
        ...     return c.recv(np.empty(3, int), 0)
        >>> mpicoll.threads(2)(program)[1]
        array([0, 1, 2])
        """
        message = self._message("x", x, peer, tag)
        self._recorded("send", "to", peer, tag)(*message)

    def recv(self, out: Array, peer: int, tag: int = 0) -> Array:
        """Receive into `out` from `peer` and return it; `out` has the bytes of the message.

        >>> import mpicoll, numpy as np
        >>> def program(c):
        ...     if c.rank == 0:
        ...         c.send(np.ones(2), 1, tag=5)
        ...         return None
        ...     return c.recv(np.empty(2), 0, tag=5)
        >>> mpicoll.threads(2)(program)[1]
        array([1., 1.])
        """
        message = self._message("out", out, peer, tag)
        self._recorded("recv", "from", peer, tag)(*message)
        return out

    def isend(self, x: Array, peer: int, tag: int = 0) -> Request:
        """Start sending `x`; do not change it until the request is complete.

        >>> import mpicoll, numpy as np
        >>> def program(c):
        ...     request = c.isend(np.full(1, c.rank), 1 - c.rank)
        ...     out = c.recv(np.empty(1, int), 1 - c.rank)
        ...     request.wait()
        ...     return out
        >>> mpicoll.threads(2)(program)
        [array([1]), array([0])]
        """
        message = self._message("x", x, peer, tag)
        start = partial(self.transport.isend, *message)
        return self.recording.started("isend", "to", peer, tag, start)

    def irecv(self, out: Array, peer: int, tag: int = 0) -> Request:
        """Start receiving into `out`, which holds the message once the request is complete.

        >>> import mpicoll, numpy as np
        >>> def program(c):
        ...     out = np.empty(1, int)
        ...     request = c.irecv(out, 1 - c.rank)
        ...     c.send(np.full(1, c.rank), 1 - c.rank)
        ...     request.wait()
        ...     return out
        >>> mpicoll.threads(2)(program)
        [array([1]), array([0])]
        """
        message = self._message("out", out, peer, tag)
        start = partial(self.transport.irecv, *message)
        return self.recording.started("irecv", "from", peer, tag, start)

    def sendrecv(
        self, x: Array, to: int, out: Array, source: int | None = None, tag: int = 0
    ) -> Array:
        """Send `x` to rank `to`, receive `out` from `source` (`to` by default), and return `out`.

        >>> import mpicoll, numpy as np
        >>> def shift(c):
        ...     right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
        ...     return c.sendrecv(np.full(1, c.rank), right, np.empty(1, int), left)
        >>> mpicoll.threads(3)(shift)
        [array([2]), array([0]), array([1])]
        """
        received, source, _ = self._message("out", out, to if source is None else source, tag)
        sent, to, _ = self._message("x", x, to, tag)
        messages = Message(to, sent), Message(source, received)
        self._recorded("sendrecv", f"from rank {source}, to", to, tag)(*messages, tag)
        return out

    def _record(self, kind: str, way: str, peer: int, tag: int) -> Callable[..., None]:
        """Return a recorded function for messages of one kind, the same for all of them."""
        runs = {"send": self._send, "recv": self._receive, "sendrecv": self._exchange}
        return self.recording.message(kind, way, peer, tag, runs[kind])

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

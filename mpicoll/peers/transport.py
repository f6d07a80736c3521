"""What the transports of several processes have alike, whatever library carries their messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from mpicoll.backend import EXCHANGE, POINT_TO_POINT, Array, Gpu, Message, Nodes, SharedMemory
from mpicoll.machine import forks
from mpicoll.memory.mailbox import Rounds
from mpicoll.memory.segments import open_memory
from mpicoll.peers.known import Peers
from mpicoll.text.encoding import decode_alike, encode_for
from mpicoll.tuning import STAGED_PIECE

if TYPE_CHECKING:
    from mpicoll.gpu.staging import Mirror, Mirrors, Pieces


class PeerTransport:
    """The part of `mpicoll.backend.Transport` that rests on what a rank knows of the others.

    Subclasses define the attributes below. `_agree` and `_gather` are called only where the ranks
    share no memory.

    Attributes:
        copies: how arrays are copied between GPU and host.
        _needs_staging: whether an array travels through the host.
        _check_open: raises RuntimeError where the group has been freed.
        _agree: whether all ranks give the same number.
        _gather: returns every rank's bytes, in rank order.
    """

    compares = True
    name = POINT_TO_POINT
    arrays: Any
    copies: Any
    nodes: Nodes
    unshared: str
    _needs_staging: Callable[[Array | None], bool]
    _check_open: Callable[[], None]
    _agree: Callable[[int], bool]
    _gather: Callable[[bytes], list[bytes]]

    def _begin(self, rank: int, size: int, deadline: float | None) -> None:
        self.rank, self.size = rank, size
        self.peers, self.attempts, self.generation = Peers(rank, size), count(), forks.generation()
        self.rounds = Rounds(self.peers.leave)
        self.shared: SharedMemory | None = None
        if deadline is not None:
            self.peers.deadline = deadline

    def _open(self, obstacle: str, progress: Callable[[], object] = lambda: None) -> None:
        """Map the memory of this rank's node; collective."""
        memory, self.unshared = open_memory(
            self.rank, self.nodes, self.arrays, self.exchange, obstacle, progress
        )
        self.peers.open(memory, self.nodes, self.exchange)
        self.shared = memory

    def _close(self) -> None:
        if self.shared is not None:
            self.shared.close()
            self.shared = None
        self.peers.close()

    def driver(self, device: int) -> Gpu:
        from mpicoll.gpu.driver import Driver

        return Driver(device)

    @cached_property
    def mirrors(self) -> Mirrors:
        """The page-locked memory of the plans."""
        from mpicoll.gpu.staging import Mirrors

        return Mirrors()

    def _staged(
        self, receives: Sequence[Message], sends: Sequence[Message], tag: int
    ) -> tuple[Mirror, list[Pieces], list[Pieces]] | None:
        """Return the messages of a round that travel through the host, None where none does."""
        by_host = [
            [message for message in some if self._needs_staging(message.data)]
            for some in (receives, sends)
        ]
        if not any(by_host):
            return None
        from mpicoll.gpu.staging import in_blocks, pieces_by_peer

        mirror = self.mirrors.for_round(tag, self.copies)
        pieces = [pieces_by_peer(messages, STAGED_PIECE) for messages in by_host]
        return mirror, *in_blocks(mirror, *pieces)

    @property
    def deadline(self) -> float:
        """Seconds after which this rank gives up waiting for another."""
        return self.peers.deadline

    @deadline.setter
    def deadline(self, seconds: float) -> None:
        self.peers.deadline = seconds
        self._set_timeout(seconds)

    def _set_timeout(self, seconds: float) -> None:
        """Tell the library of the deadline."""

    def leave(self, operation: int, error: BaseException) -> None:
        self.peers.leave(operation, error)

    def poison_on_error(self) -> AbstractContextManager[None]:
        """Return a context that ends the group where this rank alone fails in it.

        Raises:
            RankLost: the group has ended.
        """
        if self.shared is not None and self.shared.mailbox is not None:
            return self.shared.mailbox.poison_on_error()
        if forks.generation() != self.generation:
            self.rounds.end(forks.FORKED)
        self.rounds.check()
        return self.rounds.poison_on_error()

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        if self.shared is not None and self.shared.mailbox is not None:
            return self.shared.mailbox.exchange(item, kind)
        self._check_open()
        with self.rounds.alone(), self.poison_on_error():
            # Others compare a call, and will come after that.
            while self.compares and not self._agree(EXCHANGE):
                pass
            return decode_alike(self._gather(encode_for(kind, item)), kind)

    def agree(self, digest: int) -> bool:
        self._check_open()
        if not self.compares:
            return True
        with self.rounds.alone(), self.poison_on_error():
            return self._agree(digest)

"""Works of torch.distributed that are under way.

Its counterpart is `mpicoll.mpi.requests`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from mpicoll.backend import Messages, Poll, Request, Stage, Thunk
from mpicoll.errors import RankLost
from mpicoll.gpu.nccl import blocks, error_of
from mpicoll.machine.background import background
from mpicoll.peers.polling import wait_polling
from mpicoll.peers.search import AllRanks
from torchcoll.groups import Group, nccl_communicator, nccl_of

if TYPE_CHECKING:
    from mpicoll.peers.contact import Answer
    from mpicoll.peers.known import Peers

Post = Callable[..., Any]
"""A call that starts an operation and returns its Work, or None."""


class Waits:
    """Waits for works that end at the deadline, and name the rank that is missing.

    gloo itself gives up a work that lasts too long, and closes the group's connections then: the
    group has ended. It counts the time in which a job was suspended, too.

    Args:
        stage: in which this rank waits.
        ranks: those of the works of a round, in order; empty for a collective.
    """

    def __init__(self, peers: Peers, stage: Stage, ranks: Sequence[int] = ()) -> None:
        self.peers, self.stage, self.ranks = peers, stage, [*ranks]

    def wait(self, work: Any, place: int) -> None:
        """Wait for a work, the one of a place among those of its round."""
        peer = self.ranks[place] if place < len(self.ranks) else None
        self.peers.wait_for(peer)
        try:
            work.wait(limit_of(self.peers.deadline))
        except RuntimeError as error:
            raise self.failed(error, peer) from error
        self.peers.wait_for(None)

    def failed(self, error: RuntimeError, peer: int | None) -> RankLost:
        """Return the error of a wait in which the library has found one."""
        if isinstance(error, RankLost):
            return error
        ranks = [peer] if peer is not None else list(dict.fromkeys(self.ranks))
        return self.peers.lost(
            self.stage, ranks or self.peers.absent(_is_elsewhere), message_of(error)
        )

    def lost(self, reason: str) -> RankLost:
        """Return the error of a wait, given the reason as the end of a sentence."""
        return self.peers.lost(self.stage, list(dict.fromkeys(self.ranks)), reason)


class NcclWaits(Waits):
    """Waits for works of NCCL: the caller's stream waits, and the host where `blocks` says so.

    Then the wait ends at the deadline, or when a rank has ended, and so do NCCL's kernels.
    """

    def __init__(self, group: Group, peers: Peers, stage: Stage, ranks: Sequence[int] = ()) -> None:
        super().__init__(peers, stage, ranks)
        self.group, self.blocks = group, blocks()

    def wait(self, work: Any, place: int) -> None:
        try:
            work.wait()
            if self.blocks:
                ranks = list(dict.fromkeys(self.ranks))
                awaited = (lambda: ranks) if ranks else AllRanks(self.peers, _is_elsewhere)
                wait_polling(work.is_completed, awaited, self.stage, self.peers)
                # A work that has failed counts as completed (`WorkNCCL::isCompleted`).
                if error := error_of(nccl_communicator(self.group)):
                    raise self.lost(f"of which NCCL says: {error}")
        except RankLost:
            nccl_of(self.group).abort()
            raise
        except RuntimeError as error:
            raise self.failed(error, None) from error


_MOST_SECONDS = 1e8


@cache
def limit_of(seconds: float) -> timedelta:
    """Return a deadline as torch takes it."""
    return timedelta(seconds=min(max(seconds, 1e-3), _MOST_SECONDS))


def message_of(error: BaseException) -> str:
    """Return a library's message of a failure, without the place in its source."""
    text = str(error).partition("\n")[0]
    if text.startswith("["):
        text = text.partition("] ")[2]
    return f"of which torch says: {text.partition('. This')[0]}"


def _is_elsewhere(answer: Answer) -> bool:
    return not answer.native


class Works:
    """Operations that start together; kept until waited for, as gloo needs.

    A Work that is dropped takes its message with it under gloo.

    Args:
        posts: what starts them.
        epilogue: what runs after all of them.
        polls: whether `Work.is_completed` can be trusted. It can for NCCL, and for gloo's
            collectives but reduce_scatter; that, sends and receives complete in `Work.wait`
            only.
        waits: how to wait for each.
    """

    def __init__(
        self, posts: Sequence[Post] = (), epilogue: Sequence[Thunk] = (), *, polls: bool,
        waits: Waits,
    ) -> None:  # fmt: skip
        self.posts, self.epilogue, self.polls, self.waits = [*posts], epilogue, polls, waits
        self.after_each: list[Thunk | None] = []
        self.works: list[Any] = []
        self.under_way = False
        self._waiting: Future[None] | None = None

    def __del__(self) -> None:
        # The other ranks wait for what this one has started.
        if self.under_way and self.works:
            _dropped.append(self)

    def add(self, peer: int, post: Post, then: Thunk | None = None) -> None:
        """Add a message, and what follows it."""
        self.waits.ranks.append(peer)
        self.posts.append(post)
        self.after_each.append(then)

    def start(self) -> Works:
        """Start all of them."""
        self.under_way = True
        if _dropped:
            _dropped[:] = [works for works in _dropped if not works.is_complete()]
        try:
            for post in self.posts:
                self.works.append(post())
        except RuntimeError as error:
            raise self.waits.failed(error, None) from error
        return self

    def wait(self) -> None:
        if not self.under_way:
            return
        # gloo's receives must not be waited for twice: they would wait for another message.
        if self._waiting is not None:
            self._waiting.result()
        for place, (work, then) in enumerate(zip_longest(self.works, self.after_each)):
            if self._waiting is None:
                self._wait(work, place)
            if then is not None:
                then()
        self.works, self._waiting, self.under_way = [], None, False
        for thunk in self.epilogue:
            thunk()

    def _wait(self, work: Any, place: int) -> None:
        if work is not None:
            self.waits.wait(work, place)

    def _wait_for_all(self) -> None:
        for place, work in enumerate(self.works):
            self._wait(work, place)

    def test(self) -> bool:
        if self.under_way and self.is_complete():
            self.wait()
        return not self.under_way

    def is_complete(self) -> bool:
        """Whether all of them are complete."""
        if self.polls:
            return all(work is None or work.is_completed() for work in self.works)
        if self._waiting is None:
            self._waiting = background(self._wait_for_all, "torchcoll wait")
        return self._waiting.done()

    def free(self) -> None:
        """Forget the calls that start them, and with these the buffers."""
        self.posts = []


_dropped: list[Works] = []
"""Operations that nobody waits for, and all that they touch, until they are complete."""


def started(messages: Messages) -> Request:
    """Start bound messages, and return their poll."""
    for start in messages.starts:
        start()
    [poll] = (end for end in messages.ends if isinstance(end, Poll))
    return poll

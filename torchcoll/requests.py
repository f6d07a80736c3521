"""Works of torch.distributed that are under way.

Its counterpart is `mpicoll.mpi.requests`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from mpicoll.interfaces import Messages, Thunk

Post = Callable[..., Any]
"""A call that starts an operation and returns its Work, several, or None."""


class Works:
    """Operations that start together; kept until waited for, as gloo needs.

    A Work that is dropped takes its message with it under gloo.

    Args:
        posts: what starts them.
        after: what follows all of them.
        polls: whether `Work.is_completed` can be trusted. It can for NCCL, and for gloo's
            collectives but reduce_scatter; that, sends and receives complete in `Work.wait`
            only.
        after_each: what follows each, if anything does.
    """

    def __init__(
        self, posts: Sequence[Post], after: Sequence[Thunk] = (), *, polls: bool,
        after_each: Sequence[Thunk | None] = (),
    ) -> None:  # fmt: skip
        self.posts, self.after, self.polls, self.after_each = posts, after, polls, after_each
        self.works: list[Any] = []
        self.under_way = False
        self._waiting: _WaitingThread | None = None

    def start(self) -> Works:
        """Start all of them."""
        self.under_way = True
        for post in self.posts:
            work = post()
            self.works += work if isinstance(work, list) else [work]
        return self

    def wait(self) -> None:
        if not self.under_way:
            return
        if self._waiting is not None:
            self._waiting.finish()
        for work, then in zip_longest(self.works, self.after_each) if self.after_each else ():
            work.wait()
            if then is not None:
                then()
        if self._waiting is None and not self.after_each:
            _wait(self.works)
        self.works, self._waiting, self.under_way = [], None, False
        for thunk in self.after:
            thunk()

    def test(self) -> bool:
        if self.under_way and self._is_complete():
            self.wait()
        return not self.under_way

    def _is_complete(self) -> bool:
        if self.polls:
            return all(work is None or work.is_completed() for work in self.works)
        if self._waiting is None:
            self._waiting = _WaitingThread(self.works)
        return not self._waiting.is_alive()

    def free(self) -> None:
        """Forget the calls that start them, and with these the buffers."""
        self.posts = ()


class _WaitingThread(threading.Thread):
    """Waits for works beside the caller, and keeps their error."""

    def __init__(self, works: list[Any]) -> None:
        super().__init__(daemon=True)
        self.works = works
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            _wait(self.works)
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        """Join the thread, and raise the error of its works."""
        self.join()
        if self.error is not None:
            raise self.error


def _wait(works: list[Any]) -> None:
    for work in works:
        if work is not None:
            work.wait()


class StartedMessages:
    """Bound messages, started."""

    def __init__(self, messages: Messages) -> None:
        self.messages = messages
        for thunk in messages.start:
            thunk()

    def wait(self) -> None:
        for thunk in self.messages.wait:
            thunk()

    def test(self) -> bool:
        return self.messages.test()

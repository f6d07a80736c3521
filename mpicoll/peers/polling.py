"""Wait for messages of a library until the deadline: yield, then sleep."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import count
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar

from mpicoll.backend import Stage
from mpicoll.machine.background import background, is_done
from mpicoll.machine.waited import Looks
from mpicoll.peers.search import Missing, search
from mpicoll.tuning import FIRST_NAP, LAST_NAP, POLL_SECONDS, YIELDS

if TYPE_CHECKING:
    from mpicoll.peers.known import Peers

T = TypeVar("T")
_TRANSIT = 0.1
"""Seconds for which messages of a rank that has ended may be on their way."""
_TURNS = 4
"""The least turns of tests meanwhile: on a busy machine, all of the time may pass in one."""


def wait_polling(test: Callable[[], bool], missing: Missing, stage: Stage, peers: Peers) -> None:
    """Return when `test` says so.

    Args:
        missing: returns the ranks that this one still waits for, as far as they are known;
            `AllRanks` in a collective.

    Raises:
        RankLost: one of them has ended or left the operation, or the deadline has passed.
    """
    patience = Patience(missing, stage, peers)
    while not (_comes(test) if patience.waited.seconds < POLL_SECONDS else test()):
        if patience.waited.seconds >= POLL_SECONDS:
            sleep(FIRST_NAP)
        patience.look(test)
    patience.end()


class Patience:
    """Ends a wait that tests in vain, whoever makes the loop.

    Args:
        missing: as for `wait_polling`.
    """

    def __init__(self, missing: Missing, stage: Stage, peers: Peers) -> None:
        self.stage, self.peers = stage, peers
        self.search = search(peers, missing)
        self.waited, self.is_told = Looks(peers.size), False

    def look(self, test: Callable[[], bool]) -> None:
        """Look at the clock, and now and then at the ranks that are missing.

        Raises:
            RankLost: as `wait_polling` does.
        """
        waited, peers = self.waited, self.peers
        waited.look()
        if waited.is_due():
            told = self.search.have_told(self.stage.operation)
            if told and not still_comes(test):
                raise peers.lost(self.stage, told, "which will not come")
            ranks, self.is_told = self.search.next_ranks(), True
            waited.look()  # a rank may be asked for as long as a second, which is no suspension
            has_gone = self.search.ask(ranks, self.stage.operation)
            waited.look()
            if has_gone and not still_comes(test):
                raise peers.lost(self.stage, self.search.missing(), "which will not come")
        if waited.seconds > peers.deadline:
            reason = f"which did not come in {waited.seconds:.3g} s"
            raise peers.lost(self.stage, self.search.missing(), reason)

    def end(self) -> None:
        """Wait for nobody any more."""
        if self.is_told:
            self.peers.wait_for(None)


def still_comes(test: Callable[[], bool]) -> bool:
    """Whether a test holds although a rank that it waits for has ended.

    That rank may have sent all its messages before it ended. The library needs several tests to
    receive them.
    """
    end = monotonic() + _TRANSIT
    for turn in count(1):
        if _comes(test):
            return True
        if turn >= _TURNS and monotonic() >= end:
            break
    return False


def _comes(test: Callable[[], bool]) -> bool:
    """Whether a test holds after a few yields; to look at the clock takes as long as to yield."""
    for _ in range(YIELDS):
        if test():
            return True
        os.sched_yield()
    return False


def in_thread(
    call: Callable[[], T], missing: Missing, stage: Stage, peers: Peers,
    undo: Callable[[T], object] | None = None,
) -> T:  # fmt: skip
    """Return the result of a call that can only block, such as one that makes a group.

    A thread makes the call, and this one waits; that thread stays in the call for ever where a
    rank never comes.

    Args:
        missing: as for `wait_polling`.
        undo: takes a result that comes too late.

    Raises:
        RankLost: it has not returned within the deadline, or one of the ranks has ended.
    """
    future = background(call, f"mpicoll {stage}")
    try:
        wait_polling(partial(is_done, future, LAST_NAP), missing, stage, peers)
    except BaseException:
        if undo is not None:
            future.add_done_callback(lambda done: done.exception() or undo(done.result()))
        raise
    return future.result()

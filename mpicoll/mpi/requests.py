"""MPI requests: those of a plan, freed with it, and those under way.

Its counterpart is `torchcoll.requests`.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mpi4py import MPI

from mpicoll.backend import Poll, Stage, Thunk
from mpicoll.errors import RankLost
from mpicoll.mpi.exchange import unfinished
from mpicoll.peers.polling import Patience, in_thread, still_comes, wait_polling
from mpicoll.peers.search import AllRanks, Missing
from mpicoll.peers.watch import guarded
from mpicoll.tuning import YIELDS

if TYPE_CHECKING:
    from mpicoll.peers.known import Peers

T = TypeVar("T")
R = TypeVar("R", bound=MPI.Request)


class Resources:
    """Requests and operators of a plan: MPICH reports each one that is leaked."""

    def __init__(self) -> None:
        self.requests: list[MPI.Request] = []
        self.memory: list[object] = []
        self.ops: list[MPI.Op] = []
        self._finalizer = weakref.finalize(self, _free, self.requests, self.memory, self.ops)

    def add(self, request: R, memory: object = None) -> R:
        """Return a request, which is freed with the plan.

        Args:
            memory: what MPI reads and writes, where mpi4py's request does not keep it.
        """
        self.requests.append(request)
        self.memory.append(memory)
        return request

    def add_op(self, op: MPI.Op) -> MPI.Op:
        """Return an operator of a user's, which is freed with the plan."""
        self.ops.append(op)
        _calling.add(self)
        return op

    def free(self) -> None:
        """Free all of them."""
        self._finalizer()
        _calling.discard(self)

    def kept_by(self, run: Thunk) -> Thunk:
        """Return `run`, which keeps the operators as long as it exists, where there are any."""
        return run if not self.ops else lambda: (run(), self)


_calling: weakref.WeakSet[Resources] = weakref.WeakSet()
"""Those with operators of users, which MPI calls in any thread that calls it."""


def calls_users() -> bool:
    """Return whether MPI may call functions of users: there are plans that fold by these."""
    return len(_calling) > 0


_dropped: deque[tuple[Callable[[], bool], object]] = deque()
"""Tests of requests that nobody waits for, and all that these touch until they are complete."""


def _release_dropped() -> None:
    """Forget the dropped requests that are complete.

    A request is off the list while this thread tests it: two threads must not test the same one.
    """
    for _ in range(len(_dropped)):
        with suppress(IndexError):
            dropped, is_complete = _dropped.popleft(), False
            try:
                is_complete = _holds(dropped[0])
            finally:
                if not is_complete:
                    _dropped.append(dropped)


def _holds(test: Callable[[], bool]) -> bool:
    try:
        return bool(test())
    except Exception:  # of a peer that is gone
        return False


def _is_freed(request: MPI.Request) -> bool:
    """Free a request if it is complete; return whether it was."""
    if is_complete := bool(request.Get_status()):
        request.Free()
    return is_complete


def _free(requests: list[MPI.Request], memories: list[object], ops: list[MPI.Op]) -> None:
    if not MPI.Is_finalized():
        for request, memory in zip(requests, memories, strict=True):
            with suppress(MPI.Exception):  # of a peer that is gone
                if not request.Get_status():
                    # Not cancelled: MPICH 5.0.2 ends there by a segmentation fault at times.
                    _dropped.append((partial(_is_freed, request), memory))
                    continue
                if request != MPI.REQUEST_NULL:
                    request.Free()
        for op in ops:
            op.Free()
    requests.clear()
    ops.clear()


class Waits:
    """Waits for requests that end at the deadline, and name the rank that is missing.

    MPI's own wait knows no deadline. A loop of tests takes no longer, and less where another
    process needs the core.

    Args:
        stage: in which this rank waits.
        all_ranks: those of a collective; by default this rank waits for those whose `requests` are
            not complete.
    """

    def __init__(self, peers: Peers, stage: Stage, all_ranks: Missing | None = None) -> None:
        self.peers, self.stage, self.all_ranks = peers, stage, all_ranks
        self.requests: list[tuple[MPI.Request, int]] = []

    def begin(self, start: Thunk) -> Thunk:
        """Return a function that starts a request, which may take as long as a wait."""
        return partial(self.peers.inside, start)

    def poll(self, test: Callable[[], bool]) -> Poll:
        """Return a test of the rounds of plans."""
        return Poll(partial(self.peers.inside, test), partial(self.wait, test), may_test=True)

    def wait(self, test: Callable[[], bool]) -> None:
        """Return when a test holds."""
        inside = self.peers.inside
        try:
            if not inside.comes(test, YIELDS):
                wait_polling(partial(inside, test), self.missing, self.stage, self.peers)
        except MPI.Exception as error:
            raise self.failed(error) from error

    @property
    def missing(self) -> Missing:
        """A function that returns the ranks that are missing, as far as they are known."""
        return self.all_ranks or self._senders

    def _senders(self) -> list[int]:
        ranks = []
        for request, peer in self.requests:
            with suppress(MPI.Exception):
                if request and not self.peers.inside(request.Get_status):
                    ranks.append(peer)
        return list(dict.fromkeys(ranks))

    def look(self) -> None:
        """Raise RankLost where a rank that is missing will not come."""
        is_hopeless = self.peers.have_gone(self.missing(), self.stage.operation)
        if is_hopeless and not still_comes(lambda: not self.missing()):
            raise self.peers.lost(self.stage, self.missing(), "which will not come")

    def lost(self, reason: str) -> RankLost:
        """Return the error of a wait, given the reason as the end of a sentence."""
        return self.peers.lost(self.stage, self.missing(), reason)

    def translated(self, error: BaseException) -> BaseException:
        """Return the error to raise where a poll has raised one."""
        return self.failed(error) if isinstance(error, MPI.Exception) else error

    def failed(self, error: MPI.Exception) -> RankLost:
        """Return the error of a wait in which MPI itself has found one."""
        ranks = self.missing() or list(dict.fromkeys(peer for _, peer in self.requests))
        return self.peers.lost(self.stage, ranks, f"of which MPI says: {error}")


def completed(request: MPI.Request, peers: Peers, stage: Stage, *written: object) -> None:
    """Wait for a collective, whose missing ranks have to be asked for.

    Args:
        written: what MPI writes to until it is complete, perhaps long after this rank has given it
            up: mpi4py 4.1.2 keeps neither a bytearray nor the communicator that Idup makes.

    Raises:
        RankLost: some rank did not come within the deadline.
    """

    def waits() -> Waits:
        return Waits(peers, stage, AllRanks(peers, peers.is_behind))

    try:
        # Most are complete after a few yields, and to prepare for a longer wait takes as long.
        if not peers.inside.comes(request.Test, YIELDS):
            waits().wait(request.Test)
    except BaseException as error:
        unfinished.append((request, written))
        if isinstance(error, MPI.Exception):
            raise waits().failed(error) from error
        raise


def within(
    peers: Peers, title: str, call: Callable[[], T],
    missing: Callable[[], Sequence[int]] | None = None,
) -> T:  # fmt: skip
    """Return the result of a call of MPI's that only blocks, such as one that makes a group.

    Where MPI may be called by several threads, one of them calls it, and this one waits. Elsewhere
    this thread calls it, and the process ends at the deadline.

    Args:
        missing: returns the ranks that keep it from returning; by default any of the group.

    Raises:
        RankLost: it has not returned within the deadline.
    """
    if not serves_threads():
        return guarded(call, peers, title, abort)()
    return in_thread(call, missing or AllRanks(peers), Stage(title), peers)


def abort() -> None:
    """End this process, and with it the others; from any thread."""
    if serves_threads():
        MPI.COMM_WORLD.Abort(1)
    end()


def end() -> None:
    """End this process alone; the launcher ends the others, unless it lets them live."""
    os._exit(1)


class StartedRequest:
    """A request under way.

    Args:
        request: of MPI, or of this project.
        buffers: what must exist until it is complete, such as its buffer.
        epilogue: what runs after it.
        waits: how to wait for a request of MPI.
    """

    def __init__(
        self,
        request: Any,
        buffers: object,
        epilogue: Sequence[Thunk] = (),
        waits: Waits | None = None,
    ) -> None:
        self.request, self.buffers, self.epilogue = request, buffers, epilogue
        test: Callable[[], bool] = getattr(request, "Test", None) or request.test
        self.test_request = test if waits is None else partial(waits.peers.inside, test)
        self.wait_request: Thunk = request.wait if waits is None else partial(waits.wait, test)
        self.waits = waits
        self.patience: Patience | None = None
        self.is_ended = False
        if _dropped:
            _release_dropped()

    def __del__(self) -> None:
        # MPI goes on with a request that is dropped.
        if not (self.is_ended or MPI.Is_finalized()):
            is_persistent = isinstance(self.request, MPI.Prequest)
            test = self.request.Get_status if is_persistent else self.test_request
            _dropped.append((test, (self.request, self.buffers)))

    def wait(self) -> None:
        try:
            self.wait_request()
        except RankLost:
            unfinished.append(self)
            raise
        self._finish()

    def test(self) -> bool:
        try:
            is_complete = self.test_request()
            if not is_complete and self.waits is not None:
                waits = self.waits
                patience = self.patience or Patience(waits.missing, waits.stage, waits.peers)
                self.patience = patience
                patience.look(self.test_request)
        except (RankLost, MPI.Exception) as error:
            unfinished.append(self)
            if self.waits is None or isinstance(error, RankLost):
                raise
            raise self.waits.failed(error) from error
        if is_complete:
            self._finish()
        return is_complete

    def _finish(self) -> None:
        self.is_ended = True
        if self.patience is not None:
            self.patience.end()
        epilogue, self.epilogue = self.epilogue, ()
        for thunk in epilogue:
            thunk()


def of_message(
    request: MPI.Request, buffers: object, peers: Peers, title: str, peer: int,
    epilogue: Sequence[Thunk] = (),
) -> StartedRequest:  # fmt: skip
    """Return a message of the user's own that is under way."""
    waits = Waits(peers, Stage(title))
    waits.requests.append((request, peer))
    return StartedRequest(request, buffers, epilogue, waits)


def serves_threads() -> bool:
    """Whether threads may call MPI at the same time (MPI-4.1, 11.6.1)."""
    return MPI.Query_thread() == MPI.THREAD_MULTIPLE

"""All that threads of one process need to be ranks: messages, agreement, shared memory.

Its counterparts are `mpicoll.mpi.transport` and `torchcoll.transport`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from mpicoll.backend import (
    POINT_TO_POINT,
    STAGED,
    Array,
    Arrays,
    CompletedRequest,
    Gpu,
    Message,
    Messages,
    Native,
    NativeCall,
    Poll,
    Request,
    Stage,
    Thunk,
    Transport,
)
from mpicoll.errors import FREED, Deadlock, RankLost, Unavailable
from mpicoll.machine.waited import Waited
from mpicoll.memory.addresses import array_at
from mpicoll.memory.mailbox import Rounds
from mpicoll.memory.notes import described
from mpicoll.memory.segments import open_memory
from mpicoll.memory.waiting import HasDeadline, agreeing
from mpicoll.notation.contract import Collective
from mpicoll.peers.survivors import Decision, go_on
from mpicoll.text.encoding import decode_alike, encode_for
from mpicoll.threads import natives
from mpicoll.threads.world import Delivery, Group, ThreadWaits, copied, rank_lost


class ThreadTransport(HasDeadline):
    """`mpicoll.backend.Transport` over the threads of a group."""

    backend = "threads"
    library = "threads of one process"
    name = POINT_TO_POINT
    gpu_transport = STAGED
    matches_by_order = False
    window = None
    gpu_turn = 0
    closed = False
    compares = True

    def __init__(self, group: Group, rank: int, deadline: float | None = None) -> None:
        self.group, self.rank, self.size = group, rank, group.size
        self.attempts = itertools.count()
        self.arrays: Arrays = group.world.arrays
        self.nodes = group.nodes
        self.posted: dict[str, int] = {}
        self.rounds = Rounds(self.leave)
        self._deadline = group.world.deadline if deadline is None else deadline
        self.shared = None
        memory, self.unshared = open_memory(rank, self.nodes, self.arrays, self.exchange)
        if memory is not None:
            memory.wait_policy = ThreadWaits(group, rank, self._deadline)
            memory.leave = self.leave
            self.shared = memory

    def leave(self, operation: int, error: BaseException) -> None:
        self.group.leave(self.rank, operation, described(error))
        if self.shared is not None:
            self.shared.notes.leave(operation, error)

    def poison_on_error(self) -> AbstractContextManager[None]:
        if self.shared is None or self.shared.mailbox is None:
            return nullcontext()
        return self.shared.mailbox.poison_on_error()

    def driver(self, device: int) -> Gpu:
        raise Unavailable("threads of one process have arrays on the host only")

    def prepare_gpu(self, x: Array) -> None:
        """There are arrays on the host only."""

    # -- messages -------------------------------------------------------------------

    def messages(
        self, sends: Sequence[Message], receives: Sequence[Message], tag: int, stage: Stage
    ) -> Messages:
        """Bind one round: receives are asked for first, then everything is sent."""
        posted: list[_Receive] = []
        messages = [*receives, *sends]
        memory = [self._as_bytes(message.data) for message in messages]

        def take(place: int, address: int) -> None:
            *_, nbytes, owner = messages[place]
            if nbytes:
                memory[place] = array_at(self.arrays, address, "uint8", nbytes, owner)

        def start() -> None:
            posted[:] = [
                self._ask(data, message.peer, ("plan", tag), stage)
                for data, message in zip(memory, receives, strict=False)
            ]
            for data, message in zip(memory[len(receives) :], sends, strict=True):
                self.group.send(data, self.rank, message.peer, ("plan", tag))

        def wait() -> None:
            for receive in posted:
                receive.wait()

        def test() -> bool:
            return all(receive.test() for receive in posted)

        def lost(reason: str) -> RankLost | None:
            peer = next((receive.peer for receive in posted if not receive.delivery.is_done), None)
            return None if peer is None else rank_lost(stage, self.rank, peer, reason)

        takes = tuple(partial(take, place) for place in range(len(messages)))
        return Messages((start,), (Poll(test, wait),), posted.clear, lost, takes=takes)

    def _as_bytes(self, x: Array | None) -> Array | None:
        if x is None:
            return None
        start, stop = self.arrays.span(x)
        return array_at(self.arrays, start, "uint8", stop - start, x)

    def _ask(self, x: Array | None, peer: int, tag: Hashable, stage: Stage) -> _Receive:
        return _Receive(self, self.group.receive(x, self.rank, peer, tag), peer, stage)

    def isend(self, x: Array, peer: int, tag: int) -> Request:
        self.group.send(x, self.rank, peer, ("user", tag))
        return CompletedRequest()

    def irecv(self, x: Array, peer: int, tag: int) -> Request:
        return self._ask(x, peer, ("user", tag), Stage("receiving a message"))

    def sendrecv(self, send: Message, receive: Message, tag: int) -> Sequence[Request]:
        receiving = self.irecv(receive.data, receive.peer, tag)
        return receiving, self.isend(send.data, send.peer, tag)

    # -- natives --------------------------------------------------------------------

    def other_natives(self, collective: str) -> Mapping[str, Callable[[NativeCall], Native]]:
        return {}

    def lacks(self, collective: Collective, *, uneven: bool = False) -> str | None:
        """Every collective is there in every form."""
        return None

    def native(self, call: NativeCall, *, persistent: bool = False) -> Native:
        """Bind the collective as its contract reads, folded by each rank for itself."""
        if persistent:
            raise Unavailable("threads have no persistent collectives: use 'native'")

        kind = call._replace(x=None, out=None)

        def start_on(x: Array | None, out: Array | None) -> _Gathered:
            bound = kind._replace(x=x, out=out)
            gathered = self._post("native", copied(self.arrays, x), kind.collective.name)
            gathered.finish = lambda inputs: natives.fold(bound, inputs, self.arrays)
            return gathered

        return Native(
            lambda: start_on(call.x, call.out).wait(), lambda: start_on(call.x, call.out),
            lambda: None, run_on=lambda x, out: start_on(x, out).wait(),
        )  # fmt: skip

    # -- control --------------------------------------------------------------------

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        if self.shared is not None and self.shared.mailbox is not None:
            return self.shared.mailbox.exchange(item, kind)
        if self.closed:
            raise RuntimeError(FREED)
        with self.rounds.alone():
            return decode_alike(self._gather(encode_for(kind, item)), kind)

    def agree(self, digest: int) -> bool:
        with self.rounds.alone():
            return all(peer_digest == digest for peer_digest in self._gather(digest))

    def _gather(self, item: Any) -> list[Any]:
        """Return every rank's object itself, in rank order."""
        gathered = self._post("exchange", item, agreeing())
        gathered.wait()
        return gathered.items

    def _post(self, kind: str, item: Any, label: str) -> _Gathered:
        number = self.posted[kind] = self.posted.get(kind, 0) + 1
        return _Gathered(self, self.group.post((kind, number), self.rank, item), label)

    def split(self, color: int | None, key: int) -> ThreadTransport | None:
        choices = self.exchange((color, key), tuple[int | None, int])
        number = self.posted["split"] = self.posted.get("split", 0) + 1
        if color is None:
            return None
        ranks = [rank for rank in range(self.size) if choices[rank][0] == color]
        ranks.sort(key=lambda rank: choices[rank][1])
        part = self.group.part((number, color), ranks)
        return ThreadTransport(part, ranks.index(self.rank), self.deadline)

    def survive(self, make: Callable[[Transport], Any]) -> Any:
        """Return the result of `make` on the ranks that are left; collective among them."""

        def make_group(decision: Decision, attempt: int) -> Any:
            part = self.group.part(("survivors", attempt), decision.ranks)
            return make(ThreadTransport(part, decision.ranks.index(self.rank), self.deadline))

        return go_on(_Statements(self), str, make_group, self.attempts)

    def close(self) -> None:
        self.closed = True
        if self.shared is not None:
            self.shared.close()
            self.shared = None


class _Statements:
    """`peers.survivors.OtherRanks`: the statements of ranks while they agree who is left."""

    def __init__(self, transport: ThreadTransport) -> None:
        self.group, self.rank, self.size = transport.group, transport.rank, transport.size
        self.deadline = transport.deadline

    def post(self, operation: int, text: str) -> None:
        self.group.statements[self.rank, operation] = text

    def hear(self, ranks: Sequence[int], operation: int) -> tuple[set[int], dict[int, str]]:
        out = {rank for rank in ranks if self.group.has_ended(rank)}
        return out, {rank: self.group.statements.get((rank, operation), "") for rank in ranks}

    def lost(self, stage: Stage, missing: Sequence[int], reason: str) -> RankLost:
        return rank_lost(stage, self.rank, missing[0], reason)


class _Receive:
    """A message that this rank waits for."""

    def __init__(
        self, transport: ThreadTransport, delivery: Delivery, peer: int, stage: Stage
    ) -> None:
        self.transport, self.delivery, self.peer = transport, delivery, peer
        self.stage, self.tested = stage, Waited()

    def _missing(self) -> int | None:
        return None if self.delivery.is_done else self.peer

    def wait(self) -> None:
        if self._missing() == self.transport.rank:
            raise Deadlock("this rank waits for a message from itself that it has not sent")
        _wait(self.transport, self._missing, self.stage)
        if self.delivery.error is not None:
            raise self.delivery.error

    def test(self) -> bool:
        return _is_done(self.transport, self._missing, self.wait, self.stage, self.tested)


class _Gathered:
    """Items that all ranks give to each other; complete when the last one has."""

    def __init__(self, transport: ThreadTransport, board: dict[int, Any], label: str) -> None:
        self.transport, self.board, self.stage = transport, board, Stage(label)
        self.tested = Waited()
        self.finish: Callable[[list[Any]], object] | None = None

    @property
    def items(self) -> list[Any]:
        """Return every rank's item, in rank order."""
        return [self.board[rank] for rank in range(self.transport.size)]

    def _missing(self) -> int | None:
        return next((rank for rank in range(self.transport.size) if rank not in self.board), None)

    def wait(self) -> None:
        _wait(self.transport, self._missing, self.stage)
        finish, self.finish = self.finish, None
        if finish is not None:
            finish(self.items)

    def test(self) -> bool:
        return _is_done(self.transport, self._missing, self.wait, self.stage, self.tested)


def _wait(transport: ThreadTransport, missing: Callable[[], int | None], stage: Stage) -> None:
    transport.group.wait(transport.rank, missing, stage, transport.deadline)


def _is_done(
    transport: ThreadTransport, missing: Callable[[], int | None], wait: Thunk, stage: Stage,
    tested: Waited,
) -> bool:  # fmt: skip
    """Complete an operation if no rank is missing, or fail if the missing rank has ended.

    Args:
        tested: for how long there have been tests; they fail at the deadline, too.
    """
    peer = missing()
    if peer is None or transport.group.lost(peer, stage.operation):
        wait()
        return True
    if tested.look() > transport.deadline:
        transport.group.wait(transport.rank, missing, stage, transport.deadline, tested)
    return False

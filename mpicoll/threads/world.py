"""The state that the ranks of one run share: ended ranks, messages, and conditions to wait on."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from mpicoll.backend import Array, Arrays, Stage, WaitContext, Words
from mpicoll.errors import ArgumentError, RankLost
from mpicoll.machine.waited import Waited

Queued = TypeVar("Queued")
_LOOK = 0.5


class World:
    """All ranks of one run.

    Attributes:
        deadline: seconds after which a rank that waits gives up.
        ended: how each rank ended that has.
        changed: for each rank, what wakes it up when something was sent to it.
    """

    def __init__(self, size: int, arrays: Arrays, deadline: float) -> None:
        self.size, self.arrays, self.deadline = size, arrays, deadline
        self.ended: dict[int, str] = {}
        self.changed = [threading.Condition() for _ in range(size)]

    def end(self, rank: int, how: str) -> None:
        """Note how a rank ended, and wake up those that wait for it."""
        self.ended[rank] = how
        for member in range(self.size):
            self.wake(member)

    def wake(self, rank: int) -> None:
        """Wake up a rank, which checks again whether it has to wait."""
        with self.changed[rank]:
            self.changed[rank].notify_all()


class Group:
    """The state that the ranks of one group share.

    Attributes:
        members: the ranks of the group as ranks of the world; `come`: how many have joined it.
        nodes: its ranks on each node.
        parts: groups of some of its ranks, until all these have come for theirs.
        departures: why a rank has left an operation.
        statements: what a rank states of one while the ranks agree who is left.
    """

    def __init__(self, world: World, members: Sequence[int], nodes: Sequence[int]) -> None:
        self.world, self.members = world, tuple(members)
        self.size, self.come = len(members), 0
        on: dict[int, list[int]] = {}
        for rank, member in enumerate(self.members):
            on.setdefault(nodes[member], []).append(rank)
        self.nodes = tuple(map(tuple, on.values()))
        self.node_of_member = tuple(nodes)
        self.inboxes = [Inbox(world.arrays) for _ in members]
        self.boards: dict[Hashable, dict[int, Any]] = {}
        self.parts: dict[Hashable, Group] = {}
        self.departures: dict[tuple[int, int], str] = {}
        self.statements: dict[tuple[int, int], str] = {}
        self.lock = threading.Lock()

    def part(self, key: Hashable, ranks: Sequence[int]) -> Group:
        """Return the group of some ranks of this one, the same to all that give the same key."""
        with self.lock:
            if key not in self.parts:
                members = [self.members[rank] for rank in ranks]
                self.parts[key] = Group(self.world, members, self.node_of_member)
            part = self.parts[key]
            part.come += 1
            if part.come == part.size:
                del self.parts[key]
            return part

    def send(self, x: Array | None, rank: int, peer: int, tag: Hashable) -> None:
        """Give a message to its receiver, or keep a copy until it is asked for."""
        changed = self.world.changed[self.members[peer]]
        with changed:
            self.inboxes[peer].put(x, (rank, tag))
            changed.notify_all()

    def receive(self, x: Array | None, rank: int, peer: int, tag: Hashable) -> Delivery:
        """Ask for the next message from `peer`."""
        with self.world.changed[self.members[rank]]:
            return self.inboxes[rank].ask(x, (peer, tag))

    def post(self, key: Hashable, rank: int, item: Any) -> dict[int, Any]:
        """Give an item to all ranks; return where everybody's are, once they are there."""
        with self.lock:
            board = self.boards.setdefault(key, {})
            board[rank] = item
            if len(board) == self.size:
                del self.boards[key]
        if len(board) == self.size:
            for member in self.members:
                self.world.wake(member)
        return board

    def wait(
        self, rank: int, missing: Callable[[], int | None], stage: Stage, deadline: float,
        tested: Waited | None = None,
    ) -> None:  # fmt: skip
        """Return when no rank is missing.

        Args:
            tested: for how long this rank has waited already.

        Raises:
            RankLost: the missing rank has ended or left the operation, or the deadline has passed.
        """
        changed, waited = self.world.changed[self.members[rank]], tested or Waited()
        with changed:
            while (peer := missing()) is not None:
                seconds_left = deadline - waited.look()
                if (why := self.lost(peer, stage.operation)) and missing() == peer:
                    raise rank_lost(stage, rank, peer, f"which {why}")
                if seconds_left <= 0:
                    raise rank_lost(stage, rank, peer, f"which did not come in {deadline:.3g} s")
                changed.wait(min(seconds_left, _LOOK))

    def leave(self, rank: int, operation: int, why: str) -> None:
        """Note why a rank has left an operation, and wake up those that wait for it."""
        self.departures[rank, operation] = why
        for member in self.members:
            self.world.wake(member)

    def has_ended(self, peer: int) -> bool:
        """Whether a rank has ended."""
        return self.members[peer] in self.world.ended

    def lost(self, peer: int, operation: int = 0) -> str | None:
        """Return how a rank ended or left an operation, None where it has done neither."""
        ended = self.world.ended.get(self.members[peer])
        departure = self.departures.get((peer, operation))
        return ended or (f"has left it: {departure}" if departure else None)


class Delivery:
    """A message that was asked for.

    Attributes:
        error: why it cannot be received.
    """

    def __init__(self, x: Array | None) -> None:
        self.x, self.is_done = x, False
        self.error: ArgumentError | None = None

    def land(self, arrays: Arrays, data: Array | None) -> None:
        """Copy the message into the receiver's array."""
        self.error = _unfit(arrays, data, self.x)
        if self.error is None and data is not None:
            arrays.copier(self.x[: len(data)], data)()  # type: ignore[index]
        self.is_done = True


class Inbox:
    """The messages to one rank: from each source under each tag, in the order in which they came.

    Those that own it hold the lock of its rank.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.sent: dict[Hashable, deque[Array | None]] = defaultdict(deque)
        self.deliveries: dict[Hashable, deque[Delivery]] = defaultdict(deque)

    def put(self, data: Array | None, key: Hashable) -> None:
        """Deliver a message, or keep a copy."""
        if key in self.deliveries:
            _next(self.deliveries, key).land(self.arrays, data)
        else:
            self.sent[key].append(copied(self.arrays, data))

    def ask(self, x: Array | None, key: Hashable) -> Delivery:
        """Return the delivery of the next message into `x`."""
        delivery = Delivery(x)
        if key in self.sent:
            delivery.land(self.arrays, _next(self.sent, key))
        else:
            self.deliveries[key].append(delivery)
        return delivery


def _next(queues: dict[Hashable, deque[Queued]], key: Hashable) -> Queued:
    """Take the first of a queue, and the queue away with the last: tags are of one plan each."""
    item = queues[key].popleft()
    if not queues[key]:
        del queues[key]
    return item


def _unfit(arrays: Arrays, data: Array | None, x: Array | None) -> ArgumentError | None:
    """Return why a message cannot be received into `x`, None where it can."""
    if data is None:
        return None if x is None else ArgumentError("an empty signal was sent, not an array")
    if x is None:
        return ArgumentError("an array was sent, not an empty signal")
    if arrays.dtype(data) != arrays.dtype(x) or len(data) > len(x):
        return ArgumentError(
            f"{len(data)} elements of {arrays.dtype(data)} were sent: "
            f"{len(x)} of {arrays.dtype(x)} cannot hold them"
        )
    return None


def copied(arrays: Arrays, x: Array | None) -> Array | None:
    """Return a flat copy of an array."""
    if x is None:
        return None
    flat = arrays.flat(x)
    copy = arrays.empty((len(flat),), arrays.dtype(x), x)
    arrays.copier(copy, flat)()
    return copy


class ThreadWaits:
    """How a rank waits for a word of shared memory: it leaves the interpreter to the others.

    Attributes:
        oversubscribed: True, as one thread runs Python at a time.
    """

    def __init__(self, group: Group, rank: int, deadline: float) -> None:
        self.group, self.rank = group, rank
        self.oversubscribed, self.deadline = True, deadline
        self.lost: Callable[[WaitContext, str], RankLost] = self._lost
        self.tell: Callable[[int | None], None] = lambda peer: None
        self.has_exited: Callable[[int], bool] = lambda rank: False

    def test(self, words: Words, index: int, minimum: int, context: WaitContext) -> bool:
        if words[index] >= minimum:
            return True
        ended = self.group.lost(context.peer)
        why = f"which {ended}" if ended else context.abort_reason()
        is_there: bool = words[index] >= minimum  # it may have been written before that
        if why and not is_there:
            raise self.lost(context, why)
        return is_there

    def _lost(self, context: WaitContext, why: str) -> RankLost:
        return rank_lost(context.stage, self.rank, context.peer, why)


def rank_lost(stage: Stage, rank: int, peer: int, reason: str) -> RankLost:
    """Return the error of a rank that waits for another, given the reason why that one is lost."""
    return RankLost(f"{stage}: rank {rank} waits for rank {peer}, {reason}", rank=peer)

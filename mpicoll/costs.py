"""What a schedule takes on a network: an event-driven price under Hockney's model.

A message of n bytes takes ``alpha + n beta`` (Hockney 1994) and folding it ``n gamma``; its
sender and receiver must both have come to the round. Messages between nodes share the links of
their nodes, one in each direction, and wait for them in turn; messages within a node have an
alpha and beta of their own. All times are in seconds, and sizes in bytes.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from mpicoll.algorithms import Algorithm
from mpicoll.backend import Nodes
from mpicoll.contract import reduce_op
from mpicoll.errors import ArgumentError
from mpicoll.request import Request
from mpicoll.schedule import Block, Fold, Receive, Round, Send, Temp


class Link(NamedTuple):
    """Seconds of a message: `alpha` each, and `beta` for every byte."""

    alpha: float
    beta: float


@dataclass(frozen=True)
class Network:
    """What messages and folds take.

    Attributes:
        between: messages of ranks of different nodes.
        within: messages of ranks of one node; like `between` if None.
        gamma: seconds to fold a byte.
    """

    between: Link
    within: Link | None = None
    gamma: float = 0.0

    @classmethod
    def fitted(cls, records: Iterable[Mapping[str, Any]], backend: str, gamma: float = 0.0) -> Self:
        """Return the network that `mpicoll.p2p` measured, from its records of kind ``fit``.

        Raises:
            ArgumentError: no messages between ranks were measured.
        """
        found: dict[bool, dict[str, Link]] = {True: {}, False: {}}
        for each in records:
            if each.get("kind") == "fit" and each["backend"] == backend:
                link = Link(each["alpha_us"] / 1e6, each["beta_ns_per_byte"] / 1e9)
                found[each["link"] == "network"][each["transport"]] = link
        # What auto and plain schedules take comes first.
        ways = ("symmetric", "point-to-point", "cma")
        between, within = (
            next((found[far][way] for way in ways if way in found[far]), None)
            for far in (True, False)
        )
        if between is None and within is None:
            raise ArgumentError(
                f"no fits of {backend} in these records: python -m mpicoll.p2p makes them"
            )
        return cls(between or within, within, gamma)  # type: ignore[arg-type]


def price(
    algorithm: Algorithm, size: int, nbytes: int, network: Network, *, root: int = 0,
    nodes: Nodes | None = None,
) -> float:  # fmt: skip
    """Return the seconds from a common start until the last rank is done.

    Args:
        nbytes: of a vector, or of all rows of a row-wise collective.
        nodes: the ranks of each node; each rank is a node of its own by default.

    Raises:
        Unsupported: the algorithm cannot serve this number of ranks.
    """
    placed = nodes or tuple((rank,) for rank in range(size))
    schedules = [algorithm.rounds(rank, size, root, placed) for rank in range(size)]
    sizes = _sizes(algorithm, size, nbytes, root)
    return _Run(schedules, sizes, network, placed).finish()


def _sizes(algorithm: Algorithm, size: int, nbytes: int, root: int) -> Mapping[Block, int]:
    """Return the bytes of every block."""
    what = algorithm.collective
    rows = 1 if what.unit == "vector" else size
    request = Request(
        what, str(algorithm), reduce_op("sum"), root, None, None, None, (nbytes // rows,), "uint8",
        0, size,
    )  # fmt: skip
    return request.sizes(algorithm.blocks(size))


@dataclass
class _Rank:
    """Where a rank is: its round, when that began, and the messages it still waits for."""

    rounds: Sequence[Round]
    next: int = 0
    began: float = 0.0
    open: int = 0
    ends: float = 0.0
    folds: float = 0.0


@dataclass
class _Lane:
    """The messages of one rank to another: both sides match in order.

    Attributes:
        sent: when each was posted, and its bytes.
        awaited: when each receive was posted.
    """

    sent: deque[tuple[float, int]] = field(default_factory=deque)
    awaited: deque[float] = field(default_factory=deque)


class _Run:
    """All ranks at once; messages start in the order in which both their sides are ready."""

    def __init__(
        self, schedules: Sequence[Sequence[Round]], sizes: Mapping[Block, int], network: Network,
        nodes: Nodes,
    ) -> None:  # fmt: skip
        self.ranks = [_Rank(each) for each in schedules]
        self.sizes, self.network = sizes, network
        self.node = {rank: index for index, each in enumerate(nodes) for rank in each}
        self.lanes: dict[tuple[int, int], _Lane] = defaultdict(_Lane)
        self.ready: list[tuple[float, int, int, int, int]] = []
        self.up: dict[int, float] = defaultdict(float)
        self.down: dict[int, float] = defaultdict(float)
        self.count = 0

    def finish(self) -> float:
        """Run to the end and return when that is."""
        for rank in range(len(self.ranks)):
            self._enter(rank)
        while self.ready:
            at, _, source, target, nbytes = heapq.heappop(self.ready)
            self._carry(at, source, target, nbytes)
        return max(each.began for each in self.ranks)

    def _bytes(self, blocks: Sequence[Block]) -> int:
        return sum(self._size(block) for block in blocks)

    def _size(self, block: Block) -> int:
        return self.sizes[block.block if isinstance(block, Temp) else block]

    def _enter(self, rank: int) -> None:
        """Post the messages of a rank's next round; rounds without any pass at once."""
        me = self.ranks[rank]
        while me.next < len(me.rounds):
            ops = me.rounds[me.next]
            me.next += 1
            me.ends, me.folds = me.began, self._local(ops)
            messages = [op for op in ops if isinstance(op, Send | Receive)]
            me.open = len(messages)
            for op in messages:
                self._post(rank, op, me.began)
            if me.open:
                return
            me.began += me.folds

    def _local(self, ops: Round) -> float:
        """Return what the folds of a round take."""
        folded = sum(
            self._bytes(op.blocks if isinstance(op, Receive) else (op.source,))
            for op in ops
            if isinstance(op, Fold) or (isinstance(op, Receive) and op.side is not None)
        )
        return folded * self.network.gamma

    def _post(self, rank: int, op: Send | Receive, at: float) -> None:
        if isinstance(op, Send):
            key = rank, op.peer
            self.lanes[key].sent.append((at, self._bytes(op.blocks)))
        else:
            key = op.peer, rank
            self.lanes[key].awaited.append(at)
        lane = self.lanes[key]
        if lane.sent and lane.awaited:
            (sent, nbytes), awaited = lane.sent.popleft(), lane.awaited.popleft()
            self.count += 1
            heapq.heappush(self.ready, (max(sent, awaited), self.count, *key, nbytes))

    def _carry(self, at: float, source: int, target: int, nbytes: int) -> None:
        """Carry a message over the links of its nodes, behind those that came before."""
        here, there = self.node[source], self.node[target]
        if here == there:
            link = self.network.within or self.network.between
            end = at + link.alpha + nbytes * link.beta
        else:
            link = self.network.between
            busy = nbytes * link.beta
            start = max(at, self.up[here], self.down[there])
            self.up[here] = self.down[there] = start + busy
            end = start + link.alpha + busy
        for rank in (source, target):
            self._land(rank, end)

    def _land(self, rank: int, at: float) -> None:
        me = self.ranks[rank]
        me.open -= 1
        me.ends = max(me.ends, at)
        if not me.open:
            me.began = me.ends + me.folds
            self._enter(rank)

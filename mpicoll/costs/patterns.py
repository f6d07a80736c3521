"""Communication patterns: schedules as arrays, small enough for thousands of ranks.

In many schedules all ranks do the same, each with its own neighbours: rank r's is rank 0's with
every peer moved on by r (ring, Bruck, circulant), or with its number XOR r (recursive doubling),
or ranks repeat with a period (two lanes of each node). Then the rounds of one rank, or of one
period of ranks, stand for all. Otherwise every rank has its own.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from mpicoll.algorithms.registry import Algorithm
from mpicoll.backend import Nodes
from mpicoll.errors import ScheduleError, Unsupported
from mpicoll.notation.schedule import Fold, Op, Receive, Round, Send

Ints = np.ndarray
Flags = np.ndarray
_MOST_BLOCKS = 50_000_000
_SAMPLE = 5
_ALL = 64
"""Up to so many ranks the symmetry of all is checked, and of a sample beyond."""
_COMPARED = 20_000
"""Rounds of a rank that are compared with those expected of it."""
_UNTIMED = 64
"""Rounds that are generated between two looks at the clock."""
_PER_SEGMENT = 5e-6
"""Seconds to generate one: many schedules are at once complete, with no look at the clock."""


@dataclass
class Listing:
    """The messages of one rank in each round, in listed order, and its folds.

    Attributes:
        first: number of messages before each round.
        folded: blocks folded in each round; rounds without messages count to the one before.
        head: blocks folded before the first message.
        peers, blocks, sends: of each message; whether it is sent, else received.
    """

    first: array[int] = field(default_factory=lambda: array("q", [0]))
    folded: array[int] = field(default_factory=lambda: array("q"))
    head: int = 0
    peers: array[int] = field(default_factory=lambda: array("q"))
    blocks: array[int] = field(default_factory=lambda: array("q"))
    sends: array[int] = field(default_factory=lambda: array("b"))

    def read(self, step: Op | Round) -> int:
        """Add a round and return how many blocks it names."""
        folded, start = 0, len(self.blocks)
        for op in step if isinstance(step, tuple) else (step,):
            if isinstance(op, Send | Receive):
                self.peers.append(op.peer)
                self.blocks.append(len(op.blocks))
                self.sends.append(isinstance(op, Send))
                folded += len(op.blocks) if isinstance(op, Receive) and op.side else 0
            elif isinstance(op, Fold):
                folded += 1
        if len(self.blocks) > start:
            self.first.append(len(self.blocks))
            self.folded.append(folded)
        elif self.folded:
            self.folded[-1] += folded
        else:
            self.head += folded
        return sum(self.blocks[start:]) + folded


@dataclass(frozen=True)
class Pattern:
    """The messages and folds of all ranks; rounds and messages are numbered through all ranks.

    Attributes:
        size: number of ranks.
        vector_blocks: blocks of the whole vector, or of all rows.
        period: rank r does what rank r % period does, with peers moved on by r - r % period.
        xor: peers are numbers to XOR with, not distances.
        base: the first round of each rank of a period, and the end.
        head: blocks that each of them folds before its first message.
        first: the first message of each round, and the end.
        folded: blocks folded at the end of each round.
        peers: of each message, the distance to the peer; blocks, sends: as in `Listing`.
        partner: of each message, the same one at the peer.
        round: of each message.
    """

    size: int
    vector_blocks: int
    period: int
    xor: bool
    base: Ints
    head: Ints
    first: Ints
    folded: Ints
    peers: Ints
    blocks: Ints
    sends: Flags
    partner: Ints
    round: Ints

    @property
    def messages(self) -> int:
        """How many messages all ranks send."""
        return int(self.sends.sum()) * (self.size // self.period)

    @property
    def rounds(self) -> int:
        """The most rounds that a rank has messages in."""
        return int(np.diff(self.base).max())

    @property
    def sent(self) -> float:
        """The most that a rank sends, in vectors."""
        return self._largest_total(np.where(self.sends, self.blocks, 0)) / self.vector_blocks

    @property
    def degree(self) -> int:
        """The most messages that a rank sends, or that one receives; at least 1."""
        return max(1, self._largest_total(self.sends), self._largest_total(~self.sends))

    def _largest_total(self, blocks: Ints) -> int:
        total = np.concatenate([[0], np.cumsum(blocks)])
        return int(np.diff(total[self.first[self.base]]).max())

    def peer(self, ranks: Ints, messages: Ints) -> Ints:
        """Return the ranks at the other end."""
        distance = self.peers[messages]
        peer: Ints = ranks ^ distance if self.xor else (ranks + distance) % self.size
        return peer


def pattern_of(
    algorithm: Algorithm, size: int, root: int = 0, nodes: Nodes | None = None,
    seconds: float = float("inf"),
) -> Pattern:  # fmt: skip
    """Return the schedules of all ranks as arrays.

    Args:
        seconds: of the processor, how many it may take.

    Raises:
        Unsupported: the algorithm cannot serve this size, or it takes longer, by estimate or by
            the clock.
        ScheduleError: messages do not match.

    >>> from mpicoll.algorithms import find
    >>> [pattern_of(find("allreduce", name), 4).period for name in ("ring", "reduce+broadcast")]
    [1, 4]
    """
    return _Builder(algorithm, size, root, nodes, seconds).run()


class _Builder:
    def __init__(
        self, algorithm: Algorithm, size: int, root: int, nodes: Nodes | None, seconds: float
    ) -> None:
        self.algorithm, self.size, self.root, self.nodes = algorithm, size, root, nodes
        self.seconds, self.began = seconds, time.process_time()
        self.vector_blocks = max(1, algorithm.blocks(size))
        self.listings: dict[int, Listing] = {}

    def run(self) -> Pattern:
        estimate = self.vector_blocks * _PER_SEGMENT
        if self.vector_blocks > self.size and estimate > self.seconds:
            raise Unsupported(
                f"to generate a schedule of {self.vector_blocks:,} segments would take about "
                f"{estimate:.0f} s"
            )
        if self.size & (self.size - 1) == 0 and self._holds(1, xor=True):
            return self._pattern(1, xor=True)
        for period in self._periods():
            if self._holds(period):
                return self._pattern(period)
        seconds = (time.process_time() - self.began) / max(1, len(self.listings))
        if seconds * self.size > self.seconds:
            raise Unsupported(
                f"its ranks differ, and to generate the schedules of all {self.size} would take "
                f"about {seconds * self.size:.0f} s"
            )
        return self._pattern(self.size)

    def _periods(self) -> Iterator[int]:
        """Yield the periods that may be: of all ranks, pairs, and nodes of one width."""
        widths = {len(node) for node in self.nodes or ()}
        for period in sorted({1, 2} | (widths if len(widths) == 1 else set())):
            if self.size % period == 0 and period < self.size:
                yield period

    def _holds(self, period: int, *, xor: bool = False) -> bool:
        """Whether the first ranks stand for all others."""
        return all(self._alike(rank, rank % period, xor) for rank in self._checked(period))

    def _checked(self, period: int) -> Iterable[int]:
        if self.size <= _ALL:
            return range(period, self.size)
        some = random.Random(self.size).sample(range(self.size), _SAMPLE)
        return dict.fromkeys([period, self.size - 1, *some])

    def _alike(self, rank: int, like: int, xor: bool) -> bool:
        """Whether a rank does the same as another, with its peers shifted."""
        listing, reference = self._listing(rank, short=True), self._listing(like)
        count, rounds = len(listing.blocks), len(listing.folded)
        whole = rounds < _COMPARED - 1
        if whole and rounds != len(reference.folded):
            return False
        compared = rounds if whole else rounds - 1
        return (
            listing.head == reference.head
            and listing.first == reference.first[: rounds + 1]
            and listing.folded[:compared] == reference.folded[:compared]
            and listing.blocks == reference.blocks[:count]
            and listing.sends == reference.sends[:count]
            and np.array_equal(
                self._distances(listing, rank, xor), self._distances(reference, like, xor)[:count]
            )
        )

    def _distances(self, listing: Listing, rank: int, xor: bool) -> Ints:
        peers = np.array(listing.peers, np.int64)
        return peers ^ rank if xor else (peers - rank) % self.size

    def _listing(self, rank: int, *, short: bool = False) -> Listing:
        """Return the messages of a rank; only the first ones where it has many."""
        if rank in self.listings:
            return self.listings[rank]
        listing, blocks = Listing(), 0
        steps = iter(self.algorithm.schedule(rank, self.size, self.root, self.nodes))
        for number, step in enumerate(islice(steps, _COMPARED) if short else steps, 1):
            blocks += listing.read(step)
            if blocks > _MOST_BLOCKS:
                raise Unsupported(f"one rank names more than {_MOST_BLOCKS:,} blocks")
            if number % _UNTIMED == 0:
                self._check_time()
        self._check_time()
        if not short or len(listing.folded) < _COMPARED - 1:
            self.listings[rank] = listing
        return listing

    def _check_time(self) -> None:
        if time.process_time() - self.began > self.seconds:
            raise Unsupported(f"to generate its schedules takes more than {self.seconds:g} s")

    def _pattern(self, period: int, *, xor: bool = False) -> Pattern:
        """Join the rounds of the ranks of one period."""
        parts = [self._listing(rank) for rank in range(period)]
        peers = [self._distances(listing, rank, xor) for rank, listing in enumerate(parts)]
        first = np.concatenate([[0], *(np.diff(np.array(listing.first)) for listing in parts)])
        owner = np.repeat(np.arange(period), [len(listing.blocks) for listing in parts])
        sends = _concatenate(listing.sends for listing in parts).astype(bool)
        distance, blocks = np.concatenate(peers), _concatenate(listing.blocks for listing in parts)
        return Pattern(
            self.size, self.vector_blocks, period, xor,
            base=np.cumsum([0, *(len(listing.folded) for listing in parts)]),
            head=np.array([listing.head for listing in parts]),
            first=np.cumsum(first),
            folded=_concatenate(listing.folded for listing in parts),
            peers=distance, blocks=blocks, sends=sends,
            partner=_partners(owner, distance, sends, blocks, period, 0 if xor else self.size),
            round=np.repeat(np.arange(len(first) - 1), first[1:]),
        )  # fmt: skip


def _concatenate(parts: Iterable[array[int]]) -> Ints:
    return np.concatenate([np.array(part, np.int64) for part in parts])


def _partners(
    owner: Ints, distance: Ints, sends: Flags, blocks: Ints, period: int, size: int
) -> Ints:
    """Match the k-th send from one rank to another with its k-th receive.

    Args:
        size: the number of ranks; 0 where distances are XORs.
    """
    outgoing, incoming = np.flatnonzero(sends), np.flatnonzero(~sends)
    source = (owner[incoming] + distance[incoming]) % period if size else owner[incoming]
    onwards = -distance[incoming] % size if size else distance[incoming]
    if len(outgoing) == len(incoming):
        # Stable: those between the same two ranks stay in their order.
        order, source_order = (
            np.lexsort((distance[outgoing], owner[outgoing])),
            np.lexsort((onwards, source)),
        )
        outgoing, incoming, source, onwards = (
            outgoing[order],
            incoming[source_order],
            source[source_order],
            onwards[source_order],
        )
        fits = (owner[outgoing] == source) & (distance[outgoing] == onwards)
        if bool((fits & (blocks[outgoing] == blocks[incoming])).all()):
            partner = np.empty(len(sends), np.int64)
            partner[outgoing], partner[incoming] = incoming, outgoing
            return partner
    raise ScheduleError("some message is sent and not received, or the other way round")

"""Patterns from schedules: which ranks are alike, by generating the schedules of a few.

For each division of the ranks into groups, some ranks of each place are compared. The first
division whose compared ranks have equal schedules at each place gives the kinds. If no division has
that, every rank of a place with different schedules is generated. If a message of these kinds is
sent and not received, ranks that were not compared differ: then all ranks are compared.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from mpicoll.algorithms.registry import Algorithm
from mpicoll.backend import Nodes
from mpicoll.costs.classes import classes_of
from mpicoll.costs.groups import Groups, divisions
from mpicoll.costs.patterns import Ints, OutOfTime, Pattern
from mpicoll.costs.topology import Topology, in_order
from mpicoll.errors import ScheduleError, Unsupported
from mpicoll.notation.schedule import Fold, Op, Receive, Round, Send
from mpicoll.text.numbers import number

_MOST_BLOCKS = 50_000_000
_ALL = 64
"""Up to so many ranks all are compared, and a sample beyond."""
_SAMPLE, _MOST_COMPARED, _PER_RANK = 8, 1 << 17, 50
"""Ranks of each place that are compared at random, unless all ranks have fewer blocks and messages
than the second number. Each rank counts for so many more."""
_COMPARED = 20_000
"""Messages of a rank that are compared with those expected of it."""
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
        is_whole: whether it has all rounds.
    """

    first: array[int] = field(default_factory=lambda: array("q", [0]))
    folded: array[int] = field(default_factory=lambda: array("q"))
    head: int = 0
    peers: array[int] = field(default_factory=lambda: array("q"))
    blocks: array[int] = field(default_factory=lambda: array("q"))
    sends: array[int] = field(default_factory=lambda: array("b"))
    is_whole: bool = True

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


def pattern_of(
    algorithm: Algorithm, size: int, root: int = 0, nodes: Nodes | None = None,
    seconds: float = float("inf"),
) -> Pattern:  # fmt: skip
    """Return the schedules of all ranks as arrays.

    Args:
        nodes: the ranks of each node; a node for each rank by default.
        seconds: of the processor, how many it may take.

    Raises:
        Unsupported: the algorithm cannot serve this size.
        OutOfTime: it takes longer, by estimate or by the clock.

    >>> from mpicoll.algorithms import find
    >>> [len(pattern_of(find("allreduce", name), 4).xor) for name in ("ring", "reduce+broadcast")]
    [1, 4]
    """
    return _Builder(algorithm, size, root, nodes, seconds).run()


@dataclass(frozen=True)
class _Kind:
    """The listing of a rank that stands for others.

    Attributes:
        members: their groups; `place`: their place in these.
        xor: whether their distances are exclusive ors.
    """

    rank: int
    place: int
    members: Ints
    xor: bool


class _Builder:
    def __init__(
        self, algorithm: Algorithm, size: int, root: int, nodes: Nodes | None, seconds: float
    ) -> None:
        self.algorithm, self.size, self.root = algorithm, size, root
        self.nodes, self.groups_of_one = nodes, in_order(size, 1)
        self.seconds, self.began = seconds, time.process_time()
        self.vector_blocks = max(1, algorithm.blocks(size))
        self.listings: dict[int, Listing] = {}
        self.durations: list[float] = []
        self.is_sampled = size > _ALL

    def run(self) -> Pattern:
        estimate = self.vector_blocks * _PER_SEGMENT
        if self.vector_blocks > self.size and estimate > self.seconds:
            raise OutOfTime(
                f"to generate a schedule of {self.vector_blocks:,} segments would take about "
                f"{number(estimate, 2)} s"
            )
        pattern = self._classified()
        if self.is_sampled and not _is_matched(pattern):
            self.is_sampled = False
            self._check_estimate(self.size - len(self.listings))
            pattern = self._classified()
        return pattern

    def _classified(self) -> Pattern:
        """Return the pattern of the first division whose compared ranks are alike."""
        nodes = self.nodes or self.groups_of_one
        for groups in divisions(self.algorithm, self.size, nodes):
            if (kinds := self._kinds(groups)) is not None:
                return self._pattern(groups, kinds)
        groups = next(divisions(self.algorithm, self.size, nodes))
        return self._pattern(groups, [*self._all_kinds(groups)])

    def _kinds(self, groups: Groups) -> list[_Kind] | None:
        """Return one kind for each place of groups as wide; None if some ranks differ."""
        kinds = []
        for place, members in _places(groups):
            kind = self._kind(groups, place, members)
            if kind is None:
                return None
            kinds.append(kind)
        return kinds

    def _kind(self, groups: Groups, place: int, members: Ints) -> _Kind | None:
        """Return the kind of all ranks at one place of these groups; None if they differ."""
        ranks = groups.rank(members, place)
        for xor in (False, True) if groups.count & (groups.count - 1) == 0 else (False,):
            kind = _Kind(int(ranks[0]), place, members, xor)
            if all(self._is_alike(groups, kind, rank) for rank in self._sample(ranks)):
                return kind
        return None

    def _all_kinds(self, groups: Groups) -> Iterator[_Kind]:
        """Yield a kind for each place where all ranks are alike, and else for each rank."""
        differing = []
        for place, members in _places(groups):
            kind = self._kind(groups, place, members)
            if kind is None:
                differing.append((place, members))
            else:
                yield kind
        self._check_estimate(sum(len(members) for _, members in differing))
        for place, members in differing:
            for group in members:
                rank = int(groups.rank(group, place))
                yield _Kind(rank, place, np.array([group]), xor=False)

    def _check_estimate(self, count: int) -> None:
        """Refuse to generate the schedules of so many ranks where that takes too long."""
        # The median: some ranks, such as the root, list many more messages than most.
        seconds = median(self.durations) * count
        if seconds > self.seconds:
            raise OutOfTime(
                f"its ranks differ, and to generate the schedules of {count:,} of them would take "
                f"about {number(seconds, 2)} s"
            )

    def _sample(self, ranks: Ints) -> Iterable[int]:
        """Return the ranks to compare with the first."""
        rest: list[int] = ranks[1:].tolist()
        blocks = self._listing(int(ranks[0])).blocks
        effort = (sum(blocks) + len(blocks) + _PER_RANK) * self.size
        if not self.is_sampled or effort <= _MOST_COMPARED or len(rest) <= _SAMPLE:
            return rest
        some = random.Random(int(ranks[0])).sample(rest, _SAMPLE)
        return dict.fromkeys([rest[0], rest[-1], *({self.root} & {*rest}), *some])

    def _is_alike(self, groups: Groups, kind: _Kind, rank: int) -> bool:
        """Whether a rank does the same as that of a kind, with its peers moved."""
        listing, reference = self._listing(rank, short=self.is_sampled), self._listing(kind.rank)
        count, rounds = len(listing.blocks), len(listing.folded)
        if listing.is_whole and rounds != len(reference.folded):
            return False
        compared = rounds if listing.is_whole else rounds - 1
        return (
            listing.head == reference.head
            and listing.first == reference.first[: rounds + 1]
            and listing.folded[:compared] == reference.folded[:compared]
            and listing.blocks == reference.blocks[:count]
            and listing.sends == reference.sends[:count]
            and np.array_equal(
                _relative(groups, listing, rank, kind.xor),
                _relative(groups, reference, kind.rank, kind.xor)[:, :count],
            )
        )

    def _listing(self, rank: int, *, short: bool = False) -> Listing:
        """Return the messages of a rank; only the first ones where it has many."""
        if rank in self.listings:
            return self.listings[rank]
        began, listing, blocks = time.process_time(), Listing(), 0
        steps = iter(self.algorithm.schedule(rank, self.size, self.root, self.nodes))
        for count, step in enumerate(steps, 1):
            blocks += listing.read(step)
            if short and len(listing.blocks) > _COMPARED:
                listing.is_whole = False
                break
            if blocks > _MOST_BLOCKS:
                raise Unsupported(f"one rank names more than {_MOST_BLOCKS:,} blocks")
            if count % _UNTIMED == 0:
                self._check_time()
        self._check_time()
        self.durations.append(time.process_time() - began)
        if listing.is_whole:
            self.listings[rank] = listing
        return listing

    def _check_time(self) -> None:
        if time.process_time() - self.began > self.seconds:
            raise OutOfTime(f"to generate its schedules takes more than {self.seconds:g} s")

    def _pattern(self, groups: Groups, kinds: list[_Kind]) -> Pattern:
        """Join the listings of all kinds."""
        listings = [self._listing(kind.rank) for kind in kinds]
        peers = [
            _relative(groups, listing, kind.rank, kind.xor)
            for listing, kind in zip(listings, kinds, strict=True)
        ]
        distance, place = np.concatenate(peers, axis=1)
        numbers = np.empty(self.size, np.int64)
        for index, kind in enumerate(kinds):
            numbers[groups.rank(kind.members, kind.place)] = index
        first = np.concatenate([[0], *(np.diff(np.array(listing.first)) for listing in listings)])
        return Pattern(
            groups, self.vector_blocks, numbers,
            xor=np.array([kind.xor for kind in kinds]),
            base=np.cumsum([0, *(len(listing.folded) for listing in listings)]),
            head=np.array([listing.head for listing in listings]),
            first=np.cumsum(first),
            folded=_joined(listing.folded for listing in listings),
            distance=distance, place=place,
            blocks=_joined(listing.blocks for listing in listings),
            sends=_joined(listing.sends for listing in listings).astype(bool),
        )  # fmt: skip


def _is_matched(pattern: Pattern) -> bool:
    """Whether every message is sent and received."""
    try:
        classes_of(pattern, Topology(pattern.size))
    except ScheduleError:
        return False
    return True


def _places(groups: Groups) -> Iterator[tuple[int, Ints]]:
    """Yield each place of groups as wide, and these groups."""
    for width in np.unique(groups.widths).tolist():
        members = np.flatnonzero(groups.widths == width)
        yield from ((place, members) for place in range(width))


def _relative(groups: Groups, listing: Listing, rank: int, xor: bool) -> Ints:
    """Return the distances to the peers' groups, and their places there."""
    peers = np.array(listing.peers, np.int64)
    return np.stack([groups.distance(rank, peers, xor), groups.place[peers]])


def _joined(parts: Iterable[array[int]]) -> Ints:
    return np.concatenate([np.array(part, np.int64) for part in parts])

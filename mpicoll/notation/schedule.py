"""The notation of schedules: the messages and folds of one rank, round by round.

The k-th block of a send lands in the k-th block of the matching receive.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Literal, NamedTuple, final

__all__ = [
    "Copy", "Fold", "Op", "Receive", "Round", "Schedule", "Send", "Temp", "around", "copy", "fold",
    "merge_rounds", "on", "recv", "reduce", "send", "then",
]  # fmt: skip

Block = Hashable
Side = Literal["left", "right"]


class Temp(NamedTuple):
    """A scratch block, as large as `block`.

    >>> print(Temp("received", 3))
    received[3]
    """

    name: str
    block: Block

    def __str__(self) -> str:
        return f"{self.name}[{self.block}]"


# Frozen ones, which nobody would change either, take three times as long to make.
@final
@dataclass(slots=True, unsafe_hash=True)
class Send:
    """Send `blocks` to `peer`.

    >>> print(Send(1, (0, 2)))
    send(1, 0, 2)
    """

    peer: int
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return f"send({', '.join(map(str, (self.peer, *self.blocks)))})"


@final
@dataclass(slots=True, unsafe_hash=True)
class Receive:
    """Receive `blocks` from `peer`; with a `side`, fold them in, the peer's value on that side.

    >>> print(Receive(1, (0,)), Receive(1, (0,), "left"))
    recv(1, 0) reduce_left(1, 0)
    """

    peer: int
    blocks: tuple[Block, ...]
    side: Side | None = None

    def __str__(self) -> str:
        name = f"reduce_{self.side}" if self.side else "recv"
        return f"{name}({', '.join(map(str, (self.peer, *self.blocks)))})"


@final
@dataclass(slots=True, unsafe_hash=True)
class Copy:
    """Copy block `source` into block `target` after the round's messages.

    >>> print(Copy(target=1, source=Temp("received", 1)))
    copy(1, received[1])
    """

    target: Block
    source: Block

    def __str__(self) -> str:
        return f"copy({self.target}, {self.source})"


@final
@dataclass(slots=True, unsafe_hash=True)
class Fold:
    """Fold block `source` into block `target`, the source's value on `side`.

    >>> print(Fold(target=1, source=0, side="right"))
    fold_right(1, 0)
    """

    target: Block
    source: Block
    side: Side

    def __str__(self) -> str:
        return f"fold_{self.side}({self.target}, {self.source})"


Op = Send | Receive | Copy | Fold
"""An operation of one rank."""
_LOCAL = (Copy, Fold)
Round = tuple[Op, ...]
"""The operations of one rank in one round."""
Schedule = Iterator[Op | Round]
"""The rounds of one rank; a lone operation is a round of one."""


def send(peer: int, *blocks: Block) -> Send:
    """Send blocks (or, without any, a signal) to a peer.

    >>> print(send(1, 0), send(2))
    send(1, 0) send(2)
    """
    return Send(peer, blocks)


def recv(peer: int, *blocks: Block) -> Receive:
    """Receive blocks (or a signal) from a peer, replacing their values.

    >>> print(recv(1, 0, 2))
    recv(1, 0, 2)
    """
    return Receive(peer, blocks)


def reduce(peer: int, *blocks: Block, side: Side = "left") -> Receive:
    """Receive blocks and fold them into the rank's blocks, the peer's value on `side`.

    >>> print(reduce(1, 0, side="right"))
    reduce_right(1, 0)
    """
    return Receive(peer, blocks, side)


def copy(target: Block, source: Block) -> Copy:
    """Copy a block locally.

    >>> print(copy(0, Temp("received", 0)))
    copy(0, received[0])
    """
    return Copy(target, source)


def fold(target: Block, source: Block, side: Side = "left") -> Fold:
    """Fold a local block into another one, the source's value on `side`.

    >>> print(fold(0, Temp("received", 0)))
    fold_left(0, received[0])
    """
    return Fold(target, source, side)


def side_of(peer: int, rank: int) -> Side:
    """Return the side on which a peer's value keeps rank order."""
    return "left" if peer < rank else "right"


def rounds(schedule: Iterable[Op | Round]) -> list[Round]:
    """Collect a schedule, a lone operation being a round of one; empty rounds vanish."""
    collected = (step if isinstance(step, tuple) else (step,) for step in schedule)
    return [step for step in collected if step]


def then(*schedules: Iterable[Op | Round]) -> Schedule:
    """Run schedules one after the other.

    >>> print(*then([send(1, 0)], [recv(1, 0)]))
    send(1, 0) recv(1, 0)
    """
    return chain.from_iterable(schedules)


def merge_rounds(*schedules: Iterable[Op | Round]) -> Schedule:
    """Merge schedules round by round: their i-th rounds become one.

    >>> for step in merge_rounds([send(1, 0)], [send(2, 0)]):
    ...     print(*step)
    send(1, 0) send(2, 0)
    """
    for parts in zip_longest(*map(rounds, schedules), fillvalue=()):
        yield tuple(chain.from_iterable(parts))


def reverse(schedule: Iterable[Op | Round], rank: int, *, folds: bool) -> Schedule:
    """Run a distribution backwards in time, as a collection.

    Sends become receives and receives sends, last round first: scatter becomes
    gather, and with `folds` broadcast becomes reduce and allgather becomes
    reduce_scatter (Chan, Heimlich, Purkayastha and van de Geijn 2007, section 4).

    Raises:
        TypeError: the schedule folds or copies, which has no reverse.
    """
    for step in reversed(rounds(schedule)):
        yield tuple(_backwards(op, rank, folds) for op in step)


def _backwards(op: Op, rank: int, folds: bool) -> Op:
    if isinstance(op, Send):
        return Receive(op.peer, op.blocks, side_of(op.peer, rank) if folds else None)
    if isinstance(op, Receive) and op.side is None:
        return Send(op.peer, op.blocks)
    raise TypeError(f"{op} has no reverse: only sends and plain receives have")


def on(
    group: Sequence[int],
    schedule: Iterable[Op | Round],
    block: Callable[[Block], Block] | None = None,
) -> Schedule:
    """Run a schedule written for ranks 0..n-1 on those of `group`, renaming blocks by `block`.

    >>> for step in on([4, 6], [send(1, 0)]):
    ...     print(*step)
    send(6, 0)
    """
    for step in rounds(schedule):
        yield tuple([_relabelled(op, group, block) for op in step])


def _relabelled(op: Op, group: Sequence[int], block: Callable[[Block], Block] | None) -> Op:
    if isinstance(op, _LOCAL):
        if block is None:
            return op
        return _renamed(op, _named(op.target, block), _named(op.source, block))
    if not 0 <= op.peer < len(group):
        raise ValueError(f"{op} leaves the group of {len(group)} ranks")
    peer = group[op.peer]
    if block is None and peer == op.peer:
        return op
    blocks = op.blocks if block is None else tuple([_named(inner, block) for inner in op.blocks])
    return Send(peer, blocks) if isinstance(op, Send) else Receive(peer, blocks, op.side)


def _renamed(op: Copy | Fold, target: Block, source: Block) -> Copy | Fold:
    """Return a local operation on other blocks; `replace` takes five times as long."""
    return Copy(target, source) if isinstance(op, Copy) else Fold(target, source, op.side)


def _named(old: Block, block: Callable[[Block], Block]) -> Block:
    return Temp(old.name, block(old.block)) if isinstance(old, Temp) else block(old)


def widened(op: Op, runs: Callable[[Block], Iterable[Block]]) -> Round:
    """Return an operation on all the blocks that `runs` puts in the place of each of its own.

    Scratch is widened with the block that it is as large as.

    >>> print(*widened(fold(0, Temp("got", 0)), lambda block: [8, 9]))
    fold_left(8, got[8]) fold_left(9, got[9])
    """

    def wide(block: Block) -> Iterable[Block]:
        if isinstance(block, Temp):
            return [Temp(block.name, inner) for inner in wide(block.block)]
        return runs(block)

    if isinstance(op, _LOCAL):
        pairs = zip(wide(op.target), wide(op.source), strict=True)
        return tuple([_renamed(op, target, source) for target, source in pairs])
    blocks = tuple(chain.from_iterable(map(wide, op.blocks)))
    return (Send(op.peer, blocks) if isinstance(op, Send) else Receive(op.peer, blocks, op.side),)


def around(root: int, size: int, schedule: Iterable[Op | Round]) -> Schedule:
    """Run a schedule that is written for root 0: rank i plays the part of rank i - root.

    >>> for step in around(2, 3, [send(1, 0)]):
    ...     print(*step)
    send(0, 0)
    """
    ranks = range(size)
    return on((*ranks[root:], *ranks[:root]) if root else ranks, schedule)


def folded(
    rank: int, size: int, core: Callable[[int, int], Schedule], *blocks: Block, radix: int = 2
) -> Schedule:
    """Serve any size with a `core(rank, size)` that needs a power of `radix`.

    Ranks of the first groups of `lenders` lend their blocks to the last one of the group and get
    the result at the end; rank order is kept. Adds 2 rounds and 2m bytes (Thakur, Rabenseifner
    and Gropp 2005, section 4.5; for other radices as in MPICH's recursive exchange).
    """
    return with_lenders(
        rank, size, lambda me, groups: core(me, len(groups)),
        lambda lender: blocks, lambda lender: blocks, radix,
    )  # fmt: skip


def with_lenders(
    rank: int, size: int, core: Callable[[int, Sequence[tuple[int, ...]]], Schedule],
    lent_blocks: Callable[[int], Iterable[Block]],
    returned_blocks: Callable[[int], Iterable[Block]],
    radix: int = 2, *, folds: bool = True,
) -> Schedule:  # fmt: skip
    """Serve any size with a `core(rank, groups)` for a power of `radix` of groups (`lenders`).

    Args:
        lent_blocks: the blocks that a lending rank sends to the last rank of its group.
        returned_blocks: the blocks that it gets at the end.
        folds: the last rank of the group folds the lent blocks, instead of storing them.
    """
    groups = lenders(size, radix)
    number = next(index for index, group in enumerate(groups) if rank in group)
    *lending, head = groups[number]
    if rank != head:
        yield send(head, *lent_blocks(rank))
        yield recv(head, *returned_blocks(rank))
        return
    take = reduce if folds else recv
    yield tuple(take(lender, *lent_blocks(lender)) for lender in reversed(lending))
    yield from on([group[-1] for group in groups], core(number, groups))
    yield tuple(send(lender, *returned_blocks(lender)) for lender in lending)


@lru_cache(maxsize=4)  # for the ranks of one schedule after another
def lenders(size: int, radix: int = 2) -> tuple[tuple[int, ...], ...]:
    """Group ranks so that there are as many groups as a power of `radix`.

    Only the first groups have more than one rank, `radix` at most: the last one goes on for the
    others. Groups are neighbours, so that folding inside them keeps rank order.

    >>> lenders(7), lenders(4)
    (((0, 1), (2, 3), (4, 5), (6,)), ((0,), (1,), (2,), (3,)))
    >>> lenders(7, 3)
    ((0, 1, 2), (3, 4, 5), (6,))
    """
    power = 1
    while power * radix <= size:
        power *= radix
    count, rest = divmod(size - power, radix - 1)
    wide = count * radix
    groups = [*zip(*(range(place, wide, radix) for place in range(radix)), strict=True)]
    groups += [tuple(range(wide, wide + rest + 1))] if rest else []
    return *groups, *zip(range(wide + rest + (rest > 0), size))

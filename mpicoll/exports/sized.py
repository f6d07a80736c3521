"""The messages and folds of one rank in bytes, round by round, for simulators of networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from mpicoll.algorithms.registry import Algorithm
from mpicoll.backend import Nodes
from mpicoll.lowering.messages import cut
from mpicoll.notation.schedule import Block, Copy, Fold, Op, Receive, Send, Temp

SIGNAL = 1
"""Bytes of a message without blocks: simulators know no empty one."""


class SizedMessage(NamedTuple):
    """A message of one rank.

    Attributes:
        tag: its number among those from the sender to the receiver.
    """

    is_send: bool
    peer: int
    nbytes: int
    tag: int


class SizedRound(NamedTuple):
    """The messages of a round, in flight together, and the bytes folded at its end."""

    messages: list[SizedMessage]
    folded: int


def sized_rounds(
    algorithm: Algorithm, rank: int, size: int, nbytes: int, root: int = 0,
    nodes: Nodes | None = None,
) -> Iterator[SizedRound]:  # fmt: skip
    """Yield the rounds of one rank; those without messages or folds are left out.

    Args:
        nbytes: of a vector, or of all rows of a row-wise collective, cut into blocks as even as
            can be. Blocks without bytes are not sent.

    >>> from mpicoll.algorithms import find
    >>> for each in sized_rounds(find("allreduce", "recursive_doubling"), 0, 4, 100):
    ...     print([message[1:] for message in each.messages], each.folded)
    [(1, 100, 0), (1, 100, 0)] 100
    [(2, 100, 0), (2, 100, 0)] 100
    """
    size_of = _sizes(algorithm, size, nbytes)
    sent, received = Counter[int](), Counter[int]()
    for step in algorithm.rounds(rank, size, root, nodes):
        messages, folded = [], 0
        for op in step:
            volume = _volume(op, size_of)
            if isinstance(op, Send | Receive):
                if op.blocks and not volume:
                    continue
                tags = sent if isinstance(op, Send) else received
                messages.append(
                    SizedMessage(isinstance(op, Send), op.peer, volume or SIGNAL, tags[op.peer])
                )
                tags[op.peer] += 1
            if isinstance(op, Fold) or (isinstance(op, Receive) and op.side):
                folded += volume
        if messages or folded:
            yield SizedRound(messages, folded)


def _volume(op: Op, size_of: Callable[[Block], int]) -> int:
    """Return the bytes that an operation sends, receives, copies or folds."""
    if isinstance(op, Copy | Fold):
        return size_of(op.target)
    return sum(map(size_of, op.blocks))


def _sizes(algorithm: Algorithm, size: int, nbytes: int) -> Callable[[Block], int]:
    """Return a function from a block to its bytes."""
    sizes = cut(nbytes, max(1, algorithm.blocks(size)))

    def size_of(block: Block) -> int:
        while isinstance(block, Temp):
            block = block.block
        if isinstance(block, tuple):
            return sizes[block[1]]
        assert isinstance(block, int)
        return sizes[block]

    return size_of

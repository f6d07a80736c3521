"""The instructions of a rank's program over memory that the ranks of a node share.

Within a node a message is not sent. Its sender *publishes* it: the bytes lie in memory that the
others read, and a flag announces them. Its receivers *await* the flag, copy or fold straight from
there, and *acknowledge*, which lets the sender write there again.

A small message is copied into an eager *slot*, so that its sender goes on at once. A large one is
*zero-copy* where others can read the buffer it lies in: the sender then waits for its readers
before it writes that memory again, and before the call ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mpicoll.lowering.messages import Buffer, Combine, Move, Piece, Transfer


class Publish(NamedTuple):
    """Raise the flag of one tile of a publication."""

    publication: int
    tile: int


class Await(NamedTuple):
    """Wait for the flag of one tile of a receipt."""

    receipt: int
    tile: int


class Acknowledge(NamedTuple):
    """Tell the sender of a receipt that it has been read; through a window, one tile of it."""

    receipt: int
    tile: int = 0


class WaitForSlot(NamedTuple):
    """Wait until the slot of a publication, or of one of its tiles, may be written again."""

    publication: int
    tile: int = 0


class WaitForReaders(NamedTuple):
    """Wait until all readers have read a zero-copy publication."""

    publication: int


class Post(NamedTuple):
    """Start the messages to and from other nodes."""

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]


class Complete(NamedTuple):
    """Wait for the messages that the last `Post` started."""


Instruction = (
    Move | Combine | Publish | Await | Acknowledge | WaitForSlot | WaitForReaders | Post | Complete
)  # fmt: skip


class Window(NamedTuple):
    """A few slots that the tiles of a message pass through in turn.

    Attributes:
        tile: elements of a tile.
    """

    tile: int
    slots: int


@dataclass
class Publication:
    """A message of this rank to those that read it.

    Attributes:
        piece: where it lies; None for a bare signal.
        readers: who reads it, in the order in which the schedule sends.
        zero_copy: it is read in the sender's buffer instead of in an eager slot.
        tiles: in how many it is moved, each of which has a flag unless one announces it whole.
        window: where it passes through a few slots.
        by_tile: each tile has a flag though it is zero-copy.
    """

    piece: Piece | None
    readers: list[int]
    zero_copy: bool
    tiles: int
    window: Window | None = None
    by_tile: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether one flag announces all of it."""
        return self.zero_copy and not self.by_tile


@dataclass
class Receipt:
    """A message that this rank reads: the `order`-th from `peer`, of `length` elements."""

    peer: int
    order: int
    length: int
    tiles: int


@dataclass
class SharedProgram:
    """A schedule lowered to shared memory.

    Attributes:
        rounds: for each instruction the round that it belongs to.
        sent: for each peer its publications, in the order of the schedule.
        scratch: elements of the buffers that the program needs of its own.
    """

    instructions: list[Instruction] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    publications: list[Publication] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    sent: dict[int, list[int]] = field(default_factory=dict)
    scratch: dict[Buffer, int] = field(default_factory=dict)

    def reads(self, instruction: Instruction) -> list[Piece]:
        """Return the pieces that an instruction reads, or lets other ranks read."""
        if isinstance(instruction, Move | Combine):
            return [*instruction[1:]]
        if isinstance(instruction, Publish):
            pieces = [self.publications[instruction.publication].piece]
        else:
            transfers = instruction.sends if isinstance(instruction, Post) else ()
            pieces = [transfer.piece for transfer in transfers]
        return [piece for piece in pieces if piece]

    def writes(self, instruction: Instruction) -> list[Piece]:
        """Return the pieces that an instruction writes."""
        if isinstance(instruction, Move | Combine):
            return [instruction.target]
        transfers = instruction.receives if isinstance(instruction, Post) else ()
        return [transfer.piece for transfer in transfers if transfer.piece]


@dataclass(frozen=True)
class Reach:
    """The memory that the ranks of a node can read of each other.

    Attributes:
        intra_node: the ranks of this node.
        readable: the buffers that the others can read where they are.
        min_zero_copy: elements from which a message in such a buffer is zero-copy.
        tile: elements that are moved at a time.
        announces: each tile of a zero-copy message has a flag of its own.
    """

    intra_node: frozenset[int]
    readable: frozenset[Buffer]
    min_zero_copy: int
    tile: int
    announces: bool = False


MESSAGES = Reach(frozenset(), frozenset(), min_zero_copy=1 << 62, tile=1 << 62)
"""The memory of other ranks in a program of messages alone."""

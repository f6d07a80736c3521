"""Let large messages pass through a few slots that are used again and again.

A message may be written and read tile by tile, in one round of its sender and its readers. Such a
message needs no slot for each tile: the sender writes a slot again when all readers have
acknowledged its tile. Ranks cannot lock up if their rounds can be numbered as follows: the numbers
of a rank grow, and each message is published and awaited in rounds of one number. Then the rank
that is the furthest behind waits for nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, NamedTuple

from mpicoll import tuning
from mpicoll.lowering.instructions import (
    Acknowledge,
    Await,
    Instruction,
    Post,
    Publish,
    SharedProgram,
    WaitForSlot,
    Window,
)
from mpicoll.lowering.messages import Combine, Kind, Move, Piece
from mpicoll.lowering.reuse import end_of_folds, insert

_FEWEST = 2


class Message(NamedTuple):
    """One end of a message: the round in which it is published or awaited."""

    round: int
    by_tile: bool


class Ends(NamedTuple):
    """A rank's ends of all messages of its node, for each peer in the order of the schedule.

    Attributes:
        inter_node: it has messages to other nodes, too.
    """

    sent: dict[int, list[Message]]
    received: dict[int, list[Message]]
    inter_node: bool = False


def agree(
    program: SharedProgram, rank: int, node: Sequence[int],
    exchange: Callable[[Ends, Any], list[Ends]], tile: int, nbytes: int,
) -> None:  # fmt: skip
    """Give a window to each publication that may pass through one; collective on the node.

    Args:
        node: the ranks of the node.
        exchange: returns one item for each rank; only those of the node are used.
        tile: the elements of a tile, which has `nbytes` bytes.
    """
    items = exchange(ends(program, tile), Ends)
    everyone = {member: items[member] for member in node}
    tiles = max(_FEWEST, tuning.WINDOW_BYTES // nbytes)
    slots = min(tuning.WINDOW_SLOTS, 1 << tiles.bit_length() - 1)
    choose(program, rank, everyone, tile, slots, tiles)


def ends(program: SharedProgram, tile: int) -> Ends:
    """Return a rank's ends of all messages.

    Args:
        tile: the elements of a tile.
    """
    written, read = _places(program, tile, Kind.SLOT), _places(program, tile, Kind.RECEIPT)
    raised, awaited = _flags(program, Publish), _flags(program, Await)
    published = [
        _end(
            program, written.get(number, {}), raised[number], publication.tiles, is_before_flag=True
        )
        for number, publication in enumerate(program.publications)
    ]
    received: dict[int, list[Message]] = {}
    for number, receipt in enumerate(program.receipts):
        end = _end(
            program, read.get(number, {}), awaited[number], receipt.tiles, is_before_flag=False
        )
        received.setdefault(receipt.peer, []).append(end)
    sent = {peer: [published[number] for number in sent] for peer, sent in program.sent.items()}
    return Ends(
        sent, received, any(isinstance(instruction, Post) for instruction in program.instructions)
    )


def choose(
    program: SharedProgram, rank: int, everyone: Mapping[int, Ends], tile: int, slots: int,
    room: int,
) -> None:  # fmt: skip
    """Give a window to each publication that may pass through one.

    Args:
        everyone: the ends of every rank of the node.
        slots: of a window where the messages are few; one of no more tiles needs none.
        room: tiles of all these messages above which windows have fewer slots.
    """
    if not _rounds_match(everyone):
        return
    windowed = []
    for number, publication in enumerate(program.publications):
        orders = ((peer, program.sent[peer].index(number)) for peer in publication.readers)
        is_by_tile = all(
            everyone[rank].sent[peer][order].by_tile
            and everyone[peer].received[rank][order].by_tile
            for peer, order in orders
        )
        if is_by_tile and not publication.zero_copy:
            windowed.append(publication)
    while slots > _FEWEST and sum(min(slots, publication.tiles) for publication in windowed) > room:
        slots //= 2
    for publication in windowed:
        if publication.tiles > slots:
            publication.window = Window(tile, slots)


def _rounds_match(everyone: Mapping[int, Ends]) -> bool:
    """Whether the rounds of all ranks can be numbered as windows need it.

    Where there are messages to other nodes, whose rounds are not known here, the rounds must have
    such numbers as they are.
    """
    rounds: dict[int, set[int]] = {rank: set() for rank in everyone}
    number: dict[tuple[int, int], tuple[int, int]] = {}

    def numbered(at: tuple[int, int]) -> tuple[int, int]:
        """Return the round that stands for all rounds of the same number."""
        while at in number:
            at = number[at]
        return at

    pairs = ((sender, *item) for sender, end in everyone.items() for item in end.sent.items())
    for sender, receiver, sent in pairs:
        received = everyone[receiver].received.get(sender, [])
        if len(sent) != len(received):
            return False
        for first, last in zip(sent, received, strict=True):
            rounds[sender].add(first.round)
            rounds[receiver].add(last.round)
            ends = numbered((sender, first.round)), numbered((receiver, last.round))
            if ends[0] != ends[1]:
                number[ends[0]] = ends[1]
    if any(ends_of_rank.inter_node for ends_of_rank in everyone.values()):
        return all(at[1] == numbered(at)[1] for at in number)
    order: TopologicalSorter[tuple[int, int]] = TopologicalSorter()
    for rank, numbers in rounds.items():
        for earlier, later in pairwise(sorted(numbers)):
            order.add(numbered((rank, later)), numbered((rank, earlier)))
    try:
        order.prepare()
    except CycleError:
        return False
    return True


def through_windows(program: SharedProgram, tile: int, receipts: Collection[int]) -> SharedProgram:
    """Return a program that waits for slots, and acknowledges, tile by tile.

    Args:
        receipts: those that pass through windows of their senders.
    """
    publications = [n for n, publication in enumerate(program.publications) if publication.window]
    insertions: defaultdict[int, list[Instruction]] = defaultdict(list)
    written, read = _places(program, tile, Kind.SLOT), _places(program, tile, Kind.RECEIPT)
    awaited = _flags(program, Await)
    for number in receipts:
        for t in range(program.receipts[number].tiles):
            _, last = read.get(number, {}).get(t, (0, awaited[number][t]))
            end = end_of_folds(program.instructions, last)
            insertions[end + 1].append(Acknowledge(number, t))
    for number in publications:
        for t, (first, _) in written[number].items():
            insertions[first].append(WaitForSlot(number, t))
    replaced = [
        position for position, instruction in enumerate(program.instructions)
        if (isinstance(instruction, WaitForSlot) and instruction.publication in publications)
        or (isinstance(instruction, Acknowledge) and instruction.receipt in receipts)
    ]  # fmt: skip
    windowed = replace(program)
    insert(windowed, insertions, without=replaced)
    return windowed


Places = dict[int, dict[int, tuple[int, int]]]
"""For each message, for each of its tiles, the first and the last instruction that uses it."""


def _places(program: SharedProgram, tile: int, kind: Kind) -> Places:
    places: Places = {}
    for position, instruction in enumerate(program.instructions):
        for piece in instruction if isinstance(instruction, Move | Combine) else ():
            if piece.buffer.kind is not kind:
                continue
            tiles = places.setdefault(piece.buffer.number, {})
            for t in _tiles(piece, tile):
                first, _ = tiles.get(t, (position, position))
                tiles[t] = first, position
    return places


def _tiles(piece: Piece, tile: int) -> range:
    """Return the tiles that a piece touches."""
    last = max(piece.start, piece.start + piece.length - 1)
    return range(piece.start // tile, last // tile + 1)


def _flags(program: SharedProgram, kind: type[Publish | Await]) -> dict[int, list[int]]:
    """Return for each message the instructions that raise, or await, the flags of its tiles."""
    flags: dict[int, list[int]] = {}
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, kind):
            flags.setdefault(instruction[0], []).append(position)
    return flags


def _end(
    program: SharedProgram, uses: Mapping[int, tuple[int, int]], flags: Sequence[int],
    tiles: int, *, is_before_flag: bool,
) -> Message:  # fmt: skip
    """Return an end of a message, of which each tile is used next to its own flag alone.

    Args:
        is_before_flag: a tile is used before its flag, not after it.
    """
    limits = [-1, *flags] if is_before_flag else [*flags, len(program.instructions)]
    spans = list(pairwise(limits))
    within = len(flags) == tiles and all(
        t < tiles and spans[t][0] < first and last < spans[t][1]
        for t, (first, last) in uses.items()
    )
    rounds = {program.rounds[position] for position in flags}
    return Message(program.rounds[flags[0]], within and len(rounds) == 1)

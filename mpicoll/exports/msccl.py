"""A schedule as XML for MSCCL's interpreter (Cowan and others 2023).

A rank's program is what messages run (`mpicoll.lowering.messages`), in chunks: one block is one
chunk. Every peer that a rank sends to, or receives from, has a thread block of its own, so that no
receive waits behind a send; copies, and folds that no receive does, have one. A step waits for
those of other thread blocks that wrote what it reads, or use what it writes.

The format: https://github.com/microsoft/msccl, `src/graph/topo.cc`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.etree import ElementTree as xml

from mpicoll.algorithms.registry import Algorithm
from mpicoll.backend import Nodes
from mpicoll.cli.progress import tracked
from mpicoll.errors import Unsupported
from mpicoll.lowering.instructions import MESSAGES
from mpicoll.lowering.messages import (
    INPUT,
    OUTPUT,
    SCRATCH,
    STAGING,
    Buffer,
    Combine,
    Move,
    Piece,
    Step,
    Transfer,
    overlaps,
)
from mpicoll.lowering.shared_memory import Lowering, schedule_errors
from mpicoll.notation.contract import Collective, Place

COLLECTIVES = "allreduce", "allgather", "reduce_scatter", "alltoall"
_MOST_STEPS, _MOST_CHUNKS, _MOST_PEERS = 256, 71, 32
"""Of a thread block, of one step, and of a rank each way: MSCCL's interpreter takes no more."""
_MOST_RANKS = 1024
"""MSCCL's reader writes beyond its table where a file has more."""
_LOCAL = "local", -1
_LETTERS = {INPUT: "i", OUTPUT: "o", SCRATCH: "s"}

Block = tuple[str, int]
"""A thread block: ``send``, ``recv`` or ``local``, and its peer."""
Chunk = tuple[Buffer, int]
At = tuple[Block, int]
"""A thread block, and the number of one of its steps."""


class Action(NamedTuple):
    """A step of a thread block.

    Attributes:
        kind: ``s``, ``r``, ``rrc`` (receive, fold with `source` and write), ``cpy`` or ``re``
            (fold `source` into `target`); ``nop`` only waits.
        dependency: a step of another thread block that must have ended.
    """

    kind: str
    source: Piece | None = None
    target: Piece | None = None
    dependency: At | None = None


@dataclass
class _Rank:
    """The thread blocks of one rank.

    Attributes:
        written, read: the steps that last wrote each chunk, and those that have read it since.
        awaited: the steps for which others wait.
        scratch: chunks of it that are used.
    """

    staging: int
    blocks: dict[Block, list[Action]] = field(default_factory=lambda: defaultdict(list))
    written: dict[Chunk, At] = field(default_factory=dict)
    read: dict[Chunk, set[At]] = field(default_factory=lambda: defaultdict(set))
    awaited: set[At] = field(default_factory=set)
    scratch: int = 0

    def add(self, block: Block, kind: str, source: Piece | None, target: Piece | None) -> None:
        """Append a step, behind others that only wait, each for a step of another thread block."""
        for begin in range(0, (source or target or Piece(INPUT, 0, 0)).length, _MOST_CHUNKS):
            self._add(block, kind, self._part(source, begin), self._part(target, begin))

    def _part(self, piece: Piece | None, begin: int) -> Piece | None:
        """Return as much of a piece as one step takes; staging lies behind scratch."""
        if piece is None:
            return None
        start = piece.start + begin + (self.staging if piece.buffer == STAGING else 0)
        buffer = SCRATCH if piece.buffer == STAGING else piece.buffer
        return Piece(buffer, start, min(_MOST_CHUNKS, piece.length - begin))

    def _add(self, block: Block, kind: str, source: Piece | None, target: Piece | None) -> None:
        reads = [*_chunks(source), *(_chunks(target) if kind == "re" else ())]
        waits = self._waits(block, reads, _chunks(target))
        steps = self.blocks[block]
        steps += [Action("nop", dependency=dependency) for dependency in waits[:-1]]
        steps.append(Action(kind, source, target, waits[-1] if waits else None))
        self.awaited |= set(waits)
        here = block, len(steps) - 1
        for chunk in reads:
            self.read[chunk].add(here)
        for piece in filter(None, (source, target)):
            if piece.buffer == SCRATCH:
                self.scratch = max(self.scratch, piece.start + piece.length)
        for chunk in _chunks(target):
            self.written[chunk] = here
            self.read.pop(chunk, None)

    def _waits(self, block: Block, reads: Iterable[Chunk], writes: Sequence[Chunk]) -> list[At]:
        """Return the last step of each other thread block that must have ended."""
        dependencies = [self.written[chunk] for chunk in (*reads, *writes) if chunk in self.written]
        dependencies += [dependency for chunk in writes for dependency in self.read.get(chunk, ())]
        last: dict[Block, int] = {}
        for writer, number in dependencies:
            if writer != block:
                last[writer] = max(number, last.get(writer, 0))
        return sorted(last.items())


def _chunks(piece: Piece | None) -> list[Chunk]:
    if piece is None:
        return []
    return [(piece.buffer, index) for index in range(piece.start, piece.start + piece.length)]


def msccl(algorithm: Algorithm, size: int, nodes: Nodes | None = None) -> str:
    """Return the XML of a schedule.

    An allreduce is in place, as `torch.distributed.all_reduce` calls it, others are not.

    Raises:
        Unsupported: MSCCL has no such collective, or its interpreter takes no schedule like this.
    """
    contract = algorithm.collective
    if contract.name not in COLLECTIVES:
        raise Unsupported(f"MSCCL has no {contract.name}: it has {', '.join(COLLECTIVES)}")
    in_place = contract.name == "allreduce"
    chunks = algorithm.blocks(size)
    root = xml.Element("algo", {
        "name": str(algorithm), "proto": "Simple", "nchannels": "1", "ngpus": str(size),
        "nchunksperloop": str(chunks), "coll": contract.name, "inplace": str(int(in_place)),
        "outofplace": str(int(not in_place)),
    })  # fmt: skip
    for rank in tracked(range(size), "rank {}".format):
        _write_rank(root, algorithm, Place(rank, size, 0, chunks), nodes, in_place)
    xml.indent(root)
    return f"{xml.tostring(root, encoding='unicode')}\n"


def _write_rank(
    root: xml.Element, algorithm: Algorithm, at: Place, nodes: Nodes | None, in_place: bool
) -> None:
    contract = algorithm.collective
    inputs, outputs = contract.input_blocks(at), [*contract.output_contents(at)]
    rounds = algorithm.rounds(at.rank, at.size, 0, nodes)
    sizes = dict.fromkeys(_names(contract, at), 1)
    with schedule_errors():
        lowering = Lowering(rounds, sizes, inputs, outputs, MESSAGES, in_place=in_place)
        steps = [*lowering.steps()]
    rank = _Rank(lowering.scratch)
    for step in steps:
        _fill(rank, step)
    _check(rank, algorithm, at.size)
    gpu = xml.SubElement(root, "gpu", {
        "id": str(at.rank), "i_chunks": str(len(inputs)), "o_chunks": str(len(outputs)),
        "s_chunks": str(rank.scratch),
    })  # fmt: skip
    numbers = {block: number for number, block in enumerate(rank.blocks)}
    for block, number in numbers.items():
        way, peer = block
        element = xml.SubElement(gpu, "tb", {
            "id": str(number), "send": str(peer if way == "send" else -1),
            "recv": str(peer if way == "recv" else -1), "chan": "0",
        })  # fmt: skip
        for index, action in enumerate(rank.blocks[block]):
            _write_action(element, index, action, numbers, (block, index) in rank.awaited)


def _names(contract: Collective, at: Place) -> Iterator[object]:
    """Yield all blocks of a collective."""
    for rank in range(at.size):
        place = at._replace(rank=rank)
        yield from contract.input_blocks(place)
        yield from contract.output_contents(place)


def _fill(rank: _Rank, step: Step) -> None:
    """Add the steps of a round."""
    for move in step.moves_before:
        rank.add(_LOCAL, "cpy", move.source, move.target)
    for send in step.sends:
        rank.add(("send", send.peer), "s", _carried(send), None)
    folds, local = _fused(step)
    for receive in step.receives:
        piece = _carried(receive)
        fold = folds.get(piece)
        if fold:
            operand = fold.right if fold.left == piece else fold.left
            rank.add(("recv", receive.peer), "rrc", operand, fold.target)
        else:
            rank.add(("recv", receive.peer), "r", None, piece)
    for operation in local:
        if isinstance(operation, Move):
            rank.add(_LOCAL, "cpy", operation.source, operation.target)
            continue
        first, second = (operation.left, operation.right)[
            :: -1 if operation.target == operation.right else 1
        ]
        if first != operation.target:
            rank.add(_LOCAL, "cpy", first, operation.target)
        rank.add(_LOCAL, "re", second, operation.target)


def _carried(transfer: Transfer) -> Piece:
    if transfer.piece is None:
        raise Unsupported("MSCCL has no message without data, which this schedule sends")
    return transfer.piece


def _fused(step: Step) -> tuple[dict[Piece, Combine], list[Move | Combine]]:
    """Return the folds that receives can do themselves, by the received block, and the other work.

    What is still being sent is not folded into: a receive must not wait for a send of its round.
    """
    received = {operation.piece for operation in step.receives if _passing(operation)}
    sent = [send.piece for send in step.sends if send.piece]
    folds: dict[Piece, Combine] = {}
    for operation in step.actions_after:
        arriving = [piece for piece in operation[1:] if piece in received]
        if (
            isinstance(operation, Combine)
            and len(arriving) == 1
            and _is_alone(operation, step.actions_after, sent)
        ):
            folds[arriving[0]] = operation
    fused = [*folds.values()]
    return folds, [operation for operation in step.actions_after if operation not in fused]


def _passing(receive: Transfer) -> bool:
    """Whether a message is read in its round alone: scratch may be read again later."""
    return receive.piece is not None and receive.piece.buffer == STAGING


def _is_alone(fold: Combine, work: Sequence[Move | Combine], sent: Sequence[Piece]) -> bool:
    """Whether a fold may come first: nothing else writes what it touches, or uses its result."""
    remaining = [operation for operation in work if operation is not fold]
    used = [piece for operation in remaining for piece in operation]
    written = [operation.target for operation in remaining]
    return not overlaps(fold.target, [*used, *sent]) and not any(
        overlaps(piece, written) for piece in fold[1:]
    )


def _check(rank: _Rank, algorithm: Algorithm, size: int) -> None:
    """Raise Unsupported for a schedule that MSCCL's reader or interpreter does not take."""
    peers = max(sum(way == direction for way, _ in rank.blocks) for direction in ("send", "recv"))
    steps = max(map(len, rank.blocks.values()), default=0)
    for count, limit, unit in (
        (size, _MOST_RANKS, "ranks"),
        (peers, _MOST_PEERS, "peers of a rank one way"),
        (steps, _MOST_STEPS, "steps of a thread block"),
    ):
        if count > limit:
            raise Unsupported(f"MSCCL takes {limit} {unit}: {algorithm} has {count}")


def _write_action(
    parent: xml.Element, index: int, action: Action, numbers: dict[Block, int], awaited: bool
) -> None:
    block, step = action.dependency or (None, -1)
    source, target = action.source, action.target
    xml.SubElement(parent, "step", {
        "s": str(index), "type": action.kind,
        "srcbuf": _LETTERS[source.buffer] if source else "i",
        "srcoff": str(source.start if source else -1),
        "dstbuf": _LETTERS[target.buffer] if target else "o",
        "dstoff": str(target.start if target else -1),
        "cnt": str((source or target or Piece(INPUT, 0, 0)).length),
        "depid": str(numbers[block] if block else -1), "deps": str(step),
        "hasdep": str(int(awaited)),
    })  # fmt: skip

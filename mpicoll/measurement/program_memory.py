"""Estimate the memory that a schedule needs besides its arrays, from the program that would run."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from mpicoll.algorithms.registry import find
from mpicoll.backend import CMA, DIRECT, STAGED
from mpicoll.calls.arguments import Arguments
from mpicoll.calls.routes import NEVER
from mpicoll.collectives import Collectives
from mpicoll.errors import CollectiveError
from mpicoll.lowering import windows
from mpicoll.lowering.instructions import MESSAGES, Reach, SharedProgram
from mpicoll.lowering.messages import INPUT, OUTPUT, SCRATCH, Buffer, Combine
from mpicoll.lowering.shared_memory import share
from mpicoll.measurement.cases import CUDA, DEFAULT_ALGORITHMS, Group
from mpicoll.memory.segments import tile_of
from mpicoll.notation.elements import itemsize, reduce_op
from mpicoll.selection.auto import CHOOSERS
from mpicoll.tuning import FETCHED_ROW, WINDOW_SLOTS

_TILES = 8 * WINDOW_SLOTS
"""Tiles of the largest array in the program of an estimate: more are more work, not more memory.

Of fewer, an eighth of an array would pass through no window.
"""


class _Lowered(NamedTuple):
    """A program over shared memory, or by messages alone.

    Attributes:
        fetched: elements of the smallest message that is fetched from private memory.
        tile: elements of its tiles; `real`: of those of a run.
    """

    program: SharedProgram
    fetched: int = NEVER
    tile: int = NEVER
    real: int = NEVER


def program_bytes(group: Group, world: Collectives, name: str) -> int:
    """Return the bytes that a schedule needs besides its arrays; collective.

    0 for one that is refused, and the most that the usual ones need for a choice such as `auto`.
    """
    schedule, _, transport = name.partition("@")
    if schedule in CHOOSERS:
        usual = DEFAULT_ALGORITHMS[group.contract.name]
        return max(
            program_bytes(group, world, f"{usual_name}@{transport}".rstrip("@"))
            for usual_name in usual
        )
    lowered = _Lowered(SharedProgram())
    with suppress(CollectiveError):
        lowered = _lowered(group, world, schedule, transport)
    if group.device != CUDA:
        nbytes = lowered.real * itemsize(group.dtype)
        node = next(ranks for ranks in world.nodes if world.rank in ranks)
        windows.agree(lowered.program, world.rank, node, world.exchange, lowered.tile, nbytes)
    elements = _slots(lowered) + _buffers(lowered) + sum(lowered.program.scratch.values())
    return itemsize(group.dtype) * elements


def _lowered(group: Group, world: Collectives, schedule: str, transport: str) -> _Lowered:
    """Return the program of a schedule.

    Raises:
        CollectiveError: it is refused.
    """
    contract, width = group.contract, itemsize(group.dtype)
    chosen = find(contract.name, schedule)
    arguments = Arguments(
        contract, schedule, reduce_op(group.op), group.root, None, None, None, (group.width,),
        group.dtype, world.rank, world.size, group.in_place,
        "gpu" if group.device == CUDA else "host",
    )  # fmt: skip
    rounds = chosen.rounds(world.rank, world.size, group.root, world.nodes)
    inputs = rounds, *arguments.blocks(chosen.blocks(world.size))
    route = world.routes.check(arguments, transport)
    if route in (world.transport.name, DIRECT, STAGED):
        return _Lowered(share(*inputs, MESSAGES, in_place=group.in_place))
    node = frozenset(next(ranks for ranks in world.nodes if world.rank in ranks)) - {world.rank}
    if group.device == CUDA:
        everything = frozenset({INPUT, OUTPUT, SCRATCH})
        program = share(*inputs, Reach(node, everything, FETCHED_ROW // width, NEVER),
                        in_place=group.in_place)  # fmt: skip
        return _Lowered(program)
    readable = {INPUT, OUTPUT} if group.allocated or route == CMA else set[Buffer]()
    readable |= {SCRATCH} if route == CMA else set()
    fetched = FETCHED_ROW // width
    real = tile_of(route) // width
    tile = max(real, 1 + group.bytes_total // width // _TILES)
    reach = Reach(node, frozenset(readable), fetched, tile)
    program = share(*inputs, reach, in_place=group.in_place)
    return _Lowered(program, fetched if route == CMA else NEVER, tile, real)


def _slots(lowered: _Lowered) -> int:
    """Return the elements of the slots that messages are copied to."""
    return sum(
        publication.window.slots * lowered.real if publication.window else publication.piece.length
        for publication in lowered.program.publications
        if publication.piece and not publication.zero_copy
    )


def _buffers(lowered: _Lowered) -> int:
    """Return the elements of the buffers into which a rank fetches data to fold."""
    lengths = {
        (side, piece.length)
        for combine in lowered.program.instructions if isinstance(combine, Combine)
        for side, piece in (("left", combine.left), ("right", combine.right))
        if piece.buffer.is_remote
        and lowered.program.receipts[piece.buffer.number].length >= lowered.fetched
    }  # fmt: skip
    # What is folded tile by tile is fetched in tiles of a run.
    return sum(
        min(length, lowered.real) if length <= lowered.tile else length for _, length in lengths
    )

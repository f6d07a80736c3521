"""Estimate the memory that a schedule needs besides its arrays, from the program that would run."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from mpicoll.algorithms.registry import find
from mpicoll.backend import CMA, DIRECT, STAGED
from mpicoll.collectives import Collectives
from mpicoll.errors import CollectiveError
from mpicoll.gpu import ipc
from mpicoll.measurement.cases import CUDA, DEFAULT_ALGORITHMS, Group
from mpicoll.memory.segments import tile_of
from mpicoll.notation.elements import itemsize, reduce_op
from mpicoll.programs import windows
from mpicoll.programs.instructions import Reach, SharedProgram
from mpicoll.programs.messages import INPUT, OUTPUT, SCRATCH, Buffer, Combine, lower
from mpicoll.programs.parting import in_two_parts
from mpicoll.programs.shared_memory import share
from mpicoll.runtime.arguments import Arguments
from mpicoll.runtime.routes import NEVER
from mpicoll.selection.auto import CHOOSERS

_ZERO_COPY = 512 * 1024
"""Bytes of the smallest message that is surely read where it is."""
_TILES = 8 * windows.SLOTS
"""Tiles of the largest array in the program of an estimate: more are more work, not more memory.

Of fewer, an eighth of an array would pass through no window.
"""


class _Lowered(NamedTuple):
    """A program over shared memory; of one by messages its scratch memory alone.

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
    schedule, _, asked = name.partition("@")
    if schedule in CHOOSERS:
        usual = DEFAULT_ALGORITHMS[group.what.name]
        return max(program_bytes(group, world, f"{each}@{asked}".rstrip("@")) for each in usual)
    found = _Lowered(SharedProgram())
    with suppress(CollectiveError):
        found = _lowered(group, world, schedule, asked)
    if world.routes.has_executor and group.device != CUDA:
        nbytes = found.real * itemsize(group.dtype)
        windows.agree(found.program, world.rank, world.exchange, found.tile, nbytes)
    elements = _slots(found) + _buffers(found) + sum(found.program.scratch.values())
    return itemsize(group.dtype) * elements


def _lowered(group: Group, world: Collectives, schedule: str, asked: str) -> _Lowered:
    """Return the program of a schedule.

    Raises:
        CollectiveError: it is refused.
    """
    what, width = group.what, itemsize(group.dtype)
    chosen = find(what.name, schedule)
    arguments = Arguments(
        what, schedule, reduce_op(group.op), group.root, None, None, None, (group.width,),
        group.dtype, world.rank, world.size, group.in_place,
        "gpu" if group.device == CUDA else "host",
    )  # fmt: skip
    rounds = chosen.rounds(world.rank, world.size, group.root, world.nodes)
    given = rounds, *arguments.blocks(chosen.blocks(world.size))
    route = world.routes.check(arguments, asked)
    if route in (world.transport.name, DIRECT, STAGED):
        by_messages = lower(*given, in_place=group.in_place)
        return _Lowered(SharedProgram(scratch=by_messages.scratch))
    node = frozenset(next(each for each in world.nodes if world.rank in each)) - {world.rank}
    if group.device == CUDA:
        everything = frozenset({INPUT, OUTPUT, SCRATCH})
        program = share(*given, Reach(node, everything, ipc.ZERO_COPY // width, NEVER),
                        in_place=group.in_place)  # fmt: skip
        return _Lowered(program)
    readable = {INPUT, OUTPUT} if group.allocated or route == CMA else set[Buffer]()
    readable |= {SCRATCH} if route == CMA else set()
    least = _ZERO_COPY // width
    largest = max(given[1].values(), default=0) * width
    if world.routes.fetches_part(arguments, route, largest):
        given = in_two_parts(*given)
    real = tile_of(
        route, compiled=world.routes.has_executor, block=largest, one_way=what.one_way,
    ) // width  # fmt: skip
    tile = max(real, 1 + group.bytes_total // width // _TILES)
    private = frozenset(set() if group.allocated else readable)
    reach = Reach(node, frozenset(readable), least, tile, private=private)
    program = share(*given, reach, in_place=group.in_place)
    return _Lowered(program, least if route == CMA else NEVER, tile, real)


def _slots(found: _Lowered) -> int:
    """Return the elements of the slots that messages are copied to."""
    return sum(
        each.window.slots * found.real if each.window else each.piece.length
        for each in found.program.publications
        if each.piece and not each.zero_copy
    )


def _buffers(found: _Lowered) -> int:
    """Return the elements of the buffers into which a rank fetches data to fold."""
    lengths = {
        (side, piece.length)
        for each in found.program.instructions if isinstance(each, Combine)
        for side, piece in (("left", each.left), ("right", each.right))
        if piece.buffer.is_remote
        and found.program.receipts[piece.buffer.number].length >= found.fetched
    }  # fmt: skip
    # What is folded tile by tile is fetched in tiles of a run.
    return sum(min(length, found.real) if length <= found.tile else length for _, length in lengths)

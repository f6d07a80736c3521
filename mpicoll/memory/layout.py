"""Lay a program's publications out in the memory of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpicoll.backend import Array, GpuStore, SharedMemory
from mpicoll.errors import Unavailable, first_error
from mpicoll.lowering import windows
from mpicoll.lowering.instructions import SharedProgram
from mpicoll.lowering.messages import Buffer, Kind, Piece
from mpicoll.memory.slots import Layout, LayoutTable, Published, SharedResources, match
from mpicoll.notation.elements import itemsize


class LaidOut(NamedTuple):
    """A program whose publications have their places in the memory of all ranks.

    Attributes:
        incoming: the publication that each of its receipts reads.
    """

    layout: Layout
    incoming: list[Published]
    resources: SharedResources

    def slot_of(self, piece: Piece) -> tuple[int, Published] | None:
        """Return the rank that publishes a piece, and the publication; None for other memory."""
        number = piece.buffer.number
        if piece.buffer.kind is Kind.SLOT:
            return self.layout.memory.rank, self.layout.published[number]
        if piece.buffer.is_remote:
            return self.layout.program.receipts[number].peer, self.incoming[number]
        return None


def lay_out(
    program: SharedProgram, memory: SharedMemory, buffers: dict[Buffer, Array], dtype: str, *,
    label: str, meets: bool, like: Array | None, store: GpuStore | None, tile: int,
) -> LaidOut:  # fmt: skip
    """Find room for the publications of a program, on all ranks; collective.

    Args:
        buffers: the input and the output, where others may read them in place.
        label: the operation, for an error's text.
        meets: no rank ends a run before all have begun it.
        like: scratch memory lies on the device of this array.
        store: the memory of its bytes; None for that of its flags.
        tile: elements of a tile that large messages may pass by through a window, 0 for none.

    Raises:
        Unavailable: there is no memory left, or a rank cannot share or open some; on all ranks.
        ScheduleError: a rank expects other messages than another sends.
    """
    if tile:
        nbytes = tile * itemsize(dtype)
        windows.agree(program, memory.rank, memory.intra_node, memory.exchange, tile, nbytes)
    resources = SharedResources(deadline=lambda: memory.wait_policy.deadline, leave=memory.leave)
    resources.number = memory.enter(resources)
    failure = ""
    try:
        for name, n in program.scratch.items():
            buffers[name] = memory.arrays.empty((n,), dtype, like)
    # On a GPU that is full, CuPy raises the one and torch the other.
    except (Unavailable, MemoryError, RuntimeError) as error:
        failure = f"rank {memory.rank}: {error}"
    resources.buffers += buffers.values()
    layout = Layout(memory, store, program, buffers, dtype, meets, resources, circulates=bool(tile))
    try:
        tables = _exchange(memory, layout, failure)
    except Unavailable:
        resources.free()
        raise
    match(tables, memory.intra_node, label)
    incoming = [
        tables[receipt.peer].published[tables[receipt.peer].sent[memory.rank][receipt.order]]
        for receipt in program.receipts
    ]
    # While messages of the library travel, a host waits.
    layout.by_streams = layout.words is not None and not any(table.posts for table in tables)
    if store is not None:
        _open(layout, store, incoming)
    if tile:
        received = [number for number, publication in enumerate(incoming) if publication.window]
        layout.program = windows.through_windows(program, tile, received)
    return LaidOut(layout, incoming, resources)


def _open(layout: Layout, store: GpuStore, incoming: Sequence[Published]) -> None:
    """Map the memory of other ranks that a program reads, and its flags, on all ranks or on none.

    In its first run, a rank that cannot would leave the others waiting.
    """
    memory, resources, failure = layout.memory, layout.resources, ""
    try:
        for publication in incoming:
            if publication.private is not None:
                _, alive = store.foreign(publication.private, 0, "uint8", 0)
                resources.opened.append(alive)
        if layout.words:
            for receipt, publication in zip(layout.program.receipts, incoming, strict=True):
                layout.words.word(receipt.peer, publication.segment, 0)
            # All of this rank's own lie in one area.
            layout.words.word(memory.rank, *layout.progress)
    except Unavailable as error:
        failure = f"rank {memory.rank}: {error}"
    if failure := first_error(memory.exchange(failure)):
        resources.free()
        raise Unavailable(f"GPU memory cannot be shared: {failure}")


def _exchange(memory: SharedMemory, layout: Layout, failure: str) -> list[LayoutTable]:
    """Return the layouts of all ranks, growing the memory until each has room."""
    while True:
        retired = memory.take_retired()
        table = layout.table(memory.under_way, failure)
        tables: list[LayoutTable] = memory.exchange(table, LayoutTable)
        memory.give_back(retired, frozenset().union(*(entry.under_way for entry in tables)))
        if failure := first_error(entry.failure for entry in tables):
            raise Unavailable(failure)
        flags, data = (max(entry.lacks[kind] for entry in tables) for kind in (0, 1))
        if flags:
            memory.grow(flags)
        if data:
            layout.store.grow(data)
        if not flags and not data:
            return tables

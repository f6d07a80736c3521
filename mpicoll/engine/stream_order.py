"""Bind a program over GPU memory so that streams, instead of hosts, keep its order.

A host puts a run on the stream and goes on. Each reader of a publication has a word, which is
*empty* or counts the tiles that are there: the publisher's stream writes it once their bytes are,
the reader's stream waits until it is high enough, and empties it once it has read all. No number
of a run is in it, so that a CUDA graph can repeat a run.

What it relies on, in the words of the CUDA driver API (stream memory operations):

- CUstreamWriteValue_flags: "Normally, cuStreamWriteValue32 will provide a memory fence before the
  write, which has similar semantics to __threadfence_system() but is scoped to the stream rather
  than a CUDA thread". So whoever sees a word full sees the bytes, on another GPU and in another
  process, too; and whoever sees it empty may write them again. Ranks write their own memory and
  read that of others: CU_STREAM_WAIT_VALUE_FLUSH, for "outstanding remote writes", is not needed.
- cuStreamWaitValue32: "enqueues a synchronization of the stream on the given memory location. Work
  ordered after the operation will block until the given condition on the memory is satisfied."
- CUstreamWaitValue_flags: "CU_STREAM_WAIT_VALUE_GEQ: Wait until (int32_t)(*addr - value) >= 0";
  "CU_STREAM_WAIT_VALUE_EQ: Wait until *addr == value".
- cuStreamBatchMemOp: "The operations are enqueued in the order they appear in the array".
- "Synchronization ordering established through this API is not visible to CUDA. CUDA tasks that are
  (even indirectly) ordered by this API should also have that order expressed with CUDA-visible
  dependencies such as events. This ensures that the scheduler does not serialize them in an
  improper order" (the same). In a process, all that a wait orders is behind it on its stream, and
  the runs of a plan on other streams follow by events (`mpicoll.gpu.streams`). Streams that share a
  hardware queue may wait for each other's work beyond that: in the order in which it was put there,
  as we understand "improper", though no sentence says so. All ranks start their plans in one order,
  so that the oldest run, for which the others wait, waits for none of them.
- "Loading kernels might require context synchronization" (CUDA programming guide, lazy loading): a
  host may have to wait in the middle of putting a run there, for what is on its stream already.
  That is no more than hosts wait which keep the order themselves, and so no circle.
- cuMemHostRegister page-locks memory of the host, which these calls take by the address that
  cuMemHostGetDevicePointer returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpicoll.backend import Batch, WordOperation
from mpicoll.engine.device_table import DeviceTable
from mpicoll.engine.runs import PlanStream
from mpicoll.engine.stream_watch import Awaited, StreamWatch
from mpicoll.lowering.fusing import Fused
from mpicoll.lowering.instructions import (
    Acknowledge,
    Await,
    Instruction,
    Publish,
    WaitForReaders,
    WaitForSlot,
)
from mpicoll.memory.slots import Published

_EMPTY = 0


class StreamTable(DeviceTable):
    """The rows of a program that waits on the GPU alone: callbacks, none of which waits."""

    def __init__(self, *args: Any, stream: PlanStream, **options: Any) -> None:
        super().__init__(*args, **options)
        assert self.laid_out is not None
        layout = self.laid_out.layout
        assert layout.words is not None
        self.gpu_words, self.stream = layout.words, stream
        self.place = self.gpu_words.word(self.shared.rank, *layout.progress)
        # At each position of a run, what its stream waits for there.
        self.awaited: list[list[Awaited]] = [[]]
        self.operations = [WordOperation(self.place, 0, waits=False)]
        self.batches: list[Batch] = []
        self.here: list[Awaited] = []

    def fill(self) -> None:
        super().fill()
        self.operations.append(WordOperation(self.place, 0, waits=False))
        self._put()
        self.stream.watch = self._watch()

    def call(self, callback: Callable[..., object], *operands: Any) -> None:
        self._put()
        super().call(callback, *operands)

    def _watch(self) -> StreamWatch:
        """Return the watch over the runs."""
        assert self.laid_out is not None
        segment, start = self.laid_out.layout.progress
        words = self.shared.words[self.shared.rank][segment]
        begin = self.batches[0].set_first
        return StreamWatch(self.shared, self.resources, words, start // 8, self.awaited, begin)

    def _put(self) -> None:
        """Let a callback put the words' operations since the last one on the stream."""
        operations, self.operations = self.operations, []
        if self.here:
            # Of a run that does not end, the watch must know where it is; its number comes first.
            operations.insert(
                not self.batches, WordOperation(self.place + 8, len(self.awaited), waits=False)
            )
            self.awaited.append(self.here)
            self.here = []
        if not operations:
            return
        self.batches.append(self.gpu_words.gpu.batch(operations))
        put, stream = self.batches[-1].put, self.stream
        super().call(lambda: put(stream.current.handle))

    def _add(self, instruction: Instruction | Fused, number: int, total: int) -> None:
        if isinstance(instruction, Publish):
            publication = self.published[instruction.publication]
            if not publication.length:
                self._wait_for_readers(publication, number, total)  # of a signal, nobody else waits
            message = self.program.publications[instruction.publication]
            announced = instruction.tile + 1 if publication.flags else message.tiles
            for word in publication.acknowledge.values():
                self._write(self.shared.rank, publication.segment, word, announced)
        elif isinstance(instruction, Await):
            peer, publication = self._sender(instruction.receipt)
            word = publication.acknowledge[self.shared.rank]
            self._wait_for(
                peer, publication.segment, word, instruction.tile + 1, peer, number, total
            )
        elif isinstance(instruction, Acknowledge):
            peer, publication = self._sender(instruction.receipt)
            word = publication.acknowledge[self.shared.rank]
            self._write(peer, publication.segment, word, _EMPTY)
        elif isinstance(instruction, WaitForSlot | WaitForReaders):
            self._wait_for_readers(self.published[instruction.publication], number, total)
        else:
            super()._add(instruction, number, total)

    def _wait_for_readers(self, publication: Published, number: int, total: int) -> None:
        for reader, word in publication.acknowledge.items():
            self._wait_for(
                self.shared.rank, publication.segment, word, _EMPTY, reader, number, total
            )

    def _write(self, rank: int, segment: int, word: int, value: int) -> None:
        address = self.gpu_words.word(rank, segment, word)
        self.operations.append(WordOperation(address, value, waits=False))

    def _wait_for(
        self, rank: int, segment: int, word: int, value: int, peer: int, number: int, total: int
    ) -> None:
        address = self.gpu_words.word(rank, segment, word)
        self.operations.append(WordOperation(address, value, waits=True))
        words = self.shared.words[rank][segment]
        self.here.append(Awaited(words, word // 8, value, self._context(number, total, peer)))

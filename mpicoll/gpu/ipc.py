"""GPU memory that the ranks of a node read directly: the transport ``ipc``.

Flags stay in host memory (`mpicoll.memory.segments`), bytes stay on the GPUs. Streams raise flags
and wait for them where the driver lets them; elsewhere a host does, once its stream has done the
work that the flag announces. Whoever has seen it reads the memory by kernels and copies of its own.
Any allocation of the driver can be opened by the other processes, so that large messages never move
before they are used; where a framework's allocator gives memory without handles, they pass through
slots in segments of the driver's own. Several ranks may share one GPU, and the MPI below need know
nothing of it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from mpicoll.backend import (
    Array,
    Arrays,
    Exported,
    Gpu,
    Location,
    SharedMemory,
    Thunk,
    WordOperation,
)
from mpicoll.errors import CollectiveError, Unavailable, brief, first_error
from mpicoll.lowering.instructions import Reach
from mpicoll.lowering.messages import SCRATCH, Buffer
from mpicoll.memory.allocator import LINE, FirstFit
from mpicoll.memory.segments import FIRST
from mpicoll.notation.elements import itemsize
from mpicoll.text.numbers import whole
from mpicoll.tuning import FETCHED_ROW, GPU_TILE

SWITCH, ORDER, TILE = "MPICOLL_IPC", "MPICOLL_STREAM_ORDER", "MPICOLL_IPC_TILE"
_OFF = ("0", "off", "no", "false")
_MOST_TILE = 1 << 40
_PATTERN = 0x5A
_TEST_VALUE = 0x5A5A


class GpuMemory:
    """`Store` in the GPU memory of one group's ranks on this node; made by all of them together.

    Args:
        gpu: the driver of the GPU of `like`, an array of this rank.

    Attributes:
        peers: the ranks of this node with which this one shares it, by either's reading.
        partial: why some pair of ranks of this node does not; empty where all do. Their messages
            travel as those between nodes.
        orders: streams wait for flags and raise them; `unordered` says why hosts do instead.
        synchronize: waits for this rank's stream: the work that a flag announces must be done.
        tile: bytes of the tiles of a message, of each of which its readers learn; 0 where they
            learn of the message as a whole.
    """

    orders, unordered = False, ""
    tile = 0

    def __init__(self, host: SharedMemory, arrays: Arrays, gpu: Gpu, like: Array) -> None:
        self.host, self.arrays, self.gpu = host, arrays, gpu
        # Not the caller's own array, which would live as long as the group.
        self.like = arrays.empty((1,), "uint8", like)
        # It "waits until the device has completed all operations in the stream"
        # (cuStreamSynchronize): also reads of other ranks' memory, as an acknowledgement announces.
        self.synchronize: Thunk = partial(arrays.synchronize, self.like)
        self.allocator = FirstFit()
        self.opened: weakref.WeakValueDictionary[bytes, _Opened] = weakref.WeakValueDictionary()
        self.segments: dict[int, list[tuple[int, object]]] = {rank: [] for rank in host.intra_node}
        self.words: dict[tuple[int, int], tuple[int, object]] = {}
        self.peers, self.partial = host.others, ""
        # A rank says that others may use the memory of its plans again when its own GPU has done
        # all that these put there (cuCtxSynchronize "blocks until the current context has
        # completed all preceding requested tasks"): what it read of other ranks in the end, nobody
        # waits for.
        host.before_reuse.append(gpu.synchronize)
        # A stream would go on with the page that was there when it was registered.
        host.releases = False

    def open(self) -> None:
        """Allocate the first segment, and find out which ranks share theirs; collective.

        Raises:
            Unavailable: on all ranks, where one shares with nobody.
        """
        lost = self._grow(FIRST, opens_all=False)
        lost |= self._misread(lost)
        every = self.host.exchange(lost, dict[int, str])
        local_rank, self.partial = (
            self.host.rank,
            first_error(why for reasons in every for why in reasons.values()),
        )
        self.peers = frozenset(
            rank for rank in self.host.others if rank not in lost and local_rank not in every[rank]
        )
        for rank in self.host.others - self.peers:
            del self.segments[rank]
        is_alone = bool(self.host.others) and not self.peers
        if any(self.host.exchange(is_alone, bool)):
            self._release_all()
            raise Unavailable(f"GPU memory cannot be shared: {self.partial}")
        self.unordered = first_error(self.host.exchange(self._unordered()))
        self.orders = not self.unordered
        self.tile = self._tile()

    def _tile(self) -> int:
        """Return the bytes of a tile; collective.

        Where ranks share a GPU, all messages pass through its one memory, and to begin one earlier
        delays another. Where hosts keep the order, each flag makes one wait for the GPU.
        """
        answers = self.host.exchange((self.gpu.identity, asked_tile()), tuple[str, int | None])
        gpus = {answer[0] for answer in answers}
        tile: int | None = answers[0][1]
        if not self.orders or self.partial or len(self.host.intra_node) < len(answers):
            return 0
        if tile is not None:
            return tile
        return GPU_TILE if len(gpus) == len(answers) else 0

    def _unordered(self) -> str:
        """Return why the streams of this rank cannot wait for flags, or raise them."""
        if os.environ.get(ORDER, "").lower() in _OFF:
            return f"{ORDER} turns it off"
        try:
            for rank in self.host.intra_node:
                self.word(rank, 0, 0)
            self._try_word()
        except Unavailable as error:
            return f"rank {self.host.rank}: {error}"
        return ""

    def _try_word(self) -> None:
        """Let a stream write a word and wait for it.

        "CUDA_ERROR_NOT_SUPPORTED" is among the results of cuStreamBatchMemOp, and no attribute of a
        device says where: a first run that finds it out on one rank would leave the others waiting.

        Raises:
            Unavailable: the driver, or this GPU, does not let streams do that.
        """
        area = self.host.allocator.take(LINE)
        if area is None:
            return  # the first plan takes more, and finds no room either
        rank, words = self.host.rank, self.host.words[self.host.rank][area.segment]
        words[area.start // 8] = 0
        at = self.word(rank, area.segment, area.start)
        operations = [WordOperation(at, _TEST_VALUE, waits) for waits in (False, True)]
        try:
            stream = self.arrays.current_stream(self.arrays.gpu(self.like))
            self.gpu.batch(operations).put(stream.handle)
            self.arrays.synchronize(self.like)
            if words[area.start // 8] != _TEST_VALUE:
                raise Unavailable("what a stream writes to memory of the host does not arrive")
        finally:
            self.host.allocator.give(area)

    def word(self, rank: int, segment: int, offset: int) -> int:
        mapping = self.words.get((rank, segment))
        if mapping is None:
            address, owner = self.host.address(rank, segment)
            nbytes = 8 * len(self.host.words[rank][segment])
            registration = _registered.get(address) or _Registered(address, owner)
            mapping = self.words[rank, segment] = registration.reach(self.gpu, nbytes), registration
        return mapping[0] + offset

    def grow(self, nbytes: int) -> None:
        """Allocate one more segment on every rank's GPU, and open those of the peers."""
        self._grow(nbytes)

    def _grow(self, nbytes: int, *, opens_all: bool = True) -> dict[int, str]:
        """Add a segment; return the peers whose segment cannot be opened, each with why.

        Raises:
            Unavailable: on all ranks, where one cannot allocate or share its own, or open those of
                all peers if it must.
        """
        nbytes = max(nbytes, FIRST)
        address, location, failure = 0, None, ""
        try:
            address = self.gpu.allocate(nbytes)
            location = self.gpu.export(address)
        except Unavailable as error:
            failure = f"rank {self.host.rank}: {error}"
        everywhere = self.host.exchange(location, Exported | None)
        segments: dict[int, tuple[int, object]] = {self.host.rank: (address, None)}
        lost: dict[int, str] = {}
        for rank in self.peers:
            try:
                if everywhere[rank] is not None:
                    segments[rank] = self._mapped(everywhere[rank])
            except Unavailable as error:
                lost[rank] = f"rank {self.host.rank} cannot open the memory of rank {rank}: {error}"
        if opens_all:
            failure = failure or first_error(lost.values())
        if failure := first_error(self.host.exchange(failure)):
            self._unmap_and_free([segments])
            raise Unavailable(f"GPU memory cannot be shared: {failure}")
        for rank, segment in segments.items():
            self.segments[rank].append(segment)
        self.allocator.add(nbytes)
        return lost

    def _unmap_and_free(self, segments: list[dict[int, tuple[int, object]]]) -> None:
        """Unmap segments, and free this rank's own when all ranks have; collective.

        "Calling cuMemFree on an exported memory region before calling cuIpcCloseMemHandle in the
        importing context will result in undefined behavior" (cuIpcOpenMemHandle).
        """
        addresses = [segment[self.host.rank][0] for segment in segments]
        for segment in segments:
            segment.clear()
        self.host.exchange(None)
        for address in filter(None, addresses):
            with suppress(Unavailable):
                self.gpu.free(address)

    def close(self) -> None:
        """Free the segments, unless some rank holds a plan that may use them; collective."""
        # Where the group has ended, they stay as long as the process.
        with suppress(CollectiveError):
            if not any(self.host.exchange(self.host.in_use, bool)):
                self.gpu.synchronize()
                self._release_all()
                self.words.clear()

    def _release_all(self) -> None:
        ranks = self.segments
        rows = zip(*ranks.values(), strict=True)
        segments = [dict(zip(ranks, row, strict=True)) for row in rows]
        self.segments = {rank: [] for rank in ranks}
        self._unmap_and_free(segments)

    def _misread(self, lost: Collection[int]) -> dict[int, str]:
        """Read every peer but those; return who cannot be read, and why; collective."""
        rank = self.host.rank
        mine = self.array(rank, 0, 0, "uint8", 1)
        self.arrays.from_host(mine, [_mark(rank)])
        self.arrays.synchronize(mine)
        self.host.exchange(None)
        errors: dict[int, str] = {}
        for peer in self.peers - set(lost):
            read = self.arrays.empty((1,), "uint8", self.like)
            self.arrays.copier(read, self.array(peer, 0, 0, "uint8", 1))()
            if int(self.arrays.to_host(read)[0]) != _mark(peer):
                errors[peer] = f"rank {rank} reads something else than rank {peer} wrote"
        return errors

    def array(self, rank: int, segment: int, start: int, dtype: str, count: int) -> Array:
        address, _ = self.segments[rank][segment]
        return self.arrays.at(address + start, dtype, count, self.like)

    def find(self, array: Array) -> tuple[int, int] | None:
        """Return None: this rank's segments hold slots only."""
        return None

    def locate(self, array: Array) -> Exported:
        """Return the handle of an array's allocation, and the array's offset in it."""
        return self.gpu.export(self.arrays.span(array)[0])

    def foreign(
        self, location: Location, start: int, dtype: str, count: int
    ) -> tuple[Array, object]:
        """Return an array over another rank's memory, and the object that keeps it mapped."""
        handle, offset = location
        assert isinstance(handle, bytes)
        opened = self._open(handle)
        address = opened.address + offset + start
        return self.arrays.at(address, dtype, count, self.like), opened

    def _mapped(self, location: Exported) -> tuple[int, _Opened]:
        """Return the address of another rank's memory here, and the owner of the mapping."""
        opened = self._open(location.handle)
        return opened.address + location.offset, opened

    def _open(self, handle: bytes) -> _Opened:
        """Open an allocation, once for all that use it: the driver opens none twice."""
        allocation = self.opened.get(handle)
        if allocation is None:
            allocation = self.opened[handle] = _Opened(self.gpu, handle)
        return allocation

    def reach(self, buffers: dict[Buffer, Array], dtype: str, *, private: bool = True) -> Reach:
        """Return the buffers that others read in place, and the smallest zero-copy message.

        Args:
            private: whether to let others read private memory at all.
        """
        names = {name for name, array in buffers.items() if private and self._is_exportable(array)}
        if private and names == set(buffers):
            # It comes from the same allocator; where it cannot be shared, all ranks learn it.
            names.add(SCRATCH)
        width = itemsize(dtype)
        tile = max(1, self.tile // width) if self.tile else 1 << 62
        min_elements = FETCHED_ROW // width
        return Reach(self.peers, frozenset(names), min_elements, tile, announces=bool(self.tile))

    def _is_exportable(self, array: Array) -> bool:
        start, stop = self.arrays.span(array)
        if start == stop:
            return False
        try:
            self.locate(array)
        except Unavailable:
            return False
        return True


def asked_tile() -> int | None:
    """Return the bytes of a tile that the environment asks for, None where it does not.

    Raises:
        Unavailable: it asks for something else.
    """
    text = os.environ.get(TILE)
    tile = None if text is None else whole(text, _MOST_TILE)
    if text is not None and tile is None:
        raise Unavailable(f"{TILE}={brief(text)} is no number of bytes up to {_MOST_TILE}")
    return tile


def _mark(rank: int) -> int:
    """Return the byte that a rank writes to be recognised."""
    return (_PATTERN ^ rank) & 0xFF


class _Opened:
    """An allocation of another process, mapped as long as somebody uses it."""

    def __init__(self, gpu: Gpu, handle: bytes) -> None:
        self.address = gpu.open(handle)
        weakref.finalize(self, _close, gpu, self.address).atexit = False


def _close(gpu: Gpu, address: int) -> None:
    # A driver that is shutting down has closed it.
    with suppress(Unavailable):
        gpu.close(address)


class _Registered:
    """Memory of the host that GPUs of this process reach, mapped as long as one of them may.

    A group may go without being freed. If its memory were unmapped then and stayed registered, the
    driver would take what is mapped there next for registered already, and streams would wait for
    words in pages that no rank has any more.
    """

    def __init__(self, address: int, owner: object) -> None:
        self.address, self.gpus = address, list[Gpu]()
        weakref.finalize(self, _unregister, self.gpus, address, owner).atexit = False
        _registered[address] = self

    def reach(self, gpu: Gpu, nbytes: int) -> int:
        """Return the address of the memory for one more GPU."""
        gpu_address = gpu.register(self.address, nbytes)
        self.gpus.append(gpu)
        return gpu_address


_registered: weakref.WeakValueDictionary[int, _Registered] = weakref.WeakValueDictionary()


def _unregister(gpus: list[Gpu], address: int, _owner: object) -> None:
    for gpu in gpus:
        with suppress(Unavailable):
            gpu.synchronize()
    for gpu in gpus:
        with suppress(Unavailable):  # what one GPU has registered, it unregisters for all
            gpu.unregister(address)


def open_gpu_memory(
    shared: SharedMemory | None, unshared: str, driver: Callable[[], Gpu], like: Array
) -> tuple[GpuMemory | None, str]:
    """Return the GPU memory of a group, or None and why there is none; collective.

    Args:
        shared: the group's memory on the host; `unshared` says why there is none.
        driver: returns the GPU driver, or raises Unavailable.
        like: an array on this rank's GPU.
    """
    if shared is None:
        return None, unshared
    why = ""
    try:
        if os.environ.get(SWITCH, "").lower() in _OFF:
            raise Unavailable(f"{SWITCH} turns it off")
        asked_tile()
        gpu = driver()
    except Unavailable as error:
        why = f"rank {shared.rank}: {error}"
    if why := first_error(shared.exchange(why)):
        return None, why
    store = GpuMemory(shared, shared.arrays, gpu, like)
    try:
        store.open()
    except Unavailable as error:
        return None, str(error)
    return store, ""

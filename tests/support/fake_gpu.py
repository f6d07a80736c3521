"""Fake GPUs: memory that needs a handle to be shared, and work that happens later.

What is put on a stream happens only when somebody waits for the stream, so that whoever
forgets to wait hands out stale memory, as on a real one; a stream that waits for a word of another
process does so by a thread. Copies by the library below (an MPI
that reads GPU memory) happen at once. Page-locked memory that is freed is handed out again at
once, though a copy from there may be queued.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
import weakref
from bisect import bisect, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import numpy as np

from mpicoll import ArgumentError, Collectives, Unavailable
from mpicoll.backend import Exported, WordOperation
from mpicoll.engine import extension
from mpicoll.memory.allocator import Area, FirstFit
from mpicoll.notation.elements import itemsize

SIZE = 256 << 20
GPUS = 2
_EACH = SIZE // GPUS
_FOR_GPU = 1 << 60
KINDS: dict[tuple[str, int], int] = {}
"""Added to an address of the host that a GPU reaches."""


class Stream:
    """`mpicoll.backend.Stream`: work in order, done when it is waited for."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.handle = gpu, self
        self.lock, self.guard = threading.RLock(), threading.Lock()
        self.goes_on = False
        self.work: deque[Callable[[], object]] = deque()
        self.capturing = False
        gpu.streams.append(self)

    @contextmanager
    def use(self) -> Iterator[None]:
        before, self.gpu.current = self.gpu.current, self
        yield
        self.gpu.current = before

    def follow(self, other: Stream) -> None:
        self.work.append(other.synchronize)

    def is_capturing(self) -> bool:
        return self.capturing

    def synchronize(self) -> None:
        with self.lock:
            while self.work:
                self.work.popleft()()

    def go_on(self) -> None:
        """Do the work a little later though nobody waits, as other processes wait for it."""
        with self.guard:
            if not self.goes_on:
                self.goes_on = True
                threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(0.001)
            self.synchronize()
            with self.guard:
                if not self.work:
                    self.goes_on = False
                    return


class Memory:
    """The memory of a process's fake GPUs: an anonymous file that other processes can map.

    Attributes:
        allocator: of each GPU's part.
        opened: what this process has mapped of others.
    """

    def __init__(self) -> None:
        self.file = os.memfd_create("fake gpu")
        os.truncate(self.file, SIZE)
        self.memory = mmap.mmap(self.file, SIZE)
        self.view = memoryview(self.memory)
        self.base = _address(self.memory)
        self.opened: dict[int, mmap.mmap] = {}
        self.bases = [self.base]

    def open(self, memory: mmap.mmap) -> int:
        """Return the address of another process's memory, mapped here."""
        address = _address(memory)
        self.opened[address] = memory
        insort(self.bases, address)
        return address

    def offset(self, address: int) -> int | None:
        """Return where an address lies in the memory of its process, None for the host's."""
        index = bisect(self.bases, address) - 1
        offset = address - self.bases[index]
        return offset if index >= 0 and offset < SIZE else None

    def holds(self, address: int) -> bool:
        return self.base <= address < self.base + SIZE

    def gpu_of(self, address: int) -> int:
        """Return the number of the GPU of an address, which may be another process's."""
        offset = self.offset(address)
        assert offset is not None
        return offset // _EACH


class Gpu:
    """`mpicoll.backend.Gpu` over a part of that memory.

    Attributes:
        pooled: why what the framework allocates has no handle; empty where it has.
        refuses: why nothing has one.
        closed: why nothing can be opened.
        unordered: why no stream can wait for words; `wordless` where only the first one shows it.
        registered: the memory of the host that it reaches, by address.
        current: the caller's stream.
    """

    def __init__(self, memory: Memory, number: int) -> None:
        self.memory, self.number = memory, number
        self.allocator = FirstFit()
        self.allocator.add(_EACH)
        self.segments: dict[int, Area] = {}
        self.pooled = self.refuses = self.closed = self.unordered = self.wordless = ""
        self.registered: dict[int, int] = {}
        self.streams: list[Stream] = []
        self.current = Stream(self)

    @property
    def identity(self) -> str:
        return f"fake {self.number}"

    def take(self, nbytes: int) -> Area:
        area = self.allocator.take(nbytes)
        assert area is not None
        return area._replace(start=area.start + self.number * _EACH)

    def give(self, area: Area) -> None:
        self.allocator.give(area._replace(start=area.start - self.number * _EACH))

    def allocate(self, nbytes: int) -> int:
        area = self.take(nbytes)
        self.segments[self.memory.base + area.start] = area
        return self.memory.base + area.start

    def free(self, address: int) -> None:
        area = self.segments.pop(address)
        # Whoever still reads it must be seen to be wrong.
        self.memory.view[area.start : area.start + area.length] = b"\xff" * area.length
        self.give(area)

    def export(self, address: int) -> Exported:
        ours = any(each <= address < each + area.length for each, area in self.segments.items())
        if why := self.refuses or ("" if ours else self.pooled):
            raise Unavailable(why)
        if not self.memory.holds(address):
            raise Unavailable("not GPU memory")
        name = f"/proc/{os.getpid()}/fd/{self.memory.file}".encode()
        name += b"\0segment" if ours else b"\0pool"
        return Exported(name.ljust(64, b"\0"), address - self.memory.base)

    def open(self, handle: bytes) -> int:
        if self.closed:
            raise Unavailable(self.closed)
        file = os.open(handle.partition(b"\0")[0].decode(), os.O_RDWR)
        memory = mmap.mmap(file, SIZE)
        os.close(file)
        return self.memory.open(memory)

    def close(self, address: int) -> None:
        # Arrays may still point there: reading them must be seen to be wrong, not crash.
        self.memory.opened[address][:4096] = bytes(4096)

    def register(self, address: int, nbytes: int) -> int:
        if self.unordered:
            raise Unavailable(self.unordered)
        self.registered[address] = nbytes
        return address + _FOR_GPU

    def unregister(self, address: int) -> None:
        if self.registered.pop(address, None) is None:
            raise Unavailable("not registered")

    def batch(self, operations: Sequence[WordOperation]) -> Batch:
        return Batch(self, list(operations))

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()


class Batch:
    """`mpicoll.backend.Batch`."""

    def __init__(self, gpu: Gpu, operations: list[WordOperation]) -> None:
        self.gpu, self.operations = gpu, operations

    def set_first(self, value: int) -> None:
        self.operations[0] = self.operations[0]._replace(value=value)

    def put(self, stream: Stream) -> None:
        if self.gpu.wordless:
            raise Unavailable(self.gpu.wordless)
        reached = self.gpu.registered.items()
        for each in self.operations:
            at = each.address - _FOR_GPU
            assert any(start <= at < start + nbytes for start, nbytes in reached)
        stream.work.append(partial(self._do, tuple(self.operations)))
        stream.go_on()

    def _do(self, operations: tuple[WordOperation, ...]) -> None:
        for each in operations:
            word = ctypes.c_uint32.from_address(each.address - _FOR_GPU)
            if not each.waits:
                word.value = each.value
            while each.waits and (word.value < each.value if each.value else word.value):
                time.sleep(20e-6)


class Stopwatch:
    """`mpicoll.backend.Stopwatch` by the clock of the host."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.begin, self.end = gpu, 0, 0

    def start(self) -> None:
        self.begin = time.perf_counter_ns()

    def stop(self) -> None:
        self.gpu.current.synchronize()
        self.end = time.perf_counter_ns()

    def nanoseconds(self) -> int:
        return self.end - self.begin


class Arrays:
    """A backend's arrays, some of them on fake GPUs."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.memory = inner, Memory()
        self.gpus = [Gpu(self.memory, number) for number in range(GPUS)]
        # The first bytes of each are the array that others are made like.
        for each in self.gpus:
            each.take(4096)
        self.fused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def is_on_host(self, x: Any) -> bool:
        if x is None:
            return True
        start, stop = self.inner.span(x)
        # Of an empty array the backend may forget where it lay.
        return start != stop and self.memory.offset(start) is None

    def gpu(self, x: Any) -> int:
        start, _ = self.inner.span(x)
        return self.memory.gpu_of(start) if self.memory.holds(start) else 0

    def gpu_name(self, x: Any) -> str:
        return "fake"

    def current_stream(self, gpu: int) -> Stream:
        return self.gpus[gpu].current

    def stream(self, like: Any) -> Stream:
        """Return the caller's stream on the GPU of an array."""
        return self.current_stream(self.gpu(like))

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any = None) -> Any:
        if self.is_on_host(like):
            return self.inner.empty(shape, dtype)
        gpu = self.gpus[self.gpu(like)]
        area = gpu.take(max(64, prod(shape) * itemsize(dtype)))
        owner = np.frombuffer(self.memory.view[area.start : area.start + area.length], np.uint8)
        weakref.finalize(owner, gpu.give, area).atexit = False
        if prod(shape):
            return self.inner.over(owner.data, dtype, shape)
        return self.inner.over(owner.data, dtype, (1,))[:0].reshape(shape)

    def on_gpu(self, turn: int) -> Any:
        start = turn % GPUS * _EACH
        return self.inner.over(self.memory.view[start : start + 64], "uint8", (64,))

    def at(self, address: int, dtype: str, count: int, like: Any) -> Any:
        memory = (ctypes.c_char * max(1, count * itemsize(dtype))).from_address(address)
        return self.inner.over(memoryview(memory).cast("B"), dtype, (count,))

    def layout(self) -> None:
        """Only `describe` knows the arrays on a GPU here, which are of the host's type."""

    def describe(self, x: Any) -> tuple[int, int, int, tuple[int, ...]] | None:
        if not self.inner.owns(x) or self.inner.unfit(x, written=True):
            return None
        try:
            self.inner.flat(x)
        except ArgumentError:
            return None
        start, stop = self.span(x)
        place = -1 if self.is_on_host(x) else self.gpu(x)
        kind = KINDS.setdefault((self.inner.dtype(x), place), len(KINDS))
        return start, stop - start, kind, tuple(x.shape)

    def copy(self, target: Any, source: Any) -> None:
        self.copier(target, source)()

    def copier(self, target: Any, source: Any) -> Callable[[], object]:
        return self._put(self.inner.copier(target, source), target, source)

    def folder(self, op: Any, lhs: Any, rhs: Any, out: Any) -> Callable[[], object]:
        return self._put(self.inner.folder(op, lhs, rhs, out), out, lhs, rhs)

    def fuser(self, op: Any, operands: Any, steps: Any, out: Any) -> Callable[[], object] | None:
        """Fold step by step into memory of its own, and write once at the end."""
        if op.function is not None:
            return None

        def fold() -> None:
            found = list(operands)
            for left, right in steps:
                result = self.inner.empty(tuple(out.shape), self.inner.dtype(out))
                self.inner.folder(op, found[left], found[right], result)()
                found.append(result)
            self.inner.copier(out, found[-1])()
            self.fused += 1

        return self._put(fold, out)

    def divider(self, x: Any, divisor: int) -> Callable[[], object]:
        return self._put(self.inner.divider(x, divisor), x)

    def _put(self, thunk: Callable[[], object], *touched: Any) -> Callable[[], object]:
        like = next((each for each in touched if not self.is_on_host(each)), None)
        if like is None:
            return thunk
        gpu = self.gpus[self.gpu(like)]
        return lambda: gpu.current.work.append(thunk)

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self.gpus[0])

    def to_host(self, x: Any) -> Any:
        self.synchronize(x)
        return self.inner.to_host(x)

    def from_host(self, x: Any, values: Any) -> None:
        if self.is_on_host(x):
            self.inner.from_host(x, values)
            return
        kept = np.array(values)
        self.stream(x).work.append(lambda: self.inner.from_host(x, kept))

    def synchronize(self, x: Any) -> None:
        if not self.is_on_host(x):
            self.stream(x).synchronize()


class Copies:
    """`mpicoll.gpu.staging.Copies` over the fake streams."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.pool: dict[int, list[bytearray]] = {}
        self.asked = 0

    def allocate(self, data: Any) -> Any:
        dtype = self.arrays.dtype(data)
        free = self.pool.setdefault(max(64, len(data) * itemsize(dtype)), [])
        block = free.pop() if free else bytearray(max(64, len(data) * itemsize(dtype)))
        owner = np.frombuffer(block, np.uint8)
        weakref.finalize(owner, free.append, block).atexit = False
        return self.arrays.inner.over(owner.data, dtype, (max(1, len(data)),))[: len(data)]

    def copy(self, target: Any, source: Any) -> Stream:
        self.arrays.copier(target, source)()
        return self.arrays.stream(target if self.arrays.is_on_host(source) else source)

    def is_done(self, event: Stream) -> bool:
        """Say so at every other question only."""
        self.asked += 1
        if self.asked % 2 and event.work:
            return False
        event.synchronize()
        return True


def install(c: Collectives) -> Arrays:
    """Give a group a GPU; `mpicoll.Collectives.gpu` then returns an array there."""
    transport: Any = c.transport
    arrays = Arrays(transport.arrays)
    transport.arrays, transport.copies = arrays, Copies(arrays)
    transport.driver = arrays.gpus.__getitem__
    if transport.shared is not None:
        transport.shared.arrays = arrays
    c._call = c.plans.table = extension.plan_table(transport, c._slow, c.plans._give_up)
    if c.backend == "torch":
        import torchcoll.natives

        # gloo copies CUDA tensors by streams of its own, which it does not know these to have.
        torchcoll.natives.GLOO_ON_GPU = ()
    return arrays


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))

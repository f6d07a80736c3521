"""A fake GPU: memory that needs a handle to be shared, and work that happens later.

What is put on its stream happens only when somebody waits for the stream, so that whoever
forgets to wait hands out stale memory, as on a real one. Copies by the library below (an MPI
that reads GPU memory) happen at once.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from mpicoll import Collectives, Unavailable
from mpicoll.interfaces import Exported
from mpicoll.memory.allocator import FirstFit
from mpicoll.notation.elements import itemsize

SIZE = 256 << 20


class Stream:
    """Work in order, done when it is waited for."""

    def __init__(self) -> None:
        self.work: deque[Callable[[], object]] = deque()

    def put(self, thunk: Callable[[], object]) -> Callable[[], None]:
        return lambda: self.work.append(thunk)

    def synchronize(self) -> None:
        while self.work:
            self.work.popleft()()


class Gpu:
    """`mpicoll.gpu.driver.Gpu` over an anonymous file that other processes can map."""

    def __init__(self) -> None:
        self.file = os.memfd_create("fake gpu")
        os.truncate(self.file, SIZE)
        self.memory = mmap.mmap(self.file, SIZE)
        self.view = memoryview(self.memory)
        self.base = _address(self.memory)
        self.allocator = FirstFit()
        self.allocator.add(SIZE)
        self.opened: dict[int, mmap.mmap] = {}
        self.refuses = ""

    def holds(self, address: int) -> bool:
        return self.base <= address < self.base + SIZE

    def export(self, address: int) -> Exported:
        if self.refuses or not self.holds(address):
            raise Unavailable(self.refuses or "not GPU memory")
        name = f"/proc/{os.getpid()}/fd/{self.file}".encode()
        return Exported(name.ljust(64, b"\0"), address - self.base)

    def open(self, handle: bytes) -> int:
        file = os.open(handle.rstrip(b"\0").decode(), os.O_RDWR)
        memory = mmap.mmap(file, SIZE)
        os.close(file)
        self.opened[_address(memory)] = memory
        return _address(memory)

    def close(self, address: int) -> None:
        # Arrays may still point there: reading them must be seen to be wrong, not crash.
        self.opened[address][:4096] = bytes(4096)


class Stopwatch:
    """`mpicoll.interfaces.Stopwatch` by the clock of the host."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.begin, self.end = stream, 0, 0

    def start(self) -> None:
        self.begin = time.perf_counter_ns()

    def stop(self) -> None:
        self.stream.synchronize()
        self.end = time.perf_counter_ns()

    def nanoseconds(self) -> int:
        return self.end - self.begin


class Arrays:
    """A backend's arrays, some of them on the fake GPU."""

    def __init__(self, inner: Any, gpu: Gpu) -> None:
        self.inner, self.gpu, self.stream = inner, gpu, Stream()
        self.fused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def is_on_host(self, x: Any) -> bool:
        if x is None:
            return True
        start, stop = self.inner.span(x)
        if start == stop:
            return False  # an empty array lies nowhere, and these tests make them here only
        foreign = any(each <= start < each + SIZE for each in self.gpu.opened)
        return not (foreign or self.gpu.holds(start))

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any = None) -> Any:
        if self.is_on_host(like):
            return self.inner.empty(shape, dtype)
        area = self.gpu.allocator.take(max(64, prod(shape) * itemsize(dtype)))
        assert area is not None
        owner = np.frombuffer(self.gpu.view[area.start : area.start + area.length], np.uint8)
        weakref.finalize(owner, self.gpu.allocator.give, area).atexit = False
        if prod(shape):
            return self.inner.over(owner.data, dtype, shape)
        return self.inner.over(owner.data, dtype, (1,))[:0].reshape(shape)

    def on_gpu(self, turn: int) -> Any:
        owner = self.gpu.view[:64]
        return self.inner.over(owner, "uint8", (64,))

    def at(self, address: int, dtype: str, count: int, like: Any) -> Any:
        memory = (ctypes.c_char * max(1, count * itemsize(dtype))).from_address(address)
        return self.inner.over(memoryview(memory).cast("B"), dtype, (count,))

    def copier(self, target: Any, source: Any) -> Callable[[], object]:
        return self._put(self.inner.copier(target, source), target, source)

    def folder(self, op: Any, left: Any, right: Any, out: Any) -> Callable[[], object]:
        return self._put(self.inner.folder(op, left, right, out), left, right, out)

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
        return thunk if all(map(self.is_on_host, touched)) else self.stream.put(thunk)

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self.stream)

    def to_host(self, x: Any) -> Any:
        self.stream.synchronize()
        return self.inner.to_host(x)

    def from_host(self, x: Any, values: Any) -> None:
        if self.is_on_host(x):
            self.inner.from_host(x, values)
            return
        kept = np.array(values)
        self.stream.work.append(lambda: self.inner.from_host(x, kept))

    def synchronize(self, x: Any) -> None:
        if not self.is_on_host(x):
            self.stream.synchronize()


class Copies:
    """`mpicoll.gpu.staging.Copies` over the fake stream."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def allocate(self, data: Any) -> Any:
        return self.arrays.inner.empty((len(data),), self.arrays.dtype(data))

    def copy(self, target: Any, source: Any) -> Stream:
        self.arrays.copier(target, source)()
        return self.arrays.stream


def install(c: Collectives) -> Arrays:
    """Give a group a GPU; `mpicoll.Collectives.gpu` then returns an array there."""
    transport: Any = c.transport
    gpu = Gpu()
    arrays = Arrays(transport.arrays, gpu)
    # The first bytes are the array that others are made like.
    gpu.allocator.take(4096)
    transport.arrays, transport.copies, transport.driver = arrays, Copies(arrays), lambda: gpu
    if transport.shared is not None:
        transport.shared.arrays = arrays
    if c.backend == "torch":
        import torchcoll.natives

        # gloo copies CUDA tensors by streams of its own, which it does not know these to have.
        torchcoll.natives.GLOO_ON_GPU = ()
    return arrays


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))

"""The calls of the CUDA driver, against a fake of its bindings; the real ones without a driver."""

from __future__ import annotations

import ctypes
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mpicoll import Unavailable
from mpicoll.backend import WordOperation
from mpicoll.gpu import driver
from mpicoll.gpu.driver import Driver

REFUSED = 0x7F0000000000


class CUipcMemHandle:
    """64 bytes, reached by an address as in cuda-bindings."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(64)

    def getPtr(self) -> int:
        return ctypes.addressof(self.memory)


class Bindings(ModuleType):
    """`cuda.bindings.driver`: every function returns its status, then its results.

    Every value shows whether it arrived as it should.
    """

    CUipcMemHandle = CUipcMemHandle
    CUipcMem_flags = SimpleNamespace(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS=1)

    def __init__(self, loads: bool = True) -> None:
        super().__init__("cuda.bindings.driver")
        self.loads = loads
        self.calls: list[str] = []
        self.current: list[str] = []

    def cuInit(self, flags: int) -> Any:
        if not self.loads:
            raise RuntimeError("Failed to dlopen libcuda.so.1")
        return (flags,)

    CUresult = SimpleNamespace(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED=712)

    def cuMemHostRegister(self, address: int, nbytes: int, flags: int) -> Any:
        assert flags == 3 and self._in_context()
        return ({0x1000: 0, 0x2000: 712}.get(address, 801),)

    def cuMemHostGetDevicePointer(self, address: int, flags: int) -> Any:
        return (0, address + 7) if flags == 0 and self._in_context() else (1, None)

    CUdevice_attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_MPS_ENABLED=133)

    def cuDeviceGet(self, number: int) -> Any:
        return (0, number) if number < 2 else (101, None)

    def cuDeviceGetCount(self) -> Any:
        return 0, 2

    def cuDeviceGetUuid(self, device: int) -> Any:
        return 0, SimpleNamespace(bytes=bytes([device] * 16))

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> Any:
        return 0, int(attribute == 133 and device == 1)

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return 0, f"context {device}"

    def cuCtxPushCurrent(self, context: str) -> Any:
        self.current.append(context)
        return (0,)

    def cuCtxPopCurrent(self) -> Any:
        return 0, self.current.pop()

    def _in_context(self) -> bool:
        """Whether the calling thread has the context of the GPU; it had none before."""
        return self.current == ["context 1"]

    def cuMemAlloc(self, nbytes: int) -> Any:
        return (0, 0x7E0000000000) if self._in_context() and nbytes < 1 << 40 else (2, None)

    def cuMemFree(self, address: int) -> Any:
        self.calls.append(f"free {address:#x}")
        return (0 if self._in_context() else 201,)

    def cuMemGetAddressRange(self, at: int) -> Any:
        if not self._in_context():
            return 201, None, None
        return (0, at & ~0xFFFF, 0x10000) if at else (1, None, None)

    def cuIpcGetMemHandle(self, base: int) -> Any:
        handle = CUipcMemHandle()
        handle.memory.raw = base.to_bytes(8, "little") + bytes([7] * 55 + [9])
        return (801, None) if base == REFUSED else (0, handle)

    def cuIpcOpenMemHandle(self, handle: CUipcMemHandle, flags: int) -> Any:
        raw = handle.memory.raw
        right = raw[30] == 7 and raw[63] == 9 and flags == 1 and self._in_context()
        return (0, int.from_bytes(raw[:8], "little") + 0x100000000) if right else (1, None)

    def cuCtxSynchronize(self) -> Any:
        self.calls.append("synchronize")
        return (0 if self._in_context() else 201,)

    def cuIpcCloseMemHandle(self, address: int) -> Any:
        self.calls.append(f"close {address:#x}")
        return (0,)

    def cuGetErrorString(self, status: int) -> Any:
        return (0, b"operation not supported") if status == 801 else (1, None)


def install(monkeypatch: pytest.MonkeyPatch, bindings: Bindings) -> None:
    package: Any = ModuleType("cuda.bindings")
    package.driver = bindings
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)


def test_an_allocation_is_opened_by_its_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Bindings())
    gpu = Driver(1)
    exported = gpu.export(0x7E0000012345)
    assert exported.offset == 0x2345
    assert len(exported.handle) == 64
    assert gpu.open(exported.handle) == 0x7E0000010000 + 0x100000000


def test_an_allocation_is_closed_after_the_work_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = Bindings()
    install(monkeypatch, bindings)
    Driver(1).close(0x7E0100010000)
    assert bindings.calls == ["synchronize", "close 0x7e0100010000"]


def test_memory_of_the_drivers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = Bindings()
    install(monkeypatch, bindings)
    gpu = Driver(1)
    gpu.free(gpu.allocate(1024))
    gpu.synchronize()
    assert bindings.calls == ["free 0x7e0000000000", "synchronize"]
    with pytest.raises(Unavailable, match="cuMemAlloc: CUDA error 2"):
        gpu.allocate(1 << 40)
    assert bindings.current == []


def test_processes_know_a_gpu_that_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Bindings())
    assert [Driver(number).identity for number in (0, 1)] == ["00" * 16, "01" * 16]
    assert [Driver(number).uses_mps for number in (0, 1)] == [False, True]
    monkeypatch.setattr(Bindings, "CUdevice_attribute", SimpleNamespace())
    assert not Driver(1).uses_mps


def test_an_instance_of_a_gpu_has_an_identity_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before CUDA 13 the first version of the call names the whole GPU."""
    install(monkeypatch, Bindings())
    second = lambda self, device: (0, SimpleNamespace(bytes=bytes([7] * 16)))  # noqa: E731
    monkeypatch.setattr(Bindings, "cuDeviceGetUuid_v2", second, raising=False)
    assert Driver(1).identity == "07" * 16


def test_a_gpu_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Bindings())
    with pytest.raises(Unavailable, match="cuDeviceGet: CUDA error 101"):
        Driver(2)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (REFUSED + 1, "cuIpcGetMemHandle: operation not supported"),
        (0, "cuMemGetAddressRange: CUDA error 1"),
    ],
)
def test_a_refusal_has_the_drivers_words(
    monkeypatch: pytest.MonkeyPatch, address: int, message: str
) -> None:
    install(monkeypatch, Bindings())
    with pytest.raises(Unavailable, match=message):
        Driver(1).export(address)


@pytest.mark.parametrize("address", [0x1000, 0x2000])
def test_memory_of_the_host_is_registered_once(
    monkeypatch: pytest.MonkeyPatch, address: int
) -> None:
    """Another group of the process may have registered it."""
    install(monkeypatch, Bindings())
    assert Driver(1).register(address, 4096) == address + 7
    with pytest.raises(Unavailable, match="cuMemHostRegister: operation not supported"):
        Driver(1).register(0x3000, 4096)


class Library:
    """The functions of libcuda.so.1 that a batch calls."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.calls: list[object] = []

    def cuCtxPushCurrent_v2(self, context: ctypes.c_void_p) -> int:
        self.calls.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, _context: object) -> int:
        self.calls.append("pop")
        return 0

    def cuStreamBatchMemOp_v2(self, stream: int, count: int, given: Any, flags: int) -> int:
        self.calls.append((stream, [each.value for each in given], flags))
        assert len(given) == count
        return self.status if count < 256 else 1


@pytest.mark.parametrize("status", [0, 801])
def test_a_batch_is_put_on_a_stream_of_its_context(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    library = Library(status)
    monkeypatch.setattr(driver, "_with_operations", lambda: library)
    batch = driver.Batch(9, [WordOperation(64, 5, waits=False), WordOperation(72, 6, waits=True)])
    batch.set_first(8)
    for stream in (0, 77):
        with pytest.raises(Unavailable, match="801") if status else nullcontext():
            batch.put(stream)
    assert library.calls == [9, (0, [8, 6], 0), "pop", (77, [8, 6], 0)]


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_batch_brings_its_context_where_a_thread_may_have_another(
    gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Bindings())
    monkeypatch.setattr(Bindings, "cuDeviceGetCount", lambda self: (0, gpus))
    library = Library(0)
    monkeypatch.setattr(driver, "_with_operations", lambda: library)
    gpu = Driver(1)
    gpu.context = 9
    gpu.batch([WordOperation(64, 5, waits=False)]).put(77)
    put = (77, [5], 0)
    assert library.calls == ([put] if gpus == 1 else [9, put, "pop"])


def test_many_operations_are_put_by_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number "must be less than 256" (cuStreamBatchMemOp)."""
    library = Library(0)
    monkeypatch.setattr(driver, "_with_operations", lambda: library)
    batch = driver.Batch(9, [WordOperation(8 * n, n, waits=False) for n in range(600)])
    batch.set_first(7)
    batch.put(77)
    values = [value for call in library.calls if isinstance(call, tuple) for value in call[1]]
    assert values == [7, *range(1, 600)]


class WithoutContext(Library):
    """In a thread that has no context until one is pushed."""

    def cuStreamBatchMemOp_v2(self, stream: int, count: int, given: Any, flags: int) -> int:
        if self.calls[-1:] != [9]:
            return driver.NO_CONTEXT
        return super().cuStreamBatchMemOp_v2(stream, count, given, flags)


def test_a_thread_that_has_no_context_is_lent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    library = WithoutContext(0)
    monkeypatch.setattr(driver, "_with_operations", lambda: library)
    driver.Batch(9, [WordOperation(64, 5, waits=False)]).put(77)
    assert library.calls == [9, (77, [5], 0), "pop"]


@pytest.mark.parametrize(("waits", "value"), [(False, 3), (True, 3), (True, 0)])
def test_an_operation_lies_as_the_bindings_have_it(waits: bool, value: int) -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    made = bindings.CUstreamBatchMemOpParams()
    kinds = bindings.CUstreamBatchMemOpType
    part = made.waitValue if waits else made.writeValue
    part.operation = (
        kinds.CU_STREAM_MEM_OP_WAIT_VALUE_32 if waits else kinds.CU_STREAM_MEM_OP_WRITE_VALUE_32
    )
    part.address, part.value = bindings.CUdeviceptr(1 << 40), value
    flags = bindings.CUstreamWaitValue_flags
    how = flags.CU_STREAM_WAIT_VALUE_GEQ if value else flags.CU_STREAM_WAIT_VALUE_EQ
    default = bindings.CUstreamWriteValue_flags.CU_STREAM_WRITE_VALUE_DEFAULT
    part.flags = int(how if waits else default)
    ours = driver.operation(WordOperation(1 << 40, value, waits))
    assert bytes(ours) == ctypes.string_at(made.getPtr(), ctypes.sizeof(ours))
    assert ctypes.sizeof(ours) == 48


def test_a_wrong_handle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Bindings())
    with pytest.raises(Unavailable, match="cuIpcOpenMemHandle: CUDA error 1"):
        Driver(1).open(bytes(64))


def test_a_driver_that_does_not_load_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Bindings(loads=False))
    with pytest.raises(Unavailable, match=r"no CUDA driver: Failed to dlopen libcuda\.so\.1"):
        Driver(0)


def test_missing_bindings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(Unavailable, match=r"no cuda-bindings .*mpicoll\[cuda13\]"):
        Driver(0)


def test_the_real_bindings_without_a_driver() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    try:
        bindings.cuDriverGetVersion()
    except RuntimeError:
        with pytest.raises(Unavailable, match="no CUDA driver: "):
            Driver(0)
    else:
        pytest.skip("there is a driver")


def test_the_real_handle_holds_64_bytes_at_its_address() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    handle = bindings.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), bytes(range(64)), 64)
    assert ctypes.string_at(handle.getPtr(), 64) == bytes(range(64))
    assert int(bindings.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == 1

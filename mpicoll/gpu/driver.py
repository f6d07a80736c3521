"""The calls of the CUDA driver that share GPU memory between processes.

They serve CuPy and torch alike: both work in the device's primary context, which the calls use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from mpicoll.backend import Exported, WordOperation
from mpicoll.errors import Unavailable

_HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE
_PORTABLE_AND_MAPPED = 0x01 | 0x02  # CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP
_NULL_STREAMS = (0, 1, 2)
"""The default streams of whichever context is the calling thread's."""
_WAIT, _WRITE = 1, 2  # CU_STREAM_MEM_OP_WAIT_VALUE_32, _WRITE_VALUE_32
_AT_LEAST, _EQUAL = 0, 1  # CU_STREAM_WAIT_VALUE_GEQ, _EQ
_WITH_BARRIER = 0  # CU_STREAM_WRITE_VALUE_DEFAULT
_MOST_OPERATIONS = 255
"""Of one call: their number "must be less than 256" (cuStreamBatchMemOp)."""
NO_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT: "this most frequently indicates that there is no context bound to the
current thread", as in one that has not used the GPU by the CUDA runtime."""
_MPS = "CU_DEVICE_ATTRIBUTE_MPS_ENABLED"


class Driver:
    """`Gpu` over cuda-bindings (CUDA driver API, section 6.13, memory management).

    Args:
        device: the GPU's number, as CUDA_VISIBLE_DEVICES shows it.

    Raises:
        Unavailable: cuda-bindings, the driver or the GPU is missing.
    """

    def __init__(self, device: int) -> None:
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise Unavailable(
                f"no cuda-bindings ({error}): pip install 'mpicoll[cuda12]' or 'mpicoll[cuda13]'"
            ) from None
        self.driver: Any = driver
        try:
            self._call("cuInit", 0)
        except RuntimeError as error:  # the first call loads the driver
            raise Unavailable(f"no CUDA driver: {error}") from None
        (self.device,) = self._call("cuDeviceGet", device)
        (count,) = self._call("cuDeviceGetCount")
        self.is_alone = count == 1
        # It is never released: CuPy and torch hold it, too, as long as the process lives.
        (self.context,) = self._call("cuDevicePrimaryCtxRetain", self.device)

    @property
    def identity(self) -> str:
        # Of an instance of a GPU that is partitioned (MIG), the first version is the whole GPU's;
        # from CUDA 13 on the second one has its name.
        second = hasattr(self.driver, "cuDeviceGetUuid_v2")
        name = "cuDeviceGetUuid_v2" if second else "cuDeviceGetUuid"
        (uuid,) = self._call(name, self.device)
        return bytes(uuid.bytes).hex()

    @property
    def uses_mps(self) -> bool:
        """Whether the Multi-Process Service runs this process's work beside that of others.

        "Without MPS, when processes share the GPU their scheduling resources must be swapped on and
        off the GPU" (NVIDIA, Multi-Process Service), at each hand-over from one to another.
        """
        attribute = getattr(self.driver.CUdevice_attribute, _MPS, None)
        if attribute is None:
            return False
        (value,) = self._call("cuDeviceGetAttribute", attribute, self.device)
        return bool(value)

    def allocate(self, nbytes: int) -> int:
        """Allocate memory that has a handle, whatever the framework's allocator gives.

        cuIpcGetMemHandle takes "an existing device memory allocation created with cuMemAlloc":
        neither a memory pool's (cudaMallocAsync) nor a mapped one (expandable segments).
        """
        with self._current():
            (address,) = self._call("cuMemAlloc", nbytes)
        return int(address)

    def free(self, address: int) -> None:
        with self._current():
            self._call("cuMemFree", address)

    def export(self, address: int) -> Exported:
        """Return the handle of the allocation around an address, and the offset in it."""
        with self._current():
            base, _ = self._call("cuMemGetAddressRange", address)
            (handle,) = self._call("cuIpcGetMemHandle", base)
        return Exported(ctypes.string_at(handle.getPtr(), _HANDLE_BYTES), address - int(base))

    def open(self, handle: bytes) -> int:
        """Map an allocation of another process; kernels of this device then reach it."""
        driver_handle = self.driver.CUipcMemHandle()
        ctypes.memmove(driver_handle.getPtr(), handle, _HANDLE_BYTES)
        lazy = self.driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        with self._current():
            (address,) = self._call("cuIpcOpenMemHandle", driver_handle, int(lazy))
        return int(address)

    def close(self, address: int) -> None:
        """Wait for the device, and unmap."""
        with self._current():
            self._call("cuCtxSynchronize")
            self._call("cuIpcCloseMemHandle", address)

    def synchronize(self) -> None:
        """Wait for all work on the device that this process has put there."""
        with self._current():
            self._call("cuCtxSynchronize")

    # -- words that streams wait for and write ------------------------------------------------

    def register(self, address: int, nbytes: int) -> int:
        """Let kernels and streams reach memory of the host; return its address for them."""
        status = self.driver.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
        with self._current():
            # Portable: another GPU of this process may have registered it.
            result = self.driver.cuMemHostRegister(address, nbytes, _PORTABLE_AND_MAPPED)
            if result[0] != status:
                self._checked("cuMemHostRegister", result)
            (mapped,) = self._call("cuMemHostGetDevicePointer", address, 0)
        return int(mapped)

    def unregister(self, address: int) -> None:
        """Undo `register`."""
        with self._current():
            self._call("cuMemHostUnregister", address)

    def batch(self, operations: Sequence[WordOperation]) -> Batch:
        """Return operations that a stream takes together."""
        return Batch(int(self.context), operations, pushes=not self.is_alone)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make the primary context the calling thread's, which may have another one, or none."""
        self._call("cuCtxPushCurrent", self.context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent")

    def _call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Return the results of a function of the driver, without its status.

        Raises:
            Unavailable: the status is an error; the message is the driver's.
        """
        return self._checked(name, getattr(self.driver, name)(*arguments))

    def _checked(self, name: str, returned: Sequence[Any]) -> tuple[Any, ...]:
        status, *results = returned
        if int(status):
            _, text = self.driver.cuGetErrorString(status)
            raise Unavailable(f"{name}: {text.decode() if text else f'CUDA error {int(status)}'}")
        return tuple(results)


class _Operation(ctypes.Structure):
    """CUstreamBatchMemOpParams, which waits and writes lay out alike."""

    _fields_ = (
        ("operation", ctypes.c_uint),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("alias", ctypes.c_uint64),
        ("pad", ctypes.c_uint64),
    )


def operation(word_operation: WordOperation) -> _Operation:
    """Return an operation as the driver takes it."""
    if not word_operation.waits:
        return _Operation(_WRITE, word_operation.address, word_operation.value, _WITH_BARRIER)
    return _Operation(
        _WAIT,
        word_operation.address,
        word_operation.value,
        _AT_LEAST if word_operation.value else _EQUAL,
    )


@cache
def library() -> ctypes.CDLL:
    """Return the driver itself, for calls that its bindings make slowly or not at all.

    Raises:
        OSError: there is none.
    """
    return ctypes.CDLL("libcuda.so.1")


@cache
def _with_operations() -> ctypes.CDLL:
    driver = library()
    driver.cuStreamBatchMemOp_v2.argtypes = (
        ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint,
    )  # fmt: skip
    return driver


class Batch:
    """Operations on words, made once and put on a stream in every run.

    The driver is called directly, as its Python bindings make every operation anew in every call.

    Args:
        context: of the GPU on whose streams they are put.
        pushes: whether a thread may have the context of another GPU: no sentence of the driver's
            documentation says that a stream of this one may then be given.
    """

    def __init__(
        self, context: int, operations: Sequence[WordOperation], *, pushes: bool = False
    ) -> None:
        self.library, self.context = _with_operations(), ctypes.c_void_p(context)
        self.pushes = pushes
        params = [*map(operation, operations)]
        parts = [
            params[at : at + _MOST_OPERATIONS] for at in range(0, len(params), _MOST_OPERATIONS)
        ]
        self.parts = [(len(part), (_Operation * len(part))(*part)) for part in parts]

    def put(self, stream: int) -> None:
        """Put them on a stream.

        Raises:
            Unavailable: the driver refuses.
        """
        pushes = self.pushes or stream in _NULL_STREAMS
        status = NO_CONTEXT if pushes else self._put(stream)
        if status == NO_CONTEXT:
            self.library.cuCtxPushCurrent_v2(self.context)
            try:
                status = self._put(stream)
            finally:
                self.library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        if status:
            raise Unavailable(f"cuStreamBatchMemOp: CUDA error {status}")

    def _put(self, stream: int) -> int:
        """Return the driver's status; work that is put on a stream later comes later."""
        for count, part in self.parts:
            if status := self.library.cuStreamBatchMemOp_v2(stream, count, part, 0):
                return int(status)
        return 0

    def set_first(self, value: int) -> None:
        """Set the value of the first operation, for the next `put`."""
        self.parts[0][1][0].value = value

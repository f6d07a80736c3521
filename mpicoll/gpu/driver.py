"""The calls of the CUDA driver that share GPU memory between processes.

They serve CuPy and torch alike: both work in the device's primary context, which the calls use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mpicoll.errors import Unavailable
from mpicoll.interfaces import Exported

_HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE
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
        # It is never released: CuPy and torch hold it, too, as long as the process lives.
        (self.context,) = self._call("cuDevicePrimaryCtxRetain", self.device)

    @property
    def identity(self) -> str:
        """The GPU's own number, by which processes know that they share it."""
        (found,) = self._call("cuDeviceGetUuid", self.device)
        return bytes(found.bytes).hex()

    @property
    def uses_mps(self) -> bool:
        """Whether the Multi-Process Service runs this process's work beside that of others.

        "Without MPS, when processes share the GPU their scheduling resources must be swapped on and
        off the GPU" (NVIDIA, Multi-Process Service), at each hand-over from one to another.
        """
        attribute = getattr(self.driver.CUdevice_attribute, _MPS, None)
        if attribute is None:
            return False
        (found,) = self._call("cuDeviceGetAttribute", attribute, self.device)
        return bool(found)

    def allocate(self, nbytes: int) -> int:
        """Allocate memory that has a handle, whatever the framework's allocator gives.

        cuIpcGetMemHandle takes "an existing device memory allocation created with cuMemAlloc":
        neither a memory pool's (cudaMallocAsync) nor a mapped one (expandable segments).
        """
        with self._current():
            (address,) = self._call("cuMemAlloc", nbytes)
        return int(address)

    def free(self, address: int) -> None:
        """Free what `allocate` returned, which no other process may have open."""
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
        given = self.driver.CUipcMemHandle()
        ctypes.memmove(given.getPtr(), handle, _HANDLE_BYTES)
        lazy = self.driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        with self._current():
            (address,) = self._call("cuIpcOpenMemHandle", given, int(lazy))
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
        status, *results = getattr(self.driver, name)(*arguments)
        if int(status):
            _, text = self.driver.cuGetErrorString(status)
            raise Unavailable(f"{name}: {text.decode() if text else f'CUDA error {int(status)}'}")
        return tuple(results)

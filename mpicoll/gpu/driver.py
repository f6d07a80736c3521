"""The calls of the CUDA driver that share GPU memory between processes.

They serve CuPy and torch alike: both work in the device's primary context, which the calls use.
"""

from __future__ import annotations

import ctypes
from typing import Any

from mpicoll.errors import Unavailable
from mpicoll.interfaces import Exported

_HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE


class Driver:
    """`Gpu` over cuda-bindings (CUDA driver API, section 6.13, memory management).

    Raises:
        Unavailable: cuda-bindings or the driver is missing.
    """

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise Unavailable(
                f"no cuda-bindings ({error}): pip install 'mpicoll[cuda12]' or 'mpicoll[cuda13]'"
            ) from None
        self.driver: Any = driver
        try:
            self._call("cuDriverGetVersion")
        except RuntimeError as error:  # the first call loads the driver
            raise Unavailable(f"no CUDA driver: {error}") from None

    def export(self, address: int) -> Exported:
        """Return the handle of the allocation around an address, and the offset in it."""
        base, _ = self._call("cuMemGetAddressRange", address)
        (handle,) = self._call("cuIpcGetMemHandle", base)
        return Exported(ctypes.string_at(handle.getPtr(), _HANDLE_BYTES), address - int(base))

    def open(self, handle: bytes) -> int:
        """Map an allocation of another process; kernels of this device then reach it."""
        given = self.driver.CUipcMemHandle()
        ctypes.memmove(given.getPtr(), handle, _HANDLE_BYTES)
        lazy = self.driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        (address,) = self._call("cuIpcOpenMemHandle", given, int(lazy))
        return int(address)

    def close(self, address: int) -> None:
        """Wait for the device, and unmap."""
        self._call("cuCtxSynchronize")
        self._call("cuIpcCloseMemHandle", address)

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

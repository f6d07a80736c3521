"""The part of the CUDA driver that sharing GPU memory takes, the same for CuPy and torch.

Both libraries work in the device's primary context, in which the driver's calls find it.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Protocol

from mpicoll.errors import Unavailable

_LIBRARY = "libcuda.so.1"
_HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE
_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class Exported(NamedTuple):
    """An address as another process can find it: in an allocation that has a handle."""

    handle: bytes
    offset: int


class Gpu(Protocol):
    """What sharing needs of a GPU driver."""

    def export(self, address: int) -> Exported:
        """Return what opens the allocation around an address in another process.

        Raises:
            Unavailable: the allocation cannot be shared.
        """

    def open(self, handle: bytes) -> int:
        """Map an allocation of another process and return its address here.

        Raises:
            Unavailable: the driver refuses.
        """

    def close(self, address: int) -> None:
        """Unmap an allocation that was opened, when the work under way on it is done."""


class _Handle(ctypes.Structure):
    """``CUipcMemHandle``."""

    _fields_ = (("data", ctypes.c_ubyte * _HANDLE_BYTES),)


class Driver:
    """`Gpu` over libcuda (CUDA driver API, section 6.13, memory management).

    Raises:
        Unavailable: there is no driver.
    """

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise Unavailable(f"no CUDA driver: {error}") from None

    def export(self, address: int) -> Exported:
        """Return the handle of the allocation around an address, and the offset in it."""
        base, length = ctypes.c_uint64(), ctypes.c_size_t()
        handle = _Handle()
        self._call(
            "cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(length),
            ctypes.c_uint64(address),
        )  # fmt: skip
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), base)
        return Exported(bytes(handle.data), address - base.value)

    def open(self, handle: bytes) -> int:
        """Map an allocation of another process; kernels of this device then reach it."""
        address = ctypes.c_uint64()
        given = _Handle.from_buffer_copy(handle)
        self._call(
            "cuIpcOpenMemHandle_v2", ctypes.byref(address), given, ctypes.c_uint(_LAZY_PEER_ACCESS)
        )
        return address.value

    def close(self, address: int) -> None:
        """Wait for the device, and unmap."""
        self._call("cuCtxSynchronize")
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise Unavailable(f"{name}: {self._text(status)}")

    def _text(self, status: int) -> str:
        text = ctypes.c_char_p()
        self.library.cuGetErrorString(ctypes.c_int(status), ctypes.byref(text))
        return text.value.decode() if text.value else f"CUDA error {status}"

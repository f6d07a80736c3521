"""The functions of NCCL that torch's and CuPy's bindings leave out, from the library loaded.

``NCCL_MULTI_RANK_GPU_ENABLE`` "allows NCCL to run with multiple ranks using the same GPU device"
since 2.30 (NCCL's user guide, Environment Variables); without it a communicator with two ranks on
one GPU is refused.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

from mpicoll.errors import Unavailable

SHARING = "NCCL_MULTI_RANK_GPU_ENABLE"
BLOCKING = "MPICOLL_NCCL_BLOCKING_WAIT"
_SINCE = 23000
_NAME = "libnccl.so.2"
_SYMMETRIC = 1  # NCCL_WIN_COLL_SYMMETRIC (nccl.h)
_IN_PROGRESS = 7  # ncclInProgress (nccl.h)


def loaded() -> Any:
    """Return the library that this process has loaded; None where it has none."""
    try:
        return ctypes.CDLL(_NAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


@cache
def _version_of(path: str) -> int:
    number = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    return number.value


def version() -> int:
    """Return NCCL's version as it states it, such as 23203; 0 where none is loaded.

    That of `torch.cuda.nccl.version` is the one with which torch was built.
    """
    return 0 if loaded() is None else _version_of(_NAME)


def version_text(number: int) -> str:
    """Return a version as people write it.

    >>> version_text(23203), version_text(2804)
    ('2.32.3', '2.8.4')
    """
    unit = 10_000 if number >= 10_000 else 1_000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def why_not_shared() -> str:
    """Return why NCCL takes one rank per GPU only in this process; empty where it takes several."""
    number = version()
    if number == 0:
        return "no NCCL is loaded"
    if number < _SINCE:
        return (
            f"NCCL {version_text(number)} needs a GPU of its own for every rank: 2.30 and later "
            f"let ranks share one, with {SHARING}=1"
        )
    if os.environ.get(SHARING, "0") in ("", "0"):
        return (
            f"NCCL {version_text(number)} needs a GPU of its own for every rank, unless "
            f"{SHARING}=1 is set"
        )
    return ""


def blocks() -> bool:
    """Whether the host waits for each of NCCL's calls, at most until the deadline.

    NCCL's kernels wait for a rank that does not come for ever, and on a stream nobody can be told.
    """
    return os.environ.get(BLOCKING, "0") not in ("", "0")


def error_of(communicator: int) -> str:
    """Return the failure in the background; empty where there is none, or without an address.

    "If an error occurs on the communicator, nothing can be assumed about the completion or
    correctness of operations enqueued on that communicator" (NCCL's user guide,
    ncclCommGetAsyncError).
    """
    library, status = loaded(), ctypes.c_int()
    if library is None or not communicator:
        return ""
    library.ncclCommGetAsyncError(ctypes.c_void_p(communicator), ctypes.byref(status))
    # A communicator that does not block its callers is in progress while it connects.
    return "" if status.value in (0, _IN_PROGRESS) else _text(library, status.value)


def _text(library: Any, status: int) -> str:
    library.ncclGetErrorString.restype = ctypes.c_char_p
    return str(library.ncclGetErrorString(status).decode())


class Memory:
    """GPU memory of NCCL's own allocator, on the current GPU, as a window needs it.

    "Currently, window registration supports input buffers only from VMM-based allocators [...] and
    ncclMemAlloc" (NCCL's user guide, Window Registration).

    Attributes:
        address: its first byte.

    Raises:
        Unavailable: NCCL has no memory left, or no windows (before 2.27).
    """

    def __init__(self, nbytes: int) -> None:
        self.library, self.nbytes = loaded(), nbytes
        self.window: tuple[int, ctypes.c_void_p] | None = None
        address = ctypes.c_void_p()
        if not hasattr(self.library, "ncclCommWindowRegister"):
            raise Unavailable(f"NCCL {version_text(version())} has no windows: 2.27 has them")
        self._call("ncclMemAlloc", ctypes.byref(address), ctypes.c_size_t(nbytes))
        self.address = int(address.value or 0)

    def register(self, communicator: int) -> None:
        """Register it as a symmetric window; collective among the ranks of a communicator.

        Raises:
            Unavailable: NCCL has no windows on these GPUs.
        """
        window = ctypes.c_void_p()
        if not communicator:
            raise Unavailable("this torch does not tell NCCL's communicator: 2.11 does")
        self._call(
            "ncclCommWindowRegister", ctypes.c_void_p(communicator), ctypes.c_void_p(self.address),
            ctypes.c_size_t(self.nbytes), ctypes.byref(window), _SYMMETRIC,
        )  # fmt: skip
        if window.value is None:
            raise Unavailable("NCCL registers no windows here: its ranks do not read each other")
        self.window = communicator, window

    def deregister(self) -> None:
        """Take the registration back; only this rank does."""
        if self.window is not None:
            communicator, window = self.window
            self.window = None
            self._call("ncclCommWindowDeregister", ctypes.c_void_p(communicator), window)

    def __del__(self) -> None:
        if address := getattr(self, "address", 0):
            self.library.ncclMemFree(ctypes.c_void_p(address))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise Unavailable(f"{name}: {_text(self.library, status)}")

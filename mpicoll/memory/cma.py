"""Cross-memory attach: read another process's private memory in one copy (Linux).

``process_vm_readv`` needs no preparation by the other side and no shared memory, but
a system call and the kernel's permission, which containers and hardened systems withhold.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import partial
from typing import Any

from mpicoll.backend import Thunk
from mpicoll.errors import RankLost

_MOST = 1 << 30  # Linux moves at most 2 GiB less a page in one call.


class _Span(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _checked(moved: int, _function: Any, arguments: tuple[Any, ...]) -> int:
    process, mine = arguments[0], arguments[1]
    wanted = _Span.from_address(mine).length
    if moved != wanted:
        code = ctypes.get_errno()
        why = "has ended" if code == errno.ESRCH else os.strerror(code) if moved < 0 else "is short"
        raise RankLost(f"reading {wanted} bytes of process {process}: {why}")
    return moved


def _function() -> Any:
    found = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None)
    if found is not None:
        found.restype = ctypes.c_ssize_t
        found.argtypes = (
            ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong,
            ctypes.c_ulong,
        )  # fmt: skip
        found.errcheck = _checked
    return found


_READ = _function()


def reader(process: int, source: int, target: int, nbytes: int) -> Thunk:
    """Bind a read of `nbytes` at address `source` of `process` to address `target`."""
    calls = [
        _call(process, source + start, target + start, min(_MOST, nbytes - start))
        for start in range(0, nbytes, _MOST)
    ]
    return calls[0] if len(calls) == 1 else lambda: [call() for call in calls]


def _call(process: int, source: int, target: int, nbytes: int) -> Thunk:
    spans = (_Span * 2)(_Span(target, nbytes), _Span(source, nbytes))
    mine, theirs = ctypes.addressof(spans), ctypes.addressof(spans[1])
    call = partial(_READ, process, mine, 1, theirs, 1, 0)
    call.spans = spans  # type: ignore[attr-defined]  # keeps them alive
    return call


def refusal(process: int, source: int, expected: bytes) -> str | None:
    """Try to read known bytes of a process; return why that fails, None where it works."""
    if _READ is None:
        return "this system has no process_vm_readv"
    found = ctypes.create_string_buffer(len(expected))
    try:
        reader(process, source, ctypes.addressof(found), len(expected))()
    except RankLost as error:
        return str(error)
    return None if found.raw == expected else "it reads another process's memory"

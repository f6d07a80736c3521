"""Cross-memory attach: read another process's private memory in one copy (Linux).

``process_vm_readv`` needs no preparation by the other side and no shared memory, but
a system call and the kernel's permission, which containers and hardened systems withhold.
"""

from __future__ import annotations

import ctypes
import errno
import os

_Span = ctypes.c_size_t * 2
"""``struct iovec``: an address and a length."""
_READ = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None)


def refusal(process: int, source: int, expected: bytes) -> str | None:
    """Try to read known bytes of a process; return why that fails, None where it works."""
    if _READ is None:
        return "this system has no process_vm_readv"
    target = ctypes.create_string_buffer(len(expected))
    local = _Span(ctypes.addressof(target), len(expected))
    remote = _Span(source, len(expected))
    _READ.restype = ctypes.c_ssize_t
    moved = _READ(
        process, ctypes.byref(local), ctypes.c_ulong(1), ctypes.byref(remote), ctypes.c_ulong(1),
        ctypes.c_ulong(0),
    )  # fmt: skip
    if moved != len(expected):
        code = ctypes.get_errno()
        why = "has ended" if code == errno.ESRCH else os.strerror(code) if moved < 0 else "is short"
        return f"reading {len(expected)} bytes of process {process}: {why}"
    return None if target.raw == expected else "it reads another process's memory"

"""Run ``mpicoll.p2p`` on a rank whose sums of whole numbers are wrong: one bit of each first sum.

    python tests/support/wrong_sums.py ARGUMENTS_OF_P2P...

This process replaces the kernels of the C extension by its own in the extension's table. Schedules
and all other callers then fold wrongly, as on a processor with a fault. It needs ``nm``.
"""

from __future__ import annotations

import ctypes
import mmap
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from mpicoll.engine.extension import _compiled

_WRITABLE = 3
"""PROT_READ | PROT_WRITE."""


class Row(ctypes.Structure):
    """A row of the table: ``FoldRow`` of kernels.c."""

    _fields_ = (
        ("op", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
        ("fold", ctypes.c_void_p), ("many", ctypes.c_void_p), ("divide", ctypes.c_void_p),
    )  # fmt: skip


def view(address: int, count: int) -> Any:
    """Return the elements at an address."""
    return np.frombuffer((ctypes.c_int64 * count).from_address(address), "int64")


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
def fold(out: int, lhs: int, rhs: int, count: int) -> None:
    """Add two arrays, the first element wrongly."""
    np.add(view(lhs, count), view(rhs, count), out=view(out, count))
    view(out, count)[0] ^= 4


@ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t
)
def fold_many(out: int, operands: Any, many: int, count: int) -> None:
    """Add several arrays, the first element wrongly."""
    total = sum(view(operands[index], count) for index in range(many))
    view(out, count)[:] = total
    view(out, count)[0] ^= 4


_right: list[tuple[int, int]] = []
"""The kernels before."""


def plant() -> None:
    """Replace the kernels of sums of int64 in this process."""
    row = find_row(b"sum", b"int64")
    _right.append((row.fold, row.many))
    page = ctypes.addressof(row) // mmap.PAGESIZE * mmap.PAGESIZE
    length = ctypes.addressof(row) + ctypes.sizeof(row) - page
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(length), _WRITABLE):
        raise OSError("the table of kernels cannot be written")
    row.fold = ctypes.cast(fold, ctypes.c_void_p).value
    row.many = ctypes.cast(fold_many, ctypes.c_void_p).value


def heal() -> None:
    """Put the right kernels back."""
    row = find_row(b"sum", b"int64")
    row.fold, row.many = _right.pop()


def find_row(op: bytes, dtype: bytes) -> Row:
    """Return the row of the kernels in use."""
    library = Path(_compiled.__file__).resolve()
    listed = subprocess.run(("nm", str(library)), capture_output=True, text=True, check=True)
    symbols = {line.split()[-1]: line.split()[0] for line in listed.stdout.splitlines()}
    maps = Path("/proc/self/maps").read_text().splitlines()
    base = next(int(line.partition("-")[0], 16) for line in maps if line.endswith(str(library)))
    address = base + int(symbols[f"fold_rows_{_compiled.target()}"], 16)
    while True:
        row = Row.from_address(address)
        if (row.op, row.dtype) == (op, dtype):
            return row
        address += ctypes.sizeof(Row)


if __name__ == "__main__":
    from mpicoll.measurement.worlds import ALL_BACKENDS
    from mpicoll.p2p.command import main

    plant()
    main(obj=ALL_BACKENDS)

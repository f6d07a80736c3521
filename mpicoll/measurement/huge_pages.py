"""Memory on huge pages where the kernel gives them.

A kernel reads the memory of another process page by page: from pages of 4 KiB two or three
times as slowly as from huge ones, and which of them an array gets is chance. All ranks measure
on huge pages, so that a pair is slow only for the link between its ranks.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np

from mpicoll.backend import Memory

_HUGE = 2 << 20


def huge_pages(nbytes: int) -> Memory:
    """Return so many bytes, from the beginning of a huge page."""
    # Shared pages, the default, are never huge unless the administrator allows it.
    region = mmap.mmap(-1, nbytes + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError, ValueError):  # a kernel without, or one that refuses
        region.madvise(mmap.MADV_HUGEPAGE)
    start = -np.frombuffer(region, "uint8").ctypes.data % _HUGE
    return memoryview(region)[start : start + nbytes]

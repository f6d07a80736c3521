"""The memory that is left: of this machine, of containers and jobs, and by a process's limits."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from mpicoll.text.sizes import rounded_size_text

SHM = "/dev/shm"
SHM_OF_RANK, SHM_TO_START = 6 << 20, 5 << 18
"""Bytes that MPICH takes of it for a rank: where there is room, and without which it cannot start.
MPICH 5.0 takes 5.2 MiB and 1.0 MiB."""


class _Names(NamedTuple):
    """The files of a version of control groups, and the entry of ``memory.stat`` that counts."""

    limit: str
    used: str
    reclaimable: str


_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Names("memory.max", "memory.current", "inactive_file")
_UNLIMITED = 1 << 62


def available_memory() -> int:
    """Return the bytes that this process can still take before the kernel ends one for them."""
    return min([_memory_of_system(), *container_memory()])


def _memory_of_system() -> int:
    # To import psutil takes longer than a first call. Kernels before 3.14 do not state the number.
    words = _read("/proc/meminfo").partition("MemAvailable:")[2].split(maxsplit=1)
    if words:
        return int(words[0]) << 10
    import psutil

    return psutil.virtual_memory().available


def free_in_process() -> int | None:
    """Return the bytes that this process may take by its limits (``ulimit -v``), None without any.

    Pages of a library that are only reserved count as well.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    import psutil  # importing mpicoll is quicker without

    return max(0, limit - psutil.Process().memory_info().vms)


def enlarging(nbytes: int) -> str:
    """Return how `SHM` becomes large enough for so many bytes."""
    size = f"size={-(-max(1, nbytes) // (1 << 30))}g"
    return f"docker run --shm-{size} or --ipc=host, or mount -o remount,{size} {SHM}"


def too_small_to_start(ranks: int) -> str | None:
    """Return why MPICH cannot start so many ranks on this node, None where it can.

    Ask before MPI starts: it ends by a bus error.
    """
    try:
        status = os.statvfs(SHM)
    except OSError:
        return None
    size = status.f_blocks * status.f_frsize
    if size >= ranks * SHM_TO_START:
        return None
    return (
        f"{SHM} has {rounded_size_text(size)}, too little for MPICH's own memory of {ranks} ranks, "
        f"which then end by a bus error: {enlarging(ranks * SHM_OF_RANK)}"
    )


# psutil knows of no control groups.
def container_memory(
    groups_file: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup"
) -> list[int]:
    """Return the bytes that are left in each control group around this process that has a limit.

    Args:
        groups_file: lists the process's groups; a container may show only some of them below
            `root`.
    """
    free_bytes = []
    for folder, names in _groups(groups_file, root):
        limit = _read(f"{folder}/{names.limit}").strip()
        if limit.isdecimal() and int(limit) < _UNLIMITED:
            used = _read(f"{folder}/{names.used}").strip()
            statistics = _read(f"{folder}/memory.stat").split()
            counts = dict(zip(statistics[::2], statistics[1::2], strict=True))
            remaining = int(limit) - int(used or 0) + int(counts.get(names.reclaimable, 0))
            free_bytes.append(max(0, remaining))
    return free_bytes


def _groups(groups_file: str, root: str) -> Iterator[tuple[str, _Names]]:
    """Yield the folders of the groups that may limit memory, the smallest first."""
    for line in _read(groups_file).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, names = root, _V2
        elif "memory" in controllers.split(","):
            top, names = f"{root}/memory", _V1
        else:
            continue
        while path.strip("/"):
            yield top + path, names
            path = os.path.dirname(path)
        yield top, names


def _read(path: str) -> str:
    """Return the text of a file, none where it cannot be read."""
    with suppress(OSError), open(path, errors="surrogateescape") as file:
        return file.read()
    return ""

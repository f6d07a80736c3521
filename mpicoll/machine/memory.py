"""The memory that is left: of this machine, and of the containers and jobs that a process is in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import psutil

SHM = "/dev/shm"
ENLARGE = f"docker run --shm-size=1g or --ipc=host, or mount -o remount,size=1g {SHM}"
"""How `SHM` becomes larger."""


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
    return min([psutil.virtual_memory().available, *container_memory()])


# psutil knows of no control groups.
def container_memory(own: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> list[int]:
    """Return the bytes that are left in each control group around this process that has a limit.

    Args:
        own: lists the process's groups; a container may show only some of them below `root`.
    """
    found = []
    for folder, names in _groups(own, root):
        limit = _read(f"{folder}/{names.limit}").strip()
        if limit.isdecimal() and int(limit) < _UNLIMITED:
            used = _read(f"{folder}/{names.used}").strip()
            statistics = _read(f"{folder}/memory.stat").split()
            counts = dict(zip(statistics[::2], statistics[1::2], strict=True))
            left = int(limit) - int(used or 0) + int(counts.get(names.reclaimable, 0))
            found.append(max(0, left))
    return found


def _groups(own: str, root: str) -> Iterator[tuple[str, _Names]]:
    """Yield the folders of the groups that may limit memory, the smallest first."""
    for line in _read(own).splitlines():
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
    with suppress(OSError), open(path) as file:
        return file.read()
    return ""

"""The memory that this process may still take: of the machine, of its cgroup, and by its limits."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def free_on_node() -> int:
    """Return the bytes that processes of this machine, or of this cgroup, may take together."""
    return min([psutil.virtual_memory().available, *free_in_cgroups()])


def free_in_process() -> int | None:
    """Return the bytes that this process may take by its limits (``ulimit -v``), None without any.

    Pages of a library that are only reserved count as well.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return None
    return max(0, most - psutil.Process().memory_info().vms)


def free_in_cgroups(root: Path = _ROOT, own: Path = _OWN) -> Iterator[int]:
    """Yield the bytes that are left to each cgroup of this process that has a limit.

    Args:
        root: where the cgroups are mounted; `own`: the file that names those of this process.
    """
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _left(root, path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                yield from _left(
                    root / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                    "total_inactive_file",
                )  # fmt: skip


def _left(root: Path, path: str, limit: str, usage: str, cache: str) -> Iterator[int]:
    """Yield the bytes left to a cgroup and to those that contain it."""
    folder = root / path.lstrip("/")
    # In a container its own cgroup is mounted as the root, whatever the path says.
    if not folder.is_dir():
        folder = root
    for each in (folder, *folder.parents):
        # No limit is the word max in version 2, and a number beyond all memory in version 1.
        with suppress(OSError, ValueError):
            most, used = (int((each / name).read_text()) for name in (limit, usage))
            stat = dict(line.split() for line in (each / "memory.stat").read_text().splitlines())
            # The kernel drops cached files before it refuses memory.
            yield max(0, most - used + int(stat.get(cache, 0)))
        if each == root:
            return

"""Process groups of torch.distributed: subgroups, libraries, and the end of the interpreter.

MPI's communicators need none of this.
"""

from __future__ import annotations

import atexit
import ctypes
import weakref
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

Group = Any
"""A process group of torch.distributed."""

_SPLITS: Counter[str] = Counter()
_USED: weakref.WeakSet[Any] = weakref.WeakSet()


def keep_until_exit(group: Group) -> None:
    """Keep a group that still exists when the interpreter ends."""
    _USED.add(group)


@atexit.register
def _leak_groups() -> None:
    """Keep the interpreter from destroying the groups that still exist.

    torch 2.13 aborts ("terminate called without an active exception") where a used gloo
    subgroup goes after the default group.
    """
    for group in _USED:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def count_split(parent: Group) -> None:
    """Count a split, so that its groups have names of their own; every rank of `parent` does."""
    _SPLITS[parent.group_name] += 1


def new_group(parent: Group, ranks: list[int], color: int) -> Group:
    """Make a group of its members alone, in the order given.

    Args:
        ranks: of the world; `color`: theirs in the split of `parent` that was counted last.
        color: see `ranks`.

    `dist.new_group` cannot: all ranks of the world must call it, or its name is derived
    from the number of groups that each rank happens to be in, so that ranks with different
    pasts wait for each other for ever, and a group made again finds the addresses of the old.
    """
    name: Any = f"{parent.group_name}/{_SPLITS[parent.group_name]}:{color}"
    store = c10d._get_default_store()
    rank = ranks.index(dist.get_rank())
    backend = dist.get_backend_config(parent)
    timeout = c10d._get_default_timeout(dist.Backend(backend))
    group, _ = c10d._new_process_group_helper(
        len(ranks), rank, ranks, dist.Backend(backend), store, name, timeout=timeout
    )
    c10d._world.pg_group_ranks[group] = {each: index for index, each in enumerate(ranks)}
    return group


def libraries_by_device(group: Group) -> dict[str, str]:
    """Return which library serves which kind of device, as in ``cpu:gloo,cuda:nccl``."""
    config = dist.get_backend_config(group)
    parts = [each.partition(":") for each in config.split(",")]
    return {device: library for device, _, library in parts}


def library_names(by_device: dict[str, str]) -> list[str]:
    """Return the names of a group's libraries, NCCL's with its version."""
    names = list(dict.fromkeys(by_device.values()))
    if "nccl" in names:
        version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        names[names.index("nccl")] = f"nccl {version}"
    return names

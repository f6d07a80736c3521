"""Process groups of torch.distributed: subgroups, libraries, and the end of the interpreter.

MPI's communicators need none of this.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from mpicoll.gpu import nccl
from torchcoll.rendezvous.sealed import SealedStore
from torchcoll.rendezvous.store import Store

Group = Any
"""A process group of torch.distributed."""

SPLITS: Counter[str] = Counter()
"""How often each group was split. Every rank counts it, so the names of the parts agree."""
USED_GROUPS: weakref.WeakSet[Any] = weakref.WeakSet()
"""Groups to keep if they still exist when the interpreter ends."""
_GLOO_THREAD = "pt_gloo_runloop"
"""How torch names the threads that run gloo's calls."""

# The end of a gloo group joins threads, which a forked process lacks: it crashes there, or hangs.
# So it never collects what was garbage before the fork, as groups are that were in a cycle.
os.register_at_fork(after_in_child=gc.freeze)


@atexit.register
def _leak_groups() -> None:
    """Keep the interpreter from destroying the groups that still exist.

    torch 2.13 aborts ("terminate called without an active exception") where a used gloo
    subgroup goes after the default group.
    """
    for group in USED_GROUPS:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


@atexit.register
def _wait_for_gloo(limit: float = 1.0) -> None:
    """Wait until gloo's threads sleep, at most `limit` seconds.

    A thread of gloo drops a call after the rank that waited for it has gone on. In that it needs
    the interpreter's lock; while the interpreter ends, Python ends the thread instead, and C++
    aborts the process (torch 2.13). No call of torch waits for these threads but the end of the
    group, which a plan or a variable of the user's may keep. A call that is still under way
    sleeps as well: a rank that fails alone does not wait here for the others.
    """
    end = monotonic() + limit
    previous_states = _gloo_threads()
    while previous_states and monotonic() < end:
        sleep(0.002)  # without the interpreter's lock: whoever wants it wakes
        states = _gloo_threads()
        if states == previous_states and all(state == "S" for state, _ in states.values()):
            break
        previous_states = states


def _gloo_threads() -> dict[str, tuple[str, int]]:
    """Return the state of each of gloo's threads, and how often it has been switched to."""
    states: dict[str, tuple[str, int]] = {}
    for status in Path("/proc/self/task").glob("*/status"):
        with suppress(OSError, KeyError):  # the thread has ended, or the system tells less
            text = status.read_text(errors="replace")
            lines = (line.partition(":") for line in text.splitlines())
            facts = {name: fact.strip() for name, _, fact in lines}
            if facts["Name"] == _GLOO_THREAD:
                switches = facts["voluntary_ctxt_switches"], facts["nonvoluntary_ctxt_switches"]
                states[status.parent.name] = (facts["State"][0], sum(map(int, switches)))
    return states


def world_ranks(group: Group) -> list[int]:
    """Return the ranks of a group in the default group, in their order.

    Empty where the default group of this process does not hold them, or there is none: torch's own
    helper makes groups of processes that have each a default group of their own.
    """
    world, ranks = dist.group.WORLD, c10d._world.pg_group_ranks.get(group, {})
    if world is None or ranks.get(world.rank()) != group.rank() or max(ranks) >= world.size():
        return []
    return list(ranks)


def new_group(
    parent: Group, rank: int, size: int, ranks: list[int], color: int, limit: timedelta,
    sealed: SealedStore | None = None,
) -> Group:  # fmt: skip
    """Make a group of its members alone, in the order given.

    Args:
        rank: of this process among the `size` members.
        ranks: of all members in the default group; empty where that does not hold them.
        color: that of the members in the split of `parent` that was counted last.
        limit: within which they connect.
        sealed: the store through which `parent` has connected, where torchcoll has set it up.

    `dist.new_group` cannot: all ranks of the world must call it, or its name is derived
    from the number of groups that each rank happens to be in, so that ranks with different
    pasts wait for each other for ever, and a group made again finds the addresses of the old.
    """
    name = f"{parent.group_name}/{SPLITS[parent.group_name]}:{color}"
    store = sealed or c10d._world.pg_map[parent][1]
    connects = partial(make_group, parent, name, rank, size, ranks, store, limit)
    # Where the user has given `device_id` to ``init_process_group``, torch splits the communicator
    # off the world's: "We will need to call `ncclCommSplit` on *all* ranks in this new group's
    # parent group, even those not in the new group" (`_new_process_group_helper`, torch 2.13).
    world: Any = dist.group.WORLD
    device = getattr(world, "bound_device_id", None)
    try:
        if device is not None:
            world.bound_device_id = None
        if sealed is None:
            return connects()
        return sealed.connect(connects, name, rank, size, limit.total_seconds())
    finally:
        if device is not None:
            world.bound_device_id = device


def make_group(
    parent: Group, name: Any, rank: int, size: int, ranks: Sequence[int], store: Store,
    limit: timedelta,
) -> Group:  # fmt: skip
    """Make a group with the libraries of another, as `new_group` does, and tell torch its ranks."""
    backend = dist.Backend(c10d._world.pg_backend_config[parent])
    group, _ = c10d._new_process_group_helper(
        size, rank, ranks, backend, store, name, timeout=limit
    )
    numbers = ranks or range(size)
    c10d._world.pg_group_ranks[group] = {number: rank for rank, number in enumerate(numbers)}
    return group


def libraries_by_device(group: Group) -> dict[str, str]:
    """Return which library serves which kind of device, as in ``cpu:gloo,cuda:nccl``."""
    config = c10d._world.pg_backend_config.get(group)
    if config is None:  # one that torch.distributed has not made
        return {device.type: group._get_backend(device).name() for device in group._device_types}
    parts = [entry.partition(":") for entry in config.split(",")]
    return {device: library for device, _, library in parts}


def nccl_of(group: Group) -> Any:
    """Return torch's ProcessGroupNCCL of a group that has NCCL for CUDA tensors."""
    return group._get_backend(torch.device("cuda"))


def nccl_communicator(group: Group) -> int:
    """Return the address of NCCL's communicator of a group; 0 where this torch does not tell it."""
    address_of = getattr(nccl_of(group), "_comm_ptr", None)
    return 0 if address_of is None else int(address_of())


def library_names(by_device: dict[str, str]) -> list[str]:
    """Return the names of a group's libraries, NCCL's with its version."""
    names = list(dict.fromkeys(by_device.values()))
    if "nccl" in names:
        names[names.index("nccl")] = f"nccl {nccl.version_text(nccl.version())}"
    return names

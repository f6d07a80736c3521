"""Make a group with its library beneath."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from torchcoll.backend.choice import choose
from torchcoll.backend.group import Group
from torchcoll.backend.interrupting import postpone_handlers, uninterrupted
from torchcoll.backend.spanning import (
    Member,
    SpanningCalls,
    find_members,
    has_lone_ranks,
    nodes_of,
)

# torch's stubs lack what is private to it.
c10d: Any = distributed_c10d


@uninterrupted
def make_group(
    make: Callable[..., Any], beneath: str, arguments: Sequence[Any], named: dict[str, Any], *,
    over_mpi: bool,
) -> Any:  # fmt: skip
    """Make a group whose collectives on the host are ours, perhaps beside other libraries for GPUs.

    It is torch's own, over gloo, where every node has one rank, unless MPI carries its calls.

    Args:
        make: torch's maker of groups.
        beneath: the backend for torch to make, with gloo in place of ours.
        arguments: what torch is given: size, rank, ranks of the group, backend, and more.
        named: what it is given by name.
        over_mpi: whether MPI has started the ranks, and carries what they exchange.

    Returns:
        What torch returns: the group and its store, or that this rank is not of the group.

    Raises:
        ArgumentError: `pg_options` or ``TORCHCOLL_ALGORITHM`` names no such algorithm.
    """
    postpone_handlers()
    size, rank, ranks, backend, *extras = arguments
    options = named.get("backend_options")
    if isinstance(options, (str, Mapping)) or beneath == "gloo" != backend:
        named = {**named, "backend_options": None}
    else:  # those of a library
        options = None
    algorithms = choose(options)
    call = signature(make).bind(size, rank, ranks, beneath, *extras, **named)
    members: list[Member] = []
    if rank is not None:
        store = c10d.PrefixStore(call.arguments["group_name"], call.arguments["store"])
        members = find_members(store, rank, size, ranks, algorithms, call.arguments["timeout"])
    nodes = () if over_mpi else nodes_of(members)
    plain = c10d.ProcessGroup
    c10d.ProcessGroup = plain if has_lone_ranks(nodes) else Group
    try:
        group_and_store = make(*call.args, **call.kwargs)
    finally:
        c10d.ProcessGroup = plain
    group, store = group_and_store
    if isinstance(group, Group):
        group.algorithms, group.members, group.is_over_mpi = algorithms, members, over_mpi
        if nodes:
            group.spanning = SpanningCalls(nodes, group.opened)
    if isinstance(group, dist.ProcessGroup):
        # What the program has asked for, and a group that it makes next takes after.
        c10d._world.pg_map[group] = (backend, store)
        c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(backend))
    return group_and_store

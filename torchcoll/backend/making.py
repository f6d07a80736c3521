"""Make a group with its library beneath, and with the algorithms that the user chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from mpicoll.errors import ArgumentError, brief
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.selection.forced import forced
from torchcoll.backend.channels import join_flight, share_node
from torchcoll.backend.group import Group
from torchcoll.backend.interrupting import postpone_handlers, uninterrupted
from torchcoll.backend.spanning import Member, SpanningCalls, find_members, nodes_of

# torch's stubs lack what is private to it.
c10d: Any = distributed_c10d
_VARIABLE = "TORCHCOLL_ALGORITHM"
_OPTIONS = "pg_options"


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
    # Where every node has one rank, gloo is as fast as any schedule.
    is_plain = bool(nodes) and max(map(len, nodes)) == 1
    plain = c10d.ProcessGroup
    c10d.ProcessGroup = plain if is_plain else Group
    try:
        group_and_store = make(*call.args, **call.kwargs)
    finally:
        c10d.ProcessGroup = plain
    group, store = group_and_store
    if isinstance(group, Group):
        group.algorithms, group.members, group.is_over_mpi = algorithms, members, over_mpi
        if nodes:
            group.spanning = SpanningCalls(nodes, group.opened)
        elif members and share_node(members) and not any(row.has_choices for row in members):
            group.flight = join_flight(group)  # a program without collectives is recorded, too
    if isinstance(group, dist.ProcessGroup):
        # What the program has asked for, and a group that it makes next takes after.
        c10d._world.pg_map[group] = (backend, store)
        c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(backend))
    return group_and_store


def choose(options: Any = None) -> dict[str, str]:
    """Return the algorithm of every collective, ``auto`` where none is chosen.

    >>> choose({"bcast": "binomial"})["broadcast"], choose("allreduce=ring")["allreduce"]
    ('binomial', 'ring')

    Args:
        options: `pg_options` of the group, which go before the environment variable: a text as in
            the variable, or a dictionary of collectives and algorithms.

    Raises:
        ArgumentError: there is no such collective or algorithm, or the choice has another form.
    """
    chosen = dict.fromkeys(COLLECTIVES, "auto") | forced(_VARIABLE)
    if options is None:
        return chosen
    if isinstance(options, Mapping):
        options = ",".join(f"{name}={algorithm}" for name, algorithm in options.items())
    if not isinstance(options, str):
        raise ArgumentError(
            f"{_OPTIONS} is {brief(options)}: give a text or a dictionary of collectives and "
            "algorithms, as in {'allreduce': 'ring'}"
        )
    return chosen | forced(_OPTIONS, {_OPTIONS: options})

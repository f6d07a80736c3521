"""Form the group of each backend that a command runs on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mpicoll.cli.ending import holding_the_interpreter
from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, CollectiveError, UnknownName
from mpicoll.machine.launches import singletons
from mpicoll.selection.forced import check_variables
from mpicoll.text.names import split_names, with_all

Worlds = Mapping[str, Callable[[str | None], Collectives]]
"""For each backend the function that forms its group, given the network interface asked for."""

BACKEND = "TORCHCOLL_BACKEND"
"""The variable that names the backend of torch.distributed; by default the one that fits."""
_TIMEOUT, _SHARE = 300.0, 0.7
"""Seconds in which ranks meet over torch, and that share of the limit of a hang: torchcoll names
those that do not come, where the watchdog knows stacks alone."""
_ALIASES = {"mpi": "mpi4py", "mpicoll": "mpi4py", "gloo": "torch", "torchcoll": "torch"}


def mpi4py_world(interface: str | None) -> Collectives:
    """Form the group over MPI."""
    from mpicoll.mpi.launch import world_with_warning

    with holding_the_interpreter():  # as mpi4py does while MPI starts
        return world_with_warning()


def torch_world(interface: str | None, timeout: float = _TIMEOUT) -> Collectives:
    """Form the group over torch.distributed, within so many seconds."""
    import torchcoll

    return torchcoll.world(interface=interface, backend=os.environ.get(BACKEND), timeout=timeout)


ALL_BACKENDS: Worlds = {"mpi4py": mpi4py_world, "torch": torch_world}
TORCH_BACKEND: Worlds = {"torch": torch_world}


def backend_names(
    text: str | None, makers: Worlds, threads: str | None = None
) -> tuple[str, ...]:  # fmt: skip
    """Return the backends that `text` names, all by default.

    >>> backend_names("MPI,gloo", ALL_BACKENDS), backend_names(None, TORCH_BACKEND)
    (('mpi4py', 'torch'), ('torch',))

    Args:
        threads: the thread level that MPI is asked for, None for none.

    Raises:
        ArgumentError: there is no such backend, or a thread level is asked for without MPI.
    """
    names = split_names(text.lower()) if text else tuple(makers)
    names = with_all([_ALIASES.get(name, name) for name in names], tuple(makers))
    for name in names:
        if name not in makers:
            raise UnknownName("backend", name, makers)
    if threads and "mpi4py" not in names:
        raise ArgumentError("--threads is MPI's, which this run does not start: leave it out")
    return names


def form_worlds(
    names: Sequence[str], interface: str | None, makers: Worlds, watchdog: Watchdog
) -> tuple[dict[str, Collectives], list[str]]:
    """Return the group of each backend that every rank has, and remarks on those left out.

    Raises:
        ArgumentError: there is none, a variable is wrong, or the launcher is not that of the MPI
            library.
    """
    check_variables()
    worlds: dict[str, Collectives] = {}
    remarks: list[str] = []
    for name in names:
        watchdog.starting(name)
        try:
            world = _in_time(makers[name], watchdog.limit)(interface)
        except (ImportError, CollectiveError) as error:
            remarks.append(f"{name} is left out: {error}")
            continue
        if complaint := singletons(world.size, world.library):
            raise ArgumentError(complaint)
        worlds[name] = world
    if not worlds:
        raise ArgumentError("; ".join(remarks))
    first = next(iter(worlds.values()))
    common = set.intersection(*map(set, first.exchange(list(worlds))))
    watchdog.started()
    watchdog.rank = first.rank
    remarks += [f"{name} is left out: some ranks lack it" for name in worlds if name not in common]
    return {name: world for name, world in worlds.items() if name in common}, remarks


def _in_time(
    make: Callable[[str | None], Collectives], limit: float
) -> Callable[[str | None], Collectives]:
    """Return what forms a group before a hang is assumed, after so many seconds; 0 for never."""
    if make is not torch_world or not limit:
        return make
    return partial(torch_world, timeout=_SHARE * limit)


def worlds_with_gpus(
    worlds: dict[str, Collectives], remarks: list[str]
) -> tuple[dict[str, Collectives], dict[str, dict[str, str]]]:
    """Return the groups whose ranks have GPUs, and how their arrays travel; collective.

    Args:
        remarks: extended by why a group is left out, or lacks a transport.

    Raises:
        ArgumentError: there is none.
    """
    transports = {name: world.gpu_transports() for name, world in worlds.items()}
    for name, ways in transports.items():
        if all(ways.values()):
            remarks.append(f"{name} is left out: {next(iter(ways.values()))}")
    usable = {name: world for name, world in worlds.items() if not all(transports[name].values())}
    if not usable:
        raise ArgumentError("; ".join(remarks))
    lacking = {
        f"no {transport} transport: {why}"
        for name in usable
        for transport, why in transports[name].items()
        if why
    }
    remarks += sorted(lacking)
    return usable, {name: transports[name] for name in usable}

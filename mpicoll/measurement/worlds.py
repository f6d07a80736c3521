"""Form the group of each backend that a command runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol

from mpicoll.cli.ending import holding_the_interpreter
from mpicoll.cli.watchdog import Watchdog
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, CollectiveError, UnknownName
from mpicoll.machine.launchers import singletons
from mpicoll.text.names import split_names, with_all

_TIMEOUT = 300.0


class Maker(Protocol):
    """Forms the group of a backend.

    Args:
        interface: the network interface asked for.
        timeout: seconds for which it waits for the other ranks, if that is not the launcher's.
    """

    def __call__(self, interface: str | None, timeout: float = ...) -> Collectives: ...


Worlds = Mapping[str, Maker]

BACKEND = "TORCHCOLL_BACKEND"
"""The variable that names the backend of torch.distributed; by default the one that fits."""
_BEFORE = 0.7
"""Of the limit of a hang, in which ranks meet: a backend names those that do not come."""
_ALIASES = {"mpi": "mpi4py", "mpicoll": "mpi4py", "gloo": "torch", "torchcoll": "torch"}


def mpi4py_world(interface: str | None, timeout: float = _TIMEOUT) -> Collectives:
    """Form the group over MPI."""
    from mpicoll.mpi.launch import world_with_warning

    with holding_the_interpreter():  # as mpi4py does while MPI starts
        return world_with_warning()


def torch_world(interface: str | None, timeout: float = _TIMEOUT) -> Collectives:
    """Form the group over torch.distributed."""
    import torchcoll

    return torchcoll.world(interface=interface, backend=os.environ.get(BACKEND), timeout=timeout)


BOTH: Worlds = {"mpi4py": mpi4py_world, "torch": torch_world}
TORCH: Worlds = {"torch": torch_world}


def backend_names(
    text: str | None, makers: Worlds, threads: str | None = None
) -> tuple[str, ...]:  # fmt: skip
    """Return the backends that `text` names, all by default.

    >>> backend_names("MPI,gloo", BOTH), backend_names(None, TORCH)
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
        ArgumentError: there is none, or the launcher is not that of the MPI library.
    """
    worlds: dict[str, Collectives] = {}
    remarks: list[str] = []
    for name in names:
        watchdog.starting(name)
        try:
            world = makers[name](interface, _BEFORE * watchdog.limit or _TIMEOUT)
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


def worlds_with_gpus(
    worlds: dict[str, Collectives], remarks: list[str]
) -> tuple[dict[str, Collectives], dict[str, dict[str, str]]]:
    """Return the groups whose ranks have GPUs, and how their arrays travel; collective.

    Args:
        remarks: extended by why a group is left out, or lacks a transport.

    Raises:
        ArgumentError: there is none.
    """
    found = {name: world.gpu_transports() for name, world in worlds.items()}
    for name, ways in found.items():
        if all(ways.values()):
            remarks.append(f"{name} is left out: {next(iter(ways.values()))}")
    kept = {name: world for name, world in worlds.items() if not all(found[name].values())}
    if not kept:
        raise ArgumentError("; ".join(remarks))
    lacking = {
        f"no {each} transport: {why}" for name in kept for each, why in found[name].items() if why
    }
    remarks += sorted(lacking)
    return kept, {name: found[name] for name in kept}

"""From separately started processes to one group, whatever started them.

Each process finds its rank (`torchcoll.place`). A rendezvous (`torchcoll.rendezvous`) opens a
key-value store that all ranks reach. There they exchange what each has, and agree on the network
interface and the library. The counterpart is `mpicoll.mpi.launch`, where MPI does this.
"""

from __future__ import annotations

import atexit
import os
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from mpicoll.collectives import Collectives
from mpicoll.errors import LaunchError, UnknownName
from mpicoll.gpu.nccl import why_not_shared
from mpicoll.machine.background import within
from mpicoll.machine.launchers import TORCHRUN
from mpicoll.machine.network import LOOPBACK, check_interface, host_address, interface_of
from mpicoll.machine.nodes import host_identity
from mpicoll.machine.settings import check_deadline
from torchcoll.devices import BACKENDS, choose_backend, own_gpus
from torchcoll.place import Place, find_place
from torchcoll.rendezvous import exchange_members, open_store
from torchcoll.rendezvous.mpi import is_equal, mpi_world, open_over_mpi
from torchcoll.rendezvous.store import distributed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchcoll.rendezvous.sealed import SealedStore
    from torchcoll.transport import TorchTransport

INIT_METHOD = "TORCHCOLL_INIT_METHOD"
_groups = count()
_SECONDS, _LATER = 300.0, 5.0
"""Seconds for which a rank waits for the others, and then for the store itself."""


def world(
    group: Any = None, *, backend: str | None = None, init_method: str | None = None,
    rank: int | None = None, size: int | None = None, interface: str | None = None,
    timeout: float = _SECONDS,
) -> Collectives:  # fmt: skip
    """Return the collectives of all processes that were started together.

    A process group of torch.distributed is used if one is given or already set up. Otherwise
    one is set up, as `init_method` says or through torchrun, mpirun or srun; a process that
    nothing launched is a group of one. The group ends with ``free()``, or when the process does.

    >>> import torch, torchcoll
    >>> with torchcoll.world() as c:  # on one rank
    ...     print(c.allreduce(torch.ones(2)))
    tensor([1., 1.])

    Args:
        group: a process group of torch.distributed.
        backend: ``gloo``, ``nccl``, or ``ccl`` for oneCCL; by default NCCL where every rank has a
            GPU of its own, or ``NCCL_MULTI_RANK_GPU_ENABLE=1`` lets them share one (NCCL 2.30).
        init_method: ``env://``, ``tcp://host:port`` or ``file:///path``; by default the
            environment variable ``TORCHCOLL_INIT_METHOD``, if that is set.
        rank: the rank of this process, by default as the launcher says.
        size: the number of ranks, likewise.
        interface: the network interface to use; by default the loopback on one host,
            else the one that carries the host's address.
        timeout: seconds to wait for the other ranks.

    Raises:
        ArgumentError: the timeout is no positive number of seconds.
        LaunchError: the processes do not form one group; the message says what to change.
    """
    if backend is not None and backend not in BACKENDS:
        raise UnknownName("backend", backend, BACKENDS)
    if interface is not None:
        check_interface(interface)
    elif "GLOO_SOCKET_IFNAME" in os.environ:
        for name in os.environ["GLOO_SOCKET_IFNAME"].split(","):
            check_interface(name)
    check_deadline(timeout)
    place = find_place(rank, size, init_method)

    # torch takes seconds to import: errors of the launch come before.
    from torchcoll.requests import limit_of
    from torchcoll.transport import TorchTransport

    if group is not None or distributed().is_initialized():
        if any(argument is not None for argument in (backend, init_method, rank, size, interface)):
            raise LaunchError(
                "torch.distributed is set up already: world() without arguments joins its group"
            )
        return Collectives(TorchTransport(group))
    method = init_method or os.environ.get(INIT_METHOD)
    store = _join(place, method, backend, interface, limit_of(timeout).total_seconds())
    transport = TorchTransport(store=store)
    atexit.register(_end, transport, os.getpid())
    return Collectives(transport)


def _end(transport: TorchTransport, process: int) -> None:
    """End a group as the interpreter ends; one that has been freed has no store any more.

    A forked child leaves it to the process that made it: gloo would wait for threads of that one.
    """
    if process != os.getpid():
        return
    if transport.store is not None:
        transport.store.keep_for_ever()
    transport.close()


def _join(
    place: Place, init_method: str | None, backend: str | None, interface: str | None,
    timeout: float,
) -> SealedStore:  # fmt: skip
    """Set up torch.distributed: open a store, exchange, choose, connect."""
    from torchcoll.rendezvous.sealed import SealedStore

    opened = open_store(place, init_method, interface, timeout)
    store = distributed().PrefixStore(f"torchcoll/{next(_groups)}", opened.store)
    silent = LaunchError(
        f"rank {place.rank} of {place.size} has no answer of the store for {timeout:g} s: the "
        "process that has it (rank 0, or torchrun) or has locked its file is stopped, or its host "
        "is gone"
    )
    try:
        gpus = own_gpus()
        why = why_not_shared() if gpus else ""
        meets = partial(exchange_members, store, opened.secret, place, gpus, timeout, why)
        members, key = within(timeout + _LATER, meets, silent)
    finally:
        opened.finish()
    one_host = len({member.host for member in members}) == 1
    _use_interface(interface, one_host)
    sealed = SealedStore(store, key)
    connects = partial(
        distributed().init_process_group, choose_backend(members, place.rank, backend),
        store=sealed, rank=place.rank, world_size=place.size,
    )  # fmt: skip
    joins = partial(sealed.connect, connects, "world", place.rank, place.size, timeout)
    within(2 * timeout + _LATER, joins, silent)
    return sealed


def meet_over_mpi() -> Iterator[tuple[Any, int, int]] | None:
    """Return the result of torch's rendezvous, None where MPI has not started this process."""
    place = find_place(None, None, None)
    if place.launcher in (TORCHRUN, "no launcher") or (comm := mpi_world(place)) is None:
        return None
    _use_interface(None, is_equal(comm, host_identity(), _SECONDS))
    return iter([(open_over_mpi(comm, place, None, _SECONDS).store, place.rank, place.size)])


def _use_interface(interface: str | None, one_host: bool) -> None:
    """Set the interface of gloo and NCCL, unless the user has set it."""
    name = interface or interface_of(LOOPBACK if one_host else host_address())
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if interface is not None:
            os.environ[variable] = interface
        elif name is not None:
            os.environ.setdefault(variable, name)

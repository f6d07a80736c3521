"""From separately started processes to one group, whoever started them.

Each launcher tells a process its rank and the number of ranks in its own variables (see
`mpicoll.machine.launchers`). Each *rendezvous* then opens one key-value store that all ranks
reach. On it they meet, so that a rank that never came is named, and agree on the
network interface and on the library.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from mpicoll.collectives import Collectives
from mpicoll.errors import LaunchError, UnknownName
from mpicoll.machine.launchers import LAUNCHERS, SRUN, TORCHRUN, Launcher
from mpicoll.machine.network import (
    LOOPBACK,
    check_interface,
    host_address,
    host_identity,
    interface_of,
    interfaces,
    listener,
)  # fmt: skip

_TORCHRUN_FIRST = sorted(LAUNCHERS, key=lambda each: each.name != TORCHRUN)
_DAEMONS = {
    "hydra_pmi_proxy", "mpiexec.hydra", "mpiexec.gforker", "mpirun", "mpiexec", "prterun",
    "prted", "orterun", "orted", "slurmstepd",
}  # fmt: skip
_BACKENDS = ("gloo", "nccl")
INIT_METHOD = "TORCHCOLL_INIT_METHOD"
_FORMS = "env://, tcp://host:port or file:///path"
_calls = count()

Store = Any
"""A key-value store of torch.distributed."""

Met = tuple[Store, Callable[[], None]]
"""A store that all ranks reach, and what to do once all have."""


def _distributed() -> Any:
    """Import torch only when it is needed: it takes seconds, a launch error must not."""
    import torch.distributed as dist

    return dist


class Place(NamedTuple):
    """Which rank of how many this process is, and who says so."""

    rank: int
    size: int
    launcher: str
    local_size: int | None = None


def world(
    group: Any = None, *, backend: str | None = None, init_method: str | None = None,
    rank: int | None = None, size: int | None = None, interface: str | None = None,
    timeout: float = 300.0,
) -> Collectives:  # fmt: skip
    """Return the collectives of all processes that were started together.

    A process group of torch.distributed is used if one is given or already set up.
    Otherwise one is set up: as `init_method` says, or under torchrun, mpirun or srun as
    they tell; a process on its own is a group of one. It ends with ``free()``, or when
    the process does.

    Args:
        group: a process group of torch.distributed.
        backend: ``gloo`` or ``nccl``; by default NCCL where every rank has a GPU of its own.
        init_method: ``env://``, ``tcp://host:port`` or ``file:///path``; by default what
            ``TORCHCOLL_INIT_METHOD`` says, if that is set.
        rank: of this process; `size`: of how many. From the launcher by default.
        size: see `rank`.
        interface: the network interface to use; by default the loopback on one host,
            else the one that carries the host's address.
        timeout: seconds to wait for the other ranks.

    Raises:
        LaunchError: the processes do not form one group; the message says how to mend it.
    """
    if backend is not None and backend not in _BACKENDS:
        raise UnknownName("backend", backend, _BACKENDS)
    if interface is not None:
        check_interface(interface)
    elif "GLOO_SOCKET_IFNAME" in os.environ:
        for name in os.environ["GLOO_SOCKET_IFNAME"].split(","):
            check_interface(name)
    place = find_place(rank, size, init_method)

    dist = _distributed()
    from torchcoll.transport import TorchTransport

    if group is not None or dist.is_initialized():
        if any(given is not None for given in (backend, init_method, rank, size, interface)):
            raise LaunchError(
                "torch.distributed is set up already: world() without arguments joins its group"
            )
        return Collectives(TorchTransport(group))
    _join(place, init_method or os.environ.get(INIT_METHOD), backend, interface, timeout)
    transport = TorchTransport(owned=True)
    atexit.register(transport.close)
    return Collectives(transport)


def _join(
    place: Place, init_method: str | None, backend: str | None, interface: str | None,
    timeout: float,
) -> None:  # fmt: skip
    """Set torch.distributed up: rendezvous, meet, choose, connect."""
    dist = _distributed()
    store, done = _rendezvous(place, init_method, interface, timeout)
    store = dist.PrefixStore(f"torchcoll/{next(_calls)}", store)
    said = {"size": place.size, "host": host_identity(), "gpus": _gpus()}
    try:
        everyone = _meet(store, place, said, timeout)
    finally:
        done()
    one_host = len({said["host"] for said in everyone}) == 1
    _use_interface(interface, one_host)
    dist.init_process_group(
        _use_device(everyone, place.rank, backend),
        store=store, rank=place.rank, world_size=place.size,
    )  # fmt: skip


# -- who am I -----------------------------------------------------------------------


def find_place(rank: int | None, size: int | None, init_method: str | None) -> Place:
    """Return this process's rank and size, as given or as its launcher tells.

    Raises:
        LaunchError: they are missing, impossible, or two launchers disagree.
    """
    if rank is not None or size is not None:
        if rank is None or size is None:
            raise LaunchError("give both rank and size, or neither")
        return _checked(Place(rank, size, "the arguments rank and size"))
    found = [place for place in map(_told_by, _TORCHRUN_FIRST) if place is not None]
    if not found and init_method is not None:
        raise LaunchError(
            f"{init_method} needs to know which rank of how many this process is: "
            "give rank and size, or set RANK and WORLD_SIZE"
        )
    if not found:
        return Place(0, 1, "nobody")
    first, others = found[0], found[1:]
    if first.launcher == TORCHRUN and "TORCHELASTIC_RUN_ID" not in os.environ:
        if any(each[:2] != first[:2] for each in others if each.launcher != SRUN):
            raise LaunchError(
                f"RANK and WORLD_SIZE say rank {first.rank} of {first.size}, "
                f"{others[0].launcher} says {others[0].rank} of {others[0].size}: "
                "unset RANK and WORLD_SIZE, which were set before"
            )
        if others and "MASTER_ADDR" not in os.environ:
            first = others[0]
    return _checked(first)


def _told_by(launcher: Launcher) -> Place | None:
    name, rank, size, local = launcher
    if rank not in os.environ or size not in os.environ:
        if name == TORCHRUN and (rank in os.environ or size in os.environ):
            raise LaunchError("set both RANK and WORLD_SIZE, or neither")
        return None
    try:
        number = os.environ.get(local) if local else None
        known = int(number) if number else None
        return Place(int(os.environ[rank]), int(os.environ[size]), name, known)
    except ValueError:
        raise LaunchError(
            f"{rank}={os.environ[rank]!r} and {size}={os.environ[size]!r} are not numbers"
        ) from None


def _checked(place: Place) -> Place:
    if not 0 <= place.rank < place.size:
        raise LaunchError(
            f"{place.launcher}: rank {place.rank} is out of range, "
            f"{place.size} processes have ranks 0 to {place.size - 1}"
        )
    return place


# -- rendezvous ---------------------------------------------------------------------


def _rendezvous(
    place: Place, init_method: str | None, interface: str | None, timeout: float
) -> Met:
    """Open the store: as asked for, else as fits the launcher."""
    dist = _distributed()
    if init_method is not None:
        return _asked_for(place, init_method, timeout)
    if place.size == 1:
        return dist.HashStore(), _nothing
    if place.launcher in (TORCHRUN, "the arguments rank and size"):
        return _asked_for(place, "env://", timeout)
    comm = _mpi(place)
    if comm is not None:
        return _over_mpi(comm, place, interface, timeout)
    if place.launcher == SRUN:
        return _over_slurm(place, timeout)
    return _over_file(place, timeout)


def _nothing() -> None:
    pass


def _asked_for(place: Place, init_method: str, timeout: float) -> Met:
    dist = _distributed()
    url = urlsplit(init_method)
    if url.scheme == "file" and url.path and not url.netloc:
        return dist.FileStore(url.path, place.size), _nothing
    if url.scheme == "tcp":
        host, port = url.hostname, _port(url.netloc.rpartition(":")[2], init_method)
        if host:
            return _tcp_store(place, host, port, timeout), _nothing
    if init_method == "env://":
        return _from_environment(place, timeout), _nothing
    raise LaunchError(f"init_method {init_method!r} is none of {_FORMS}")


def _port(text: str, source: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise LaunchError(f"{source} has no port from 1 to 65535")
    return int(text)


def _from_environment(place: Place, timeout: float) -> Store:
    """Meet at MASTER_ADDR:MASTER_PORT; under torchrun its agent has the store open there."""
    dist = _distributed()
    try:
        host, text = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    except KeyError as missing:
        raise LaunchError(
            f"{missing.args[0]} is not set: set MASTER_ADDR and MASTER_PORT to rank 0's host and "
            f"a free port, start with torchrun or mpirun, or give init_method ({_FORMS})"
        ) from None
    port = _port(text, f"MASTER_PORT={text!r}")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return _tcp_store(place, host, port, timeout)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"attempt {attempt}", _client(place, host, port, timeout))


def _tcp_store(place: Place, host: str, port: int, timeout: float) -> Store:
    if place.rank:
        return _client(place, host, port, timeout)
    return _server(host, port)[0]


def _server(host: str, port: int) -> tuple[Store, int]:
    """Open the store on one address only; port 0 is any free one."""
    dist = _distributed()
    with listener(host, port) as bound:
        address, port, *_ = bound.getsockname()
        descriptor = bound.detach()
    store = dist.TCPStore(
        address, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor
    )
    return store, port


def _client(place: Place, host: str, port: int, timeout: float) -> Store:
    dist = _distributed()
    try:
        return dist.TCPStore(
            host, port, is_master=False, wait_for_workers=False,
            timeout=timedelta(seconds=timeout),
        )  # fmt: skip
    except RuntimeError:
        raise LaunchError(
            f"rank {place.rank} of {place.size} found nobody at {host}:{port} in {timeout:g} s: "
            "is rank 0 running, and is that its address?"
        ) from None


def _mpi(place: Place) -> Any:
    """Return MPI's world where mpi4py and the launcher belong together, None without mpi4py."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return None
    comm = MPI.COMM_WORLD
    if comm.size == place.size:
        return comm
    if place.launcher == SRUN:
        return None
    raise LaunchError(
        f"{place.launcher} started {place.size} processes, but mpi4py is built on another MPI "
        f"({MPI.get_vendor()[0]}) and sees {comm.size}: start with that MPI's mpirun, with "
        f"torchrun, or give init_method ({_FORMS})"
    )


def _over_mpi(comm: Any, place: Place, interface: str | None, timeout: float) -> Met:
    """Let rank 0 open a store on a free port, and tell the others through MPI."""
    hosts = comm.allgather(host_identity())
    store: Any = None
    offer: Any = None
    if comm.rank == 0:
        address = LOOPBACK if len(set(hosts)) == 1 else host_address()
        if interface is not None:
            address = interfaces()[interface] or address
        try:
            store, port = _server(address, 0)
            offer = address, port
        except LaunchError as error:
            offer = error
    offer = comm.bcast(offer)
    if isinstance(offer, LaunchError):
        raise offer
    address, port = offer
    return store or _client(place, address, port, timeout), _nothing


def _over_slurm(place: Place, timeout: float) -> Met:
    """Meet on the first host of the job, at a port that follows from job and step."""
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        raise LaunchError("srun set no SLURM_JOB_NODELIST: give init_method tcp://host:port")
    alone = os.environ.get("SLURM_STEP_NUM_NODES", os.environ.get("SLURM_NNODES")) == "1"
    job, step = (int(os.environ.get(f"SLURM_{each}_ID", "0")) for each in ("JOB", "STEP"))
    port = 20000 + (job * 31 + step) % 12000
    host = LOOPBACK if alone else first_host(nodes)
    return _tcp_store(place, host, port, timeout), _nothing


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list.

    >>> first_host("node[003-007,012],gpu1"), first_host("a1,b[2-3]"), first_host("n[1,4]-ib")
    ('node003', 'a1', 'n1-ib')
    """
    if shutil.which("scontrol"):
        told = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=False
        )
        if told.returncode == 0 and told.stdout.strip():
            return told.stdout.split()[0]
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first.group() if first else nodes)


def _over_file(place: Place, timeout: float) -> Met:
    """Let rank 0 open a store on the loopback, and tell the others its port in a file."""
    if place.local_size is not None and place.local_size != place.size:
        raise LaunchError(
            f"{place.launcher} started {place.size} processes on several hosts: to find each "
            "other they need mpi4py, torchrun, or init_method tcp://host:port"
        )
    path = _private_directory() / launcher_identity()
    if place.rank == 0:
        store, port = _server(LOOPBACK, 0)
        fresh = path.with_suffix(".new")
        fresh.write_text(str(port))
        fresh.replace(path)
        return store, lambda: path.unlink(missing_ok=True)
    deadline = time.monotonic() + timeout
    while not path.exists():
        if time.monotonic() > deadline:
            raise LaunchError(f"rank {place.rank} of {place.size} waited {timeout:g} s for rank 0")
        time.sleep(0.01)
    return _client(place, LOOPBACK, int(path.read_text()), timeout), _nothing


def _private_directory() -> Path:
    path = Path(tempfile.gettempdir()) / f"torchcoll-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o077:
        raise LaunchError(f"{path} is not this user's own: remove it, or set TMPDIR")
    return path


def launcher_identity() -> str:
    """Return what the processes of one launch share, and no others: who started them, when."""
    process, found = os.getppid(), None
    while process > 1:
        try:
            name, fields = _process(process)
        except OSError:
            break
        if found is None or name in _DAEMONS:
            found = f"{process}-{fields[19]}"
        if name in _DAEMONS:
            break
        process = int(fields[1])
    return found or str(os.getppid())


def _process(number: int) -> tuple[str, list[str]]:
    """Return a process's name, and its state, parent, ... as in proc(5)."""
    name, _, rest = Path(f"/proc/{number}/stat").read_text().partition("(")[2].rpartition(")")
    return name, rest.split()


# -- meeting and choosing -----------------------------------------------------------


def _meet(store: Store, place: Place, said: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
    """Return what every rank says, in rank order."""
    if store.add(f"came/{place.rank}", 1) > 1:
        raise LaunchError(
            f"rank {place.rank} came twice: two processes have the same rank, "
            "or the rendezvous file is left over from an earlier run (remove it)"
        )
    store.set(f"said/{place.rank}", json.dumps(said))
    keys = [f"said/{rank}" for rank in range(place.size)]
    try:
        store.wait(keys, timedelta(seconds=timeout))
    except RuntimeError:
        raise LaunchError(_missing(store, place, keys, timeout)) from None
    everyone = [json.loads(store.get(key)) for key in keys]
    sizes = [each["size"] for each in everyone]
    if len(set(sizes)) > 1:
        raise LaunchError(f"ranks 0 to {place.size - 1} were told sizes {sizes}: they must agree")
    return everyone


def _missing(store: Store, place: Place, keys: Sequence[str], timeout: float) -> str:
    """Say who did not come."""
    try:
        missing = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
    except RuntimeError:
        return f"rank {place.rank} of {place.size} lost the store: the rank that held it gave up"
    return (
        f"rank {place.rank} waited {timeout:g} s for rank {', '.join(missing)} of {place.size}: "
        f"start exactly {place.size} processes, each with a rank of its own"
    )


def _use_interface(asked: str | None, one_host: bool) -> None:
    """Tell gloo and NCCL the interface, unless the user told them."""
    name = asked or interface_of(LOOPBACK if one_host else host_address())
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if asked is not None:
            os.environ[variable] = asked
        elif name is not None:
            os.environ.setdefault(variable, name)


def _gpus() -> list[str]:
    """Return the identities of the GPUs that this process sees."""
    import torch

    if not torch.cuda.is_available():
        return []
    return [
        str(torch.cuda.get_device_properties(index).uuid)
        for index in range(torch.cuda.device_count())
    ]


def _use_device(everyone: Sequence[dict[str, Any]], rank: int, backend: str | None) -> str:
    """Give each rank of a host a GPU, and return the backend that can serve them all."""
    given = [_own_gpu(everyone, each) for each in range(len(everyone))]
    index = given[rank][0]
    if index is not None:
        import torch

        torch.cuda.set_device(index)
    chosen = [(said["host"], gpu) for said, (_, gpu) in zip(everyone, given, strict=True)]
    none = [each for each, (_, gpu) in enumerate(chosen) if gpu is None]
    if len(none) == len(chosen) and backend != "nccl":
        return "gloo"
    shared = [each for each, gpu in enumerate(chosen) if chosen.count(gpu) > 1]
    if not none and not shared:
        return "gloo" if backend == "gloo" else "cpu:gloo,cuda:nccl"
    who = f"ranks {none} see no GPU" if none else f"ranks {shared} share one GPU"
    if backend == "nccl":
        raise LaunchError(f"NCCL needs a GPU of its own for every rank, but {who}: use gloo")
    if backend is None and rank == 0:
        warnings.warn(f"{who}: gloo is used, NCCL needs one GPU per rank", stacklevel=4)
    return "gloo"


def _own_gpu(everyone: Sequence[dict[str, Any]], rank: int) -> tuple[int | None, str | None]:
    """Return the index and identity of a rank's GPU: the next of its host, in rank order."""
    host, gpus = everyone[rank]["host"], everyone[rank]["gpus"]
    before = sum(said["host"] == host for said in everyone[:rank])
    if not gpus:
        return None, None
    index = before % len(gpus)
    return index, gpus[index]

"""Which GPU and which library a rank uses, given the GPUs of all ranks."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from mpicoll.errors import LaunchError, first_error
from mpicoll.gpu.current import uses_gpu
from torchcoll.rendezvous import Member

BACKENDS = ("gloo", "nccl", "ccl")
_ONECCL = "oneccl_bindings_for_pytorch"
_chosen: int | None = None
"""The number of the GPU that `choose_backend` has made this process's."""


def turn(place: int) -> int:
    """Return which GPU is a rank's, of those that it sees: the one chosen, else by its place.

    In older versions of torch the choice of GPU 0 cannot be seen later, as `set_device` does
    nothing where that is the current one already (pytorch#155668); that of 2.14 binds its context.
    """
    return place if _chosen is None else _chosen


def own_gpus() -> list[str]:
    """Return the identities of the GPUs that this process may take.

    They are all that it sees, or the one that it uses already: the user has chosen it.
    """
    import torch

    if not torch.cuda.is_available():
        return []
    chosen = uses_gpu()
    seen = _seen_gpus()
    return [seen[torch.cuda.current_device()]] if chosen else seen


def _seen_gpus() -> list[str]:
    """Return the identities of the GPUs that this process sees, in the order of their numbers."""
    import torch

    return [
        _identity(torch.cuda.get_device_properties(index))
        for index in range(torch.cuda.device_count())
    ]


def _identity(properties: Any) -> str:
    """Return the address of a GPU, which all instances of a partitioned one (MIG) have.

    NCCL counts the ranks at an address ("Duplicate GPU detected"); each instance may have a UUID of
    its own. GPUs that are no devices of PCI have no address.
    """
    address = [getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device")]
    return ":".join(f"{number:x}" for number in address) if any(address) else str(properties.uuid)


def choose_backend(members: Sequence[Member], rank: int, backend: str | None) -> str:
    """Make this rank's GPU the current one, and return the backend that serves all ranks.

    Args:
        backend: what the user asks for, if anything.

    Raises:
        LaunchError: NCCL is asked for, and some ranks see no GPU, or share one where NCCL takes one
            rank per GPU; or oneCCL is, and torch has no bindings for it.
    """
    global _chosen
    if backend == "ccl":
        try:
            import_module(_ONECCL)  # which lets torch know of it
        except ImportError as error:
            raise LaunchError(f"torch has no oneCCL: install {_ONECCL} ({error})") from None
        return "ccl"
    gpus = _own_gpus(members)
    local_gpu = gpus[rank]
    if local_gpu is not None:
        import torch

        _chosen = _seen_gpus().index(local_gpu)
        torch.cuda.set_device(_chosen)
    chosen = [(member.host, gpu) for member, gpu in zip(members, gpus, strict=True)]
    none = [peer for peer, (_, gpu) in enumerate(chosen) if gpu is None]
    if len(none) == len(chosen) and backend != "nccl":
        return "gloo"
    shared = [peer for peer, gpu in enumerate(chosen) if chosen.count(gpu) > 1]
    why = first_error(member.unshared for member in members) if shared else ""
    if not none and not why:
        return "gloo" if backend == "gloo" else "cpu:gloo,cuda:nccl"
    problem = f"ranks {none} see no GPU" if none else f"ranks {shared} share one GPU"
    reason = "NCCL needs a GPU for every rank" if none else why
    if backend == "nccl":
        raise LaunchError(f"{problem}: use gloo. {reason}")
    if backend is None and rank == 0:
        warnings.warn(f"{problem}: gloo is used. {reason}", stacklevel=4)
    return "gloo"


def _own_gpus(members: Sequence[Member]) -> list[str | None]:
    """Return the identity of each rank's GPU: of those that it may take, one that fewest have.

    Ranks with less to choose from come first, else they choose in their order. Their lists may
    differ, as CUDA_VISIBLE_DEVICES may.
    """
    choices: list[str | None] = [None] * len(members)
    taken: Counter[tuple[str, str]] = Counter()
    for rank in sorted(range(len(members)), key=lambda index: len(members[index].gpus)):
        host, gpus = members[rank].host, members[rank].gpus
        if gpus:
            choice = min(gpus, key=lambda gpu: taken[host, gpu])
            taken[host, choice] += 1
            choices[rank] = choice
    return choices

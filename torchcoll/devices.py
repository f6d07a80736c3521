"""Which GPU and which library a rank uses, given the GPUs of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from mpicoll.errors import LaunchError
from torchcoll.rendezvous import Member

BACKENDS = ("gloo", "nccl")


def own_gpus() -> list[str]:
    """Return the identities of the GPUs that this process sees."""
    import torch

    if not torch.cuda.is_available():
        return []
    return [
        str(torch.cuda.get_device_properties(index).uuid)
        for index in range(torch.cuda.device_count())
    ]


def choose_backend(members: Sequence[Member], rank: int, backend: str | None) -> str:
    """Make this rank's GPU the current one, and return the backend that serves all ranks.

    Args:
        backend: what the user asks for, if anything.

    Raises:
        LaunchError: NCCL is asked for, and some ranks have no GPU of their own.
    """
    given = [_own_gpu(members, each) for each in range(len(members))]
    index = given[rank][0]
    if index is not None:
        import torch

        torch.cuda.set_device(index)
    chosen = [(each.host, gpu) for each, (_, gpu) in zip(members, given, strict=True)]
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


def _own_gpu(members: Sequence[Member], rank: int) -> tuple[int | None, str | None]:
    """Return the index and identity of a rank's GPU: the next of its host, in rank order."""
    host, gpus = members[rank].host, members[rank].gpus
    before = sum(each.host == host for each in members[:rank])
    if not gpus:
        return None, None
    index = before % len(gpus)
    return index, gpus[index]

"""Which GPU and which library a rank uses, given the GPUs of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module

from mpicoll.errors import LaunchError, first_error
from mpicoll.gpu.current import uses_gpu
from torchcoll.rendezvous import Member

BACKENDS = ("gloo", "nccl", "ccl")
_ONECCL = "oneccl_bindings_for_pytorch"


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
        str(torch.cuda.get_device_properties(index).uuid)
        for index in range(torch.cuda.device_count())
    ]


def choose_backend(members: Sequence[Member], rank: int, backend: str | None) -> str:
    """Make this rank's GPU the current one, and return the backend that serves all ranks.

    Args:
        backend: what the user asks for, if anything.

    Raises:
        LaunchError: NCCL is asked for, and some ranks see no GPU, or share one where NCCL takes one
            rank per GPU; or oneCCL is, and torch has no bindings for it.
    """
    if backend == "ccl":
        return _oneccl()
    given = [_own_gpu(members, each) for each in range(len(members))]
    own = given[rank]
    if own is not None:
        import torch

        torch.cuda.set_device(_seen_gpus().index(own))
    chosen = [(each.host, gpu) for each, gpu in zip(members, given, strict=True)]
    none = [each for each, (_, gpu) in enumerate(chosen) if gpu is None]
    if len(none) == len(chosen) and backend != "nccl":
        return "gloo"
    shared = [each for each, gpu in enumerate(chosen) if chosen.count(gpu) > 1]
    why = first_error(each.unshared for each in members) if shared else ""
    if not none and not why:
        return "gloo" if backend == "gloo" else "cpu:gloo,cuda:nccl"
    who = f"ranks {none} see no GPU" if none else f"ranks {shared} share one GPU"
    what = "NCCL needs a GPU for every rank" if none else why
    if backend == "nccl":
        raise LaunchError(f"{who}: use gloo. {what}")
    if backend is None and rank == 0:
        warnings.warn(f"{who}: gloo is used. {what}", stacklevel=4)
    return "gloo"


def _oneccl() -> str:
    """Let torch know oneCCL, and return the name of its backend."""
    try:
        import_module(_ONECCL)
    except ImportError as error:
        raise LaunchError(f"torch has no oneCCL: install {_ONECCL} ({error})") from None
    return "ccl"


def _own_gpu(members: Sequence[Member], rank: int) -> str | None:
    """Return the identity of a rank's GPU: of those that it may take the next, in rank order."""
    host, gpus = members[rank].host, members[rank].gpus
    before = sum(each.host == host for each in members[:rank])
    return gpus[before % len(gpus)] if gpus else None

"""Which GPU a rank measures on: chosen, and named as the driver names it."""

from __future__ import annotations

from collections.abc import Iterable

from mpicoll.backend import Nodes

_REFUSED = "--device cuda (on the backends that --backends names):"


def complaint(backends: Iterable[str]) -> str | None:
    """Return why this process cannot make arrays on a GPU, None if it can."""
    for name in backends:
        try:
            count = _count(name)
        except Exception as error:  # a driver that is missing or broken raises what it likes
            return f"{_REFUSED} {name} has no GPU arrays here: {type(error).__name__}: {error}"
        if not count:
            return f"{_REFUSED} {name} sees no GPU here"
    return None


def _count(backend: str) -> int:
    if backend == "torch":
        import torch

        return torch.cuda.device_count() if torch.cuda.is_available() else 0
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


def use(backends: Iterable[str], nodes: Nodes, rank: int) -> None:
    """Give the ranks of a node one GPU after the other; under torch they have theirs already."""
    if "torch" in backends:
        return
    import cupy

    node = next(each for each in nodes if rank in each)
    cupy.cuda.Device(node.index(rank) % _count("mpi4py")).use()


def index(backends: Iterable[str]) -> int:
    """Return the number of this rank's GPU, as its process counts them."""
    if "torch" in backends:
        import torch

        return int(torch.cuda.current_device())
    import cupy

    return int(cupy.cuda.runtime.getDevice())


def identity(backends: Iterable[str]) -> str:
    """Return this rank's GPU: the driver's UUID, or its bus address."""
    if "torch" in backends:
        import torch

        return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    import cupy

    return str(cupy.cuda.runtime.deviceGetPCIBusId(cupy.cuda.runtime.getDevice()))

"""The GPU that a rank measures on, as the driver names it."""

from __future__ import annotations

from collections.abc import Iterable


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

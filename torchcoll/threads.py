"""Ranks as threads of one process, with tensors; `mpicoll.threads` has NumPy arrays."""

from __future__ import annotations

from mpicoll.threads.launch import Threads


def threads(
    size: int, *, ranks_per_node: int | None = None, deadline: float | None = None
) -> Threads:
    """Return a runner of functions on `size` ranks that are threads of this process.

    >>> import torch
    >>> threads(4)(lambda c: c.allreduce(torch.arange(3) + c.rank))[0]
    tensor([ 6, 10, 14])

    Args:
        ranks_per_node: how many ranks share memory; all of them by default.
        deadline: seconds after which a rank that waits for another gives up.
    """
    from torchcoll.arrays import HostTensors  # torch takes seconds to import

    return Threads(size, ranks_per_node, deadline, HostTensors())

"""GPU tensors under gloo, which reads host memory only: copies to the host and back.

Its counterpart is `mpicoll.mpi.staging`.
"""

from __future__ import annotations

import torch

from mpicoll.interfaces import Array


class TorchCopies:
    """`mpicoll.gpu.staging.Copies` for tensors."""

    def allocate(self, data: Array) -> Array:
        return torch.empty(data.shape, dtype=data.dtype, pin_memory=data.is_cuda)

    def copy(self, target: Array, source: Array) -> torch.cuda.Event:
        target.copy_(source, non_blocking=True)
        device = source.device if source.is_cuda else target.device
        event: torch.cuda.Event = torch.cuda.current_stream(device).record_event()
        return event

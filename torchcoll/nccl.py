"""Messages over NCCL: one communicator for all ranks of a group, on which batches run in order.

What NCCL and torch 2.13 grant, and what follows:

- "If this API is the first collective call in the ``group`` [...], all ranks of the ``group`` must
  participate in this API call; otherwise, the behavior is undefined. If this API call is not the
  first collective call in the ``group``, batched P2P operations involving only a subset of ranks of
  the ``group`` are allowed" (`torch.distributed.batch_isend_irecv`). Some ranks have no message in
  the first round of many schedules, so `Nccl.connect` makes the communicator before: by all ranks.
- "users must set the current GPU device with `torch.cuda.set_device`, otherwise it will lead to
  unexpected hang issues" (the same). `Nccl.connect` refuses another device, on all ranks.
- "Calls within a group can be seen as progressing independently, hence should never block each
  other. It is therefore important to merge calls that need to progress concurrently to avoid
  deadlocks" (NCCL's user guide, Point-to-point communication). What is sent and received at one
  time is one batch: the messages of a round, and those of ``sendrecv``. "The only exception is
  point-to-point calls within a group targeting the same peer, which are executed in order" (the
  same): in the order that both ranks give the messages of one direction; "``[recv_from_1,
  send_to_1]`` is equivalent to ``[send_to_1, recv_from_1]``" (`batch_isend_irecv`).
- "All functions of the class are expected to be called in the same order across all processes in
  the process group. This is the only way that we can guarantee to match up the same calls among all
  processes" (`ProcessGroupNCCL.hpp`); ``ncclSend`` and ``ncclRecv`` take no tag. Every batch of a
  communicator runs on its one stream. So a plan of such messages posts all its rounds before it
  returns (`mpicoll.engine.plan`), and no two of them mix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any

import torch

from mpicoll.backend import Array
from mpicoll.errors import Unavailable, first_error, on_all
from mpicoll.gpu.nccl import Memory
from torchcoll.groups import Group, nccl_communicator, nccl_of
from torchcoll.natives import bind_method
from torchcoll.requests import Post


class Nccl:
    """NCCL's messages between the ranks of a group.

    Attributes:
        device: this rank's GPU, None until all ranks are connected.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.device: torch.device | None = None
        self.windows: list[Memory] = []

    def connect(self, x: Array, exchange: Callable[[Any], list[Any]]) -> None:
        """Make the communicator of the GPUs on which every rank's `x` lies; collective.

        Raises:
            Unavailable: on all ranks, where NCCL cannot serve the tensor of one.
        """
        if reason := first_error(exchange(self._obstacle(x))):
            raise Unavailable(reason)
        if self.device is None:
            bind_method(self.group, "allreduce", [torch.zeros(1, device=x.device)])()
            self.device = x.device

    def _obstacle(self, x: Array) -> str:
        """Return why NCCL cannot serve this tensor; empty where it can."""
        caller, current = f"rank {self.group.rank()}", torch.cuda.current_device()
        # As torch's own batches ask: what serves NCCL since 2.14 (TorchComms) may have none.
        if self.device is None and not getattr(nccl_of(self.group), "supports_coalescing", False):
            return f"{caller}: what serves NCCL in this torch starts no messages together"
        if x.device.index != current:
            return (
                f"{caller} gives a tensor on {x.device} to NCCL, but its current GPU is {current}: "
                f"call torch.cuda.set_device({x.device.index})"
            )
        if self.device not in (None, x.device):
            return (
                f"{caller} gives a tensor on {x.device} to NCCL, which has connected this group's "
                f"ranks by {self.device}: make a group for the other GPU by split()"
            )
        return ""

    def check(self, x: Array) -> None:
        """Check that a message of one rank alone can be posted.

        Raises:
            Unavailable: the ranks are not connected, or by another GPU.
        """
        if self.device is None:
            raise Unavailable(
                "NCCL has not connected the ranks of this group, which takes all of them: "
                "let each call gpu_transports(), or a collective on GPU tensors, before it sends"
            )
        if reason := self._obstacle(x):
            raise Unavailable(reason)

    def window(
        self, shape: tuple[int, ...], dtype: str, like: Array, exchange: Callable[[Any], list[Any]]
    ) -> Array:
        """Return a tensor on the GPU of another, in memory that NCCL has registered; collective.

        By NCCL itself: torch's own pools of such memory (`ProcessGroupNCCL.mem_allocator`) take a
        GPU with multicast.

        Raises:
            Unavailable: on all ranks, and why.
        """
        self.connect(like, exchange)
        kind: torch.dtype = getattr(torch, dtype)
        rank, nbytes = self.group.rank(), max(1, prod(shape)) * kind.itemsize
        memory = on_all(partial(Memory, nbytes), rank, exchange)
        self.windows.append(memory)
        on_all(partial(memory.register, nccl_communicator(self.group)), rank, exchange)
        # CUDA's array interface; the tensor keeps the object, and so the memory.
        bytes_of_memory = SimpleNamespace(memory=memory, __cuda_array_interface__={
            "shape": (memory.nbytes,), "typestr": "|u1", "data": (memory.address, False),
            "version": 3,
        })  # fmt: skip
        whole: torch.Tensor = torch.as_tensor(bytes_of_memory, device=like.device)
        return whole.view(kind)[: prod(shape)].view(shape)

    def close(self) -> None:
        """Take the registrations back, before the group ends."""
        for memory in self.windows:
            with suppress(Unavailable):  # the communicator has been aborted
                memory.deregister()
        self.windows.clear()

    def batch(self, operations: Sequence[Post]) -> Post:
        """Bind operations that NCCL runs together.

        By the calls of which `batch_isend_irecv` consists: it checks every operation anew in every
        run, for longer than a short one takes. A batch ends also where an operation in it fails, as
        after an abort: all that this thread gives NCCL later, for any group, would wait in it.
        """
        group, device = self.group, self.device

        def post() -> Any:
            group._start_coalescing(device)
            try:
                for operation in operations:
                    operation()
            finally:
                work = group._end_coalescing(device)
            return work

        return post

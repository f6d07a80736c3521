"""A fake of torch's symmetric memory and its kernels, on fake GPUs.

A kernel runs when its stream is waited for, and waits there for those of the other ranks; one that
never comes ends in TimeoutError here. Between two waits the ranks work one after another, so that a
rank that writes what others still read is always seen to be wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import fake_gpu
import pytest
import torch

from mpicoll import Collectives
from mpicoll.backend import Exported

SECONDS = 10.0
_PAD = 512
"""Bytes before each tensor: a word for each rank."""


class SymmetricMemory:
    """`torch._C._distributed_c10d._SymmetricMemory`, for one rank of a group.

    Attributes:
        connected: by the address of this rank's memory, the addresses of all ranks'.
        multicast: whether the GPUs have it.
    """

    def __init__(self, c: Collectives, arrays: fake_gpu.Arrays) -> None:
        self.c, self.arrays = c, arrays
        self.like = c.gpu()
        self.gpu = arrays.gpus[arrays.gpu(self.like)]
        self.connected: dict[int, list[int]] = {}
        self.memory: dict[int, int] = {}
        self.multicast = True

    def empty_strided_p2p(self, shape: Any, stride: Any, dtype: Any, device: Any) -> Any:
        nbytes = prod(shape) * dtype.itemsize
        area = self.gpu.take(_PAD + nbytes)
        address = self.gpu.memory.base + area.start
        self._words(address).fill_(0)
        self.memory[address + _PAD] = nbytes
        name = str(dtype).removeprefix("torch.")
        return self.arrays.at(address + _PAD, name, prod(shape), self.like).view(shape)

    def _words(self, address: int) -> Any:
        return self.arrays.at(address, "int64", self.c.size, self.like)

    def _around(self, tensor: Any) -> int | None:
        start = tensor.data_ptr()
        found = (at for at, nbytes in self.memory.items() if at <= start < at + nbytes)
        return next(found, None)

    def is_symm_mem_tensor(self, tensor: Any) -> bool:
        return self._around(tensor) is not None

    def has_multicast_support(self, kind: Any, gpu: int) -> bool:
        return self.multicast

    def rendezvous(self, tensor: Any, group: Any) -> Any:
        """Map the memory of all ranks; collective where this memory is not connected yet."""
        address = self._around(tensor)
        if address is None:
            return None
        if address not in self.connected:
            every = self.c.transport.exchange(self.gpu.export(address), Exported)
            self.connected[address] = [
                address if rank == self.c.rank else self.gpu.open(handle) + offset
                for rank, (handle, offset) in enumerate(every)
            ]
        return self

    @property
    def multicast_ptr(self) -> int:
        return int(self.multicast)

    # -- the kernels ------------------------------------------------------------------

    def op(self, name: str, *arguments: Any) -> Callable[[], object]:
        """Return what puts a kernel on the caller's stream, given as torch takes it."""
        wanted = getattr(torch.ops.symm_mem, name).default._schema.arguments
        kinds = {"Tensor": torch.Tensor, "str": str, "bool": bool}
        assert [type(each) for each in arguments] == [kinds[str(each.type)] for each in wanted]
        run = getattr(self, name)
        return lambda: self.gpu.current.work.append(lambda: run(*arguments))

    def _every(self, tensor: Any) -> list[Any]:
        """Return every rank's tensor like this one."""
        address = self._around(tensor)
        assert address is not None, "no symmetric memory"
        start, name = tensor.data_ptr() - address, str(tensor.dtype).removeprefix("torch.")
        return [
            self.arrays.at(each + start, name, len(tensor), self.like)
            for each in self.connected[address]
        ]

    def _meet(self, tensor: Any) -> None:
        """Wait until all ranks have come here."""
        address = self._around(tensor)
        assert address is not None, "no symmetric memory"
        bases = [each - _PAD for each in self.connected[address]]
        own = self._words(bases[self.c.rank])
        number = int(own[self.c.rank]) + 1
        for base in bases:
            self._words(base)[self.c.rank] = number
        end = time.monotonic() + SECONDS
        while int(own.min()) < number:
            if time.monotonic() > end:
                raise TimeoutError("a kernel waits for another rank for ever")
            time.sleep(0)

    def _turns(self, tensor: Any) -> Iterator[None]:
        """Yield when it is this rank's turn, and return when all have had theirs."""
        for rank in range(self.c.size):
            self._meet(tensor)
            if rank == self.c.rank:
                yield
        self._meet(tensor)

    def _own_part(self, tensor: Any) -> slice:
        width = -(-len(tensor) // self.c.size)
        return slice(self.c.rank * width, (self.c.rank + 1) * width)

    def _total(self, tensor: Any, part: slice = slice(None)) -> Any:
        return torch.stack([each[part] for each in self._every(tensor)]).sum(0)

    def one_shot_all_reduce_out(self, x: Any, op: str, group: str, out: Any) -> None:
        for _ in self._turns(x):
            out[:] = self._total(x)

    def one_shot_all_reduce_copy_out(
        self, shared: Any, x: Any, op: str, group: str, out: Any
    ) -> None:
        shared[:] = x
        self.one_shot_all_reduce_out(shared, op, group, out)

    multimem_one_shot_all_reduce_out = one_shot_all_reduce_out

    def two_shot_all_reduce_(self, x: Any, op: str, group: str) -> None:
        part = self._own_part(x)
        for _ in self._turns(x):
            total = self._total(x, part)
            for each in self._every(x):
                each[part] = total

    multimem_all_reduce_ = two_shot_all_reduce_

    def two_shot_all_reduce_out(self, x: Any, op: str, group: str, out: Any) -> None:
        part = self._own_part(x)
        for _ in self._turns(x):
            x[part] = self._total(x, part)
        width = part.stop - part.start
        for rank, each in enumerate(self._every(x)):
            out[rank * width : (rank + 1) * width] = each[rank * width : (rank + 1) * width]
        self._meet(x)

    def reduce_scatter_out(self, x: Any, group: str, columns: bool, out: Any) -> None:
        assert not columns
        for _ in self._turns(x):
            out[:] = self._total(x, self._own_part(x))

    def multimem_all_gather_out(self, x: Any, group: str, out: Any) -> None:
        for _ in self._turns(out):
            for each in self._every(out):
                each[self.c.rank * len(x) : (self.c.rank + 1) * len(x)] = x


def install(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> SymmetricMemory:
    """Give each rank of a group a fake GPU with symmetric memory."""
    from torch.distributed import _symmetric_memory

    from torchcoll import symmetric

    memory = SymmetricMemory(c, fake_gpu.install(c))
    monkeypatch.setattr(symmetric.c10d, "_SymmetricMemory", memory)
    monkeypatch.setattr(_symmetric_memory, "rendezvous", memory.rendezvous)
    monkeypatch.setattr(symmetric, "_op", memory.op)
    monkeypatch.setattr(symmetric, "_has_kernels", lambda: True)
    return memory

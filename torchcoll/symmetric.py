"""torch's own kernels over symmetric memory: ``native:symm_one_shot`` and others.

Users of torch would take them themselves (`torch.ops.symm_mem`). Each is one kernel that every rank
puts on its stream, and that waits on the GPU for those of the others, by words in their memory
("signal pads"), without end: a rank that never comes holds up the GPUs of all.

What torch 2.11 and 2.13 demand (`CUDASymmetricMemoryOps.cu`): float32 or bfloat16, sums, and
multiples of 4 bytes. They check the offset of a tensor in its storage and not its address, so
that is checked here: another address would be read by words that do not lie there.

A tensor that does not lie in symmetric memory is copied to a buffer there, one for each plan.
`symm_mem.empty` would take that buffer from a pool, where it may meet one of an earlier plan on
some ranks alone, as plans go when each rank's garbage collector decides; `rendezvous` then waits
for ranks that find theirs connected already. `empty_strided_p2p`, on which it stands, makes memory
anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple, cast

import torch
from torch._C import _distributed_c10d as c10d

from mpicoll.backend import SYMMETRIC, Array, Native, NativeCall, Thunk, Transport
from mpicoll.errors import Unavailable, first_error, on_all
from mpicoll.gpu.natives import queued
from mpicoll.machine.nodes import host_identity
from torchcoll.arrays import as_bytes, vector
from torchcoll.groups import Group
from torchcoll.kernels import on_device

OVERLAPPING = "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"
COPIED = f"{SYMMETRIC}+copied"
"""The transport of arrays that do not lie in symmetric memory."""
_ALIGNMENT = 16
_SUMS = ("sum", "avg")
_DTYPES = (torch.float32, torch.bfloat16)
_UNROLLED = (2, 4, 8)
"""Numbers of ranks for which torch has compiled a two-shot into another tensor."""


class Operands(NamedTuple):
    """The flat tensors of a call.

    Attributes:
        shared: the one in symmetric memory: `x` or `out` itself, or a buffer.
        is_direct: whether it is `x` or `out`.
        group: torch's name of the group, of `size` ranks.
        copy: binds a copy.
    """

    x: Array
    out: Array
    shared: Array
    is_direct: bool
    group: str
    size: int
    copy: Callable[[Array, Array], Thunk]


class Kernel(NamedTuple):
    """One of torch's kernels.

    Attributes:
        bind: returns the calls of a run.
        shares: which tensor of a call it reads or writes on other ranks.
        in_place: which calls need no buffer, as the kernel would write what others still read, or
            what is to stay; None for all of them.
        multicast: whether it needs GPUs that write and fold by one address for all of them.
    """

    bind: Callable[[Operands], Sequence[Thunk]]
    shares: str = "x"
    in_place: bool | None = None
    multicast: bool = False

    def shared(self, call: NativeCall) -> Array | None:
        """Return the tensor of a call that may lie in symmetric memory; None for a buffer."""
        fits = self.in_place in (None, call.in_place)
        return getattr(call, self.shares) if fits else None


class Symmetric:
    """The kernels over symmetric memory of one group."""

    def __init__(self, transport: Transport, group: Group) -> None:
        self.transport, self.group = transport, group

    def natives(self, collective: str) -> Mapping[str, Callable[[NativeCall], Native]]:
        """Return the functions that bind a collective, by the names of the kernels."""
        kernels = KERNELS.get(collective, {}) if _has_kernels() else {}
        return {name: partial(self.bind, kernel) for name, kernel in kernels.items()}

    def bind(self, kernel: Kernel, call: NativeCall) -> Native:
        """Bind a collective; all ranks do, as they map each other's memory.

        Raises:
            Unavailable: on all ranks, where the kernel cannot serve the call of one.
        """
        is_direct, arrays = self._agree(kernel, call), self.transport.arrays
        x, out = cast("Array", call.x), cast("Array", call.out)
        flat = vector if call.collective.reduces else as_bytes
        shared = flat(cast("Array", kernel.shared(call)).detach()) if is_direct else None
        x, out = flat(x.detach()), flat(out.detach())
        if not len(x):
            return queued(arrays, x, [], SYMMETRIC)
        shared = self._map(max(x, out, key=len), shared, multicast=kernel.multicast)
        operands = Operands(
            x, out, shared, is_direct, self.group.group_name, self.transport.size, arrays.copier,
        )  # fmt: skip
        calls = [on_device(x.device, run) for run in kernel.bind(operands)]
        return queued(arrays, x, calls, SYMMETRIC if is_direct else COPIED)

    def _agree(self, kernel: Kernel, call: NativeCall) -> bool:
        """Return whether every rank's tensor lies in symmetric memory, at the same offset.

        Raises:
            Unavailable: on all ranks, where the kernel cannot serve the call of one.
        """
        why, gpu, offset = self._lack(kernel, call), -1, -1
        if not why:
            gpu, offset = self.transport.arrays.gpu(call.x), _offset(kernel.shared(call))
        why = why and f"rank {self.transport.rank}: {why}"
        records = self.transport.exchange((why, host_identity(), gpu, offset))
        if reason := first_error(record[0] for record in records):
            raise Unavailable(reason)
        hosts, gpus, offsets = ([record[place] for record in records] for place in (1, 2, 3))
        if len(set(hosts)) > 1:
            raise Unavailable("the ranks are on several hosts: torch maps the memory of one")
        allows = os.environ.get(OVERLAPPING) == "1"
        if len(set(gpus)) < len(gpus) and not allows:
            raise Unavailable(
                "ranks share a GPU, or each counts its own as the first, which torch's symmetric "
                f"memory refuses: set {OVERLAPPING}=1"
            )
        if kernel.multicast and allows:
            raise Unavailable(f"{OVERLAPPING} turns off multicast, which this kernel needs")
        return offset >= 0 and len(set(offsets)) == 1

    def _map(self, whole: Array, shared: Array | None, *, multicast: bool) -> Array:
        """Return a tensor of which every rank has mapped those of the others; collective.

        torch keeps them mapped as long as the tensor's memory lives.

        Args:
            shared: the tensor of the user's; a buffer like `whole` where there is none.

        Raises:
            Unavailable: on all ranks, where one has no memory for it, or cannot map another's.
        """
        from torch.distributed import _symmetric_memory as memory

        def allocate() -> Array:
            with _in_one_line():
                return c10d._SymmetricMemory.empty_strided_p2p(
                    whole.shape, whole.stride(), whole.dtype, whole.device
                )

        def connect() -> None:
            with _in_one_line():
                handle = memory.rendezvous(tensor, self.group)
            if multicast and not handle.multicast_ptr:
                raise Unavailable("this GPU has no multicast with those of the others")

        rank, exchange = self.transport.rank, self.transport.exchange
        tensor = on_all(allocate, rank, exchange) if shared is None else shared
        on_all(connect, rank, exchange)
        return tensor

    def _lack(self, kernel: Kernel, call: NativeCall) -> str:
        """Return why a kernel cannot serve a call; empty where it can."""
        x, out, name = call.x, call.out, call.collective.name
        arrays, size = self.transport.arrays, self.transport.size
        if x is None or out is None or arrays.is_on_host(x) or arrays.is_on_host(out):
            return "symmetric memory takes CUDA tensors"
        if call.counts is not None:
            return f"torch's kernels have no {name} of unequal counts"
        if call.collective.reduces and (call.op.function is not None or call.op.name not in _SUMS):
            return f"torch's kernels sum, and have no op {call.op.name!r}"
        if call.collective.reduces and x.dtype not in _DTYPES:
            return f"torch's kernels fold float32 and bfloat16, not {arrays.dtype(x)}"
        if any(tensor.data_ptr() % _ALIGNMENT for tensor in (x, out)):
            return f"an array begins at no multiple of {_ALIGNMENT} bytes"
        unit = 4 if name == "allreduce" else _ALIGNMENT
        row = min(x.numel(), out.numel()) * x.element_size()
        if row % unit:
            return f"torch's kernels take multiples of {unit} bytes, not {row}"
        if name == "reduce_scatter" and size not in _UNROLLED:
            return f"torch has no such kernel for {size} ranks, but for 2, 4 and 8"
        if kernel.multicast:
            cuda = torch._C._autograd.DeviceType.CUDA
            if not c10d._SymmetricMemory.has_multicast_support(cuda, arrays.gpu(x)):
                return "this GPU has no multicast"
        return ""


def _offset(tensor: Array | None) -> int:
    """Return the offset of a tensor in symmetric memory; -1 where it does not lie there.

    torch tells that from version 2.12 on.
    """
    lies_there = getattr(c10d._SymmetricMemory, "is_symm_mem_tensor", None)
    if tensor is None or lies_there is None or not lies_there(tensor):
        return -1
    return int(tensor.storage_offset())


@cache
def _has_kernels() -> bool:
    """Whether this torch has the kernels, and a GPU."""
    names = ("one_shot_all_reduce_copy_out", "two_shot_all_reduce_", "multimem_all_gather_out")
    return torch.cuda.is_available() and all(hasattr(torch.ops.symm_mem, name) for name in names)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Raise torch's errors as Unavailable, without the stack that follows their first line."""
    try:
        yield
    except RuntimeError as error:
        raise Unavailable(str(error).partition("\n")[0]) from None


# -- the kernels -----------------------------------------------------------------------------


def _op(name: str, *arguments: Any) -> Thunk:
    return partial(getattr(torch.ops.symm_mem, name), *arguments)


def _one_shot(a: Operands) -> list[Thunk]:
    if a.is_direct:
        return [_op("one_shot_all_reduce_out", a.x, "sum", a.group, a.out)]
    return [_op("one_shot_all_reduce_copy_out", a.shared, a.x, "sum", a.group, a.out)]


def _two_shot(a: Operands) -> list[Thunk]:
    if a.size not in _UNROLLED:
        return _in_place("two_shot_all_reduce_", a)
    if a.is_direct:
        return [_op("two_shot_all_reduce_", a.shared, "sum", a.group)]
    into = _op("two_shot_all_reduce_out", a.shared, "sum", a.group, a.out)
    return [a.copy(a.shared, a.x), into]


def _in_place(name: str, a: Operands) -> list[Thunk]:
    """Return the calls of a kernel that leaves the result where its input was."""
    call = _op(name, a.shared, "sum", a.group)
    if a.is_direct:
        return [call]
    return [a.copy(a.shared, a.x), call, a.copy(a.out, a.shared)]


def _multimem_one_shot(a: Operands) -> list[Thunk]:
    call = _op("multimem_one_shot_all_reduce_out", a.shared, "sum", a.group, a.out)
    return [call] if a.is_direct else [a.copy(a.shared, a.x), call]


def _reduce_scatter(a: Operands) -> list[Thunk]:
    call = _op("reduce_scatter_out", a.shared, a.group, False, a.out)  # rows, not columns
    return [call] if a.is_direct else [a.copy(a.shared, a.x), call]


def _multimem_all_gather(a: Operands) -> list[Thunk]:
    call = _op("multimem_all_gather_out", a.x, a.group, a.shared)
    return [call] if a.is_direct else [call, a.copy(a.out, a.shared)]


KERNELS: dict[str, dict[str, Kernel]] = {
    "allreduce": {
        "symm_one_shot": Kernel(_one_shot, in_place=False),
        "symm_two_shot": Kernel(_two_shot, in_place=True),
        "symm_multimem": Kernel(
            partial(_in_place, "multimem_all_reduce_"), in_place=True, multicast=True
        ),
        "symm_multimem_one_shot": Kernel(_multimem_one_shot, in_place=False, multicast=True),
    },
    "reduce_scatter": {"symm_two_shot": Kernel(_reduce_scatter)},
    "allgather": {"symm_multimem": Kernel(_multimem_all_gather, "out", multicast=True)},
}

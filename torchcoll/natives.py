"""torch.distributed's own collectives: calls, tensors and operators.

Its counterpart is `mpicoll.mpi.natives`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import torch
import torch.distributed as dist

from mpicoll.backend import DIRECT, Array, Arrays, Native, NativeCall, Request, Stage, Thunk
from mpicoll.errors import CollectiveError, Unavailable
from mpicoll.gpu.nccl import blocks
from mpicoll.peers.known import Peers
from torchcoll.arrays import as_bytes, vector
from torchcoll.groups import Group
from torchcoll.operations import BY_METHOD, REDUCE_OPS
from torchcoll.requests import NcclWaits, Post, Waits, Works, message_of

_OPS = {**REDUCE_OPS, "avg": REDUCE_OPS["sum"]}
_OPS_ON_BOOL = {
    **_OPS, "band": dist.ReduceOp.MIN, "land": dist.ReduceOp.MIN,
    "bor": dist.ReduceOp.MAX, "lor": dist.ReduceOp.MAX,
}  # fmt: skip
_NOT_REDUCED = ("int16", "uint16", "uint32", "uint64")
_BITWISE = (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR)
GLOO_ON_GPU = ("broadcast", "allreduce")
"""Collectives that gloo has for CUDA tensors too: it copies them to the host itself."""


def bind_method(group: Group, collective: str, *arguments: Any, **options: Any) -> Post:
    """Bind a group's own method; a call waits for its end.

    The functions of torch.distributed ask for the default group and for a registered name, which
    not every group has.
    """
    operation = BY_METHOD[collective]
    chosen = operation.options()
    for name, value in options.items():
        setattr(chosen, name, value)
    return partial(_post, operation.of(group), arguments, chosen)


def _post(method: Any, arguments: Sequence[Any], options: Any, *, async_op: bool = False) -> Any:
    """Start a collective, and return its work; wait for it where it is not asynchronous."""
    if hasattr(options, "asyncOp"):  # not in every torch
        options.asyncOp = async_op
    work = method(*arguments, options)
    if async_op:
        return work
    if work is not None:
        work.wait()
    return None


@contextmanager
def watched(peers: Peers, title: str) -> Iterator[None]:
    """Begin an exchange of all ranks, and name those that did not come where it fails.

    Raises:
        RankLost: the library has lost a rank, or waited until the deadline.
    """
    peers.exchanges += 1
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, CollectiveError):
            raise
        raise peers.lost(Stage(title), peers.absent(peers.is_behind), message_of(error)) from error


def bind(group: Group, arrays: Arrays, peers: Peers, call: NativeCall, *, nccl: bool) -> Native:
    """Bind torch.distributed's own collective.

    gloo ends it at the timeout of the group, which a deadline sets, and so does NCCL where the host
    waits for it (`mpicoll.gpu.nccl.blocks`); else torch ends the process then.

    Args:
        nccl: whether the group has NCCL for CUDA tensors.

    Raises:
        Unavailable: torch.distributed, gloo or NCCL lacks the operator for this dtype.
    """
    array = call.array
    by_nccl = nccl and not arrays.is_on_host(array)
    averages = by_nccl and call.op.name == "avg" and call.op.function is None
    post, prologue, epilogue = _arguments(group, arrays, _detached(call), averages=averages)
    stage = Stage(f"torch.distributed's own {call.collective.name}")
    waits = NcclWaits(group, peers, stage) if by_nccl else Waits(peers, stage)
    polls = call.collective.name != "reduce_scatter" or nccl
    started = partial(post, async_op=True)
    call_and_wait = (lambda: waits.wait(started(), 0)) if by_nccl and blocks() else post

    def run_bound(post: Post, prologue: list[Thunk], epilogue: list[Thunk]) -> None:
        for thunk in prologue:
            thunk()
        peers.native = True
        try:
            post()
        except RuntimeError as error:
            raise waits.failed(error, None) from error
        peers.native = False
        for thunk in epilogue:
            thunk()

    kinds = call._replace(x=None, out=None)

    def run_on(x: Array | None, out: Array | None) -> None:
        bound_call = _detached(kinds._replace(x=x, out=out))
        run_bound(*_arguments(group, arrays, bound_call, averages=averages))

    def start() -> Request:
        for thunk in prologue:
            thunk()
        works = Works([started], epilogue, polls=polls, waits=waits)
        return works.start()

    run = partial(run_bound, call_and_wait, prologue, epilogue)
    if by_nccl:
        return Native(run, start, lambda: None, DIRECT, averages)
    return Native(run, start, lambda: None, run_on=run_on)


def _arguments(
    group: Group, arrays: Arrays, call: NativeCall, *, averages: bool
) -> tuple[Post, list[Thunk], list[Thunk]]:
    """Return the bound call, and copies that must come before and after it."""
    name, x, out = call.collective.name, call.x, call.out
    device = arrays.empty((0,), "uint8").device
    root, size, copy = call.root, group.size(), arrays.copier
    method = partial(bind_method, group)
    if name == "barrier":
        return method("barrier", device=device), [], []
    if name == "broadcast":
        source, last = (out, []) if x is None or call.in_place else (x, [copy(out, x)])
        return method("broadcast", [as_bytes(source)], rootRank=root), [], last
    if name in ("allreduce", "reduce"):
        # torch folds in place, and reduce may write on every rank: never in the input.
        target = torch.empty_like(x) if out is None else out  # type: ignore[arg-type]
        first = [] if call.in_place else [copy(target, x)]
        op = _op(arrays, call, averages=averages)
        options = {"rootRank": root} if name == "reduce" else {}
        return method(name, [_real(target)], reduceOp=op, **options), first, []
    if name == "reduce_scatter":
        op = _op(arrays, call, averages=averages)
        tensors = _real(vector(out)), _real(vector(x))
        return method("reduce_scatter_single", *tensors, reduceOp=op), [], []
    if name == "gather":
        return method("gather", _rows(out, size), [as_bytes(x)], rootRank=root), [], []
    if name == "allgather":
        return method("all_gather_single", as_bytes(out), as_bytes(x)), [], []
    if name == "scatter":
        return method("scatter", [as_bytes(out)], _rows(x, size), rootRank=root), [], []
    # In place, alltoall reads a copy of what it overwrites.
    source = torch.empty_like(x) if call.in_place else x  # type: ignore[arg-type]
    first = [copy(source, x)] if call.in_place else []
    splits = _splits(call)
    return method("all_to_all_single", as_bytes(out), as_bytes(source), *splits), first, []


def _real(x: Array) -> Array:
    """Return a complex tensor as one of pairs of numbers, as a library takes it."""
    return torch.view_as_real(x) if x.is_complex() else x


def _splits(call: NativeCall) -> tuple[list[int], list[int]]:
    """Return the bytes that an alltoall receives from each rank, and those that it sends to it."""
    if call.counts is None:
        return [], []
    assert call.x is not None
    width = prod(call.x.shape[1:]) * call.x.element_size()
    received = [rows[call.rank] * width for rows in call.counts]
    return received, [rows * width for rows in call.counts[call.rank]]


def _op(arrays: Arrays, call: NativeCall, *, averages: bool) -> Any:
    """Return the ReduceOp of a call.

    Raises:
        Unavailable: torch.distributed, gloo or NCCL lacks it for this dtype.
    """
    assert call.x is not None
    dtype, name = arrays.dtype(call.x), call.op.name
    library = "NCCL" if call.x.is_cuda else "gloo"
    if call.op.function is not None:
        raise Unavailable(f"torch.distributed takes no user operator ({name}): use a schedule")
    if dtype in _NOT_REDUCED:
        raise Unavailable(f"{library} reduces no {dtype}: use int32, int64, or a schedule")
    if name == "prod" and dtype.startswith("complex"):
        raise Unavailable(f"torch.distributed has no product of {dtype}: use a schedule")
    if averages:
        return dist.ReduceOp.AVG
    op = (_OPS_ON_BOOL if dtype == "bool" else _OPS).get(name)
    if op is None:
        raise Unavailable(
            f"torch.distributed has no op {name!r} on {dtype}: use bool, or a schedule"
        )
    if call.x.is_cuda and op in _BITWISE:
        raise Unavailable(f"NCCL has no op {name!r} on {dtype}: use a schedule")
    return op


def _rows(x: Array | None, size: int) -> list[list[Array]]:
    """Return a list of one byte view per rank; no list where this rank has no rows."""
    if x is None:
        return []
    data = as_bytes(x)
    width = data.numel() // size
    return [[data[rank * width : (rank + 1) * width] for rank in range(size)]]


def _detached(call: NativeCall) -> NativeCall:
    """Return a call whose tensors are not recorded by autograd."""
    x, out = (None if tensor is None else tensor.detach() for tensor in (call.x, call.out))
    return call._replace(x=x, out=out)

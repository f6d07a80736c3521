"""MPI's own collectives: names, buffers and operators (MPI-4.1, chapter 6).

Its counterpart is `torchcoll.natives`.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.backend import Array, Arrays, Native, NativeCall, Request, Stage, Thunk
from mpicoll.errors import Unavailable
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.mpi.arrays import numpy_dtype
from mpicoll.mpi.requests import (
    Resources,
    StartedRequest,
    Waits,
    abort,
)
from mpicoll.notation.elements import ReduceOp
from mpicoll.peers.known import Peers
from mpicoll.peers.search import AllRanks
from mpicoll.peers.watch import guarded

_TYPES = {
    "bool": MPI.C_BOOL,
    "int8": MPI.INT8_T, "int16": MPI.INT16_T, "int32": MPI.INT32_T, "int64": MPI.INT64_T,
    "uint8": MPI.UINT8_T, "uint16": MPI.UINT16_T, "uint32": MPI.UINT32_T, "uint64": MPI.UINT64_T,
    "float32": MPI.FLOAT, "float64": MPI.DOUBLE,
    "complex64": MPI.C_FLOAT_COMPLEX, "complex128": MPI.C_DOUBLE_COMPLEX,
}  # fmt: skip
_OPS = {
    "sum": MPI.SUM, "avg": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX,
    "band": MPI.BAND, "bor": MPI.BOR, "bxor": MPI.BXOR, "land": MPI.LAND, "lor": MPI.LOR,
}  # fmt: skip
_OPS_ON_BOOL = {**_OPS, "band": MPI.LAND, "bor": MPI.LOR, "bxor": MPI.LXOR}


def bind(
    comm: MPI.Comm, arrays: Arrays, peers: Peers, call: NativeCall, *, persistent: bool
) -> Native:
    """Bind MPI's own collective.

    A started or persistent one ends at the deadline. A blocking one cannot be left: there, the
    process ends.

    Raises:
        Unavailable: this MPI has no persistent form of it.
    """
    is_alltoallv = call.collective.name == "alltoall" and call.counts is not None
    if call.in_place and (call.collective.name == "reduce_scatter" or is_alltoallv):
        return _out_of_place(comm, arrays, peers, call, persistent=persistent)
    resources = Resources()
    op = _op(arrays, call, resources) if call.collective.reduces else None
    name, arguments, copies = _arguments(call, op, call.x, call.out)
    kind = call._replace(x=None, out=None)
    if persistent:
        native = _persistent(comm, name, arguments, resources, copies, peers)
        return native._replace(run_on=partial(_bind_and_run, comm, arrays, peers, kind))
    title = f"MPI's own {call.collective.name}"
    waits = Waits(peers, Stage(title), AllRanks(peers))
    method, nonblocking = getattr(comm, name), getattr(comm, "I" + name.lower())
    begin = partial(nonblocking, *arguments)
    watched = guarded(method, peers, title, abort)
    run = resources.kept_by(partial(watched, *arguments))
    run_on = partial(_run_on, watched, kind, op, resources)

    def start() -> Request:
        return StartedRequest(peers.inside(begin), (resources, arguments), copies, waits)

    if copies:
        return Native(
            lambda: (run(), *(copy() for copy in copies)), start, resources.free, run_on=run_on
        )
    mpi_method = partial(method, *map(_untyped, arguments))
    return Native(run, start, resources.free, method=mpi_method, run_on=run_on)


def _run_on(
    method: Callable[..., object], call: NativeCall, op: MPI.Op | None, _resources: Resources,
    x: Array | None, out: Array | None,
) -> None:  # fmt: skip
    """Run a call of MPI's own on other arrays."""
    _, arguments, copies = _arguments(call, op, x, out)
    method(*arguments)
    for copy in copies:
        copy()


def _bind_and_run(
    comm: MPI.Comm, arrays: Arrays, peers: Peers, call: NativeCall, x: Array | None,
    out: Array | None,
) -> None:  # fmt: skip
    """Run a persistent call, which MPI binds to arrays, on other ones."""
    native = bind(comm, arrays, peers, call._replace(x=x, out=out), persistent=True)
    try:
        native.run()
    finally:
        native.free()


def _persistent(
    comm: MPI.Comm, name: str, arguments: list[Any], resources: Resources, copies: list[Thunk],
    peers: Peers,
) -> Native:  # fmt: skip
    """Bind a persistent collective, whose request is freed with `resources`.

    Raises:
        Unavailable: this MPI has none.
    """
    try:
        request: MPI.Prequest = getattr(comm, f"{name}_init")(*arguments)
    except (AttributeError, NotImplementedError, MPI.Exception) as error:
        raise Unavailable(f"{MPI.get_vendor()[0]} has no {name}_init: {error}") from None
    resources.add(request, arguments)
    waits = Waits(peers, Stage(f"MPI's own {name}"), AllRanks(peers))

    def start() -> Request:
        peers.inside(request.Start)
        return StartedRequest(request, (resources, arguments), copies, waits)

    def run(_resources: object = resources) -> None:
        peers.inside(request.Start)
        waits.wait(request.Test)
        for copy in copies:
            copy()

    return Native(run, start, resources.free)


def _out_of_place(
    comm: MPI.Comm, arrays: Arrays, peers: Peers, call: NativeCall, *, persistent: bool
) -> Native:
    """Run out of place and copy, where MPI's in-place form lays the result out differently."""
    assert call.out is not None
    result = np.empty_like(call.out)
    changed = call._replace(out=result, in_place=False)
    bound = bind(comm, arrays, peers, changed, persistent=persistent)
    copy, run_bound_on = arrays.copier(call.out, result), bound.run_on
    assert run_bound_on is not None

    def run_on(x: Array | None, out: Array | None) -> None:
        fresh = np.empty_like(out)
        run_bound_on(x, fresh)
        arrays.copy(out, fresh)

    return Native(
        lambda: (bound.run(), copy()),
        lambda: StartedRequest(bound.start(), bound, [copy]),
        bound.free, run_on=run_on,
    )  # fmt: skip


def _arguments(
    call: NativeCall, op: MPI.Op | None, x: Array | None, out: Array | None
) -> tuple[str, list[Any], list[Thunk]]:
    """Return MPI's name of a collective, its arguments, and copies that must follow."""
    name, arguments, copies = _buffers(call, x, out)
    if op is not None:
        arguments.insert(3 if name == "Reduce_scatter" else 2, op)
    if call.collective.rooted:
        arguments.append(call.root)
    return name, arguments, copies


def _buffers(
    call: NativeCall, x: Array | None, out: Array | None
) -> tuple[str, list[Any], list[Thunk]]:
    """Return MPI's name of a collective, its buffers, and copies that must follow."""
    name, counts = call.collective.name, call.counts
    if name == "barrier":
        return "Barrier", [], []
    if name == "broadcast":
        if x is None or call.in_place:
            return "Bcast", [_typed(out)], []
        return "Bcast", [_typed(x)], [partial(operator.setitem, out, ..., x)]
    sent, received = None, None
    if counts is not None and name in ("gather", "allgather"):
        received = counts
    elif counts is not None and name == "scatter":
        sent = counts
    elif counts is not None and name == "alltoall":
        sent, received = counts[call.rank], [row[call.rank] for row in counts]
    in_place = (name != "scatter", name == "scatter") if call.in_place else (False, False)
    buffers = [
        MPI.IN_PLACE if in_place[0] else _buffer(x, sent),
        MPI.IN_PLACE if in_place[1] else _buffer(out, received),
    ]
    if name == "reduce_scatter":
        if counts is None:
            return "Reduce_scatter_block", buffers, []
        return "Reduce_scatter", [*buffers, _buffer(out, counts)[1]], []
    return name.capitalize() + "v" * (counts is not None), buffers, []


def _op(arrays: Arrays, call: NativeCall, resources: Resources) -> MPI.Op:
    assert call.x is not None
    dtype = arrays.dtype(call.x)
    if call.op.function is None and dtype in _TYPES:
        return (_OPS_ON_BOOL if dtype == "bool" else _OPS)[call.op.name]
    return resources.add_op(MPI.Op.Create(_fold_bytes(call.op, dtype), call.op.commutative))


def _typed(x: Array) -> Any:
    """Return mpi4py's buffer triple; halves, which MPI lacks, travel as pairs of bytes."""
    if not x.size:
        # MPI refuses aliased buffers even where they are empty, as a slice of the other may be.
        x = np.empty(1, x.dtype)[:0].reshape(x.shape)
    name = _name(x.dtype)
    if name == "bfloat16":
        x = x.view(np.uint16)
    elif name in _TYPES:
        return [x, _TYPES[name]]
    return [x, _half()]


@cache
def _name(kind: np.dtype[Any]) -> str:
    """Return the name of a dtype, which takes NumPy longer than all else that binds a call."""
    return kind.name


def _untyped(argument: Any) -> Any:
    """Return the array of a buffer whose type mpi4py finds itself; other arguments as they are."""
    if isinstance(argument, list) and len(argument) == 2 and argument[1] in _TYPES.values():
        return argument[0]
    return argument


_HALF: list[MPI.Datatype] = []


def _half() -> MPI.Datatype:
    if not _HALF:
        _HALF.append(MPI.BYTE.Create_contiguous(2).Commit())
        weakref.finalize(_HALF[0], _HALF.clear)
    return _HALF[0]


def _buffer(x: Array | None, rows: Sequence[int] | None) -> Any:
    """Return a buffer, with counts and displacements for arrays of `rows` rows per rank."""
    if x is None or rows is None:
        return None if x is None else _typed(x)
    width = int(np.prod(x.shape[1:], dtype=np.int64))
    counts = [count * width for count in rows]
    memory, kind = _typed(x)
    return [memory, counts, list(accumulate(counts, initial=0))[:-1], kind]


def _fold_bytes(op: ReduceOp, dtype: str) -> Callable[[Any, Any, MPI.Datatype], None]:
    """Return an MPI user function: ``inout = in op inout`` on raw memory."""
    arrays, kind = NumpyArrays(), numpy_dtype(dtype)

    def fold(lhs: Any, rhs: Any, datatype: MPI.Datatype) -> None:
        target = np.frombuffer(rhs, kind)
        arrays.folder(op, np.frombuffer(lhs, kind), target, target)()

    return fold

"""Reductions that are left to MPI, in the order of the ranks: MPI moves the data, ranks fold it.

``MPICOLL_REPRODUCIBLE=1`` asks for ((rank 0 op rank 1) op rank 2) op ..., wherever the ranks lie
and whatever the operator. Each rank gets a part of all ranks' arrays, folds it one by one, and the
parts go to where they are wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce, wraps
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.errors import brief
from mpicoll.mpi.communicator.buffers import Flat, datatype, folds, is_in_place
from mpicoll.mpi.communicator.objects import fold_of
from mpicoll.mpi.communicator.packing import entries
from mpicoll.mpi.communicator.reading import Reading
from mpicoll.mpi.exchange import exchange_numbers

Method = Callable[..., Any]


def in_order(name: str, method: Method) -> Method:
    """Return a method of mpi4py that folds rank by rank; itself where it does not fold.

    Args:
        method: MPI's own.
    """
    make = _METHODS.get(name)
    return method if make is None else wraps(method)(make(name.lower(), method))


def _of_objects(name: str, _: Method) -> Method:
    def call(comm: MPI.Intracomm, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Any:
        plain, fold, error = MPI.Intracomm(comm), fold_of(op), None
        if name.endswith("scan"):
            items = plain.allgather(sendobj)[: comm.rank + (name == "scan")]
            return reduce(fold, items) if items else None
        values = plain.gather(sendobj, root)
        if name == "reduce":
            return values and reduce(fold, values)
        outcome: Any = None  # a function may give another result elsewhere
        try:
            outcome = values and (True, MPI.pickle.dumps(reduce(fold, values)))
        except Exception as failure:
            error, outcome = failure, (False, brief(failure))
        is_there, value = plain.bcast(outcome)
        if not is_there:
            raise error or RuntimeError(f"the reduction has failed on rank 0: {value}")
        return MPI.pickle.loads(value)

    return call


def _of_arrays(name: str, method: Method) -> Method:
    def call(
        comm: MPI.Intracomm, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, root: int = 0
    ) -> None:
        if _is_mpis(comm, name, sendbuf, recvbuf, op, root):
            method(comm, sendbuf, recvbuf, op, *([root] if name == "reduce" else ()))

    return call


def _of_rows(name: str, method: Method) -> Method:
    def call(
        comm: MPI.Intracomm, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: Any = MPI.SUM
    ) -> None:
        counts = recvcounts
        if counts is None and not is_in_place(sendbuf):
            lengths = exchange_numbers(MPI.Intracomm(comm), [_length(recvbuf)])
            counts = [length for (length,) in lengths]
        if counts is None or _is_mpis(comm, name, sendbuf, [recvbuf, counts], op, 0):
            method(comm, sendbuf, recvbuf, recvcounts, op)

    return call


_METHODS: dict[str, Callable[[str, Method], Method]] = {
    **dict.fromkeys(("reduce", "allreduce", "scan", "exscan"), _of_objects),
    **dict.fromkeys(("Reduce", "Allreduce", "Reduce_scatter_block", "Scan", "Exscan"), _of_arrays),
    "Reduce_scatter": _of_rows,
}


def _length(spec: Any) -> int:
    """Return the elements of a buffer, -1 of one that MPI alone can read."""
    try:
        return entries(spec)
    except Exception:  # whatever is wrong, MPI's own method says it
        return -1


def _is_mpis(comm: MPI.Intracomm, name: str, x: Any, out: Any, op: Any, root: int) -> bool:
    """Run a call; True where MPI is to run it, as only MPI reads its arguments."""
    spec = x if not is_in_place(x) else out[0] if name == "reduce_scatter" else out
    run = partial(_fold, comm, name, op, root, spec)
    return bool(Reading(comm.rank, comm.size).run(name, x, out, root, run))


def _fold(
    comm: MPI.Intracomm, name: str, op: MPI.Op, root: int, spec: Any, x: Any, out: Any
) -> bool | None:
    """Run a call: MPI's own calls move the parts there and back, and ranks fold them between.

    Args:
        spec: the buffer with the datatype.
    """
    out, counts = out if isinstance(out, list) else (out, None)
    source: Flat = out if x is MPI.IN_PLACE else x
    if op.is_predefined and not folds(op, source.dtype):
        return True
    size, plain, kind = comm.size, MPI.Intracomm, datatype(spec)
    scatters = name.startswith("reduce_scatter")
    if not scatters:
        counts = _shares(source, op, root, size)
    elif counts is None:
        counts = [source.size // size] * size
    share = counts[comm.rank]
    rows = np.empty((size, share), source.dtype)
    plain.Alltoallv(comm, [source, counts, kind], [rows, [share] * size, kind])
    if share:
        for prefix, row in pairwise(rows):
            op.Reduce_local([prefix, kind], [row, kind])
    total = [rows[-1], kind]
    if scatters:
        out[:share] = rows[-1]
    elif name == "allreduce":
        plain.Allgatherv(comm, total, [out, counts, kind])
    elif name == "reduce":
        target = [out, counts, kind] if comm.rank == root else None
        plain.Gatherv(comm, total, target, root)
    else:
        without = int(name == "exscan")  # so many ranks get nothing
        sent = [0] * without + [share] * (size - without)
        received = counts if comm.rank >= without else [0] * size
        plain.Alltoallv(comm, [rows[: size - without], sent, kind], [out, received, kind])
    return None


def _shares(source: Flat, op: MPI.Op, root: int, size: int) -> list[int]:
    """Return how many elements each rank folds: equal shares, or all on the root.

    The root folds all by a user's operator, which may fold a buffer as a whole.
    """
    if not op.is_predefined:
        return [source.size if rank == root else 0 for rank in range(size)]
    share, more = divmod(source.size, size)
    return [share + (rank < more) for rank in range(size)]

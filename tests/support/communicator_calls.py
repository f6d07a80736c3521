"""Calls of communicators, and their comparison with MPI's own methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll.mpi.communicator import recording, state  # noqa: E402

Call = Callable[[Any], Any]
"""Makes a call on a communicator; returns what this rank has then."""


def state_of(comm: Any) -> Any:
    """Return the state of a communicator, None before its first call."""
    return state.find_state(comm)


def calls_of_mpi(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each method of arrays that is MPI's."""
    names: list[str] = []

    def patch_one(name: str, select: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> None:
        def note(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            names.append(name.capitalize())
            return select(arguments)

        patch.setitem(recording._MPI_ARGUMENTS, name, note)

    for name, select in [*recording._MPI_ARGUMENTS.items()]:
        patch_one(name, select)
    return names


def local_array(comm: Any, dtype: str = "float64", rows: int = 3) -> Any:
    """Return an array that differs between ranks."""
    return (np.arange(rows) % 3 + comm.rank + 1).astype(dtype)


def allreduce(comm: Any) -> Any:
    out = np.empty(3)
    comm.Allreduce(local_array(comm), out)
    return out


def allreduce_typed(comm: Any) -> Any:
    out = np.empty(4, "int32")
    comm.Allreduce([local_array(comm, "int32"), 3, MPI.INT], [out, (3, 1), MPI.INT], op=MPI.MAX)
    return out[1:]


def allreduce_in_place(comm: Any) -> Any:
    out = local_array(comm, "uint8")
    comm.Allreduce(MPI.IN_PLACE, [out, MPI.UNSIGNED_CHAR], op=MPI.BOR)
    return out


def allreduce_bytes(comm: Any) -> Any:
    out = bytearray(3)
    comm.Allreduce(
        [local_array(comm, "uint8").tobytes(), MPI.UINT8_T], [out, MPI.UINT8_T], op=MPI.BXOR
    )
    return out


def allreduce_columns(comm: Any) -> Any:
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3) * (comm.rank + 1))
    out = np.empty_like(x)
    comm.Allreduce(x, out, MPI.PROD)
    return out


def user_operator(commute: bool) -> Call:
    def call(comm: Any) -> Any:
        def append_digits(lhs: Any, out: Any, datatype: Any) -> None:
            x, y = np.frombuffer(lhs, "int64"), np.frombuffer(out, "int64")
            y[:] += x * 10 ** (1 + np.log10(y).astype("int64"))  # associative, as MPI demands

        op, out = MPI.Op.Create(append_digits, commute), np.empty(3, "int64")
        comm.Allreduce(local_array(comm, "int64"), out, op)
        op.Free()
        return out if not commute else None

    return call


def pairs(comm: Any) -> Any:
    x = np.array([(comm.rank % 2, comm.rank)], "d, i4").astype(np.dtype("d,i4", align=True))
    out = np.empty_like(x)
    comm.Allreduce([x, MPI.DOUBLE_INT], [out, MPI.DOUBLE_INT], MPI.MAXLOC)
    return out.tolist()


def reduce(comm: Any) -> Any:
    out = np.empty(3) if comm.rank == comm.size - 1 else None
    comm.Reduce(local_array(comm), out, root=comm.size - 1)
    return out


def reduce_in_place(comm: Any) -> Any:
    x = local_array(comm)
    comm.Reduce(*((MPI.IN_PLACE, x) if comm.rank == 0 else (x, None)), op=MPI.MIN)
    return x


def reduce_scatter(comm: Any) -> Any:
    counts = [rank % 2 + 1 for rank in range(comm.size)]
    out = np.empty(counts[comm.rank])
    comm.Reduce_scatter(local_array(comm, rows=sum(counts)), out, counts)
    return out


def reduce_scatter_block(comm: Any) -> Any:
    out = np.empty(2)
    comm.Reduce_scatter_block(local_array(comm, rows=2 * comm.size), out)
    return out


def reduce_scatter_block_in_place(comm: Any) -> Any:
    x = local_array(comm, rows=2 * comm.size)
    comm.Reduce_scatter_block(MPI.IN_PLACE, x)
    return x[:2]


def prefix(name: str) -> Call:
    def call(comm: Any) -> Any:
        out = np.zeros(3, "complex128")
        getattr(comm, name)(local_array(comm, "complex128"), out, op=MPI.SUM)
        return out if comm.rank else None

    return call


def bcast(comm: Any) -> Any:
    x = local_array(comm)
    comm.Bcast(x, root=comm.size - 1)
    return x


def bcast_read_only(comm: Any) -> Any:
    x = bytearray(b"....")
    comm.Bcast([b"read" if comm.rank == 0 else x, MPI.CHAR])
    return x


def bcast_differently(comm: Any) -> Any:
    """Rank 0 gives every second element, the others a whole array: the same type signature."""
    x = local_array(comm, rows=6)
    if comm.rank:
        comm.Bcast([x, 3, MPI.DOUBLE])
    else:
        column = MPI.DOUBLE.Create_vector(3, 1, 2).Commit()
        comm.Bcast([x, 1, column])
        column.Free()
    return x


class NoBuffer:
    """An array that is no buffer of Python's, as those on GPUs."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def gather_no_buffer(comm: Any) -> Any:
    """The root alone gives arrays that NumPy cannot view as buffers."""
    out = np.empty((comm.size, 3)) if comm.rank == 0 else None
    x = local_array(comm)
    comm.Gather(NoBuffer(x) if comm.rank == 0 else x, out if out is None else NoBuffer(out))
    return out


def gather(comm: Any) -> Any:
    out = np.empty((comm.size, 3)) if comm.rank == 0 else None
    comm.Gather(local_array(comm), out)
    return out


def gather_in_place(comm: Any) -> Any:
    out = np.zeros((comm.size, 3))
    out[comm.rank] = local_array(comm)
    comm.Gather(*((MPI.IN_PLACE, out) if comm.rank == 0 else (local_array(comm), None)))
    return out


def gatherv(comm: Any) -> Any:
    counts = [rank + 1 for rank in range(comm.size)]
    out = np.empty(sum(counts)) if comm.rank == 0 else None
    comm.Gatherv(local_array(comm, rows=comm.rank + 1), [out, counts] if comm.rank == 0 else None)
    return out


def gatherv_counts_everywhere(comm: Any) -> Any:
    counts = [rank + 1 for rank in range(comm.size)]
    out = np.empty(sum(counts)) if comm.rank == 0 else None
    comm.Gatherv(local_array(comm, rows=comm.rank + 1), (out, counts))
    return out


def gatherv_in_place(comm: Any) -> Any:
    counts = [2] + [rank % 2 for rank in range(1, comm.size)]
    x, out = local_array(comm, rows=counts[comm.rank]), np.zeros(sum(counts) + 1)
    out[1:3] = 7
    starts = [1 + sum(counts[:rank]) for rank in range(comm.size)]
    mine = (MPI.IN_PLACE, [out, counts, starts, MPI.DOUBLE]) if comm.rank == 0 else (x, None)
    comm.Gatherv(*mine)
    return out if comm.rank == 0 else None


def gatherv_bytes(comm: Any) -> Any:
    out, counts = bytearray(3 * comm.size), np.full(comm.size, 3)
    comm.Gatherv([b"abc", MPI.CHAR], [out, (counts, None), MPI.CHAR], root=comm.size - 1)
    return out


def scatterv(comm: Any) -> Any:
    counts = [rank + 1 for rank in range(comm.size)]
    x = np.arange(sum(counts), dtype="int32") if comm.rank == 0 else None
    out = np.zeros(counts[comm.rank], "int32")
    comm.Scatterv([x, counts, None, MPI.INT] if comm.rank == 0 else None, out)
    return out


def scatterv_in_place(comm: Any) -> Any:
    counts = [3 * rank for rank in range(comm.size)]
    x, out = np.arange(sum(counts), dtype="float64"), np.zeros(counts[comm.rank])
    is_root = comm.rank == comm.size - 1
    comm.Scatterv(*(([x, counts], MPI.IN_PLACE) if is_root else (None, out)), root=comm.size - 1)
    return x if is_root else out


def alltoallv(comm: Any) -> Any:
    """Rank s sends s + t elements to rank t; the types differ, their signatures do not."""
    counts = [comm.rank + rank for rank in range(comm.size)]
    x, out = local_array(comm, "int64", sum(counts)), np.zeros(sum(counts), "uint64")
    comm.Alltoallv([x, counts, MPI.INT64_T], [out, (counts, None), MPI.INT64_T])
    return out


def alltoallv_in_place(comm: Any) -> Any:
    x = local_array(comm, "int16", comm.size * (comm.size + 1) // 2)
    counts = [1] * comm.size
    comm.Alltoallv(MPI.IN_PLACE, [x, counts, list(range(comm.size)), MPI.SHORT])
    return x


def reduce_scatter_own(comm: Any) -> Any:
    out = np.empty(comm.rank + 1, "int32")
    comm.Reduce_scatter(
        local_array(comm, "int32", comm.size * (comm.size + 1) // 2), out, op=MPI.MAX
    )
    return out


def logical(comm: Any) -> Any:
    out = np.empty(3, bool)
    comm.Allreduce(np.array([True, comm.rank > 0, comm.rank == 1]), out, MPI.LXOR)
    return out


def gatherv_apart(comm: Any) -> Any:
    """The root alone has gaps between its blocks."""
    counts, starts = [2] * comm.size, [3 * rank for rank in range(comm.size)]
    out = np.zeros(3 * comm.size)
    comm.Gatherv(
        local_array(comm, rows=2), [out, counts, starts, MPI.DOUBLE] if comm.rank == 0 else None
    )
    return out


def alltoallv_apart(comm: Any) -> Any:
    """The last rank alone receives with gaps between its blocks."""
    counts, gap = [1] * comm.size, 1 + (comm.rank == comm.size - 1)
    out = np.zeros(2 * comm.size)
    starts = [gap * rank for rank in range(comm.size)]
    comm.Alltoallv(local_array(comm, rows=comm.size), [out, counts, starts, MPI.DOUBLE])
    return out


def allgather(comm: Any) -> Any:
    out = np.empty((comm.size, 5), "int8")
    comm.Allgather(local_array(comm, "int8", 5), [out, MPI.SIGNED_CHAR])
    return out


def allgather_in_place(comm: Any) -> Any:
    out = np.empty((comm.size, 3))
    out[comm.rank] = local_array(comm)
    comm.Allgather(MPI.IN_PLACE, out)
    return out


def allgatherv(comm: Any) -> Any:
    counts = [rank % 2 + 1 for rank in range(comm.size)]
    out = np.zeros(sum(counts))
    comm.Allgatherv(local_array(comm, rows=counts[comm.rank]), [out, counts])
    return out


def allgatherv_apart(comm: Any) -> Any:
    counts, starts = [1] * comm.size, [2 * rank for rank in range(comm.size)]
    out = np.zeros(2 * comm.size)
    comm.Allgatherv(local_array(comm, rows=1), [out, counts, starts, MPI.DOUBLE])
    return out


def scatter(comm: Any) -> Any:
    x = np.arange(4.0 * comm.size).reshape(comm.size, 4) if comm.rank == 0 else None
    out = np.empty(4)
    comm.Scatter(x, out)
    return out


def scatter_in_place(comm: Any) -> Any:
    x, out = np.arange(4.0 * comm.size), np.empty(4)
    comm.Scatter(*((x, MPI.IN_PLACE) if comm.rank == 0 else (None, out)))
    return x if comm.rank == 0 else out


def alltoall(comm: Any) -> Any:
    out = np.empty(2 * comm.size)
    comm.Alltoall(local_array(comm, rows=2 * comm.size), out)
    return out


def alltoall_in_place(comm: Any) -> Any:
    x = local_array(comm, rows=comm.size)
    comm.Alltoall(MPI.IN_PLACE, x)
    return x


def empty(comm: Any) -> Any:
    comm.Allreduce([None, 0, MPI.INT], [None, 0, MPI.INT])
    comm.Bcast(np.empty(0))


def long_double(comm: Any) -> Any:
    out = np.empty(2, "longdouble")
    comm.Allreduce(np.full(2, comm.rank, "longdouble"), out)
    return out


SERVED_CALLS = {
    "Barrier": lambda comm: comm.Barrier(), "Allreduce": allreduce, "typed": allreduce_typed,
    "in place": allreduce_in_place, "bytes": allreduce_bytes, "columns": allreduce_columns,
    "Reduce": reduce, "Reduce in place": reduce_in_place, "Reduce_scatter": reduce_scatter,
    "Reduce_scatter_block": reduce_scatter_block,
    "Reduce_scatter_block in place": reduce_scatter_block_in_place, "Scan": prefix("Scan"),
    "Exscan": prefix("Exscan"), "Bcast": bcast, "Bcast of bytes": bcast_read_only,
    "Gather": gather, "Gather in place": gather_in_place, "Allgather": allgather,
    "Allgather in place": allgather_in_place, "Allgatherv": allgatherv, "Scatter": scatter,
    "Scatter in place": scatter_in_place, "Alltoall": alltoall,
    "Alltoall in place": alltoall_in_place, "empty": empty, "Gatherv": gatherv,
    "Gatherv, counts on all ranks": gatherv_counts_everywhere,
    "Gatherv in place": gatherv_in_place, "Gatherv of bytes": gatherv_bytes,
    "Scatterv": scatterv, "Scatterv in place": scatterv_in_place, "Alltoallv": alltoallv,
    "Alltoallv in place": alltoallv_in_place, "Reduce_scatter alone": reduce_scatter_own,
    "exclusive or": logical,
}  # fmt: skip
PACKED_CALLS = {
    "datatype on one rank": bcast_differently, "blocks apart": allgatherv_apart,
    "Gatherv apart": gatherv_apart, "Alltoallv apart": alltoallv_apart,
    "no buffer": gather_no_buffer,
}  # fmt: skip
"""A rank packs what it alone knows of its buffers."""
MPI_CALLS = {
    "pairs": pairs, "operator": user_operator(False), "commutative operator": user_operator(True),
    "long double": long_double,
}  # fmt: skip


def check(comm: Any, call: Call) -> None:
    """Assert that a call gives several times what MPI's own method gives."""
    expected = call(MPI.COMM_WORLD)
    for _ in range(3):
        result = call(comm)
        assert type(result) is type(expected)
        np.testing.assert_array_equal(result, expected)

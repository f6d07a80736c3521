"""Folds of all ranks: in one order where it is asked for, and extremes in any order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from communicator_calls import MPI_CALLS, PACKED_CALLS, SERVED_CALLS

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll.machine.nodes import RANKS_PER_NODE  # noqa: E402
from mpicoll.machine.settings import REPRODUCIBLE  # noqa: E402


def _extreme_of_arrays(dtype: str, rows: int) -> Callable[..., Any]:
    def call(comm: Any, item: float, op: Any) -> Any:
        out = np.zeros(rows, dtype)
        comm.Allreduce(np.full(rows, item, dtype), out, op)
        return out[-1]

    return call


EXTREMES: dict[str, Callable[..., Any]] = {
    "Allreduce": _extreme_of_arrays("float64", 1),
    "Allreduce of float32": _extreme_of_arrays("float32", 3001),
    "allreduce": lambda comm, item, op: comm.allreduce(item, op),
    "allreduce of a scalar": lambda comm, item, op: comm.allreduce(np.float64(item), op),
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize(
    ("items", "least", "most"),
    [
        ((np.nan, 1.0), np.nan, np.nan),
        ((1.0, np.nan), np.nan, np.nan),
        ((-0.0, 0.0), -0.0, 0.0),
        ((0.0, -0.0), -0.0, 0.0),
    ],
)
def test_no_number_of_the_call_changes_an_extreme(
    comm: Any, name: str, items: Any, least: float, most: float
) -> None:
    """Calls of a new communicator, and those of a signature that has not been met, included."""
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    for op, expected in ((MPI.MIN, least), (MPI.MAX, most)):
        found = {str(float(EXTREMES[name](comm, items[comm.rank % 2], op))) for _ in range(20)}
        assert comm.allgather(found) == [{str(expected)}] * comm.size


def _one_order(comm: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what each reduction gives on this rank, and the sums rank by rank that it should be."""
    size, rank, last = comm.size, comm.rank, comm.size - 1
    for count, dtype in ((1, "float64"), (7, "float32"), (3001, "float32")):
        random = np.random.default_rng(count)
        x = random.normal(size=(size, size, count)) * 10 ** random.uniform(-2, 2, (size, 1, count))
        given = x.astype(dtype)
        sums = np.add.accumulate(given)  # one after the other
        own, whole, row = given[rank], np.empty_like(given[0]), np.empty_like(given[0, 0])
        comm.Allreduce(own, whole)
        yield whole, sums[-1]
        yield comm.allreduce(own), sums[-1]
        whole[:] = 0
        kind = MPI.FLOAT if dtype == "float32" else MPI.DOUBLE
        comm.Allreduce([bytearray(own.tobytes()), kind] if rank == 0 else own, whole)
        yield whole, sums[-1]
        user = MPI.Op.Create(_plus, commute=True)
        comm.Allreduce([own, kind], whole, user)
        user.Free()
        yield whole, sums[-1]
        whole[:] = own
        comm.Reduce(MPI.IN_PLACE if rank == last else own, whole, root=last)
        yield whole, sums[-1] if rank == last else own
        comm.Reduce_scatter_block(own, row)
        yield row, sums[-1, rank]
        comm.Reduce_scatter(own, row, [count] * size)
        yield row, sums[-1, rank]
        comm.Reduce_scatter(own, row)
        yield row, sums[-1, rank]
        whole[:] = own
        comm.Scan(MPI.IN_PLACE, whole)
        yield whole, sums[rank]
        whole[:] = 0
        comm.Exscan(own, whole)
        yield whole, sums[rank - 1] if rank else np.zeros_like(own)
        parts = {"a": float(own[0, 0])}
        yield comm.scan(parts, _merged)["a"], _summed(given[: rank + 1, 0, 0])
        yield comm.exscan(float(own[0, 0])), _summed(given[:rank, 0, 0])
        yield comm.reduce(parts, _merged, last), rank == last and {"a": _summed(given[:, 0, 0])}


def _plus(left: Any, both: Any, datatype: Any) -> None:
    kind = "float32" if datatype == MPI.FLOAT else "float64"
    y = np.frombuffer(both, kind)
    y += np.frombuffer(left, kind)


def _merged(left: dict[str, float], right: dict[str, float]) -> dict[str, float]:
    return {"a": left["a"] + right["a"]}


def _summed(numbers: Any) -> float | None:
    return functools.reduce(float.__add__, map(float, numbers)) if len(numbers) else None


@pytest.mark.parametrize("placed", ["one node", "nodes"])
def test_one_order_has_the_same_bits_wherever_the_ranks_lie(
    monkeypatch: pytest.MonkeyPatch, comm: Any, placed: str
) -> None:
    monkeypatch.setenv(REPRODUCIBLE, "1")
    if placed == "nodes":
        monkeypatch.setenv(RANKS_PER_NODE, "1")
    for step, (found, expected) in enumerate(_one_order(comm)):
        if isinstance(expected, np.ndarray):
            assert found.tobytes() == expected.tobytes(), step
        else:
            assert (found or None) == (expected or None), step
    for call in (SERVED_CALLS | MPI_CALLS | PACKED_CALLS).values():  # sums are exact in any order
        np.testing.assert_array_equal(call(comm), call(MPI.COMM_WORLD))

"""Buffers that only MPI can read, and buffers that mpi4py refuses, on one rank and on all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Collectives, Comm  # noqa: E402
from mpicoll.machine.nodes import RANKS_PER_NODE  # noqa: E402

Buffer = Callable[[Any], Any]
"""Makes the buffer of a call from an array of float64."""


@pytest.fixture(params=["8", "1"], scope="module")
def comm(c: Collectives, request: pytest.FixtureRequest) -> Iterator[Comm]:
    """A communicator of one node, which is ours, and one of several, which is MPI's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RANKS_PER_NODE, request.param)
        made = Comm(MPI.COMM_WORLD.Dup())
        made.Barrier()
        yield made
        made.Free()


def _rows(comm: Any) -> Any:
    """Return a row of 4 numbers for each rank, the same on all ranks."""
    return np.arange(4.0 * comm.size).reshape(comm.size, 4)


def _bcast(comm: Any, root: int, buffer: Buffer) -> Any:
    x = _rows(comm)[0] + comm.rank
    comm.Bcast(buffer(x), root)
    return x


def _gather(comm: Any, root: int, buffer: Buffer) -> Any:
    out = np.zeros((comm.size, 4)) if comm.rank == root else None
    comm.Gather(buffer(_rows(comm)[comm.rank]), out, root)
    return out


def _gatherv(comm: Any, root: int, buffer: Buffer) -> Any:
    out, counts = np.zeros(4 * comm.size), [4] * comm.size
    comm.Gatherv(buffer(_rows(comm)[comm.rank]), [out, counts] if comm.rank == root else None, root)
    return out


def _scatter(comm: Any, root: int, buffer: Buffer) -> Any:
    out = np.zeros(4)
    comm.Scatter(_rows(comm) if comm.rank == root else None, buffer(out), root)
    return out


def _scatterv(comm: Any, root: int, buffer: Buffer) -> Any:
    out, counts = np.zeros(4), [4] * comm.size
    comm.Scatterv([_rows(comm), counts] if comm.rank == root else None, buffer(out), root)
    return out


def _allgather(comm: Any, root: int, buffer: Buffer) -> Any:
    out = np.zeros((comm.size, 4))
    comm.Allgather(buffer(_rows(comm)[comm.rank]), out)
    return out


def _allgatherv(comm: Any, root: int, buffer: Buffer) -> Any:
    out = np.zeros(4 * comm.size)
    comm.Allgatherv(buffer(_rows(comm)[comm.rank]), [out, [4] * comm.size])
    return out


def _alltoall(comm: Any, root: int, buffer: Buffer) -> Any:
    out = np.zeros((comm.size, 4))
    comm.Alltoall(_rows(comm) + comm.rank, buffer(out))
    return out


def _alltoallv(comm: Any, root: int, buffer: Buffer) -> Any:
    out = np.zeros((comm.size, 4))
    comm.Alltoallv(buffer(_rows(comm) + comm.rank), [out, [4] * comm.size])
    return out


def _reduce(comm: Any, root: int, buffer: Buffer) -> Any:
    out = np.zeros(4) if comm.rank == root else None
    comm.Reduce(buffer(_rows(comm)[comm.rank]), out, MPI.SUM, root)
    return out


def _folding(name: str) -> Callable[..., Any]:
    def call(comm: Any, root: int, buffer: Buffer) -> Any:
        out = np.zeros(4)
        getattr(comm, name)(_rows(comm)[comm.rank], buffer(out), MPI.SUM)
        return out

    return call


def _reduce_scatter(comm: Any, root: int, buffer: Buffer) -> Any:
    out = np.zeros(4)
    comm.Reduce_scatter(_rows(comm) + comm.rank, buffer(out), [4] * comm.size)
    return out


def _reduce_scatter_block(comm: Any, root: int, buffer: Buffer) -> Any:
    out = np.zeros(4)
    comm.Reduce_scatter_block(_rows(comm) + comm.rank, buffer(out))
    return out


READING: dict[str, Callable[..., Any]] = {
    "Gather": _gather, "Gatherv": _gatherv, "Allgather": _allgather, "Allgatherv": _allgatherv,
    "Alltoallv": _alltoallv, "Reduce": _reduce,
}  # fmt: skip
"""Methods of which the buffer is an input."""
WRITING: dict[str, Callable[..., Any]] = {
    "Bcast": _bcast, "Scatter": _scatter, "Scatterv": _scatterv, "Alltoall": _alltoall,
    **{name: _folding(name) for name in ("Allreduce", "Scan", "Exscan")},
    "Reduce_scatter": _reduce_scatter, "Reduce_scatter_block": _reduce_scatter_block,
}  # fmt: skip
"""Methods of which the buffer is an output; of the root of `Bcast` it is an input."""


def _longer(x: Any) -> Any:
    """Make a buffer that is longer than the message, and overlaps the array."""
    whole = np.full(x.size + 3, -1.0)
    VIEWS.append((x, whole))
    return whole


def _derived(x: Any) -> Any:
    kind = MPI.DOUBLE.Create_contiguous(x.size).Commit()
    return [x, 1, kind]


VIEWS: list[tuple[Any, Any]] = []
"""Arrays, and what was received in their place."""


@pytest.mark.parametrize("name", ["Scatter", "Scatterv"])
@pytest.mark.parametrize("buffer", [_longer, _derived])
def test_a_root_may_receive_its_row_into_what_only_mpi_can_read(
    comm: Any, name: str, buffer: Buffer
) -> None:
    for turn in range(7):
        root = turn % comm.size
        out = WRITING[name](comm, root, buffer if comm.rank == root else np.asarray)
        if comm.rank == root and buffer is _longer:
            _, whole = VIEWS.pop()
            out, rest = whole[:4], whole[4:]
            np.testing.assert_array_equal(rest, -1)
        np.testing.assert_array_equal(out, _rows(comm)[comm.rank])


@pytest.mark.parametrize("name", [*READING, *WRITING])
def test_any_rank_may_pass_a_derived_datatype(comm: Any, name: str) -> None:
    if "educe" in name or "scan" in name.lower():
        pytest.skip("MPI folds no derived datatypes")
    call = {**READING, **WRITING}[name]
    for turn in range(7):
        root, alone = turn % 2 % comm.size, turn % comm.size
        kind: Buffer = _of_rows if name.startswith("Alltoall") else _derived
        buffer: Buffer = kind if comm.rank == alone else np.asarray
        if name == "Alltoallv":
            buffer = _counted(comm, buffer)
        expected = call(MPI.COMM_WORLD, root, _counted(comm, np.asarray) if name == "Alltoallv"
                        else np.asarray)  # fmt: skip
        np.testing.assert_array_equal(call(comm, root, buffer), expected)


def _of_rows(x: Any) -> Any:
    return [x, 1, MPI.DOUBLE.Create_contiguous(4).Commit()]


def _counted(comm: Any, buffer: Buffer) -> Buffer:
    """Return what gives a buffer of `Alltoallv` its counts."""

    def make(x: Any) -> Any:
        spec = buffer(x)
        return [x, [1] * comm.size, None, spec[2]] if buffer is _of_rows else [x, [4] * comm.size]

    return make


def _read_only(x: Any) -> Any:
    copy = x.copy()
    copy.flags.writeable = False
    return copy


REFUSED: dict[str, Buffer] = {
    "read-only": _read_only,
    "strided": lambda x: np.repeat(x, 2)[::2],
    "foreign byte order": lambda x: x.astype(np.dtype(x.dtype).newbyteorder()),
    "no buffer": lambda x: "text",
    "structured": lambda x: np.zeros(x.size, "d, i4"),
    "five parts": lambda x: [x, 1, 2, 3, 4],
}


def _cases() -> Iterator[tuple[str, str]]:
    yield from ((name, "read-only") for name in WRITING)
    yield from ((name, "strided") for name in (*READING, *WRITING))
    for name in ("Bcast", "Gather", "Gatherv", "Alltoall", "Allreduce"):
        yield from ((name, form) for form in REFUSED if form not in ("read-only", "strided"))


@pytest.mark.parametrize(("name", "form"), [*_cases()])
def test_a_rank_whose_buffer_is_refused_goes_on(comm: Any, name: str, form: str) -> None:
    """Other ranks do not hear of a call that mpi4py refuses before it calls MPI."""
    call = {**READING, **WRITING}[name]
    valid = _counted(comm, np.asarray) if name == "Alltoallv" else np.asarray
    expected = [call(MPI.COMM_WORLD, root, valid) for root in range(comm.size)]
    for turn in range(7):
        root = turn % comm.size
        is_read = name == "Bcast" and comm.rank == root and form == "read-only"
        if turn % 3 == 0 and comm.rank == comm.size - 1 and not is_read:
            with pytest.raises((TypeError, ValueError, BufferError, KeyError)):
                call(comm, root, REFUSED[form])
        np.testing.assert_array_equal(call(comm, root, valid), expected[root])

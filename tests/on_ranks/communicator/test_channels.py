"""Calls of any length on one node: ranks ahead, mismatches, and ranks that leave."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from communicator_calls import calls_of_mpi

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Comm  # noqa: E402
from mpicoll.errors import Disagreement, RankLost  # noqa: E402
from mpicoll.mpi.communicator.recording import RecordedRequest  # noqa: E402

SLOT = 64 * 1024
"""Bytes of a part of a message."""
LENGTHS = [0, 1, 8, 31, 32, 33, 40, 1000, SLOT - 8, SLOT, SLOT + 8, 3 * SLOT, 10 * SLOT + 24]
"""Bytes of a block, about those at which a message takes another form."""
pytestmark = pytest.mark.usefixtures("several")


@pytest.fixture
def several(comm: Comm) -> None:
    """Skip what one rank alone does not make."""
    if comm.size == 1:
        pytest.skip("MPI serves one rank")


def _input(rank: int, count: int, dtype: str, turn: int = 0) -> Any:
    return ((np.arange(count) * 7 + 3 * rank + turn) % 100).astype(dtype)


def _counts(comm: Any, count: int) -> list[int]:
    """Return an uneven count for each rank, of which one is 0."""
    return [count * rank // max(comm.size - 1, 1) for rank in range(comm.size)]


def _bcast(comm: Any, count: int, dtype: str, root: int) -> Any:
    x = _input(comm.rank, count, dtype, root)
    comm.Bcast(x, root)
    return x


def _gather(comm: Any, count: int, dtype: str, root: int) -> Any:
    out = np.zeros((comm.size, count), dtype) if comm.rank == root else None
    comm.Gather(_input(comm.rank, count, dtype), out, root)
    return out


def _gather_in_place(comm: Any, count: int, dtype: str, root: int) -> Any:
    out = np.zeros((comm.size, count), dtype)
    out[comm.rank] = _input(comm.rank, count, dtype)
    is_root = comm.rank == root
    comm.Gather(MPI.IN_PLACE if is_root else out[comm.rank], out if is_root else None, root)
    return out


def _gatherv(comm: Any, count: int, dtype: str, root: int) -> Any:
    counts = _counts(comm, count)
    out = np.zeros(sum(counts), dtype)
    x = _input(comm.rank, counts[comm.rank], dtype)
    comm.Gatherv(x, [out, counts] if comm.rank == root else None, root)
    return out


def _scatter(comm: Any, count: int, dtype: str, root: int) -> Any:
    x = _input(root, comm.size * count, dtype) if comm.rank == root else None
    out = np.zeros(count, dtype)
    comm.Scatter(x, out, root)
    return out


def _scatterv(comm: Any, count: int, dtype: str, root: int) -> Any:
    counts = _counts(comm, count)
    x = [_input(root, sum(counts), dtype), counts] if comm.rank == root else None
    out = np.zeros(counts[comm.rank], dtype)
    comm.Scatterv(x, out, root)
    return out


def _scatterv_in_place(comm: Any, count: int, dtype: str, root: int) -> Any:
    counts = _counts(comm, count)
    x, out = _input(root, sum(counts), dtype), np.zeros(counts[comm.rank], dtype)
    is_root = comm.rank == root
    comm.Scatterv([x, counts] if is_root else None, MPI.IN_PLACE if is_root else out, root)
    return x if is_root else out


def _allgather(comm: Any, count: int, dtype: str, root: int) -> Any:
    out = np.zeros((comm.size, count), dtype)
    comm.Allgather(_input(comm.rank, count, dtype, root), out)
    return out


def _allgather_in_place(comm: Any, count: int, dtype: str, root: int) -> Any:
    out = np.zeros((comm.size, count), dtype)
    out[comm.rank] = _input(comm.rank, count, dtype, root)
    comm.Allgather(MPI.IN_PLACE, out)
    return out


def _allgatherv(comm: Any, count: int, dtype: str, root: int) -> Any:
    counts = _counts(comm, count)
    starts = [start + rank for rank, start in enumerate(accumulate([0, *counts[:-1]]))]
    out = np.zeros(sum(counts) + comm.size, dtype)
    comm.Allgatherv(
        _input(comm.rank, counts[comm.rank], dtype),
        [out, counts, starts, MPI._typedict[out.dtype.char]],
    )
    return out


def _alltoall(comm: Any, count: int, dtype: str, root: int) -> Any:
    out = np.zeros((comm.size, count), dtype)
    comm.Alltoall(_input(comm.rank, comm.size * count, dtype, root), out)
    return out


def _alltoall_in_place(comm: Any, count: int, dtype: str, root: int) -> Any:
    out = _input(comm.rank, comm.size * count, dtype, root)
    comm.Alltoall(MPI.IN_PLACE, out)
    return out


def _alltoallv(comm: Any, count: int, dtype: str, root: int) -> Any:
    counts = [count * (comm.rank + peer) // comm.size for peer in range(comm.size)]
    x, out = (make(sum(counts)) for make in (lambda n: _input(comm.rank, n, dtype), np.zeros))
    out = out.astype(dtype)
    comm.Alltoallv([x, counts], [out, counts])
    return out


def _reduce(comm: Any, count: int, dtype: str, root: int) -> Any:
    out = np.zeros(count, dtype) if comm.rank == root else None
    comm.Reduce(_input(comm.rank, count, dtype), out, MPI.SUM, root)
    return out


def _reduce_in_place(comm: Any, count: int, dtype: str, root: int) -> Any:
    x = _input(comm.rank, count, dtype)
    comm.Reduce(*((MPI.IN_PLACE, x) if comm.rank == root else (x, None)), MPI.MAX, root)
    return x


def _fold(name: str, op: Any, in_place: bool) -> Callable[..., Any]:
    def call(comm: Any, count: int, dtype: str, root: int) -> Any:
        x, out = _input(comm.rank, count, dtype, root), np.zeros(count, dtype)
        if in_place:
            out[:] = x
        getattr(comm, name)(MPI.IN_PLACE if in_place else x, out, op)
        return out if comm.rank or name != "Exscan" else None

    return call


def _reduce_scatter(comm: Any, count: int, dtype: str, root: int) -> Any:
    counts = _counts(comm, count)
    out = np.zeros(counts[comm.rank], dtype)
    comm.Reduce_scatter(_input(comm.rank, sum(counts), dtype, root), out, counts)
    return out


def _reduce_scatter_in_place(comm: Any, count: int, dtype: str, root: int) -> Any:
    if not isinstance(comm, Comm):  # MPICH 5.0.2 aborts where rank 0 has no row
        return _reduce_scatter(comm, count, dtype, root)
    counts = _counts(comm, count)
    x = _input(comm.rank, sum(counts), dtype, root)
    comm.Reduce_scatter(MPI.IN_PLACE, x, counts)
    return x[: counts[comm.rank]].copy()


def _reduce_scatter_block(comm: Any, count: int, dtype: str, root: int) -> Any:
    out = np.zeros(count, dtype)
    comm.Reduce_scatter_block(_input(comm.rank, comm.size * count, dtype, root), out, MPI.MIN)
    return out


CALLS: dict[str, Callable[..., Any]] = {
    "Bcast": _bcast, "Gather": _gather, "Gather in place": _gather_in_place, "Gatherv": _gatherv,
    "Scatter": _scatter, "Scatterv": _scatterv, "Scatterv in place": _scatterv_in_place,
    "Allgather": _allgather, "Allgather in place": _allgather_in_place, "Allgatherv": _allgatherv,
    "Alltoall": _alltoall, "Alltoall in place": _alltoall_in_place, "Alltoallv": _alltoallv,
    "Reduce": _reduce, "Reduce in place": _reduce_in_place,
    "Allreduce": _fold("Allreduce", MPI.SUM, False),
    "Allreduce in place": _fold("Allreduce", MPI.MAX, True), "Scan": _fold("Scan", MPI.SUM, False),
    "Scan in place": _fold("Scan", MPI.MIN, True), "Exscan": _fold("Exscan", MPI.SUM, False),
    "Exscan in place": _fold("Exscan", MPI.MAX, True), "Reduce_scatter": _reduce_scatter,
    "Reduce_scatter in place": _reduce_scatter_in_place,
    "Reduce_scatter_block": _reduce_scatter_block,
}  # fmt: skip


def _check(comm: Any, name: str, count: int, dtype: str, root: int) -> None:
    expected = CALLS[name](MPI.COMM_WORLD, count, dtype, root)
    np.testing.assert_array_equal(CALLS[name](comm, count, dtype, root), expected)


@pytest.mark.parametrize("nbytes", LENGTHS)
@pytest.mark.parametrize("name", CALLS)
def test_first_and_later_calls_of_any_length(
    comm: Comm, monkeypatch: pytest.MonkeyPatch, name: str, nbytes: int
) -> None:
    names = calls_of_mpi(monkeypatch)
    for turn in range(3):
        _check(comm, name, nbytes, "uint8", turn % comm.size)
        _check(comm, name, nbytes // 8, "float64", turn % comm.size)
    assert not names


@pytest.mark.parametrize("char", "?bhilqBHILQfdFD")
@pytest.mark.parametrize("name", ["Allreduce", "Reduce", "Reduce_scatter", "Bcast", "Alltoallv"])
def test_calls_of_any_dtype(
    comm: Comm, monkeypatch: pytest.MonkeyPatch, name: str, char: str
) -> None:
    if char == "?" and name not in ("Bcast", "Alltoallv"):
        pytest.skip("MPI adds no truth values")
    names = calls_of_mpi(monkeypatch)
    _check(comm, name, 33, char, 0)
    assert not names


@pytest.mark.parametrize("name", CALLS)
def test_long_calls(comm: Comm, name: str) -> None:
    _check(comm, name, 300_000, "float64", comm.size - 1)
    _check(comm, name, 300_000, "int16", 0)


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_follow_each_other(comm: Comm, seed: int) -> None:
    random = np.random.default_rng(seed)
    names = [*CALLS]
    for _ in range(150):
        name, root = names[random.integers(len(names))], int(random.integers(comm.size))
        count = int(2.0 ** random.uniform(0, 15 if random.integers(8) else 18)) - 1
        _check(comm, name, count, ["float32", "int64", "uint8"][random.integers(3)], root)


AHEAD: dict[str, Callable[[Any, int, int], Any]] = {
    "Bcast": lambda comm, turn, count: _sent(comm, _input(0, count, "float64", turn)),
    "Scatter": lambda comm, turn, count: _scattered(comm, turn, count),
    "Gather": lambda comm, turn, count: _gather(comm, count, "float64", comm.size - 1),
    "Gatherv": lambda comm, turn, count: _gatherv(comm, count, "float64", comm.size - 1),
    "Reduce": lambda comm, turn, count: _reduce(comm, count, "float64", comm.size - 1),
    "bcast": lambda comm, turn, count: comm.bcast((turn, "a" * count)),
    "scatter": lambda comm, turn, count: comm.scatter([(turn, "a" * count)] * comm.size),
    "gather": lambda comm, turn, count: comm.gather((turn, "a" * count), comm.size - 1),
    "reduce": lambda comm, turn, count: comm.reduce(turn, MPI.SUM, comm.size - 1),
}
"""Calls in which rank 0 waits for nobody."""


def _sent(comm: Any, x: Any) -> Any:
    out = x if comm.rank == 0 else np.zeros_like(x)
    comm.Bcast(out)
    return out


def _scattered(comm: Any, turn: int, count: int) -> Any:
    out = np.zeros(count)
    comm.Scatter(_input(turn, comm.size * count, "float64") if comm.rank == 0 else None, out)
    return out


@pytest.mark.parametrize(("count", "calls"), [(1, 30), (500, 30), (SLOT // 8 + 1, 5)])
@pytest.mark.parametrize("name", AHEAD)
def test_a_rank_that_waits_for_nobody_is_far_ahead(
    comm: Comm, name: str, count: int, calls: int
) -> None:
    """Rank 0 has all its calls before the others have their first."""
    if name == "Reduce" and count > SLOT // 8:
        pytest.skip("each rank folds a share")
    comm.Barrier()
    if comm.rank:
        comm.recv(source=0)
    results = [AHEAD[name](comm, turn, count) for turn in range(calls)]
    if comm.rank == 0:
        for peer in range(1, comm.size):
            comm.send(None, peer)
    for turn, result in enumerate(results):
        np.testing.assert_equal(result, AHEAD[name](MPI.COMM_WORLD, turn, count))
    _check(comm, "Allreduce", 5, "float64", 0)


@pytest.mark.parametrize("count", [1, 500, 10_000])
@pytest.mark.parametrize("name", AHEAD)
def test_a_rank_is_never_further_ahead_than_its_memory_is_long(
    comm: Comm, name: str, count: int
) -> None:
    for turn in range(200):
        result = AHEAD[name](comm, turn, count)
        if turn % 40 == 0:
            np.testing.assert_equal(result, AHEAD[name](MPI.COMM_WORLD, turn, count))
    _check(comm, "Allreduce", 5, "float64", 0)


# -- different calls -----------------------------------------------------------------------------


def _allreduce_of(x: Any, op: Any = MPI.SUM) -> Callable[[Any], Any]:
    return lambda comm: comm.Allreduce(x, np.zeros_like(x), op)


def _bcast_of(count: int, root: int = 0) -> Callable[[Any], Any]:
    return lambda comm: comm.Bcast(np.ones(count), root)


def _gather_of(count: int) -> Callable[[Any], Any]:
    return lambda comm: comm.Gather(np.ones(count), np.ones((comm.size, 4)))


ONES = np.ones(4)
DIFFERENT: dict[str, tuple[Callable[[Any], Any], str, Callable[[Any], Any], str]] = {
    "collective": (_allreduce_of(ONES), "allreduce (4 elements, float64, sum)",
                   lambda comm: comm.Barrier(), "barrier"),
    "length": (_allreduce_of(ONES), "allreduce (4 elements", _allreduce_of(np.ones(5)),
               "allreduce (5 elements"),
    "long": (_allreduce_of(np.ones(SLOT)), f"allreduce ({SLOT} elements",
             _allreduce_of(np.ones(SLOT + 1)), f"allreduce ({SLOT + 1} elements"),
    "dtype": (_allreduce_of(ONES), "float64, sum", _allreduce_of(ONES.astype("i8")), "int64, sum"),
    "operator": (_allreduce_of(ONES), "float64, sum", _allreduce_of(ONES, MPI.PROD),
                 "float64, prod"),
    "broadcast": (_bcast_of(4), "broadcast (32 bytes, root 0)", _bcast_of(5),
                  "broadcast (40 bytes, root 0)"),
    "root": (_bcast_of(4, 0), "different calls", _bcast_of(4, 1),
             "broadcast (32 bytes, root 1)"),
    "gathered": (_gather_of(4), "gather (32 bytes, root 0)", _gather_of(5),
                 "gather (40 bytes, root 0)"),
    "rows": (lambda comm: comm.Alltoall(np.ones(comm.size), np.ones(comm.size)),
             "alltoall (8 bytes)",
             lambda comm: comm.Alltoall(np.ones(2 * comm.size), np.ones(2 * comm.size)),
             "alltoall (16 bytes)"),
    "object": (_allreduce_of(ONES), "allreduce (4 elements", lambda comm: comm.allgather(1),
               "allgather of objects"),
    "objects": (lambda comm: comm.alltoall([1] * comm.size), "alltoall of objects",
                lambda comm: comm.allgather(1), "allgather of objects"),
    "Gather of objects": (_gather_of(4), "gather (32 bytes, root 0)", lambda comm: comm.gather(1),
                          "gather of objects (root 0)"),
    "prefix": (lambda comm: comm.Scan(ONES, np.ones(4)), "scan (4 elements, float64, sum)",
               lambda comm: comm.Exscan(ONES, np.ones(4)), "exscan (4 elements, float64, sum)"),
}  # fmt: skip
"""What most ranks call, its words, what the last rank calls, and its words.

Where the roots differ, the last rank can meet the next call of another one.
"""


@pytest.mark.parametrize("calls", [0, 3])
@pytest.mark.parametrize("name", DIFFERENT)
def test_a_rank_that_reads_another_call_names_both(comm: Comm, name: str, calls: int) -> None:
    """The others hear of it in their next wait for that rank."""
    common, text, different, other = DIFFERENT[name]
    for _ in range(calls):
        common(comm)
    comm.Barrier()
    is_odd = comm.rank == comm.size - 1
    error: Exception | None = None
    try:
        (different if is_odd else common)(comm)
        for _ in range(3):  # a rank that waits for nobody has gone on
            comm.Barrier()
    except (Disagreement, RankLost) as raised:
        error = raised
    errors = MPI.COMM_WORLD.allgather(error and f"{type(error).__name__}: {error}")
    assert all(errors)
    mismatches = [line for line in errors if line.startswith("Disagreement")]
    assert mismatches
    assert any(text in line and other in line for line in mismatches), errors
    for line in errors:
        assert "the ranks are in different calls: rank " in line or (
            "which has left this group by an error" in line
        )
    with pytest.raises(RankLost, match="has failed"):
        comm.Barrier()


# -- ranks that leave, and threads ---------------------------------------------------------------


@pytest.mark.parametrize("wait", [Comm.Barrier, lambda comm: comm.bcast(1, 1)])
def test_ranks_that_wait_for_one_that_has_left_are_told(
    comm: Comm, wait: Callable[[Any], Any]
) -> None:
    """Rank 1 finds that it is in another call than rank 0; the last rank has not met it."""
    comm.Barrier()
    if comm.rank == 0:
        comm.Bcast(np.ones(3))
    elif comm.rank == 1:
        with pytest.raises(Disagreement, match=r"broadcast \(32 bytes.*broadcast \(24 bytes"):
            comm.Bcast(np.ones(4))
    else:
        comm.Bcast(np.ones(3))
    if comm.rank != 1:
        with pytest.raises(RankLost, match=r"rank 1 .*which has left this group by an error"):
            wait(comm)
    MPI.COMM_WORLD.Barrier()


def test_a_call_lets_mpi_go_on_with_a_nonblocking_call(
    comm: Comm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As MPI's own blocking call does: a program may look rarely whether it is complete."""
    looks, x, out = list[RecordedRequest](), np.ones(3), np.empty(3)
    comm.Allreduce(x, out)

    def look(request: RecordedRequest) -> bool:
        looks.append(request)
        return bool(MPI.Request.Get_status(request))

    monkeypatch.setattr(RecordedRequest, "Get_status", look)
    request = comm.Ibarrier()
    comm.Allreduce(x, out)
    assert looks
    request.Wait()
    comm.Allreduce(x, out)
    looks.clear()
    comm.Allreduce(x, out)
    assert not looks


def test_threads_have_a_communicator_each(comm: Comm) -> None:
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI was started for one thread")
    parts = [comm.Dup() for _ in range(4)]

    def run(number: int) -> list[float]:
        part, sums = parts[number], []
        for turn in range(60):
            x = np.full([1, 100, 9000][turn % 3], float(number + turn))
            part.Allreduce(MPI.IN_PLACE, x)
            assert part.allgather(number) == [number] * part.size
            sums.append(float(x[-1]) / part.size)
        return sums

    with ThreadPoolExecutor(4) as pool:
        for number, sums in enumerate(pool.map(run, range(4))):
            assert sums == [number + turn for turn in range(60)]
    for part in parts:
        part.Free()

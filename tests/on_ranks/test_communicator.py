"""Communicators whose collectives are ours: every call gives what MPI's own method gives."""

from __future__ import annotations

import functools
import operator
import pickle
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Collectives, Comm  # noqa: E402
from mpicoll.calls.order import REPRODUCIBLE  # noqa: E402
from mpicoll.errors import ArgumentError  # noqa: E402
from mpicoll.flight import reader  # noqa: E402
from mpicoll.flight.layout import Outcome  # noqa: E402
from mpicoll.machine.nodes import RANKS_PER_NODE  # noqa: E402
from mpicoll.mpi.communicator import dispatcher, state  # noqa: E402
from mpicoll.mpi.communicator.dispatcher import Signature  # noqa: E402
from mpicoll.mpi.communicator.state import FORCED, WARMUP  # noqa: E402

Call = Callable[[Any], Any]
"""Makes a call on a communicator; returns what this rank has then."""


@pytest.fixture(autouse=True)
def _at_once(c: Collectives, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WARMUP, "0")
    monkeypatch.setattr(state, "_MOST_IDLE", 0)  # each test has a state of its own


@pytest.fixture
def comm() -> Iterator[Comm]:
    made = Comm(MPI.COMM_WORLD.Dup())
    yield made
    made.Free()


def mpi_methods(comm: Any) -> set[str] | None:
    """Return the methods that are MPI's on a communicator, None on a single rank."""
    if comm.size == 1:
        return None
    methods: set[str] = comm.Get_attr(state._key()).dispatcher.unknown_counts.mpi_methods
    return methods


def signatures(comm: Any) -> list[Signature]:
    """Return what the ranks have agreed on, oldest first."""
    found = comm.Get_attr(state._key())
    return list(found.dispatcher.plans) if found and found.dispatcher else []


def of(comm: Any, dtype: str = "float64", rows: int = 3) -> Any:
    """Return an array of this rank's own."""
    return (np.arange(rows) % 3 + comm.rank + 1).astype(dtype)


def _allreduce(comm: Any) -> Any:
    out = np.empty(3)
    comm.Allreduce(of(comm), out)
    return out


def _allreduce_typed(comm: Any) -> Any:
    out = np.empty(4, "int32")
    comm.Allreduce([of(comm, "int32"), 3, MPI.INT], [out, (3, 1), MPI.INT], op=MPI.MAX)
    return out[1:]


def _allreduce_in_place(comm: Any) -> Any:
    out = of(comm, "uint8")
    comm.Allreduce(MPI.IN_PLACE, [out, MPI.UNSIGNED_CHAR], op=MPI.BOR)
    return out


def _allreduce_bytes(comm: Any) -> Any:
    out = bytearray(3)
    comm.Allreduce([of(comm, "uint8").tobytes(), MPI.UINT8_T], [out, MPI.UINT8_T], op=MPI.BXOR)
    return out


def _allreduce_columns(comm: Any) -> Any:
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3) * (comm.rank + 1))
    out = np.empty_like(x)
    comm.Allreduce(x, out, MPI.PROD)
    return out


def _user_operator(commute: bool) -> Call:
    def call(comm: Any) -> Any:
        def right(left: Any, both: Any, datatype: Any) -> None:
            x, y = np.frombuffer(left, "int64"), np.frombuffer(both, "int64")
            y[:] += x * 10 ** (1 + np.log10(y).astype("int64"))  # associative, as MPI demands

        op, out = MPI.Op.Create(right, commute), np.empty(3, "int64")
        comm.Allreduce(of(comm, "int64"), out, op)
        op.Free()
        return out if not commute else None

    return call


def _pairs(comm: Any) -> Any:
    x = np.array([(comm.rank % 2, comm.rank)], "d, i4").astype(np.dtype("d,i4", align=True))
    out = np.empty_like(x)
    comm.Allreduce([x, MPI.DOUBLE_INT], [out, MPI.DOUBLE_INT], MPI.MAXLOC)
    return out.tolist()


def _reduce(comm: Any) -> Any:
    out = np.empty(3) if comm.rank == comm.size - 1 else None
    comm.Reduce(of(comm), out, root=comm.size - 1)
    return out


def _reduce_in_place(comm: Any) -> Any:
    x = of(comm)
    comm.Reduce(*((MPI.IN_PLACE, x) if comm.rank == 0 else (x, None)), op=MPI.MIN)
    return x


def _reduce_scatter(comm: Any) -> Any:
    counts = [rank % 2 + 1 for rank in range(comm.size)]
    out = np.empty(counts[comm.rank])
    comm.Reduce_scatter(of(comm, rows=sum(counts)), out, counts)
    return out


def _reduce_scatter_block(comm: Any) -> Any:
    out = np.empty(2)
    comm.Reduce_scatter_block(of(comm, rows=2 * comm.size), out)
    return out


def _reduce_scatter_block_in_place(comm: Any) -> Any:
    x = of(comm, rows=2 * comm.size)
    comm.Reduce_scatter_block(MPI.IN_PLACE, x)
    return x[:2]


def _prefix(name: str) -> Call:
    def call(comm: Any) -> Any:
        out = np.zeros(3, "complex128")
        getattr(comm, name)(of(comm, "complex128"), out, op=MPI.SUM)
        return out if comm.rank else None

    return call


def _bcast(comm: Any) -> Any:
    x = of(comm)
    comm.Bcast(x, root=comm.size - 1)
    return x


def _bcast_read_only(comm: Any) -> Any:
    x = bytearray(b"....")
    comm.Bcast([b"read" if comm.rank == 0 else x, MPI.CHAR])
    return x


def _bcast_differently(comm: Any) -> Any:
    """Rank 0 gives every second element, the others a whole array: the same type signature."""
    x = of(comm, rows=6)
    if comm.rank:
        comm.Bcast([x, 3, MPI.DOUBLE])
    else:
        column = MPI.DOUBLE.Create_vector(3, 1, 2).Commit()
        comm.Bcast([x, 1, column])
        column.Free()
    return x


def _gather(comm: Any) -> Any:
    out = np.empty((comm.size, 3)) if comm.rank == 0 else None
    comm.Gather(of(comm), out)
    return out


def _gather_in_place(comm: Any) -> Any:
    out = np.zeros((comm.size, 3))
    out[comm.rank] = of(comm)
    comm.Gather(*((MPI.IN_PLACE, out) if comm.rank == 0 else (of(comm), None)))
    return out


def _gatherv(comm: Any) -> Any:
    counts = [rank + 1 for rank in range(comm.size)]
    out = np.empty(sum(counts)) if comm.rank == 0 else None
    comm.Gatherv(of(comm, rows=comm.rank + 1), [out, counts] if comm.rank == 0 else None)
    return out


def _gatherv_counts_everywhere(comm: Any) -> Any:
    counts = [rank + 1 for rank in range(comm.size)]
    out = np.empty(sum(counts)) if comm.rank == 0 else None
    comm.Gatherv(of(comm, rows=comm.rank + 1), (out, counts))
    return out


def _gatherv_in_place(comm: Any) -> Any:
    counts = [2] + [rank % 2 for rank in range(1, comm.size)]
    x, out = of(comm, rows=counts[comm.rank]), np.zeros(sum(counts) + 1)
    out[1:3] = 7
    starts = [1 + sum(counts[:rank]) for rank in range(comm.size)]
    mine = (MPI.IN_PLACE, [out, counts, starts, MPI.DOUBLE]) if comm.rank == 0 else (x, None)
    comm.Gatherv(*mine)
    return out if comm.rank == 0 else None


def _gatherv_bytes(comm: Any) -> Any:
    out, counts = bytearray(3 * comm.size), np.full(comm.size, 3)
    comm.Gatherv([b"abc", MPI.CHAR], [out, (counts, None), MPI.CHAR], root=comm.size - 1)
    return out


def _scatterv(comm: Any) -> Any:
    counts = [rank + 1 for rank in range(comm.size)]
    x = np.arange(sum(counts), dtype="int32") if comm.rank == 0 else None
    out = np.zeros(counts[comm.rank], "int32")
    comm.Scatterv([x, counts, None, MPI.INT] if comm.rank == 0 else None, out)
    return out


def _scatterv_in_place(comm: Any) -> Any:
    counts = [3 * rank for rank in range(comm.size)]
    x, out = np.arange(sum(counts), dtype="float64"), np.zeros(counts[comm.rank])
    is_root = comm.rank == comm.size - 1
    comm.Scatterv(*(([x, counts], MPI.IN_PLACE) if is_root else (None, out)), root=comm.size - 1)
    return x if is_root else out


def _alltoallv(comm: Any) -> Any:
    """Rank s sends s + t elements to rank t; the types differ, their signatures do not."""
    counts = [comm.rank + rank for rank in range(comm.size)]
    x, out = of(comm, "int64", sum(counts)), np.zeros(sum(counts), "uint64")
    comm.Alltoallv([x, counts, MPI.INT64_T], [out, (counts, None), MPI.INT64_T])
    return out


def _alltoallv_in_place(comm: Any) -> Any:
    x = of(comm, "int16", comm.size * (comm.size + 1) // 2)
    counts = [1] * comm.size
    comm.Alltoallv(MPI.IN_PLACE, [x, counts, list(range(comm.size)), MPI.SHORT])
    return x


def _reduce_scatter_own(comm: Any) -> Any:
    out = np.empty(comm.rank + 1, "int32")
    comm.Reduce_scatter(of(comm, "int32", comm.size * (comm.size + 1) // 2), out, op=MPI.MAX)
    return out


def _logical(comm: Any) -> Any:
    out = np.empty(3, bool)
    comm.Allreduce(np.array([True, comm.rank > 0, comm.rank == 1]), out, MPI.LXOR)
    return out


def _gatherv_apart(comm: Any) -> Any:
    """The root alone has gaps between its blocks, which only MPI can read."""
    counts, starts = [2] * comm.size, [3 * rank for rank in range(comm.size)]
    out = np.zeros(3 * comm.size)
    comm.Gatherv(of(comm, rows=2), [out, counts, starts, MPI.DOUBLE] if comm.rank == 0 else None)
    return out


def _alltoallv_apart(comm: Any) -> Any:
    """The last rank alone receives with gaps between its blocks."""
    counts, gap = [1] * comm.size, 1 + (comm.rank == comm.size - 1)
    out = np.zeros(2 * comm.size)
    starts = [gap * rank for rank in range(comm.size)]
    comm.Alltoallv(of(comm, rows=comm.size), [out, counts, starts, MPI.DOUBLE])
    return out


def _allgather(comm: Any) -> Any:
    out = np.empty((comm.size, 5), "int8")
    comm.Allgather(of(comm, "int8", 5), [out, MPI.SIGNED_CHAR])
    return out


def _allgather_in_place(comm: Any) -> Any:
    out = np.empty((comm.size, 3))
    out[comm.rank] = of(comm)
    comm.Allgather(MPI.IN_PLACE, out)
    return out


def _allgatherv(comm: Any) -> Any:
    counts = [rank % 2 + 1 for rank in range(comm.size)]
    out = np.zeros(sum(counts))
    comm.Allgatherv(of(comm, rows=counts[comm.rank]), [out, counts])
    return out


def _allgatherv_apart(comm: Any) -> Any:
    counts, starts = [1] * comm.size, [2 * rank for rank in range(comm.size)]
    out = np.zeros(2 * comm.size)
    comm.Allgatherv(of(comm, rows=1), [out, counts, starts, MPI.DOUBLE])
    return out


def _scatter(comm: Any) -> Any:
    x = np.arange(4.0 * comm.size).reshape(comm.size, 4) if comm.rank == 0 else None
    out = np.empty(4)
    comm.Scatter(x, out)
    return out


def _scatter_in_place(comm: Any) -> Any:
    x, out = np.arange(4.0 * comm.size), np.empty(4)
    comm.Scatter(*((x, MPI.IN_PLACE) if comm.rank == 0 else (None, out)))
    return x if comm.rank == 0 else out


def _alltoall(comm: Any) -> Any:
    out = np.empty(2 * comm.size)
    comm.Alltoall(of(comm, rows=2 * comm.size), out)
    return out


def _alltoall_in_place(comm: Any) -> Any:
    x = of(comm, rows=comm.size)
    comm.Alltoall(MPI.IN_PLACE, x)
    return x


def _empty(comm: Any) -> Any:
    comm.Allreduce([None, 0, MPI.INT], [None, 0, MPI.INT])
    comm.Bcast(np.empty(0))


def _long_double(comm: Any) -> Any:
    out = np.empty(2, "longdouble")
    comm.Allreduce(np.full(2, comm.rank, "longdouble"), out)
    return out


OURS = {
    "Barrier": lambda comm: comm.Barrier(), "Allreduce": _allreduce, "typed": _allreduce_typed,
    "in place": _allreduce_in_place, "bytes": _allreduce_bytes, "columns": _allreduce_columns,
    "Reduce": _reduce, "Reduce in place": _reduce_in_place, "Reduce_scatter": _reduce_scatter,
    "Reduce_scatter_block": _reduce_scatter_block,
    "Reduce_scatter_block in place": _reduce_scatter_block_in_place, "Scan": _prefix("Scan"),
    "Exscan": _prefix("Exscan"), "Bcast": _bcast, "Bcast of bytes": _bcast_read_only,
    "Gather": _gather, "Gather in place": _gather_in_place, "Allgather": _allgather,
    "Allgather in place": _allgather_in_place, "Allgatherv": _allgatherv, "Scatter": _scatter,
    "Scatter in place": _scatter_in_place, "Alltoall": _alltoall,
    "Alltoall in place": _alltoall_in_place, "empty": _empty, "Gatherv": _gatherv,
    "Gatherv, counts on all ranks": _gatherv_counts_everywhere,
    "Gatherv in place": _gatherv_in_place, "Gatherv of bytes": _gatherv_bytes,
    "Scatterv": _scatterv, "Scatterv in place": _scatterv_in_place, "Alltoallv": _alltoallv,
    "Alltoallv in place": _alltoallv_in_place, "Reduce_scatter alone": _reduce_scatter_own,
    "exclusive or": _logical,
}  # fmt: skip
THEIRS = {
    "datatype on one rank": _bcast_differently, "blocks apart": _allgatherv_apart, "pairs": _pairs,
    "operator": _user_operator(False), "commutative operator": _user_operator(True),
    "Gatherv apart": _gatherv_apart, "Alltoallv apart": _alltoallv_apart,
    "long double": _long_double,
}  # fmt: skip


def check(comm: Any, call: Call) -> None:
    expected = call(MPI.COMM_WORLD)
    for _ in range(3):  # agreed on, found by the executor, and once more
        found = call(comm)
        assert type(found) is type(expected)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", OURS)
def test_what_is_ours_gives_what_mpi_gives(comm: Any, name: str) -> None:
    check(comm, OURS[name])
    assert any(each.plan is not None for each in signatures(comm)) == (comm.size > 1)


@pytest.mark.parametrize("name", THEIRS)
def test_what_only_mpi_can_read_is_mpis(comm: Any, name: str) -> None:
    check(comm, THEIRS[name])
    assert all(each.plan is None for each in signatures(comm))


def test_counts_beside_no_array_are_found(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check(comm, _gatherv_counts_everywhere)
    asked: list[str] = []
    monkeypatch.setattr(
        dispatcher.Dispatcher, "_dispatch", lambda own, given, differs: asked.append(given)
    )
    _gatherv_counts_everywhere(comm)
    assert not asked


def test_an_array_that_pickle_has_restored_is_found_as_others_are(
    comm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its dtype is another object; so is that of every array which MPI has moved as an object."""
    x, longlong = pickle.loads(pickle.dumps(np.ones(5))), np.ones(5, "q")
    asked: list[str] = []
    for _ in range(2):
        for given in (x, longlong):
            comm.Allreduce(given, np.empty_like(given))
        monkeypatch.setattr(
            dispatcher.Dispatcher, "_dispatch", lambda own, given, differs: asked.append(given)
        )
    assert not asked
    swapped, out = np.ones(5, ">f8"), np.zeros(5)
    if comm.size > 1:
        comm.Allreduce(swapped, out)
        assert asked


def test_calls_of_both_kinds_alternate(comm: Any) -> None:
    """Interleaved on one communicator, and where one rank gives now an array, now a datatype."""
    for _ in range(3):
        for call in (*OURS.values(), *THEIRS.values()):
            np.testing.assert_array_equal(call(comm), call(MPI.COMM_WORLD))


def test_counts_may_change_in_every_call(monkeypatch: pytest.MonkeyPatch, comm: Any) -> None:
    """One rank has gaps now and then; after many misses the methods are MPI's, on all ranks."""
    monkeypatch.setattr(dispatcher, "_MISSES", 4)
    draw = random.Random(1)
    for turn in range(24):
        counts = [[draw.randrange(3) for _ in range(comm.size)] for _ in range(comm.size)]
        mine, theirs = counts[comm.rank], [each[comm.rank] for each in counts]
        gap = turn % 5 == 3 and comm.rank == 0
        starts = [sum(theirs[:rank]) + rank * gap for rank in range(comm.size)]
        x, out = (
            np.repeat(np.arange(comm.size) + turn, mine),
            np.zeros(sum(theirs) + comm.size, int),
        )
        comm.Alltoallv([x, mine], [out, theirs, starts, MPI.INT64_T])
        for start, count in zip(starts, theirs, strict=True):
            assert (out[start : start + count] == comm.rank + turn).all()
    check(comm, _gatherv)
    assert mpi_methods(comm) in (None, {"alltoallv"})


def test_a_rank_that_need_not_wait_counts_with_the_others(
    monkeypatch: pytest.MonkeyPatch, comm: Any
) -> None:
    """Ranks between the root and the last one know a call that is MPI's, and go on at once."""
    monkeypatch.setattr(dispatcher, "_MISSES", 4)
    monkeypatch.setattr(dispatcher.Dispatcher, "_plan", lambda own, arguments: None)
    for turn in (1, 1, 1, *range(1, 8)):
        counts = [5] * (comm.size - 1) + [turn]
        out = np.zeros(sum(counts))
        x = np.full(counts[comm.rank], comm.rank + turn)
        comm.Gatherv(x.astype(float), [out, counts] if comm.rank == 0 else None, 0)
        comm.Allreduce(MPI.IN_PLACE, out)
        np.testing.assert_array_equal(out, np.repeat(np.arange(comm.size) + turn, counts))
    assert mpi_methods(comm) in (None, {"gatherv"})


def test_ranks_keep_calls_of_their_own(comm: Any) -> None:
    """One rank has met so many calls that it keeps no other, not even that one is left to MPI."""
    check(comm, _long_double)
    if comm.size > 1 and comm.rank == 0:
        table = comm.Get_attr(state._key()).dispatcher.table
        for root in range(10_000):
            table.add_function(("bcast", None, None, None, root, None, None), None, 0, 0)
    for call in (_long_double, _allreduce, _long_double, _allreduce):
        check(comm, call)


def test_a_wrong_argument_is_mpis_own_error(comm: Any) -> None:
    with pytest.raises(MPI.Exception):
        comm.Bcast(np.empty(3), root=comm.size)
    with pytest.raises((TypeError, ValueError)):
        comm.Allreduce("nothing", np.empty(3))
    check(comm, _allreduce)


ROOTED: dict[str, Callable[[Any, int], object]] = {
    "Bcast": lambda comm, root: comm.Bcast(np.ones(3), root),
    "Gather": lambda comm, root: comm.Gather(np.ones(3), np.ones((comm.size, 3)), root),
    "Scatter": lambda comm, root: comm.Scatter(np.ones((comm.size, 3)), np.ones(3), root),
    "Reduce": lambda comm, root: comm.Reduce(np.ones(3), np.ones(3), MPI.SUM, root),
    "bcast": lambda comm, root: comm.bcast(1, root),
    "gather": lambda comm, root: comm.gather(1, root),
    "scatter": lambda comm, root: comm.scatter([1] * comm.size, root),
    "reduce": lambda comm, root: comm.reduce(1, MPI.SUM, root),
}


@pytest.mark.parametrize("name", ROOTED)
@pytest.mark.parametrize("how", ["too large", "negative", "no number"])
def test_a_rank_that_alone_names_no_rank_as_root_may_go_on(comm: Any, name: str, how: str) -> None:
    root = {"too large": comm.size, "negative": -5, "no number": None}[how]
    for _ in range(3):
        if comm.rank == comm.size - 1:
            with pytest.raises((MPI.Exception, TypeError)):
                ROOTED[name](comm, root)
        ROOTED[name](comm, 0)
        check(comm, _allreduce)


def test_other_communicators_are_of_its_kind(comm: Any) -> None:
    cart = comm.Create_cart([comm.size])
    made = [comm.Dup(), comm.Clone(), comm.Split(0, -comm.rank), cart, cart.Sub([True]),
            comm.Split_type(MPI.COMM_TYPE_SHARED), comm.Create(comm.group),
            comm.Create_group(comm.group)]  # fmt: skip
    for each in made:
        assert isinstance(each, Comm)
        assert isinstance(each, MPI.Intracomm)
        check(each, _allreduce)
    assert isinstance(cart, MPI.Cartcomm)
    for each in made:
        each.Free()
        assert each == MPI.COMM_NULL
    color = MPI.UNDEFINED if comm.rank else 0
    assert (comm.Split(color) == MPI.COMM_NULL) == bool(comm.rank)


def test_objects_with_one_handle_are_one_communicator(comm: Any) -> None:
    same = Comm(comm)
    assert same == comm
    # In turn on even and odd ranks: both find the same programs.
    for turn in range(4):
        check(comm if turn % 2 == comm.rank % 2 else same, _allreduce)
    assert len(signatures(comm)) == 1 or comm.size == 1


def test_users_attributes_are_not_copied(comm: Any) -> None:
    seen: list[str] = []
    keyval = MPI.Comm.Create_keyval(
        lambda comm, keyval, value: seen.append("copied"), lambda *given: seen.append("deleted")
    )
    comm.Set_attr(keyval, "mine")
    check(comm, _allreduce)
    assert signatures(comm)
    assert not seen
    comm.Delete_attr(keyval)
    MPI.Comm.Free_keyval(keyval)


def test_many_communicators_are_mpis(monkeypatch: pytest.MonkeyPatch, comm: Any) -> None:
    """One rank has too many: all ranks leave this one to MPI, through whichever object."""
    monkeypatch.setattr(state, "_MOST_SERVED", 1)
    monkeypatch.setattr(state, "_live", {object()} if comm.rank == 0 else set())
    check(comm, _allreduce)
    check(Comm(comm) if comm.rank else comm, _allreduce)
    assert not signatures(comm)


def test_messages_of_mpi_move_while_a_rank_waits_in_a_collective(comm: Any) -> None:
    """A message too large to be sent before it is received, and collectives of MPI under way."""
    x, out = np.full(1 << 20, comm.rank + 1.0), np.empty(1 << 20)
    if comm.rank == 0 and comm.size > 1:
        request = comm.Isend(x, 1)
        comm.Barrier()
        request.Wait()
    elif comm.rank == 1:
        comm.Recv(out, 0)
        assert out[-1] == 1
        comm.Barrier()
    else:
        comm.Barrier()
    started = comm.Iallreduce(x, out)
    if comm.rank == 0:
        comm.Barrier()
    started.Wait()
    if comm.rank:
        comm.Barrier()
    assert out[-1] == sum(range(1, comm.size + 1))


def test_threads_use_communicators_of_their_own(comm: Any) -> None:
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI was started for one thread")
    parts = [comm.Dup() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            found = list(pool.map(_allreduce, parts))
            np.testing.assert_array_equal(found, [_allreduce(MPI.COMM_WORLD)] * 3)
    for part in parts:
        part.Free()


def test_threads_fold_objects_in_any_order(comm: Any) -> None:
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI was started for one thread")
    comms = [comm.Dup() for _ in range(2)]
    for each in comms:
        each.Barrier()
    with ThreadPoolExecutor(2) as pool:
        # mpi4py duplicates each communicator in its first such call.
        order = comms if comm.rank % 2 else comms[::-1]
        calls = [pool.submit(each.allreduce, [comm.rank], op=operator.add) for each in order]
        assert [each.result(60) for each in calls] == [list(range(comm.size))] * 2
    for each in comms:
        each.Free()


def test_mpis_own_communicators_travel_by_name() -> None:
    world = Comm(MPI.COMM_WORLD)
    found = pickle.loads(pickle.dumps(world))
    assert isinstance(found, Comm)
    assert found == MPI.COMM_WORLD


def test_a_freed_communicator_says_so() -> None:
    made = Comm(MPI.COMM_WORLD.Dup())
    check(made, _allreduce)
    made.Free()
    with pytest.raises(MPI.Exception):
        made.Barrier()


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
    monkeypatch: pytest.MonkeyPatch, comm: Any, name: str, items: Any, least: float, most: float
) -> None:
    """Calls of a new communicator, and those of a signature that has not been met, included."""
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    monkeypatch.delenv(WARMUP)
    for op, expected in ((MPI.MIN, least), (MPI.MAX, most)):
        found = {str(float(EXTREMES[name](comm, items[comm.rank % 2], op))) for _ in range(20)}
        assert comm.allgather(found) == [{str(expected)}] * comm.size


@pytest.fixture
def reused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let communicators take over what freed ones have made."""
    monkeypatch.setattr(state, "_MOST_IDLE", 2)
    yield
    while state._idle:
        state._idle.pop().close()


def _state(comm: Any) -> Any:
    return comm.Get_attr(state._key())


def _used(made: Any) -> Any:
    """Return the state of a communicator after some calls, and free it."""
    for call in (_allreduce, _bcast, _alltoallv, _long_double):
        check(made, call)
    assert made.allreduce(made.rank, MPI.MAX) == made.size - 1
    last = _state(made)
    made.Free()
    return last


@pytest.mark.usefixtures("reused")
def test_a_communicator_takes_over_what_a_freed_one_of_the_same_ranks_has_made(comm: Any) -> None:
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    first = _used(comm.Dup())
    made = len(first.dispatcher.plans)
    for other in (comm.Split(0, comm.rank), comm.Create_cart([comm.size]), comm.Dup()):
        assert MPI.Comm.Compare(other, comm) == MPI.CONGRUENT
        assert _used(other) is first
    assert len(first.dispatcher.plans) == made


@pytest.mark.usefixtures("reused")
def test_communicators_of_one_time_or_another_order_of_ranks_share_nothing(comm: Any) -> None:
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    first = _used(comm.Dup())
    backwards, pair = comm.Split(0, -comm.rank), [comm.Dup(), comm.Dup()]
    for each in (*pair, backwards):
        check(each, _allgather)
    states = [_state(each) for each in (*pair, backwards)]
    assert [each is first for each in states] == [True, False, False]
    assert len({id(each.dispatcher) for each in states}) == 3
    for each in (*pair, backwards):
        check(each, _allreduce)
        each.Free()


@pytest.mark.usefixtures("reused")
def test_a_state_that_one_rank_has_dropped_is_reused_by_none(comm: Any) -> None:
    """A rank closes its oldest states when it has too many, whatever the others have."""
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    first = _used(comm.Dup())
    if comm.rank == 0:
        state._idle.pop().close()
    made = comm.Dup()
    check(made, _allreduce)
    assert _state(made) is not first
    assert first not in state._idle
    made.Free()


@pytest.mark.usefixtures("reused")
def test_a_freed_communicator_makes_no_calls_of_the_next_one() -> None:
    made = Comm(MPI.COMM_WORLD.Dup())
    check(made, _allreduce)
    assert made.bcast("text") == "text"
    made.Free()
    following = Comm(MPI.COMM_WORLD.Dup())
    check(following, _allreduce)
    for call in (made.Barrier, lambda: made.bcast("text"), lambda: _allreduce(made)):
        with pytest.raises(MPI.Exception):
            call()
    check(following, _allreduce)
    following.Free()


def test_a_variable_forces_an_algorithm(monkeypatch: pytest.MonkeyPatch, comm: Any) -> None:
    monkeypatch.setenv(FORCED, "allreduce=ring")
    check(comm, _allreduce)
    found = [each.plan.algorithm for each in signatures(comm) if each.plan]
    assert found == (["ring"] if comm.size > 1 else [])


def test_a_wrong_variable_is_an_error_on_every_rank(
    monkeypatch: pytest.MonkeyPatch, comm: Any
) -> None:
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    monkeypatch.setenv(FORCED, "allreduce=ring" if comm.rank else "allreduce=rnig")
    with pytest.raises(ArgumentError, match=FORCED):
        comm.Barrier()


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
        user = MPI.Op.Create(_plus, commute=True)
        comm.Allreduce([own, MPI.FLOAT if dtype == "float32" else MPI.DOUBLE], whole, user)
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
    for call in (*OURS.values(), *THEIRS.values()):  # sums here are exact in any order
        np.testing.assert_array_equal(call(comm), call(MPI.COMM_WORLD))


def test_our_calls_and_mpis_own_are_recorded_in_the_same_order(comm: Comm) -> None:
    if comm.size == 1:
        pytest.skip("a rank alone records nothing")
    for _ in range(3):
        _allreduce(comm)
    op = MPI.Op.Create(lambda left, right, dtype: None, commute=True)
    comm.Reduce(of(comm), np.empty(3), op)
    op.Free()
    comm.Iallreduce(of(comm), np.empty(3)).Wait()
    comm.Barrier_init().Free()
    with pytest.raises((MPI.Exception, TypeError)):
        comm.Ibcast(3)
    flight = state.find_flight(comm)
    assert flight is not None
    found = reader.read(flight.recorder.path)
    group = [each for each in found.groups if not each.messages][-1]
    entries = [each for each in found.entries if each.group == group]
    own = [(each.sequence, each.call.collective, each.outcome) for each in entries]
    assert comm.allgather(own) == [own] * comm.size
    algorithms = [each.call.algorithm for each in entries if each.call.collective == "allreduce"]
    assert algorithms[-1] not in ("", "native")
    assert ("reduce", "native") in [(each.call.collective, each.call.algorithm) for each in entries]
    issued = [each for each in entries if each.outcome is Outcome.ISSUED]
    assert [each.call.collective for each in issued] == ["iallreduce", "barrier_init"]
    assert {each.location.file for each in entries if each.location} == {__file__}

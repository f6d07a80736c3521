"""Lower-case collectives of our communicators: what they return is what mpi4py's return."""

from __future__ import annotations

import functools
import json
import os
import pickle
import platform
import resource
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

MPI = pytest.importorskip("mpi4py.MPI")
from mpicoll import Collectives, Comm  # noqa: E402
from mpicoll.mpi.communicator import CartComm  # noqa: E402
from mpicoll.mpi.communicator.in_order import in_order  # noqa: E402

SHARED, TWICE = [1], np.arange(3.0)
ITEMS: dict[str, Any] = {
    "integer": 3, "large integer": 1 << 200, "float": 0.5, "complex": 1 - 2j, "bool": True,
    "None": None, "NumPy scalar": np.float32(1.5), "array": np.arange(3.0),
    "large array": np.arange(1e5), "columns": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "part": np.arange(10)[::2], "no axes": np.array(7), "empty": np.empty((0, 3)),
    "tuple": (1, (2.0, np.arange(2), np.ones((60, 70), "int8")), ()), "text": "text",
    "list": [1, "a", None, 2.5], "long list": list(range(300)), "nested": [1, (2, [3])],
    "dictionary": {"a": [1, None]}, "long text": "text" * 200, "structured": np.zeros(2, "i4,f8"),
    "bytes": b"\0\xff", "surrogate": "\udc80", "long bytes": bytes(300),
    "dates": np.array(["2026-01-01"], "M8[D]"), "objects": np.array([None, 1], object),
    "other order of axes": np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2),
    "gaps": np.arange(24).reshape(2, 3, 4)[:, ::2], "instance": Fraction(1, 3), "set": {1, 2},
    "shared": [SHARED, SHARED], "long list of floats": [0.5 * i for i in range(20_000)],
    "arrays in a list": [np.arange(3), {"a": np.ones((60, 70))}], "4 KiB": np.arange(512.0),
    "array twice": (TWICE, [TWICE]), "other byte order": np.arange(3, dtype=">i4"),
    "restored": pickle.loads(pickle.dumps(np.arange(3.0))), "long long": np.arange(3, dtype="q"),
    "subclass": np.ones(3).view(np.recarray), "NumPy bool": np.bool_(True), "back": TWICE[::-1],
    "read-only": np.frombuffer(bytes(range(9)), "u1").reshape(3, 3).T,
}  # fmt: skip
MIXED = list(ITEMS.values())


@pytest.fixture(scope="module")
def comm(c: Collectives) -> Iterator[Any]:
    made = Comm(MPI.COMM_WORLD.Dup())
    yield made
    made.Free()


def same(found: Any, expected: Any) -> bool:
    """Whether two objects are equal, and of one type, dtype, shape and strides."""
    if type(found) is not type(expected):
        return False
    if isinstance(expected, tuple | list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, dict):
        return list(found) == list(expected) and same([*found.values()], [*expected.values()])
    if isinstance(expected, np.ndarray):
        return (
            found.dtype == expected.dtype and found.shape == expected.shape
            and (found.strides == expected.strides or not found.size)
            and found.flags.writeable == expected.flags.writeable
            and bool((found == expected).all())
        )  # fmt: skip
    return bool(found == expected)


@pytest.mark.parametrize("name", ITEMS)
def test_objects_arrive_as_they_were(comm: Any, name: str) -> None:
    item = ITEMS[name]
    expected = pickle.loads(pickle.dumps(item, MPI.pickle.PROTOCOL))
    assert same(comm.bcast(item if comm.rank == 0 else None), expected)
    everyone = [expected] * comm.size
    assert same(comm.allgather(item), everyone)
    gathered = comm.gather(item, root=comm.size - 1)
    assert same(gathered, everyone if comm.rank == comm.size - 1 else None)
    whole = [item] * comm.size
    assert same(
        comm.scatter(whole if comm.rank == comm.size - 1 else None, comm.size - 1), expected
    )
    assert same(comm.alltoall(whole), everyone)


@pytest.mark.parametrize("shift", range(0, len(MIXED), 3))
def test_ranks_may_give_different_objects(comm: Any, shift: int) -> None:
    items = [MIXED[(rank + shift) % len(MIXED)] for rank in range(comm.size)]
    plain = MPI.COMM_WORLD.allgather(items[comm.rank])
    assert same(comm.allgather(items[comm.rank]), plain)
    assert same(comm.gather(items[comm.rank]), plain if comm.rank == 0 else None)
    assert same(comm.scatter(items if comm.rank == 0 else None), plain[comm.rank])
    turned = items[comm.rank :] + items[: comm.rank]
    assert same(comm.alltoall(turned), MPI.COMM_WORLD.alltoall(turned))


def test_a_long_pickle_takes_the_memory_of_itself_and_of_its_object(comm: Any) -> None:
    item = {bytes([number]) * (1 << 20) for number in range(8)}
    nbytes = sum(map(len, item))
    tracemalloc.start()
    try:
        found = comm.bcast(item if comm.rank == 0 else None)
        _, peak = tracemalloc.get_traced_memory()
        assert found == item
        del found
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * nbytes
    assert held < 0.5 * nbytes


@pytest.mark.parametrize("name", ["bcast", "gather", "allgather", "allreduce"])
def test_large_objects_take_no_new_pages_in_each_call(comm: Any, name: str) -> None:
    """Where glibc gives the memory of each call back to the system, a call takes 250 or more."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("what is returned to the system is glibc's choice")
    x = np.ones(1 << 17)
    for _ in range(3):
        getattr(comm, name)(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        getattr(comm, name)(x)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 500


def test_an_array_that_stands_twice_is_restored_once(comm: Any) -> None:
    for _ in range(2):
        one, (other,) = comm.bcast((TWICE, [TWICE]))
        assert one is other


@pytest.mark.parametrize("name", ["bcast", "gather", "allgather", "scatter", "alltoall",
                                  "reduce", "allreduce", "scan", "exscan"])  # fmt: skip
def test_a_rank_whose_object_cannot_be_pickled_is_in_step(comm: Any, name: str) -> None:
    """It raises there, before the others hear of the call, as with mpi4py."""
    folds = name in ("reduce", "allreduce", "scan", "exscan")
    is_wrong = comm.rank == (comm.size - 1 if folds else 0)
    whole = name in ("scatter", "alltoall")
    call, bad, good = getattr(comm, name), lambda: 1, [1.5]
    if is_wrong:
        with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
            call([[0.5]] * (comm.size - 1) + [bad] if whole else bad)
    left = getattr(MPI.COMM_WORLD, name)
    given = [good] * comm.size if whole else good
    assert call(given) == left(given)
    assert comm.allgather(comm.rank) == list(range(comm.size))


def test_nothing_to_scatter_and_too_little(comm: Any) -> None:
    assert comm.scatter(None) is None
    assert comm.alltoall(None) == [None] * comm.size
    with pytest.raises(ValueError, match=f"expecting {comm.size} items, got 0"):
        comm.alltoall([])


def test_what_stands_for_pickle_gets_its_own_bytes(comm: Any) -> None:
    MPI.pickle.__init__(
        lambda item: json.dumps(item).encode(), lambda data: json.loads(bytes(data))
    )
    try:
        for item in ({"a": [1]}, {"b": "c" * 300}, {}, [1, 2], "text", (1, (2, 3))):
            restored = json.loads(json.dumps(item))  # of a tuple it makes a list
            assert comm.allgather(item) == comm.alltoall([item] * comm.size)
            assert comm.allgather(item) == [restored] * comm.size
            assert comm.bcast(item) == comm.scatter([item] * comm.size) == restored
    finally:
        MPI.pickle.__init__()


FOLDS: dict[str, Any] = {
    "floats": (lambda rank: rank + 0.5, MPI.SUM), "integers": (lambda rank: rank - 1, MPI.MIN),
    "bits": (lambda rank: 1 << rank, MPI.BOR), "complex": (lambda rank: rank + 1j, MPI.PROD),
    "large integers": (lambda rank: 1 << 62, MPI.SUM), "bools": (lambda rank: rank > 0, MPI.SUM),
    "one large integer": (lambda rank: (1 << 63) if rank else 1, MPI.SUM),
    "NaN on one rank": (lambda rank: float("nan") if rank == 1 else 1.0, MPI.SUM),
    "number and array": (lambda rank: np.ones(1) if rank else 1.0, MPI.SUM),
    "integer and float": (lambda rank: 1.0 if rank else 1, MPI.SUM),
    "arrays": (lambda rank: np.arange(6.0).reshape(2, 3) + rank, MPI.SUM),
    "shapes": (lambda rank: np.ones((2, 3) if rank else (3,)), MPI.SUM),
    "shapes of as many": (lambda rank: np.ones((2, 1) if rank else (1, 2)), MPI.SUM),
    "integer arrays": (lambda rank: np.full(3, 100, "int8"), MPI.SUM),
    "bool arrays": (lambda rank: np.array([rank > 0, True]), MPI.SUM),
    "text": (str, MPI.SUM), "logical": (lambda rank: rank, MPI.LAND),
    "lists": (lambda rank: [rank, "a"], MPI.SUM),
    "one dictionary": (lambda rank: {} if rank else 0, MPI.LOR),
    "texts, one long": (lambda rank: str(rank) * (1 + 300 * (rank == 1)), MPI.SUM),
    "pairs": (lambda rank: (rank % 2, rank), MPI.MAXLOC),
    "function": (lambda rank: (rank,), lambda x, y: x + y),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("method", ["allreduce", "reduce", "scan", "exscan"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_folds_are_mpi4pys(comm: Any, method: str, name: str) -> None:
    make, op = FOLDS[name]
    expected = getattr(MPI.COMM_WORLD, method)(make(comm.rank), op=op)
    for _ in range(2):
        found = getattr(comm, method)(make(comm.rank), op=op)
        assert type(found) is type(expected)
        np.testing.assert_array_equal(found, expected)


FUNCTIONS: dict[str, Any] = {
    "dictionaries": (lambda rank: {rank: [rank]}, lambda x, y: {**x, **y}),
    "in place": (lambda rank: [rank], lambda x, y: x.extend(y) or x),
    "instances": (lambda rank: Fraction(1, rank + 2), lambda x, y: x + y),
    "arrays": (lambda rank: np.arange(5.0) * (-1) ** rank, np.maximum),
    "large arrays": (lambda rank: np.arange(1e4) * (-1) ** rank, np.maximum),
    "longer and longer": (lambda rank: "ab" * 200 * rank, lambda x, y: y + x),
    "one long": (lambda rank: "a" * (rank * 100_000), max),
    "lists": (lambda rank: list(range(300 * rank)), MPI.SUM),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("method", ["allreduce", "reduce", "scan", "exscan"])
def test_any_objects_fold_as_mpi4pys(comm: Any, method: str, name: str) -> None:
    if name == "in place" and "scan" in method:
        pytest.skip("mpi4py's own folds one object twice")
    make, op = FUNCTIONS[name]
    expected = getattr(MPI.COMM_WORLD, method)(make(comm.rank), op=op)
    for _ in range(3):
        given = make(comm.rank)
        assert same(getattr(comm, method)(given, op=op), expected)
        assert same(given, make(comm.rank))


@pytest.fixture(params=[False, True], ids=["default", "reproducible"])
def allreduce(request: pytest.FixtureRequest, comm: Any) -> Callable[..., Any]:
    """The method on several ranks, in mpi4py's order or in that of the ranks."""
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    plain = MPI.Intracomm.allreduce
    method = in_order("allreduce", plain) if request.param else type(comm).allreduce
    return functools.partial(method, comm)


def test_all_ranks_get_one_fold_of_a_function(comm: Any, allreduce: Callable[..., Any]) -> None:
    """A function may give each process another result, as the order of a set's texts differs."""
    for item in (comm.rank, [comm.rank]):
        found = allreduce(item, lambda x, y: os.getpid())
        assert comm.allgather(found) == [found] * comm.size


def test_a_function_that_raises_raises_on_all_ranks(comm: Any) -> None:
    if comm.size == 1:
        pytest.skip("MPI serves one rank")
    wanted = RuntimeError if comm.rank % 2 else ZeroDivisionError  # those that fold
    if comm.rank == 2 == comm.size - 1:
        wanted = RuntimeError
    with pytest.raises(wanted, match="by zero"):
        comm.allreduce(comm.rank, lambda x, y: 1 // 0)
    assert comm.allreduce(1) == comm.size


def test_a_fold_that_cannot_be_pickled_raises_on_all_ranks(
    comm: Any, allreduce: Callable[..., Any]
) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError, RuntimeError), match="lambda"):
        allreduce(comm.rank, lambda x, y: lambda: 0)
    assert comm.allreduce(1) == comm.size


@pytest.mark.parametrize("root", [0, 1])
@pytest.mark.parametrize("bad", [0, 1, 2, 3])
def test_a_function_that_raises_on_one_rank_leaves_the_others_in_step(
    comm: Any, bad: int, root: int
) -> None:
    def fold(left: list[int], right: list[int]) -> list[int]:
        if comm.rank == bad:
            raise ZeroDivisionError("by zero")
        return left + right

    folders = {3: [0], 4: [0, 2]}.get(comm.size, [])
    if bad not in folders:
        pytest.skip("this rank folds nothing")
    for method in (comm.allreduce, lambda item, op: comm.reduce(item, op, root)):
        raises = comm.rank in (bad, root) or method == comm.allreduce
        error = ZeroDivisionError if comm.rank == bad else RuntimeError
        with pytest.raises(error, match="by zero") if raises else nullcontext():
            method([comm.rank], fold)
        assert comm.allreduce([1]) == [1] * comm.size


@pytest.mark.parametrize("length", [0, 16, 17, 40, 32_700, 32_768, 32_780, 3_000_000])
def test_texts_of_any_length_arrive(comm: Any, length: int) -> None:
    """One rank's texts are long, and those of others empty."""
    last = comm.size - 1
    text = "a" * length if comm.rank == last else ""
    texts = [""] * last + ["a" * length]
    other = Comm(comm) if comm.rank else comm  # one communicator, whatever stands for it
    for _ in range(3):
        assert other.allgather(text) == other.alltoall([text] * comm.size) == texts
        assert other.bcast(text, last) == texts[-1]
        assert other.gather(text, last) == (texts if comm.rank == last else None)
        assert other.scatter(texts if comm.rank == last else None, last) == text


ROOTED = {"gather": 1, "reduce": 1, "bcast": 1, "scatter": None}
"""The methods of objects that take a root, with an object for each."""


@pytest.mark.parametrize("calls", [0, 2, 20])
@pytest.mark.parametrize("name", ROOTED)
def test_a_wrong_root_is_mpi4pys_own_error(comm: Any, name: str, calls: int) -> None:
    method = getattr(comm, name)
    item = ROOTED[name] or [1] * comm.size
    for _ in range(calls):
        method(item)
    for root in (comm.size, comm.size + 98, -3):
        with pytest.raises(MPI.Exception) as error:
            method(item, root=root)
        assert error.value.Get_error_class() == MPI.ERR_ROOT
    for no_root in (None, "0"):
        with pytest.raises(TypeError):
            method(item, root=no_root)
    assert method(item, root=np.int64(0)) == method(item, root=0.0) == method(item)


def test_a_rank_that_has_given_a_wrong_root_repeats_the_call(comm: Any) -> None:
    for _ in range(3):
        comm.bcast(comm.rank)
    if comm.rank == comm.size - 1:
        with pytest.raises(MPI.Exception):
            comm.bcast(5, root=-3)
    assert comm.bcast(comm.rank + 7) == 7


def test_methods_say_what_mpi4pys_say() -> None:
    for kind, theirs in ((Comm, MPI.Intracomm), (CartComm, MPI.Cartcomm)):
        for name in dir(theirs):
            method = getattr(kind, name)
            if not name.startswith("_") and callable(method):
                assert method.__doc__ == getattr(theirs, name).__doc__


FOLDED = {
    "numbers": lambda rank: rank + 1,
    "kinds of numbers": lambda rank: (1, 2.5, np.float64(3.5), np.int32(4))[rank % 4],
    "a number and arrays": lambda rank: 1.0 if rank == 0 else np.full(3, rank + 1.0),
    "arrays and a number": lambda rank: np.full(3, rank + 1.0) if rank == 0 else 2.0,
    "sets": lambda rank: {rank},
}  # fmt: skip
"""What a rank gives: numbers are folded by all ranks, other objects by the first."""


@pytest.mark.parametrize("op", [MPI.SUM, MPI.MAX, MPI.BOR, lambda lhs, rhs: lhs + rhs])
@pytest.mark.parametrize("kind", FOLDED)
def test_a_fold_of_numbers_and_of_other_objects(comm: Any, kind: str, op: Any) -> None:
    values = [FOLDED[kind](rank) for rank in range(comm.size)]
    try:
        expected = functools.reduce(op, values)
    except (TypeError, ValueError) as error:
        with pytest.raises((type(error), RuntimeError)):
            comm.allreduce(values[comm.rank], op)
    else:
        for _ in range(2):
            result = comm.allreduce(values[comm.rank], op)
            assert np.array_equal(np.asarray(result), np.asarray(expected))
            assert type(result) is type(expected)
    comm.Barrier()

"""Buffers that only MPI can read, and buffers that mpi4py refuses, on one rank and on all."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from functools import partial
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


# -- forms that a channel reads itself -----------------------------------------------------------


class _Subclass(np.ndarray[Any, Any]):
    """An array of a class of the user's."""


def _struct() -> Any:
    dtype = np.dtype([("id", "i4"), ("x", "f8")], align=True)
    kind = MPI.Datatype.Create_struct([1, 1], [0, 8], [MPI.INT, MPI.DOUBLE])
    return dtype, kind.Create_resized(0, dtype.itemsize).Commit()


def _structs(value: float) -> tuple[Any, Any]:
    dtype, kind = _struct()
    array = np.full(5, value, "f8").astype(dtype)
    return array, [array, 5, kind]


def _column(value: float) -> tuple[Any, Any]:
    array = np.zeros((6, 3))
    array[:, 1] = value
    return array, [array.reshape(-1)[1:], 1, MPI.DOUBLE.Create_vector(6, 1, 3).Commit()]


def _backwards(value: float) -> tuple[Any, Any]:
    kind = MPI.DOUBLE.Create_indexed([2, 1], [3, 0]).Commit()
    array = np.array([value, -1, -1, value, value])
    return array, [array, 1, kind]


MOVED: dict[str, Callable[[float], tuple[Any, Any]]] = {
    "fortran": lambda value: (array := np.asfortranarray(np.full((3, 4), value)), array),
    "subclass": lambda value: (array := np.full(4, value).view(_Subclass), array),
    "bytearray": lambda value: (array := bytearray([int(value)] * 9), array),
    "half": lambda value: (array := np.full(4, value, "f2"), array),
    "bytes": lambda value: (array := np.full(4, value), [array, MPI.BYTE]),
    "big_endian_bytes": lambda value: (array := np.full(4, value, ">f8"), [array, 32, MPI.BYTE]),
    "index": lambda value: (array := np.full(4, value), [array, np.int64(4), MPI.DOUBLE]),
    "code": lambda value: (array := np.full(4, value), [array, 4, "d"]),
    "displaced": lambda value: (
        array := np.array([7.0, value, value]), [array, (2, 1), MPI.DOUBLE]
    ),
    "contiguous": lambda value: (
        array := np.full(8, value), [array, 2, MPI.DOUBLE.Create_contiguous(4).Commit()]
    ),
    "structs": _structs, "column": _column, "backwards": _backwards,
}  # fmt: skip
"""An array of one value on all ranks, and the buffer that is it, by the name of the form."""


def _python_of_ours(call: Callable[[], object]) -> list[str]:
    """Return the functions that read arguments in Python while a call runs."""
    names: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.endswith(("/reading.py", "/buffers.py")):
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.parametrize("form", MOVED)
def test_a_channel_reads_a_form_itself(served_at_once: None, form: str) -> None:
    """Once it has learned the layout; what lies between the elements stays."""
    comm = Comm(MPI.COMM_WORLD.Dup())
    sent, _ = MOVED[form](3.0)
    for root in (0, comm.size - 1, np.int64(0)):
        array, buffer = MOVED[form](3.0 if comm.rank == root else 0.0)
        comm.Bcast(buffer, root)
        assert np.array_equal(np.asarray(array), np.asarray(sent))
        comm.Bcast(buffer, root)
        assert _python_of_ours(partial(comm.Bcast, buffer, root)) == []
    comm.Free()


def test_a_freed_datatype_is_read_no_more(comm: Any) -> None:
    """MPI gives its handle to another datatype."""
    for length in (1, 2, 3):
        kind = MPI.DOUBLE.Create_vector(2, length, 4).Commit()
        x = np.zeros(8) if comm.rank else np.arange(8.0)
        for _ in range(3):
            comm.Bcast([x, 1, kind])
        kind.Free()
        expected = [*range(length), *[0] * (4 - length), *range(4, 4 + length)]
        assert x[: 4 + length].tolist() == (expected if comm.rank else x[: 4 + length].tolist())


@pytest.mark.parametrize("own_count", [True, False])
def test_rows_with_a_count_are_read_by_a_channel(comm: Any, own_count: bool) -> None:
    rows = np.zeros((comm.size + 1, 4))
    row = np.full(4, comm.rank + 1.0)
    spec = [row, 4, MPI.DOUBLE] if own_count else row
    for _ in range(2):
        comm.Allgather(spec, [rows, 4, MPI.DOUBLE])
    assert rows[:, 0].tolist() == [*range(1, comm.size + 1), 0]


def test_an_operator_of_another_object_is_the_same(comm: Any) -> None:
    """Its handle says which one it is."""
    out = np.zeros(3)
    comm.Allreduce(np.ones(3), out, MPI.Op(MPI.SUM) if comm.rank else MPI.SUM)
    assert out.tolist() == [comm.size] * 3


@pytest.mark.parametrize("is_plain", [True, False])
def test_ranks_know_the_counts_of_their_own_rows_alone(comm: Any, is_plain: bool) -> None:
    """Whatever the form of their buffers."""
    counts = [rank + 1 for rank in range(comm.size)]
    x, out = np.arange(float(sum(counts))), np.zeros(counts[comm.rank])
    is_plain = is_plain or comm.rank > 0
    for _ in range(3):
        comm.Reduce_scatter(x if is_plain else [x, (x.size, 0), MPI.Datatype(MPI.DOUBLE)], out)
        first = sum(counts[: comm.rank])
        assert (out == comm.size * x[first : first + out.size]).all()


def _unaligned(x: Any) -> Any:
    """Return the elements of an array behind a first byte."""
    array = np.zeros(x.nbytes + 1, "u1")[1:].view(x.dtype)
    array[:] = x
    return array


UNUSUAL: dict[str, Buffer] = {
    "ctypes": lambda x: (ctypes.c_double * x.size)(*x),
    "unaligned": lambda x: [_unaligned(x), MPI.DOUBLE],
    "unaligned view": lambda x: memoryview(_unaligned(x)).cast("B").cast("d"),
}
"""Memory whose elements have another code than NumPy's, or begin at any byte."""


@pytest.mark.parametrize("form", UNUSUAL)
def test_a_rank_folds_elements_of_unusual_memory(comm: Any, form: str) -> None:
    """In a call of other ranks with arrays, and in place."""
    for alone in range(comm.size):
        memory: Buffer = UNUSUAL[form] if comm.rank == alone else np.array
        out, rows = memory(np.zeros(3)), memory(np.ones(3 * comm.size))
        comm.Allreduce(memory(np.full(3, comm.rank + 1.0)), out)
        comm.Allreduce(MPI.IN_PLACE, out)
        memory_of_out = out[0] if isinstance(out, list) else out
        total = comm.size * comm.size * (comm.size + 1) / 2
        assert np.asarray(memory_of_out).tolist() == [total] * 3
        comm.Reduce_scatter_block(rows, out)
        assert np.asarray(memory_of_out).tolist() == [comm.size] * 3


def test_the_extent_of_a_datatype_says_how_many_rows_there_are(comm: Any) -> None:
    """Its elements may overlap."""
    kind = MPI.DOUBLE.Create_indexed([1, 1], [0, 0]).Commit()
    rows, row = np.repeat(np.arange(float(comm.size)), 3), np.zeros(6)
    for _ in range(3):
        comm.Scatter([rows, kind], row)
        assert row.tolist() == [comm.rank] * 6
    kind.Free()


def test_rows_of_a_derived_datatype_have_a_list_of_counts(comm: Any) -> None:
    kind = MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
    out = np.zeros((comm.size, 3))
    plain = [np.zeros(2 * comm.size), [2] * comm.size]
    comm.Allgatherv(
        np.full(2, comm.rank + 1.0), plain if comm.rank else [out, [1] * comm.size, kind]
    )
    expected = [0] * comm.size if comm.rank else [*range(1, comm.size + 1)]
    assert out[:, 0].tolist() == out[:, 2].tolist() == expected
    kind.Free()


WRONG: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "sizes": lambda x, out: (np.append(x, 0), out),
    "datatypes": lambda x, out: (x, out.astype("i8")),
    "a derived datatype": lambda x, out: (x, [out, MPI.DOUBLE.Create_contiguous(1).Commit()]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_rank_learns_what_is_wrong_once_the_counts_are_known(comm: Any, wrong: str) -> None:
    """Other ranks wait for it in the call, which it then makes with the counts."""
    x, out, counts = np.ones(2 * comm.size), np.zeros(2), [2] * comm.size
    for alone in range(comm.size):
        if comm.rank == alone:
            with pytest.raises(ValueError, match="mismatch"):
                comm.Reduce_scatter(*WRONG[wrong](x, out))
        comm.Reduce_scatter(x, out, counts if comm.rank == alone else None)
        assert out.tolist() == [comm.size] * 2


# -- blocks with a count for each rank ------------------------------------------------------------


def _pair_of(kind: Any) -> Any:
    return kind.Create_contiguous(2)


def _gaps_of(kind: Any) -> Any:
    return kind.Create_vector(2, 1, 3).Create_resized(0, 4 * kind.Get_size())


def _swapped_of(kind: Any) -> Any:
    return kind.Create_indexed([1, 1], [2, 0])


def _overlapping_of(kind: Any) -> Any:
    """Elements begin within the one before, as columns of a matrix do."""
    return kind.Create_vector(2, 1, 12).Create_resized(0, kind.Get_size())


def _early_of(kind: Any) -> Any:
    """Elements begin before their displacement."""
    return kind.Create_indexed([1, 1], [-1, 1])


def _empty_of(kind: Any) -> Any:
    return kind.Create_contiguous(0)


DERIVED: dict[str, Buffer] = {
    "pair": _pair_of, "gaps": _gaps_of, "swapped": _swapped_of, "overlapping": _overlapping_of,
    "early": _early_of, "empty": _empty_of,
}  # fmt: skip
"""Makes a datatype of two numbers, or of none."""
NUMBERS: dict[str, Buffer] = {
    "list": list, "tuple": tuple, "int32": partial(np.array, dtype="i4"),
    "int64": partial(np.array, dtype="i8"),
}  # fmt: skip
VECTORS = ("Alltoallv", "Allgatherv", "Gatherv", "Scatterv")
ROOM = 40
"""Numbers of a buffer, more than its blocks need."""


def _places(comm: Any, name: str) -> Any:
    """Return displacements that are out of order, with gaps; the last rank's has no elements."""
    order = np.roll(np.arange(comm.size), 1)
    return 1 + (order if name == "overlapping" else 3 * order)


def _vector_call(
    comm: Any, name: str, kinds: tuple[Any, Any], numbers: Buffer, places: Any, in_place: bool
) -> Any:
    """Make a call in which the last rank has an empty block, and all others one element."""
    rank, size, root = comm.rank, comm.size, 1 % comm.size
    counts = [1] * (size - 1) + [0] if size > 1 else [1]
    local = counts[rank]
    x, out = np.arange(ROOM * size) * 10.0 + rank, np.full(ROOM * size, -1.0 - rank)
    sent, received = kinds
    rows = [numbers(counts), numbers(places)]
    one = [x[1:], local, sent]
    if name == "Alltoallv":
        all_counts = numbers([local and count for count in counts])
        target = [out, all_counts, rows[1], received]
        comm.Alltoallv(MPI.IN_PLACE if in_place else [x, all_counts, rows[1], sent], target)
    elif name == "Allgatherv":
        comm.Allgatherv(MPI.IN_PLACE if in_place else one, [out, *rows, received])
    elif name == "Gatherv":
        is_local = in_place and rank == root
        target = [out, *rows, received] if rank == root else None
        comm.Gatherv(MPI.IN_PLACE if is_local else one, target, root)
    else:
        is_local = in_place and rank == root
        source = [x, *rows, sent] if rank == root else None
        comm.Scatterv(source, MPI.IN_PLACE if is_local else [out[1:], local, received], root)
    return out


def _datatypes(comm: Any, form: str, turn: int) -> tuple[Any, Any]:
    """Return the datatypes of a call: derived in its output, its input, or both, or on one rank."""
    derived, plain = DERIVED[form], _empty_of if form == "empty" else _pair_of
    is_alone = turn == 3 and comm.rank != 0
    sent = (plain if turn == 0 or is_alone else derived)(MPI.DOUBLE)
    received = (plain if turn == 1 or is_alone else derived)(MPI.DOUBLE)
    return sent.Commit(), received.Commit()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("form", DERIVED)
@pytest.mark.parametrize("name", VECTORS)
def test_blocks_of_a_derived_datatype_are_those_of_mpi(
    comm: Any, name: str, form: str, numbers: str, in_place: bool
) -> None:
    """What lies between them stays; datatypes are freed, and others get their handles."""
    places = _places(comm, form)
    for turn in range(4):
        kinds = _datatypes(comm, form, turn)
        arguments = (name, kinds, NUMBERS[numbers], places, in_place)
        expected = _vector_call(MPI.COMM_WORLD, *arguments)
        for _ in range(2):
            np.testing.assert_array_equal(_vector_call(comm, *arguments), expected)
        for kind in kinds:
            kind.Free()


@pytest.mark.parametrize("form", ["pair", "gaps", "swapped", "overlapping"])
@pytest.mark.parametrize("name", VECTORS)
def test_a_channel_reads_blocks_of_a_new_datatype_itself(
    served_at_once: None, name: str, form: str
) -> None:
    comm = Comm(MPI.COMM_WORLD.Dup())
    comm.Barrier()
    kinds = _datatypes(comm, form, 2)
    call = partial(_vector_call, comm, name, kinds, list, _places(comm, form), in_place=False)
    assert {*_python_of_ours(call)} <= {"_learn_layout", "_digits_of_places", "_key", "<lambda>"}
    assert _python_of_ours(call) == []
    for kind in kinds:
        kind.Free()
    comm.Free()


@pytest.mark.parametrize("form", ["pair", "gaps", "swapped"])
def test_blocks_that_are_sent_may_overlap(comm: Any, form: str) -> None:
    kinds, places = _datatypes(comm, form, 2), [1] * comm.size
    for name in ("Alltoallv", "Scatterv"):
        x, out = np.arange(ROOM) + 10.0 * comm.rank, np.zeros(4 * ROOM)
        if name == "Alltoallv":
            target = [out, [1] * comm.size, [4 * rank for rank in range(comm.size)], kinds[1]]
        else:
            target = [out, 1, kinds[1]]
        results = []
        for caller in (MPI.COMM_WORLD, comm):
            out[:] = 0
            getattr(caller, name)([x, [1] * comm.size, places, kinds[0]], target)
            results.append(out.copy())
        np.testing.assert_array_equal(*results)
    for kind in kinds:
        kind.Free()

"""Objects as messages: what is read is what pickle restores, or nothing is written."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from mpicoll.engine import _compiled

HEAD = 32


class Serializer:
    """Refers to its functions as mpi4py's serializer does: garbage collection visits slots."""

    __slots__ = ("dumps", "loads")

    def __init__(self) -> None:
        self.dumps: Any = pickle.dumps
        self.loads: Any = pickle.loads


SERIALIZER = Serializer()
STOCK = SERIALIZER, pickle.dumps, pickle.loads
ROOM = 1 << 12
CODES = "?bBhHiIlLqQefdgFDG"
_compiled.know_arrays(
    np.zeros((2, 3)), np.empty,
    tuple((dtype, np.dtype(dtype.str)) for dtype in map(np.dtype, CODES)),
)  # fmt: skip


def written(*items: Any, room: int = ROOM, stock: Any = STOCK) -> tuple[bytearray, int]:
    """Return a room with the messages of some items, and the bytes of the longest."""
    memory = bytearray(room * len(items))
    return memory, _compiled.write_objects(memory, room, items, stock, [])


def is_pickled(item: Any, stock: Any = STOCK) -> bool:
    """Whether the message of an object is a pickle."""
    memory, size = written(item, room=1 << 20, stock=stock)
    return size > 0 and memory[0] == 2


def read(memory: bytearray, count: int = 1, least: int = 0, wanted: int = 9) -> Any:
    """Return the objects of the first messages."""
    return _compiled.read_objects(memory, len(memory) // count, count, least, wanted, STOCK)


LEAVES = (
    st.none() | st.booleans() | st.integers(-(1 << 64), 1 << 64) | st.floats()
    | st.complex_numbers() | st.binary(max_size=20)
    | st.text(st.characters(exclude_categories=()), max_size=20)
)  # fmt: skip
KEYS = st.none() | st.integers(-9, 9) | st.text(max_size=5) | st.tuples(st.integers(), st.text())
TREES = st.recursive(
    LEAVES,
    lambda each: (
        st.lists(each, max_size=4) | st.lists(each, max_size=4).map(tuple)
        | st.dictionaries(KEYS, each, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip


@given(TREES)
def test_what_is_written_is_restored_as_by_pickle(item: Any) -> None:
    memory, size = written(item)
    if size:
        expected = repr(pickle.loads(pickle.dumps(item)))
        assert repr(read(memory)) == f"[{expected}]"
        if not is_pickled(item):  # hypothesis may give one list twice
            assert repr(_compiled.read_object(memory[HEAD:size], b"")) == expected


@pytest.mark.parametrize(
    "item",
    [0, -128, 1 << 40, "", "a", "é", "€", "𝄞", "\udc80", b"", (), [], {}, [[1], (2, [3])], {1: [2]},
     float("nan"), -0.0, (1j,), {"a": 1, "b": [2]}, [(1, 2), (1, 3)], [True, False, None]],
    ids=repr,
)  # fmt: skip
def test_plain_objects_are_written(item: Any) -> None:
    memory, size = written(item)
    assert size > HEAD
    assert not is_pickled(item)
    assert repr(read(memory)) == repr([item])


def restored(item: Any) -> Any:
    """Return an object that has travelled, the data of its long arrays by themselves."""
    left: list[Any] = []
    memory = bytearray(1 << 20)
    size = _compiled.write_objects(memory, 1 << 20, (item,), STOCK, left)
    parts = [np.ascontiguousarray(each).reshape(-1).view("u1") for each in left]
    assert memory[0] == 0
    return _compiled.read_object(memory[HEAD:size], np.concatenate(parts) if parts else b"")


def layout(array: Any) -> Any:
    """Return all that is to be seen of an array or scalar but where it lies."""
    steps = [
        step
        for step, length in zip(array.strides, array.shape, strict=True)
        if length > 1 and array.size
    ]
    flags = array.flags.writeable, array.flags.aligned
    return type(array), array.dtype, array.shape, steps, flags, array.tobytes()


@st.composite
def numpy_arrays(draw: st.DrawFn) -> Any:
    """Draw an array of any dtype of numbers, its axes in any order, with gaps or without."""
    shape = draw(of_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    count = int(np.prod(shape)) * 32
    data = draw(st.binary(min_size=count, max_size=count))
    dtype = np.dtype(draw(st.sampled_from(CODES)))
    array = np.frombuffer(data, "u1", dtype.itemsize * int(np.prod(shape))).view(dtype)
    array = array.reshape(shape).transpose(draw(st.permutations(range(len(shape)))))
    if draw(st.booleans()):
        array = array.copy("K")
    if draw(st.booleans()) and array.ndim:
        array = array[:: draw(st.sampled_from((2, -1)))]
    return array


@given(numpy_arrays())
def test_an_array_is_restored_as_by_pickle(array: Any) -> None:
    assert layout(restored(array)) == layout(pickle.loads(pickle.dumps(array, 5)))
    scalar = array.flat[0] if array.size else array.dtype.type(1)
    assert layout(restored(scalar)) == layout(pickle.loads(pickle.dumps(scalar)))


@given(st.lists(numpy_arrays(), max_size=3))
def test_arrays_in_other_objects_are_restored(arrays: Any) -> None:
    for item in (tuple(arrays), list(map(np.copy, arrays)), {1: (2, *arrays)}):
        found, expected = restored(item), pickle.loads(pickle.dumps(item, 5))
        assert type(found) is type(expected)
        if isinstance(item, dict):
            found, expected = found[1][1:], expected[1][1:]
        assert list(map(layout, found)) == list(map(layout, expected))


LONG = np.arange(3000.0)


@pytest.mark.parametrize(
    "array",
    [LONG, LONG.reshape(10, 300), LONG.reshape(10, 10, 30).transpose(1, 0, 2),
     LONG.reshape(30, -1).T, LONG[::2], LONG[::-1], np.broadcast_to(LONG, (2, 3000)),
     np.frombuffer(LONG.tobytes(), "c16")],
    ids=lambda array: str((array.shape, array.strides)),
)  # fmt: skip
def test_a_long_array_travels_by_itself(array: Any) -> None:
    left: list[Any] = []
    memory = bytearray(256)
    size = _compiled.write_objects(memory, 256, (array,), STOCK, left)
    assert 0 < size <= 256
    assert len(left) == 1
    assert layout(restored(array)) == layout(pickle.loads(pickle.dumps(array, 5)))
    both = 1, LONG.copy(), "a", np.ones(4, "i1"), [array]
    found = restored(both)
    assert [layout(each) for each in (found[1], found[3], *found[4])] == [
        layout(pickle.loads(pickle.dumps(each, 5))) for each in (LONG, both[3], array)
    ]


def test_what_an_interrupted_call_has_left_is_not_sent() -> None:
    left: list[Any] = [LONG]
    assert _compiled.write_objects(bytearray(ROOM), ROOM, (1,), STOCK, left) > 0
    assert left == []
    assert _compiled.write_objects(bytearray(ROOM), ROOM, ((LONG, {1}),), STOCK, left) == 0
    assert [type(each) for each in left] == [bytes]  # the pickle of all


def test_an_array_that_is_all_that_travels_keeps_its_memory() -> None:
    left: list[Any] = []
    memory = bytearray(ROOM)
    size = _compiled.write_objects(memory, ROOM, (LONG,), STOCK, left)
    assert left[0] is LONG
    payload = LONG.copy().view("u1")
    found = _compiled.read_object(memory[HEAD:size], payload)
    assert np.shares_memory(found, payload)
    apart = np.empty(LONG.nbytes + 1, "u1")[1:]
    apart[:] = payload
    found = _compiled.read_object(memory[HEAD:size], apart)
    assert found.flags.aligned
    assert (found == LONG).all()
    with pytest.raises(ValueError, match="cut short"):
        _compiled.read_object(memory[HEAD:size], payload[1:])


@contextmanager
def at_next_collection(react: Callable[[], object]) -> Iterator[None]:
    """Call a function in the next collection of garbage, which comes as soon as possible."""

    def callback(_phase: str, _info: dict[str, int]) -> None:
        gc.callbacks.remove(callback)
        react()

    thresholds = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if callback in gc.callbacks:
            gc.callbacks.remove(callback)


TURNED = LONG.reshape(30, -1).T


@pytest.mark.parametrize(
    ("container", "change"),
    [
        ([TURNED, *range(2000)], list.clear),
        ([TURNED], lambda items: items.append(0)),
        ({0: TURNED} | dict.fromkeys(range(1, 2000)), dict.clear),
        ({0: TURNED}, lambda items: items.update({1: 0})),
    ],
    ids=["list-shrinks", "list-grows", "dict-shrinks", "dict-grows"],
)
def test_a_container_that_changes_while_it_is_written_is_pickled(
    container: Any, change: Callable[[Any], object]
) -> None:
    # Python 3.11 collects garbage inside C code, here where an array is transposed.
    left: list[Any] = []
    memory = bytearray(1 << 20)
    with at_next_collection(lambda: change(container)):
        size = _compiled.write_objects(memory, 1 << 20, (container,), STOCK, left)
    found = read(memory)[0] if memory[0] == 2 else restored(container)
    assert size
    assert len(found) == len(container)


def _of_metadata() -> Any:
    return np.ones(2, np.dtype("f8", metadata={"unit": "m"}))


ONCE = np.ones(2)


@pytest.mark.parametrize(
    "item",
    [np.zeros(2, ">f8"), np.zeros(2, "i4,f8"), np.array(["2026-01-01"], "M8[D]"), np.array([None]),
     np.array(["text"]), np.ma.array([1.0]), np.ones(1).view(np.recarray), np.datetime64(1, "s"),
     _of_metadata(), (ONCE, ONCE), {"a": ONCE, "b": [ONCE]}],
    ids=lambda item: repr(item)[:30],
)  # fmt: skip
def test_other_arrays_are_pickled(item: Any) -> None:
    assert is_pickled(item)
    memory, _ = written(item)
    assert repr(read(memory)) == repr([pickle.loads(pickle.dumps(item))])
    assert not is_pickled(ONCE)


def test_an_array_whose_dtype_pickle_has_restored_is_one_like_others() -> None:
    array = pickle.loads(pickle.dumps(np.ones(3)))
    assert array.dtype is not ONCE.dtype
    assert not is_pickled(array)
    assert restored(array).dtype is ONCE.dtype


def _cycle() -> list[Any]:
    own: list[Any] = []
    own.append(own)
    return own


SHARED = [1]
DEEP: list[Any] = []
for _ in range(50):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "item",
    [1 << 63, {1, 2}, bytearray(1), int, Fraction(1, 3), [SHARED, SHARED], (SHARED, 1),
     [({"a": SHARED},)], _cycle(), DEEP],
    ids=lambda item: repr(item)[:20],
)  # fmt: skip
def test_other_objects_are_pickled(item: Any) -> None:
    assert is_pickled(item)
    memory, _ = written(0, item)
    assert repr(read(memory, 2)) == repr([0, item])


@pytest.mark.parametrize("item", ["a" * ROOM, [0] * ROOM, ["a" * 50] * 100, set(range(ROOM))],
                         ids=lambda item: repr(item)[:20])  # fmt: skip
def test_a_pickle_that_does_not_fit_is_left(item: Any) -> None:
    left: list[bytes] = []
    assert _compiled.write_objects(bytearray(256), 256, (item,), STOCK, left) == 0
    assert [pickle.loads(each) for each in left] == [item]


def test_an_error_of_pickle_is_raised() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        written(1, lambda: 1)


def test_nothing_is_pickled_where_nothing_may_be_left() -> None:
    memory = bytearray(ROOM)
    for item in ({1}, [Fraction(1)], "a" * ROOM, np.ones(ROOM)):
        assert _compiled.write_objects(memory, ROOM, (item,), STOCK, None) == 0
    assert _compiled.write_objects(memory, ROOM, ([1, np.ones(3)],), STOCK, None) > 0


def test_a_list_in_a_tuple_that_others_have_is_pickled() -> None:
    shared = ([1],)
    assert is_pickled([shared, shared])
    assert is_pickled([shared[0]]) is True
    assert not is_pickled([([1],)])


PAIR = (1, 2)


@pytest.mark.parametrize(
    "item",
    [(PAIR, PAIR), [PAIR, 3, PAIR], {"a": PAIR, "b": [PAIR]}, {PAIR: PAIR}, ((PAIR,), (PAIR,))],
    ids=repr,
)
def test_a_tuple_that_stands_twice_is_restored_once(item: Any) -> None:
    assert is_pickled(item)
    memory, _ = written(item)
    (copy,) = read(memory)
    assert copy == item
    assert len({id(part) for part in _parts(copy) if part == PAIR}) == 1


def _parts(item: Any) -> Iterator[Any]:
    """Yield an object and all that it holds."""
    yield item
    if isinstance(item, dict):
        for part in item.items():
            yield from chain(_parts(part[0]), _parts(part[1]))
    elif isinstance(item, (tuple, list)):
        for part in item:
            yield from _parts(part)


@pytest.mark.parametrize("item", [[PAIR, (1, 3)], {PAIR: [()], "b": ()}, (PAIR, [PAIR[:1]])])
def test_a_tuple_that_stands_once_is_written(item: Any) -> None:
    assert not is_pickled(item)
    memory, _ = written(item)
    assert read(memory) == [item]


def test_a_serializer_of_a_program_gets_all_objects() -> None:
    mine = Serializer()
    stock = mine, pickle.dumps, pickle.loads
    assert not is_pickled(1, stock)
    assert not is_pickled(np.ones(2), stock)
    mine.dumps = lambda item: pickle.dumps(item, 0)
    assert is_pickled(1, stock)
    assert is_pickled(np.ones(2), stock)


def test_every_message_says_what_the_longest_needs() -> None:
    memory, size = written(1, "a" * 300, None)
    assert size > 300
    for each in range(3):
        message = memory[each * ROOM : (each + 1) * ROOM]
        assert read(message, least=size - 1) == [[1, "a" * 300, None][each]]
        assert read(message, least=size) is None
    assert read(memory, 3) == [1, "a" * 300, None]
    assert read(memory, 3, wanted=2) == [1, "a" * 300]
    assert read(memory, 3, wanted=0) == []


@pytest.mark.parametrize("place", [0, 16], ids=["kind", "payload"])
def test_messages_of_other_kinds_are_left_to_python(place: int) -> None:
    memory, _ = written(1, 2)
    memory[ROOM + place] = 1
    assert read(memory, 2) is None


@given(st.binary(max_size=60))
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    with suppress(ValueError, TypeError):  # of texts that are none, and keys that have no hash
        _compiled.read_object(data, b"")


@pytest.mark.parametrize(
    "item",
    [12, "text", b"bytes", [1, 2.5], {"a": (1, None)}, 1j, np.ones((2, 3)).T, np.int8(1)],
    ids=repr,
)
def test_a_message_that_is_cut_is_an_error(item: Any) -> None:
    memory, size = written(item)
    for end in range(HEAD, size):
        with pytest.raises(ValueError, match=r"cut short|no message"):
            _compiled.read_object(memory[HEAD:end], b"")


def test_what_does_not_fit_leaves_its_neighbours() -> None:
    memory = bytearray(b"\xff" * 3 * 256)
    assert _compiled.write_objects(memory, 256, ("a" * 300,), STOCK, []) == 0
    assert memory[256:] == b"\xff" * 512
    with pytest.raises(ValueError, match="longer than the room"):
        _compiled.write_objects(memory, 256, (1, 2, 3, 4), STOCK, [])
    with pytest.raises(TypeError, match="a room is a bytearray"):
        _compiled.write_objects(b" " * 256, 256, (1,), STOCK, [])

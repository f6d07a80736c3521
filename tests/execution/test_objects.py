"""Objects as messages: what is read is what pickle restores, or nothing is written."""

from __future__ import annotations

import pickle
from contextlib import suppress
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicoll.execution import extension
from mpicoll.execution.extension import OBJECTS

pytestmark = pytest.mark.skipif(bool(extension.MISSING), reason="the extension was not built")
HEAD = 32


class Serializer:
    """Refers to its functions as mpi4py's serializer does: garbage collection visits slots."""

    __slots__ = ("dumps", "loads")

    def __init__(self) -> None:
        self.dumps: Any = pickle.dumps
        self.loads: Any = pickle.loads


SERIALIZER = Serializer()
STOCK = SERIALIZER, pickle.dumps, pickle.loads, frozenset((complex,))
ROOM = 1 << 12


def written(*items: Any, room: int = ROOM, stock: Any = STOCK) -> tuple[bytearray, int]:
    """Return a room with the messages of some items, and the bytes of the longest."""
    memory = bytearray(room * len(items))
    return memory, OBJECTS.write_objects(memory, room, items, stock, [])


def is_pickled(item: Any, stock: Any = STOCK) -> bool:
    """Whether the message of an object is a pickle."""
    memory, size = written(item, room=1 << 20, stock=stock)
    return size > 0 and memory[0] == 2


def read(memory: bytearray, count: int = 1, least: int = 0, *, wanted: bool = True) -> Any:
    """Return the objects of messages."""
    return OBJECTS.read_objects(memory, len(memory) // count, count, least, wanted, STOCK)


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
            assert repr(OBJECTS.read_object(memory[HEAD:size])) == expected


@pytest.mark.parametrize(
    "item",
    [0, -128, 1 << 40, "", "a", "é", "€", "𝄞", "\udc80", b"", (), [], {}, [[1], (2, [3])], {1: [2]},
     float("nan"), -0.0, (1j,), {"a": 1, "b": [2]}, [(1, 2)] * 3, [True, False, None]],
    ids=repr,
)  # fmt: skip
def test_plain_objects_are_written(item: Any) -> None:
    memory, size = written(item)
    assert size > HEAD
    assert not is_pickled(item)
    assert repr(read(memory)) == repr([item])


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
    assert OBJECTS.write_objects(bytearray(256), 256, (item,), STOCK, left) == 0
    assert [pickle.loads(each) for each in left] == [item]


def test_an_error_of_pickle_is_raised() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        written(1, lambda: 1)


def test_types_that_python_describes_are_left_to_it() -> None:
    assert written(1j)[1] > 0  # plain nevertheless
    stock = *STOCK[:3], frozenset((set,))
    assert written({1}, stock=stock)[1] == 0


def test_a_list_in_a_tuple_that_others_have_is_pickled() -> None:
    shared = ([1],)
    assert is_pickled([shared, shared])
    assert is_pickled([shared[0]]) is True
    assert not is_pickled([([1],)])


def test_a_serializer_of_a_program_gets_all_objects() -> None:
    mine = Serializer()
    stock = mine, pickle.dumps, pickle.loads, frozenset((set,))
    assert not is_pickled(1, stock)
    mine.dumps = lambda item: pickle.dumps(item, 0)
    assert not OBJECTS.is_stock(stock)
    assert is_pickled(1, stock)
    assert is_pickled({1}, stock)


def test_every_message_says_what_the_longest_needs() -> None:
    memory, size = written(1, "a" * 300, None)
    assert size > 300
    for each in range(3):
        message = memory[each * ROOM : (each + 1) * ROOM]
        assert read(message, least=size - 1) == [[1, "a" * 300, None][each]]
        assert read(message, least=size) is None
    assert read(memory, 3) == [1, "a" * 300, None]
    assert read(memory, 3, wanted=False) == []


@pytest.mark.parametrize("place", [0, 16], ids=["kind", "payload"])
def test_messages_of_other_kinds_are_left_to_python(place: int) -> None:
    memory, _ = written(1, 2)
    memory[ROOM + place] = 1
    assert read(memory, 2) is None


@given(st.binary(max_size=60))
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    with suppress(ValueError, TypeError):  # of texts that are none, and keys that have no hash
        OBJECTS.read_object(data)


@pytest.mark.parametrize("item", [12, "text", b"bytes", [1, 2.5], {"a": (1, None)}, 1j], ids=repr)
def test_a_message_that_is_cut_is_an_error(item: Any) -> None:
    memory, size = written(item)
    for end in range(HEAD, size):
        with pytest.raises(ValueError, match=r"cut short|no message"):
            OBJECTS.read_object(memory[HEAD:end])


def test_what_does_not_fit_leaves_its_neighbours() -> None:
    memory = bytearray(b"\xff" * 3 * 256)
    assert OBJECTS.write_objects(memory, 256, ("a" * 300,), STOCK, []) == 0
    assert memory[256:] == b"\xff" * 512
    with pytest.raises(ValueError, match="longer than the room"):
        OBJECTS.write_objects(memory, 256, (1, 2, 3, 4), STOCK, [])
    with pytest.raises(TypeError, match="a room is a bytearray"):
        OBJECTS.write_objects(b" " * 256, 256, (1,), STOCK, [])

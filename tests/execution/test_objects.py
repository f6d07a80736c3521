"""Objects as messages: what is read is what pickle restores, or nothing is written."""

from __future__ import annotations

import pickle
from contextlib import suppress
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
STOCK = SERIALIZER, pickle.dumps, pickle.loads
ROOM = 1 << 12


def written(*items: Any, room: int = ROOM, stock: Any = STOCK) -> tuple[bytearray, int]:
    """Return a room with the messages of some items, and the bytes of the longest."""
    memory = bytearray(room * len(items))
    return memory, OBJECTS.write_objects(memory, room, items, stock)


def read(memory: bytearray, count: int = 1, least: int = 0, *, wanted: bool = True) -> Any:
    """Return the objects of messages."""
    return OBJECTS.read_objects(memory, len(memory) // count, count, least, wanted)


LEAVES = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats()
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
    if size:  # hypothesis may give one list twice
        (found,) = read(memory)
        expected = pickle.loads(pickle.dumps(item))
        assert repr(found) == repr(expected)
        assert repr(OBJECTS.read_object(memory[HEAD:size])) == repr(expected)


@pytest.mark.parametrize(
    "item",
    [0, -128, 1 << 40, "", "a", "é", "€", "𝄞", "\udc80", b"", (), [], {}, [[1], (2, [3])], {1: [2]},
     float("nan"), -0.0, 1j, {"a": 1, "b": [2]}, [(1, 2)] * 3, [True, False, None]],
    ids=repr,
)  # fmt: skip
def test_plain_objects_are_written(item: Any) -> None:
    memory, size = written(item)
    assert size > HEAD
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
    [1 << 63, {1, 2}, bytearray(1), object(), int, type("Kind", (int,), {})(1), [SHARED, SHARED],
     (SHARED, 1), [({"a": SHARED},)], _cycle(), DEEP, "a" * ROOM, [0] * ROOM, ["a" * 50] * 100],
    ids=lambda item: repr(item)[:20],
)  # fmt: skip
def test_other_objects_are_not_written(item: Any) -> None:
    assert written(item)[1] == 0
    assert written(0, item)[1] == 0


def test_a_list_in_a_tuple_that_others_have_is_not_written() -> None:
    shared = ([1],)
    assert written([shared, shared])[1] == 0
    assert written([shared[0]])[1] == 0
    assert written([([1],)])[1] > 0


def test_nothing_is_written_for_a_serializer_of_a_program() -> None:
    mine = Serializer()
    stock = mine, pickle.dumps, pickle.loads
    assert written(1, stock=stock)[1] > 0
    mine.loads = pickle.load
    assert written(1, stock=stock)[1] == 0
    assert not OBJECTS.is_stock(stock)


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
    assert OBJECTS.write_objects(memory, 256, ("a" * 300,), STOCK) == 0
    assert memory[256:] == b"\xff" * 512
    with pytest.raises(ValueError, match="longer than the room"):
        OBJECTS.write_objects(memory, 256, (1, 2, 3, 4), STOCK)
    with pytest.raises(TypeError, match="a room is a bytearray"):
        OBJECTS.write_objects(b" " * 256, 256, (1,), STOCK)

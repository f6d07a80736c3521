"""Methods that stand before others of their object."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from mpicoll.execution import _compiled


class Op:
    """An operator, of which 1 and 2 are predefined."""

    def __init__(self, handle: int) -> None:
        self.handle = handle


class Broken(Op):
    @property
    def handle(self) -> int:
        raise ValueError("freed")

    @handle.setter
    def handle(self, value: int) -> None:
        pass


SUM = Op(1)


def _make(own: Any) -> Any:
    own.made += 1
    own.__dict__["kept"] = _kept
    return _kept


def _kept(own: Any, *given: Any, **named: Any) -> Any:
    return "kept", own, given, named


def _reduce(own: Any, item: Any, op: Any = SUM, root: int = 0) -> Any:
    """Reduce."""
    return "method", own, (item, op, root), {}


def _settled(*alone: Any) -> None:
    TOLD.append(alone)


def _raise(*alone: Any) -> None:
    raise ValueError("gone")


TOLD: list[Any] = []
TYPES = frozenset((int, str, bytes, list, tuple))


def _kind() -> Any:
    chosen = _compiled.by_operator(
        "settled", Op, frozenset((1, 2)), TYPES, 3, ("left", 1), _kept, _reduce
    )
    return type("Kind", (), {
        "made": 0, "reduce": chosen, "left": _compiled.kept("kept", _make, _reduce),
    })  # fmt: skip


def test_an_object_keeps_the_function_that_is_made_for_its_first_call() -> None:
    own, other = _kind()(), _kind()()
    assert own.left(1, op=2) == ("kept", own, (1,), {"op": 2})
    assert own.left() == ("kept", own, (), {})
    assert type(own).left(own, 3) == ("kept", own, (3,), {})
    assert (own.made, other.made) == (1, 0)
    with pytest.raises(TypeError, match="argument"):
        type(own).left()


def test_what_cannot_be_made_is_tried_again() -> None:
    def make(own: Any) -> Any:
        raise ValueError("not yet")

    own = type("Kind", (), {"left": _compiled.kept("kept", make, _reduce)})()
    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            own.left(1)


@pytest.mark.parametrize(
    ("op", "which"),
    [
        (SUM, "method"), (Op(2), "method"), (Op(3), "kept"), (max, "kept"),
        (lambda a, b: a, "kept"),
    ],
    ids=["predefined", "another of its handle", "of a user", "builtin", "function"],
)  # fmt: skip
def test_users_operators_are_left_to_another_method(op: Any, which: str) -> None:
    own = _kind()()
    assert own.reduce(5, op)[0] == own.reduce(5, op=op)[0] == "method", "until it is settled"
    own.settled = _settled
    assert own.reduce(5, op)[0] == own.reduce(5, op, 1)[0] == which
    assert own.reduce(5, root=1, op=op)[0] == own.reduce(op=op, item=5)[0] == which
    assert type(own).reduce(own, 5, op)[0] == which
    assert own.reduce(5) == ("method", own, (5, SUM, 0), {})


@pytest.mark.parametrize(
    ("item", "which"),
    [
        (1 << 99, "method"), ("\u00e9" * 2, "method"), ([1, 2], "method"), ((), "method"),
        ("abc", "kept"), (b"abc", "kept"), ([1, 2, 3], "kept"), ((1, 2, 3), "kept"),
        ({}, "kept"), (1.5, "kept"), (True, "kept"),
    ],
    ids=repr,
)  # fmt: skip
def test_long_objects_are_left_once_the_others_know(item: Any, which: str) -> None:
    own = _kind()()
    TOLD.clear()
    assert own.reduce(item)[0] == "method" and not TOLD, "until it is settled"
    own.settled = _settled
    assert own.reduce(item)[0] == own.reduce(item, SUM, root=1)[0] == which
    told = [("left", 1)] * (2 if which == "kept" else 0)
    assert told == TOLD
    own.reduce(item, max)
    assert told == TOLD, "a user's operator"
    own.settled = _raise
    if which == "kept":
        with pytest.raises(ValueError, match="gone"):
            own.reduce(item)


def test_wrong_arguments_are_the_methods_to_refuse() -> None:
    own = _kind()()
    own.settled = _settled
    with pytest.raises(TypeError, match="_reduce"):
        own.reduce()
    with pytest.raises(TypeError):
        type(own).reduce()
    with pytest.raises(ValueError, match="freed"):
        own.reduce(1, Broken(1))


def test_they_are_named_as_the_method() -> None:
    kind = _kind()
    for each in (kind.reduce, kind().reduce, kind.left):
        assert (each.__name__, each.__doc__) == ("_reduce", "Reduce.")


def test_they_go_with_their_class() -> None:
    kind = _kind()
    kind.back = kind.reduce  # a circle
    gone = weakref.ref(kind)
    del kind
    gc.collect()
    assert gone() is None

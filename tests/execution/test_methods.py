"""Methods that stand before others of their object."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from mpicoll.execution import _compiled


def _make(own: Any) -> Any:
    own.made += 1
    own.__dict__["kept"] = _kept
    return _kept


def _kept(own: Any, *given: Any, **named: Any) -> Any:
    return "kept", own, given, named


def _reduce(own: Any, item: Any, op: Any = None, root: int = 0) -> Any:
    """Reduce."""
    return "method", own, (item, op, root), {}


def _kind() -> Any:
    return type("Kind", (), {"made": 0, "left": _compiled.kept("kept", _make, _reduce)})


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


def test_they_are_named_as_the_method() -> None:
    kind = _kind()
    for each in (kind.left, kind().left):
        assert (each.__name__, each.__doc__) == ("_reduce", "Reduce.")


def test_they_go_with_their_class() -> None:
    kind = _kind()
    kind.back = kind.left  # a circle
    gone = weakref.ref(kind)
    del kind
    gc.collect()
    assert gone() is None

"""Methods that stand before others of their object, as ``methods.c`` has them, in Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Method = Callable[..., Any]


def kept(attribute: str, make: Callable[[Any], Method], method: Method) -> Any:
    """Return a method that calls the function which its object keeps.

    Args:
        attribute: of the object, where the function is.
        make: takes an object that keeps none yet, returns its function, and puts it there.
        method: whose name and text the result has.
    """

    @functools.wraps(method)
    def call(own: Any, *given: Any, **named: Any) -> Any:
        run = own.__dict__.get(attribute) or make(own)
        return run(own, *given, **named)

    return call


def by_operator(
    settled: str, kind: Any, predefined: frozenset[int], types: frozenset[type], most: int,
    alone: tuple[Any, ...], left: Method, method: Method,
) -> Any:  # fmt: skip
    """Return a method that leaves the operators of users and long objects to another one.

    Args:
        settled: an attribute: as long as the object has nothing there, the method is called.
        kind: the type of operators.
        predefined: the handles of those that are not users'.
        types: of objects that may be short.
        most: from so many elements an object of these is long.
        alone: what is in `settled` is called with these arguments before a long object is left.
        left: the method for users' operators and long objects.
    """

    @functools.wraps(method)
    def call(own: Any, *given: Any, **named: Any) -> Any:
        tell = own.__dict__.get(settled)
        if tell is None:
            return method(own, *given, **named)
        op = given[1] if len(given) > 1 else named.get("op")
        if op is not None and not (isinstance(op, kind) and op.handle in predefined):
            return left(own, *given, **named)
        if given and is_long(given[0]):
            tell(*alone)
            return left(own, *given, **named)
        return method(own, *given, **named)

    def is_long(item: Any) -> bool:
        exact = type(item)
        return exact not in types or (exact in _ROWS and len(item) >= most)

    return call


_ROWS = frozenset((str, bytes, list, tuple))


class PYTHON:
    """Such methods, as `mpicoll.execution._compiled` has others of these names."""

    kept = staticmethod(kept)
    by_operator = staticmethod(by_operator)

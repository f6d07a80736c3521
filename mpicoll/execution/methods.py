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
    settled: str, kind: Any, predefined: frozenset[int], left: Method, method: Method
) -> Any:
    """Return a method that leaves the operators of users to another one.

    Args:
        settled: an attribute: as long as the object has nothing there, the method is called.
        kind: the type of operators.
        predefined: the handles of those that are not users'.
        left: the method for users' operators.
    """

    @functools.wraps(method)
    def call(own: Any, *given: Any, **named: Any) -> Any:
        op = given[1] if len(given) > 1 else named.get("op")
        predefines = op is None or (isinstance(op, kind) and op.handle in predefined)
        chosen = method if predefines or settled not in own.__dict__ else left
        return chosen(own, *given, **named)

    return call


class PYTHON:
    """Such methods, as `mpicoll.execution._compiled` has others of these names."""

    kept = staticmethod(kept)
    by_operator = staticmethod(by_operator)

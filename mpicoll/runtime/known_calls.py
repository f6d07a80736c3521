"""Find what serves a call of a method by its arguments, where Python runs it.

`calls_type.c` does the same for compiled programs, and finds most of these calls, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from mpicoll.execution import compiled
from mpicoll.interfaces import Array, Arrays
from mpicoll.peers.calls import OtherCall

_MOST = 512
T = TypeVar("T")


class KnownCalls(Generic[T]):
    """The calls that were served before.

    Args:
        serve: serves a known call for these arrays; OtherCall where the ranks call different
            things.
        slow: serves any call; with True in the end where the ranks differ.

    Attributes:
        call: serves any call, and finds most of those that are known without Python.
    """

    def __init__(
        self, arrays: Arrays, serve: Callable[[T, Array | None, Array | None], Array | None],
        slow: Callable[..., Any],
    ) -> None:  # fmt: skip
        self.arrays, self.serve, self.slow = arrays, serve, slow
        self._found: dict[Hashable, T] = {}
        self._functions: list[tuple[T, Callable[..., Any]]] = []
        self.finder = compiled.functions(arrays.layout(), self)
        self.call: Callable[..., Any] = self if self.finder is None else self.finder

    def __call__(
        self, name: Any, x: Any, out: Any, op: Any, root: Any, counts: Any, algorithm: Any
    ) -> Any:
        try:
            found = self._found.get(self._key(name, x, out, op, root, counts, algorithm))
        except TypeError:  # something given has no hash
            found = None
        if found is None:
            return self.slow(name, x, out, op, root, counts, algorithm)
        return self._serve(found, (name,), (op, root, counts, algorithm), x, out)

    def _serve(
        self, found: T, before: tuple[Any, ...], after: tuple[Any, ...], x: Any, out: Any
    ) -> Any:
        try:
            return self.serve(found, x, out)
        except OtherCall:
            return self.slow(*before, x, out, *after, True)

    def _key(
        self, name: Any, x: Any, out: Any, op: Any, root: Any, counts: Any, algorithm: Any
    ) -> Hashable:
        """Return the same for calls that pass the same checks; None where that is not known."""
        form = self.arrays.form
        given, made = x is None or form(x), out is None or form(out)
        if given is None or made is None or counts is not None or type(root) is not int:
            return None
        if x is not None and out is not None and x is not out and self.arrays.overlap(x, out):
            return None
        return name, given, made, x is out, op, root, algorithm

    def add(self, given: tuple[Any, ...], served: T) -> None:
        """Serve such calls from now on."""
        try:
            key = self._key(*given)
            hash(key)
        except TypeError:
            return
        if key is not None:
            if len(self._found) >= _MOST:
                self.forget(lambda served: True)
            self._found[key] = served
            if self.finder is not None:
                function = partial(self._serve, served, given[:1], given[3:])
                if self.finder.serve(given, function):
                    self._functions.append((served, function))

    def forget(self, is_gone: Callable[[T], bool]) -> None:
        """Serve some calls no more."""
        self._found = {key: each for key, each in self._found.items() if not is_gone(each)}
        for served, function in self._functions:
            if is_gone(served):
                self.finder.forget(function)
        self._functions = [each for each in self._functions if not is_gone(each[0])]

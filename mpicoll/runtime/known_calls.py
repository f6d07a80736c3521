"""Find the plan of a method's call by its arguments, where Python runs it.

`calls_type.c` does the same for compiled programs, and finds most of these calls, too: those whose
arrays lie on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from mpicoll.backend import Array, Arrays

_MOST = 512
T = TypeVar("T")
Serve = Callable[[Array | None, Array | None], Array | None]
"""Serves a call of a method for its x and out."""


class KnownCalls(Generic[T]):
    """The calls that were served before.

    Args:
        bind: returns what serves calls like one that was served, for any x and out; it takes what
            served that one, and what serves such calls where the ranks call different things.
        slow: serves any call; with True in the end where the ranks differ.

    Attributes:
        finder: a table that finds such calls without Python, and leaves the others to this one;
            None where there is none.
    """

    finder: Any = None

    def __init__(
        self, arrays: Arrays, bind: Callable[[T, Serve], Serve], slow: Callable[..., Any]
    ) -> None:
        self.arrays, self.bind, self.slow = arrays, bind, slow
        self._found: dict[Hashable, tuple[T, Serve]] = {}

    def __call__(
        self, name: Any, x: Any, out: Any, op: Any, root: Any, counts: Any, algorithm: Any,
        differs: object = False,
    ) -> Any:  # fmt: skip
        found = None
        if not differs:
            with suppress(TypeError):  # something given has no hash
                found = self._found.get(self._key(name, x, out, op, root, counts, algorithm))
        if found is None:
            return self.slow(name, x, out, op, root, counts, algorithm, differs)
        return found[1](x, out)

    def _key(
        self, name: Any, x: Any, out: Any, op: Any, root: Any, counts: Any, algorithm: Any
    ) -> Hashable:
        """Return the same for calls that pass the same checks; None where that is not known."""
        form = self.arrays.form
        given, made = x is None or form(x), out is None or form(out)
        if given is None or made is None or type(root) is not int or not is_fixed(counts):
            return None
        return name, given, made, self._shift(x, out), op, root, counts, algorithm

    def _shift(self, x: Array | None, out: Array | None) -> int | None:
        """Return where `out` begins from the begin of `x`; None where they share no memory."""
        if x is None or out is None:
            return None
        (start, stop), (other, end) = self.arrays.span(x), self.arrays.span(out)
        return other - start if start < end and other < stop else None

    def add(self, given: tuple[Any, ...], served: T) -> None:
        """Serve such calls from now on."""
        try:
            key = self._key(*given)
            hash(key)
        except TypeError:
            return
        if key is None:
            return
        if len(self._found) >= _MOST:
            self.forget(lambda served: True)
        slow, (name, _, _, *after) = self.slow, given
        function = self.bind(served, lambda x, out: slow(name, x, out, *after, True))
        self._found[key] = served, function
        if self.finder is not None:
            self.finder.serve(given, function)

    def forget(self, is_gone: Callable[[T], bool]) -> None:
        """Serve some calls no more."""
        gone = [key for key, (served, _) in self._found.items() if is_gone(served)]
        for key in gone:
            _, function = self._found.pop(key)
            if self.finder is not None:
                self.finder.forget(function)


def is_fixed(counts: Any) -> bool:
    """Whether counts that are the same object are the same numbers."""
    if isinstance(counts, tuple):
        return all(map(is_fixed, counts))
    return counts is None or isinstance(counts, int)

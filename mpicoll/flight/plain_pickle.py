"""Read the plain data of a pickle without Python's unpickler.

A pickle is a program. Python's unpickler may run any code that it names. This reader knows only the
instructions that make numbers, texts, lists and dictionaries. It refuses all others.
"""

from __future__ import annotations

import pickletools
from typing import Any

_VALUES = {
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_CONTAINERS = {"EMPTY_LIST": list, "EMPTY_TUPLE": list, "EMPTY_DICT": dict}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = {"PROTO", "FRAME"}


def plain_value(data: bytes) -> Any:
    """Return the value of a pickle. Tuples become lists.

    Raises:
        ValueError: it is no pickle, it was cut, or it holds more than plain data.
    """
    reader = _Reader()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return reader.stack.pop()
            reader.run(opcode.name, argument)
    except (IndexError, KeyError, AttributeError, TypeError):
        raise ValueError("the pickle is damaged") from None
    raise ValueError("the pickle has no end")


class _Reader:
    """The state of the reader."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        """Run one instruction."""
        stack = self.stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _CONTAINERS:
            stack.append(_CONTAINERS[name]())
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(self._since_mark())
        elif name in _TUPLES:
            stack.append(self._last(_TUPLES[name]))
        elif name in ("APPEND", "APPENDS"):
            items = self._last(1) if name == "APPEND" else self._since_mark()
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._last(2) if name == "SETITEM" else self._since_mark()
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name not in _IGNORED:
            raise ValueError(f"the pickle holds more than plain data: {name}")

    def _since_mark(self) -> list[Any]:
        return self._last(len(self.stack) - self.marks.pop())

    def _last(self, count: int) -> list[Any]:
        first = len(self.stack) - count
        if count < 0 or first < 0:
            raise IndexError
        items = self.stack[first:]
        del self.stack[first:]
        return items

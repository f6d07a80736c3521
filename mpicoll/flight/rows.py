"""Write rows of the flight recorder from Python, as ``execution/flight.c`` does where it is."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from time import monotonic_ns
from types import CodeType
from typing import Any, Protocol, TypeVar

from mpicoll.flight.layout import CLOCK, ROW, Outcome, Row, packed

F = TypeVar("F", bound=Callable[..., Any])
Locate = Callable[[CodeType, int], int]
Describe = Callable[[BaseException], int]
_DEPTH = 40
_MOST_SITES = 1024
_OUTCOME_AT, _END_AT = 48, 24


class Log(Protocol):
    """One group's calls, in the file of one rank.

    Attributes:
        sequence: the number of the last call.
    """

    @property
    def sequence(self) -> int: ...

    def begin(self, call: int, /) -> int:
        """Begin the row of a call, and return its number; 0 within another call on this group."""

    def start(self, call: int, /) -> int:
        """The same of a call that goes on while its thread makes others."""

    def end(self, number: int, error: BaseException | None = None, /) -> None:
        """End a row."""

    def recorded(self, call: int, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Return a function whose calls are recorded."""


class PythonRing:
    """The rows of one rank, written from Python."""

    def __init__(
        self, memory: memoryview, clock: memoryview, locate: Locate, describe: Describe,
        by_processor: bool = False,
    ) -> None:  # fmt: skip
        self.memory: memoryview | None = memory
        CLOCK.pack_into(clock, 0, 0, 0, 1, 1)
        self.locate, self.describe = locate, describe
        self.many, self.written = len(memory) // ROW.size, 0
        self.known: dict[tuple[CodeType, int], int] = {}
        self.lock = threading.RLock()  # a handler of a signal may make a call

    def close(self) -> None:
        self.memory = None

    def where(self) -> int:
        """Return the place of the innermost line that is no library's, 0 where there is none."""
        frame, depth = sys._getframe(1), 0
        while frame is not None and depth < _DEPTH:
            key = frame.f_code, frame.f_lasti
            found = self.known.get(key)
            if found is None:
                if len(self.known) >= _MOST_SITES:
                    self.known.clear()
                found = self.known[key] = self.locate(*key)
            if found:
                return found
            frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
        return 0


class PythonLog:
    """One group's calls, written from Python."""

    def __init__(self, ring: PythonRing, group: int) -> None:
        self.ring, self.group, self.sequence, self.inside = ring, group, 0, 0

    def begin(self, call: int) -> int:
        thread = threading.get_native_id()
        if self.inside == thread:
            return 0
        if number := self.start(call):
            self.inside = thread
        return number

    def start(self, call: int, outcome: Outcome = Outcome.UNDER_WAY) -> int:
        ring = self.ring
        where, thread = ring.where(), threading.get_native_id()
        with ring.lock:
            if ring.memory is None:
                return 0
            ring.written += 1
            self.sequence += 1
            row = Row(ring.written, self.sequence, monotonic_ns(), 0, self.group, call, where,
                      thread, outcome, 0)  # fmt: skip
            start = (row.number - 1) % ring.many * ROW.size
            ring.memory[start : start + ROW.size] = packed(row)
        return row.number

    def end(self, number: int, error: BaseException | None = None) -> None:
        if not number:
            return
        if self.inside == threading.get_native_id():
            self.inside = 0
        ring = self.ring
        text = 0 if error is None else ring.describe(error)
        outcome = Outcome.DONE if error is None else Outcome.RAISED
        with ring.lock:
            start = (number - 1) % ring.many * ROW.size
            memory = ring.memory
            if memory is None or memory[start : start + 8] != number.to_bytes(8, "little"):
                return
            memory[start + _END_AT : start + _END_AT + 8] = monotonic_ns().to_bytes(8, "little")
            tail = outcome.to_bytes(4, "little") + text.to_bytes(4, "little")
            memory[start + _OUTCOME_AT : start + _OUTCOME_AT + 8] = tail

    def recorded(self, call: int, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            number = self.begin(call)
            try:
                result = function(*given, **named)
            except BaseException as error:
                self.end(number, error)
                raise
            self.end(number)
            return result

        return run

    def withdraw(self, number: int) -> None:
        """Take back the last row."""
        ring = self.ring
        with ring.lock:
            if number and number == ring.written and ring.memory is not None:
                start = (number - 1) % ring.many * ROW.size
                ring.memory[start : start + ROW.size] = bytes(ROW.size)
                self.sequence -= 1


def issued(attribute: str, call: Callable[[], int], method: Callable[..., Any]) -> Any:
    """Return a method whose beginnings are recorded, where its object has a log.

    Args:
        attribute: of the object, with the log; None there where nothing is recorded.
        call: returns the place of such calls in the table.
    """

    @functools.wraps(method)
    def run(own: Any, *given: Any, **named: Any) -> Any:
        log: PythonLog | None = getattr(own, attribute)
        number = 0 if log is None else log.start(call(), Outcome.ISSUED)
        try:
            return method(own, *given, **named)
        except BaseException:
            if log is not None:
                log.withdraw(number)
            raise

    return run


class PYTHON:
    """The writers of rows in Python, under the names of those in `mpicoll.execution._compiled`."""

    Ring = PythonRing
    Log = PythonLog
    issued = staticmethod(issued)

"""What writes the rows of the flight recorder: ``flight/flight.c``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


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

    def recorded(
        self, call: int, function: Callable[..., Any], is_issued: bool = False,
        place: Callable[[int], int] | tuple[type, Callable[..., Any]] = ..., argument: int = 0, /,
    ) -> Callable[..., Any]:  # fmt: skip
        """Return a function whose calls are recorded; with `is_issued` their beginnings alone.

        Args:
            place: returns what stands for `call` where the array, or the first of a list, that is
                positional argument number `argument` has up to so many bytes, a power of two.
        """

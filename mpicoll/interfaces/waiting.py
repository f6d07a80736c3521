"""How ranks wait for each other, tell each other why they leave, and exchange small items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from mpicoll.errors import RankLost

Words = Any
"""A memoryview of 64-bit integers."""


class Stage(NamedTuple):
    """The round of an operation in which a rank waits for others.

    Attributes:
        rounds: 0 for an operation that has none.
        operation: the number by which all ranks know it; 0 where it has none.
    """

    what: str
    round: int = 0
    rounds: int = 0
    operation: int = 0

    def __str__(self) -> str:
        return f"{self.what}, round {self.round} of {self.rounds}" if self.rounds else self.what


class WaitContext(NamedTuple):
    """The operation during which a rank waits for `peer`.

    Attributes:
        left: returns why that rank has left the operation; empty where it has not.
        operation: the number by which all ranks know it; 0 where it has none.
    """

    what: str
    round: int
    rounds: int
    peer: int
    left: Callable[[], str] = lambda: ""
    operation: int = 0


class WaitPolicy(Protocol):
    """How the ranks of one group wait for each other: `mpicoll.memory.waiting`.

    Attributes:
        oversubscribed: whether these ranks outnumber the cores they may use.
        deadline: seconds after which a rank gives up.
        lost: returns the error of a wait, given what happened as the end of a sentence.
        tell: takes the rank that this one has waited for long, None once it no longer does.
        check: takes such ranks now and then, and raises where the wait is to end.
        defer: takes an error of other code in a wait; whether the wait goes on.
    """

    oversubscribed: bool
    deadline: float
    defer: Callable[[BaseException], bool]
    lost: Callable[[WaitContext, str], RankLost]
    tell: Callable[[int | None], None]
    check: Callable[[Sequence[int]], None]

    def wait(self, words: Words, index: int, least: int, context: WaitContext) -> None:
        """Return when ``words[index] >= least``.

        Raises:
            RankLost: the rank that should write it has ended or left the operation, or the
                deadline has passed.
        """

    def test(self, words: Words, index: int, least: int, context: WaitContext) -> bool:
        """Whether ``words[index] >= least``, without waiting.

        Raises:
            RankLost: the rank that should write it has ended or left the operation.
        """


class Notes(Protocol):
    """Why ranks have left an operation in its middle: `mpicoll.memory.notes`."""

    def leave(self, operation: int, error: BaseException) -> None:
        """Tell the other ranks that this one has left an operation, and why."""

    def read(self, rank: int, operation: int) -> str:
        """Return why a rank has left an operation; empty where it has not."""

    def why(self, rank: int, operation: int) -> str:
        """Return why a rank has left an operation; empty where it has not."""

    def wait_for(self, peer: int | None) -> None:
        """Tell the other ranks whom this one waits for."""


class Exchange(Protocol):
    """A small allgather between all ranks: `mpicoll.memory.mailbox`.

    Attributes:
        start: the offset of a rank's buffers in its first segment.
        number: of the last round, 1 once the group has ended, and the call that is under way: an
            array of three 64-bit integers.
        complete: completes the call that is under way, or raises RuntimeError.
    """

    start: int
    complete: Callable[[], object]

    @property
    def number(self) -> Any: ...

    def together(self) -> AbstractContextManager[None]:
        """Give the group up where this rank alone fails in steps that all ranks take here."""

    def wait(self, rank: int, number: int, name: str | None = None) -> None:
        """Return when a rank has begun a round, of the call of a name."""

    def missing(self) -> list[int]:
        """Return the ranks that have not begun the round that this rank has."""

    def exchange(self, item: Any, kind: Any = Any) -> list[Any]:
        """Return every rank's item of a type, in rank order."""

    def agree(
        self, digest: bytes, completed: Callable[[Callable[[], None]], object] | None = None
    ) -> bool:
        """Whether all ranks gave the same few bytes.

        Args:
            completed: makes each wait for a rank; by default the wait is just called.
        """

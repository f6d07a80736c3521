"""Every error this project raises on purpose.

::

    CollectiveError
    ├── ArgumentError (ValueError)      what the caller gave cannot be meant
    │   ├── UnknownName                 no such collective, algorithm, op or dtype
    │   └── Disagreement                the ranks called with different arguments
    ├── Unavailable                     this backend or library has no such call
    ├── Unsupported                     the algorithm cannot serve this size, op or root
    ├── LaunchError (RuntimeError)      the processes do not form the group that was asked for
    ├── RankLost (TimeoutError)         a rank has ended or left a call, or did not come in time
    └── ScheduleError (RuntimeError)    a schedule is wrong
        ├── Deadlock                    ranks wait for each other, or for nobody
        └── WrongContents               a rank holds something else than the contract demands
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

FREED = "this group has been freed"
_LONG = 200
Result = TypeVar("Result")
_POST_MORTEM = "python -m mpicoll.postmortem"


class CollectiveError(Exception):
    """Any error raised on purpose by mpicoll or torchcoll.

    >>> import mpicoll
    >>> issubclass(mpicoll.RankLost, mpicoll.CollectiveError)
    True
    """


class ArgumentError(CollectiveError, ValueError):
    """A wrong argument; the message names a valid one. It is a ValueError, too.

    >>> import mpicoll
    >>> mpicoll.threads(0)
    Traceback (most recent call last):
    mpicoll.errors.ArgumentError: size must be a number of ranks, at least 1, not 0
    """


class UnknownName(ArgumentError):
    """A collective, algorithm, op or dtype that does not exist.

    >>> from mpicoll.algorithms import find
    >>> find("broadcast", "binomal")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mpicoll.errors.UnknownName: unknown broadcast algorithm 'binomal': did you mean 'binomial'? ...
    """

    def __init__(self, kind: str, value: object, choices: Iterable[str]) -> None:
        names = sorted(choices)
        close = closest(value, names) if isinstance(value, str) else None
        hint = f"did you mean {close!r}? " if close else ""
        if kind.endswith("algorithm") and str(value).partition("@")[0] == "adaptive":
            hint = "python -m mpicoll.tune now measures which algorithm auto runs; "
        super().__init__(f"unknown {kind} {brief(value)}: {hint}known are {', '.join(names)}")


class Disagreement(ArgumentError):
    """The ranks of one collective call gave arguments that do not fit together.

    >>> import mpicoll, numpy as np
    >>> program = lambda c: c.allreduce(np.ones(2 + c.rank))
    >>> mpicoll.threads(2)(program)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mpicoll.errors.Disagreement: ...
    """


class Unavailable(CollectiveError):
    """The backend has no such call; the message names the reason.

    >>> import mpicoll, numpy as np
    >>> program = lambda c: c.allreduce(np.ones(2), algorithm="ring@ipc")
    >>> mpicoll.threads(2)(program)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mpicoll.errors.Unavailable: no ipc transport for arrays on the host...
    """


class Unsupported(CollectiveError):
    """The algorithm cannot serve this size, root or operator.

    >>> from mpicoll.algorithms import find
    >>> find("allgather", "swing").rounds(0, 5)
    Traceback (most recent call last):
    mpicoll.errors.Unsupported: allgather algorithm swing needs an even number of ranks, not 5
    """


class BadFile(ArgumentError):
    """A file of this host cannot be used. Ranks on other hosts may have another file."""


class LaunchError(CollectiveError, RuntimeError):
    """The processes were started in a way that cannot form the group.

    >>> import mpicoll
    >>> issubclass(mpicoll.LaunchError, RuntimeError)
    True
    """


class RankLost(CollectiveError, TimeoutError):
    """A rank for which others wait has ended, has aborted the call, or did not come in time.

    >>> import mpicoll
    >>> def program(c):
    ...     if c.rank == 0:
    ...         return "left"
    ...     try:
    ...         c.barrier()
    ...     except mpicoll.RankLost as error:
    ...         return error.rank
    >>> mpicoll.threads(2)(program)
    ['left', 0]
    >>> mpicoll.RankLost("rank 0 has ended", rank=0).reason
    'rank 0 has ended'

    Attributes:
        rank: the rank for which all ranks wait, directly or through others; None if unknown.
        found_in: the directory of this process's flight recorder; empty without one.
        raised: called whenever such an error is made.
    """

    found_in: ClassVar[str] = ""
    raised: ClassVar[Callable[[], object]] = staticmethod(lambda: None)

    def __init__(self, text: str = "", *, rank: int | None = None) -> None:
        if self.found_in and _POST_MORTEM not in text:
            text = f"{text}; {_POST_MORTEM} {self.found_in} tells what each rank did"
        super().__init__(text)
        self.rank = rank
        RankLost.raised()

    @property
    def reason(self) -> str:
        """The reason, without the place of the flight recorder's file."""
        return str(self).partition(f"; {_POST_MORTEM}")[0]


class ScheduleError(CollectiveError, RuntimeError):
    """A schedule breaks its contract, as one of a user's own can.

    >>> import mpicoll
    >>> issubclass(mpicoll.Deadlock, mpicoll.ScheduleError)
    True
    """


class Deadlock(ScheduleError):
    """Ranks wait for messages that nobody sends.

    >>> from mpicoll.algorithms.registry import Algorithm
    >>> from mpicoll.notation.contract import collective
    >>> from mpicoll.notation.schedule import recv
    >>> from mpicoll.simulator import prove
    >>> def wait(rank, size):
    ...     yield recv(1 - rank)
    >>> prove(Algorithm(collective("barrier"), "wait", wait), 2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mpicoll.errors.Deadlock: ...
    """


class WrongContents(ScheduleError):
    """The contents of a rank at the end violate the contract of the collective.

    >>> from mpicoll.algorithms.registry import Algorithm
    >>> from mpicoll.notation.contract import collective
    >>> from mpicoll.simulator import prove
    >>> def nothing(rank, size, root):
    ...     yield from ()
    >>> prove(Algorithm(collective("broadcast"), "nothing", nothing), 2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    mpicoll.errors.WrongContents: ...
    """


def closest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that a name is probably a misspelling of; None where none is close.

    The dashes of options and the folders of commands do not count.

    >>> closest("--algorithn", ["--algorithm", "--verbose"]), closest("--bogus", ["--verbose"])
    ('--algorithm', None)
    >>> closest("trst", ["bench", "bench.trust"])
    'bench.trust'
    """
    from difflib import get_close_matches  # a program starts quickly without

    words = {word: choice for choice in choices for word in _words(choice)}
    close = [*get_close_matches(name.lstrip("-")[:_LONG], words, n=1)]
    return words[close[0]] if close else None


def _words(choice: str) -> tuple[str, str]:
    return choice.lstrip("-"), choice.lstrip("-").rpartition(".")[2]


def first_error(texts: Iterable[str]) -> str:
    """Return the first text of the ranks that is not empty; the empty text without one."""
    return next(filter(None, texts), "")


def on_all(
    make: Callable[[], Result], rank: int, exchange: Callable[[Any], list[Any]], subject: str = "",
    refusals: tuple[type[BaseException], ...] = (Unavailable,),
) -> Result:  # fmt: skip
    """Return the result of `make`, or raise on all ranks if it fails on one; collective.

    Args:
        exchange: returns every rank's item.
        subject: the beginning of the error.
        refusals: the errors of `make` that count as a failure.

    Raises:
        Unavailable: on all ranks, if `make` fails on one.
    """
    results: list[Result] = []
    failure = ""
    try:
        results.append(make())
    except refusals as error:
        failure = f"rank {rank}: {error}"
    if failure := first_error(exchange(failure)):
        raise Unavailable(f"{subject}{failure}")
    return results[0]


def text_of(error: BaseException) -> str:
    """Return the text of an error, which a class of a user's may refuse to give.

    >>> text_of(ValueError("no such root"))
    'no such root'
    """
    try:
        return str(error)
    except Exception as failure:
        return f"<its text raises {type(failure).__name__}>"


def brief(value: object) -> str:
    """Return the text of an argument for a message: its `repr`, shortened if it is long.

    >>> brief("ring"), brief("a" * 5000)[90:]
    ("'ring'", 'aaaaaaaaaa... (5002 characters)')
    """
    try:
        text = repr(value)
    except Exception:
        text = object.__repr__(value)
    return text if len(text) <= _LONG else f"{text[:100]}... ({len(text)} characters)"

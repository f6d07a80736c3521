"""Run a function on ranks that are threads of this process."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from mpicoll.backend import Arrays
from mpicoll.collectives import Collectives
from mpicoll.errors import ArgumentError, RankLost
from mpicoll.machine.settings import check_deadline, default_deadline
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.text import pictures
from mpicoll.threads.transport import ThreadTransport
from mpicoll.threads.world import Group, World

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Runs functions on ranks that are threads of this process.

    Called with a function, it gives each rank's `Collectives` to it, then the other arguments,
    and returns a list of the results in rank order.

    >>> ranks = threads(4, ranks_per_node=2)
    >>> ranks(lambda c, factor: factor * c.rank, 10)
    [0, 10, 20, 30]

    Attributes:
        size: number of ranks.
        ranks_per_node: number of ranks that share memory.
        deadline: seconds after which a rank that waits for another gives up.
    """

    def __init__(
        self, size: int, ranks_per_node: int | None, deadline: float | None, arrays: Arrays
    ) -> None:
        self.size = _count("size", size)
        self.ranks_per_node = _count("ranks_per_node", ranks_per_node or size)
        self.deadline = default_deadline() if deadline is None else check_deadline(deadline)
        self.arrays = arrays

    def __call__(
        self, function: Callable[Concatenate[Collectives, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> list[T]:
        """Run ``function(c, *args, **kwargs)`` on each rank; return the results in rank order.

        Raises:
            Exception: what the function raises, with a note that names the ranks; an
                ExceptionGroup where it raises different things. Ranks that wait for one that
                has failed get `RankLost`, which is not raised beside what it failed with.
        """
        from mpicoll.flight.groups import end_thread  # importing mpicoll is quicker without

        world = World(self.size, self.arrays, self.deadline)
        nodes = [rank // self.ranks_per_node for rank in range(self.size)]
        group = Group(world, range(self.size), nodes)
        results: list[Any] = [None] * self.size
        errors: dict[int, BaseException] = {}

        def run(rank: int) -> None:
            how = "has ended"
            try:
                with Collectives(ThreadTransport(group, rank)) as c:
                    results[rank] = function(c, *args, **kwargs)
            except BaseException as error:
                errors[rank], how = error, f"failed with {type(error).__name__}"
            finally:
                end_thread(errors.get(rank))
                world.end(rank, how)

        _join([_start(rank, run) for rank in range(self.size)], world)
        if errors:
            raise _combined(errors, self.size)
        return results

    def show(self, collective: str, *algorithms: str, root: int = 0) -> Any:
        """Return the animated page of algorithms on as many ranks; a notebook shows it inline.

        >>> threads(4).show("allreduce", "ring").text.startswith("<!DOCTYPE html>")
        True

        Args:
            algorithms: names, as of `mpicoll.algorithms`.

        Raises:
            UnknownName: there is no such collective or algorithm.
            ArgumentError: no algorithm is named, or a page does not play so many ranks.
        """
        if not algorithms:
            raise ArgumentError("name at least one algorithm, as show('allreduce', 'ring')")
        return pictures.notebook().play(collective, algorithms, self.size, root)

    def __repr__(self) -> str:
        return f"<Threads of {self.size} ranks, {self.ranks_per_node} on each node>"


def threads(
    size: int, *, ranks_per_node: int | None = None, deadline: float | None = None
) -> Threads:
    """Return a launcher that runs a function on `size` ranks as threads of this process.

    Arrays are NumPy's. One thread runs Python at a time, so it says nothing of speed.

    >>> import numpy as np
    >>> threads(4)(lambda c: c.allreduce(np.arange(3) + c.rank))[0]
    array([ 6, 10, 14])

    Args:
        ranks_per_node: how many ranks share memory; all of them by default.
        deadline: seconds after which a rank that waits for another gives up.
    """
    return Threads(size, ranks_per_node, deadline, NumpyArrays())


def _count(label: str, value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{label} must be a number of ranks, at least 1, not {value!r}")
    return value


def _start(rank: int, run: Callable[[int], None]) -> threading.Thread:
    """Start a rank, which sees the context variables of the caller."""
    context = contextvars.copy_context()
    name = f"rank {rank}"
    thread = threading.Thread(target=context.run, args=(run, rank), name=name, daemon=True)
    thread.start()
    return thread


def _join(started: Sequence[threading.Thread], world: World) -> None:
    """Wait for all ranks; an interrupt ends those that wait for others."""
    try:
        for thread in started:
            thread.join()
    except BaseException:
        for rank in range(world.size):
            world.end(rank, "was interrupted")
        raise


def _combined(errors: dict[int, BaseException], size: int) -> BaseException:
    """Return one exception for those of all ranks."""
    causes = {rank: cause for rank, cause in errors.items() if not isinstance(cause, RankLost)}
    alike: dict[tuple[type, str], list[int]] = {}
    for rank, error in sorted((causes or errors).items()):
        alike.setdefault((type(error), str(error)), []).append(rank)
    exceptions = []
    for ranks in alike.values():
        error = errors[ranks[0]]
        label = "rank" if len(ranks) == 1 else "ranks"
        error.add_note(f"on {label} {', '.join(map(str, ranks))} of {size}")
        exceptions.append(error)
    if len(exceptions) == 1:
        return exceptions[0]
    return BaseExceptionGroup(f"{len(errors)} of {size} ranks failed", exceptions)

"""A user's wrong schedule has one clear error, in the simulator and on ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mpicoll
from mpicoll.algorithms import checked_schedule, registry
from mpicoll.algorithms.registry import algorithm, find
from mpicoll.errors import ScheduleError, Unsupported
from mpicoll.notation.schedule import recv, send
from mpicoll.simulator import prove


class Unprintable(Exception):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        raise OSError


WRONG_STEPS: dict[str, tuple[Any, str]] = {
    "nothing": (None, "yields None, which is no operation"),
    "a list": ([send(1, 0)], "yields .*, which is no operation"),
    "no peer": (send(99, 0), r"send\(99, 0\) has no peer of that number"),
    "itself": (recv(0, 0), r"recv\(0, 0\) has no peer of that number"),
    "no number": (send(1.5, 0), "TypeError: 'float' object cannot be"),  # type: ignore[arg-type]
    "no key": (send(1, [0]), "TypeError: unhashable type: 'list'"),  # type: ignore[arg-type]
    "fails without a text": (Unprintable(), r"Unprintable: <its text raises OSError> \(.*\)"),
    "fails": (ZeroDivisionError("of mine"), r"ZeroDivisionError: of mine \(.*, line \d+\)"),
}


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Return a function that registers ``wrong``, in which rank 0 yields a step."""
    registry.algorithms("broadcast")
    shelves = {of: dict(entries) for of, entries in registry._REGISTRY.items()}
    monkeypatch.setattr(registry, "_REGISTRY", shelves)

    def add(step: Any) -> None:
        @algorithm("broadcast", blocks=1, name="wrong")
        def wrong(rank: int, size: int, root: int) -> Any:
            if rank == 0 and isinstance(step, Exception):
                raise step
            yield step if rank == 0 else recv(0, 0)

    return add


@pytest.mark.parametrize("case", WRONG_STEPS)
def test_a_wrong_step_is_refused(register: Callable[[Any], None], case: str) -> None:
    step, message = WRONG_STEPS[case]
    register(step)
    with pytest.raises(ScheduleError, match=f"rank 0 of 2:? {message}"):
        prove(find("broadcast", "wrong"), 2)


@pytest.mark.parametrize("transport", ["point-to-point", "symmetric"])
@pytest.mark.parametrize("step", [None, send(99, 0), send(1, 5)], ids=str)
def test_all_ranks_have_the_error_of_one(
    register: Callable[[Any], None], transport: str, step: Any
) -> None:
    register(step)

    def call(c: mpicoll.Collectives) -> None:
        with pytest.raises(mpicoll.CollectiveError, match=r"no operation|no peer|block 5|uses 5"):
            c.broadcast(np.ones(4), algorithm=f"wrong@{transport}")

    mpicoll.threads(2)(call)


def _endless(rank: int, size: int, root: int) -> Any:
    while True:
        yield send(1 - rank, 0) if rank == root else recv(1 - rank, 0)


def _endless_pauses(rank: int, size: int, root: int) -> Any:
    while True:
        yield ()


def _endless_peer(rank: int, size: int, root: int) -> Any:
    """Have a rank without an end among others that wait."""
    yield send(1, 0) if rank == root else recv(0, 0)
    while rank == root:
        yield send(1, 0)


def _circle(rank: int, size: int, root: int) -> Any:
    yield recv(1 - rank, 0)
    yield send(1 - rank, 0)


def _too_few(rank: int, size: int, root: int) -> Any:
    if rank != root:
        yield recv(root, 0)


def _nothing(rank: int, size: int, root: int) -> Any:
    yield from ()


@pytest.mark.parametrize("transport", ["point-to-point", "symmetric"])
@pytest.mark.parametrize(
    ("schedule", "kind", "reason"),
    [
        (_endless, ScheduleError, "yields more than 1,000 operations"),
        (_endless_pauses, ScheduleError, "yields more than 1,000 operations"),
        (_endless_peer, ScheduleError, "yields more than 1,000 operations"),
        (_circle, mpicoll.Deadlock, "rank 0 .* rank 1"),
        (_too_few, mpicoll.Deadlock, "rank 1"),
        (_nothing, mpicoll.WrongContents, "rank 1"),
    ],
)
def test_a_wrong_schedule_is_named_on_all_ranks_before_it_runs(
    register: Callable[[Any], None], schedule: Any, kind: type[ScheduleError], reason: str,
    transport: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(checked_schedule, "MOST_OPERATIONS", 1000)
    algorithm("broadcast", blocks=1, name="mistaken")(schedule)
    x = np.arange(4.0)

    def call(c: mpicoll.Collectives) -> None:
        with pytest.raises(mpicoll.ScheduleError, match=reason) as caught:
            c.broadcast(x.copy(), algorithm=f"mistaken@{transport}")
        assert type(caught.value) is kind
        c.barrier()  # the group goes on

    mpicoll.threads(2)(call)


def test_signals_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpicoll.simulator._MOST_NAMED", 1000)

    def endless(rank: int, size: int) -> Any:
        while True:
            yield send(1 - rank)

    wrong = replace(find("barrier", "dissemination"), generator=endless, parameters={})
    with pytest.raises(Unsupported, match="too long to be simulated"):
        prove(wrong, 2)

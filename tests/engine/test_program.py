"""Rows that are callbacks: when a program runs them, with which addresses, and how they fail."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pytest
from program_rows import address, place, program, row

from mpicoll import Collectives, threads
from mpicoll.engine.compiled import AWAIT, CALL, COPY, POLL, RAISE

LIMIT = 30
"""Seconds until an event that must come."""


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + LIMIT
    while not holds() and time.monotonic() < end:
        time.sleep(1e-4)
    return holds()


# -- CALL -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(4))
@pytest.mark.parametrize("light", [True, False])
def test_a_callback_gets_the_addresses_of_its_operands(count: int, light: bool) -> None:
    calls: list[tuple[int, ...]] = []
    operands = place(0, 1), place(1, 2), place(2, 3)
    loop = program(
        [row(CALL, *operands, extra=count)], lambda *addresses: calls.append(addresses), light=light
    )
    loop.run()
    assert calls == [(1001, 2002, 3003)[:count]]


def test_a_callback_gets_the_address_of_the_slot_of_its_run() -> None:
    calls: list[int] = []
    slot = [2, 8, 100, 1, 1, 0]  # two slots, 100 bytes apart
    loop = program([row(CALL, slot, extra=1)], calls.append)
    for _ in range(4):
        loop.run()
    assert calls == [3108, 3008] * 2


def test_a_callback_runs_between_the_rows_beside_it() -> None:
    x, between, out = np.arange(3), np.zeros(3, int), np.zeros(3, int)
    seen: list[Any] = []

    def look() -> None:
        seen.append((between.tolist(), out.tolist()))
        between[:] += 1

    loop = program(
        [
            row(COPY, place(2), place(0), count=x.nbytes), row(CALL),
            row(COPY, place(1), place(2), count=x.nbytes),
        ],
        look, registers=[address(x), address(out), address(between)],
    )  # fmt: skip
    loop.run()
    assert seen == [([0, 1, 2], [0, 0, 0])]
    assert out.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "bad",
    [row(CALL, count=1), row(CALL, count=-1), row(CALL, extra=4), row(CALL, extra=-1),
     row(POLL, count=1), row(POLL, extra=-1)],
)  # fmt: skip
def test_a_row_without_its_callback_is_refused(bad: list[int]) -> None:
    with pytest.raises(ValueError, match="no such code, register or callback"):
        program([bad], print)


@pytest.mark.parametrize("algorithm", ["one_shot@symmetric", "two_shot@cma"])
def test_operands_that_a_users_function_keeps_stay_valid(algorithm: str) -> None:
    """The plan may be freed and its arrays dropped before the function's owner reads them."""
    operands: list[Any] = []

    def fold(left: Any, right: Any) -> Any:
        operands.append((left, right))
        return left + right

    def run(c: Collectives) -> Any:
        x = np.arange(40_000.0)
        with c.plan("allreduce", x, op=fold, algorithm=algorithm) as plan:
            plan.run()
        return ref(x)

    inputs = threads(2)(run)
    gc.collect()
    assert all(x() is not None for x in inputs)
    assert all(np.isfinite(array).all() for pair in operands for array in pair)
    operands.clear()
    gc.collect()
    assert all(x() is None for x in inputs)


# -- POLL -------------------------------------------------------------------------------------


class Message:
    """Something that is complete after some tests, or once it is waited for."""

    def __init__(self, tests: int) -> None:
        self.missing, self.tests, self.waits = tests, 0, 0

    def test(self) -> bool:
        self.tests += 1
        self.missing -= 1
        return self.missing < 0

    def wait(self, program: Any, position: int, error: int) -> None:
        assert (position, error) == (0, 0)
        self.waits += 1


@pytest.mark.parametrize(
    ("looks", "missing", "waits"), [(5, 0, 0), (5, 3, 0), (0, 0, 1), (1, 1 << 60, 1)]
)
def test_a_poll_tests_as_often_as_it_says_and_then_waits(
    looks: int, missing: int, waits: int
) -> None:
    """Python's wait completes the row, as it knows what is waited for."""
    message = Message(missing)
    loop = program([row(POLL, extra=looks)], message.test, wait=message.wait)
    loop.run()
    assert message.waits == waits
    assert loop.position == loop.length
    if not waits:
        assert message.tests == missing + 1
    if not looks:
        assert message.tests == 0


def test_a_started_program_stands_at_its_poll_until_a_test_completes_it() -> None:
    message, order = Message(2), []
    loop = program(
        [row(CALL, count=1), row(POLL), row(CALL, count=2)], message.test,
        lambda: order.append("first"), lambda: order.append("last"),
    )  # fmt: skip
    assert not loop.start()
    assert order == ["first"]
    assert not loop.given
    assert not loop.test()
    assert loop.test()
    assert (order, message.tests) == (["first", "last"], 3)


def test_the_progress_thread_stops_before_a_callback() -> None:
    """It has no interpreter; the next test goes on from there."""
    word, raised, calls = np.zeros(1, np.int64), np.zeros(1, np.int64), []
    counted = [0, 0, 0, 0, 1, 0]
    loop = program(
        [row(AWAIT, counted), row(RAISE, [1, 0, 0, 0, 1, 0]), row(CALL)],
        lambda: calls.append(1), registers=[address(word), address(raised)],
    )  # fmt: skip
    assert not loop.start()
    word[0] = 1
    assert eventually(lambda: raised[0] == 1)
    assert eventually(lambda: loop.position == 2)
    assert calls == []
    assert loop.test()
    assert calls == [1]


# -- errors -----------------------------------------------------------------------------------


def planted(*_: int) -> None:
    raise ZeroDivisionError("planted")


@pytest.mark.parametrize("code", [CALL, POLL])
@pytest.mark.parametrize("way", ["run", "start"])
def test_the_error_of_a_callback_ends_the_run_and_the_program(code: int, way: str) -> None:
    failures: list[Any] = []
    loop = program(
        [row(code, extra=1 if code == POLL else 0)], planted,
        fail=lambda *arguments: failures.append(arguments),
    )  # fmt: skip
    with pytest.raises(ZeroDivisionError, match="planted"):
        getattr(loop, way)()
    [(owner, position, error)] = failures
    assert owner is loop
    assert (position, str(error)) == (0, "planted")
    with pytest.raises(RuntimeError, match="failed in the middle of its last run"):
        loop.run()


def test_the_owner_may_raise_another_error() -> None:
    def translated(program: Any, position: int, error: BaseException) -> None:
        raise KeyError("row", position) from error

    loop = program([row(CALL)], planted, fail=translated)
    with pytest.raises(KeyError, match="row") as raised:
        loop.run()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("again", ["run", "wait"])
def test_a_callback_cannot_run_the_program_that_calls_it(again: str) -> None:
    loop = program([row(CALL)], lambda: getattr(loop, again)())
    with pytest.raises(RuntimeError, match=r"middle|cannot go on"):
        loop.run()


def test_a_callback_cannot_make_a_call_of_its_group() -> None:
    """It would have to complete the call that it is a part of."""
    numbers = array("q", [0, 0, 0])
    other = program([], numbers=numbers)
    loop = program([row(CALL)], other.run, numbers=numbers)
    with pytest.raises(RuntimeError, match="a call of this group is under way"):
        loop.run()
    assert numbers[2] == 0

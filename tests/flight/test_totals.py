"""All calls of a rank: those of overwritten rows are added up."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpicoll.engine import _compiled
from mpicoll.flight.layout import FOLDED_AT, ROWS, TABLE_AT, TOTAL, TOTALS, TOTALS_AT
from mpicoll.flight.reader import CallTotal, Dump, read_all
from mpicoll.flight.recorder import Recorder
from mpicoll.flight.records import Call, Group


@pytest.fixture
def recorder(place: Path) -> Iterator[Recorder]:
    recorder = Recorder("job", (0, 2), writers=_compiled)
    yield recorder
    recorder.close()


@pytest.fixture
def log(recorder: Recorder) -> Any:
    return _compiled.Log(recorder.ring, recorder.intern(Group("g", "world", 0, "0-1")))


def read_dump(place: Path) -> Dump:
    (dump,), _ = read_all(place)
    return dump


def total_of(place: Path, collective: str) -> CallTotal:
    (total,) = (part for part in read_dump(place).totals if part.call.collective == collective)
    return total


@pytest.mark.parametrize("calls", [1, 63, 64, ROWS - 1, ROWS, ROWS + 1, ROWS + 64, 5 * ROWS + 7])
def test_every_call_is_counted(recorder: Recorder, log: Any, place: Path, calls: int) -> None:
    call = log.recorded(recorder.intern(Call("allreduce", "sum")), len)
    for _ in range(calls):
        call(())
    group, kind, location, total = total_of(place, "allreduce")
    assert (total.calls, total.timed) == (calls, calls)
    assert group is not None and group.name == "world" and kind.signature == "sum"
    assert location is not None and location.file == __file__
    assert sum(count for _, count in total.histogram) == calls
    assert total.shortest * calls <= total.ns
    assert all(one <= other for (one, _), (other, _) in pairwise(total.histogram))


def test_calls_are_counted_by_line(recorder: Recorder, log: Any, place: Path) -> None:
    call = log.recorded(recorder.intern(Call("allreduce")), len)
    for number in range(3 * ROWS):
        call(())
        if number % 3 == 0:
            call(())
    assert sorted(part.total.calls for part in read_dump(place).totals) == [ROWS, 3 * ROWS]


def test_times_are_those_of_the_calls(
    recorder: Recorder, log: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long calls among short ones stay in the total once their rows are overwritten."""
    from time import perf_counter_ns

    lasted = 0

    def work(length: int) -> None:
        until = perf_counter_ns() + length
        while perf_counter_ns() < until:
            pass

    call = log.recorded(recorder.intern(Call("allreduce")), work)
    for number in range(2 * ROWS):
        began = perf_counter_ns()
        call(300_000 if number < 20 else 0)
        lasted += perf_counter_ns() - began
    total = total_of(place, "allreduce").total
    assert 20 * 300_000 <= total.ns <= lasted
    assert sum(count for ns, count in total.histogram if ns >= 200_000) >= 20


def test_calls_without_room_are_other_calls(recorder: Recorder, log: Any, place: Path) -> None:
    kinds = TOTALS + 100
    for number in range(kinds):
        call = log.recorded(recorder.intern(Call(f"call {number}")), len)
        for _ in range(3):
            call(())
    for _ in range(ROWS):
        call(())
    totals = read_dump(place).totals
    others = sum(part.total.calls for part in totals if part.call.collective == "other calls")
    assert 300 <= others < 600
    assert sum(part.total.calls for part in totals) == 3 * kinds + ROWS


def test_calls_that_are_issued_are_counted_without_time(
    recorder: Recorder, log: Any, place: Path
) -> None:
    issue = log.recorded(recorder.intern(Call("iallreduce")), len, True)
    for _ in range(2 * ROWS):
        issue(())
        with pytest.raises(TypeError):
            issue(3)  # it has not begun, and is taken back
    total = total_of(place, "iallreduce").total
    assert (total.calls, total.timed, total.ns, total.histogram) == (2 * ROWS, 0, 0, ())


def test_calls_that_raise_are_counted(recorder: Recorder, log: Any, place: Path) -> None:
    call = log.recorded(recorder.intern(Call("allreduce")), len)
    for _ in range(ROWS + 100):
        with pytest.raises(TypeError):
            call(3)
    total = total_of(place, "allreduce").total
    assert (total.calls, total.timed) == (ROWS + 100, ROWS + 100)


@pytest.fixture
def damaged(
    recorder: Recorder, log: Any, place: Path
) -> Callable[[Callable[[bytearray, int], None]], Dump]:
    """Return a function that reads a file with two totals, of which the first one is changed."""
    for name in ("allreduce", "barrier"):
        call = log.recorded(recorder.intern(Call(name)), len)
        for _ in range(ROWS + 64):
            call(())

    def read(change: Callable[[bytearray, int], None]) -> Dump:
        content = bytearray(recorder.path.read_bytes())
        (at, *_) = (
            at for at in range(TOTALS_AT + TOTAL.size, TOTALS_AT + TOTALS * TOTAL.size, TOTAL.size)
            if content[at + 12]
        )  # fmt: skip
        change(content, at)
        recorder.path.write_bytes(content)
        return read_dump(place)

    return read


@pytest.mark.parametrize(
    ("field", "value"),
    [(0, 7), (1, 7), (2, 7), (3, 0), (4, 1), (4, 1 << 63), (5, 1 << 40), (6, 0), (7, 1 << 50)],
)
def test_damaged_totals_are_left_out(damaged: Callable[..., Dump], field: int, value: int) -> None:
    def change(content: bytearray, at: int) -> None:
        numbers = list(TOTAL.unpack_from(content, at))
        numbers[field] = value
        TOTAL.pack_into(content, at, *numbers)

    assert damaged(change).faults == ["1 totals are damaged, and left out"]


@pytest.mark.parametrize("length", [FOLDED_AT, TOTALS_AT, TOTALS_AT + 100])
def test_files_without_totals_have_the_calls_of_their_rows(
    damaged: Callable[..., Dump], length: int
) -> None:
    def change(content: bytearray, at: int) -> None:
        content[length:TABLE_AT] = bytes(TABLE_AT - length)

    assert sum(part.total.calls for part in damaged(change).totals) <= ROWS


ARRAYS = [
    (np.zeros(100), 1024), (np.zeros(1), 8), (np.zeros(0), 0), (np.zeros((10, 10)).T[::2], 512),
    ([np.zeros(3), 2], 32), ((array("d", [0.0, 0.0]), None), 16), (b"abc", 4), (b"a", 1),
    ([], 0), (None, 0), (7, 0),
]  # fmt: skip


@pytest.mark.parametrize(("argument", "nbytes"), ARRAYS, ids=range(len(ARRAYS)))
def test_calls_are_sized_by_an_argument(
    recorder: Recorder, log: Any, place: Path, argument: Any, nbytes: int
) -> None:
    def of_size(most: int) -> int:
        return recorder.intern(Call("allreduce", nbytes=most))

    def function(*arguments: Any, **named: Any) -> None: ...

    call = log.recorded(recorder.intern(Call("allreduce")), function, False, of_size, 1)
    call("comm", argument)
    call("comm", argument)
    assert {entry.call.nbytes for entry in read_dump(place).entries} == {nbytes}
    call("comm", array=argument)
    call()
    assert [entry.call.nbytes for entry in read_dump(place).entries[2:]] == [0, 0]


def test_a_handler_that_raises_as_a_size_is_written(
    recorder: Recorder, log: Any, place: Path
) -> None:
    """The call is not made, and the next one is."""
    errors, made = [ValueError("a handler's")], list[bytes]()

    def of_size(most: int) -> int:
        if errors:
            raise errors.pop()
        return recorder.intern(Call("allreduce", nbytes=most))

    call = log.recorded(recorder.intern(Call("allreduce")), made.append, False, of_size, 0)
    with pytest.raises(ValueError, match="a handler's"):
        call(b"abc")
    call(b"abcd")
    assert made == [b"abcd"]
    assert [entry.call.nbytes for entry in read_dump(place).entries] == [4]

"""The compiled program: the tables that it refuses, and its runs on any arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from program_rows import address, place, program, row

from mpicoll.engine import compiled
from mpicoll.engine.compiled import AWAIT, COPY, DIVIDE, FOLD, RAISE


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (row(99), "no such code, register or callback"),
        (row(-1), "no such code, register or callback"),
        (row(COPY, place(2)), "no such code, register or callback"),
        (row(COPY, place(0), place(-1)), "no such code, register or callback"),
        (row(FOLD), "needs a kernel"), (row(DIVIDE), "needs a kernel"),
        ([*row(COPY), 1], "rows of"),
    ],
)  # fmt: skip
def test_a_bad_table_is_refused(table: list[int], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        program([table], registers=[0, 0])


@pytest.mark.parametrize("registers", [3, [0, "x"], [0, 1 << 70]])
def test_bad_registers_are_refused(registers: Any) -> None:
    with pytest.raises((TypeError, OverflowError, ValueError)):
        program([row(COPY)], registers=registers)


def test_a_program_is_made_once() -> None:
    empty = program([])
    with pytest.raises(TypeError, match="once"):
        empty.__init__(b"", [0, 0], None, None, check=0, light=True, heavy=False,
                       waits=None, keep=None)  # fmt: skip


def test_a_program_runs_on_any_arrays() -> None:
    copying = program([row(COPY, place(1), count=24)])
    for turn in range(3):
        x, out = np.full(3, float(turn)), np.zeros(3)
        copying.run_on(address(x), address(out))
        np.testing.assert_array_equal(out, x)
    assert (copying.sequence, copying.position, copying.length) == (3, 1, 1)


@pytest.mark.parametrize("nbytes", [100, 2048, 4097, 8192, (1 << 20) + 4101])
@pytest.mark.parametrize("mode", [compiled.CACHED, compiled.STREAMED, compiled.ADAPTIVE])
def test_a_copy_is_exact_however_it_is_written(mode: int, nbytes: int) -> None:
    """A trial is a part of the copy, of the first and of those after each MiB."""
    copying = program([row(COPY, place(1), count=nbytes, extra=mode)])
    for turn in range(3):
        x = np.random.default_rng(turn).integers(0, 256, nbytes, np.uint8)
        out = np.full(nbytes + 64, 7, np.uint8)
        copying.run_on(address(x), address(out))
        np.testing.assert_array_equal(out[:nbytes], x)
        assert (out[nbytes:] == 7).all()


def test_a_run_that_failed_is_the_last() -> None:
    def wait(program: object, position: int, error: int) -> None:
        raise KeyError(position)

    word = np.zeros(1, np.int64)
    raising = program([row(RAISE), row(AWAIT)], registers=[address(word)] * 2, wait=wait)
    raising.run()  # its own word is there
    stuck = program(
        [row(AWAIT, place(1))], registers=[0, address(np.zeros(1, np.int64))], wait=wait
    )
    with pytest.raises(KeyError):
        stuck.run()
    with pytest.raises(RuntimeError, match="failed in the middle of its last run"):
        stuck.run()

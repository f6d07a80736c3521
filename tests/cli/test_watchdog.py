"""The watchdog: a library that hangs as it starts ends the process."""

from __future__ import annotations

from threading import Event, Semaphore

import pytest
from launcher import LIMIT, python

from mpicoll.cli import watchdog


def test_a_library_that_hangs_at_its_start_ends_the_process() -> None:
    """Even one that holds the interpreter's lock, so that no other thread of it can run."""
    code = (
        "import ctypes; from mpicoll.cli.watchdog import Watchdog;"
        "Watchdog(0.5).starting('mpi4py'); ctypes.PyDLL(None).sleep(60)"
    )
    process = python("-c", code)
    assert process.returncode == 1
    assert "Timeout (0:00:02)!" in process.stdout


def test_a_library_that_starts_is_let_go() -> None:
    code = (
        "import time; from mpicoll.cli.watchdog import Watchdog;"
        "dog = Watchdog(0.2); dog.starting('mpi4py'); dog.started(); time.sleep(2.5)"
    )
    process = python("-c", code)
    assert (process.returncode, process.stdout) == (0, "")


def test_c_ends_no_start_in_which_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would read the stack of a thread that goes on meanwhile, and crash at times."""
    put_off, ended = Semaphore(0), Event()

    class FaultHandler:
        def dump_traceback_later(self, seconds: float, **options: object) -> None:
            assert not ended.is_set() and seconds > 100
            put_off.release()

        def cancel_dump_traceback_later(self) -> None:
            ended.set()

    monkeypatch.setattr(watchdog, "faulthandler", FaultHandler())
    dog = watchdog.Watchdog(100)
    dog.starting("mpi4py")
    assert all(put_off.acquire(timeout=LIMIT) for _ in range(3))
    dog.started()
    assert ended.is_set()

"""The watchdog: a library that hangs as it starts ends the process."""

from __future__ import annotations

import subprocess
import sys

from launcher import LIMIT


def test_a_library_that_hangs_at_its_start_ends_the_process() -> None:
    """Even one that holds the interpreter's lock, so that no other thread of it can run."""
    code = (
        "import ctypes; from mpicoll.cli.watchdog import Watchdog;"
        "Watchdog(0.5).starting('mpi4py'); ctypes.PyDLL(None).sleep(60)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 1
    assert "Timeout (0:00:02)!" in done.stderr


def test_a_library_that_starts_is_let_go() -> None:
    code = (
        "import time; from mpicoll.cli.watchdog import Watchdog;"
        "dog = Watchdog(0.2); dog.starting('mpi4py'); dog.started(); time.sleep(2.5)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT
    )
    assert (done.returncode, done.stderr) == (0, "")

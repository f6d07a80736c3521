"""How a process has ended, as long as the system knows."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from mpicoll.machine.living import has_ended, how_ended


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("os._exit(3)", "status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "killed by SIGTERM"),
    ],
)
def test_how_a_process_has_ended(code: str, how: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", f"import os, signal; {code}"])
    until = time.monotonic() + 30
    while not has_ended(child.pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert how_ended(child.pid) == how
    child.wait()
    assert how_ended(child.pid) == ""

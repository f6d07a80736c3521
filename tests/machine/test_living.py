"""How a process has ended, as long as the system knows."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from mpicoll.machine.living import has_ended, how_ended, is_caught, is_stopped


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


def test_a_process_may_have_any_name() -> None:
    """The system cuts a name after 15 bytes, in the middle of a letter, too."""
    named = "open('/proc/self/comm', 'wb').write(b'1234567890 (l\\xc3'); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", named], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"\n"
        assert not is_stopped(child.pid) and not is_caught(child.pid)
        child.send_signal(signal.SIGSTOP)
        until = time.monotonic() + 30
        while not is_stopped(child.pid) and time.monotonic() < until:
            time.sleep(0.01)
        assert is_stopped(child.pid)
        child.kill()
        while not has_ended(child.pid) and time.monotonic() < until:
            time.sleep(0.01)
        assert how_ended(child.pid) == "killed by SIGKILL"

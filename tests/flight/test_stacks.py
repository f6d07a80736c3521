"""Requests for the stacks of a process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from mpicoll.flight import signals
from mpicoll.machine.living import ask_for_stacks


def test_a_users_own_handler_stays(tmp_path: Path) -> None:
    def handle(*_arguments: object) -> None: ...

    original = signal.signal(signal.SIGUSR1, handle)
    try:
        assert signals._register(tmp_path / "stacks") == -1
        assert signal.getsignal(signal.SIGUSR1) is handle
    finally:
        signal.signal(signal.SIGUSR1, original)


def test_only_a_process_that_catches_the_signal_gets_it() -> None:
    child = os.fork()
    if not child:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        signal.pause()
        os._exit(0)
    try:
        ask_for_stacks(child)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL

"""The thread that prints a diagnosis on request."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from launcher import LIMIT

from mpicoll.errors import ArgumentError
from mpicoll.flight import signals


def test_a_signal_does_not_end_the_thread_that_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    come, descriptor = threading.Event(), os.eventfd(0)

    def look(directory: Path) -> None:
        come.set()
        raise ArgumentError(f"{directory} has no flight files")

    monkeypatch.setattr("mpicoll.flight.job.look", look)
    thread = threading.Thread(target=signals._print, args=(descriptor, tmp_path), daemon=True)
    original = signal.signal(signal.SIGUSR2, lambda *_arguments: None)
    try:
        thread.start()
        for _ in range(5):
            time.sleep(0.02)
            signal.pthread_kill(thread.ident or 0, signal.SIGUSR2)
        os.eventfd_write(descriptor, 1)
        assert come.wait(LIMIT)
    finally:
        signal.signal(signal.SIGUSR2, original)

"""Processes that must not go on without the one that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

_libc = ctypes.CDLL(None)  # a forked process must not load it
_PARENT_DEATH_SIGNAL = 1
_SCRIPT = 'trap "trap : TERM; kill 0; wait" TERM; exec 3<&0; "$@" <&3 3<&- & wait $!'
"""For a shell: Intel MPI's launcher is a script, whose own end would leave what it has started. A
shell gives its background processes no standard input of their own accord."""
_GRACE = 10.0
"""Seconds in which a launcher that is asked to end its ranks does."""


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have the system end this process where its parent ends, however that does."""
    _libc.prctl(_PARENT_DEATH_SIGNAL, int(number))


def run_launcher(
    command: Sequence[str], limit: float | None = None,
    environment: Mapping[str, str] | None = None,
    out: int | IO[bytes] | None = None, errors: int | IO[bytes] | None = None,
    source: int | IO[bytes] = subprocess.DEVNULL,
) -> int:  # fmt: skip
    """Run a launcher of ranks, and return its exit status.

    Interrupted, or after `limit` seconds, it ends the launcher and all that it has started before
    it raises; where this process ends, however that does, the system ends them.

    Raises:
        OSError: no process can be started.
        subprocess.TimeoutExpired: it had not ended.
    """
    process = subprocess.Popen(
        ("sh", "-c", _SCRIPT, "sh", *command), env=environment, stdin=source,
        stdout=out, stderr=errors, start_new_session=True, preexec_fn=end_with_parent,
    )  # fmt: skip
    try:
        return process.wait(limit)
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher, which ends its ranks; then whatever is left of its group."""
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

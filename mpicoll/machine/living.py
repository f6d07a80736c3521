"""Whether a process of this host still runs, and where: by signals and by what the system tells."""

from __future__ import annotations

import ctypes
import os
import select
import signal
from contextlib import suppress
from pathlib import Path

_EXIT_CODE = 49
"""The place of ``exit_code`` in /proc/PID/stat, counted from the state: proc(5)."""


def has_ended(process: int) -> bool:
    """Whether a process has ended, also where nobody has waited for it yet."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    ended: list[int] = []
    with suppress(OSError):
        ended, _, _ = select.select([handle], [], [], 0)
    os.close(handle)
    return bool(ended)


def how_ended(process: int) -> str:
    """Return how a process has ended, empty where the system has forgotten it.

    It knows until the parent has waited for it: "killed by SIGKILL", "status 3".
    """
    try:
        _, fields = stat_of(process)
        code = int(fields[_EXIT_CODE]) if fields[0] in "ZX" else None
    except (OSError, IndexError, ValueError):
        return ""
    if code is None:
        return ""
    number = code & 0x7F
    if number:
        names = {member.value: member.name for member in signal.Signals}
        return f"killed by {names.get(number, f'signal {number}')}"
    return f"status {code >> 8}"


def is_stopped(process: int) -> bool:
    """Whether a signal or a debugger has stopped a process."""
    try:
        return stat_of(process)[1][0] in "tT"
    except (OSError, IndexError):
        return False


def ask_for_stacks(process: int) -> None:
    """Have another process write its stacks, where it would not end by the signal.

    By `sigqueue`: a signal that `kill` has sent has it print what is known of the job, too.
    """
    if process != os.getpid() and is_caught(process):
        ctypes.CDLL(None).sigqueue(process, signal.SIGUSR1, ctypes.c_void_p())


def is_caught(process: int) -> bool:
    """Whether a process has a handler for the signal."""
    try:
        with open(f"/proc/{process}/status", errors="replace") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        return False


def stat_of(process: int) -> tuple[str, list[str]]:
    """Return a process's name, which is any bytes, and its state, parent, ... as in proc(5)."""
    text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    name, _, fields = text.partition("(")[2].rpartition(")")
    return name, fields.split()

"""Whether a process of this host still runs."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path


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


def is_stopped(process: int) -> bool:
    """Whether a signal or a debugger has stopped a process."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in "tT"

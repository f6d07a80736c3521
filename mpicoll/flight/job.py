"""Look at a job: the files that its ranks have left, and the places in code of those that run."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep, time_ns

from mpicoll.flight import stacks
from mpicoll.flight.diagnosis import Diagnosis, diagnose
from mpicoll.flight.layout import STACKS, State
from mpicoll.flight.reader import Dump
from mpicoll.flight.torch_dumps import read_all

_SECONDS = 2.0
"""How long to wait for stacks that were asked for: on a busy machine a rank may get no core."""


def look(directory: Path, *, threshold: float = 1.0) -> tuple[Diagnosis, list[Dump], list[str]]:
    """Return the state of a job, the files of its ranks, and why some cannot be read.

    Ranks of this host that run are asked for their stacks, which does not stop them.

    Args:
        threshold: seconds after which a call that is under way counts as stuck while its rank runs.

    Raises:
        ArgumentError: there is no flight file.
    """
    dumps, faults = read_all(directory)
    running = [dump for dump in dumps if _is_here(dump)]
    if running:
        _ask(running)
        dumps, faults = read_all(directory)
        dumps = [_with_py_spy(dump) if _is_here(dump) else dump for dump in dumps]
    return diagnose(dumps, time_ns(), threshold), dumps, faults


def _is_here(dump: Dump) -> bool:
    """Whether a process of this host writes a file still: any other may have its number now."""
    if not dump.is_alive or dump.state is not State.RUNNING or dump.process.thread:
        return False
    with suppress(OSError):
        inode = str(dump.path.stat().st_ino)
        with open(f"/proc/{dump.process.pid}/maps", errors="replace") as file:
            return any(line.split()[4:5] == [inode] and dump.path.name in line for line in file)
    return False


def _ask(dumps: list[Dump]) -> None:
    """Have ranks write their stacks, and wait until they have, but not for long."""
    sizes = {}
    for dump in dumps:
        path = dump.path.with_suffix(STACKS)
        with suppress(OSError):  # the rank may end meanwhile
            sizes[path] = path.stat().st_size
            stacks.ask(dump.process.pid)
    until = monotonic() + _SECONDS
    while sizes and monotonic() < until:
        sleep(0.02)
        sizes = {path: size for path, size in sizes.items() if _size(path) == size}


def _size(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_size
    return None


def _with_py_spy(dump: Dump) -> Dump:
    """Return a file with the stacks that py-spy sees, where the rank itself writes none."""
    command = shutil.which("py-spy")
    if dump.stacks or command is None:
        return dump
    with suppress(OSError, subprocess.SubprocessError):
        process = subprocess.run(
            (command, "dump", "--pid", str(dump.process.pid)), capture_output=True, text=True,
            errors="replace", timeout=5, check=True, env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        return dump._replace(stacks=_as_faulthandler(process.stdout))
    return dump


def _as_faulthandler(text: str) -> str:
    """Return py-spy's output in the format of `faulthandler`."""
    lines = []
    for number, line in enumerate(text.splitlines()):
        if line.startswith("Thread"):
            lines.append(f"Thread 0x{number:x} (most recent call first):")
        elif line.startswith("    ") and line.endswith(")") and " (" in line:
            function, _, location = line.strip()[:-1].rpartition(" (")
            file, _, at = location.rpartition(":")
            lines.append(f'  File "{file}", line {at} in {function}')
    return "\n".join(lines)

"""Marks of the processes of a launch that run ``mpicoll.run``, which other ranks read without MPI.

A mark is an abstract socket of Unix (unix(7)), which ends with its process. A rank sets its mark
before MPI starts and reads others' afterwards. The ranks of a launch meet while MPI starts, so all
ranks of a host read the same marks.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping

from mpicoll.machine.launchers import find_launch

_CREDENTIALS = struct.Struct("3i")
_marks: list[socket.socket | None] = []


def set_mark(*, is_late: bool = False) -> None:
    """Mark this process.

    Args:
        is_late: MPI has started, so other ranks perhaps have looked for the mark; none is set.
    """
    launch, job = find_launch(), _job()
    mark = None
    if launch is not None and job is not None and not is_late:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(_address(job, launch.rank))
        except OSError:  # it cannot be read
            mark.close()
            mark = None
    _marks.append(mark)


def must_be_marked() -> bool:
    """Whether this process runs `mpicoll.run`: others of its launch perhaps do not."""
    return bool(_marks)


def is_marked(rank: int) -> bool:
    """Whether a rank of this launch has set its mark on this host."""
    job = _job()
    if job is None or None in _marks:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_address(job, rank))
        except OSError:
            return False
    return True


def _address(job: str, rank: int) -> bytes:
    return f"\0mpicoll.run/{job}/{rank}".encode()


def _job(variables: Mapping[str, str] = os.environ) -> str | None:
    """Return what names this launch on this host, None where nothing does."""
    if "PMIX_NAMESPACE" in variables:
        return variables["PMIX_NAMESPACE"]
    if "PMI_FD" in variables:
        return _manager(variables["PMI_FD"])
    if "SLURM_STEP_ID" in variables:
        return f"slurm {variables.get('SLURM_JOB_ID')}.{variables['SLURM_STEP_ID']}"
    return f"child of {os.getppid()}"


def _manager(text: str) -> str | None:
    """Return what names the process manager behind a socket, which has made it for each rank."""
    try:
        with socket.socket(fileno=os.dup(int(text))) as channel:
            raw = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (OSError, ValueError):
        return f"child of {os.getppid()}"
    process = _CREDENTIALS.unpack(raw)[0]
    return f"manager {process}" if process else None

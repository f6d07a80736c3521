"""Marks of the processes of a launch that run ``mpicoll.run``, which other ranks read without MPI.

A mark is a memory file (memfd_create(2)) with the name of the launch and the rank. It ends with its
process, and has contents once the program has ended. An abstract socket (unix(7)) tells where the
file is. Any user may bind such a socket, so a rank believes the file alone, which only this user
can put into a process of this user.

A rank sets its mark before MPI starts and reads others' afterwards. The ranks of a launch meet
while MPI starts, so all ranks of a host read the same marks.
"""

from __future__ import annotations

import _socket  # a program starts quickly without the enumerations of `socket`
import os
import struct
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cache

from mpicoll.machine.exits import at_exit
from mpicoll.machine.launchers import find_launch

_CREDENTIALS = struct.Struct("3i")
_SOCKETS = "/proc/net/unix"
"""The kernel's list of sockets, a line each; an ``@`` begins the name of an abstract one."""
_marks: list[_Mark | None] = []


class _Mark:
    """The file of a mark, and the socket that tells its place."""

    def __init__(self, announcement: _socket.socket, file: int) -> None:
        self.announcement, self.file = announcement, file

    def exit(self) -> None:
        """Tell other ranks that this program has ended."""
        os.write(self.file, b".")


def set_mark(*, is_late: bool = False) -> None:
    """Mark this process.

    Args:
        is_late: MPI has started, so other ranks perhaps have looked for the mark; none is set.
    """
    launch, job = find_launch(), _job()
    mark = None
    if launch is not None and job is not None and not is_late:
        with suppress(OSError):  # others cannot read it
            mark = _mark(job, launch.rank)
            at_exit(mark)
    _marks.append(mark)


def _mark(job: str, rank: int) -> _Mark:
    name = f"mpicoll.run/{job}/{rank}"
    file = os.memfd_create(name)
    announcement = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        announcement.bind(f"\0{name}/{os.getpid()}/{file}".encode())
    except OSError:
        announcement.close()
        os.close(file)
        raise
    return _Mark(announcement, file)


def must_be_marked() -> bool:
    """Whether this process runs `mpicoll.run`: others of its launch perhaps do not."""
    return bool(_marks)


def is_marked(rank: int) -> bool:
    """Whether a rank of this launch has set its mark on this host."""
    job = _job()
    return job is not None and None not in _marks and rank in _marked_ranks(job)


def has_exited(rank: int) -> bool:
    """Whether the program of a marked rank of this launch has ended."""
    if not _marks or not is_marked(rank):
        return False
    try:
        return os.stat(_marked_ranks(_job() or "")[rank]).st_size > 0
    except OSError:  # so has its process
        return True


@cache
def _marked_ranks(job: str) -> Mapping[int, str]:
    """Return the ranks of a launch with a mark on this host, each with the path of its file."""
    with open(_SOCKETS, "rb") as file:
        names = file.read().split(f"@mpicoll.run/{job}/".encode())[1:]
    places = (name.partition(b"\n")[0].split(b"/") for name in names)
    numbers = (
        tuple(map(int, place)) for place in places
        if len(place) == 3 and all(map(bytes.isdigit, place))
    )  # fmt: skip
    paths = ((rank, process, f"/proc/{process}/fd/{file}") for rank, process, file in numbers)
    return {rank: path for rank, process, path in paths if _has_mark(job, rank, process, path)}


def _has_mark(job: str, rank: int, process: int, path: str) -> bool:
    """Whether the file of a process is the mark of a rank, and the process is this user's."""
    try:
        is_of_user = os.stat(f"/proc/{process}").st_uid == os.geteuid()
        target = os.readlink(path)
    except OSError:
        return False
    return is_of_user and target == f"/memfd:mpicoll.run/{job}/{rank} (deleted)"


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
        with closing(_socket.socket(fileno=os.dup(int(text)))) as channel:
            raw = channel.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size)
    except (OSError, ValueError):
        return f"child of {os.getppid()}"
    process = _CREDENTIALS.unpack(raw)[0]
    return f"manager {process}" if process else None

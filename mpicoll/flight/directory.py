"""Where flight files lie: in ``MPICOLL_FLIGHT_DIR``, or in a directory of the job's own.

The directory of a job lies below the system's directory for temporary files. It is removed once all
ranks of the job have ended well, unless ``MPICOLL_FLIGHT`` is ``keep``.
Other directories stay, `MAX_JOBS` of them. Beyond that the oldest are removed, but never one whose
ranks still run.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from mpicoll.flight.layout import STACKS, STATE, STATE_AT, SUFFIX, State
from mpicoll.machine.launchers import launch_identity
from mpicoll.text.opening import open_by_name

DIRECTORY = "MPICOLL_FLIGHT_DIR"
SWITCH = "MPICOLL_FLIGHT"
"""``0`` in this variable turns the recorder off, `KEEP` keeps the files of all jobs."""
KEEP = "keep"
MAX_JOBS = 32
"""Directories of ended jobs that are kept for a user."""
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID")


def is_on() -> bool:
    """Whether calls are recorded."""
    return os.environ.get(SWITCH, "").lower() not in ("0", "off", "no", "false")


def keeps_files() -> bool:
    """Whether the files of jobs stay that have ended well."""
    return os.environ.get(SWITCH, "").lower() == KEEP


def configured() -> str:
    """Return the directory that the user states, empty for none."""
    return os.environ.get(DIRECTORY, "")


def home() -> Path:
    """Return where this user's directories of jobs lie by default."""
    stated = filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP")))
    folders = (folder for folder in stated if os.access(folder, os.W_OK | os.X_OK))
    return Path(next(folders, "/tmp")).absolute() / f"mpicoll-flight-{os.geteuid()}"


def new_name(*, of_launch: bool = True) -> str:
    """Return a name for the directory of a job.

    Without a name of the launch it is random, and the first ranks that meet agree on it.

    Args:
        of_launch: all ranks of this launch are one job. They have one name where they know it.
    """
    job = next(
        (os.environ[variable] for variable in _JOBS if os.environ.get(variable, "none") != "none"),
        "",
    )
    ascii_job = filter(str.isascii, job)
    plain = "".join(letter for letter in ascii_job if letter.isalnum() or letter in "-_")[:40]
    if of_launch and (identity := launch_identity()):
        return f"{plain or 'job'}-{''.join(filter(str.isalnum, identity))[:30]}"
    when = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{plain or 'job'}-{when}-{os.urandom(4).hex()}"


def opened(name: str) -> Path:
    """Make the directory of a job, and return it.

    Args:
        name: of the job's directory below the user's own; not used where the user states one.

    Raises:
        OSError: it cannot be made, or somebody else could write there.
    """
    if path_of_user := configured():
        Path(path_of_user).mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(path_of_user).resolve()
    base = home()
    base.mkdir(mode=0o700, exist_ok=True)
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{base} is not a directory of this user's alone")
    path = base / Path(name).name
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return path
    _make_room(base)
    return path


def _make_room(base: Path) -> None:
    """Remove the oldest directories where there are more than `MAX_JOBS`, but none in use."""
    ages = []
    with suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    ages.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    for _, path in sorted(ages)[: max(0, len(ages) - MAX_JOBS)]:
        if not any(is_held(file) for file in files(Path(path))):
            import shutil  # a program starts quickly without

            shutil.rmtree(path, ignore_errors=True)


def files(path: Path) -> Iterator[Path]:
    """Yield the flight files of a directory, in the order of their names."""
    with suppress(OSError):
        yield from (path / name for name in sorted(os.listdir(path)) if name.endswith(SUFFIX))


def is_held(path: Path) -> bool:
    """Whether the process that writes a file lives: it holds a lock as long."""
    try:
        handle = open_by_name(path)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def of_job(path: Path, job: str) -> list[Path]:
    """Return the files of one job in a directory."""
    named = ((file, file.name.split(".")) for file in files(path))
    return [file for file, parts in named
            if len(parts) == 4 and parts[1] == job and parts[2].isdecimal()]  # fmt: skip


def remove_ended(path: Path, job: str) -> None:
    """Remove the files of a job whose ranks, those that have a file here, have all ended well.

    Files that the user wants to keep stay.
    """
    if keeps_files():
        return
    ended = of_job(path, job)
    if not all(map(_has_ended_well, ended)):
        return
    for file in ended:
        for target in (file, file.with_suffix(STACKS)):
            with suppress(OSError):
                target.unlink()
    if not configured():
        with suppress(OSError):
            path.rmdir()
            path.parent.rmdir()


def _has_ended_well(path: Path) -> bool:
    try:
        with FileIO(open_by_name(path)) as file:
            data = file.read(STATE_AT + STATE.size)
    except OSError:
        return True  # another rank removes it, or it is none of a rank of this user
    if len(data) < STATE_AT + STATE.size:
        return False
    return bool(STATE.unpack_from(data, STATE_AT)[0] == State.ENDED)

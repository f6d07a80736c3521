"""Open files that are taken by their names, where other users may have put others."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_by_name(
    path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o600, *, is_of_user: bool = False,
    any_owner: bool = False,
) -> int:  # fmt: skip
    """Open a file that is taken by its name, and return its descriptor.

    The file is a regular one, and no link. Where other users may write to its folder, it belongs to
    this user, to root, or to the owner of the folder. Nobody is waited for.

    Args:
        mode: of a new file.
        is_of_user: the user names this file, so it may be a link or a pipe, and belong to anybody.
        any_owner: it may belong to anybody.

    Raises:
        OSError: the file cannot be opened, or is another one; `strerror` says why.
    """
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | (0 if is_of_user else os.O_NOFOLLOW)
    handle = os.open(path, flags, mode)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        is_pipe = is_of_user and stat.S_ISFIFO(status.st_mode)
        if not is_pipe and not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if not (is_of_user or any_owner or _is_trusted(status, os.path.dirname(path) or ".")):
            raise PermissionError(
                errno.EPERM, "it belongs to another user, in a folder where others may write",
                str(path),
            )  # fmt: skip
    except BaseException:
        os.close(handle)
        raise
    return handle


def _is_trusted(status: os.stat_result, folder: str) -> bool:
    """Whether the owner of a file may have put it into its folder."""
    of_folder = os.stat(folder)
    can_others_write = of_folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not can_others_write or status.st_uid in (os.geteuid(), 0, of_folder.st_uid)

"""Files that appear when they are complete, and never half-written."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

from mpicoll.errors import ArgumentError


def write_whole(path: Path, save: Callable[[Path], object]) -> None:
    """Have `save` write a new file, and put it in the place of `path`.

    Raises:
        ArgumentError: the file cannot be written.
    """
    try:
        file, name = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}") from None
    os.close(file)
    fresh = Path(name)
    try:
        save(fresh)
        fresh.chmod(0o666 & ~_mask())
        fresh.replace(path)
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with suppress(FileNotFoundError):
            fresh.unlink()


def _mask() -> int:
    """Return which permissions new files lack; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask

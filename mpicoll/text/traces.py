"""The file of a trace, which ``MPICOLL_TRACE`` names, and the files of its ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from glob import escape
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.text.lines import check_new
from mpicoll.text.numbers import whole

VARIABLE = "MPICOLL_TRACE"
SCHEMA = "mpicoll.trace/2"
OPENING = b'{"schema": "mpicoll.trace/'
_RANK = ".rank-"
_MOST_RANKS = 1 << 20


def traced(variables: Mapping[str, str] = os.environ) -> Path | None:
    """Return where a trace is wanted, None where none is.

    Raises:
        ArgumentError: it cannot be written there, or somebody else's file would be overwritten.
    """
    if not variables.get(VARIABLE):
        return None
    path = Path(variables[VARIABLE]).absolute()  # the program may change its folder
    try:
        if path.exists() and not path.is_file():
            raise ArgumentError(f"cannot write {path}: it is no regular file")
        check_new(path, OPENING)
    except (ArgumentError, OSError) as error:
        raise ArgumentError(f"{VARIABLE}: {error}") from None
    return path


def path_of_rank(path: Path, rank: int) -> Path:
    """Return the file in which a rank keeps its calls while the program runs.

    >>> path_of_rank(Path("trace.jsonl"), 3)
    PosixPath('trace.jsonl.rank-3')
    """
    return path.with_name(f"{path.name}{_RANK}{rank}")


def paths_of_ranks(path: Path) -> dict[int, Path]:
    """Return the existing files of ranks beside a trace, by rank."""
    files = {
        whole(file.name.removeprefix(f"{path.name}{_RANK}"), _MOST_RANKS): file
        for file in path.parent.glob(f"{escape(path.name)}{_RANK}*")
    }
    return {rank: files[rank] for rank in sorted(rank for rank in files if rank is not None)}

"""The file of a trace, which ``MPICOLL_TRACE`` names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.text.lines import check_new

VARIABLE = "MPICOLL_TRACE"
SCHEMA = "mpicoll.trace/2"
OPENING = b'{"schema": "mpicoll.trace/'


def traced(variables: Mapping[str, str] = os.environ) -> Path | None:
    """Return where a trace is wanted, None where none is.

    Raises:
        ArgumentError: it cannot be written there, or somebody else's file would be overwritten.
    """
    if not variables.get(VARIABLE):
        return None
    path = Path(variables[VARIABLE]).absolute()  # the program may change its folder
    try:
        check_new(path, OPENING)
    except (ArgumentError, OSError) as error:
        raise ArgumentError(f"{VARIABLE}: {error}") from None
    return path

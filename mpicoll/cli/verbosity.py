"""How much a command says on standard error: the flags ``-q`` and ``-v``."""

from __future__ import annotations

import os
import sys
from enum import IntEnum

from mpicoll.cli import ending
from mpicoll.machine import configuration
from mpicoll.machine.launchers import is_first_process


class Verbosity(IntEnum):
    """What appears on standard error besides errors."""

    QUIET = 0
    """Warnings alone."""
    NORMAL = 1
    """Progress on a terminal, too."""
    VERBOSE = 2
    """Also the version and the variables in force. Progress takes lines where no terminal is."""


_verbosity = Verbosity.NORMAL


def verbosity() -> Verbosity:
    """Return how much this command says."""
    return _verbosity


def set_verbosity(value: Verbosity) -> None:
    """Set how much this command prints; `VERBOSE` prints the version and the variables at once."""
    global _verbosity
    _verbosity = value
    if value is Verbosity.VERBOSE and is_first_process():
        ending.say("\n".join(in_force()))


def in_force() -> list[str]:
    """Return lines with the version, its place, and the variables that are set."""
    package = sys.modules["mpicoll"]
    lines = [f"mpicoll {vars(package)['__version__']} in {os.path.dirname(package.__file__ or '')}"]
    return lines + [
        f"{name}={os.environ[name]} ({source})" for name, source in configuration.sources().items()
    ]

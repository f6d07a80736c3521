"""The module that draws schedules for notebooks, which stands above everything that is drawn.

The package names it when it is imported, so that no module below has to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_modules: list[Callable[[], Any]] = []


def provide(load: Callable[[], Any]) -> None:
    """Take the function that imports the module."""
    _modules[:] = [load]


def notebook() -> Any:
    """Return the module: `mpicoll.explain.notebook`."""
    (load,) = _modules
    return load()

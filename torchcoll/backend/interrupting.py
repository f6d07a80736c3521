"""Have handlers of signals run at the end of a call, as with gloo, whose calls block in C++.

A handler that raised in the middle of a call would take this rank out of what all ranks do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mpicoll.c_extension import _compiled

postpone_handlers = _compiled.postpone_handlers
"""Have handlers wait from here on. A call that a compiled program serves does so in its waits."""


def uninterrupted(function: Callable[..., Any]) -> Any:
    """Return a function at whose end handlers of signals run that it has postponed."""
    run = _compiled.uninterrupted

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return run(function, *arguments, **named)

    return call

"""Errors of Python code in a wait, such as a handler of a signal, that wait for the end of a call.

Once a rank has stated a call, the others may be inside MPI's own, which they cannot leave. So the
rank completes the call, too, and raises the error afterwards, as mpi4py's own method would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from mpicoll.errors import CollectiveError

T = TypeVar("T")
DEFERRED: dict[int, BaseException] = {}
"""The first error of the call that is under way in a thread."""


def defer(error: BaseException) -> bool:
    """Keep an error for the end of the call; return False for one that ends the call."""
    if isinstance(error, CollectiveError):
        return False
    DEFERRED.setdefault(threading.get_ident(), error)
    return True


def completed(wait: Callable[[], T]) -> T:
    """Return the result of a wait, which is repeated where other code raises in it."""
    while True:
        try:
            return wait()
        except BaseException as error:
            if not defer(error):
                raise


def raise_deferred() -> None:
    """Raise the error that was kept for the end of this thread's call, if there is one."""
    if DEFERRED and (error := DEFERRED.pop(threading.get_ident(), None)) is not None:
        raise error

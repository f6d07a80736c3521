"""Ranks as threads of one process: for notebooks, teaching, debugging and tests."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpicoll.threads.launch import Threads, threads

__all__ = ["Threads", "threads"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("mpicoll.threads.launch"), name)

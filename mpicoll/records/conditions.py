"""The conditions of a run, and how those of two runs differ."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import shorten
from typing import Any

from msgspec import to_builtins

from mpicoll.machine.variables import tuning_variables
from mpicoll.records.description import FullRun

_UNLIKE = {"budget", "seed"}
"""Settings for how long and in which order to measure, not for how."""

_COMPARED_FIELDS = (
    "versions",
    "libraries",
    "transports",
    "hosts",
    "cores",
    "quota",
    "stack",
    "executor",
)
_AS_USED = ("libraries", "transports", "stack", "executor")
"""A run states only those of these that it used: one that either run lacks is no difference."""


def conditions(run: FullRun) -> dict[str, Any]:
    """Return the conditions that must be the same for numbers to stand in one table."""
    # One of two runs comes from a file, where a tuple is a list.
    plain = to_builtins(run)
    settings = {k: v for k, v in plain["settings"].items() if k not in _UNLIKE}
    environment = tuning_variables(plain["environment"])
    fields = {name: plain[name] for name in _COMPARED_FIELDS}
    return {**fields, "settings": settings, "environment": environment}


def differences(previous: FullRun, now: FullRun) -> list[str]:
    """Return in words how the conditions of two runs differ, nothing where they do not."""
    sides = conditions(previous), conditions(now)
    ranks = [len(side["hosts"] or ()) for side in sides]
    if ranks[0] != ranks[1]:
        return [f"ranks was {ranks[0]}, and is {ranks[1]}"]
    return list(_differences("", *sides))


def _differences(name: str, previous: Any, now: Any) -> Iterable[str]:
    if previous == now:
        return
    if not (isinstance(previous, dict) and isinstance(now, dict)):
        yield f"{name} was {_shown(previous)}, and is {_shown(now)}"
        return
    for key in dict.fromkeys([*previous, *now]):
        was, is_ = previous.get(key), now.get(key)
        if name.split(".")[0] in _AS_USED and (was is None or is_ is None):
            continue
        yield from _differences(f"{name}.{key}" if name else key, was, is_)


def _shown(value: Any) -> str:
    return "not set" if value is None else shorten(repr(value), 100)

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

_SAME = ("versions", "libraries", "transports", "hosts", "cores", "quota", "stack", "executor")
_AS_USED = ("libraries", "transports", "stack", "executor")
"""A run states only those of these that it used: one that either run lacks is no difference."""


def conditions(run: FullRun) -> dict[str, Any]:
    """Return the conditions that must be the same for numbers to stand in one table."""
    # One of two runs comes from a file, where a tuple is a list.
    plain = to_builtins(run)
    settings = {k: v for k, v in plain["settings"].items() if k not in _UNLIKE}
    environment = tuning_variables(plain["environment"])
    same = {name: plain[name] for name in _SAME}
    return {**same, "settings": settings, "environment": environment}


def differences(before: FullRun, now: FullRun) -> list[str]:
    """Return in words how the conditions of two runs differ, nothing where they do not."""
    found = conditions(before), conditions(now)
    ranks = [len(each["hosts"] or ()) for each in found]
    if ranks[0] != ranks[1]:
        return [f"ranks was {ranks[0]}, and is {ranks[1]}"]
    return list(_differences("", *found))


def _differences(name: str, before: Any, now: Any) -> Iterable[str]:
    if before == now:
        return
    if not (isinstance(before, dict) and isinstance(now, dict)):
        yield f"{name} was {_shown(before)}, and is {_shown(now)}"
        return
    for each in dict.fromkeys([*before, *now]):
        was, is_ = before.get(each), now.get(each)
        if name.split(".")[0] in _AS_USED and (was is None or is_ is None):
            continue
        yield from _differences(f"{name}.{each}" if name else each, was, is_)


def _shown(value: Any) -> str:
    return "not set" if value is None else shorten(repr(value), 100)

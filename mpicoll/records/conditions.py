"""Under which conditions a run took place, and how those of two runs differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from textwrap import shorten
from typing import Any

from mpicoll.machine.variables import tuning_variables

_UNLIKE = {"budget", "seed"}
"""Settings that say how long and in which order to measure, not how."""

_SAME = ("versions", "libraries", "transports", "hosts", "cores", "quota", "stack")
_AS_USED = ("libraries", "transports", "stack")
"""Of these a run tells only what it used: what one of two runs lacks is no difference."""


def conditions(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be the same for numbers to stand in one table."""
    settings = {k: v for k, v in run.get("settings", {}).items() if k not in _UNLIKE}
    found = {
        **{name: run.get(name) for name in _SAME},
        "settings": settings,
        "environment": tuning_variables(run.get("environment", {})),
    }
    # One of two runs comes from a file, where a tuple is a list.
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say in words how the conditions of two runs differ, in nothing where they do not."""
    ranks = [len(each.get("hosts") or ()) for each in (before, now)]
    if ranks[0] != ranks[1]:
        return [f"ranks was {ranks[0]}, and is {ranks[1]}"]
    return list(_differences("", conditions(before), conditions(now)))


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

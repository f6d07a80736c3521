"""The extension module's objects for calls."""

from __future__ import annotations

from functools import partial
from typing import Any

from mpicoll.backend import Transport
from mpicoll.c_extension import _compiled as _compiled
from mpicoll.memory.allocator import LINE
from mpicoll.memory.mailbox import CAPACITY
from mpicoll.memory.waiting import set_call


def executor() -> str:
    """Return the executor and its instructions, such as ``compiled (avx512)``."""
    return f"compiled ({_compiled.target()})"


def plan_table(transport: Transport, slow: Any, give_up: Any, *, log: Any = None) -> Any:
    """Return the table that finds and runs the plans of a group: `_compiled.PlanTable`.

    Args:
        slow: runs the calls that the table does not know.
        give_up: takes a plan that has failed in the middle of a run.
        log: of the flight recorder; None where nothing is recorded.
    """
    arrays, shared = transport.arrays, transport.shared
    layout = arrays.layout() or (None, None)
    mailbox = None if shared is None else shared.mailbox
    options: dict[str, Any] = {"describe": arrays.describe, "log": log}
    rounds = mailbox or transport.rounds
    if shared is None or mailbox is None:
        options |= {"lines": (), "agree": partial(_agree, transport)}
    else:
        segments = [shared.address(rank, 0) for rank in shared.intra_node]
        options |= {
            "lines": [address + mailbox.start for address, _ in segments], "keep": segments,
            "stride": (LINE + CAPACITY) // 8, "rank": shared.rank, "wait": mailbox.wait,
        }  # fmt: skip
    table = _compiled.PlanTable(*layout, rounds.number, slow, give_up, **options)
    rounds.complete = table.complete
    return table


def _agree(transport: Transport, digest: int, name: str | None) -> bool:
    """Whether all ranks gave the same digest of a call."""
    if name is None:
        return transport.agree(digest)
    previous_name = set_call(name)
    try:
        return transport.agree(digest)
    finally:
        set_call(previous_name)

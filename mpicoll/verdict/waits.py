"""Divide the time of a rank in a call: it waits for later ranks, and then data moves."""

from __future__ import annotations

from collections.abc import Iterable

from mpicoll.verdict.matching import MatchedCall

_FROM_ROOT = ("broadcast", "scatter")
_TO_ROOT = ("reduce", "gather")
_BY_RANK = ("scan", "exscan")


def needed_ranks(call: MatchedCall, rank: int) -> Iterable[int]:
    """Return the ranks whose arrival a rank needs to complete its part of a call."""
    if call.is_synchronising:
        return call.members
    if call.place.collective in _FROM_ROOT and call.root is not None:
        return (call.root,)
    if call.place.collective in _TO_ROOT and rank == call.root:
        return call.members
    if call.place.collective in _BY_RANK and rank in call.members:
        return call.members[: call.members.index(rank)]
    return ()


def waits(call: MatchedCall) -> dict[int, int]:
    """Return for how many nanoseconds each rank waits in a call for ranks that arrive later."""
    starts = {rank: entry.start for rank, entry in call.rows.items()}
    last = max(starts.values())  # the common case: one maximum for all ranks
    lengths = {}
    for rank, entry in call.rows.items():
        if not call.is_synchronising:
            last = max((starts.get(peer, 0) for peer in needed_ranks(call, rank)), default=0)
        lengths[rank] = max(0, min(last, entry.end) - entry.start)
    return lengths

"""Schedules of a user's generator: each step is checked before anything uses it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from operator import index
from typing import Any

from mpicoll.errors import CollectiveError, ScheduleError, WrongContents, text_of
from mpicoll.notation.schedule import Copy, Fold, Receive, Schedule, Send

MOST_OPERATIONS = 1 << 18
"""Of one rank: beyond, a schedule has no end."""


def checked_schedule(
    generator: Callable[..., Schedule], rank: int, size: int, keywords: Mapping[str, Any]
) -> Schedule:
    """Yield the rounds of one rank.

    Raises:
        ScheduleError: the generator fails, or yields something else than operations.
        WrongContents: an operation has no peer among the other ranks.
    """
    label = f"rank {rank} of {size}"
    count = 0
    try:
        for step in generator(rank, size, **keywords):
            ops = step if isinstance(step, tuple) else (step,)
            count += max(1, len(ops))
            if count > MOST_OPERATIONS:
                raise ScheduleError(f"{label} yields more than {MOST_OPERATIONS:,} operations")
            for op in ops:
                if not isinstance(op, Send | Receive | Copy | Fold):
                    raise ScheduleError(
                        f"{label} yields {op!r:.200}, which is no operation: yield send(...), "
                        "recv(...), reduce(...), copy(...), fold(...), or a tuple of them"
                    )
                hash(op)  # the names of blocks are keys
                if not isinstance(op, Send | Receive):
                    continue
                if not 0 <= index(op.peer) < size or op.peer == rank:
                    raise WrongContents(f"{label}: {op} has no peer of that number")
            yield step
    except CollectiveError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ScheduleError(
            f"{label}: {type(error).__name__}: {text_of(error)} "
            f"({frame.filename}, line {frame.lineno})"
        ) from error

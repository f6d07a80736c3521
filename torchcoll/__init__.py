"""Collective communication on torch.distributed, beside and like `mpicoll`.

`world()` returns the `Collectives` of all ranks over gloo or NCCL; `mpicoll.world()`
returns the same interface over MPI. Importing this package starts nothing.
"""

from __future__ import annotations

from importlib.util import find_spec

from mpicoll.collectives import Collectives
from mpicoll.errors import (
    ArgumentError,
    CollectiveError,
    Deadlock,
    Disagreement,
    LaunchError,
    RankLost,
    ScheduleError,
    Unavailable,
    UnknownName,
    Unsupported,
    WrongContents,
)  # fmt: skip
from mpicoll.execution.plan import Plan
from mpicoll.notation.elements import ReduceOp, user_op
from torchcoll.launch import world
from torchcoll.threads import threads

if find_spec("torch") is None:
    raise ModuleNotFoundError("torchcoll needs torch: pip install 'mpicoll[torch]'", name="torch")

__version__ = "0.1.0"

__all__ = [
    "ArgumentError", "CollectiveError", "Collectives", "Deadlock", "Disagreement", "LaunchError",
    "Plan", "RankLost", "ReduceOp", "ScheduleError", "Unavailable", "UnknownName", "Unsupported",
    "WrongContents", "threads", "user_op", "world",
]  # fmt: skip

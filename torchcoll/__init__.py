"""Collective communication on torch.distributed, beside and like `mpicoll`.

`world()` returns the `Collectives` of all ranks over gloo or NCCL; `mpicoll.world()`
returns the same interface over MPI. Importing this package starts nothing, and its names are
loaded when they are first used: torch imports it to find the backend of that name.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpicoll.collectives import Collectives
    from mpicoll.engine.plan import Plan
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
    from mpicoll.notation.elements import ReduceOp, user_op
    from torchcoll.launch import world
    from torchcoll.threads import threads

if find_spec("torch") is None:
    import mpicoll.cli.missing  # noqa: F401  by which a command says so in one line

    raise ModuleNotFoundError("torchcoll needs torch: pip install 'mpicoll[torch]'", name="torch")

__version__: str
__all__ = [
    "ArgumentError", "CollectiveError", "Collectives", "Deadlock", "Disagreement", "LaunchError",
    "Plan", "RankLost", "ReduceOp", "ScheduleError", "Unavailable", "UnknownName", "Unsupported",
    "WrongContents", "threads", "user_op", "world",
]  # fmt: skip

_MODULES = {"world": "torchcoll.launch", "threads": "torchcoll.threads"}


def __getattr__(name: str) -> Any:
    if name not in (*__all__, "__version__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES.get(name, "mpicoll")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

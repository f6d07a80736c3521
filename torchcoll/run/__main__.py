"""Run a program that is written for torch.distributed with our groups in place of gloo's.

usage: torchrun --nproc-per-node 4 -m torchcoll.run program.py ARGS
       torchrun --nproc-per-node 4 -m torchcoll.run -m module ARGS
       torchrun --nproc-per-node 4 -m torchcoll.run -c "code" ARGS
       torchrun --nproc-per-node 4 -m torchcoll.run --compare 5 program.py ARGS

Options stand before the program. -v prints on standard error the version, the variables in force,
and one line that says what is replaced. -q shows no progress. MPICOLL_LOAD names files with
algorithms of your own.

--compare N runs the program N times as it is and N times with mpicoll, in random order, and says
whether it became faster, and at which calls. Only the first of these runs prints.

--trace DIR leaves the flight files of all ranks in a directory: python -m mpicoll.trace DIR tells
the times of all calls, also of messages.

A group whose backend is absent or "gloo" is ours, also where another backend serves GPUs; others
are as they were. What the program starts by torch.multiprocessing inherits this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType

from mpicoll.cli import programs
from mpicoll.run.imports import call_after_import, record_messages
from mpicoll.selection.forced import check_variables, forced
from torchcoll.backend.registration import AS_GLOO, register

_NOTICE = "torchcoll.run: torchcoll takes the place of gloo in every process group"


def main(arguments: list[str]) -> int:
    """Run the program that the arguments name; return the exit status where there is none."""
    return programs.main(
        __doc__ or "", arguments, refuse=_refuse, prepare=_prepare, notice=_NOTICE,
        compare=_compare,
    )  # fmt: skip


def _compare(rounds: int, arguments: Sequence[str], program: Sequence[str]) -> int:
    from mpicoll.run.comparing import compare  # a program that runs once does not need it

    return compare(rounds, "torchcoll.run", arguments, program)


def _refuse() -> None:
    forced("TORCHCOLL_ALGORITHM")
    check_variables()


def _prepare() -> None:
    record_messages()
    os.environ[AS_GLOO] = "1"
    # Only then: the program may set variables before, such as OMP_NUM_THREADS, which torch reads.
    if (torch := sys.modules.get("torch")) is not None:
        _register(torch)
    else:
        call_after_import("torch", _register)


def _register(_torch: ModuleType) -> None:
    import torch.distributed  # noqa: F401  the groups are torch's

    register()


if __name__ == "__main__":
    # A program that has run ends as it would by itself, and ``python -i`` goes on after it.
    if status := main(sys.argv[1:]):
        sys.exit(status)

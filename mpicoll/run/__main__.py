"""Run a program that is written for mpi4py with `mpicoll.Comm` as its communicators.

usage: mpirun -n 4 python -m mpicoll.run program.py ARGS
       mpirun -n 4 python -m mpicoll.run -m module ARGS
       mpirun -n 4 python -m mpicoll.run -c "code" ARGS
       mpirun -n 4 python -m mpicoll.run --compare 5 program.py ARGS

Options stand before the program. -v prints on standard error the version, the variables in force,
and one line that says what is replaced. -q shows no progress. MPICOLL_LOAD names files with
algorithms of your own.

--compare N runs the program N times as it is and N times with mpicoll, in random order, and says
whether it became faster, and at which calls. Only the first of these runs prints.

--trace DIR leaves the flight files of all ranks in a directory: python -m mpicoll.trace DIR tells
the times of all calls, also of messages and waits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mpicoll.cli import programs
from mpicoll.run.imports import record_messages
from mpicoll.run.replacing import replace_communicators
from mpicoll.selection.forced import check_variables, forced

_NOTICE = "mpicoll.run: mpicoll.Comm takes the place of MPI.COMM_WORLD and MPI.COMM_SELF"


def main(arguments: list[str]) -> int:
    """Run the program that the arguments name; return the exit status where there is none."""
    return programs.main(
        __doc__ or "", arguments, refuse=_refuse, prepare=_prepare, notice=_NOTICE,
        compare=_compare,
    )  # fmt: skip


def _compare(rounds: int, arguments: Sequence[str], program: Sequence[str]) -> int:
    from mpicoll.run.comparing import compare  # a program that runs once does not need it

    return compare(rounds, "mpicoll.run", arguments, program)


def _prepare() -> None:
    record_messages()
    replace_communicators()


def _refuse() -> None:
    forced("MPICOLL_ALGORITHM")
    check_variables()


if __name__ == "__main__":
    # A program that has run ends as it would by itself, and ``python -i`` goes on after it.
    if status := main(sys.argv[1:]):
        sys.exit(status)

"""Run a program that is written for mpi4py with `mpicoll.Comm` as its communicators.

usage: mpirun -n 4 python -m mpicoll.run program.py ARGS
       mpirun -n 4 python -m mpicoll.run -m module ARGS
"""

from __future__ import annotations

import sys

from mpicoll.cli import programs
from mpicoll.errors import ArgumentError
from mpicoll.machine.launchers import is_first_process
from mpicoll.run.replacing import replace_communicators
from mpicoll.selection.forced import forced

_REFUSED = 2


def main(arguments: list[str]) -> int:
    """Run the program that the arguments name; return the exit status where there is none."""
    if arguments[:1] in (["-h"], ["--help"]):
        if is_first_process():
            print((__doc__ or "").strip())
        return 0
    try:
        programs.check(arguments)
        forced("MPICOLL_ALGORITHM")
    except ArgumentError as error:
        if is_first_process():
            print(f"Error: {error}", file=sys.stderr)
        return _REFUSED
    replace_communicators()
    programs.run(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

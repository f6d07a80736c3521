"""Measure, explain and tune collectives, and run programs with them.

"mpicoll COMMAND --help" prints the flags of a command. "mpirun -n 4 mpicoll COMMAND" runs one on
ranks. "python -m mpicoll.COMMAND" is the same as "mpicoll COMMAND".
"""

from __future__ import annotations

from collections.abc import Sequence

from mpicoll import __version__
from mpicoll.cli.commands import Commands, Sections
from mpicoll.cli.former import FORMER_NAMES

SECTIONS: Sections = {
    "Measure (with mpirun: bench, p2p)": {
        "bench": "check and time every backend, algorithm and size",
        "p2p": "measure every pair of ranks, and name the slow ones",
        "compare": "compare two runs, case by case",
        "report": "make a page, figures or a table from records, or check them",
        "study": "study this machine: every MPI, many launches, findings in words",
    },
    "Explain": {
        "explain": "list, show, compare and prove algorithms",
        "costs": "price the algorithms on a network",
        "docs": "open this documentation, which needs no network",
    },
    "Tune (with mpirun)": {
        "tune": "measure which algorithms are the fastest here",
    },
    "Diagnose": {
        "doctor": "print what this machine can run, and why not the rest",
        "postmortem": "name the call in which a job hangs, and the missing ranks",
        "trace": "print where a program spent its communication",
    },
    "Run programs": {
        "run": "run an mpi4py program with these collectives (with mpirun)",
        "hosts": "run Python on emulated hosts, with links of a chosen rate",
    },
}


def _versions() -> Sequence[str]:
    from mpicoll.measurement.versions import versions

    return versions(__version__)


main = Commands("mpicoll", SECTIONS, _versions, __doc__ or "", FORMER_NAMES)

if __name__ == "__main__":
    main()

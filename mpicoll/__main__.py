"""Measure, explain and tune collectives, and run programs with them.

"mpicoll COMMAND --help" prints the flags of a command. "mpirun -n 4 mpicoll COMMAND" runs one on
ranks. "python -m mpicoll.COMMAND" is the same as "mpicoll COMMAND".
"""

from __future__ import annotations

from collections.abc import Sequence

from mpicoll import __version__
from mpicoll.cli.commands import Commands, Sections

SECTIONS: Sections = {
    "Measure (with mpirun: bench, p2p)": {
        "bench": "check and time every backend, algorithm and size",
        "p2p": "measure every pair of ranks, and name the slow ones",
        "compare": "compare two runs, case by case",
        "report": "make a page or figures from records",
        "study": "study this machine: every MPI, many launches, findings in words",
        "records": "check files of records, or write them as one table",
    },
    "Explain": {
        "explain": "show a schedule: as text, a diagram or an animated page",
        "simulator": "prove algorithms, and derive their rounds, bytes and folds",
        "algorithms": "list the algorithms, with their sources",
        "costs": "price the algorithms on a network",
        "defaults": "print what MPICH and Open MPI choose by default",
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
    "Check mpicoll itself": {
        "bench.twins": "measure native calls against themselves (with mpirun)",
        "bench.trust": "count how often the benchmark was right",
        "selftest.chaos": "try random faults in random calls",
        "selftest.soak": "make millions of small calls, and see what grows",
    },
}


def _versions() -> Sequence[str]:
    from mpicoll.measurement.versions import versions

    return versions(__version__)


main = Commands("mpicoll", SECTIONS, _versions, __doc__ or "")

if __name__ == "__main__":
    main()

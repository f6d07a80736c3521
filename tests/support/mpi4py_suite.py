"""Run mpi4py's own tests with and without our communicators, and print both columns.

usage: python tests/support/mpi4py_suite.py MPI4PY_SOURCES [RANKS [MODULES...]]

The sources are its sdist, unpacked: ``pip download --no-binary :all: --no-deps mpi4py==4.1.2``.
RANKS is ``1,2,3,4`` by default. Exit status 1 where a test passes without and not with ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

from launcher import QUIRKS, mpirun

MODULES = (
    "test_cco_buf", "test_cco_vec", "test_cco_obj", "test_cco_nb_buf", "test_cco_nb_vec",
    "test_cco_pr_buf", "test_cco_pr_vec", "test_cco_pr_ngh_buf", "test_cco_ngh_buf",
    "test_cco_ngh_obj", "test_comm", "test_comm_topo", "test_subclass", "test_op",
    "test_util_dtlib", "test_util_pkl5", "test_util_pool", "test_util_sync",
)  # fmt: skip
_SECONDS = 400
_WORST_FIRST = ("not run", "error", "failure", "skipped", "ok")


class Outcomes(unittest.TestResult):
    """What became of each test on this rank."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.found[test.id()] = "ok"

    def addError(self, test: Any, err: Any) -> None:
        self._failed(test, "error", err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._failed(test, "failure", err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.found[test.id()] = "skipped"

    def _failed(self, test: Any, how: str, err: Any) -> None:
        self.found[test.id()] = how
        print(f"{test.id()}: {err[0].__name__}: {err[1]}", file=sys.stderr, flush=True)


def run_here(folder: str, *modules: str) -> None:
    """Run the modules on this rank, and write what became of them to a file in a folder."""
    from mpi4py import MPI

    sys.path.insert(0, os.getcwd())
    outcomes = Outcomes()
    unittest.defaultTestLoader.loadTestsFromNames(modules).run(outcomes)
    path = Path(folder) / f"{MPI.COMM_WORLD.rank}.json"
    path.write_text(json.dumps(outcomes.found))


def run_ranks(sources: Path, ranks: int, *modules: str, ours: bool) -> dict[str, str]:
    """Return what became of every test of the modules, the worst of all ranks."""
    with tempfile.TemporaryDirectory() as folder:
        how = ("-m", "mpicoll.run") if ours else ()
        command = [mpirun() or "mpirun", "-n", str(ranks), sys.executable, *how,
                   __file__, "--here", folder, *modules]  # fmt: skip
        variables = {**os.environ, **QUIRKS}
        try:
            subprocess.run(
                command, cwd=sources / "test", env=variables, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"{modules} on {ranks} ranks: no end in {_SECONDS} s", file=sys.stderr)
        each = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
    names = set().union(*each) if each else set(modules)
    short = len(each) < ranks
    return {
        name: min(("not run" if short else found.get(name, "not run") for found in each or [{}]),
                  key=_WORST_FIRST.index)
        for name in names
    }  # fmt: skip


def main(sources: Path, counts: list[int], modules: list[str]) -> int:
    """Print a line for each number of ranks and module, and every test that differs."""
    worse = 0
    print(f"{'ranks':>5} {'module':<22} {'mpi4py':<34} with mpicoll.run")
    for count in counts:
        for module in modules:
            plain, ours = (run_ranks(sources, count, module, ours=each) for each in (False, True))
            columns = [", ".join(f"{n} {how}" for how, n in sorted(Counter(each.values()).items()))
                       for each in (plain, ours)]  # fmt: skip
            print(f"{count:>5} {module:<22} {columns[0]:<34} {columns[1]}", flush=True)
            for name in sorted(plain.keys() | ours.keys()):
                before, after = plain.get(name, "not run"), ours.get(name, "not run")
                if before != after:
                    worse += before == "ok"
                    print(f"      {name}: {before}, {after}", flush=True)
    return int(worse > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        run_here(*sys.argv[2:])
    else:
        given = sys.argv[2] if len(sys.argv) > 2 else "1,2,3,4"
        sys.exit(main(Path(sys.argv[1]), [int(n) for n in given.split(",")],
                      sys.argv[3:] or list(MODULES)))  # fmt: skip

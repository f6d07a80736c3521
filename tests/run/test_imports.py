"""The modules that `mpicoll.run` imports: a program starts about as fast as without it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from imported import OURS, modules_of, of_ours
from launcher import ranks

START = [
    "mpicoll.cli.missing", "mpicoll.cli.programs", "mpicoll.errors",
    "mpicoll.machine.configuration", "mpicoll.machine.exits", "mpicoll.machine.launchers",
    "mpicoll.machine.marks", "mpicoll.run.imports", "mpicoll.run.replacing",
    "mpicoll.selection.forced", "mpicoll.text.numbers", "mpicoll.text.pictures", "mpicoll.threads",
]  # fmt: skip
"""The modules of ours that a program needs which does nothing."""
COMMUNICATORS = [
    "mpicoll.c_extension", "mpicoll.engine._compiled", "mpicoll.mpi.communicator.classes",
    "mpicoll.mpi.communicator.recording",
]  # fmt: skip
"""Those that ``import mpi4py.MPI`` adds."""
STANDARD = {"_socket", "atexit", "pkgutil", "runpy"}
"""The modules of Python's library that neither mpi4py nor NumPy imports."""
SERVING = 40
"""The most modules of ours that the first call of arrays has needed, on one node."""


@cache
def modules_of_libraries() -> set[str]:
    return modules_of("-c", "import mpi4py.MPI, numpy")


@pytest.mark.parametrize(
    ("program", "expected"),
    [("", START), ("import numpy", START), ("import mpi4py.MPI, numpy", START + COMMUNICATORS)],
)
def test_a_program_imports_few_modules(tmp_path: Path, program: str, expected: list[str]) -> None:
    (path := tmp_path / "program.py").write_text(program)
    modules = modules_of("-m", "mpicoll.run", str(path))
    assert of_ours(modules) == sorted(expected)
    added = {name for name in modules - modules_of_libraries()
             if name.partition(".")[0] not in (*OURS, "mpi4py", "numpy")}  # fmt: skip
    assert {name for name in added if not name.startswith("__editable__")} <= STANDARD


@pytest.mark.parametrize("variable", ["MPICOLL_ALGORITHM", "MPICOLL_LOAD", "MPICOLL_TRACE"])
def test_an_empty_variable_imports_nothing(tmp_path: Path, variable: str) -> None:
    (path := tmp_path / "program.py").write_text("")
    assert of_ours(modules_of("-m", "mpicoll.run", str(path), environment={variable: ""})) == START


STAGES = """
import sys
from mpi4py import MPI

names = [" ".join(sys.modules)]
import numpy as np
comm, x, out = MPI.COMM_WORLD, np.ones(4), np.zeros(4)
for calls in (1, 20):
    for _ in range(calls):
        {call}
    names.append(" ".join(sys.modules))
if comm.rank == 0:
    print(*names, sep="\\n")
"""
CALLS = ["comm.Allreduce(x, out)", "comm.allreduce(1)", "comm.bcast(x)", "comm.Bcast(x)",
         "comm.allgather(2)"]  # fmt: skip
SLOW = ("click", "rich", "jinja2", "psutil", "msgspec", "concurrent", "dataclasses", "hashlib",
        "json", "logging", "random", "select", "socket", "subprocess", "tempfile", "tomllib",
        "uuid")  # fmt: skip
"""Modules that take milliseconds, and that commands and transports alone need."""
UNUSED = (
    "mpicoll.gpu.", "mpicoll.simulator.", "mpicoll.costs.", "mpicoll.explain.",
    "mpicoll.peers.contact", "mpicoll.mpi.nccl", "mpicoll.mpi.communicator.levels",
    "mpicoll.flight.reader", "mpicoll.cli.ending", "mpicoll.defaults.tables",
    "mpicoll.algorithms.", "mpicoll.lowering.", "mpicoll.calls.", "mpicoll.backend",
    "mpicoll.notation.",
)  # fmt: skip
"""Neither commands, GPUs, other nodes, plans nor files of a job."""


@pytest.mark.launches
@pytest.mark.parametrize("call", CALLS)
def test_calls_import_no_more_than_they_need(tmp_path: Path, call: str) -> None:
    """Each rank of several imports what serves calls with `mpi4py.MPI`, and none in a call."""
    (path := tmp_path / "program.py").write_text(STAGES.format(call=call))
    done = ranks(2, "-m", "mpicoll.run", str(path), merged=False)
    assert done.returncode == 0, done.stdout + done.stderr
    start, first, later = (set(line.split()) for line in done.stdout.splitlines())
    assert "mpicoll.mpi.communicator.channels" in start
    assert [name for name in later if name.startswith(UNUSED) or name in SLOW] == []
    assert len(of_ours(first)) <= SERVING
    for modules in (first, later):
        assert of_ours(modules - start) == []

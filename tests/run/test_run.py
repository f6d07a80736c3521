"""Programs that are written for mpi4py, run with our communicators in their place."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_variables import FEW
from launcher import mpirun, python, ranks

from mpicoll.run.__main__ import main
from mpicoll.trace.reading import load

PROGRAM = """
import importlib.util
spec = importlib.util.find_spec("mpi4py.MPI")  # before the import, as in a check for MPI
assert spec.origin == spec.loader.path
import atexit, pickle, sys, time
import mpi4py

def end():  # registered before the first call
    if MPI.Is_initialized() and not MPI.Is_finalized():
        time.sleep(0.1 * comm.rank)  # the others wait for long
        # In one piece, as the ranks write at the same time.
        sys.stdout.write(f"at exit {comm.allreduce(1)}\\n")
        sys.stdout.flush()

atexit.register(end)
mpi4py.rc.thread_level = "funneled"
mpi4py.rc.initialize = "itself" not in sys.argv
import numpy as np
from mpi4py import MPI
import mpicoll

if "itself" in sys.argv:
    MPI.Init_thread(MPI.THREAD_FUNNELED)

assert importlib.util.find_spec("mpi4py.MPI").origin == MPI.__file__
comm = MPI.COMM_WORLD
assert type(comm) is type(MPI.COMM_SELF) is mpicoll.Comm and isinstance(comm, MPI.Intracomm)
assert MPI.Query_thread() == MPI.THREAD_FUNNELED and __name__ == "__main__"
for each in (comm, MPI.Intracomm(comm)):
    assert pickle.loads(pickle.dumps(each)) == comm
assert pickle.loads(pickle.dumps(comm)) is comm
x, out = np.full(3, comm.rank + 1.0), np.empty(3)
for _ in range(100):
    comm.Allreduce(x, out)
    assert (out == sum(range(1, comm.size + 1))).all()
if comm.rank == 0:
    print(f"{comm.size} ranks, {sys.argv[1:]}")
if "itself" in sys.argv:
    MPI.Finalize()
    sys.exit(3)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.launches
def test_a_program_runs_on_ranks_and_is_traced(program: Path) -> None:
    trace = program.with_suffix(".trace")
    process = ranks(
        2, "-m", "mpicoll.run", "-v", "--trace", str(trace), str(program), "-x", "1",
        environment={"MPICOLL_ALGORITHM": "allreduce=ring"},
    )  # fmt: skip
    assert process.returncode == 0, process.stdout
    assert "2 ranks, ['-x', '1']" in process.stdout
    assert process.stdout.count("mpicoll.Comm takes the place of MPI.COMM_WORLD") == 1
    assert process.stdout.count("at exit 2") == 2
    kinds = [kind for kind in load(trace).kinds if kind.call == "allreduce"]
    assert sum(kind.calls for kind in kinds) == 100
    kind = max(kinds, key=lambda kind: kind.calls)  # the first call has no plan yet
    assert (kind.nbytes, kind.nodes, kind.calls) == (24, ((0, 1),), 99)
    assert kind.algorithm == "ring@symmetric"


MESSAGES = """
import numpy as np
from mpi4py import MPI

comm, x = MPI.COMM_WORLD, np.ones(8)
for _ in range(5):
    comm.sendrecv(1, dest=1 - comm.rank)
    comm.Ibcast(x).Wait()
    comm.Allreduce(MPI.IN_PLACE, x)
"""


@pytest.mark.launches
def test_a_trace_has_messages_and_waits(tmp_path: Path) -> None:
    (path := tmp_path / "program.py").write_text(MESSAGES)
    process = ranks(2, "-m", "mpicoll.run", "--trace", str(tmp_path / "trace"), str(path))
    assert process.returncode == 0, process.stdout
    messages = load(tmp_path / "trace").messages
    assert {(row.call, row.line, row.calls) for row in messages} == {
        ("sendrecv", "program.py:7", 5), ("Wait", "program.py:8", 5)
    }  # fmt: skip
    assert all(row.seconds > 0 for row in messages)


def test_a_module_that_starts_mpi_itself_runs_and_its_exit_status_is_kept(program: Path) -> None:
    process = python(
        "-m", "mpicoll.run", "-m", "program", "itself",
        environment={"PYTHONPATH": f"{program.parent}:{Path(__file__).parents[2]}"},
    )  # fmt: skip
    assert (process.returncode, process.stdout.strip()) == (3, "1 ranks, ['itself']")


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return a function that tries to run a program, and returns why it is refused."""
    started = "mpicoll.run.__main__.replace_communicators"
    monkeypatch.setattr(started, lambda: pytest.fail("it is started"))

    def run(*arguments: str, **environment: str) -> str:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert main([*arguments]) == 2
        message = capfd.readouterr().err
        assert message.startswith("Error: ") and "Traceback" not in message
        return message

    return run


@pytest.mark.parametrize(
    ("arguments", "variable", "message"),
    [
        ((), "", "name a program"),
        (("-m",), "", "name a program"),
        (("--fast", "x.py"), "", "neither a program nor -m"),
        (("--compare",), "", "--compare '': give the runs of each kind, 1 to 1000"),
        (("--compare", __file__), "", "give the runs of each kind"),
        (("--compare", "0", __file__), "", "--compare '0': give"),
        (("--compare=1001", __file__), "", "--compare '1001': give"),
        (("--compare", "-v", __file__), "", "--compare '-v': give"),
        (("--compare", "2"), "", "name a program"),
        (("-q", "--compare", "2", "nowhere.py"), "", "there is no file 'nowhere.py'"),
        (("--compare", "2", __file__), "allreduce=rnig", "did you mean 'ring'"),
        (("nowhere.py",), "", "there is no file 'nowhere.py'"),
        (("-m", "nowhere.py"), "", "there is no module 'nowhere.py'"),
        (("/dev/zero",), "", "is a device"),
        (("/proc/self/fd",), "", "a folder without a __main__.py"),
        (("nowhere.py",), "allreduce=rnig", "there is no file 'nowhere.py'"),
        ((__file__,), "allreduce=rnig", "did you mean 'ring'"),
    ],
)
def test_what_cannot_be_run(
    refused: Callable[..., str], arguments: tuple[str, ...], variable: str, message: str
) -> None:
    assert message in refused(*arguments, MPICOLL_ALGORITHM=variable)


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        ("letter.txt", "File exists"), ("letter.txt/trace", "Not a directory"),
        ("/dev/null", "File exists"), ("/proc/trace", "No such file or directory"),
        ("a" * 300, "File name too long"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["--trace {}", "--trace={}", "-v --trace {}"])
def test_a_trace_is_refused_before_the_program_runs(
    refused: Callable[..., str], tmp_path: Path, trace: str, reason: str, form: str
) -> None:
    """It may run for hours."""
    (letter := tmp_path / "letter.txt").write_text("a letter")
    (path := tmp_path / "program.py").write_text("print('runs')")
    message = refused(*form.format(tmp_path / trace).split(), str(path))
    assert message.startswith("Error: --trace ") and message.strip().endswith(reason)
    assert letter.read_text() == "a letter"


def test_the_variable_of_earlier_traces_is_refused(refused: Callable[..., str]) -> None:
    message = refused(__file__, MPICOLL_TRACE="trace.jsonl")
    assert message == "Error: MPICOLL_TRACE is no variable any more: use the option --trace DIR\n"


@pytest.mark.parametrize("arguments", [["--trace"], ["--trace=", __file__], ["--trace", "", "x"]])
def test_a_trace_needs_a_directory(refused: Callable[..., str], arguments: list[str]) -> None:
    assert "--trace: name a directory" in refused(*arguments)


def test_other_hosts_say_what_their_files_lack() -> None:
    place = {"PMI_RANK": "2", "PMI_SIZE": "4"}
    processes = [
        python(
            "-m", "mpicoll.run", "nowhere.py", environment={**place, "MPI_LOCALRANKID": local_rank}
        )
        for local_rank in "01"
    ]
    assert [process.returncode for process in processes] == [2, 2]
    # No launcher has ended the second one while it waited for the first.
    assert all(process.stdout.startswith("Error: rank 2 on ") for process in processes)


BAD_CONFIGURATION = ("MPICOLL_CONFIG", "nowhere.toml", "Error: cannot read nowhere.toml: No such")


ENDING = """
import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
{begin}
if comm.rank == 1:
    if sys.argv[1] == "raise":
        raise ValueError("of rank 1")
    sys.exit(0)
{call}
"""
"""A program that ends on rank 1 while the other ranks go on."""
CALLS = {
    "short": "comm.Allreduce(np.ones(1), np.ones(1))",
    "long": "comm.Alltoall(np.ones(300_000), np.ones(300_000))",
    "object": "comm.allgather(comm.rank)",
}


@pytest.mark.launches
@pytest.mark.parametrize("how", ["return", "raise"])
@pytest.mark.parametrize("begin", ["comm.Barrier()", ""])
@pytest.mark.parametrize("call", CALLS)
def test_ranks_that_wait_for_a_program_that_has_ended_say_so(
    tmp_path: Path, call: str, begin: str, how: str
) -> None:
    """Its process waits for them in MPI's end. In MPI they would wait for ever."""
    (path := tmp_path / "program.py").write_text(ENDING.format(begin=begin, call=CALLS[call]))
    process = ranks(3, "-m", "mpicoll.run", str(path), how, timeout=60)
    assert process.returncode != 0
    errors = [line for line in process.stdout.splitlines() if "RankLost: " in line]
    assert len(errors) == 2, process.stdout
    assert all(re.search(r"waits for rank 1\b.*whose program has ended", line) for line in errors)


LAST_CALL = """
import sys
from mpi4py import MPI
import numpy as np
comm, x, out = MPI.COMM_WORLD, np.ones(4), np.zeros(4)
comm.Allreduce(x, out)
comm.allreduce(1)
class Last:
    def __del__(self):
        try:
            comm.Allreduce(x, out)
            total = comm.allreduce(1)
            print(f"{total} {out.tolist()[0]}\\n", end="")  # at once, as both ranks write
        except Exception as error:
            print("raised", type(error).__name__)
last = Last() if comm.rank == 0 or "all" in sys.argv else None
"""


@pytest.mark.launches
@pytest.mark.parametrize(
    ("ranks_per_node", "caller", "words"),
    [
        (2, "one", ["raised", "RankLost"]),
        (2, "all", ["2", "2.0"] * 2),
        (1, "all", ["2", "2.0"] * 2),
    ],
)
def test_an_object_may_make_a_call_as_the_interpreter_ends(
    tmp_path: Path, ranks_per_node: int, caller: str, words: list[str]
) -> None:
    (path := tmp_path / "program.py").write_text(LAST_CALL)
    environment = {"MPICOLL_RANKS_PER_NODE": str(ranks_per_node)}
    process = ranks(2, "-m", "mpicoll.run", str(path), caller, timeout=60, environment=environment)
    assert process.stdout.split() == words


@pytest.mark.launches
@pytest.mark.parametrize("command", ["mpicoll.run", "mpicoll.bench"])
@pytest.mark.parametrize(("name", "value", "text"), [*FEW, BAD_CONFIGURATION])
def test_all_ranks_refuse_a_bad_variable_with_one_error(
    tmp_path: Path, command: str, name: str, value: str, text: str
) -> None:
    (path := tmp_path / "program.py").write_text("import mpi4py.MPI; print('started')")
    arguments = (str(path),) if command == "mpicoll.run" else ("allreduce",)
    process = ranks(2, "-m", command, *arguments, environment={name: value})
    assert process.returncode == 2, process.stdout
    assert process.stdout.count("Error: ") == 1 and text in process.stdout
    assert "Traceback" not in process.stdout and "started" not in process.stdout


@pytest.mark.launches
@pytest.mark.parametrize(
    "variable",
    [
        "MPICOLL_DEADLINE=soon", "MPICOLL_ALGORITHM=allreduce=rong", "MPICOLL_CONFIG=nowhere.toml",
        "MPICOLL_LOAD=nowhere.py",
    ],
)  # fmt: skip
def test_a_rank_that_is_refused_alone_says_why_and_ends_the_launch(
    tmp_path: Path, variable: str
) -> None:
    """MPICH's launcher and the other ranks wait for a rank that ends before it starts MPI."""
    (path := tmp_path / "program.py").write_text("import mpi4py.MPI")
    launcher = mpirun()
    assert launcher is not None
    command = ("-m", "mpicoll.run", str(path))
    first = (launcher, "-n", "1", sys.executable, *command)
    process = python(*command, prefix=(*first, ":", "-n", "1", "env", variable), timeout=60)
    assert process.returncode == 2, process.stdout
    assert "Error: rank 1 on " in process.stdout


def test_a_programs_error_is_printed_as_pythons(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("import numpy.nothing")
    process = python("-m", "mpicoll.run", str(path))
    assert process.returncode == 1
    assert "ModuleNotFoundError: No module named 'numpy.nothing'" in process.stdout


def test_a_hook_for_errors_that_was_there_before_is_called(tmp_path: Path) -> None:
    """As of `sitecustomize`, which may end all ranks; a program's own one, too."""
    hook = "import sys\nsys.excepthook = lambda kind, error, trace: print('hook:', error)\n"
    (tmp_path / "sitecustomize.py").write_text(hook)
    (path := tmp_path / "wrong.py").write_text("1 / 0")
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    process = python("-m", "mpicoll.run", str(path), environment=environment)
    assert (process.returncode, process.stdout) == (1, "hook: division by zero\n")

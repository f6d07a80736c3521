"""A program with and without mpicoll, run in turn."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from launcher import ROOT, python, ranks

from mpicoll.errors import ArgumentError
from mpicoll.machine.launchers import Launch
from mpicoll.machine.launches import LauncherProcess
from mpicoll.run import comparing
from mpicoll.run.comparing import Command, compare, find_command
from mpicoll.run.outcome import Kind, Outcome, RankTimes, Run

# -- the sentence and the table -------------------------------------------------------------


def make_run(seconds: float, body: float, served: bool = False, ranks: int = 2) -> Run:
    """Return a run whose ranks make 100 calls of Bcast and receive once."""
    times = [
        RankTimes("", 1.0, 1.0, 1.0 + body, None, 100, 16 if served else 100, [
            ("/home/me/solver.py", 41, "Bcast", 100, body / 2, 16 if served else 100),
            ("/home/me/solver.py", 50, "Recv", 1, body / 4, 1),
        ])
        for _ in range(ranks)
    ]  # fmt: skip
    return Run(seconds, 0, times)


def outcome_of(plain: Sequence[float], ours: Sequence[float], start: float = 1.0) -> Outcome:
    """Return the outcome of runs with these bodies; processes need `start` seconds beside."""
    outcome = Outcome("mpicoll.run", 2)
    for number, (first, second) in enumerate(zip(plain, ours, strict=True)):
        outcome.add(number, Kind.PLAIN, make_run(start + first, first))
        outcome.add(number, Kind.MPICOLL, make_run(start + second, second, served=True))
    return outcome


@pytest.mark.parametrize(
    ("plain", "ours", "sentence"),
    [
        ([4.0, 4.0, 4.4], [2.0, 2.0, 2.0],
         r"In 3 rounds, the program with mpicoll ran 2.00 \(2.00 to 2.20\) times as fast from its "
         r"first to its last communication\.\nAs a whole it ran 1.67 .* times as fast\.\n"
         r"mpicoll ran 84 of 100 collective calls\."),
        ([2.0, 2.0, 2.0], [4.0, 4.0, 5.0],
         r".* took 2.00 \(2.00 to 2.50\) times as long from .*\nAs a whole it took 1.67 .* times "
         r"as long\.\n.*\nSlower: Bcast at me/solver.py:41, Recv at me/solver.py:50\."),
        ([2.0, 4.0, 3.0], [4.0, 2.0, 3.0],
         r".* showed no sure difference, at 1.00 \(0.500 to 2.00\) times the speed from (?s:.*)"),
        ([2.0], [4.0],
         r"In 1 round, too few to decide \(--compare 3 does\), .* took 2.00 times as long (?s:.*)"),
        ([2.0, 2.0, 2.0], [2.01, 2.0, 2.01], r".* showed no sure difference, (?s:.*)"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_was_gained_or_lost(
    capsys: pytest.CaptureFixture[str], plain: list[float], ours: list[float], sentence: str
) -> None:
    outcome_of(plain, ours).print()
    sentences, *_ = capsys.readouterr().out.split("\n\n")
    assert re.fullmatch(sentence, sentences)


def test_the_table_has_the_whole_the_body_and_the_sites_that_changed_most(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome_of([4.0, 4.0, 4.4], [2.0, 2.0, 2.0]).print()
    lines = [
        re.split("  +", line.strip())
        for line in capsys.readouterr().out.split("\n\n")[1].splitlines()
    ]
    assert lines == [
        ["ms: median (least to most)", "calls", "by mpicoll", "as it is", "with mpicoll", "gained"],
        ["whole", "5000 (5000 to 5400)", "3000", "+2000"],
        ["first to last communication", "100", "84", "4000 (4000 to 4400)", "2000", "+2000"],
        ["Bcast at me/solver.py:41", "100", "84", "2000 (2000 to 2200)", "1000", "+1000"],
        ["Recv at me/solver.py:50", "1", "0", "1000 (1000 to 1100)", "500", "+500"],
    ]


@pytest.mark.parametrize(
    ("plain", "ours", "start", "advice"),
    [
        ([2.0] * 3, [4.0] * 3, 1.0,
         ["MPICOLL_ALGORITHM=broadcast=native leaves the slower calls to MPI.",
          "Without mpicoll.run the program is faster: leave it out, or try the variable."]),
        ([4.0] * 3, [2.0] * 3, 1.0, []),
    ],
)  # fmt: skip
def test_a_loss_comes_with_advice(
    capsys: pytest.CaptureFixture[str], plain: list[float], ours: list[float], start: float,
    advice: list[str],
) -> None:  # fmt: skip
    outcome_of(plain, ours, start).print()
    table = capsys.readouterr().out.split("\n\n")[1]
    assert table.splitlines()[5:] == advice


def test_a_start_that_costs_more_than_the_calls_gain_is_a_loss(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = Outcome("torchcoll.run", 1)
    for number in range(3):
        outcome.add(number, Kind.PLAIN, make_run(1.0, 0.2, ranks=1))
        outcome.add(number, Kind.MPICOLL, make_run(2.0, 0.1, ranks=1))
    outcome.print()
    assert "As a whole it took 2.00 times as long." in (text := capsys.readouterr().out)
    assert "The start of mpicoll in each process costs more than its calls gain" in text


def test_the_wait_of_the_first_call_for_later_ranks_is_no_time_of_a_call() -> None:
    place = "/solver.py", 1, "Barrier"
    early = RankTimes("", 10.0, 15.0, 20.0, place, 1, 1, [(*place, 1, 5.0, 1)])
    late = RankTimes("", 14.0, 15.0, 20.0, place, 1, 1, [(*place, 1, 1.0, 1)])
    run = Run(1.0, 0, [early, late])
    assert run.body == 6.0
    assert next(iter(run.places().values())).seconds == 1.0


def test_what_a_blocking_call_of_torch_waits_for_is_its_own_time() -> None:
    rank = RankTimes("", 1.0, 1.0, 2.0, None, 1, 1, [
        ("/train.py", 5, "allreduce", 1, 0.25, 0), ("/train.py", 5, "wait", 1, 0.5, 0),
        ("/train.py", 9, "wait", 1, 0.125, 0),
    ])  # fmt: skip
    seconds = {place.call: sums.seconds for place, sums in Run(1.0, 0, [rank]).places().items()}
    assert seconds == {"allreduce": 0.75, "wait": 0.125}


# -- the command that is repeated ------------------------------------------------------------


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Command]:
    """Return a function that finds the command of a launcher."""

    def find(
        launcher: str, words: str, module: str = "mpicoll.run", here: int = 2,
        arguments: str = "--compare 3 a.py -x",
    ) -> Command:  # fmt: skip
        process = LauncherProcess(os.getpid(), words.split()) if words else None
        monkeypatch.setattr(comparing, "find_launch", lambda: Launch(launcher, 2, 0))
        monkeypatch.setattr(comparing, "launcher_process", lambda: process)
        monkeypatch.setattr(comparing, "ranks_of_host", lambda: here)
        return find_command(module, arguments.split())

    return find


MPIRUN = "MPICH's mpirun"


@pytest.mark.parametrize(
    ("launcher", "module", "words", "plain", "ours"),
    [
        (MPIRUN, "mpicoll.run",
         "mpirun -bind-to core -n 2 env A=1 python -X dev -m mpicoll.run --compare 3 a.py -x",
         "mpirun -bind-to core -n 2 env A=1 python -X dev a.py -x",
         "mpirun -bind-to core -n 2 env A=1 python -X dev -m mpicoll.run a.py -x"),
        (MPIRUN, "mpicoll.run", "mpirun -n 2 bin/mpicoll run --compare 3 a.py -x",
         f"mpirun -n 2 {sys.executable} a.py -x",
         f"mpirun -n 2 {sys.executable} -m mpicoll.run a.py -x"),
        ("torchrun", "torchcoll.run",
         "python bin/torchrun --nproc-per-node 2 -m torchcoll.run --compare 3 a.py -x",
         "python bin/torchrun --standalone --nproc-per-node 2 a.py -x",
         "python bin/torchrun --standalone --nproc-per-node 2 -m torchcoll.run a.py -x"),
        ("torchrun", "torchcoll.run",
         "python -m torch.distributed.run --nproc-per-node 2 -m torchcoll.run --compare 3 a.py -x",
         "python -m torch.distributed.run --standalone --nproc-per-node 2 a.py -x",
         "python -m torch.distributed.run --standalone --nproc-per-node 2 "
         "-m torchcoll.run a.py -x"),
    ],
)  # fmt: skip
def test_the_command_of_the_launcher_is_repeated_with_its_options(
    launched: Callable[..., Command], launcher: str, module: str, words: str, plain: str, ours: str
) -> None:
    command = launched(launcher, words, module)
    assert command.words(Kind.PLAIN, module, ["a.py", "-x"]) == plain.split()
    assert command.words(Kind.MPICOLL, module, ["a.py", "-x"]) == ours.split()


RUN = "python -m mpicoll.run --compare 3 a.py -x"


@pytest.mark.parametrize(
    ("launcher", "words", "message"),
    [
        (MPIRUN, "", "finds none on this host"),
        ("srun", f"srun -n 2 {RUN}", "start it by mpirun or torchrun"),
        (MPIRUN, f"mpirun -n 1 solver : -n 2 {RUN}", "runs one program"),
        (MPIRUN, f"mpirun -n 2 {RUN} : -n 1 solver", "whose end must be python -m mpicoll.run"),
        (MPIRUN, "mpirun -n 2 ./wrapper.sh", "whose end must be python -m mpicoll.run"),
    ],
)
def test_a_command_that_cannot_be_repeated_is_refused(
    launched: Callable[..., Command], launcher: str, words: str, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        launched(launcher, words)


def test_torchrun_on_several_hosts_is_refused(launched: Callable[..., Command]) -> None:
    words = "torchrun --nnodes 2 -m torchcoll.run --compare 3 a.py -x"
    with pytest.raises(ArgumentError, match="of 2 ranks 1 are here"):
        launched("torchrun", words, "torchcoll.run", here=1)


# -- runs on one rank -------------------------------------------------------------------------


@pytest.fixture
def run_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Return a function that compares a program of one rank; it first runs as it is."""

    def run(text: str, rounds: int = 1) -> tuple[int, str, str]:
        (path := tmp_path / "program.py").write_text(text)
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = Command([sys.executable], 1, variables, [])
        monkeypatch.setattr(comparing, "find_command", lambda *_: command)
        monkeypatch.setattr(comparing.ending, "unwind_at_termination", lambda: None)
        monkeypatch.setattr(comparing.random, "sample", lambda kinds, _: kinds)
        status = compare(rounds, "mpicoll.run", [], [str(path)])
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return run


COMMUNICATE = "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"
IS_OURS = "import mpicoll\nis_ours = isinstance(MPI.COMM_WORLD, mpicoll.Comm)\n"


def test_the_output_of_one_run_is_printed(run_one: Any) -> None:
    status, out, err = run_one(
        COMMUNICATE + "import sys\nprint('out')\nprint('err', file=sys.stderr)"
    )
    assert (status, err) == (0, "err\n")
    assert out.startswith("out\nIn 1 round, ") and out.count("out\n") == 1
    assert "Barrier at " in out and "ran 0 of 1 collective calls" in out


def test_a_program_that_prints_much_is_compared(run_one: Any) -> None:
    status, out, _ = run_one(COMMUNICATE + "for i in range(100_000): print(i)")
    assert status == 0
    assert len(out.splitlines()) < 100_020


@pytest.mark.parametrize("end", ["sys.exit(3)", "os._exit(3)", "1 / 0", "os.kill(os.getpid(), 9)"])
def test_a_run_that_fails_passes_on_its_status_and_its_output(run_one: Any, end: str) -> None:
    """The drop-in's run fails here; it is the second one, whose output is not printed as it is."""
    program = f"import os, sys\n{COMMUNICATE}{IS_OURS}print('ours', is_ours, flush=True)\n"
    status, out, err = run_one(f"{program}if is_ours: {end}", rounds=2)
    expected = {"1 / 0": 1, "os.kill(os.getpid(), 9)": 137}.get(end, 3)
    assert (status, out) == (expected, "ours False\nours True\n")
    assert ("ZeroDivisionError" in err) == (end == "1 / 0")
    assert err.splitlines()[-1] == (
        f"Error: run 2 of 4, with mpicoll, ended with exit status {expected} (1 run as it is ended "
        "well): nothing is compared, as each run must end with status 0"
    )


def test_a_program_that_fails_as_it_is_is_not_compared(run_one: Any) -> None:
    status, out, err = run_one("import sys; print('out'); sys.exit(3)")
    assert (status, out) == (3, "out\n")
    assert err.startswith("Error: run 1 of 2, as it is, ended with exit status 3: nothing is")


def test_a_run_that_does_not_end_is_ended(run_one: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "_LIMIT_FACTOR", 0.0)
    monkeypatch.setattr(comparing, "_LIMIT_SECONDS", 2.0)
    program = "import time\n" + COMMUNICATE + IS_OURS + "if is_ours: time.sleep(600)"
    status, _, err = run_one(program)
    assert status == 3
    assert re.search("run 2 of 2, with mpicoll, had not ended after [0-9]+ s, and was ended", err)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print('hello')", "It does not communicate by mpi4py, so mpicoll runs no calls."),
        (COMMUNICATE + "import os; os._exit(0)", "Only 0 of 1 ranks left a record"),
    ],
)
def test_a_program_without_recorded_calls_is_told_by_its_whole_time(
    run_one: Any, program: str, reason: str
) -> None:
    status, out, _ = run_one(program)
    assert status == 0
    assert reason in out and "as a whole" in out


SEEN = """
import json, os, sys
from pathlib import Path
if "mpi4py" not in sys.argv:
    facts = [sys.path, os.environ.get("PYTHONPATH"), sys.argv, os.getcwd(), sys.flags.safe_path]
    path = Path({path!r})
    path.write_text(path.read_text() + json.dumps(facts) + "\\n" if path.exists() else
                    json.dumps(facts) + "\\n")
"""


def test_a_program_sees_nothing_of_the_recorder(run_one: Any, tmp_path: Path) -> None:
    run_one(SEEN.format(path=str(tmp_path / "seen")), rounds=2)
    plain = python(str(tmp_path / "program.py"), environment={"PYTHONPATH": str(ROOT)})
    assert plain.returncode == 0
    facts = (tmp_path / "seen").read_text().splitlines()
    assert len(facts) == 5
    assert {fact.replace(os.getcwd(), str(ROOT)) for fact in facts[:4]} == {facts[4]}


def test_a_users_sitecustomize_runs(
    run_one: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.marked = True")
    text = "import sys\nassert sys.marked\n" + COMMUNICATE
    original = comparing._recorded

    def recorded(command: Command, folder: str) -> dict[str, str]:
        searched = f"{tmp_path}:{command.variables['PYTHONPATH']}"
        return original(
            command._replace(variables={**command.variables, "PYTHONPATH": searched}), folder
        )

    monkeypatch.setattr(comparing, "_recorded", recorded)
    status, out, _ = run_one(text)
    assert status == 0 and "of 1 collective calls" in out


def test_all_runs_read_the_same_standard_input(tmp_path: Path) -> None:
    program, source = tmp_path / "program.py", tmp_path / "input"
    program.write_text(
        "import sys; data = sys.stdin.read(); assert len(data) == 300_000; print(len(data))"
    )
    source.write_text("x" * 300_000)
    shell = 'exec "$@" <"$0"'
    process = python(
        "-m", "mpicoll.run", "--compare", "2", str(program), prefix=("sh", "-c", shell, str(source))
    )
    assert process.returncode == 0, process.stdout
    assert process.stdout.startswith("300000\nIn 2 rounds")


# -- runs on ranks ---------------------------------------------------------------------------

LOOP = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
x, out = np.ones(4), np.empty(4)
for _ in range(100):
    comm.Allreduce(x, out)
    comm.bcast(1)
comm.sendrecv(1, dest=(comm.rank + 1) % comm.size)
if comm.rank == 0:
    print(f"{comm.size} ranks")
"""


@pytest.mark.launches
def test_a_program_on_ranks_is_compared(tmp_path: Path) -> None:
    (path := tmp_path / "program.py").write_text(LOOP)
    process = ranks(2, "-m", "mpicoll.run", "--compare", "1", str(path), merged=False)
    assert process.returncode == 0, process.stdout
    assert process.stdout.startswith("2 ranks\nIn 1 round, ")
    assert "mpicoll ran 200 of 200 collective calls" in process.stdout
    names = [name for name in ("Allreduce", "bcast", "sendrecv") if f"{name} at " in process.stdout]
    assert names == ["Allreduce", "bcast", "sendrecv"]


WAITS = """
import numpy as np
from mpi4py import MPI

comm, x = MPI.COMM_WORLD, np.ones(8)
for _ in range(20):
    comm.Ibcast(x).Wait()
"""


@pytest.mark.launches
def test_the_wait_of_a_nonblocking_call_counts_with_mpicoll_too(tmp_path: Path) -> None:
    (path := tmp_path / "program.py").write_text(WAITS)
    process = ranks(2, "-m", "mpicoll.run", "--compare", "1", str(path))
    assert process.returncode == 0, process.stdout
    (line,) = (line for line in process.stdout.splitlines() if line.startswith("Wait at"))
    assert " 20 " in line and " 0.00 " not in line


@pytest.mark.launches
def test_the_exit_status_of_a_program_on_ranks_is_passed_on(tmp_path: Path) -> None:
    (path := tmp_path / "program.py").write_text("import mpi4py.MPI, sys; sys.exit(3)")
    process = ranks(2, "-m", "mpicoll.run", "--compare", "2", str(path))
    assert process.returncode == 3
    assert process.stdout.count("Error: run 1 of 4, ") == 1

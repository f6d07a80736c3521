"""A study on real ranks: killed, resumed, with a launch that fails; and its outcome."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from launcher import LIMIT, QUIRKS, ROOT, mpirun, python

from mpicoll.errors import ArgumentError
from mpicoll.machine.living import has_ended
from mpicoll.records.lines import CaseRecord, LaunchRecord
from mpicoll.records.reading import load, only
from mpicoll.study import launching, running
from mpicoll.study.__main__ import advise, main
from mpicoll.study.description import Description, Environment, Factors
from mpicoll.study.description import load as load_description
from mpicoll.study.environments import LaunchEnvironment
from mpicoll.study.launching import ask_library, run, variables
from mpicoll.study.planning import plan

STUDY = """
launches = 1
seconds = 0.3
[factors]
collectives = ["allreduce"]
sizes = ["64"]
algorithms = ["ring"]
pairs = false
[[environments]]
name = "good"
algorithms = ["none"]
[[environments]]
name = "bad"
algorithms = ["none"]
variables = { MPICOLL_RANKS_PER_NODE = "x" }
"""


@pytest.mark.launches
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_a_study_is_killed_and_goes_on(tmp_path: Path) -> None:
    described, folder = tmp_path / "study.toml", tmp_path / "made"
    described.write_text(STUDY)
    command = ("-m", "mpicoll.study", str(described), "-o", str(folder))
    process = subprocess.Popen(
        (sys.executable, *command, "-v"), cwd=ROOT, env={**os.environ, **QUIRKS},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    first = next(line for line in process.stderr if line.startswith("["))
    assert re.match(r"\[ *1/2\] about \d+ s left: (good|bad)-2-choice, launch 1", first), first
    process.send_signal(signal.SIGKILL)
    process.communicate()
    result = python(*command)
    assert result.returncode == 1, result.stdout
    assert "bad-2-choice, launch 1 failed: " in result.stdout
    assert "Error: 1 of 2 configurations measured nothing: bad-2-choice: " in result.stdout
    good, bad = (
        load(folder / "launches" / f"{name}-2-choice-000.jsonl") for name in ("good", "bad")
    )
    (failed,) = bad
    assert isinstance(failed, LaunchRecord) and "MPICOLL_RANKS_PER_NODE" in str(failed.message)
    cases = only(CaseRecord, good)
    assert {case.algorithm for case in cases} == {"native", "ring"}
    assert {(case.environment, case.launch) for case in cases} == {("good", 0)}
    text = (folder / "findings.md").read_text()
    assert re.search(r"## Warnings\n\n- Every launch of bad-2-choice failed: exit", text)
    assert "\n- 1 launch of 2 configurations" in text
    # What is done stays done.
    times = {path: path.stat().st_mtime_ns for path in (folder / "launches").iterdir()}
    assert python(*command).returncode == 1
    assert times == {path: path.stat().st_mtime_ns for path in (folder / "launches").iterdir()}


def test_an_interrupted_launch_goes_on_with_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts again if the benchmark refuses them, as under other conditions."""
    (tmp_path / "launches").mkdir()
    study = Description(factors=Factors(collectives=["allreduce"], pairs=False))
    settings = Environment(name="x", algorithms=["none"])
    environment = LaunchEnvironment("x", settings, "single", "MPICH", "", False)
    configuration, *_ = plan(study, [environment]).configurations
    contents: list[str | None] = []

    def run_once(command: list[str], _environment: object, printed: Path, _limit: float) -> Any:
        output = Path(command[command.index("--resume") + 1])
        contents.append(output.read_text() if output.exists() else None)
        printed.write_text("")
        if len(contents) == 1:
            output.write_text("measured")
            raise KeyboardInterrupt
        return "refused"

    monkeypatch.setattr(launching, "run", run_once)
    with pytest.raises(KeyboardInterrupt):
        launching.launch(study, configuration, 0, tmp_path, 1.0)
    launching.launch(study, configuration, 0, tmp_path, 1.0)
    assert contents == [None, "measured", None]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import time; time.sleep(1000)", "it had not ended after 1 s"),
        ("raise SystemExit(7)", "exit status 7: it printed nothing"),
        ("import sys; sys.exit('Error: no memory')", "exit status 1: Error: no memory"),
        ("import sys; sys.exit('-----')", "exit status 1: it printed nothing"),
        pytest.param("import sys; sys.exit('Error: ' + 1000 * 'x')",
                     f"exit status 1: Error: {390 * 'x'}...", id="a long error"),
        ("import sys; sys.exit('not as root\\nmay break\\nat your risk\\n---')",
         "exit status 1: not as root may break at your risk"),
    ],
)  # fmt: skip
def test_why_a_launch_failed_is_told(program: str, reason: str, tmp_path: Path) -> None:
    limit = 1.0 if "after 1 s" in reason else LIMIT
    result = run((sys.executable, "-c", program), dict(os.environ), tmp_path / "printed", limit)
    assert result == reason


RUN = """
from mpicoll.study.launching import run
run((launcher,), dict(os.environ), folder / "printed", 2000)
"""
REPLAY = """
from mpicoll.trace import reading, replay
kind = reading.Kind("w", 2, (), "", "allreduce", 8, "float64", "sum", "ring", 1, 0.5, 1.0)
replay.mpirun = lambda: launcher
replay.replay(kind, 1.0)
"""


@pytest.mark.parametrize("starts", [RUN, REPLAY], ids=["study", "trace"])
def test_a_launcher_that_is_a_script_ends_with_who_started_it(starts: str, tmp_path: Path) -> None:
    launcher, started = tmp_path / "mpirun", tmp_path / "begun"
    launcher.write_text(
        f"#!/bin/sh\nsleep 2000 &\necho $! > {started}.new; mv {started}.new {started}\nwait\n"
    )
    launcher.chmod(0o755)
    code = "import os, sys, pathlib\nlauncher, folder = sys.argv[1], pathlib.Path(sys.argv[2])\n"
    arguments = (sys.executable, "-c", code + starts, str(launcher), str(tmp_path))
    with subprocess.Popen(arguments, cwd=ROOT) as study:
        until(started.exists)
        study.kill()
    until(lambda: has_ended(int(started.read_text())))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.launches
def test_a_library_is_asked_as_it_is_launched(tmp_path: Path) -> None:
    """By a launcher that prints the variables of its processes."""
    launcher = tmp_path / "launch"
    launcher.write_text("#!/bin/sh\nenv >&2\n")
    launcher.chmod(0o755)
    (tmp_path / "running").mkdir()
    settings = Environment(
        name="gpu", backends=["torch"], group="nccl", launcher=str(launcher),
        algorithms=["allreduce=ring_ll", "bcast=ring_simple"],
    )  # fmt: skip
    study = Description()
    _, forced = plan(
        study, [LaunchEnvironment("gpu", settings, "single", "MPICH", "", True)]
    ).configurations
    lines = str(ask_library(study, forced, tmp_path)).splitlines()
    assert "MPI4PY_RC_THREAD_LEVEL=single" in lines
    assert "NCCL_DEBUG=INFO" in lines and "TORCHCOLL_BACKEND=nccl" in lines
    assert "NCCL_ALGO=allreduce:ring;broadcast:ring" in lines
    assert "NCCL_DEBUG=INFO" not in [f"{k}={v}" for k, v in variables(forced).items()]


def fail_all_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all launches fail, by a clock that each moves by 10 s."""
    now = [100.0]

    def run(_: object, __: object, printed: Path, *___: object, **____: object) -> str:
        now[0] += 10
        printed.touch()
        return "it failed"

    clock = SimpleNamespace(monotonic=lambda: now[0], strftime=time.strftime)
    monkeypatch.setattr(launching, "run", run)
    for module in (launching, running):
        monkeypatch.setattr(module, "time", clock)


@pytest.mark.launches
def test_what_a_study_has_used_includes_what_it_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that each launch moves by 10 s; here and where the study goes on."""
    fail_all_launches(monkeypatch)
    settings = Environment(name="x", algorithms=["allreduce=ring"])
    study = Description(factors=Factors(pairs=False), launches=1)
    study_plan = plan(study, [LaunchEnvironment("x", settings, "single", "MPICH", "", False)])
    (tmp_path / "launches").mkdir()
    runner = running.Runner(study_plan, tmp_path)
    runner.run()
    assert runner.seconds_used() == running.Runner(study_plan, tmp_path).seconds_used() == 30
    # Both configurations failed; of those that the minutes leave out it is said that they are.
    assert (
        runner.shortage()
        == "2 of 2 configurations measured nothing: x-2-choice, x-2-forced1: it failed"
    )
    runner.records = {
        key: record for key, record in runner.records.items() if key[0] == "x-2-choice"
    }
    assert runner.shortage() == (
        "not launched, as the minutes were over: x-2-forced1; "
        "1 of 2 configurations measured nothing: x-2-choice: it failed"
    )


def test_a_study_that_ran_out_of_time_says_how_many_launches_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two launches was made: the others are neither an error nor left unsaid."""
    fail_all_launches(monkeypatch)
    settings = Environment(name="x", algorithms=["none"])
    study = Description(factors=Factors(pairs=False, ranks=[2, 4]), launches=2, minutes=0.3)
    study_plan = plan(study, [LaunchEnvironment("x", settings, "single", "MPICH", "", False)])
    (tmp_path / "launches").mkdir()
    runner = running.Runner(study_plan, tmp_path)
    runner.run()
    (remark,) = runner.cut_short()
    assert remark.startswith("1 of 2 launches of each configuration were made, as the minutes")
    assert not runner.not_launched()


def test_a_study_without_a_launch_that_measured_ends_with_1(tmp_path: Path) -> None:
    described, launcher = tmp_path / "study.toml", tmp_path / "lost"
    # It starts `true` on two ranks, as a plan tries, and nothing else.
    launcher.write_text('#!/bin/sh\ntest "$*" = "-bind-to none -n 2 true" && exit\n'
                        "echo no rank here >&2\nexit 127\n")  # fmt: skip
    launcher.chmod(0o755)
    environment = f'[[environments]]\nname = "x"\nalgorithms = ["none"]\nlauncher = "{launcher}"\n'
    described.write_text(f"launches = 1\n{environment}[factors]\npairs = false\n")
    result = CliRunner().invoke(main, [str(described), "-o", str(tmp_path / "made")])
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert "1 of 1 configuration measured nothing: x-2-choice: exit status 127: " in result.output
    assert "no rank here" in result.output.splitlines()[-1]


def test_launches_and_minutes_of_the_command_line_replace_those_of_the_file(tmp_path: Path) -> None:
    described, launcher, folder = (tmp_path / name for name in ("study.toml", "launch", "made"))
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    environment = f'[[environments]]\nname = "x"\nalgorithms = ["none"]\nlauncher = "{launcher}"\n'
    described.write_text(f"launches = 1\n{environment}[factors]\npairs = false\n")
    arguments = [str(described), "--dry-run", "--launches", "20", "--minutes", "7"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0 and "12 to 30" in result.output, result.output
    assert "no launch begins after 7 min" in result.output
    # A study that has begun goes on with them, and with no other change.
    description = load_description(described)
    folder.mkdir()
    running.store(description, folder)
    description.launches, description.minutes = 20, 7.0
    running.store(description, folder)
    description.seed = 1
    with pytest.raises(ArgumentError, match="minutes and launches may differ"):
        running.store(description, folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give -o DIR, or records"),
        (("--records",), "give FILES to --records"),
        (("no.toml",), "cannot read no.toml"),
        (("study.toml",), "study.toml describes a study, which needs a folder for its launches"),
        (("no.toml", "-o", "x"), "cannot read no.toml"),
        (("a.toml", "b.toml", "-o", "x"), "one file describes a study"),
    ],
)
def test_bad_usage_is_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and message in result.output


@pytest.mark.parametrize(
    ("launches", "minutes", "is_cut", "advice"),
    [
        (3, None, False, "--launches 6, about 2 min"),
        (3, 1.0, False, "--launches 6 --minutes 3, about 2 min"),
        (10, None, False, "an idle machine, or --launches 20, about 7 min"),
        (6, 8.0, True, "the same command with --minutes 16"),
        (2, 0.5, True, "the same command with --launches 6 --minutes 3"),
    ],
)
def test_the_advice_says_what_a_verdict_takes(
    launches: int, minutes: float | None, is_cut: bool, advice: str
) -> None:
    study = Description(launches=launches, minutes=minutes)
    runner: Any = SimpleNamespace(
        plan=SimpleNamespace(study=study, estimate=lambda count: 20.0 * count),
        cut_short=lambda: ["the minutes were over"] * is_cut,
    )
    assert advise(runner) == advice

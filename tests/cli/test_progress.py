"""The progress of long commands: where it appears, and what -q and -v change."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from launcher import ROOT, check_mark, mpirun

from mpicoll.cli import progress, verbosity
from mpicoll.cli.verbosity import Verbosity

STEPS = """
import sys
from mpicoll.cli import progress
from mpicoll.cli.verbosity import Verbosity, set_verbosity
set_verbosity(Verbosity[sys.argv[1]])
progress._DELAY = 0.0
for item in progress.tracked(["first", "second"], str):
    print("result", item)
"""

EXPLAIN = """
import sys
from mpicoll.cli import progress
from mpicoll.explain.__main__ import main
progress._DELAY = 0.0
main(["allreduce", "ring", *sys.argv[1:]])
"""
P2P = """
from mpicoll.cli import progress
from mpicoll.measurement.worlds import ALL_BACKENDS
from mpicoll.p2p.command import main
progress._DELAY = 0.0
main(["--backends", "mpi4py", "--sizes", "8", "--time", "0.5"], obj=ALL_BACKENDS)
"""


def run_on_terminal(*command: str, environment: dict[str, str] | None = None) -> tuple[str, str]:
    """Return what a command prints on standard output, a pipe, and on its terminal."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=writer, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **(environment or {})},
    )  # fmt: skip
    os.close(writer)
    shown = b""
    while True:
        try:
            block = os.read(reader, 4096)
        except OSError:  # the last writer has closed the terminal
            break
        if not block:
            break
        shown += block
    os.close(reader)
    output, _ = process.communicate()
    assert process.returncode == 0, shown.decode()
    return output, shown.decode()


@pytest.mark.parametrize("level", ["QUIET", "NORMAL", "VERBOSE"])
def test_a_terminal_shows_a_bar_unless_it_is_to_be_quiet(level: str) -> None:
    output, shown = run_on_terminal(sys.executable, "-c", STEPS, level)
    assert output == "result first\nresult second\n"
    assert ("second" in shown) == (level != "QUIET")
    assert (re.search(r"1/2.* about \d+ s left", shown) is not None) == (level != "QUIET")
    assert not shown or shown.endswith("\x1b[2K") or "\x1b[?25h" in shown  # the bar has gone


def test_a_bar_without_colours_where_the_user_wants_none() -> None:
    _, shown = run_on_terminal(sys.executable, "-c", STEPS, "NORMAL", environment={"NO_COLOR": "1"})
    assert "second" in shown and not re.search(r"\x1b\[[\d;]*3\dm", shown)


@pytest.mark.parametrize(
    ("level", "lines"),
    [("QUIET", []), ("NORMAL", []), ("VERBOSE", ["[1/2] first", "[2/2] about 0 s left: second"])],
)
def test_a_file_gets_no_bar_and_lines_only_if_it_is_to_be_verbose(
    level: str, lines: list[str], tmp_path: Path
) -> None:
    with open(tmp_path / "errors", "w+") as errors:
        command = (sys.executable, "-c", STEPS, level)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
        errors.seek(0)
        printed = [line for line in errors.read().splitlines() if not line.startswith("mpicoll ")]
    assert [line for line in printed if not line.startswith("MPICOLL_")] == lines


@pytest.mark.launches
@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_the_first_rank_shows_a_bar_on_the_terminal_of_its_launcher() -> None:
    check_mark()
    launcher = mpirun()
    assert launcher is not None
    _, shown = run_on_terminal(launcher, "-n", "2", sys.executable, "-c", P2P)
    # The first of three pairs (rank 0, rank 1, and both) in at least three blocks.
    assert len(re.findall(r"1/9.* about \d+ s left", shown)) == 1
    assert "ranks 0 and 1 (mpi4py)" in shown


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("", "ring"), ("ring.svg", "ring"), ("ring.html", "ring"), ("ring.goal", "rank 3"),
        ("ring.et", "rank 3"), ("ring.xml", "rank 3"),
    ],
)  # fmt: skip
def test_explain_shows_what_it_does(name: str, step: str, tmp_path: Path) -> None:
    flags = ["-o", str(tmp_path / name)] if name else []
    _, shown = run_on_terminal(sys.executable, "-c", EXPLAIN, *flags)
    assert step in shown


def test_a_bar_appears_after_two_seconds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "is_progress_visible", lambda: True)
    monkeypatch.setattr(progress, "_new_bar", lambda *_: pytest.fail("the bar appears"))
    assert [*progress.tracked(range(100), str)] == [*range(100)]


@pytest.mark.parametrize(("flag", "level"), [("-q", Verbosity.QUIET), ("-v", Verbosity.VERBOSE)])
@pytest.mark.parametrize("command", ["compare", "doctor", "costs", "trace", "study", "bench"])
def test_all_commands_take_the_flags(
    flag: str, level: Verbosity, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbosity, "_verbosity", Verbosity.NORMAL)
    main = import_module(f"mpicoll.{command}.__main__").main
    (option,) = [option for option in main.params if flag in option.opts]
    option.callback(None, option, True)
    assert verbosity.verbosity() is level

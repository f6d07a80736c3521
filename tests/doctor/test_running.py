"""The verdict on a running job: which job, what may be read, and what the late rank's host says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest
from click.testing import CliRunner
from synthetic_job import Work, worked

from mpicoll.doctor.__main__ import main
from mpicoll.doctor.host import busy_processes, frequency, memory_pressure
from mpicoll.doctor.late_rank import Lines, chosen, remarks
from mpicoll.doctor.running import idle
from mpicoll.engine import _compiled
from mpicoll.errors import ArgumentError
from mpicoll.flight.job import check_access
from mpicoll.flight.layout import HEAD, SUFFIX
from mpicoll.flight.recorder import Recorder
from mpicoll.flight.stack_text import Frame
from mpicoll.verdict.judging import judge

NOBODY = 65534


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "400"})
    return result.output


def record(
    directory: Path, monkeypatch: pytest.MonkeyPatch, name: str = "job-of-a-test"
) -> Recorder:
    """Return the recorder of a rank that runs."""
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(directory))
    return Recorder("job-of-a-test", (0, 2), writers=_compiled)


def test_without_a_running_job_the_message_names_the_other_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"no job has left flight files in {tmp_path}" in _job_output(tmp_path, monkeypatch)
    record(tmp_path, monkeypatch).close()
    text = _job_output(tmp_path, monkeypatch)
    assert f"no job with flight files in {tmp_path} runs" in text
    assert "mpicoll.postmortem" in text


def _job_output(directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(directory))
    return run("--job", "--seconds", "0")


def test_the_only_job_that_runs_is_taken_and_several_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = record(tmp_path / "over", monkeypatch)
    first = record(tmp_path / "first", monkeypatch)
    over.close()
    try:
        assert f"{tmp_path / 'first'}, 1 ranks" in _job_output(tmp_path, monkeypatch)
        second = record(tmp_path / "second", monkeypatch)
        text = _job_output(tmp_path, monkeypatch)
        second.close()
    finally:
        first.close()
    assert "program" in text and str(tmp_path / "first") in text
    assert "python -m mpicoll.doctor --job" in text
    assert str(tmp_path / "over") not in text


def test_the_current_directory_is_no_job_that_runs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = record(tmp_path / "running", monkeypatch)
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    try:
        assert "has no flight files" in run("--job", ".")
    finally:
        running.close()


def test_the_directory_of_another_user_is_refused_by_name(tmp_path: Path) -> None:
    """Another user runs the check, in a child: a process of root may read all."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    tmp_path.chmod(0o700)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        try:
            check_access(tmp_path)
        except ArgumentError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    assert f"{tmp_path} belongs to " in text
    assert "you may not read it" in text


def test_a_file_of_another_version_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, monkeypatch).close()
    [path] = tmp_path.glob(f"*{SUFFIX}")
    data = bytearray(path.read_bytes())
    data[8] = 1
    data[HEAD.size - 4 : HEAD.size] = crc32(bytes(data[: HEAD.size - 4])).to_bytes(4, "little")
    path.write_bytes(data)
    assert "of version 1; this mpicoll reads" in run("--job", str(tmp_path))


def _is_busy(process: int) -> bool:
    return process in {busy.pid for busy in busy_processes(os.getpid())}


def test_a_busy_process_on_the_cores_is_named() -> None:
    source = "import time\nuntil = time.monotonic() + 60\nwhile time.monotonic() < until: pass"
    hog = subprocess.Popen((sys.executable, "-c", source))
    try:
        is_named = any(_is_busy(hog.pid) for _ in range(50))
    finally:
        hog.kill()
        hog.wait()
    assert is_named


def test_facts_of_the_host_are_optional() -> None:
    assert (ratio := frequency(os.getpid())) is None or ratio > 0
    assert isinstance(memory_pressure(), str)


def test_a_rank_of_another_host_is_told_where_to_ask() -> None:
    verdict = judge(
        worked([[Work(2), Work(2), Work(7), Work(2)]] * 30, hosts=["h", "h", "far", "h"])
    )
    [text] = remarks(verdict)
    assert text.startswith("Rank 2 is not a process of this host: run this command on far")


def lines(paths: dict[tuple[Frame, ...], int], in_calls: int = 0) -> Lines:
    """Return stacks, so many at each path, and so many in the call of `main`."""
    return Lines(
        [path for path, count in paths.items() for _ in range(count)],
        [(CALL, OUTER) for _ in range(in_calls)],
    )


OUTER, CALL = Frame("train.py", 90, "<module>"), Frame("train.py", 41, "main")
EQUAL, CAUSE = Frame("train.py", 38, "main"), Frame("train.py", 40, "main")
HELPER, OTHER = Frame("work.py", 12, "compute"), Frame("work.py", 13, "compute")


@pytest.mark.parametrize(
    ("late_paths", "path", "caller"),
    [
        ({(CAUSE, OUTER): 9, (EQUAL, OUTER): 3}, (CAUSE, OUTER), OUTER),
        ({(HELPER, CAUSE, OUTER): 9, (HELPER, EQUAL, OUTER): 3}, (HELPER, CAUSE, OUTER), CAUSE),
        # The lines of a helper share the stacks: its caller has most of them.
        ({(HELPER, CAUSE, OUTER): 6, (OTHER, CAUSE, OUTER): 6}, (CAUSE, OUTER), OUTER),
    ],
)  # fmt: skip
def test_the_line_is_named_that_only_the_late_rank_is_at(
    late_paths: dict[tuple[Frame, ...], int], path: tuple[Frame, ...], caller: Frame
) -> None:
    peer = lines({(HELPER, EQUAL, OUTER): 3, (EQUAL, OUTER): 3}, in_calls=12)
    line = chosen(lines(late_paths), peer)
    assert line and line[:2] == (path, caller)


def test_no_line_is_named_where_the_late_rank_is_at_the_lines_of_the_others() -> None:
    """Such as a root that pickles an object in its call."""
    peer = lines({(EQUAL, OUTER): 8}, in_calls=12)
    assert chosen(lines({(EQUAL, OUTER): 2, (OUTER,): 1}, in_calls=40), peer) is None
    peer = lines({(EQUAL, OUTER): 3}, in_calls=45)
    assert chosen(lines({(EQUAL, OUTER): 4}, in_calls=44), peer) is None
    assert chosen(lines({}), peer) is None


def test_a_job_that_makes_no_calls_meanwhile_is_idle() -> None:
    dumps = worked([[Work(2), Work(2), Work(7), Work(2)]] * 30)
    last = max(entry.end for dump in dumps for entry in dump.entries)
    first, *_ = idle(dumps, last + 1)
    assert first.startswith("No rank has made a call for ")
    assert "since allreduce 30, from train.py:40 in step." in first
    assert list(idle(dumps, last)) == []

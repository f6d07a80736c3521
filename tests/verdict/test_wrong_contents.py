"""Files with right checksums and wrong contents: a clear answer, in bounded time and memory."""

from __future__ import annotations

import fcntl
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from time import process_time

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from wrong_files import FlightFile, flight_file, flight_files

from mpicoll.doctor.running import tell
from mpicoll.errors import ArgumentError
from mpicoll.exports.jobs import export
from mpicoll.postmortem.__main__ import main as postmortem
from mpicoll.trace.__main__ import main as trace

_SECONDS, _BYTES = 60, 1 << 30
"""Of the processor, and of memory, for one job: far more than any needs."""
_SETTINGS = settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow,
                           HealthCheck.data_too_large],
)  # fmt: skip


@contextmanager
def bounded() -> Iterator[None]:
    """Fail where what is done takes much time or memory."""
    began, before = process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert process_time() - began < _SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < _BYTES


def folder_of(place: Path, files: list[FlightFile]) -> Path:
    """Return a new folder with these files."""
    folder = place / "job"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in files:
        (folder / file.name).write_bytes(file.content)
    return folder


def is_answer(result: Result) -> bool:
    """Whether a command has printed its answer, or one clear error."""
    refused = result.exit_code == 2 and result.output.count("Error: ") == 1
    return "Traceback" not in result.output and "\x1b[2J" not in result.output and (
        result.exit_code == 0 or refused
    )  # fmt: skip


@_SETTINGS
@given(files=flight_files(), stacks=st.binary(max_size=300))
def test_postmortem_of_wrong_contents(
    tmp_path: Path, files: list[FlightFile], stacks: bytes
) -> None:
    folder = folder_of(tmp_path, files)
    (folder / files[0].name).with_suffix(".stacks").write_bytes(stacks)
    options = [
        "-o", str(tmp_path / "page.html"), "--torch", str(tmp_path / "torch"), "--stacks",
        "--export", "perfetto", str(tmp_path / "trace.json"),
        "--export", "prometheus", str(tmp_path / "metrics.prom"),
    ]  # fmt: skip
    with bounded():
        result = CliRunner().invoke(postmortem, [str(folder), *options])
    assert is_answer(result), result.output


@_SETTINGS
@given(files=flight_files(), is_alive=st.booleans())
def test_the_doctor_on_wrong_contents(
    tmp_path: Path, files: list[FlightFile], is_alive: bool
) -> None:
    folder = folder_of(tmp_path, files)
    out = Console(file=StringIO(), width=120)
    with bounded(), (folder / files[0].name).open() as held:
        if is_alive:
            fcntl.flock(held, fcntl.LOCK_EX)
        with suppress(ArgumentError):
            dumps = tell(out, folder, 0.0)
            export(dumps, [("perfetto", tmp_path / "a"), ("prometheus", tmp_path / "b")])


@_SETTINGS
@given(files=flight_files())
def test_the_list_of_jobs_with_wrong_contents(tmp_path: Path, files: list[FlightFile]) -> None:
    second = tmp_path / "all" / "second"
    second.mkdir(parents=True, exist_ok=True)
    for number in range(2):
        folder = folder_of(tmp_path / "all", files)
        if number == 0:
            shutil.rmtree(second)
            folder.rename(second)
    with bounded():
        environment = {"MPICOLL_FLIGHT_DIR": str(tmp_path / "all")}
        result = CliRunner().invoke(postmortem, [], env=environment)
    assert is_answer(result), result.output


@_SETTINGS
@given(files=flight_files())
def test_a_trace_of_wrong_contents(tmp_path: Path, files: list[FlightFile]) -> None:
    folder = folder_of(tmp_path, files)
    with bounded():
        result = CliRunner().invoke(trace, [str(folder)])
    assert is_answer(result), result.output


_CALLS = [(1000 * number, 1000 * number + 500) for number in range(1, 20)]
_OPEN = [*_CALLS, (50_000, 0)]


def told(place: Path, *files: FlightFile) -> str:
    """Return what the post-mortem says on these files."""
    with bounded():
        result = CliRunner().invoke(
            postmortem, [str(folder_of(place, [*files])), "-o", str(place / "page.html")],
            env={"COLUMNS": "400"},
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    return result.output


def test_one_of_two_files_of_a_rank_is_left_out_and_named(tmp_path: Path) -> None:
    first, second, third = (flight_file(rank, "0-2", _CALLS) for rank in range(3))
    earlier = flight_file(1, "0-2", _OPEN, process=99)
    later = flight_file(1, "0-2", _OPEN, process=98, began=5)
    text = told(tmp_path, first, second, third, earlier, later)
    for file in (second, earlier):
        assert f"damaged: {file.name}: another file of rank 1, and left out" in text
    assert "was process 98 on a" in text


@pytest.mark.parametrize("ranks", ["0,0,0", "0-2,1", "", "x", "0-70000"])
def test_a_group_whose_ranks_are_no_group_has_no_calls(tmp_path: Path, ranks: str) -> None:
    text = told(tmp_path, *(flight_file(rank, ranks, _OPEN) for rank in range(3)))
    assert "Calls that all ranks have recorded: 0," in text


@pytest.mark.parametrize("wrong", range(3))
@pytest.mark.parametrize(
    "times", [(0, (1 << 63) - 1), ((1 << 63) - 2, (1 << 63) - 1), (1 << 62, 1 << 62), (0, 1)]
)
def test_extreme_times_fill_no_memory(tmp_path: Path, wrong: int, times: tuple[int, int]) -> None:
    rows = [[*_CALLS] for _ in range(3)]
    for place in (0, 14, -1):
        rows[wrong][place] = times
    text = told(tmp_path, *(flight_file(rank, "0-2", rows[rank]) for rank in range(3)))
    assert "moving data" in text
    assert max(map(len, text.splitlines())) < 1000


@pytest.mark.parametrize("ranks", ["0-65535", "0,1,2,3-65535"])
def test_the_ranks_of_other_hosts_take_one_sentence(tmp_path: Path, ranks: str) -> None:
    """Their files lie on their own hosts, where the folder is local to a node."""
    text = told(tmp_path, *(flight_file(rank, ranks, _OPEN) for rank in range(3)))
    assert "Ranks 3-65535 have not come: they have left no file in this directory." in text
    assert "and 65504 more ranks" in text and len(text.splitlines()) < 60
    page = (tmp_path / "page.html").read_text()
    assert "65501 more ranks have left no file" in page and len(page) < 200_000

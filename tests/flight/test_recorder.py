"""What a rank records, and what stays of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launcher import LIMIT, python

import mpicoll
from mpicoll.engine import _compiled
from mpicoll.errors import ArgumentError, RankLost
from mpicoll.flight import asked, directory, groups, recorder, stacks
from mpicoll.flight.diagnosis import diagnose
from mpicoll.flight.layout import SUFFIX, Outcome
from mpicoll.flight.reader import Dump, read_all
from mpicoll.flight.records import Location
from mpicoll.flight.words import sentences


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the ranks of a test record."""
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path))
    monkeypatch.setattr(RankLost, "found_in", "")
    return tmp_path


def recorded(place: Path, function: Any, size: int = 3) -> list[Dump]:
    """Return what ranks have recorded when all have run a function."""
    barrier = threading.Barrier(size)
    dumps: list[Dump] = []

    def run(c: mpicoll.Collectives) -> None:
        function(c)
        barrier.wait()
        if c.rank == 0:
            dumps.extend(read_all(place)[0])
        barrier.wait()

    mpicoll.threads(size)(run)
    return dumps


def test_all_ranks_count_the_same_calls_of_a_group(place: Path) -> None:
    def run(c: mpicoll.Collectives) -> None:
        x = np.ones(4)
        for _ in range(3):
            c.allreduce(x)
        with c.plan("broadcast", x, root=1, algorithm="binomial@point-to-point") as plan:
            plan.run()
            plan.start().wait()
        part = c.split(c.rank % 2)
        assert part is not None
        part.barrier(algorithm="native")

    dumps = recorded(place, run)
    assert [dump.rank for dump in dumps] == [0, 1, 2]
    calls = [
        [
            (entry.sequence, entry.call.collective)
            for entry in dump.entries
            if entry.group.name == "world"
        ]  # type: ignore[union-attr]
        for dump in dumps
    ]
    assert calls[0] == calls[1] == calls[2]
    names = ["allreduce"] * 3 + ["plan of broadcast"] + ["broadcast"] * 2 + ["split"]
    assert [name for _, name in calls[0]] == names
    assert [sequence for sequence, _ in calls[0]] == list(range(1, 8))
    last = dumps[0].entries[-1]
    assert last.call.algorithm == "native" and last.call.collective == "barrier"
    assert last.group is not None and last.group.ranks == "0,2"
    assert all(entry.outcome is Outcome.COMPLETED for dump in dumps for entry in dump.entries)
    wheres = {entry.location.file for dump in dumps for entry in dump.entries if entry.location}
    assert wheres == {__file__}


def _by_a_method(c: mpicoll.Collectives) -> None:
    x = np.ones(4)
    for _ in range(4):
        c.allreduce(x)


def _by_a_plan(c: mpicoll.Collectives) -> None:
    plan = c.plan("allreduce", np.ones(4))
    for _ in range(4):
        plan.run()


def _by_a_started_plan(c: mpicoll.Collectives) -> None:
    plan = c.plan("allreduce", np.ones(4))
    for _ in range(4):
        plan.start().wait()


def _by_a_new_frame(c: mpicoll.Collectives) -> None:
    x = np.ones(4)

    def step() -> None:
        c.allreduce(x)

    for _ in range(4):
        step()


def _by_a_callback(c: mpicoll.Collectives) -> None:
    list(map(c.allreduce, [np.ones(4)] * 4))


@pytest.mark.parametrize(
    ("calls", "line", "function"),
    [
        (_by_a_method, 3, "_by_a_method"),
        (_by_a_plan, 3, "_by_a_plan"),
        (_by_a_started_plan, 3, "_by_a_started_plan"),
        (_by_a_new_frame, 4, "_by_a_new_frame.<locals>.step"),
        (_by_a_callback, 1, "_by_a_callback"),
    ],
)
def test_a_call_has_the_line_of_the_users_source(
    place: Path, calls: Callable[[mpicoll.Collectives], None], line: int, function: str
) -> None:
    """The first calls are served by Python, the later ones by the extension."""
    first = calls.__code__.co_firstlineno
    for dump in recorded(place, calls):
        entries = [entry for entry in dump.entries if entry.call.collective == "allreduce"]
        assert len(entries) == 4
        assert {entry.location for entry in entries} == {Location(__file__, first + line, function)}


def test_threads_that_join_at_once_share_a_recorder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_of_process", [])
    monkeypatch.setattr(stacks, "watch", lambda *_arguments, **named: False)
    monkeypatch.setattr(RankLost, "raised", RankLost.raised)
    flights: list[groups.GroupFlight | None] = []

    def exchange(item: Any, kind: Any) -> list[Any]:
        return [item, item]

    def meanwhile(item: Any, kind: Any) -> list[Any]:
        flights.append(groups.join(exchange, 0, 2, writers=_compiled))
        return [item, item]

    flights.append(groups.join(meanwhile, 0, 2, writers=_compiled))
    assert len({flight.recorder for flight in flights if flight is not None}) == 1
    assert len(list(place.rglob(f"*{SUFFIX}"))) == 1
    for open_recorder in groups._of_process:
        open_recorder.end(None)


def test_a_call_that_raises_keeps_the_files(place: Path) -> None:
    def run(c: mpicoll.Collectives) -> None:
        c.allreduce(np.ones(3))
        if c.rank == 1:
            raise ValueError("rank 1 leaves")
        c.allreduce(np.ones(3))

    with pytest.raises(ValueError, match="rank 1 leaves"):
        mpicoll.threads(3)(run)
    dumps, _ = read_all(place)
    assert any("rank 1 leaves" in text for text in dumps[1].errors)
    lost = dumps[0].entries[-1]
    assert lost.outcome is Outcome.RAISED and "rank 1" in lost.error
    assert f"python -m mpicoll.postmortem {place}" in lost.error


def test_nothing_stays_of_a_run_that_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("MPICOLL_FLIGHT_DIR", raising=False)
    mpicoll.threads(2)(lambda c: c.barrier())
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_another_rank_removes_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank of a short run may end before another has opened its file."""
    paths: list[Path] = []

    def opened(job: str) -> Path:
        paths.append(place / job)
        paths[-1].mkdir()
        if len(paths) < 3:
            paths[-1].rmdir()
        return paths[-1]

    monkeypatch.setattr(recorder, "opened", opened)
    recorder.Recorder("job", (0, 1), writers=_compiled).close()
    assert len(paths) == 3
    assert [file.suffix for file in paths[-1].iterdir()] == [SUFFIX]


def test_a_process_that_two_threads_end(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one comes while the first still writes the error down."""
    ended = recorder.Recorder(directory.new_name(), (0, 1), writers=_compiled)
    monkeypatch.setattr(ended, "describe", lambda error: ended.end())
    ended.end(RankLost("rank 1 has ended"))
    assert ended.memory is None


def test_few_directories_of_ended_jobs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("MPICOLL_FLIGHT_DIR", raising=False)
    for number in range(directory.MAX_JOBS + 5):
        directory.opened(f"job-{number}")
    folders = list(directory.home().iterdir())
    assert len(folders) == directory.MAX_JOBS
    assert directory.home().stat().st_mode & 0o777 == 0o700


def test_the_switch_turns_it_off(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPICOLL_FLIGHT", "0")
    mpicoll.threads(2)(lambda c: c.barrier())
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(("local", "warnings"), [("0", 1), ("1", 0)])
def test_a_run_goes_on_where_nothing_can_be_written(
    place: Path, local: str, warnings: int, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """One process says so for all of its host, and which one it is."""
    for name, value in (("PMI_RANK", "3"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", local)):
        monkeypatch.setenv(name, value)
    (place / "file").touch()
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(place / "file" / "below"))
    monkeypatch.setattr(groups, "_warned", [])
    assert mpicoll.threads(2)(lambda c: int(c.allreduce(np.ones(1, int))[0])) == [2, 2]
    error = capfd.readouterr().err
    assert (
        error.count("calls are not recorded: /") == error.count("warning: rank 3 on ") == warnings
    )


def test_somebody_elses_directory_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("MPICOLL_FLIGHT_DIR", raising=False)
    directory.home().mkdir(mode=0o777)
    directory.home().chmod(0o777)
    with pytest.raises(PermissionError, match="not a directory of this user's alone"):
        directory.opened("job")


def test_a_users_own_handler_stays(tmp_path: Path) -> None:
    def handle(*_arguments: object) -> None: ...

    original = signal.signal(signal.SIGUSR1, handle)
    try:
        assert not stacks.watch(tmp_path / "stacks")
        assert signal.getsignal(signal.SIGUSR1) is handle
    finally:
        signal.signal(signal.SIGUSR1, original)


HANDLED = """
import ctypes, faulthandler, os, signal, sys
from pathlib import Path
from mpicoll.engine import _compiled
from mpicoll.flight import asked

folder, owner, moment = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
file, calls, ending = open(folder / "file", "w+"), [], memoryview(bytearray(64))
of_library = ctypes.CFUNCTYPE(None, ctypes.c_int)(calls.append)

def install():
    if owner == "faulthandler":
        faulthandler.register(signal.SIGUSR1, file=file)
        faulthandler.enable(file=file)
    elif owner == "python":
        signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
    else:
        ctypes.CDLL(None).signal(signal.SIGUSR1, of_library)

if moment == "before":
    install()
asked.watch(_compiled, ending, folder / "stacks")
if moment == "after":
    install()
    asked.unwatch()  # as a forked child does, and the end of the process
os.kill(os.getpid(), signal.SIGUSR1)
if owner == "faulthandler":
    assert "in <module>" in (folder / "file").read_text() and faulthandler.is_enabled()
else:
    assert calls == [signal.SIGUSR1]
assert (folder / "stacks").exists() == (owner == "library" or moment == "after")
if moment == "before":
    signal.signal(signal.SIGTERM, lambda *given: None)
    asked.unwatch()
    asked.watch(_compiled, ending, folder / "again")
    os.kill(os.getpid(), signal.SIGTERM)
    assert ending.cast("I")[1] == signal.SIGTERM
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("owner", ["faulthandler", "python", "library"])
def test_a_handler_that_others_install_stays(tmp_path: Path, owner: str, moment: str) -> None:
    """Installed before the first group or after it; MPICH is a library that has one."""
    process = python("-c", HANDLED, str(tmp_path), owner, moment)
    assert process.returncode == 0, process.stdout


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from mpicoll.engine import _compiled
from mpicoll.flight import asked

signal.signal(signal.SIGTERM, lambda *given: os.write(end, b"x"))
asked.watch(_compiled, memoryview(bytearray(64)), Path(sys.argv[1]))
start, end = os.pipe()
if not os.fork():
    while Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        pass
    os.kill(os.getppid(), signal.SIGTERM)
    os._exit(0)
os.read(start, 1)  # ends by what the handler writes
"""


def test_a_handler_of_python_interrupts_a_system_call_as_before(tmp_path: Path) -> None:
    process = python("-c", INTERRUPTED, str(tmp_path / "stacks"), timeout=60)
    assert process.returncode == 0, process.stdout


def test_only_a_process_that_catches_the_signal_gets_it() -> None:
    child = os.fork()
    if not child:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        signal.pause()
        os._exit(0)
    try:
        stacks.ask(child)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL


REQUESTED_STACKS = """
import ctypes, os, pathlib, signal, sys, threading, time
from mpicoll.engine import _compiled
from mpicoll.flight import asked

path = pathlib.Path(sys.argv[1])
asked.watch(_compiled, memoryview(bytearray(64)), path)
assert path.exists()

def begin_and_end():
    while True:
        threads = [threading.Thread(target=os.getpid) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

threading.Thread(target=begin_and_end, daemon=True).start()
if not os.fork():
    while path.read_text().count("in <module>") <= 500:
        ctypes.CDLL(None).sigqueue(os.getppid(), signal.SIGUSR1, None)
        time.sleep(0.001)
    os._exit(0)
os.wait()
os._exit(0)
"""


def test_a_rank_whose_threads_end_while_it_is_asked_for_their_stacks_lives(tmp_path: Path) -> None:
    process = python("-c", REQUESTED_STACKS, str(tmp_path / "stacks"))
    assert process.returncode == 0, process.stdout


def test_a_signal_does_not_end_the_thread_that_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    come, descriptor = threading.Event(), os.eventfd(0)

    def look(directory: Path) -> None:
        come.set()
        raise ArgumentError(f"{directory} has no flight files")

    monkeypatch.setattr(asked, "look", look)
    thread = threading.Thread(target=asked._print, args=(descriptor, tmp_path), daemon=True)
    original = signal.signal(signal.SIGUSR2, lambda *_arguments: None)
    try:
        thread.start()
        for _ in range(5):
            time.sleep(0.02)
            signal.pthread_kill(thread.ident or 0, signal.SIGUSR2)
        os.eventfd_write(descriptor, 1)
        assert come.wait(LIMIT)
    finally:
        signal.signal(signal.SIGUSR2, original)


def test_messages_between_two_ranks_are_recorded_apart(place: Path) -> None:
    def run(c: mpicoll.Collectives) -> None:
        x, y = np.ones(4), np.empty(4)
        c.barrier()
        if c.rank == 0:
            c.send(x, 1, tag=3)
            c.irecv(y, 1).wait()
        else:
            c.recv(y, 0, tag=3)
            request = c.isend(x, 0)
            while not request.test():
                pass
        c.sendrecv(x, 1 - c.rank, y)

    dumps = recorded(place, run, size=2)
    calls = [
        [
            (entry.sequence, entry.call.collective, entry.call.signature)
            for entry in dump.entries[1:]
        ]
        for dump in dumps
    ]
    assert calls[0] == [
        (1, "send", "to rank 1, tag 3"),
        (2, "irecv", "from rank 1, tag 0"),
        (3, "sendrecv", "from rank 1, to rank 1, tag 0"),
    ]
    assert [name for _, name, _ in calls[1]] == ["recv", "isend", "sendrecv"]
    every = [entry for dump in dumps for entry in dump.entries]
    assert all(entry.outcome is Outcome.COMPLETED for entry in every)
    assert {entry.group.messages for entry in every if entry.group} == {False, True}
    assert diagnose(dumps, time.time_ns()).stuck == []


def test_a_message_that_does_not_come_is_named(place: Path) -> None:
    def run(c: mpicoll.Collectives) -> None:
        y = np.empty(4)
        c.barrier()
        if c.rank == 0:
            c.deadline = 0.2
            with pytest.raises(RankLost):
                c.recv(y, 1, tag=7)

    (sentence,) = sentences(diagnose(recorded(place, run, size=2), time.time_ns()))
    assert sentence.startswith("Rank 0 has left recv of from rank 1, tag 7, from ")

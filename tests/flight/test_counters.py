"""Samples of threads and readings of TCP connections: as ranks write them, and damaged."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from struct import Struct

import pytest
from flight_entries import packed_words
from flight_rank import Rank, descriptors, rank_of_file
from launcher import LIMIT, SUPPORT, python
from tcp_ends import connection, of_sender, send

from mpicoll.flight.entries import Link, Sample
from mpicoll.flight.layout import LINK, LINKS_AT, ROWS, SAMPLE, SAMPLES, SAMPLES_AT, SUFFIX
from mpicoll.flight.reader import Dump, read, read_all
from mpicoll.machine.background import background


@pytest.fixture
def rank(place: Path) -> Iterator[Rank]:
    """A rank that has made no call yet."""
    rank = rank_of_file()
    yield rank
    rank.recorder.close()


def run(program: str, folder: Path, *arguments: str) -> None:
    """Run a program that has the modules of the tests' support."""
    environment = {"MPICOLL_FLIGHT_DIR": str(folder), "PYTHONPATH": str(SUPPORT)}
    process = python("-c", program, *arguments, environment=environment)
    assert process.returncode == 0, process.stdout


def test_a_sample_has_the_counters_of_the_calling_thread(rank: Rank) -> None:
    before = time.thread_time_ns(), resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    first = rank.sample().samples[-1]
    middle = time.thread_time_ns(), resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    while time.thread_time_ns() < middle[0] + 20_000_000:
        pass
    second = rank.sample().samples[-1]
    after = time.thread_time_ns(), resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    assert first.thread == second.thread == threading.get_native_id()
    assert before[0] <= first.running <= middle[0]
    assert middle[0] + 20_000_000 <= second.running <= after[0]
    assert before[1] <= first.preempted <= middle[1] <= second.preempted <= after[1]
    assert first.queued <= second.queued and first.at < second.at


def test_a_thread_that_shares_its_core_is_queued(rank: Rank) -> None:
    cores = os.sched_getaffinity(0)
    rival = subprocess.Popen((sys.executable, "-c", "while True: pass"))
    try:
        os.sched_setaffinity(0, {min(cores)})
        os.sched_setaffinity(rival.pid, {min(cores)})
        first = rank.sample().samples[-1]
        enough = first.queued + 10_000_000
        second = rank.sample(lambda dump: dump.samples[-1].queued > enough).samples[-1]
    finally:
        os.sched_setaffinity(0, cores)
        rival.kill()
        rival.wait()
    queued, running = second.queued - first.queued, second.running - first.running
    assert queued + running <= 1.01 * (second.at - first.at)


def test_samples_name_their_threads(rank: Rank) -> None:
    before = descriptors()
    numbers = {rank.sample().samples[-1].thread}
    for _ in range(3):
        numbers.add(background(lambda: rank.sample().samples[-1].thread, "caller").result(LIMIT))
    dump = rank.sample()
    assert {sample.thread for sample in dump.samples} == numbers and len(numbers) == 4
    for number in numbers:
        running = [sample.running for sample in dump.samples if sample.thread == number]
        assert running == sorted(running)
    assert len(descriptors() - before) == 1
    rank.recorder.ring.close()
    assert descriptors() == before


def test_all_ranks_take_their_samples_at_the_same_moments(rank: Rank) -> None:
    """At multiples of 2 ms of the time of day, unless the thread has just lost its core."""
    interval = 2_000_000
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        for _ in range(1000):
            rank.call()
    regular = [
        second.at % interval for first, second in pairwise(rank.dump().samples)
        if second.queued == first.queued and second.at - first.at > interval / 10
    ]  # fmt: skip
    assert median(regular) < interval / 10


def test_samples_cover_all_calls_that_are_kept(rank: Rank) -> None:
    for _ in range(ROWS):
        number = rank.log.begin(rank.place)
        time.sleep(0.0003)
        rank.log.end(number)
        time.sleep(0.0003)
    dump = rank.dump()
    assert not dump.faults
    assert len(dump.samples) in range(ROWS, SAMPLES + 1)
    assert dump.samples[0].at <= dump.entries[0].start


def test_long_calls_without_gaps_take_few_samples(rank: Rank) -> None:
    """A sample costs some microseconds."""
    for _ in range(200):
        number = rank.log.begin(rank.place)
        time.sleep(0.0003)
        rank.log.end(number)
    assert len(rank.dump().samples) < 100


def test_the_descriptor_of_another_file_is_left_alone(rank: Rank, tmp_path: Path) -> None:
    """A program may close all descriptors, and then open files of its own under their numbers."""
    before = descriptors()
    rank.sample()
    (number,) = descriptors() - before
    path = tmp_path / "file"
    path.write_text("1 2 3 and more\n")
    with path.open() as file:
        os.dup2(file.fileno(), number)
    rank.sample()
    rank.recorder.ring.close()
    assert descriptors() == before
    assert os.read(number, 100) == path.read_bytes()
    os.close(number)


WITHOUT_DESCRIPTORS = """
import resource

from flight_rank import rank_of_file
from tcp_ends import connection, of_sender

rank = rank_of_file()
with connection() as (sender, _):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    rank.call()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    dump = rank.dump()
    assert not dump.samples and not dump.faults
    assert len(dump.entries) == 1 and of_sender(dump, sender)
"""


def test_a_rank_without_free_descriptors_has_no_samples(tmp_path: Path) -> None:
    """As where the system does not tell the counters. Calls and connections are recorded."""
    run(WITHOUT_DESCRIPTORS, tmp_path)


FORKED = """
import os

from flight_rank import descriptors, rank_of_process

rank = rank_of_process()
rank.call()
assert len(descriptors()) == 1
if os.fork() == 0:
    os._exit(len(descriptors()))
assert os.wait()[1] == 0
rank.sample()
"""


def test_a_forked_child_keeps_no_descriptor_of_its_parent(tmp_path: Path) -> None:
    run(FORKED, tmp_path)


# -- connections ------------------------------------------------------------------------------


ONCE_A_SECOND = """
from flight_rank import rank_of_file
from tcp_ends import connection, of_sender, send

rank = rank_of_file()
with connection() as (sender, receiver):
    rank.sample()
    send(sender, receiver)
    dump = rank.sample(lambda dump: len(of_sender(dump, sender)) > 2)
    first, second, third = of_sender(dump, sender)
    assert second.at // 10**9 + 1 == third.at // 10**9
    assert second.sent - first.sent == 50_000 and first.sent >= 50_000
    assert 0 < second.rtt_min <= second.rtt and second.rate > 0
    probes = [sample.probe for sample in dump.samples if sample.probe]
    assert len(probes) == 3 and all(probe < 10**7 for probe in probes)
"""


def test_a_connection_is_read_once_a_second(tmp_path: Path) -> None:
    """The first reading counts the bytes sent before it; later readings count the later bytes.

    A process of its own has few descriptors: of many, some are read in each second.
    """
    run(ONCE_A_SECOND, tmp_path)


def test_connections_among_many_descriptors_are_found(rank: Rank) -> None:
    """256 descriptors are looked at in a second; the others, and the files between, in the next."""
    pipes = [os.dup(0) for _ in range(400)]
    try:
        with connection() as (sender, receiver):
            rank.sample()
            assert not of_sender(rank.dump(), sender)

            def is_found(dump: Dump) -> bool:
                send(sender, receiver)  # a connection that is idle for 2 s is not recorded
                return len(of_sender(dump, sender)) >= 1

            rank.sample(is_found)
    finally:
        for pipe in pipes:
            os.close(pipe)


# -- the clock --------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_the_clock_of_a_rank_that_has_made_few_calls_is_whole(rank: Rank, calls: int) -> None:
    before = time.time_ns()
    for _ in range(calls):
        rank.call()
    dump = rank.dump()
    assert not dump.faults and len(dump.entries) == calls
    for entry in dump.entries:
        assert before - 1_000_000 <= entry.start <= entry.end <= time.time_ns() + 1_000_000


def test_ranks_of_one_host_share_a_clock(
    rank: Rank, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the time of day was changed between their starts."""
    day = time.time_ns
    monkeypatch.setattr("mpicoll.flight.recorder.time_ns", lambda: day() + 10**9)
    peer = rank_of_file(1)
    for caller in (rank, peer, rank):
        caller.call()
    peer.recorder.close()
    first, second = read_all(place)[0]
    assert first.entries[0].end <= second.entries[0].start
    assert second.entries[0].end <= first.entries[1].start


# -- signals ----------------------------------------------------------------------------------

CONTINUED = """
import os
import signal
import sys
from pathlib import Path

from flight_rank import rank_of_process
from mpicoll.flight import signals

calls = []
if sys.argv[1] == "program":
    signal.signal(signal.SIGCONT, lambda number, frame: calls.append(number))
rank = rank_of_process()
assert rank.sample().samples[-1].continued == 0
child = os.fork()
if child == 0:
    parent = os.getppid()
    os.kill(parent, signal.SIGSTOP)
    state = Path(f"/proc/{parent}/stat")
    while state.read_text().rpartition(")")[2].split()[0] != "T":
        pass
    os.kill(parent, signal.SIGCONT)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert rank.sample().samples[-1].continued == 1
signals.unwatch()
os.kill(os.getpid(), signal.SIGCONT)
assert rank.sample().samples[-1].continued == 1
assert len(calls) == (2 if sys.argv[1] == "program" else 0)
"""


@pytest.mark.parametrize("handler", ["program", "default"])
def test_a_rank_that_was_stopped_counts_it(tmp_path: Path, handler: str) -> None:
    run(CONTINUED, tmp_path, handler)


# -- damage -----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a file with twenty samples and as many links."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path_factory.mktemp("whole")))
        rank = rank_of_file()
    rank.recorder.close()
    data = bytearray(rank.recorder.path.read_bytes())
    for place in range(20):
        sample = Sample(place + 1, place, *range(1, 13))
        link = Link(place + 1, place, bytes(16), bytes(16), 1, 2, 3, 4, 5, 6, 7, 8)
        for start, kind, entry in ((SAMPLES_AT, SAMPLE, sample), (LINKS_AT, LINK, link)):
            at = start + place * kind.size
            data[at : at + kind.size] = packed_words(kind, entry)
    return bytes(data)


def read_bytes(folder: Path, data: bytes) -> Dump:
    """Return what is read of a file with these bytes."""
    path = folder / f"rank-00000.job-of-a-test.1{SUFFIX}"
    path.write_bytes(data)
    return read(path)


RINGS = pytest.mark.parametrize(
    ("name", "start", "kind"), [("samples", SAMPLES_AT, SAMPLE), ("links", LINKS_AT, LINK)]
)


@RINGS
@pytest.mark.parametrize("byte", [0, 8, 20, 40, 63])
def test_a_damaged_entry_is_left_out(
    whole: bytes, tmp_path: Path, name: str, start: int, kind: Struct, byte: int
) -> None:
    data = bytearray(whole)
    data[start + 5 * kind.size + byte] ^= 1
    dump = read_bytes(tmp_path, data)
    assert len(getattr(dump, name)) == 19
    assert dump.faults == [f"1 {name} are damaged or half written, and left out"]


@RINGS
def test_an_entry_in_the_place_of_another_is_left_out(
    whole: bytes, tmp_path: Path, name: str, start: int, kind: Struct
) -> None:
    data = bytearray(whole)
    data[start : start + kind.size] = whole[start + kind.size : start + 2 * kind.size]
    dump = read_bytes(tmp_path, data)
    assert len(getattr(dump, name)) == 19 and len(dump.faults) == 1

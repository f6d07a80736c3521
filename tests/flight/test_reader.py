"""Flight files that are cut, flipped, shuffled, of another version or hostile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from launcher import LIMIT, python

from mpicoll.engine import _compiled
from mpicoll.errors import ArgumentError
from mpicoll.flight import records
from mpicoll.flight.diagnosis import diagnose
from mpicoll.flight.layout import (
    FILE_BYTES,
    HEAD,
    ROW,
    ROWS,
    ROWS_AT,
    SUFFIX,
    TABLE_BYTES,
    Outcome,
    State,
    record,
)
from mpicoll.flight.reader import read, read_all
from mpicoll.flight.recorder import Recorder
from mpicoll.flight.records import Call, Group, encode, ranks_of
from mpicoll.machine.background import background

JOB = "job-of-a-test"


def write_file(directory: Path, monkeypatch: pytest.MonkeyPatch, calls: int = 3) -> Path:
    """Return the file of a rank that has made some calls, and is in another."""
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(directory))
    recorder = Recorder(JOB, (0, 2), writers=_compiled)
    group = recorder.intern(Group("1234", "world", 0, "0-1"))
    log = _compiled.Log(recorder.ring, group)
    place = recorder.intern(Call("allreduce", "float32 (8), sum", "ring", "symmetric"))
    for _ in range(calls):
        log.end(log.begin(place))
    log.begin(place)
    recorder.close()
    return recorder.path


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of such a file."""
    with pytest.MonkeyPatch.context() as patch:
        return write_file(tmp_path_factory.mktemp("whole"), patch, 300).read_bytes()


def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = read(write_file(tmp_path, monkeypatch, 3 * ROWS))
    assert not dump.faults
    assert (dump.rank, dump.process.pid, dump.state) == (0, os.getpid(), State.RUNNING)
    assert [entry.sequence for entry in dump.entries] == list(range(2 * ROWS + 2, 3 * ROWS + 2))
    *completed, last = dump.entries
    assert {entry.outcome for entry in completed} == {Outcome.COMPLETED}
    assert all(entry.start <= entry.end for entry in completed)
    assert last.outcome is Outcome.UNDER_WAY
    assert last.call == Call("allreduce", "float32 (8), sum", "ring", "symmetric")
    assert last.location is not None and last.location.function == "write_file"
    assert last.group == Group("1234", "world", 0, "0-1")


def test_what_is_left_of_a_damaged_file_is_read(whole: bytes, tmp_path: Path) -> None:
    data = bytearray(whole)
    data[ROWS_AT + 5 * ROW.size + 20] ^= 1
    path = tmp_path / f"rank-00000.{JOB}.1{SUFFIX}"
    path.write_bytes(data)
    dump = read(path)
    assert [entry.number for entry in dump.entries] == [*range(1, 6), *range(7, 302)]
    assert dump.faults == ["1 rows are damaged or half written, and left out"]


def test_rows_in_each_other_s_places_are_left_out(whole: bytes, tmp_path: Path) -> None:
    data = bytearray(whole)
    first, second = (slice(at, at + ROW.size) for at in (ROWS_AT, ROWS_AT + ROW.size))
    data[first], data[second] = data[second], data[first]
    path = tmp_path / f"rank-00000.{JOB}.1{SUFFIX}"
    path.write_bytes(data)
    assert [entry.number for entry in read(path).entries] == list(range(3, 302))


def test_another_version_is_named(whole: bytes, tmp_path: Path) -> None:
    from zlib import crc32

    fields = list(HEAD.unpack_from(whole))
    fields[1] = 7
    plain = HEAD.pack(*fields)[:-4]
    path = tmp_path / f"rank-00000.{JOB}.1{SUFFIX}"
    path.write_bytes(plain + crc32(plain).to_bytes(4, "little") + whole[HEAD.size :])
    with pytest.raises(ArgumentError, match=r"of version 7; this mpicoll reads 6"):
        read_all(tmp_path)


@pytest.mark.parametrize(
    ("names", "reason"), [([], ""), (["x.flight"], ": x.flight: no name of a flight file")]
)
def test_a_directory_without_flight_files_is_refused(
    names: list[str], reason: str, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ArgumentError, match=f"has no flight files{reason}$"):
        read_all(tmp_path)


@pytest.mark.parametrize("data", [b"", b"mpicoll", b"\x80\x04K\x01.", b"\0" * FILE_BYTES])
def test_another_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / f"rank-00000.{JOB}.1{SUFFIX}"
    path.write_bytes(data)
    with pytest.raises(ArgumentError, match="no flight file"):
        read_all(tmp_path)


def test_links_and_pipes_are_not_followed(whole: bytes, tmp_path: Path) -> None:
    (tmp_path / "whole").write_bytes(whole)
    (tmp_path / f"rank-00000.{JOB}.1{SUFFIX}").symlink_to(tmp_path / "whole")
    os.mkfifo(tmp_path / f"rank-00001.{JOB}.2{SUFFIX}")
    with pytest.raises(ArgumentError, match="no regular file"):
        read_all(tmp_path)


FIRST_DECODED = """
import importlib, sys, threading
from mpicoll.flight import records

sys.setswitchinterval(1e-6)
for _ in range(100):
    importlib.reload(records)  # whose types nothing has decoded yet
    kind, data = records.encode(records.Group("id", "world", 0, "0-3"))
    together = threading.Barrier(6)
    threads = [
        threading.Thread(target=lambda: together.wait() >= 0 and records.decode(kind, data))
        for _ in range(6)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
"""


def test_threads_may_be_the_first_to_decode_at_once() -> None:
    process = python("-c", FIRST_DECODED)
    assert process.returncode == 0, process.stdout


@pytest.mark.parametrize(
    "text", ["{", '{"rank": -1}', "[" * 100000, '{"collective": 5}', "null", '{"text": "\xff"}']
)
@pytest.mark.parametrize("kind", [*records.TYPES, 99])
def test_records_of_another_form_are_left_out(
    whole: bytes, tmp_path: Path, kind: int, text: str
) -> None:
    hostile = record(kind, text.encode("latin-1")[:16000])
    path = tmp_path / f"rank-00000.{JOB}.1{SUFFIX}"
    used = whole[: whole.rindex(b"MPFR") + 256]
    path.write_bytes((used + hostile).ljust(FILE_BYTES, b"\0")[:FILE_BYTES])
    dump = read(path)
    assert dump.faults == ["records of the table are damaged, and left out"]
    assert len(dump.entries) == 301


def test_a_full_table_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path))
    recorder = Recorder(JOB, (0, 2), writers=_compiled)
    places = [
        recorder.intern(Call("x" * 5000, str(number))) for number in range(TABLE_BYTES // 5000 + 2)
    ]
    assert places[0] and not places[-1]
    assert recorder.used <= TABLE_BYTES
    assert records.TYPES[encode(Call("a"))[0]] is Call
    recorder.end()


class _Interrupted:
    """Memory in whose first write a signal comes, whose handler names something else."""

    def __init__(self, memory: memoryview, handler: Callable[[], object]) -> None:
        self.memory, self.handlers = memory, [handler]

    def __setitem__(self, at: slice, data: bytes) -> None:
        if self.handlers:
            self.handlers.pop()()
        self.memory[at] = data


def test_what_a_handler_of_a_signal_names_stays_beside_what_it_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path))
    recorder = Recorder(JOB, (0, 2), writers=_compiled)
    groups = [Group(str(number), "", 0, "0-1") for number in range(2)]
    memory = recorder.memory
    assert memory is not None

    def intern_two() -> list[int]:
        within: list[int] = []
        interrupted: Any = _Interrupted(memory, lambda: within.append(recorder.intern(groups[1])))
        recorder.memory = interrupted
        return [recorder.intern(groups[0]), *within]

    places = background(intern_two, "interrupted").result(LIMIT)
    recorder.memory = memory
    recorder.close()
    dump = read(recorder.path)
    assert places[0] < places[1] and dump.groups == groups
    assert not dump.faults


@pytest.mark.parametrize(
    "text", ["", "-", "1-", "5-2", "0-99999999", "1,,2", "\u0663", "0-70000", "9" * 400]
)
def test_texts_of_ranks_never_take_much_room(text: str) -> None:
    assert len(ranks_of(text)) <= 1 << 16


def test_a_file_of_many_huge_groups_is_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path))
    recorder = Recorder(JOB, (0, 2), writers=_compiled)
    for number in range(3000):
        recorder.intern(Group(str(number), "", 0, "0-65535"))
    recorder.close()
    began = process_time()
    diagnosis = diagnose(read_all(tmp_path)[0], 0)
    assert len(diagnosis.ranks) <= 1 << 17 and process_time() - began < 5

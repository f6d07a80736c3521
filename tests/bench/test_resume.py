"""The file of records: whole after any end of a run, and gone on with by the next one."""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launcher import LIMIT, QUIRKS, ROOT, mpirun, ranks
from msgspec import convert

from mpicoll.bench.resume import unlike
from mpicoll.errors import ArgumentError
from mpicoll.records.description import FullRun
from mpicoll.records.identity import key
from mpicoll.records.journal import Journal
from mpicoll.records.lines import AARecord, CaseRecord, Record, RunRecord
from mpicoll.records.reading import encoded, load, only, parse, runs
from mpicoll.text import files

pytest.importorskip("mpi4py")

BENCH = ("-m", "mpicoll.bench", "--backends", "mpi4py", "--format", "jsonl")
SMALL = ("allreduce", "allgather", "--algorithms", "native,ring", "--sizes", "4,1K", "-n", "3")
needs_mpi = pytest.mark.skipif(mpirun() is None, reason="no mpirun here")


def line(n: int) -> bytes:
    """Return a whole line, told from others by its number."""
    return (
        encoded(AARecord(case=str(n), backend="b", ranks=2, delay=0, verdict="tie")).encode()
        + b"\n"
    )


def numbers(path: Path) -> list[int]:
    return [int(record.case) for record in only(AARecord, load(path))]


def cases(records: list[Record]) -> list[CaseRecord]:
    return only(CaseRecord, records)


# -- the file ---------------------------------------------------------------------------


def test_a_file_is_begun_anew_or_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for resume, lines in ((False, [1]), (True, [1, 2]), (False, [3])):
        journal_ = Journal(path, resume=resume)
        journal_.write(parse(line(lines[-1]), path))
        journal_.close()
        assert numbers(path) == lines


@pytest.mark.parametrize("torn", [b"{", b'{"schema": 1, "kind"', line(2)[:-2]])
def test_a_torn_line_is_left_out_and_cut_off_by_the_next_one(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(line(1) + torn)
    assert numbers(path) == [1]
    journal = Journal(path, resume=True)
    assert path.read_bytes() == line(1) + torn  # the run may be refused yet
    for number in (2, 3):
        journal.write(parse(line(number), path))
    journal.close()
    assert numbers(path) == [1, 2, 3]


def test_a_last_line_without_a_line_break_is_a_record(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(line(1) + line(2)[:-1])
    assert numbers(path) == [1, 2]
    journal = Journal(path, resume=True)
    assert len(journal.records) == 2
    for number in (3, 4):
        journal.write(parse(line(number), path))
    journal.close()
    assert numbers(path) == [1, 2, 3, 4] and path.read_bytes().count(b"\n") == 4


def test_a_compressed_file_is_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl.gz"
    path.write_bytes(gzip.compress(line(1)))
    with pytest.raises(ArgumentError, match=r"is compressed by gzip: decompress it first"):
        Journal(path, resume=True)
    assert numbers(path) == [1]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"a,b\n1,2\n", "line 1, is no record"),
        (line(1) + b"[]\n", "line 2, is no record"),
        (b'{"schema": 9}\n', "schema 9: this reads 1"),
        (b"my only copy of a letter", "ends in something that is no record"),
    ],
)
def test_a_file_that_is_none_of_ours_stays_as_it_is(
    content: bytes, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match=text):
        Journal(path, resume=True)
    assert path.read_bytes() == content


def test_two_runs_do_not_write_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LOCK_WAIT", 0.1)
    path = tmp_path / "records.jsonl"
    first = Journal(path)
    first.write(parse(line(1), path))
    with pytest.raises(ArgumentError, match="another run writes"):
        Journal(path)
    first.close()
    assert numbers(path) == [1]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["nowhere/records.jsonl", "folder", "pipe", "link"])
def test_what_no_record_can_go_to_is_refused(name: str, resume: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArgumentError, match="cannot write"):
        Journal(tmp_path / name, resume=resume)


def test_a_pipe_that_is_read_gets_the_records(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ArgumentError, match="no regular file"):
        Journal(path, resume=True)
    journal = Journal(path)
    journal.write(parse(line(1), path))
    journal.close()
    assert parse(os.read(reader, 1 << 16), path) == parse(line(1), path)
    os.close(reader)


@pytest.mark.parametrize("content", [b"a letter", b"{}\n", b'{"schema":1}', b"\n" + line(1)])
def test_a_file_of_somebody_else_is_not_begun_anew(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"is no file of records, .* another name"):
        Journal(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b'{"sch', line(1)[:50], line(1) + b"damaged\n"])
def test_an_empty_file_or_one_of_records_is_begun_anew(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(content)
    Journal(path).close()
    assert path.read_bytes() == b""


# -- conditions -------------------------------------------------------------------------

RUN = {
    "id": "a", "versions": {"python": "3.11", "numpy": "2"}, "libraries": {"mpi4py": "MPICH 5"},
    "hosts": ["n1", "n1"], "cores": [[1], [1]],
    "settings": {"budget": 4.0, "seed": 1, "timing": "together"},
}  # fmt: skip
CASE = {
    "collective": "allreduce", "algorithm": "ring", "backend": "mpi4py", "dtype": None, "op": None,
    "root": None, "in_place": False, "ranks": 2, "bytes_total": 4, "time_us": None, "correct": True,
}  # fmt: skip


def gone_on_with(change: dict[str, Any]) -> list[str]:
    """Return the remarks on going on with a file under changed conditions."""
    described = convert(RUN, FullRun)
    file = [RunRecord(run=described), convert(CASE | {"run": RUN}, CaseRecord)]
    return unlike(file, convert(RUN | change, FullRun))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"versions": {"python": "3.11", "numpy": "3"}}, "versions.numpy was '2', and is '3'"),
        ({"hosts": ["n1", "n2"]}, "hosts was"),
        ({"hosts": ["n1"] * 4}, "ranks was 2, and is 4"),
        ({"settings": {"timing": "loop"}}, "settings.timing was 'together'"),
        ({"environment": {"UCX_TLS": "tcp"}}, "environment.UCX_TLS was not set, and is 'tcp'"),
    ],
)
def test_other_conditions_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        gone_on_with(change)


@pytest.mark.parametrize(
    "change",
    [
        {}, {"settings": {"budget": 9.0, "seed": 2, "timing": "together"}}, {"id": "b"},
        {"environment": {"SLURM_JOB_ID": "7"}}, {"stack": {"nccl": "2.27"}},
    ],
    ids=str,
)  # fmt: skip
def test_the_same_conditions_are_gone_on_with(change: dict[str, Any]) -> None:
    assert gone_on_with(change) == []


def test_other_source_is_told() -> None:
    (remark,) = gone_on_with({"git": {"commit": "abc", "dirty": True}})
    assert remark.endswith("other source code: of no known commit, now abc with changes")


def test_records_without_a_description_of_their_run_are_refused() -> None:
    with pytest.raises(ArgumentError, match="lacks the conditions of its records"):
        unlike([convert(CASE | {"run": RUN}, CaseRecord)], convert(RUN, FullRun))


# -- whole runs -------------------------------------------------------------------------


@pytest.mark.launches
@needs_mpi
def test_a_resumed_run_measures_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    first = ranks(2, *BENCH, *SMALL, "-J", str(path))
    assert first.returncode == 0, first.stdout
    whole = load(path)
    remaining = [
        record for record in whole if isinstance(record, RunRecord) or record.bytes_total != 1024
    ]
    text = "".join(f"{encoded(record)}\n" for record in remaining)
    path.write_text(text + '{"schema": 1, "kind": "ca')
    again = ranks(2, *BENCH, *SMALL, "--resume", str(path))
    assert again.returncode == 0, again.stdout
    assert "2 of 4 groups are measured already" in again.stdout
    resumed = load(path)
    assert path.read_text().startswith(text)
    assert sorted(map(key, cases(resumed))) == sorted(map(key, cases(whole)))
    assert len(runs(resumed)) == 2


@pytest.mark.launches
@needs_mpi
def test_another_launch_does_not_mix_its_records_in(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    arguments = (*BENCH, "barrier", "--algorithms", "native", "-n", "3")
    assert ranks(1, *arguments, "-J", str(path)).returncode == 0
    content = path.read_bytes()
    result = ranks(2, *arguments, "--resume", str(path))
    assert result.returncode == 2 and "ranks was 1, and is 2" in result.stdout
    assert path.read_bytes() == content


KILLS = 5


@pytest.mark.launches
def test_a_run_that_is_killed_again_and_again_comes_to_its_end(tmp_path: Path) -> None:
    """Killed at random moments, every line but a last torn one can be read; none is twice there."""
    path, dice = tmp_path / "records.jsonl", random.Random(5)
    sizes = ",".join(str(4 << power) for power in range(6))
    command = [sys.executable, *BENCH, "allreduce", "allgather", "broadcast", "reduce", "--sizes",
               sizes, "-n", "10", "--algorithms", "native,naive,ring,binomial",
               "--resume", str(path)]  # fmt: skip
    count = 0
    for _ in range(KILLS):
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **QUIRKS}, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        # The first line tells that measuring begins: importing is not what is to be tested.
        process.stdout.readline()
        time.sleep(dice.expovariate(1 / 0.02))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=LIMIT)
        records = cases(load(path))
        assert len(records) >= count, "a completed record is gone"
        count = len(records)
        assert len(set(map(key, records))) == count
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **QUIRKS}, capture_output=True, text=True,
        timeout=LIMIT, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    records = cases(load(path))
    wanted = cases(parse(result.stdout.encode(), Path("stdout")))
    assert sorted(map(key, records)) == sorted(map(key, wanted)) and len(records) > count

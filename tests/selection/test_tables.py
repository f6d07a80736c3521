"""Where decision tables lie, which are read, and how many may write them at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launcher import LIMIT

from mpicoll.errors import ArgumentError
from mpicoll.selection import tables


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({}, "/home/me/.cache/mpicoll/table.json"),
        ({"XDG_CACHE_HOME": ""}, "/home/me/.cache/mpicoll/table.json"),
        ({"XDG_CACHE_HOME": "/scratch"}, "/scratch/mpicoll/table.json"),
        ({tables.VARIABLE: "mine.json", "XDG_CACHE_HOME": "/scratch"}, "mine.json"),
    ],
)
def test_the_default_path(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], path: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for name in ("XDG_CACHE_HOME", tables.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tables.default_path() == Path(path)


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "backend": "mpi4py", "ranks_per_node": [2], "collective": "allreduce",
        "fingerprint": {"processor": "abacus"},
        "ranges": [{"upto": 64, "algorithm": "ring"}, {"upto": None, "algorithm": "native"}],
    } | changes  # fmt: skip


def whole(algorithm: object) -> list[dict[str, Any]]:
    return [{"upto": None, "algorithm": algorithm}]


WRONG: dict[str, tuple[Any, str]] = {
    "no fingerprint": ([entry(fingerprint=None)], "fingerprint of an entry is None"),
    "ranks in words": ([entry(ranks_per_node="2")], "ranks_per_node of an entry is '2'"),
    "ranks that are none": ([entry(ranks_per_node=[{}])], r"ranks_per_node of an entry is \[{}\]"),
    "no device": ([entry(device="moon")], "device of an entry is 'moon'"),
    "no collective": ([entry(collective="alreduce")], "unknown collective 'alreduce'"),
    "itself": ([entry(ranges=whole("auto"))], "'auto', which is what looks it up"),
    "itself over a transport": ([entry(ranges=whole("auto@cma"))], "looks it up"),
    "what measured by itself": ([entry(ranges=whole("adaptive"))], "mpicoll.tune now measures"),
    "no algorithm": ([entry(ranges=whole("rng"))], "unknown allreduce algorithm 'rng'"),
    "no name": ([entry(ranges=whole(7))], "cannot be read"),
    "no transport": ([entry(ranges=whole("ring@sea"))], "unknown transport 'sea'"),
    "no parameter": ([entry(ranges=whole("segmented_ring(segments=99999999)"))], "at most"),
    "no end": ([entry(ranges=[{"upto": 64, "algorithm": "ring"}])], "must ascend"),
    "no order": ([entry(ranges=[{"upto": 9, "algorithm": "ring"}, {"upto": 4, "algorithm": "ring"},
                                *whole("ring")])], "must ascend"),
    "fractions": ([entry(ranges=[{"upto": 0.5, "algorithm": "ring"}, *whole("ring")])], "read"),
    "no entries": (None, "cannot be read"),
    "entries of another kind": ([1], "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_table_that_cannot_be_used_is_refused(case: str, tmp_path: Path) -> None:
    entries, message = WRONG[case]
    path = tmp_path / "table.json"
    path.write_text(tables.text(entries))
    with pytest.raises(ArgumentError, match=message) as caught:
        tables.read(path)
    assert str(path) in str(caught.value)
    with pytest.warns(UserWarning, match="shipped table"):
        assert tables.load("mpi4py", "MPICH", [2], path) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 200_000, "it is nested too deeply"), ('{"a":' * 200_000, "it is nested too deeply"),
        ('{"schema": NaN}', "NaN is no number of JSON"), ("9" * 5000, "Exceeds the limit"),
        ("\ud800", "Expecting value"), ("null", "a value is of another type"),
        ('"x"', "a value is of another type"), ("{}", "'schema' is missing"),
        ("notes", "Expecting value: line 1"),
    ],
    ids=["arrays", "objects", "NaN", "digits", "surrogate", "null", "text", "empty", "notes"],
)  # fmt: skip
def test_other_json_is_refused_in_words(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ArgumentError, match=f"is not a decision table: {why}"):
        tables.read(path)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_regular_file_is_not_waited_for(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    make(path)
    with pytest.warns(UserWarning, match=f"cannot read {path}: .*shipped table"):
        assert tables.load("mpi4py", "MPICH", [2], path) == {}


WRITER = """
import sys
from pathlib import Path
from mpicoll.selection import tables
path, backend, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for each in range(count):
    tables.write(path, [{
        "backend": backend, "ranks_per_node": [each], "collective": "scan", "fingerprint": {},
        "ranges": [{"upto": None, "algorithm": "native"}],
    }])
"""


def test_two_processes_that_write_lose_no_entry(tmp_path: Path) -> None:
    path, count = tmp_path / "table.json", 60
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, path, backend, str(count)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for backend in ("mpi4py", "torch")
    ]  # fmt: skip
    for each in writers:
        assert each.stdout is not None and each.stdout.readline() == b"ready\n"
    for each in writers:
        assert each.stdin is not None and each.stdout is not None
        each.stdin.close()
    for each in writers:
        assert each.wait(LIMIT) == 0 and each.stdout is not None
        each.stdout.close()
    assert len(tables.read(path)["entries"]) == 2 * count
    assert [each.name for each in tmp_path.iterdir()] == ["table.json"]

"""The choice that ``auto`` makes: tables, their ranges, and what a table of this machine does."""

from __future__ import annotations

import json
import timeit
import warnings
from pathlib import Path
from typing import Any

import pytest
from launcher import mpirun, ranks

from mpicoll.algorithms.registry import find
from mpicoll.errors import ArgumentError
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.selection import tables
from mpicoll.selection.auto import between
from mpicoll.simulator import contiguous, prove

needs_mpi = pytest.mark.skipif(mpirun() is None, reason="no mpirun here")


def test_a_lookup_takes_a_fraction_of_a_microsecond() -> None:
    """State its cost; no bound is asserted, for this is no benchmark."""
    decision = tables.Decision([{"upto": 4 << k, "algorithm": str(k)} for k in range(20)]
                               + [{"upto": None, "algorithm": "end"}])  # fmt: skip
    seconds = min(timeit.repeat(lambda: decision.lookup(100_000), number=10_000, repeat=3)) / 1e4
    print(f"lookup: {seconds * 1e9:.0f} ns")
    assert decision.lookup(4) == "0" and decision.lookup(5) == "1"
    assert decision.lookup(1 << 40) == "end"


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "backend": "mpi4py", "ranks_per_node": [2], "collective": "allreduce",
        "fingerprint": tables.fingerprint("MPICH"),
        "ranges": [{"upto": 64, "algorithm": "naive"}, {"upto": None, "algorithm": "native"}],
    } | changes  # fmt: skip


def test_a_table_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "table.json"
    tables.write(path, [entry()])
    tables.write(path, [entry(collective="scan"), entry(backend="torch")])
    assert len(tables.read(path)["entries"]) == 3
    found = tables.load("mpi4py", "MPICH", [2], path)
    assert found["allreduce"].lookup(64) == "naive" and found["allreduce"].lookup(65) == "native"
    assert tables.load("mpi4py", "MPICH", [4], path) == {}


def test_arrays_on_gpus_have_decisions_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    tables.write(path, [entry()])
    on_gpu = entry(
        device=tables.GPU, fingerprint=tables.fingerprint("MPICH", "H100"),
        ranges=[{"upto": None, "algorithm": "native:symm_two_shot"}],
    )  # fmt: skip
    tables.write(path, [on_gpu])
    found = [
        tables.load("mpi4py", "MPICH", [2], path, gpu)["allreduce"].lookup(9)
        for gpu in ("", "H100")
    ]
    assert found == ["naive", "native:symm_two_shot"]
    with pytest.warns(UserWarning, match=r"another machine \(gpu was 'H100' and is 'A100'\)"):
        assert tables.load("mpi4py", "MPICH", [2], path, "A100") == {}


def test_a_table_of_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    tables.write(path, [entry(fingerprint=tables.fingerprint("MPICH") | {"processor": "abacus"})])
    with pytest.warns(UserWarning, match=r"another machine \(processor was 'abacus'"):
        assert tables.load("mpi4py", "MPICH", [2], path) == {}
    tables.write(path, [entry(collective="scan")])
    assert [each["collective"] for each in tables.read(path)["entries"]] == ["scan"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": "mpicoll.table/9", "entries": []}',
     json.dumps({"schema": tables.SCHEMA, "entries": [{}]}),
     json.dumps({"schema": tables.SCHEMA, "entries": [entry(ranges=[])]}),
     json.dumps({"schema": tables.SCHEMA, "entries": [entry(ranges=[{"upto": 4}])]})],
)  # fmt: skip
def test_a_broken_table_is_said_to_be(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=r"table\.json"):
        tables.read(path)
    with pytest.warns(UserWarning, match="shipped table"):
        assert tables.load("mpi4py", "MPICH", [2], path) == {}


def test_no_table_is_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tables.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tables.load("mpi4py", "MPICH", [2]) == {}
    monkeypatch.setenv(tables.VARIABLE, str(tmp_path / "none.json"))
    with pytest.warns(UserWarning, match="no file"):
        assert tables.load("mpi4py", "MPICH", [2]) == {}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_what_is_measured_between_nodes_is_right_there(name: str) -> None:
    """On nodes of as many ranks each; others some may refuse."""
    for text in between(name):
        assert prove(find(name, text), 6, nodes=contiguous(6, 3)).rounds


TUNE = ("-m", "mpicoll.tune", "--backends", "mpi4py", "--sizes", "64,64K", "--resume")
SHOW = """
import numpy as np, mpicoll
c = mpicoll.world()
for n in (16, 16384):
    with c.plan("allreduce", np.ones(n, np.float32)) as plan:
        if c.rank == 0:
            print("RAN", plan.algorithm, plan.transport)
"""


@pytest.mark.launches
@needs_mpi
def test_auto_runs_what_the_table_says(tmp_path: Path) -> None:
    """From a run of mpicoll.tune to the plan; then a table of ours, then of another machine."""
    path = tmp_path / "table.json"
    for seconds in ("5", "20", "80"):  # what a busy machine leaves out gets more time
        done = ranks(2, *TUNE, "--time", seconds, "-o", str(path), "allreduce", "barrier")
        if "is too short" not in done.stdout:
            break
    assert done.returncode == 0, done.stdout
    table = json.loads(path.read_text())
    assert {entry["collective"] for entry in table["entries"]} == {"allreduce", "barrier"}
    told = {tables.VARIABLE: str(path)}
    for each in table["entries"]:
        each["ranges"] = [{"upto": 100, "algorithm": "ring@point-to-point"},
                          {"upto": None, "algorithm": "native"}]  # fmt: skip
    path.write_text(json.dumps(table))
    done = ranks(2, "-c", SHOW, environment=told)
    assert "RAN ring point-to-point" in done.stdout and "RAN native native" in done.stdout
    for each in table["entries"]:
        each["fingerprint"]["processor"] = "abacus"
    path.write_text(json.dumps(table))
    done = ranks(2, "-c", SHOW, environment=told)
    assert done.stdout.count("another machine") == 1, "said once, by rank 0"
    assert "RAN ring" not in done.stdout and done.stdout.count("RAN") == 2


def test_another_file_is_not_replaced_by_a_table(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    with pytest.raises(ArgumentError, match="is not a decision table"):
        tables.write(path, [entry()])
    assert path.read_text() == "my notes"

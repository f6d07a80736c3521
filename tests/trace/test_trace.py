"""Traces: what the file says, and what cannot be one."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from launcher import LIMIT, QUIRKS, check_mark, mpirun, python

from mpicoll.algorithms.registry import find
from mpicoll.costs.fitting import factors
from mpicoll.costs.models import Hockney
from mpicoll.engine import tallies
from mpicoll.engine.tally_file import TallyFile, records_in
from mpicoll.errors import ArgumentError
from mpicoll.text.traces import SCHEMA, path_of_rank
from mpicoll.trace import pricing
from mpicoll.trace.__main__ import main
from mpicoll.trace.pricing import Fit, Machine, machine_of, price
from mpicoll.trace.reading import load
from mpicoll.trace.replay import replay


def head(rank: int) -> dict[str, Any]:
    return {"schema": "mpicoll.trace/2", "rank": rank, "seconds": 2.0}


def line(rank: int, **changes: Any) -> dict[str, Any]:
    return {
        "rank": rank, "communicator": "MPI_COMM_WORLD", "ranks": 2, "call": "Allreduce",
        "bytes_per_rank": 8, "calls": 100, "timed": 20, "seconds": 0.5, "least_us": 1.0,
        "most_us": 40.0, "histogram": [[1.0, 15], [32.0, 5]], "dtype": "float64", "op": "sum",
        "algorithm": "ring", "transport": "symmetric",
    } | changes  # fmt: skip


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in lines))
    return path


def test_ranks_are_put_together(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.jsonl", head(0), line(0), line(0, call="Bcast", seconds=0.9), head(1),
        line(1, seconds=0.7, least_us=2.0), line(1, call="Bcast", seconds=0.9),
    )  # fmt: skip
    whole, kinds, _ = load(path)
    assert whole == 2.0
    assert [kind.call for kind in kinds] == ["Bcast", "Allreduce"]
    assert (kinds[1].calls, kinds[1].seconds, kinds[1].least_us) == (100, pytest.approx(0.6), 2.0)
    assert [kinds[1].quantile_us(share) for share in (0.5, 0.75, 0.8, 0.99)] == [2, 2, 36, 36]
    shown = CliRunner().invoke(main, [str(path)]).output
    assert "30.0%" in shown
    assert "1.500 s of 2.000 s in collectives" in shown


def test_calls_are_priced_by_their_own_times(tmp_path: Path) -> None:
    """Times of one alpha, beta and gamma: their fit finds them, and the price of what ran."""
    true = Hockney(1e-6, 1e-10, 2e-10, ports=None)
    lines = [
        line(0, ranks=4, bytes_per_rank=nbytes, algorithm=name, least_us=us,
             histogram=[[us / 1.125, 20]])
        for name in ("ring", "recursive_doubling", "rabenseifner")
        for nbytes in (8, 1 << 12, 1 << 20)
        for us in [1e6 * sum(a * b for a, b in zip(factors(find("allreduce", name), 4, 0, nbytes,
                   None), (true.alpha, true.beta, true.gamma), strict=True))]
    ]  # fmt: skip
    _, kinds, _ = load(written(tmp_path / "t.jsonl", head(0), *lines))
    machine = machine_of(kinds, None)
    model, origin = machine.local
    assert model is not None
    assert (model.latency, model.beta, model.gamma) == pytest.approx((1e-6, 1e-10, 2e-10), rel=1e-3)
    assert "9 kinds of calls" in origin
    for kind in kinds:
        priced = price(kind, machine)
        assert priced is not None
        assert priced.ran == pytest.approx(kind.least_us, rel=0.01)
        assert priced.cheapest_us <= priced.ran * 1.001


@pytest.mark.parametrize(
    "changes", [{"call": "allreduce"}, {"ranks": 1}, {"call": "Alltoallw", "algorithm": "mpi"}]
)
def test_what_has_no_price(tmp_path: Path, changes: dict[str, Any]) -> None:
    _, kinds, _ = load(written(tmp_path / "t.jsonl", head(0), line(0, **changes)))
    known = Fit(Hockney(1e-6, 1e-9), "")
    assert price(kinds[0], Machine(known, known)) is None
    assert machine_of(kinds, None).local.model is None


def fit_of(link: str, alpha_us: float) -> str:
    """Return a record of `mpicoll.p2p`: 1 ns for each byte."""
    return json.dumps({
        "schema": 1, "kind": "fit", "run": {"id": "r", "hosts": ["a", "a", "b", "b"]},
        "backend": "mpi4py", "library": "MPICH", "transport": "point-to-point", "link": link,
        "alpha_us": alpha_us, "beta_ns_per_byte": 1.0, "ranks": 4, "nodes": 2,
    })  # fmt: skip


def traced_on_hosts(folder: Path, members: str = "0-3") -> Path:
    """Write a trace of two nodes of two ranks, in which MPI served every call."""
    heads = [head(rank) | {"node": "ab"[rank // 2]} for rank in range(4)]
    mpi = line(0, algorithm="mpi", transport="", ranks=4, members=members)
    return written(folder / "t.jsonl", *heads, mpi)


@pytest.mark.parametrize(
    ("members", "nodes"), [("0-3", ((0, 1), (2, 3))), ("0,2,1,3", ((0, 2), (1, 3))), ("", ())]
)
def test_a_trace_tells_the_nodes_of_its_calls(
    tmp_path: Path, members: str, nodes: tuple[tuple[int, ...], ...]
) -> None:
    _, (kind,), _ = load(traced_on_hosts(tmp_path, members))
    assert kind.nodes == nodes


def test_calls_between_nodes_have_the_price_of_the_measured_network(tmp_path: Path) -> None:
    """Without a measurement they have none: memory and a nominal network are others."""
    path, pairs = traced_on_hosts(tmp_path), tmp_path / "pairs.jsonl"
    shown = CliRunner().invoke(main, [str(path)]).output
    assert "4 on 2 nodes" in shown
    assert "between nodes: none: run python -m mpicoll.p2p" in shown
    _, (kind,), _ = load(path)
    assert price(kind, machine_of([kind], None)) is None
    pairs.write_text(fit_of("memory", 1.0) + "\n")
    assert price(kind, machine_of([kind], pairs)) is None
    pairs.write_text("\n".join((fit_of("memory", 1.0), fit_of("network", 100.0))))
    priced = price(kind, machine_of([kind], pairs))
    assert priced is not None
    assert 100 < priced.cheapest_us < 110


def test_calls_are_not_measured_again_on_other_nodes(tmp_path: Path) -> None:
    _, (kind,), _ = load(traced_on_hosts(tmp_path))
    with pytest.raises(ArgumentError, match="4 ranks of 2 nodes is not measured again here"):
        replay(kind, 1.0)


@pytest.mark.launches
def test_calls_are_measured_again(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", head(0), line(0, algorithm="mpi", transport=""))
    process = python("-m", "mpicoll.trace", str(path), "--replay", "1", "--time", "6")
    assert process.returncode == 0, process.stdout
    assert "Allreduce of 8 B on 2 ranks: mpi " in process.stdout
    assert "one_shot" in process.stdout


def test_hostile_numbers_and_names_are_printed(tmp_path: Path) -> None:
    lines = [
        line(0, call="\x1b[2J"), line(0, seconds=1e18, calls=1 << 60), line(0, histogram=[]),
        line(0, least_us=0.0, histogram=[[0.0, 1]]), line(0, algorithm="chain(segments=10000000)"),
    ]  # fmt: skip
    path = written(tmp_path / "t\x1b[2J.jsonl", head(0), *lines)
    result = CliRunner().invoke(main, [str(path), "--from", str(path)])
    assert result.exit_code == 2 and "\x1b" not in result.output
    result = CliRunner().invoke(main, [str(path)])
    assert result.exit_code == 0 and "\x1b" not in result.output


def test_pricing_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "_ALL_SECONDS", 0.0)
    path = written(tmp_path / "t.jsonl", head(0), line(0, ranks=1 << 20))
    result = CliRunner().invoke(main, [str(path)])
    assert result.exit_code == 0 and "1048576" in result.output


@pytest.mark.launches
def test_a_million_ranks_are_not_launched_again(tmp_path: Path) -> None:
    _, (kind,), _ = load(written(tmp_path / "t.jsonl", head(0), line(0, ranks=1 << 20)))
    with pytest.raises(ArgumentError, match="on 1048576 ranks is not measured again here"):
        replay(kind, 1.0)


WHOLE = json.dumps(head(0)) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        "", "{}\n", "nothing\n", '{"rank": 0, "seconds": 1, "schema": "other/1"}\n',
        WHOLE.replace("2.0", "0"), WHOLE.replace("2.0", "1e999"), WHOLE.replace("2.0", "-1"),
        WHOLE.replace("2.0", "9" * 5000), WHOLE[:-5],
    ],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(ArgumentError, match="is no trace"):
        load(path)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000 + "\n", json.dumps(line(0))[:-20],
        *(json.dumps(line(0, **{name: value})) + "\n" for name, value in (
            ("ranks", 1 << 40), ("ranks", -1), ("calls", 1 << 80), ("seconds", -1.0),
            ("histogram", [[-1.0, 5]]), ("call", "A" * 5000), ("dtype", None),
        )),
    ],
    ids=range(9),
)  # fmt: skip
def test_damaged_lines_are_left_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(WHOLE + json.dumps(line(0, call="Bcast")) + "\n" + text)
    seconds, (kind,), (remark,) = load(path)
    assert (seconds, kind.call) == (2.0, "Bcast")
    assert remark.startswith(f"{path}: 1 line left out, damaged or cut")
    assert remark in CliRunner().invoke(main, [str(path)], terminal_width=200).output


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    heads = [head(rank) | {"size": 5} for rank in (0, 3)]
    *_, (remark,) = load(written(tmp_path / "t.jsonl", *heads))
    assert remark.startswith("Nothing is here of ranks 1-2,4 of 5.")


RANK_HEAD = {"schema": SCHEMA, "size": 2, "node": "a"}


def file_of_rank(trace: Path, rank: int, calls: int, **head: Any) -> TallyFile:
    """Make the file of a rank whose program still runs."""
    file = TallyFile(path_of_rank(trace, rank), RANK_HEAD | {"rank": rank} | head)
    kind = {"communicator": "world", "ranks": 2, "call": "Allreduce", "bytes_per_rank": 8}
    tally = file.add(kind).numbers
    for _ in range(calls):
        tallies.count(tally, tallies.ticks())
    file.synchronise()
    return file


def test_the_files_of_ranks_are_read_while_the_program_runs(tmp_path: Path) -> None:
    """A rank may have appended its lines already, or a part of them."""
    trace = written(tmp_path / "t[1].jsonl", head(0) | {"size": 2}, line(0), head(1), line(1))
    file = file_of_rank(trace, 1, 7)
    _, kinds, (remark,) = load(trace)
    assert sorted(kind.calls for kind in kinds) == [7, 100]
    assert remark.startswith("Still running: rank 1.")
    os.close(file.file)
    del file
    gc.collect()  # the lock goes with the last map
    *_, (remark,) = load(trace)
    assert remark.startswith("Killed: rank 1.")


def test_a_trace_may_have_files_of_ranks_alone(tmp_path: Path) -> None:
    """As on a host where rank 0 does not run."""
    trace = tmp_path / "t.jsonl"
    assert file_of_rank(trace, 1, 3)
    _, (kind,), (missing, _) = load(trace)
    assert (kind.calls, kind.call) == (3, "Allreduce")
    assert missing.startswith("Nothing is here of rank 0 of 2.")


@pytest.mark.parametrize("length", [0, 10, 100, 300, 1000])
def test_cut_files_of_ranks_are_left_out(tmp_path: Path, length: int) -> None:
    trace = written(tmp_path / "t.jsonl", head(0), line(0))
    file = file_of_rank(trace, 1, 3)
    file.path.write_bytes(file.path.read_bytes()[:length])
    _, (kind,), remarks = load(trace)
    assert kind.calls == 100
    assert any(str(file.path) in remark for remark in remarks) == (length < 200)


def test_many_kinds_of_calls_enlarge_the_file(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    file = file_of_rank(trace, 0, 1)
    for number in range(500):
        kind = {"communicator": "é" * 200, "ranks": 2, "call": "Bcast", "bytes_per_rank": number}
        tallies.count(file.add(kind).numbers, tallies.ticks())
    data = file.path.read_bytes()
    assert len(list(records_in(data))) == 502
    assert len(load(trace).kinds) == 501
    for at in range(40, 4000, 97):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        assert len(list(records_in(bytes(damaged)))) in (501, 502)


def test_a_file_of_another_kind_stays(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    path_of_rank(trace, 0).write_text("a letter")
    with pytest.raises(ArgumentError, match="is no file of tallies"):
        file_of_rank(trace, 0, 1)
    assert path_of_rank(trace, 0).read_text() == "a letter"


KILLED = """
import os, signal, sys, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
x, out = np.zeros(3), np.zeros(3)
for number in range(200):
    comm.Allreduce(x, out)
    if number % 10 == 9:
        comm.Bcast(x)
        comm.allgather(number), comm.allreduce(number)
with open(f"{sys.argv[1]}-new-{comm.rank}", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, f"{sys.argv[1]}-{comm.rank}")
time.sleep(600)
"""


def wait_until_running(folder: Path) -> list[int]:
    """Return the processes of both ranks, once they have made their calls."""
    until = time.monotonic() + LIMIT
    while len(files := sorted(folder.glob("pid-[01]"))) < 2:
        assert time.monotonic() < until, "the ranks have not come so far"
        time.sleep(0.05)
    return [int(file.read_text()) for file in files]


@pytest.mark.launches
def test_killed_ranks_leave_their_calls(tmp_path: Path) -> None:
    """Rank 1 is killed first. The launcher then kills rank 0, or the test does."""
    check_mark()
    program, trace = tmp_path / "killed.py", tmp_path / "t.jsonl"
    program.write_text(KILLED)
    file_of_rank(trace, 7, 1)  # of an earlier program on more ranks
    launcher = mpirun()
    assert launcher is not None
    job = subprocess.Popen(
        [launcher, "-n", "2", sys.executable, "-m", "mpicoll.run", program, tmp_path / "pid"],
        env={**os.environ, **QUIRKS, "MPICOLL_TRACE": str(trace)}, start_new_session=True,
    )  # fmt: skip
    try:
        processes = wait_until_running(tmp_path)
        assert load(trace).remarks == ["Still running: ranks 0-1. The calls up to now are shown."]
        for process in reversed(processes):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    finally:
        job.wait(LIMIT)
    seconds, kinds, remarks = load(trace)
    calls = Counter[str]()
    for kind in kinds:
        calls[kind.call] += kind.calls
    assert calls == {"Allreduce": 200, "Bcast": 20, "allgather": 20, "allreduce": 20}
    assert {(kind.algorithm, kind.transport) for kind in kinds} == {("slots", "symmetric")}
    assert 0 < sum(kind.seconds for kind in kinds) <= seconds
    assert remarks == ["Killed: ranks 0-1. The calls up to then are shown."]
    assert remarks[0] in CliRunner().invoke(main, [str(trace)]).output

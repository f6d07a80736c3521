"""Traces: what flight files tell of all calls of a job."""

from __future__ import annotations

import fcntl
import json
import os
import re
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
from launcher import LIMIT, QUIRKS, check_mark, mpirun, python, ranks
from synthetic_studies import case
from wrong_files import flight_file

from mpicoll.algorithms.registry import find
from mpicoll.costs.fitting import factors
from mpicoll.costs.models import Hockney
from mpicoll.engine.channels import COLLECTIVES
from mpicoll.errors import ArgumentError
from mpicoll.flight.reader import read_all
from mpicoll.flight.records import Call
from mpicoll.records.reading import encoded
from mpicoll.trace import pricing
from mpicoll.trace.__main__ import main
from mpicoll.trace.pricing import Fit, Machine, machine_of, price, schedule
from mpicoll.trace.reading import Kind, load
from mpicoll.trace.replay import replay

US = 1000
RING = Call("allreduce", "float64 (8), sum", "ring", "symmetric")


def kind(**changes: Any) -> Kind:
    fields = {
        "communicator": "world", "ranks": 2, "nodes": ((0, 1),), "line": "train.py:40",
        "call": "allreduce", "nbytes": 8, "dtype": "float64", "op": "sum",
        "algorithm": "ring@symmetric", "calls": 100, "seconds": 0.5, "least_us": 1.0,
        "histogram": ((1.0, 15), (32.0, 5)),
    }  # fmt: skip
    return Kind(**(fields | changes))


def times(*lengths: int, begin: int = 10**9) -> list[tuple[int, int]]:
    """Return when calls begin and end that last so many microseconds, one every millisecond."""
    starts = range(begin, begin + 10**6 * len(lengths), 10**6)
    return [(start, start + length * US) for start, length in zip(starts, lengths, strict=True)]


def written(folder: Path, *lengths: list[int], **fields: Any) -> Path:
    """Write the file of part rank, whose calls last so many microseconds."""
    ranks_text = f"0-{len(lengths) - 1}"
    for rank, of_rank in enumerate(lengths):
        rows = fields.get("rows") or times(*of_rank)
        others = {"size": len(lengths)} | {
            name: value for name, value in fields.items() if name != "rows"
        }
        file = flight_file(rank, ranks_text, rows, **others)
        (folder / file.name).write_bytes(file.content)
    return folder


def test_messages_and_waits_have_a_table_of_their_own(tmp_path: Path) -> None:
    """Each rank that has ended has left a file of them; the mean counts all ranks."""
    written(tmp_path, [10], [12], calls=[RING])
    for dump, calls in zip(read_all(tmp_path)[0], (50, 20), strict=True):
        process = dump.process
        places = [["/home/me/a.py", 7, "Recv", calls, 0.25, calls], ["/b.py", 9, "Wait", 1, 0.5, 1]]
        path = tmp_path / f"messages-{process.host}-{process.pid}.json"
        path.write_text(json.dumps({"boot": "", "places": places[: 1 + (calls == 50)]}))
    assert load(tmp_path).messages == [("Recv", "a.py:7", 50, 0.25), ("Wait", "b.py:9", 1, 0.25)]
    path.write_text("{")
    assert load(tmp_path).messages == [("Wait", "b.py:9", 1, 0.25), ("Recv", "a.py:7", 50, 0.125)]
    printed = CliRunner().invoke(main, [str(tmp_path)]).output
    assert re.search(r"^Recv +a.py:7 +50 +0.125 ", printed, re.M)


def test_records_tell_how_long_mpi_takes(tmp_path: Path) -> None:
    """A method counts before a plan, and only on as many ranks and bytes."""
    written(tmp_path, [10], [12], calls=[RING])
    cases = [
        case("native", size, us, "run", 0, ranks=count, call=call)
        for size, count, call, us in (
            (64, 2, "method", 7.5), (64, 2, "plan", 3.0), (64, 4, "method", 9.0),
            (8, 2, "plan", 1.0),
        )
    ]  # fmt: skip
    cases += [
        case(name, size, 5.0 + size / 1e4, "run", 0, ranks=2)
        for name in ("ring", "naive", "recursive_doubling") for size in (64, 4096, 65536)
    ]  # fmt: skip
    source = tmp_path / "records.jsonl"
    source.write_text("".join(encoded(record) + "\n" for record in cases))
    printed = CliRunner().invoke(main, [str(tmp_path), "--from", str(source)]).output
    assert " by MPI " in printed and re.search(r"^allreduce .* 7\.5 ", printed, re.M)
    assert " by MPI " not in CliRunner().invoke(main, [str(tmp_path)]).output


def test_ranks_are_put_together(tmp_path: Path) -> None:
    (calls,) = load(written(tmp_path, [10, 20, 30], [12, 20, 88], calls=[RING])).kinds
    assert (calls.calls, calls.seconds) == (3, pytest.approx(90e-6))
    assert calls.least_us == pytest.approx(12)
    assert calls.mean_us == pytest.approx(30)
    assert [calls.quantile_us(share) for share in (0.5, 0.99)] == pytest.approx([20, 88])
    assert (calls.call, calls.nbytes, calls.dtype, calls.op) == ("allreduce", 64, "float64", "sum")
    assert (calls.algorithm, calls.ranks, calls.nodes) == ("ring@symmetric", 2, ((0, 1),))


def test_the_longest_kind_comes_first_and_the_table_has_all(tmp_path: Path) -> None:
    calls = [Call("barrier"), Call("broadcast", "float32 (4), root 1", "native", "MPI")]
    rows = [(10**9, 10**9 + 500 * US), (2 * 10**9, 2 * 10**9 + 700 * US)]
    folder = written(tmp_path, [1], rows=rows, calls=calls)
    printed = CliRunner().invoke(main, [str(folder)]).output
    assert printed.index("broadcast") < printed.index("barrier")
    assert "native@MPI" in printed


@pytest.mark.parametrize(
    ("call", "named", "nbytes", "dtype", "op"),
    [
        (Call("allgather", "int32 (4, 2), x"), "allgather", 4 * 8 * 2, "int32", ""),
        (Call("alltoall", "int8 (5)"), "alltoall", 10, "int8", ""),
        (Call("gather", "int16 (), counts (3, 4), root 1"), "gather", 14, "int16", ""),
        (Call("reduce", "float64, up to 64 B, max, root 1", nbytes=64), "reduce", 64, "float64",
         "max"),
        (Call("gather", "objects, up to 64 B, root 1", nbytes=64), "gather of objects", 0, "", ""),
        (Call("broadcast", "", "native", "MPI", 256), "broadcast", 256, "", ""),
        (Call("split"), "split", 0, "", ""),
        (Call("allreduce", f"int8 ({', '.join(['9' * 18] * 40)}), sum"), "allreduce", 1 << 60,
         "int8", "sum"),
    ],
    ids=range(8),
)  # fmt: skip
def test_calls_are_described(
    tmp_path: Path, call: Call, named: str, nbytes: int, dtype: str, op: str
) -> None:
    (calls,) = load(written(tmp_path, [5], [5], calls=[call])).kinds
    assert calls[4:8] == (named, nbytes, dtype, op)
    assert CliRunner().invoke(main, [str(tmp_path)]).exit_code == 0


def test_ranks_that_wait_are_told(tmp_path: Path) -> None:
    """Rank 0 comes 90 us before rank 1 into calls that move data for 10 us."""
    for rank, start in enumerate((0, 90 * US)):
        rows = [(begin + start, begin + 100 * US) for begin in (10**9, 2 * 10**9)]
        file = flight_file(rank, "0-1", rows, size=2, calls=[RING])
        (tmp_path / file.name).write_bytes(file.content)
    (calls,) = load(tmp_path).kinds
    assert calls.waiting == pytest.approx(180 / 220)
    assert " 82%" in CliRunner().invoke(main, [str(tmp_path)]).output


def test_calls_are_priced_by_their_own_times() -> None:
    """Times of one alpha, beta and gamma: their fit finds them, and the price of what ran."""
    true = Hockney(1e-6, 1e-10, 2e-10, ports=None)
    kinds = [
        kind(ranks=4, nbytes=nbytes, algorithm=name, least_us=us, histogram=((us / 1.125, 20),))
        for name in ("ring", "recursive_doubling", "rabenseifner")
        for nbytes in (8, 1 << 12, 1 << 20)
        for us in [1e6 * sum(a * b for a, b in zip(factors(find("allreduce", name), 4, 0, nbytes,
                   None), (true.alpha, true.beta, true.gamma), strict=True))]
    ]  # fmt: skip
    machine = machine_of(kinds, None)
    model, origin = machine.local
    assert model is not None
    assert (model.latency, model.beta, model.gamma) == pytest.approx((1e-6, 1e-10, 2e-10), rel=1e-3)
    assert "9 kinds of calls" in origin
    for part in kinds:
        priced = price(part, machine)
        assert priced is not None
        assert priced.ran == pytest.approx(part.least_us, rel=0.01)
        assert priced.cheapest_us <= priced.ran * 1.001


KNOWN = Fit(Hockney(1e-6, 1e-9, 1e-9), "")


@pytest.mark.parametrize("nbytes", [8, 1 << 20])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("collective", COLLECTIVES[:-1])
def test_calls_over_slots_have_a_price(collective: str, size: int, nbytes: int) -> None:
    calls = kind(call=collective, ranks=size, nodes=(), nbytes=nbytes, algorithm="slots@symmetric")
    priced = price(calls, Machine(KNOWN, KNOWN))
    assert priced is not None and priced.ran is not None
    assert 1 <= priced.cheapest_us <= priced.ran * 1.001


@pytest.mark.parametrize(
    ("collective", "size", "nbytes", "name"),
    [
        ("allreduce", 2, 1 << 20, "one_shot"), ("allreduce", 3, 1 << 20, "two_shot"),
        ("allreduce", 3, 1 << 14, "one_shot"), ("reduce", 4, 1 << 20, "two_shot"),
        ("scan", 4, 1 << 20, "one_shot"),
    ],
)  # fmt: skip
def test_the_schedule_of_slots_is_that_of_the_channel(
    collective: str, size: int, nbytes: int, name: str
) -> None:
    algorithm = schedule(kind(call=collective, ranks=size, nbytes=nbytes, algorithm="slots@x"))
    assert algorithm is not None and algorithm.name == name


@pytest.mark.parametrize(
    "changes",
    [
        {"call": "allreduce of objects"}, {"ranks": 1}, {"nbytes": 0}, {"call": "split"},
        {"call": "iallreduce", "algorithm": "native@MPI"}, {"call": "other calls"},
    ],
)  # fmt: skip
def test_what_has_no_price(changes: dict[str, Any]) -> None:
    assert price(kind(**changes), Machine(KNOWN, KNOWN)) is None


@pytest.mark.parametrize("algorithm", ["native@MPI", "native_persistent@MPI", "chain(x)", ""])
def test_calls_of_the_library_have_the_price_of_the_cheapest(algorithm: str) -> None:
    priced = price(kind(algorithm=algorithm), Machine(KNOWN, KNOWN))
    assert priced is not None and priced.ran is None and priced.cheapest
    assert machine_of([kind(algorithm=algorithm)], None).local.model is None


def fit_of(link: str, alpha_us: float) -> str:
    """Return a record of `mpicoll.p2p`: 1 ns for part byte."""
    import json

    return json.dumps({
        "schema": 1, "kind": "fit", "run": {"id": "r", "hosts": ["a", "a", "b", "b"]},
        "backend": "mpi4py", "library": "MPICH", "transport": "point-to-point", "link": link,
        "alpha_us": alpha_us, "beta_ns_per_byte": 1.0, "ranks": 4, "nodes": 2,
    })  # fmt: skip


def traced_on_hosts(folder: Path, members: str = "0-3") -> Path:
    """Write the files of two nodes of two ranks, in which MPI served every call."""
    mpi = Call("allreduce", "", "native", "MPI", 8)
    for rank in range(4):
        file = flight_file(
            rank, members, times(5, 5), size=4, node="ab"[rank // 2], calls=[mpi]
        )  # fmt: skip
        (folder / file.name).write_bytes(file.content)
    return folder


@pytest.mark.parametrize(
    ("members", "nodes"),
    [("0-3", ((0, 1), (2, 3))), ("0,2,1,3", ((0, 2), (1, 3))), ("0-4", ()), ("", ())],
)
def test_the_nodes_of_calls_are_told(
    tmp_path: Path, members: str, nodes: tuple[tuple[int, ...], ...]
) -> None:
    (calls,) = load(traced_on_hosts(tmp_path, members)).kinds
    assert calls.nodes == nodes


def test_calls_between_nodes_have_the_price_of_the_measured_network(tmp_path: Path) -> None:
    """Without a measurement they have none: memory and a nominal network are others."""
    folder = tmp_path / "trace"
    folder.mkdir()
    shown = CliRunner().invoke(main, [str(traced_on_hosts(folder))]).output
    assert "4 on 2 nodes" in shown
    assert "between nodes: none: run python -m mpicoll.p2p" in shown
    (calls,) = load(folder).kinds
    assert price(calls, machine_of([calls], None)) is None
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(fit_of("memory", 1.0) + "\n")
    assert price(calls, machine_of([calls], pairs)) is None
    pairs.write_text("\n".join((fit_of("memory", 1.0), fit_of("network", 100.0))))
    priced = price(calls, machine_of([calls], pairs))
    assert priced is not None
    assert 100 < priced.cheapest_us < 110


def test_calls_are_not_measured_again_on_other_nodes(tmp_path: Path) -> None:
    (calls,) = load(traced_on_hosts(tmp_path)).kinds
    with pytest.raises(ArgumentError, match="4 ranks of 2 nodes is not measured again here"):
        replay(calls, 1.0)


@pytest.mark.launches
def test_calls_are_measured_again(tmp_path: Path) -> None:
    calls = [Call("allreduce", "", "native", "MPI", 8)]
    folder = written(tmp_path, [5, 5, 5], [5, 5, 5], calls=calls)
    process = python("-m", "mpicoll.trace", str(folder), "--replay", "1", "--time", "6")
    assert process.returncode == 0, process.stdout
    assert "allreduce of 8 B on 2 ranks: native@MPI " in process.stdout
    assert "one_shot" in process.stdout


@pytest.mark.parametrize("ranks_of_group", [1 << 20, 1 << 12])
def test_many_ranks_are_not_launched_again(ranks_of_group: int) -> None:
    with pytest.raises(ArgumentError, match=f"on {ranks_of_group} ranks is not measured again"):
        replay(kind(ranks=ranks_of_group), 1.0)


def test_hostile_names_are_printed(tmp_path: Path) -> None:
    calls = [Call("\x1b[2J", "\x1b[2J", "chain(segments=10000000)", "\x1b")]
    result = CliRunner().invoke(main, [str(written(tmp_path, [5], [5], calls=calls))])
    assert result.exit_code == 0 and "\x1b" not in result.output


def test_pricing_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "_ALL_SECONDS", 0.0)
    result = CliRunner().invoke(main, [str(written(tmp_path, [5], [5], calls=[RING]))])
    assert result.exit_code == 0 and "ring@symmetric" in result.output


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="has no flight files"):
        load(tmp_path)


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    for rank in (0, 3):
        file = flight_file(rank, "0-4", times(5), size=5)
        (tmp_path / file.name).write_bytes(file.content)
    remarks = load(tmp_path).remarks
    assert remarks[0].startswith("Nothing is here of ranks 1-2,4 of 5.")
    assert remarks[1] == "Killed: ranks 0,3. The calls up to then are shown."


def test_running_and_killed_ranks_are_named(tmp_path: Path) -> None:
    folder = written(tmp_path, [5], [5])
    with (folder / "rank-00001.job.2.flight").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        trace = load(folder)
        printed = CliRunner().invoke(main, [str(folder)]).output
    assert trace.remarks == [
        "Still running: rank 1. The calls up to now are shown.",
        "Killed: rank 0. The calls up to then are shown.",
    ]
    assert trace.remarks[0] in printed


def test_messages_are_no_collectives(tmp_path: Path) -> None:
    import mpicoll

    def run(c: mpicoll.Collectives) -> None:
        import numpy as np

        for _ in range(3):
            c.allreduce(np.ones(4), algorithm="ring")
            c.sendrecv(np.ones(2), (c.rank + 1) % 2, np.empty(2), (c.rank + 1) % 2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPICOLL_FLIGHT_DIR", str(tmp_path))
        patch.setenv("MPICOLL_FLIGHT", "keep")
        mpicoll.threads(2)(run)
    kinds = load(tmp_path).kinds
    assert {part[3:8] for part in kinds} == {
        (f"test_trace.py:{run.__code__.co_firstlineno + 4}", "allreduce", 32, "float64", "sum")
    }
    assert sum(part.calls for part in kinds) == 3


LIVED = """
import os, signal, sys, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
x, out = np.zeros(3), np.zeros(3)
for number in range(3000):
    comm.Allreduce(x, out)
    if number % 10 == 9:
        comm.Bcast(x)
        comm.allgather(number)
wrong = MPI.Op.Create(lambda a, b, datatype: None)
comm.Allreduce(x, out, op=wrong)
with open(f"{sys.argv[1]}-new-{comm.rank}", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, f"{sys.argv[1]}-{comm.rank}")
if len(sys.argv) == 2:
    time.sleep(600)
"""
CALLS = {"allreduce": 3001, "broadcast": 300, "allgather of objects": 300}


def wait_until_running(folder: Path) -> list[int]:
    """Return the processes of both ranks, once they have made their calls."""
    until = time.monotonic() + LIMIT
    while len(files := sorted(folder.glob("pid-[01]"))) < 2:
        assert time.monotonic() < until, "the ranks have not come so far"
        time.sleep(0.05)
    return [int(file.read_text()) for file in files]


def counted(folder: Path) -> Counter[str]:
    calls = Counter[str]()
    for part in load(folder).kinds:
        calls[part.call] += part.calls
    return calls


@pytest.mark.launches
def test_killed_ranks_leave_their_calls(tmp_path: Path) -> None:
    """Rank 1 is killed first. The launcher then kills rank 0, or the test does."""
    check_mark()
    program, place = tmp_path / "killed.py", tmp_path / "trace"
    program.write_text(LIVED)
    launcher = mpirun()
    assert launcher is not None
    job = subprocess.Popen(
        [launcher, "-n", "2", sys.executable, "-m", "mpicoll.run", "--trace", place, program,
         tmp_path / "pid"],
        env={**os.environ, **QUIRKS}, start_new_session=True,
    )  # fmt: skip
    try:
        processes = wait_until_running(tmp_path)
        assert load(place).remarks == ["Still running: ranks 0-1. The calls up to now are shown."]
        for process in reversed(processes):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    finally:
        job.wait(LIMIT)
    assert counted(place) == CALLS
    assert load(place).remarks == ["Killed: ranks 0-1. The calls up to then are shown."]


@pytest.mark.launches
@pytest.mark.parametrize("nodes", ["", "1"], ids=["one node", "two nodes"])
def test_programs_that_end_leave_their_calls(tmp_path: Path, nodes: str) -> None:
    program, place = tmp_path / "lived.py", tmp_path / "trace"
    program.write_text(LIVED)
    process = ranks(
        2, "-m", "mpicoll.run", f"--trace={place}", str(program), str(tmp_path / "pid"), "end",
        environment={"MPICOLL_RANKS_PER_NODE": nodes} if nodes else {},
    )  # fmt: skip
    assert process.returncode == 0, process.stdout
    assert counted(place) == CALLS
    trace = load(place)
    assert trace.remarks == [] and 0 < sum(part.seconds for part in trace.kinds) < trace.seconds
    by_mpi = [part for part in trace.kinds if part.algorithm == "native@MPI"]
    assert {part.nodes for part in trace.kinds} == {((0,), (1,)) if nodes else ((0, 1),)}
    folded = [part for part in by_mpi if part.call == "allreduce"]
    assert sum(part.calls for part in folded) == (3001 if nodes else 1)
    assert {part.nbytes for part in folded} == {32}
    lines = LIVED.splitlines()
    for part in trace.kinds:
        method = part.call.partition(" ")[0]
        method = {"broadcast": "Bcast", "allreduce": "Allreduce"}.get(method, method)
        assert method in lines[int(part.line.partition(":")[2]) - 1]

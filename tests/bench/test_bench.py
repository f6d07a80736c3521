"""Whole runs of the benchmark on real ranks."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from subprocess import CompletedProcess

import launcher
import pytest
from jsonschema import Draft202012Validator
from launcher import LIMIT, python, ranks

from mpicoll.engine.extension import executor
from mpicoll.machine.variables import THREAD_LEVELS
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.records.lines import AARecord, CaseRecord, RunRecord, json_schema
from mpicoll.records.reading import load, only

KEYS = {
    "schema", "run", "collective", "algorithm", "executed", "backend", "library", "transport",
    "device", "dtype", "op", "root", "in_place", "ranks", "nodes", "bytes_total",
    "bytes_per_rank", "samples", "time_us", "algbw_GBps", "busbw_GBps", "speedup_vs_native",
    "correct", "wrong", "message",
}  # fmt: skip

needs_mpi = pytest.mark.skipif(launcher.mpirun() is None, reason="no mpirun here")


def mpirun(count: int, *arguments: str | Path, **more: str) -> CompletedProcess[str]:
    environment = {"PYTHONIOENCODING": "utf-8", **more}
    return ranks(count, *map(str, arguments), environment=environment, merged=False)


BENCH = ("-m", "mpicoll.bench", "--backends", "mpi4py")
TINY = ("-n", "3", "--sizes", "64", "-T", str(LIMIT // 2))


@pytest.mark.launches
@needs_mpi
def test_records_of_every_collective(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    result = mpirun(2, *BENCH, *TINY, "--format", "jsonl", "-J", file)
    assert result.returncode == 0, result.stderr
    assert result.stdout == file.read_text()
    schema = Draft202012Validator(json_schema())
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    for line in lines:
        schema.validate(line)
    assert all(record.keys() >= KEYS for record in lines[1:])
    described, *records = load(file)
    assert isinstance(described, RunRecord)
    records = only(CaseRecord, records)
    assert len(records) == len(records) and {record.run.id for record in records} == {
        described.run.id
    }
    assert {record.collective for record in records} == set(COLLECTIVES)
    assert all(record.correct for record in records if record.collective != "barrier")
    ran = [record for record in records if record.time_us]
    named = [record for record in ran if record.algorithm != "auto"]
    assert all(record.executed.startswith(record.algorithm) for record in named)
    assert {record.transport for record in named} >= {"native", "symmetric"}


@pytest.mark.launches
@needs_mpi
def test_sweeps_and_defaults_run_side_by_side(tmp_path: Path) -> None:
    """Each member under its own name; of a library's default the record says what ran."""
    names = "chain(segments=1:4:*2)@point-to-point,knomial(radix=2|3),mpich_default,openmpi_default"
    file = tmp_path / "records.jsonl"
    result = mpirun(2, *BENCH, *TINY, "bcast", "scan", "--algorithms", names, "-J", file)
    assert result.returncode == 0, result.stderr
    records = only(CaseRecord, load(file))
    ran = {record.algorithm: record for record in records if record.collective == "broadcast"}
    assert list(ran) == [
        "native", *(f"chain(segments={number})@point-to-point" for number in (1, 2, 4)),
        "knomial(radix=2)", "knomial(radix=3)", "mpich_default", "openmpi_default",
    ]  # fmt: skip
    assert all(record.executed == name.partition("@")[0] for name, record in list(ran.items())[:6])
    assert ran["mpich_default"].executed == ran["mpich_default"].note == "binomial"
    assert ran["openmpi_default"].executed == "kary(radix=2,segments=1)"
    assert "mpich_default: binomial" in result.stdout


@pytest.mark.launches
@needs_mpi
def test_in_place_is_right() -> None:
    result = mpirun(2, *BENCH, *TINY, "--in-place", "-d", "float16", "--algorithms", "auto",
                  "--format", "csv")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "Out of bounds values : 0 OK" in result.stderr


@pytest.mark.launches
@needs_mpi
@pytest.mark.parametrize("level", THREAD_LEVELS)
def test_records_say_the_thread_level_and_the_executor(level: str, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    result = mpirun(2, *BENCH, *TINY, "scan", "--threads", level, "-J", file)
    assert result.returncode == 0, result.stderr
    records = only(CaseRecord, load(file))
    assert {record.run.threads for record in records} == {level}
    assert f"(threads {level})" in result.stdout
    assert {record.run.executor for record in records} == {executor()}
    assert f"# schedules over host memory by {executor()}" in result.stdout
    assert {record.algorithm: record.executor for record in records if record.executor} == {
        "native": "native", "native_persistent": "native", "auto": "compiled",
        "recursive_doubling": "compiled", "linear": "compiled",
    }  # fmt: skip


@pytest.mark.launches
@needs_mpi
@pytest.mark.parametrize("calls", ["plans", "methods", "both"])
def test_calls_chooses_plans_and_methods(calls: str, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    result = mpirun(2, *BENCH, *TINY, "allreduce", "barrier", "--calls", calls, "-J", file)
    assert result.returncode == 0, result.stderr
    records = only(CaseRecord, load(file))
    kinds = {
        (record.collective, record.call): record.algorithm
        for record in records
        if record.algorithm in ("native", "auto")
    }
    every = {"plans": ["plan"], "methods": ["method", "method, new arrays"],
             "both": ["plan", "method"]}[calls]  # fmt: skip
    assert set(kinds) == {
        (collective, call) for collective in ("allreduce", "barrier") for call in every
    } - {("barrier", "method, new arrays")}
    assert all(record.time_us and record.correct is not False for record in records)
    assert all(record.speedup_vs_native for record in records if record.algorithm == "auto")
    assert all(record.samples >= 6 for record in records if record.best)
    assert {record.algorithm for record in records if record.call != "plan"} <= {"native", "auto"}


@pytest.mark.launches
@needs_mpi
@pytest.mark.parametrize(
    "more",
    [
        "mpi4py -d float16,bool -o max -r 1 --in-place",
        "mpi4py,torch -o avg --allocate --collectives allreduce,reduce_scatter,allgather",
    ],
)
def test_methods_are_right(more: str) -> None:
    flags = [*more.split(), *TINY, "-n", "1", "--calls", "methods", "--format", "csv"]
    result = mpirun(2, *BENCH[:3], *flags)
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert {row["call"] for row in rows} == {"method", "method, new arrays"}
    assert all(row["correct"] in ("True", "") for row in rows)
    assert any(row["correct"] == "True" for row in rows)


BROKEN_METHOD = """
from mpicoll.bench.command import main
from mpicoll.measurement.worlds import mpi4py_world

def world(interface):
    found = mpi4py_world(interface)
    right, calls = found.allreduce, []

    def allreduce(x, *, out):
        calls.append(right(x, out=out))
        if len(calls) % 48 == 17:
            out[3] = 99
    found.allreduce = allreduce
    return found

main(obj={"mpi4py": world})
"""


@pytest.mark.launches
@needs_mpi
def test_a_wrong_result_in_one_array_of_the_pool_is_found(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(BROKEN_METHOD)
    result = mpirun(2, script, "allreduce", "--algorithms", "auto", "--calls", "methods", *TINY,
                  "-n", "1", "-w", "0", "-c", "48")  # fmt: skip
    assert result.returncode == 1, result.stderr
    assert "WRONG allreduce auto by method, new arrays" in result.stderr
    assert "index 3" in result.stderr and "got 99" in result.stderr


BROKEN_ALGORITHMS = """
import os, signal
from mpicoll.algorithms import algorithm
from mpicoll.calls import planner
from mpicoll.measurement.workbench import Workbench
from mpicoll.measurement.worlds import mpi4py_world
from mpicoll.bench.command import main
from mpicoll.notation.schedule import recv, send

if "PROVED" not in os.environ:
    planner._prove = lambda *arguments: None  # wrong schedules run

@algorithm("allreduce")
def broken(rank, size):
    '''Overwrite where it should fold.'''
    yield tuple(send(1 - rank, b) for b in range(2)) + tuple(recv(1 - rank, b) for b in range(2))

@algorithm("allreduce")
def stuck(rank, size):
    '''Wait for a message that nobody sends.'''
    yield (recv(1 - rank, 0),)

def stop(bench, case):
    if bench.world.rank and "ring" in case.algorithm:
        os.kill(os.getpid(), signal.SIGSTOP)
    return bind(bench, case)

bind, Workbench.bind = Workbench.bind, stop
main(obj={"mpi4py": mpi4py_world})
"""


@pytest.mark.launches
@needs_mpi
def test_wrong_results_are_named_and_fail(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(BROKEN_ALGORITHMS)
    result = mpirun(2, script, "allreduce", "--algorithms", "broken", *TINY)
    assert result.returncode == 1, result.stderr
    for text in ("allreduce broken", "rank 0", "index 0", "expected", "got", "FAILED"):
        assert text in result.stdout
    assert "WRONG allreduce broken (mpi4py" in result.stderr


@pytest.mark.launches
@needs_mpi
@pytest.mark.parametrize("name", ["broken", "stuck"])
def test_a_wrong_schedule_fails_before_it_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVED", "1")
    script = tmp_path / "broken.py"
    script.write_text(BROKEN_ALGORITHMS)
    result = mpirun(2, script, "allreduce", "--algorithms", name, *TINY)
    assert result.returncode != 0
    assert name in result.stderr


@pytest.mark.launches
@needs_mpi
@pytest.mark.parametrize("name", ["stuck", "ring"])
def test_a_hang_is_named(name: str, tmp_path: Path) -> None:
    """Also where a signal has stopped a rank, which mpirun ends with the others."""
    script = tmp_path / "stuck.py"
    script.write_text(BROKEN_ALGORITHMS)
    result = mpirun(2, script, "allreduce", "--algorithms", f"{name}@point-to-point",
                  "-n", "3", "-T", "5")  # fmt: skip
    assert result.returncode not in (0, 1, 2)
    assert (
        "HUNG" in result.stderr and f"allreduce {name}" in result.stderr and "rank" in result.stderr
    )
    assert "measure.py" in result.stderr


needs_no_gpu = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")


@pytest.mark.launches
@needs_mpi
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["allredcue"], "did you mean 'allreduce'?"),
        (["--algorithms", "rnig"], "did you mean 'ring'?"),
        (["--algorithms", "adaptive@cma"], "mpicoll.tune now measures"),
        (["--wrong-flag"], "No such option"),
        (["bcast", "-r", "9"], "root 9 is not a rank"),
        pytest.param(
            ["bcast", "--device", "cuda"], "mpi4py is left out: rank 0", marks=needs_no_gpu
        ),
    ],
)
def test_bad_usage_is_said_once(arguments: list[str], text: str) -> None:
    result = mpirun(2, *BENCH, *arguments)
    assert result.returncode == 2
    assert result.stderr.count("Error:") == 1 and text in result.stderr


@pytest.mark.launches
@needs_mpi
def test_list_and_dry_run_do_not_measure() -> None:
    listed = mpirun(3, *BENCH, "--list", "allreduce", "allgather")
    assert listed.returncode == 0, listed.stderr
    assert "native_persistent" in listed.stdout and "not neighbor_exchange" in listed.stdout
    dry = mpirun(2, *BENCH, "--dry-run", "allreduce", "--sizes", "4,1M", "-o", "sum,bxor")
    assert dry.returncode == 0, dry.stderr
    assert "1048576 B" in dry.stdout and "estimated time" in dry.stdout
    assert "skipped allreduce: op 'bxor' is not defined on float32" in dry.stdout


def test_what_leaves_nothing_to_measure_is_refused() -> None:
    result = python(*BENCH, "allreduce", "-o", "bxor", merged=False)
    assert result.returncode == 2
    assert "nothing to measure: allreduce: op 'bxor' is not defined on float32" in result.stderr


@needs_mpi
def test_lone_ranks_say_how_to_mend_it() -> None:
    environment = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    result = python(*BENCH, *TINY, environment=environment, merged=False)
    assert result.returncode == 2, result.stderr
    assert "independent run of 1 rank" in result.stderr and "start it with" in result.stderr


@pytest.mark.launches
@needs_mpi
@pytest.mark.parametrize("command", ["bench", "p2p"])
def test_a_flag_states_the_nodes(command: str, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    arguments = {"bench": ("allreduce", "--algorithms", "two_level", "-n", "3"),
            "p2p": ("--transports", "point-to-point")}[command]  # fmt: skip
    result = mpirun(3, "-m", f"mpicoll.{command}", *arguments, "--ranks-per-node", "2",
                  "--backends", "mpi4py", "--sizes", "8,1K", "--time", "1", "-J", file)  # fmt: skip
    assert result.returncode == 0, result.stderr
    described, *records = load(file)
    assert isinstance(described, RunRecord)
    assert described.run.environment["MPICOLL_RANKS_PER_NODE"] == "2"
    assert {record.nodes for record in records if not isinstance(record, RunRecord | AARecord)} == {
        2
    }


STATED_NODES = """
import mpicoll, numpy as np
from mpi4py import MPI
with mpicoll.world() as c:
    total = c.allreduce(np.ones(9), algorithm="two_level")
    if c.rank == 0:
        print(c.nodes, MPI.get_vendor()[0], c.transport.unshared, *set(total))
"""


@pytest.mark.launches
@needs_mpi
def test_stated_nodes_count_where_mpi_knows_better(tmp_path: Path) -> None:
    """MPICH takes each rank for a host of its own: nodes are as stated, and no memory is shared."""
    script = tmp_path / "apart.py"
    script.write_text(STATED_NODES)
    result = mpirun(4, script, MPIR_CVAR_NOLOCAL="1", MPICOLL_RANKS_PER_NODE="2")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("((0, 1), (2, 3)) ") and result.stdout.endswith(" 4.0\n")
    assert "several hosts" in result.stdout or "MPICH" not in result.stdout

"""The harness: flags, cases, checks that catch faults, records, and whole runs."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import expect
import numpy as np
import pytest

from mpicoll.bench import cli, render
from mpicoll.bench.cli import parse as parse_flags
from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import Wanted, groups, is_known
from mpicoll.measurement.checking import Case, Check, Wrong, compare, expected, inputs, poison
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.dtypes import DTYPES
from mpicoll.notation.operators import OPS, check_op
from mpicoll.p2p import options as pairing
from mpicoll.records import journal
from mpicoll.tune import options as tuning

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sys.executable).parent / "mpirun"
TORCHRUN = Path(sys.executable).parent / "torchrun"
ARRAYS = NumpyArrays()
KEYS = {
    "schema", "run", "collective", "algorithm", "executed", "backend", "library", "transport",
    "device", "dtype", "op", "root", "in_place", "ranks", "nodes", "bytes_total",
    "bytes_per_rank", "samples", "time_us", "algbw_GBps", "busbw_GBps", "speedup_vs_native",
    "correct", "wrong", "message",
}  # fmt: skip

needs_mpi = pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside this Python")


# -- flags and cases --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a(x=8:2)", "'8:2' in 'a(x=8:2)' is empty"),
        ("a(x=2:b)", "'2:b' in 'a(x=2:b)' is no range"),
        ("a(x=2:)", "is no range"),
        ("a(x=1.5:2)", "is no range"),
        ("a(x=1:9:2)", "first:last:+step"),
        ("a(x=1:9:*1)", "does not grow"),
        ("a(x=0:9:*2)", "does not grow"),
        ("a(x=1:9:+0)", "does not grow"),
        ("a(x=1:257)", "stands for 257 algorithms: at most 256"),
        ("a(x=1:999999999999)", "stands for 999999999999 algorithms"),
        ("a(x=1:16,y=1:17)", "stands for 272 algorithms"),
    ],
)
def test_bad_sweeps_are_refused(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        flags(algorithms=f"ring,{text}")


def flags(**given: Any) -> Any:
    plain = dict.fromkeys(
        ("listed", "backends", "algorithms", "minbytes", "maxbytes", "stepfactor", "stepbytes",
         "sizes", "iters", "output", "resume")
    ) | {
        "collectives": (), "warmup_iters": 2, "check": 1, "op": "sum", "datatype": "float32",
        "root": "0", "timing": "together", "timeout": 60.0, "layout": "table", "budget": 40.0,
        "precision": 5.0, "in_place": False, "seed": 0, "lists": False, "dry": False,
        "interface": None, "transports": None, "allocate": False, "device": "cpu",
    }  # fmt: skip
    worlds: Any = {"mpi4py": None, "torch": None}
    return parse_flags(plain | given, worlds)


@pytest.mark.parametrize("name", ["bcast", "Broadcast", "BCAST", "broad_cast"])
def test_collectives_in_every_spelling(name: str) -> None:
    assert flags(listed=name).wanted.collectives == ("broadcast",)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"sizes": "4,1K"}, (4, 1024)),
        ({"minbytes": "1K", "maxbytes": "4K"}, (1024, 2048, 4096)),
        ({"minbytes": "4", "maxbytes": "64", "stepfactor": 4.0}, (4, 16, 64)),
        ({"minbytes": "100", "maxbytes": "300", "stepbytes": "100"}, (100, 200, 300)),
        ({"minbytes": "8M"}, (8 << 20,)),
    ],
    ids=str,
)
def test_size_flags(given: dict[str, Any], sizes: tuple[int, ...]) -> None:
    assert flags(**given).wanted.sizes == sizes


@pytest.mark.parametrize(
    "given",
    [
        {"sizes": "4", "minbytes": "4"},
        {"stepbytes": "4", "stepfactor": 2.0},
        {"listed": "allredcue"},
        {"backends": "nccl5"},
        {"op": "summ"},
        {"datatype": "float31"},
        {"minbytes": ""},
        {"maxbytes": ""},
        {"stepbytes": ""},
    ],
    ids=str,
)
def test_bad_flags_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        flags(**given)


@pytest.mark.parametrize("text", ["", ",", " , "])
@pytest.mark.parametrize(
    ("parameters", "flag"),
    [
        *((cli._PARAMETERS, flag) for flag in ("--collectives", "--backends", "--algorithms",
                                               "--transports", "--sizes", "-o", "-d", "-r")),
        *((pairing.PARAMETERS, flag) for flag in ("--backends", "--transports", "--sizes")),
        *((tuning.PARAMETERS, flag) for flag in ("--backends", "--algorithms", "--sizes")),
    ],
)  # fmt: skip
def test_an_empty_list_is_not_its_default(parameters: Any, flag: str, text: str) -> None:
    parser = click.Command("any", params=parameters)
    with pytest.raises(click.BadParameter, match="names nothing: leave it out") as caught:
        parser.main([flag, text], standalone_mode=False)
    assert flag in caught.value.format_message() and caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["allreduce", "allgather", "alltoall", "scatter"])
@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("given", [4, 1000, 4096])
def test_sizes_are_whole_elements_on_every_rank(name: str, size: int, given: int) -> None:
    (group,) = groups(Wanted(collectives=(name,), sizes=(given,)), size)
    rows = 1 if name == "allreduce" else size
    assert group.width >= 1
    assert group.bytes_per_rank == 4 * group.width
    assert group.bytes_total == rows * group.bytes_per_rank
    assert group.bytes_total <= max(given, 4 * rows)


def test_meaningless_pairs_are_skipped_and_said() -> None:
    wanted = Wanted(collectives=("allreduce",), ops=("band", "sum"), sizes=(64,))
    assert [group.op for group in groups(wanted, 4)] == ["sum"]
    assert len(wanted.skipped) == 1 and "band" in wanted.skipped[0]


def test_root_out_of_range_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="root 4"):
        list(groups(Wanted(collectives=("bcast",), roots=("4",)), 4))


def test_algorithm_with_unknown_parameter_is_an_error() -> None:
    assert not is_known(COLLECTIVES["barrier"], "rnig", [])
    with pytest.raises(ArgumentError, match="has no 'teeth'"):
        is_known(COLLECTIVES["allreduce"], "ring(teeth=3)", [])


# -- checking ---------------------------------------------------------------------------


def combinations() -> list[Any]:
    """Return every collective, op and dtype that fit together."""
    found = []
    for what in COLLECTIVES.values():
        for op in OPS.values() if what.reduces else (OPS["sum"],):
            for dtype in DTYPES if what.unit != "none" else ():
                try:
                    check_op(op, dtype, what) if what.reduces else None
                except ArgumentError:
                    continue
                found.append(pytest.param(what, op, dtype, id=f"{what.name}-{op.name}-{dtype}"))
    return found


def all_cases(what: Any, op: Any, dtype: str, size: int, root: int, width: int = 5) -> list[Case]:
    return [Case.of(what, rank, size, root, width, dtype, op) for rank in range(size)]


@pytest.mark.parametrize(("what", "op", "dtype"), combinations())
@pytest.mark.parametrize(("size", "root"), [(1, 0), (4, 3), (7, 2)])
def test_expected_is_what_brute_force_says(
    what: Any, op: Any, dtype: str, size: int, root: int
) -> None:
    cases = all_cases(what, op, dtype, size, root)
    shape = expect.input_shape(what.name, size, 0, (5,), None)
    given = [inputs(case) for case in cases]
    full = [(each if each is not None else given[root]).reshape(shape) for each in given]  # type: ignore[union-attr]
    for case, good in zip(
        cases, expect.expected(what.name, full, op.name, root, None), strict=True
    ):
        found = expected(case)
        if good is None:
            assert found is None
            continue
        assert found is not None
        np.testing.assert_array_equal(found, good.reshape(-1))
        spoiled = compare(0, poison(found), found)
        assert spoiled is not None and spoiled.count == found.size


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("op", ["sum", "prod", "avg"])
@pytest.mark.parametrize("size", [2, 16, 100, 250])
def test_folds_are_exact_in_any_order(op: str, dtype: str, size: int) -> None:
    if op == "avg" and dtype == "int8":
        pytest.skip("a mean of integers is none")
    what = COLLECTIVES["allreduce"]
    parts = np.array([inputs(c) for c in all_cases(what, OPS[op], dtype, size, 0, 64)], float)
    limit = {"int8": 127, "float16": 2048, "bfloat16": 256, "float32": 2**24}[dtype]
    if op == "prod":
        assert np.abs(np.prod(parts, 0)).max() <= 64
        return
    most = np.abs(parts).sum(0).max() if op == "sum" else np.abs(np.cumsum(parts, 0)).max()
    assert most <= limit
    if op == "avg":
        assert not (parts.sum(0) % size).any()


FAULTS = ["missing", "repeated", "shifted", "unwritten", "foreign", "swapped"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("op", OPS)
def test_planted_faults_are_caught(fault: str, op: str) -> None:
    dtype = "float32" if op == "avg" else "int32"
    idempotent = op in ("min", "max", "band", "bor", "land", "lor")
    if fault == "repeated" and (idempotent or op == "avg"):
        pytest.skip("a repeated operand changes nothing")
    cases = all_cases(COLLECTIVES["allreduce"], OPS[op], dtype, 4, 0, 64)
    parts = [inputs(case) for case in cases]
    good = expected(cases[0])
    assert good is not None
    assert compare(1, _broken(fault, op, parts, good), good) is not None


def _broken(fault: str, op: str, parts: list[Any], good: Any) -> Any:
    function = expect.FUNCTIONS[op]

    def fold(some: list[Any]) -> Any:
        found = some[0]
        for part in some[1:]:
            found = np.asarray(function(found, part)).astype(good.dtype)
        return (found / 4).astype(good.dtype) if op == "avg" else found

    made: dict[str, Callable[[], Any]] = {
        "missing": lambda: fold(parts[:3]),
        "repeated": lambda: fold([*parts, parts[2]]),
        "shifted": lambda: np.roll(good, 1),
        "unwritten": lambda: np.concatenate([good[:-1], poison(good)[-1:]]),
        "foreign": lambda: fold([*parts[:3], np.roll(parts[3], 16)]),
        "swapped": lambda: np.concatenate([good[32:], good[:32]]),
    }
    return made[fault]()


@pytest.mark.parametrize("name", ["gather", "allgather", "alltoall", "scatter", "broadcast"])
def test_swapped_blocks_are_caught(name: str) -> None:
    case = Case.of(COLLECTIVES[name], 0, 4, 0, 8, "float32", OPS["sum"])
    good = expected(case)
    assert good is not None
    assert compare(0, np.roll(good, 8 if good.size > 8 else 1), good) is not None


def test_first_wrong_element_is_named() -> None:
    good = np.arange(6.0)
    got = good.copy()
    got[[2, 5]] = np.nan, -1
    wrong = compare(3, got, good)
    assert wrong is not None and (wrong.rank, wrong.count, wrong.index) == (3, 2, 2)
    assert str(wrong) == "rank 3, output index 2: expected 2.0, got nan (2 wrong)"


def test_check_poisons_and_guards_the_input() -> None:
    case = Case.of(COLLECTIVES["allreduce"], 0, 1, 0, 8, "int32", OPS["sum"])
    x, out = np.empty(8, "int32"), np.empty(8, "int32")
    check = Check(case, ARRAYS, x, out)
    check.prepare()
    untouched = check.verify()
    assert untouched is not None and untouched.count == 8
    out[:] = x
    assert check.verify() is None
    x[3] += 1
    clobbered = check.verify()
    assert clobbered is not None and (clobbered.where, clobbered.index) == ("input", 3)


def test_check_in_place_keeps_its_input() -> None:
    case = Case.of(COLLECTIVES["allgather"], 1, 2, 0, 4, "float64", OPS["sum"])
    out = np.empty((2, 4))
    check = Check(case, ARRAYS, out[1], out)
    check.prepare()
    assert not np.isnan(out[1]).any() and np.isnan(out[0]).all()
    other = inputs(Case.of(COLLECTIVES["allgather"], 0, 2, 0, 4, "float64", OPS["sum"]))
    out[0] = other
    assert check.verify() is None


def test_patterns_longer_than_their_period() -> None:
    case = Case.of(COLLECTIVES["alltoall"], 1, 3, 0, 70_000, "float32", OPS["sum"])
    given, good = inputs(case), expected(case)
    assert given is not None and good is not None
    np.testing.assert_array_equal(good[70_000:140_000], given[70_000:140_000])


# -- environment and output -------------------------------------------------------------


def record(**changes: Any) -> dict[str, Any]:
    time = dict.fromkeys(("median", "low", "high", "mean", "min", "max", "p95", "p99"), 10.0)
    ratio = {"ratio": 1.5, "low": 1.4, "high": 1.6, "verdict": "faster"}
    return {
        "collective": "allreduce", "algorithm": "ring", "backend": "mpi4py", "dtype": "float32",
        "op": "sum", "root": None, "in_place": False, "ranks": 4, "bytes_total": 4096,
        "bytes_per_rank": 4096, "count": 1024, "samples": 9, "calls_per_sample": 3,
        "time_us": time, "algbw_GBps": 0.4096, "busbw_GBps": 0.6144, "speedup_vs_native": ratio,
        "speedup_vs_other": {**ratio, "against": "torch native"}, "correct": True, "wrong": 0,
        "message": None, "best": True,
        "executed": "ring", "transport": "symmetric", "run": {}, "samples_us": [10.0],
        "first_wrong": None,
    } | changes  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_piped_table_is_plain_text(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding)
    render.print_tables([record(), record(algorithm="bruck", best=False)], stream)
    stream.flush()
    text = raw.getvalue().decode(encoding)
    assert "\x1b" not in text and "allreduce, float32, sum, 4 ranks" in text
    (best,) = [line for line in text.splitlines() if " ring " in line]
    assert best.rstrip().endswith("★" if encoding == "utf-8" else "*")
    assert "1.50x +" in best and "10.0 .. 10.0" in best and "(n)" in best


@pytest.mark.parametrize("columns", [100, 120, 170])
def test_a_narrow_table_leaves_columns_out_and_cuts_no_number(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    render.print_tables([record(), record(algorithm="native", transport="point-to-point")], stream)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= columns
    assert "vs native" in text and "1.50x +" in text and "10.0" in text
    assert ("0.410" in text) is (columns == 170)


def test_a_long_name_goes_on_below_and_leaves_numbers_whole() -> None:
    stream, name = io.StringIO(), "two_level(local=rabenseifner,across=" + "x" * 99 + ")"
    render.print_tables([record(algorithm=name)], stream)
    lines = stream.getvalue().splitlines()
    assert any("1.50x +" in line and "10.0 .. 10.0" in line for line in lines)
    assert "".join(lines).count("x") >= 99 and "…" not in stream.getvalue()


@pytest.mark.parametrize(
    ("layout", "line"),
    [
        ("nccl", ["4096", "1024", "float32", "sum", "-1", "10.00", "0.41", "0.61", "0", "N/A"]),
        ("osu", ["4096", "10.00", "10.00", "10.00", "27"]),
        ("imb", ["4096", "27", "10.00", "10.00", "10.00"]),
    ],
)
def test_layouts_keep_their_columns(layout: str, line: list[str]) -> None:
    out = io.StringIO()
    render.LAYOUTS[layout]([record()], out)
    rows = [each.split() for each in out.getvalue().splitlines() if not each.startswith("#")]
    assert line in [row[: len(line)] for row in rows]


def test_footer_tells_errors_and_refusals() -> None:
    refused = record(time_us=None, correct=None, message="no such call", best=False)
    assert "# Out of bounds values : 0 OK" in render.footer([record()], [])
    lines = render.footer([record(correct=False, wrong=3, message="WRONG it"), refused], ["busy"])
    assert lines[0] == "# Out of bounds values : 3 FAILED"
    assert "# WRONG it" in lines and "# busy" in lines
    assert "#   allreduce ring (mpi4py): no such call" in lines


# -- whole runs -------------------------------------------------------------------------


def launch(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    own = {
        "PYTHONPATH": str(ROOT), "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PYTHONIOENCODING": "utf-8",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }  # fmt: skip
    # What launched this test must not seem to have launched the run.
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PMI", "OMPI_", "PMIX_", "PRTE_", "MPI_", "HYDRA", "MPIR_"))
    }
    return subprocess.run(
        [*map(str, command)], check=False, capture_output=True, text=True, timeout=100,
        env=clean | own | more, cwd=ROOT,
    )  # fmt: skip


def mpirun(ranks: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return launch(MPIRUN, "-n", str(ranks), sys.executable, *arguments)


BENCH = ("-m", "mpicoll.bench", "--backends", "mpi4py")
TINY = ("-n", "3", "--sizes", "64", "-T", "30")


@needs_mpi
def test_records_of_every_collective(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    done = mpirun(2, *BENCH, *TINY, "--format", "jsonl", "-J", file)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines == [json.loads(line) for line in file.read_text().splitlines()]
    found = journal.cases(lines)
    assert [each["kind"] for each in lines] == ["run"] + ["case"] * len(found)
    assert {each["run"]["id"] for each in lines} == {lines[0]["run"]["id"]}
    assert all(each.keys() >= KEYS for each in found)
    assert {each["collective"] for each in found} == set(COLLECTIVES)
    assert all(each["correct"] for each in found if each["collective"] != "barrier")
    ran = [each for each in found if each["time_us"]]
    named = [each for each in ran if each["algorithm"] != "auto"]
    assert all(each["executed"].startswith(each["algorithm"]) for each in named)
    assert {each["transport"] for each in named} >= {"native", "symmetric"}


@needs_mpi
def test_sweeps_and_defaults_run_side_by_side(tmp_path: Path) -> None:
    """Each member under its own name; of a library's default the record says what ran."""
    asked = "chain(segments=1:4:*2)@point-to-point,knomial(radix=2|3),mpich_default,openmpi_default"
    file = tmp_path / "records.jsonl"
    done = mpirun(2, *BENCH, *TINY, "bcast", "scan", "--algorithms", asked, "-J", file)
    assert done.returncode == 0, done.stderr
    found = journal.cases(map(json.loads, file.read_text().splitlines()))
    ran = {each["algorithm"]: each for each in found if each["collective"] == "broadcast"}
    assert list(ran) == [
        "native", *(f"chain(segments={number})@point-to-point" for number in (1, 2, 4)),
        "knomial(radix=2)", "knomial(radix=3)", "mpich_default", "openmpi_default",
    ]  # fmt: skip
    assert all(each["executed"] == name.partition("@")[0] for name, each in list(ran.items())[:6])
    assert ran["mpich_default"]["executed"] == ran["mpich_default"]["note"] == "binomial"
    assert ran["openmpi_default"]["executed"] == "kary(radix=2,segments=1)"
    assert "mpich_default: binomial" in done.stdout


@needs_mpi
@pytest.mark.parametrize("dtype", ["int8", "float64", "float16"])
def test_in_place_is_right(dtype: str) -> None:
    done = mpirun(2, *BENCH, *TINY, "--in-place", "-d", dtype, "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert "Out of bounds values : 0 OK" in done.stderr


BROKEN = """
from mpicoll.algorithms import algorithm
from mpicoll.cli.worlds import mpi4py_world
from mpicoll.bench.cli import start
from mpicoll.schedule import recv, send

@algorithm("allreduce")
def broken(rank, size):
    '''Overwrite where it should fold.'''
    yield tuple(send(1 - rank, b) for b in range(2)) + tuple(recv(1 - rank, b) for b in range(2))

@algorithm("allreduce")
def stuck(rank, size):
    '''Wait for a message that nobody sends.'''
    yield (recv(1 - rank, 0),)

start({"mpi4py": mpi4py_world})
"""


@needs_mpi
def test_wrong_results_are_named_and_fail(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(BROKEN)
    done = mpirun(2, script, "allreduce", "--algorithms", "broken", *TINY)
    assert done.returncode == 1, done.stderr
    for text in ("allreduce broken", "rank 0", "index 0", "expected", "got", "FAILED"):
        assert text in done.stdout
    assert "WRONG allreduce broken (mpi4py" in done.stderr


@needs_mpi
def test_a_hang_is_named(tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(BROKEN)
    done = mpirun(2, script, "allreduce", "--algorithms", "stuck@point-to-point",
                  "-n", "3", "-T", "2")  # fmt: skip
    assert done.returncode not in (0, 1, 2)
    assert "HUNG" in done.stderr and "allreduce stuck" in done.stderr and "rank" in done.stderr
    assert "measure.py" in done.stderr


needs_no_gpu = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")


@needs_mpi
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["allredcue"], "did you mean 'allreduce'?"),
        (["--algorithms", "rnig"], "did you mean 'ring'?"),
        (["--algorithms", "knomial(radix=8:2)"], "is empty"),
        (["bcast", "--algorithms", "knomial(base=2:3)"], "has no 'base': it takes radix"),
        (["--wrong-flag"], "No such option"),
        (["-d", ""], "'-d' / '--datatype': '' names nothing"),
        (["bcast", "-r", "9"], "root 9 is not a rank"),
        (["bcast", "--device", "cuda", "--allocate"], "leave out --allocate"),
        pytest.param(
            ["bcast", "--device", "cuda"], "mpi4py is left out: rank 0", marks=needs_no_gpu
        ),
    ],
)
def test_bad_usage_is_said_once(arguments: list[str], text: str) -> None:
    done = mpirun(2, *BENCH, *arguments)
    assert done.returncode == 2
    assert done.stderr.count("Error:") == 1 and text in done.stderr


@needs_mpi
def test_list_and_dry_run_do_not_measure() -> None:
    listed = mpirun(3, *BENCH, "--list", "allreduce", "allgather")
    assert listed.returncode == 0, listed.stderr
    assert "native_persistent" in listed.stdout and "not neighbor_exchange" in listed.stdout
    dry = mpirun(2, *BENCH, "--dry-run", "allreduce", "--sizes", "4,1M")
    assert dry.returncode == 0, dry.stderr
    assert "1048576 B" in dry.stdout and "estimated time" in dry.stdout


@needs_mpi
def test_lone_ranks_say_how_to_mend_it() -> None:
    done = launch(
        sys.executable, *BENCH, *TINY,
        OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0",
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "each of them is alone" in done.stderr and "start it with" in done.stderr


@needs_mpi
@pytest.mark.parametrize("command", ["bench", "p2p"])
def test_a_flag_states_the_nodes(command: str, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    what = ("allreduce", "--algorithms", "two_level", "-n", "3") if command == "bench" else ()
    done = mpirun(4, "-m", f"mpicoll.{command}", *what, "--ranks-per-node", "2", "--backends",
                  "mpi4py", "--sizes", "8,1K", "--time", "2", "-J", file)  # fmt: skip
    assert done.returncode == 0, done.stderr
    described, *found = journal.read(file)
    assert {each["nodes"] for each in found} == {2}
    assert described["run"]["environment"]["MPICOLL_RANKS_PER_NODE"] == "2"


APART = """
import mpicoll, numpy as np
from mpi4py import MPI
with mpicoll.world() as c:
    total = c.allreduce(np.ones(9), algorithm="two_level")
    if c.rank == 0:
        print(c.nodes, MPI.get_vendor()[0], c.transport.unshared, *set(total))
"""


@needs_mpi
def test_stated_nodes_count_where_mpi_knows_better(tmp_path: Path) -> None:
    """MPICH takes each rank for a host of its own: nodes are as stated, and no memory is shared."""
    script = tmp_path / "apart.py"
    script.write_text(APART)
    done = launch(
        "env", "MPIR_CVAR_NOLOCAL=1", "MPICOLL_RANKS_PER_NODE=2", MPIRUN, "-n", "4",
        sys.executable, script,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("((0, 1), (2, 3)) ") and done.stdout.endswith(" 4.0\n")
    assert "several hosts" in done.stdout or "MPICH" not in done.stdout


def test_torch_alone_needs_no_mpi() -> None:
    pytest.importorskip("torch")
    done = launch(
        TORCHRUN, "--nproc-per-node", "2", "-m", "torchcoll.bench", "allreduce", "bcast", *TINY,
        "--format", "jsonl",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = journal.cases(map(json.loads, done.stdout.splitlines()))
    assert found and all(each["backend"] == "torch" and each["correct"] for each in found)


def test_wrong_is_one_line() -> None:
    assert "\n" not in str(Wrong(0, 1, 2, 3.0, float("nan")))


def test_a_library_that_hangs_at_its_start_ends_the_process() -> None:
    """Even one that holds the interpreter's lock, so that no other thread of it can run."""
    code = (
        "import ctypes; from mpicoll.cli.watchdog import Watchdog;"
        "Watchdog(0.5).starting('mpi4py'); ctypes.PyDLL(None).sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "Timeout (0:00:02)!" in done.stderr


def test_a_library_that_starts_is_let_go() -> None:
    code = (
        "import time; from mpicoll.cli.watchdog import Watchdog;"
        "dog = Watchdog(0.2); dog.starting('mpi4py'); dog.started(); time.sleep(2.5)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")

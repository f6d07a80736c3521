"""The choice that ``auto`` makes: tables, their ranges, and the built-in rule."""

from __future__ import annotations

import json
import math
import timeit
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from launcher import mpirun, ranks

from mpicoll.algorithms.registry import find
from mpicoll.errors import ArgumentError
from mpicoll.measurement.measure import Candidate
from mpicoll.memory.numpy_arrays import NumpyArrays
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.programs.shared_memory import Reach
from mpicoll.runtime.arguments import check_arguments
from mpicoll.selection import pricing, tables
from mpicoll.selection.auto import CANDIDATES, between
from mpicoll.simulator import contiguous, prove
from mpicoll.tune.command import SIZES, candidates, good_enough, ranges

needs_mpi = pytest.mark.skipif(mpirun() is None, reason="no mpirun here")


def measured(**times: float) -> list[Candidate]:
    """Return candidates of these medians, their samples within a per cent of it."""
    found = []
    for name, time in times.items():
        each = Candidate(SimpleNamespace(algorithm=name))  # type: ignore[arg-type]
        each.samples = {block: time * (0.99 + block / 1000) for block in range(20)}
        found.append(each)
    return found


def test_what_cannot_be_told_apart_is_good_enough() -> None:
    assert set(good_enough(measured(a=1.0, b=1.02, c=1.3))) == {"a", "b"}


def test_equals_do_not_flip_the_table() -> None:
    """The fewest ranges: one candidate serves as long as nobody beats it by more than noise."""
    by_size = {
        4: measured(a=1.0, b=1.01), 16: measured(a=1.01, b=1.0), 64: measured(a=1.0, b=1.02),
        256: measured(a=3.0, b=2.0), 1024: measured(a=9.0, b=4.0),
    }  # fmt: skip
    assert [(each["upto"], each["algorithm"]) for each in ranges(by_size)] == [(None, "b")]
    by_size[4] = measured(a=1.0, b=2.0)
    assert [(each["upto"], each["algorithm"]) for each in ranges(by_size)] == [
        (128, "a"), (None, "b")
    ]  # fmt: skip


@given(
    some.dictionaries(
        some.sampled_from(SIZES),
        some.fixed_dictionaries({n: some.floats(1, 100) for n in ("native", "a", "b")}),
        min_size=1,
    )
)
def test_no_range_holds_what_loses(times: dict[int, dict[str, float]]) -> None:
    by_size = {size: measured(**each) for size, each in times.items()}
    decision = tables.Decision(ranges(by_size))
    for size, each in times.items():
        assert each[decision.lookup(size)] <= min(each.values()) * 1.1


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
        "ranges": [{"upto": 64, "algorithm": "ring"}, {"upto": None, "algorithm": "native"}],
    } | changes  # fmt: skip


def test_a_table_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "table.json"
    tables.write(path, [entry()])
    tables.write(path, [entry(collective="scan"), entry(backend="torch")])
    assert len(tables.read(path)["entries"]) == 3
    found = tables.load("mpi4py", "MPICH", [2], path)
    assert found["allreduce"].lookup(64) == "ring" and found["allreduce"].lookup(65) == "native"
    assert tables.load("mpi4py", "MPICH", [4], path) == {}


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
    with pytest.warns(UserWarning, match="built-in rule"):
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


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_candidate_has_a_price(name: str, size: int) -> None:
    arrays, what = NumpyArrays(), COLLECTIVES[name]
    x = None
    if what.unit != "none":
        many = name in ("scatter", "reduce_scatter", "alltoall")
        x = arrays.empty((size, 10) if many else (10,), "float32")
    request = check_arguments(arrays, 0, size, name, x, out=None, op="sum", root=0, counts=None,
                    algorithm="auto")  # fmt: skip
    reach = Reach(frozenset(), frozenset(), 1 << 17, 1 << 17)
    prices = [
        pricing.price(find(name, text), request, reach, pricing.ALONE) for text in CANDIDATES[name]
    ]
    assert all(price > 0 for price in prices)
    assert not all(map(math.isinf, prices))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_what_is_measured_between_nodes_is_right_there(name: str) -> None:
    """On nodes of as many ranks each; others some may refuse."""
    for text in between(name):
        assert prove(find(name, text), 6, nodes=contiguous(6, 3)).rounds


TUNE = ("-m", "mpicoll.tune", "--backends", "mpi4py", "--sizes", "64,64K", "--time", "12")
SHOW = """
import numpy as np, mpicoll
c = mpicoll.world()
for n in (16, 16384):
    with c.plan("allreduce", np.ones(n, np.float32)) as plan:
        if c.rank == 0:
            print("RAN", plan.algorithm, plan.transport)
"""


def test_tune_tries_what_it_is_told() -> None:
    """Of a sweep each member, of what this collective has."""
    world: Any = SimpleNamespace(
        transport=SimpleNamespace(shared=None, name="point-to-point"), nodes=((0,), (1,)),
        transports=["point-to-point"], algorithms=lambda name: ["native"],
    )  # fmt: skip
    told = ["knomial(radix=2)", "knomial(radix=3)", "openmpi_default", "rabenseifner"]
    assert candidates(world, "gather", 64, told) == ["native", *between("gather"), *told[:3]]


@needs_mpi
def test_auto_runs_what_the_table_says(tmp_path: Path) -> None:
    """From a run of mpicoll.tune to the plan; then a table of ours, then of another machine."""
    path = tmp_path / "table.json"
    done = ranks(2, *TUNE, "-o", str(path), "allreduce", "barrier", timeout=120)
    assert done.returncode == 0, done.stdout
    table = json.loads(path.read_text())
    assert [each["collective"] for each in table["entries"]] == ["allreduce", "barrier"]
    told = {tables.VARIABLE: str(path)}
    for each in table["entries"]:
        each["ranges"] = [{"upto": 100, "algorithm": "ring@point-to-point"},
                          {"upto": None, "algorithm": "native"}]  # fmt: skip
    path.write_text(json.dumps(table))
    done = ranks(2, "-c", SHOW, environment=told, timeout=60)
    assert "RAN ring point-to-point" in done.stdout and "RAN native native" in done.stdout
    for each in table["entries"]:
        each["fingerprint"]["processor"] = "abacus"
    path.write_text(json.dumps(table))
    done = ranks(2, "-c", SHOW, environment=told, timeout=60)
    assert done.stdout.count("another machine") == 1, "said once, by rank 0"
    assert "RAN ring" not in done.stdout and done.stdout.count("RAN") == 2


@needs_mpi
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["allredcue"], "did you mean 'allreduce'?"),
        (["--algorithms", "auto"], "auto is what this is to decide"),
        (["--algorithms", "chain(segments=8:2)"], "is empty"),
        (["--algorithms", "rnig"], "did you mean 'ring'?"),
    ],
)
def test_tune_refuses_bad_usage(arguments: list[str], message: str) -> None:
    done = ranks(2, "-m", "mpicoll.tune", *arguments, timeout=60)
    assert done.returncode == 2 and done.stdout.count("Error:") == 1
    assert message in done.stdout

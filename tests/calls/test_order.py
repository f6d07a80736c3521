"""One order of folding for every schedule, transport, executor and layout of nodes, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from expect import input_shape
from layouts import Layout
from run_collective import REDUCING, carried, device

from mpicoll import Collectives, Unavailable, Unsupported
from mpicoll.algorithms.registry import algorithms
from mpicoll.machine.settings import REPRODUCIBLE
from mpicoll.memory import segments

pytestmark = pytest.mark.kept_group
COUNTS = (1, 7, 601)
"""One element, less than a rank's share each, and several windows of a few slots."""


@pytest.fixture(autouse=True, params=["memory", "messages"])
def reproducible(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ask for one order, over memory and over messages, with windows of 512 bytes."""
    monkeypatch.setenv(REPRODUCIBLE, "1")
    monkeypatch.setattr(segments, "FETCHED_TILE", 64)
    monkeypatch.setattr(segments, "TILE", 64)
    if request.param == "messages":
        monkeypatch.setenv(segments.SWITCH, "0")
    return str(request.param)


@pytest.fixture
def group(c: Any) -> Any:
    """What makes a group that has read the environment."""
    return lambda c: c.split(0, c.rank)


def inputs(c: Collectives, name: str, count: int, dtype: str) -> list[Any]:
    """Return what each rank gives: numbers of which the sum depends on the order."""
    host = "float32" if dtype == "bfloat16" else dtype
    given = []
    for rank in range(c.size):
        random = np.random.default_rng([rank, count])
        shape = input_shape(name, c.size, rank, (count,), None)
        x = (random.normal(size=shape) * 10 ** random.uniform(-1, 2, shape)).astype(host)
        given.append(rounded(c, x, dtype))
    return given


def rounded(c: Collectives, host: Any, dtype: str) -> Any:
    return c.transport.arrays.to_host(device(c, host, dtype))


def prefixes(c: Collectives, given: list[Any], dtype: str) -> Iterator[Any]:
    """Yield the sums of the first ranks' inputs, one by one, each rounded to the dtype."""
    total = given[0]
    yield total
    for each in given[1:]:
        total = rounded(c, total + each, dtype)
        yield total


def wanted(c: Collectives, name: str, given: list[Any], dtype: str) -> Any:
    """Return this rank's result, None where it has none."""
    sums = list(prefixes(c, given, dtype))
    if name in ("scan", "exscan"):
        place = c.rank - (name == "exscan")
        return sums[place] if place >= 0 else None
    if name == "reduce_scatter":
        return sums[-1][c.rank]
    return None if name == "reduce" and c.rank != c.size - 1 else sums[-1]


def check(c: Collectives, name: str, count: int, dtype: str, algorithm: str) -> None:
    given = inputs(c, name, count, dtype)
    root = {"root": c.size - 1} if name == "reduce" else {}
    x = device(c, given[c.rank], dtype)
    out = getattr(c, name)(x, algorithm=algorithm, **root)
    expected = wanted(c, name, given, dtype)
    if expected is not None:
        found = c.transport.arrays.to_host(out)
        assert found.tobytes() == expected.tobytes(), (name, count, dtype, algorithm)


def check_auto(fixed: Collectives, dtype: str) -> None:
    for name in REDUCING:
        for count in COUNTS:
            check(fixed, name, count, dtype, "auto")


@pytest.mark.ranks(Layout(4, per_node=2), more=(Layout(3, library="torch"),))
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_auto_folds_rank_by_rank(c: Collectives, group: Any, dtype: str, reproducible: str) -> None:
    carried(c, dtype)
    if reproducible == "messages" and dtype != "float32":
        pytest.skip("one dtype is enough for the order of messages")
    with group(c) as fixed:
        check_auto(fixed, dtype)


@pytest.mark.ranks(more=(2, 3, 5, Layout(6, per_node=2), Layout(5, per_node=3)))
def test_auto_folds_rank_by_rank_on_any_nodes(c: Collectives, group: Any) -> None:
    """Nodes decide which schedule runs, and dtypes how it folds."""
    with group(c) as fixed:
        check_auto(fixed, "float32")


@pytest.mark.ranks(Layout(4, per_node=2), more=(3, 5))
@pytest.mark.parametrize("name", REDUCING)
def test_a_schedule_folds_rank_by_rank_or_is_refused(
    c: Collectives, group: Any, name: str, reproducible: str
) -> None:
    routes = [""] if reproducible == "messages" else ["", "@cma", "@point-to-point"]
    with group(c) as fixed:
        served = 0
        for each in algorithms(name):
            for route in routes:
                try:
                    check(fixed, name, 203, "float32", f"{each}{route}")
                    served += 1
                except (Unsupported, Unavailable):
                    continue
        assert served >= 2 * len(routes)


@pytest.mark.ranks(3)
@pytest.mark.parametrize("algorithm", ["native", "native:reduce+broadcast"])
def test_the_library_is_never_asked(c: Collectives, group: Any, algorithm: str) -> None:
    with group(c) as fixed:
        with pytest.raises(Unsupported, match=f"folds in an .* {REPRODUCIBLE} rules out"):
            fixed.allreduce(device(c, np.ones(4), "float32"), algorithm=algorithm)
        fixed.broadcast(device(c, np.ones(4), "float32"), algorithm="native")


@pytest.mark.ranks(3)
def test_an_order_that_differs_is_an_error_that_names_others(c: Collectives, group: Any) -> None:
    with (
        group(c) as fixed,
        pytest.raises(Unsupported, match=rf"ring does not fold rank by rank .* {REPRODUCIBLE}"
                      r" demands: .*one_shot, two_shot.* would"),
    ):  # fmt: skip
        fixed.allreduce(device(c, np.ones(4), "float32"), algorithm="ring")

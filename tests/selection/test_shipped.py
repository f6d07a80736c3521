"""The table that is shipped: complete, right at every size, and read without a measurement."""

from __future__ import annotations

import json
from math import inf

import numpy as np
import pytest
from launcher import mpirun, ranks
from run_collective import device

from mpicoll import Collectives
from mpicoll.algorithms.registry import Nodes, find
from mpicoll.calls.natives import FOLDED
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.selection import shipped
from mpicoll.selection.shipped import Place, Rows
from mpicoll.simulator import prove

ON_A_NODE = {
    "cores of their own": Place(2, "mpi4py"),
    "shared cores": Place(2, "mpi4py", shares_cores=True),
    "GPU": Place(2, "mpi4py", is_on_gpu=True),
}
TABLES = {
    "own": shipped.OWN_CORES, "shared": shipped.SHARED_CORES, "GPU": shipped.ON_GPU,
    "nodes": shipped.BETWEEN_NODES, "levels": shipped.LEVELS, "messages": shipped.BY_MESSAGES,
    "gloo": shipped.GLOO_LEVELS,
}  # fmt: skip
ALL_ROWS = [
    pytest.param(rows, id=f"{table} {name}")
    for table, found in TABLES.items()
    for name, rows in found.items()
]
SIZES = [0, 1, 8, 4096, 1 << 16, 1 << 20, 1 << 26, 1 << 40]


@pytest.mark.parametrize("ranks_of_group", [1, 2, 3, 4, 5, 8, 9, 64, 1 << 20])
@pytest.mark.parametrize("place", ON_A_NODE.values(), ids=ON_A_NODE)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_row_covers_every_call_on_a_node(name: str, place: Place, ranks_of_group: int) -> None:
    here = place._replace(ranks=ranks_of_group)
    assert all(shipped.choices(name, nbytes, here) for nbytes in SIZES)
    assert all(shipped.by_messages(name, nbytes, here) for nbytes in SIZES)


@pytest.mark.parametrize("rows", ALL_ROWS)
def test_no_row_is_hidden_by_one_above_it(rows: Rows) -> None:
    for position, (most_ranks, most_bytes, *_) in enumerate(rows):
        above = rows[:position]
        assert not any(most_ranks <= row[0] and most_bytes <= row[1] for row in above)


NODES = dict.fromkeys(("levels", "gloo"), ((0, 3), (1, 4), (2, 5)))
BETWEEN_LEVELS = [
    pytest.param(rows, name, id=f"{backend} {name}")
    for backend, table in (("mpi4py", shipped.LEVELS), ("torch", shipped.GLOO_LEVELS))
    for name, rows in table.items()
    if rows != shipped.BETWEEN_NODES.get(name)
]


@pytest.mark.parametrize(
    ("name", "text", "table"),
    sorted({
        (name, text, table)
        for table, collectives in TABLES.items()
        for name, rows in collectives.items()
        for row in rows
        for text in row[2:]
        if text != FOLDED
    }),
)  # fmt: skip
def test_every_algorithm_that_a_table_names_is_right(name: str, text: str, table: str) -> None:
    assert prove(find(name, text), 6, 0, NODES.get(table)).rounds


@pytest.mark.parametrize("nodes", [((0, 1, 2), (3,)), ((0, 2), (1, 3, 4)), ((0,), (1, 2))])
@pytest.mark.parametrize(("rows", "name"), BETWEEN_LEVELS)
def test_a_row_serves_nodes_of_different_sizes(rows: Rows, name: str, nodes: Nodes) -> None:
    for _, _, *algorithms in rows:
        assert prove(find(name, algorithms[-1]), sum(map(len, nodes)), 0, nodes).rounds


def test_levels_decide_where_a_node_has_several_ranks() -> None:
    place = Place(4, "mpi4py", shares_memory=False, has_levels=True)
    assert shipped.choices("allreduce", 64, place) == ("two_level(local=one_shot)",)
    assert shipped.choices("scan", 64, place) == (FOLDED,)
    assert shipped.choices("alltoall", 1 << 20, place) == ()
    over_gloo = place._replace(backend="torch")
    assert shipped.choices("allreduce", 64, over_gloo) == ("two_level(local=one_shot)",)
    assert shipped.choices("scan", 64, over_gloo) == ()
    assert shipped.choices("alltoall", 1 << 20, over_gloo) == ()


def test_the_first_row_that_covers_a_call_decides() -> None:
    rows: Rows = ((2, 64, "a"), (8, 64, "b", "c"), (inf, inf, "d"))
    place = Place(2, "mpi4py")
    found = [
        shipped._covering(rows, nbytes, place._replace(ranks=size))
        for size, nbytes in [(2, 64), (2, 65), (3, 64), (9, 1)]
    ]
    assert found == [("a",), ("d",), ("b", "c"), ("d",)]


@pytest.mark.parametrize(
    ("backend", "is_on_gpu", "wanted"),
    [("mpi4py", False, (FOLDED,)), ("torch", False, ()), ("mpi4py", True, ())],
)
def test_between_nodes_the_library_runs_all_but_small_prefixes_over_mpi(
    backend: str, is_on_gpu: bool, wanted: tuple[str, ...]
) -> None:
    place = Place(8, backend, is_on_gpu=is_on_gpu, shares_memory=False)
    assert shipped.choices("scan", 64, place) == wanted
    assert shipped.choices("scan", 1 << 20, place) == ()
    assert shipped.choices("allreduce", 64, place) == ()


def group(c: Collectives) -> Collectives:
    made = c.split(0)
    assert made is not None
    if made.transport.shared is None or len(made.nodes) > 1:
        pytest.skip("no shared memory among all ranks")
    return made


@pytest.mark.ranks(2, 3)
@pytest.mark.threads_only
@pytest.mark.parametrize("count", [2, 1 << 17])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_first_call_runs_the_choice_of_the_table_and_nothing_else(
    c: Collectives, name: str, count: int
) -> None:
    """Every program takes a number in the memory of its group, one that measures, too."""
    fresh = group(c)
    shared = fresh.transport.shared
    assert shared is not None
    before = shared.entered
    row = (c.size, count) if name in ("alltoall", "scatter", "reduce_scatter") else (count,)
    x = None if name == "barrier" else device(c, np.ones(row), "float64")
    place = Place(c.size, fresh.backend, shares_cores=shared.wait_policy.oversubscribed)
    nbytes = 0 if x is None else 8 * count * (1 if COLLECTIVES[name].unit == "vector" else c.size)
    with fresh.plan(name, x) as plan:
        plan.run()
        assert plan.algorithm in shipped.choices(name, nbytes, place)
        assert shared.entered == before + 1
    assert fresh.chooser.source() == "the shipped table"


SHOW = """
import json, numpy as np, mpicoll
c = mpicoll.world()
choices = {}
for count in (1, 300, 40_000, 2_000_000):
    for name in ("barrier", "allreduce", "reduce", "alltoall", "exscan"):
        x = None if name == "barrier" else np.ones((c.size, count) if name == "alltoall" else count)
        with c.plan(name, x) as plan:
            choices[f"{name} {count}"] = plan.algorithm, plan.transport
if c.rank == 0:
    print(json.dumps(choices))
"""


@pytest.mark.skipif(mpirun() is None, reason="no mpirun here")
@pytest.mark.launches
def test_two_launches_choose_alike() -> None:
    first, second = (json.loads(ranks(2, "-c", SHOW).stdout) for _ in range(2))
    assert first == second and len(first) == 20

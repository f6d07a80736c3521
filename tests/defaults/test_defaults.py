"""Decision tables of libraries: whole, exact at their boundaries, and served by schedules."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as some
from launcher import mpirun, ranks

from mpicoll.algorithms.registry import Nodes, find
from mpicoll.defaults import NAMES, Call, choose, function, table
from mpicoll.defaults.tables import read
from mpicoll.errors import ArgumentError
from mpicoll.explain.library_choices import main, ranges
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.simulator import prove

MPICH, OPENMPI = NAMES
ROWS = [name for name, contract in COLLECTIVES.items() if contract.unit in ("rows", "pairs")]
CALLS = [(name, False) for name in COLLECTIVES] + [(name, True) for name in ROWS]
"""Every collective, and whether its rows have counts."""

needs_mpi = pytest.mark.skipif(mpirun() is None, reason="no mpirun here")


# -- the tables are whole ---------------------------------------------------------------

SECTION = """
library = "A library"
remarks = []
[calls.bcast]
rules = [{{ ranks_below = 8, up_to = {{ 12K = "tree" }} }}, {last}]
[calls.bcast.algorithms]
tree = {{ runs = "binomial" }}
{more}
"""
LAST = '{ take = "tree" }'


def test_a_table_is_read_from_its_file() -> None:
    library = read(SECTION.format(last=LAST, more="").encode(), "a.toml")
    assert library.look_up("bcast", Call(4, bytes=12288)).schedule == "binomial"
    assert library.limits("bcast") == {("bytes", 12289)}


@pytest.mark.parametrize(
    ("last", "more", "message"),
    [
        ('{ take = "ring" }', "", "'ring' is no algorithm"),
        (LAST, 'ring = { runs = "ring" }', "'ring' is taken by no rule"),
        ('{ even = true, take = "tree" }', "", "the last rule has a condition"),
        ('{ up_to = { 1K = "tree" } }', "", "no algorithm for large sizes"),
        ('{ up_to = { 2K = "tree", 1K = "tree" }, take = "tree" }', "", "sizes do not ascend"),
        ('{ up_to = { 2Q = "tree" }, take = "tree" }', "", "2Q"),
        ('{ take = "tree", odd = true }', "", "unknown field `odd`"),
        ('{ ranks_below = "8", take = "tree" }', "", "Expected `int | null`, got `str`"),
        ('{ count_below = "bytes", take = "tree" }', "", "Invalid enum value 'bytes'"),
        (LAST, "[calls.bcast", "a.toml is no decision table"),
        (LAST, "a = \udcff", "a.toml is no decision table"),
    ],
)
def test_a_damaged_table_is_refused(last: str, more: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=r"a\.toml") as refused:
        read(SECTION.format(last=last, more=more).encode(errors="surrogateescape"), "a.toml")
    assert message in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("collective", "has_counts"), CALLS)
def test_every_call_has_rules(name: str, collective: str, has_counts: bool) -> None:
    assert function(collective, has_counts=has_counts) in table(name).calls


# -- boundaries -------------------------------------------------------------------------


def vector(ranks: int, nbytes: int, **options: Any) -> Call:
    return Call(ranks, **{"bytes": nbytes, "total": nbytes, "count": nbytes // 4} | options)


def rows(ranks: int, nbytes: int, **options: Any) -> Call:
    """Return a call with so many bytes in the row of each rank."""
    return vector(ranks, nbytes, total=nbytes * ranks, **options)


USER_OP = {"commutative": False, "builtin": False}
FOUR = {"nodes": 4, "largest": 2}
"""Four nodes of two ranks."""


@pytest.mark.parametrize(
    ("name", "collective", "call", "schedule"),
    [
        (MPICH, "broadcast", vector(8, 12287), "binomial"),
        (MPICH, "broadcast", vector(8, 12288), "binomial"),
        (MPICH, "broadcast", vector(8, 12289), "scatter_recursive_doubling"),
        (MPICH, "broadcast", vector(8, 524288), "scatter_recursive_doubling"),
        (MPICH, "broadcast", vector(8, 524289), "scatter_ring"),
        (MPICH, "broadcast", vector(7, 1 << 30), "binomial"),
        (MPICH, "broadcast", vector(9, 12289), "scatter_ring"),
        (MPICH, "broadcast", vector(8, 12287, **FOUR), "two_level(local=binomial,across=binomial)"),
        (MPICH, "broadcast", vector(8, 524288, **FOUR), "scatter_recursive_doubling"),
        (MPICH, "broadcast", vector(8, 64, nodes=8, largest=1), "binomial"),
        (MPICH, "reduce", vector(8, 2048), "binomial"),
        (MPICH, "reduce", vector(8, 2049), "rabenseifner"),
        (MPICH, "reduce", vector(8, 4096, count=7), "binomial"),
        (MPICH, "reduce", vector(8, 4096, builtin=False), "binomial"),
        (MPICH, "reduce", vector(8, 4096, root=1, **USER_OP), "in_order_binary"),
        (MPICH, "allreduce", vector(6, 8, count=8), "recursive_doubling"),
        (MPICH, "allreduce", vector(6, 9, count=9), "rabenseifner"),
        (MPICH, "allreduce", vector(6, 4096, count=3), "recursive_doubling"),
        (MPICH, "allreduce", vector(6, 4096, count=4), "rabenseifner"),
        (MPICH, "allreduce", vector(8, 4096, **USER_OP, **FOUR), "recursive_doubling"),
        (MPICH, "allreduce", vector(8, 4096, **FOUR),
         "two_level(local=binomial,across=rabenseifner)"),
        (MPICH, "allgather", rows(8, 65535), "recursive_doubling"),
        (MPICH, "allgather", rows(8, 65536), "ring"),
        (MPICH, "allgather", rows(5, 16383), "bruck(radix=2)"),
        (MPICH, "allgather", rows(5, 16384), "ring"),
        (MPICH, "reduce_scatter", rows(8, 65535), "recursive_halving"),
        (MPICH, "reduce_scatter", rows(8, 65536), "pairwise"),
        (MPICH, "reduce_scatter", rows(8, 64, **USER_OP), "butterfly"),
        (MPICH, "reduce_scatter", rows(6, 64, **USER_OP), "recursive_doubling"),
        (MPICH, "alltoall", rows(8, 256), "bruck(radix=2)"),
        (MPICH, "alltoall", rows(8, 257), "naive"),
        (MPICH, "alltoall", rows(7, 256), "naive"),
        (MPICH, "alltoall", rows(8, 32769), "pairwise"),
        (MPICH, "alltoall", rows(8, 8, in_place=True), "pairwise"),
        (MPICH, "barrier", Call(8), "dissemination(radix=2)"),
        (MPICH, "barrier", Call(8, **FOUR), "two_level(across=dissemination(radix=2))"),
        (OPENMPI, "allreduce", vector(8, 8191), "recursive_doubling"),
        (OPENMPI, "allreduce", vector(8, 8192), "rabenseifner"),
        (OPENMPI, "allreduce", vector(3, 4096), "ring"),
        (OPENMPI, "allreduce", vector(3, 4096, count=2), "recursive_doubling"),
        (OPENMPI, "allreduce", vector(16, 63), "recursive_doubling"),
        (OPENMPI, "allreduce", vector(16, 63, count=63), "ring"),
        (OPENMPI, "allreduce", vector(8, 64, nodes=8, largest=1), "one_shot"),
        (OPENMPI, "allreduce", vector(65, 64, nodes=65, largest=1), "recursive_doubling"),
        (OPENMPI, "allreduce", vector(8, 64, **FOUR), "two_level(local=binomial,across=tree)"),
        (OPENMPI, "allreduce", vector(8, 64, **USER_OP, **FOUR), "recursive_doubling"),
        (OPENMPI, "broadcast", vector(16, 1 << 20), "scatter_recursive_doubling"),
        (OPENMPI, "broadcast", vector(17, 1 << 20), "scatter_ring"),
        (OPENMPI, "broadcast", vector(16, 1 << 20, count=15), "one_shot"),
        (OPENMPI, "broadcast", vector(256, 16384), "split_binary(segments=1)"),
        (OPENMPI, "broadcast", vector(256, 16384, count=1), "chain(segments=1)"),
        (OPENMPI, "broadcast", vector(8, 7, **FOUR),
         "two_level(local=chain(segments=1),across=one_shot)"),
        (OPENMPI, "broadcast", vector(40, 65535, nodes=40, largest=1), "one_shot"),
        (OPENMPI, "broadcast", vector(40, 65536, nodes=40, largest=1), "knomial(radix=4)"),
        (OPENMPI, "broadcast", vector(15, 1 << 20, nodes=15, largest=1),
         "kary(radix=2,segments=1)"),
        (OPENMPI, "broadcast", vector(8, 7, balanced=False, **FOUR), "knomial(radix=4)"),
        (OPENMPI, "reduce", vector(3, 7, count=7), "rabenseifner"),
        (OPENMPI, "reduce", vector(3, 7, count=1), "naive"),
        (OPENMPI, "reduce", vector(3, 524288), "chains(count=2,segments=1)"),
        (OPENMPI, "reduce", vector(8, 64, **FOUR),
         "two_level(local=naive,across=rabenseifner)"),
        (OPENMPI, "allgather", rows(2, 64), "direct"),
        (OPENMPI, "allgather", rows(6, 64), "bruck(radix=2)"),
        (OPENMPI, "allgather", rows(32, 1024), "neighbor_exchange"),
        (OPENMPI, "allgather", rows(33, 1024), "ring"),
        (OPENMPI, "alltoall", rows(2, 3), "pairwise"),
        (OPENMPI, "alltoall", rows(16, 511), "bruck(radix=2)"),
        (OPENMPI, "gather", rows(8, 64, **FOUR), "two_level(local=binomial,across=binomial)"),
        (OPENMPI, "barrier", Call(4), "naive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_boundaries_are_exact(name: str, collective: str, call: Call, schedule: str) -> None:
    assert choose(name, collective, call).schedule == schedule


@pytest.mark.parametrize(
    ("name", "collective", "call", "schedule"),
    [
        (MPICH, "gather", rows(8, 64), "naive"),
        (MPICH, "reduce_scatter", rows(8, 64, regular=False, **USER_OP), "recursive_doubling"),
        (MPICH, "reduce_scatter", rows(8, 64, **USER_OP), "butterfly"),
        (OPENMPI, "allgather", rows(6, 255), "gather+broadcast"),
        (OPENMPI, "allgather", rows(6, 256), "neighbor_exchange"),
        (OPENMPI, "reduce_scatter", rows(4, 65535), "recursive_halving"),
        (OPENMPI, "reduce_scatter", rows(4, 65536), "ring"),
        (OPENMPI, "alltoall", rows(64, 64), "pairwise"),
    ],
)
def test_rows_with_counts_have_rules_of_their_own(
    name: str, collective: str, call: Call, schedule: str
) -> None:
    assert choose(name, collective, call, has_counts=True).schedule == schedule


def test_what_is_not_the_same_says_so() -> None:
    assert choose(MPICH, "scan", vector(4, 64)).note == ""
    assert "no such schedule" in choose(MPICH, "scan", vector(4, 64, nodes=2, largest=2)).note
    choice = choose(OPENMPI, "allreduce", vector(16, 8, count=2))
    assert choice.name == "segmented_ring > ring > recursive_doubling" and not choice.note
    large = vector(8, 1 << 20, **FOUR)
    assert "segments of 512 KiB" in choose(OPENMPI, "broadcast", large).note


def test_parts_of_compositions_see_their_own_call() -> None:
    """A gather between nodes carries the rows of whole nodes, in segments where there are any."""
    call = rows(12, 100, nodes=3, largest=4)
    assert call.part("across", 1000) == rows(3, 400, nodes=3, largest=1, count=100)
    assert call.part("local", 1000) == rows(4, 100, largest=4)
    assert vector(12, 4000, nodes=3, largest=4).part("across", 1000).count == 250


# -- every choice is served -------------------------------------------------------------


@some.composite
def calls(draw: Any, limit: int) -> tuple[Call, Nodes]:
    """Draw what a library decides by, and the nodes."""
    size, width = draw(some.integers(1, limit)), draw(some.sampled_from((1, 4, 8)))
    count = draw(some.one_of(some.integers(0, 40), some.integers(0, 24).map(lambda k: 1 << k)))
    per_node = draw(some.integers(1, size))
    nodes = tuple(
        tuple(range(start, min(start + per_node, size))) for start in range(0, size, per_node)
    )
    commutative = draw(some.booleans())
    sizes = {len(node) for node in nodes}
    return Call(
        size, bytes=count * width, count=count, commutative=commutative,
        builtin=commutative and draw(some.booleans()), regular=draw(some.booleans()),
        in_place=draw(some.booleans()), root=draw(some.integers(0, size - 1)), nodes=len(nodes),
        largest=max(sizes), balanced=len(sizes) == 1,
    ), nodes  # fmt: skip


def sized(call: Call, collective: str) -> Call:
    fields = vars(call)
    if collective == "barrier":
        return Call(**fields | {"bytes": 0, "count": 0})
    has_rows = COLLECTIVES[collective].unit != "vector"
    return Call(**fields | {"total": call.bytes * (call.ranks if has_rows else 1)})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("collective", "has_counts"), CALLS)
@settings(max_examples=settings().max_examples * 3 // 5)
@given(drawn=calls(1100), rank=some.integers(0, 1099))
def test_every_choice_serves_its_ranks(
    name: str, collective: str, has_counts: bool, drawn: tuple[Call, Nodes], rank: int
) -> None:
    call, nodes = drawn
    chosen = choose(name, collective, sized(call, collective), has_counts=has_counts)
    algorithm, rank = find(collective, chosen.schedule), rank % call.ranks
    root = call.root if algorithm.collective.rooted else 0
    assert algorithm.rounds(rank, call.ranks, root, nodes) or call.ranks == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("collective", "has_counts"), CALLS)
@settings(max_examples=settings().max_examples // 8)
@given(drawn=calls(13))
def test_every_choice_is_right_and_in_order(
    name: str, collective: str, has_counts: bool, drawn: tuple[Call, Nodes]
) -> None:
    """The schedule does its work, and keeps rank order for operators that need it."""
    call, nodes = drawn
    contract = COLLECTIVES[collective]
    chosen = choose(name, collective, sized(call, collective), has_counts=has_counts)
    trace = prove(find(collective, chosen.schedule), call.ranks, contract.rooted * call.root, nodes)
    assert trace.ordered or call.commutative or not contract.reduces


# -- in a program -----------------------------------------------------------------------

PROGRAM = """
import numpy as np, mpicoll
c = mpicoll.world()
rank, size, ones = c.rank, c.size, np.ones(6000)
told = []
for name in ("mpich_default", "openmpi_default"):
    for what, x, more in (
        ("allreduce", ones, {}),
        ("allreduce", ones, {"op": mpicoll.user_op(np.add)}),
        ("scatter", np.ones((size, 5)) if rank == 1 else None, {"root": 1}),
        ("broadcast", ones if rank == 1 else None, {"root": 1}),
        ("allgather", np.ones((rank + 1, 2)), {"counts": [1, 2, 3, 4]}),
        ("alltoall", np.ones((4, 2)), {"counts": [[1, 1, 1, 1]] * 4}),
        ("barrier", None, {}),
    ):
        call = (lambda **given: c.plan(what, x, **given))
        if rank != 1 and x is None and what != "barrier":
            more["out"] = np.empty(5 if what == "scatter" else 6000)
        with c.plan(what, x, algorithm=name, **more) as plan:
            plan.run()
            told.append((what, plan.algorithm, plan.note))
            if plan.out is not None:
                assert (plan.out == (size if what == "allreduce" else 1)).all(), told[-1]
assert (c.allreduce(ones, algorithm="mpich_default@point-to-point") == size).all()
assert all(each == told for each in c.exchange(told, list[tuple[str, str, str | None]]))
if rank == 0:
    print("NODES", len(c.nodes), *(f"{what}={ran}" for what, ran, _ in told))
    print(told[0][2])
"""


@pytest.mark.launches
@needs_mpi
@pytest.mark.parametrize("per_node", ["2", "4"])
def test_plans_run_what_the_tables_say(per_node: str) -> None:
    """On all ranks alike, on one node and on two, also where only the root has an array."""
    process = ranks(4, "-c", PROGRAM, environment={"MPICOLL_RANKS_PER_NODE": per_node})
    assert process.returncode == 0, process.stdout
    if per_node == "2":
        assert "NODES 2 allreduce=two_level(local=binomial,across=rabenseifner)" in process.stdout
        assert "alpha: the node's own reduce and bcast" in process.stdout
    else:
        assert "NODES 1 allreduce=rabenseifner allreduce=recursive_doubling" in process.stdout


# -- the command ------------------------------------------------------------------------


def test_the_command_prints_the_table() -> None:
    result = CliRunner().invoke(main, ["allreduce", "--ranks", "8"])
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["MPICH", "5.0", "0", "..", "31", "recursive_doubling", "recursive_doubling"] in lines
    assert ["32", "..", "reduce_scatter_allgather", "rabenseifner"] in lines
    assert ["8K", "..", "rabenseifner", "rabenseifner"] in lines


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("collective", "has_counts"), CALLS)
@settings(max_examples=settings().max_examples * 3 // 10)
@given(
    nodes=some.integers(1, 8), per_node=some.integers(1, 8), commutative=some.booleans(),
    nbytes=some.one_of(some.integers(0, 300), some.integers(0, 1 << 21)),
)  # fmt: skip
def test_ranges_say_what_each_size_gets(
    name: str, collective: str, has_counts: bool, nodes: int, per_node: int, commutative: bool,
    nbytes: int,
) -> None:  # fmt: skip
    contract, size = COLLECTIVES[collective], nodes * per_node
    nbytes *= contract.unit != "none"
    call = Call(size, commutative=commutative, builtin=commutative, nodes=nodes, largest=per_node)
    sized_call = sized(Call(**vars(call) | {"bytes": nbytes, "count": nbytes // 4}), collective)
    choices = ranges(name, contract, call, 4, has_counts=has_counts)
    (*_, last) = [choice for start, choice in choices if start <= nbytes]
    assert last == choose(name, collective, sized_call, has_counts=has_counts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["allredcue", "--ranks", "8"], "did you mean 'allreduce'?"),
        (["allreduce", "--ranks", "8", "--nodes", "3"], "8 ranks do not spread evenly over 3"),
        (["allreduce", "--ranks", "8", "--counts"], "takes no counts"),
        (["allreduce", "--ranks", "8", "-d", "float33"], "did you mean 'float32'?"),
    ],
)
def test_the_command_refuses_bad_usage(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and message in result.output

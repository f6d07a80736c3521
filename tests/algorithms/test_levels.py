"""Algorithms inside others: on every layout of nodes, and every algorithm at every level."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from itertools import product

import pytest
from catalogue import label

from mpicoll.algorithms.registry import Algorithm, algorithms, find
from mpicoll.errors import ArgumentError, Unsupported
from mpicoll.notation.contract import collective
from mpicoll.simulator import contiguous, is_ordered, prove


@pytest.mark.parametrize(
    "nodes",
    [
        ((0, 1, 2, 3, 4, 5, 6),),
        ((0,), (1,), (2,), (3,), (4,), (5,), (6,)),
        ((0, 1, 2), (3, 4), (5, 6)),
        ((0, 2, 4, 6), (1, 3, 5)),
        ((6, 1), (5, 0, 2), (3, 4)),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("of", "root"),
    [("barrier", 0), ("allreduce", 0), ("alltoall", 0), ("allgather", 0), ("reduce_scatter", 0),
     *product(("broadcast", "reduce", "gather", "scatter"), (0, 3, 6))],
)  # fmt: skip
def test_two_level_is_right_on_every_layout(of: str, root: int, nodes) -> None:
    prove(find(of, "two_level"), 7, root, nodes)


WITHIN = {
    "two_level": {
        "barrier": {"local": "broadcast", "across": "barrier"},
        "broadcast": {"local": "broadcast", "across": "broadcast"},
        "reduce": {"local": "reduce", "across": "reduce"},
        "allreduce": {"local": "reduce", "across": "allreduce", "back": "broadcast"},
        "allgather": {"local": "gather", "across": "allgather", "back": "broadcast"},
        "alltoall": {"local": "gather", "across": "alltoall", "back": "scatter"},
        "gather": {"local": "gather", "across": "gather"},
        "scatter": {"local": "scatter", "across": "scatter"},
        "reduce_scatter": {"local": "reduce", "across": "reduce_scatter", "back": "scatter"},
    },
    "lanes": {
        "allreduce": {"local": "reduce_scatter", "across": "allreduce", "back": "allgather"},
        "allgather": {"local": "allgather", "across": "allgather"},
        "reduce_scatter": {"local": "reduce_scatter", "across": "reduce_scatter"},
        "alltoall": {"local": "alltoall", "across": "alltoall"},
    },
    "reduce+broadcast": {"allreduce": {"over": "reduce", "back": "broadcast"}},
}
"""The collectives that parameters of composed algorithms name."""


def level(form: str, of: str, parameter: str, inner: Algorithm) -> str:
    """Name a composed algorithm with another one inside; the way back has its default's name."""
    back = ""
    if parameter != "back" and "back" in WITHIN[form][of]:
        back = ",back=" + ("direct" if form == "lanes" else "binomial")
    return f"{form}({parameter}={str(inner)!r}{back})"


LEVELS = [
    (of, level(form, of, parameter, inner), inner)
    for form, forms in WITHIN.items()
    for of, parameters in forms.items()
    for parameter, within in parameters.items()
    for inner in algorithms(within)
]


LAYOUTS = [
    ((0, 1), (2, 3), (4, 5)),
    ((0, 3, 5), (1, 2, 4)),
    ((0, 1, 2, 3, 4, 5),),
    ((0,), (1,), (2,), (3,), (4,), (5,)),
]


@pytest.mark.parametrize(("of", "text", "inner"), LEVELS, ids=label)
def test_any_algorithm_runs_at_either_level(of: str, text: str, inner: Algorithm) -> None:
    """Only numbers of ranks that it does not serve are refused."""
    for nodes in LAYOUTS:
        groups = {6} if text.startswith("reduce+broadcast") else {len(nodes), *map(len, nodes)}
        with nullcontext() if all(map(inner.needs.holds, groups)) else suppress(Unsupported):
            prove(find(of, text), 6, 4 if collective(of).rooted else 0, nodes)


@pytest.mark.parametrize("nodes", [2, 3, 7])
def test_two_level_keeps_order_where_nodes_are_neighbours(nodes: int) -> None:
    assert is_ordered(find("allreduce", "two_level"), 7, 0, contiguous(7, nodes))


def test_two_level_loses_order_where_ranks_are_dealt_round() -> None:
    assert not is_ordered(find("allreduce", "two_level"), 4, 0, ((0, 2), (1, 3)))


@pytest.mark.parametrize("over", ["nonsense", "scatter_ring", "rabenseifner"])
def test_reduce_and_broadcast_take_what_both_have(over: str) -> None:
    with pytest.raises(ArgumentError, match=over):
        find("allreduce", f"reduce+broadcast(over={over})").blocks(4)


@pytest.mark.parametrize(
    ("of", "text", "message"),
    [
        ("broadcast", "two_level(across='chain(segments=32)')", ""),
        ("allgather", "lanes(across='pipelined_circulant(segments=9)')", ""),
        ("allreduce", "two_level(local=rabenseifner,back=chain)", ""),
        ("allreduce", "two_level(local=rabenseifner)", "name one by back="),
        ("allgather", "lanes(across='bruck(radix=2)')", ""),
        ("allreduce", "two_level(across='hello')", "unknown allreduce algorithm 'hello'"),
    ],
)
def test_inner_algorithms_that_cannot_be_are_refused(of: str, text: str, message: str) -> None:
    algorithm = find(of, text)
    if not message:
        assert algorithm.rounds(0, 4, nodes=((0, 1), (2, 3)))
        return
    with pytest.raises(ArgumentError, match=message):
        algorithm.rounds(0, 4, nodes=((0, 1), (2, 3)))


def test_lanes_refuse_uneven_nodes() -> None:
    with pytest.raises(Unsupported, match="as many ranks on every node, not 1, 3"):
        find("allreduce", "lanes").rounds(0, 4, nodes=((0,), (1, 2, 3)))

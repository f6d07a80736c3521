"""Classes of ranks: their price is that of all ranks, and how many there are."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from catalogue import CATALOGUE
from hypothesis import example, given
from hypothesis import strategies as st

from mpicoll.algorithms.registry import Algorithm, find
from mpicoll.costs import (
    AlphaBeta,
    FatTree,
    Hockney,
    LogGP,
    Model,
    Nodes,
    Switch,
    Topology,
    Torus,
    listings,
    pattern_of,
    simulate,
)
from mpicoll.costs.classes import classes_of
from mpicoll.costs.events import chain_length
from mpicoll.costs.topology import in_order
from mpicoll.errors import Unsupported
from mpicoll.simulator import prove

seconds = st.just(0.0) | st.floats(1e-9, 1e-3)
models = st.one_of(
    st.builds(Hockney, seconds, seconds, seconds, st.sampled_from([None, 1, 2, 3])),
    st.builds(LogGP, seconds, seconds, seconds, seconds, seconds, st.sampled_from([1, 2])),
)


def topologies(size: int) -> list[Topology]:
    """Return topologies whose nodes may do the same, of nodes as wide or not."""
    return [
        Switch(size), FatTree(size, hop=1e-7, radix=4, oversubscription=2),
        Nodes(size, nodes=in_order(size, 4), memory=AlphaBeta(1e-7, 1e-10)),
        *(Nodes(size, nodes=in_order(size, width)) for width in (2, 3, 4)),
    ]  # fmt: skip


def without_classes(topology: Topology) -> Topology:
    """Return the topology as one on which all ranks are simulated."""
    kind: Any = type("AllRanks", (type(topology),), {"permits": lambda self, groups: False})
    copy: Topology = kind(
        **{entry.name: getattr(topology, entry.name) for entry in fields(topology)}
    )
    return copy


@given(
    st.sampled_from(CATALOGUE), st.integers(1, 24), st.integers(0, 5), models,
    st.integers(0, 10**9), st.booleans(),
)  # fmt: skip
@example(find("allreduce", "swing"), 24, 4, Hockney(1e-6, 1e-9, ports=None), 12_000, False)
def test_the_price_of_the_classes_is_that_of_all_ranks(
    algorithm: Algorithm, size: int, index: int, model: Model, nbytes: int, ends: bool
) -> None:
    topology = topologies(size)[index]
    root = size - 1 if algorithm.collective.rooted and ends else 0
    try:
        pattern = pattern_of(algorithm, size, root, topology.groups)
    except Unsupported:
        return
    everyone = without_classes(topology)
    assert len(classes_of(pattern, everyone).rank) == size
    assert chain_length(pattern, topology) == prove(algorithm, size, root, topology.groups).rounds
    full = simulate(pattern, nbytes, model, everyone)
    assert simulate(pattern, nbytes, model, topology) == pytest.approx(full, rel=1e-9)


@pytest.mark.parametrize("most_compared", [0, listings._MOST_COMPARED])
@pytest.mark.parametrize(
    ("collective", "algorithm", "size", "width"),
    [
        ("allreduce", "dual_root(segments=1)", 96, 16), ("allreduce", "dual_root", 100, 16),
        ("broadcast", "binomial", 96, 5), ("broadcast", "chain", 72, 8), ("barrier", "tree", 65, 5),
        ("barrier", "recursive_doubling", 72, 8), ("allgather", "recexch(radix=4)", 128, 4),
    ],
)  # fmt: skip
def test_leaves_whose_ranks_differ_have_the_price_of_all_ranks(
    collective: str, algorithm: str, size: int, width: int, most_compared: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(listings, "_MOST_COMPARED", most_compared)
    _compare_with_all_ranks(find(collective, algorithm), size, width, monkeypatch)


@pytest.mark.parametrize(("algorithm", "width"), [("bcube(radix=4)", 4), ("bcube(radix=4)", 8)])
def test_few_ranks_that_differ_are_found_though_their_messages_match(
    algorithm: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compare_with_all_ranks(find("allgather", algorithm), 128, width, monkeypatch)


def _compare_with_all_ranks(
    algorithm: Algorithm, size: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, model = FatTree(size, radix=width), Hockney(1e-6, 1e-9, 1e-9)
    pattern = pattern_of(algorithm, size, 0, topology.groups)
    monkeypatch.setattr(listings, "_MOST_COMPARED", 1 << 40)
    every_rank = pattern_of(algorithm, size, 0, topology.groups)
    price = simulate(every_rank, 1000, model, without_classes(topology))
    assert simulate(pattern, 1000, model, topology) == pytest.approx(price, rel=1e-9)


@pytest.mark.parametrize(
    ("collective", "algorithm", "size", "classes"),
    [
        ("allreduce", "ring", 24, 1),
        ("allreduce", "circulant", 23, 1),
        ("allreduce", "recursive_doubling", 16, 1),
        ("allreduce", "swing", 24, 2),
        ("allgather", "neighbor_exchange", 24, 2),
        ("alltoall", "naive", 24, 1),
        # Of 16 that go on 8 go on for two, and the last three bits are alike.
        ("allreduce", "recursive_doubling", 24, 3),
        ("broadcast", "binomial", 24, 24),
        ("allreduce", "two_shot", 24, 24),
    ],
)  # fmt: skip
def test_the_classes_on_one_switch(
    collective: str, algorithm: str, size: int, classes: int
) -> None:
    pattern = pattern_of(find(collective, algorithm), size)
    assert len(classes_of(pattern, Switch(size)).rank) == classes
    assert len(classes_of(pattern, Torus(size, dims=(size,))).rank) == size


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        ("allreduce", "two_level"), ("allreduce", "two_level(across=ring)"),
        ("allreduce", "lanes"), ("alltoall", "lanes"), ("allgather", "two_level"),
        ("allreduce", "ring"), ("barrier", "dissemination"),
    ],
)  # fmt: skip
def test_nodes_that_do_the_same_are_one(collective: str, algorithm: str) -> None:
    topology = Nodes(512, nodes=in_order(512, 4))
    pattern = pattern_of(find(collective, algorithm), 512, nodes=topology.groups)
    assert classes_of(pattern, topology).rank.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("collective", "algorithm", "size", "rounds"),
    [
        pytest.param("allgather", "bruck", 10**6, 20, marks=pytest.mark.exhaustive),
        pytest.param("allreduce", "recursive_doubling", 10**6, 21, marks=pytest.mark.exhaustive),
        ("barrier", "dissemination", 10**6, 20), ("allgather", "ring", 10**5, 10**5 - 1),
        ("allreduce", "recursive_doubling", 3 << 14, 17),
    ],
)  # fmt: skip
def test_a_million_ranks(collective: str, algorithm: str, size: int, rounds: int) -> None:
    model: Model = Hockney(1e-6, 1e-10, ports=1)
    pattern = pattern_of(find(collective, algorithm), size)
    assert simulate(pattern, 0, model, Switch(size)) == pytest.approx(rounds * 1e-6)


def test_nodes_of_many_ranks() -> None:
    """16,384 ranks in 32 per node: five rounds up, nine across and five down."""
    topology = Nodes(1 << 14, nodes=in_order(1 << 14, 32))
    pattern = pattern_of(find("allreduce", "two_level"), 1 << 14, nodes=topology.groups)
    assert simulate(pattern, 0, Hockney(1e-6, 1e-10), topology) == pytest.approx(19e-6)

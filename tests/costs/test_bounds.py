"""Measured times against the model and against bounds that no schedule beats."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reporting import ALPHA_US, BETA_NS, case, fit, reported, run
from topologies import topologies

from mpicoll.algorithms.registry import Algorithm, algorithms, find
from mpicoll.costs import (
    AlphaBeta,
    FatTree,
    Hockney,
    LogGP,
    Model,
    Network,
    Nodes,
    Switch,
    Topology,
    pattern_of,
    price,
    simulate,
)
from mpicoll.costs.bounds import bound, lower_bound
from mpicoll.errors import Unsupported
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.schedule import Receive, Send
from mpicoll.simulator import contiguous

NETWORK = Network(AlphaBeta(ALPHA_US / 1e6, BETA_NS / 1e9))


def test_measured_against_model_and_bound(tmp_path: Path) -> None:
    records = [case("ring", 100.0, 4096), case("native", 50.0, 4096), fit()]
    comparisons = {
        comparison.record.algorithm: comparison
        for comparison in reported(tmp_path, *records).comparisons[0]
    }
    # Six messages of a quarter; at least two rounds, or 1.5 times the vector after a start.
    model = 6 * (ALPHA_US + 1024 * BETA_NS / 1000)
    bound = ALPHA_US + max(ALPHA_US, 1.5 * 4096 * BETA_NS / 1000)
    assert comparisons["ring"].over_model == pytest.approx(100 / model)
    assert comparisons["ring"].over_bound == pytest.approx(100 / bound)
    assert comparisons["native"].model is None
    assert comparisons["native"].over_bound == pytest.approx(50 / bound)


@pytest.mark.parametrize(
    "change",
    [
        {"library": "Open MPI"}, {"device": "cuda"}, {"backend": "torch"},
        {"run": run("pairs", machines=[{"host": "h", "processor": "Q", "cores": 1}])},
    ],
)  # fmt: skip
def test_fits_of_something_else_do_not_serve(tmp_path: Path, change: dict[str, Any]) -> None:
    assert reported(tmp_path, case("ring"), fit(**change)).comparisons == [[]]


def test_links_of_the_transport_that_ran(tmp_path: Path) -> None:
    fast = fit("symmetric", alpha_us=0.1, beta_ns_per_byte=0.01)
    records = [case("ring", transport="symmetric"), case("naive"), fast, fit()]
    comparisons = reported(tmp_path, *records).comparisons[0]
    assert [comparison.links for comparison in comparisons] == ["symmetric", "point-to-point"]


def test_a_network_of_one_node_says_nothing_of_several(tmp_path: Path) -> None:
    assert reported(tmp_path, case("ring", nodes=2), fit()).comparisons == [[]]
    far = fit(link="network", nodes=2)
    assert len(reported(tmp_path, case("ring", nodes=2), far).comparisons[0]) == 1


@pytest.mark.parametrize("nbytes", [64, 1 << 20])
@pytest.mark.parametrize("size", [1, 2, 3, 6, 8])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_no_schedule_beats_the_bound(collective: str, size: int, nbytes: int) -> None:
    nbytes = nbytes // size * size if collective != "barrier" else 0
    bound = lower_bound(collective, size, nbytes, NETWORK)
    for algorithm in _serving(collective, size):
        at_least = (
            bound.seconds if _has_one_port(collective, str(algorithm), size) else bound.bandwidth
        )
        assert price(algorithm, size, nbytes, NETWORK) >= at_least * (1 - 1e-9), algorithm


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_nor_on_nodes_that_share_a_link(collective: str) -> None:
    nodes = ((0, 1), (2, 3), (4, 5))
    network = Network(NETWORK.between, AlphaBeta(1e-7, 1e-11))
    bound = lower_bound(collective, 6, 60000, network, nodes)
    # Two ranks of a node can reach two other nodes at once.
    assert bound.latency == NETWORK.between.alpha
    prices = [
        price(algorithm, 6, 60000, network, nodes=nodes) for algorithm in _serving(collective, 6)
    ]
    assert min(prices) >= bound.bandwidth * (1 - 1e-9)


def _serving(collective: str, size: int) -> list[Algorithm]:
    return [algorithm for algorithm in algorithms(collective) if algorithm.needs.holds(size)]


@cache
def _has_one_port(collective: str, text: str, size: int) -> bool:
    """Whether no rank sends, or receives, two messages in a round; each rank is on its own node."""
    algorithm, nodes = find(collective, text), tuple((rank,) for rank in range(size))
    rounds = [step for rank in range(size) for step in algorithm.rounds(rank, size, nodes=nodes)]
    kinds = [[type(op) for op in step] for step in rounds]
    return all(kind.count(Send) <= 1 and kind.count(Receive) <= 1 for kind in kinds)


seconds = st.just(0.0) | st.floats(1e-9, 1e-3)
models = st.one_of(
    st.builds(Hockney, seconds, seconds, seconds, st.sampled_from([None, 1, 2, 3])),
    st.builds(LogGP, seconds, seconds, seconds, seconds, seconds, st.sampled_from([1, 2])),
)


@given(st.data(), st.sampled_from([*COLLECTIVES]), st.integers(1, 12), models,
       st.sampled_from([0, 1, 100, 10**6]))  # fmt: skip
@settings(max_examples=settings().max_examples * 3 // 2)
def test_no_algorithm_beats_the_bound_on_any_topology(
    data: st.DataObject, collective: str, size: int, model: Model, nbytes: int
) -> None:
    algorithm = data.draw(st.sampled_from(_serving(collective, size)))
    topology = data.draw(st.sampled_from([*topologies(size)]))
    root = data.draw(st.integers(0, size - 1)) if algorithm.collective.rooted else 0
    try:
        pattern = pattern_of(algorithm, size, root, topology.groups)
    except Unsupported:
        return
    limits = bound(collective, nbytes, model, topology, root)
    assert simulate(pattern, nbytes, model, topology) >= limits.seconds * (1 - 1e-9)


@pytest.mark.parametrize(
    ("collective", "algorithm", "model", "topology"),
    [
        ("barrier", "dissemination(radix=2)", Hockney(1, 1), Switch(7)),
        ("barrier", "dissemination(radix=4)", Hockney(1, 1, ports=3), Switch(16)),
        ("broadcast", "one_shot", Hockney(1, 0, ports=None), Switch(9)),
        ("allgather", "bruck(radix=2)", Hockney(0, 1), Switch(8)),
        ("allreduce", "ring", Hockney(0, 1), Switch(5)),
        ("allreduce", "rabenseifner", Hockney(0, 0, 1), Switch(8)),
        ("reduce_scatter", "ring", Hockney(0, 0, 1), Switch(5)),
        # Bytes and folds come after the start of a message; a sender need not wait for answers.
        ("alltoall", "naive", Hockney(3, 1), Switch(2)),
        ("reduce_scatter", "ring", Hockney(3, 0, 1), Switch(2)),
        ("broadcast", "one_shot", LogGP(L=5, o=2, g=3, G=0), Switch(4)),
        ("broadcast", "kary(radix=2,segments=1)", LogGP(L=1, o=1, g=2, G=0), Switch(4)),
        ("alltoall", "naive", Hockney(0, 1),
         Nodes(4, nodes=((0, 1, 2, 3),), memory=AlphaBeta(0, 1))),
        ("allreduce", "lanes", Hockney(0, 1, ports=None), Nodes(8, nodes=contiguous(8, 4),
         memory=AlphaBeta(0, 0))),
    ],
)  # fmt: skip
def test_bounds_that_are_reached(
    collective: str, algorithm: str, model: Model, topology: Topology
) -> None:
    pattern = pattern_of(find(collective, algorithm), topology.size, 0, topology.groups)
    limits = bound(collective, 8000, model, topology).seconds
    assert simulate(pattern, 8000, model, topology) == pytest.approx(limits, rel=1e-9)


@pytest.mark.parametrize("ports", [1, 2, 3])
@given(size=st.integers(1, 5000))
def test_one_message_at_a_time_spreads_by_powers(ports: int, size: int) -> None:
    rounds = next(r for r in range(20) if (ports + 1) ** r >= size)
    assert bound("barrier", 0, Hockney(1, 0, ports=ports), Switch(size)).latency == rounds


@pytest.mark.parametrize(
    ("size", "latency"), [(1, 0), (2, 3), (3, 4), (4, 5), (5, 6), (6, 6), (7, 7), (10, 8), (14, 9)]
)
def test_messages_that_follow_each_other_spread_like_rabbits(size: int, latency: float) -> None:
    """One message a second, each of them three seconds on its way."""
    model = LogGP(L=1, o=1, g=1, G=0)
    assert bound("broadcast", 0, model, Switch(size)).latency == latency


def test_few_links_between_leaves_bound_an_exchange() -> None:
    """Three of seven rounds stay on a leaf, and in four all eight ranks want one link."""
    narrow = FatTree(8, radix=4, oversubscription=4)
    limits = bound("alltoall", 8000, Hockney(0, 1), narrow)
    assert limits.bandwidth == 16000 > bound("alltoall", 8000, Hockney(0, 1), Switch(8)).bandwidth
    pattern = pattern_of(find("alltoall", "pairwise"), 8)
    assert simulate(pattern, 8000, Hockney(0, 1), narrow) == 19000


def test_a_chain_in_the_best_segments_reaches_the_bound_of_pipelines() -> None:
    model = Hockney(1.0, 1.0)
    limits = bound("broadcast", 10**6, model, Switch(3))
    assert limits.pipelined > 1.001 * limits.bandwidth
    chain = pattern_of(find("broadcast", "chain(segments=1000)"), 3)
    assert simulate(chain, 10**6, model, Switch(3)) == pytest.approx(limits.pipelined, rel=1e-5)

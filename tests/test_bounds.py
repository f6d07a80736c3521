"""Measured times against the model and against bounds that no schedule beats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reporting import ALPHA_US, BETA_NS, case, fit, reported, run

from mpicoll.algorithms import Algorithm, algorithms
from mpicoll.bounds import lower_bound
from mpicoll.contract import COLLECTIVES
from mpicoll.costs import Link, Network, price
from mpicoll.schedule import Receive, Send

NETWORK = Network(Link(ALPHA_US / 1e6, BETA_NS / 1e9))


def test_measured_against_model_and_bound(tmp_path: Path) -> None:
    records = [case("ring", 100.0, 4096), case("native", 50.0, 4096), fit()]
    found = {each.record["algorithm"]: each for each in reported(tmp_path, *records).against[0]}
    # Six messages of a quarter; at least two rounds, or 1.5 times the vector.
    model = 6 * (ALPHA_US + 1024 * BETA_NS / 1000)
    bound = max(2 * ALPHA_US, 1.5 * 4096 * BETA_NS / 1000)
    assert found["ring"].over_model == pytest.approx(100 / model)
    assert found["ring"].over_bound == pytest.approx(100 / bound)
    assert found["native"].model is None
    assert found["native"].over_bound == pytest.approx(50 / bound)


@pytest.mark.parametrize(
    "change",
    [
        {"library": "Open MPI"}, {"device": "cuda"}, {"backend": "torch"},
        {"run": run("pairs", machines=[{"host": "h", "processor": "Q", "cores": 1}])},
    ],
)  # fmt: skip
def test_fits_of_something_else_do_not_serve(tmp_path: Path, change: dict[str, Any]) -> None:
    assert reported(tmp_path, case("ring"), fit(**change)).against == [[]]


def test_links_of_the_transport_that_ran(tmp_path: Path) -> None:
    fast = fit("symmetric", alpha_us=0.1, beta_ns_per_byte=0.01)
    records = [case("ring", transport="symmetric"), case("naive"), fast, fit()]
    found = reported(tmp_path, *records).against[0]
    assert [each.links for each in found] == ["symmetric", "point-to-point"]


def test_a_network_of_one_node_says_nothing_of_several(tmp_path: Path) -> None:
    assert reported(tmp_path, case("ring", nodes=2), fit()).against == [[]]
    far = fit(link="network", nodes=2)
    assert len(reported(tmp_path, case("ring", nodes=2), far).against[0]) == 1


@pytest.mark.parametrize("nbytes", [64, 1 << 20])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 8])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_no_schedule_beats_the_bound(collective: str, size: int, nbytes: int) -> None:
    nbytes = nbytes // size * size if collective != "barrier" else 0
    bound = lower_bound(collective, size, nbytes, NETWORK)
    for each in _serving(collective, size):
        at_least = bound.seconds if _has_one_port(each, size) else bound.bandwidth
        assert price(each, size, nbytes, NETWORK) >= at_least * (1 - 1e-9), each


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_nor_on_nodes_that_share_a_link(collective: str) -> None:
    nodes = ((0, 1), (2, 3), (4, 5))
    network = Network(NETWORK.between, Link(1e-7, 1e-11))
    bound = lower_bound(collective, 6, 60000, network, nodes)
    assert bound.latency >= 2 * NETWORK.between.alpha
    prices = [price(each, 6, 60000, network, nodes=nodes) for each in _serving(collective, 6)]
    assert min(prices) >= bound.bandwidth * (1 - 1e-9)


def _serving(collective: str, size: int) -> list[Algorithm]:
    return [each for each in algorithms(collective) if each.needs.holds(size)]


def _has_one_port(given: Algorithm, size: int) -> bool:
    """Whether no rank sends, or receives, two messages in a round."""
    rounds = [each for rank in range(size) for each in given.rounds(rank, size)]
    kinds = [[type(op) for op in each] for each in rounds]
    return all(each.count(Send) <= 1 and each.count(Receive) <= 1 for each in kinds)

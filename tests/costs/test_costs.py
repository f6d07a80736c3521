"""Prices against closed forms: rounds times alpha, bytes times beta, folds times gamma."""

from __future__ import annotations

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicoll.algorithms.registry import algorithms, find
from mpicoll.costs import AlphaBeta, Network, price
from mpicoll.errors import ArgumentError, Unsupported
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.records.description import FullRun, Run
from mpicoll.records.lines import FitRecord, RunRecord
from mpicoll.simulator import contiguous

ALPHA, BETA, GAMMA = 1e-5, 8e-9, 1e-10
NETWORK = Network(AlphaBeta(ALPHA, BETA), gamma=GAMMA)
SIZE, BYTES = 8, 1 << 20


def logs(p: int) -> int:
    return ceil(log2(p))


@pytest.mark.parametrize("p", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("name", "algorithm", "rounds", "volume", "folded"),
    [
        ("allreduce", "ring", lambda p: 2 * (p - 1), lambda p: 2 * (p - 1) / p,
         lambda p: (p - 1) / p),
        ("allreduce", "recursive_doubling", logs, logs, logs),
        ("allreduce", "rabenseifner", lambda p: 2 * logs(p), lambda p: 2 * (p - 1) / p,
         lambda p: (p - 1) / p),
        ("broadcast", "binomial", logs, logs, lambda p: 0),
        ("broadcast", "chain(segments=16)", lambda p: p - 2 + 16, lambda p: (p - 2 + 16) / 16,
         lambda p: 0),
        ("allgather", "ring", lambda p: p - 1, lambda p: (p - 1) / p, lambda p: 0),
        ("allgather", "bruck(radix=2)", logs, lambda p: (p - 1) / p, lambda p: 0),
        ("reduce_scatter", "recursive_halving", logs, lambda p: (p - 1) / p, lambda p: (p - 1) / p),
        ("barrier", "dissemination(radix=2)", logs, lambda p: 0, lambda p: 0),
    ],
)  # fmt: skip
def test_closed_forms(p: int, name: str, algorithm: str, rounds, volume, folded) -> None:  # type: ignore[no-untyped-def]
    wanted = rounds(p) * ALPHA + volume(p) * BYTES * BETA + folded(p) * BYTES * GAMMA
    assert price(find(name, algorithm), p, BYTES, NETWORK) == pytest.approx(wanted)


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_every_schedule_has_a_price(name: str, size: int) -> None:
    for algorithm in algorithms(name):
        try:
            seconds = price(algorithm, size, 4096, NETWORK, nodes=contiguous(size, min(size, 2)))
        except Unsupported:
            continue
        assert (seconds > 0) == (size > 1)


def test_ranks_of_a_node_share_its_link() -> None:
    """Four messages leave each of two nodes; one that waits at the other may hold others up."""
    network, nodes = Network(AlphaBeta(0.0, BETA), AlphaBeta(0.0, 0.0)), ((0, 1), (2, 3))
    algorithm = find("alltoall", "naive")
    separate = price(algorithm, 4, 4 * BYTES, Network(AlphaBeta(0.0, BETA)))
    shared = price(algorithm, 4, 4 * BYTES, network, nodes=nodes)
    assert 2.99 < separate / (BYTES * BETA) < 5.01
    assert 3.99 < shared / (BYTES * BETA) < 6.01


@pytest.mark.parametrize(
    ("name", "algorithm", "share"),
    [
        ("allreduce", "ring", 7 / 4), ("allreduce", "two_level(across='ring')", 3 / 2),
        ("allreduce", "lanes", 3 / 2), ("allgather", "ring", 7 / 8), ("allgather", "lanes", 3 / 4),
        ("reduce_scatter", "lanes", 3 / 4), ("broadcast", "chain(segments=64)", 1),
    ],
)  # fmt: skip
def test_bytes_on_the_link_of_a_node(name: str, algorithm: str, share: float) -> None:
    """On 4 nodes of 2 ranks, where memory within a node is fast."""
    network = Network(AlphaBeta(1e-6, BETA), AlphaBeta(1e-7, 1e-11))
    seconds = price(find(name, algorithm), 8, 16 << 20, network, nodes=contiguous(8, 4))
    assert seconds == pytest.approx(share * (16 << 20) * BETA, rel=0.11)


def fit_record(link: str, transport: str, alpha: float, beta: float) -> FitRecord:
    return FitRecord(
        run=Run(), backend="mpi4py", ranks=2, link=link, transport=transport, alpha_us=alpha,
        beta_ns_per_byte=beta,
    )  # fmt: skip


def test_a_measured_network() -> None:
    far = fit_record("network", "point-to-point", 14.0, 8.0)
    near = fit_record("same socket", "symmetric", 0.5, 0.05)
    slow = fit_record("same socket", "point-to-point", 3.0, 0.1)
    network = Network.fitted([RunRecord(run=FullRun()), near, slow, far], "mpi4py", 1e-11)
    assert network.between == pytest.approx((14e-6, 8e-9))
    assert network.within == pytest.approx((0.5e-6, 0.05e-9))
    assert Network.fitted([slow], "mpi4py").between == pytest.approx((3e-6, 0.1e-9))
    with pytest.raises(ArgumentError, match="no fits of torch"):
        Network.fitted([near, far], "torch")


@given(
    st.sampled_from(["ring", "recursive_doubling", "rabenseifner", "one_shot"]),
    st.integers(2, 9), st.integers(0, 1 << 24),
)  # fmt: skip
def test_prices_grow_with_everything(algorithm: str, size: int, nbytes: int) -> None:
    schedule = find("allreduce", algorithm)
    seconds = price(schedule, size, nbytes, NETWORK)
    assert seconds >= 2 * (size - 1) / size * (nbytes - size) * BETA
    assert price(schedule, size, nbytes + size, NETWORK) >= seconds
    assert price(schedule, size, nbytes, Network(AlphaBeta(2 * ALPHA, BETA), gamma=GAMMA)) > seconds

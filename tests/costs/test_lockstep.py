"""Closed forms against the simulation of every message, and how far they reach."""

from __future__ import annotations

import pytest
from catalogue import CATALOGUE
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll.algorithms.registry import find
from mpicoll.costs import Hockney, LogGP, Model, Nodes, Switch, lockstep, pattern_of, simulate
from mpicoll.costs.lockstep import holds
from mpicoll.errors import Unsupported
from mpicoll.simulator import contiguous

seconds = st.just(0.0) | st.floats(1e-9, 1e-3)
models = st.one_of(
    st.builds(Hockney, seconds, seconds, seconds, st.sampled_from([None, 1, 2, 3])),
    st.builds(LogGP, seconds, seconds, seconds, seconds, seconds, st.sampled_from([1, 2])),
)


@given(st.sampled_from(CATALOGUE), st.integers(1, 40), models, st.integers(0, 10**9))
@settings(max_examples=settings().max_examples * 3)
def test_a_closed_form_is_what_the_simulation_finds(algorithm, size, model, nbytes) -> None:  # type: ignore[no-untyped-def]
    try:
        pattern = pattern_of(algorithm, size)
    except Unsupported:
        return
    if holds(pattern, model, Switch(size)):
        simulated = simulate(pattern, nbytes, model, Switch(size))
        assert lockstep(pattern, nbytes, model) == pytest.approx(simulated, rel=1e-9)


@pytest.mark.parametrize(
    ("collective", "algorithm", "size", "period", "closed"),
    [
        ("allreduce", "ring", 24, 1, True),
        ("allreduce", "circulant", 23, 1, True),
        ("allreduce", "recursive_doubling", 16, 1, True),
        ("allreduce", "swing", 24, 2, True),
        ("allgather", "neighbor_exchange", 24, 2, True),
        ("alltoall", "naive", 24, 1, True),
        ("allreduce", "recursive_doubling", 24, 24, False),
        ("broadcast", "binomial", 24, 24, False),
        ("allreduce", "two_shot", 24, 24, False),
    ],
)  # fmt: skip
def test_which_ranks_share_a_pattern(
    collective: str, algorithm: str, size: int, period: int, closed: bool
) -> None:
    pattern = pattern_of(find(collective, algorithm), size)
    assert pattern.period == period
    assert holds(pattern, Hockney(1, 1), Switch(size)) == closed
    assert not holds(pattern, Hockney(1, 1), Nodes(size, nodes=contiguous(size, 2)))


def test_lanes_repeat_with_their_nodes() -> None:
    nodes = contiguous(32, 8)
    assert pattern_of(find("allreduce", "lanes"), 32, nodes=nodes).period == 4


@pytest.mark.parametrize(
    ("collective", "algorithm", "size", "rounds"),
    [
        pytest.param("allgather", "bruck", 10**6, 20, marks=pytest.mark.exhaustive),
        ("barrier", "dissemination", 10**6, 20), ("allgather", "ring", 10**5, 10**5 - 1),
        pytest.param("allreduce", "recursive_doubling", 1 << 16, 16, marks=pytest.mark.exhaustive),
    ],
)  # fmt: skip
def test_a_million_ranks(collective: str, algorithm: str, size: int, rounds: int) -> None:
    model: Model = Hockney(1e-6, 1e-10, ports=1)
    pattern = pattern_of(find(collective, algorithm), size)
    assert holds(pattern, model, Switch(size))
    assert lockstep(pattern, 0, model) == pytest.approx(rounds * 1e-6)

"""Paths through topologies, and what sharing links costs."""

from __future__ import annotations

from math import inf, nan, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from topologies import topologies

from mpicoll.algorithms.registry import find
from mpicoll.costs import (
    AlphaBeta,
    Dragonfly,
    FatTree,
    Hockney,
    LogGP,
    Nodes,
    Switch,
    Topology,
    Torus,
    pattern_of,
    simulate,
)
from mpicoll.costs.topology import in_order
from mpicoll.errors import ArgumentError
from mpicoll.simulator import contiguous


def paths(topology: Topology, pairs: list[tuple[int, int]]) -> list[list[int]]:
    """Return the links of each pair of ranks."""
    sources, targets = (np.array(side) for side in zip(*pairs, strict=True))
    paths_of_pairs = topology.path(sources, targets).T.tolist()
    return [[link for link in path if link >= 0] for path in paths_of_pairs]


@given(st.data(), st.integers(2, 24))
def test_paths_are_of_links_that_exist_each_once(data: st.DataObject, size: int) -> None:
    topology = data.draw(st.sampled_from([*topologies(size)]))
    pairs = [
        (source, target) for source in range(size) for target in range(size) if source != target
    ]
    for path in paths(topology, pairs):
        assert len(set(path)) == len(path)
        assert all(0 <= link < topology.links for link in path)


@given(st.data(), st.integers(2, 24))
def test_a_path_does_not_depend_on_its_company(data: st.DataObject, size: int) -> None:
    topology = data.draw(st.sampled_from([*topologies(size)]))
    ranks = st.integers(0, size - 1)
    pairs = data.draw(st.lists(st.tuples(ranks, ranks), min_size=1))
    assert paths(topology, pairs) == [paths(topology, [pair])[0] for pair in pairs]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_steps_on_a_torus_are_the_shortest_and_lead_there(
    dims: list[int], data: st.DataObject
) -> None:
    size = prod(dims)
    torus, ranks = Torus(size, dims=tuple(dims)), st.integers(0, size - 1)
    source, target = data.draw(ranks), data.draw(ranks)
    at = [int(coordinate) for coordinate in np.unravel_index(source, dims)]
    destination = [int(coordinate) for coordinate in np.unravel_index(target, dims)]
    (path,) = paths(torus, [(source, target)])
    ways = zip(at, destination, dims, strict=True)
    assert len(path) == sum(min((a - b) % n, (b - a) % n) for a, b, n in ways)
    for link in path:
        rank, dim, back = link // 2 // len(dims), link // 2 % len(dims), link % 2
        assert rank == np.ravel_multi_index(at, dims)
        at[dim] = (at[dim] + (-1 if back else 1)) % dims[dim]
    assert at == destination


def test_a_leaf_shares_its_links_up_by_target() -> None:
    tree = FatTree(16, radix=4, oversubscription=2)
    shared, separate = paths(tree, [(0, 4), (1, 6)]), paths(tree, [(0, 4), (1, 7)])
    assert shared[0] == shared[1]
    assert not set(separate[0]) & set(separate[1])


def test_groups_of_a_dragonfly_share_one_link() -> None:
    fly = Dragonfly(32, routers=2, ports=4)
    first, second = paths(fly, [(0, 8), (7, 15)])
    assert len(set(first) & set(second)) == 1
    assert paths(fly, [(0, 1)]) == [[]]
    assert len(paths(fly, [(0, 7)])[0]) == 1


@pytest.mark.parametrize(
    ("topology", "times"),
    [
        (Switch(8), 1), (FatTree(8, radix=4), 1), (FatTree(8, radix=4, oversubscription=2), 2),
        (FatTree(8, radix=4, oversubscription=4), 4), (Nodes(8, nodes=contiguous(8, 2)), 4),
    ],
)  # fmt: skip
def test_messages_to_the_other_half_wait_for_each_other(topology: Topology, times: int) -> None:
    """The last round of recursive doubling on 8 ranks, which joins r and r + 4."""
    pattern = pattern_of(find("allreduce", "recursive_doubling"), 8)
    model = Hockney(0.0, 1.0)
    inner = simulate(pattern_of(find("allreduce", "recursive_doubling"), 4), 1, model, Switch(4))
    assert simulate(pattern, 1, model, topology) == inner + times


def test_hops_add_to_latency() -> None:
    near = simulate(pattern_of(find("barrier", "dissemination"), 2), 0, Hockney(1, 1), Switch(2))
    torus = Torus(2, hop=0.25, dims=(2,))
    far = simulate(pattern_of(find("barrier", "dissemination"), 2), 0, Hockney(1, 1), torus)
    assert (near, far) == (1, 1.25)


@pytest.mark.parametrize(
    ("topology", "description"),
    [
        (Switch(8), "Switch"),
        (Nodes(9, nodes=in_order(9, 8)), "Nodes, 2 of 8 or 1 ranks"),
        (Nodes(4, hop=1e-7, nodes=in_order(4, 2), memory=AlphaBeta(1e-7, 1e-10)),
         "Nodes, 2 of 2 ranks (within: alpha 0.1 us, beta 0.1 ns/B), 0.1 us a hop"),
        (FatTree(8, radix=4, oversubscription=2),
         "FatTree, 2 leaves of 4 ranks, 2 links up of each"),
        (Torus(8, dims=(2, 4)), "Torus, 2x4 ranks"),
        (Dragonfly(8, routers=2, ports=2), "Dragonfly, 2 groups of 2 routers of 2 ranks"),
        (Hockney(2e-6, 0.04e-9, 0.05e-9),
         "Hockney: alpha 2 us, beta 0.04 ns/B, gamma 0.05 ns/B, 1 port"),
        (Hockney(0, 0, ports=None),
         "Hockney: alpha 0 us, beta 0 ns/B, gamma 0 ns/B, start-ups overlap"),
        (LogGP(1.4e-6, 3e-7, 3e-7, 0.04e-9, ports=2),
         "LogGP: L 1.4 us, o 0.3 us, g 0.3 us, G 0.04 ns/B, gamma 0 ns/B, 2 ports"),
    ],
)  # fmt: skip
def test_what_is_told_of_it(topology: object, description: str) -> None:
    assert str(topology) == description


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Nodes(4, nodes=((0, 1), (1, 2))), "each of 4 ranks once"),
        (lambda: FatTree(4, radix=0), "at least one rank"),
        (lambda: FatTree(8, radix=4, oversubscription=5), "from 1 to 4"),
        (lambda: FatTree(16, radix=8, oversubscription=5), "with 2 it is 4, with 1 it is 8"),
        (lambda: Switch(4, hop=inf), "hop must be a number of seconds"),
        (lambda: Torus(4, hop=1e300, dims=(4,)), "hop must be a number of seconds"),
        (
            lambda: Nodes(2, nodes=((0, 1),), memory=AlphaBeta(nan, 0)),
            "alpha must be a number of seconds",
        ),
        (lambda: Torus(8, dims=(3, 3)), "3x3 does not have 8 ranks, but 9"),
        (lambda: Torus(1, dims=(1,) * 21), "at most 20"),
        (lambda: Dragonfly(1 << 20, routers=1, ports=1), "links: at most"),
        (lambda: Dragonfly(9, routers=2, ports=2), "choose a multiple of 4"),
        (lambda: Hockney(-1, 1), "alpha must be a number of seconds"),
        (lambda: Hockney(1, 1, ports=0), "at least one port"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ArgumentError, match=message):
        make()

"""What figures of links and ranks say about hosts, ranks and links."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations

import pytest

from mpicoll.p2p.judging import (
    BANDWIDTH,
    COMPUTE,
    COPY,
    FOLD,
    LATENCY,
    SHARE,
    Figures,
    Finding,
    Quantity,
    hosts_to_avoid,
    judge_links,
    judge_ranks,
    sentence,
)
from mpicoll.p2p.matchings import Pair

NAMES = [f"node{index}" for index in range(8)]


def links(
    count: int, slow_hosts: Collection[int] = (), slow_links: Collection[Pair] = (),
    factor: float = 0.5,
) -> dict[Pair, Figures]:  # fmt: skip
    """Return links of 1 GB/s and a little noise, but for the slow ones."""
    figures = {}
    for pair in combinations(range(count), 2):
        is_slow = pair in slow_links or set(slow_hosts) & {*pair}
        noise = 1 - 0.01 * (7 * pair[0] + 3 * pair[1]) % 0.2
        rate = noise * (factor if is_slow else 1)
        figures[pair] = Figures({LATENCY.name: 10.0, BANDWIDTH.name: rate})
    return figures


@pytest.mark.parametrize(
    ("count", "slow_hosts", "slow_links", "expected"),
    [
        (8, [], [], []),
        (2, [], [(0, 1)], []),  # there is nothing to compare with
        (3, [], [(0, 1)], [(0, 1)]),
        (3, [2], [], [(2,)]),
        (4, [3], [], [(3,)]),
        (4, [], [(1, 2)], [(1, 2)]),
        (5, [0, 4], [], [(0,), (4,)]),
        (8, [2], [], [(2,)]),
        (8, [2], [(0, 5)], [(2,), (0, 5)]),
        (8, [2, 3], [(0, 5), (0, 6)], [(2,), (3,), (0, 5), (0, 6)]),
        (8, [], [(other, 4) for other in range(4)] + [(4, 5)], [(4,)]),
    ],
)
def test_slow_links_are_told_from_slow_hosts(
    count: int, slow_hosts: list[int], slow_links: list[Pair], expected: list[tuple[int, ...]]
) -> None:
    findings = judge_links(4 * [links(count, slow_hosts, slow_links)])
    assert [finding.hosts for finding in findings] == expected
    assert {finding.quantity for finding in findings} <= {BANDWIDTH}


def test_latencies_have_a_wider_limit() -> None:
    figures = links(4)
    figures[0, 1].amounts[LATENCY.name] = 20.0
    assert judge_links(4 * [figures]) == []
    figures[0, 1].amounts[LATENCY.name] = 40.0
    (finding,) = judge_links(4 * [figures])
    assert (finding.hosts, finding.quantity) == ((0, 1), LATENCY)
    assert sentence(finding, NAMES) == (
        "SICK link node0 node1: answers in 40.0 us, the others 10.0 us: 4.0 times slower"
    )


@pytest.mark.parametrize(
    ("pairs", "expected"), [([(0, 2), (1, 2), (2, 3)], (2,)), ([(0, 2)], (0, 2))]
)
def test_wrong_results_are_blamed_alike(pairs: list[Pair], expected: tuple[int, ...]) -> None:
    figures = links(4)
    for pair in pairs:
        figures[pair].fault = "wrong"
    (finding,) = judge_links([figures])
    assert (finding.hosts, finding.quantity) == (expected, None)


def ranks(slow: Mapping[int, Quantity]) -> dict[int, Figures]:
    """Return the figures of eight ranks, where those of some quantities are halved."""
    return {
        rank: Figures({
            quantity.name: 0.5 if slow.get(rank) is quantity else 1.0
            for quantity in (COPY, FOLD, COMPUTE)
        })
        for rank in range(8)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ({}, []),
        ({5: COPY}, [((2,), (5,))]),
        ({4: FOLD, 5: FOLD}, [((2,), (4, 5))]),
        ({4: FOLD, 5: COPY}, [((2,), (5,)), ((2,), (4,))]),
        (dict.fromkeys(range(4), COMPUTE), [((0,), (0, 1)), ((1,), (2, 3))]),
    ],
)
def test_slow_ranks_are_told_from_slow_hosts(
    slow: dict[int, Quantity], expected: list[tuple[tuple[int], tuple[int, ...]]]
) -> None:
    findings = judge_ranks([(0, 1), (2, 3), (4, 5), (6, 7)], 4 * [ranks(slow)])
    assert [(finding.hosts, finding.parts) for finding in findings] == expected


@pytest.mark.parametrize(
    ("faulty", "expected"), [([4], [((2,), (4,))]), ([4, 5], [((2,), (4, 5))])]
)
def test_faulty_ranks_are_told_from_faulty_hosts(
    faulty: list[int], expected: list[tuple[tuple[int], tuple[int, ...]]]
) -> None:
    figures = ranks({})
    for rank in faulty:
        figures[rank].fault = "copies wrongly"
    findings = judge_ranks([(0, 1), (2, 3), (4, 5), (6, 7)], [figures])
    assert [(finding.hosts, finding.parts) for finding in findings] == expected
    assert {finding.fault for finding in findings} == {"copies wrongly"}


def test_a_link_without_a_figure_is_judged_by_its_fault_alone() -> None:
    figures = links(4)
    figures[0, 1] = Figures(fault="does not answer")
    (finding,) = judge_links([figures, links(4)])
    assert sentence(finding, NAMES) == "SICK link node0 node1: does not answer"


@pytest.mark.parametrize(
    ("rates", "is_suspect", "is_sick"),
    [
        ((0.5, 0.5, 0.5, 0.5), True, True),
        ((0.5, 1.0, 1.0, 1.0), False, False),
        ((0.1, 1.0, 1.0, 1.0), True, False),
        ((0.1, 0.1, 1.0, 1.0, 1.0), False, False),
    ],
)
def test_a_few_slow_looks_make_no_slow_link(
    rates: tuple[float, ...], is_suspect: bool, is_sick: bool
) -> None:
    looks = [links(4) for _ in rates]
    for look, rate in zip(looks, rates, strict=True):
        look[0, 1].amounts[BANDWIDTH.name] = rate
    assert bool(judge_links(looks, is_final=False)) is is_suspect
    assert bool(judge_links(looks)) is is_sick


def test_a_slow_link_is_told_from_those_that_noise_joins_to_it() -> None:
    """In the first look most links of a host are slow, in the others one."""
    pairs = [(0, 2), (1, 2), (2, 3)]
    looks = [links(4, slow_links=pairs, factor=0.1)]
    looks += [links(4, slow_links=[(1, 2)], factor=0.1) for _ in range(4)]
    assert [finding.hosts for finding in judge_links(looks)] == [(1, 2)]


def test_a_machine_that_is_slow_for_a_while_is_not_blamed() -> None:
    """All links of a look are as slow."""
    looks = [links(4, factor=0.2, slow_hosts=range(4 * (number % 2))) for number in range(6)]
    assert judge_links(looks) == judge_links(looks, is_final=False) == []


@pytest.mark.parametrize(("looks", "hosts"), [(4, []), (12, [(1,)])])
def test_the_slower_one_of_two_hosts_needs_more_looks_on_a_busy_machine(
    looks: int, hosts: list[tuple[int, ...]]
) -> None:
    """Its share of a core is 1.35 times less than the other one's, but not in all looks."""
    shares = [(0.5, 0.2 if number % 3 else 0.4) for number in range(looks)]
    ranks = [{rank: Figures({SHARE.name: value}) for rank, value in enumerate(pair)}
             for pair in shares]  # fmt: skip
    assert [finding.hosts for finding in judge_ranks(((0,), (1,)), ranks)] == hosts


@pytest.mark.parametrize(
    ("findings", "sick", "spared"),
    [
        ([(2,)], {2}, set()),
        ([(0, 1)], set(), {1}),
        ([(2,), (2, 5)], {2}, set()),
        ([(0, 5), (0, 6)], set(), {0}),
        ([(0, 5), (1, 6)], set(), {5, 6}),
        ([()], set(), set()),
    ],
)
def test_few_hosts_are_left_out_for_a_link(
    findings: list[tuple[int, ...]], sick: set[int], spared: set[int]
) -> None:
    assert hosts_to_avoid([Finding(hosts) for hosts in findings]) == (sick, spared)


def test_faults_are_told_of_ranks_and_results() -> None:
    rank = Finding((1,), (3,), fault="adds wrongly")
    assert sentence(rank, NAMES) == "SICK rank 3 on node1: adds wrongly"
    assert sentence(Finding((), fault="wrong"), NAMES) == "SICK results: wrong"


@pytest.mark.parametrize(("share", "hosts"), [(0.33, [(1,)]), (0.8, [])])
def test_a_host_that_shares_its_core_is_named_by_its_share_alone(
    share: float, hosts: list[tuple[int, ...]]
) -> None:
    """Its memory and its arithmetic are not judged: they suffer from the other processes."""
    ranks = {
        rank: Figures({
            SHARE.name: share if rank == 1 else 1.0, COPY.name: 5.0, FOLD.name: 5.0,
            COMPUTE.name: 1.0 if rank == 1 and share < 0.5 else 2.0,
        })
        for rank in range(4)
    }  # fmt: skip
    findings = judge_ranks(((0,), (1,), (2,), (3,)), 4 * [ranks])
    assert [(finding.hosts, finding.quantity) for finding in findings] == [
        (host, SHARE) for host in hosts
    ]


def test_cores_that_all_hosts_share_are_not_blamed() -> None:
    ranks = {rank: Figures({SHARE.name: 0.3 + 0.02 * rank, COPY.name: 5.0}) for rank in range(4)}
    assert judge_ranks(((0,), (1,), (2,), (3,)), 4 * [ranks]) == []

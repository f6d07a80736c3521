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
    confirm,
    hosts_to_avoid,
    is_disturbed,
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
    findings = judge_links(links(count, slow_hosts, slow_links))
    assert [finding.hosts for finding in findings] == expected
    assert {finding.quantity for finding in findings} <= {BANDWIDTH}


def test_latencies_have_a_wider_limit() -> None:
    figures = links(4)
    figures[0, 1].amounts[LATENCY.name] = 20.0
    assert judge_links(figures) == []
    figures[0, 1].amounts[LATENCY.name] = 40.0
    (finding,) = judge_links(figures)
    assert (finding.hosts, finding.quantity, finding.amount) == ((0, 1), LATENCY, 40.0)


def test_a_silent_link_is_infinitely_slow() -> None:
    figures = links(4)
    figures[0, 1] = Figures({BANDWIDTH.name: 0.0})
    (finding,) = judge_links(figures)
    (confirmed,) = confirm(finding, {}, {**figures}, [figures[2, 3]])
    assert sentence(confirmed, NAMES) == "SICK link node0 node1: does not answer"


@pytest.mark.parametrize(
    ("pairs", "expected"), [([(0, 2), (1, 2), (2, 3)], (2,)), ([(0, 2)], (0, 2))]
)
def test_wrong_results_are_blamed_alike(pairs: list[Pair], expected: tuple[int, ...]) -> None:
    figures = links(4)
    for pair in pairs:
        figures[pair].fault = "wrong"
    (finding,) = judge_links(figures)
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
    findings = judge_ranks(ranks(slow), [(0, 1), (2, 3), (4, 5), (6, 7)])
    assert [(finding.hosts, finding.parts) for finding in findings] == expected


@pytest.mark.parametrize(("again", "is_sick"), [(0.5, True), (0.95, False)])
def test_the_second_look_decides(again: float, is_sick: bool) -> None:
    (finding,) = judge_links(links(4, slow_links=[(0, 1)]))
    figures = [Figures({BANDWIDTH.name: amount}) for amount in (again, 1.0, 1.0)]
    confirmed = confirm(finding, {}, {(0, 1): figures[0]}, figures[1:])
    assert [sentence(single, NAMES) for single in confirmed] == is_sick * [
        "SICK link node0 node1: moves 0.500 GB/s, the others 1.00 GB/s: 2.0 times slower "
        "(in the first look 0.485 and 0.910 GB/s)"
    ]


def test_a_slow_link_is_told_from_those_that_noise_had_joined_to_it() -> None:
    """In the first look most links of a host were slow, in the second look one."""
    first = links(4, slow_links=[(0, 2), (1, 2), (2, 3)])
    (finding,) = judge_links(first)
    again = {pair: Figures({BANDWIDTH.name: 1.0}) for pair in first}
    again[1, 2] = Figures({BANDWIDTH.name: 0.1})
    (confirmed,) = confirm(finding, {**first}, {**again}, [again[0, 1]])
    assert (finding.hosts, confirmed.hosts) == ((2,), (1, 2))
    assert sentence(confirmed, NAMES).startswith("SICK link node1 node2: moves 0.100 GB/s, ")


def test_a_slow_rank_is_told_from_those_that_noise_had_joined_to_it() -> None:
    first = ranks({4: FOLD, 5: FOLD})
    (finding,) = judge_ranks(first, [(0, 1), (2, 3), (4, 5), (6, 7)])
    again = ranks({5: FOLD})
    (confirmed,) = confirm(finding, {**first}, {**again}, [again[0]])
    assert sentence(confirmed, NAMES).startswith("SICK rank 5 on node2: folds 0.500 GB/s, ")


def test_a_machine_that_is_slow_as_a_whole_is_not_blamed() -> None:
    """References of the same look are as slow."""
    (finding,) = judge_links(links(4, slow_links=[(0, 1)]))
    slow = Figures({BANDWIDTH.name: 0.4})
    assert not confirm(finding, {}, {(0, 1): slow}, [slow, slow])
    assert is_disturbed(finding, [slow, slow])


@pytest.mark.parametrize("references", [[], [Figures()], [Figures({BANDWIDTH.name: 0.9})]])
def test_a_second_look_is_undisturbed_by_healthy_figures(references: list[Figures]) -> None:
    """Nor by figures that are missing."""
    (finding,) = judge_links(links(4, slow_links=[(0, 1)]))
    assert not is_disturbed(finding, references)


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
    findings = judge_ranks(ranks, ((0,), (1,), (2,), (3,)))
    assert [(finding.hosts, finding.quantity) for finding in findings] == [
        (host, SHARE) for host in hosts
    ]


def test_cores_that_all_hosts_share_are_not_blamed() -> None:
    ranks = {rank: Figures({SHARE.name: 0.3 + 0.02 * rank, COPY.name: 5.0}) for rank in range(4)}
    assert judge_ranks(ranks, ((0,), (1,), (2,), (3,))) == []

"""Alltoall, scan, exscan, gather and scatter: what their newer algorithms must keep to."""

from __future__ import annotations

from collections import Counter
from math import ceil, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll.algorithms.registry import algorithm, find
from mpicoll.algorithms.scatter import merges
from mpicoll.errors import Unsupported
from mpicoll.notation.schedule import send
from mpicoll.simulator import contiguous, prove


@pytest.mark.parametrize(
    ("of", "equal"), [("gather", (1, 1, 1)), ("alltoall", ((1, 1, 1),) * 3)]
)  # fmt: skip
def test_counts_reach_the_generators_that_ask_for_them(
    of: str, equal: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpicoll.algorithms import registry

    find(of, "naive")
    monkeypatch.setitem(registry._REGISTRY, of, dict(registry._REGISTRY[of]))

    @algorithm(of)
    def with_counts(rank: int, size: int, counts):
        yield send(1, counts)

    entry = find(of, "with_counts")
    assert entry.parameters == {}
    assert entry.takes("counts")
    assert not entry.takes("root")
    assert entry.rounds(0, 3) == [(send(1, equal),)]
    assert entry.rounds(0, 3, counts=(2, 0, 1)) == [(send(1, (2, 0, 1)),)]


# -- alltoall ---------------------------------------------------------------------------


def sizes_of(counts) -> dict:
    """Return the sizes that counts stand for."""
    if isinstance(counts[0], int):
        return dict(enumerate(counts))
    return {(s, t): rows for s, row in enumerate(counts) for t, rows in enumerate(row)}


@pytest.mark.parametrize("size", [*range(1, 34), 49, 64])
def test_skips_send_no_more_than_digits(size: int) -> None:
    skips, digits = (prove(find("alltoall", name), size) for name in ("circulant", "bruck"))
    assert (skips.rounds, skips.ports) == (digits.rounds, digits.ports)
    assert skips.sent <= digits.sent


@pytest.mark.parametrize("size", range(2, 65, 2))
def test_swings_send_at_most_half_of_all_rows_in_a_round(size: int) -> None:
    trace = prove(find("alltoall", "swing"), size)
    assert (trace.rounds, trace.ports) == ((size - 1).bit_length(), 1)
    assert trace.sent <= trace.rounds / 2


@pytest.mark.parametrize(("size", "rows"), [(12, 1), (12, 3), (12, 4), (12, 12), (7, 7), (1, 1)])
def test_grids_of_every_shape_are_right(size: int, rows: int) -> None:
    trace = prove(find("alltoall", f"grid(rows={rows})"), size)
    columns = size // rows
    assert trace.rounds == rows + columns - 2
    assert trace.sent == pytest.approx((2 * size - rows - columns) / size)


def test_a_grid_with_rows_left_over_says_what_would_do() -> None:
    with pytest.raises(Unsupported, match="a multiple of rows=5 ranks, not 12"):
        find("alltoall", "grid(rows=5)").rounds(0, 12)


@pytest.mark.parametrize(
    ("name", "crossing"),
    [("two_level", 4 * 3), ("lanes", 4 * 3 * 3), ("pairwise", 12 * 9)],
)
def test_bundles_cross_between_nodes(name: str, crossing: int) -> None:
    nodes = contiguous(12, 4)
    log = prove(find("alltoall", name), 12, 0, nodes).log
    between = [message for message in log if message.source // 3 != message.destination // 3]
    assert len(between) == crossing


@given(data=st.data())
@settings(max_examples=settings().max_examples * 3 // 5)
def test_hybrid_sends_small_rows_by_digits_and_large_ones_straight(data: st.DataObject) -> None:
    size, limit = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    rows = st.lists(st.integers(0, 6), min_size=size, max_size=size).map(tuple)
    counts = tuple(data.draw(st.lists(rows, min_size=size, max_size=size)))
    log = prove(
        find("alltoall", f"hybrid(limit={limit})"), size, sizes=sizes_of(counts), counts=counts
    ).log
    times = Counter(pair for message in log for pair in message.blocks)
    for (source, target), rows_sent in sizes_of(counts).items():
        digits = ((target - source) % size).bit_count()
        expected = 0 if not rows_sent else digits if rows_sent <= limit else source != target
        assert times[source, target] == expected


# -- gather and scatter -----------------------------------------------------------------


def finish(trace, counts) -> int:
    """Return when the last message ends where one row takes one unit and one port."""
    free = [0] * len(counts)
    for message in trace.log:
        ends = max(free[message.source], free[message.destination])
        ends += sum(counts[row] for row in message.blocks)
        free[message.source] = free[message.destination] = ends
    return max(free)


@given(st.lists(st.integers(0, 50), min_size=2, max_size=20).map(tuple), st.data())
def test_a_size_aware_gather_takes_as_long_as_its_root_receives(counts, data) -> None:
    """At the root at which merging ends by itself; at others up to twice as long."""
    *_, [(_, free, _)] = merges(counts, -1)
    root = data.draw(st.sampled_from([free, *range(len(counts))]))
    trace = prove(find("gather", "size_aware"), len(counts), root, None, sizes_of(counts), counts)
    lower_bound = sum(counts) - counts[root]
    assert trace.rounds <= (len(counts) - 1).bit_length()
    assert lower_bound <= finish(trace, counts) <= (1 + (root != free)) * lower_bound


@pytest.mark.parametrize("of", ["gather", "scatter"])
def test_a_long_row_travels_once(of: str) -> None:
    counts = (1, 1, 1, 1, 1, 1, 1, 100)
    aware, binomial = (
        finish(prove(find(of, name), 8, sizes=sizes_of(counts), counts=counts), counts)
        for name in ("size_aware", "binomial")
    )
    assert aware == 106
    assert binomial > 300


# -- scan and exscan --------------------------------------------------------------------


@pytest.mark.parametrize("size", range(2, 65))
def test_123_doubling_folds_once_a_round_and_takes_one_round_more_at_most(size: int) -> None:
    trace = prove(find("exscan", "123_doubling"), size)
    fewest = prove(find("exscan", "recursive_doubling"), size).rounds
    assert trace.rounds == ceil(log2(size - 1) + log2(4 / 3))
    assert trace.reduced <= trace.rounds <= fewest + 1


@pytest.mark.parametrize("size", range(2, 65, 7))
@pytest.mark.parametrize("of", ["scan", "exscan"])
def test_two_trees_share_the_work(of: str, size: int) -> None:
    single, double = (
        prove(find(of, f"{name}(segments=12)"), size) for name in ("binary_tree", "two_tree")
    )
    assert double.sent <= min(2, single.sent)
    assert double.reduced <= min(2, max(single.reduced, 1.5))
    assert double.rounds <= 2 * (size - 1).bit_length() + 6
    assert single.rounds <= 2 * (size.bit_length() - 1) + 12


@pytest.mark.parametrize("size", [5, 8, 21, 64])
def test_sweeps_fold_less_than_twice_per_rank(size: int) -> None:
    sweep, shift = (prove(find("scan", name), size) for name in ("sweep", "shift"))
    assert sweep.messages < min(2 * size, shift.messages)


# -- inside nodes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two_level", "lanes"])
def test_what_is_large_is_told_to_those_inside(name: str) -> None:
    """With a rank on each node, what runs across is all there is."""
    nodes, counts = tuple(zip(range(6))), ((1000,) * 6,) * 6
    across = find("alltoall", f"{name}(across='hybrid(limit=1)')").rounds(0, 6, 0, nodes, counts)
    flat = find("alltoall", "hybrid(limit=1)").rounds(0, 6, 0, None, counts)
    assert len(across) == len(flat) == 5


@pytest.mark.parametrize("nodes", [tuple(zip(range(6))), (tuple(range(6)),)], ids=["one", "six"])
@pytest.mark.parametrize(("of", "root"), [("gather", 3), ("scatter", 3), ("allgather", 0)])
def test_a_long_row_travels_once_through_both_levels(of: str, root: int, nodes) -> None:
    """In an allgather, only on the way to the first rank of its node."""
    parameters = "local=size_aware" + (
        ",back=binomial" if of == "allgather" else ",across=size_aware"
    )
    counts = (1, 1, 1, 1, 1, 100)
    aware = prove(find(of, f"two_level({parameters})"), 6, root, nodes, sizes_of(counts), counts)
    blind = prove(find(of, "two_level"), 6, root, nodes, sizes_of(counts), counts)
    assert aware.sent <= blind.sent
    if of != "allgather":
        moves = [message for message in aware.log if 5 in message.blocks]
        assert len(moves) == 1
